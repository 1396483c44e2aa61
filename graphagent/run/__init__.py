"""Running a strategy: the engine, a node's context, budgets, results."""

from __future__ import annotations

from graphagent.run._context import Context as Context
from graphagent.run._context import missing as missing
from graphagent.run._engine import outermost as outermost
from graphagent.run._engine import walk as walk
from graphagent.run._plan import Slot as Slot
from graphagent.run._state import Handler as Handler
from graphagent.run._state import Meter as Meter
from graphagent.run._state import RunResult as RunResult
from graphagent.run._state import RunState as RunState
from graphagent.run._together import together as together
