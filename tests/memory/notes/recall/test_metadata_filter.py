"""`metadata_filter`: notes chosen by what their metadata have, in every view and over every store."""

from __future__ import annotations

from datetime import date

import apsw
import pytest

from graphagent.errors import NoteError
from graphagent.memory import Note, Notes
from graphagent.store import SqliteStore
from tests.memory.notes.conftest import Words


async def contents(view, **options):
    """Give what a recall and a list find, which must be the same."""
    recalled = {match.record.content for match in await view.recall("pear", **options)}
    listed = {record.content for record in await view.list_records(**options)}
    assert recalled == listed
    return listed


@pytest.mark.parametrize("embedder", [None, Words()], ids=["words", "vectors"])
@pytest.mark.parametrize("opened", ["once", "again"])
async def test_the_filter_is_part_of_the_search_so_that_a_limit_counts_what_fits(store, embedder, opened):
    """Among 300 better matches the one that fits is found with limit 1, also by who opens the notes later."""
    notes = Notes(store, embedder=embedder)
    await notes.remember_many([f"pear pear {number}" for number in range(300)], metadata={"team": "red"})
    await notes.remember("a pear among many other words", metadata={"team": "blue"})
    if opened == "again":
        notes = Notes(store, embedder=embedder)
    blue = {"team": "blue"}
    assert await contents(notes, metadata_filter=blue, limit=1) == {"a pear among many other words"}
    assert len(await notes.list_records(metadata_filter={"team": "red"}, limit=1000)) == 300
    assert await notes.verify() == 301


@pytest.mark.parametrize(
    ("kept", "wanted", "fits"),
    [
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": "1"}, False),
        ({"a": None}, {"a": None}, True),
        ({"b": 1}, {"a": None}, False),
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, False),
        ({"a": [1, {"x": 2.0, "y": ()}]}, {"a": (1.0, {"y": [], "x": 2})}, True),
        ({"a": [1, 2]}, {"a": [2, 1]}, False),
        ({"a": [1, 2]}, {"a": 1}, False),
        ({1: "x"}, {"1": "x"}, True),
        ({"'; --\n": "\0"}, {"'; --\n": "\0"}, True),
        ({"a": "x"}, {}, True),
    ],
)
async def test_values_are_equal_as_in_json(notes, kept, wanted, fits):
    """Numbers by their value, texts by every letter, lists in their order, dicts in any; all that is asked for must be there."""
    await notes.remember("a pear", metadata=kept)
    assert bool(await contents(notes, metadata_filter=wanted)) is fits


async def test_a_note_is_found_by_its_metadata_of_now(notes):
    """A change, an undo and forgetting are seen by the next search."""
    kept = await notes.remember("a pear", metadata={"state": "open"})
    await notes.update(kept.id, metadata={"state": "done"})
    assert await contents(notes, metadata_filter={"state": "open"}) == set()
    assert await contents(notes, metadata_filter={"state": "done"}) == {"a pear"}
    await notes.undo(kept.id)
    assert await contents(notes, metadata_filter={"state": "open"}) == {"a pear"}
    await notes.forget(metadata_filter={"state": "open"})
    assert await contents(notes) == set()


async def test_views_owners_and_privacy_bound_what_a_filter_finds_and_forgets(store):
    """What is outside of a view is neither found nor removed, whatever its metadata."""
    notes, same = Notes(store), {"ticket": 7}
    await Notes(store, owner="bob").remember("pear of bob", metadata=same)
    await notes.remember("pear of ana", source="ana", private=True, metadata=same)
    for scope in ("/a", "/b", "/c"):
        await notes.remember(f"pear in {scope}", scope=scope, metadata=same)
    await notes.remember("another pear in /a", scope="/a", metadata={"ticket": 8})
    several = notes.slice(["/a", "/b"], read_only=False)
    assert await contents(notes.scope("/a"), metadata_filter=same) == {"pear in /a"}
    assert await contents(several, metadata_filter=same) == {"pear in /a", "pear in /b"}
    assert await contents(notes, metadata_filter=same) == {"pear in /a", "pear in /b", "pear in /c"}
    assert await contents(notes.of("ana"), metadata_filter=same, scope="/") >= {"pear of ana", "pear in /a"}
    assert (await several.forget(metadata_filter=same, scope="/b")).notes == 1
    assert (await several.forget(metadata_filter=same)).notes == 1
    assert (await notes.of("bo").forget(metadata_filter=same)).notes == 1
    assert await contents(notes.of("ana")) == {"another pear in /a", "pear of ana"}
    assert await contents(Notes(store, owner="bob"), metadata_filter=same) == {"pear of bob"}


