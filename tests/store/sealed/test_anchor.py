"""An anchor of a sealed store: older copies of the store, or of a part of it, are found; whatever else happens is never taken for one."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
from contextlib import suppress

import anyio
import pytest
from keyring.backends.fail import Keyring

from graphagent.errors import AnchorError, DamagedStoreError, DestroyedStoreError, RolledBackError, StoreError
from graphagent.memory import Concept, EncryptedMemoryProvider, Scope, SingleFact, Subject
from graphagent.store import DeleteAll, EncryptedStore, Item, MemoryStore, Put, SqliteStore, new_key
from graphagent.store._items import encode
from tests import forkserver
from tests.store.sealed.elsewhere import Elsewhere
from tests.store.sealed.test_between import MEDDLES, OWNER, WRITES, Between, key, listed, make, told
from tests.store.sealed.test_keyring import Memory
from tests.thorough import THOROUGH, some

KEY = bytes(range(32))
ANN, BOB = ("room", "ann"), ("room", "bob")


def rows_of(inner):
    return {place: inner._items.get(place) for place in inner._items.between(b"", b"\xff")}


def with_rows(rows):
    inner = MemoryStore()
    for place, item in rows.items():
        inner._items.put(place, Item(item.key, item.value, item.version))
    return inner


def opened(inner, anchor=None, **options):
    return EncryptedStore(inner, KEY, anchor=anchor, **options)


async def begun(*, handles=1):
    """Give a store within and its anchor, after commits of several handles to two domains."""
    inner, anchor = MemoryStore(), Elsewhere()
    for number in range(handles):
        async with opened(inner, anchor) as store:
            await store.commit(Put((*ANN, number), b"old"), Put((*BOB, number), b"old"))
    return inner, anchor


USES = {
    "get": lambda store: store.get((*ANN, 0)),
    "scan": lambda store: listed(store, ANN),
    "commit": lambda store: store.commit(Put((*BOB, 9), b"new")),
    "verify": lambda store: store.verify(),
}


@pytest.mark.parametrize("use", USES)
async def test_an_older_copy_of_the_store_is_refused_before_anything_is_read(use):
    """Whoever has the anchor refuses it, whatever they begin with; nothing is written, and the newer one is accepted again."""
    inner, anchor = await begun()
    old = rows_of(inner)
    await opened(inner, anchor).commit(Put((*ANN, 0), b"new"))
    copy = with_rows(old)
    with pytest.raises(RolledBackError, match="graphagent anchor reset"):
        await USES[use](opened(copy, anchor))
    assert rows_of(copy) == old
    assert (await opened(inner, anchor).get((*ANN, 0))).value == b"new"


async def test_an_older_copy_is_an_older_copy_also_after_others_went_on_with_it():
    """Sessions without an anchor accept it, however many begin and end there: whoever has the anchor still finds it."""
    inner, anchor = await begun()
    live = opened(inner, anchor)
    await live.commit(Put((*ANN, 1), b"new"))
    old = rows_of(inner)
    await live.commit(Put((*ANN, 1), b"newer"))
    copy = with_rows(old)
    for number in range(40):
        without = opened(copy)
        await without.commit(Put((*BOB, number), b"v"))
        if number % 2:
            await without.aclose()
    with pytest.raises(RolledBackError):
        await opened(copy, anchor).get((*ANN, 1))


async def test_an_older_copy_can_be_accepted_and_then_the_newer_one_is_refused():
    """After a reset the older one goes on, under the same anchor. What was stored in the other one does not come back."""
    inner, anchor = await begun()
    old = rows_of(inner)
    async with opened(inner, anchor) as store:
        for number in range(5):
            await store.commit(Put((*ANN, number), b"new"))
    copy = with_rows(old)
    await opened(copy, anchor).reset_anchor()
    store = opened(copy, anchor)
    assert (await store.get((*ANN, 0))).value == b"old"
    await store.commit(Put((*ANN, 0), b"again"))
    await store.aclose()
    assert (await opened(copy, anchor).get((*ANN, 0))).value == b"again"
    with pytest.raises(RolledBackError):
        await opened(inner, anchor).get((*ANN, 0))


async def test_a_store_that_lacks_domains_is_not_accepted():
    """A reset accepts domains that are older than they were, but none that is missing, or was removed and is there again."""
    inner, anchor = await begun()
    async with opened(inner, anchor) as store:
        await store.commit(Put(("room", "gone", 0), b"v"))
    old = rows_of(inner)
    async with opened(inner, anchor) as store:
        await store.commit(Put((*ANN, 0), b"new"), DeleteAll(("room", "gone")))
    now = rows_of(inner)
    paths = {item.key[:3]: domain_rows(old, item.key[:3]) for item in old.values() if item.key[0] == "d"}
    [gone] = [places for places in paths.values() if not places & now.keys()]
    [anns] = [places for places in paths.values() if places & now.keys() and any(old[at] != now[at] for at in places)]
    missing = with_rows({place: item for place, item in now.items() if place not in anns})
    again = with_rows({**now, **{place: old[place] for place in gone}})
    for copy in (missing, again):
        before = rows_of(copy)
        for use in (opened(copy).verify, opened(copy, anchor).reset_anchor):
            with pytest.raises(DamagedStoreError, match="domains are missing, or were added"):
                await use()
        assert rows_of(copy) == before
    older = with_rows({**now, **{place: old[place] for place in anns}})
    with pytest.raises(RolledBackError, match="a part of it is older"):
        await opened(older, anchor).verify()
    await opened(older, anchor).reset_anchor()
    assert (await opened(older, anchor).get((*ANN, 0))).value == b"old"
    assert await opened(older, anchor).verify() == 2


def domain_rows(rows, path):
    """Give the places of a domain of two segments: its row and its items."""
    return {place for place, item in rows.items() if item.key[:1] in (("d",), ("i",)) and item.key[1:3] == path[1:3]}


async def test_an_older_copy_of_one_domain_is_found_without_the_anchor():
    """All rows of a domain put back, alone or with rows of writers: the sum tells, whoever opens the store."""
    inner, anchor = await begun(handles=2)
    first = opened(inner, anchor)
    await first.commit(Put((*ANN, 0), b"new"), Put((*BOB, 0), b"new"))
    old = rows_of(inner)
    await first.commit(Put((*ANN, 0), b"newer"))
    await opened(inner).commit(Put((*ANN, 0), b"newest"), Put((*BOB, 1), b"newest"))
    now = rows_of(inner)
    paths = {item.key[:3] for item in now.values() if item.key[0] == "d"}
    anns = {place for path in paths for place in domain_rows(now, path) if now[place] != old.get(place)}
    anns -= {place for place in anns if now[place].key[0] == "i" and place not in old}
    changed = {path for path in paths if any(now[place] != old.get(place) for place in domain_rows(now, path))}
    writers = [place for place, item in now.items() if item.key[0] == "r"]
    for path in changed:
        back = {**now, **{place: old[place] for place in domain_rows(now, path) if place in old}}
        back = {place: item for place, item in back.items() if place in old or place not in domain_rows(now, path)}
        with pytest.raises(RolledBackError):
            await opened(with_rows(back)).get((*ANN, 0))
        for writer in writers:
            mixed = {**back, writer: old[writer]} if writer in old else {**back}
            if writer not in old:
                del mixed[writer]
            with pytest.raises(DamagedStoreError):
                await opened(with_rows(mixed)).get((*ANN, 0))
    for writer in writers:
        with pytest.raises(DamagedStoreError):
            await opened(with_rows({place: item for place, item in now.items() if place != writer})).verify()


async def test_a_running_session_notices_that_its_store_was_put_back():
    """Its next commit says so, also if it did not need to read anything."""
    inner, anchor = await begun()
    store = opened(inner, anchor)
    await store.commit(Put((*ANN, 5), b"v"))
    old = rows_of(inner)
    await store.commit(Put((*BOB, 5), b"v"))
    for place in rows_of(inner):
        inner._items.remove([place])
    for place, item in old.items():
        inner._items.put(place, item)
    with pytest.raises(DamagedStoreError):
        await store.commit(Put((*ANN, 5), b"w"))


async def test_each_thing_wrong_with_an_anchor_has_its_words():
    """Missing, changed in any byte, cut off, of another store, of a store that is gone: none is taken for another."""
    inner, anchor = await begun()
    with pytest.raises(AnchorError, match=r"missing.*graphagent anchor reset"):
        await opened(inner, Elsewhere()).get((*ANN, 0))
    good = anchor.content
    for at in some(range(len(good)), 20):
        changed = good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]
        with pytest.raises((AnchorError, RolledBackError)):
            await opened(inner, Elsewhere(changed)).get((*ANN, 0))
    with pytest.raises(AnchorError, match="cut off"):
        await opened(inner, Elsewhere(good[:-1])).get((*ANN, 0))
    _, others = await begun()
    with pytest.raises(AnchorError, match="another store"):
        await opened(inner, others).get((*ANN, 0))
    with pytest.raises(RolledBackError, match="empty"):
        await opened(MemoryStore(), anchor).commit(Put((*ANN, 0), b"v"))
    unanchored = MemoryStore()
    await opened(unanchored).commit(Put((*ANN, 0), b"v"))
    before = rows_of(unanchored)
    anchor = Elsewhere()
    await opened(unanchored, anchor).commit(Put((*ANN, 0), b"v"))
    with pytest.raises(RolledBackError):
        await opened(with_rows(before), anchor).get((*ANN, 0))
    assert (await opened(inner, Elsewhere(good)).get((*ANN, 0))).value == b"old"


@pytest.mark.parametrize(
    ("anchor", "every", "error"),
    [
        ("", 0, ValueError),
        (":memory:", 0, ValueError),
        ("keyring:alone", 0, ValueError),
        (7, 0, TypeError),
        (Elsewhere, 0, TypeError),
        ("a.anchor", -1, ValueError),
        ("a.anchor", float("nan"), ValueError),
        ("a.anchor", True, ValueError),
        (None, 1, ValueError),
    ],
)
def test_what_is_no_anchor_is_refused_when_it_is_given(anchor, every, error):
    """It takes no first use to find out."""
    with pytest.raises(error, match="anchor"):
        opened(MemoryStore(), anchor, anchor_every=every)


async def test_an_anchor_that_raises_fails_no_commit_but_the_opening(caplog):
    """What was committed is committed, and the anchor catches up with a later commit. At opening, its error says which it is."""

    class Failing(Elsewhere):
        def read(self):
            if self.fails:
                raise OSError("unplugged")
            return super().read()

        fails = False

    inner, anchor = MemoryStore(), Failing()
    store = opened(inner, anchor)
    await store.commit(Put((*ANN, 0), b"v"))
    old = rows_of(inner)
    anchor.fails = True
    await store.commit(Put((*ANN, 1), b"v"))
    assert "anchor" in caplog.text
    with pytest.raises(AnchorError) as raised:
        await opened(inner, anchor).get((*ANN, 0))
    assert isinstance(raised.value.__cause__, OSError)
    anchor.fails = False
    assert len(await listed(opened(with_rows(old), anchor), ANN)) == 1  # it has not caught up
    await store.commit(Put((*ANN, 2), b"v"))
    with pytest.raises(RolledBackError):
        await opened(with_rows(old), anchor).get((*ANN, 0))


@pytest.mark.parametrize("what", ["the anchor", "a commit", "a commit that was made"])
async def test_a_store_has_an_anchor_whatever_fails_while_it_is_anchored(what):
    """All that is acknowledged after the error is accepted by the next opening, and older copies are refused then."""
    for at in range(1, 5):

        class Failing(Elsewhere):
            async def write(self, content, at=at):
                if what == "the anchor" and self.writes + 1 == at:
                    self.writes += 1
                    raise OSError("no space")
                await super().write(content)

        class Store(MemoryStore):
            count = 0

            async def commit(self, *changes, at=at):
                self.count += 1
                fails = what != "the anchor" and self.count == at
                if not fails or what == "a commit that was made":
                    await super().commit(*changes)
                if fails:
                    raise StoreError("no space")

        inner, anchor, acknowledged = Store(), Failing(), set()
        store = opened(inner, anchor)
        for number in range(4):
            with suppress(StoreError):
                await store.commit(Put((*ANN, number), b"v"))
                acknowledged.add(number)
        found = {item.key[2] async for item in opened(inner, anchor).scan(ANN)}
        assert acknowledged <= found
        assert len(acknowledged) >= 3
        old = rows_of(inner)
        await opened(inner, anchor).commit(Put((*ANN, 9), b"v"))
        with pytest.raises(RolledBackError):
            await opened(with_rows(old), anchor).get((*ANN, 0))


async def test_an_anchor_that_may_be_behind_is_written_later_and_at_the_end():
    """With `anchor_every` not each commit writes it; a while later, and when the store is closed, it knows of all."""
    inner, anchor = MemoryStore(), Elsewhere()
    store = opened(inner, anchor, anchor_every=0.05)
    await store.commit(Put((*ANN, 0), b"v"))
    anchor.written = anyio.Event()
    for number in range(20):
        await store.commit(Put((*ANN, number), b"v"))
    assert anchor.writes < 20
    await anchor.written.wait()
    await store.aclose()
    late = opened(inner, anchor, anchor_every=3600)
    old = rows_of(inner)
    await late.commit(Put((*ANN, 0), b"w"))
    assert await listed(opened(with_rows(old), anchor), ANN)
    await late.aclose()
    with pytest.raises(RolledBackError):
        await opened(with_rows(old), anchor).get((*ANN, 0))


async def test_sessions_leave_few_rows_however_they_end():
    """A closed one leaves none. Of those that were killed the oldest are ended by others; one that lives goes on regardless."""
    inner, anchor = MemoryStore(), Elsewhere()
    for number in range(10):
        async with opened(inner, anchor) as store:
            await store.commit(Put((*ANN, number), b"v"))
    assert sum(item.key[0] == "r" for item in rows_of(inner).values()) == 1
    live = opened(inner, anchor)
    await live.commit(Put((*BOB, 0), b"v"))
    for number in range(100):
        await opened(inner, anchor if number % 3 else None).commit(Put((*ANN, number), b"v"))
    assert sum(item.key[0] == "r" for item in rows_of(inner).values()) < 40
    await live.commit(Put((*BOB, 0), b"w"))
    assert await opened(inner, anchor).verify() == 101


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the moments are the same on any loop
@pytest.mark.parametrize("meddle", MEDDLES)
@pytest.mark.parametrize("name", WRITES)
async def test_a_commit_while_others_commit_leaves_an_anchored_store_sound(name, meddle):
    """At whichever moment another session commits, begins, ends, or anchors the store: no sum is wrong afterwards."""
    for at in some(range(1, 40), 6, thorough=12, salt=f"{name} {meddle}"):
        for first in (False, True):
            inner, anchor = MemoryStore(), Elsewhere()
            await opened(inner, None if first else anchor).commit(*(Put(key(number), b"old") for number in range(5)))
            between = Between(inner)
            store, other = opened(between, None if at % 2 else anchor), opened(inner, anchor)
            await listed(store)
            between.calls = 0

            async def meddling(other=other):
                for step in MEDDLES[meddle]:
                    await make(other, step)
                await other.aclose()

            between.at, between.meddle = at, meddling
            await told(store, WRITES[name])
            await opened(inner, anchor).verify()
            await listed(store, OWNER)
            await store.commit(Put(key(7), b"v"))
            await store.aclose()
            assert await opened(inner, anchor).verify() == len(await listed(opened(inner), ()))


async def test_whatever_sessions_do_only_what_is_older_is_refused():
    """Sessions with and without anchor commit, end and are killed in any order. Of all states since, those that the anchor has seen surpassed are refused, and no other."""
    chance = random.Random(5)
    for _ in range(12 if THOROUGH else 4):
        inner, anchor = MemoryStore(), Elsewhere()
        history = []
        sessions = [opened(inner, anchor)]
        for step in range(60):
            act = chance.random()
            if act < 0.15:
                sessions.append(opened(inner, anchor if chance.random() < 0.7 else None))
            elif act < 0.3 and len(sessions) > 1:
                store = sessions.pop(chance.randrange(len(sessions)))
                if chance.random() < 0.6:
                    await store.aclose()
            elif act < 0.33 and step > 5:
                await opened(inner, anchor).reset_anchor()
                history.clear()
            else:
                store = chance.choice(sessions)
                owner = (ANN, BOB)[chance.random() < 0.5]
                change = DeleteAll(owner) if chance.random() < 0.1 else Put((*owner, chance.randrange(4)), b"v")
                before = rows_of(inner)
                content = anchor.content
                await store.commit(change)
                if rows_of(inner) != before and anchor.content != content:
                    history = [(rows, True) for rows, _ in history] + [(rows_of(inner), False)]
            await opened(inner, anchor).verify()
            for rows, surpassed in history[-5:]:
                if surpassed:
                    with pytest.raises(RolledBackError):
                        await opened(with_rows(rows), anchor).get((*ANN, 0))


async def test_new_keys_for_all_data_leave_an_anchored_store_sound():
    """Rotating its data, with live and killed writers, changes what is compared and what it is compared with alike."""
    inner, anchor = await begun(handles=2)
    live, killed = opened(inner, anchor), opened(inner)
    await live.commit(Put((*ANN, 5), b"v"))
    await killed.commit(Put((*BOB, 5), b"v"))
    old = rows_of(inner)
    await opened(inner, anchor).keys.rotate_data()
    renewed = opened(inner, anchor)
    assert await renewed.verify() == 6
    await renewed.commit(Put((*ANN, 6), b"v"))
    assert sum(item.key[0] == "r" for item in rows_of(inner).values()) == 4
    with pytest.raises(RolledBackError):
        await opened(with_rows(old), anchor).get((*ANN, 5))


async def _removed(store):
    await store.keys.remove("lost")


async def _rotated(store):
    await store.keys.rotate(bytes(32))


async def _sealed_anew(store):
    await store.keys.rotate_data()


async def _removed_by_others(store):
    other = opened(store._store)
    await other.keys.remove("lost")
    await store.commit(Put((*ANN, 0), b"new"))


CHANGES_OF_KEYS = {
    "removed": (_removed, KEY),
    "rotated": (_rotated, bytes(32)),
    "sealed anew": (_sealed_anew, KEY),
    "removed by others": (_removed_by_others, KEY),
}


@pytest.mark.parametrize("change", CHANGES_OF_KEYS)
async def test_keys_that_were_put_back_are_refused(change):
    """The key row from before, alone or with the whole store, does not open for whoever has the anchor, with a key that was removed nor another."""
    inner, anchor = await begun()
    store, lost = opened(inner, anchor), bytes(range(1, 33))
    await store.keys.add("lost", lost)
    old, place = rows_of(inner), encode(("k",))
    work, now = CHANGES_OF_KEYS[change]
    await work(store)
    await store.aclose()
    for rows in (old, {**rows_of(inner), place: old[place]}):
        for secret in (KEY, lost, now):
            with pytest.raises(RolledBackError, match="graphagent anchor reset"):
                await EncryptedStore(with_rows(rows), secret, anchor=anchor).get((*ANN, 0))
    async with EncryptedStore(inner, now, anchor=anchor) as newest:
        assert await newest.get((*ANN, 0))


async def test_a_destroyed_store_does_not_come_back():
    """A copy from before is refused; what is left says that its keys were destroyed, with and without the anchor."""
    inner, anchor = await begun()
    old = rows_of(inner)
    async with opened(inner, anchor) as store:
        await store.keys.destroy()
    with pytest.raises(RolledBackError):
        await opened(with_rows(old), anchor).get((*ANN, 0))
    for each in (None, anchor):
        with pytest.raises(DestroyedStoreError):
            await opened(inner, each).get((*ANN, 0))


async def test_keys_changed_while_a_store_is_opened_are_not_taken_for_older_ones():
    """The keys are read before the anchor; what others change in between is read again."""
    inner, anchor = await begun()

    class Meddled(Elsewhere):
        async def read(self):
            await opened(inner, anchor).keys.add(f"key {self.writes}", os.urandom(32))
            self.writes += 1
            return anchor.content

    async with opened(inner, Meddled()) as store:
        assert await store.verify() == 2


class Seen(Elsewhere):
    """An anchor at which something else may happen as well whenever it is read or written."""

    def __init__(self, held, between):
        self.held, self.between = held, between

    async def read(self):
        await self.between.step()
        content = self.held.content
        await self.between.step()
        return content

    async def write(self, content):
        await self.between.step()
        await self.held.write(content)
        await self.between.step()


@pytest.mark.parametrize("begins", ["a new store", "a store without an anchor"])
@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.parametrize("use", ["commit", "scan"])
async def test_processes_that_begin_at_once_have_one_anchor(use, leaves, begins):
    """At each moment at which one of them waits, another one makes its first commits: both go on, and a third one finds all that is acknowledged."""
    at, calls = 0, 1
    while at < calls:
        at += 1
        inner, anchor, others = MemoryStore(), Elsewhere(), []
        if begins == "a store without an anchor":
            await opened(inner).commit(Put((*BOB, 0), b"old"))
        between = Between(inner)

        async def meddle(inner=inner, anchor=anchor, others=others):
            others.append(opened(inner, anchor))
            for number in range(2):
                await others[0].commit(Put((*ANN, number), b"theirs"))
            if leaves:
                await others[0].aclose()

        between.at, between.meddle = at, meddle
        store = opened(between, Seen(anchor, between))
        await USES[use](store)
        await store.commit(Put((*ANN, 2), b"mine"))
        calls = between.calls
        if others and not leaves:
            await others[0].commit(Put((*ANN, 3), b"theirs"))
        async with opened(inner, anchor) as third:
            found = {item.key[2] async for item in third.scan(ANN)}
            assert found == {2, *((0, 1) if others else ()), *((3,) if others and not leaves else ())}
            await third.verify()
    assert calls > 10


# Files


async def test_a_file_put_back_is_refused_and_an_anchor_survives_what_happens_to_it(tmp_path):
    """With real files: the whole store put back, its log removed; and of the anchor, either slot damaged, or all of it."""
    path, place = tmp_path / "store.db", tmp_path / "elsewhere.anchor"

    def store():
        return EncryptedStore(SqliteStore(path), KEY, anchor=place)

    async with store() as one:
        await one.commit(Put((*ANN, 0), b"old"))
    shutil.copy(path, tmp_path / "old.db")
    async with store() as one:
        await one.commit(Put((*ANN, 0), b"new"))
        for file in ("store.db", "store.db-wal"):  # as a process that is killed leaves them
            shutil.copy(tmp_path / file, tmp_path / f"killed-{file}")
    new = path.read_bytes()
    content = place.read_bytes()
    assert place.stat().st_mode & 0o077 == 0
    for old in ("old.db", "killed-store.db"):
        shutil.copy(tmp_path / old, path)
        with pytest.raises(RolledBackError):
            async with store() as one:
                await one.get((*ANN, 0))
    path.write_bytes(new)
    for at in some(range(4096), 10, thorough=60) + some(range(4096, 8192), 10, thorough=60):
        place.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
        async with store() as one:
            assert (await one.get((*ANN, 0))).value == b"new"
    for damaged in (b"", b"\0" * 8192, os.urandom(8192), content[:20]):
        place.write_bytes(damaged)
        with pytest.raises(AnchorError, match="damaged"):
            async with store() as one:
                await one.get((*ANN, 0))
    place.unlink()
    place.mkdir()  # it cannot be written, so nothing is accepted
    before = path.read_bytes()
    with pytest.raises(AnchorError, match="directory"):
        await store().reset_anchor()
    assert path.read_bytes() == before
    place.rmdir()
    place.write_bytes(content[:100] + bytes(8000))
    async with store() as one:
        await one.reset_anchor()
        await one.commit(Put((*ANN, 0), b"newest"))
    place.unlink()
    with pytest.raises(AnchorError, match="missing"):
        async with store() as one:
            await one.get((*ANN, 0))


async def test_a_loss_of_power_is_not_taken_for_an_older_copy(tmp_path):
    """With NORMAL, commits may be lost that the system had not written yet. The anchor never knows of one of these."""
    path = tmp_path / "store.db"
    kept = []

    class Disk(SqliteStore):
        async def sync(self):
            await super().sync()
            files = {file: (tmp_path / file).read_bytes() for file in ("store.db", "store.db-wal")}
            self.durable = files

    disk = Disk(path, synchronous="NORMAL")
    plain = SqliteStore(path, synchronous="NORMAL")

    class Noting(Elsewhere):
        async def write(self, content):
            await super().write(content)
            kept.append((disk.durable, content))

    anchor = Noting()
    store, other = EncryptedStore(disk, KEY, anchor=anchor), EncryptedStore(plain, KEY)
    for number in range(20):
        await store.commit(Put((*ANN, number), b"v"))
        await other.commit(Put((*BOB, number), b"v"))
        if number % 7 == 0:
            await EncryptedStore(plain, KEY).commit(Put((*BOB, number), b"w"))
    assert len(kept) == 22  # the first two before and after the store was anchored
    for number, (files, content) in enumerate(kept):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, data in files.items():
            (folder / name).write_bytes(data)
        async with EncryptedStore(SqliteStore(folder / "store.db"), KEY, anchor=Elsewhere(content)) as left:
            assert len(await listed(left, ANN)) >= number - 1


_WRITER = """
import sys, anyio, random
from graphagent.store import DeleteAll, EncryptedStore, Put, SqliteStore

