"""Agents declared as typed strategy graphs, with memory that can be trusted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent._lazy import lazy as _lazy
from graphagent._version import __version__ as __version__

if TYPE_CHECKING:
    from graphagent._agent import Agent as Agent
    from graphagent._sync import blocking as blocking
    from graphagent.graph import END as END
    from graphagent.graph import START as START
    from graphagent.graph import Node as Node
    from graphagent.graph import Strategy as Strategy
    from graphagent.graph import each as each
    from graphagent.graph import node as node
    from graphagent.graph import parallel as parallel
    from graphagent.graph import race as race
    from graphagent.graph import tap as tap
    from graphagent.llm import tool as tool
    from graphagent.run import Context as Context
    from graphagent.run import Run as Run
    from graphagent.run import RunResult as RunResult
else:
    __getattr__ = _lazy(
        __name__,
        {
            "graphagent": ("errors", "events", "graph", "llm", "memory", "protocols", "run", "store"),
            "graphagent._sync": ("blocking",),
            "graphagent._agent": ("Agent",),
            "graphagent.graph": ("END", "START", "Node", "Strategy", "each", "node", "parallel", "race", "tap"),
            "graphagent.llm": ("tool",),
            "graphagent.run": ("Context", "Run", "RunResult"),
        },
    )
