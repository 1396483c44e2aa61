"""The claims of a PostgresStore: rows of a table of their own, judged by the clock of the server.

Changes of claims do not wait for the server's disk: a claim that is lost in a crash of the server is treated like an expired one,
and the next commit makes all earlier claims durable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from graphagent import _clock
from graphagent.store._claims import Claimed
from graphagent.store._items import decode, encode, encode_key
from graphagent.store.postgres._connection import BYTEA, INT8, TEXT, Connection, Parameter, Row, array, int8, number_of
from graphagent.store.postgres._failures import Lost
from graphagent.store.postgres._places import bounds_of, place_of

if TYPE_CHECKING:
    from graphagent.store._items import Key
    from graphagent.store.postgres._link import Link

T = TypeVar("T")

_HELD = "SELECT place, key, holder, fence, until, note, until <= {s}.now_ms($1) FROM {s}.claims"
_HOLDERS = f"{_HELD} WHERE place = ANY ($2)"
_LAPSED = f"{_HELD} WHERE place >= $2 AND place < $3 AND until <= {{s}}.now_ms($1) ORDER BY until LIMIT $4"


class _Run(Protocol):
    def __call__(self, function: Callable[[Link], T], /) -> Awaitable[T]: ...


class PostgresClaims:
    """Claims in a table of the schema of a PostgresStore: `store.claims`."""

    def __init__(self, run: _Run, lease: int, heartbeat: int) -> None:
        self._run = run
        self.lease: int = lease
        """For how long a run is claimed at a time, in milliseconds."""
        self.heartbeat: int = heartbeat
        """How long after it was taken or renewed a claim is renewed, in milliseconds."""

    async def now(self) -> int:
        """Return the time of the server, in milliseconds UTC."""
        at = _fixed()
        if at[1] is not None:
            return number_of(at[1])
        ask = b"SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
        [(now,)] = await self._run(lambda link: link.read(lambda connection: connection.run(ask)))
        return number_of(now)

    async def take(self, key: Key, holder: str, lease: int, *, after: int = 0, note: bytes = b"") -> Claimed | None:
        """Claim a key, and return the claim; None if it is claimed. The number of the claim is above `after` and those of all earlier claims."""
        encode_key(key)
        place, whole = place_of(key), encode(key)
        given = [
            _fixed(),
            (BYTEA, place),
            (BYTEA, None if whole == place else whole),
            (TEXT, holder.encode()),
            int8(lease),
            int8(after),
            (BYTEA, note),
        ]
        again = False

        def take(connection: Connection, link: Link) -> list[Row]:
            nonlocal again
            statement = link.database.sql("SELECT * FROM {s}.take($1, $2, $3, $4, $5, $6, $7, $8)")
            try:
                return connection.run(statement, [*given, int8(again)])
            except Lost:
                again = True  # it may have been taken just now
                raise

        rows = await self._run(lambda link: link.read(lambda connection: _ready(connection, link, take, new=True)))
        return next((Claimed(key, holder, number_of(fence), number_of(until), note) for fence, until in rows), None)

    async def renew(self, claims: Iterable[Claimed], lease: int) -> list[Claimed]:
        """Have claims end one lease from now, and return the lost ones: lapsed, released, or taken."""
        several = list(claims)
        if not several:
            return []
        rows = await self._change("SELECT {s}.renew($1, $2, $3, $4, $5)", several, int8(lease), _fixed())
        renewed = {place for (place,) in rows}
        return [each for each in several if place_of(each.key) not in renewed]

    async def release(self, claims: Iterable[Claimed]) -> None:
        """End claims, so that others can take them at once. Those that were lost are left alone."""
        several = list(claims)
        if several:
            await self._change("SELECT {s}.release($1, $2, $3)", several)

    async def holders(self, keys: Iterable[Key]) -> dict[Key, Claimed]:
        """Return the claims of keys, in one operation. Claims that lapsed and were not taken since are among them."""
        places = {place_of(key): key for key in keys}
        if not places:
            return {}
        found = {each.key: each for each in await self._held(_HOLDERS, array(BYTEA, list(places)))}
        return {key: found[key] for key in places.values() if key in found}

    async def lapsed(self, room: str, limit: int) -> list[Claimed]:
        """Return lapsed claims whose keys have not been taken since, the earliest first."""
        low, high = bounds_of((room,), None, reverse=False)
        return await self._held(_LAPSED, (BYTEA, low), (BYTEA, high), int8(limit))

    async def _held(self, statement: str, *given: Parameter) -> list[Claimed]:
        def function(connection: Connection, link: Link) -> list[Row]:
            return connection.run(link.database.sql(statement), [at, *given])

        at = _fixed()
        rows = await self._run(lambda link: link.read(lambda connection: _ready(connection, link, function)))
        return [_claimed(row) for row in rows]

    async def _change(self, statement: str, claims: Sequence[Claimed], *given: Parameter) -> list[Row]:
        rows = sorted((place_of(each.key), each.holder.encode(), each.fence) for each in claims)
        places, holders, fences = zip(*rows, strict=True)
        parameters = [array(BYTEA, places), array(TEXT, holders), array(INT8, fences), *given]

        def change(connection: Connection, link: Link) -> list[Row]:
            return connection.run(link.database.sql(statement), parameters)

        return await self._run(lambda link: link.read(lambda connection: _ready(connection, link, change)))


def _ready(
    connection: Connection, link: Link, function: Callable[[Connection, Link], list[Row]], *, new: bool = False
) -> list[Row]:
    return function(connection, link) if link.database.is_ready(connection, new=new) else []


def _fixed() -> Parameter:
    """Return the time that a test has fixed; a null leaves it to the clock of the server."""
    return (INT8, None) if _clock.is_wall_clock() else int8(_clock.now())


def _claimed(row: Row) -> Claimed:
    place, whole, holder, fence, until, note, lapsed = cast(Any, row)
    key = decode(place if whole is None else whole)
    return Claimed(key, holder.decode(), number_of(fence), number_of(until), note, lapsed == b"\x01")
