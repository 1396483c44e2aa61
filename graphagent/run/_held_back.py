"""Text of models that is not delivered yet, since a check may still refuse it or another attempt may replace it.

Each place that may take text back has a `HeldBack`, inside that of the place around it: the request of a turn that callbacks see, a
node that is retried, a run whose answer may be refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from graphagent.events import OutputStreamed, TextStreamed

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphagent.events import Event

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
