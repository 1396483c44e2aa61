"""Running a strategy: runs, their results, and the context of a node.

A configuration and a task come in, entries of a log and a result come out. Read the files in this order: `_handle` (a run, as users
have it), `_session`, `_agent_run` and `_walk` (the live things of a log, of a run of an agent, and of a frame), `_beginning` with `_threads` and `_reading` (what it
begins with), `_answering`, `_ending`; `_compiled` and `_building` (a strategy that is ready to be executed), `_loop` (the
nodes of a frame, one after the other), `_context` and `_effects` (what a node can do, and how that is recorded), `_turns`,
`_calls`, `_people` (models, tools, people), `_forks`, `_policies`, `_children` (inside a node),
`_recorded` (a run that is executed again).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent._lazy import lazy as _lazy
from graphagent.log._header import RunHeader as RunHeader
from graphagent.log._header import Status as Status
from graphagent.log._segments import list_runs as list_runs
from graphagent.log._visits import Charge as Charge
from graphagent.log._visits import Ledger as Ledger
from graphagent.run._callbacks import Callback as Callback
from graphagent.run._config import Budgets as Budgets
from graphagent.run._config import ResumeOptions as ResumeOptions
from graphagent.run._config import RunOptions as RunOptions
from graphagent.run._context import Context as Context
from graphagent.run._handle import Run as Run
from graphagent.run._migration import Migration as Migration
from graphagent.run._questions import Question as Question
from graphagent.run._result import RunResult as RunResult
from graphagent.run._stream import RunStream as RunStream
from graphagent.run._times import Deadline as Deadline

if TYPE_CHECKING:
    from graphagent.run._console import Console as Console
    from graphagent.run._logging import Logging as Logging
else:
    __getattr__ = _lazy(
        __name__,
        {
            "graphagent.run._console": ("Console",),
            "graphagent.run._logging": ("Logging",),
        },
    )
