"""The feature that gives an agent notes. They are recalled before it asks a model, and learned when its run has ended.

The file is long because the options of the feature are documented where they are passed in.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

from graphagent import _clock
from graphagent._options import check_flag, check_limit, check_word
from graphagent._raised import awaited
from graphagent.errors import FeatureError
from graphagent.events import MemoryRetrievalCompleted, MemoryRetrievalStarted
from graphagent.llm._wrappers import stores_of
from graphagent.memory._blocks import KnownNote, notes_block
from graphagent.memory._note_values import Note
from graphagent.memory._references import forgotten_note, shortened_note
from graphagent.memory.facts import _extraction
from graphagent.memory.facts._types import TRUST_LEVELS, least_trust
from graphagent.memory.notes._notes import Notes
from graphagent.memory.notes._view import NoteView, parts_of
from graphagent.memory.notes.feature._run_notes import RunModel, RunNoteService, extracted, known_note
from graphagent.memory.notes.feature._tools import tools_of
from graphagent.memory.notes.index import _storage
from graphagent.memory.notes.write._save import SaveRequest
from graphagent.memory.steps._types import ActionStep, MessageStep, NotesStep, TaskStep
from graphagent.store import Put

if TYPE_CHECKING:
    from graphagent._agent import Agent
    from graphagent.llm import Tool, ToolResult
    from graphagent.memory._note_values import Match, Record
    from graphagent.memory.steps._types import Step
    from graphagent.protocols import Model, Store
    from graphagent.run import Context

_log = logging.getLogger("graphagent.memory")

Recall = Literal["run", "node"] | bool
"""When notes are recalled without a node for it."""

_QUESTION = 2_000
"""How many characters of a task are used to search."""
_LEARNED = 50_000
"""How many characters of a task, and of an answer, are learned from."""
_WORTHWHILE = 200
"""If there is room for so many characters, a part of a note is shown."""


class NoteMemory(NoteView):
    """Notes for an agent: `agent.install(NoteMemory, notes=…)`, and `ctx.feature(NoteMemory)` in any node.

    In a node it has every operation of the notes, for the owner of the run alone. Notes that it and its views save have the run's id, and are
    saved once, however often the node is executed.

    Transcripts refer to the notes that a model was shown. A forgotten note is shown there as `[forgotten]`. Notes that the model got from the
    tool `recall`, and its own text, are part of the run, and are removed with the run.

    Args:
        notes: Notes, or a view of them; by default those in your user data folder.
        recall: `run`, or True: before the first model turn of a run, the model is shown notes that fit the task. `node`: also notes that fit each
            message that reaches a node later. False: only nodes and tools recall.
        learn: Whether the statements of the task and of the answer are saved when a run has ended; by default if the view is writable.
            They are split by the model of the notes, or else that of the agent; without a model they are saved whole. `background`:
            they are, and the run does not wait for that. `agent.settle()` says when it is done; it needs a store.
        scope: The scope that this agent sees, and in which it saves its notes; by default the whole view.
        limit: How many notes at most a model is shown at once.
        min_score: The lowest score of a match, from 0 to 1, with which a model is shown a note unasked. Every note that is shown costs
            tokens, and leaves the machine if the model is elsewhere.
        characters: How many characters of notes at most a model is shown at once.
        tools: Whether the model is offered the tools `recall` and, if the view is writable, `remember`.

    Raises:
        PermissionError: the scope is outside of the view.
        ValueError: a setting is out of range.
    """

    def __init__(
        self,
        notes: NoteView | None = None,
        *,
        recall: Recall = "run",
        learn: bool | Literal["background"] | None = None,
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
        check_word("recall", recall, ("run", "node", True, False))
        check_word("learn", learn, ("background", True, False, None))
        check_flag("tools", tools)
        for name, value in (("limit", limit), ("characters", characters)):
            check_limit(name, value)
        if isinstance(min_score, bool) or not isinstance(min_score, int | float) or not 0 <= min_score <= 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"min_score={min_score!r} is not a number from 0 to 1")
        self.notes = Notes() if notes is None else notes
        """The notes."""
        view = self.notes if scope is None else self.notes.scope(scope)
        super().__init__(*parts_of(view))
        self._recalls = "run" if recall is True else recall
        self._learns = self._can_save if learn is None else bool(learn)
        self.background: bool = learn == "background"
        """Whether it learns once the run has its answer."""
        self._limit, self._min_score, self._characters = limit, float(min_score), characters
        self.tools: tuple[Tool, ...] = tools_of(self) if tools else ()
        """The tools that the model is offered besides the agent's own."""

    @property
    def places(self) -> tuple[NoteView | Store, ...]:
        """The notes, and the stores in which their model keeps answers."""
        inference = self._service.inference
        return (self.notes, *stores_of(None if inference is None else inference.own_model))

    @property
    def _can_save(self) -> bool:
        return not self._visibility.read_only and self._visibility.home is not None

    # Installing

    def install(self, agent: Agent[Any, Any]) -> None:
        """Offer the tools, and check that learned notes can be saved.

        Raises:
            FeatureError: learned notes cannot be saved.
        """
        if self._learns and not self._can_save:
            raise FeatureError(
                f"notes that this agent learns cannot be kept in {self!r}, which is read-only or has several scopes; "
                "give it notes.scope(…), or learn=False"
            )
        agent.offer(self.tools)

    async def begin(self, ctx: Context) -> None:
        """Check that the run has the owner of the notes.

        Raises:
            FeatureError: the owners differ.
        """
        self._check_owner(ctx)

    def _check_owner(self, ctx: Context) -> None:
        if self._visibility.owner and self._visibility.owner != ctx.owner:
            raise FeatureError(
                "the notes belong to one owner, and the run to another or to none; run it with owner= that of the notes, "
                "or install notes without one: then each run sees those of its own owner"
            )

    def bind(self, ctx: Context) -> Self:
        """Return these notes for use by one run: those of its owner only.

        Raises:
            FeatureError: the notes belong to another owner.
        """
        self._check_owner(ctx)
        return self._over(RunNoteService.of(self._service, ctx), replace(self._visibility, owner=ctx.owner))

    def vouched(self) -> Self:
        """Return these notes for content for which you vouch, such as text that a person typed: `vouched().remember(text)`.

        The saved notes have the trust of `trust=`, whatever content the run has received.
        """
        service = self._service
        if not isinstance(service, RunNoteService):
            return self
        return self._over(replace(service, vouches=True), self._visibility)

    # Showing notes to a model

    async def recall_to_agent(
        self,
        query: str,
        *,
        scope: str | None = None,
        categories: Sequence[str] | None = None,
        limit: int | None = None,
        characters: int | None = None,
    ) -> list[KnownNote]:
        """Show the model the notes that fit a question best, and return them. Those that it sees already are left out.

        The matches are recorded, so a node that is executed again shows the same notes.

        Raises:
            ScopeError: the scope is none.
            StoreError: the notes could not be read.
            EmbedderError: the question could not be embedded.
            RerankerError: the reranker failed.
        """
        key = self._running().next_key("recall")
        return await self._show(query, key, scope, categories, limit or self._limit, characters or self._characters)

    async def _show(
        self,
        query: str,
        key: str,
        scope: str | None,
        categories: Sequence[str] | None,
        limit: int,
        characters: int,
        without: Collection[str] = (),
    ) -> list[KnownNote]:
        ctx = self._running()
        ctx.emit(MemoryRetrievalStarted(ctx.run_id, ctx.node))
        began = _clock.ticks()

        async def find() -> list[list[Any]]:
            found = await self.recall(
                query[:_QUESTION], scope=scope, categories=categories, limit=limit, min_score=self._min_score
            )
            return [[note.id, note.version, note.trust, note.cut] for note in self._fitting(found, characters)]

        names = await ctx.once(key, find)
        references = [
            KnownNote(id_, "", version, trust=trust, kept=True, cut=cut)
            for id_, version, trust, cut in names
            if id_ not in without
        ]
        found = await self.look_up(references, owner=ctx.owner)
        if found:  # even if they were forgotten meanwhile, or the next step would be taken for this one
            await ctx.add(NotesStep(tuple(shortened_note(each, each.cut) if each.cut else each for each in found)))
        notes = [shortened_note(each, each.cut) if each.cut else each for each in found if not each.forgotten]
        text = notes_block(notes) if notes else ""
        ctx.emit(MemoryRetrievalCompleted(ctx.run_id, ctx.node, text, _clock.seconds_since(began) * 1000))
        return notes

    def _fitting(self, matches: Sequence[Match], characters: int) -> list[KnownNote]:
        """Return the notes that the model does not see already, as many as there is room for."""
        visible = self._running().memory.visible
        shown = {(note.id, note.version) for step in visible if isinstance(step, NotesStep) for note in step.notes}
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
        """Return a result as it is."""
        return result

    async def before_request(self, ctx: Context, tools: Sequence[Tool]) -> None:
        """Show the model the notes that fit its task, if that is due.

        Raises:
            StoreError: the notes could not be read.
            EmbedderError: the task could not be embedded.
            RerankerError: the reranker failed.
        """
        if not self._recalls:
            return
        steps = ctx.memory.run_steps
        turns = [place for place, step in enumerate(steps) if isinstance(step, ActionStep)]
        latest = steps[turns[-1] + 1 :] if turns else steps
        said = [text for text in map(_said, latest) if text.strip()]
        if said and (not turns or self._recalls == "node"):
            # A prompt may be built several times before a turn, and its notes may have been summed up meanwhile.
            shown = {note.id for step in latest if isinstance(step, NotesStep) for note in step.notes}
            key = f"recall:{len(turns)}:{len(said)}"
            await self.bind(ctx)._show(  # noqa: SLF001  a copy of itself
                said[-1] if turns else said[0], key, None, None, self._limit, self._characters, shown
            )

    async def make_room(self, ctx: Context, tools: Sequence[Tool]) -> bool:
        """Do nothing: notes are a small part of a prompt."""
        return False

    @property
    def refers(self) -> tuple[Literal["note"]]:
        """The kind `note`: notes have a history, in which they are looked up."""
        return ("note",)

    async def look_up(self, known: Sequence[KnownNote], *, owner: str) -> list[KnownNote]:
        """Return whole notes as they were when a model saw them. Notes that were forgotten since are marked.

        Raises:
            StoreError: the notes could not be read.
        """
        repository = self._service.repository
        records = await repository.get_many(owner, (note.id for note in known if note.kept))
        found: list[KnownNote] = []
        for note in known:
            record = records.get(note.id)
            if note.kept and (record is None or record.version != note.version):
                past = await repository.history(owner, note.id)
                record = next((each.record for each in past if each.record.version == note.version), None)
            if not note.kept:
                found.append(note)
            elif record is None:
                found.append(forgotten_note(note))
            else:
                found.append(replace(known_note(record), trust=note.trust, cut=note.cut))
        return found

    # Learning

    async def learn_from_history(
        self, *, scope: str | None = None, categories: Sequence[str] | None = None
    ) -> list[Record]:
        """Have a model split the conversation of this run so far into statements, and save each as a note.

        They are trusted as the least trusted text in which they were found: statements of a person are found apart from results of tools.
        Without a model, the whole is saved as one note.

        Raises:
            PermissionError: the view is read-only, or the scope is outside of it.
            StoreError: the notes could not be saved.
        """
        ctx = self._running()
        key = ctx.next_key("learned")
        saved: list[Record] = []

        async def work() -> list[str]:
            transcript = ctx.memory.transcript
            lines = _extraction.lines_of(ctx.memory.run_steps, transcript.made_of(), transcript.begun)
            for statements, trust in await self._found(lines):
                found = await self.vouched().remember_many(statements, scope=scope, categories=categories, trust=trust)
                saved.extend(found)
            return [record.id for record in saved]

        ids = await ctx.once(key, work)
        return saved or await self._run().existing(self._visibility, ids)

    async def _found(self, lines: Sequence[_extraction.Line]) -> list[tuple[list[str], str]]:
        """Return the statements in a conversation, each once, with how far they can be trusted; the least trusted first."""
        model, found = self.asks, dict[str, str]()
        for shown, trust in _extraction.looks(lines):
            statements = await self._statements(_cut(_extraction.spoken(shown)), model)
            found |= dict.fromkeys(statements, trust)
            if not statements or (model is None and self._service.inference is None):
                break
        return [
            (statements, trust)
            for trust in TRUST_LEVELS
            if (statements := [each for each, level in found.items() if level == trust])
        ]

    async def _statements(self, text: str, model: Model | None) -> list[str]:
        """Return the statements in a text, split by the model of the notes, or else by another one."""
        if not text.strip():
            return []
        if self._service.inference is not None or model is None:
            return await self.extract_memories(text)
        return await extracted(self._service, self._visibility.owner, model, text)

    @property
    def asks(self) -> Model | None:
        """The model of the run, for questions about notes in a node. Its usage counts; its answers are not recorded with the run."""
        ctx = self._running()
        return RunModel(ctx) if ctx.model is not None else None

    async def ended(self, ctx: Context, output: Any) -> None:
        """Save the statements of the task and the answer of a run, once. If that fails, it is logged, and the run is not affected.

        Raises:
            NoteError, StoreError, ModelError: learning failed in the background, and is tried again.
        """
        if not self._learns:
            return
        try:
            learned = self.bind(ctx)._learn(output)  # noqa: SLF001  a copy of itself
            await awaited(learned, "what notes learn")
        except Exception as error:
            if self.background:
                raise
            # The run has ended well, and learning must not change that.
            _log.warning(
                "nothing was learned from run %r: %s",
                ctx.run_id,
                type(error).__name__,
                extra={"run_id": ctx.run_id, "error_type": type(error).__name__},
            )

    def learns_for(self, feature: object) -> bool:
        """Return whether another feature saves its notes in the same place as this one."""
        if not (self._learns and isinstance(feature, NoteMemory)):
            return False
        return self._learned_place() == feature._learned_place()  # noqa: SLF001  of this class

    def _learned_place(self) -> tuple[object, ...]:
        return self._service.repository, self._visibility.home, self._visibility.source

    async def _learn(self, output: Any) -> None:
        ctx, store = self._running(), self._service.repository.store
        done = _storage.learned_key(ctx.owner, ctx.run_id)
        if await store.get(done) is not None:
            return
        steps = zip(ctx.memory.run_steps, ctx.memory.transcript.made_of(), strict=True)
        task, most = next(((step.task, most) for step, most in steps if isinstance(step, TaskStep)), (None, "trusted"))
        told = ("Task", _text(task), most), ("Answer", _text(output), ctx.memory.trust)
        found = await self._found(
            [
                _extraction.Line(name, _cut(text), 0, least_trust(("inferred", most)), None)
                for name, text, most in told
                if text.strip()
            ]
        )
        if not found:
            await store.commit(Put(done, b""))
        service = replace(self._run(), vouches=True)
        for number, (statements, trust) in enumerate(found, 1):
            also = [Put(done, b"", expected=0)] if number == len(found) else []
            request = SaveRequest([Note(each) for each in statements], None, trust, ctx.run_id, also=also)
            named = f"{ctx.run_id}:learned" + (f":{number}" if number > 1 else "")
            await service.save_as(named, self._visibility, request)

    def _run(self) -> RunNoteService:
        if not isinstance(self._service, RunNoteService):
            raise FeatureError("this works on the transcript of a run; call it in a node, on ctx.feature(NoteMemory)")
        return self._service

    def _running(self) -> Context:
        return self._run().ctx

    def __repr__(self) -> str:
        return f"<NoteMemory over {self.notes!r}>"


def _said(step: Step) -> str:
    if isinstance(step, TaskStep):
        return _text(step.task)
    return step.message.text if isinstance(step, MessageStep) and step.message.role == "user" else ""


def _text(value: object) -> str:
    """Return a value as text."""
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
