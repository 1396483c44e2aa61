"""What sealing adds to a store: forgery is refused, nothing is shown, keys are needed, and much of it costs nothing more."""

from __future__ import annotations

import asyncio
import copy
import logging
import pickle
import traceback

import anyio
import anyio.lowlevel
import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphagent.errors import ConflictError, DamagedStoreError, StoreError, WrongKeyError
from graphagent.store import Delete, DeleteAll, EncryptedStore, Exists, Item, MemoryStore, Put, SqliteStore
from graphagent.store._items import encode
from graphagent.store.sealed import _session
from graphagent.store.sealed._format import padded_size
from tests.thorough import examples

KEY = bytes(range(32))
A1, A2, A3 = ("room", "ann", "x", 1), ("room", "ann", "x", 2), ("room", "ann", "y", 1)
B1, B2 = ("room", "bob", "x", 1), ("room", "bob", "x", 2)


def sealed(inner, key=KEY, **how):
    return EncryptedStore(inner, key, **how)


def rows_of(inner):
    return {item.key: item for item in inner._items._entries.values()}


def put_rows(inner, rows):
    """Make a memory store hold exactly these rows, as someone who can write its file could."""
    fresh = MemoryStore()
    for key, item in rows.items():
        fresh._items.put(encode(key), Item(key, item.value, item.version))
    inner._items = fresh._items


async def all_of(store, prefix=()):
    return [item async for item in store.scan(prefix)]


async def filled():
    """Give a store within with two domains, what it was one commit before, and the blinded places of the items."""
    inner = MemoryStore()
    store = sealed(inner)
    await store.commit(Put(A1, b"a1"), Put(A2, b"a2"), Put(A3, b"a3"), Put(B1, b"b1"))
    before = rows_of(inner)
    await store.commit(Put(A2, b"a2 new"), Put(B2, b"b2"))
    blind = (await store._sealed().ready()).blind
    return inner, store, before, {key: ("i", *blind(key)) for key in (A1, A2, A3, B1, B2)}


def swapped(one, two, *, versions):
    def attack(rows, before, at):
        first, second = rows[at[one]], rows[at[two]]
        rows[at[one]] = Item(at[one], second.value, second.version if versions else first.version)
        rows[at[two]] = Item(at[two], first.value, first.version if versions else second.version)

    return attack


def renamed(rows, before, at):
    item = rows.pop(at[A1])
    place = (*at[A1][:-1], 9)
    rows[place] = Item(place, item.value, item.version)


def replayed(*, version):
    def attack(rows, before, at):
        rows[at[A2]] = Item(at[A2], before[at[A2]].value, version)

    return attack


def relabelled(version):
    def attack(rows, before, at):
        rows[at[A1]] = Item(at[A1], rows[at[A1]].value, version)

    return attack


def without(*wanted):
    def attack(rows, before, at):
        for key in list(rows):
            if any(test(key, at) for test in wanted):
                del rows[key]

    return attack


def is_item(*which):
    return lambda key, at: key in {at[each] for each in which}


def is_row(kind, whose=None):
    return lambda key, at: key[0] == kind and (whose is None or key[1:3] == at[whose][1:3])


def plain(rows, before, at):
    rows[at[A1]] = Item(at[A1], b'{"value": "plain"}', 1)


def added(rows, before, at):
    place = (*at[A1][:-1], 77)
    rows[place] = Item(place, rows[at[A1]].value, 1)


def added_in_a_new_domain(rows, before, at):
    place = ("i", "some", "where")
    rows[place] = Item(place, rows[at[A1]].value, 1)


def copied_domain(rows, before, at):
    [row] = [key for key in rows if is_row("d", A1)(key, at)]
    other = (*row, 7)
    rows[other] = Item(other, rows[row].value, rows[row].version)


def old_row(kind):
    def attack(rows, before, at):
        for key, item in before.items():
            if is_row(kind, A1)(key, at):
                rows[key] = item

    return attack


def old_row_relabelled(rows, before, at):
    for key, item in before.items():
        if is_row("d", A1)(key, at):
            rows[key] = Item(key, item.value, rows[key].version)


