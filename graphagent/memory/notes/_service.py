"""Shared by all views of the same notes: the repository, the settings, the model, the reranker and the listeners."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from graphagent._dispatch import check_handler, ending
from graphagent.errors import HandlerError
from graphagent.memory.notes.write._save import save

if TYPE_CHECKING:
    from graphagent._dispatch import Handler
    from graphagent.events import Event
    from graphagent.memory._note_values import Record
    from graphagent.memory.notes._settings import NoteSettings
    from graphagent.memory.notes._visibility import Visibility
    from graphagent.memory.notes.enrich._inference import Inference
    from graphagent.memory.notes.index._repository import NoteRepository
    from graphagent.memory.notes.write._save import SaveRequest
    from graphagent.protocols import Reranker


@dataclass(eq=False)
class NoteService:
    """The state that all views of the same notes share, for use by a program. A run uses a `RunNoteService`."""

    repository: NoteRepository
    settings: NoteSettings
    reranker: Reranker | None = None
    """Orders the matches of a recall."""
    inference: Inference | None = None
    """Asks a model."""
    listeners: list[tuple[type[Event], Handler]] = field(default_factory=list["tuple[type[Event], Handler]"])

    def on(self, event: type[Event], handler: Callable[[Any], object]) -> None:
        """Call a function with each event of a type.

        Raises:
            TypeError: the type is not an event, or the handler is async or cannot be called.
        """
        check_handler(event, handler, "notes.on", "MemorySaveCompleted")
        self.listeners.append((event, ending(handler)))

    def emit(self, event: Event) -> None:
        """Call the handlers of an event, in the order of their registration.

        Raises:
            HandlerError: a handler raised, which is the cause.
        """
        for kind, handler in tuple(self.listeners):
            if isinstance(event, kind):
                handler(event)

    def emit_failure(self, event: Event, error: Exception) -> None:
        """Emit the event of an error that is about to be raised. If a handler raises, that becomes a note of the error."""
        try:
            self.emit(event)
        except HandlerError as failed:
            error.add_note(str(failed))

    def naming_the_run(self) -> AbstractContextManager[None]:
        """Return a context in which each HandlerError gets the id of the run that uses the notes, if one does."""
        return nullcontext()

    def trusted(self, trust: str) -> str:
        """Return how much a new note can be trusted whose content is trusted so much."""
        return trust

    def has_returned(self, trust: Iterable[str]) -> None:
        """Record that content of these levels of trust was returned to the caller."""

    async def save(self, visibility: Visibility, request: SaveRequest) -> list[Record]:
        """Save the notes of a request, all or none, and return them."""
        return await save(self, visibility, request)
