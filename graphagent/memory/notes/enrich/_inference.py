"""The work of a model on saved notes: it infers missing values, splits texts, and consolidates notes that say the same.

A note is saved first, together with its pending inference, which runs in the background, so that no save waits for it. Inference
that is pending when the notes are closed, or the process ends, runs when they are opened again. A note that was changed meanwhile
stays unchanged.
"""

from __future__ import annotations

import itertools
import logging
import math
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import anyio

from graphagent.errors import ConflictError, HandlerError, NoteError, ScopeError
from graphagent.memory._note_values import Filter, is_within
from graphagent.memory.notes import _validation
from graphagent.memory.notes._scopes import path_of
from graphagent.memory.notes.enrich import _prompts
from graphagent.memory.notes.enrich._background import BackgroundTask
from graphagent.memory.notes.enrich._consolidation import consolidate
from graphagent.memory.notes.enrich._model import ModelClient, NoAnswerError
from graphagent.memory.notes.index import _storage
from graphagent.memory.notes.index._storage import SIMILAR, Pending
from graphagent.store import Put

if TYPE_CHECKING:
    from graphagent.events import Event
    from graphagent.memory._note_values import Record
    from graphagent.memory.notes._settings import NoteSettings
    from graphagent.memory.notes.index._repository import NoteRepository
    from graphagent.protocols import Model

_log = logging.getLogger("graphagent.memory")

_TOGETHER = 10
"""How many notes at most one question to the model is about."""
_TRIES = 3
"""How often a model is asked about a note for which it gives no usable answer."""
_FAILURES = 3
"""After how many notes in a row that cannot be compared no more are tried: it is not for one of them that it fails."""
_CATEGORIES = 10
_VALUES = 50
_LONGEST = 100
"""How many characters a category, an entity, a date or a topic may have."""


