"""What others wrote, or what does not fit, does not change what is found."""

from __future__ import annotations

import math

import pytest

from graphagent.memory import Notes, NoteSettings, Ranking, Turn
from graphagent.memory.notes.recall import _lexical
from graphagent.store import MemoryStore, SqliteStore
from graphagent.testing import ScriptedModel


def said(matches):
    return [match.record.content for match in matches]


async def test_a_word_that_is_common_with_others_is_searched(monkeypatch, tmp_path):
    """Nor does a rare word of theirs take its place."""
    monkeypatch.setattr(_lexical, "_POSTINGS", 3)
    async with SqliteStore(tmp_path / "notes.db") as store:
        mine, theirs = Notes(store, owner="mine"), Notes(store, owner="theirs")
        await mine.remember("Invoice 77 came in June.")
        before = said(await mine.recall("Did I settle the invoice?"))
        await theirs.remember_many([*[f"Invoice {place}." for place in range(9)], "We settle disputes."])
        assert said(await mine.recall("Did I settle the invoice?")) == before == ["Invoice 77 came in June."]


async def test_a_word_that_is_common_in_other_scopes_is_searched(monkeypatch):
    """A scope with few notes is searched for all words."""
    monkeypatch.setattr(_lexical, "_POSTINGS", 3)
    notes = Notes(MemoryStore())
    for text in ("The door is blue.", "A wheel came off."):
        await notes.remember(text, scope="/home")
    for place in range(9):
        await notes.remember(f"Blue sky, day {place}.", scope="/diary")
    found = await notes.recall("blue wheel", scope="/home")
    assert sorted(said(found)) == ["A wheel came off.", "The door is blue."]


async def test_spellings_of_others_do_not_hide_mine(tmp_path):
    """More similar words of theirs do not take the places of mine."""
    async with SqliteStore(tmp_path / "notes.db") as store:
        mine, theirs = Notes(store, owner="mine"), Notes(store, owner="theirs")
        await mine.remember("The calendar is on the wall.")
        assert await mine.recall("calandar")
        await theirs.remember_many([f"caland{one}{two}" for one in "abgkmop" for two in "abgkmop"])
        assert said(await mine.recall("calandar")) == ["The calendar is on the wall."]


@pytest.mark.parametrize(("text", "asked"), [("Send an e-mail.", "email"), ("The wifi is slow.", "wi fi")])
async def test_what_others_write_in_one_word_or_in_two_does_not_hide_mine(text, asked, tmp_path):
    """Though theirs is as it was asked for."""
    async with SqliteStore(tmp_path / "notes.db") as store:
        mine, theirs = Notes(store, owner="mine"), Notes(store, owner="theirs")
        await mine.remember_many([text, "The garden is large."])
        await theirs.remember_many(["An email came.", "Wi is no word.", "Nor is fi."])
        assert said(await mine.recall(asked)) == [text]


async def test_a_question_of_common_words_is_not_respelt():
    """Its first word is no misspelt one."""
    notes = Notes(MemoryStore())
    await notes.remember("Wheat is ripe.")
    assert await notes.recall("What is this?") == []


@pytest.mark.parametrize("depth", ["shallow", "deep"])
async def test_a_low_score_leaves_room_for_others(depth):
    """Whatever the depth is, `min_score` applies before `limit`."""
    model = ScriptedModel([{"phrases": [], "scopes": [], "complexity": 0.0}, *[{"gaps": []}] * 9])
    notes = Notes(MemoryStore(), model=model)
    await notes.remember_conversation(
        [
            Turn("Where did you plant the tomatoes and basil last year?", speaker="Bo"),
            Turn("On the balcony in Rome, it was sunny.", speaker="Ada"),
            Turn("Tomatoes and basil like sun.", speaker="Bo"),
        ],
        session="1",
    )
    [match] = await notes.recall("Where did Ada plant the tomatoes?", limit=1, min_score=0.5, depth=depth)
    assert match.score >= 0.5


@pytest.mark.parametrize("extra", [math.nan, math.inf])
def test_what_is_added_for_a_role_is_finite(extra):
    """It would make an order that means nothing."""
    with pytest.raises(ValueError, match="user"):
        Notes(MemoryStore(), settings=NoteSettings(ranking=Ranking(roles={"user": extra})))
