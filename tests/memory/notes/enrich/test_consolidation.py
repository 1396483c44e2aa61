"""Notes that say the same: taken away without a model, or by a plan that can do no harm."""

from __future__ import annotations

import json

import pytest

from graphagent.embed.local import LocalEmbedder
from graphagent.embed.static import StaticEmbedder
from graphagent.errors import DamagedStoreError, EmbedderError, ModelRequestError, NoteNotFoundError
from graphagent.events import InferenceFailed
from graphagent.memory import Note, Notes, NoteSettings, Turn
from graphagent.memory.notes.index import _storage
from graphagent.store import MemoryStore, Put
from graphagent.testing import ScriptedModel
from tests.memory.notes.conftest import Words, WordVectors
from tests.memory.notes.enrich.test_inference import block

ONE = "The staging server of project alpha listens on port 8080 behind the old proxy"
TWO = "The staging server of project alpha listens on port 9090 behind the old proxy"
LONG = " ".join(f"The pump of greenhouse {number} was oiled by Ada in spring." for number in range(60))
GIVEN = {"scope": "/a", "categories": [], "importance": 0.5, "metadata": {}}


def plan(*actions):
    """Give a plan of (number, action) or (number, action, content)."""
    return json.dumps(
        {
            "actions": [
                {"number": number, "action": action, "content": "".join(content), "reason": "it says so"}
                for number, action, *content in actions
            ]
        }
    )


def notes_of(tmp_path, *replies, embedder=None, late_interaction=True, **settings):
    model, given = ScriptedModel(replies), NoteSettings(**settings)
    path = tmp_path / "notes.db"
    return Notes(path, model=model, embedder=embedder, late_interaction=late_interaction, settings=given), model


async def contents(notes):
    return sorted([record.content for record in await notes.list_records()])


async def test_the_same_words_are_kept_once_without_a_model(tmp_path):
    """What remember gave stays, with what is known of the older note, which can be brought back; no model is asked."""
    notes, model = notes_of(tmp_path)
    async with notes:
        old = await notes.remember(
            "Ship on Monday.", **{**GIVEN, "metadata": {"ticket": 7}, "importance": 0.9}, infer="now"
        )
        new = await notes.remember("Ship on Monday.", **{**GIVEN, "metadata": {"by": "x"}}, infer="now")
        assert [record.id for record in await notes.list_records()] == [new.id]
        assert (new.metadata, new.importance) == ({"ticket": 7, "by": "x"}, 0.9)
        [(past, action, at, into)] = await notes.history(old.id)
        assert (past.content, action) == ("Ship on Monday.", "consolidated: it was said again")
        assert at >= new.created_at
        assert into == new.id
        assert (await notes.undo(old.id)).content == "Ship on Monday."
        assert len(await notes.list_records()) == 2
    assert model.requests == []


async def test_the_same_words_in_one_save_are_kept_once(tmp_path):
    """Of several in one save the last stays."""
    notes, model = notes_of(tmp_path)
    async with notes:
        texts = ("Same.", "Other words.", "Same. ", "Same.")
        given = [Note(text, **{**GIVEN, "importance": number / 10}) for number, text in enumerate(texts)]
        records = await notes.remember_many(given, infer="now")
        assert {record.id for record in await notes.list_records()} == {records[1].id, records[3].id}
    assert model.requests == []


@pytest.mark.parametrize(
    "other",
    [
        {"scope": "/a/b"},
        {"scope": "/ab"},
        {"categories": ["x"]},
        {"source": "bob"},
        {"source": "bob", "private": True},
    ],
)
async def test_what_differs_in_more_than_words_is_not_the_same(tmp_path, other):
    """Notes of another scope, source or privacy are not even compared; those of other categories are no duplicates."""
    notes, model = notes_of(tmp_path, plan((1, "keep")))
    async with notes:
        await notes.remember(ONE, **{**GIVEN, **other}, infer="never")
        await notes.remember(ONE, **GIVEN, infer="now")
        assert len(await notes.of("bob").list_records()) == 2
    assert len(model.requests) == ("categories" in other)


