"""Notes brought in: all or none, within the view, and for their owner alone."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from graphagent.errors import EmbedderError, NoteError, NotePermissionError
from graphagent.memory import Notes
from graphagent.migrate.notes import by_owner, from_export, from_mem0
from graphagent.store import MemoryStore
from tests.memory.notes.conftest import Words
from tests.thorough import examples


def record(id_="1", content="pear", **parts):
    """Give a record as an export has it."""
    return {"type": "note", "id": id_, "content": content, **parts}


def was(id_="1", content="plum", **parts):
    """Give what a record was before it was changed."""
    return {"record": {"id": id_, "content": content, **parts}, "action": "updated"}


async def exported(view):
    return [each async for each in view.export()]


# ---- within the view


async def test_a_scope_keeps_nothing_outside_of_it(notes):
    """Neither a note of another scope nor one that was once elsewhere is imported; the record, its scope and a way are named."""
    other = Notes(MemoryStore())
    await other.remember("of b", scope="/tenant/b")
    moved = await other.remember("of both", scope="/tenant/b")
    await other.update(moved.id, scope="/tenant/a")
    outside, once = await exported(other)
    view = notes.scope("/tenant/a")
    good = record("good", scope="/tenant/a/in")
    with pytest.raises(
        NotePermissionError, match=r"record 2 has the scope '/tenant/b', which is outside .*/tenant/a;.*scope="
    ):
        await view.import_([good, outside])
    with pytest.raises(PermissionError, match="record 1 has in its history the scope '/tenant/b'"):
        await view.import_([once])
    with pytest.raises(PermissionError, match="record 1 has the scope '/'"):
        await view.import_([record()])
    assert await notes.list_records() == []
    assert await view.import_([good]) == 1
    assert await view.import_(from_export([outside, once], scope="/tenant/a")) == 2
    assert {each.scope for each in await notes.list_records()} == {"/tenant/a/in", "/tenant/a/tenant/b", "/tenant/a"}
    assert len(await view.list_records()) == 3


@pytest.mark.parametrize(
    ("of", "wrong", "reason"),
    [
        (lambda notes: notes.slice(["/a", "/b"], read_only=False), record(scope="/c"), "outside"),
        (lambda notes: notes.slice(["/a"], ["x"], read_only=False), record(scope="/a", categories=["y"]), "categories"),
        (
            lambda notes: notes.slice(["/a"], ["x"], read_only=False),
            record(scope="/a", categories=["x"], history=[was(scope="/a")]),
            "in its history: this view has notes of these categories only",
        ),
        (lambda notes: notes.of("al"), record(private=True, source="bo"), "no private notes of others"),
        (lambda notes: notes.of("al"), record(history=[was(private=True, source="bo")]), "no private notes of others"),
        (lambda notes: notes.slice(["/"]), record(), "read-only"),
    ],
)
async def test_a_view_keeps_nothing_that_it_would_not_see(notes, of, wrong, reason):
    """Nor anything that was once so, and then nothing at all."""
    with pytest.raises(NotePermissionError, match=reason):
        await of(notes).import_([record("good", scope="/a", categories=["x"]), wrong])
    assert await notes.list_records() == []


SCOPES = st.sampled_from(["/", "/a", "/a/b", "/a/b/c", "/ab", "/c", "a", " /a//b/ "])
SOURCE = st.sampled_from(["", "al", "al", "bo"])
STATE = st.fixed_dictionaries(
    {
        "scope": SCOPES,
        "categories": st.lists(st.sampled_from(["x", "y", "z"]), max_size=2),
        "source": SOURCE,
        "private": st.sampled_from([False, False, True]),
        "owner": st.sampled_from(["", "me"]),
    }
)
RECORDS = st.lists(st.tuples(STATE, st.lists(STATE, max_size=1)), min_size=1, max_size=2)
BOUNDS = st.tuples(
    st.sampled_from(["/", "/a", "/a/b", ["/a"], ["/a/b", "/c"], ["/"]]),
    st.sampled_from([[], ["x"], ["x", "y"]]),
    st.sampled_from([None, "al"]),
)


@settings(deadline=None, max_examples=examples(300))
@given(BOUNDS, RECORDS)
def test_what_a_view_imports_it_sees(bounds, given_records):
    """Of any view: every note and all that it was, or nothing is kept; and what it gives is taken by it again."""
    scopes, categories, source = bounds

    def view_of(notes):
        view = notes.scope(scopes) if isinstance(scopes, str) else notes.slice(scopes, read_only=False)
        if categories:
            view = view.slice(view.scopes, categories, read_only=False)
        return view.of(source) if source else view

    def lengths(records):
        return {each["id"]: len(each.get("history", ())) for each in records}

    async def main():
        notes = Notes(MemoryStore(), owner="me")
        view = view_of(notes)
        records = [
            record(str(number), **state, **({"history": [was(str(number), **old) for old in past]} if past else {}))
            for number, (state, past) in enumerate(given_records)
        ]
        try:
            assert await view.import_(records) == len(records)
        except (NoteError, PermissionError):
            assert await exported(notes) == []
            return
        taken = await exported(view)
        assert lengths(taken) == lengths(records)
        for each in records:
            asked = view if source or not each["private"] else view.of(each["source"])
            assert (await asked.get(each["id"])).content == "pear"
        copy = view_of(Notes(MemoryStore(), owner="me"))
        assert await copy.import_(view.export()) == len(records)

    anyio.run(main)


# ---- for their owner


MEM0 = {
    "results": [
        {"id": "1", "memory": "Alice likes tea", "user_id": "alice", "created_at": "2026-01-02T03:04:05Z"},
        {"id": "2", "memory": "Bob likes milk", "user_id": "bob", "created_at": "2026-01-02T03:04:05Z"},
    ]
}


@pytest.mark.parametrize("owner", ["alice", "", "carol"])
async def test_the_records_of_others_are_refused(store, owner):
    """By notes of whomever; the owners that there are and what to do are said, and nothing is kept."""
    notes = Notes(store, owner=owner)
    with pytest.raises(
        NotePermissionError, match=r"'bob'.*nothing is imported.*Notes\(store, owner=…\).*by_owner"
    ) as refused:
        await notes.import_(from_mem0(MEM0))
    assert ("'alice'" in str(refused.value).partition(", and these notes")[0]) == (owner != "alice")
    assert await notes.list_records() == []
    with pytest.raises(NotePermissionError, match="'o10', 'o11', 'o12', 'o13', 'o14' and 85 more, and"):
        await notes.import_([record(str(number), owner=f"o{number}") for number in range(10, 100)])
    with pytest.raises(ValueError, match="record 1 is not a note: its history is that of another"):
        await notes.import_([record(history=[was(owner="bob")])])


async def test_each_owner_gets_what_is_theirs(store):
    """With the loop that the importers name, or all are given to one who is named; who names none is of these notes."""
    for owner, records in by_owner(from_mem0(MEM0)).items():
        assert await Notes(store, owner=owner).import_(records) == 1
    for owner, content in (("alice", "Alice likes tea"), ("bob", "Bob likes milk")):
        assert [each.content for each in await Notes(store, owner=owner).list_records()] == [content]
    assert await Notes(store).list_records() == []
    carol = Notes(store, owner="carol")
    assert await carol.import_(from_mem0(MEM0, owner="carol")) == 2
    assert await carol.import_([record("3", history=[was("3")])]) == 1
    assert {each.owner for each in await carol.list_records()} == {"carol"}
    [(old, *_)] = await carol.history("3")
    assert old.owner == "carol"
    assert await Notes(store, owner="dora").import_(from_export(await exported(carol), owner="dora")) == 3


# ---- all or none


class Failing(Words):
    """Fails at a text, or is cancelled there."""

    def __init__(self, at, do):
        super().__init__()
        self.at, self.do = at, do

    async def embed(self, texts):
        if any(self.at in text for text in texts):
            self.do()
            await checkpoint()
        return await super().embed(texts)


def fail():
    raise RuntimeError


async def test_an_import_that_fails_keeps_nothing(store):
    """However late that is, and however much was ready."""
    many = [record(str(number), f"pear {number}.", history=[was(str(number))]) for number in range(1100)]
    notes = Notes(store, embedder=Failing("pear 1055.", fail))
    with pytest.raises(EmbedderError):
        await notes.import_(many)
    assert await notes.list_records() == []
    with anyio.CancelScope() as scope:
        await Notes(store, embedder=Failing("pear 1055.", scope.cancel)).import_(many)
    assert scope.cancelled_caught
    with anyio.CancelScope() as scope:
        await Notes(store).import_(many, on_progress=lambda done, of: done and done < of and scope.cancel())
    assert scope.cancelled_caught
    assert [item async for item in store.scan(("notes",))] == []
    assert await Notes(store, embedder=Words()).import_(many) == 1100
    assert await notes.verify() == 1100


async def test_it_is_told_how_far_an_import_is(notes):
    """Now and then while they are looked up, and of all when they are kept."""
    told = []

    async def kept():
        return len(await notes.list_records(limit=5000))

    many = [record(str(number)) for number in range(2000)]
    await notes.import_(many, on_progress=lambda done, of: told.append((done, of)))
    assert told == [(0, 2000), (1000, 2000), (2000, 2000)]
    assert await kept() == 2000
    told.clear()
    assert await notes.import_(many[:1], on_progress=lambda done, of: told.append((done, of))) == 0
    assert told == [(0, 1), (1, 1)]
    assert await notes.import_([]) == 0


async def test_it_is_told_how_many_have_their_vectors(store):
    """With an embedder that is what takes its time; those that are there already count at once."""
    told = []
    notes = Notes(store, embedder=Words())
    many = [record(str(number)) for number in range(1200)]
    await notes.import_(many[:100])
    await notes.import_(many, on_progress=lambda done, of: told.append((done, of)))
    assert told == [(600, 1200), (1100, 1200), (1200, 1200), (1200, 1200)]


async def test_a_note_that_was_consolidated_away_does_not_come_back(notes):
    """Importing the same again adds nothing, and what the note was stays."""
    old = await notes.remember("Pears are sweet.")
    records = await exported(notes)
    again = await notes.remember("What is sweet is a pear.")
    await notes._service.repository.retire("", old, "consolidated: it was said again", again.id)
    assert await notes.import_(records) == 0
    assert [each.id for each in await notes.list_records()] == [again.id]
    assert (await notes.undo(old.id)).content == "Pears are sweet."


# ---- what is given


async def test_an_export_is_imported_as_it_comes(notes, store):
    """What `export` gives is taken without a list of it, from the same store too."""
    kept = await notes.remember("pear", scope="/a")
    await notes.update(kept.id, content="plum")
    other = Notes(MemoryStore())
    assert await other.import_(notes.export()) == 1
    assert await exported(other) == await exported(notes)
    assert await Notes(store, owner="other").import_(notes.export()) == 1
    assert await notes.import_(each for each in await exported(notes)) == 0


@pytest.mark.parametrize("given", ["notes.jsonl", b"{}", record(), 3, None])
async def test_what_is_no_list_of_records_is_refused(notes, given):
    """A path, a text, one record: it is said what to give."""
    with pytest.raises(TypeError, match=r"import_ takes the records that export\(\) gave, not .*from_export"):
        await notes.import_(given)


async def test_lines_are_no_records(notes):
    """Of an open file, each line is a text."""
    with pytest.raises(ValueError, match=r"record 1 is not a note: it is not a JSON object; from_export\(text\)"):
        await notes.import_(iter(['{"id": "1"}\n']))


async def test_owners_that_no_store_would_take_are_refused(notes):
    """As in every other operation that takes a name."""
    with pytest.raises(ValueError, match="record 1 is not a note: owner has 1,001 characters"):
        await notes.import_([record(owner="o" * 1001)])
