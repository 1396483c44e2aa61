"""What several files of tests of stored runs share."""

from __future__ import annotations

import pytest

from graphagent.store import EncryptedStore, MemoryStore, SqliteStore, new_key


@pytest.fixture(params=["memory", "sqlite", "sealed"])
async def store(request, tmp_path):
    """Each kind of store."""
    if request.param == "memory":
        yield MemoryStore()
        return
    async with SqliteStore(tmp_path / "runs.db") as plain:
        yield plain if request.param == "sqlite" else EncryptedStore(plain, new_key())
