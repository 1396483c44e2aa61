"""Scopes of notes: paths such as `/project/alpha`, a tree that grows as notes are kept in it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace

from graphagent.errors import NoteError, NotePermissionError, ScopeError
from graphagent.memory.notes.index import _storage

ROOT = "/"
_DEEPEST = 32
_LONGEST = 1024


def path_of(scope: str, under: str = ROOT) -> str:
    """Give the one way to write a scope: `/a/b`, the root `/`.

    A scope that begins with `under` as a whole path is taken as it is; any other stands below `under`. Empty segments and
    spaces around segments are dropped, and letters are composed (NFC). Upper and lower case differ.

    Raises:
        ScopeError: it is not a text, goes up (`..`), is longer than 1,024 characters or deeper than 32 segments.
    """
    if not isinstance(scope, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ScopeError(scope, f"a scope is a path such as '/project/alpha', not {type(scope).__name__}")
    segments = [part for each in unicodedata.normalize("NFC", scope).split("/") if (part := each.strip())]
    if any(segment in (".", "..") for segment in segments):
        raise ScopeError(scope, "a scope cannot contain '.' or '..' as a segment: write the whole path")
    if any(not character.isprintable() for segment in segments for character in segment):
        raise ScopeError(scope, "a scope has printable characters only")
    path = "/" + "/".join(segments)
    if under != ROOT and not is_within(path, under):
        path = under if path == ROOT else under + path
    if len(path) > _LONGEST or path.count("/") > _DEEPEST:
        raise ScopeError(scope, f"a scope has at most {_LONGEST} characters and {_DEEPEST} segments")
    return path


def is_within(path: str, scope: str) -> bool:
    """Tell whether a path is a scope or stands below it."""
    return path == scope or scope == ROOT or path.startswith(scope + "/")


def lineage(path: str) -> list[str]:
    """Give a scope with all that it stands in, the root first."""
    segments = path.split("/")[1:] if path != ROOT else []
    return [ROOT, *("/" + "/".join(segments[: count + 1]) for count in range(len(segments)))]


def outermost(scopes: Iterable[str]) -> tuple[str, ...]:
    """Give the scopes that stand in no other of them."""
    found: list[str] = []
    for scope in sorted(set(scopes), key=lambda path: (path.count("/") if path != ROOT else 0, path)):
        if not any(is_within(scope, other) for other in found):
            found.append(scope)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a view may touch."""

    within: tuple[str, ...] = (ROOT,)
    """The scopes, none of them inside of another; with what stands below them."""
    home: str | None = ROOT
    """Where a relative path begins, and notes without a scope are kept; None in a slice, where paths are whole."""
    categories: tuple[frozenset[str], ...] = ()
    """Notes that have none of one of these sets are out of bounds."""
    read_only: bool = False
    owner: str = ""
    source: str | None = None
    """Who asks: private notes of other sources are out of bounds."""

    def path(self, scope: str) -> str:
        """Give the whole path of a scope that was given to the view.

        Raises:
            ScopeError: it is none.
        """
        return path_of(scope, self.home if self.home is not None else ROOT)

    def narrowed(self, scope: str | None) -> tuple[str, ...]:
        """Give the scopes to be searched: those of the view, or what of them is within one. Empty: nothing is.

        Raises:
            ScopeError: it is no scope.
        """
        if scope is None:
            return self.within
        path = self.path(scope)
        return (path,) if self.holds(path) else tuple(each for each in self.within if is_within(each, path))

    def holds(self, path: str) -> bool:
        """Tell whether a path is within the view."""
        return any(is_within(path, scope) for scope in self.within)

    def target(self, scope: str | None) -> str:
        """Give where a note is kept that was given with this scope.

        Raises:
            PermissionError: the view is read-only, or the scope is not one of its own.
            ScopeError: it is no scope, or none was given and the view does not have one.
        """
        self.writing()
        if scope is None:
            if self.home is None:
                scopes = " or ".join(f"scope={scope!r}" for scope in self.within)
                raise ScopeError(None, f"a slice keeps nothing if no scope is named; say where: {scopes}")
            return self.home
        path = self.path(scope)
        if not self.holds(path):
            raise NotePermissionError(f"scope {path!r} is outside of this view, which has {', '.join(self.within)}")
        return path

    def writing(self) -> None:
        """See that the view may write.

        Raises:
            PermissionError: it is read-only.
        """
        if self.read_only:
            raise NotePermissionError(
                "this view of the notes is read-only; take notes.slice(…, read_only=False), or the notes"
            )

    def scoped(self, scope: str) -> Bounds:
        """Give the bounds of a scope in these.

        Raises:
            PermissionError: it is outside of them.
            ScopeError: it is none.
        """
        path = self.path(scope)
        if not self.holds(path):
            raise NotePermissionError(f"scope {path!r} is outside of this view, which has {', '.join(self.within)}")
        return replace(self, within=(path,), home=path)

    def sliced(self, scopes: Iterable[str], categories: Iterable[str] | None, *, read_only: bool) -> Bounds:
        """Give the bounds of several scopes in these.

        Raises:
            PermissionError: one is outside of them; or these are read-only, and that is to be writable.
            ScopeError: one is none, or there is none.
            NoteError: a category is none.
        """
        if isinstance(scopes, str):
            scopes = [scopes]
        paths = [self.path(scope) for scope in scopes]
        if not paths:
            raise ScopeError(None, "a slice has at least one scope")
        for path in paths:
            if not self.holds(path):
                raise NotePermissionError(f"scope {path!r} is outside of this view, which has {', '.join(self.within)}")
        if not read_only:
            self.writing()
        wanted = frozenset(_storage.categories(categories))
        both = (*self.categories, wanted) if wanted else self.categories
        return replace(self, within=outermost(paths), home=None, categories=both, read_only=read_only)

    def seen_by(self, source: str) -> Bounds:
        """Give the same bounds as one source sees them.

        Raises:
            NoteError: the source is none.
            PermissionError: these are those of another source.
        """
        if not _storage.name("source", source).strip():
            raise NoteError(f"source={source!r} is blank; give the name of who speaks, such as 'ana'")
        if self.source is not None and self.source != source:
            raise NotePermissionError(
                f"this view is that of {self.source!r}, and gives none of {source!r}; take that of the notes themselves"
            )
        return replace(self, source=source)
