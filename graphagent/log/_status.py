"""The status of a run."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, get_args

from graphagent._options import check_word

Status = Literal[
    "new",
    "queued",
    "running",
    "sleeping",
    "waiting",
    "paused",
    "done",
    "ended",
    "failed",
    "cancelled",
    "interrupted",
    "unsupported",
    "damaged",
]
"""Where a run is: `new` before its first node, `queued` until somebody begins it, `sleeping` until a time, `waiting` for answers, `paused`
on request, `done` at END, `ended` before it by somebody who would not have it continued, `interrupted` if its process died, `damaged` if
the store has not what was written."""
OVER: Collection[Status] = ("done", "ended")
"""Where nothing is executed any more: the next run of a thread continues the transcript of such a run."""

RETAINED: Collection[Status] = (*OVER, "failed", "cancelled")
"""Where nothing happens by itself any more. Such runs are removed when their agent has kept them long enough."""


def check_statuses(status: Collection[str] | None) -> None:
    """Check an option that names the statuses of runs.

    Raises:
        TypeError: it is one text, and not a list.
        ValueError: one of them is not known.
    """
    if isinstance(status, str):
        raise TypeError(f"status= is a list, such as [{status!r}]")
    for each in status or ():
        check_word("status", each, get_args(Status))
