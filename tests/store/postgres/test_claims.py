"""Who has a run, as PostgreSQL says."""

from __future__ import annotations

import anyio
import psycopg
import pytest

from graphagent.errors import StoreUnavailableError
from graphagent.store import EncryptedStore, new_key
from graphagent.store.postgres import PostgresStore
from graphagent.testing import check_claims, fixed_clock

KEY, LONG = ("runs", "ada", "é" * 3_000), ("runs", "bo", 2**40)


@pytest.mark.every_loop
@pytest.mark.parametrize("sealed", [False, True])
async def test_claims_keep_their_promises(postgres_dsn, sealed):
    async with PostgresStore(postgres_dsn) as plain:
        store = EncryptedStore(plain, new_key()) if sealed else plain
        await check_claims(lambda: store)


@pytest.mark.every_loop
async def test_a_claim_is_one_holders_until_its_time_is_over(postgres_dsn):
    """All of it is judged by one clock, which a test may fix; numbers grow, and what was lost is neither renewed nor released."""
    async with PostgresStore(postgres_dsn) as store, PostgresStore(postgres_dsn) as other:
        assert await store.claims.holders([KEY]) == {}
        assert await other.claims.lapsed("runs", 10) == []
        with fixed_clock(1_000, 0):
            one = await store.claims.take(KEY, "a", 500, note=b"\0n")
            assert (one.fence, one.until, await store.claims.now()) == (1, 1_500, 1_000)
            assert await other.claims.take(KEY, "b", 500) is None
            two = await other.claims.take(LONG, "b", 400)
        with fixed_clock(1_400, 0):
            assert await store.claims.renew([one, two], 1_000) == [two]
            assert await other.claims.lapsed("runs", 10) == [
                type(two)(LONG, "b", 1, 1_400, lapsed=True),
            ]
        with fixed_clock(2_400, 0):
            assert [each.key for each in await other.claims.lapsed("runs", 10)] == [LONG, KEY]
            three = await other.claims.take(KEY, "c", 500)
            assert (three.fence, three.until) == (2, 2_900)
            await store.claims.release([one, two])
            assert list(await store.claims.holders([LONG, KEY])) == [KEY]
            assert (await store.claims.take(KEY, "d", 500, after=7)).fence == 8
        real = await store.claims.now()
        with psycopg.connect(postgres_dsn) as connection:
            [(server,)] = connection.execute("SELECT extract(epoch FROM clock_timestamp()) * 1000").fetchall()
        assert real <= server + 1


@pytest.mark.every_loop
async def test_a_claim_outlasts_broken_connections(postgres_dsn):
    """Whose connections are cut while it takes and renews is its holder afterwards, once."""
    async with PostgresStore(postgres_dsn) as store, PostgresStore(postgres_dsn) as cutter:
        done = anyio.Event()

        async def cut():
            while not done.is_set():
                await cutter.read(
                    lambda connection: connection.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'graphagent'"
                        " AND datname = current_database() AND pid <> pg_backend_pid()"
                    ).fetchall()
                )
                await anyio.sleep(0.005)

        await cutter.commit(along=lambda _: None)
        async with anyio.create_task_group() as group:
            group.start_soon(cut)
            for number in range(15):
                claimed = await store.claims.take(("runs", number), f"h{number}", 60_000)
                assert claimed is not None
                assert await store.claims.renew([claimed], 60_000) == []
            done.set()


async def test_a_server_that_is_not_there_says_so():
    """Nothing is taken, and the error says where it was tried."""
    store = PostgresStore("postgresql://ada:sesame@127.0.0.1:1/none")
    with pytest.raises(StoreUnavailableError, match=r"database 'none' at 127\.0\.0\.1") as caught:
        await store.claims.take(KEY, "a", 500)
    assert "sesame" not in f"{caught.value!s} {caught.value!r} {store!r}"
    await store.aclose()
