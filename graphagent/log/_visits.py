"""Visits and the frames around them: where a run is, what it has done there, and what that cost.

A visit is one execution of one node. A run is a tree of visits, and its log is how they came about. A frame is at one visit at a time; entries of the log change that visit, and
put the next one in its place when the node ends or is tried again. So whoever has kept a visit knows by `visit is frame.visit` whether it
is still being executed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast, final

import msgspec
from msgspec import structs

from graphagent._article import counted
from graphagent.llm import Usage

if TYPE_CHECKING:
    from graphagent.graph import Outline
    from graphagent.log._header import Status
    from graphagent.memory.transcript._transcript import Transcript


K = TypeVar("K")
V = TypeVar("V")

UNSET: Any = object()
"""The input of a visit that its caller passes: that of the enclosing node, or an item of it."""


class EffectKind(NamedTuple):
    """How effects of a kind are done again."""

    undone_by_retry: bool
    """Whether a retry of the node discards them; the next attempt finds the others."""
    taken_by_rerun: bool
    """Whether a run that does another one again takes their outcomes. What follows from outcomes, such as steps, comes about anew."""


EFFECT_KINDS: Mapping[str, EffectKind] = MappingProxyType({
    "add": EffectKind(undone_by_retry=True, taken_by_rerun=False),
    "answer": EffectKind(undone_by_retry=False, taken_by_rerun=True),
    "cached": EffectKind(undone_by_retry=False, taken_by_rerun=True),
    "check": EffectKind(undone_by_retry=False, taken_by_rerun=False),
    "decision": EffectKind(undone_by_retry=True, taken_by_rerun=True),
    "edit": EffectKind(undone_by_retry=True, taken_by_rerun=False),
    "join": EffectKind(undone_by_retry=False, taken_by_rerun=False),
    "once": EffectKind(undone_by_retry=False, taken_by_rerun=True),
    "out": EffectKind(undone_by_retry=True, taken_by_rerun=False),
    "proceed": EffectKind(undone_by_retry=False, taken_by_rerun=False),
    "results": EffectKind(undone_by_retry=True, taken_by_rerun=False),
    "settle": EffectKind(undone_by_retry=True, taken_by_rerun=False),
    "sleep": EffectKind(undone_by_retry=True, taken_by_rerun=True),
    "suspended": EffectKind(undone_by_retry=False, taken_by_rerun=False),
    "tool": EffectKind(undone_by_retry=False, taken_by_rerun=True),
    "turn": EffectKind(undone_by_retry=True, taken_by_rerun=True),
})  # fmt: skip
"""The kinds of effects that nodes record; none but these can be recorded."""

UNDONE_BY_RETRY = frozenset(name for name, kind in EFFECT_KINDS.items() if kind.undone_by_retry)

_NAMES_OF_KINDS = {"turn": "model", "tool": "call"}
_NONE: Mapping[Any, Any] = MappingProxyType({})
"""Shared by all visits that have nothing of a kind, as most have: a visit is made for every node."""


def name_of_effect(kind: str, key: str) -> str:
    """Return what an effect is called in histories and errors, such as `model:1` or `call:<id>`; users name an effect that is done once."""
    return key if kind == "once" else f"{_NAMES_OF_KINDS.get(kind, kind)}:{key}"


class Source(NamedTuple):
    """The origin of a value, by which its declared type is found."""

    path: str
    """The path of the node that returned it; empty for the task."""
    edge: int | None = None
    """The number of the edge that passed it on, where there was a choice."""


TASK = Source("")
PLACED = -1
"""The edge of a value that came along none: an entry `Placed` put it before a node, or at the end of a strategy."""


class Effect(NamedTuple):
    """The recorded outcome of an effect."""

    number: int
    """The entry that has it."""
    value: Any = None
    """The outcome: an object without a store, and its bytes with one. Of a turn the id of its step."""
    error: tuple[str, str] | None = None
    """The type and the text of the error that is the outcome."""


class Visit(msgspec.Struct, eq=False):
    """One execution of one node, in one attempt: the next attempt is another visit."""

    node: str | None
    """The name of the node; empty at END; None before the first one."""
    input: Any
    """Its input, as a stored value."""
    source: Source
    """The origin of that value."""
    entered: int
    """The entry with which the node was entered, in its first attempt."""
    since: int
    """The entry with which this attempt began."""
    latest: int
    """The last entry with an effect of the visit. A node that is executed again has passed its effects when it has come to it."""
    effects: Mapping[tuple[str, str], Effect] = _NONE
    """What it has done, by kind and key, with what the attempts before it did that stays done."""
    started: Mapping[tuple[str, str], int] = _NONE
    """How often each effect that has no outcome yet was begun, by kind and key."""
    inside: Mapping[str, list[Frame]] = _NONE
    """The frames inside the node: `branches` of a fork or a subgraph, and `agent <key>` of a sub-agent."""
    attempts: Mapping[str, int] = _NONE
    """How often something was begun here that is being retried, by the names of the policies."""
    outcome: str = ""
    """How the node was left: it `ended`, it `failed` and its error was caught, it was `skipped` by middleware, or it is `retried`. Empty before
    that, and where it was left otherwise."""

    @property
    def attempt(self) -> int:
        """The number of this attempt of the node."""
        return 1 + sum(count for name, count in self.attempts.items() if name.isdecimal())

    @property
    def is_new(self) -> bool:
        """Whether it has done nothing."""
        return not (self.effects or self.started or self.inside or self.attempts)

    def start(self, kind: str, key: str, number: int) -> None:
        """Note that an effect was begun."""
        place = kind, key
        self.started = _with(self.started, place, self.started.get(place, 0) + 1)
        self.latest = number

    def record(self, kind: str, key: str, effect: Effect, *, lasting: bool = False) -> None:
        """Note the outcome of an effect. A node that is executed again never looks for one that is lasting, and does not wait for it."""
        place = kind, key
        self.effects = _with(self.effects, place, effect)
        if place in self.started:
            self.started = {each: times for each, times in self.started.items() if each != place}
        if not lasting:
            self.latest = effect.number

    def add_inside(self, key: str, *frames: Frame) -> list[Frame]:
        """Add frames inside the node, and return all under the key."""
        beside = self.inside.get(key)
        if beside is None:
            self.inside = _with(self.inside, key, beside := [])
        beside += frames
        return beside

    def leave_inside(self) -> None:
        """Forget the frames inside the node and the effects that were begun: the node was left before its end."""
        self.inside = self.started = _NONE

    def forget_errors(self) -> None:
        """Forget the outcomes that are errors: what failed is done again."""
        self.effects = {place: effect for place, effect in self.effects.items() if effect.error is None}

    def again(self, number: int, policy: str) -> Visit:
        """Return the next attempt, which one of the policies of the node makes."""
        kept = {place: effect for place, effect in self.effects.items() if place[0] not in UNDONE_BY_RETRY}
        attempts = {**self.attempts, policy: self.attempts.get(policy, 0) + 1}
        return structs.replace(
            self, effects=kept, inside=_NONE, since=number, latest=number, attempts=attempts, outcome=""
        )

    def begun_again(self, number: int) -> Visit:
        """Return this visit as it begins after the callbacks have seen the task."""
        return structs.replace(self, effects=_NONE, since=number, latest=number)


def _with(known: Mapping[K, V], key: K, value: V) -> Mapping[K, V]:
    """Put a value into a mapping of a visit, or into a new one in the place of that which all visits share."""
    own = {} if known is _NONE else cast("dict[K, V]", known)
    own[key] = value
    return own


@final
class Activation:
    """One run of an agent: the run itself, or that of a sub-agent inside of it."""

    __slots__ = (
        "began", "charged", "charges", "children", "declared", "finish_reason", "frame", "kept", "last_model_node", "listed", "name", "node", "output", "parent",
        "ruled", "status", "strategy", "task",
    )  # fmt: skip

    def __init__(self, frame: Frame, task: Any, parent: Activation | None = None) -> None:
        self.frame = frame
        """The frame of its strategy."""
        self.task = task
        """The task, as a stored value."""
        self.began = 0
        """When that of a sub-agent began, in milliseconds UTC."""
        self.parent = parent
        self.name = ""
        """The name of the sub-agent."""
        self.node = ""
        """The path of the node that called it."""
        self.status: Status = "running"
        self.strategy: Outline | None = None
        """The outline of its strategy, with which it was begun or resumed last; None in a run without a store."""
        self.declared: dict[str, str] = {}
        """The names of the declarations of its nodes by their paths; none in a run without a store."""
        self.ruled: tuple[tuple[str, str], ...] = ()
        """What the rules of a sub-agent name: the path of the strategy that has them, and the name."""
        self.output: Any = None
        """The answer, as a stored value."""
        self.last_model_node = ""
        """The node of its own strategy that asked a model last."""
        self.finish_reason: str | None = None
        """Why the model stopped when it was asked for an answer last."""
        self.charges: list[Charge] = []
        """The rows of its ledger, without those of its sub-agents."""
        self.charged = 0 if parent is None else len(parent.charges)
        """How many rows the ledger around it had when it began."""
        self.children: list[Activation] = []
        """The runs of sub-agents that it began, in their order."""
        self.listed: dict[str, Any] = {}
        """The tools of servers, by the names of the servers, as stored values."""
        self.kept: dict[str, Any] = {}
        """The values that features keep with the run, by their names, as stored values."""

    @property
    def path(self) -> str:
        """Its name below the run, such as `mid/5`; empty for the run itself."""
        return "" if self.parent is None else f"{self.parent.path}/{self.name}/{self.frame.born}".lstrip("/")


class Frame:
    """One activation of a strategy, or of a branch of a fork: its place in the run, its transcript, its totals, and its current visit.

    The frames of a run are a tree: those inside a frame are branches, subgraphs and sub-agents of its current visit.
    """

    __slots__ = (
        "activation", "born", "ended", "key", "nodes", "owns", "parent", "path", "place", "ran", "transcript", "turns",
        "usage", "visit", "visits",
    )  # fmt: skip

    def __init__(self, path: str, parent: Frame | None, transcript: Transcript, born: int = 0) -> None:
        self.path = path
        """Such as `count/` or `parallel/0/`; empty for the run's own strategy."""
        self.parent = parent
        self.key, self.place = "", 0
        """Under which key it is inside its parent, and at which place there."""
        self.transcript = transcript
        self.owns = parent is None or transcript is not parent.transcript
        """Whether the frame has its own transcript. If so, the inverses of changes are dropped as soon as a node ends."""
        self.born = born
        """The entry with which it began."""
        self.visit = Visit(None, UNSET, TASK, born, born, born)
        """Its current visit: also before the first node, and at END."""
        self.visits = defaultdict[str, int](int)
        """How often each node was entered."""
        self.nodes = self.turns = 0
        """How many nodes were executed, and how many model turns there were, here and inside, without sub-agents."""
        self.usage = NOTHING
        """The tokens and money that were spent here and inside."""
        self.ended = 0
        """The entry with which it came to END."""
        self.ran = 0
        """For how many milliseconds the run had been executed when it began, where the frame has a budget of time."""
        self.activation: Activation | None = None
        """The run of an agent whose strategy this is."""

    @property
    def node_path(self) -> str:
        """The path of the current node."""
        return self.path + (self.visit.node or "")

    @property
    def agent(self) -> Activation:
        """The run of an agent to which the frame belongs."""
        frame: Frame | None = self
        while frame is not None and frame.activation is None:
            frame = frame.parent
        assert frame is not None
        assert frame.activation is not None
        return frame.activation

    @property
    def is_new(self) -> bool:
        """Whether the current visit has done nothing, so that nothing of it is to be forgotten when it ends."""
        return self.visit.is_new and not self.transcript.changes

    def counted_around(self) -> Iterator[Frame]:
        """Yield the frames around this one in which its nodes count too: those of a sub-agent are its own."""
        frame = self
        while frame.activation is None and frame.parent is not None:
            frame = frame.parent
            yield frame

    def moved(self, node: str, value: Any, source: Source, number: int) -> None:
        """It is before a node: the first one, or that after one that ended."""
        self.visit = Visit(node, value, source, number, number, number)
        if node:
            self.visits[node] += 1
        else:
            self.ended = number
        if self.owns and self.transcript.changes:
            self.transcript.forget_changes()

    def retried(self, number: int, policy: str) -> None:
        """The current node is tried again: what the attempt did under numbers is taken back."""
        self.transcript.rewind(self.visit.since)
        self.visit = self.visit.again(number, policy)

    def count(self, nodes: int = 0, turns: int = 0, usage: Usage | None = None) -> None:
        """Count what was spent, here and in the frames around. The nodes and turns of a sub-agent are its own."""
        frame: Frame | None = self
        while frame is not None:
            frame.nodes += nodes
            frame.turns += turns
            if usage is not None:
                frame.usage += usage
            if frame.activation is not None:
                nodes = turns = 0
            frame = frame.parent

    def frames(self) -> Iterator[Frame]:
        """Yield the frame and those inside it."""
        yield self
        for frames in self.visit.inside.values():
            for frame in frames:
                yield from frame.frames()

    def of_agent(self) -> Iterator[Frame]:
        """Yield the frame and those inside it, without those of sub-agents."""
        yield self
        for frames in self.visit.inside.values():
            for frame in frames:
                if frame.activation is None:
                    yield from frame.of_agent()

    def __repr__(self) -> str:
        return f"<frame {self.path!r} at {self.visit.node!r}, entry {self.visit.entered}>"


