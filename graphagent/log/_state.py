"""The state of a run: the fold of the entries of its log.

Only `apply` of entries changes it, in the process that executes the run as in one that reads it. The engine reads it, and owns nothing
that it does not have besides live things: clients, handlers, cancel scopes, timers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, final

import msgspec

from graphagent.llm import Usage
from graphagent.log._ledger import NOTHING, Charge
from graphagent.log._visits import TASK, UNSET, Source, Visit
from graphagent.memory.transcript._transcript import Transcript

QuestionKind = Literal["question", "approval", "result", "in_flight"]

if TYPE_CHECKING:
    from graphagent.graph import Outline
    from graphagent.log._status import Status


@final
class OpenQuestion(NamedTuple):
    """An open question, as the log has it."""

    id: str
    at: str
    """The path of the frame whose node asks."""
    key: str
    """The key of the answer among the effects of the node."""
    node: str
    """The path of the node."""
    text: str
    kind: QuestionKind
    about: Any
    """The subject, as a stored value."""
    schema: Any
    """The JSON schema of the answer, as a stored value."""
    asked: int
    """When it was asked, in milliseconds UTC."""
    deadline: int = 0
    """When it expires, in milliseconds UTC; 0: never."""


RuleScope: TypeAlias = tuple[str, int]
"""One visit of a strategy that has rules: the path of its frame, and the entry with which it was entered."""


Standing: TypeAlias = tuple[str, int, int]
"""What was executed of one declaration, as it matters to what begins then: the path of what began last, the last entry at which one was
running or over, and the entry with which the last that came to its end began; 0 if none did."""


class Occurrences(msgspec.Struct, omit_defaults=True, dict=True):
    """What was executed of one declaration."""

    @cached_property
    def latest(self) -> int:
        """The entry with which the last of those began that came to their end; 0 if none did."""
        return max((last for _, last in self.ended.values()), default=0)

    node: str = ""
    """The path of that of its nodes that began last; for a tool call that of the node that makes it, and the tool."""
    over: int = 0
    """The last entry at which one was known to be over."""
    running: dict[str, tuple[str, str, int, dict[str, Standing]]] = {}
    """Those that began and have not ended, by their paths: the path of the frame, the node that it executes, the entry, and what had been
    executed by then."""
    ended: dict[str, tuple[int, int]] = {}
    """Those that came to their end, by their paths: with which entry the first of them began, and the last."""


@final
class Activation:
    """One run of an agent: the run itself, or that of a sub-agent inside of it."""

    __slots__ = (
        "began", "charged", "charges", "children", "declared", "finish_reason", "frame", "last_model_node", "listed", "name", "node", "output", "parent",
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
        """What the rules name of which the log notes each visit: the path of the strategy that has them, and the name."""
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
        self.visits: dict[str, int] = {}
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
            self.visits[node] = self.visits.get(node, 0) + 1
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


@final
class State:
    """Where a run is: the fold of its entries."""

    __slots__ = (
        "due", "executed", "expired", "failure", "frames", "number", "questions", "ran", "reason", "root", "run", "status", "time", "unlearned",
    )  # fmt: skip

    def __init__(self) -> None:
        self.number = 0
        """The number of the last entry."""
        self.time = self.ran = 0
        """When the last entries were committed, in milliseconds UTC, and for how many milliseconds the run had been executed."""
        self.begin(Transcript())

    def begin(self, transcript: Transcript) -> None:
        """Begin a run with a transcript."""
        self.root = Frame("", None, transcript)
        """The frame of the run's own strategy."""
        self.run = self.root.activation = Activation(self.root, None)
        self.frames: dict[str, Frame] = {"": self.root}
        """The frames by their paths."""
        self.status: Status = "new"
        self.reason = ""
        """Why it stopped, for people."""
        self.failure: tuple[str, str, str] | None = None
        """The type, the text and the traceback of the error with which it stopped."""
        self.due = 0
        """When a run that has stopped continues by itself, in milliseconds UTC; 0: only when somebody resumes it."""
        self.questions: dict[str, OpenQuestion] = {}
        """The open questions, by their ids."""
        self.expired: dict[str, int] = {}
        """The deadlines of questions that nobody answered in time, by their ids, in milliseconds UTC."""
        self.executed: dict[RuleScope, dict[str, Occurrences]] = {}
        """What was executed of the declarations that rules name, by their names."""
        self.unlearned: tuple[str, ...] = ()
        """The paths of the taps, and after a slash the names of the features, that have not learned from the run yet."""

    def add_frame(self, frame: Frame, key: str) -> None:
        """Add a frame inside the current node of its parent."""
        assert frame.parent is not None
        beside = frame.parent.visit.add_inside(key, frame)
        frame.key, frame.place = key, len(beside) - 1
        self.frames[frame.path] = frame

    def drop(self, frame: Frame, *, itself: bool = False) -> None:
        """Remove the frames inside a frame, whose node has ended or is executed again, and the questions asked there."""
        gone = {each.path for each in frame.frames() if itself or each is not frame}
        for path in gone:
            self.frames.pop(path, None)
        if self.questions:
            node = frame.path if itself else frame.node_path
            self.questions = {
                id_: question
                for id_, question in self.questions.items()
                if question.at not in gone and question.node != node
            }

    def activations(self) -> Iterator[Activation]:
        """Yield the run and the runs of sub-agents in it."""
        waiting: list[Activation] = [self.run]
        while waiting:
            found = waiting.pop(0)
            yield found
            waiting[:0] = found.children
