"""The state of a run, as plain data, and the only functions that change it.

The engine calls them while it executes a run, and the entries of a journal call them when a run is read. So a run that was
killed and read again is where it was, by construction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, final

from graphagent.graph import Outline

if TYPE_CHECKING:
    from graphagent.run.state._entries import JournalEntry, Json


class _Unread:
    """Stands for a value that is in the journal and was not decoded."""

    def __repr__(self) -> str:
        return "<in the journal>"


UNREAD: Final = _Unread()


@final
class Effect:
    """The outcome of something that must not be done twice, and the entry that has it."""

    __slots__ = ("answer", "number", "value")

    def __init__(self, value: Any, number: int = 0, answer: int = -1) -> None:
        self.value = value
        """The outcome; UNREAD in a state that was read from a journal."""
        self.number = number
        """The number of the entry; 0 without a journal."""
        self.answer = answer
        """The place of the answer in a Resumed entry; -1: the entry is the effect."""


class Frame:
    """One activation of a strategy, or of a branch of a fork: where it is, and what its current node has done.

    The frames of a run are a tree. A fork has a frame that contains those of its branches and does nothing else.
    """

    __slots__ = (
        "attempts", "begun", "effects", "inside", "items", "node", "number", "own", "path", "refs", "savepoint", "since",
    )  # fmt: skip

    def __init__(self, path: str = "") -> None:
        self.path = path
        """Such as `count/` or `parallel/0/`; empty for the run's own strategy."""
        self.node: str | None = None
        """The name of the node that is executed, or comes next; empty: it came to END; None: the first one."""
        self.number = 0
        """The number of the entry that put it before that node, and has the value there; 0: it has not moved yet."""
        self.since = 0
        """The number of the entry since which the frames inside it exist. With the path, it names a branch's transcript."""
        self.effects: dict[str, Effect] | None = None
        """What this execution of the node has done, by key."""
        self.begun: set[str] | None = None
        """The keys of effects that were begun and must not be begun a second time without asking."""
        self.attempts: dict[str, int] | None = None
        """How often something was begun here that is being retried, by the numbers of the policies."""
        self.own: Sequence[Any] | None = None
        """What the enclosing strategies that have budgets of their own had spent at the last entry of this frame."""
        self.inside: dict[str, Frame] | None = None
        """The frames inside the current node, by its name; in the frame of a fork, those of its branches by their numbers."""
        # What follows is never in a journal: it is empty in a state that was read.
        self.savepoint: Any = None
        """The transcript as it was when the node began to add to it, and what it has added since."""
        self.items: list[Any] | None = None
        """The items of a fork whose input can be iterated only once."""
        self.refs: dict[int, Any] | None = None
        """References to the values that the node has seen and the journal has, by the ids of the objects."""

    @property
    def node_path(self) -> str:
        """The path of the current node."""
        return self.path + (self.node or "")

    # ---- what happens in a frame: called by the engine, and by the entries of a journal

    def moved(self, node: str, number: int = 0) -> None:
        """The current node ended, and another one comes next: everything about the execution of the former is over."""
        self.node = node
        self.effects = self.begun = self.inside = self.savepoint = self.items = None
        if number:  # without a journal there are no numbers, and no references to what it has
            self.number = self.since = number
            self.refs = None

    def retried(self, number: int = 0) -> None:
        """The current node is tried again with the same value, and the same items of it."""
        self.since = number
        self.effects = self.begun = self.inside = self.savepoint = None

    def restarted(self, first: str, number: int = 0, begun: int = 0) -> None:
        """The strategy is tried again as a whole: it begins where the run began, which is in entry `begun`."""
        self.moved(first, number)
        self.number = begun

    def effect_done(self, key: str, number: int = 0, answer: int = -1, value: Any = UNREAD) -> None:
        """The current node did something, or was given an answer."""
        if self.effects is None:
            self.effects = {}
        self.effects[key] = Effect(value, number, answer)

    def effect_begun(self, key: str) -> None:
        """The current node is about to do something."""
        if self.begun is None:
            self.begun = set()
        self.begun.add(key)

    # ---- the tree

    def frames(self) -> Iterator[Frame]:
        """Yield the frame and those inside it."""
        yield self
        for each in (self.inside or {}).values():
            yield from each.frames()

    def __repr__(self) -> str:
        return f"<frame {self.path!r} at {self.node!r}, entry {self.number}>"


