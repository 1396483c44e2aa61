"""The contract that every store keeps, as a test for one's own.

The file is long because it has a check of each promise, and together they are the contract.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint

from graphagent import _clock
from graphagent.errors import ConflictError, StoreError
from graphagent.store import Change, Delete, DeleteAll, Exists, Item, Key, Put
from graphagent.testing._promise import accepts, answer, iterates, keeps, promise

if TYPE_CHECKING:
    from graphagent.protocols import Store

_Own = TypeVar("_Own", bound="Store")

_TEXTS = ("", "\0", "a\0b", "\0\xff", "\ud800", "é", "e\u0301", "../../x", "/abs", "CON", "🔑" * 500, "\U0010ffff", "1")
_INTS = (0, 1, 2, 9, 10, 255, 256, 65_536, 2**31, 2**32, 2**63 - 1)

_CUTS = 5
"""How often connections are cut at least while commits are made."""
_LONGEST_COMMIT = 60
"""After how many seconds a commit is taken to wait for the scan in which it is made."""


async def check_store(
    make: Callable[[], _Own],
    *,
    reopen: Callable[[_Own], Store] | None = None,
    disconnect: Callable[[_Own], object] | None = None,
) -> None:
    """Check that a store keeps the promises of Store and, where it has `get_many`, of BatchStore.

    `make` is called once for each promise and may return the same store, or another one, each time. `reopen` opens a store again,
    as another process would: it is passed the store, which was not closed, and returns another one over the same items, and both
    are used. Without it, the check cannot see whether commits are durable, nor whether two processes disturb each other.

    `disconnect` cuts the connections that a store has to its server, from the side of the server. It is called in a thread, many
    times, while tasks commit; without it, the check cannot see the outcome of a commit whose connection is lost.

    The check uses rooms that nothing else uses, and empties them. Some promises are checked in other event loops, in threads. What
    cannot be seen: whether a commit survives a power cut, and whether removed data are erased from the disk.

    Raises:
        AssertionError: a promise is not kept; the text says which.
    """
    for check in (
        _methods,
        _empty,
        _puts,
        _deletions,
        _conflicts,
        _existence,
        _sequences,
        _rewriting,
        _prefixes,
        _orders,
        _pages,
        _any_text,
        _long_keys,
        _large,
        _changing,
        _together,
        _cancelled,
        _elsewhere,
        _many,
    ):
        store, room = make(), f"check-{_clock.new_id()}"
        await keeps("store", check, store, room)
        await keeps("store", _emptied, store, room)
    if reopen is not None:
        await keeps("store", _durable, make(), reopen, f"check-{_clock.new_id()}")
    for pair in (_removed, _opposite):
        store, room = make(), f"check-{_clock.new_id()}"
        await keeps("store", pair, store, store if reopen is None else reopen(store), room)
        await keeps("store", _emptied, store, room)
    if disconnect is not None:
        store, room = make(), f"check-{_clock.new_id()}"
        await keeps("store", _disconnected, store, disconnect, room)
        await keeps("store", _emptied, store, room)


async def _scan(store: Store, prefix: Key, **how: Any) -> list[Item]:
    return [item async for item in store.scan(prefix, **how)]


async def _keys(store: Store, prefix: Key, **how: Any) -> list[Key]:
    return [item.key for item in await _scan(store, prefix, **how)]


async def _refused(store: Store, *changes: Change) -> ConflictError | None:
    try:
        await store.commit(*changes)
    except ConflictError as error:
        return error
    return None


async def _emptied(store: Store, room: str) -> None:
    """DeleteAll removes a room."""
    await store.commit(DeleteAll((room,)))
    promise(await _scan(store, (room,)) == [], "DeleteAll removes the items whose keys begin with a room")


async def _methods(store: Store, room: str) -> None:
    """A store has the methods get, scan and commit."""
    key = (room, "who", 1)
    await answer(getattr(store, "commit", None), "commit(*changes) is an async method", Put(key, b"1"), Put(key, b"2"))
    item = await answer(getattr(store, "get", None), "get(key) is an async method", key)
    promise(isinstance(item, Item), "get returns an Item, or None")
    text = "scan(prefix, after=None, limit=None, reverse=False) returns an asynchronous iterator, and is not awaited"
    scan = getattr(store, "scan", None)
    ways: list[dict[str, Any]] = [{"after": None, "limit": None, "reverse": False}, {}, {"after": key}, {"limit": 1}]
    for how in ways:
        promise(accepts(scan, (room,), **how), text)
        found: Any = store.scan((room,), **how)
        promise(iterates(found), text)
        promise(all([isinstance(item, Item) async for item in found]), "scan returns Items")
    if hasattr(store, "get_many"):
        items = await answer(getattr(store, "get_many", None), "get_many(keys) is an async method", [key])
        promise(isinstance(items, dict), "get_many returns a dictionary of Items")


async def _empty(store: Store, room: str) -> None:
    """A missing item is not found, and may be deleted."""
    promise(await store.get((room, "key")) is None, "get returns None for a key without an item")
    promise(await _scan(store, (room,)) == [], "scan returns no items for an unused prefix")
    await store.commit()
    await store.commit(Delete((room, "key")), DeleteAll((room,)), DeleteAll((room, "who")))


async def _puts(store: Store, room: str) -> None:
    """A put item exists."""
    key = (room, "who", 7, "x")
    await store.commit(Put(key, b"one"))
    promise(await store.get(key) == Item(key, b"one", 1), "get returns an item as it was put, with version 1")
    await store.commit(Put(key, b""))
    promise(await store.get(key) == Item(key, b"", 2), "another put replaces the value, and its version is one more")
    await store.commit(Put(key, b" \0\xff \n"))
    found = await store.get(key)
    promise(found == Item(key, b" \0\xff \n", 3), "any bytes come back as they were")
    promise(found is not None and type(found.value) is bytes, "a value comes back as bytes")
    await store.commit(Put(key, b"again"), Put(key, b""))
    found = await store.get(key)
    promise(found == Item(key, b"", 5), "another put replaces the value, and its version is one more")
    promise(await _scan(store, (room,)) == [found], "scan returns the items that get returns")
    for other in (
        (room,),
        (room, "who", 7),
        (room, "who", 7, "x", "y"),
        (room, "who", "7", "x"),
        (room, "WHO", 7, "x"),
        (room, "who ", 7, "x"),
        (room, "who", 8, "x"),
        (room.upper(), "who", 7, "x"),
    ):
        promise(await store.get(other) is None, "get returns the item of exactly the key")


async def _deletions(store: Store, room: str) -> None:
    """A deleted item does not exist."""
    key, others = (room, "who", "x"), {(room, "who"), (room, "who", "x", "y"), (room, "who", "y")}
    await store.commit(Put(key, b"1"), Put(key, b"2"), *(Put(other, b"3") for other in others))
    await store.commit(Delete(key))
    promise(await store.get(key) is None, "get returns None for a deleted item")
    left = await _keys(store, (room,))
    promise(set(left) == others, "Delete removes the item of exactly the key, and scan returns it no more")
    await store.commit(Delete(key))
    await store.commit(Put(key, b"4"))
    promise(await store.get(key) == Item(key, b"4", 1), "the versions of an item that was deleted begin again at 1")


async def _conflicts(store: Store, room: str) -> None:
    """A change may expect a version."""
    key, absent = (room, "who", "item"), (room, "who", "absent")
    promise(
        await _refused(store, Put(key, b"1", expected=0)) is None, "Put(expected=0) puts an item that does not exist"
    )
    kept = [Item(key, b"1", 1)]
    for change in (Put(key, b"no", expected=0), Put(key, b"no", expected=2), Delete(key, expected=2)):
        error = await _refused(store, Put((room, "who", "other"), b"x"), change, DeleteAll((room,)))
        promise(
            error is not None, "commit raises ConflictError where an item has another version than a change expects"
        )
        found = (error.key, error.expected, error.found) if error else ()
        promise(found == (key, change.expected, 1), "a ConflictError has the key, the expected and the found version")
        promise(await _scan(store, (room,)) == kept, "a commit that raises ConflictError changes nothing")
    many = [Put((room, "who", number), b"x") for number in range(1_000)]
    promise(await _refused(store, *many, Put(key, b"no", expected=2)) is not None, "a commit may have many changes")
    promise(await _scan(store, (room,)) == kept, "a commit that raises ConflictError changes nothing")
    for change in (Put(absent, b"no", expected=1), Delete(absent, expected=1)):
        promise(await _refused(store, change) is not None, "an item that does not exist has none but version 0")
    promise(await _refused(store, Put(key, b"2", expected=1)) is None, "a put that expects the version is made")
    promise(await _refused(store, Delete(key, expected=2)) is None, "a deletion that expects the version is made")
    promise(await _scan(store, (room,)) == [], "a deletion that expects the version removes the item")


async def _existence(store: Store, room: str) -> None:
    """A change may expect an item to exist."""
    there, absent, new = (room, "who", "there"), (room, "who", "absent"), (room, "who", "new")
    await store.commit(Put(there, b"1"))
    promise(
        await _refused(store, Exists(there), Put(new, b"1")) is None, "Exists allows a commit where the item exists"
    )
    promise(await store.get(there) == Item(there, b"1", 1), "Exists changes nothing")
    for key in (absent, (room, "who"), (room, "nobody", "there")):
        error = await _refused(store, Put(new, b"2"), Exists(key))
        promise(error is not None, "commit raises ConflictError where an item that Exists requires does not exist")
        text = "the ConflictError of Exists has the key that is missing, and the found version 0"
        promise(error is not None and (error.key, error.found) == (key, 0), text)
    promise(await store.get(new) == Item(new, b"1", 1), "a commit that raises ConflictError changes nothing")
    promise(await _refused(store, Put(absent, b"1"), Exists(absent)) is None, "Exists sees the puts of its own commit")
    promise(
        await _refused(store, Delete(absent), Exists(absent)) is not None, "Exists sees the deletions of its own commit"
    )

    text = "Exists(version=) allows a commit where the item has that version"
    promise(await _refused(store, Exists(there, version=1), Put(new, b"2")) is None, text)
    promise(await store.get(there) == Item(there, b"1", 1), "Exists changes nothing")
    await store.commit(Put(there, b"2"), Put(there, b"3"))
    for version in (1, 2, 4):
        error = await _refused(store, Put(new, b"3"), Exists(there, version=version))
        text = "commit raises ConflictError where an item has another version than Exists requires"
        promise(error is not None, text)
        found = (error.key, error.expected, error.found) if error else ()
        promise(
            found == (there, version, 3), "the ConflictError of Exists has the key, the required and the found version"
        )
    promise(await store.get(new) == Item(new, b"2", 2), "a commit that raises ConflictError changes nothing")
    promise(await _refused(store, Exists((room, "nobody"), version=1)) is not None, "a missing item has no version")
    promise(
        await _refused(store, Put(new, b"3"), Exists(new, version=3)) is None, "Exists sees the puts of its own commit"
    )


async def _sequences(store: Store, room: str) -> None:
    """The changes of a commit follow one another."""
    text = "the changes of a commit follow one another: each sees the effects of the earlier ones"
    key, other = (room, "w", 1), (room, "w", 2)
    changes = (Put(key, b"1", expected=0), Put(key, b"2", expected=1), Put(other, b"x"), Delete(other, expected=1))
    promise(await _refused(store, *changes) is None, text)
    promise(await _scan(store, (room,)) == [Item(key, b"2", 2)], text)
    again = (DeleteAll((room,)), Put(key, b"3", expected=0), Put((room, "v", 1), b"y"), DeleteAll((room, "v")))
    promise(await _refused(store, *again) is None, text)
    promise(await _scan(store, (room,)) == [Item(key, b"3", 1)], text)


async def _rewriting(store: Store, room: str) -> None:
    """A put may say which version the item has then, and which bytes it has now."""
    key, absent, new = (room, "who", "item"), (room, "who", "absent"), (room, "who", "new")
    await store.commit(Put(key, b"1"), Put(key, b"2"))
    text = "a put with a version replaces the value, and the item has that version"
    for value in (b"", b"x" * 10_000, b"\0 x"):
        promise(
            await _refused(store, Put(key, value, expected=2, version=2)) is None,
            "a put with a version replaces an item that has the expected version",
        )
        promise(await store.get(key) == Item(key, value, 2), text)
        promise(await _scan(store, (room,)) == [Item(key, value, 2)], text)
    for rewrite, version in (
        (Put(key, b"no", expected=1, version=1), 2),
        (Put(key, b"no", expected=3, version=3), 2),
        (Put(absent, b"no", expected=1, version=1), 0),
        (Put(key, b"no", expected=2, version=2, before=b"\0 y"), 2),
    ):
        error = await _refused(store, Put(new, b"x"), rewrite)
        promise(
            error is not None,
            "commit raises ConflictError where an item has another version or other bytes than a put expects",
        )
        found = (error.key, error.expected, error.found) if error else ()
        text = "a ConflictError has the key, the expected and the found version"
        promise(found == (rewrite.key, rewrite.expected, version), text)
    promise(
        await _scan(store, (room,)) == [Item(key, b"\0 x", 2)], "a commit that raises ConflictError changes nothing"
    )
    for value, before in ((b"", b"\0 x"), (b"y" * 10_000, b""), (b"\0 z", b"y" * 10_000)):
        text = "a put with bytes before puts over the bytes that it expects"
        promise(await _refused(store, Put(key, value, expected=2, version=2, before=before)) is None, text)
        promise(await store.get(key) == Item(key, value, 2), text)
    # The commit counts on from the version that was rewritten.
    changes = (
        Put(key, b"3"),
        Put(key, b"4", expected=3, version=3),
        Put(new, b"5"),
        Put(new, b"6", expected=1, version=1, before=b"5"),
    )
    promise(await _refused(store, *changes) is None, "a put with a version sees the puts of its own commit")
    rewritten = [await store.get(key), await store.get(new)]
    promise(
        rewritten == [Item(key, b"4", 3), Item(new, b"6", 1)], "a put with a version sees the puts of its own commit"
    )
    text = "a put with a version puts an item at any version, such as one that is copied from another store"
    promise(
        await _refused(store, Put(absent, b"copied", expected=0, version=7), Put(key, b"7", version=9)) is None, text
    )
    promise(await store.get(absent) == Item(absent, b"copied", 7), text)
    promise(await _refused(store, Put(absent, b"next", expected=7)) is None, text)
    promise([await store.get(absent), await store.get(key)] == [Item(absent, b"next", 8), Item(key, b"7", 9)], text)


async def _prefixes(store: Store, room: str) -> None:
    """A prefix is made of whole segments."""
    ends: tuple[Key, ...] = (
        ("a",), ("ab",), ("a", "b"), ("a", "bc"), ("a", "b", "c"), ("a", "b", 1), ("a", "b", "1"), ("a", 1), ("a", 1, "b"),
        ("a", 10), ("b", "a"), ("a", "", "c"), ("a", "b\0", "c"), ("a", "b", "c", "d", "e", "f"), ("", ""),
    )  # fmt: skip
    keys, neighbour = {(room, *end) for end in ends}, (f"{room}-2", "a")
    await store.commit(*(Put(key, repr(key).encode()) for key in keys), Put(neighbour, b"v"))
    for prefix in ((room,), *keys, (room, "a", "b", "c", "d"), (room, "none"), (room, "a", 2)):
        found = await _scan(store, prefix)
        promise(
            sorted(map(repr, (item.key for item in found)))
            == sorted(repr(key) for key in keys if key[: len(prefix)] == prefix),
            "scan returns the items whose keys begin with the segments of the prefix, each once, and no others",
        )
        promise(
            all(item.value == repr(item.key).encode() and item.version == 1 for item in found),
            "scan returns each item with its own value and version",
        )
        backwards = await _scan(store, prefix, reverse=True)
        promise(backwards == found[::-1], "scan with reverse=True returns the same items in the opposite order")
    whole = [item.key for item in await _scan(store, ()) if item.key[0] == room]
    promise(set(whole) == keys and len(whole) == len(keys), "scan of the empty prefix returns the items of all rooms")
    for prefix in ((room, "a", "b"), (room, "a", 1), (room,)):
        await store.commit(DeleteAll(prefix))
        keys = {key for key in keys if key[: len(prefix)] != prefix}
        promise(
            set(await _keys(store, (room,))) == keys,
            "DeleteAll removes the items whose keys begin with the segments of the prefix, and no others",
        )
    promise(await store.get(neighbour) is not None, "DeleteAll of a room leaves the other rooms alone")
    await store.commit(DeleteAll(neighbour))


async def _orders(store: Store, room: str) -> None:
    """Numbers are in order."""
    await store.commit(*(Put((room, "id", number, "x"), b"v") for number in reversed(_INTS)))
    found = [key[2] for key in await _keys(store, (room, "id"))]
    promise(found == list(_INTS), "keys that are equal up to an int segment come in the order of that number")
    found = [key[2] for key in await _keys(store, (room, "id"), reverse=True)]
    promise(found == list(_INTS[::-1]), "with reverse=True, keys come in the opposite order of their numbers")
    for number, after in pairwise(_INTS):
        rest = await _keys(store, (room, "id"), after=(room, "id", number, "x"), limit=1)
        promise([key[2] for key in rest] == [after], "after= continues a scan after a number with the next one")


async def _pages(store: Store, room: str) -> None:
    """A scan is continued after a key, and may have a limit."""
    wanted = [(room, f"o{a}", f"x{b}", n) for a in range(4) for b in range(3) for n in range(5)]
    await store.commit(*(Put(key, b"v") for key in wanted))
    for reverse in (False, True):
        whole = await _keys(store, (room,), reverse=reverse)
        for place in range(0, len(whole), 7):
            rest = await _keys(store, (room,), after=whole[place], reverse=reverse)
            promise(rest == whole[place + 1 :], "after= continues a scan after a key that it returned")
            page = await _keys(store, (room,), after=whole[place], reverse=reverse, limit=9)
            promise(page == whole[place + 1 : place + 10], "limit= returns the first items of a scan, and no more")
        promise(
            [key[:3] for key in whole[::5]] == [key[:3] for key in whole[4::5]],
            "keys with the same first segments follow each other",
        )
        (last,) = await _keys(store, whole[0][:2], reverse=not reverse, limit=1)
        promise(last == whole[14], "reverse=True returns items in the opposite order")
        rest = await _keys(store, (room,), after=last, reverse=reverse)
        promise(
            rest == whole[15:], "after= continues a scan after a key that a scan in the opposite direction returned"
        )
    promise(await _scan(store, (room,), limit=0) == [], "limit=0 returns no item")
    for reverse in (False, True):
        first, second, third, *_ = await _keys(store, (room, "o1"), reverse=reverse)
        await store.commit(Delete(second))
        rest = await _keys(store, (room, "o1"), after=second, limit=1, reverse=reverse)
        promise(rest == [third], "after= continues a scan after a key that was deleted since")
        rest = await _keys(store, (room, "o1"), after=first, limit=1, reverse=reverse)
        promise(rest == [third], "after= continues a scan after a key that it returned")


async def _any_text(store: Store, room: str) -> None:
    """Any text is a segment."""
    text = "any text may be a segment, and comes back as it was"
    keys = [(room, each, each, 1) for each in _TEXTS]
    await store.commit(*(Put(key, b"value") for key in keys))
    for key in keys:
        promise(await store.get(key) == Item(key, b"value", 1), text)
        promise(await _keys(store, key[:2]) == [key], text)


async def _long_keys(store: Store, room: str) -> None:
    """Keys may be long, and need not compress."""
    text = "keys may have many and long segments, of characters that do not repeat, and come back as they were"
    letters = random.Random(0)
    names = [
        "".join(chr(letters.randrange(0x10000, 0x110000)) for _ in range(length))
        for length in (63, 64, 255, 256, 700, 1_000, 1_000, 20_000)
    ]
    near = [f"{name[:-1]}{chr(ord(name[-1]) ^ 1)}" for name in names]
    whole: list[Key] = [(room, *names[:depth], number) for depth in range(1, len(names) + 1) for number in range(3)]
    keys: list[Key] = [*whole, (room, *names), *((room, name) for name in (*names, *near)), (room, *names[:2] * 20)]
    await store.commit(*(Put(key, b"%d" % number, expected=0) for number, key in enumerate(keys)))
    for number, key in enumerate(keys):
        promise(await store.get(key) == Item(key, b"%d" % number, 1), text)
    others: list[Key] = [(room, *near), (room, *names[:-1], near[-1]), (room, *names[:6], near[6], 0)]
    for other in others:
        promise(await store.get(other) is None, "get returns the item of exactly the key, also where keys are long")
    for depth in range(1, len(names) + 1):
        prefix: Key = (room, *names[:depth])
        found = await _keys(store, prefix)
        there = [key for key in keys if key[: len(prefix)] == prefix]
        promise(
            len(found) == len(there) and set(found) == set(there),
            "scan returns the items whose keys begin with the segments of the prefix, also where these are long",
        )
        numbers = [key[-1] for key in found if len(key) == len(prefix) + 1 and isinstance(key[-1], int)]
        promise(
            numbers == [0, 1, 2],
            "keys that are equal up to an int segment come in the order of that number, also where they are long",
        )
        rest = [found[0], *[key for last in found[:-1] for key in await _keys(store, prefix, after=last, limit=1)]]
        promise(rest == found, "after= continues a scan after a key that it returned, also where keys are long")
    await store.commit(DeleteAll((room, *names[:5])), Delete((room, names[0]), expected=1))
    left = {key for key in keys if key[:6] != (room, *names[:5])} - {(room, names[0])}
    promise(
        set(await _keys(store, (room,))) == left,
        "exactly the key or prefix is removed, also where it is long",
    )


async def _large(store: Store, room: str) -> None:
    """Values may be large, and items many."""
    big = bytes(range(256)) * 4_096
    await store.commit(
        *(Put((room, "o", n), n.to_bytes(2, "big") * 20) for n in range(2_000)), Put((room, "p", 1), big)
    )
    found = await store.get((room, "p", 1))
    promise(found is not None and found.value == big, "a value of a megabyte comes back as it was, with any bytes")
    numbers = [int.from_bytes(item.value[:2], "big") for item in await _scan(store, (room, "o"))]
    promise(numbers == list(range(2_000)), "a scan over thousands of items returns them all")
    scan = store.scan((room, "o"), after=(room, "o", 1_000))
    first = await anext(scan)
    promise(first.key == (room, "o", 1_001), "after= continues a scan after a key that it returned")
    await _left(scan)
    await store.commit(Put((room, "p", 2), b"v"))  # a scan that was left in the middle does not block others


async def _left(scan: AsyncIterator[Item]) -> None:
    """Leave a scan before its end."""
    close = getattr(scan, "aclose", None)  # only asynchronous generators need it
    if close is not None:
        await close()


async def _changing(store: Store, room: str) -> None:
    """A scan continues while its items are changed."""
    await store.commit(*(Put((room, "o", n), b"v") for n in range(0, 400, 2)))
    seen: list[Any] = []
    scan = store.scan((room, "o"))
    try:
        async for item in scan:
            number = cast("int", item.key[2])
            seen.append(number)
            if len(seen) % 10 == 0:
                with anyio.fail_after(_LONGEST_COMMIT):
                    await store.commit(Put((room, "o", number + 3), b"new"), Delete((room, "o", number)))
    finally:
        await _left(scan)
    promise(seen == sorted(set(seen)), "a scan returns no item twice, even if items are changed meanwhile")
    promise(set(range(0, 400, 2)) <= set(seen), "a scan leaves out no item that existed all the time")


async def _together(store: Store, room: str) -> None:
    """Commits are made one after the other."""
    won: list[int] = []

    async def save(number: int) -> None:
        await store.commit(Put((room, "o", "shared"), b"v"), Put((room, f"o{number % 5}", number), b"v"))
        if await _refused(store, Put((room, "o", "once"), str(number).encode(), expected=0)) is None:
            won.append(number)

    async with anyio.create_task_group() as group:
        for number in range(30):
            group.start_soon(save, number)
    shared, once = await store.get((room, "o", "shared")), await store.get((room, "o", "once"))
    promise(shared is not None and shared.version == 30, "of commits at the same time none is lost")
    promise(len(await _keys(store, (room,))) == 32, "of commits at the same time none is lost")
    promise(
        once is not None and [once.value] == [str(number).encode() for number in won],
        "of commits at the same time that expect the same version one is made, and the others raise ConflictError",
    )


async def _cancelled(store: Store, room: str) -> None:
    """A commit that is cancelled is made or not."""
    for number in range(20):
        with anyio.move_on_after(0.0002 * (number % 5)):
            await store.commit(Put((room, "a", number), b"v"), Put((room, "b", number), b"v"))
    await store.commit(Put((room, "o", 0), b"v"))
    keys = await _keys(store, (room,))
    one, other = ({key[2] for key in keys if key[1] == half} for half in ("a", "b"))
    promise(one == other, "a commit that is cancelled makes all its changes or none")


async def _elsewhere(store: Store, room: str) -> None:
    """A store is bound to no event loop."""
    await store.commit(Put((room, "o", 1), b"here"))

    async def work() -> list[Item]:
        await store.commit(Put((room, "o", 2), b"there"))
        return await _scan(store, (room,))

    found = await to_thread.run_sync(anyio.run, work)
    text = "a store is bound to no event loop: another one, in another thread, sees the same items"
    promise([item.value for item in found] == [b"here", b"there"], text)
    promise(await _scan(store, (room,)) == found, text)


async def _many(store: Store, room: str) -> None:
    """`get_many` returns the items of many keys."""
    get_many = cast("Callable[[Iterable[Key]], Any] | None", getattr(store, "get_many", None))
    if get_many is None:
        return
    there = [(room, f"who-{number % 3}", number) for number in range(100)]
    await store.commit(*(Put(key, b"%d" % number) for number, key in enumerate(there)))
    absent = [(room, "who-0", 100), (room, "who-0"), (room, "none"), *((room, "none", n) for n in range(1_000))]
    found = await get_many(iter([*there[::-1], *absent, *there]))
    promise(list(found) == there[::-1], "get_many returns the items that exist, in the order of their keys")
    expected = [Item(key, b"%d" % number, 1) for number, key in enumerate(there)]
    promise(list(found.values()) == expected[::-1], "get_many returns the items that get returns")
    promise(await get_many([]) == {}, "get_many of no keys returns nothing")


async def _durable(store: _Own, reopen: Callable[[_Own], Store], room: str) -> None:
    """Commits are durable when they return: they are there when the store is opened again."""
    text = "a commit is durable when it returns: a store opened again finds the items unchanged"
    one, two, odd = (room, "a", 1), (room, "a", 2), (room, "a\0\u00e9\ud800", "1", 2**63 - 1)
    for changes in (
        [Put(one, b"1")],
        [Put(one, b"2"), Put(two, b"\0\xff"), Put(odd, b"")],
        [Put(odd, bytes(100_000)), Put(one, b"3", expected=2)],
        [Put(two, b"no"), Put(one, b"no", expected=1)],
        [Put(two, b"again", expected=1, version=1)],
        [Delete(one)],
        [Put((room, "b", number), b"%d" % number) for number in range(300)],
        [DeleteAll((room, "b")), Put(one, b"4")],
    ):
        await _refused(store, *changes)
        again = reopen(store)
        expected = await _scan(store, (room,))
        promise(await _scan(again, (room,)) == expected, text)
        promise([await again.get(item.key) for item in expected] == expected, text)
        promise(repr([item.key for item in await _scan(again, (room,))]) == repr([item.key for item in expected]), text)
    again = reopen(store)
    promise(
        await _refused(again, Put(two, b"next", expected=1)) is None,
        "versions are counted on when a store is opened again",
    )
    await again.commit(DeleteAll((room,)))
    promise(
        await _scan(reopen(store), (room,)) == [],
        "items that DeleteAll removed do not exist when a store is opened again",
    )


async def _removed(store: Store, other: Store, room: str) -> None:
    """An item that a commit requires to exist is not removed while the commit is made."""
    head, rows = (room, "head"), (room, "rows")

    async def add(number: int) -> None:
        for step in range(2_000):
            if await _refused(store, Exists(head), Put((*rows, number, step), b"v")) is not None:
                return
            await checkpoint()

    async def remove(turn: int) -> None:
        await anyio.sleep(turn / 1_000)
        removals = DeleteAll(rows), DeleteAll(head)
        await other.commit(*(removals if turn % 4 < 2 else removals[::-1]))

    async def remove_elsewhere(turn: int) -> None:
        await to_thread.run_sync(anyio.run, remove, turn)

    for turn in range(12):
        await store.commit(Put(head, b"v"))
        async with anyio.create_task_group() as group:
            for number in range(4):
                group.start_soon(add, number)
            group.start_soon(remove_elsewhere if turn % 2 else remove, turn)
        promise(
            await _scan(store, (room,)) == [],
            "if an item is removed with everything that belongs to it, concurrent commits that require it to exist leave nothing behind",
        )


async def _opposite(store: Store, other: Store, room: str) -> None:
    """Commits at the same time may change the same items in opposite orders."""
    keys = [(room, "o", number) for number in range(20)]
    one, two = (room, "p", 1), (room, "p", 2)
    await store.commit(Put(one, b"v"), Put(two, b"v"))

    async def change(which: Store, keys: list[tuple[str, str, int]], there: Key, again: Key) -> None:
        for _ in range(10):
            await which.commit(*(Put(key, b"v") for key in keys))
            await which.commit(Exists(there), Delete(again), Put(again, b"v", expected=0))

    with anyio.fail_after(_LONGEST_COMMIT):
        async with anyio.create_task_group() as group:
            for which in (store, other):
                group.start_soon(change, which, keys, one, two)
                group.start_soon(change, which, keys[::-1], two, one)
    versions = [item.version for item in await _scan(store, (room, "o"))]
    promise(versions == [40] * len(keys), "of commits in opposite orders none is lost")


async def _disconnected(store: _Own, disconnect: Callable[[_Own], object], room: str) -> None:
    """A connection may be lost while a commit is made."""
    text = "a commit whose connection is lost is made once and wholly, or not at all"
    head = (room, "head")
    await store.commit(Put(head, b"v"))
    working, cuts, made, unknown = 10, 0, set[Key](), set[Key]()

    async def save(number: int) -> None:
        nonlocal working
        step = 0
        while step < 40 or cuts < _CUTS:  # a fast store has made forty commits before the first cut
            step += 1
            row = (room, "rows", number, step)
            changes = Exists(head), Put(row, b"v", expected=0), Put((room, "count", number), b"v")
            try:
                promise(await _refused(store, *changes) is None, text)
                made.add(row)
            except StoreError:
                unknown.add(row)
            await checkpoint()
        working -= 1

    async with anyio.create_task_group() as group:
        for number in range(working):
            group.start_soon(save, number)
        while working:
            await to_thread.run_sync(disconnect, store)
            cuts += 1
            await anyio.sleep(random.uniform(0, 0.03))
    for tries_left in reversed(range(20)):
        try:
            await store.get(head)
            await store.commit(Put(head, b"v"))
            break
        except StoreError:  # the first to use a connection may be the one that finds it lost
            if not tries_left:
                raise
    rows = set(await _keys(store, (room, "rows")))
    promise(made <= rows, "a commit that has returned is made, also where connections are lost")
    promise(rows <= made | unknown, text)
    counted = {item.key[2]: item.version for item in await _scan(store, (room, "count"))}
    promise(counted == Counter(row[2] for row in rows), text)
