"""A store in PostgreSQL does what every store does."""

from __future__ import annotations

import random

import anyio
import psycopg
import pytest

from graphagent.errors import (
    ConflictError,
    DamagedStoreError,
    NewerFormatError,
    PlainStoreError,
    SealedStoreError,
    StoreError,
    StoreNotFoundError,
)
from graphagent.store import Delete, DeleteAll, EncryptedStore, Exists, Item, Put, new_key
from graphagent.store.postgres import PostgresStore
from graphagent.testing import check_store
from tests import postgres


@pytest.fixture
async def store(postgres_dsn):
    async with PostgresStore(postgres_dsn) as store:
        yield store


@pytest.mark.every_loop
async def test_it_keeps_the_promises_of_the_protocol(store, postgres_dsn):
    """What users may check of a store of their own holds for this one, on both event loops."""
    async with PostgresStore(postgres_dsn) as again:
        await check_store(lambda: store, reopen=lambda _: again, disconnect=lambda _: postgres.disconnect(postgres_dsn))
    assert await store.verify() == 0


async def test_reading_makes_nothing(store, postgres_dsn):
    """Until something is committed there is no schema; what is only removed makes none either."""
    assert await store.get(("a",)) is None
    assert await store.get_many([("a",), ("b",)]) == {}
    assert [item async for item in store.scan(())] == []
    await store.commit(Delete(("a",)), DeleteAll(("b",)))
    with pytest.raises(StoreNotFoundError, match="no store 'graphagent'"):
        await store.verify()
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("SELECT to_regnamespace('graphagent')").fetchone() == (None,)
    await store.commit(Put(("a",), b"1"))
    assert await store.verify() == 1


async def test_a_closed_store_opens_again(store):
    """A commit after closing is made, and closing waits for commits that were begun."""
    for number in range(3):
        async with anyio.create_task_group() as group:
            for task in range(5):
                group.start_soon(store.commit, Put(("n", number, task), b""))
        await store.aclose()
    assert await store.verify() == 15
    await store.aclose()
    await store.aclose()


async def test_keys_may_be_long(store, postgres_dsn):
    """Keys that do not compress are found, with what begins with them, also where there are many segments."""
    random_text = random.Random(7)
    long, long2 = ("".join(chr(random_text.randrange(32, 0x2FFF)) for _ in range(5_000)) for _ in range(2))
    keys = [("room", long, number, long2) for number in (10, 9, 2**40)] + [
        ("room", long),
        ("room", *(long[n * 80 :][:80] for n in range(30))),
    ]
    await store.commit(*(Put(key, repr(key).encode()) for key in keys))
    for key in keys:
        assert await store.get(key) == Item(key, repr(key).encode(), 1)
    found = [item.key async for item in store.scan(("room", long))]
    assert sorted(map(repr, found)) == sorted(map(repr, keys[:4]))
    assert [key[2] for key in found if len(key) == 4] == [9, 10, 2**40]
    assert [item.key async for item in store.scan(("room", long), after=found[1])] == found[2:]
    assert await store.verify() == 5
    await store.commit(DeleteAll(("room", long)))
    assert await store.verify() == 1
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute("UPDATE graphagent.items SET key = NULL")
    with pytest.raises(DamagedStoreError):
        await store.verify()
    with pytest.raises(ValueError, match="more segments"):
        await store.get(("room", *(f"{number:040}" for number in range(200))))


async def test_large_values_are_in_pages(store, postgres_dsn):
    """They come back as they were, are replaced and compared, and leave no page behind."""
    rng = random.Random(3)
    first, second = rng.randbytes(5_000_000), rng.randbytes(2**20 + 1)
    key, other = ("room", "large"), ("room", "other")
    await store.commit(Put(key, first), Put(other, b"x" * 2**20))
    assert await store.get(key) == Item(key, first, 1)
    assert [item.value for item in [item async for item in store.scan(("room",))]] == [first, b"x" * 2**20]
    with pytest.raises(ConflictError):
        await store.commit(Put(key, b"no", expected=1, before=second))
    await store.commit(Put(key, second, expected=1, before=first), *(Put(("n", n), bytes(100_000)) for n in range(100)))
    assert await store.get(key) == Item(key, second, 2)
    assert await store.verify() == 102
    await store.commit(Put(key, b"short", expected=2, version=2, before=second))
    assert await store.get(key) == Item(key, b"short", 2)
    await store.commit(Put(key, first))
    await store.commit(DeleteAll(("room",)))
    with psycopg.connect(postgres_dsn) as connection:
        assert connection.execute("SELECT count(*) FROM graphagent.pages").fetchone() == (0,)


