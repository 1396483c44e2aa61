"""Strategies as values: declared, checked, drawn. Knows no model and no running."""

from __future__ import annotations

from graphagent._retry import Retry as Retry
from graphagent.graph._check import Problem as Problem
from graphagent.graph._decorators import node as node
from graphagent.graph._decorators import tap as tap
from graphagent.graph._forks import Each as Each
from graphagent.graph._forks import Parallel as Parallel
from graphagent.graph._forks import Race as Race
from graphagent.graph._forks import each as each
from graphagent.graph._forks import parallel as parallel
from graphagent.graph._forks import race as race
from graphagent.graph._node import END as END
from graphagent.graph._node import START as START
from graphagent.graph._node import End as End
from graphagent.graph._node import Node as Node
from graphagent.graph._node import Outlet as Outlet
from graphagent.graph._node import Path as Path
from graphagent.graph._node import Start as Start
from graphagent.graph._node import Tap as Tap
from graphagent.graph._node import TapOf as TapOf
from graphagent.graph._policies import Setting as Setting
from graphagent.graph._policies import Timeout as Timeout
from graphagent.graph._strategy import Edge as Edge
from graphagent.graph._strategy import Element as Element
from graphagent.graph._strategy import Strategy as Strategy
from graphagent.graph._types import fits as fits
from graphagent.graph._types import hints as hints
from graphagent.graph._types import is_a as is_a
from graphagent.graph._types import is_type as is_type
from graphagent.graph._types import show as show
