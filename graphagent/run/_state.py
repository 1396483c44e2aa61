"""What one run knows of itself: who it is for, what it has spent, what was executed, who listens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from graphagent.errors import BudgetError, RunError
from graphagent.llm import Usage

if TYPE_CHECKING:
    from graphagent.events import Event
    from graphagent.memory import RunMemory
    from graphagent.protocols import Feature

O = TypeVar("O", covariant=True)

Handler = Callable[[Any], None]
Entry = tuple[str, str, Any]
"""The end of a node execution: where the node stands (`count/`), its name, its output."""

_UNLIMITED = float("inf")


class Meter:
    """Counts what is spent against a budget; a subgraph with a budget of its own counts in its parent's too."""

    __slots__ = ("max_nodes", "max_tokens", "max_turns", "nodes", "parent", "tokens", "turns", "where")

    def __init__(
        self,
        parent: Meter | None = None,
        max_nodes: int | None = None,
        max_turns: int | None = None,
        max_tokens: int | None = None,
        *,
        where: str = "",
    ) -> None:
        self.parent = parent
        self.where = where
        self.nodes = self.turns = self.tokens = 0
        self.max_nodes: float = _UNLIMITED if max_nodes is None else max_nodes
        self.max_turns: float = _UNLIMITED if max_turns is None else max_turns
        self.max_tokens: float = _UNLIMITED if max_tokens is None else max_tokens

    def count_node(self, state: RunState) -> int:
        """Count a node execution that is about to begin, here and in the parents. Gives how many there were in the run.

        Raises:
            BudgetError: there is none left; nothing is counted.
        """
        self._check("nodes", state)
        meter = self
        meter.nodes += 1
        while meter.parent is not None:
            meter = meter.parent
            meter.nodes += 1
        return meter.nodes

    def count_turn(self, state: RunState) -> None:
        """Count a model turn that is about to begin.

        Raises:
            BudgetError: there is none left; nothing is counted.
        """
        self._check("turns", state)
        meter: Meter | None = self
        while meter is not None:
            meter.turns += 1
            meter = meter.parent

    def check_tokens(self, state: RunState) -> None:
        """Refuse to ask a model when all tokens are spent.

        Raises:
            BudgetError: they are.
        """
        self._check("tokens", state)

    def count_tokens(self, tokens: int) -> None:
        """Count tokens that were spent."""
        meter: Meter | None = self
        while meter is not None:
            meter.tokens += tokens
            meter = meter.parent

    def _check(self, budget: str, state: RunState) -> None:
        meter: Meter | None = self
        while meter is not None:
            limit: float = getattr(meter, f"max_{budget}")
            if getattr(meter, budget) >= limit:
                raise state.spent(budget, limit, meter.where)
            meter = meter.parent


class RunResult(Generic[O]):
    """What a run gave, and what it took."""

    __slots__ = ("_output", "_unfinished", "memory", "nodes", "run_id", "seconds", "turns", "usage")

    def __init__(
        self,
        *,
        run_id: str,
        output: O | None,
        unfinished: str,
        memory: RunMemory,
        nodes: int,
        turns: int,
        usage: Usage,
        seconds: float,
    ) -> None:
        self._output = output
        self._unfinished = unfinished
        self.run_id = run_id
        """Which run it was."""
        self.memory = memory
        """The transcript."""
        self.nodes = nodes
        """How many nodes were executed, each attempt counted."""
        self.turns = turns
        """How many model turns there were."""
        self.usage = usage
        """The tokens of all model requests, extraction included."""
        self.seconds = seconds
        """Wall time."""

    @property
    def done(self) -> bool:
        """Whether the run came to END."""
        return not self._unfinished

    @property
    def output(self) -> O:
        """What arrived at END.

        Raises:
            RunError: the run did not come to END.
        """
        if self._unfinished:
            error = RunError(f"run {self.run_id!r} has no output: {self._unfinished}")
            error.run_id = self.run_id
            raise error
        return self._output  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"<run {self.run_id!r}: {'done' if self.done else self._unfinished}, {self.nodes} nodes, {self.turns} turns>"


class RunState:
    """What all parts of one run share."""

    __slots__ = ("clock", "features", "handlers", "memory", "meter", "owner", "record", "run_id", "started", "usage")

    def __init__(
        self,
        *,
        run_id: str,
        owner: str,
        memory: RunMemory,
        meter: Meter,
        features: Mapping[type[Feature], Feature],
        handlers: Mapping[type[Event], tuple[Handler, ...]],
        clock: Callable[[], float],
    ) -> None:
        self.run_id, self.owner, self.memory, self.meter = run_id, owner, memory, meter
        self.features, self.handlers = features, handlers
        self.record: list[Any] = []
        """The entries without their tuples: each would count as an object for the garbage collector to visit."""
        self.usage = Usage()
        self.clock = clock
        self.started = clock()

    @property
    def entries(self) -> list[Entry]:
        """The node executions that ended, in the order of their ends."""
        return list(zip(*[iter(self.record)] * 3, strict=True))

    def emit(self, event: Event) -> None:
        """Tell all who listen, one after the other. What a handler raises ends the run."""
        handlers = self.handlers.get(type(event))
        if handlers is None:
            # A type that was defined after the listeners were registered is heard by those of its nearest base.
            known = next((kind for kind in type(event).__mro__ if kind in self.handlers), None)
            handlers = self.handlers[known] if known is not None else ()
        for handler in handlers:
            handler(event)

    def spent(self, budget: str, limit: float, where: str = "") -> BudgetError:
        """Give the error of a budget that is used up: the run's own, or that of the strategy at a path."""
        unfinished = f"its budget of {limit:,} {budget} is used up"
        error = BudgetError(budget, limit, self.result(unfinished=unfinished), where=where)
        error.run_id = self.run_id
        return error

    def result(self, output: Any = None, *, unfinished: str = "") -> RunResult[Any]:
        """Give what the run has come to."""
        return RunResult(
            run_id=self.run_id, output=output, unfinished=unfinished, memory=self.memory, nodes=self.meter.nodes,
            turns=self.meter.turns, usage=self.usage, seconds=self.clock() - self.started,
        )  # fmt: skip