ATTACKS = {
    "swap in a domain": swapped(A1, A3, versions=False),
    "swap in a domain, versions too": swapped(A1, A2, versions=True),
    "swap between domains": swapped(A1, B1, versions=True),
    "rename": renamed,
    "replay, old version": replayed(version=1),
    "replay, new version": replayed(version=2),
    "relabel up": relabelled(2),
    "relabel far up": relabelled(2**62),
    "delete an item": without(is_item(A1)),
    "delete the newest": without(is_item(A2)),
    "delete all items of a domain": without(is_item(A1, A2, A3)),
    "delete the row of a domain": without(is_row("d", A1)),
    "delete a domain": without(is_row("d", A1), is_item(A1, A2, A3)),
    "delete all rows of domains": without(is_row("d")),
    "delete all domains": without(is_row("d"), is_row("i")),
    "delete the root": without(is_row("r")),
    "delete the keys": without(is_row("k")),
    "delete the keys and the root": without(is_row("k"), is_row("r")),
    "plain text in place of an item": plain,
    "an item more": added,
    "a domain twice": copied_domain,
    "old row of a domain": old_row("d"),
    "old row of a domain, relabelled": old_row_relabelled,
}


async def outcomes(store):
    """Read everything that is of domain A in every way; gives what came of it."""
    found = []
    for read in (
        lambda: store.get(A1),
        lambda: store.get(A2),
        lambda: store.get(A3),
        lambda: all_of(store, ("room", "ann")),
        lambda: all_of(store),
        lambda: store.verify(),
    ):
        try:
            found.append(await read())
        except DamagedStoreError:
            found.append(DamagedStoreError)
    return found


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("live", [False, True], ids=["fresh", "live"])
async def test_forgery_is_refused(name, live):
    """Whatever is done to the rows without the key: what is read is either right or refused, and verify refuses it."""
    inner, store, before, at = await filled()
    right = await outcomes(store)
    rows = rows_of(inner)
    ATTACKS[name](rows, before, at)
    put_rows(inner, rows)
    forged = rows_of(inner)
    found = await outcomes(store if live else sealed(inner))
    assert found[-1] is DamagedStoreError
    assert all(each in (DamagedStoreError, wanted) for each, wanted in zip(found, right, strict=True)), found
    if not live:
        assert found[3] is DamagedStoreError, "reading the whole domain for the first time finds it"
    assert rows_of(inner) == forged, "nothing is changed or deleted"


async def test_a_row_in_no_domain_is_found_by_verify():
    """A row that belongs to nothing is never read, and verify refuses it."""
    inner, _, before, at = await filled()
    rows = rows_of(inner)
    added_in_a_new_domain(rows, before, at)
    put_rows(inner, rows)
    assert len(await all_of(sealed(inner))) == 5
    with pytest.raises(DamagedStoreError, match="rows"):
        await sealed(inner).verify()


@pytest.mark.parametrize(
    "name", ["delete the newest", "replay, old version", "plain text in place of an item", "an item more"]
)
async def test_nothing_is_put_over_what_is_damaged(name):
    """A commit over a forged item is refused, in a live store and in a fresh one."""
    for live in (False, True):
        inner, store, before, at = await filled()
        rows = rows_of(inner)
        ATTACKS[name](rows, before, at)
        put_rows(inner, rows)
        changes = [Put(A1, b"n"), Put(A2, b"n"), Put(("room", "ann", "x", 77), b"n")]
        with pytest.raises(DamagedStoreError):
            await (store if live else sealed(inner)).commit(*changes)
        assert rows_of(inner) == rows


async def test_the_row_of_a_removed_domain_cannot_come_back():
    """A domain that was forgotten stays forgotten, also when its rows are put back."""
    inner, store, _, _ = await filled()
    old = rows_of(inner)
    await store.commit(DeleteAll(("room", "ann")))
    back = {**old, **rows_of(inner)}
    put_rows(inner, back)
    for each in (store, sealed(inner)):
        with pytest.raises(DamagedStoreError):
            await each.verify()
    with pytest.raises(DamagedStoreError):
        await sealed(inner).get(A1)


async def test_every_byte_counts():
    """A flipped bit in any byte of any row, and a row cut anywhere, is refused by verify as damage."""
    inner, _, _, _ = await filled()
    rows = rows_of(inner)
    kinds = {}
    for key, item in rows.items():
        kinds.setdefault(key[0], (key, item))
    assert set(kinds) == {"k", "r", "d", "i"}
    for number, (key, item) in enumerate(kinds.values()):
        for place in range(number % 3, len(item.value), 3):
            changed = bytearray(item.value)
            changed[place] ^= 1 << (place % 8)
            for value in (bytes(changed), item.value[:place]):
                put_rows(inner, {**rows, key: Item(key, value, item.version)})
                with pytest.raises(DamagedStoreError):
                    await sealed(inner).verify()