async def test_ids_and_a_filter_both_hold_when_notes_are_forgotten(notes):
    """An id of a note with other metadata is left."""
    one, two = await notes.remember_many([Note("pear", metadata={"a": 1}), Note("apple", metadata={"a": 2})])
    assert (await notes.forget(ids=[one.id, two.id], metadata_filter={"a": 2})).notes == 1
    assert await notes.get(one.id) is not None


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"a": date(2025, 1, 1)}, r"metadata_filter\['a'\] is a date, .* give value.isoformat\(\)"),
        ({"a": [{"b": object()}]}, r"metadata_filter\['a'\]\[0\]\['b'\] is an object"),
        ({"a": float("nan")}, r"metadata_filter\['a'\] is a float that is infinite or not a number"),
        ({"a": 2**70}, r"metadata_filter\['a'\] is an int of more than 64 bits"),
        ({(1, 2): 3}, "a key of metadata_filter is a tuple"),
        ([("a", 1)], "metadata_filter= is a dict"),
        ("a=1", "metadata_filter= is a dict"),
    ],
)
async def test_what_no_metadata_can_have_is_refused(notes, wanted, said):
    """The error says which value it is, and how to give it; nothing is searched or removed."""
    await notes.remember("a pear", metadata={"a": 1})
    for operation in (
        notes.recall("pear", metadata_filter=wanted),
        notes.list_records(metadata_filter=wanted),
        notes.forget(metadata_filter=wanted),
    ):
        with pytest.raises(NoteError, match=said):
            await operation
    assert len(await notes.list_records()) == 1


@pytest.mark.parametrize("empty", [{"metadata_filter": {}}, {"categories": []}, {"categories": (), "scope": "/"}])
async def test_an_empty_condition_forgets_nothing(notes, empty):
    """A program that computed which categories or metadata to forget, and found none, must not lose all notes."""
    await notes.remember("a pear", metadata={"a": 1}, categories=["fruit"])
    with pytest.raises(ValueError, match="says nothing of which notes to forget"):
        await notes.forget(**empty)
    assert len(await notes.list_records()) == 1


async def test_tables_of_an_earlier_version_are_made_anew(tmp_path):
    """A file whose tables know nothing of metadata is opened as any other, and searched by metadata."""
    async with Notes(tmp_path / "notes.db") as notes:
        await notes.remember("a pear", metadata={"a": 1})
    connection = apsw.Connection(str(tmp_path / "notes.db"))
    connection.execute("DROP TABLE notes_metadata; UPDATE notes_state SET value=2 WHERE name='format'")
    connection.close()
    async with Notes(tmp_path / "notes.db") as notes:
        assert await contents(notes, metadata_filter={"a": 1}) == {"a pear"}


async def test_the_file_of_notes_has_no_metadata_in_its_tables(tmp_path):
    """What was forgotten is gone from the tables too, and the tables have no value of metadata in the clear."""
    async with SqliteStore(tmp_path / "notes.db") as store:
        notes = Notes(store)
        await notes.remember("a pear", metadata={"customer": "Ada Lovelace"})

        def entries(connection):
            return connection.execute("SELECT * FROM notes_metadata").fetchall()

        [(_, entry)] = await store.read(entries)
        assert "Ada" not in entry
        await notes.reset()
        assert await store.read(entries) == []
