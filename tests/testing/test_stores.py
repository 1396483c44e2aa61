"""`check_store` passes stores that keep their promises, and names the promise that another one breaks."""

from __future__ import annotations

import threading
import unicodedata
import zlib
from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest
import trio
import trio.testing

from graphagent.errors import ConflictError, StoreError
from graphagent.store import Delete, DeleteAll, Exists, Item, MemoryStore, Put, SqliteStore
from graphagent.testing import check_store
from tests.testing.dictionary import Dictionary
from tests.testing.mutants import Mutants

MUTANTS = Mutants()
DURABLE = "a commit is durable when it returns: a store opened again finds the items unchanged"


class Three:
    """A store of the three methods alone, around another one."""

    def __init__(self, disk=None):
        self.disk = self.inner = MemoryStore() if disk is None else disk

    async def get(self, key):
        return await self.inner.get(key)

    async def scan(self, prefix, *, after=None, limit=None, reverse=False):
        async for item in self.inner.scan(prefix, after=after, limit=limit, reverse=reverse):
            yield item

    async def commit(self, *changes):
        await self.inner.commit(*changes)


def reopened(store):
    """Give another store of the same kind over what lasts of a store."""
    return type(store)(store.disk)


@pytest.mark.parametrize("make", [Three, Dictionary])
async def test_three_methods_are_enough(make):
    """A store without `get_many` passes, whose scans are asynchronous generators."""
    await check_store(make, reopen=reopened)


async def test_a_store_is_made_each_time_or_once(tmp_path):
    """`make` may return the same store each time; what was in it before is there afterwards, and nothing else."""
    async with SqliteStore(tmp_path / "store.db") as store:
        await store.commit(Put(("mine", "key"), b"value"))
        await check_store(lambda: store)
        assert [item async for item in store.scan(())] == [Item(("mine", "key"), b"value", 1)]


class Values(Three):
    """Keeps other values."""

    def kept(self, value):
        return value

    async def commit(self, *changes):
        await self.inner.commit(
            *(replace(each, value=self.kept(each.value)) if isinstance(each, Put) else each for each in changes)
        )


class Keys(Three):
    """Finds items under other keys, and gives those with which they were put."""

    def __init__(self, disk=None):
        super().__init__(disk)
        self.names = {}

    def named(self, segment):
        return segment

    def key(self, key):
        place = tuple(self.named(each) if isinstance(each, str) else each for each in key)
        self.names.setdefault(place, key)
        return place

    async def get(self, key):
        item = await self.inner.get(self.key(key))
        return item and item._replace(key=key)

    async def scan(self, prefix, *, after=None, limit=None, reverse=False):
        async for item in self.inner.scan(
            self.key(prefix), after=after and self.key(after), limit=limit, reverse=reverse
        ):
            yield item._replace(key=self.names[item.key])

    async def commit(self, *changes):
        await self.inner.commit(
            *(
                replace(each, prefix=self.key(each.prefix))
                if isinstance(each, DeleteAll)
                else replace(each, key=self.key(each.key))
                for each in changes
            )
        )


class Scans(Three):
    """Changes the items of a scan, which it reads wholly."""

    def chosen(self, items, prefix, after, limit, reverse):
        return items

    async def scan(self, prefix, *, after=None, limit=None, reverse=False):
        items = [item async for item in self.inner.scan(prefix, after=after, limit=limit, reverse=reverse)]
        for item in self.chosen(items, prefix, after, limit, reverse):
            yield item


class Changes(Three):
    """Commits other changes."""

    def changed(self, change):
        return change

    async def commit(self, *changes):
        await self.inner.commit(*filter(None, map(self.changed, changes)))


# 1. Lost values


@MUTANTS.breaks("get returns an Item, or None")
class Forgetful(Three):
    async def commit(self, *changes):
        pass


MUTANTS.like("Short", Values, "a value of a megabyte comes back", kept=lambda _, value: value[:65_536])
MUTANTS.like("UntilNul", Values, "any bytes come back as they were", kept=lambda _, value: value.partition(b"\0")[0])
MUTANTS.like("Stripped", Values, "any bytes come back as they were", kept=lambda _, value: value.strip())
MUTANTS.like(
    "Utf8", Values, "any bytes come back as they were", kept=lambda _, value: value.decode("utf-8", "replace").encode()
)
# Takes a put of nothing for a deletion.
MUTANTS.like(
    "NoEmptyValues",
    Changes,
    "another put replaces the value",
    changed=lambda _, change: Delete(change.key) if isinstance(change, Put) and not change.value else change,
)


@MUTANTS.breaks("a value comes back as bytes")
class Views(Three):
    async def get(self, key):
        item = await self.inner.get(key)
        return item and item._replace(value=memoryview(item.value))


# 2. Wrong keys


