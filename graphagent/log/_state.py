"""The state of a run: the fold of the entries of its log.

Only `apply` of entries changes it, in the process that executes the run as in one that reads it. The engine reads it, and owns nothing
that it does not have besides live things: clients, handlers, cancel scopes, timers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, final

from graphagent.log._visits import Activation, Frame
from graphagent.memory.transcript._transcript import Transcript

QuestionKind = Literal["question", "approval", "result", "in_flight"]

if TYPE_CHECKING:
    from graphagent.log._header import Status
    from graphagent.log._visits import Visit


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


@final
class State:
    """Where a run is: the fold of its entries."""

    __slots__ = (
        "due", "expired", "failure", "frames", "number", "questions", "ran", "reason", "root", "run", "status", "time", "unlearned",
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
        self.unlearned: tuple[str, ...] = ()
        """The paths of the taps, and after a slash the names of the features, that have not learned from the run yet."""

    def add_frame(self, frame: Frame, key: str) -> None:
        """Add a frame inside the current node of its parent."""
        assert frame.parent is not None
        beside = frame.parent.visit.add_inside(key, frame)
        frame.key, frame.place = key, len(beside) - 1
        self.frames[frame.path] = frame

    def visit_at(self, path: str) -> Visit | None:
        """Return the visit of the frame at a path; None if it is not there."""
        frame = self.frames.get(path)
        return None if frame is None else frame.visit

    def begun(self, at: str) -> list[Frame]:
        """Return the frames whose visits began with the last entry, which happened in a frame: that frame, and those that it put inside it."""
        newest = takewhile(lambda each: each.born == self.number, reversed(self.frames.values()))
        frame = self.frames.get(at)
        moved = frame is not None and frame.born != self.number == frame.visit.entered
        return [*([frame] if frame is not None and moved else ()), *[*newest][::-1]]

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
