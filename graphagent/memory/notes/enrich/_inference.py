"""What a model does for notes: it infers what was left out, takes texts apart, looks deeper, and finds what says the same.

A note is kept first, with a mark that says what is still to be done for it. That is done in the background, where no save waits for it;
what is left when the notes are closed, or the process ends, is done when they are opened again. A note that was changed meanwhile
is left as it is.
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
from graphagent.memory.notes._scopes import is_within, path_of
from graphagent.memory.notes.enrich import _prompts
from graphagent.memory.notes.enrich._background import Background
from graphagent.memory.notes.enrich._consolidation import consolidate
from graphagent.memory.notes.enrich._model import Asker, NoAnswerError
from graphagent.memory.notes.index import _chunks, _fts, _storage
from graphagent.memory.notes.index._filter import Filter
from graphagent.memory.notes.index._storage import SIMILAR, Pending
from graphagent.memory.notes.recall import _deep
from graphagent.store import Put

if TYPE_CHECKING:
    from graphagent.events import Event
    from graphagent.memory.notes._settings import Settings
    from graphagent.memory.notes._types import Match, Record
    from graphagent.memory.notes._view import NoteView
    from graphagent.memory.notes.index._repository import Book
    from graphagent.protocols import Model

_log = logging.getLogger("graphagent")

_TOGETHER = 10
"""Notes that one question is about, at most."""
_TRIES = 3
"""How often a model is asked about a note of which it says nothing usable."""
_CATEGORIES = 10
_VALUES = 50
_LONGEST = 100
"""Characters of a category, an entity, a date or a topic."""


class Inference:
    """What a model does for the notes of one owner."""

    def __init__(
        self, book: Book, model: Model, settings: Settings, owner: str, tell: Callable[[Event], object]
    ) -> None:
        self._book = book
        self._settings = settings
        self._owner = owner
        self._asker = Asker(model, tell)
        self._after = Asker(model, self._tell_after)
        """Asks about notes that are kept already: what a handler raises waits until the work is done."""
        self._failures: list[HandlerError] = []
        self._made_of = book, model, settings
        self._tell = tell
        self._others: weakref.WeakValueDictionary[str, Inference] = weakref.WeakValueDictionary()
        """Those of other owners that somebody uses, or that have work to do."""
        self._going: set[Background] = set()
        """What goes on in the background, for this owner and the others."""
        self._lock = anyio.Lock()
        self._background: Background | None = None
        self._again = False

    def of(self, owner: str) -> Inference:
        """Give what does the same for the notes of another owner; it is closed with this one."""
        if owner == self._owner:
            return self
        other = self._others.get(owner)
        if other is None:
            other = self._others[owner] = Inference(*self._made_of, owner, self._tell)
            other._going = self._going
        return other

    # ---- when

    async def resume(self) -> None:
        """Have what an earlier opening left go on in the background.

        Raises:
            StoreError: the store cannot be read.
        """
        if await self._book.pending(self._owner):
            self.soon()

    def soon(self) -> None:
        """Have what is to be done begin in the background; it ends with the event loop, or with `aclose`."""
        self._again = True
        if self._background is None or not self._background.is_running:
            self._background = Background(self._work, self._going)

    async def _work(self) -> None:
        while self._again:
            self._again = False
            try:
                await self._do()
            except HandlerError as error:  # nobody called whom it could be raised to
                _log.warning("%s, while notes were looked at in the background", error)

    def _tell_after(self, event: Event) -> None:
        try:
            self._tell(event)
        except HandlerError as error:
            self._failures.append(error)

    async def infer(self, records: Sequence[Record]) -> list[Record]:
        """Do now what is to be done for some notes, and give them as they are then.

        Raises:
            EmbedderError: a vector could not be made.
            StoreError: the store cannot be read or written.
        """
        await self._do({record.id for record in records})
        return [await self._book.get(self._owner, record.id) or record for record in records]

    async def settle(self, view: NoteView) -> int:
        """Do all that is to be done, and give for how many notes of a view something still is.

        Raises:
            EmbedderError: a vector could not be made.
            StoreError: the store cannot be read or written.
        """
        await self._do()
        left = [await view.get(pending.id) for pending in await self._book.pending(self._owner)]
        return sum(record is not None for record in left)

    async def aclose(self) -> None:
        """Break off what is done in the background."""
        for other in list(self._others.values()):
            await other.aclose()
        if self._background is not None:
            await self._background.stop()

    # ---- what was left out

    async def _do(self, ids: Collection[str] | None = None) -> None:
        """Do what is to be done: for all notes, or for some. Ends early where the model cannot be reached."""
        async with self._lock:  # so that no two tasks ask about one note
            try:
                for batch in _batches(await self._read(ids, lambda pending: pending.names != (SIMILAR,))):
                    await self._infer(batch)
                for pending, record in await self._read(ids, lambda pending: pending.names == (SIMILAR,)):
                    await self._compare(pending, record)
            except NoAnswerError:
                pass
            finally:
                failures, self._failures = self._failures, []
            if failures:
                raise failures[0]

    async def _read(
        self, ids: Collection[str] | None, wanted: Callable[[Pending], bool]
    ) -> list[tuple[Pending, Record]]:
        """Give the notes for which something is to be done, the oldest first; those that were changed since are done."""
        await self._book.catch_up(self._owner)
        found: list[tuple[Pending, Record]] = []
        for pending in await self._book.pending(self._owner):
            if wanted(pending) and (ids is None or pending.id in ids):
                record = await self._book.get(self._owner, pending.id)
                if record is None or record.version != pending.version:
                    await self._book.settled(self._owner, pending.id)
                else:
                    found.append((pending, record))
        return found

    async def _infer(self, batch: Sequence[tuple[Pending, Record]]) -> None:
        """Infer what was left out of several notes.

        Raises:
            NoAnswerError: the model cannot be reached.
        """
        first, record = batch[0]
        asker = record.source if record.private else None
        fits = Filter(self._owner, first.within, asker=asker)
        counts, categories = await self._book.host.read(
            lambda connection: (_fts.counts(connection, fits), _fts.categories(connection, fits))
        )
        often = sorted(categories, key=lambda name: -categories[name])[:_VALUES]
        numbered = [(number, record) for number, (_, record) in enumerate(batch, 1)]
        scopes = {scope: count for scope, (count, _, _) in counts.items()}
        messages = _prompts.infer_messages(numbered, first.within, scopes, often)
        said: dict[int, _prompts.Inferred] = {}
        try:
            answer = await self._after.ask("save", messages, _prompts.form(_prompts.Notes))
            said = {each.number: each for each in answer.notes}
            if not said.keys() >= {number for number, _ in numbered}:
                self._after.failed("save", "the answer does not have all notes that were shown")
        except NoAnswerError as error:
            if not error.spoke:
                raise
        for number, (pending, record) in enumerate(batch, 1):
            await self._take(pending, record, said.get(number))

    async def _take(self, pending: Pending, record: Record, said: _prompts.Inferred | None) -> None:
        """Put into a note what a model said of it, unless it was changed meanwhile."""
        left = tuple(name for name in pending.names if name == SIMILAR)
        if said is None and pending.tries + 1 < _TRIES:
            await self._mark(replace(pending, tries=pending.tries + 1))
            return
        new = record if said is None else _inferred(record, pending, said)
        if new == record:
            await (self._mark(replace(pending, names=left)) if left else self._book.settled(self._owner, record.id))
            return
        mark = replace(pending, names=left, version=record.version + 1)
        beside = [Put(_storage.pending_key(self._owner, record.id), _storage.pack_pending(mark))] if left else []
        try:
            await self._book.replace(self._owner, record, new, "inferred", settled=not left, beside=beside)
        except ConflictError:
            await self._book.settled(self._owner, record.id)

    async def _mark(self, pending: Pending) -> None:
        """Note anew what is to be done for a note, unless that is settled or the note is gone."""
        key = _storage.pending_key(self._owner, pending.id)
        item = await self._book.store.get(key)
        if item is not None:
            try:
                await self._book.store.commit(Put(key, _storage.pack_pending(pending), expected=item.version))
            except ConflictError:
                return

    # ---- what says the same

    async def _compare(self, pending: Pending, record: Record) -> None:
        """Consolidate a note with older ones.

        Raises:
            NoAnswerError: the model cannot be reached.
        """
        now = await self._book.get(self._owner, record.id)  # an earlier one of these may have taken it away
        if now is None or now.version != pending.version:
            await self._book.settled(self._owner, record.id)
            return
        try:
            await consolidate(self._book, self._after, self._settings, now)
        except NoAnswerError as error:
            if not error.spoke:
                raise
        await self._book.settled(self._owner, record.id)

    # ---- asked for

    async def extract(self, text: str) -> list[str]:
        """Give the statements in a text; where the model gives none that can be used, the whole text."""
        try:
            answer = await self._asker.ask(
                "extract", _prompts.extract_messages(text), _prompts.form(_prompts.Statements)
            )
        except NoAnswerError:
            return [text]
        found: dict[str, None] = {}
        for each in answer.statements:
            try:
                found.setdefault(_chunks.checked(each))
            except NoteError:
                continue
        return list(found)

    async def recall(self, query: str, fits: Filter, limit: int, *, deep: bool) -> list[Match]:
        """Give the notes that fit a question best.

        Raises:
            EmbedderError: the question could not be embedded.
            StoreError: the store cannot be read.
        """
        return await _deep.recall(self._book, self._asker, self._settings, query, fits, limit, deep=deep)


def _batches(found: Iterable[tuple[Pending, Record]]) -> Iterator[list[tuple[Pending, Record]]]:
    """Give notes in groups that may stand before a model together.

    Those that are private stand with others of the same source alone, and those from outside with one another, so that no note has
    a say in what is inferred of one that is trusted more, or seen by fewer. One that was tried in vain stands alone.
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
    """Give a note with what was inferred of what was left out; what cannot be used is left out still."""
    changes: dict[str, Any] = {}
    if "scope" in pending.names and said.scope:
        changes["scope"] = _scope(said.scope, record.scope, pending.within)
    if "categories" in pending.names:
        changes["categories"] = tuple(_names(said.categories, _CATEGORIES))
    if "importance" in pending.names and said.importance is not None and not math.isnan(said.importance):
        changes["importance"] = min(1.0, max(0.0, said.importance))
    if "metadata" in pending.names:
        lists = {"entities": said.entities, "dates": said.dates, "topics": said.topics}
        told: Mapping[str, Any] = {key: names for key, values in lists.items() if (names := _names(values, _VALUES))}
        if told:
            changes["metadata"] = MappingProxyType(told)
    return replace(record, **changes)


def _scope(suggested: str, now: str, within: Sequence[str]) -> str:
    """Give a suggested scope as a path, provided that it is within the bounds; else the scope that the note has."""
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