@MUTANTS.breaks("get returns the item of exactly the key")
class OtherTypes(Three):
    async def get(self, key):
        return await self.inner.get(tuple(int(each) if str(each).isdigit() else each for each in key))

    async def commit(self, *changes):
        for each in changes:
            if isinstance(each, Put):
                key = tuple(int(part) if str(part).isdigit() else part for part in each.key)
                each = Put(key, each.value, each.expected)
            await self.inner.commit(each)


@MUTANTS.breaks("Any text is a segment. The store raised UnicodeEncodeError")
class Latin(Three):
    async def commit(self, *changes):
        for each in changes:
            if isinstance(each, Put):
                str(each.key).encode("utf-8")
                "".join(map(str, each.key)).encode("utf-8")
        await self.inner.commit(*changes)


MUTANTS.like("LowerCase", Keys, "get returns the item of exactly the key", named=lambda _, segment: segment.lower())
MUTANTS.like("StrippedKeys", Keys, "get returns the item of exactly the key", named=lambda _, segment: segment.strip())
MUTANTS.like(
    "Normalised",
    Keys,
    "any text may be a segment, and comes back as it was",
    named=lambda _, segment: unicodedata.normalize("NFC", segment),
)
MUTANTS.like(
    "NulEnds",
    Keys,
    "scan returns the items whose keys begin with the segments",
    named=lambda _, segment: segment.partition("\0")[0],
)


@MUTANTS.breaks("scan returns the items whose keys begin with the segments")
class Floats(Three):
    """Gives the numbers of keys as JSON in another language does."""

    async def scan(self, prefix, **how):
        async for item in self.inner.scan(prefix, **how):
            yield item._replace(key=tuple(float(each) if isinstance(each, int) else each for each in item.key))


@MUTANTS.breaks("Any text is a segment. The store raised OSError")
class FileNames(Changes):
    def changed(self, change):
        for segment in getattr(change, "key", ()):
            if isinstance(segment, str) and len(segment.encode("utf-8", "surrogatepass")) > 255:
                raise OSError(36, "File name too long")
        return change


@MUTANTS.breaks("Keys may be long, and need not compress. The store raised StoreError")
class IndexRows(Changes):
    """Has its keys in an index whose rows have a limit once they are compressed, as that of a database."""

    def changed(self, change):
        key = "".join(map(str, getattr(change, "key", ()))).encode("utf-8", "surrogatepass")
        if len(zlib.compress(key)) > 2_704:
            raise StoreError("index row size exceeds btree maximum")
        return change


MUTANTS.like(
    "FirstCharacters",
    Keys,
    "Keys may be long, and need not compress. The store raised ConflictError",
    named=lambda _, segment: segment[:900],
)


@MUTANTS.breaks("keys that are equal up to an int segment come in the order of that number, also where they are long")
class LongKeysBackwards(Scans):
    def chosen(self, items, *_):
        return items[::-1] if any(len(repr(item.key)) > 3_000 for item in items) else items


# 3. Wrong versions


@MUTANTS.breaks("its version is one more")
class NoVersions(Three):
    async def get(self, key):
        item = await self.inner.get(key)
        return item and item._replace(version=1)


@MUTANTS.breaks("Exists changes nothing")
class Touching(Three):
    async def commit(self, *changes):
        await self.inner.commit(*changes)
        for each in changes:
            if isinstance(each, Exists):
                await self.inner.commit(Put(each.key, (await self.inner.get(each.key)).value))


@MUTANTS.breaks("get returns an item as it was put, with version 1")
class FromZero(Three):
    async def get(self, key):
        item = await self.inner.get(key)
        return item and item._replace(version=item.version - 1)


@MUTANTS.breaks("scan returns the items that get returns")
class ScannedVersions(Scans):
    def chosen(self, items, *_):
        return [item._replace(version=1) for item in items]


@MUTANTS.breaks("its version is one more")
class CountsCommits(Three):
    """Raises a version once for each commit."""

    async def commit(self, *changes):
        last = {each.key: each for each in changes if isinstance(each, Put)}
        await self.inner.commit(*(each for each in changes if not isinstance(each, Put) or last[each.key] is each))


@MUTANTS.breaks("the versions of an item that was deleted begin again at 1")
class CountsOn(Dictionary):
    """Counts the versions of what was deleted from where they were."""

    def __init__(self, disk=None):
        super().__init__(disk)
        self.highest = {}

    def write(self, before, changes):
        for key, item in self.items.items():
            self.highest[key] = max(self.highest.get(key, 0) + (key not in before), item.version)
            self.items[key] = item._replace(version=self.highest[key])


@MUTANTS.breaks("its version is one more")
class OneCounter(Three):
    """Counts the commits of the whole store."""

    commits = 0

    async def commit(self, *changes):
        self.commits += 1
        await self.inner.commit(*changes)

    async def get(self, key):
        item = await self.inner.get(key)
        return item and item._replace(version=self.commits)


# 4. Wrong conflicts


@MUTANTS.breaks("a ConflictError has the key, the expected and the found version")
class OtherError(Three):
    async def commit(self, *changes):
        try:
            await self.inner.commit(*changes)
        except ConflictError as error:
            raise ConflictError(error.key, error.expected, error.found + 1) from None


