"""Which domains a sealed store has: no row is put by all who write, and nothing of what says so can be removed or put back alone."""

from __future__ import annotations

import pytest

from graphagent.errors import ConflictError, DamagedStoreError, StoreError
from graphagent.store import DeleteAll, EncryptedStore, Exists, Item, MemoryStore, Put
from graphagent.store._items import encode
from graphagent.store.sealed import _base
from tests.store.sealed.elsewhere import Elsewhere
from tests.store.sealed.test_between import listed
from tests.store.sealed.test_format import KEY, check, frozen_rows
from tests.store.sealed.test_store import put_rows, rows_of

DEPTHS = {"format 1": {"runs": 2}}
FORMER = {"format 1": frozen_rows(1), "format 2": frozen_rows(2), "anchored": frozen_rows("anchored")}


class Noting(MemoryStore):
    """A store that keeps the keys of what is put and removed, for each commit."""

    def __init__(self):
        super().__init__()
        self.commits = []

    async def commit(self, *changes):
        await super().commit(*changes)
        self.commits.append({each.key for each in changes if isinstance(each, Put)})


def inner_of(rows):
    inner = MemoryStore()
    for place, (value, version) in rows.items():
        inner._items.put(encode(place), Item(place, value, version))
    return inner


async def test_sessions_that_add_domains_put_no_row_in_common():
    """Once each has its row, what they put is disjoint, so that none waits for another; what only reads writes nothing."""
    inner = Noting()
    one, two, reader = (EncryptedStore(inner, KEY) for _ in range(3))
    for store in (one, two):
        await store.commit(Put(("room", "o", 1), b"v"))
    inner.commits.clear()
    for number in range(10):
        await one.commit(Put(("room", f"one {number}", 1), b"v"))
        await two.commit(Put(("room", f"two {number}", 1), b"v"), DeleteAll(("room", f"two {number - 1}")))
        assert len(await listed(reader, ("room",))) == number + 3
    ones, twos = (set[object]().union(*inner.commits[at::2]) for at in (0, 1))
    assert len(inner.commits) == 20
    assert not ones & twos
    await reader.aclose()
    assert len(inner.commits) == 20
    for store in (one, two):
        await store.aclose()
    assert [key for key in rows_of(inner) if key[0] == "r"] == [("r", 0)]
    assert await EncryptedStore(inner, KEY).verify() == 12


async def test_a_domain_that_is_begun_while_what_it_relies_on_is_removed_goes_too():
    """Whoever removes an item with what belongs to it has not seen it, and makes the removal again."""

    class Later(MemoryStore):
        first = None

        async def commit(self, *changes):
            first, self.first = self.first, None
            if first is not None:
                await first()
            await super().commit(*changes)

    inner = Later()
    writer, remover = EncryptedStore(inner, KEY), EncryptedStore(inner, KEY)
    for store in (writer, remover):
        await store.commit(Put(("room", "head"), b"v"), Put(("room", "other", 1), b"v"))
    inner.first = lambda: writer.commit(Exists(("room", "head")), Put(("room", "rows", 1, 2), b"v"))
    await remover.commit(DeleteAll(("room", "rows")), DeleteAll(("room", "head")))
    assert await listed(EncryptedStore(inner, KEY), ("room",)) == {("room", "other", 1): b"v"}
    with pytest.raises(ConflictError):
        await writer.commit(Exists(("room", "head")), Put(("room", "rows", 1, 3), b"v"))
    assert await EncryptedStore(inner, KEY).verify() == 1


async def test_writers_that_were_killed_are_ended_by_others(monkeypatch):
    """Where there are many, one that begins ends the older half; one of these that lives goes on with a new row."""
    monkeypatch.setattr(_base, "MOST_WRITERS", 8)
    inner = MemoryStore()
    live = EncryptedStore(inner, KEY)
    await live.commit(Put(("room", "live", 0), b"v"))
    for number in range(20):
        await EncryptedStore(inner, KEY).commit(Put(("room", f"o{number}", 0), b"v"))
        await live.commit(Put(("room", f"live {number}", 0), b"v")) if number % 5 == 0 else None
        assert sum(key[0] == "r" for key in rows_of(inner)) <= 9
    assert await EncryptedStore(inner, KEY).verify() == 25


async def test_rows_of_writers_cannot_be_removed_or_put_back_alone():
    """Any of the rows under `r` missing, doubled or as it was before is found at opening, and by whoever has the store open."""
    inner = MemoryStore()
    one, two = EncryptedStore(inner, KEY), EncryptedStore(inner, KEY)
    await one.commit(Put(("room", "a", 1), b"v"))
    await two.commit(Put(("room", "b", 1), b"v"))
    before = rows_of(inner)
    await one.commit(Put(("room", "c", 1), b"v"), Put(("other", "c", 1), b"v"))
    await two.commit(DeleteAll(("room", "b")))
    now = rows_of(inner)
    changed = [key for key in now if key[0] == "r" and now[key] != before[key]]
    assert len(changed) == 3
    for key in changed:
        stray = ("r", 7)
        for number, rows in enumerate(
            (
                {each: item for each, item in now.items() if each != key},
                {**now, key: before[key]},
                {**now, key: Item(key, before[key].value, now[key].version)},
                {**now, stray: Item(stray, now[key].value, now[key].version)},
            )
        ):
            put_rows(inner, rows)
            for store in (EncryptedStore(inner, KEY), one):
                if store is one and number == 2:
                    continue  # it knows the row of this version, and does not open it again
                with pytest.raises(DamagedStoreError):
                    await listed(store, ("room",))
    put_rows(inner, now)
    assert await EncryptedStore(inner, KEY).verify() == 3


