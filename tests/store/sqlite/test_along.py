"""What is derived of items stands beside them in the file of a SqliteStore, written in the same transaction."""

from __future__ import annotations

import anyio
import pytest

from graphagent.errors import ConflictError, DamagedStoreError
from graphagent.store import Put, SqliteStore

pytestmark = pytest.mark.every_loop


@pytest.fixture
async def store(tmp_path):
    async with SqliteStore(tmp_path / "store.db") as store:
        await store.commit(along=lambda connection: connection.execute("CREATE TABLE notes_derived (n INTEGER)"))
        yield store


def numbers(connection):
    return [n for (n,) in connection.execute("SELECT n FROM notes_derived ORDER BY n")]


async def test_both_are_written_or_neither(store):
    """Where a condition is not met nothing is derived, and where deriving fails nothing is put; the error is the caller's own."""
    await store.commit(Put(("a",), b"1"), along=lambda c: c.execute("INSERT INTO notes_derived VALUES (1)"))
    with pytest.raises(ConflictError):
        await store.commit(
            Put(("a",), b"2", expected=7), along=lambda c: c.execute("INSERT INTO notes_derived VALUES (2)")
        )

    def fail(connection):
        connection.execute("INSERT INTO notes_derived VALUES (3)")
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await store.commit(Put(("b",), b"3"), along=fail)
    with pytest.raises(DamagedStoreError):
        await store.commit(Put(("b",), b"3"), along=lambda c: c.execute("INSERT INTO notes_nothing VALUES (1)"))
    assert (await store.get(("a",))).value == b"1"
    assert await store.get(("b",)) is None
    assert await store.read(numbers) == [1]
    assert await store.verify() == 1


async def test_what_fails_beside_other_commits_takes_none_of_them_along(store):
    """Of many commits at once, those whose deriving fails fail alone."""
    failed = []

    async def one(number):
        def along(connection):
            connection.execute("INSERT INTO notes_derived VALUES (?)", (number,))
            if number % 5 == 0:
                raise LookupError

        try:
            await store.commit(Put(("n", number), b""), along=along)
        except LookupError:
            failed.append(number)

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(one, number)
    assert sorted(failed) == list(range(0, 50, 5))
    assert await store.read(numbers) == [number for number in range(50) if number % 5]
    assert await store.verify() == 40


async def test_the_check_of_a_store_is_not_misled_by_what_another_handle_indexed(store, tmp_path):
    """A connection that is open remembers of a full-text index what others have changed since; that is no damage."""
    await store.commit(
        along=lambda c: c.execute("CREATE VIRTUAL TABLE notes_text USING fts5(t, content='', contentless_delete=1)")
    )
    other = SqliteStore(tmp_path / "store.db")
    for number in range(200):
        insert = f"INSERT INTO notes_text(rowid, t) VALUES ({number}, 'word{number} here')"
        await other.commit(along=lambda c, insert=insert: c.execute(insert))
        if number % 20 == 0:
            await store.read(
                lambda c: c.execute("SELECT rowid FROM notes_text WHERE notes_text MATCH 'here'").fetchall()
            )
            assert await store.verify() == 0
    await other.commit(along=lambda c: c.execute("INSERT INTO notes_text(notes_text) VALUES ('optimize')"))
    assert await store.verify() == 0
    await other.aclose()
