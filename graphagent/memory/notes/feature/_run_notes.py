"""Notes within a run: their events are the run's too, and models that are asked about them count in what it spends."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from graphagent.errors import HandlerError, RunError
from graphagent.events import ModelRequested, ModelResponded
from graphagent.memory.facts._types import least_trust
from graphagent.memory.notes._engine import Engine

if TYPE_CHECKING:
    from graphagent.events import Event
    from graphagent.llm import ModelRequest, ModelResponse
    from graphagent.memory.notes._types import Depth, Match, Record
    from graphagent.memory.notes._view import NoteView
    from graphagent.memory.notes.index._filter import Filter
    from graphagent.memory.notes.index._storage import Pending
    from graphagent.protocols import Model
    from graphagent.run import Context


class HeardEngine(Engine):
    """The engine of notes for one run: who listens to the run hears what happens to the notes there.

    What is kept is trusted as little as the least that flowed into the run, of which notes that are read are a part.
    """

    vouches = False
    """Whether somebody vouches for what is kept, whatever flowed into the run."""

    def __init__(self, engine: Engine, ctx: Context, ids: Sequence[str] = ()) -> None:
        vars(self).update(vars(engine))
        self._ctx = ctx
        self._ids = ids
        if engine.inference is not None:
            self.inference = engine.inference.of(ctx.owner)

    def emit(self, event: Event) -> None:
        """Tell who listens to the notes, and who listens to the run."""
        event = event if event.run_id else replace(event, run_id=self._ctx.run_id)
        with self._ending():
            super().emit(event)
        self._ctx.emit(event)

    @contextmanager
    def _ending(self) -> Generator[None]:
        """Have what a handler of the notes raises end this run, whatever run the event names."""
        try:
            yield
        except HandlerError as error:
            error.run_id = self._ctx.run_id
            raise

    async def after_save(
        self, records: Sequence[Record], pending: Sequence[Pending | None], infer: str
    ) -> list[Record]:
        """Have the model look at what was kept: now, or later."""
        with self._ending():
            return await super().after_save(records, pending, infer)

    def trusted(self, trust: str) -> str:
        """Return how far what is kept can be trusted, of which is said that it is trusted so far."""
        return trust if self.vouches else least_trust((trust, self._ctx.memory.trust))

    def gave(self, records: Iterable[Record]) -> None:
        """Take note that notes were read."""
        for record in records:
            self._ctx.memory.lower(record.trust)

    async def recall(self, query: str, fits: Filter, limit: int, depth: Depth | None) -> list[Match]:
        """Give the notes that fit a question best."""
        with self._ending():
            found = await super().recall(query, fits, limit, depth)
        self.gave(match.record for match in found)
        return found

    async def extract(self, text: str) -> list[str]:
        """Give the statements in a text."""
        with self._ending():
            found = await super().extract(text)
        self._ctx.memory.lower("inferred")
        return found

    async def settle(self, view: NoteView) -> int:
        """Wait until what is to be inferred is."""
        with self._ending():
            return await super().settle(view)

    def new_id(self, number: int) -> str:
        """Give the id that a new note has in this run."""
        return self._ids[number - 1] if self._ids else super().new_id(number)


class InRun:
    """The model of a run, asked in a node. What it says is not recorded: it is kept as notes, and forgotten as notes."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.ended: RunError | None = None
        """What ended the run while it was being asked, such as a used-up budget."""

    @property
    def name(self) -> str:
        """How the model is called."""
        return self._ctx.model.name

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        """Give its answer."""
        try:
            return await self._ctx.request(request, recorded=False, output="extraction")
        except RunError as error:
            self.ended = error
            raise


class AfterRun:
    """The model of a run that has ended. What it spends counts in the result, and not in what is kept of the run."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    @property
    def name(self) -> str:
        """How the model is called."""
        return self._ctx.model.name

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        """Give its answer."""
        ctx = self._ctx
        ctx.emit(ModelRequested(ctx.run_id, "", request))
        response = await ctx.model.respond(request)
        ctx.spend(response.usage, "learn", response.model)
        ctx.emit(ModelResponded(ctx.run_id, "", response))
        return response


async def extracted(engine: Engine, owner: str, model: Model, text: str) -> list[str]:
    """Give the statements in a text, as another model than that of the notes splits it.

    Raises:
        RunError: the run that the model is that of came to an end of its own, such as a used-up budget.
    """
    from graphagent.memory.notes.enrich._inference import Inference

    found = await Inference(engine.book, model, engine.settings, owner, engine.emit).extract(text)
    if isinstance(model, InRun) and model.ended is not None:
        raise model.ended
    return found