@MUTANTS.breaks(r"A change may expect a version. The store raised StoreError\('no'\)")
class AnotherError(Three):
    async def commit(self, *changes):
        try:
            await self.inner.commit(*changes)
        except ConflictError as error:
            raise StoreError("no") from error


@MUTANTS.breaks("commit raises ConflictError where an item that Exists requires does not exist")
class NoExists(Three):
    async def commit(self, *changes):
        await self.inner.commit(*(each for each in changes if not isinstance(each, Exists)))


@MUTANTS.breaks("the changes of a commit follow one another")
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


MUTANTS.like(
    "AnyDeletion",
    Changes,
    "commit raises ConflictError where an item has another version",
    changed=lambda _, change: Delete(change.key) if isinstance(change, Delete) else change,
)
# Refuses a version that is too low, and none that is too high.
MUTANTS.like(
    "NotNewer",
    Changes,
    "commit raises ConflictError where an item has another version",
    changed=lambda _, change: replace(change, expected=None) if getattr(change, "expected", None) in (2, 3) else change,
)
# Takes expected=0 for no expectation.
MUTANTS.like(
    "NewAnyway",
    Changes,
    "commit raises ConflictError where an item has another version",
    changed=lambda _, change: replace(change, expected=change.expected or None) if isinstance(change, Put) else change,
)


@MUTANTS.breaks("a ConflictError has the key, the expected and the found version")
class OtherKey(Three):
    async def commit(self, *changes):
        try:
            await self.inner.commit(*changes)
        except ConflictError as error:
            raise ConflictError(changes[0].key, error.expected, error.found) from None


@MUTANTS.breaks("commit raises ConflictError where an item that Exists requires does not exist")
class ExistsBelow(Three):
    """Takes a prefix of keys for an item that exists."""

    async def commit(self, *changes):
        below = {each for each in changes if isinstance(each, Exists) and len(each.key) == 2}
        await self.inner.commit(*(each for each in changes if each not in below))


@MUTANTS.breaks("Exists sees the puts of its own commit")
class ExistsFirst(Three):
    """Looks for what must exist before it makes the changes."""

    async def commit(self, *changes):
        order = sorted(changes, key=lambda each: not isinstance(each, Exists))
        await self.inner.commit(*order)


def requires(change):
    """Tell whether a change requires a version and changes nothing."""
    return isinstance(change, Exists) and change.version is not None


@MUTANTS.breaks("Exists\\(version=\\) allows a commit where the item has that version")
class NeverTheVersion(Three):
    async def commit(self, *changes):
        for each in filter(requires, changes):
            raise ConflictError(each.key, each.version, 0)
        await self.inner.commit(*changes)


MUTANTS.like(
    "AnyVersion",
    Changes,
    "commit raises ConflictError where an item has another version than Exists requires",
    changed=lambda _, change: Exists(change.key) if requires(change) else change,
)


@MUTANTS.breaks("commit raises ConflictError where an item has another version than Exists requires")
class VersionAtLeast(Three):
    """Allows a commit where the item is newer than required."""

    async def commit(self, *changes):
        for each in filter(requires, changes):
            item = await self.inner.get(each.key)
            if item is None or item.version < each.version:
                break
        else:
            changes = tuple(each for each in changes if not requires(each))
        await self.inner.commit(*changes)


class ToldOtherwise(Three):
    """Raises a conflict of some changes with another expected version."""

    of: type = Exists

    async def commit(self, *changes):
        try:
            await self.inner.commit(*changes)
        except ConflictError as error:
            if any(isinstance(each, self.of) and each.key == error.key for each in changes):
                raise ConflictError(error.key, error.expected + bool(error.found), error.found) from None
            raise


MUTANTS.like("ExistsToldOtherwise", ToldOtherwise, "the ConflictError of Exists has the key, the required")


@MUTANTS.breaks("a missing item has no version")
class FirstVersionMissing(Three):
    """Takes what nobody has put for the first version."""

    async def commit(self, *changes):
        first = [each for each in changes if requires(each) and each.version == 1]
        missing = {each for each in first if await self.inner.get(each.key) is None}
        await self.inner.commit(*(each for each in changes if each not in missing))


def rewrites(change):
    """Whether a change replaces the bytes of an item at the version that it has."""
    return isinstance(change, Put) and change.version is not None and change.version == change.expected


@MUTANTS.breaks("a put with a version replaces an item that has the expected version")
class NeverRewrites(Three):
    async def commit(self, *changes):
        for each in changes:
            if rewrites(each):
                raise ConflictError(each.key, each.expected, 0)
        await self.inner.commit(*changes)


MUTANTS.like(
    "RewriteIsPut",
    Changes,
    "a put with a version replaces the value, and the item has that version",
    changed=lambda _, change: Put(change.key, change.value, change.expected) if rewrites(change) else change,
)
MUTANTS.like(
    "RewriteIsNothing",
    Changes,
    "a put with a version replaces the value, and the item has that version",
    changed=lambda _, change: Exists(change.key, change.expected) if rewrites(change) else change,
)


