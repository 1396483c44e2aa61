"""The configuration that an agent gives each of its runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphagent._dispatch import Handlers
    from graphagent.graph import Strategy
    from graphagent.llm import Tool
    from graphagent.memory import RunMemory
    from graphagent.protocols import Feature, Model, Store, ToolServer
    from graphagent.run._compiled import Call, CompiledStrategy
    from graphagent.run._fingerprint import StrategyDescription
    from graphagent.run.engine._budgets import Budgets
    from graphagent.run.engine._callbacks import Callback, Check

FinalCheck = Callable[..., Any]
"""`(answer)` or `(answer, run)`; False, or an exception, refuses the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """The configuration that an agent gives each of its runs."""

    strategy: Strategy[Any, Any]
    compiled: CompiledStrategy
    call: Call
    """Executes the strategy, with its policies."""
    model: Model | None
    tools: tuple[Tool | ToolServer, ...]
    system_prompt: str
    budgets: Budgets
    features: Mapping[type[Any], Feature]
    handlers: Handlers
    store: Store | None
    description: StrategyDescription
    """The strategy as lines of text, which are compared when a run is resumed."""
    facade: Callable[[Any], Any]
    """Returns the `Run` of a driver, for callbacks and results."""
    servers: tuple[ToolServer, ...] = ()
    """Those among its tools, and among the tools of the subgraphs of its strategy."""
    inherits_tools: bool = False
    """Whether its runs, as parts of others, have the tools of those."""
    callbacks: tuple[Callback, ...] = ()
    checks: tuple[Check, ...] = ()
    planning_interval: int | None = None
    check_deps: Callable[[object, str], None]
    """Checks that all who ask for `deps` get what they expect, and raises TypeError with the call to write."""
    without_model: str = ""
    """The path of the first node that asks a model and has none."""
    without_store: str = ""
    """The first node or tool that is cached, if there is no store."""
    deps: Any = None
    """The `deps` of one run; None in the configuration of all runs of an agent."""
    threads: dict[tuple[str, str], RunMemory] = field(default_factory=dict[tuple[str, str], "RunMemory"])
    """The transcripts of the threads that were continued last, by owner and thread."""
    clock: Callable[[], float] = field(default=time.monotonic)