async def test_two_stores_cannot_be_mixed():
    """Rows of another store of the same key are refused, whichever they are."""
    inner, _, _, _ = await filled()
    other, _, _, _ = await filled()
    ours, theirs = rows_of(inner), rows_of(other)
    for kind in ("k", "r", "d", "i"):
        mixed = {key: item for key, item in ours.items() if key[0] != kind}
        mixed |= {key: item for key, item in theirs.items() if key[0] == kind}
        put_rows(inner, mixed)
        with pytest.raises(DamagedStoreError):
            await sealed(inner).verify()
        with pytest.raises(DamagedStoreError):
            await sealed(inner).commit(Put(A1, b"v"))


async def test_another_key_opens_nothing():
    """With another key every operation raises a WrongKeyError that shows no key, and nothing is changed."""
    inner, _, _, _ = await filled()
    rows = rows_of(inner)
    wrong = b"another key, of thirty-two bytes"
    for operation in (
        lambda store: store.get(A1),
        lambda store: all_of(store),
        lambda store: store.commit(Put(A1, b"v")),
        lambda store: store.commit(DeleteAll(())),
        lambda store: store.verify(),
    ):
        with pytest.raises(WrongKeyError) as caught:
            await operation(sealed(inner, wrong))
        assert "another key, of" not in "".join(traceback.format_exception(caught.value))
        assert rows_of(inner) == rows


@settings(max_examples=examples(150), deadline=None)
@given(st.binary(max_size=400), st.sampled_from(["k", "r", "d", "i"]), st.booleans())
def test_garbage_rows_are_damage(garbage, kind, keep_head):
    """Whatever bytes stand in a row, reading raises the typed error and nothing else."""

    async def check():
        inner, _, _, _ = await filled()
        rows = rows_of(inner)
        key = next(each for each in rows if each[0] == kind)
        value = rows[key].value[: 61 if keep_head else 0] + garbage
        put_rows(inner, {**rows, key: Item(key, value, rows[key].version)})
        with pytest.raises((DamagedStoreError, WrongKeyError)):
            await sealed(inner).verify()

    anyio.run(check)


# Several writers


async def test_handles_over_one_store_see_each_other():
    """What one handle does, the other reads at once: new items and domains, changes, removals and new beginnings."""
    inner = MemoryStore()
    one, two = sealed(inner), sealed(inner)
    assert await two.get(A1) is None
    await one.commit(Put(A1, b"1"))
    assert (await two.get(A1)).value == b"1"
    await two.commit(Put(A1, b"2"), Put(B1, b"b"))
    assert (await one.get(A1)).version == 2
    assert [item.value for item in await all_of(one)] == [item.value for item in await all_of(two)]
    await one.commit(DeleteAll(("room", "ann")))
    assert await two.get(A1) is None
    await one.commit(Put(A1, b"again"))
    assert await two.get(A1) == Item(A1, b"again", 1)
    await two.commit(Delete(A1))
    assert await one.get(A1) is None
    assert await all_of(one, ("room", "ann")) == []
    await two.commit(Put(A1, b"third"))
    await one.commit(Put(A1, b"fourth", expected=1))
    assert (await two.get(A1)).value == b"fourth"
    with pytest.raises(ConflictError):
        await two.commit(Put(A1, b"no", expected=1))
    assert await one.verify() == await two.verify() == 2


async def test_handles_that_write_at_once():
    """Several handles that write to the same domains at once lose nothing, and each condition holds for one of them."""
    inner = MemoryStore()
    handles = [sealed(inner) for _ in range(4)]
    won = []

    async def work(handle, name):
        for number in range(25):
            await handle.commit(Put(("r", "shared", name, number), b"v"), Put(("r", "count", 0), b"v"))
            await handle.commit(Put(("r", f"own-{name}-{number % 3}", number), b"v"))
            await anyio.lowlevel.checkpoint()
            try:
                await handle.commit(Put(("r", "once", number), name.encode(), expected=0))
                won.append((number, name.encode()))
            except ConflictError:
                pass
            assert len(await all_of(handle, ("r", "shared", name))) == number + 1
            if number % 5 == 4:
                await handle.commit(DeleteAll(("r", f"own-{name}-0")))

    async with anyio.create_task_group() as group:
        for number, handle in enumerate(handles):
            group.start_soon(work, handle, f"n{number}")
    for handle in (*handles, sealed(inner)):
        assert len(await all_of(handle, ("r", "shared"))) == 100
        assert (await handle.get(("r", "count", 0))).version == 100
        assert {(item.key[2], item.value) for item in await all_of(handle, ("r", "once"))} == set(won)
        assert await handle.verify() == len(await all_of(handle))
    assert len(won) == 25


