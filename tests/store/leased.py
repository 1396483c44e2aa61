"""A store that says who has a run: around any other, with the claims in a file of SQLite, which any number of processes share."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial

from anyio import to_thread

from graphagent import _clock
from graphagent.store import Claimed
from graphagent.store._bulk import get_many
from graphagent.store._items import decode, encode_key

_TABLE = """
CREATE TABLE IF NOT EXISTS claims (
    place BLOB PRIMARY KEY, room TEXT, holder TEXT, fence INTEGER, until INTEGER, note BLOB
)"""
_TAKE = """
INSERT INTO claims VALUES (:place, :room, :holder, :after + 1, :until, :note)
ON CONFLICT (place) DO UPDATE SET
    holder = :holder, fence = max(fence, :after) + 1, until = :until, note = :note WHERE until <= :now OR fence <= :after
RETURNING fence"""
_RENEW = """
UPDATE claims SET until = :until WHERE place = :place AND holder = :holder AND fence = :fence AND until > :now RETURNING fence"""


class SqliteClaims:
    """Claims by the clock of the machine, or by one that a test fixes or moves: `late` is how many milliseconds it is ahead."""

    def __init__(self, path, lease=15_000, heartbeat=5_000):
        self.path, self.lease, self.heartbeat = str(path), lease, heartbeat
        self.late = 0
        self.asked = []
        """The names of the operations, in their order."""
        self.renewed = []
        """How many claims each renewal had."""
        self.fails = None
        """What the next operations raise."""

    async def now(self):
        return _clock.now() + self.late

    async def _with(self, work):
        self.asked.append(work.__name__.strip("_"))
        if self.fails is not None:
            raise self.fails

        def transaction():
            with closing(sqlite3.connect(self.path, timeout=60, isolation_level=None)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(_TABLE)
                done = work(connection, _clock.now() + self.late)
                connection.execute("COMMIT")
                return done

        return await to_thread.run_sync(transaction)

    async def take(self, key, holder, lease, *, after=0, note=b""):
        def take(connection, now):
            given = {"place": encode_key(key), "room": key[0], "holder": holder, "after": after, "until": now + lease, "note": note, "now": now}  # fmt: skip
            return [Claimed(key, holder, fence, now + lease, note) for (fence,) in connection.execute(_TAKE, given)]

        return next(iter(await self._with(take)), None)

    async def renew(self, claims, lease):
        claims = list(claims)
        self.renewed.append(len(claims))

        def renew(connection, now):
            lost = []
            for each in claims:
                given = {"place": encode_key(each.key), "holder": each.holder, "fence": each.fence, "until": now + lease, "now": now}  # fmt: skip
                if not connection.execute(_RENEW, given).fetchall():
                    lost.append(each)
            return lost

        return await self._with(renew)

    async def release(self, claims):
        claims = list(claims)

        def release(connection, _):
            for each in claims:
                given = (encode_key(each.key), each.holder, each.fence)
                connection.execute("DELETE FROM claims WHERE place = ? AND holder = ? AND fence = ?", given)

        await self._with(release)

    async def holders(self, keys):
        keys = list(keys)

        def holders(connection, now):
            found = {}
            for key in keys:
                for row in connection.execute("SELECT * FROM claims WHERE place = ?", (encode_key(key),)):
                    found[key] = _claimed(now, *row)
            return found

        return await self._with(holders)

    async def lapsed(self, room, limit):
        def lapsed(connection, now):
            query = "SELECT * FROM claims WHERE room = ? AND until <= ? ORDER BY until LIMIT ?"
            return [_claimed(now, *row) for row in connection.execute(query, (room, now, limit))]

        return await self._with(lapsed)


def _claimed(now, place, _, holder, fence, until, note):
    return Claimed(decode(place), holder, fence, until, note, lapsed=until <= now)


class Leased:
    """A store around another one, with claims."""

    def __init__(self, inner, path, **times):
        self.inner, self.claims = inner, SqliteClaims(path, **times)
        self.get, self.scan, self.get_many = inner.get, inner.scan, partial(get_many, inner)
        self.commits = []

    async def commit(self, *changes):
        await self.inner.commit(*changes)
        self.commits.append(changes)
