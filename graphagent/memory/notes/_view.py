"""What can be done with notes, within bounds: all of them, a scope, or a slice of several."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar

from graphagent import _clock
from graphagent.errors import ConflictError, NoteError, NoteNotFoundError, NotePermissionError
from graphagent.events import (
    MemoryQueryCompleted,
    MemoryQueryFailed,
    MemoryQueryStarted,
    MemorySaveCompleted,
    MemorySaveFailed,
    MemorySaveStarted,
)
from graphagent.memory.notes import _codec, _tables, _texts
from graphagent.memory.notes._imported import imported
from graphagent.memory.notes._scopes import ROOT, Bounds, is_within
from graphagent.memory.notes._tree import child_of, moment, tree_of
from graphagent.memory.notes._types import DEPTHS, Depth, Match, Note, Record, ScopeInfo, ScopeTree, Turn
from graphagent.store import Put, Receipt

if TYPE_CHECKING:
    from graphagent.events import Event
    from graphagent.memory.notes._engine import Engine
    from graphagent.store import Change

T = TypeVar("T")
E = TypeVar("E", bound="Event")

_MATCHES = 10
_AGAIN = 20
_RECORDS = 200
_TOGETHER = 1000
_LONGEST = 10_000
"""How much of a question counts, in characters."""


class NoteView:
    """Notes within bounds. `Notes`, its scopes and its slices are all of this type, with the same operations."""

    def __init__(self, engine: Engine, bounds: Bounds) -> None:
        self._engine = engine
        self._bounds = bounds

    def __repr__(self) -> str:
        only = ", read-only" if self._bounds.read_only else ""
        return f"<{type(self).__name__} of {', '.join(self._bounds.within)}{only}>"

    @property
    def shared(self) -> tuple[Engine, Bounds]:
        """What another view of the same notes is made of."""
        return self._engine, self._bounds

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes that are seen here, with all below them."""
        return self._bounds.within

    @property
    def read_only(self) -> bool:
        """Whether nothing can be kept, changed or forgotten here."""
        return self._bounds.read_only

    # ---- views

    def scope(self, path: str) -> NoteView:
        """Give what is in one scope. Paths given to it are its own: relative, or beginning with its whole path.

        Raises:
            PermissionError: it is outside of this view.
            ScopeError: it is no scope.
        """
        return NoteView(self._engine, self._bounds.scoped(path))

    def subscope(self, name: str) -> NoteView:
        """Give a scope below this one.

        Raises:
            PermissionError: this is a slice that does not have it.
            ScopeError: it is no scope.
        """
        return self.scope(name)

    def slice(
        self, scopes: Iterable[str], categories: Iterable[str] | None = None, *, read_only: bool = True
    ) -> NoteView:
        """Give several scopes as one, with the notes of some categories only if these are given. Paths in it are whole ones.

        Raises:
            PermissionError: one is outside of this view, or this is read-only and that is not to be.
            ScopeError: one is no scope, or there is none.
        """
        return NoteView(self._engine, self._bounds.sliced(scopes, categories, read_only=read_only))

    def of(self, source: str) -> NoteView:
        """Give the same notes as one source sees them: with its private ones, and as the source of what is kept."""
        return NoteView(self._engine, replace(self._bounds, source=source))

    # ---- kept

    async def remember(
        self,
        content: str,
        *,
        scope: str | None = None,
        categories: Sequence[str] | None = None,
        importance: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        source: str | None = None,
        private: bool = False,
        at: datetime | None = None,
        trust: str = "",
        run_id: str = "",
        infer: str = "later",
    ) -> Record:
        """Keep a text. It is on the disk when this returns.

        Args:
            content: The text, up to 1,000,000 characters.
            scope: Where, such as `/project/alpha`; left out, the home of the view.
            categories: What it is about.
            importance: From 0 to 1; left out, the default of the notes.
            metadata: Anything that JSON has a place for.
            source: Who said it, or where it is from; left out, the source of the view.
            private: Whether only its source may see it.
            at: When it was said; a time without a zone is UTC.
            trust: One of TRUST_LEVELS.
            run_id: The run that keeps it.
            infer: `later`: what was left out is inferred by the model, where there is one, after this returned. `now`: before.
                `never`: not at all.

        Raises:
            NoteError: the text cannot be kept, and why.
            PermissionError: the view is read-only, or the scope is not within it.
            EmbedderError: its vector could not be made.
            StoreError: it could not be kept.
        """
        note = Note(content, scope, categories, importance, metadata, source, private, at)
        [record] = await self._keep([note], scope=None, trust=trust, run_id=run_id, infer=infer)
        return record

    async def remember_many(
        self,
        notes: Iterable[str | Note],
        *,
        scope: str | None = None,
        categories: Sequence[str] | None = None,
        importance: float | None = None,
        source: str | None = None,
        private: bool = False,
        trust: str = "",
        run_id: str = "",
        infer: str = "later",
    ) -> list[Record]:
        """Keep several texts, all or none. What a Note says itself goes before what is said for all.

        Raises:
            NoteError: one cannot be kept, and which; none is.
            PermissionError: the view is read-only, or a scope is not within it.
            EmbedderError: their vectors could not be made.
            StoreError: they could not be kept.
        """
        given = [each if isinstance(each, Note) else Note(each) for each in _each(notes)]
        filled = [
            replace(
                each,
                categories=categories if each.categories is None else each.categories,
                importance=importance if each.importance is None else each.importance,
                source=source if each.source is None else each.source,
                private=private or each.private,
            )
            for each in given
        ]
        return await self._keep(filled, scope=scope, trust=trust, run_id=run_id, infer=infer)

    async def remember_conversation(
        self,
        turns: Iterable[Turn],
        *,
        session: str,
        scope: str | None = None,
        categories: Sequence[str] | None = None,
        trust: str = "",
        run_id: str = "",
    ) -> list[Record]:
        """Keep the turns of a conversation, each as a note that knows its speaker, its time and its place.

        What was said before and behind a turn, and in the same conversation, helps to find it. Turns of a session that is
        there already go on behind its last one.

        Raises:
            NoteError: a turn cannot be kept, and which; none is.
            PermissionError: the view is read-only, or the scope is not within it.
            EmbedderError: their vectors could not be made.
            StoreError: they could not be kept.
        """
        if not session:
            raise NoteError("a conversation has a session: a name of your own, by which its turns belong together")
        self._bounds.writing()
        given = list(turns)
        notes = [Note(turn.text, None, categories or (), None, {}, turn.source, at=turn.at) for turn in given]
        book, key = self._engine.book, _codec.session_key(self._bounds.owner, session)
        for again in range(_AGAIN):
            item = await book.store.get(key)
            last = await book.last_place(self._bounds.owner, session)
            places = [
                {"session": session, "place": last + number, "speaker": turn.speaker, "role": turn.role}
                for number, turn in enumerate(given, 1)
            ]
            alone = Put(key, b"", expected=item.version if item is not None else 0)
            try:
                return await self._keep(
                    notes, scope=scope, trust=trust, run_id=run_id, infer="never", places=places, beside=[alone]
                )
            except ConflictError as error:  # others went on with it meanwhile
                if again == _AGAIN - 1 or error.key != key:
                    raise
        raise AssertionError

    async def _keep(
        self,
        notes: Sequence[Note],
        *,
        scope: str | None,
        trust: str,
        run_id: str,
        infer: str,
        places: Sequence[Mapping[str, Any]] | None = None,
        beside: Sequence[Change] = (),
    ) -> list[Record]:
        engine, bounds = self._engine, self._bounds
        bounds.writing()
        if infer not in ("now", "later", "never"):
            raise ValueError(f"infer={infer!r} is not known; there are 'now', 'later' and 'never'")
        for each in notes:  # so that a path that the caller may not write to is told before anything is done
            bounds.target(each.scope if each.scope is not None else scope)
        records = [
            engine.record(
                bounds,
                each,
                scope=scope,
                trust=trust,
                run_id=run_id,
                number=number,
                places=places[number] if places else {},
            )
            for number, each in enumerate(notes)
        ]
        ids = sorted(record.id for record in records)  # so that those of one moment keep their order
        records = [replace(record, id=id_) for record, id_ in zip(records, ids, strict=True)]
        for record in records:
            self._reaches(record)
        pending = [engine.pending(bounds, each, scope, infer) for each in notes]
        began = time.perf_counter()
        told = records[0].content if len(records) == 1 else f"{len(records)} notes"
        engine.emit(MemorySaveStarted(run_id, told, dict(records[0].metadata) if len(records) == 1 else {}))
        try:
            if records:
                await engine.book.add(bounds.owner, records, pending=pending, beside=beside)
        except Exception as error:
            engine.emit(MemorySaveFailed(run_id, told, type(error).__name__))
            raise
        engine.emit(MemorySaveCompleted(run_id, told, (time.perf_counter() - began) * 1000))
        return await engine.after_save(records, pending, infer)

    # ---- found

    async def recall(
        self,
        query: str,
        *,
        scope: str | None = None,
        categories: Sequence[str] | None = None,
        limit: int = _MATCHES,
        depth: Depth | None = None,
        source: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        min_score: float = 0.0,
        run_id: str = "",
    ) -> list[Match]:
        """Give the notes that fit a question best, the best first. Nothing is written.

        Args:
            query: The question, or some words; of a long one the first 10,000 characters count.
            scope: Where to look, with all below; left out, everywhere in the view.
            categories: Only notes that have one of these.
            limit: How many at most.
            depth: `shallow`: no model. `deep`: a model says what to look for and where. `auto`: deep where a question is long
                or what is found is weak. Left out: `auto` with a model, else `shallow`.
            source: Only notes of this source.
            since: Only what was said, or else kept, then or later.
            until: Only what was said, or else kept, then or earlier.
            min_score: Only matches with this score or a higher one.
            run_id: The run that asks, for the events.

        Raises:
            ValueError: the depth or the limit is none.
            ScopeError: the scope is none.
            EmbedderError: the question could not be embedded.
            StoreError: the store cannot be read.
        """
        if depth is not None and depth not in DEPTHS:
            raise ValueError(f"depth={depth!r} is not known; there are {', '.join(map(repr, DEPTHS))}")
        if limit < 0:
            raise ValueError(f"limit={limit} is below 0")
        if not isinstance(query, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise NoteError(f"a question is a text, not {type(query).__name__}")
        query = query[:_LONGEST].encode("utf-8", "replace").decode()
        fits = self._filter(scope, categories, source, since, until)
        engine = self._engine
        began = time.perf_counter()
        engine.emit(MemoryQueryStarted(run_id, query, limit))
        try:
            found: list[Match] = []
            if fits is not None and limit and query.strip():
                found = await engine.recall(self, query, fits, limit, depth)
        except Exception as error:
            engine.emit(MemoryQueryFailed(run_id, query, type(error).__name__))
            raise
        found = [match for match in found if match.score >= min_score and self._may_see(match.record, fits)]
        engine.emit(MemoryQueryCompleted(run_id, query, tuple(found), (time.perf_counter() - began) * 1000))
        return found

    async def get(self, id_: str) -> Record | None:
        """Give the note with an id; None where this view has none."""
        record = await self._engine.book.get(self._bounds.owner, id_)
        return record if record is not None and self.sees(record) else None

    def sees(self, record: Record) -> bool:
        """Tell whether a record is within the view."""
        return self._may_see(record, None)

    def _may_see(self, record: Record, fits: _tables.Filter | None) -> bool:
        bounds = self._bounds
        asker, all_ = (bounds.source, False) if fits is None else (fits.asker, fits.private)
        return (
            record.owner == bounds.owner
            and bounds.holds(record.scope)
            and (fits is None or _fits(record, fits))
            and not any(some.isdisjoint(record.categories) for some in bounds.categories)
            and (not record.private or all_ or record.source == asker)
        )

    def _reaches(self, record: Record) -> None:
        """See that the view has a note that is to be kept.

        Raises:
            NoteError: it is private to no one.
            PermissionError: it is none that this view sees.
        """
        bounds = self._bounds
        if record.private and not record.source:
            raise NoteError("a private note is seen by its source alone, and this one has none; say source=")
        for some in bounds.categories:
            if some.isdisjoint(record.categories):
                names = ", ".join(map(repr, sorted(some)))
                raise NotePermissionError(f"this view has notes of these categories only: {names}; give the note one")
        if record.private and bounds.source is not None and record.source != bounds.source:
            raise NotePermissionError(f"this view is that of {bounds.source!r}; it keeps no private notes of others")

    def _filter(
        self,
        scope: str | None = None,
        categories: Sequence[str] | None = None,
        source: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        whole: bool = False,
    ) -> _tables.Filter | None:
        """Give what may be found; None where nothing may. `whole`: with what is private to whomever, where no one asks."""
        bounds = self._bounds
        scopes = bounds.narrowed(scope)
        if not scopes:
            return None
        if source is not None:
            _codec.name("source", source)
        wanted = frozenset(_codec.categories(categories))
        some = (*bounds.categories, wanted) if wanted else bounds.categories
        first = None if since is None else _tables.milliseconds(since)
        last = None if until is None else _tables.milliseconds(until)
        asker = bounds.source if bounds.source is not None else source
        return _tables.Filter(
            bounds.owner, scopes, some, asker, source, first, last, private=whole and bounds.source is None
        )

    # ---- changed

    async def update(
        self,
        id_: str,
        *,
        content: str | None = None,
        scope: str | None = None,
        categories: Sequence[str] | None = None,
        importance: float | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Record:
        """Change a note; what is left out stays, as do its owner, source and privacy. What it was is in its history.

        Raises:
            NoteNotFoundError: this view has no such note.
            PermissionError: the view is read-only, or the scope is not within it.
            NoteError: the text cannot be kept, and why.
            StoreError: it could not be kept.
        """
        self._bounds.writing()
        changes: dict[str, Any] = {}
        if content is not None:
            changes["content"] = _texts.checked(content)
        if scope is not None:
            changes["scope"] = self._bounds.target(scope)
        if categories is not None:
            changes["categories"] = _codec.categories(categories)
        if importance is not None:
            changes["importance"] = self._engine.importance(importance)
        if metadata is not None:
            changes["metadata"] = _codec.plain(metadata)
        return await self._changed(id_, changes, "updated")

    async def _changed(self, id_: str, changes: Mapping[str, Any], action: str) -> Record:
        book, owner = self._engine.book, self._bounds.owner
        for again in range(_AGAIN):
            record = await self._there(id_)
            changed = replace(record, **changes, updated_at=_now())
            self._reaches(changed)
            try:
                return await book.replace(owner, record, changed, action)
            except ConflictError:
                if again == _AGAIN - 1:
                    raise
        raise AssertionError

    async def _there(self, id_: str) -> Record:
        record = await self.get(id_)
        if record is None:
            raise NoteNotFoundError(id_)
        return record

    async def history(self, id_: str) -> list[tuple[Record, str]]:
        """Give what a note was before each change, the last first, each with what was done to it then.

        Raises:
            StoreError: it cannot be read.
        """
        book, owner = self._engine.book, self._bounds.owner
        now = await book.get(owner, id_)
        if now is not None and not self.sees(now):
            return []
        return [(record, action) for record, action in await book.history(owner, id_) if self.sees(record)]

    async def undo(self, id_: str) -> Record:
        """Make a note again what it was before its last change, or before it was consolidated away.

        Raises:
            NoteNotFoundError: this view has nothing that it was.
            PermissionError: the view is read-only.
            StoreError: it could not be kept.
        """
        self._bounds.writing()
        book, owner = self._engine.book, self._bounds.owner
        for again in range(_AGAIN):
            now = await book.get(owner, id_)
            past = await book.history(owner, id_)
            if not past or not self.sees(past[0][0]) or (now is not None and not self.sees(now)):
                break
            before = replace(past[0][0], updated_at=_now())
            try:
                if now is None:
                    return await book.restore(owner, before)
                return await book.replace(owner, now, before, "undone")
            except ConflictError:
                if again == _AGAIN - 1:
                    raise
        raise NoteNotFoundError(id_)

    # ---- forgotten

    async def forget(
        self,
        *,
        ids: Iterable[str] | None = None,
        scope: str | None = None,
        categories: Sequence[str] | None = None,
        older_than: timedelta | datetime | None = None,
        source: str | None = None,
        run_id: str | None = None,
    ) -> Receipt:
        """Remove the notes that fit all that is given, for good: their text, words, vectors and history leave the disk.

        So do those that were consolidated away. Private notes are removed by the view of their source, and by one of none.

        Raises:
            ValueError: nothing is given; `reset()` removes everything in the view.
            PermissionError: the view is read-only.
            NotErasedError: it is done, but bytes of it may still be on the disk.
            StoreError: it could not be done.
        """
        if all(each is None for each in (ids, scope, categories, older_than, source, run_id)):
            raise ValueError(
                "say what to forget: ids=, scope=, categories=, older_than=, source= or run_id=; or reset()"
            )
        self._bounds.writing()
        until = None
        if older_than is not None:
            until = older_than if isinstance(older_than, datetime) else _now() - older_than
        fits = self._filter(scope, categories, source, whole=True)
        if fits is None:
            return Receipt()
        wanted = None if ids is None else dict.fromkeys(_each(ids))
        if wanted is None:
            found = await self._all(fits)
        else:
            each = [await self._engine.book.get(fits.owner, id_) for id_ in wanted]
            found = [record for record in each if record is not None]
        found += [
            record for record in await self._engine.book.retired(fits.owner) if wanted is None or record.id in wanted
        ]
        doomed = [
            record
            for record in found
            if (until is None or record.created_at < _utc(until))
            and (run_id is None or record.run_id == run_id)
            and self._may_see(record, fits)
        ]
        return await self._forgotten(doomed)

    async def purge(self, *, source: str | None = None, run_id: str | None = None) -> Receipt:
        """Remove, for good, all notes of a source or of a run.

        Raises:
            As `forget`.
        """
        return await self.forget(source=source, run_id=run_id)

    async def reset(self, scope: str | None = None) -> Receipt:
        """Remove, for good, everything in the view, or in one scope of it.

        Raises:
            PermissionError: the view is read-only.
            NotErasedError: it is done, but bytes of it may still be on the disk.
            StoreError: it could not be done.
        """
        self._bounds.writing()
        fits = self._filter(scope, whole=True)
        if fits is None:
            return Receipt()
        found = [*await self._all(fits), *await self._engine.book.retired(fits.owner)]
        return await self._forgotten([record for record in found if self._may_see(record, fits)])

    async def _forgotten(self, records: Sequence[Record]) -> Receipt:
        if not records:
            return Receipt()
        await self._engine.book.forget(self._bounds.owner, [record.id for record in records])
        return Receipt(notes=len(records), bytes=sum(len(record.content.encode()) for record in records))

    async def _all(self, fits: _tables.Filter) -> list[Record]:
        found = await self._engine.book.ids(fits.owner, lambda connection: _tables.newest(connection, fits, -1, 0))
        return [record for record in found if self._may_see(record, fits)]

    # ---- looked through

    async def list_records(self, scope: str | None = None, *, limit: int = _RECORDS, offset: int = 0) -> list[Record]:
        """Give the notes of a scope and those below, the newest first.

        Raises:
            ValueError: the limit or the offset is below 0.
            StoreError: the store cannot be read.
        """
        if limit < 0 or offset < 0:
            raise ValueError(f"limit={limit}, offset={offset}: neither may be below 0")
        fits = self._filter(scope)
        if fits is None:
            return []
        found = await self._engine.book.ids(
            fits.owner, lambda connection: _tables.newest(connection, fits, limit, offset)
        )
        return [record for record in found if self._may_see(record, fits)]

    async def list_categories(self, scope: str | None = None) -> dict[str, int]:
        """Give in how many notes each category is, in alphabetical order.

        Raises:
            StoreError: the store cannot be read.
        """
        fits = self._filter(scope)
        return {} if fits is None else await self._told(fits, _tables.categories)

    async def list_scopes(self, path: str | None = None) -> list[str]:
        """Give the whole paths of the scopes directly below one, or of those of the slice.

        Raises:
            StoreError: the store cannot be read.
        """
        if path is None and self._bounds.home is None:
            return list(self._bounds.within)
        info = await self.info(path)
        return info.child_scopes

    async def info(self, path: str | None = None) -> ScopeInfo:
        """Tell what is in a scope, with those below it; left out, in all of the view.

        Raises:
            StoreError: the store cannot be read.
        """
        fits = self._filter(path)
        top = self._top(path)
        counts = {} if fits is None else await self._told(fits, _tables.counts)
        found = {} if fits is None else await self._told(fits, _tables.categories)
        children = sorted({child for scope in counts if (child := child_of(scope, top)) is not None})
        return ScopeInfo(
            top,
            sum(count for count, _, _ in counts.values()),
            list(found),
            moment(min(oldest for _, oldest, _ in counts.values())) if counts else None,
            moment(max(newest for _, _, newest in counts.values())) if counts else None,
            children,
        )

    async def tree(self, path: str | None = None, *, max_depth: int | None = None) -> ScopeTree:
        """Give a scope with those below it, down to a depth. As text, a line for each.

        Raises:
            StoreError: the store cannot be read.
        """
        fits = self._filter(path)
        counts = {} if fits is None else await self._told(fits, _tables.counts)
        return tree_of(self._top(path), {scope: count for scope, (count, _, _) in counts.items()}, max_depth)

    def _top(self, path: str | None) -> str:
        bounds = self._bounds
        return bounds.path(path) if path is not None else bounds.home if bounds.home is not None else ROOT

    async def _told(self, fits: _tables.Filter, function: Callable[[_tables.Connection, _tables.Filter], T]) -> T:
        book = self._engine.book
        await book.catch_up(fits.owner)
        return await book.host.read(lambda connection: function(connection, fits))

    # ---- with the model

    async def extract_memories(self, text: str) -> list[str]:
        """Give the statements in a text, each of which can stand alone. Nothing is kept. Without a model: the whole text.

        Raises:
            NoteError: the text is blank, too long, or has half letters.
        """
        return await self._engine.extract(_texts.checked(text))

    async def settle(self) -> int:
        """Wait until all that was left out on saving is inferred, and give of how many notes something is still missing.

        Raises:
            StoreError: the store cannot be read or written.
        """
        return await self._engine.settle(self)

    # ---- taken along, checked

    async def export(self) -> AsyncIterator[dict[str, Any]]:
        """Give all notes of the view, with their history, as plain JSON data, the oldest first.

        Raises:
            StoreError: the store cannot be read.
        """
        fits = self._filter(whole=True)
        book = self._engine.book
        found: list[Record] = [] if fits is None else await self._all(fits)
        for record in reversed(found):
            past = [each for each in await book.history(record.owner, record.id) if self._may_see(each[0], fits)]
            yield {
                "type": "note",
                **_codec.to_json(record),
                "version": record.version,
                **({"history": [{"record": _codec.to_json(old), "action": did} for old, did in past]} if past else {}),
            }

    async def import_(self, records: Iterable[Mapping[str, Any]]) -> int:
        """Keep what `export` gave, with its history; notes whose ids are there already are left. Gives how many were new.

        Raises:
            ValueError: a record is not one of an export, or two have one id and differ; nothing is kept.
            PermissionError: the view is read-only, or a scope is not within it.
            StoreError: they could not be kept.
        """
        self._bounds.writing()
        owner = self._bounds.owner
        found = imported(((f"record {number}", data) for number, data in enumerate(records, 1)), owner)
        for each in found.values():
            for record in (each.record, *(old for old, _ in each.past)):
                self._bounds.target(record.scope)
                self._reaches(record)
        book = self._engine.book
        new = [each for (_, id_), each in found.items() if await book.get(owner, id_) is None]
        for start in range(0, len(new), _TOGETHER):
            some = new[start : start + _TOGETHER]
            past = {each.record.id: each.past for each in some}
            await book.add(owner, [each.record for each in some], past=past)
        return len(new)

    async def verify(self) -> int:
        """Read every note of the owner and see that it can be found. Gives how many there are.

        Raises:
            DamagedStoreError: something was tampered with, is missing or is corrupt.
        """
        return await self._engine.book.verify(self._bounds.owner)

    async def reindex(self) -> int:
        """Make anew, of the notes, all by which they are found; a search engine of your own is told of all notes of the owner.

        Do it after `verify` has found it damaged, and when you give `index=` to notes that are there already. What other
        processes keep meanwhile is refused. Gives how many notes the owner has.

        Raises:
            PermissionError: the view is read-only.
            StoreError: the store cannot be read or written.
        """
        self._bounds.writing()
        return await self._engine.book.reindex(self._bounds.owner)

    async def reembed(self, on_progress: Callable[[int, int], object] | None = None) -> int:
        """Make the vectors of all notes of the owner anew, with the embedder that there is now. Until it is done, the old count.

        Args:
            on_progress: Called with how many are done, and of how many.

        Raises:
            EmbedderError: there is no embedder, or it failed.
            StoreError: they could not be kept.
        """
        self._bounds.writing()
        return await self._engine.book.reembed(self._bounds.owner, on_progress or (lambda done, of: None))

    def on(self, event: type[E], handler: Callable[[E], object]) -> Self:
        """Have a function called, at once, with each event of a type that happens to these notes, in whatever view."""
        self._engine.on(event, handler)
        return self

    def tell(self, event: Event) -> None:
        """Have an event told to who listens to these notes."""
        self._engine.emit(event)


def _each(values: Iterable[T]) -> list[T]:
    return [values] if isinstance(values, str) else list(values)  # type: ignore[list-item]


def _fits(record: Record, fits: _tables.Filter) -> bool:
    """Tell the same as the tables do, of a record; but for its time."""
    return (
        any(is_within(record.scope, scope) for scope in fits.scopes)
        and not any(some.isdisjoint(record.categories) for some in fits.categories)
        and (fits.source is None or record.source == fits.source)
    )


def _now() -> datetime:
    return moment(_clock.now())


def _utc(time: datetime) -> datetime:
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
