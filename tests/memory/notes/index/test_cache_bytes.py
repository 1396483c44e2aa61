"""What notes hold in memory of owners stays within the bytes that they were given, however many owners there are."""

from __future__ import annotations

import gc
import json
from dataclasses import replace

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.memory import NoteMemory, Notes, NoteSettings
from graphagent.memory.notes._view import NoteView
from graphagent.testing import ScriptedModel
from tests.memory.notes.conftest import Words, store_of

OWNERS, BYTES = 40, 64_000


def of_owner(notes, owner):
    """Give the same notes for another owner, as a run for that owner has them."""
    return NoteView(notes._service, replace(notes._visibility, owner=owner))


def held(notes):
    """Give the vectors that are held in memory."""
    return notes._service.repository.vectors._loaded


def filled(notes, monkeypatch):
    """Give a list to which each owner comes whose vectors are read."""
    owners, fill = [], notes._service.repository.vectors.load

    async def counted(owner, *rest):
        owners.append(owner)
        return await fill(owner, *rest)

    monkeypatch.setattr(notes._service.repository.vectors, "load", counted)
    return owners


async def right(notes, owner, *texts):
    """See that an owner is given their own notes, by their words and by their vectors."""
    found = await of_owner(notes, owner).recall(f"the {owner} likes {texts[-1]}")
    assert {match.record.content for match in found} == {f"the {owner} likes {text}" for text in texts}
    assert all("semantic" in match.parts for match in found)
    assert found[0].record.content == f"the {owner} likes {texts[-1]}"


async def test_many_owners_are_served_with_little_memory(store, kind):
    """From many tasks and one after the other, all are given what is theirs, and little is held."""
    async with Notes(store, embedder=Words(), cache_bytes=BYTES) as notes:

        async def serve(owner):
            for text in ("tea", "trains"):
                await of_owner(notes, owner).remember(f"the {owner} likes {text}")
            await right(notes, owner, "tea", "trains")

        async with anyio.create_task_group() as tasks:
            for number in range(OWNERS):
                tasks.start_soon(serve, f"owner{number}")
        for number in range(OWNERS):
            await right(notes, f"owner{number}", "tea", "trains")
            assert (
                1 < len(held(notes)) < (OWNERS + 1 if kind == "postgres" else OWNERS / 2)
            )  # there they are in the database
            assert held(notes)._bytes <= BYTES
            assert 0 < len(notes._service.repository._speakers) < OWNERS / 2


async def test_vectors_that_grow_count_as_what_they_are_then(tmp_path):
    """An owner whose notes become many makes others leave."""
    async with Notes(tmp_path / "notes.db", embedder=Words(), cache_bytes=BYTES) as notes:
        for owner in ("ann", "bo"):
            await of_owner(notes, owner).remember(f"the {owner} likes tea")
            await right(notes, owner, "tea")
        assert len(held(notes)) == 2
        await of_owner(notes, "bo").remember_many([f"note {number}" for number in range(800)])
        assert await of_owner(notes, "bo").recall("note 7", limit=1)
        assert (held(notes).get("ann"), len(held(notes))) == (None, 1)
        await right(notes, "ann", "tea")


async def test_vectors_of_one_owner_are_held_however_large_they_are(tmp_path, monkeypatch):
    """Whoever asks again and again does not wait for all vectors each time."""
    async with Notes(tmp_path / "notes.db", embedder=Words(), cache_bytes=0) as notes:
        owners = filled(notes, monkeypatch)
        for owner in ("ann", "bo"):
            await of_owner(notes, owner).remember(f"the {owner} likes tea")
        for owner in ("ann", "ann", "bo", "bo", "ann"):
            await right(notes, owner, "tea")
        assert owners == ["ann", "bo", "ann"]


@pytest.mark.parametrize("meanwhile", ["others", "forget", "reset", "reembed"])
async def test_a_question_goes_on_whose_vectors_are_let_go(store, meanwhile):
    """What happens while a question is embedded, to these notes or to those of others, changes nothing that was right."""
    many = ["tea", "trains", "maps"]

    class Meanwhile(Words):
        then = None

        async def embed(self, texts):
            then, self.then = self.then, None
            if then is not None:
                await then()
            return await super().embed(texts)

    async with Notes(store, embedder=Meanwhile(), cache_bytes=0) as notes:
        ann = of_owner(notes, "ann")
        kept = [await ann.remember(f"the ann likes {text}") for text in many]
        await of_owner(notes, "bo").remember("the bo likes tea")

        async def then():
            if meanwhile == "forget":
                await ann.forget(ids=[kept[0].id])
            elif meanwhile == "reset":
                await ann.reset()
            elif meanwhile == "reembed":
                await ann.reembed()
            await right(notes, "bo", "tea")
            assert held(notes).get("ann") is None

        notes._service.repository.embedder.then = then
        left = {"forget": many[1:], "reset": []}.get(meanwhile, many)
        found = await ann.recall("the ann likes maps")
        assert {match.record.content for match in found} == {f"the ann likes {text}" for text in left}
        if left:
            await right(notes, "ann", *left)
        await ann.remember("the ann likes rain")
        await right(notes, "ann", *left, "rain")