async def test_private_notes_are_compared_with_private_ones_alone(tmp_path):
    """What is private to a source takes nothing away that all may see, and the other way round."""
    notes, model = notes_of(tmp_path)
    async with notes:
        view = notes.of("bob")
        for private in (False, True, False, True):
            await view.remember(ONE, **GIVEN, private=private, infer="now")
        assert sorted([record.private for record in await view.list_records()]) == [False, True]
    assert model.requests == []


async def test_owners_are_never_compared(tmp_path):
    """One owner's note takes nothing from another's."""
    async with Notes(tmp_path / "n.db", owner="alice") as notes:
        await notes.remember(ONE, **GIVEN)
    async with Notes(tmp_path / "n.db", owner="bob", model=ScriptedModel()) as notes:
        await notes.remember(ONE, **GIVEN, infer="now")
    async with Notes(tmp_path / "n.db", owner="alice") as notes:
        assert await contents(notes) == [ONE]


async def test_near_duplicates_are_shown_in_full_and_planned(tmp_path):
    """The plan's update and delete are carried out, and stand in the history with their reason."""
    notes, model = notes_of(tmp_path, plan((1, "delete"), (0, "update", TWO + ", since May")))
    async with notes:
        old = await notes.remember(ONE, **GIVEN, infer="now")
        new = await notes.remember(TWO, **GIVEN, infer="now")
        assert await contents(notes) == [TWO + ", since May"]
        assert new.content == TWO + ", since May"
        assert [(past.content, action) for past, action, *_ in await notes.history(new.id)] == [
            (TWO, "consolidated: it says so")
        ]
        assert [match.record.id for match in await notes.recall("since May", depth="shallow")] == [new.id]
        assert (await notes.undo(old.id)).content == ONE
        assert (await notes.undo(new.id)).content == TWO
    assert [(each["number"], each["text"]) for each in block(model.requests[0], "notes")] == [("0", TWO), ("1", ONE)]
    assert len(model.requests) == 1


async def test_an_older_note_may_be_changed(tmp_path):
    """Its scope, source, privacy and categories survive, and it is trusted as the least of what was shown."""
    notes, _ = notes_of(tmp_path, plan((1, "update", "The old proxy is gone.")))
    async with notes:
        view = notes.of("alice")
        old = await view.remember(ONE, **{**GIVEN, "categories": ["ops"]}, private=True, trust="untrusted", infer="now")
        await view.remember(TWO, **GIVEN, private=True, trust="trusted", infer="now")
        changed = await view.get(old.id)
        assert changed.content == "The old proxy is gone."
        assert (changed.source, changed.private, changed.trust, changed.categories, changed.scope) == (
            "alice", True, "untrusted", ("ops",), "/a",
        )  # fmt: skip
        assert await notes.of("bob").list_records() == []


async def test_what_takes_words_of_an_untrusted_note_is_untrusted(tmp_path):
    """A merged text is trusted as the worst of its parts."""
    notes, _ = notes_of(tmp_path, plan((0, "update", "Both."), (1, "delete")))
    async with notes:
        await notes.remember(ONE, **GIVEN, trust="untrusted", infer="now")
        assert (await notes.remember(TWO, **GIVEN, trust="trusted", infer="now")).trust == "untrusted"


@pytest.mark.parametrize("words", [ONE, TWO])
async def test_untrusted_notes_take_nothing_away_from_trusted_ones(tmp_path, words):
    """What came from outside is not compared with what a person vouched for."""
    notes, model = notes_of(tmp_path)
    async with notes:
        old = await notes.remember(ONE, **GIVEN, trust="trusted", infer="now")
        await notes.remember(words, **GIVEN, trust="untrusted", infer="now")
        assert await notes.get(old.id) == old
        assert len(await notes.list_records()) == 2
    assert model.requests == []


