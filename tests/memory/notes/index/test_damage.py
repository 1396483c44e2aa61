"""A search index whose tables are damaged in a plain store."""

from __future__ import annotations

import re

import apsw
import pytest

from graphagent.errors import DamagedStoreError
from graphagent.memory import Note, Notes, Turn
from graphagent.store import Put, SqliteStore
from tests.memory.notes.conftest import Words

QUESTIONS = ("pear", "paer", "green pear", "who said pear?", "pear in 2025")


async def remember(notes):
    """Save some notes."""
    await notes.remember_many([Note(f"pear {number}", "/even", categories=["fruit"]) for number in range(4)])
    await notes.remember_conversation(
        [Turn("Where is the pear?", "Ada"), Turn("In 2025 it was here.", "Bob")], session="talk"
    )


async def reads(notes):
    """Return what reads return, or the messages that the store is damaged."""
    found = []
    for read in (
        *(lambda question=question: notes.recall(question, limit=20) for question in QUESTIONS),
        lambda: notes.recall("pear", scope="/even", categories=["fruit"]),
        notes.list_records, notes.list_scopes, notes.list_categories, notes.info,
    ):  # fmt: skip
        try:
            found.append(await read())
        except DamagedStoreError as error:
            found.append(str(error))
    return found


async def assert_damaged(notes):
    """Check that reads say of which store the index is damaged."""
    errors = [each for each in await reads(notes) if isinstance(each, str)]
    assert errors
    assert all(re.match(r"the index of the notes in .*notes\.db is damaged: .*reindex\(\)", each) for each in errors)


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM notes_words_docsize",
        "UPDATE notes_words_docsize SET sz=x''",
        "UPDATE notes_words_docsize SET sz=x'ff'",
        "UPDATE notes_words_docsize SET sz=7",
        "UPDATE notes_words_data SET block=x'00' WHERE id>10",
        "UPDATE notes_words_data SET block='few' WHERE id=1",
        "UPDATE notes_rows SET id=CAST(id AS BLOB)",
        "UPDATE notes_rows SET id=CAST(x'ff' AS TEXT) WHERE row=1",
        "UPDATE notes_rows SET scope=x'00'",
        "UPDATE notes_rows SET session=x'00'",
        "UPDATE notes_rows SET speaker=x'00' WHERE speaker='Ada'",
        "UPDATE notes_rows SET said='lately'",
        "UPDATE notes_rows SET created=1 << 62",
        "UPDATE notes_rows SET chunks=1 << 40",
        "UPDATE notes_categories SET category=x'00'",
    ],
)
async def test_whatever_a_table_of_the_index_has_a_search_says_that_the_index_is_damaged(tmp_path, damage):
    """Another type, a missing row, a number beyond all: the error names the store and reindex(), after which all is as before."""
    async with SqliteStore(tmp_path / "notes.db") as store:
        await remember(Notes(store, embedder=Words()))
        notes = Notes(store, embedder=Words())
        sound = await reads(notes)
        await store.commit(along=lambda connection: connection.execute(damage))
        await assert_damaged(Notes(store, embedder=Words()))
        await assert_damaged(notes)
        await notes.reindex()
        assert await reads(notes) == sound


@pytest.mark.parametrize(
    "read",
    [
        "SELECT block FROM notes_words_data WHERE id>10 LIMIT 1",
        "SELECT CAST(owner || id AS BLOB) FROM notes_rows WHERE row=2",
    ],
    ids=["words", "ids"],
)
async def test_a_file_whose_index_alone_is_damaged_opens_and_its_index_can_be_made_anew(tmp_path, read):
    """A bit in the head of a block of words, or of an id, has flipped: no search misses notes silently, and other reads go on."""
    path = tmp_path / "notes.db"
    async with SqliteStore(path) as store:
        await remember(Notes(store))
        await store.commit(Put(("other",), b"value"))
        sound = await reads(Notes(store))
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    [(bytes_,)] = connection.execute(read).fetchall()
    connection.close()
    data = bytearray(path.read_bytes())
    data[data.rindex(bytes_) + 3] ^= 1
    path.write_bytes(data)
    async with SqliteStore(path) as store:
        notes = Notes(store)
        assert (await store.get(("other",))).value == b"value"
        await assert_damaged(notes)
        with pytest.raises(DamagedStoreError, match=r"the index of the notes in .*reindex\(\)"):
            await notes.verify()
        assert await notes.reindex() == 6
        assert await reads(notes) == sound
        assert await notes.verify() == 6
