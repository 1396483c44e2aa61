"""A connection to the tables of the search index, as far as it is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol


class IndexCursor(Protocol):
    """The used part of apsw's cursor."""

    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...
    def fetchall(self) -> list[tuple[Any, ...]]: ...


class IndexConnection(Protocol):
    """The used part of apsw's connection."""

    def execute(self, statement: str, bindings: Any = ..., /) -> IndexCursor: ...
    def executemany(self, statement: str, bindings: Iterable[Any], /) -> IndexCursor: ...
    def fts5_tokenizer(self, name: str, args: list[str], /) -> Any: ...
