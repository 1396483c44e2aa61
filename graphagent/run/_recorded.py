"""What a run that does again what another one did asks for: the outcomes that the other one recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from graphagent.llm import ModelResponse, ToolCall, ToolResult
    from graphagent.log._internal import Charge, EffectRecorded, Frame, Log


class RecordedAnswer(NamedTuple):
    """What became of a request."""

    response: ModelResponse | None
    """The answer; None if the prompt was too long."""
    error: str
    """What the server said then."""
    charges: tuple[Charge, ...]
    """What it cost."""
    turns: int
    """How many model turns it was."""


class RecordedOutcomes(Protocol):
    """What another run did, to be taken in the same order.

    Every method raises DivergedError if what is asked for was not recorded, and must not be done live.
    """

    def begin(self, log: Log) -> None:
        """Prepare the log of the new run."""
        ...

    def begun(self, log: Log) -> None:
        """Append to the log of the new run what comes right after its beginning."""
        ...

    def answer(self, frame: Frame, kind: str, key: str) -> RecordedAnswer | None:
        """Return the answer to a request; None if the model is asked."""
        ...

    def result(self, log: Log, frame: Frame, key: str, call: ToolCall) -> ToolResult | None:
        """Return the result of a tool call; None if the tool is called."""
        ...

    def entry(self, log: Log, frame: Frame, kind: str, key: str) -> EffectRecorded | None:
        """Return the entry of another effect; None if it is caused."""
        ...

    def knows(self, frame: Frame, kind: str, key: str) -> bool:
        """Return whether the node of a frame recorded an outcome, in this attempt or in a later one."""
        ...

    def refuse(self, frame: Frame, what: str) -> None:
        """Check that something may be done that is never recorded."""
        ...

    def left(self, frame: Frame, node: str) -> None:
        """Note that a node of a frame ended."""
        ...

    def winner(self, log: Log, frame: Frame) -> int | None:
        """Return the branch that won the race that is about to begin; None if that is not known."""
        ...

    def ended(self, log: Log, frame: Any) -> None:
        """Count what was spent and belongs to no outcome."""
        ...
