"""The status of a run."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

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
"""Where a run is: `new` before its first node, `waiting` for answers, `paused` on request, `done` at END, `ended` before it by somebody who
would not have it continued, `interrupted` if its process died, `damaged` if the store has not what was written."""
OVER: Collection[Status] = ("done", "ended")
"""Where nothing is executed any more: the next run of a thread continues the transcript of such a run."""
