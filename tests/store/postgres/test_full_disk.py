"""A server whose disk is full."""

from __future__ import annotations

import os
import random
import subprocess

import psycopg
import pytest

from graphagent.errors import StoreError
from graphagent.store import DeleteAll, EncryptedStore, Item, Put, new_key
from graphagent.store.postgres import PostgresStore
from tests import postgres


def may_mount():
    """Whether this process can have a small disk, in a namespace of its own."""
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/tmp"]
    try:
        return os.getuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    except (OSError, AttributeError):  # no such program, or not POSIX
        return False


@pytest.mark.thorough
async def test_a_full_disk_loses_nothing_and_is_no_end():
    """What needs room fails and says so; what is there is read, is removed, and once there is room, everything goes on."""
    if not may_mount():
        pytest.skip("only root can have a small disk")
    large = random.Random(5).randbytes(3_000_000)
    with postgres.served(disk="64m") as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        async with PostgresStore(dsn) as store, PostgresStore(dsn, "sealed") as inner:
            sealed = EncryptedStore(inner, new_key())
            for each in (store, sealed):
                await each.commit(Put(("room", "a"), b"1"))
            connection.execute("CREATE TABLE public.others (data bytea)")
            for size in (1_000_000, 8_000, 100):
                with pytest.raises(psycopg.errors.DiskFull):
                    while True:
                        connection.execute("INSERT INTO public.others VALUES (%s)", [random.randbytes(size)])
            kept = {}
            for each in (store, sealed):
                with pytest.raises(StoreError, match=r"no disk left.*nothing of the commit was kept"):
                    await each.commit(Put(("room", "a"), b"no"), Put(("room", "large"), large))
                kept[each] = 0
                with pytest.raises(StoreError, match="no disk left"):
                    while True:
                        await each.commit(Put(("many", kept[each]), large[:1000]), Put(("room", "a"), b"1"))
                        kept[each] += 1
                assert (await each.get(("room", "a"))).value == b"1"
                assert await each.verify() == 1 + kept[each]
            with pytest.raises(StoreError, match="no disk left"):
                await PostgresStore(dsn, "new").commit(Put(("room",), b""))
            connection.execute("DROP TABLE public.others")
            for each in (store, sealed):
                await each.commit(Put(("room", "large"), large), DeleteAll(("many",)))
                assert await each.get(("room", "large")) == Item(("room", "large"), large, 1)
                assert await each.verify() == 2
