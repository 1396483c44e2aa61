"""What a run is given: the configuration of its agent, and the options of its call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from graphagent._dispatch import Handlers
    from graphagent.graph import Strategy
    from graphagent.llm import ImageLike, Tool
    from graphagent.memory import RunMemory
    from graphagent.protocols import Feature, Model, Store, ToolServer
    from graphagent.run._compiled import Call, CompiledStrategy
    from graphagent.run.engine._budgets import Budgets
    from graphagent.run.engine._callbacks import Callback, Check

FinalCheck = Callable[..., Any]
"""`(answer)` or `(answer, run)`; False, or an exception, refuses the answer."""


class RunOptions(TypedDict, total=False):
    """What `agent.run`, `start`, `stream` and `run_sync` take besides the task."""

    owner: str
    """For whom it runs: a user, a tenant. Everything remembered belongs to an owner."""
    run_id: str | None
    """The id of the run; by default a new one."""
    steps: RunMemory | None
    """The transcript of an earlier run, which is put before the task as a copy. If the store has that run, and it has ended and is
    unchanged, it is stored as a reference."""
    thread: str | None
    """The name of a conversation of this owner. The run continues the transcript of the last run of that name that ended, and is
    the last one from then on. It needs a store."""
    images: Iterable[ImageLike]
    """Shown to the model with the task: anything that `graphagent.llm.Image` accepts, such as paths and images of Pillow."""
    deps: object
    """What nodes and tools find as `ctx.deps`, such as a client or a connection. It is never stored."""


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
    facade: Callable[[Any], Any]
    """Returns the `Run` of a driver, for callbacks and results."""
    servers: tuple[ToolServer, ...] = ()
    """Those among its tools, and among the tools of the subgraphs of its strategy."""
    inherits_tools: bool = False
    """Whether its runs, as parts of others, inherit the tools of their callers."""
    callbacks: tuple[Callback, ...] = ()
    checks: tuple[Check, ...] = ()
    planning_interval: int | None = None
    check_deps: Callable[[object, str], None]
    """Checks that all users of `deps` get what they expect, and raises TypeError with the call to write."""
    deps: Any = None
    """The `deps` of one run; None in the configuration of all runs of an agent."""
    threads: dict[tuple[str, str], RunMemory] = field(default_factory=dict[tuple[str, str], "RunMemory"])
    """The transcripts of the threads that were continued last, by owner and thread."""
    clock: Callable[[], float] = field(default=time.monotonic)
