"""What every store does, whatever it is made of."""

from __future__ import annotations

import anyio
import pytest

from graphagent.errors import ConflictError
from graphagent.store import Delete, DeleteAll, Exists, Item, MemoryStore, Put
from graphagent.store._internal import collect, get_many
from graphagent.testing import check_store


async def everything(store, prefix=(), **how):
    return [item async for item in store.scan(prefix, **how)]


async def keys(store, prefix=(), **how):
    return [item.key for item in await everything(store, prefix, **how)]


async def test_it_keeps_the_promises_of_the_protocol(store):
    """What users may check of a store of their own holds for each of ours."""
    await check_store(lambda: store)
    assert await store.verify() == 0


async def test_a_new_store_is_empty(store):
    """Nothing is found in a new store, and verifying it finds nothing wrong."""
    assert await store.get(("room", "key")) is None
    assert await everything(store) == []
    assert await everything(store, ("room",)) == []
    await store.commit(Delete(("room", "key")), DeleteAll(("room",)), DeleteAll(()))
    assert await store.verify() == 0


async def test_what_is_put_is_there(store):
    """An item comes back as it was put, with a version that counts its puts."""
    await store.commit(Put(("room", "who", 7, "x"), b"one"))
    assert await store.get(("room", "who", 7, "x")) == Item(("room", "who", 7, "x"), b"one", 1)
    await store.commit(Put(("room", "who", 7, "x"), b""))
    assert await store.get(("room", "who", 7, "x")) == Item(("room", "who", 7, "x"), b"", 2)
    assert await store.get(("room", "who", 7)) is None
    assert await store.get(("room", "who")) is None
    assert await store.get(("room", "who", 7, "x", "y")) is None
    assert await store.verify() == 1


async def test_versions_begin_again_after_deletion(store):
    """A deleted item is gone, and its versions begin at 1 when it is put again."""
    await store.commit(Put(("a", "b", "c"), b"1"), Put(("a", "b", "c"), b"2"))
    await store.commit(Delete(("a", "b", "c")))
    assert await store.get(("a", "b", "c")) is None
    assert await store.verify() == 0
    await store.commit(Put(("a", "b", "c"), b"3"))
    assert (await store.get(("a", "b", "c"))).version == 1


async def test_expected_versions(store):
    """A change that expects another version raises a ConflictError, and nothing of its commit is kept."""
    key = ("room", "who", "item")
    await store.commit(Put(key, b"1", expected=0))
    for change in (Put(key, b"no", expected=0), Put(key, b"no", expected=2), Delete(key, expected=2)):
        with pytest.raises(ConflictError) as caught:
            await store.commit(Put(("room", "who", "other"), b"x"), change, DeleteAll(("room",)))
        assert (caught.value.key, caught.value.expected, caught.value.found) == (key, change.expected, 1)
    assert await everything(store) == [Item(key, b"1", 1)]
    with pytest.raises(ConflictError):
        await store.commit(Delete(("room", "who", "absent"), expected=1))
    await store.commit(Put(key, b"2", expected=1))
    await store.commit(Delete(key, expected=2))
    assert await everything(store) == []


async def test_a_commit_may_ask_for_an_item_to_be_there(store):
    """Exists changes nothing where there is an item; where there is none, nothing of the commit is kept."""
    kept, gone, new = ("room", "who", "kept"), ("room", "who", "gone"), ("room", "who", "new")
    await store.commit(Put(kept, b"1"), Put(gone, b"1"))
    await store.commit(Delete(gone))
    await store.commit(Exists(kept), Put(new, b"1"))
    for change in (Exists(gone), Exists(("room", "who")), Exists(("other", "room", "key"))):
        with pytest.raises(ConflictError):
            await store.commit(Put(new, b"2"), change)
    await store.commit(Put(gone, b"again"), Exists(gone))
    with pytest.raises(ConflictError):
        await store.commit(Delete(gone), Exists(gone))
    assert (await store.get(new)).value == b"1"
    assert (await store.get(gone)).value == b"again"
    assert (await store.get(kept)).version == 1
    await store.commit(Exists(kept))
    assert await store.verify() == 3


