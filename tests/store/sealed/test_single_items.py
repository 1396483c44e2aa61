"""Many domains of a single item each, such as the headers of runs: they are read together, and checked as when each is read alone."""

from __future__ import annotations

import pytest

from graphagent.errors import DamagedStoreError
from graphagent.store import Delete, EncryptedStore, Item, MemoryStore, Put
from tests.store.sealed.test_store import KEY, all_of, put_rows, rows_of

NAMES = [("docs", f"n{number}") for number in range(9)]


def sealed(inner):
    return EncryptedStore(inner, KEY, domains={"docs": 3})


async def filled():
    inner = MemoryStore()
    store = sealed(inner)
    await store.commit(*[Put(name, b"first") for name in NAMES])
    before = rows_of(inner)
    await store.commit(*[Put(name, b"then") for name in NAMES])
    item = ("i", *(await store._sealed().ready()).blind(NAMES[4]))
    [domain] = [key for key in before if key[0] == "d" and key[1 : len(item)] == item[1:]]
    return inner, store, before, item, domain


def flipped(item, at):
    value = bytearray(item.value)
    value[at] ^= 1
    return Item(item.key, bytes(value), item.version)


ATTACKS = {
    "item removed": lambda rows, before, item, domain: rows.pop(item),
    "domain removed": lambda rows, before, item, domain: rows.pop(domain),
    "both removed": lambda rows, before, item, domain: (rows.pop(item), rows.pop(domain)),
    "item put back": lambda rows, before, item, domain: rows.update({item: before[item]}),
    "domain put back": lambda rows, before, item, domain: rows.update({domain: before[domain]}),
    "item put back as new": lambda rows, before, item, domain: rows.update(
        {item: Item(item, before[item].value, rows[item].version)}
    ),
    "item changed": lambda rows, before, item, domain: rows.update({item: flipped(rows[item], -1)}),
    "domain changed": lambda rows, before, item, domain: rows.update({domain: flipped(rows[domain], -1)}),
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("reverse", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize("live", [False, True], ids=["fresh", "live"])
async def test_forgery_among_many_single_items_is_refused(attack, reverse, live):
    """A scan over single items, of which one was changed without the key, is refused, or right where nothing depends on it."""
    inner, store, before, item, domain = await filled()
    right = await all_of(store)
    rows = rows_of(inner)
    ATTACKS[attack](rows, before, item, domain)
    put_rows(inner, rows)
    reader = store if live else sealed(inner)
    if live and attack == "domain changed":  # the store knows the row of this version, and does not open it again
        assert sorted([each async for each in reader.scan(("docs",), reverse=reverse)]) == sorted(right)
        return
    with pytest.raises(DamagedStoreError):
        _ = [each async for each in reader.scan(("docs",), reverse=reverse)]


async def test_a_live_store_refuses_an_older_single_item_with_its_domain():
    """Both rows of an item that are put back together are refused by a store that has seen newer ones."""
    inner, store, before, item, domain = await filled()
    put_rows(inner, {**rows_of(inner), item: before[item], domain: before[domain]})
    with pytest.raises(DamagedStoreError):
        await all_of(store, ("docs",))


@pytest.mark.parametrize("reverse", [False, True], ids=["forwards", "backwards"])
async def test_single_items_are_found_beside_domains_of_many_and_page_by_page(reverse):
    """A scan in pages returns each item once, where single items and domains of many alternate, as a store in memory does."""
    inner, plain = MemoryStore(), MemoryStore()
    store = sealed(inner)
    changes = [Put(name, b"1") for name in NAMES]
    changes += [Put(("docs", f"n{number}", "part", count), b"2") for number in range(0, 9, 2) for count in range(3)]
    for each in (store, plain):
        await each.commit(*changes)
    for reader in (store, sealed(inner)):
        for size in (1, 4, 7, 100):
            found, after = [], None
            while page := [item async for item in reader.scan(("docs",), after=after, limit=size, reverse=reverse)]:
                found += page
                after = page[-1].key
            assert sorted(found) == sorted(await all_of(plain, ("docs",)))


async def test_items_that_another_handle_changes_during_a_scan_are_read_as_they_are_now():
    """What another handle puts and removes after a scan has begun is read as it is when the scan reaches it."""
    inner, store, *_ = await filled()
    other = sealed(inner)
    scan = other.scan(("docs",))
    first = await anext(scan)
    rest = [name for name in NAMES if name != first.key]
    await store.commit(*[Put(name, b"new") for name in rest[:3]], *map(Delete, rest[3:5]))
    found = {item.key: item.value async for item in other.scan(("docs",))} | {
        item.key: item.value async for item in scan if item.key not in rest
    }
    assert found == {first.key: b"then", **dict.fromkeys(rest[:3], b"new"), **dict.fromkeys(rest[5:], b"then")}


async def test_the_page_after_a_single_item_begins_with_the_next_one():
    """Also where many single items follow, which are read together."""
    inner = MemoryStore()
    store = sealed(inner)
    await store.commit(*[Put(("docs", f"n{number}"), b"1") for number in range(12)])
    every = [item.key async for item in store.scan(("docs",))]
    for reverse in (False, True):
        for place, key in enumerate(every):
            rest = [item.key async for item in sealed(inner).scan(("docs",), after=key, reverse=reverse)]
            assert rest == (every[:place][::-1] if reverse else every[place + 1 :])
