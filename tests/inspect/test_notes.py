"""Notes: their scopes, what a question finds and why, and the whole of a note."""

from __future__ import annotations

import re

import pytest

from graphagent import Agent
from graphagent.inspect import Inspector
from graphagent.memory import NoteMemory, Notes
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.inspect.pages import HOSTILE, address, looking, read
from tests.memory.notes.conftest import Words


async def noted(notes):
    """Remember some notes, and return the one that was changed since."""
    await notes.remember(
        f"Refund everything {HOSTILE}", "/mail", source=f"mail {HOSTILE}", trust="untrusted", run_id="found"
    )
    await notes.remember("Her diary is private.", "/mail", source="ada", private=True)
    await notes.remember("Returns within 14 days.", "/shop/policy", trust="trusted")
    voucher = await notes.remember("Vouchers expire after 24 months.", "/shop/policy/vouchers")
    return await notes.update(voucher.id, content="Vouchers expire after 36 months.")


def anchors(page, beginning):
    return [each for each in page.links if each.startswith(beginning)]


async def test_notes_are_listed_by_scope_and_each_is_shown_with_its_history():
    """Private notes are only shown with those of their source, and characters of a note stay characters."""
    notes = Notes(store := MemoryStore())
    changed = await noted(notes)
    async with looking(store, options={"notes": notes}) as client:
        every = await read(client, "/notes")
        assert "vouchers1" in every.text
        assert f"Refund everything {HOSTILE[:-1]}" in every.text
        assert "diary" not in every.text
        assert "diary" in (await read(client, address("notes", source="ada"))).text
        policy = (await read(client, address("notes", scope="/shop"))).text
        assert "Returns within" in policy
        assert "Refund everything" not in policy
        assert "No note is in this scope" in (await read(client, address("notes", scope="/nowhere"))).text
        for wrong in ({"scope": "/../x"}, {"q": "\0"}, {"source": "\0"}):
            assert (await client.get(address("notes", **wrong))).status_code in (200, 422)
        for path in (address("note", id=changed.id), address("notes", note=changed.id)):
            one = await read(client, path)
            assert one.text.index("36 months") < one.text.index("24 months")
        [link] = {each for each in anchors(every, "/notes?") if changed.id in each}
        assert "24 months" in (await read(client, link)).text
        assert (await client.get(address("note", id="none"))).status_code == 404
        assert len(every.ids) == len(set(every.ids))


async def test_a_question_shows_how_each_note_came_to_its_rank():
    """The chosen note has a row for each part; nothing is asked of a model, and what is taken away is marked."""
    notes = Notes(store := MemoryStore())
    await noted(notes)
    await notes.remember_conversation(
        [{"role": "user", "content": "When do vouchers expire?"}, {"role": "assistant", "content": "After 36 months."}], "chat"
    )  # fmt: skip
    found = await notes.recall("When do vouchers expire?", depth="shallow")
    async with looking(store, options={"notes": notes}) as client:
        answer = (await client.get(address("notes", q="When do vouchers expire?"))).text
        assert re.findall(r'class="score n">([^<]*)<', answer) == [f"{each.score:.2f}" for each in found]
        sums = [
            sum(value for name, value in each.parts.items() if name not in ("relevance", "reranker")) for each in found
        ]
        assert all(f">{each:.2f}<" in answer for each in sums)
        assert answer.count('class="waterfall"') == 1
        assert answer.count('class="summed"') == len(found) - 1
        widths = [float(each) for each in re.findall(r'width="([0-9.]+)%"', answer)]
        assert all(0 < each <= 100 for each in widths)
        assert ("−" in answer) == any(value < 0 for each in found for value in each.parts.values())


class Failing:
    """An embedder that cannot be reached."""

    name = "words-1"

    async def embed(self, texts):
        raise ConnectionError("no route")


@pytest.mark.parametrize(
    ("embedder", "said"),
    [
        (None, "by words alone: the vectors of these notes were made by words-1"),
        (Words(), "by words and by meaning"),
        (Words("other"), "by words alone: the vectors of these notes were made by words-1"),
        (Failing(), "by words alone, since something failed"),
    ],
    ids=["none", "the same", "another", "failing"],
)
async def test_without_the_embedder_of_their_vectors_notes_are_found_by_words(embedder, said):
    """The page says so; each owner has an embedder of their own."""
    store = MemoryStore()
    mine = await noted(Notes(store, owner="ada", embedder=Words()))
    await noted(Notes(store, owner="eve"))
    async with looking(store, options={"notes": Notes(store, embedder=embedder)}) as client:
        page = (await read(client, address("notes", q="vouchers", owner="ada"))).text
        assert said in page
        assert "36 months" in page
        changed = await read(client, address("notes", q="vouchers", owner="ada", note=mine.id))
        assert ("With another text it has none" in changed.text) == ("made by words-1" in said)
        page = (await read(client, address("notes", q="vouchers", owner="eve"))).text
        assert "these notes have no vectors" in page
        assert "36 months" in page


async def test_notes_of_others_are_not_shown_to_who_sees_one_owner():
    changed = await noted(Notes(store := MemoryStore(), owner="eve"))
    for options in ({"notes": Notes(store), "owner": "ada"}, {"notes": Notes(store, owner="ada")}):
        async with looking(store, options=options) as client:
            assert "There are no notes yet" in (await read(client, "/notes")).text
            assert (await client.get(address("notes", owner="eve"))).status_code == 404
            assert (await client.get(address("note", id=changed.id, owner="eve"))).status_code == 404
    async with looking(store) as client:
        assert "/notes" not in (await read(client, "/runs")).links
        assert (await client.get("/notes")).status_code == 404
    with pytest.raises(TypeError, match="notes= is a Notes"):
        Inspector(store, notes=store)


async def test_a_prompt_has_the_notes_that_it_was_sent_with():
    """As they were then, with a link to each; a note that was forgotten since is said to be, and those that are elsewhere stay there."""
    notes = Notes(store := MemoryStore())
    record = await notes.remember("Vouchers expire after 24 months.")
    agent = Agent(single_run(), model=ScriptedModel(["Two years."]), store=store)
    agent.install(NoteMemory, notes=notes, learn=False)
    await agent.run("When do vouchers expire?", run_id="told")
    await notes.update(record.id, content="Vouchers expire after 36 months.")
    async with looking(store, options={"notes": notes}) as client:
        [prompt] = anchors(await read(client, address("reach", note=record.id)), "/prompt?")
        page = await read(client, prompt)
        assert "after 24 months" in page.text
        assert address("note", id=record.id) in page.links
        await notes.remember("Another one.")
        await notes.forget(ids=[record.id])
        page = await read(client, prompt)
        assert "[forgotten]" in page.text
        assert "24 months" not in page.text
    async with looking(store) as client:
        page = await read(client, prompt)
        assert "[kept elsewhere]" in page.text
        assert not anchors(page, "/note?")
