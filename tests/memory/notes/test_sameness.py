"""Notes that say the same in the same words, without a model: the new one takes the place of the older one."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.memory import Note, NoteMemory, Notes, Turn
from graphagent.memory.notes._sameness import is_same, normal, sameness
from graphagent.memory.notes._types import Record
from graphagent.store import SqliteStore
from tests.memory.notes.conftest import Words


async def texts(notes):
    return sorted([record.content for record in await notes.list_records()])


@pytest.mark.parametrize("embedder", [None, Words()])
async def test_what_is_remembered_again_is_there_once(store, embedder):
    """The new note has what was known of the older one, which is in the history and can be brought back."""
    async with Notes(store, embedder=embedder) as notes:
        old = await notes.remember("The office is in Oslo.", importance=0.9, metadata={"by": "Ann", "floor": 2})
        new = await notes.remember("the office  is in OSLO.", metadata={"floor": 3})
        assert (new.importance, new.metadata) == (0.9, {"by": "Ann", "floor": 3})
        assert await texts(notes) == ["the office  is in OSLO."]
        assert [match.record.id for match in await notes.recall("office Oslo")] == [new.id]
        [(past, action)] = await notes.history(old.id)
        assert (past.content, action) == ("The office is in Oslo.", "consolidated: it was said again")
        assert await notes.verify() == 1
        await notes.undo(old.id)
        assert len(await texts(notes)) == 2


async def test_of_several_in_one_save_one_is_kept(notes):
    """Each text that was given has its note, the same for those that say the same."""
    await notes.remember("pears are ripe")
    first, second, third = await notes.remember_many(
        ["Pears are ripe", Note("plums", importance=0.7), "PEARS are ripe"]
    )
    assert first == third
    assert await texts(notes) == ["PEARS are ripe", "plums"]
    assert second.importance == 0.7


@pytest.mark.parametrize(
    "other",
    [
        {"scope": "/b"},
        {"categories": ["x"]},
        {"source": "ann"},
        {"trust": "untrusted"},
        {"source": "ann", "private": True},
    ],
)
async def test_what_differs_in_more_than_words_stays(notes, other):
    """Nobody's word takes away what another said, nor what is kept elsewhere."""
    await notes.remember("pears are ripe", **other)
    await notes.remember("pears are ripe")
    await notes.remember("pears are ripe", **other)
    assert len(await notes.of("ann").list_records()) == 2


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


@pytest.mark.parametrize(("settings", "said"), [({"consolidation_threshold": 1.0}, {}), ({}, {"infer": "never"})])
async def test_it_can_be_turned_off(store, settings, said):
    """For all notes, or for one save."""
    async with Notes(store, **settings) as notes:
        await notes.remember("pears are ripe", **said)
        await notes.remember("pears are ripe", **said)
        assert len(await texts(notes)) == 2


async def test_forgetting_reaches_what_was_merged(notes):
    """Nothing of the older note stays when the one that took its place is forgotten."""
    old = await notes.remember("Pears are ripe")
    new = await notes.remember("pears are ripe")
    await notes.forget(ids=[new.id])
    assert await texts(notes) == []
    for each in (old, new):
        assert await notes.get(each.id) is None


async def test_tasks_that_save_the_same_at_once_leave_it_there(notes):
    """However they meet, all of them succeed, and the text is there."""
    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(notes.remember, "pears are ripe")
    assert set(await texts(notes)) == {"pears are ripe"}
    await notes.remember("pears are ripe")
    assert await texts(notes) == ["pears are ripe"]


async def test_a_node_that_is_executed_again_takes_nothing_from_itself(tmp_path):
    """It keeps its note once, under the same id."""
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


@given(st.text(max_size=20), st.text(max_size=20))
def test_notes_that_are_the_same_have_the_same_number(one, other):
    """And a text is the same as itself with other spaces around and between its words."""
    first, second, third = (
        Record(id=str(place), content=text) for place, text in enumerate((one, other, f"  {one}\n".replace(" ", "  ")))
    )
    assert is_same(first, third)
    assert sameness(first) == sameness(third)
    assert is_same(first, second) == (normal(one) == normal(other)) == (sameness(first) == sameness(second))