async def main(path, anchor, number, synchronous, every):
    chance = random.Random(number)
    while True:
        store = EncryptedStore(SqliteStore(path, synchronous=synchronous), bytes(range(32)), anchor=anchor, anchor_every=float(every))
        for count in range(chance.randrange(1, 30)):
            owner = str(chance.randrange(3))
            change = DeleteAll(("room", owner)) if chance.random() < 0.03 else Put(("room", owner, number, count), b"v")
            await store.commit(change)
        if chance.random() < 0.7:
            await store.aclose()
        print("x", flush=True)

anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5])
"""


@pytest.mark.parametrize(("synchronous", "every"), [("FULL", "0"), ("NORMAL", "0.01")])
async def test_writers_killed_at_any_moment_leave_a_store_that_its_anchor_accepts(tmp_path, synchronous, every):
    """Four processes write and are killed with kill -9, again and again: opening never finds an older copy."""
    path, place, script = tmp_path / "store.db", tmp_path / "a.anchor", tmp_path / "writer.py"
    script.write_text(_WRITER)
    chance = random.Random(7)
    async with EncryptedStore(SqliteStore(path), KEY, anchor=place) as store:
        await store.commit(Put(("room", "first"), b"v"))
    for round_ in range(8 if THOROUGH else 2):
        writers = [
            forkserver.Popen(
                [sys.executable, str(script), str(path), str(place), str(round_ * 4 + number), synchronous, every],
                stdout=-1,
            )
            for number in range(4)
        ]
        for writer in writers:
            await anyio.to_thread.run_sync(writer.stdout.readline)
        for writer in writers:
            await anyio.sleep(chance.random() * 0.05)
            writer.kill()
        for writer in writers:
            assert await anyio.to_thread.run_sync(writer.wait) == -signal.SIGKILL  # and not by an error of its own
            writer.stdout.close()
        async with EncryptedStore(SqliteStore(path), KEY, anchor=place) as store:
            assert await store.verify() > 0
            await store.commit(Put(("room", "round"), b"v"))


async def test_an_anchor_in_the_keyring(monkeypatch):
    """It is an entry of the keyring, which needs no file; one that is locked, or that has something else, is not taken for a missing one."""
    keyring = Memory()
    monkeypatch.setattr("keyring.core._keyring_backend", keyring)
    inner, place = MemoryStore(), "keyring:graphagent/notes"
    await opened(inner, place).commit(Put((*ANN, 0), b"old"))
    old = rows_of(inner)
    await opened(inner, place).commit(Put((*ANN, 0), b"new"))
    with pytest.raises(RolledBackError):
        await opened(with_rows(old), place).get((*ANN, 0))
    good = keyring.get_password("graphagent", "notes")
    assert len(good) < 1200  # what the smallest keyrings have room for
    keyring.set_password("graphagent", "notes", "something else")
    with pytest.raises(AnchorError, match="damaged"):
        await opened(inner, place).get((*ANN, 0))
    keyring.set_password("graphagent", "notes", good)
    assert (await opened(inner, place).get((*ANN, 0))).value == b"new"
    for other in ("something else", new_key()):  # the key of a store, perhaps
        keyring.set_password("graphagent", "notes", other)
        before = rows_of(inner)
        with pytest.raises(AnchorError, match=r"is not an anchor|something else"):
            await opened(inner, place).reset_anchor()
        assert keyring.get_password("graphagent", "notes") == other
        assert rows_of(inner) == before
    monkeypatch.setattr("keyring.core._keyring_backend", Keyring())
    with pytest.raises(AnchorError, match="NoKeyringError"):
        await opened(inner, place).get((*ANN, 0))


async def test_facts_have_an_anchor_too(tmp_path):
    """`EncryptedMemoryProvider` takes one, and refuses an older copy of its file."""

    def provider():
        return EncryptedMemoryProvider(tmp_path / "facts", key=KEY, anchor=tmp_path / "a.anchor", anchor_every=3600)

    subject, scope, city = Subject("user"), Scope.product("app"), Concept("city")
    for value in ("Oslo", "Bergen"):
        shutil.copytree(tmp_path / "facts", tmp_path / value) if value == "Bergen" else None
        async with provider() as facts:
            await facts.save(SingleFact(city, value), subject, scope, owner="ada")
    shutil.rmtree(tmp_path / "facts")
    shutil.copytree(tmp_path / "Bergen", tmp_path / "facts")
    with pytest.raises(RolledBackError):
        async with provider() as facts:
            await facts.load(city, subject, scope, owner="ada")
