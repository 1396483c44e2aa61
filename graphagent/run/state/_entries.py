"""The entries of a journal: a frozen class for each thing that can happen in a run.

A class declares the name of each field in JSON, and says in `apply` how it changes the state of a run. To read a run is to apply
its entries in order. Values, messages and steps are kept as the JSON that the codec made of them: entries neither encode
nor decode.

`docs/journal.md` describes the format for people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from graphagent.graph import Outline

if TYPE_CHECKING:
    from graphagent.run.state._state import Frame, RunState

Json = Any
"""Data that JSON can hold, as `graphagent.codec` made it."""
ABSENT: Any = object()
"""Stands in the place of a value that an entry does not have; None is a value."""
CACHED = "cached:output"
"""The key of the effect that is the output of a cached node: computed now, or found in the store."""


def _named(name: str, default: Any = MISSING) -> Any:
    """Return a field that has another name in JSON."""
    return field(metadata={"json": name}) if default is MISSING else field(default=default, metadata={"json": name})


# Without slots, so that the fields of an entry can be set at once when it is read: a run may have thousands.
@dataclass(frozen=True, kw_only=True)
class JournalEntry:
    """Something that happened in a run."""

    tag: ClassVar[str]
    """The value of `t` in JSON, which names the class."""
    keeps_drafts: ClassVar[bool] = False
    """Whether the drafts of interrupted nodes still count after it: it says nothing of any transcript."""
    pauses: ClassVar[bool] = False
    """Whether it tells only how the run stopped, or was taken up again."""

    at: int
    """When it was written, in milliseconds UTC."""
    ran: int | None = None
    """For how many milliseconds the run had been executed; None: since the entry before it."""
    spent: int | Sequence[Json] | None = None
    """What the run had spent: the number of nodes, or nodes, turns, and what `Usage` counts."""
    charges: Sequence[Json] = ()
    """The rows that were added to the ledger since the entry before it."""
    steps: Sequence[Mapping[str, Json]] | None = None
    """The changes of a transcript."""
    heard: Sequence[bool] | None = None
    """Whether the task has yet to reach a model, and whether the current value reached one without an answer."""
    branch: Sequence[Sequence[Json]] = _named("of", ())
    """The branch whose transcript was changed: each enclosing branch and itself, as path and entry of its beginning."""

    def apply(self, state: RunState) -> None:
        """Change the state of a run, besides what every entry changes."""

    def to_json(self) -> dict[str, Json]:
        """Return the entry as plain JSON data. Fields that have their defaults are left out."""
        found: dict[str, Json] = {"t": self.tag}
        for name, key, default in _FIELDS[type(self)]:
            value = getattr(self, name)
            if value is not default:
                found[key] = value
        return found


@dataclass(frozen=True, kw_only=True)
class NodeEntry(JournalEntry):
    """Something that a node did, or that happened to it."""

    node: str
    """The name of the node; empty for a strategy as a whole."""
    path: str = _named("in", "")
    """The path of the frame in which the node is executed, such as `count/` or `parallel/0/`; empty for the run's own strategy."""
    attempts: Mapping[str, int] | None = _named("tries", None)
    """How often something was begun in the frame that is being retried, by the numbers of the policies."""
    own: Sequence[Json] | None = None
    """What the enclosing strategies that have budgets of their own had spent, the innermost first."""

    def apply(self, state: RunState) -> None:
        """Change the frame in which the node is executed."""
        frame = state.frame(self.path)
        self.change(frame, state)
        frame.attempts = None if self.attempts is None else dict(self.attempts)
        frame.own = frame.own if self.own is None else self.own

    def change(self, frame: Frame, state: RunState) -> None:
        """Change what this kind of entry changes."""


@dataclass(frozen=True, kw_only=True)
class Started(JournalEntry):
    """The run began."""

    tag: ClassVar[str] = "start"
    format: int
    """The number of the format of the whole journal: 1."""
    strategy: Mapping[str, Json]
    """The outline of the strategy."""
    system: Json
    """The system prompt."""
    begun: int
    """The number of steps that were in the transcript before."""
    following: str = _named("next")
    """The first node."""
    value: Json
    """The task."""

    def apply(self, state: RunState) -> None:
        """Begin the run."""
        state.started(self.outline, self.following)

    @property
    def outline(self) -> Outline:
        """The strategy."""
        return msgspec.convert(self.strategy, Outline)


