"""The status of a run."""

from __future__ import annotations

from typing import Literal

Status = Literal[
    "new",
    "queued",
    "running",
    "sleeping",
    "waiting",
    "paused",
    "done",
    "failed",
    "cancelled",
    "interrupted",
    "unsupported",
    "damaged",
]
"""Where a run is: `new` before its first node, `waiting` for answers, `paused` on request, `interrupted` if its process died, `damaged` if the
store has not what was written."""
