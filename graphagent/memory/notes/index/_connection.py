"""The part of a connection that the tables of the search index use, and the check of data read over it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import NoneType
from typing import Any, Protocol

from graphagent.errors import DamagedStoreError

TEXT: frozenset[type] = frozenset({str})
NUMBER: frozenset[type] = frozenset({int})
NUMBER_OR_NONE: frozenset[type] = frozenset({int, NoneType})
BYTES: frozenset[type] = frozenset({bytes})


class IndexCursor(Protocol):
    """The used part of apsw's cursor."""

    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...
    def fetchall(self) -> list[tuple[Any, ...]]: ...


class IndexConnection(Protocol):
    """The used part of apsw's connection."""

    @property
    def filename(self) -> str: ...
    def execute(self, statement: str, bindings: Any = ..., /) -> IndexCursor: ...
    def executemany(self, statement: str, bindings: Iterable[Any], /) -> IndexCursor: ...
    def fts5_tokenizer(self, name: str, args: list[str], /) -> Any: ...


def damage(file: str, reason: str) -> DamagedStoreError:
    """Return the error for an index whose tables, in a file or in memory, are damaged."""
    return DamagedStoreError(f"the index of the notes in {file or 'memory'}", reason, remedy="Make it anew: reindex().")


def typed(
    connection: IndexConnection, statement: str, bindings: tuple[Any, ...] | list[Any], *kinds: frozenset[type]
) -> list[tuple[Any, ...]]:
    """Return the rows of a statement. SQLite returns a value of any type for any column, whatever its declaration says.

    Args:
        connection: The connection.
        statement: The statement.
        bindings: The values to bind.
        kinds: For each column, of which types its values are.

    Raises:
        DamagedStoreError: a value is of another type.
    """
    rows = connection.execute(statement, bindings).fetchall()
    if rows and not all(
        kind.issuperset(map(type, each)) for kind, each in zip(kinds, zip(*rows, strict=True), strict=True)
    ):
        raise damage(connection.filename, "a value is not of the type that was written")
    return rows