@MUTANTS.breaks("commit raises ConflictError where an item has another version or other bytes than a put expects")
class RewritesAnyway(Three):
    async def commit(self, *changes):
        async def now(change):
            item = await self.inner.get(change.key)
            return replace(change, expected=item.version) if item else change

        await self.inner.commit(*[await now(each) if rewrites(each) else each for each in changes])


MUTANTS.like(
    "AnyBytes",
    Changes,
    "commit raises ConflictError where an item has another version or other bytes than a put expects",
    changed=lambda _, change: replace(change, before=None) if rewrites(change) else change,
)


@MUTANTS.breaks("a put with bytes before puts over the bytes that it expects")
class NeverTheBytes(Three):
    async def commit(self, *changes):
        for each in changes:
            if rewrites(each) and each.before is not None and len(changes) == 1:
                raise ConflictError(each.key, each.expected, each.expected)
        await self.inner.commit(*changes)


MUTANTS.like(
    "AlwaysTheNextVersion",
    Changes,
    "a put with a version puts an item at any version",
    changed=lambda _, change: (
        replace(change, version=None) if isinstance(change, Put) and not rewrites(change) else change
    ),
)


@MUTANTS.breaks("a put with a version sees the puts of its own commit")
class RewritesFirst(Three):
    """Makes the rewriting before the other changes."""

    async def commit(self, *changes):
        await self.inner.commit(*sorted(changes, key=lambda each: not rewrites(each)))


# 5. Half commits


@MUTANTS.breaks("a commit that raises ConflictError changes nothing")
class OneByOne(Three):
    async def commit(self, *changes):
        for each in changes:
            await self.inner.commit(each)


@MUTANTS.breaks("a commit that is cancelled makes all its changes or none")
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


@MUTANTS.breaks("a commit that raises ConflictError changes nothing")
class PutsFirst(Three):
    """Makes the puts, and then the rest."""

    async def commit(self, *changes):
        await self.inner.commit(*(each for each in changes if isinstance(each, Put)))
        await self.inner.commit(*(each for each in changes if not isinstance(each, Put)))


@MUTANTS.breaks("another put replaces the value")
class Reversed(Three):
    async def commit(self, *changes):
        await self.inner.commit(*changes[::-1])


@MUTANTS.breaks("a commit that raises ConflictError changes nothing")
class InParts(Three):
    """Makes a large commit in parts."""

    async def commit(self, *changes):
        await self.inner.commit(*changes[:500])
        for start in range(500, len(changes), 500):
            await self.inner.commit(*changes[start : start + 500])


@MUTANTS.breaks("a commit that raises ConflictError changes nothing")
class DeletionsApart(Three):
    """Deletes what a refused commit keeps."""

    async def commit(self, *changes):
        try:
            await self.inner.commit(*changes)
        except ConflictError:
            await self.inner.commit(*(each for each in changes if isinstance(each, DeleteAll)))
            raise


@MUTANTS.breaks("A missing item is not found, and may be deleted. The store raised ValueError")
class NeverNothing(Three):
    async def commit(self, *changes):
        if not changes:
            raise ValueError("there are no changes")
        await self.inner.commit(*changes)


# 6. Wrong prefixes and deletions


@MUTANTS.breaks("begin with the segments of the prefix, each once, and no others")
class ByLetters(Three):
    async def scan(self, prefix, **how):
        async for item in self.inner.scan(prefix[:-1], **how):
            if item.key == prefix[:-1] or str(item.key[len(prefix) - 1]).startswith(str(prefix[-1])):
                yield item


@MUTANTS.breaks("DeleteAll removes the items whose keys begin with the segments of the prefix, and no others")
class GreedyDeletion(Three):
    async def commit(self, *changes):
        each = changes[0] if len(changes) == 1 else None
        if isinstance(each, DeleteAll) and len(each.prefix) > 1:
            place, letters = len(each.prefix) - 1, str(each.prefix[-1])
            keys = [item.key async for item in self.inner.scan(each.prefix[:-1])]
            changes = [Delete(key) for key in keys if len(key) > place and str(key[place]).startswith(letters)]
        await self.inner.commit(*changes)


# Takes the deletion of an item for that of all below it.
MUTANTS.like(
    "DeletesBelow",
    Changes,
    "Delete removes the item of exactly the key",
    changed=lambda _, change: (
        DeleteAll(change.key) if isinstance(change, Delete) and change.expected is None else change
    ),
)


@MUTANTS.breaks("DeleteAll removes the items whose keys begin")
class KeepsTheRoot(Three):
    """Leaves the item whose key is the prefix."""

    async def commit(self, *changes):
        kept = []
        for each in changes:
            root = await self.inner.get(each.prefix) if isinstance(each, DeleteAll) else None
            kept += [each, Put(root.key, root.value)] if root else [each]
        await self.inner.commit(*kept)


