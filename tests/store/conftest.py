from __future__ import annotations

import pytest

from graphagent.store import EncryptedStore, MemoryStore, SqliteStore
from graphagent.store.postgres import PostgresStore

KEY = bytes(range(32))


ON_SERVERS = [pytest.param(kind, marks=pytest.mark.thorough) for kind in ("postgres", "sealed-postgres")]
"""The kinds of stores that only the thorough suite tries everywhere."""


def make(kind, folder, dsn=None):
    """Give a new, empty store of a kind; of the kinds on disk, all of one folder share their file, on a server, their database."""
    return {
        "memory": lambda: MemoryStore(),
        "sqlite": lambda: SqliteStore(folder / "plain" / "store.db"),
        "sealed-memory": lambda: EncryptedStore(MemoryStore(), KEY, domains={"facts": 5}),
        "sealed-sqlite": lambda: EncryptedStore(SqliteStore(folder / "sealed" / "store.db"), KEY, domains={"facts": 5}),
        "postgres": lambda: PostgresStore(dsn),
        "sealed-postgres": lambda: EncryptedStore(PostgresStore(dsn, "sealed"), KEY, domains={"facts": 5}),
    }[kind]()


@pytest.fixture(params=["memory", "sqlite", "sealed-memory", "sealed-sqlite", *ON_SERVERS])
def kind(request):
    return request.param


@pytest.fixture
def opened(kind, tmp_path, request):
    """Open the store of a test, any number of times."""
    dsn = request.getfixturevalue("postgres_dsn") if kind.endswith("postgres") else None
    return lambda: make(kind, tmp_path, dsn)


@pytest.fixture
async def store(opened):
    async with opened() as store:
        yield store