@pytest.mark.every_loop
async def test_commits_in_opposite_orders_wait_for_one_another(store, postgres_dsn):
    """None fails and none is lost, in two objects, with conditions and without, small and with deletions."""
    async with PostgresStore(postgres_dsn) as other:
        await store.commit(*(Put(("k", n), b"") for n in range(10)), *(Put(("e", n), b"") for n in range(10)))

        async def work(each, task):
            for number in range(10):
                order = list(range(10)) if task % 2 else list(reversed(range(10)))
                extra = (DeleteAll(("none", task)),) if number % 3 == 0 else ()
                await each.commit(
                    *(Put(("k", n), b"%d" % task) for n in order), *(Exists(("e", n)) for n in order), *extra
                )

        async with anyio.create_task_group() as group:
            for task in range(6):
                group.start_soon(work, store if task % 3 else other, task)
        assert {item.version async for item in store.scan(("k",))} == {61}


@pytest.mark.every_loop
async def test_removing_all_leaves_nothing_that_relied_on_it(store, postgres_dsn):
    """Whoever puts rows that require a header, while another process removes both, leaves no row without its header."""
    async with PostgresStore(postgres_dsn) as other:

        async def add(run):
            number = 0
            while True:
                try:
                    await store.commit(Put(("rows", run, number), b"r", expected=0), Exists(("head", run)))
                except ConflictError as error:
                    if error.key == ("head", run):
                        return
                    raise
                number += 1

        for run in range(15):
            await store.commit(Put(("head", run), b"h"))
            async with anyio.create_task_group() as group:
                group.start_soon(add, run)
                await anyio.sleep(0.002 * (run % 4))
                await other.commit(DeleteAll(("rows", run)), DeleteAll(("head", run)))
        assert await store.verify() == 0


async def test_what_is_derived_is_committed_along(store):
    """A function gets the connection in the transaction of the changes; if it raises, or the changes conflict, nothing is changed."""

    def insert(number):
        return lambda connection: connection.execute("INSERT INTO notes_derived VALUES (%s)", [number])

    def fail(connection):
        insert(3)(connection)
        raise LookupError("mine")

    await store.commit(along=lambda connection: connection.execute("CREATE TABLE notes_derived (n int)"))
    await store.commit(Put(("a",), b"1"), along=insert(1))
    with pytest.raises(ConflictError):
        await store.commit(Put(("a",), b"2", expected=7), along=insert(2))
    with pytest.raises(LookupError, match="mine"):
        await store.commit(Put(("a",), b"3"), along=fail)
    with pytest.raises(StoreError, match="neither commit nor roll back"):
        await store.commit(Put(("a",), b"4"), along=lambda connection: connection.execute("ROLLBACK"))
    with pytest.raises(StoreError, match="notes_nothing") as caught:
        await store.commit(
            Put(("a",), b"5"), along=lambda connection: connection.execute("INSERT INTO notes_nothing VALUES (1)")
        )
    assert caught.value.__cause__ is None
    assert await store.get(("a",)) == Item(("a",), b"1", 1)
    assert await store.read(lambda connection: connection.execute("SELECT n FROM notes_derived").fetchall()) == [(1,)]
    with pytest.raises(StoreError):
        await store.read(insert(9))
    await store.commit(Put(("a",), b"6"))


async def test_a_sealed_schema_belongs_to_its_encrypted_store(store, postgres_dsn):
    """Plain access is refused, also by an object that was open when another one sealed the schema; one with plain items is not sealed."""
    async with PostgresStore(postgres_dsn) as inner:
        await store.commit(Delete(("a",)), Put(("a",), b"1"), Delete(("a",)))
        sealed = EncryptedStore(inner, new_key())
        await sealed.commit(Put(("room", "secret"), b"value"))
        for access in (
            store.commit(Put(("a",), b"1")),
            store.get(("a",)),
            store.commit(along=lambda _: None),
            store.read(lambda _: None),
            PostgresStore(postgres_dsn).get(("a",)),
            PostgresStore(postgres_dsn).read(lambda _: None),
            PostgresStore(postgres_dsn).commit(Put(("a",), b"1")),
            PostgresStore(postgres_dsn).commit(along=lambda _: None),
        ):
            with pytest.raises(SealedStoreError):
                await access
        assert await store.verify() == len([item async for item in store.scan(())]) > 0
        assert (await sealed.get(("room", "secret"))).value == b"value"
    plain = PostgresStore(postgres_dsn, "plain")
    await plain.commit(Put(("a",), b"1"))
    with pytest.raises(PlainStoreError):
        await EncryptedStore(plain, new_key()).commit(Put(("room",), b""))
    await plain.aclose()


async def test_a_newer_schema_is_refused(store, postgres_dsn):
    """Nothing is read or written that a newer graphagent may have stored otherwise."""
    await store.commit(Put(("a",), b"1"))
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("INSERT INTO graphagent.migrations VALUES (999)")
    again = PostgresStore(postgres_dsn)
    for access in (again.get(("a",)), again.commit(Put(("a",), b"2"))):
        with pytest.raises(NewerFormatError, match="999"):
            await access
    await again.aclose()
