"""What is forgotten has left the bytes of the files, and what is sealed never lay there."""

from __future__ import annotations

import anyio
import pytest

from graphagent.errors import NoteNotFoundError
from graphagent.memory import Note, Notes
from graphagent.store import EncryptedStore, SqliteStore
from tests.memory.facts.test_file_provider import on_disk
from tests.memory.notes.conftest import KEY, Words


class Marked(Words):
    """Gives the first text with a marker word a vector that can be found again in bytes."""

    def vector(self, text):
        if "zanzibar" in text:
            return [0.1234567, *[0.0] * (self.dimensions - 2), 0.9876543]
        return super().vector(text)


def _packed():
    """Give the bytes of some numbers of that vector, as it is kept."""
    from graphagent.embed import checked

    return anyio.run(checked, Marked(), ["zanzibar"]).tobytes()[-12:]


PACKED = _packed()
WORDS = (b"zanzibar", b"kilimanjar", b"serengeti", b"okavango")


async def kept(folder):
    """Keep some notes with marker words in text, history, metadata and categories; give the notes, and the marked ids."""
    notes = Notes(SqliteStore(folder / "notes.db"), embedder=Marked())
    await notes.remember_many([f"other note number {number} of many words" for number in range(300)])
    one = await notes.remember("kilimanjaro", scope="/x", metadata={"a": "serengeti"}, categories=["okavango"])
    await notes.update(one.id, content="zanzibar once more")
    two = await notes.remember("zanzibar and kilimanjaro", scope="/x")
    await notes._service.repository.retire("", two, "removed", "another")
    return notes, [one.id, two.id]


@pytest.mark.parametrize("how", ["ids", "scope", "reset", "one by one"])
async def test_what_is_forgotten_is_in_no_byte_of_the_files(tmp_path, how):
    """Text, words of the index, vectors, history, and what was consolidated away: all are gone when forgetting returns."""
    notes, ids = await kept(tmp_path)
    before = on_disk(tmp_path)
    assert all(word in before for word in (*WORDS, PACKED))
    if how == "ids":
        assert (await notes.forget(ids=ids)).notes == 2
    elif how == "scope":
        assert (await notes.forget(scope="/x")).notes == 2
    elif how == "reset":
        assert (await notes.reset()).notes == 302
    else:
        assert (await notes.forget(ids=ids[:1])).notes == 1
        assert (await notes.forget(ids=ids[1:])).notes == 1
    after = on_disk(tmp_path)
    assert [word for word in (*WORDS, PACKED) if word in after] == []
    assert not {each.record.id for each in await notes.recall("zanzibar kilimanjaro", limit=500)} & set(ids)
    assert await notes.verify() == (0 if how == "reset" else 300)
    for id_ in ids:
        with pytest.raises(NoteNotFoundError):
            await notes.history(id_)


async def test_words_of_a_small_index_are_gone_too(tmp_path):
    """Also where the index is a single note, or a few, so that it would not be merged by itself."""
    notes = Notes(tmp_path / "notes.db")
    await notes.remember("stays")
    gone = await notes.remember("zanzibar")
    await notes.forget(ids=[gone.id])
    assert b"zanzibar" not in on_disk(tmp_path)
    assert b"stay" in on_disk(tmp_path)
    await notes.reset()
    assert b"stay" not in on_disk(tmp_path)
    await notes.aclose()


async def test_vectors_of_an_unfinished_generation_are_forgotten_too(tmp_path):
    """Vectors that someone began to make anew, and did not end, go with the note."""
    notes, ids = await kept(tmp_path)
    changed = Notes(SqliteStore(tmp_path / "notes.db"), embedder=Marked(name="other"))

    class Stop(Exception):
        pass

    def stop(done, of):
        raise Stop

    with pytest.raises(Stop):
        await changed.reembed(stop)
    assert (await notes.forget(ids=ids)).notes == 2
    assert PACKED not in on_disk(tmp_path)
    assert await changed.reembed() == 300
    assert await changed.verify() == 300


async def test_nothing_of_sealed_notes_lies_on_the_disk_in_clear_at_any_time(tmp_path):
    """No text, word, category, scope, session name or vector, while notes are kept, found, changed, indexed and forgotten."""
    secrets = (*WORDS, PACKED, b"/secret", b"sess")
    for again in range(2):
        async with EncryptedStore(SqliteStore(tmp_path / "notes.db"), KEY) as store:
            notes = Notes(store, embedder=Marked())
            await notes.remember_many(
                [Note(f"zanzibar {again} {n} kilimanjaro", "/secret", ["okavango"]) for n in range(50)]
            )
            assert [word for word in secrets if word in on_disk(tmp_path)] == []
            assert len(await notes.recall("kilimanjaro serengeti", limit=200)) == 50 * (again + 1)
            [(temporary,)] = await notes._service.repository.backend.read(
                lambda tables: tables.connection.execute("PRAGMA temp_store").fetchall()
            )
            assert temporary == 2  # in memory
            assert [word for word in secrets if word in on_disk(tmp_path)] == []


async def test_a_note_that_is_forgotten_while_vectors_are_made_anew_leaves_none(tmp_path):
    """Its vector is in no generation afterwards."""
    notes, ids = await kept(tmp_path)
    changed = Notes(SqliteStore(tmp_path / "notes.db"), embedder=Marked(name="other"))

    class Slow(Marked):
        async def embed(self, texts):
            if not self.calls:
                await notes.forget(ids=ids)
            return await super().embed(texts)

    changed = Notes(SqliteStore(tmp_path / "notes.db"), embedder=Slow(name="slow"))
    assert await changed.reembed() == 300
    assert PACKED not in on_disk(tmp_path)
    assert await changed.verify() == 300