async def test_changes_of_a_commit_follow_one_another(store):
    """Later changes of a commit see what the earlier ones did."""
    key, other = ("r", "w", 1), ("r", "w", 2)
    await store.commit(
        Put(key, b"1", expected=0), Put(key, b"2", expected=1), Put(other, b"x"), Delete(other, expected=1)
    )
    assert await everything(store) == [Item(key, b"2", 2)]
    await store.commit(DeleteAll(("r",)), Put(key, b"3", expected=0), Put(("r", "v", 1), b"y"))
    assert {item.key: item.version for item in await everything(store)} == {key: 1, ("r", "v", 1): 1}
    await store.commit(Put(("r", "v", 2), b"z"), DeleteAll(("r", "v")), Put(("r", "v", 2), b"z2", expected=0))
    await store.commit(Put(("q", "v", 2), b"z"), DeleteAll(("q",)))
    assert {item.key: item.value for item in await everything(store)} == {key: b"3", ("r", "v", 2): b"z2"}
    assert await store.verify() == 2


async def test_scans_find_what_begins_with_a_prefix(store):
    """A prefix finds the keys that begin with its segments, and none that merely begin with its letters."""
    all_keys = {
        ("a",), ("ab",), ("a", "b"), ("a", "bc"), ("a", "b", "c"), ("a", "b", 1), ("a", 1), ("a", 1, "b"), ("b", "a"),
        ("a", "", "c"), ("a", "b\0", "c"), ("a", "b", "c", "d", "e", "f"), ("", ""), ("facts", "o", "k"),
        ("facts", "o", "k", "n", "s"), ("facts", "o", "k", "n", "s", "w", 1),
    }  # fmt: skip
    await store.commit(*(Put(key, repr(key).encode()) for key in all_keys))
    for prefix in [(), *all_keys, ("a", "b", "c", "d"), ("facts", "o"), ("facts",), ("none",), ("a", 2)]:
        found = await everything(store, prefix)
        assert {item.key for item in found} == {key for key in all_keys if key[: len(prefix)] == prefix}, prefix
        assert all(item.value == repr(item.key).encode() and item.version == 1 for item in found)
        assert await keys(store, prefix, reverse=True) == [item.key for item in found][::-1]
    assert await store.verify() == len(all_keys)
    await store.commit(DeleteAll(("a", "b")))
    left = {key for key in all_keys if key[:2] != ("a", "b")}
    assert set(await keys(store)) == left
    assert await store.verify() == len(left)
    await store.commit(DeleteAll(("a",)))
    left = {key for key in left if key[0] != "a"}
    assert set(await keys(store)) == left
    await store.commit(DeleteAll(()))
    assert await keys(store) == []
    assert await store.verify() == 0


async def test_ints_are_in_order(store):
    """Keys equal up to an int come in the order of the ints; limits and `after` go through them in either direction."""
    numbers = [0, 1, 2, 9, 10, 255, 256, 65_536, 2**31, 2**32, 2**63 - 1]
    await store.commit(*(Put(("runs", "id", number, "x"), b"v") for number in reversed(numbers)))
    assert [key[2] for key in await keys(store, ("runs", "id"))] == numbers
    assert [key[2] for key in await keys(store, ("runs", "id"), reverse=True, limit=3)] == numbers[::-1][:3]
    for reverse in (False, True):
        seen, after = [], None
        while page := await keys(store, ("runs", "id"), after=after, limit=4, reverse=reverse):
            seen += page
            after = page[-1]
        assert [key[2] for key in seen] == (numbers[::-1] if reverse else numbers)
    assert await keys(store, ("runs",), limit=0) == []


