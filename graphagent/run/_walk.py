"""The live things of a frame that is executed: what its nodes use, the input of the frame, limits, and text that is held back.

Time limits cancel what waits. The walk looks at them before each node, model turn and tool call, which may never wait; what comes back after
the end of its limit, because it blocked the event loop, has exceeded it as well.

Text of models is held back where a check may refuse it or another attempt may replace it. Each such place has a `HeldBack`, inside that of the
place around it: the request of a turn that callbacks see, a node that is retried, a run whose answer may be refused.

The file is long because a walk, its limits and its input are read together at each node.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, cast, final

import anyio
from anyio.lowlevel import checkpoint

from graphagent._clock import seconds_since, ticks
from graphagent.errors import UnpricedModelError
from graphagent.events import OutputStreamed, TextStreamed
from graphagent.graph import ToolSelection
from graphagent.llm._wrappers import tells_cost
from graphagent.log._visits import UNSET
from graphagent.run._compiled import items_of
from graphagent.run._config import Budgets
from graphagent.run._sites import as_tool

if TYPE_CHECKING:
    from graphagent.events import Event
    from graphagent.graph._policies import Setting
    from graphagent.llm import Tool
    from graphagent.log._log import Log
    from graphagent.log._visits import Frame
    from graphagent.protocols import Model, ToolServer
    from graphagent.run._agent_run import AgentRun
    from graphagent.run._compiled import CompiledNode, CompiledStrategy


REFUSED: tuple[type[Event], ...] = (TextStreamed, OutputStreamed)
"""The events that wait where an answer may be refused."""
REPEATED: tuple[type[Event], ...] = (TextStreamed,)
"""The events that wait where an answer may be given again. A partial value replaces the one before, so it need not wait."""


@final
class HeldBack:
    """Events that wait until they cannot be taken back here; then they are passed on to the wrapper around, or emitted."""

    __slots__ = ("_around", "_of_run", "_said", "kinds")

    def __init__(self, around: HeldBack | None, kinds: tuple[type[Event], ...], *, of_run: bool = False) -> None:
        self._around = around
        # An event that waits further out waits here too, so that it can be dropped here.
        self.kinds: tuple[type[Event], ...] = kinds if around is None else (*kinds, *around.kinds)
        """The kinds of events that wait."""
        self._of_run = of_run
        """Whether it is for the answer of a run: text before another turn is not."""
        self._said: list[tuple[Callable[[Event], None], Event]] = []

    def add(self, emit: Callable[[Event], None], event: Event) -> None:
        """Keep an event, or pass it on if it need not wait; `emit` emits it in its run."""
        if isinstance(event, self.kinds):
            self._said.append((emit, event))
        else:
            report(emit, self._around, event)

    def release(self) -> None:
        """Pass on what waits: nothing here takes it back any more."""
        said, self._said = self._said, []
        for emit, event in said:
            report(emit, self._around, event)

    def drop(self) -> None:
        """Forget what waits: it was refused, broken off, or is said again."""
        self._said = []

    def release_earlier(self) -> None:
        """Pass on the earlier text, here and around: the run has continued, so it cannot be refused as an answer any more."""
        if self._around is not None:
            self._around.release_earlier()
        if self._of_run:
            self.release()


def report(emit: Callable[[Event], None], held_back: HeldBack | None, event: Event) -> None:
    """Emit an event, or have it wait if it is a part of the answer that may be taken back."""
    if held_back is not None and isinstance(event, TextStreamed | OutputStreamed) and event.output == "answer":
        held_back.add(emit, event)
    else:
        emit(event)


_UNREAD: Any = object()


@final
class StoredInput:
    """A stored value that is an input: called, it returns the value as a new object."""

    __slots__ = ("_data", "_kind", "_log", "_stored")

    def __init__(self, log: Log, stored: Any, kind: Any, data: Any = _UNREAD) -> None:
        self._log, self._stored, self._kind, self._data = log, stored, kind, data

    @classmethod
    def of(cls, log: Log, value: Any, kind: Any) -> StoredInput:
        """Return an input of which the log has no bytes. Its large payloads are not stored with the run, since no entry refers to them."""
        apart = type(log)(log.store, log.header, types=log.types)
        return cls(apart, apart.keep(value, kind), kind)

    def __call__(self) -> Any:
        """Return the value."""
        if self._data is _UNREAD:
            return self._log.take(self._stored, self._kind)
        value = self._log.value_of(self._data, self._kind)
        if type(value) is str:  # nobody can change it, so a large one is read once
            self._data = value
        return value

    def shared(self) -> StoredInput:
        """Return an input for several branches, whose values share what cannot be changed."""
        if self._data is _UNREAD:
            self._data = self._log.codec.take_data(self._stored)
        return self

    def items(self) -> Sequence[Callable[[], Any]]:
        """Return the inputs of the branches of an `each`, in the order of `items_of`."""
        self.shared()
        found = self._log.items_of(self._data, self._kind)
        if found is not None:
            return [StoredInput(self._log, None, kind, data) for data, kind in found]
        return [partial(self._item, number) for number in range(len(items_of(self())))]

    def _item(self, number: int) -> Any:
        return items_of(self())[number]


def earlier(deadline: float | None, other: float) -> float:
    """Return the earlier one of two times of the event loop."""
    return other if deadline is None or other < deadline else deadline


@contextmanager
def limited_to(seconds: float, owner: Walk | AgentRun) -> Generator[Callable[[], bool]]:
    """Cancel what the block executes after some seconds, and leave the block then. Yield whether there is time left."""
    before = owner.deadline
    with anyio.move_on_after(seconds) as scope:
        owner.deadline = earlier(before, scope.deadline)
        try:
            yield lambda: anyio.current_time() < scope.deadline
        finally:
            owner.deadline = before


CHOSEN = "tools"
"""The key of the effect that holds the names of the tools that a model chose for a subgraph."""
_UNLIMITED = float("inf")
_FIRST_LOOK, _LOOKS = 16, 128
"""After so many nodes the time is looked at first, and again at the latest, since nodes may never wait themselves."""
_TURN = 0.001
"""After so many seconds other tasks have a turn: it costs as much as some nodes."""
_MOST = 4096
"""After so many nodes other tasks have a turn in any case, such as where a test has stopped the clock."""
_PASSES = 3
"""How many turns of an event loop it takes at the most until a time limit that has passed cancels the task."""


@final
class Limits:
    """The budgets of a run, or of a subgraph that has its own, beside what the frame has spent."""

    __slots__ = (
        "asking", "cost", "frame", "looks", "max_cost", "max_nodes", "max_tokens", "max_turns", "parent", "run", "running", "since", "step",
        "until", "where", "within", "yielded",
    )  # fmt: skip

    def __init__(
        self, run: AgentRun, frame: Frame, budgets: Budgets | Setting, parent: Limits | None = None, where: str = ""
    ) -> None:
        self.run = run
        self.frame = frame
        self.parent = parent
        self.where = where
        """The path of the subgraph; empty for the run."""
        self.within = parent if where else None
        """The limits around in the same run: nodes and turns of a sub-agent are its own, and what it spends is everybody's."""
        self.running = self.asking = 0
        """How many nodes, and how many model turns, are being executed, which the frame does not count yet."""
        nodes, turns, tokens, cost = budgets.max_nodes, budgets.max_turns, budgets.max_tokens, budgets.max_cost
        self.max_nodes: float = _UNLIMITED if nodes is None else nodes
        self.max_turns: float = _UNLIMITED if turns is None else turns
        self.max_tokens: float = _UNLIMITED if tokens is None else tokens
        self.max_cost: Decimal | float = _UNLIMITED if cost is None else Decimal(str(cost))
        self.cost = cost
        self.step = _FIRST_LOOK
        """After so many nodes the time is looked at again: fewer, the longer nodes take."""
        self.looks = frame.nodes + _FIRST_LOOK
        """When so many nodes are counted, the time is looked at."""
        self.yielded = frame.nodes
        """How many nodes were counted when other tasks had their last turn."""
        self.since = ticks()
        """The moment of that turn, in ticks of the clock."""
        self.until: float = 0
        """Until so many nodes are counted, the next one begins in the place of one that has ended, and nothing is to be asked."""

    def replace(self, budgets: Budgets) -> None:
        """Replace the limits that are not None."""
        for name in ("max_nodes", "max_turns", "max_tokens"):
            limit = getattr(budgets, name)
            if limit is not None:
                setattr(self, name, limit)
        if budgets.max_cost is not None:
            self.max_cost, self.cost = Decimal(str(budgets.max_cost)), budgets.max_cost
        self.until = 0

    def enter_node(self) -> None:
        """Count a node that begins.

        Raises:
            BudgetError: there is none left; nothing is counted.
        """
        self.check_node()
        self.count_running(1)

    def check_node(self) -> None:
        """Check that a node is left.

        Raises:
            BudgetError: there is none left.
        """
        limits: Limits | None = self
        while limits is not None:
            if limits.frame.nodes + limits.running >= limits.max_nodes:
                raise limits.run.budget_error("nodes", limits.max_nodes, limits.where)
            limits = limits.within

    async def enter_next_node(self, counts: int) -> None:
        """Count a node that begins in the place of one that has ended, and is counted by the frame. Let other tasks have a turn.

        Args:
            counts: Whether it counts: the nodes inside a fork or a strategy do.

        Raises:
            BudgetError: there is none left; the place is kept.
        """
        if counts and (self.within is not None or self.frame.nodes + self.running > self.max_nodes):
            with self.without_one():
                self.check_node()
        if self.frame.nodes >= self.looks:
            await self.let_others()
        # Those around may change, and know nothing of the limits inside.
        self.until = 0 if self.within is not None else min(self.max_nodes - self.running + 1, self.looks)

    async def let_others(self) -> None:
        """Let other tasks have a turn now and then, since nodes may never wait themselves."""
        nodes, seconds = self.frame.nodes, seconds_since(self.since)
        if seconds < _TURN and nodes - self.yielded < _MOST:
            self.step = min(2 * self.step, _LOOKS)
        else:
            # As many as fit between two turns, if the next ones take as long as those since the last turn.
            fitting = (nodes - self.yielded) * _TURN / max(seconds, _TURN)
            self.step = max(1, min(int(fitting), _LOOKS))
            await checkpoint()
            self.since, self.yielded = ticks(), nodes
        self.looks = nodes + self.step

    @contextmanager
    def without_one(self) -> Generator[None]:
        """Give up the place of a node, and take it again after the block."""
        self.count_running(-1)
        try:
            yield
        finally:
            self.count_running(1)

    def count_running(self, nodes: int) -> None:
        """Change how many nodes are being executed, here and around."""
        limits: Limits | None = self
        while limits is not None:
            limits.running += nodes
            limits.until = 0
            limits = limits.within

    def enter_turn(self) -> None:
        """Count a model turn that begins.

        Raises:
            BudgetError: there is none left; nothing is counted.
        """
        limits: Limits | None = self
        while limits is not None:
            if limits.frame.turns + limits.asking >= limits.max_turns:
                raise limits.run.budget_error("turns", limits.max_turns, limits.where)
            limits = limits.within
        self.count_asking(1)

    def check_turn(self) -> None:
        """Check that a model turn is left.

        Raises:
            BudgetError: there is none left.
        """
        self.enter_turn()
        self.count_asking(-1)

    def count_asking(self, turns: int) -> None:
        """Change how many model turns are being executed, here and around."""
        limits: Limits | None = self
        while limits is not None:
            limits.asking += turns
            limits = limits.within

    def check_spending(self) -> None:
        """Check that tokens and money are left to ask a model.

        Raises:
            BudgetError: all are spent.
        """
        limits: Limits | None = self
        while limits is not None:
            usage = limits.frame.usage
            if usage.total_tokens >= limits.max_tokens:
                raise limits.run.budget_error("tokens", limits.max_tokens, limits.where)
            if usage.cost >= limits.max_cost:
                raise limits.run.budget_error(
                    "cost", limits.max_cost if limits.cost is None else limits.cost, limits.where
                )
            limits = limits.parent

    def check_priced(self, model: Model) -> None:
        """Check that a model says what its answers cost, if a budget of money counts them."""
        limits: Limits | None = self
        while limits is not None:
            if limits.max_cost != _UNLIMITED and not limits.run.allows_unpriced and not tells_cost(model):
                raise UnpricedModelError(model.name, limits.max_cost if limits.cost is None else limits.cost)
            limits = limits.parent

    def remaining(self) -> Budgets:
        """Return the remaining budgets, here and around."""
        least: dict[str, float] = {}
        limits: Limits | None = self
        own = True
        while limits is not None:
            frame = limits.frame
            for name, limit, spent in (
                ("max_nodes", limits.max_nodes if own else _UNLIMITED, frame.nodes + limits.running),
                ("max_turns", limits.max_turns if own else _UNLIMITED, frame.turns + limits.asking),
                ("max_tokens", limits.max_tokens, frame.usage.total_tokens),
                ("max_cost", limits.max_cost, frame.usage.cost),
            ):
                if limit != _UNLIMITED:
                    # Money is a Decimal on both sides, and everything else a number.
                    left: float = max(cast("float", limit) - cast("float", spent), 0)
                    least[name] = min(least.get(name, left), left)
            own = own and limits.within is not None
            limits = limits.parent
        return Budgets(**cast("dict[str, Any]", least))


