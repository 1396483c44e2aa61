"""Running a strategy: the engine, a node's context, budgets, results."""

from __future__ import annotations

from graphagent.run._agents import check_kept as check_kept
from graphagent.run._agents import check_ways as check_ways
from graphagent.run._agents import checked_tools as checked_tools
from graphagent.run._agents import tool_of as tool_of
from graphagent.run._budgets import Budgets as Budgets
from graphagent.run._budgets import Meter as Meter
from graphagent.run._budgets import check_budgets as check_budgets
from graphagent.run._callbacks import Callback as Callback
from graphagent.run._callbacks import Check as Check
from graphagent.run._callbacks import StepCallbacks as StepCallbacks
from graphagent.run._callbacks import callbacks_with_types as callbacks_with_types
from graphagent.run._claim import Claim as Claim
from graphagent.run._console import Console as Console
from graphagent.run._context import Context as Context
from graphagent.run._context import missing as missing
from graphagent.run._deps import asking as asking
from graphagent.run._deps import check_deps as check_deps
from graphagent.run._engine import outermost as outermost
from graphagent.run._head import Head as Head
from graphagent.run._ledger import Charge as Charge
from graphagent.run._ledger import Ledger as Ledger
from graphagent.run._listening import Handler as Handler
from graphagent.run._listening import Handlers as Handlers
from graphagent.run._listening import Listener as Listener
from graphagent.run._listening import by_type as by_type
from graphagent.run._listening import ending as ending
from graphagent.run._result import RunResult as RunResult
from graphagent.run._result import Status as Status
from graphagent.run._run import Run as Run
from graphagent.run._run import begin as begin
from graphagent.run._runs import list_runs as list_runs
from graphagent.run._setup import FinalCheck as FinalCheck
from graphagent.run._setup import Setup as Setup
from graphagent.run._state import RunState as RunState
from graphagent.run._stream import RunStream as RunStream
from graphagent.run._sub_agents import AgentTool as AgentTool
from graphagent.run._sub_agents import agent_tools as agent_tools
from graphagent.run._sub_agents import sub_run as sub_run
from graphagent.run._suspend import Halt as Halt
from graphagent.run._suspend import Question as Question
from graphagent.run._together import together as together
from graphagent.run._walk import walk as walk
