"""A process that has a sealed store open notices that another one has changed its keys."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from graphagent.errors import DamagedStoreError, RemovedKeyError
from graphagent.store import Delete, EncryptedStore, Item, Put, SqliteStore
from graphagent.store.sealed._format import HEAD, KeyState, NamedKey
from graphagent.store.sealed._key_row import replacing
from graphagent.store.sealed._keyset import Keyset, Purpose
from graphagent.store.sealed._secret import Secret, SlotKind

KEY, OTHER = bytes(range(32)), bytes(32)
KEYS = ("k",)


def named(number):
    """Give a key of the room, in a domain of its own for each number."""
    return ("room", f"owner {number}", 1)


async def change_keys(path, key, states, new_key=None):
    """Put another key row in place, whose keys that seal rows have these states by their numbers, and with another key if one is given."""
    async with SqliteStore(path) as inner:
        row = await inner.get(KEYS)
        keyset = Keyset.open(row.value, row.version, Secret(SlotKind.KEY, key))
        known = {each.number: each.key for each in keyset.keys[Purpose.SEAL]}
        keys = tuple(
            NamedKey(number, state, bytes(32) if state is KeyState.DESTROYED else known.get(number) or os.urandom(32))
            for number, state in states.items()
        )
        keyset = replace(keyset, keys={**keyset.keys, Purpose.SEAL: keys})
        if new_key:
            keyset = keyset.with_slot("new", Secret(SlotKind.KEY, new_key), now=1).without_slot(keyset.own, now=1)
        await inner.commit(*replacing(row.version, keyset))


async def reseal_writers(store):
    """Seal the rows of writers with the present key, as a rotation does before it destroys the one before."""
    session = await store._sealed().ready()
    await session.store.commit(*await session.writers.resealed())


async def numbers(path):
    """Give the numbers of the keys with which the rows of domains and writers are sealed."""
    async with SqliteStore(path) as inner:
        rows = [item async for item in inner.scan(())]
        return {HEAD.unpack_from(row.value)[1] for row in rows if row.key[0] in ("r", "d")}


async def test_keys_that_others_changed_are_used(tmp_path):
    """After a change of keys, a process seals with the new one, and reads what others have sealed with it."""
    path = tmp_path / "store.db"
    async with EncryptedStore(SqliteStore(path), KEY) as one, EncryptedStore(SqliteStore(path), KEY) as two:
        await one.commit(Put(named(1), b"1"))
        assert (await two.get(named(1))).value == b"1"
        await change_keys(path, KEY, {1: KeyState.OPENS, 2: KeyState.PRIMARY})
        await two.commit(Put(named(1), b"2"), Put(named(2), b"2"))
        await reseal_writers(two)
        assert await numbers(path) == {2}
        await change_keys(path, KEY, {1: KeyState.DESTROYED, 2: KeyState.PRIMARY})
        assert (await one.get(named(2))).value == b"2"
        assert [item.value async for item in one.scan(())] == [b"2", b"2"]
        await change_keys(path, KEY, {2: KeyState.OPENS, 3: KeyState.PRIMARY})
        await one.commit(Delete(named(2)), Put(named(1), b"3", expected=2))
        await reseal_writers(one)
        await change_keys(path, KEY, {2: KeyState.DESTROYED, 3: KeyState.PRIMARY})
        for store in (one, two):
            assert await store.get(named(1)) == Item(named(1), b"3", 3)
            assert await store.verify() == 1


async def test_a_process_whose_key_was_removed_stops(tmp_path):
    """A process whose own key was removed neither seals anything nor reads what was sealed since."""
    path = tmp_path / "store.db"
    async with EncryptedStore(SqliteStore(path), KEY) as one, EncryptedStore(SqliteStore(path), KEY) as two:
        await one.commit(Put(named(1), b"1"))
        assert (await two.get(named(1))).value == b"1"
        await change_keys(path, KEY, {1: KeyState.OPENS, 2: KeyState.PRIMARY}, OTHER)
        for changes in ([Put(named(1), b"no")], [Put(named(2), b"no")], [Delete(named(1))]):
            with pytest.raises(RemovedKeyError):
                await one.commit(*changes)
        async with EncryptedStore(SqliteStore(path), OTHER) as three:
            await three.commit(Put(named(1), b"2"), Put(named(2), b"2"))
        for store in (one, two):
            for key in (named(1), named(2)):
                with pytest.raises(RemovedKeyError):
                    await store.get(key)


async def test_the_key_row_of_another_store_is_damage(tmp_path):
    """A key row that was put back, or comes from another store with the same key, is refused by a process that has it open."""
    path = tmp_path / "store.db"
    async with EncryptedStore(SqliteStore(path), KEY) as store:
        await store.commit(Put(named(1), b"1"))
        async with SqliteStore(path) as inner:
            version = (await inner.get(KEYS)).version
            await inner.commit(*replacing(version, Keyset.fresh(Secret(SlotKind.KEY, KEY), now=1)))
        with pytest.raises(DamagedStoreError, match="another store"):
            await store.commit(Put(named(1), b"2"))
        with pytest.raises(DamagedStoreError):
            await store.verify()
