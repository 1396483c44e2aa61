"""`check_claims` passes claims that keep their promises, and names the promise that others break."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphagent.store import EncryptedStore, MemoryStore, new_key
from graphagent.testing import check_claims
from tests.store.leased import Leased, SqliteClaims

pytestmark = pytest.mark.every_loop


@pytest.mark.parametrize("sealed", [False, True])
async def test_claims_keep_their_promises(tmp_path, sealed):
    """Plain, and through an EncryptedStore, whose inner claims show neither keys nor notes."""
    plain = Leased(MemoryStore(), tmp_path / "claims.db")
    store = EncryptedStore(plain, new_key()) if sealed else plain
    await check_claims(lambda: store)
    if sealed:
        claimed = await store.claims.take(("runs", "ada", 0, "ada-7"), "me", 60_000, note=b"private")
        assert claimed is not None
        shown = (tmp_path / "claims.db").read_bytes()
        assert not any(text in shown for text in (b"runs", b"ada-7", b"private"))


async def test_a_store_without_claims_is_told_so():
    with pytest.raises(AssertionError, match="attribute `claims`"):
        await check_claims(lambda: EncryptedStore(MemoryStore(), new_key()))


class Generous(SqliteClaims):
    """Let a holder renew what has lapsed, as long as nobody took it."""

    async def renew(self, claims, lease):
        claims = list(claims)
        lost = await super().renew(claims, lease)
        return [each for each in lost if (await self.holders([each.key])).get(each.key, each).fence != each.fence]


class Forgetful(SqliteClaims):
    """Count from 1 for each holder."""

    async def take(self, key, holder, lease, *, after=0, note=b""):
        taken = await super().take(key, holder, lease, after=after, note=note)
        return taken and replace(taken, fence=1)


class Silent(SqliteClaims):
    """Lose what was written on a claim."""

    async def take(self, key, holder, lease, *, after=0, note=b""):
        return await super().take(key, holder, lease, after=after)


@pytest.mark.parametrize(
    ("broken", "promise"),
    [
        (Generous, "a lapsed claim is lost"),
        (Forgetful, "up to the number `after` is replaced"),
        (Silent, "lapsed returns the note of a claim"),
    ],
)
async def test_a_broken_promise_is_named(tmp_path, broken, promise):
    store = Leased(MemoryStore(), tmp_path / "claims.db")
    store.claims = broken(tmp_path / "claims.db")
    with pytest.raises(AssertionError, match=promise):
        await check_claims(lambda: store)
