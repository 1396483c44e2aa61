"""The feature that gives an agent notes: recalled before it asks a model, learned when its run has ended."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, Self

from graphagent.errors import ConflictError, FeatureError
from graphagent.events import MemoryRetrievalCompleted, MemoryRetrievalStarted
from graphagent.memory._frames import notes_frame
from graphagent.memory.facts import _extraction
from graphagent.memory.facts._feature import standing
from graphagent.memory.notes import _visibility
from graphagent.memory.notes._notes import Notes
from graphagent.memory.notes._types import Note
from graphagent.memory.notes._view import NoteView
from graphagent.memory.notes.feature._run_notes import AfterRun, HeardEngine, InRun, extracted
from graphagent.memory.notes.feature._tools import tools_of
from graphagent.memory.notes.index import _storage
from graphagent.memory.steps._note_references import forgotten_note, shortened_note
from graphagent.memory.steps._projection import seen
from graphagent.memory.steps._types import ActionStep, KnownNote, MessageStep, NotesStep, TaskStep
from graphagent.store import Put

if TYPE_CHECKING:
    from graphagent.agent import Agent
    from graphagent.llm import Tool, ToolResult
    from graphagent.memory.notes._types import Match, Record
    from graphagent.memory.steps._types import Step
    from graphagent.protocols import Model
    from graphagent.run import Context

_log = logging.getLogger("graphagent")

Recall = Literal["run", "node"] | bool
"""When notes are recalled without a node that says so."""

_QUESTION = 2_000
"""Characters of a task that are searched for."""
_LEARNED = 50_000
"""Characters of a task, and of an answer, that are learned from."""
_WORTHWHILE = 200
"""Characters of room from which on a part of a note is shown."""


class NoteMemory(NoteView):
    """Notes for an agent: `agent.install(NoteMemory, notes=…)`, and `ctx.feature(NoteMemory)` in any node.

    That has every operation of the notes, for the owner of the run alone; what it keeps carries the run's id, and is kept once
    however often its node is executed.

    Transcripts refer to the notes that a model was shown. A note that is forgotten shows there as `[forgotten]` from then on. What
    the model fetched with the tool `recall`, and what it said, is part of the run, and is removed with the run.

    Args:
        notes: Notes, or a view of them; without any the ones in your user data folder.
        recall: `run`, or True: before the model is asked first in a run, what fits the task is put before it. `node`: also what fits
            each message that reaches a node later. False: only nodes and tools recall.
        learn: Whether the statements of the task and of the answer are kept when a run has ended; by default wherever the view can be
            written to. The model of the notes splits them, or else that of the agent; without one they are kept as they are.
        scope: The scope that this agent sees and keeps its notes in; left out, the whole view.
        limit: How many notes at most are put before a model at once.
        min_score: How well a note must fit to be put before a model unasked, from 0 to 1: the score of a match. Every note that is
            shown costs tokens, and leaves the machine where the model is elsewhere.
        characters: How many characters of notes at most.
        tools: Whether the model is offered the tools `recall` and, where the view can be written to, `remember`.

    Raises:
        PermissionError: the scope is outside of the view.
        ValueError: a setting is out of range.
    """

    def __init__(
        self,
        notes: NoteView | None = None,
        *,
        recall: Recall = "run",
        learn: bool | None = None,
        scope: str | None = None,
        limit: int = 5,
        min_score: float = 0.1,
        characters: int = 4_000,
        tools: bool = True,
    ) -> None:
        if notes is not None and not isinstance(notes, NoteView):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                "notes= are Notes(…), or a view of them, such as notes.scope('/project/alpha') or notes.slice([…])"
            )
        if recall not in ("run", "node", True, False):
            raise ValueError(f"recall={recall!r} is not known; there are 'run', 'node', True and False")
        for name, value in (("limit", limit), ("characters", characters)):
            if type(value) is not int or value < 1:
                raise ValueError(f"{name}={value!r} is no limit; give a whole number from 1 on")
        if isinstance(min_score, bool) or not isinstance(min_score, int | float) or not 0 <= min_score <= 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"min_score={min_score!r} is not a number from 0 to 1")
        self.notes = Notes() if notes is None else notes
        """The notes."""
        view = self.notes if scope is None else self.notes.scope(scope)
        super().__init__(view._engine, view._bounds)  # noqa: SLF001  of the same class
        self._recalls = "run" if recall is True else recall
        self._learns = self._can_keep if learn is None else learn
        self._limit, self._min_score, self._characters = limit, float(min_score), characters
        self._ctx: Context | None = None
        self.tools: tuple[Tool, ...] = tools_of(self) if tools else ()
        """What the model is offered beside the agent's own tools."""

    @property
    def _can_keep(self) -> bool:
        return not self._bounds.read_only and self._bounds.home is not None

    # ---- installed

    def install(self, agent: Agent[Any, Any]) -> None:
        """Offer the tools, and see that what is learned can be kept.

        Raises:
            FeatureError: it cannot.
        """
        if self._learns and not self._can_keep:
            raise FeatureError(
                f"what this agent learns cannot be kept in {self!r}, which is read-only or has several scopes; "
                "give it notes.scope(…), or learn=False"
            )
        agent.offer(self.tools)

    async def begin(self, ctx: Context) -> None:
        """Refuse a run for another owner than that of the notes, and look up the notes in its transcript.

        Raises:
            FeatureError: the owners differ.
            StoreError: the notes could not be read.
        """
        self._check_owner(ctx)
        for memory in {id(each.memory): each.memory for each in standing(ctx)}.values():
            for step in memory.steps if memory.loaded else ():
                if isinstance(step, NotesStep) and any(known.kept for known in step.notes):
                    found = await self.look_up_notes(step.notes, owner=ctx.owner)
                    shown = tuple(shortened_note(each, each.cut) if each.cut else each for each in found)
                    if shown != step.notes:
                        step.notes = shown

    def _check_owner(self, ctx: Context) -> None:
        if self._bounds.owner and self._bounds.owner != ctx.owner:
            raise FeatureError(
                "the notes belong to one owner, and the run to another or to nobody; run it with owner= that of the notes, "
                "or install notes without one: then each run sees those of its own owner"
            )

    def bind(self, ctx: Context) -> Self:
        """Give these notes, speaking for one run: its owner's, and no others.

        Raises:
            FeatureError: they are those of another owner.
        """
        self._check_owner(ctx)
        bound = copy.copy(self)
        bound._ctx = ctx  # noqa: SLF001  a copy of itself
        bound._bounds = replace(self._bounds, owner=ctx.owner)  # noqa: SLF001
        bound._engine = HeardEngine(self._engine, ctx)  # noqa: SLF001
        return bound

    def vouched(self) -> Self:
        """Return these notes for what you vouch for, such as what a person typed in: `vouched().remember(text)`.

        What is kept is trusted as far as `trust=` says, whatever else the run has heard.
        """
        vouching = copy.copy(self)
        if self._ctx is not None:
            engine = HeardEngine(self._engine, self._ctx)
            engine.vouches = True
            vouching._engine = engine  # noqa: SLF001  a copy of itself
        return vouching

    # ---- put before a model

    async def recall_to_agent(
        self,
        query: str,
        *,
        scope: str | None = None,
        categories: Sequence[str] | None = None,
        limit: int | None = None,
        characters: int | None = None,
    ) -> list[KnownNote]:
        """Put the notes that fit a question best before the model, and give them. Those that it sees already are left out.

        What was found is recorded, so that a node that is executed again shows the same.

        Raises:
            ScopeError: the scope is none.
            StoreError: the notes could not be read.
            EmbedderError: the question could not be embedded.
        """
        key = self._running().numbered("recall")
        return await self._show(query, key, scope, categories, limit or self._limit, characters or self._characters)

    async def _show(
        self,
        query: str,
        key: str,
        scope: str | None,
        categories: Sequence[str] | None,
        limit: int,
        characters: int,
    ) -> list[KnownNote]:
        ctx = self._running()
        before = ctx.added_before
        if isinstance(before, NotesStep):  # the node is executed again: what it showed joins again
            await ctx.add(before)
            return list(before.notes)
        ctx.emit(MemoryRetrievalStarted(ctx.run_id, ctx.node))
        began = time.perf_counter()

        async def find() -> list[list[Any]]:
            found = await self.recall(
                query[:_QUESTION], scope=scope, categories=categories, limit=limit, min_score=self._min_score
            )
            return [[note.id, note.version, note.trust, note.cut] for note in self._fitting(found, characters)]

        names = await ctx.once(key, find)
        references = [
            KnownNote(id_, "", version, trust=trust, kept=True, cut=cut) for id_, version, trust, cut in names
        ]
        found = [each for each in await self.look_up_notes(references, owner=ctx.owner) if not each.forgotten]
        notes = [shortened_note(each, each.cut) if each.cut else each for each in found]
        if notes:
            await ctx.add(NotesStep(tuple(notes)))
        text = notes_frame(notes) if notes else ""
        ctx.emit(MemoryRetrievalCompleted(ctx.run_id, ctx.node, text, (time.perf_counter() - began) * 1000))
        return notes

    def _fitting(self, matches: Sequence[Match], characters: int) -> list[KnownNote]:
        """Give as many of the notes that the model does not see already as there is room for."""
        steps = self._running().memory.steps
        visible = [step for step in (steps[place] for place in seen(steps)) if isinstance(step, NotesStep)]
        shown = {(note.id, note.version) for step in visible for note in step.notes}
        found: list[KnownNote] = []
        for match in matches:
            note = known_note(match.record)
            if (note.id, note.version) in shown:
                continue
            if len(note.content) > characters and (characters >= _WORTHWHILE or not found):
                note = shortened_note(note, characters)
            if len(note.content) > characters and not note.cut:
                break
            found.append(note)
            characters -= len(note.content)
            if characters <= 0:
                break
        return found

    def shown(self, result: ToolResult) -> ToolResult:
        """Give a result as it is."""
        return result

    async def before_request(self, ctx: Context, tools: Sequence[Tool]) -> None:
        """Put before the model what fits its task, where that is due.

        Raises:
            StoreError: the notes could not be read.
            EmbedderError: the task could not be embedded.
        """
        if not self._recalls:
            return
        bound, before = self.bind(ctx), ctx.added_before
        query = "" if before is not None else _asked(ctx, whole_run=self._recalls == "node")
        if query or isinstance(before, NotesStep):
            await bound._show(query, f"recall:turn:{ctx.memory.turns}", None, None, self._limit, self._characters)  # noqa: SLF001

    async def make_room(self, ctx: Context, tools: Sequence[Tool]) -> bool:
        """Do nothing: notes are a small part of a prompt."""
        return False

    async def look_up_notes(self, notes: Sequence[KnownNote], *, owner: str) -> list[KnownNote]:
        """Give notes, whole, as they were when they were put before a model; those that were forgotten since say so.

        Raises:
            StoreError: they could not be read.
        """
        return [await self._as_shown(known, owner) for known in notes]

    async def _as_shown(self, known: KnownNote, owner: str) -> KnownNote:
        if not known.kept:
            return known
        book = self._engine.book
        record = await book.get(owner, known.id)
        if record is None or record.version != known.version:
            past = await book.history(owner, known.id)
            record = next((old for old, _ in past if old.version == known.version), None)
        return (
            forgotten_note(known) if record is None else replace(known_note(record), trust=known.trust, cut=known.cut)
        )

    # ---- kept

    async def _keep(
        self, notes: Sequence[Note], *, scope: str | None, trust: str, run_id: str, infer: str, **more: Any
    ) -> list[Record]:
        ctx = self._ctx
        if ctx is None:
            return await super()._keep(notes, scope=scope, trust=trust, run_id=run_id, infer=infer, **more)
        key = ctx.numbered("notes")
        kept: list[Record] | None = None

        async def work() -> list[str]:
            nonlocal kept
            named = f"{ctx.idempotency_key}:{key}"
            kept = await self._kept_as(
                named, notes, scope=scope, trust=trust, run_id=run_id or ctx.run_id, infer=infer, **more
            )
            return [record.id for record in kept]

        ids = await ctx.once(key, work)
        if kept is not None:
            return kept
        return await self._there(ids)

    async def _kept_as(self, named: str, notes: Sequence[Note], **options: Any) -> list[Record]:
        """Keep notes under ids that are made of a name; where they are there already, give those."""
        ctx = self._running()
        ids = [_id(named, number) for number in range(len(notes))]
        view = NoteView(HeardEngine(self._engine, ctx, ids), self._bounds)
        try:
            return await view._keep(notes, **options)  # noqa: SLF001  of this class
        except ConflictError:
            there = await self._there(ids)
            if not there:
                raise
            return there

    async def _there(self, ids: Sequence[str]) -> list[Record]:
        """Return the notes with these ids that there are."""
        found = [await _visibility.get(self._engine, self._bounds, id_) for id_ in ids]
        return [record for record in found if record is not None]

    async def learn_from_history(
        self, *, scope: str | None = None, categories: Sequence[str] | None = None
    ) -> list[Record]:
        """Have a model split what was said in this run so far into statements, and keep each as a note.

        They are trusted as little as the least that stands in the transcript. Without a model, the whole is kept as one note.

        Raises:
            PermissionError: the view is read-only, or the scope is not within it.
            StoreError: they could not be kept.
        """
        ctx = self._running()
        key = ctx.numbered("learned")
        kept: list[Record] = []

        async def work() -> list[str]:
            said = _cut("\n".join(_extraction.spoken(ctx.memory.steps[ctx.memory.begun :])))
            statements = await self._statements(said, InRun(ctx) if ctx.model_or_none is not None else None)
            kept.extend(await self.remember_many(statements, scope=scope, categories=categories, trust="inferred"))
            return [record.id for record in kept]

        ids = await ctx.once(key, work)
        return kept or await self._there(ids)

    async def _statements(self, text: str, model: Model | None) -> list[str]:
        """Give the statements in a text: as the model of the notes splits it, or else another one."""
        if not text.strip():
            return []
        if self._engine.inference is not None or model is None:
            return await self.extract_memories(text)
        return await extracted(self._engine, self._bounds.owner, model, text)

    @property
    def asks(self) -> Model | None:
        """The model of the run, as it is asked about notes in a node: what it spends counts, what it says is not recorded."""
        ctx = self._running()
        return InRun(ctx) if ctx.model_or_none is not None else None

    async def ended(self, ctx: Context, output: Any) -> None:
        """Keep what the task and the answer of a run say, once. Where that fails, the log says so, and the run is as it is.

        Runs of sub-agents leave it to the run around, unless they have notes of their own; so do runs that are executed again
        on recorded results.
        """
        around = ctx.state.around
        if not self._learns or ctx.state.tape is not None:
            return
        if around is not None and around.features.get(type(self)) is self:
            return
        try:
            await self.bind(ctx)._learn(output)  # noqa: SLF001  a copy of itself
        except Exception as error:  # noqa: BLE001  the run has ended well, whatever becomes of this
            _log.warning("nothing was learned from run %r: %s", ctx.run_id, type(error).__name__)

    async def _learn(self, output: Any) -> None:
        ctx, store = self._running(), self._engine.book.store
        done = _storage.learned_key(ctx.owner, ctx.run_id)
        if await store.get(done) is not None:
            return
        task = next((step.task for step in ctx.memory.steps[ctx.memory.begun :] if isinstance(step, TaskStep)), None)
        told = {"Task": _cut(_text(task)), "Answer": _cut(_text(output))}
        text = "\n".join(f"{name}: {said}" for name, said in told.items() if said.strip())
        model = AfterRun(ctx) if ctx.model_or_none is not None else None
        statements = [Note(each) for each in await self._statements(text, model)]
        if not statements:
            await store.commit(Put(done, b""))
            return
        await self._kept_as(
            f"{ctx.run_id}:learned", statements, scope=None, trust="inferred", run_id=ctx.run_id,
            infer="later", beside=[Put(done, b"", expected=0)],
        )  # fmt: skip

    def _running(self) -> Context:
        if self._ctx is None:
            raise FeatureError("this works on the transcript of a run; call it in a node, on ctx.feature(NoteMemory)")
        return self._ctx

    def __repr__(self) -> str:
        return f"<NoteMemory over {self.notes!r}>"


