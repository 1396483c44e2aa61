"""Runs that others execute: submitted by any process that has the store, executed by workers.

A task and options come in, headers and items in a store come out, of which workers make runs. Read the files in this order: `_submit`
(the commit), `_execute` (beginning and continuing one run that is due), `_handle` (a run that others execute, as users have it);
`_dispatch` and `_in_process` (how workers hear of runs at once), `_worker` with `_finding`, `_backlog` and `_limits` (which run is executed
next, where and when), `_schedules` (runs that begin at times).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent._lazy import lazy as _lazy
from graphagent.work._handle import RunHandle as RunHandle
from graphagent.work._schedules import Schedule as Schedule
from graphagent.work._submit import SubmitOptions as SubmitOptions
from graphagent.work._worker import Worker as Worker

if not TYPE_CHECKING:
    __getattr__ = _lazy(__name__, {})
