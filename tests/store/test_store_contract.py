"""What every store does, whatever it is made of."""

from __future__ import annotations

from functools import partial

import pytest

from graphagent.store import Delete, DeleteAll, MemoryStore, Put
from graphagent.store._bulk import collect, get_many
from graphagent.testing import check_store
from tests import postgres


async def everything(store, prefix=(), **how):
    return [item async for item in store.scan(prefix, **how)]


async def test_it_keeps_the_promises_of_the_protocol(store, opened, kind, request):
    """What users may check of a store of their own holds for each of ours."""
    disconnect = (
        partial(postgres.disconnect, request.getfixturevalue("postgres_dsn")) if kind.endswith("postgres") else None
    )
    await check_store(
        lambda: store,
        reopen=None if kind.endswith("memory") else lambda _: opened(),
        disconnect=disconnect and (lambda _: disconnect()),
    )
    assert await store.verify() == 0


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
    keys = [("room", "who", number) for number in range(5000)]
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