def known_note(record: Record) -> KnownNote:
    """Give a record as it is put before a model."""
    moment = record.at or record.created_at
    return KnownNote(
        record.id, record.content, record.version, record.scope, record.source, record.speaker,
        moment.date().isoformat(), record.trust, kept=True,
    )  # fmt: skip


def _asked(ctx: Context, *, whole_run: bool) -> str:
    """Give what a model is about to be asked anew: the task, before the first turn; or what was said since the last one."""
    memory = ctx.memory
    steps: list[Step] = memory.steps[memory.begun :]
    turns = [place for place, step in enumerate(steps) if isinstance(step, ActionStep)]
    if turns and not whole_run:
        return ""
    said = [_said(step) for step in steps[turns[-1] + 1 if turns else 0 :]]
    texts = [text for text in said if text.strip()]
    return (texts[-1] if turns else texts[0]) if texts else ""


def _said(step: Step) -> str:
    if isinstance(step, TaskStep):
        return _text(step.task)
    return step.message.text if isinstance(step, MessageStep) and step.message.role == "user" else ""


def _text(value: object) -> str:
    """Give a value as text."""
    if value is None or isinstance(value, str):
        return value or ""
    text = getattr(value, "text", None)
    if isinstance(text, str):
        return text
    import json

    from graphagent.memory.steps._dump import plain

    return json.dumps(plain(value), ensure_ascii=False)


def _cut(text: str) -> str:
    return text if len(text) <= _LEARNED else text[:_LEARNED] + " […]"


def _id(named: str, number: int) -> str:
    """Give the id of a note that a run keeps: the same when it is kept again. Nothing of the text is in it."""
    return blake2b(f"{named}:{number}".encode(), digest_size=16).hexdigest()
