from __future__ import annotations

import pytest

from graphagent.store import EncryptedStore, MemoryStore, SqliteStore

KEY = bytes(range(32))


def make(kind, folder):
    """Give a new, empty store of a kind; of the kinds on disk, all of one folder share their file."""
    return {
        "memory": lambda: MemoryStore(),
        "sqlite": lambda: SqliteStore(folder / "plain" / "store.db"),
        "sealed-memory": lambda: EncryptedStore(MemoryStore(), KEY, domains={"facts": 5}),
        "sealed-sqlite": lambda: EncryptedStore(SqliteStore(folder / "sealed" / "store.db"), KEY, domains={"facts": 5}),
    }[kind]()


@pytest.fixture(params=["memory", "sqlite", "sealed-memory", "sealed-sqlite"])
def kind(request):
    return request.param


@pytest.fixture
async def store(kind, tmp_path):
    async with make(kind, tmp_path) as store:
        yield store