async def test_tasks_that_change_and_ask_at_once_are_given_what_is_right(store):
    """With room for the vectors of one owner alone."""
    async with Notes(store, embedder=Words(), cache_bytes=0) as notes:

        async def serve(owner):
            view = of_owner(notes, owner)
            first = await view.remember(f"the {owner} likes tea")
            await right(notes, owner, "tea")
            await view.remember(f"the {owner} likes maps")
            assert await view.reembed() == 2
            await right(notes, owner, "tea", "maps")
            await view.forget(ids=[first.id])
            await right(notes, owner, "maps")
            await view.reset()
            assert await view.recall(f"the {owner} likes maps") == []
            await view.remember(f"the {owner} likes rain")
            await right(notes, owner, "rain")

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(serve, f"owner{number}")
        assert len(held(notes)) == 1


async def test_little_is_held_of_owners_whose_notes_have_no_vectors(tmp_path):
    """Nor of those who have no notes at all."""
    async with Notes(tmp_path / "notes.db") as plain:
        for number in range(OWNERS):
            await of_owner(plain, f"owner{number}").remember("tea")
    async with Notes(tmp_path / "notes.db", embedder=Words(), cache_bytes=BYTES) as notes:
        for number in range(2 * OWNERS):
            assert len(await of_owner(notes, f"owner{number}").recall("tea")) == (number < OWNERS)
            assert len(notes._service.repository.vectors._warned) < OWNERS / 2
        assert len(held(notes)) == 0


async def test_nothing_is_known_of_owners_where_the_tables_know_it(kind, tmp_path):
    """The tables in a file know all; beside others, what is known is of owners that have notes."""
    async with store_of(kind, tmp_path) as store:
        for _ in range(2):  # the second finds tables, or notes, that are there
            notes = Notes(store)
            await of_owner(notes, "ann").remember("tea")
            for number in range(OWNERS):
                assert await of_owner(notes, f"owner{number}").recall("tea") == []
            assert set(notes._service.repository._sync._owners) == (set() if kind in ("file", "postgres") else {"ann"})
            await notes.reindex()
            assert set(notes._service.repository._sync._owners) == (set() if kind in ("file", "postgres") else {"ann"})
            assert len(await of_owner(notes, "ann").recall("tea")) >= 1


async def test_what_asks_a_model_for_an_owner_is_there_as_long_as_it_has_to(tmp_path):
    """Nothing stays of runs that have ended, unless there is work to do after them."""
    release = anyio.Event()

    class Slow(ScriptedModel):
        async def respond(self, request, on_text=None):
            await release.wait()
            return await super().respond(request, on_text)

    def told(request):
        numbers = [json.loads(line)["number"] for line in request.messages[1].text.splitlines() if "number" in line]
        return json.dumps({"notes": [{"number": number, "scope": "/told"} for number in numbers]})

    @node
    async def keep(ctx: Context, text: str) -> str:
        await ctx.feature(NoteMemory).remember(text)
        return text

    keeper = Agent(Strategy("keeper", START >> keep >> END), model=ScriptedModel([]))
    async with Notes(
        tmp_path / "notes.db", model=Slow([told] * 3), settings=NoteSettings(consolidation_threshold=1.0)
    ) as notes:
        inference = notes._service.inference
        keeper.install(NoteMemory, notes=notes, learn=False, recall=False)
        for owner in ("ann", "bo", "cy"):
            await keeper.run("tea", owner=owner)
        gc.collect()
        assert sorted(inference._others) == ["ann", "bo", "cy"]
        release.set()
        for owner in ("ann", "bo", "cy"):
            assert await inference.of(owner).settle(of_owner(notes, owner)._visibility.filter()) == 0
            [record] = await of_owner(notes, owner).list_records()
            assert record.scope == "/told"
        while inference._running:  # noqa: ASYNC110  nothing tells of what is done in the background
            await anyio.sleep(0.01)
        gc.collect()
        assert sorted(inference._others) == []


async def test_work_for_an_owner_goes_on_while_nobody_holds_it(tmp_path, monkeypatch):
    """Until it has ended, or the notes are closed."""
    async with Notes(tmp_path / "notes.db", model=ScriptedModel([])) as notes:
        inference, entered = notes._service.inference, anyio.Event()

        async def never(owner):
            entered.set()
            await anyio.Event().wait()

        monkeypatch.setattr(notes._service.repository, "pending", never)
        inference.of("ann").soon()
        await entered.wait()
        gc.collect()
        assert (list(inference._others), len(inference._running)) == (["ann"], 1)
    assert len(inference._running) == 0


@pytest.mark.parametrize("wrong", [-1, None, 1.5, True, "64 MB"])
def test_a_budget_that_is_no_number_of_bytes_is_refused(wrong, tmp_path):
    """It is refused where it is given, and no file is made."""
    with pytest.raises(ValueError, match=r"cache_bytes=.* is not a number of bytes"):
        Notes(tmp_path / "notes.db", cache_bytes=wrong)
    assert list(tmp_path.iterdir()) == []