@pytest.mark.parametrize(
    "answers",
    [
        [plan((0, "delete"), (1, "delete"))],
        [plan((1, "delete"), (2, "delete"))],
        [plan((-1, "delete"))],
        [plan((1, "update", "  "))],
        [plan((1, "update"))],
        [plan((1, "update", "x" * 1_000_001))],
        [plan((1, "keep"), (1, "delete"))],
        ["Delete everything."] * 2,
        [json.dumps({"actions": [{"number": 1, "action": "forget", "reason": ""}]})] * 2,
        [ModelRequestError("down")],
    ],
)
async def test_a_plan_that_goes_too_far_is_not_carried_out(tmp_path, answers):
    """Nothing is changed, not even by the parts that are sound; it is told."""
    notes, model = notes_of(tmp_path, *answers)
    failures = []
    notes.on(InferenceFailed, failures.append)
    async with notes:
        await notes.remember("Something else.", **GIVEN, infer="never")
        await notes.remember(ONE, **GIVEN, infer="never")
        new = await notes.remember(TWO, **GIVEN, infer="now")
        assert new.version == 1
        assert await contents(notes) == sorted(["Something else.", ONE, TWO])
    assert [failure.task for failure in failures] == ["consolidate"]
    assert len(model.requests) == len(answers)


async def test_what_was_changed_meanwhile_is_not_taken_away(tmp_path):
    """A plan is made of what was shown; a note that a person changed since stays."""

    class Meanwhile(ScriptedModel):
        async def respond(self, request, on_text=None):
            await notes.update(old.id, importance=1.0)
            return await super().respond(request, on_text)

    async with Notes(tmp_path / "n.db", model=Meanwhile([plan((1, "delete"))])) as notes:
        old = await notes.remember(ONE, **GIVEN, infer="never")
        await notes.remember(TWO, **GIVEN, infer="now")
        assert await contents(notes) == [ONE, TWO]


async def test_a_threshold_of_1_switches_it_off(tmp_path):
    """Then not even the same words are taken away."""
    notes, model = notes_of(tmp_path, consolidation_threshold=1.0)
    async with notes:
        for _ in range(2):
            await notes.remember(ONE, **GIVEN, infer="now")
        assert await contents(notes) == [ONE, ONE]
    assert model.requests == []


async def test_notes_that_are_not_alike_cost_no_call(tmp_path):
    """Below the threshold nothing is asked."""
    notes, model = notes_of(tmp_path)
    async with notes:
        await notes.remember(ONE, **GIVEN, infer="now")
        await notes.remember("The staging server is slow.", **GIVEN, infer="now")
    assert model.requests == []


async def test_at_most_the_limit_is_shown(tmp_path):
    """Of many near-duplicates the most similar are shown, as many as `consolidation_limit` says."""
    notes, model = notes_of(tmp_path, plan(), consolidation_limit=2)
    async with notes:
        for number in range(4):
            await notes.remember(ONE.replace("8080", f"100{number}"), **GIVEN, infer="never")
        await notes.remember(TWO, **GIVEN, infer="now")
    assert len(block(model.requests[0], "notes")) == 3


async def test_what_cannot_be_shown_in_full_is_not_shown(tmp_path):
    """A long note is never replaced by what a model made of a part of it."""
    notes, model = notes_of(tmp_path)
    long = " ".join(f"word{number}" for number in range(4000))
    async with notes:
        await notes.remember(long + " one", **GIVEN, infer="never")
        await notes.remember(long + " two", **GIVEN, infer="now")
        assert len(await notes.list_records()) == 2
    assert model.requests == []


async def test_turns_of_conversations_stay(tmp_path):
    """What was said in a conversation is no note to be consolidated."""
    notes, model = notes_of(tmp_path)
    async with notes:
        await notes.remember_conversation([Turn(ONE), Turn(ONE)], session="s", scope="/a")
        await notes.remember(ONE, **GIVEN, infer="now")
        assert await contents(notes) == [ONE, ONE, ONE]
    assert model.requests == []


