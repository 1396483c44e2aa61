"""What can be done with notes, within bounds: all of them, a scope, or a slice of several."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from graphagent.errors import AmbiguousNoteError, NoteNotFoundError
from graphagent.memory.notes import _visibility
from graphagent.memory.notes._types import Note
from graphagent.memory.notes.index import _chunks, _fts
from graphagent.memory.notes.recall import _listing, _recall
from graphagent.memory.notes.write import _conversation, _export, _forget, _save, _update

if TYPE_CHECKING:
    from graphagent.events import Event
    from graphagent.memory.notes._engine import Engine
    from graphagent.memory.notes._scopes import Bounds
    from graphagent.memory.notes._types import Depth, Match, Record, ScopeInfo, ScopeTree, Turn
    from graphagent.memory.notes.write._save import Infer
    from graphagent.store import Change, Receipt

E = TypeVar("E", bound="Event")


class NoteView:
    """Notes within bounds. `Notes`, its scopes and its slices are all of this type, with the same operations."""

    def __init__(self, engine: Engine, bounds: Bounds) -> None:
        self._engine = engine
        self._bounds = bounds

    def __repr__(self) -> str:
        seen_by = f" as {self._bounds.source!r} sees it" if self._bounds.source is not None else ""
        only = ", read-only" if self._bounds.read_only else ""
        return f"<{type(self).__name__} of {', '.join(self._bounds.within)}{seen_by}{only}>"

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
            NoteError: a category is none.
        """
        return NoteView(self._engine, self._bounds.sliced(scopes, categories, read_only=read_only))

    def of(self, source: str) -> NoteView:
        """Give the same notes as one source sees them: with its private ones, and as the source of what is kept.

        Raises:
            NoteError: the source is none.
            PermissionError: this is the view of another source.
        """
        return NoteView(self._engine, self._bounds.seen_by(source))

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
        infer: Infer = "later",
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
            ValueError: `infer` is none of these.
            NoteError: the note cannot be kept, and why.
            PermissionError: the view is read-only, or would not see the note.
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
        metadata: Mapping[str, Any] | None = None,
        source: str | None = None,
        private: bool = False,
        at: datetime | None = None,
        trust: str = "",
        run_id: str = "",
        infer: Infer = "later",
    ) -> list[Record]:
        """Store several texts, all or none. The options are those of `remember`, for all; what a Note says itself comes first.

        A Note with metadata of its own has these alone: they are not merged with those for all. `private=True` holds for all.

        Raises:
            ValueError: `infer` is none of those that `remember` has.
            NoteError: one cannot be kept, and which; none is.
            PermissionError: the view is read-only, or would not see one.
            EmbedderError: their vectors could not be made.
            StoreError: they could not be kept.
        """
        filled = await _save.filled(
            notes, categories=categories, importance=importance, metadata=metadata, source=source, private=private, at=at
        )  # fmt: skip
        return await self._keep(filled, scope=scope, trust=trust, run_id=run_id, infer=infer)

    async def remember_conversation(
        self,
        turns: Iterable[Turn | Mapping[str, Any]],
        *,
        session: str,
        scope: str | None = None,
        categories: Sequence[str] | None = None,
        trust: str = "",
        run_id: str = "",
    ) -> list[Record]:
        """Keep the turns of a conversation, each as a note that knows its speaker, its time and its place.

        What was said before and behind a turn, and in the same conversation, helps to find it. Turns of a session that is
        there already go on behind its last one. Messages as chat APIs have them, `{"role": "user", "content": "…"}`, are turns
        too; those of them without any text, such as tool calls alone, are left out.

        Raises:
            NoteError: a turn cannot be kept, and which, or there is no session; none is.
            TypeError: one is no turn.
            PermissionError: the view is read-only, or would not see one.
            EmbedderError: their vectors could not be made.
            StoreError: they could not be kept.
        """
        keep = partial(self._keep, scope=scope, trust=trust, run_id=run_id, infer="never")
        return await _conversation.keep_turns(
            self._engine, self._bounds, turns, session=session, categories=categories, keep=keep
        )

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
        """Keep notes. All that keeps some comes through here, so that a run, which keeps them once, has one place to do so."""
        return await _save.keep(
            self._engine, self._bounds, notes, scope=scope, trust=trust, run_id=run_id, infer=infer, places=places,
            beside=beside,
        )  # fmt: skip

    # ---- found

    async def recall(
        self,
        query: str,
        *,
        scope: str | None = None,
        categories: Sequence[str] | None = None,
        limit: int = 10,
        depth: Depth | None = None,
        source: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        metadata_filter: Mapping[str, Any] | None = None,
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
            metadata_filter: Only notes whose metadata have each of these keys with an equal value.
            min_score: Only matches with this score or a higher one.
            run_id: The run that asks, for the events.

        Raises:
            ValueError: the depth is none of these, or the limit is below 0.
            TypeError: a time is not a datetime, or a number is none.
            NoteError: the question, the scope, a category or the source is none, or a value of `metadata_filter` cannot be compared.
            EmbedderError: the question could not be embedded.
            StoreError: the store cannot be read.
        """
        return await _recall.recall(
            self._engine, self._bounds, query, scope=scope, categories=categories, limit=limit, depth=depth, source=source,
            since=since, until=until, metadata_filter=metadata_filter, min_score=min_score, run_id=run_id,
        )  # fmt: skip

    async def get(self, id_: str) -> Record | None:
        """Give the note with an id; None where this view has none.

        Raises:
            TypeError: the id is not a text.
            StoreError: the store cannot be read.
        """
        record = await _visibility.get(self._engine, self._bounds, id_)
        if record is not None:
            self._engine.gave((record,))
        return record

    async def resolve(self, text: str) -> str:
        """Return the whole id of the note whose id begins or ends with a text, as people abbreviate ids.

        A whole id is returned as it is, whatever other ids it is a part of.

        Raises:
            TypeError: the text is not a text.
            NoteNotFoundError: this view has no such note.
            AmbiguousNoteError: it has several; the error has their ids.
            StoreError: the store cannot be read.
        """
        if await _visibility.get(self._engine, self._bounds, text) is not None:
            return text
        fits = _visibility.filter_of(self._bounds)
        if fits is None or not text:
            raise NoteNotFoundError(text)
        found = await self._engine.book.ids(fits.owner, lambda connection: _fts.ids_named(connection, fits, text))
        ids = [record.id for record in await _visibility.seen(self._bounds, found, fits)]
        if len(ids) > 1:
            raise AmbiguousNoteError(text, ids)
        if not ids:
            raise NoteNotFoundError(text)
        return ids[0]

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

        Where nothing is given, or what it has already, there is no new version.

        Raises:
            NoteNotFoundError: this view has no such note.
            PermissionError: the view is read-only, or would not see the note any more.
            NoteError: the note cannot be kept so, and why.
            EmbedderError: its vector could not be made.
            StoreError: it could not be kept.
        """
        return await _update.update(
            self._engine, self._bounds, id_, content=content, scope=scope, categories=categories, importance=importance,
            metadata=metadata,
        )  # fmt: skip

    async def history(self, id_: str) -> list[tuple[Record, str]]:
        """Give what a note was before each change, the last first, each with what was done to it then.

        A note that was consolidated away has its history still; of one that was never changed it is empty.

        Raises:
            NoteNotFoundError: this view has no such note, and had none.
            StoreError: it cannot be read.
        """
        past = await _update.history(self._engine, self._bounds, id_)
        self._engine.gave(record for record, _ in past)
        return past

    async def undo(self, id_: str) -> Record:
        """Make a note again what it was before its last change, or before it was consolidated away.

        Undone again it goes one change further back, to what was kept first. Each stands in the history, so `update` makes it
        what it was before it was undone.

        Raises:
            NoteNotFoundError: this view has no such note, and had none.
            NoteError: it was never changed, or all its changes are undone.
            PermissionError: the view is read-only, or did not see what it was.
            EmbedderError: its vector could not be made.
            StoreError: it could not be kept.
        """
        return await _update.undo(self._engine, self._bounds, id_)

    # ---- forgotten

    async def forget(
        self,
        *,
        ids: Iterable[str] | None = None,
        scope: str | None = None,
        categories: Sequence[str] | None = None,
        older_than: timedelta | datetime | None = None,
        source: str | None = None,
        metadata_filter: Mapping[str, Any] | None = None,
        run_id: str | None = None,
    ) -> Receipt:
        """Remove the notes that fit all that is given, for good: their text, words, vectors and history leave the disk.

        So do those that were consolidated away. Private notes are removed by the view of their source, and by one of none.

        Args:
            ids: Of these notes only.
            scope: In this scope, with all below.
            categories: Of those that have one of these.
            older_than: Kept longer ago than an age, such as `timedelta(days=30)`, or before a time.
            source: Of this source.
            metadata_filter: Whose metadata have each of these keys with an equal value.
            run_id: Kept by this run.

        Raises:
            ValueError: nothing is given, or no category or no metadata, or an age below zero, or a time to come; `reset()` removes everything in the view.
            TypeError: an id is not a text, or `older_than` is neither an age nor a time.
            NoteError: the scope, a category or the source is none, or a value of `metadata_filter` cannot be compared.
            PermissionError: the view is read-only.
            NotErasedError: it is done, but bytes of it may still be on the disk.
            StoreError: it could not be done.
        """
        return await _forget.forget(
            self._engine, self._bounds, ids=ids, scope=scope, categories=categories, older_than=older_than,
            source=source, metadata_filter=metadata_filter, run_id=run_id,
        )  # fmt: skip

    async def purge(self, *, source: str | None = None, run_id: str | None = None) -> Receipt:
        """Remove, for good, all notes of a source or of a run.

        Raises:
            As `forget`.
        """
        return await self.forget(source=source, run_id=run_id)

    async def reset(self, scope: str | None = None) -> Receipt:
        """Remove, for good, everything in the view, or in one scope of it.

        When an owner has no note left, nothing is left of who made the vectors either, and another embedder can be used.

        Raises:
            ScopeError: the scope is none.
            PermissionError: the view is read-only.
            NotErasedError: it is done, but bytes of it may still be on the disk.
            StoreError: it could not be done.
        """
        return await _forget.reset(self._engine, self._bounds, scope)

    # ---- looked through

    async def list_records(
        self,
        scope: str | None = None,
        *,
        categories: Sequence[str] | None = None,
        source: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        metadata_filter: Mapping[str, Any] | None = None,
        limit: int = 200,
        offset: int = 0,
    ) -> list[Record]:
        """Give the notes of a scope and those below, what was kept last first.

        Args:
            scope: Where to look; left out, everywhere in the view.
            categories: Only notes that have one of these.
            source: Only notes of this source.
            since: Only what was said, or else kept, then or later.
            until: Only what was said, or else kept, then or earlier.
            metadata_filter: Only notes whose metadata have each of these keys with an equal value.
            limit: How many at most.
            offset: How many to leave out before.

        Raises:
            ValueError: the limit or the offset is below 0.
            TypeError: a time is not a datetime, or a number is none.
            NoteError: the scope, a category or the source is none, or a value of `metadata_filter` cannot be compared.
            StoreError: the store cannot be read.
        """
        found = await _listing.list_records(
            self._engine, self._bounds, scope, categories=categories, source=source, since=since, until=until,
            metadata_filter=metadata_filter, limit=limit, offset=offset,
        )  # fmt: skip
        self._engine.gave(found)
        return found

    async def list_categories(self, scope: str | None = None) -> dict[str, int]:
        """Give in how many notes each category is, in alphabetical order.

        Raises:
            ScopeError: the scope is none.
            StoreError: the store cannot be read.
        """
        return await _listing.list_categories(self._engine, self._bounds, scope)

    async def list_scopes(self, path: str | None = None) -> list[str]:
        """Give the whole paths of the scopes directly below one, or of those of the slice.

        Raises:
            ScopeError: the path is none.
            StoreError: the store cannot be read.
        """
        return await _listing.list_scopes(self._engine, self._bounds, path)

    async def info(self, path: str | None = None) -> ScopeInfo:
        """Tell what is in a scope, with those below it; left out, in all of the view.

        Raises:
            ScopeError: the path is none.
            StoreError: the store cannot be read.
        """
        return await _listing.info(self._engine, self._bounds, path)

    async def tree(self, path: str | None = None, *, max_depth: int | None = None) -> ScopeTree:
        """Give a scope with those below it, down to a depth: 0 is the scope alone. As text, a line for each.

        Raises:
            ValueError: the depth is below 0.
            TypeError: the depth is not a whole number.
            ScopeError: the path is none.
            StoreError: the store cannot be read.
        """
        return await _listing.tree(self._engine, self._bounds, path, max_depth)

    # ---- with the model

    async def extract_memories(self, text: str) -> list[str]:
        """Return the statements in a text, each of which can stand alone. Nothing is stored. Without a model: the whole text.

        A blank text has none, and no model is asked.

        Raises:
            NoteError: it is not a text, is too long, or has half letters.
        """
        if isinstance(text, str) and not text.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            return []
        return await self._engine.extract(_chunks.checked(text))

    async def settle(self) -> int:
        """Wait until all that was left out on saving is inferred, and give of how many notes something is still missing.

        Raises:
            EmbedderError: a vector could not be made.
            StoreError: the store cannot be read or written.
        """
        return await self._engine.settle(self)

    # ---- taken along, checked

    def export(self) -> AsyncGenerator[dict[str, Any]]:
        """Give all notes of the view, with their history, as plain JSON data, the oldest first.

        Raises:
            StoreError: the store cannot be read.
        """
        return _export.export(self._engine, self._bounds)

    async def import_(
        self,
        records: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]],
        *,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> int:
        """Keep what `export` gave, with its history, all or none, in one commit. Gives how many were new.

        Notes whose ids are there already are left, and so are those that were consolidated away. A record that names no owner
        becomes one of the owner of these notes.

        Args:
            records: What `export()` gave, of these notes or of others, or a function of `graphagent.migrate.notes`.
            on_progress: Called with how many are looked up, or have their vectors, and of how many; the last time when all are kept.

        Raises:
            TypeError: a path, a text or one record was given instead.
            ValueError: a record is not one of an export, or two have one id and differ.
            NoteError: one is private to no one.
            PermissionError: the view is read-only, one is of another owner, or the view would not see one, or what it was once.
            EmbedderError: their vectors could not be made.
            StoreError: they could not be kept.
        """
        return await _export.import_(self._engine, self._bounds, records, on_progress or (lambda done, of: None))

    async def verify(self) -> int:
        """Read every note of the owner and see that it can be found. Gives how many there are.

        Raises:
            DamagedStoreError: something was tampered with, is missing or is corrupt.
            StoreError: the store cannot be read, or was changed all the time meanwhile.
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
            PermissionError: the view is read-only.
            EmbedderError: there is no embedder, or it failed.
            StoreError: they could not be kept.
        """
        self._bounds.writing()
        return await self._engine.book.reembed(self._bounds.owner, on_progress or (lambda done, of: None))

    # ---- listened to

    def on(self, event: type[E], handler: Callable[[E], object]) -> Self:
        """Have a function called with each event of a type that happens to these notes, in whatever view.

        Handlers are called in the order of their registration, at once, and must not block; `Event` itself means all. What one
        raises is raised by what was being done, as a HandlerError, when what was kept is kept; where something failed, that is
        raised, with a note of it, and in the background it is logged.

        Raises:
            TypeError: the handler is async or cannot be called, or the type is not that of an event.
        """
        self._engine.on(event, handler)
        return self

    def tell(self, event: Event) -> None:
        """Have an event told to who listens to these notes."""
        self._engine.emit(event)