class Inference:
    """The work of a model for the notes of one owner."""

    def __init__(
        self,
        repository: NoteRepository,
        model: Model,
        settings: NoteSettings,
        owner: str,
        emit: Callable[[Event], object],
    ) -> None:
        self.model = ModelClient(model, emit, owner)
        self._repository = repository
        self._settings = settings
        self._owner = owner
        self._emit = emit
        self.own_model = model
        self._delayed = ModelClient(model, self._emit_later, owner)
        """Asks about notes that are already saved. The error of an event handler is raised when the work is done."""
        self._failures: list[HandlerError] = []
        self._others: weakref.WeakValueDictionary[str, Inference] = weakref.WeakValueDictionary()
        """The inferences for other owners that are in use, or have work to do."""
        self._running: set[BackgroundTask] = set()
        """The background tasks of this owner and the others."""
        self._lock = anyio.Lock()
        self._background: BackgroundTask | None = None
        self._again = False

    def of(self, owner: str) -> Inference:
        """Return the inference for the notes of another owner. It is closed with this one."""
        if owner == self._owner:
            return self
        other = self._others.get(owner)
        if other is None:
            other = Inference(self._repository, self.own_model, self._settings, owner, self._emit)
            other._running = self._running
            self._others[owner] = other
        return other

    # Scheduling

    async def resume(self) -> None:
        """Continue the work of an earlier process in the background."""
        if await self._repository.pending(self._owner):
            self.soon()

    def soon(self) -> None:
        """Begin the pending work in the background. It ends with the event loop, or with `aclose`."""
        self._again = True
        if self._background is None or not self._background.is_running:
            self._background = BackgroundTask(self._work, self._running)

    async def _work(self) -> None:
        while self._again:
            self._again = False
            try:
                await self._do()
            except HandlerError as error:  # no caller exists to which it could be raised
                _log.warning("%s, while notes were looked at in the background", error)

    def _emit_later(self, event: Event) -> None:
        try:
            self._emit(event)
        except HandlerError as error:
            self._failures.append(error)

    async def infer(self, records: Sequence[Record]) -> list[Record]:
        """Do the pending work of some notes now, and return the notes as they are then."""
        await self._do({record.id for record in records})
        now = await self._repository.get_many(self._owner, (record.id for record in records))
        return [now.get(record.id, record) for record in records]

    async def settle(self, visible: Filter) -> int:
        """Do all pending work, and return for how many of the visible notes some is left."""
        await self._do()
        pending = await self._repository.pending(self._owner)
        left = await self._repository.get_many(self._owner, (each.id for each in pending))
        return sum(map(visible.matches, left.values()))

    async def aclose(self) -> None:
        """Cancel the work in the background."""
        for other in list(self._others.values()):
            await other.aclose()
        if self._background is not None:
            await self._background.stop()

    # Inferring omitted fields

    async def _do(self, ids: Collection[str] | None = None) -> None:
        """Do the pending work of all notes, or of some. Stop early if the model cannot be reached."""
        async with self._lock:  # so that no two tasks ask about one note
            try:
                for batch in _batches(await self._read(ids, lambda pending: pending.names != (SIMILAR,))):
                    await self._infer(batch)
                await self._compare_each(await self._read(ids, lambda pending: pending.names == (SIMILAR,)))
            except NoAnswerError:
                pass
            finally:
                failures, self._failures = self._failures, []
            if failures:
                raise failures[0]

    async def _read(
        self, ids: Collection[str] | None, wanted: Callable[[Pending], bool]
    ) -> list[tuple[Pending, Record]]:
        """Return the notes with pending work, the oldest first. The work of notes that were changed since is dropped."""
        await self._repository.catch_up(self._owner)
        all_pending = await self._repository.pending(self._owner)
        chosen = [pending for pending in all_pending if wanted(pending) and (ids is None or pending.id in ids)]
        records = await self._repository.get_many(self._owner, (pending.id for pending in chosen))
        found: list[tuple[Pending, Record]] = []
        for pending in chosen:
            record = records.get(pending.id)
            if record is None or record.version != pending.version:
                await self._repository.settle(self._owner, pending.id)
            else:
                found.append((pending, record))
        return found

    async def _infer(self, batch: Sequence[tuple[Pending, Record]]) -> None:
        """Infer the omitted fields of several notes.

        Raises:
            NoAnswerError: the model cannot be reached.
        """
        first, record = batch[0]
        asker = record.source if record.private else None
        fits = Filter(self._owner, first.within, asker=asker)
        counts, categories = await self._repository.backend.read(
            lambda tables: (tables.counts(fits), tables.categories(fits))
        )
        often = sorted(categories, key=lambda name: -categories[name])[:_VALUES]
        numbered = [(number, record) for number, (_, record) in enumerate(batch, 1)]
        scopes = {scope: count for scope, (count, _, _) in counts.items()}
        messages = _prompts.infer_messages(numbered, first.within, scopes, often)
        said: dict[int, _prompts.Inferred] = {}
        try:
            answer = await self._delayed.ask("save", messages, _prompts.form(_prompts.InferredNotes))
            said = {each.number: each for each in answer.notes}
            if not said.keys() >= {number for number, _ in numbered}:
                self._delayed.failed("save", "the answer does not have all notes that were shown")
        except NoAnswerError as error:
            if not error.spoke:
                raise
        for number, (pending, record) in enumerate(batch, 1):
            await self._apply(pending, record, said.get(number))

    async def _apply(self, pending: Pending, record: Record, said: _prompts.Inferred | None) -> None:
        """Save the fields that a model inferred for a note, unless the note was changed meanwhile."""
        left = tuple(name for name in pending.names if name == SIMILAR)
        if said is None and pending.tries + 1 < _TRIES:
            await self._save_pending(replace(pending, tries=pending.tries + 1))
            return
        new = record if said is None else _inferred(record, pending, said)
        if new == record:
            if left:
                await self._save_pending(replace(pending, names=left))
            else:
                await self._repository.settle(self._owner, record.id)
            return
        next_task = replace(pending, names=left, version=record.version + 1)
        key = _storage.pending_key(self._owner, record.id)
        also = [Put(key, _storage.pack_pending(next_task))] if left else []
        try:
            await self._repository.replace(self._owner, record, new, "inferred", settled=not left, also=also)
        except ConflictError:
            await self._repository.settle(self._owner, record.id)

    async def _save_pending(self, pending: Pending) -> None:
        """Save the remaining inference of a note, unless it was settled, or the note is gone."""
        key = _storage.pending_key(self._owner, pending.id)
        item = await self._repository.store.get(key)
        if item is not None:
            try:
                await self._repository.store.commit(Put(key, _storage.pack_pending(pending), expected=item.version))
            except ConflictError:
                return

    # Consolidating

    async def _compare_each(self, found: Iterable[tuple[Pending, Record]]) -> None:
        """Consolidate notes with older ones. One for which that fails does not keep the others waiting; its error is raised at the end.

        Raises:
            NoAnswerError: the model cannot be reached.
        """
        failed: Exception | None = None
        in_a_row = 0
        for pending, record in found:
            try:
                await self._compare(pending, record)
                in_a_row = 0
            except NoAnswerError:
                if failed is None:
                    raise
                break
            except Exception as error:  # noqa: BLE001  raised when the others are done
                failed, in_a_row = failed or error, in_a_row + 1
                if in_a_row == _FAILURES:
                    break
        if failed is not None:
            raise failed

    async def _compare(self, pending: Pending, record: Record) -> None:
        """Consolidate a note with older ones.

        Raises:
            NoAnswerError: the model cannot be reached.
        """
        now = await self._repository.get(self._owner, record.id)  # consolidating another one may have removed it
        if now is None or now.version != pending.version:
            await self._repository.settle(self._owner, record.id)
            return
        try:
            await consolidate(self._repository, self._delayed, self._settings, now)
        except NoAnswerError as error:
            if not error.spoke:
                raise
        await self._repository.settle(self._owner, record.id)

    # Splitting texts

    async def extract(self, text: str) -> list[str]:
        """Return the statements in a text; the whole text if the model gives no usable answer."""
        try:
            answer = await self.model.ask(
                "extract", _prompts.extract_messages(text), _prompts.form(_prompts.Statements)
            )
        except NoAnswerError:
            return [text]
        found: dict[str, None] = {}
        for each in answer.statements:
            try:
                found.setdefault(_validation.content(each))
            except NoteError:
                continue
        return list(found)