async def test_vectors_say_what_is_alike(tmp_path):
    """With an embedder the cosine counts, whatever the words are."""

    class Meaning(Words):
        def vector(self, text):
            return [1.0, 0.1] if "car" in text or "automobile" in text else [0.0, 1.0]

    notes, model = notes_of(tmp_path, plan((1, "delete")), embedder=Meaning())
    async with notes:
        await notes.remember("He bought a car", **GIVEN, infer="now")
        await notes.remember("He bought a bicycle", **GIVEN, infer="now")
        await notes.remember("An automobile was purchased by him", **GIVEN, infer="now")
        assert await contents(notes) == ["An automobile was purchased by him", "He bought a bicycle"]
    assert len(model.requests) == 1


EMBEDDERS = pytest.mark.parametrize("embedder", [WordVectors, StaticEmbedder, LocalEmbedder])


@pytest.mark.one_value("embedder")
@EMBEDDERS
@pytest.mark.parametrize("late", [True, False])
async def test_an_embedder_that_makes_vectors_of_words_says_what_is_alike(tmp_path, embedder, late):
    """The vectors of the texts are compared, those of long notes too, whether or not vectors of words stand beside them."""
    notes, model = notes_of(tmp_path, plan((1, "delete")), embedder=embedder(), late_interaction=late)
    async with notes:
        for text in ("Our cat likes tuna.", LONG, ONE, TWO):
            await notes.remember(text, **GIVEN, infer="now")
        assert await contents(notes) == sorted(["Our cat likes tuna.", LONG, TWO])
    assert [each["text"] for each in block(model.requests[0], "notes")] == [TWO, ONE]
    assert len(model.requests) == 1


@pytest.mark.one_value("embedder")
@EMBEDDERS
@pytest.mark.parametrize("late", [True, False])
async def test_what_was_left_to_compare_is_compared_by_vectors_of_texts(tmp_path, embedder, late):
    """Work that another handle could not do is done, and nothing is left, also by one without late interaction."""
    notes, _ = notes_of(tmp_path, ModelRequestError("down"), embedder=embedder())
    async with notes:
        await notes.remember(ONE, **GIVEN, infer="never")
        await notes.remember(TWO, **GIVEN, infer="now")
    notes, model = notes_of(tmp_path, plan((1, "delete")), embedder=embedder(), late_interaction=late)
    async with notes:
        await notes.remember("Our cat likes tuna.", **GIVEN, infer="now")
        assert await notes.settle() == 0
        assert await contents(notes) == ["Our cat likes tuna.", TWO]
    assert len(model.requests) == 1


@pytest.mark.parametrize("embedder", [Words, WordVectors])
async def test_vectors_that_are_damaged_are_not_compared(embedder):
    """The error names the note, and both notes stay as they are."""
    store = MemoryStore()
    async with Notes(store, embedder=embedder(), model=ScriptedModel()) as notes:
        old = await notes.remember(ONE, **GIVEN, infer="never")
        await notes.recall("server", depth="shallow")
        item = await store.get(_storage.vectors_key("", 1, old.id))
        await store.commit(Put(item.key, item.value[:-1]))
        with pytest.raises(DamagedStoreError, match=f"'{old.id}'"):
            await notes.remember(TWO, **GIVEN, infer="now")
        assert await contents(notes) == [ONE, TWO]


async def test_notes_are_compared_in_the_scope_that_was_inferred(tmp_path):
    """A note is moved first, and then compared with those that are there."""

    def scoped(request):
        return json.dumps({"notes": [{"number": 1, "scope": "/a", "categories": [], "importance": 0.5}]})

    notes, model = notes_of(tmp_path, scoped)
    async with notes:
        await notes.remember(ONE, **GIVEN, infer="never")
        new = await notes.remember(ONE, infer="now")
        assert [record.id for record in await notes.list_records()] == [new.id]
        assert new.scope == "/a"
    assert len(model.requests) == 1


async def test_a_broken_off_consolidation_goes_on_later(tmp_path):
    """Where the model was down, it is asked again at the next opening; what was inferred is not asked for again."""
    notes, model = notes_of(tmp_path, ModelRequestError("down"))
    async with notes:
        await notes.remember(ONE, **GIVEN, infer="never")
        await notes.remember(TWO, **GIVEN, infer="now")
    notes, model = notes_of(tmp_path, plan((1, "delete")))
    async with notes:
        assert await notes.settle() == 0
        assert await contents(notes) == [TWO]
    assert len(model.requests) == 1


