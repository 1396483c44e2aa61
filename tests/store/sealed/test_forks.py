"""A process forked while its parent's sealed store is at work is told so at once, and never waits for what is not there."""

from __future__ import annotations

import os
import signal
import threading
import time

import anyio
import anyio.to_thread
import pytest

from graphagent.errors import StoreError
from graphagent.memory import Notes
from graphagent.memory.notes.index._backend import InMemoryIndex
from graphagent.store import EncryptedStore, MemoryStore, Put, SqliteStore
from graphagent.store._sealed_detection import KEYS

KEY = bytes(range(32))
SECONDS = 20
"""After which a child that waits for nothing is ended by a signal."""

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # Python's own warning of forks beside threads
]


class Held:
    """A store within, of which one call waits until it is let go on."""

    def __init__(self, inner):
        self.inner = inner
        self.held = ""
        self.begun, self.go_on = threading.Event(), threading.Event()

    async def hold(self, what):
        if what == self.held:
            self.begun.set()
            await anyio.to_thread.run_sync(self.go_on.wait)

    async def get(self, key):
        if key == KEYS:
            await self.hold("opening")
        return await self.inner.get(key)

    def scan(self, prefix, **how):
        return self.inner.scan(prefix, **how)

    async def commit(self, *changes):
        await self.hold("commit")
        await self.inner.commit(*changes)


async def scanned(store):
    return [item async for item in store.scan(("room",))]


USES = {
    "get": lambda store: store.get(("room", "ann", 1)),
    "scan": scanned,
    "commit": lambda store: store.commit(Put(("room", "ann", 2), b"child")),
    "verify": lambda store: store.verify(),
}


def in_child(check):
    """Call a function in a forked process; return its exit status, or less than 0 for the signal that ended it."""
    child = os.fork()
    if child == 0:
        status = 1
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(SECONDS)
        try:
            check()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def refused(use, store):
    with pytest.raises(StoreError, match="forked"):
        anyio.run(use, store)


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
@pytest.mark.parametrize("held", ["commit", "opening"])
@pytest.mark.parametrize("use", USES)
def test_a_child_forked_in_the_middle_is_refused_at_once(tmp_path, kind, held, use):
    """Whether the parent was committing or opening the store: the child gets a StoreError, and the parent's commit is made."""
    path = tmp_path / "sealed.db"
    inner = Held(SqliteStore(path) if kind == "sqlite" else MemoryStore())
    store = EncryptedStore(inner, KEY)
    if held == "commit":
        anyio.run(store.commit, Put(("room", "ann", 0), b"v"))
    inner.held = held
    writing = threading.Thread(target=anyio.run, args=(store.commit, Put(("room", "ann", 1), b"parent")))
    writing.start()
    try:
        assert inner.begun.wait(SECONDS)
        assert in_child(lambda: refused(USES[use], store)) == 0
    finally:
        inner.go_on.set()
        writing.join()
    assert anyio.run(store.get, ("room", "ann", 1)).value == b"parent"


def test_sealed_notes_in_a_forked_child_are_refused_as_plain_ones_are(tmp_path):
    """Saving and finding both raise StoreError, though the parent was in the middle of its first save."""
    inner = Held(SqliteStore(tmp_path / "sealed.db"))
    notes = Notes(EncryptedStore(inner, KEY))
    inner.held = "opening"
    writing = threading.Thread(target=anyio.run, args=(notes.remember, "apple"))
    writing.start()

    def check():
        for use in (notes.remember, notes.recall):
            refused(use, "plum")

    try:
        assert inner.begun.wait(SECONDS)
        assert in_child(check) == 0
    finally:
        inner.go_on.set()
        writing.join()
    assert anyio.run(notes.verify) == 1


@pytest.mark.parametrize("kind", ["plain", "sealed"])
def test_a_child_forked_while_another_thread_makes_the_first_use_opens_the_file_itself(tmp_path, kind):
    """Nothing was open before the fork, so the child may use the store, and waits for no thread that it does not have."""
    store = SqliteStore(tmp_path / "store.db")
    outer = store if kind == "plain" else EncryptedStore(store, KEY)
    begun, go_on = threading.Event(), threading.Event()

    def open_slowly():
        with store._opening, outer._opening if kind == "sealed" else threading.Lock():
            begun.set()
            go_on.wait()

    opening = threading.Thread(target=open_slowly)
    opening.start()
    try:
        assert begun.wait(SECONDS)
        assert in_child(lambda: anyio.run(outer.commit, Put(("room", "ann", 1), b"child"))) == 0
    finally:
        go_on.set()
        opening.join()
    assert anyio.run(outer.get, ("room", "ann", 1)).value == b"child"


async def no_records():
    return []


async def test_a_fork_waits_until_nobody_uses_the_search_index_of_sealed_notes():
    """It is SQLite in memory; a child forked meanwhile would wait for ever for a lock that SQLite has for the whole process."""
    tables = InMemoryIndex(MemoryStore(), lambda done, of: None)
    await tables.open(no_records)
    begun, forking, used = threading.Event(), threading.Event(), []

    def use(connection):
        begun.set()
        forking.wait(SECONDS)
        time.sleep(0.05)  # so that a fork that does not wait comes earlier
        used.append(connection)

    def check():
        assert used

    def fork():
        assert begun.wait(SECONDS)
        forking.set()
        return in_child(check)

    for call in (tables.read, lambda use: tables.commit((), use)):
        begun.clear(), forking.clear(), used.clear()
        async with anyio.create_task_group() as group:
            group.start_soon(call, use)
            assert await anyio.to_thread.run_sync(fork) == 0