# Takes the deletion of a prefix for that of an item.
MUTANTS.like(
    "DeletesOne",
    Changes,
    "DeleteAll removes the items whose keys begin",
    changed=lambda _, change: Delete(change.prefix) if isinstance(change, DeleteAll) else change,
)


@MUTANTS.breaks("A missing item is not found, and may be deleted. The store raised KeyError")
class Mandatory(Three):
    """Refuses to delete what does not exist."""

    async def commit(self, *changes):
        for each in changes:
            if isinstance(each, Delete) and await self.inner.get(each.key) is None:
                raise KeyError(each.key)
        await self.inner.commit(*changes)


# Empties an item instead of deleting it.
MUTANTS.like(
    "Emptied",
    Changes,
    "get returns None for a deleted item",
    changed=lambda _, change: Put(change.key, b"", change.expected) if isinstance(change, Delete) else change,
)


@MUTANTS.breaks("scan returns the items whose keys begin with the segments of the prefix")
class NoRoot(Scans):
    """Leaves out the item whose key is the prefix."""

    def chosen(self, items, prefix, *_):
        return [item for item in items if item.key != prefix]


@MUTANTS.breaks("scan returns the items that get returns")
class OneLevel(Scans):
    """Returns what is right below the prefix."""

    def chosen(self, items, prefix, *_):
        return [item for item in items if len(item.key) <= len(prefix) + 2]


@MUTANTS.breaks("scan of the empty prefix returns the items of all rooms")
class OneRoom(Scans):
    """Has no prefix of all rooms."""

    def chosen(self, items, prefix, *_):
        return items if prefix else []


@MUTANTS.breaks("DeleteAll of a room leaves the other rooms alone")
class RoomsByLetters(Three):
    async def commit(self, *changes):
        await self.inner.commit(*changes)
        if len(changes) == 1 and isinstance(changes[0], DeleteAll):
            first = changes[0].prefix[0]
            keys = [item.key async for item in self.inner.scan(()) if item.key[0].startswith(first)]
            await self.inner.commit(*(DeleteAll(key[:1]) for key in keys if len(changes[0].prefix) == 1))


# 7. Wrong order


@MUTANTS.breaks("in the order of that number")
class Alphabetical(Three):
    async def scan(self, prefix, *, after=None, limit=None, reverse=False):
        items = sorted(
            [item async for item in self.inner.scan(prefix)], key=lambda item: str(item.key), reverse=reverse
        )
        for item in items[:limit]:
            yield item


@MUTANTS.breaks("in the opposite order")
class OneWay(Three):
    async def scan(self, prefix, *, after=None, limit=None, reverse=False):
        async for item in self.inner.scan(prefix, after=after, limit=limit):
            yield item


@MUTANTS.breaks("in the order of that number")
class Short32(Scans):
    """Compares 32 bits of a number."""

    def chosen(self, items, prefix, after, limit, reverse):
        def place(item):
            return [each % 2**32 if isinstance(each, int) else 0 for each in item.key]

        return sorted(items, key=place, reverse=reverse)


@MUTANTS.breaks("in the order of that number")
class Bytewise(Scans):
    """Compares the bytes of numbers, the lowest first."""

    def chosen(self, items, prefix, after, limit, reverse):
        def place(item):
            return [each.to_bytes(8, "little") if isinstance(each, int) else b"" for each in item.key]

        return sorted(items, key=place, reverse=reverse)


# 8. Wrong pages


@MUTANTS.breaks("after= continues a scan")
class FromTheStart(Three):
    async def scan(self, prefix, *, after=None, limit=None, reverse=False):
        async for item in self.inner.scan(prefix, limit=limit, reverse=reverse):
            yield item


@MUTANTS.breaks("thousands of items")
class FirstPage(Three):
    async def scan(self, prefix, *, after=None, limit=None, reverse=False):
        async for item in self.inner.scan(
            prefix, after=after, limit=1_000 if limit is None else limit, reverse=reverse
        ):
            yield item


@MUTANTS.breaks("a scan leaves out no item")
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


@MUTANTS.breaks("after= continues a scan")
class LimitFirst(Three):
    """Counts the limit from the start of the prefix."""

    async def scan(self, prefix, *, after=None, limit=None, reverse=False):
        keys = [item.key async for item in self.inner.scan(prefix, limit=limit, reverse=reverse)]
        async for item in self.inner.scan(prefix, after=after, reverse=reverse):
            if item.key in keys:
                yield item


@MUTANTS.breaks("limit=0 returns no item")
class ZeroIsAll(Three):
    async def scan(self, prefix, *, after=None, limit=None, reverse=False):
        async for item in self.inner.scan(prefix, after=after, limit=limit or None, reverse=reverse):
            yield item


@MUTANTS.breaks("after= continues a scan")
class OneMore(Three):
    async def scan(self, prefix, *, after=None, limit=None, reverse=False):
        more = None if limit is None else limit + 1
        async for item in self.inner.scan(prefix, after=after, limit=more, reverse=reverse):
            yield item


