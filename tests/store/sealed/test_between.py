"""Other writers commit to a sealed store at every moment at which an operation waits: it ends as if they had come before or after."""

from __future__ import annotations

import pytest

from graphagent.errors import ConflictError
from graphagent.store import Delete, DeleteAll, EncryptedStore, Exists, MemoryStore, Put
from graphagent.store.sealed import _domains, _session

KEY = bytes(range(32))
OWNER = ("room", "ann")
OLD, NEW = b"old", b"new"
COUNT = 5


def key(number, owner=OWNER):
    return (*owner, "part", number)


class Between:
    """The store within, in which something else happens at one of the moments at which it is waited for."""

    def __init__(self, inner):
        self.inner = inner
        self.calls = 0
        self.at = 0
        self.meddle = None

    async def step(self):
        self.calls += 1
        if self.calls == self.at:
            await self.meddle()

    async def get(self, key):
        await self.step()
        found = await self.inner.get(key)
        await self.step()
        return found

    async def scan(self, prefix, **how):
        await self.step()
        async for found in self.inner.scan(prefix, **how):
            yield found
            await self.step()

    async def commit(self, *changes):
        await self.step()
        await self.inner.commit(*changes)
        await self.step()


async def rotated(store):
    await store.keys.rotate_data()


MEDDLES = {
    "adds an item": [(Put(key(COUNT), NEW),)],
    "adds an item to another part": [(Put((*OWNER, "another", 1), NEW),)],
    "changes an item": [(Put(key(3), NEW),)],
    "removes an item": [(Delete(key(3)),)],
    "forgets the domain": [(DeleteAll(OWNER),)],
    "forgets the domain and begins it anew": [(DeleteAll(OWNER),), (Put(key(3), NEW),)],
    "begins another domain": [(Put(("room", "bob", "part", 1), NEW),)],
    "begins the same domain": [(Put(("room", "nobody", "part", 2), NEW),)],
    "forgets everything": [(DeleteAll(()),)],
    "seals all data with new keys": [rotated],
    "changes an item, and seals all data with new keys twice": [
        (Put(key(3), NEW),),
        rotated,
        rotated,
    ],
}


async def make(store, step):
    """Make one commit, or whatever else others do."""
    await (step(store) if callable(step) else store.commit(*step))


async def listed(store, prefix=OWNER, **how):
    return {item.key: item.value async for item in store.scan(prefix, **how)}


READS = {
    "get": lambda store: store.get(key(3)),
    "get what is not there": lambda store: store.get(key(9)),
    "get of no domain": lambda store: store.get(("room", "nobody", "part", 1)),
    "scan": listed,
    "scan from behind": lambda store: listed(store, reverse=True),
    "scan all": lambda store: listed(store, ()),
    "scan a few": lambda store: listed(store, limit=2),
    "verify": lambda store: store.verify(),
    "seal all data with new keys": lambda store: store.keys.rotate_data(),
}
WRITES = {
    "put": (Put(key(3), b"mine"),),
    "put a new one": (Put(key(8), b"mine"),),
    "put into a new domain": (Put(("room", "nobody", "part", 1), b"mine"),),
    "put behind one that must be there": (Exists(key(3)), Put(key(8), b"mine")),
    "put where there must be none": (Put(key(COUNT), b"mine", expected=0),),
    "delete": (Delete(key(2)),),
    "delete a part": (DeleteAll((*OWNER, "part")),),
    "delete the domain": (DeleteAll(OWNER),),
    "delete everything and begin": (DeleteAll(()), Put(key(1), b"mine")),
}


SIGHTS = ("unread", "read", "noticed")
"""What the handle knows: nothing of the domain, or what it was before; or another task of it notices each foreign commit."""


@pytest.fixture
def sight(request, monkeypatch):
    """One of SIGHTS; what is noticed is not read in full at once, as where there is much."""
    if request.param == "noticed":
        monkeypatch.setattr(_domains, "_FOREIGN_COMMIT", 0)
        monkeypatch.setattr(_session, "_OPERATION", 0)
    return request.param


