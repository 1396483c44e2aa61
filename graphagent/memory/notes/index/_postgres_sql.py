"""Statements about the tables in PostgreSQL, and the codes of owners, ids and texts in them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from graphagent.memory._note_values import ROOT, stretch
from graphagent.memory.notes.index._filter import entries_of

if TYPE_CHECKING:
    from graphagent.memory._note_values import Filter


class PostgresConnection(Protocol):
    """The used part of psycopg's connection."""

    def execute(self, query: Any, params: Any = ..., /, *, binary: bool = ...) -> Any: ...


class Statements:
    """Executes statements over a connection, with `{s}` replaced by the schema of the tables, and other such names by given values."""

    def __init__(self, connection: PostgresConnection, schema: str, **names: str) -> None:
        self._connection = connection
        self._names = {
            f"{{{name}}}": '"' + each.replace('"', '""') + '"' for name, each in {"s": schema, **names}.items()
        }

    def rows(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the rows that a statement returns."""
        # As the server has them: it writes no numbers and no bytes as text, which would have to be read.
        found: list[tuple[Any, ...]] = self._execute(statement, values, binary=True).fetchall()
        return found

    def do(self, statement: str, values: Sequence[object] = ()) -> None:
        """Execute a statement that returns nothing, or several without values."""
        self._execute(statement, values, binary=False)

    def _execute(self, statement: str, values: Sequence[object], *, binary: bool) -> Any:
        bound = self.named(statement, doubled=bool(values)).encode()
        return self._connection.execute(bound, values or None, binary=binary)

    def named(self, text: str, *, doubled: bool = False) -> str:
        """Return a text with its names, in which a percent sign is doubled beside values to bind."""
        # Composed of our own words and names of schemas; values are always bound.
        for name, quoted in self._names.items():
            text = text.replace(name, quoted.replace("%", "%%") if doubled else quoted)
        return text


def condition(fits: Filter) -> tuple[str, list[object]]:
    """Return a condition on `notes_rows`, with the values to bind."""
    parts: list[str] = ["owner = %s"]
    values: list[object] = [uuid_of(fits.owner)]
    if not fits.scopes:
        parts.append("false")
    elif ROOT not in fits.scopes:
        some: list[str] = []
        for scope in map(safe, fits.scopes):
            # Keys that begin with a path are one range of the index, because "0" follows "/". Other scopes, such as /a-b for /a, are in
            # this range too.
            some.append("(left(scope, 100) >= %s AND left(scope, 100) < %s AND (scope = %s OR starts_with(scope, %s)))")
            begin = scope[:100]
            values += [begin, f"{begin}0" if len(scope) < 100 else f"{begin}\x7f", scope, f"{scope}/"]
        parts.append(f"({' OR '.join(some)})")
    for each in fits.categories:
        parts.append("categories && %s::text[]")
        values.append(list(map(safe, each)))
    if fits.metadata:
        parts.append("entries @> %s::text[]")
        values.append(sorted(entries_of(fits.metadata)))
    if not fits.private:
        parts.append("private = 0" if fits.asker is None else "(private = 0 OR source = %s)")
        values += [] if fits.asker is None else [safe(fits.asker)]
    if fits.source is not None:
        parts.append("source = %s")
        values.append(safe(fits.source))
    if fits.since is not None or fits.until is not None:
        parts.append("coalesce(said, created) BETWEEN %s AND %s")
        values += stretch(fits)
    if fits.saved_since is not None:
        parts.append("created >= %s")
        values.append(fits.saved_since)
    return " AND ".join(parts), values


def uuid_of(name: str) -> uuid.UUID:
    """Return the code of an owner."""
    return uuid.UUID(bytes=blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).digest())


def hash_of(text: str) -> int:
    """Return a 64-bit number for a text, by which it is looked up."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def safe(text: str) -> str:
    """Return a text without zero bytes, which PostgreSQL has no place for. Texts keep their order, and no two become one."""
    if "\0" in text or "\x01" in text:
        return text.replace("\x01", "\x01\x02").replace("\0", "\x01\x01")
    return text


def plain(value: Any) -> Any:
    """Return the text that `safe` was given; any other value unchanged."""
    if type(value) is str and "\x01" in value:
        return value.replace("\x01\x01", "\0").replace("\x01\x02", "\x01")
    return value


def array(numbers: Iterable[int]) -> str:
    """Return numbers as one text to bind, which takes a tenth of the time of a list of them."""
    return f"{{{','.join(map(str, numbers))}}}"


def as_json(value: object) -> str:
    """Return data as JSON."""
    return orjson.dumps(value).decode()