async def test_a_lagging_handle_catches_up(monkeypatch):
    """A handle behind by few commits of many items reads on without reading all again, and does so in the end."""
    inner = MemoryStore()
    one = sealed(inner)
    await one.commit(*(Put(("r", "o", number), b"v") for number in range(500)))
    two = sealed(inner)
    assert (await two.get(("r", "o", 1))).value == b"v"
    await one.commit(Put(("r", "o", 1), b"w"))
    scans = []
    scan = inner.scan
    monkeypatch.setattr(inner, "scan", lambda prefix, **how: scans.append(prefix) or scan(prefix, **how))
    assert (await two.get(("r", "o", 1))).value == b"w"
    assert await two.get(("r", "o", 1000)) is None
    await two.commit(Put(("r", "o", 1000), b"x"), Put(("r", "o", 2), b"y"), Delete(("r", "o", 3)))
    assert len(await all_of(two, ("r", "o"))) == 500
    full = [prefix for prefix in scans if len(prefix) == 3]
    assert len(full) <= 1, "only the scan that was asked for went over all"
    for _ in range(60):
        await two.get(("r", "o", 5))
    [domain] = list(two._sealed().session._domains.values())
    assert domain.members is not None
    assert len(domain.members) == 500
    assert await one.verify() == 500


async def test_a_lagging_handle_still_refuses_forgery():
    """Behind or not: an item that was changed, moved or relabelled is refused."""
    for attack in ("swap in a domain", "rename", "relabel up", "plain text in place of an item"):
        inner, store, before, at = await filled()
        await store.commit(*(Put(("room", "ann", "more", number), b"v") for number in range(300)))
        late = sealed(inner)
        await late.get(A1)
        await store.commit(Put(A3, b"other"))
        await late.get(A3)
        rows = rows_of(inner)
        ATTACKS[attack](rows, before, at)
        put_rows(inner, rows)
        if attack == "rename":
            with pytest.raises(DamagedStoreError):
                await all_of(late, ("room", "ann"))
        else:
            with pytest.raises(DamagedStoreError):
                await late.get(A1)


# Domains


async def test_depths_are_kept_with_the_store():
    """The depth of a room is what it was made with; another declaration is refused, none is fine."""
    inner = MemoryStore()
    key = ("facts", "o", "k", "n", "s", "w", 1)
    await sealed(inner, domains={"facts": 5}).commit(Put(key, b"v"), Put(("runs", "id", 1), b"v"))
    assert (await sealed(inner).get(key)).value == b"v"
    assert len(await all_of(sealed(inner, domains={"facts": 5, "runs": 2}))) == 2
    with pytest.raises(StoreError, match="5 segments, not 3"):
        await sealed(inner, domains={"facts": 3}).get(key)
    with pytest.raises(ValueError, match="1 to 255"):
        sealed(inner, domains={"facts": 0})


async def test_forgetting_a_domain_destroys_its_key():
    """DeleteAll over a domain removes its rows and its key; over a part of one only the items."""
    inner = MemoryStore()
    store = sealed(inner, domains={"facts": 3})
    for owner in ("ann", "bob"):
        await store.commit(
            *(Put(("facts", owner, subject, number), b"v") for subject in ("s", "t") for number in range(3))
        )
    assert len([key for key in rows_of(inner) if key[0] == "d"]) == 4
    await store.commit(DeleteAll(("facts", "ann", "s", 1)))
    assert len([key for key in rows_of(inner) if key[0] == "d"]) == 4
    assert len(await all_of(store)) == 11
    await store.commit(DeleteAll(("facts", "ann", "s")))
    assert len([key for key in rows_of(inner) if key[0] == "d"]) == 3
    await store.commit(DeleteAll(("facts", "bob")))
    assert {key[0] for key in rows_of(inner)} == {"k", "r", "d", "i"}
    assert len(rows_of(inner)) == 3 + 1 + 3
    assert await sealed(inner).verify() == 3
    await store.commit(*(Delete(("facts", "ann", "t", number)) for number in range(3)))
    assert len(rows_of(inner)) == 3, "a domain whose last item is deleted goes too"


