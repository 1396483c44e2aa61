"""What providers remember of facts stays within the bytes that they were given, however many owners there are."""

from __future__ import annotations

import anyio
import pytest

from graphagent.memory import (
    Concept,
    EncryptedMemoryProvider,
    FactType,
    FileMemoryProvider,
    MultipleFacts,
    Scope,
    StoreMemoryProvider,
    Subject,
)
from graphagent.store import EncryptedStore, MemoryStore

LIKES = Concept("likes", "what they like", FactType.MULTIPLE)
USER, APP = Subject("user", "the user"), Scope.product("app")
OWNERS, BYTES = 60, 60_000
KINDS = {
    "store": lambda folder, size: StoreMemoryProvider(MemoryStore(), cache_bytes=size),
    "sealed": lambda folder, size: EncryptedMemoryProvider(folder, key=bytes(32), cache_bytes=size),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_many_owners_are_served_with_little_memory(kind, tmp_path):
    """Little is remembered, and all tasks read what was saved; when it is closed, nothing is remembered."""
    async with KINDS[kind](tmp_path, BYTES) as provider:

        async def serve(owner):
            for value in ("tea", "trains"):
                await provider.save(MultipleFacts(LIKES, (f"{value} {owner}",)), USER, APP, owner=owner)
                await provider.load(LIKES, USER, APP, owner=owner)

        async with anyio.create_task_group() as tasks:
            for number in range(OWNERS):
                tasks.start_soon(serve, f"owner{number}")
        for number in range(OWNERS):
            [found] = await provider.load(LIKES, USER, APP, owner=f"owner{number}")
            assert found.values == (f"tea owner{number}", f"trains owner{number}")
            assert 0 < len(provider._versions) <= BYTES // 1_000
            assert 0 < len(provider._known) <= BYTES // 1_000
        if kind == "sealed":
            assert 0 < len(provider._store._sealed().session._domains) <= BYTES // 3_000
        assert len([each async for each in provider.export()]) == 2 * OWNERS
    assert len(provider._versions) == len(provider._known) == 0


@pytest.mark.parametrize(
    "make",
    [
        *KINDS.values(),
        lambda folder, size: FileMemoryProvider(folder, cache_bytes=size),
        lambda folder, size: EncryptedStore(MemoryStore(), bytes(32), cache_bytes=size),
    ],
)
@pytest.mark.parametrize("wrong", [-1, None, 1.5, True, "64 MB"])
def test_a_budget_that_is_no_number_of_bytes_is_refused(make, wrong, tmp_path):
    """It is refused where it is given."""
    with pytest.raises(ValueError, match=r"cache_bytes=.* is not a number of bytes"):
        make(tmp_path, wrong)
