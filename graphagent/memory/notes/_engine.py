"""What all views of the same notes share: the book, the model, the settings, and who listens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphagent import _clock
from graphagent.errors import NoteError
from graphagent.memory import TRUST_LEVELS
from graphagent.memory.notes import _codec, _texts
from graphagent.memory.notes._codec import SIMILAR, Pending
from graphagent.memory.notes._search import search
from graphagent.memory.notes._tree import moment
from graphagent.memory.notes._types import INFERRED, Record

if TYPE_CHECKING:
    from graphagent.events import Event
    from graphagent.memory.notes._book import Book
    from graphagent.memory.notes._inference import Inference
    from graphagent.memory.notes._scopes import Bounds
    from graphagent.memory.notes._settings import Settings
    from graphagent.memory.notes._tables import Filter
    from graphagent.memory.notes._types import Depth, Match, Note
    from graphagent.memory.notes._view import NoteView


class Engine:
    """What all views of the same notes share."""

    def __init__(self, book: Book, settings: Settings) -> None:
        self.book = book
        self.settings = settings
        self.inference: Inference | None = None
        """What asks a model; None where there is none."""
        self._handlers: dict[type[Event], list[Callable[[Any], object]]] = {}

    # ---- listened to

    def on(self, event: type[Event], handler: Callable[[Any], object]) -> None:
        """Have a function called with each event of a type."""
        self._handlers.setdefault(event, []).append(handler)

    def emit(self, event: Event) -> None:
        """Tell who listens."""
        for kind in type(event).__mro__:
            for handler in self._handlers.get(kind, ()):
                handler(event)

    # ---- kept

    def infers(self, infer: str) -> bool:
        """Tell whether what is left out is inferred."""
        return self.inference is not None and infer != "never"

    def importance(self, value: float | None) -> float:
        """Give an importance, or the usual one.

        Raises:
            NoteError: it is not between 0 and 1.
        """
        if value is None:
            return self.settings.default_importance
        if not isinstance(value, int | float) or not 0 <= value <= 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise NoteError(f"importance={value!r} is not between 0 and 1")
        return float(value)

    def record(
        self,
        bounds: Bounds,
        note: Note,
        *,
        scope: str | None,
        trust: str,
        run_id: str,
        number: int,
        places: Mapping[str, Any],
    ) -> Record:
        """Give a note as it is to be kept.

        Raises:
            NoteError: it cannot be.
            PermissionError: the scope is not within the bounds.
        """
        if trust not in TRUST_LEVELS:
            raise NoteError(f"trust={trust!r} is not known; there are {', '.join(map(repr, TRUST_LEVELS))}")
        where = note.scope if note.scope is not None else scope
        try:
            content = _texts.checked(note.content)
        except NoteError as error:
            raise NoteError(f"note {number + 1}: {error}") from None
        now = moment(_clock.now())
        return Record(
            id=_clock.new_id(),
            content=content,
            scope=bounds.target(where),
            categories=_codec.categories(note.categories),
            importance=self.importance(note.importance),
            metadata=_codec.plain(note.metadata or {}),
            created_at=now,
            updated_at=now,
            at=None if note.at is None else _codec.time(note.at),
            owner=bounds.owner,
            source=note.source if note.source is not None else bounds.source or "",
            private=note.private,
            trust=trust,
            run_id=run_id,
            **places,
        )

    def pending(self, bounds: Bounds, note: Note, scope: str | None, infer: str) -> Pending | None:
        """Give what the model is to do for a note once it is kept; None where that is nothing."""
        if not self.infers(infer):
            return None
        given = {"scope": note.scope if note.scope is not None else scope, "categories": note.categories,
                 "importance": note.importance, "metadata": note.metadata}  # fmt: skip
        names = [name for name in INFERRED if given[name] is None]
        if self.settings.consolidation_threshold < 1 and self.settings.consolidation_limit:
            names.append(SIMILAR)
        return Pending(tuple(names), bounds.within) if names else None

    async def after_save(
        self, records: Sequence[Record], pending: Sequence[Pending | None], infer: str
    ) -> list[Record]:
        """Have the model look at what was kept: now, or later."""
        if self.inference is None or not any(pending):
            return list(records)
        if infer == "later":
            self.inference.soon()
            return list(records)
        return await self.inference.infer(records)

    # ---- found

    async def recall(self, view: NoteView, query: str, fits: Filter, limit: int, depth: Depth | None) -> list[Match]:
        """Give the notes that fit a question best."""
        if self.inference is None or depth == "shallow":
            return await search(self.book, query, fits, limit, self.settings)
        return await self.inference.recall(query, fits, limit, deep=depth == "deep")

    async def extract(self, text: str) -> list[str]:
        """Give the statements in a text."""
        return [text] if self.inference is None else await self.inference.extract(text)

    async def settle(self, view: NoteView) -> int:
        """Wait until what is to be inferred is."""
        return 0 if self.inference is None else await self.inference.settle(view)
