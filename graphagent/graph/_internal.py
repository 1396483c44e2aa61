"""The parts of strategies and their types that other rooms need, and users do not."""

from __future__ import annotations

from graphagent.graph._check import too_deep as too_deep
from graphagent.graph._declarations import LEVELS_OF_AGENT as LEVELS_OF_AGENT
from graphagent.graph._declarations import MOST_LEVELS as MOST_LEVELS
from graphagent.graph._declarations import Declaration as Declaration
from graphagent.graph._forks import Each as Each
from graphagent.graph._forks import Parallel as Parallel
from graphagent.graph._forks import Race as Race
from graphagent.graph._node import End as End
from graphagent.graph._node import Rule as Rule
from graphagent.graph._node import Start as Start
from graphagent.graph._outline import Kind as Kind
from graphagent.graph._outline import differences as differences
from graphagent.graph._policies import Setting as Setting
from graphagent.graph._policies import Timeout as Timeout
from graphagent.graph._rules import RuleNode as RuleNode
from graphagent.graph._rules import RuleTool as RuleTool
from graphagent.graph._rules import declaration_of as declaration_of
from graphagent.graph._rules import is_about as is_about
from graphagent.graph._rules import is_named as is_named
from graphagent.graph._rules import is_tool as is_tool
from graphagent.graph._rules import name_of as name_of
from graphagent.graph._rules import reason as reason
from graphagent.graph._strategy import Edge as Edge
from graphagent.graph._strategy import Element as Element
from graphagent.graph._strategy import inside as inside
from graphagent.graph._types import fits as fits
from graphagent.graph._types import is_a as is_a
from graphagent.graph._types import plain_classes as plain_classes
from graphagent.graph._types import show as show