@MUTANTS.breaks("A scan is continued after a key, and may have a limit. The store raised ValueError")
class Places(Three):
    """Looks for the key to continue after, which must be there."""

    async def scan(self, prefix, *, after=None, limit=None, reverse=False):
        items = [item async for item in self.inner.scan(prefix, reverse=reverse)]
        start = 0 if after is None else [item.key for item in items].index(after) + 1
        for item in items[start:][:limit]:
            yield item


@MUTANTS.breaks("after= continues a scan")
class AfterForwards(Three):
    """Continues forwards, whatever the direction."""

    async def scan(self, prefix, *, after=None, limit=None, reverse=False):
        reverse = reverse and after is None
        async for item in self.inner.scan(prefix, after=after, limit=limit, reverse=reverse):
            yield item


# 9. Wrong signatures


@MUTANTS.breaks(r"scan\(prefix, after=None, limit=None, reverse=False\) returns an asynchronous iterator")
class NoScan(Three):
    scan = None


@MUTANTS.breaks(r"get\(key\) is an async method")
class NotAsync(Dictionary):
    def get(self, key):
        return self.items.get(key)


@MUTANTS.breaks(r"commit\(\*changes\) is an async method")
class OneList(Three):
    async def commit(self, changes):
        await self.inner.commit(*changes)


@MUTANTS.breaks("returns an asynchronous iterator, and is not awaited")
class AwaitedScan(Three):
    async def scan(self, prefix, *, after=None, limit=None, reverse=False):
        return [item async for item in self.inner.scan(prefix, after=after, limit=limit, reverse=reverse)]


@MUTANTS.breaks(r"scan\(prefix, after=None, limit=None, reverse=False\) returns")
class OtherNames(Three):
    async def scan(self, prefix, *, start=None, limit=None, reverse=False):
        async for item in self.inner.scan(prefix, after=start, limit=limit, reverse=reverse):
            yield item


@MUTANTS.breaks("scan returns Items")
class Pairs(Scans):
    def chosen(self, items, *_):
        return [(item.key, item.value) for item in items]


@MUTANTS.breaks("get returns an Item, or None")
class MereTuple(Three):
    async def get(self, key):
        item = await self.inner.get(key)
        return item and tuple(item)


@MUTANTS.breaks("A missing item is not found, and may be deleted. The store raised KeyError")
class Raises(Three):
    async def get(self, key):
        if (item := await self.inner.get(key)) is None:
            raise KeyError(key)
        return item


@MUTANTS.breaks(r"get_many\(keys\) is an async method")
class ManyAtOnce(Three):
    def get_many(self, keys):
        return {}


@MUTANTS.breaks("get_many returns a dictionary of Items")
class ManyItems(Three):
    async def get_many(self, keys):
        return [item for key in keys if (item := await self.inner.get(key))]


# 10. Missing durability


@MUTANTS.breaks(DURABLE)
class NotWritten(Dictionary):
    def write(self, before, changes):
        pass


@MUTANTS.breaks(DURABLE)
class FirstChange(Dictionary):
    """Writes the first change of a commit."""

    def write(self, before, changes):
        key = getattr(changes[0], "key", None) if changes else None
        self.disk.update({key: self.items[key]} if key in self.items else {})


@MUTANTS.breaks(DURABLE)
class StillThere(Dictionary):
    """Does not write what is deleted."""

    def write(self, before, changes):
        self.disk.update(self.items)


@MUTANTS.breaks(DURABLE)
class DeletedPrefixes(Dictionary):
    """Does not write what is deleted by its prefix."""

    def write(self, before, changes):
        gone = [] if any(isinstance(each, DeleteAll) for each in changes) else set(before) - set(self.items)
        for key in gone:
            del self.disk[key]
        self.disk.update(self.items)


@MUTANTS.breaks(DURABLE)
class NewOnly(Dictionary):
    """Does not write what is put again."""

    def write(self, before, changes):
        super().write(before, changes)
        self.disk.update({key: item for key, item in before.items() if key in self.items})


MUTANTS.like(
    "VersionsFromOne",
    Dictionary,
    DURABLE,
    read=lambda _, disk: ({key: item._replace(version=1) for key, item in disk.items()}),
)


@MUTANTS.breaks(DURABLE)
class TextKeys(Dictionary):
    """Reads the numbers of keys as text."""

    def read(self, disk):
        keys = {key: tuple(map(str, key)) for key in disk}
        return {keys[key]: item._replace(key=keys[key]) for key, item in disk.items()}


# Leaves out what is no UTF-8.
MUTANTS.like(
    "ReadableKeys",
    Dictionary,
    DURABLE,
    read=lambda _, disk: ({key: item for key, item in disk.items() if not any("\ud800" in str(each) for each in key)}),
)
MUTANTS.like(
    "ShortOnDisk",
    Dictionary,
    DURABLE,
    read=lambda _, disk: ({key: item._replace(value=item.value[:65_536]) for key, item in disk.items()}),
)
MUTANTS.like("FirstHundred", Dictionary, DURABLE, read=lambda _, disk: ({key: disk[key] for key in list(disk)[:100]}))


