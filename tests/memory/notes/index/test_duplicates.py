"""Notes that are there already, letter for letter: they are not kept again, without a model."""

from __future__ import annotations

from datetime import UTC, datetime

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.memory import Note, NoteMemory, Notes, NoteSettings, Turn
from graphagent.memory._note_values import Record
from graphagent.memory.notes.index._duplicates import is_same, sameness
from graphagent.store import EncryptedStore, MemoryStore, SqliteStore
from tests.memory.notes.conftest import KEY, Words

MAY = datetime(2025, 5, 1, tzinfo=UTC)


async def texts(notes):
    return sorted([record.content for record in await notes.list_records()])


@pytest.mark.parametrize("embedder", [None, Words()])
async def test_what_is_there_already_is_given_and_nothing_is_written(store, embedder):
    """With its id, its time and all that is known of it; what is left out may be anything."""
    async with Notes(store, embedder=embedder) as notes:
        old = await notes.remember(
            "The office is in Oslo.", categories=["place"], importance=0.9, metadata={"floor": 2}
        )
        before = [item async for item in store.scan(("notes",))]
        assert await notes.remember(" The office is in Oslo. ") == old
        assert await notes.remember("The office is in Oslo.", importance=0.9, metadata={"floor": 2}) == old
        assert [item async for item in store.scan(("notes",))] == before
        assert await notes.verify() == 1


@pytest.mark.parametrize(
    "other",
    [
        {"scope": "/b"},
        {"categories": ["x"]},
        {"categories": []},
        {"importance": 0.8},
        {"metadata": {"floor": 3}},
        {"metadata": {"room": 1}},
        {"source": "ann"},
        {"source": "ann", "private": True},
        {"trust": "untrusted"},
        {"at": MAY},
    ],
)
async def test_what_differs_in_anything_is_kept_beside_it(notes, other):
    """Nothing that was said is lost: not another time, value, source or place."""
    said = {"categories": ["place"], "importance": 0.9, "metadata": {"floor": 2}}
    await notes.remember("pears are ripe", **said)
    new = await notes.remember("pears are ripe", **{**said, **other})
    assert await notes.remember("pears are ripe", **{**said, **other}) == new
    assert len(await notes.of("ann").list_records()) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [("5 MW", "5 mW"), ("git branch -d x", "git branch -D x"), ("if a:\n  b", "if a:\n    b"), ("a  b", "a b")],
)
async def test_texts_that_differ_in_a_letter_or_a_space_are_two_notes(notes, one, other):
    """Case and spaces may mean something."""
    await notes.remember_many([one, other])
    assert await texts(notes) == sorted([one, other])


async def test_of_several_in_one_save_one_is_kept(notes):
    """Each text that was given has its note, the same for those that are the same."""
    there = await notes.remember("pears are ripe")
    first, second, third, fourth = await notes.remember_many(
        ["plums", "pears are ripe", "plums", Note("plums", at=MAY)]
    )
    assert second == there
    assert first == third != fourth
    assert await texts(notes) == ["pears are ripe", "plums", "plums"]


async def test_every_day_of_a_diary_is_kept(notes):
    """What was said at another time is another note."""
    days = [datetime(2025, 5, day, tzinfo=UTC) for day in (1, 2, 3)]
    await notes.remember_many([Note("Went for a run.", at=day) for day in days])
    assert sorted([record.at for record in await notes.list_records()]) == days


async def test_turns_of_conversations_are_never_merged(notes):
    """What was said twice was said twice, and a note is not a turn."""
    await notes.remember_conversation([Turn("Yes."), Turn("Yes.")], session="s")
    await notes.remember_conversation([Turn("Yes.")], session="t")
    await notes.remember("Yes.")
    assert await texts(notes) == ["Yes."] * 4


async def test_owners_are_kept_apart(store):
    """The same words of two owners are two notes."""
    for owner in ("ann", "bo", "ann"):
        await Notes(store, owner=owner).remember("pears are ripe")
    assert [await texts(Notes(store, owner=owner)) for owner in ("ann", "bo")] == [["pears are ripe"]] * 2


async def test_it_can_be_turned_off(store):
    """Where every save is to be a note of its own."""
    async with Notes(store, settings=NoteSettings(consolidation_threshold=1.0)) as notes:
        await notes.remember_many(["pears are ripe", "pears are ripe"])
        await notes.remember("pears are ripe")
        assert len(await texts(notes)) == 3


async def test_forgetting_the_id_that_was_given_forgets_what_was_said(notes):
    """Both saves gave the same id, so there is nothing else."""
    [first, second] = [await notes.remember("pears are ripe") for _ in range(2)]
    assert first.id == second.id
    await notes.forget(ids=[first.id])
    assert await texts(notes) == []


async def test_what_a_run_repeats_is_not_the_runs(notes):
    """Forgetting a run takes nothing away that was there before it."""
    await notes.remember("pears are ripe")
    await notes.remember("pears are ripe", run_id="r")
    assert (await notes.purge(run_id="r")).notes == 0
    assert await texts(notes) == ["pears are ripe"]


async def test_a_node_that_is_executed_again_keeps_its_note_once(tmp_path):
    """Under the same id."""
    notes, tries = Notes(tmp_path / "notes.db"), []

    @node
    async def keep(ctx: Context, text: str) -> str:
        [record] = await ctx.feature(NoteMemory).remember_many([text])
        tries.append(record.id)
        if len(tries) == 1:
            raise RuntimeError("broken off behind the save")
        return record.id

    agent = Agent(Strategy("keeps", START >> keep >> END), store=SqliteStore(tmp_path / "runs.db"))
    agent.install(NoteMemory, notes=notes, recall=False, learn=False)
    with pytest.raises(Exception, match="keep"):
        await agent.run("pears are ripe", run_id="r")
    assert (await agent.resume("r")).output == tries[0] == tries[1]
    assert await texts(notes) == ["pears are ripe"]


@pytest.mark.parametrize("kind", ["sealed", "memory", "file"])
async def test_saves_beside_a_reindex_succeed(kind, tmp_path):
    """Whatever is saved and looked for while the index is made anew is kept and found."""
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "notes.db")
    async with Notes(EncryptedStore(store, KEY) if kind == "sealed" else store) as notes:
        await notes.remember("pear")
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(notes.remember, f"pear {number}")
                if number % 5 == 0:
                    tasks.start_soon(notes.reindex)
                    tasks.start_soon(notes.recall, "pear")
        assert len(await notes.recall("pear", limit=50)) == 21
        assert await notes.verify() == 21


@given(st.text(max_size=20), st.text(max_size=20))
def test_notes_that_are_the_same_have_the_same_number(one, other):
    """However their letters are composed."""
    first, second = (Record(id=str(place), content=text) for place, text in enumerate((one, other)))
    assert is_same(first, first)
    assert is_same(first, second) <= (sameness(first) == sameness(second))
