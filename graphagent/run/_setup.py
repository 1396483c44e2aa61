"""What an agent gives each of its runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphagent.graph import Strategy
    from graphagent.llm import Tool
    from graphagent.protocols import Feature, Model, Store
    from graphagent.run._budgets import Budgets
    from graphagent.run._callbacks import Callback, Check
    from graphagent.run._deps import Asked
    from graphagent.run._listening import Handlers
    from graphagent.run._plan import Call, Plan

FinalCheck = Callable[..., Any]
"""`(answer)` or `(answer, run)`; False, or an exception, refuses the answer."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What an agent gives each of its runs."""

    strategy: Strategy[Any, Any]
    plan: Plan
    call: Call
    """Executes the strategy, its policies included."""
    model: Model | None
    tools: tuple[Tool, ...]
    system_prompt: str
    budgets: Budgets
    features: Mapping[type[Any], Feature]
    handlers: Handlers
    store: Store | None
    callbacks: tuple[Callback, ...] = ()
    checks: tuple[Check, ...] = ()
    planning_interval: int | None = None
    asked: tuple[Asked, ...] = ()
    """Who asks for `deps`, and of which type."""
    without_model: str = ""
    """The path of the first node that asks a model and has none."""
    deps: Any = None
    """What the run was passed as `deps`; None in what an agent keeps for all runs."""
    clock: Callable[[], float] = field(default=time.monotonic)