async def test_a_save_reads_and_writes_the_same_at_any_size():
    """A save makes one commit of two rows, whether the domain holds ten items or thousands."""
    for size in (10, 3000):
        inner = MemoryStore()
        store = sealed(inner)
        await store.commit(*(Put(("r", "o", number), b"v" * 100) for number in range(size)))
        commits, gets, commit, get = [], [], inner.commit, inner.get

        async def counted(*changes, commits=commits, commit=commit):
            commits.append(changes)
            await commit(*changes)

        async def got(key, gets=gets, get=get):
            gets.append(key)
            return await get(key)

        inner.commit, inner.get, inner.scan = counted, got, None
        await store.commit(Put(("r", "o", size), b"v" * 100))
        await store.commit(Put(("r", "o", 0), b"v" * 100))
        await store.get(("r", "o", 5))
        assert [len([each for each in changes if isinstance(each, Put)]) for changes in commits] == [2, 2]
        assert len(gets) <= 2


async def test_tasks_that_come_at_once_read_a_domain_once():
    """Tasks that use a store for the first time at once open it once, and read the domain in full once."""
    inner = MemoryStore()
    await sealed(inner).commit(*(Put(("r", "o", number), b"v") for number in range(300)))
    store, scans, scan = sealed(inner), [], inner.scan

    def counted(prefix, **how):
        scans.append(prefix)
        return scan(prefix, **how)

    inner.scan = counted
    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(store.get, ("r", "o", number))
    assert scans.count(("d",)) == 1
    assert sum(prefix[0] == "i" for prefix in scans) == 1


async def test_concurrent_commits_share_one():
    """Commits that wait while another is under way are made together, with one row for the domain."""
    inner = MemoryStore()
    store = sealed(inner)
    await store.commit(Put(("r", "o", 0), b"v"))
    sizes, commit = [], inner.commit

    async def slow(*changes):
        sizes.append(len([each for each in changes if isinstance(each, Put)]))
        await anyio.sleep(0.01)
        await commit(*changes)

    inner.commit = slow
    async with anyio.create_task_group() as group:
        for number in range(1, 21):
            group.start_soon(store.commit, Put(("r", "o", number), b"v"))
    assert sizes == [2, 20]
    assert len(await all_of(store)) == 21


async def test_a_read_while_a_commit_lands():
    """A read between a commit's landing and its return gives the new state, and costs no second reading of the domain."""
    inner = MemoryStore()
    store = sealed(inner)
    await store.commit(*(Put(("r", "o", number), b"v") for number in range(200)))
    commit, landed, go_on = inner.commit, anyio.Event(), anyio.Event()

    async def held(*changes):
        await commit(*changes)
        landed.set()
        await go_on.wait()

    inner.commit = held
    async with anyio.create_task_group() as group:
        group.start_soon(store.commit, Put(("r", "o", 1), b"new"), Put(("s", "o", 1), b"new"), DeleteAll(("r", "o", 7)))
        await landed.wait()
        scans, scan = [], inner.scan
        inner.scan = lambda prefix, **how: scans.append(prefix) or scan(prefix, **how)
        assert (await store.get(("r", "o", 1))).value == b"new"
        assert (await store.get(("s", "o", 1))).value == b"new"
        assert await store.get(("r", "o", 7)) is None
        go_on.set()
    assert not [prefix for prefix in scans if prefix[0] == "i" or prefix == ("d",)]
    inner.scan, inner.commit = scan, commit
    assert await store.verify() == 200


async def test_a_cancelled_leader_does_not_hold_up_the_others():
    """When the task that commits for all is cancelled, the others' commits are made all the same."""
    inner = MemoryStore()
    store = sealed(inner)
    await store.commit(Put(("r", "o", 0), b"v"))
    commit = inner.commit

    async def slow(*changes):
        await anyio.sleep(0.02)
        await commit(*changes)

    inner.commit = slow
    async with anyio.create_task_group() as group:
        scopes = {}

        async def one(number):
            with anyio.CancelScope() as scopes[number]:
                await store.commit(Put(("r", "o", number), b"v"))

        for number in range(1, 7):
            group.start_soon(one, number)
        await anyio.sleep(0.01)
        leader, follower, *others = scopes  # in the order in which they began
        scopes[leader].cancel()
        scopes[follower].cancel()
    await store.commit(Put(("r", "o", 9), b"v"))
    numbers = {item.key[2] for item in await all_of(store)}
    assert {0, 9, *others} <= numbers
    assert follower not in numbers
    assert await store.verify() == len(numbers)


