"""Which notes a view sees and may change. Every operation of a view asks here, once, with the filter that it makes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from graphagent._options import check_flag
from graphagent.errors import NoteError, NotePermissionError, ScopeError
from graphagent.memory._note_values import ROOT, Filter, is_within, milliseconds
from graphagent.memory.notes import _validation
from graphagent.memory.notes._scopes import outermost, path_of

if TYPE_CHECKING:
    from graphagent.memory._expiry import Expiry
    from graphagent.memory._note_values import Record


@dataclass(frozen=True, slots=True)
class Visibility:
    """The notes that a view sees, and whether it may change them. A view that is made from another one can only see less."""

    within: tuple[str, ...] = (ROOT,)
    """The scopes that are visible, with those below them. None of them is within another."""
    home: str | None = ROOT
    """Where relative paths begin, and where notes without a scope are saved. None in a slice, where paths are absolute."""
    categories: tuple[frozenset[str], ...] = ()
    """A note is visible if it has at least one category of each of these sets."""
    read_only: bool = False
    owner: str = ""
    source: str | None = None
    """Who asks. Private notes of other sources are invisible; with None, all private notes are."""
    expiry: Expiry | None = None
    """For how long notes are kept: expired notes are invisible. None: for ever."""

    # Views

    def scope(self, scope: str) -> Visibility:
        """Return the notes visible in one of the scopes."""
        path = self._inside(scope)
        return replace(self, within=(path,), home=path)

    def slice(self, scopes: Iterable[str], categories: Iterable[str] | None, *, read_only: bool) -> Visibility:
        """Return the notes visible in several of the scopes.

        Raises:
            NoteError: a category is not valid, or the list of categories is empty.
        """
        if isinstance(scopes, str):
            scopes = [scopes]
        paths = [self._inside(scope) for scope in scopes]
        if not paths:
            raise ScopeError(None, "a slice has at least one scope")
        check_flag("read_only", read_only)
        if not read_only:
            self.check_writable()
        return replace(self, within=outermost(paths), home=None, categories=self._with(categories), read_only=read_only)

    def of(self, source: str) -> Visibility:
        """Return the visibility for one source.

        Raises:
            NoteError: the source is not valid.
        """
        if not _validation.name("source", source).strip():
            raise NoteError(f"source={source!r} is blank; give the name of who speaks, such as 'ana'")
        if self.source is not None and self.source != source:
            raise NotePermissionError(
                f"this view is that of {self.source!r}, and gives none of {source!r}; take that of the notes themselves"
            )
        return replace(self, source=source)

    def _with(self, categories: Iterable[str] | None) -> tuple[frozenset[str], ...]:
        """Return the visible categories together with some."""
        if categories is None:
            return self.categories
        if wanted := frozenset(_validation.categories(categories)):
            return (*self.categories, wanted)
        raise NoteError(
            "an empty list of categories fits no note; name at least one, or leave categories= out for all notes"
        )

    # Paths

    def path(self, scope: str) -> str:
        """Return the whole path of a scope that was given to the view."""
        return path_of(scope, self.home if self.home is not None else ROOT)

    def holds(self, path: str) -> bool:
        """Return whether a path is within the visible scopes."""
        return any(is_within(path, scope) for scope in self.within)

    def _inside(self, scope: str) -> str:
        path = self.path(scope)
        if not self.holds(path):
            raise NotePermissionError(f"scope {path!r} is outside of this view, which has {', '.join(self.within)}")
        return path

    def target(self, scope: str | None) -> str:
        """Return the scope in which to save a note that was given with this scope."""
        self.check_writable()
        if scope is not None:
            return self._inside(scope)
        if self.home is None:
            scopes = " or ".join(f"scope={scope!r}" for scope in self.within)
            raise ScopeError(None, f"a slice keeps nothing if no scope is named; say where: {scopes}")
        return self.home

    def author(self, source: str | None) -> str:
        """Return the source of a note that was given with this one."""
        if source is None or self.source in (None, source):
            return source if source is not None else self.source or ""
        raise NotePermissionError(
            f"this view is that of {self.source!r}, and saves no notes of {source!r}; leave source= out"
        )

    def check_writable(self) -> None:
        """Check that the view may change notes."""
        if self.read_only:
            raise NotePermissionError(
                "this view of the notes is read-only; take notes.slice(…, read_only=False), or the notes"
            )

    # Notes

    def filter(
        self,
        scope: str | None = None,
        *,
        categories: Sequence[str] | None = None,
        source: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        metadata: Mapping[str, Any] | None = None,
        all_private: bool = False,
        expired: bool = False,
    ) -> Filter:
        """Return a filter of the visible notes that also fit the arguments. It is without scopes if no note can fit.

        Args:
            scope: Only notes in this scope, and below it.
            categories: Only notes that have one of these.
            source: Only notes of this source. A view without a source of its own then sees the private notes of this source.
            since: Only notes said, or else saved, at this time or later.
            until: Only notes said, or else saved, at this time or earlier.
            metadata: Only notes whose metadata have each of these keys with an equal value.
            all_private: Whether private notes of all sources are included, if the view is not that of a source.
            expired: Whether expired notes, which will be erased, are included.

        Raises:
            NoteError: the scope, a category, the source or a value of the metadata is not valid, or the list of categories is empty.
            TypeError: `since` or `until` is not a datetime.
        """
        scopes = self.within
        if scope is not None:
            path = self.path(scope)
            scopes = (path,) if self.holds(path) else tuple(each for each in self.within if is_within(each, path))
        if source is not None:
            _validation.name("source", source)
        return Filter(
            self.owner,
            scopes,
            self._with(categories),
            asker=self.source if self.source is not None else source,
            source=source,
            since=_validation.bound("since", since),
            until=_validation.bound("until", until),
            private=all_private and self.source is None,
            metadata={} if metadata is None else _validation.metadata_filter(metadata),
            saved_since=None if self.expiry is None or expired else self.expiry.first_kept(),
        )

    def has_expired(self, record: Record) -> bool:
        """Return whether a record was saved so long ago that it is to be erased."""
        saved = milliseconds(record.created_at)
        return self.expiry is not None and self.expiry.has_passed(saved, self.owner)

    def check_can_save(self, record: Record) -> None:
        """Check that the view will see a record that is to be saved in one of its scopes.

        Raises:
            NoteError: the note is private, and has no source.
        """
        if record.private and not record.source:
            raise NoteError("a private note is seen by its source alone, and this one has none; say source=")
        for some in self.categories:
            if some.isdisjoint(record.categories):
                names = ", ".join(map(repr, sorted(some)))
                raise NotePermissionError(f"this view has notes of these categories only: {names}; give the note one")
        if record.private and self.source is not None and record.source != self.source:
            raise NotePermissionError(f"this view is that of {self.source!r}; it keeps no private notes of others")