@pytest.mark.parametrize("anchored", [False, True])
async def test_what_one_writer_did_is_undone_unseen_only_as_a_whole_and_without_an_anchor(anchored):
    """A domain that was removed is put back with the row of its writer: the anchor tells, and a store that is open; another domain left as it is, too."""
    inner, anchor = MemoryStore(), Elsewhere() if anchored else None
    store = EncryptedStore(inner, KEY, anchor=anchor)
    await store.commit(Put(("room", "a", 1), b"v"), Put(("room", "b", 1), b"v"))
    before = rows_of(inner)
    await store.commit(DeleteAll(("room", "a")))
    undone = {**rows_of(inner), **before}
    await store.commit(Put(("room", "c", 1), b"v"))
    put_rows(inner, {**rows_of(inner), **before})
    with pytest.raises(DamagedStoreError):
        await EncryptedStore(inner, KEY).verify()
    put_rows(inner, undone)
    with pytest.raises(DamagedStoreError):
        await listed(store, ("room",))
    if anchor is None:
        assert await EncryptedStore(inner, KEY).verify() == 2
    else:
        with pytest.raises(DamagedStoreError):
            await EncryptedStore(inner, KEY, anchor=anchor).verify()


# Stores of formats 1 and 2


@pytest.mark.parametrize("name", FORMER)
async def test_a_former_store_is_moved_by_the_first_commit_and_by_nothing_else(name):
    """Reading and verifying it writes nothing. A commit moves what it changes; all is as it was, for every reader, and its domains too."""
    inner = inner_of(FORMER[name])
    before = rows_of(inner)
    reader = EncryptedStore(inner, KEY, domains=DEPTHS.get(name))
    wanted = {item.key: item async for item in reader.scan(())}
    assert await reader.verify() == len(wanted)
    await reader.aclose()
    assert rows_of(inner) == before
    store = EncryptedStore(inner, KEY, domains=DEPTHS.get(name))
    for number, key in enumerate(wanted):
        wanted[key] = Item(key, b"new %d" % number, wanted[key].version + 1)
        await store.commit(Put(key, wanted[key].value, expected=wanted[key].version - 1))
        rows = rows_of(inner)
        assert rows["k",].value[7] == 3
        assert ("r",) not in rows
        items = [(item.key, item.value, item.version) for item in wanted.values()]
        check({each: (item.value, item.version) for each, item in rows.items()}, items)
        for each in (reader, store, EncryptedStore(inner, KEY, domains=DEPTHS.get(name))):
            assert {item.key: item async for item in each.scan(())} == wanted
    await store.commit(DeleteAll(()))
    assert await EncryptedStore(inner, KEY).verify() == 0


@pytest.mark.parametrize("name", FORMER)
@pytest.mark.parametrize("made", [False, True])
async def test_a_move_that_is_interrupted_is_made_or_not(name, made):
    """If the answer to a commit is lost, or the commit itself, the store is of one format or the other, and the next one goes on."""

    class Losing(MemoryStore):
        left = 2

        async def commit(self, *changes):
            self.left -= 1
            if self.left or made:
                await super().commit(*changes)
            if not self.left:
                raise StoreError("lost")

    for at in (1, 2):
        inner = Losing()
        inner._items, inner.left = inner_of(FORMER[name])._items, at
        count = await EncryptedStore(inner, KEY).verify()
        store = EncryptedStore(inner, KEY)
        with pytest.raises(StoreError, match="lost"):
            await store.commit(Put(("new", "one"), b"v"))
        assert await EncryptedStore(inner, KEY).verify() == count + (made and at == 2)
        await store.commit(Put(("new", "one"), b"v"))
        assert await EncryptedStore(inner, KEY).verify() == count + 1


async def test_the_rows_of_a_former_format_cannot_come_back():
    """After a store was moved, its root or rows of domains that are put back are found, also in place of those that are there."""
    inner = inner_of(FORMER["format 2"])
    store = EncryptedStore(inner, KEY, anchor=Elsewhere())
    before = rows_of(inner)
    async with EncryptedStore(inner_of(FORMER["format 2"]), KEY) as plain:
        keys = [item.key async for item in plain.scan(())]
    await store.commit(*(Put(key, b"new") for key in keys))
    now = rows_of(inner)
    for key in before.keys() - now.keys():
        put_rows(inner, {**now, key: before[key]})
        with pytest.raises(DamagedStoreError):
            await EncryptedStore(inner, KEY).verify()
    put_rows(inner, {**{key: item for key, item in now.items() if key[0] != "r"}, ("r",): before["r",]})
    with pytest.raises(DamagedStoreError):
        await EncryptedStore(inner, KEY).verify()