@MUTANTS.breaks(DURABLE)
class RefusedOnDisk(Dictionary):
    """Writes what is put before it looks for conflicts."""

    async def commit(self, *changes):
        first = changes[0] if changes else None
        if isinstance(first, Put):
            self.disk[first.key] = Item(first.key, first.value, 1)
        await super().commit(*changes)


# 11. Several at once


@MUTANTS.breaks("of commits at the same time none is lost")
class LostUpdates(Dictionary):
    """Reads, waits and writes without a lock."""

    async def commit(self, *changes):
        items = dict(self.items)
        await anyio.lowlevel.checkpoint()
        self.items = items
        await super().commit(*changes)


@MUTANTS.breaks("concurrent commits that require it to exist leave nothing behind")
class RemovesWhatItSaw(Dictionary):
    """Looks for what is to be removed, waits for others, and removes that alone."""

    async def commit(self, *changes):
        if all(isinstance(each, DeleteAll) for each in changes):
            prefixes = [each.prefix for each in changes]
            changes = [Delete(key) for key in self.items if any(key[: len(each)] == each for each in prefixes)]
            await anyio.lowlevel.checkpoint()
        await super().commit(*changes)


@MUTANTS.breaks("Commits at the same time may change the same items in opposite orders. The store raised")
class LocksAsTheyCome(Three):
    """Locks the items of a commit in the order of its changes, and refuses one that would wait for itself."""

    def __init__(self, disk=None):
        super().__init__(disk)
        self.holders, self.waiting = self.disk.__dict__.setdefault("locks", ({}, {}))

    async def commit(self, *changes):
        me, held = object(), []
        try:
            for key in dict.fromkeys(getattr(each, "key", ()) for each in changes):
                while (holder := self.holders.get(key)) is not None:
                    self.waiting[me] = key
                    while holder in self.waiting:
                        holder = self.holders.get(self.waiting[holder])
                        if holder is me:
                            raise StoreError("deadlock detected")
                    await anyio.lowlevel.checkpoint()
                self.waiting.pop(me, None)
                self.holders[key] = me
                held.append(key)
                await anyio.lowlevel.checkpoint()
            await self.inner.commit(*changes)
        finally:
            self.waiting.pop(me, None)
            for key in held:
                del self.holders[key]


@MUTANTS.breaks("A store is bound to no event loop. The store raised RuntimeError")
class OneThread(Three):
    def __init__(self, disk=None):
        super().__init__(disk)
        self.thread = threading.get_ident()

    async def commit(self, *changes):
        if threading.get_ident() != self.thread:
            raise RuntimeError("got Future attached to a different loop")
        await super().commit(*changes)


@MUTANTS.breaks("Commits are made one after the other. The store raised")
class Busy(Three):
    busy = False

    async def commit(self, *changes):
        if self.busy:
            raise StoreError("the store is locked")
        self.busy = True
        try:
            await anyio.lowlevel.checkpoint()
            await self.inner.commit(*changes)
        finally:
            self.busy = False


@MUTANTS.breaks("of commits at the same time that expect the same version one is made")
class LooksFirst(Three):
    """Looks for conflicts, waits, and makes the changes."""

    async def commit(self, *changes):
        for each in changes:
            if isinstance(each, Put) and each.expected == 0 and len(changes) == 1:
                if (item := await self.inner.get(each.key)) is not None:
                    raise ConflictError(each.key, 0, item.version)
                await anyio.lowlevel.checkpoint()
                changes = (Put(each.key, each.value),)
        await self.inner.commit(*changes)


@MUTANTS.breaks("a store is bound to no event loop")
class OneLoop(Three):
    """Keeps what another thread commits to itself."""

    def __init__(self, disk=None):
        self.thread, self.other = threading.get_ident(), MemoryStore()
        super().__init__(disk)

    @property
    def inner(self):
        return self.disk if threading.get_ident() == self.thread else self.other

    @inner.setter
    def inner(self, store):
        self.disk = store


@MUTANTS.breaks("A scan continues while its items are changed. The store raised StoreError")
class LockedScan(Three):
    """Refuses commits while a scan is read."""

    scanning = 0

    async def scan(self, prefix, **how):
        self.scanning += 1
        try:
            async for item in self.inner.scan(prefix, **how):
                yield item
        finally:
            self.scanning -= 1

    async def commit(self, *changes):
        if self.scanning:
            raise StoreError("the store is locked")
        await self.inner.commit(*changes)


@MUTANTS.breaks("a scan returns no item twice")
class Snapshot(Scans):
    """Finds again what is deleted during a scan."""

    async def scan(self, prefix, **how):
        seen = []
        async for item in self.inner.scan(prefix, **how):
            seen.append(item)
            yield item
        for item in seen:
            if await self.inner.get(item.key) is None:
                yield item


