"""A PostgresStore and the process that it is in: several at once, forked ones, and its end."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref

import anyio
import pytest

from graphagent.errors import StoreError
from graphagent.store import EncryptedStore, Put, new_key
from graphagent.store.postgres import PostgresStore
from tests import forkserver

TOGETHER = """
import sys, anyio
from graphagent.store import Put
from graphagent.store.postgres import PostgresStore

_, dsn, schema, number = sys.argv
sys.stdin.read()
anyio.run(PostgresStore(dsn, schema).commit, Put(("n", int(number)), b"v"))
"""


SCHEMA = 'O\'Brien "\u00c4" {s}'


def test_processes_that_start_together_make_one_schema(postgres_dsn):
    """The first commits of ten processes are all made, in a schema of any name, and none of them ends with a warning or holds its process up."""
    each = [
        forkserver.Popen(
            [sys.executable, "-W", "error", "-c", TOGETHER, postgres_dsn, SCHEMA, str(number)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for number in range(10)
    ]
    for process in each:
        process.stdin.close()
        process.stdin = None
    assert [process.communicate()[1] for process in each] == [b""] * 10
    assert [process.wait() for process in each] == [0] * 10

    async def count():
        async with PostgresStore(postgres_dsn, SCHEMA) as store:
            return await store.verify()

    assert anyio.run(count) == 10


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_after_a_fork(postgres_dsn):
    """A forked process is told to make its own store, which then works; the parent's connections go on."""
    store, sealed = PostgresStore(postgres_dsn), EncryptedStore(PostgresStore(postgres_dsn, "sealed"), new_key())
    stop = threading.Event()

    async def keep_writing():
        number = 0
        while not stop.is_set():
            await store.commit(Put(("busy", number % 50), b"v"))
            await store.get(("busy", number % 50))
            number += 1

    for each in (store, sealed):
        anyio.run(each.commit, Put(("r", 1), b"v"))
    writing = threading.Thread(target=anyio.run, args=(keep_writing,))
    writing.start()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            refused = 0
            for each in (store, sealed):
                for attempt in (
                    lambda s: s.get(("r", 1)),
                    lambda s: s.commit(Put(("r", 2), b"x")),
                    lambda s: s.aclose(),
                ):
                    try:
                        anyio.run(attempt, each)
                    except StoreError as error:
                        refused += "forked" in str(error)
            own = PostgresStore(postgres_dsn)
            for number in range(5):
                anyio.run(own.commit, Put(("child", number), b"child"))
            anyio.run(own.aclose)
            del store, sealed, each
            gc.collect()
            status = 0 if refused == 4 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    stop.set()
    writing.join()

    async def check():
        assert len([item async for item in store.scan(("child",))]) == 5
        await store.commit(Put(("r", 1), b"2", expected=1))
        await sealed.commit(Put(("r", 1), b"2", expected=1))
        await store.aclose()
        await sealed.aclose()

    anyio.run(check)


async def test_a_store_that_is_let_go_ends_its_threads(postgres_dsn):
    """A store that is no longer referred to lets its threads and connections go."""
    before = set(threading.enumerate())
    store = PostgresStore(postgres_dsn)
    await store.commit(Put(("a",), b"v"))
    assert (await store.get(("a",))).version == 1
    gone = weakref.ref(store)
    threads = {thread for thread in threading.enumerate() if thread.name.startswith("graphagent-postgres")} - before
    assert len(threads) == 2
    del store
    gc.collect()
    assert gone() is None
    for thread in threads:
        await anyio.to_thread.run_sync(thread.join)