@dataclass(frozen=True, kw_only=True)
class NodeEnded(NodeEntry):
    """A node ended, and another one follows."""

    tag: ClassVar[str] = "node"
    following: str = _named("next")
    """The node that comes next; empty for END."""
    edge: int | None = _named("way", None)
    """The number of the edge that was taken, where there was a choice."""
    value: Json
    """The output of the node."""
    like: Sequence[Json] | None = None
    """The place of the value by whose type this one is read: a tap changed it."""

    def change(self, frame: Frame, state: RunState) -> None:
        """Put the frame before the next node."""
        frame.moved(self.following, state.last)


@dataclass(frozen=True, kw_only=True)
class EffectDone(NodeEntry):
    """A node did something that must not be done twice."""

    tag: ClassVar[str] = "effect"
    keeps_drafts: ClassVar[bool] = True
    key: str
    """The name of the effect in this execution of the node, such as `model:1` or `call:<id>`."""
    value: Json = ABSENT
    """The outcome."""
    response: Mapping[str, Json] | None = None
    """The outcome, where it is the response of a model."""

    def change(self, frame: Frame, state: RunState) -> None:
        """Note that the effect is done."""
        frame.effect_done(self.key, state.last)
        state.asked = self.path + self.node if self.key.startswith("model:") else state.asked
        # The requests of a tool have the id of its call before their keys.
        if self.response is not None and "/" not in self.key and not self.key.startswith(("plan:", "summary:")):
            state.finish_reason = self.response["finish"]


@dataclass(frozen=True, kw_only=True)
class UsageCounted(NodeEntry):
    """A node spent something on a request whose answer is not recorded."""

    tag: ClassVar[str] = "spent"
    keeps_drafts: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class EffectBegun(NodeEntry):
    """A node is about to do something that must not be begun a second time without asking."""

    tag: ClassVar[str] = "intent"
    keeps_drafts: ClassVar[bool] = True
    key: str
    """The name of the effect."""

    def change(self, frame: Frame, state: RunState) -> None:
        """Note that the effect was begun."""
        frame.effect_begun(self.key)


@dataclass(frozen=True, kw_only=True)
class Recovered(NodeEntry):
    """A node failed, and an error edge was taken."""

    tag: ClassVar[str] = "recovered"
    following: str = _named("next")
    """The node that comes next; empty for END."""
    edge: int = _named("way")
    """The number of the edge."""
    error: Json
    """The error, as the edge declares it, or its text."""
    value: Json = ABSENT
    """The value that was passed on, where it is not the error."""
    passed: bool = False
    """Whether that is the input of the node, which is a tap."""
    like: Sequence[Json] | None = None
    """As in NodeEnded."""

    def change(self, frame: Frame, state: RunState) -> None:
        """Put the frame before the next node."""
        frame.moved(self.following, state.last)


@dataclass(frozen=True, kw_only=True)
class Retried(NodeEntry):
    """A node is tried again; where none is named, the whole strategy of the frame."""

    tag: ClassVar[str] = "again"

    def change(self, frame: Frame, state: RunState) -> None:
        """Forget what the node did, or begin again."""
        if self.node:
            frame.retried(state.last)
        else:
            frame.restarted(state.first, state.last, state.begun)


@dataclass(frozen=True, kw_only=True)
class BranchFailed(NodeEntry):
    """A branch failed, and its error is its result."""

    tag: ClassVar[str] = "failed"
    value: Json
    """The error."""

    def change(self, frame: Frame, state: RunState) -> None:
        """End the branch."""
        frame.moved("", state.last)


@dataclass(frozen=True, kw_only=True)
class NodeInterrupted(NodeEntry):
    """The run stopped while a node had added steps. They are shown; they count only until the node is executed again."""

    tag: ClassVar[str] = "said"
    keeps_drafts: ClassVar[bool] = True
    pauses: ClassVar[bool] = True
    again: Sequence[int] = ()
    """The places, among the changes, of those that the node makes again when it is executed again."""

    def apply(self, state: RunState) -> None:
        """Note that there is a draft."""
        state.interrupted()


@dataclass(frozen=True, kw_only=True)
class Stopped(JournalEntry):
    """The run stopped before its end, and nobody executes it."""

    tag: ClassVar[str] = "stop"
    keeps_drafts: ClassVar[bool] = True
    pauses: ClassVar[bool] = True
    status: str
    """`paused`, `waiting`, `failed` or `cancelled`."""
    reason: Json = ""
    """Why, for people."""
    failure: Mapping[str, Json] | None = None
    """The type, message and traceback of the error."""
    questions: Sequence[Mapping[str, Json]] = ()
    """The questions that are open."""
    attempts: Mapping[str, Mapping[str, int]] | None = _named("tries", None)
    """As in NodeEntry, by the paths of the frames. What was tried as often as it may is tried anew when the run is resumed."""

    def apply(self, state: RunState) -> None:
        """Stop the run."""
        state.stopped(self.status, self.failure, self.questions, self.attempts or {})