async def test_a_scan_goes_on_over_many_groups(store):
    """`after` goes on behind any key of an earlier scan, also where text segments lie between."""
    wanted = [("room", f"o{a}", f"x{b}", n) for a in range(4) for b in range(3) for n in range(5)]
    await store.commit(*(Put(key, b"v") for key in wanted))
    for reverse in (False, True):
        whole = await keys(store, ("room",), reverse=reverse)
        assert sorted(whole) == sorted(wanted)
        for place in range(0, len(whole), 7):
            assert await keys(store, ("room",), after=whole[place], reverse=reverse) == whole[place + 1 :]
            assert await keys(store, (), after=whole[place], reverse=reverse, limit=9) == whole[place + 1 : place + 10]


async def test_large_scans_and_values(store):
    """Thousands of items and values of a megabyte come back whole."""
    big = bytes(range(256)) * 4096
    await store.commit(*(Put(("r", "o", n), n.to_bytes(2, "big") * 20) for n in range(6000)), Put(("r", "p", 1), big))
    found = await everything(store, ("r", "o"))
    assert [int.from_bytes(item.value[:2], "big") for item in found] == list(range(6000))
    assert (await store.get(("r", "p", 1))).value == big
    async for item in store.scan(("r", "o"), after=("r", "o", 5000)):
        assert item.key[2] == 5001
        break
    await store.commit(DeleteAll(("r", "o", 17)), Delete(("r", "o", 18)), DeleteAll(("r", "p")))
    assert len(await keys(store)) == 5998
    assert await store.verify() == 5998


@pytest.mark.parametrize("count", [1, 2, 40, 3000])
async def test_many_items_are_read_at_once(store, count):
    """`get_many` returns the items that exist, in the order of the keys, from any number of domains, however many are asked for."""
    there = [("room", f"who-{number % 3}", "text", number) for number in range(count)]
    await store.commit(*(Put(key, b"%d" % number) for number, key in enumerate(there)))
    absent = [("room", "who-0", "text", count), ("room", "who-0"), ("other", "room")]
    keys = [*there[::-1], *absent, *there]
    found = await store.get_many(iter(keys))
    assert list(found) == there[::-1]
    assert list(found.values()) == [Item(key, b"%d" % number, 1) for number, key in enumerate(there)][::-1]
    assert await store.get_many(absent) == await store.get_many([]) == {}
    await store.commit(DeleteAll(("room", "who-0")))
    assert list(await store.get_many(there)) == [key for key in there if key[1] != "who-0"]


async def test_many_items_are_read_from_a_store_of_three_methods():
    """`get_many` and `collect` return the same of a store that has no more than the protocol asks for."""

    class Three:
        def __init__(self, store):
            self.get, self.scan, self.commit = store.get, store.scan, store.commit

    inner = MemoryStore()
    keys = [("room", "who", number) for number in range(40)]
    await inner.commit(*(Put(key, b"v") for key in keys))
    for store in (inner, Three(inner)):
        assert list(await get_many(store, [*keys[::-1], ("room",), *keys])) == keys[::-1]
        assert [item.key for item in await collect(store.scan(("room",), after=keys[2]))] == keys[3:]

    async def own():
        for key in keys:
            yield await inner.get(key)

    assert [item.key for item in await collect(own())] == keys


async def test_a_scan_is_collected_from_where_it_was_left(store):
    """`collect` returns what was not read yet, as `async for` would; it obeys limits and directions."""
    keys = [("room", "who", number) for number in range(3000)]
    await store.commit(*(Put(key, bytes(300)) for key in keys))
    for how in ({}, {"limit": 2500}, {"reverse": True}, {"after": keys[1000]}, {"limit": 0}):
        listed = await everything(store, ("room",), **how)
        assert await collect(store.scan(("room",), **how)) == listed
        scan = store.scan(("room",), **how)
        first = [item async for item in takes(scan, 5)]
        assert first + await collect(scan) == listed
        assert await collect(scan) == []


async def takes(scan, count):
    while count and (item := await anext(scan, None)) is not None:
        count -= 1
        yield item