# 12. Wrong batches


@MUTANTS.breaks("get_many returns the items that exist, in the order of their keys")
class Batch(Three):
    async def get_many(self, keys):
        return {key: item for key in sorted(set(keys), key=repr) if (item := await self.inner.get(key))}


class Batches(Three):
    """Reads many items, and chooses among them."""

    def chosen(self, items):
        return items

    async def get_many(self, keys):
        return self.chosen({key: item for key in keys if (item := await self.inner.get(key))})


@MUTANTS.breaks("get_many returns the items that exist, in the order of their keys")
class NoneForAbsent(Three):
    async def get_many(self, keys):
        return {key: await self.inner.get(key) for key in keys}


MUTANTS.like(
    "FirstFifty",
    Batches,
    "get_many returns the items that exist",
    chosen=lambda _, items: dict(list(items.items())[:50]),
)
MUTANTS.like(
    "MereValues",
    Batches,
    "get_many returns the items that get returns",
    chosen=lambda _, items: ({key: item.value for key, item in items.items()}),
)


@MUTANTS.breaks("get_many returns the items that exist")
class ReadTwice(Three):
    """Reads the keys two times, of which an iterator has none the second time."""

    async def get_many(self, keys):
        known = {key for key in keys if await self.inner.get(key)}
        return {key: await self.inner.get(key) for key in keys if key in known}


@MUTANTS.breaks("`get_many` returns the items of many keys. The store raised StoreError")
class ThousandKeys(Batches):
    async def get_many(self, keys):
        if len(keys := list(keys)) > 999:
            raise StoreError("too many SQL variables")
        return await super().get_many(keys)


@MUTANTS.breaks("get_many of no keys returns nothing")
class Something(Batches):
    async def get_many(self, keys):
        return await super().get_many(list(keys) or [item.key async for item in self.inner.scan((), limit=1)])


# 13. Lost connections


ONCE = "a commit whose connection is lost is made once and wholly, or not at all"


class Server(Three):
    """Has a connection, which may be cut before the server makes a commit, or after it."""

    lost = 0

    def cut(self):
        self.lost += 1

    async def commit(self, *changes):
        if len(changes) != 3 or not self.lost:
            return await self.inner.commit(*changes)
        self.lost -= 1
        return await self.after_a_cut(changes)

    async def after_a_cut(self, changes):
        if self.lost % 2:
            await self.inner.commit(*changes)
        raise StoreError("the connection was lost, and whether the commit was made is not known")


@MUTANTS.breaks(ONCE)
class MakesItAgain(Server):
    """Makes a commit again that may have been made."""

    async def after_a_cut(self, changes):
        await self.inner.commit(*changes)
        await self.inner.commit(*changes)


@MUTANTS.breaks(ONCE)
class PutsItAgain(Server):
    async def after_a_cut(self, changes):
        await self.inner.commit(*changes)
        await self.inner.commit(*(replace(each, expected=None) for each in changes if isinstance(each, Put)))


@MUTANTS.breaks(ONCE)
class HalfOfIt(Server):
    async def after_a_cut(self, changes):
        await self.inner.commit(*changes[:2])
        raise StoreError("the connection was lost")


@MUTANTS.breaks("a commit that has returned is made, also where connections are lost")
class SaysSo(Server):
    async def after_a_cut(self, changes):
        pass


@MUTANTS.breaks("A connection may be lost while a commit is made. The store raised StoreError")
class NeverAgain(Server):
    async def commit(self, *changes):
        if self.lost:
            raise StoreError("the connection is closed")
        await self.inner.commit(*changes)


async def test_a_connection_may_be_lost():
    """A store passes that says of a commit that it may have been made or not."""
    await check_store(Server, reopen=reopened, disconnect=Server.cut)


@pytest.mark.parametrize(("mutant", "told"), MUTANTS, ids=[mutant.__name__ for mutant, _ in MUTANTS])
async def test_a_broken_promise_is_named(mutant, told):
    """A store that breaks one promise fails, and the error says which."""
    with pytest.raises(AssertionError, match=told):
        await check_store(mutant, reopen=reopened, disconnect=getattr(mutant, "cut", None))


class Locked(Three):
    """Makes a commit wait until scans have ended."""

    def __init__(self):
        super().__init__()
        self.lock = anyio.Semaphore(1)

    async def scan(self, prefix, **how):
        async with self.lock:
            async for item in self.inner.scan(prefix, **how):
                yield item

    async def commit(self, *changes):
        async with self.lock:
            await self.inner.commit(*changes)


def test_a_commit_that_waits_for_ever_is_named():
    """A store whose commits wait for the scan in which they are made fails, instead of keeping the check from its end."""
    with pytest.raises(AssertionError, match=r"A scan continues while its items are changed.*TimeoutError"):
        trio.run(check_store, Locked, clock=trio.testing.MockClock(autojump_threshold=0))