@pytest.mark.parametrize("together", [1, 4])
@pytest.mark.parametrize("landed", [True, False])
def test_a_task_cancelled_by_asyncio_itself_breaks_no_other_off(together, landed):
    """Task.cancel, which knows no shield, ends the commit of its task at most, whoever leads and however far it is."""

    async def check():
        inner = MemoryStore()
        store = sealed(inner)
        await store.commit(Put(("r", "o", 0), b"v"))
        commit, begun, go_on = inner.commit, asyncio.Queue(), asyncio.Queue()

        async def held(*changes):
            if landed:
                await commit(*changes)
            begun.put_nowait(None)
            await go_on.get()
            if not landed:
                await commit(*changes)

        inner.commit = held
        first = asyncio.create_task(store.commit(Put(("r", "first"), b"v")))
        await begun.get()
        leader, *others = [
            asyncio.create_task(store.commit(Put(("r", "o", number), b"v"))) for number in range(1, together + 1)
        ]
        await asyncio.sleep(0.01)
        go_on.put_nowait(None)
        await begun.get()
        leader.cancel()
        late = asyncio.create_task(store.commit(Put(("r", "o", 9), b"v")))
        for _ in range(9):
            go_on.put_nowait(None)
        assert await asyncio.gather(first, *others, late) == [None] * (together + 1)
        with pytest.raises(asyncio.CancelledError):
            await leader
        numbers = {item.key[2] for item in await all_of(store, ("r", "o"))}
        assert numbers - {1} == {0, *range(2, together + 1), 9}
        assert (1 in numbers) == (together > 1 or landed)
        assert await store.verify() == len(numbers) + 1

    asyncio.run(check())


async def test_tasks_that_wait_for_a_store_to_open_meet_its_error_too():
    """Where it cannot be opened, no task that waited meanwhile is told that the store is empty."""
    inner = MemoryStore()
    await sealed(inner).commit(Put(("r", "o", 0), b"v"))
    other, errors = sealed(inner, bytes(32)), []

    async def one():
        try:
            await other.get(("r", "o", 0))
        except WrongKeyError as error:
            errors.append(error)

    get = inner.get

    async def slow(key):
        await anyio.sleep(0.01)
        return await get(key)

    inner.get = slow
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(one)
    assert len(errors) == 3


async def test_a_task_that_only_commits_can_be_cancelled(tmp_path):
    """A task that does nothing but commit to a file ends when it is cancelled."""
    async with sealed(SqliteStore(tmp_path / "s.db", synchronous="NORMAL")) as store:
        await store.commit(Put(A1, b"again"))
        with anyio.move_on_after(0.05) as scope:
            for _ in range(100_000):
                await store.commit(Put(A1, b"again"))
        assert scope.cancelled_caught
        assert (await store.get(A1)).value == b"again"


async def test_a_failing_store_within_fails_all_that_wait():
    """An error of the store within reaches every waiting commit, and leaves the store usable."""
    inner = MemoryStore()
    store = sealed(inner)
    await store.commit(Put(("r", "o", 0), b"v"))
    commit, failed = inner.commit, []

    async def failing(*changes):
        await anyio.sleep(0.01)
        raise StoreError("no space")

    async def one(number):
        try:
            await store.commit(Put(("r", "o", number), b"v"))
        except StoreError as error:
            failed.append(error)

    inner.commit = failing
    async with anyio.create_task_group() as group:
        for number in range(1, 6):
            group.start_soon(one, number)
    assert [str(error) for error in failed] == ["no space"] * 5
    assert len({id(error) for error in failed}) == 5
    inner.commit = commit
    await store.commit(Put(("r", "o", 1), b"v"))
    assert await store.verify() == 2


async def test_a_commit_that_landed_unseen():
    """A commit whose answer was lost may have landed; the store goes on either way."""
    inner = MemoryStore()
    store = sealed(inner)
    await store.commit(*(Put(("r", "o", number), b"v") for number in range(100)))
    commit = inner.commit

    async def lost(*changes):
        await commit(*changes)
        raise StoreError("the answer was lost")

    inner.commit = lost
    with pytest.raises(StoreError, match="lost"):
        await store.commit(Put(("r", "o", 1), b"new"), Put(("s", "o", 1), b"new"))
    inner.commit = commit
    assert (await store.get(("r", "o", 1))).value == b"new"
    await store.commit(Put(("r", "o", 1), b"newer", expected=2))
    assert await store.verify() == 101


