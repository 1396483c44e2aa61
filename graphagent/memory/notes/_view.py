"""A view of notes: all of them, a scope, or a slice of several.

The file is long because it describes every operation for users. The work of the larger ones is done in `write/` and `recall/`.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Never, Self, TypeVar

from graphagent._options import check_by_name
from graphagent.errors import AmbiguousNoteError, NoteNotFoundError
from graphagent.memory._note_values import ROOT, Note, ScopeInfo, ScopeTree
from graphagent.memory.notes import _validation
from graphagent.memory.notes._scopes import child_of, tree_of
from graphagent.memory.notes._validation import moment, whole
from graphagent.memory.notes.recall._recall import recall
from graphagent.memory.notes.recall._request import RecallRequest
from graphagent.memory.notes.write._conversation import save_conversation
from graphagent.memory.notes.write._export import export
from graphagent.memory.notes.write._forget import check_not_empty, forget, time_before
from graphagent.memory.notes.write._import import import_notes
from graphagent.memory.notes.write._save import SaveRequest, with_defaults
from graphagent.memory.notes.write._update import undo, update

if TYPE_CHECKING:
    from graphagent.events import Event
    from graphagent.memory._note_values import Filter, FormerNote, Match, Record, Turn
    from graphagent.memory.notes._service import NoteService
    from graphagent.memory.notes._visibility import Visibility
    from graphagent.memory.notes.index._tables import NoteTables
    from graphagent.memory.notes.recall._request import Depth
    from graphagent.memory.notes.write._save import Infer
    from graphagent.store import Receipt

E = TypeVar("E", bound="Event")
T = TypeVar("T")


class NoteView:
    """A view of notes. `Notes`, its scopes and its slices are of this type, with the same operations."""

    def __init__(self, service: NoteService, visibility: Visibility) -> None:
        self._service = service
        self._visibility = visibility

    def _over(self, service: NoteService, visibility: Visibility) -> Self:
        """Return a copy of this view over another service and visibility."""
        view = copy.copy(self)
        view._service, view._visibility = service, visibility  # noqa: SLF001  a copy of itself
        return view

    def __repr__(self) -> str:
        seen_by = f" as {self._visibility.source!r} sees it" if self._visibility.source is not None else ""
        only = ", read-only" if self._visibility.read_only else ""
        return f"<{type(self).__name__} of {', '.join(self._visibility.within)}{seen_by}{only}>"

    @property
    def owner(self) -> str:
        """Whose notes these are."""
        return self._visibility.owner

    @property
    def scopes(self) -> tuple[str, ...]:
        """The visible scopes. Those below them are visible too."""
        return self._visibility.within

    @property
    def read_only(self) -> bool:
        """Whether notes cannot be saved, changed or forgotten here."""
        return self._visibility.read_only

    # Views

    def scope(self, path: str) -> NoteView:
        """Return a view of one scope. Paths in it are relative to it, or begin with its whole path.

        Raises:
            PermissionError: the scope is outside this view.
            ScopeError: the path is not a scope.
        """
        return NoteView(self._service, self._visibility.scope(path))

    def subscope(self, name: str) -> NoteView:
        """Return a view of a scope below this one, as `scope` does.

        Raises:
            PermissionError: this view is a slice without that scope.
            ScopeError: the path is not a scope.
        """
        return self.scope(name)

    def slice(
        self, scopes: Iterable[str], categories: Iterable[str] | None = None, *, read_only: bool = True
    ) -> NoteView:
        """Return a view of several scopes; with categories, only of notes with one of them. Paths in it are absolute.

        Raises:
            PermissionError: a scope is outside this view, or this view is read-only and the slice is not.
            ScopeError: a path is not a scope, or no scope is given.
            NoteError: a category is not valid, or `categories` is empty.
        """
        return NoteView(self._service, self._visibility.slice(scopes, categories, read_only=read_only))

    def of(self, source: str) -> NoteView:
        """Return this view as one source sees it, with its private notes. Notes saved there have this source.

        Raises:
            NoteError: the source is not valid.
            PermissionError: this is the view of another source.
        """
        return NoteView(self._service, self._visibility.of(source))

    # Saving

    async def remember(
        self,
        content: str,
        scope: str | None = None,
        categories: Sequence[str] | None = None,
        *,
        importance: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        source: str | None = None,
        private: bool = False,
        at: datetime | None = None,
        trust: str = "",
        run_id: str = "",
        infer: Infer = "later",
    ) -> Record:
        """Save a text as a note. It is on the disk when this method returns.

        Args:
            content: The text, up to 1,000,000 characters.
            scope: Where to save it, such as `/project/alpha`; by default the scope of the view.
            categories: The topics of the note.
            importance: From 0 to 1; by default `default_importance` of the settings.
            metadata: Anything that JSON can represent.
            source: Who said the note, or where it comes from; by default the source of the view.
            private: Whether the note is visible only to its source.
            at: When the note was said, with a time zone.
            trust: One of TRUST_LEVELS.
            run_id: The run that saves the note.
            infer: When the model, if the notes have one, infers omitted fields: `later`, after this returned; `now`, before; or `never`.

        Raises:
            ValueError: `infer` is not known.
            NoteError: the note cannot be saved; the message says why.
            PermissionError: the view is read-only, or would not see the note.
            EmbedderError: the vector could not be made.
            StoreError: the note could not be saved.
        """
        note = Note(content, scope, categories, importance, metadata, source, private, at)
        [record] = await self._service.save(self._visibility, SaveRequest([note], None, trust, run_id, infer))
        return record

    async def remember_many(
        self,
        notes: Iterable[str | Note],
        scope: str | None = None,
        categories: Sequence[str] | None = None,
        *,
        importance: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        source: str | None = None,
        private: bool = False,
        at: datetime | None = None,
        trust: str = "",
        run_id: str = "",
        infer: Infer = "later",
    ) -> list[Record]:
        """Save several texts, all or none. The options are those of `remember`; a Note's own values take precedence.

        Metadata of a Note replace those for all; they are not merged. `private=True` holds for all.

        Raises:
            ValueError: `infer` is not known.
            NoteError: a note cannot be saved; the message says which. No note is saved.
            PermissionError: the view is read-only, or would not see a note.
            EmbedderError: the vectors could not be made.
            StoreError: the notes could not be saved.
        """
        given = Note("", None, categories, importance, metadata, source, private, at)
        filled = await with_defaults(notes, given)
        return await self._service.save(self._visibility, SaveRequest(filled, scope, trust, run_id, infer))

    async def remember_conversation(
        self,
        turns: Iterable[Turn | Mapping[str, Any]],
        session: str,
        *,
        scope: str | None = None,
        categories: Sequence[str] | None = None,
        trust: str = "",
        run_id: str = "",
    ) -> list[Record]:
        """Save the turns of a conversation, each as a note with its speaker, its time and its place.

        The turns before and after a turn, and other turns of the conversation, help to find it. In an existing session, new turns
        follow the last one. Messages as in chat APIs, `{"role": "user", "content": "…"}`, are turns too; messages without text,
        such as tool calls alone, are left out. The time of a message is its `at`, `created_at` or `timestamp`: a datetime or an ISO
        8601 text, each with a time zone, or seconds since 1970.

        Raises:
            NoteError: a turn cannot be saved (the message says which), or no session is given. No turn is saved.
            TypeError: a value is not a turn.
            PermissionError: the view is read-only, or would not see a turn.
            EmbedderError: the vectors could not be made.
            StoreError: the notes could not be saved.
        """
        request = SaveRequest((), scope, trust, run_id, "never")
        return await save_conversation(self._service, self._visibility, turns, session, categories or (), request)

    # Finding

    async def recall(
        self,
        query: str,
        scope: str | None = None,
        categories: Sequence[str] | None = None,
        limit: int = 10,
        *,
        depth: Depth | None = None,
        source: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        metadata_filter: Mapping[str, Any] | None = None,
        min_score: float = 0.0,
        run_id: str = "",
    ) -> list[Match]:
        """Return the notes that fit a question best, the best first. Nothing is written.

        Args:
            query: The question, or some words. Of a long one, the first 10,000 characters count.
            scope: Where to search, including the scopes below; by default everywhere in the view.
            categories: Only notes that have one of these.
            limit: The most notes to return.
            depth: `shallow`: without a model. `deep`: a model chooses phrases and scopes to search. `auto`: deep if the question is long
                or the result is weak. By default `auto` with a model, else `shallow`.
            source: Only notes of this source.
            since: Only notes said, or else saved, at this time or later.
            until: Only notes said, or else saved, at this time or earlier.
            metadata_filter: Only notes whose metadata have each of these keys with an equal value.
            min_score: Only matches with this score or a higher one.
            run_id: The run that asks, for the events.

        Raises:
            ValueError: the depth is not known, or the limit is below 0.
            TypeError: a time is not a datetime, or a number is of another type.
            NoteError: the question, the scope, a category, the source or a value of `metadata_filter` is not valid.
            EmbedderError: the question could not be embedded.
            RerankerError: the reranker failed, or returned something else than a score for each note.
            StoreError: the store cannot be read.
        """
        fits = self._visibility.filter(
            scope, categories=categories, source=source, since=since, until=until, metadata=metadata_filter
        )
        return await recall(self._service, RecallRequest(query, fits, limit, depth, min_score, run_id))

    async def get(self, id_: str) -> Record | None:
        """Return the note with an id; None if this view has none.

        Raises:
            TypeError: the id is not a text.
            StoreError: the store cannot be read.
        """
        record = await self._get(id_)
        if record is not None:
            self._service.has_returned((record.trust,))
        return record

    async def _get(self, id_: str) -> Record | None:
        record = await self._service.repository.get(self._visibility.owner, _validation.note_id(id_))
        return record if record is not None and self._visibility.filter().matches(record) else None

    async def resolve(self, text: str) -> str:
        """Return the whole id of the note whose id begins or ends with a text, as people abbreviate ids.

        A whole id is returned as it is, even if other ids contain it.

        Raises:
            TypeError: the text is not a text.
            NoteNotFoundError: this view has no such note.
            AmbiguousNoteError: this view has several; the error has their ids.
            StoreError: the store cannot be read.
        """
        if await self._get(text) is not None:
            return text
        visible = self._visibility.filter()
        if not text:
            raise NoteNotFoundError(text)
        found = await self._service.repository.find(visible.owner, lambda tables: tables.ids_named(visible, text))
        ids = [record.id for record in found if visible.matches(record)]
        if len(ids) > 1:
            raise AmbiguousNoteError(text, ids)
        if not ids:
            raise NoteNotFoundError(text)
        return ids[0]

    # Changing

    async def update(
        self,
        id_: str,
        content: str | None = None,
        *,
        scope: str | None = None,
        categories: Sequence[str] | None = None,
        importance: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        version: int | None = None,
    ) -> Record:
        """Change a note. Fields that are left out stay, as do its owner, source and privacy. The former note is in its history.

        If the values are unchanged, no new version is saved. With `version`, such as the
        version of a record that a person has seen, a note with another version is not changed.

        Raises:
            NoteNotFoundError: this view has no such note.
            ConflictError: the note has another version than `version`.
            PermissionError: the view is read-only, or would not see the note any more.
            NoteError: the note cannot be saved so; the message says why.
            EmbedderError: the vector could not be made.
            StoreError: the note could not be saved.
        """
        self._visibility.check_writable()
        changes: dict[str, Any] = {}
        if content is not None:
            changes["content"] = _validation.content(content)
        if scope is not None:
            changes["scope"] = self._visibility.target(scope)
        if categories is not None:
            changes["categories"] = _validation.categories(categories)
        if importance is not None:
            changes["importance"] = _validation.importance(importance)
        if metadata is not None:
            changes["metadata"] = _validation.metadata(metadata)
        return await update(self._service, self._visibility, id_, changes, version)

    async def history(self, id_: str) -> list[FormerNote]:
        """Return a note before each change, the last change first, each with the kind and the time of the change.

        A note that was consolidated into another one still has its history, which names the other one. The history of a note that was never changed is empty.

        Raises:
            NoteNotFoundError: this view has no such note, and had none.
            StoreError: the store cannot be read.
        """
        repository, visible = self._service.repository, self._visibility.filter()
        now = await repository.get(visible.owner, _validation.note_id(id_))
        if now is not None and not visible.matches(now):
            raise NoteNotFoundError(id_)
        found = [former for former in await repository.history(visible.owner, id_) if visible.matches(former.record)]
        if now is None and not found:
            raise NoteNotFoundError(id_)
        self._service.has_returned(former.record.trust for former in found)
        return found

    async def undo(self, id_: str) -> Record:
        """Restore a note as it was before its last change, or before it was consolidated into another one.

        Undone again, it goes back one change further, to the text that was saved first. Each step is in the history, so `update` can restore
        an undone change.

        Raises:
            NoteNotFoundError: this view has no such note, and had none.
            NoteError: the note was never changed, or all its changes are undone.
            PermissionError: the view is read-only, or did not see the former note.
            EmbedderError: the vector could not be made.
            StoreError: the note could not be saved.
        """
        self._visibility.check_writable()
        return await undo(self._service.repository, self._visibility.filter(), id_)

    # Forgetting

    async def forget(
        self,
        *others: Never,
        ids: Iterable[str] | None = None,
        scope: str | None = None,
        categories: Sequence[str] | None = None,
        older_than: timedelta | datetime | None = None,
        source: str | None = None,
        metadata_filter: Mapping[str, Any] | None = None,
        run_id: str | None = None,
    ) -> Receipt:
        """Erase the notes that fit all conditions: their text, words, vectors and history leave the disk.

        That includes notes that were consolidated into others. Private notes are erased by the view of their source, and by a view
        that is not that of a source.

        Args:
            ids: Only these notes.
            scope: Only notes in this scope, and below it.
            categories: Only notes that have one of these.
            older_than: Only notes saved longer ago than an age, such as `timedelta(days=30)`, or before a time.
            source: Only notes of this source.
            metadata_filter: Only notes whose metadata have each of these keys with an equal value.
            run_id: Only notes that this run saved.

        Raises:
            ValueError: no condition is given, or an empty one, an age below zero, or a time in the future. `reset()` erases
                everything in the view.
            TypeError: an argument is positional, an id is not a text, or `older_than` is neither an age nor a time.
            NoteError: the scope, a category, the source or a value of `metadata_filter` is not valid.
            PermissionError: the view is read-only.
            NotErasedError: the notes are forgotten, but bytes of them may still be on the disk.
            StoreError: the notes could not be forgotten.
        """
        check_by_name("forget", others, "scope=…", "ids=[…]", "categories=[…]", "older_than=…")
        conditions = {
            "scope": scope, "categories": categories, "source": source, "metadata_filter": metadata_filter, "run_id": run_id
        }  # fmt: skip
        if all(each is None for each in (ids, older_than, *conditions.values())):
            raise ValueError(
                "say what to forget: ids=, scope=, categories=, older_than=, source=, metadata_filter= or run_id=; or reset()"
            )
        self._visibility.check_writable()
        check_not_empty(conditions)
        before = None if older_than is None else time_before(older_than)
        fits = self._visibility.filter(
            scope, categories=categories, source=source, metadata=metadata_filter, all_private=True, expired=True
        )
        return await forget(self._service.repository, fits, ids=ids, before=before, run_id=run_id)

    async def purge(self, *others: Never, source: str | None = None, run_id: str | None = None) -> Receipt:
        """Erase all notes of a source or of a run, and raise errors, as `forget` does."""
        check_by_name("purge", others, "source=…", "run_id=…")
        return await self.forget(source=source, run_id=run_id)

    async def reset(self, scope: str | None = None) -> Receipt:
        """Erase everything in the view, or in one scope of it.

        With the last note of an owner, the name of the embedder is erased too, and another embedder can be used.

        Raises:
            ScopeError: the scope is not valid.
            PermissionError: the view is read-only.
            NotErasedError: the notes are forgotten, but bytes of them may still be on the disk.
            StoreError: the notes could not be forgotten.
        """
        self._visibility.check_writable()
        check_not_empty({"scope": scope})
        return await forget(self._service.repository, self._visibility.filter(scope, all_private=True, expired=True))

    # Listing

    async def list_records(
        self,
        scope: str | None = None,
        limit: int = 200,
        offset: int = 0,
        *,
        categories: Sequence[str] | None = None,
        source: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        metadata_filter: Mapping[str, Any] | None = None,
    ) -> list[Record]:
        """Return the notes of a scope and those below, the newest first.

        Args:
            scope: Where to look; by default everywhere in the view.
            limit: The most notes to return.
            offset: How many notes to skip before.
            categories: Only notes that have one of these.
            source: Only notes of this source.
            since: Only notes said, or else saved, at this time or later.
            until: Only notes said, or else saved, at this time or earlier.
            metadata_filter: Only notes whose metadata have each of these keys with an equal value.

        Raises:
            ValueError: the limit or the offset is below 0.
            TypeError: a time is not a datetime, or a number is of another type.
            NoteError: the scope, a category, the source or a value of `metadata_filter` is not valid.
            StoreError: the store cannot be read.
        """
        whole("limit", limit)
        whole("offset", offset)
        fits = self._visibility.filter(
            scope, categories=categories, source=source, since=since, until=until, metadata=metadata_filter
        )
        found = await self._service.repository.newest(fits, limit, offset)
        self._service.has_returned(record.trust for record in found)
        return found

    async def list_categories(self, scope: str | None = None) -> dict[str, int]:
        """Return the number of notes with each category, in alphabetical order.

        Raises:
            ScopeError: the scope is not valid.
            StoreError: the store cannot be read.
        """
        return await self._read(lambda tables, fits: tables.categories(fits), scope)

    async def list_scopes(self, path: str | None = None) -> list[str]:
        """Return the whole paths of the scopes directly below one; without a path, in a slice, the scopes of the slice.

        Raises:
            ScopeError: the path is not valid.
            StoreError: the store cannot be read.
        """
        if path is None and self._visibility.home is None:
            return list(self._visibility.within)
        return (await self.info(path)).child_scopes

    async def info(self, path: str | None = None) -> ScopeInfo:
        """Return a summary of a scope, including those below it; by default of the whole view.

        Raises:
            ScopeError: the path is not valid.
            StoreError: the store cannot be read.
        """
        top = self._top(path)
        counts = await self._read(lambda tables, fits: tables.counts(fits), path)
        categories = await self._read(lambda tables, fits: tables.categories(fits), path)
        return ScopeInfo(
            path=top,
            record_count=sum(count for count, _, _ in counts.values()),
            categories=list(categories),
            oldest_record=moment(min(oldest for _, oldest, _ in counts.values())) if counts else None,
            newest_record=moment(max(newest for _, _, newest in counts.values())) if counts else None,
            child_scopes=sorted({child for scope in counts if (child := child_of(scope, top)) is not None}),
        )

    async def tree(self, path: str | None = None, max_depth: int | None = None) -> ScopeTree:
        """Return a scope with those below it, down to a depth: 0 is the scope alone. `str()` of it has a line for each.

        Raises:
            ValueError: the depth is below 0.
            TypeError: the depth is not a whole number.
            ScopeError: the path is not valid.
            StoreError: the store cannot be read.
        """
        if max_depth is not None:
            whole("max_depth", max_depth)
        counts = await self._read(lambda tables, fits: tables.counts(fits), path)
        return tree_of(self._top(path), {scope: count for scope, (count, _, _) in counts.items()}, max_depth)

    def _top(self, path: str | None) -> str:
        """Return the scope of a path; without a path, the scope of the view."""
        if path is not None:
            return self._visibility.path(path)
        return self._visibility.home if self._visibility.home is not None else ROOT

    async def _read(self, function: Callable[[NoteTables, Filter], dict[str, T]], scope: str | None) -> dict[str, T]:
        """Return the result of a function that reads the visible notes of a scope from the index."""
        fits, repository = self._visibility.filter(scope), self._service.repository
        await repository.catch_up(fits.owner)
        return await repository.backend.read(lambda tables: function(tables, fits))

    # With the model

    async def extract_memories(self, text: str) -> list[str]:
        """Return the statements in a text, each of which can be understood alone. Nothing is saved. Without a model: the whole text.

        A blank text has no statements, and the model is not asked.

        Raises:
            NoteError: `text` is not a text, is too long, or contains a lone surrogate.
        """
        if isinstance(text, str) and not text.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            return []
        text, inference = _validation.content(text), self._service.inference
        with self._service.naming_the_run():
            found = [text] if inference is None else await inference.extract(text)
        self._service.has_returned(("inferred",))
        return found

    async def settle(self) -> int:
        """Wait until all pending inference is done. Return the number of notes that still lack inferred values.

        Raises:
            EmbedderError: a vector could not be made.
            StoreError: the store cannot be read or written.
        """
        if self._service.inference is None:
            return 0
        with self._service.naming_the_run():
            return await self._service.inference.settle(self._visibility.filter())

    # Export, import and maintenance

    def export(self) -> AsyncGenerator[dict[str, Any]]:
        """Yield all notes of the view, with their history, as plain JSON data, the oldest first.

        Raises:
            StoreError: the store cannot be read.
        """
        return export(self._service, self._visibility.filter(all_private=True))

    async def import_(
        self,
        records: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]],
        *,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> int:
        """Save exported notes, with their history, all or none, in one commit. Return how many were new.

        Notes whose ids exist are skipped, and so are notes that were consolidated into others. A record without an owner gets the
        owner of these notes.

        Args:
            records: The records that `export()` of any notes yielded, or that a function of `graphagent.migrate.notes` returned.
            on_progress: Called with the number of notes that are looked up, or have their vectors, and the total; last when all are saved.

        Raises:
            TypeError: a path, a text or one record was given instead.
            ValueError: a record is not from an export, or two records with one id differ.
            NoteError: a note is private and has no source.
            PermissionError: the view is read-only, a note belongs to another owner, or the view would not see it or a former version.
            EmbedderError: the vectors could not be made.
            StoreError: the notes could not be saved.
        """
        return await import_notes(
            self._service.repository, self._visibility, records, on_progress or (lambda done, of: None)
        )

    async def verify(self) -> int:
        """Read every note of the owner, and check that it can be found. Return their number.

        Raises:
            DamagedStoreError: something was tampered with, is missing or is corrupt.
            StoreError: the store cannot be read, or was changed all the time.
        """
        return await self._service.repository.verify(self._visibility.owner)

    async def reindex(self) -> int:
        """Build the search index again from the notes, and add all notes of the owner to a search engine of your own.

        Do this after `verify` found damage, and when you pass `index=` to existing notes. Saves of other processes are refused
        meanwhile. Returns the number of the owner's notes.

        Raises:
            PermissionError: the view is read-only.
            StoreError: the store cannot be read or written.
        """
        self._visibility.check_writable()
        return await self._service.repository.reindex(self._visibility.owner)

    async def reembed(self, on_progress: Callable[[int, int], object] | None = None) -> int:
        """Make the vectors of all notes of the owner again, with the current embedder. Until that is done, the old ones are used.

        Returns the number of the owner's notes.

        Args:
            on_progress: Called with the number of notes that are done, and the total.

        Raises:
            PermissionError: the view is read-only.
            EmbedderError: no embedder is given, or it failed.
            StoreError: the vectors could not be saved.
        """
        self._visibility.check_writable()
        return await self._service.repository.reembed(self._visibility.owner, on_progress or (lambda done, of: None))

    # Events

    def on(self, event: type[E], handler: Callable[[E], object]) -> Self:
        """Call a function with each event of a type that happens to these notes, in any view of them.

        Handlers are called at once, in the order of their registration, and must not block; `Event` itself means all. If one raises,
        the operation raises a HandlerError, but its saves remain. If the operation failed, its own error is raised, with a
        note of the handler's. In the background, the error is logged.

        Raises:
            TypeError: the handler is async or cannot be called, or the type is not an event.
        """
        self._service.on(event, handler)
        return self

    def tell(self, event: Event) -> None:
        """Emit an event to those who listen to these notes."""
        self._service.emit(event)


def parts_of(view: NoteView) -> tuple[NoteService, Visibility]:
    """Return the service of a view and its visibility, of which another view can be made."""
    return view._service, view._visibility  # noqa: SLF001  of this file  # pyright: ignore[reportPrivateUsage]
