"""`check_store` passes stores that keep their promises, and names the promise that another one breaks."""

from __future__ import annotations

import threading
from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest

from graphagent.errors import ConflictError, StoreError
from graphagent.store import Delete, DeleteAll, Exists, Item, MemoryStore, Put, SqliteStore
from graphagent.testing import check_store


class Three:
    """A store of the three methods alone, around another one."""

    def __init__(self):
        self.inner = MemoryStore()

    async def get(self, key):
        return await self.inner.get(key)

    async def scan(self, prefix, *, after=None, limit=None, reverse=False):
        async for item in self.inner.scan(prefix, after=after, limit=limit, reverse=reverse):
            yield item

    async def commit(self, *changes):
        await self.inner.commit(*changes)


class Dictionary:
    """A store as simple as can be."""

    def __init__(self):
        self.items = {}

    async def get(self, key):
        return self.items.get(key)

    async def scan(self, prefix, *, after=None, limit=None, reverse=False):
        def place(key):
            return [(isinstance(each, str), each) for each in key]

        keys = sorted((key for key in self.items if key[: len(prefix)] == prefix), key=place, reverse=reverse)
        if after is not None:
            keys = [key for key in keys if (place(key) < place(after) if reverse else place(key) > place(after))]
        for key in keys[:limit]:
            if key in self.items:
                yield self.items[key]

    async def commit(self, *changes):
        items = dict(self.items)
        await self.wait()
        for each in changes:
            if isinstance(each, DeleteAll):
                items = {key: item for key, item in items.items() if key[: len(each.prefix)] != each.prefix}
                continue
            found = items[each.key].version if each.key in items else 0
            if isinstance(each, Exists) and not found:
                raise ConflictError(each.key, 1, 0)
            if getattr(each, "expected", None) not in (None, found):
                raise ConflictError(each.key, each.expected, found)
            if isinstance(each, Put):
                items[each.key] = Item(each.key, each.value, found + 1)
            elif isinstance(each, Delete):
                items.pop(each.key, None)
        self.items = items

    async def wait(self):
        pass


@pytest.mark.parametrize("make", [Three, Dictionary])
async def test_three_methods_are_enough(make):
    """A store without `get_many` passes, whose scans are asynchronous generators."""
    await check_store(make)


async def test_a_store_is_made_each_time_or_once(tmp_path):
    """`make` may return the same store each time; what was in it before is there afterwards, and nothing else."""
    async with SqliteStore(tmp_path / "store.db") as store:
        await store.commit(Put(("mine", "key"), b"value"))
        await check_store(lambda: store)
        assert [item async for item in store.scan(())] == [Item(("mine", "key"), b"value", 1)]


class Forgetful(Three):
    async def commit(self, *changes):
        pass


class NoVersions(Three):
    async def get(self, key):
        item = await self.inner.get(key)
        return item and item._replace(version=1)


class OtherTypes(Three):
    async def get(self, key):
        return await self.inner.get(tuple(int(each) if str(each).isdigit() else each for each in key))

    async def commit(self, *changes):
        for each in changes:
            if isinstance(each, Put):
                key = tuple(int(part) if str(part).isdigit() else part for part in each.key)
                each = Put(key, each.value, each.expected)
            await self.inner.commit(each)


class AnyVersion(Three):
    async def commit(self, *changes):
        await self.inner.commit(*(Put(each.key, each.value) if isinstance(each, Put) else each for each in changes))


class OneByOne(Three):
    async def commit(self, *changes):
        for each in changes:
            await self.inner.commit(each)


class OtherError(Three):
    async def commit(self, *changes):
        try:
            await self.inner.commit(*changes)
        except ConflictError as error:
            raise ConflictError(error.key, error.expected, error.found + 1) from None


class AnotherError(Three):
    async def commit(self, *changes):
        try:
            await self.inner.commit(*changes)
        except ConflictError as error:
            raise StoreError("no") from error


class NoExists(Three):
    async def commit(self, *changes):
        await self.inner.commit(*(each for each in changes if not isinstance(each, Exists)))


class Touching(Three):
    async def commit(self, *changes):
        await self.inner.commit(*changes)
        for each in changes:
            if isinstance(each, Exists):
                await self.inner.commit(Put(each.key, (await self.inner.get(each.key)).value))


class Stale(Three):
    """Compares versions with those before the commit."""

    async def commit(self, *changes):
        for each in changes:
            if getattr(each, "expected", None) is not None:
                item = await self.inner.get(each.key)
                found = item.version if item else 0
                if found != each.expected:
                    raise ConflictError(each.key, each.expected, found)
        await self.inner.commit(
            *(replace(each, expected=None) if hasattr(each, "expected") else each for each in changes)
        )


class ByLetters(Three):
    async def scan(self, prefix, **how):
        async for item in self.inner.scan(prefix[:-1], **how):
            if item.key == prefix[:-1] or str(item.key[len(prefix) - 1]).startswith(str(prefix[-1])):
                yield item


