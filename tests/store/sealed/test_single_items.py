"""Many domains of a single item each, such as the headers of runs: they are read together, and checked as when each is read alone."""

from __future__ import annotations

import pytest

from graphagent.errors import ConflictError, DamagedStoreError, RolledBackError
from graphagent.store import Delete, DeleteAll, EncryptedStore, Exists, Item, MemoryStore, Put
from graphagent.store._items import encode
from tests.store.sealed.elsewhere import Elsewhere
from tests.store.sealed.test_store import KEY, all_of, put_rows, rows_of

NAMES = [("docs", f"n{number}") for number in range(9)]
LONG, SHORT = b"a value with a row of its own" * 40, b"one in the row of its domain"


def sealed(inner, **how):
    return EncryptedStore(inner, KEY, domains={"docs": 3}, **how)


async def filled(value=LONG):
    inner = MemoryStore()
    store = sealed(inner)
    await store.commit(*[Put(name, b"first " + value) for name in NAMES])
    before = rows_of(inner)
    await store.commit(*[Put(name, b"then " + value) for name in NAMES])
    item = ("i", *(await store._sealed().ready()).blind(NAMES[4]))
    [domain] = [key for key in before if key[0] == "d" and key[1 : len(item)] == item[1:]]
    return inner, store, before, item, domain


def place_of(item):
    return encode(item.key)


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


@pytest.mark.parametrize(
    ("attack", "value"),
    [(attack, value) for attack in ATTACKS for value in (LONG, SHORT) if value is LONG or attack.startswith("domain")],
    ids=lambda each: each if isinstance(each, str) else "short" if each is SHORT else "long",
)
@pytest.mark.parametrize("reverse", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize("live", [False, True], ids=["fresh", "live"])
async def test_forgery_among_many_single_items_is_refused(attack, value, reverse, live):
    """A scan over single items, of which one was changed without the key, is refused, or right where nothing depends on it."""
    inner, store, before, item, domain = await filled(value)
    right = await all_of(store)
    rows = rows_of(inner)
    ATTACKS[attack](rows, before, item, domain)
    put_rows(inner, rows)
    reader = store if live else sealed(inner)
    if live and attack == "domain changed":  # the store knows the row of this version, and does not open it again
        assert sorted([each async for each in reader.scan(("docs",), reverse=reverse)]) == sorted(right)
        return
    if not live and attack == "domain put back" and value is SHORT:
        return  # that is an older copy of the whole domain, as in the test below
    with pytest.raises(DamagedStoreError):
        _ = [each async for each in reader.scan(("docs",), reverse=reverse)]


@pytest.mark.parametrize("read", ["scan", "get"])
@pytest.mark.parametrize("value", [LONG, SHORT], ids=["long", "short"])
async def test_an_older_single_item_with_its_domain_is_refused_by_a_live_store_and_by_an_anchored_one(value, read):
    """All rows of an item that are put back together are refused by a store that has seen newer ones, and by each that is anchored."""
    inner, store, before, item, domain = await filled(value)
    anchor = Elsewhere()
    anchored = sealed(inner, anchor=anchor)
    await anchored.commit(Put(NAMES[0], LONG), Put(NAMES[4], b"the last " + value))
    await anchored.aclose()
    await store.get(NAMES[4])
    put_rows(inner, {**rows_of(inner), **{row: before[row] for row in (item, domain) if row in before}})
    for reader in (store, sealed(inner), sealed(inner, anchor=anchor)):
        with pytest.raises((DamagedStoreError, RolledBackError)):
            await (reader.get(NAMES[4]) if read == "get" else all_of(reader, ("docs",)))


async def test_an_item_moves_into_the_row_of_its_domain_and_out_of_it():
    """A short value lies in the row of its domain, whatever it was before; all readers see each, at its version."""
    inner, plain = MemoryStore(), MemoryStore()
    store, other, name = sealed(inner), sealed(inner), NAMES[0]
    for number, values in enumerate([[SHORT], [LONG], [SHORT], [LONG, SHORT], [SHORT, LONG], [LONG], [SHORT]]):
        for each in (store, plain):
            await each.commit(*[Put(name, b"%d" % number + value) for value in values], Exists(name))
        wanted = await plain.get(name)
        assert [row.key[0] for row in rows_of(inner).values()].count("i") == (values[-1] is LONG)
        for reader in (store, other, sealed(inner)):
            assert await reader.get(name) == wanted
            assert await all_of(reader) == await all_of(plain)
            assert await reader.verify() == 1
        with pytest.raises(ConflictError):
            await other.commit(Put(NAMES[1], b"", expected=0), Exists(name, wanted.version - 1 or 9))
        store, other = other, store
    for each in (store, other, plain):
        await each.commit(Put(NAMES[1], LONG), Exists(name, wanted.version))
        with pytest.raises(ConflictError):
            await each.commit(Put(name, SHORT, expected=wanted.version, before=LONG))
    await other.commit(Delete(name, expected=wanted.version), DeleteAll(NAMES[1]))
    assert await all_of(store) == []
    with pytest.raises(ConflictError):
        await store.commit(Exists(name))
    assert {row[0] for row in rows_of(inner)} == {"k", "r"}


async def test_an_item_beside_the_row_that_has_it_changes_nothing_and_is_found():
    """Someone without the key who adds a row for an item that lies in the row of its domain is found by `verify`, and never read."""
    inner, store, _, item, _ = await filled(SHORT)
    right = await all_of(store)
    long_ones, *_ = await filled(LONG)
    stray = next(row for row in rows_of(long_ones).values() if row.key[0] == "i")
    put_rows(inner, {**rows_of(inner), item: Item(item, stray.value, 7)})
    for reader in (store, sealed(inner)):
        assert await all_of(reader) == right
        with pytest.raises(DamagedStoreError):
            await reader.verify()
    await store.commit(Put(NAMES[4], LONG))
    assert await store.verify() == len(NAMES)
    assert (await store.get(NAMES[4])).value == LONG


@pytest.mark.parametrize("reverse", [False, True], ids=["forwards", "backwards"])
async def test_single_items_are_found_beside_domains_of_many_and_page_by_page(reverse):
    """A scan in pages returns each item once, where single items and domains of many alternate, as a store in memory does."""
    inner, plain = MemoryStore(), MemoryStore()
    store = sealed(inner)
    changes = [Put(name, SHORT if number % 3 else LONG) for number, name in enumerate(NAMES)]
    changes += [Put(("docs", f"n{number}", "part", count), b"2") for number in range(0, 9, 2) for count in range(3)]
    changes += [Put(("docs", f"n{number}", 4, 1), b"2") for number in range(9)]
    for each in (store, plain):
        await each.commit(*changes)
    for reader in (store, sealed(inner)):
        for size in (1, 4, 7, 100):
            found, after = [], None
            while page := [item async for item in reader.scan(("docs",), after=after, limit=size, reverse=reverse)]:
                found += page
                after = page[-1].key
            assert sorted(found, key=place_of) == sorted(await all_of(plain, ("docs",)), key=place_of)


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
    then = b"then " + LONG
    assert found == {first.key: then, **dict.fromkeys(rest[:3], b"new"), **dict.fromkeys(rest[5:], then)}


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