async def begun(*, known):
    """Give a handle whose store within can be meddled with, and another handle; `known` says whether the first has read."""
    inner = MemoryStore()
    other = EncryptedStore(inner, KEY)
    await other.commit(*(Put(key(number), OLD) for number in range(COUNT)), Put(("room", "cid", "part", 1), OLD))
    between = Between(inner)
    store = EncryptedStore(between, KEY)
    await (listed(store) if known else store.get(("room", "cid", "part", 1)))
    between.calls = 0
    return between, store, other


async def moments(sight, meddle, operation, check):
    """Do an operation again and again; the other handle commits at another moment each time, until there is none left."""
    at = 1
    while True:
        between, store, other = await begun(known=sight != "unread")
        before = await listed(other, ())

        async def commit(store=store, other=other):
            for step in MEDDLES[meddle]:
                await make(other, step)
            if sight == "noticed":
                await store.get(key(3))
                await store.get(key(COUNT))

        between.at, between.meddle = at, commit
        found = await operation(store)
        if between.calls < at:
            return
        after = await listed(other, ())
        check(found, before, after)
        assert await listed(store, ()) == after
        at += 1


@pytest.mark.one_value("sight")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the moments are the same on any loop
@pytest.mark.parametrize("sight", SIGHTS, indirect=True)
@pytest.mark.parametrize("meddle", MEDDLES)
@pytest.mark.parametrize("name", READS)
async def test_a_read_while_others_commit(sight, meddle, name):
    """Whenever another handle commits, what is read was there before or is there after."""

    def check(found, before, after):
        if name == "verify":
            assert found in (len(before), len(after))
        elif isinstance(found, dict):
            assert all(value in (before.get(each), after.get(each)) for each, value in found.items())
            if name != "scan a few":
                depth = 0 if name == "scan all" else len(OWNER)
                kept = {each for each in before.keys() & after.keys() if each[:depth] == OWNER[:depth]}
                assert kept <= found.keys()
        elif name != "seal all data with new keys":
            wanted = {"get": key(3), "get what is not there": key(9)}.get(name)
            assert (found and found.value) in (before.get(wanted), after.get(wanted))

    await moments(sight, meddle, READS[name], check)


async def told(store, changes):
    try:
        await store.commit(*changes)
    except ConflictError:
        return "conflict"
    return "made"


@pytest.mark.one_value("sight")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the moments are the same on any loop
@pytest.mark.parametrize("sight", SIGHTS, indirect=True)
@pytest.mark.parametrize("meddle", MEDDLES)
@pytest.mark.parametrize("name", WRITES)
async def test_a_commit_while_others_commit(sight, meddle, name):
    """Whenever another handle commits, a commit is made as if it had come before or after, or meets its conflict."""
    right = []
    for place in range(len(MEDDLES[meddle]) + 1):
        _, store, _ = await begun(known=True)
        said = ""
        for number, step in enumerate((*MEDDLES[meddle], ())):
            said = await told(store, WRITES[name]) if number == place else said
            await make(store, step)
        right.append((said, await listed(store, ())))

    def check(said, before, after):
        assert (said, after) in right

    async def commit(store):
        said = await told(store, WRITES[name])
        await EncryptedStore(store._store.inner, KEY).verify()
        return said

    await moments(sight, meddle, commit, check)


async def test_a_scan_that_continues_after_another_handle_changed_what_follows_finds_it_as_it_is():
    """What was read ahead before the change is read again, also where the scanning handle has heard of the change meanwhile."""
    within = MemoryStore()
    store, other = EncryptedStore(within, KEY), EncryptedStore(within, KEY)
    await store.commit(*(Put(("room", "o", number), b"old") for number in range(100)))
    scan = aiter(store.scan(("room", "o")))
    seen = [await anext(scan) for _ in range(32)]
    await other.commit(Put(("room", "o", 40), b"new"), Delete(("room", "o", 32)), Put(("room", "o", 200), b"new"))
    assert (await store.get(("room", "o", 40))).value == b"new"
    await store.verify()
    seen += [item async for item in scan]
    assert [item.key[2] for item in seen] == [*range(32), *range(33, 100), 200]
    assert {item.key[2] for item in seen if item.value == b"new"} == {40, 200}