class Short(Words):
    """Refuses long texts. A long note is divided before it is embedded, but not before notes like it are searched for."""

    refused = 0

    async def embed(self, texts):
        if any(len(text) > 1000 for text in texts):
            self.refused += 1
            raise EmbedderError("this text is too long")
        return await super().embed(texts)


async def test_a_note_that_cannot_be_compared_does_not_keep_others_waiting(tmp_path):
    """What is left to do is done for all others; the error is raised at the end, and that note alone is left."""
    notes, _ = notes_of(tmp_path, ModelRequestError("down"), embedder=Short())
    async with notes:
        with pytest.raises(EmbedderError, match="this text is too long"):
            await notes.remember(LONG, **GIVEN, infer="now")
        await notes.remember(ONE, **GIVEN, infer="never")
        await notes.remember(TWO, **GIVEN, infer="now")
    notes, model = notes_of(tmp_path, plan((1, "delete")), embedder=Short())
    async with notes:
        await notes.remember("Our cat likes tuna.", **GIVEN, infer="later")
        with pytest.raises(EmbedderError, match="this text is too long"):
            await notes.settle()
        assert await contents(notes) == sorted(["Our cat likes tuna.", LONG, TWO])
    assert len(model.requests) == 1
    notes, _ = notes_of(tmp_path, embedder=Words())
    async with notes:
        assert await notes.settle() == 0


async def test_where_no_note_can_be_compared_it_is_given_up(tmp_path):
    """An embedder that is gone is not asked once for each of the notes."""
    embedder = Short()
    notes, _ = notes_of(tmp_path, embedder=embedder)
    async with notes:
        with pytest.raises(EmbedderError, match="this text is too long"):
            await notes.remember_many([Note(f"{number} {LONG}", **GIVEN) for number in range(10)], infer="now")
        assert len(await notes.list_records()) == 10
    assert embedder.refused == 3


async def test_forgetting_a_note_that_was_taken_away_forgets_the_one_that_says_the_same(tmp_path):
    """Whoever has the old id forgets what it said; a note that says something else by now stays."""
    notes, _ = notes_of(tmp_path)
    async with notes:
        for text, now in (("Pears are ripe.", "Pears are ripe."), ("Plums are ripe.", "Figs are ripe.")):
            old = await notes.remember(text, **GIVEN, infer="now")
            new = await notes.remember(text, **{**GIVEN, "importance": 0.6}, infer="now")
            assert await notes.get(old.id) is None
            await notes.update(new.id, content=now)
            await notes.forget(ids=[old.id, old.id])
        assert await contents(notes) == ["Figs are ripe."]


async def test_what_was_taken_away_for_a_note_is_forgotten_with_it(tmp_path):
    """Forgetting a note leaves nothing of those that said the same, on the disk neither; one that was brought back stays."""
    notes, _ = notes_of(tmp_path, plan((1, "delete")))
    async with notes:
        first = await notes.remember(ONE, **GIVEN, infer="now")
        second = await notes.remember(ONE, **{**GIVEN, "importance": 0.6}, infer="now")
        back = await notes.remember("Quite another one.", **GIVEN, infer="now")
        await notes.remember("Quite another one.", **{**GIVEN, "importance": 0.6}, infer="now")
        await notes.undo(back.id)
        last = await notes.remember(TWO, **GIVEN, infer="now")
        assert [await notes.get(each.id) for each in (first, second)] == [None, None]
        await notes.forget(ids=[last.id])
        for gone in (first, second):
            with pytest.raises(NoteNotFoundError):
                await notes.history(gone.id)
        await notes.forget(ids=[(await notes.list_records())[0].id])
    assert ONE.encode() not in (tmp_path / "notes.db").read_bytes()
    async with Notes(tmp_path / "notes.db") as notes:
        assert len(await notes.list_records()) == 1
