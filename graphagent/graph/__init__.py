"""Strategies as values: declared, checked and drawn. Nothing here knows a model or a run."""

from __future__ import annotations

from graphagent._details import Problem as Problem
from graphagent._policies import CachePolicy as CachePolicy
from graphagent._policies import Retry as Retry
from graphagent.graph._decorators import node as node
from graphagent.graph._decorators import tap as tap
from graphagent.graph._forks import each as each
from graphagent.graph._forks import parallel as parallel
from graphagent.graph._forks import race as race
from graphagent.graph._node import END as END
from graphagent.graph._node import START as START
from graphagent.graph._node import Node as Node
from graphagent.graph._node import Outlet as Outlet
from graphagent.graph._node import Path as Path
from graphagent.graph._node import Tap as Tap
from graphagent.graph._node import TapOf as TapOf
from graphagent.graph._outline import Outline as Outline
from graphagent.graph._outline import OutlineEdge as OutlineEdge
from graphagent.graph._policies import ToolSelection as ToolSelection
from graphagent.graph._policies import select_tools as select_tools
from graphagent.graph._rules import BrokenRule as BrokenRule
from graphagent.graph._rules import PathRule as PathRule
from graphagent.graph._rules import guarded as guarded
from graphagent.graph._rules import never_together as never_together
from graphagent.graph._rules import precedes as precedes
from graphagent.graph._strategy import Strategy as Strategy
from graphagent.graph._strategy import StrategyTool as StrategyTool
from graphagent.graph._types import type_hints as type_hints
