"""The status of a run."""

from __future__ import annotations

from typing import Literal

Status = Literal["ready", "running", "done", "waiting", "paused", "failed", "cancelled"]
"""Where a run is: `ready` before its first node, `waiting` for answers, `paused` at someone's request."""
