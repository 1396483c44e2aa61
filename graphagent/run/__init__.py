"""Running a strategy: runs, their results, and the context of a node."""

from __future__ import annotations

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
