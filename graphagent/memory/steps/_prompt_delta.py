"""What a model was sent, told as the difference to what it was sent before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from graphagent.llm import Message


@final
class SentPrompt:
    """What a model was sent, told as the difference to what it was sent before: constant space a turn."""

    __slots__ = ("_added", "kept", "previous", "size", "written")

    def __init__(
        self,
        previous: SentPrompt | None,
        kept: int,
        added: tuple[Message, ...] | Callable[[], tuple[Message, ...]],
        *,
        size: int,
        written: frozenset[int] = frozenset(),
    ) -> None:
        self.previous = previous
        self.kept = kept
        """How many messages of the previous prompt, counted from its beginning, it begins with."""
        self._added = added
        self.size = size
        """How many messages it has."""
        self.written = written
        """The places among the added messages whose messages stand in no step."""

    @property
    def added(self) -> tuple[Message, ...]:
        """The messages behind those that were kept."""
        if callable(self._added):
            self._added = self._added()
        return self._added

    @staticmethod
    def of(
        messages: Sequence[Message], previous: SentPrompt | None, derived: Sequence[Message] | None = None
    ) -> SentPrompt:
        """Tell messages as the difference to the previous prompt. `derived` are those that come from steps; None: all."""
        before = previous.messages() if previous else ()
        kept = len(before)
        if tuple(messages[:kept]) != before:  # tuples compare what is the same object without a look inside
            differing = (n for n, pair in enumerate(zip(before, messages, strict=False)) if pair[0] != pair[1])
            kept = next(differing, min(kept, len(messages)))
        added = tuple(messages[kept:])
        written = frozenset[int]()
        if derived is not None and derived is not messages:
            known = set(map(id, derived))
            written = frozenset(n for n, message in enumerate(added) if id(message) not in known)
        return SentPrompt(previous, kept, added, size=len(messages), written=written)

    def messages(self) -> tuple[Message, ...]:
        """Return all messages of the prompt."""
        parts: list[tuple[Message, ...]] = []
        prompt: SentPrompt | None = self
        wanted = self.size
        while prompt is not None:
            if wanted > prompt.kept:
                parts.append(prompt.added[: wanted - prompt.kept])
            wanted = min(wanted, prompt.kept)
            prompt = prompt.previous if wanted else None
        return tuple(message for part in reversed(parts) for message in part)

    def since(self, previous: SentPrompt | None) -> SentPrompt:
        """Tell the same messages as the difference to a prompt before it; None: to nothing."""
        kept, chain, prompt = self.size, list[SentPrompt](), self
        while prompt is not previous:
            chain.append(prompt)
            kept = min(kept, prompt.kept)
            if prompt.previous is None:
                kept = 0
                break
            prompt = prompt.previous
        written, wanted = set[int](), self.size
        for each in chain:
            written |= {each.kept + place for place in each.written if each.kept + place < wanted}
            wanted = min(wanted, each.kept)
        places = frozenset(place - kept for place in written if place >= kept)
        return SentPrompt(previous, kept, self.messages()[kept:], size=self.size, written=places)

    def __eq__(self, other: object) -> bool:
        """Two are equal if the same was sent, however it is told."""
        return self.messages() == other.messages() if isinstance(other, SentPrompt) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.previous, self.kept, self.added, self.size, self.written)

    def __repr__(self) -> str:
        return f"<prompt of {self.size} messages, {self.kept} of them as before>"


def _restored(
    previous: SentPrompt | None, kept: int, added: tuple[Message, ...], size: int, written: frozenset[int]
) -> SentPrompt:
    return SentPrompt(previous, kept, added, size=size, written=written)