async def test_old_domains_are_forgotten_first():
    """What is known of domains is bounded; one that was let go is read again, whoever wrote it meanwhile."""
    inner = MemoryStore()
    other = sealed(inner)
    await other.commit(*(Put(("r", f"o{a}", b), b"v") for a in range(20) for b in range(10)))
    store = sealed(inner, cache_bytes=5 * 2 * (_session._DOMAIN_BYTES + 10 * _session._ITEM_BYTES))
    assert len(await all_of(store)) == 200
    session = store._sealed().session
    assert 0 < len(session._domains) < 12
    assert (await store.get(("r", "o0", 3))).value == b"v"
    await other.commit(Put(("r", "o0", 3), b"w"), DeleteAll(("r", "o1")))
    assert len(await all_of(store, ("r", "o19"))) == 10
    assert (await store.get(("r", "o0", 3))).value == b"w"
    assert await store.get(("r", "o1", 3)) is None
    assert await store.verify() == 190
    for number in range(300):  # a domain that grows makes room too
        await store.commit(Put(("r", "grows", number), b"v"))
    assert session._domains.keys() == {session.path(("r", "grows", 0))}
    await store.aclose()
    assert store._opened is None


@pytest.mark.parametrize("cache_bytes", [0, 20_000])
async def test_many_domains_are_used_at_once_with_little_memory(cache_bytes):
    """Tasks that read and write many domains, while another handle does too, lose nothing and keep little."""
    inner = MemoryStore()
    handles = [sealed(inner, cache_bytes=cache_bytes), sealed(inner, cache_bytes=cache_bytes)]
    most = 0

    async def work(handle, task):
        nonlocal most
        for number in range(20):
            owner = f"o{(number * 7 + task) % 40}"
            await handle.commit(Put(("r", owner, f"t{task}", number), b"v"), Put(("r", f"o{number}", "all"), b"v"))
            assert (await handle.get(("r", owner, f"t{task}", number))).value == b"v"
            assert await handle.get(("r", f"none{number}", 1)) is None
            assert len(await all_of(handle, ("r", owner, f"t{task}"))) >= 1
            most = max(most, len(handle._sealed().session._domains))
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        for task in range(6):
            group.start_soon(work, handles[task % 2], task)
    assert most <= 2 + 2 * 6 + cache_bytes // _session._DOMAIN_BYTES
    for handle in (*handles, sealed(inner)):
        assert (await handle.get(("r", "o3", "all"))).version == 6
        assert len(await all_of(handle)) == 6 * 20 + 20 == await handle.verify()


async def test_a_list_of_domains_that_is_too_long_is_not_kept_but_checked():
    """With little memory, a store of many domains still refuses what was taken away: when it is opened, or after a while."""
    inner = MemoryStore()
    await sealed(inner).commit(*(Put(("r", f"o{number}", 1), b"v") for number in range(50)))
    store = sealed(inner, cache_bytes=1000)
    assert (await store.get(("r", "o7", 1))).value == b"v"
    assert store._sealed().session.listed.members is None
    gone = store._sealed().session.path(("r", "o7"))
    put_rows(inner, {key: item for key, item in rows_of(inner).items() if key[1:3] != gone})
    with pytest.raises(DamagedStoreError):
        await sealed(inner, cache_bytes=1000).get(("r", "o8", 1))
    with pytest.raises(DamagedStoreError):
        for number in range(20):
            await store.get(("r", f"o{10 + number}", 1))


async def test_a_domain_that_a_commit_needs_is_not_let_go():
    """However little memory there is: while a commit is under way, other tasks that read much make room elsewhere."""
    inner = MemoryStore()
    await sealed(inner).commit(*(Put(("r", f"o{number}", 1), b"v") for number in range(20)))
    store = sealed(inner, cache_bytes=0)
    commit = inner.commit
    kept = []

    async def beside(*changes):
        for number in range(2, 20):
            await store.get(("r", f"o{number}", 1))
        session = store._sealed().session
        kept.append({session.path(("r", "o0")), session.path(("r", "o1"))} <= session._domains.keys())
        await commit(*changes)

    inner.commit = beside
    await store.commit(Put(("r", "o0", 1), b"w"), Put(("r", "o1", 1), b"w"))
    assert kept == [True]
    assert len(store._sealed().session._domains) == 1