def _batches(found: Iterable[tuple[Pending, Record]]) -> Iterator[list[tuple[Pending, Record]]]:
    """Yield notes in groups that a model may see together.

    Private notes are grouped only with others of the same source, and notes with others of the same trust, so that a note cannot
    influence the inference about a note that is more trusted, or visible to fewer. A note whose last answer was unusable is alone.
    """
    groups: dict[tuple[object, ...], list[tuple[Pending, Record]]] = {}
    for pending, record in found:
        private = record.source if record.private else None
        alone = pending.id if pending.tries else None
        groups.setdefault((pending.within, private, record.trust, alone), []).append((pending, record))
    for group in groups.values():
        for start in range(0, len(group), _TOGETHER):
            yield group[start : start + _TOGETHER]


def _inferred(record: Record, pending: Pending, said: _prompts.Inferred) -> Record:
    """Return a note with the inferred values; unusable values are left out."""
    changes: dict[str, Any] = {}
    if "scope" in pending.names and said.scope:
        changes["scope"] = _scope(said.scope, record.scope, pending.within)
    if "categories" in pending.names:
        changes["categories"] = tuple(_names(said.categories, _CATEGORIES))
    if "importance" in pending.names and said.importance is not None and not math.isnan(said.importance):
        changes["importance"] = min(1.0, max(0.0, said.importance))
    if "metadata" in pending.names:
        lists = {"entities": said.entities, "dates": said.dates, "topics": said.topics}
        named: Mapping[str, Any] = {key: names for key, values in lists.items() if (names := _names(values, _VALUES))}
        if named:
            changes["metadata"] = MappingProxyType(named)
    return replace(record, **changes)


def _scope(suggested: str, now: str, within: Sequence[str]) -> str:
    """Return a suggested scope as a path if it is within the bounds; else the current scope of the note."""
    if not suggested.strip():
        return now
    try:
        path = path_of(suggested, "/" if suggested.strip().startswith("/") else within[0])
    except ScopeError:
        return now
    return path if any(is_within(path, bound) for bound in within) else now


def _names(values: Iterable[str], most: int) -> list[str]:
    short = (text for each in values if (text := " ".join(each.split())) and len(text) <= _LONGEST)
    return list(itertools.islice(dict.fromkeys(short), most))