async def test_a_scan_over_what_changes(store):
    """A scan goes on while what it goes through is changed, and gives nothing twice."""
    await store.commit(*(Put(("r", "o", n), b"v") for n in range(0, 600, 2)))
    seen = []
    async for item in store.scan(("r", "o")):
        seen.append(item.key[2])
        if len(seen) % 10 == 0:
            await store.commit(Put(("r", "o", item.key[2] + 3), b"new"), Delete(("r", "o", item.key[2])))
    assert seen == sorted(set(seen))
    assert set(range(0, 600, 2)) <= set(seen)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0",
        "a\0b",
        "\0\xff",
        "\ud800",
        "\udfff\ud800",
        "é",
        "e\u0301",
        "../../x",
        "/abs",
        "CON",
        "🔑" * 500,
        "\U0010ffff",
    ],
)
async def test_any_text_is_a_segment(store, text):
    """Any text round-trips as a segment, hostile names and lone surrogates included."""
    key = ("room", text, text, 1)
    await store.commit(Put(key, b"value"))
    assert await store.get(key) == Item(key, b"value", 1)
    assert await keys(store, ("room", text)) == [key]


@pytest.mark.parametrize(
    "key", [(), ("a", -1), ("a", 2**63), ("a", 1.0), ("a", True), ("a", None), ("a", b"b"), "text", ["a"]]
)
async def test_what_is_no_key(store, key):
    """What is no key raises a ValueError and changes nothing."""
    puts = Put(("a", "b"), b"x"), Put(key, b"v")
    for attempt in (store.get(key), store.get_many([("a", "b"), key]), store.commit(*puts), store.commit(Delete(key))):
        with pytest.raises(ValueError, match="a key"):
            await attempt
    assert await everything(store) == []


async def test_what_is_no_value_or_limit(store):
    """A value that is not bytes, and a limit below zero, raise a ValueError."""
    with pytest.raises(ValueError, match="a value is bytes"):
        await store.commit(Put(("a", "b"), "text"))
    with pytest.raises(ValueError, match="limit=-1"):
        await everything(store, limit=-1)
    with pytest.raises(ValueError, match="a change is"):
        await store.commit("nonsense")


async def test_concurrent_commits(store):
    """Tasks that commit at once all succeed, in some order; of those that expect the same version one does."""
    won = []

    async def save(number):
        await store.commit(Put(("r", "o", "shared"), b"v"), Put(("r", f"o{number % 5}", number), b"v"))

    async def compete(number):
        try:
            await store.commit(Put(("r", "o", "once"), str(number).encode(), expected=0))
        except ConflictError:
            return
        won.append(number)

    async with anyio.create_task_group() as group:
        for number in range(60):
            group.start_soon(save, number)
            group.start_soon(compete, number)
    assert (await store.get(("r", "o", "shared"))).version == 60
    assert [(await store.get(("r", "o", "once"))).value] == [str(number).encode() for number in won]
    assert len(await keys(store)) == 62
    assert await store.verify() == 62


async def test_a_cancelled_commit_is_whole_or_absent(store):
    """A commit that is cancelled happens or does not, never half, and the store goes on."""
    await store.commit(Put(("r", "o", 0), b"v"))
    for number in range(1, 30):
        with anyio.move_on_after(0.0002 * (number % 5)):
            await store.commit(Put(("r", "a", number), b"v"), Put(("r", "b", number), b"v"))
    await store.commit(Put(("r", "o", 0), b"v"))
    found = await keys(store)
    assert {key[2] for key in found if key[1] == "a"} == {key[2] for key in found if key[1] == "b"}
    assert await store.verify() == len(found)


async def test_a_closed_store_opens_again(store):
    """Closing early is allowed at any time; what was kept is there when the store is used again."""
    await store.commit(Put(("r", "o", 0), b"v"))
    await store.aclose()
    await store.aclose()
    assert (await store.get(("r", "o", 0))).value == b"v"
    await store.commit(Put(("r", "o", 0), b"w"))
    assert (await store.get(("r", "o", 0))).version == 2


async def test_nothing_shows_values(store):
    """No store and no change shows keys or values in its text."""
    change = Put(("room", "CANARY-NAME"), b"CANARY-VALUE")
    await store.commit(change)
    for shown in (store, change, await store.get(change.key), DeleteAll(change.key), Delete(change.key)):
        assert "CANARY" not in repr(shown) + str(shown)
