"""Notes used by a run: their events are events of the run too, and models that are asked about them count in its spending."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Self

from graphagent.errors import ConflictError, HandlerError, RunError
from graphagent.memory._blocks import KnownNote
from graphagent.memory.facts._types import least_trust
from graphagent.memory.notes._service import NoteService
from graphagent.memory.notes.write._save import save

if TYPE_CHECKING:
    from graphagent.events import Event
    from graphagent.llm import ModelRequest, ModelResponse
    from graphagent.memory._note_values import Record
    from graphagent.memory.notes._visibility import Visibility
    from graphagent.memory.notes.write._save import SaveRequest
    from graphagent.protocols import Model
    from graphagent.run import Context


@dataclass(eq=False)
class RunNoteService(NoteService):
    """The notes as one run uses them: listeners of the run hear their events.

    Notes that the run saves are trusted as little as the least trusted content that it has received, which includes notes that it read.
    """

    ctx: Context = field(kw_only=True)
    vouches: bool = field(default=False, kw_only=True)
    """Whether the user vouches for the saved notes, whatever the run has received."""

    @classmethod
    def of(cls, service: NoteService, ctx: Context) -> Self:
        """Return notes as a run uses them."""
        inference = None if service.inference is None else service.inference.of(ctx.owner)
        return cls(service.repository, service.settings, service.reranker, inference, service.listeners, ctx=ctx)

    def emit(self, event: Event) -> None:
        """Call the handlers of the notes, and then those of the run."""
        event = event if event.run_id else replace(event, run_id=self.ctx.run_id)
        with self.naming_the_run():
            super().emit(event)
        self.ctx.emit(event)

    @contextmanager
    def naming_the_run(self) -> Generator[None]:
        """Set the id of this run on each HandlerError, so that it ends this run, even if the event names another one, or none."""
        try:
            yield
        except HandlerError as error:
            error.run_id = self.ctx.run_id
            raise

    def trusted(self, trust: str) -> str:
        """Return how much a new note can be trusted whose content is trusted so much."""
        return trust if self.vouches else least_trust((trust, self.ctx.memory.trust))

    def has_returned(self, trust: Iterable[str]) -> None:
        """Record that content of these levels of trust was returned to the run."""
        for level in trust:
            self.ctx.memory.lower_trust(level)

    async def save(self, visibility: Visibility, request: SaveRequest) -> list[Record]:
        """Save notes with the id of the run, once, however often the node is executed."""
        ctx = self.ctx
        key = ctx.next_key("notes")
        saved: list[Record] | None = None

        async def work() -> list[str]:
            nonlocal saved
            named = replace(request, run_id=request.run_id or ctx.run_id)
            saved = await self.save_as(f"{ctx.idempotency_key}:{key}", visibility, named)
            return [record.id for record in saved]

        ids = await ctx.once(key, work)
        return saved if saved is not None else await self.existing(visibility, ids)

    async def save_as(self, name: str, visibility: Visibility, request: SaveRequest) -> list[Record]:
        """Save notes under ids made from a name. If they were saved already, return those."""
        ids = [_id(name, number) for number in range(len(request.notes))]
        try:
            return await save(self, visibility, replace(request, ids=ids))
        except ConflictError:
            existing = await self.existing(visibility, ids)
            if not existing:
                raise
            return existing

    async def existing(self, visibility: Visibility, ids: Sequence[str]) -> list[Record]:
        """Return the visible notes with these ids, as far as they exist."""
        found = await self.repository.get_many(visibility.owner, ids)
        return list(filter(visibility.filter().matches, found.values()))


class RunModel:
    """The model of a run. Its answers are not recorded with the run: they are saved as notes, and forgotten with them."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.ended: RunError | None = None
        """The error that ended the run while the model was asked, such as a used-up budget."""

    @property
    def name(self) -> str:
        """The name of the model."""
        return "" if self._ctx.model is None else self._ctx.model.name

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        """Return the model's answer."""
        key = self._ctx.next_key("notes")
        try:
            return await self._ctx.request(request, key=key, purpose="extraction", record=False)
        except RunError as error:
            self.ended = error
            raise


async def extracted(service: NoteService, owner: str, model: Model, text: str) -> list[str]:
    """Return the statements in a text as another model than that of the notes splits it.

    Raises:
        RunError: the model is that of a run, which ended, for example because of a used-up budget.
    """
    from graphagent.memory.notes.enrich._inference import Inference

    found = await Inference(service.repository, model, service.settings, owner, service.emit).extract(text)
    if isinstance(model, RunModel) and model.ended is not None:
        raise model.ended
    return found


def known_note(record: Record) -> KnownNote:
    """Return a record as a model is shown it."""
    moment = record.at or record.created_at
    return KnownNote(
        record.id, record.content, record.version, record.scope, record.source, record.speaker,
        moment.date().isoformat(), record.trust, kept=True,
    )  # fmt: skip


def _id(named: str, number: int) -> str:
    """Return the id of a note that a run saves, which is the same when it saves it again. It is not derived from the text."""
    return blake2b(f"{named}:{number}".encode(), digest_size=16).hexdigest()