async def test_a_domain_that_another_handle_removed_is_not_removed_again():
    """A commit that asks for an item of it and then deletes everything leaves the store sound."""
    inner = MemoryStore()
    one, two = sealed(inner), sealed(inner)
    await one.commit(Put(A1, b"v"), Put(B1, b"v"))
    await two.commit(DeleteAll(("room", "ann")))
    assert [item.key for item in await all_of(one)] == [B1]
    await one.commit(DeleteAll(("other",)), Delete(A2), DeleteAll(("room",)), Put(A3, b"new"))
    for handle in (one, two, sealed(inner)):
        assert [item.key for item in await all_of(handle)] == [A3]
        assert await handle.verify() == 1


# What shows


async def test_nothing_in_clear(caplog):
    """Neither keys of items nor values nor the key stand in the rows, the texts, the errors or the log."""
    caplog.set_level(logging.DEBUG)
    inner = MemoryStore()
    store = sealed(inner, b"CANARY-KEY-CANARY-KEY-CANARY-KEY")
    key = ("CANARY-ROOM", "CANARY-OWNER", "CANARY-NAME", 7)
    secret = b"CANARY-VALUE" * 100
    await store.commit(Put(key, secret))
    await store.get(key)
    rows = rows_of(inner)
    shown = [
        repr(store),
        str(store),
        caplog.text,
        repr(vars(store)),
        repr(vars(store._sealed().session)),
        repr(store._sealed().session.writers),
    ]
    shown += [repr(each) for each in store._sealed().session._domains.values()]
    try:
        await store.commit(Put(key, secret, expected=5))
    except ConflictError as error:
        shown += traceback.format_exception(error)
    item = next(row for row in rows.values() if row.key[0] == "i")
    put_rows(inner, {**rows, item.key: Item(item.key, item.value[:-1], 1)})
    try:
        await store.get(key)
    except DamagedStoreError as error:
        shown += traceback.format_exception(error)
    text = "".join(shown).replace("CANARY-ROOM", "")  # a room is named in errors
    assert "CANARY" not in text
    assert "CANARY" not in repr([(row.key, row.value) for row in rows.values()])
    for attempt in (lambda: pickle.dumps(store), lambda: copy.deepcopy(store._key), lambda: pickle.dumps(store._key)):
        with pytest.raises(TypeError):
            attempt()


@pytest.mark.parametrize("size", [0, 1, 256, 257, 1000, 5000, 100_000, 2**20 + 1])
def test_padding_hides_sizes(size):
    """Sizes are shown rounded up: to 256 at least, and by 12 % at most above that."""
    assert size <= padded_size(size) <= max(256, size * 1.12)
    assert padded_size(padded_size(size)) == padded_size(size)


async def test_an_item_that_another_handle_removed_is_not_there():
    """What a handle knows of a domain may be out of date; a commit that asks for an item sees that it is gone."""
    inner = MemoryStore()
    one, two = sealed(inner), sealed(inner)
    key, other = ("room", "who", "key"), ("room", "who", "other")
    await one.commit(Put(key, b"1"), Put(other, b"1"))
    await two.commit(Delete(key))
    for changes in ((Exists(key),), (Exists(key), Put(other, b"2")), (Exists(key), Put(("elsewhere", "x", "y"), b"2"))):
        with pytest.raises(ConflictError):
            await one.commit(*changes)
    assert (await one.get(other)).value == b"1"
    await two.commit(Put(key, b"again"))
    await one.commit(Exists(key), Put(other, b"2"))
    assert await one.verify() == 2


@pytest.mark.parametrize("size", [10, 1000], ids=["short values", "values that are stored apart"])
@pytest.mark.parametrize("who", ["sealed", "plain"])
async def test_a_sealed_file_whose_rows_are_gone_is_no_empty_store(tmp_path, size, who):
    """It does not open, with its key or without a key: it was sealed, and the row of the keys is missing."""
    path = tmp_path / "s.db"
    async with EncryptedStore(SqliteStore(path), KEY) as store:
        await store.commit(*(Put(("room", number), b"v" * size) for number in range(20)))
    connection = apsw.Connection(str(path))
    connection.execute("DELETE FROM items").fetchall()
    connection.close()
    store = EncryptedStore(SqliteStore(path), KEY) if who == "sealed" else SqliteStore(path)
    for use in (lambda: store.get(("room", 1)), lambda: store.commit(Put(("room", 1), b"new"))):
        with pytest.raises(DamagedStoreError, match="it was sealed, and the row with its keys is missing"):
            await use()