@final
class RunState:
    """Where a run is, as its journal tells."""

    __slots__ = (
        "_only_stops", "asked", "at", "begun", "drafts", "failure", "finish_reason", "first", "last", "listed", "questions", "ran", "ran_at", "root",
        "spent", "status", "strategy", "untouched",
    )  # fmt: skip

    def __init__(self, root: Frame | None = None, before: int = 0) -> None:
        """Return the state before the first entry of a run, which follows as many others that are not its own."""
        self.root = root or Frame()
        """The frame of the run's own strategy."""
        self.last = before
        """The number of the last entry."""
        self.begun = before + 1
        """The number of the entry with which the run began."""
        self.at = 0
        """When that was written, in milliseconds UTC."""
        self.strategy = Outline("strategy", "")
        """The strategy with which the run was begun or resumed last."""
        self.first = ""
        """The first node."""
        self.status = "running"
        """`running`, `done`, or the status of the last stop: `paused`, `waiting`, `failed` or `cancelled`."""
        self.failure: Mapping[str, Json] | None = None
        """The error of the last stop, if nothing happened since."""
        self.questions: Sequence[Mapping[str, Json]] = ()
        """The open questions."""
        self.spent: int | Sequence[Json] = 0
        """What the run had spent, as in the entries."""
        self.ran = 0
        """For how many milliseconds the run had been executed at `ran_at`."""
        self.ran_at = 0
        """When that was noted, in milliseconds UTC."""
        self.asked = ""
        """The path of the node that asked a model last."""
        self.finish_reason: str | None = None
        """Why the model stopped in its last answer."""
        self.drafts: list[int] = []
        """The entries of the nodes that were interrupted, while no transcript has changed since."""
        self.listed: dict[str, int] = {}
        """The entries that have the tools of servers, by the names of the servers."""
        self.untouched = True
        """Whether nothing has happened but that the run was begun, or failed before it executed a node."""
        self._only_stops = True

    @property
    def seconds(self) -> float:
        """For how many seconds the run was executed."""
        return (self.ran + max(self.at - self.ran_at, 0)) / 1000

    def apply(self, entry: JournalEntry) -> None:
        """Change the state as the next entry says."""
        self.last += 1
        self.at = entry.at
        if entry.spent is not None:
            self.spent = entry.spent
        if not entry.keeps_drafts:
            self.drafts.clear()
        if not entry.pauses:
            self.failure, self.questions = None, ()
            self.untouched = self._only_stops = False
        entry.apply(self)
        if entry.ran is not None:
            self.ran, self.ran_at = entry.ran, entry.at

    def frame(self, path: str) -> Frame:
        """Return the frame of a path. One that has not been named yet has not moved."""
        frame = self.root
        if path:
            for part in path[:-1].split("/"):
                if frame.inside is None:
                    frame.inside = {}
                found = frame.inside.get(part)
                if found is None:
                    found = frame.inside[part] = Frame(f"{frame.path}{part}/")
                frame = found
        return frame

    # ---- what happens to the run as a whole

    def started(self, strategy: Outline, first: str) -> None:
        """The run began."""
        self.strategy, self.first = strategy, first
        self.root.moved(first, self.last)
        self.ran_at = self.at
        self.untouched = self._only_stops = True

    def stopped(
        self,
        status: str,
        failure: Mapping[str, Json] | None,
        questions: Sequence[Mapping[str, Json]],
        attempts: Mapping[str, Mapping[str, int]],
    ) -> None:
        """The run stopped before its end."""
        self.status, self.failure, self.questions = status, failure, questions
        self.untouched = self._only_stops and status == "failed" and not self.nodes
        for frame in self.root.frames():
            found = attempts.get(frame.path)
            frame.attempts = dict(found) if found else None

    def resumed(self, strategy: Outline | None) -> None:
        """A process took the run, to continue it."""
        self.status, self.failure, self.questions = "running", None, ()
        self.strategy = self.strategy if strategy is None else strategy

    def interrupted(self) -> None:
        """A node was interrupted, and had added steps to a transcript."""
        if self.drafts and self.drafts[-1] != self.last - 1:  # those before it are of an earlier stop
            self.drafts.clear()
        self.untouched = self._only_stops = False
        self.drafts.append(self.last)

    def finished(self) -> None:
        """The run came to END."""
        self.status = "done"

    # ---- what was spent

    @property
    def nodes(self) -> int:
        """The number of nodes that were executed."""
        return self.spent if isinstance(self.spent, int) else self.spent[0]

    @property
    def turns(self) -> int:
        """The number of model turns."""
        return 0 if isinstance(self.spent, int) else self.spent[1]
