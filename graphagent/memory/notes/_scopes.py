"""Scopes of notes: paths such as `/project/alpha`. Their tree consists of the scopes that notes are saved in."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping

from graphagent.errors import ScopeError
from graphagent.memory._note_values import ROOT, ScopeTree, is_within

_DEEPEST = 32
_LONGEST = 1024


def path_of(scope: str, under: str = ROOT) -> str:
    """Return a scope in its canonical form: `/a/b`, or `/` for the root.

    A scope that begins with the whole path `under` is absolute; any other is relative to `under`. Empty segments and spaces around
    segments are dropped, and letters are composed (NFC). Upper and lower case differ.

    Raises:
        ScopeError: the path is not a text, goes up (`..`), is longer than 1,024 characters or deeper than 32 segments.
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


def lineage(path: str) -> list[str]:
    """Return a scope with all scopes that contain it, the root first."""
    segments = path.split("/")[1:] if path != ROOT else []
    return [ROOT, *("/" + "/".join(segments[: count + 1]) for count in range(len(segments)))]


def outermost(scopes: Iterable[str]) -> tuple[str, ...]:
    """Return the scopes that are not within another one of them."""
    found: list[str] = []
    for scope in sorted(set(scopes), key=lambda path: (path.count("/") if path != ROOT else 0, path)):
        if not any(is_within(scope, other) for other in found):
            found.append(scope)
    return tuple(found)


def child_of(path: str, scope: str) -> str | None:
    """Return the scope directly below another one that is or contains a path; None if the path is not below it."""
    if path == scope or not is_within(path, scope):
        return None
    return lineage(path)[len(lineage(scope))]


def tree_of(top: str, counts: Mapping[str, int], max_depth: int | None) -> ScopeTree:
    """Return a scope with those below it.

    Args:
        top: The scope.
        counts: How many records each scope has of its own.
        max_depth: How many levels below it are included; None: all.
    """
    below: dict[str, dict[str, int]] = {}
    for path, count in counts.items():
        child = child_of(path, top)
        if child is not None:
            below.setdefault(child, {})[path] = count
    whole = sum(count for path, count in counts.items() if is_within(path, top))
    deeper = None if max_depth is None else max_depth - 1
    children = () if max_depth == 0 else tuple(tree_of(child, below[child], deeper) for child in sorted(below))
    return ScopeTree(top, whole, children)
