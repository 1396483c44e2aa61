"""What all views of the same notes share: the book, the model, the settings, and who listens."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphagent import _clock
from graphagent._article import a
from graphagent.errors import HandlerError, NoteError
from graphagent.events import Event
from graphagent.memory import TRUST_LEVELS
from graphagent.memory.notes._settings import one_of
from graphagent.memory.notes._types import INFERRED, Record
from graphagent.memory.notes.index import _chunks, _storage
from graphagent.memory.notes.index._storage import SIMILAR, Pending, moment
from graphagent.memory.notes.recall._search import search

if TYPE_CHECKING:
    from graphagent.memory.notes._scopes import Bounds
    from graphagent.memory.notes._settings import Settings
    from graphagent.memory.notes._types import Depth, Match, Note
    from graphagent.memory.notes._view import NoteView
    from graphagent.memory.notes.enrich._inference import Inference
    from graphagent.memory.notes.index._filter import Filter
    from graphagent.memory.notes.index._repository import Book


class Engine:
    """What all views of the same notes share."""

    def __init__(self, book: Book, settings: Settings) -> None:
        self.book = book
        self.settings = settings
        self.inference: Inference | None = None
        """What asks a model; None where there is none."""
        self._listeners: list[tuple[type[Event], Callable[[Any], object]]] = []

    # ---- listened to

    def on(self, event: type[Event], handler: Callable[[Any], object]) -> None:
        """Have a function called with each event of a type.

        Raises:
            TypeError: the type is not that of an event, or the handler is async or cannot be called.
        """
        if not (isinstance(event, type) and issubclass(event, Event)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"on() listens to an event type of graphagent.events, not to {event!r}")
        if not callable(handler):
            raise TypeError(
                f"the handler of {event.__name__} is a function of the event, not {a(type(handler).__name__)}"
            )
        if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
            raise TypeError(
                f"the handler of {event.__name__} is async; events are told at once, so it must be a plain function"
            )
        self._listeners.append((event, handler))

    def emit(self, event: Event) -> None:
        """Tell who listens, in the order of their registration.

        Raises:
            HandlerError: a handler raised, which is the cause.
        """
        for kind, handler in tuple(self._listeners):
            if not isinstance(event, kind):
                continue
            try:
                handler(event)
            except Exception as error:
                failed = HandlerError(getattr(handler, "__qualname__", repr(handler)), type(event).__name__, error)
                failed.run_id = event.run_id
                raise failed from error

    def emit_failure(self, event: Event, error: Exception) -> None:
        """Tell who listens what failed. What a handler raises is a note of the error, which is to be raised itself."""
        try:
            self.emit(event)
        except HandlerError as failed:
            error.add_note(str(failed))

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

    def trusted(self, trust: str) -> str:
        """Return how far what is kept can be trusted, of which is said that it is trusted so far."""
        return trust

    def gave(self, records: Iterable[Record]) -> None:
        """Take note that notes were read."""

    def new_id(self, number: int) -> str:
        """Give an id for a new note, the first of which is number 1."""
        return _clock.new_id()

    def record(
        self,
        bounds: Bounds,
        note: Note,
        *,
        id_: str,
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
            raise NoteError(f"trust={trust!r} is not known; use {one_of(TRUST_LEVELS)}")
        where = note.scope if note.scope is not None else scope
        try:
            content = _chunks.checked(note.content)
        except NoteError as error:
            raise NoteError(f"note {number}: {error}") from None
        now = moment(_clock.now())
        return Record(
            id=id_,
            content=content,
            scope=bounds.target(where),
            categories=_storage.categories(note.categories),
            importance=self.importance(note.importance),
            metadata=_storage.plain(note.metadata or {}),
            created_at=now,
            updated_at=now,
            at=None if note.at is None else _storage.time(note.at),
            owner=bounds.owner,
            source=note.source if note.source is not None else bounds.source or "",
            private=note.private,
            trust=self.trusted(trust),
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

    async def recall(self, query: str, fits: Filter, limit: int, depth: Depth | None) -> list[Match]:
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
