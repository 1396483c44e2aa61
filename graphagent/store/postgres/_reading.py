"""Reading items: some of them by their keys, or a page of a scan."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from graphagent.errors import DamagedStoreError
from graphagent.store._items import Item, Key, decode
from graphagent.store.postgres._connection import BYTEA, INT4, UUID, Connection, Parameter, Row, array, int8, number_of

if TYPE_CHECKING:
    from graphagent.store.postgres._database import Database
    from graphagent.store.postgres._link import Link
from graphagent.store.postgres._places import place_of

T = TypeVar("T")

FIRST_ROWS = 32
"""How many items the first page of a scan has: most scans end there."""
_ROWS, _BYTES = 2048, 2**22
_TRIES = 5
"""How often a long value is read that is replaced meanwhile."""

_SEVERAL = "SELECT place, version, value, pages FROM {s}.items WHERE place = ANY ($1)"
_ONE = "SELECT place, version, value, pages FROM {s}.items WHERE place = $1"
_PAGE = "SELECT data FROM {s}.pages WHERE id = $1 AND number = $2"
_RANGE = "SELECT place, version, value, pages, key FROM {s}.items WHERE place >= $1 AND place < $2 ORDER BY place {way} LIMIT $3"
_BOUNDED = f"""
SELECT place, version, value, pages, key FROM (
    SELECT *, sum(octet_length(value)) OVER (ORDER BY place {{way}} ROWS UNBOUNDED PRECEDING) - octet_length(value) AS bytes
    FROM ({_RANGE}) AS page
) AS summed WHERE bytes <= $4 ORDER BY place {{way}}"""  # noqa: S608 - of our own words


_CHECKED = (
    "SELECT place, version, value, pages, key FROM (SELECT place, version, CASE WHEN pages IS NULL THEN '' ELSE value END AS value, pages,"
    " key, octet_length(value || ''::bytea) FROM {s}.items WHERE place > $1 ORDER BY place LIMIT $2) AS read"
)
"""All of a value is read, by which the server checks its pages, and not sent."""


def read(link: Link, function: Callable[[Connection], T], absent: T) -> T:
    """Return the result of a function that reads, or `absent` if the store does not exist yet."""
    database = link.database
    return link.read(lambda connection: function(connection) if database.is_ready(connection, new=False) else absent)


def several(connection: Connection, database: Database, places: Mapping[bytes, Key]) -> dict[Key, Item]:
    """Return the items under some keys, in their order."""
    if len(places) == 1:
        rows = connection.run(database.sql(_ONE), [(BYTEA, next(iter(places)))])
    else:
        rows = connection.run(database.sql(_SEVERAL), [array(BYTEA, list(places))])
    found = {cast(bytes, row[0]): row for row in rows}
    items: dict[Key, Item] = {}
    for place, key in places.items():
        row = found.get(place)
        if row is not None and row[3] is not None:
            item = _long(connection, database, place, key, row)
        else:
            item = None if row is None else Item(key, cast(bytes, row[2]), number_of(row[1]))
        if item is not None:
            items[key] = item
    return items


def _long(connection: Connection, database: Database, place: bytes, key: Key, row: Row) -> Item | None:
    """Return an item whose value is in pages; None if it has been deleted since its row was read."""
    for _ in range(_TRIES):
        _, version, digest, pages, *_ = row
        parts: list[bytes] = []
        hashed = hashlib.sha256()
        # Page by page, so that neither side has all of it twice.
        while page := connection.run(database.sql(_PAGE), [(UUID, pages), (INT4, len(parts).to_bytes(4, "big"))]):
            [(part,)] = page
            parts.append(cast(bytes, part))
            hashed.update(parts[-1])
        if hashed.digest() == digest:
            return Item(key, b"".join(parts), number_of(version))
        # The pages of one value never change, so it was replaced since its row was read, or is damaged.
        now = connection.run(database.sql(_ONE), [(BYTEA, place)])
        if not now:
            return None
        if now[0][3] == pages:
            break
        if now[0][3] is None:
            return Item(key, cast(bytes, now[0][2]), number_of(now[0][1]))
        row = now[0]
    raise DamagedStoreError(database.where, "pages of a long value are missing")


class Position:
    """The position of a scan."""

    def __init__(self, low: bytes, high: bytes, left: int, *, reverse: bool) -> None:
        self._low, self._high, self.left = low, high, left
        """How many items are still to come, at most; 0 at the end."""
        self._reverse = reverse
        self._is_first = True

    def more(self, connection: Connection, database: Database) -> list[Item]:
        """Return the next page, which is empty only at the end."""
        rows = min(FIRST_ROWS if self._is_first else _ROWS, self.left)
        given: list[Parameter] = [(BYTEA, self._low), (BYTEA, self._high), int8(rows)]
        statement = _RANGE
        if not self._is_first:  # rows and bytes are bounded; a first page is small, and this takes longer to plan
            statement, given = _BOUNDED, [*given, int8(_BYTES)]
        found = connection.run(database.sql(statement.replace("{way}", "DESC" if self._reverse else "ASC")), given)
        if found:
            last = cast(bytes, found[-1][0])
            self._low, self._high = (self._low, last) if self._reverse else (last + b"\0", self._high)
        self.left = self.left - len(found) if found and not (self._is_first and len(found) < rows) else 0
        self._is_first = False
        return items_of(connection, database, found)


def items_of(connection: Connection, database: Database, rows: Sequence[Row]) -> list[Item]:
    """Return the items of rows, with their keys, without those with a long value that have been deleted since."""
    items: list[Item] = []
    for row in rows:
        place, version, value, pages, whole = row
        try:
            key = decode(cast(bytes, place if whole is None else whole))
        except ValueError as error:
            raise DamagedStoreError(database.where, "a row has bytes for its key that no key has") from error
        if pages is None:
            items.append(Item(key, cast(bytes, value), number_of(version)))
        elif (item := _long(connection, database, cast(bytes, place), key, row)) is not None:
            items.append(item)
    return items


def check_whole(connection: Connection, database: Database) -> int:
    """Return the number of items, all of which were read.

    Raises:
        Failure: the server cannot read a row.
    """
    last, count = b"", 0
    while rows := connection.run(database.sql(_CHECKED), [(BYTEA, last), int8(_ROWS)]):
        for row in rows:
            for item in items_of(connection, database, [row]):  # none, if it has been deleted since
                if item.version < 1 or place_of(item.key) != row[0]:
                    raise DamagedStoreError(database.where, "a row is not one that a store writes")
        last = cast(bytes, rows[-1][0])
        count += len(rows)
    return count