@dataclass(frozen=True, slots=True)
class Charge:
    """What one model request took, or one run of a sub-agent."""

    node: str
    """The path of the node that asked."""
    what: str
    """What for, as the node names it: `model:1` is its first model request, `plan:3` the plan after the third turn; for
    sub-agents their name."""
    model: str
    """The model that answered, as its server names it; empty for sub-agents, which may ask several."""
    usage: Usage
    run_id: str = ""
    """The run of the sub-agent, where it was one."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a run spent: a row for every model request, and one for every run of a sub-agent with all that it took."""

    charges: tuple[Charge, ...]
    """The rows, in the order of spending."""

    @staticmethod
    def of(charges: Iterable[Charge]) -> Ledger:
        """Make one of charges. Those of one sub-agent's run become one row, where the first of them stood."""
        rows: list[Charge] = []
        places: dict[str, int] = {}
        for charge in charges:
            place = places.get(charge.run_id) if charge.run_id else None
            if place is not None:
                rows[place] = replace(rows[place], usage=rows[place].usage + charge.usage)
                continue
            if charge.run_id:
                places[charge.run_id] = len(rows)
            rows.append(charge)
        return Ledger(tuple(rows))

    @property
    def total(self) -> Usage:
        """All of it: what `result.usage` says."""
        return spent(self.charges)

    @property
    def by_node(self) -> dict[str, Usage]:
        """What each node took, under its path, in the order of spending."""
        nodes = dict.fromkeys(each.node for each in self.charges)
        return {node: spent(each for each in self.charges if each.node == node) for node in nodes}

    def to_text(self) -> str:
        """Return it as a table, with the total at the end. Empty columns are left out."""
        rows = [_cells(each.node, each.what, each.model, each.usage) for each in self.charges]
        rows.append(_cells("total", "", "", self.total))
        kept = [n for n in range(len(_COLUMNS)) if n in _ALWAYS or any(row[n] for row in rows)]
        table = [[row[n] for n in kept] for row in (list(_COLUMNS), *rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        is_text = [n < _TEXTS for n in kept]
        return "\n".join("  ".join(_aligned(row, widths, is_text)).rstrip() for row in table)

    def __repr__(self) -> str:
        return f"<ledger of {counted(len(self.charges), 'row')}: {counted(self.total.total_tokens, 'token')}>"


NOTHING = Usage()
_COLUMNS = ("node", "what", "model", "input", "cached", "output", "reasoning", "cost")
_TEXTS = 3
"""How many columns, from the first on, hold text."""
_ALWAYS = (0, 3, 5)
"""The columns that are always there."""


def spent(charges: Iterable[Charge]) -> Usage:
    """Return the sum of rows of a ledger."""
    return sum((each.usage for each in charges), NOTHING)


def _cells(node: str, what: str, model: str, usage: Usage) -> list[str]:
    return [
        _line(node),
        _line(what),
        _line(model),
        f"{usage.input_tokens:,}",
        f"{usage.cached_tokens:,}" if usage.cached_tokens else "",
        f"{usage.output_tokens:,}",
        f"{usage.reasoning_tokens:,}" if usage.reasoning_tokens else "",
        f"{usage.cost.normalize():f}" if usage.cost else "",
    ]


def _line(text: str) -> str:
    """Return a name as one line that moves no cursor: a model's name comes from its server."""
    return "".join(each if each.isprintable() else "�" for each in text)


def _aligned(row: list[str], widths: list[int], is_text: list[bool]) -> Iterator[str]:
    for cell, width, left in zip(row, widths, is_text, strict=True):
        yield cell.ljust(width) if left else cell.rjust(width)