@dataclass(frozen=True, kw_only=True)
class Resumed(JournalEntry):
    """A process took the run, to continue it."""

    tag: ClassVar[str] = "resume"
    keeps_drafts: ClassVar[bool] = True
    pauses: ClassVar[bool] = True
    strategy: Mapping[str, Json] | None = None
    """The outline of the strategy, if it was changed."""
    answers: Sequence[Mapping[str, Json]] = ()
    """The answers to questions: `in` and `node` of who asked, the `key` under which it finds the answer, and the `value`."""

    def apply(self, state: RunState) -> None:
        """Pass the answers to the nodes that asked."""
        state.resumed(None if self.strategy is None else msgspec.convert(self.strategy, Outline))
        for place, answer in enumerate(self.answers):
            state.frame(answer.get("in", "")).effect_done(answer["key"], state.last, place)


@dataclass(frozen=True, kw_only=True)
class ToolsListed(JournalEntry):
    """A server of tools was asked which it has. The run keeps these, also when it is resumed."""

    tag: ClassVar[str] = "tools"
    keeps_drafts: ClassVar[bool] = True
    pauses: ClassVar[bool] = True
    server: str
    """The name of the server."""
    value: Sequence[Json]
    """The descriptions of the tools."""

    def apply(self, state: RunState) -> None:
        """Note which entry has the tools of the server."""
        state.listed[self.server] = state.last


@dataclass(frozen=True, kw_only=True)
class RunEdited(JournalEntry):
    """Someone changed a transcript, or the value of a frame, while the run was not executed."""

    tag: ClassVar[str] = "edit"
    path: str = _named("in", "")
    """As in NodeEntry."""
    following: str | None = _named("next", None)
    """The node before which the frame was put, with another value."""
    value: Json = ABSENT
    """That value."""

    def apply(self, state: RunState) -> None:
        """Put the frame before the node."""
        if self.following is not None:
            frame = state.frame(self.path)
            frame.moved(self.following, state.last)
            frame.attempts = frame.own = None


@dataclass(frozen=True, kw_only=True)
class Finished(JournalEntry):
    """The run came to END."""

    tag: ClassVar[str] = "final"
    value: Json
    """The answer."""

    def apply(self, state: RunState) -> None:
        """End the run."""
        state.finished()


_CLASSES: dict[str, type[JournalEntry]] = {
    each.tag: each
    for each in (
        Started, NodeEnded, EffectDone, UsageCounted, EffectBegun, Recovered, Retried, BranchFailed, NodeInterrupted, Stopped,
        Resumed, ToolsListed, RunEdited, Finished,
    )
}  # fmt: skip
TAGS = tuple(_CLASSES)
"""The tags of all entries, in the order of this page."""
_FIELDS: dict[type[JournalEntry], list[tuple[str, str, object]]] = {
    kind: [(each.name, each.metadata.get("json", each.name), each.default) for each in fields(kind)]
    for kind in _CLASSES.values()
}
_NAMES = {kind: {"t": "tag"} | {key: name for name, key, _ in found} for kind, found in _FIELDS.items()}
_NEEDED = {kind: frozenset(name for name, _, default in found if default is MISSING) for kind, found in _FIELDS.items()}


def read_entry(data: Mapping[str, Json]) -> JournalEntry:
    """Return the entry that `to_json` returned as JSON data.

    Raises:
        ValueError: it is of no kind that is known, or lacks something, or has something that is not known.
    """
    kind = _CLASSES.get(data["t"]) if isinstance(data.get("t"), str) else None
    if kind is None:
        raise ValueError("it is of a kind that is not known here")
    names = _NAMES[kind]
    try:
        found = {names[key]: value for key, value in data.items()}
    except KeyError:
        raise ValueError("it has something that is not known here") from None
    if not _NEEDED[kind].issubset(found):
        raise ValueError("it lacks something")
    # The constructor of a frozen class would cost several times as much. Defaults are attributes of the class.
    entry = object.__new__(kind)
    object.__setattr__(entry, "__dict__", found)
    return entry