class GreedyDeletion(Three):
    async def commit(self, *changes):
        each = changes[0] if len(changes) == 1 else None
        if isinstance(each, DeleteAll) and len(each.prefix) > 1:
            place, letters = len(each.prefix) - 1, str(each.prefix[-1])
            keys = [item.key async for item in self.inner.scan(each.prefix[:-1])]
            changes = [Delete(key) for key in keys if len(key) > place and str(key[place]).startswith(letters)]
        await self.inner.commit(*changes)


class Alphabetical(Three):
    async def scan(self, prefix, *, after=None, limit=None, reverse=False):
        items = sorted(
            [item async for item in self.inner.scan(prefix)], key=lambda item: str(item.key), reverse=reverse
        )
        for item in items[:limit]:
            yield item


class OneWay(Three):
    async def scan(self, prefix, *, after=None, limit=None, reverse=False):
        async for item in self.inner.scan(prefix, after=after, limit=limit):
            yield item


class FromTheStart(Three):
    async def scan(self, prefix, *, after=None, limit=None, reverse=False):
        async for item in self.inner.scan(prefix, limit=limit, reverse=reverse):
            yield item


class NoLimit(Three):
    async def scan(self, prefix, *, after=None, limit=None, reverse=False):
        async for item in self.inner.scan(prefix, after=after, reverse=reverse):
            yield item


class Latin(Three):
    async def commit(self, *changes):
        for each in changes:
            if isinstance(each, Put):
                str(each.key).encode("utf-8")
                "".join(map(str, each.key)).encode("utf-8")
        await self.inner.commit(*changes)


class Short(Three):
    async def commit(self, *changes):
        cut = [Put(each.key, each.value[:65_536], each.expected) if isinstance(each, Put) else each for each in changes]
        await self.inner.commit(*cut)


class FirstPage(Three):
    async def scan(self, prefix, *, after=None, limit=None, reverse=False):
        async for item in self.inner.scan(
            prefix, after=after, limit=1_000 if limit is None else limit, reverse=reverse
        ):
            yield item


class Jumpy(Three):
    """Pages by place instead of by key, so what is deleted meanwhile moves the rest."""

    async def scan(self, prefix, *, after=None, limit=None, reverse=False):
        place = 0
        while page := [item async for item in self.inner.scan(prefix, after=after, limit=limit, reverse=reverse)][
            place:
        ][:20]:
            for item in page:
                yield item
            place += 20


class LostUpdates(Dictionary):
    """Reads, waits and writes without a lock."""

    async def wait(self):
        await anyio.lowlevel.checkpoint()


class HalfCommits(Three):
    """Waits between the changes of a commit."""

    async def commit(self, *changes):
        if (
            len(changes) == 2
            and {type(each) for each in changes} == {Put}
            and changes[0].value == b"v"
            and "shared" not in changes[0].key
        ):
            await self.inner.commit(changes[0])
            await anyio.sleep(0.0005)
            await self.inner.commit(changes[1])
        else:
            await self.inner.commit(*changes)


class OneThread(Three):
    def __init__(self):
        super().__init__()
        self.thread = threading.get_ident()

    async def commit(self, *changes):
        if threading.get_ident() != self.thread:
            raise RuntimeError("got Future attached to a different loop")
        await super().commit(*changes)


class Batch(Three):
    async def get_many(self, keys):
        return {key: item for key in sorted(set(keys), key=repr) if (item := await self.inner.get(key))}


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (Forgetful, "get returns an item as it was put, with version 1"),
        (NoVersions, "its version is one more"),
        (OtherTypes, "get returns the item of exactly the key"),
        (AnyVersion, "commit raises ConflictError where an item has another version"),
        (OneByOne, "a commit that raises ConflictError changes nothing"),
        (OtherError, "a ConflictError has the key, the expected and the found version"),
        (AnotherError, r"A change may expect a version. The store raised StoreError\('no'\)"),
        (NoExists, "commit raises ConflictError where an item that Exists requires does not exist"),
        (Touching, "Exists changes nothing"),
        (Stale, "the changes of a commit follow one another"),
        (ByLetters, "begin with the segments of the prefix, each once, and no others"),
        (GreedyDeletion, "DeleteAll removes the items whose keys begin with the segments of the prefix, and no others"),
        (Alphabetical, "in the order of that number"),
        (OneWay, "in the opposite order"),
        (FromTheStart, "after= continues a scan"),
        (NoLimit, "limit= returns the first items of a scan"),
        (Latin, "Any text is a segment. The store raised UnicodeEncodeError"),
        (Short, "a value of a megabyte comes back"),
        (FirstPage, "thousands of items"),
        (Jumpy, "a scan leaves out nothing"),
        (LostUpdates, "of commits at the same time none is lost"),
        (HalfCommits, "a commit that is cancelled makes all its changes or none"),
        (OneThread, "A store is bound to no event loop. The store raised RuntimeError"),
        (Batch, "get_many returns the items that exist, in the order of their keys"),
    ],
)
async def test_a_broken_promise_is_named(broken, told):
    """A store that breaks one promise fails, and the error says which."""
    with pytest.raises(AssertionError, match=told):
        await check_store(broken)
