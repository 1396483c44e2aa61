"""Running a strategy: runs, their results, and the context of a node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent._lazy import lazy as _lazy
from graphagent.run._config import FinalCheck as FinalCheck
from graphagent.run._config import RunOptions as RunOptions
from graphagent.run._console import Console as Console
from graphagent.run._result import RunResult as RunResult
from graphagent.run._run import Run as Run
from graphagent.run._stream import RunStream as RunStream
from graphagent.run.engine._budgets import Budgets as Budgets
from graphagent.run.engine._callbacks import Callback as Callback
from graphagent.run.engine._callbacks import StepCallbacks as StepCallbacks
from graphagent.run.engine._context import Context as Context
from graphagent.run.journal._header import RunHeader as RunHeader
from graphagent.run.state._ledger import Charge as Charge
from graphagent.run.state._ledger import Ledger as Ledger
from graphagent.run.state._questions import Question as Question
from graphagent.run.state._status import Status as Status
from graphagent.run.stored._manage import list_runs as list_runs

if not TYPE_CHECKING:  # a type checker shall report names that do not exist
    __getattr__ = _lazy(
        __name__,
        moved={
            "AgentTool": "graphagent.run.engine._child_runs.AgentTool",
            "Check": "graphagent.run._internal.Check",
            "Claim": "graphagent.run.journal._claim.Claim",
            "Halt": "graphagent.run._internal.Suspend",
            "Handler": "graphagent._dispatch.Handler",
            "Handlers": "graphagent._dispatch.Handlers",
            "Head": "graphagent.run.RunHeader",
            "Listener": "graphagent._dispatch.Listener",
            "Meter": "graphagent.run.engine._budgets.Meter",
            "RunState": "graphagent.run.engine._runtime.Runtime",
            "Setup": "graphagent.run._internal.RunConfig",
            "begin": "graphagent.run._internal.begin",
            "by_type": "graphagent._dispatch.by_type",
            "callbacks_with_types": "graphagent.run._internal.callbacks_with_types",
            "check_budgets": "graphagent.run._internal.check_budgets",
            "checked_tools": "graphagent.run._internal.checked_tools",
            "ending": "graphagent._dispatch.ending",
            "outermost": "graphagent.run._internal.compile_root",
            "sub_run": "graphagent.run._internal.child_run_of",
            "together": "graphagent.run._internal.together",
            "tool_of": "graphagent.run._internal.tool_of",
            "walk": "graphagent.run.engine._execute.execute",
        },
    )