@final
@dataclass(slots=True, eq=False)
class Walk:
    """The execution of a frame: the live things that its nodes use. It is made anew wherever the frame is entered."""

    run: AgentRun
    frame: Frame
    strategy: CompiledStrategy
    """The strategy that is executed, or the branch of a fork, which is like a strategy of one node."""
    limits: Limits
    model: Model | None
    declared: Sequence[Tool | ToolServer]
    """The tools as the agent or the strategy has them: a server is among them in the place of its tools."""
    given: Callable[[], Any]
    """Returns the input of the frame."""
    deadline: float | None = None
    """When the first of the time limits here and around ends, as a time of the event loop; None: there is none."""
    held_back: HeldBack | None = None
    """Text that was said and that a wrapper may still take back; None: nothing can be taken back."""

    @property
    def node(self) -> CompiledNode | None:
        """The current node."""
        return self.strategy.node(self.frame.visit.node or "")

    def input(self) -> Any:
        """Return the input of the current node: a new object where the log has its bytes."""
        value = self.frame.visit.input
        if value is UNSET:
            return self.given()
        run = self.run
        return run.log.take(value, run.kind_of(self.frame.visit.source)) if run.log.durable else value

    def stored_input(self, value: Any) -> StoredInput:
        """Return the input of the current node in a run with a store, for the nodes inside.

        It is the stored input, unless the node was called with another `value`: middleware changes the input, and an item of a set has no
        bytes of its own.
        """
        stored, run, node = self.frame.visit.input, self.run, self.node
        if not run.plan.around_node:
            if stored is not UNSET:
                return StoredInput(run.log, stored, run.kind_of(self.frame.visit.source))
            if isinstance(self.given, StoredInput):
                return self.given
        kind = (
            getattr(node and node.element, "input_type", Any)
            if stored is UNSET
            else run.kind_of(self.frame.visit.source)
        )
        return StoredInput.of(run.log, value, kind)

    @property
    def seconds_left(self) -> float | None:
        """The time until the first of the time limits that hold ends; None: there is none."""
        return None if self.deadline is None else max(self.deadline - self.run.session.backend.current_time(), 0.0)

    async def stop_if_late(self, deadline: float) -> None:
        """Have a time limit cancel this task, if its time has passed: the event loop had no turn as long as nobody waited."""
        if self.run.session.backend.current_time() >= deadline:
            for _ in range(_PASSES):
                await checkpoint()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that a model is offered here, with those of servers in the place of the servers."""
        return self.run.listed_tools(self.declared)

    def inside(
        self, frame: Frame, strategy: CompiledStrategy, given: Callable[[], Any], setting: Setting | None = None
    ) -> Walk:
        """Return the walk of a frame inside the current node."""
        model, declared, limits = self.model, self.declared, self.limits
        if setting is not None:
            model = model if setting.model is None else setting.model
            if isinstance(setting.tools, ToolSelection):
                declared = self._chosen(self.available(setting))
            elif setting.available is not None:
                declared = tuple(map(as_tool, setting.available))
            if setting.limited:
                limits = Limits(self.run, frame, setting, limits, where=frame.path[len(self.run.frame.path) : -1])
        return Walk(self.run, frame, strategy, limits, model, declared, given, self.deadline, self.held_back)

    @property
    def offered(self) -> tuple[Tool, ...]:
        """The tools that a node may offer: where there are any, with those of features."""
        tools = self.tools
        if tools:
            for feature in self.run.features.having("tools"):
                taken = {tool.name for tool in tools}
                tools += tuple(tool for tool in feature.tools if tool.name not in taken)
        return tools

    def available(self, setting: Setting) -> tuple[Tool, ...]:
        """Return the tools from which a model may select those of a strategy."""
        return (
            self.tools if setting.available is None else self.run.listed_tools(tuple(map(as_tool, setting.available)))
        )

    def of_features(self) -> dict[str, Tool]:
        """Return the tools of features, by their names: they are not part of the selection."""
        return {tool.name: tool for feature in self.run.features.having("tools") for tool in feature.tools}

    def _chosen(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:
        effect = self.frame.visit.effects.get(("once", CHOSEN))
        names = None if effect is None else self.run.log.take(effect.value)
        fixed = self.of_features() if tools else {}
        found = {tool.name: tool for tool in tools if names is None or tool.name in names or tool.name in fixed}
        return (*found.values(), *(tool for name, tool in fixed.items() if name not in found))
