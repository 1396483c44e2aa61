"""Forms of words that no stemmer brings together."""

from __future__ import annotations

import apsw
import pytest

from graphagent.memory import Notes
from graphagent.memory.notes.index._fts import SqliteTables
from graphagent.memory.notes.recall._forms import GROUPS, other_forms
from graphagent.store import MemoryStore


def test_each_form_of_a_group_has_another_stem():
    """A form with the stem of another one need not be listed."""
    connection = apsw.Connection(":memory:")
    assert [
        group for group in GROUPS if len({*SqliteTables(connection).tokens.stems_of(group).values()}) < len(group)
    ] == []


def test_the_groups_are_in_alphabetical_order():
    """No word begins two groups."""
    first = [group[0] for group in GROUPS]
    assert first == sorted(set(first))


def test_a_form_of_two_words_has_the_other_forms_of_both():
    """The form of one of them has the forms of this one."""
    forms = other_forms(SqliteTables(apsw.Connection(":memory:")).tokens)
    assert set(forms["leav"].values()) == {"left", "leaf"}
    assert set(forms["left"].values()) == {"leave"}


@pytest.mark.parametrize("group", GROUPS, ids="-".join)
async def test_each_form_finds_the_others(group):
    """A note with another form has all of the question, as if the words were the same."""
    notes = Notes(MemoryStore())
    kept = await notes.remember(f"{group[-1].capitalize()}!")
    await notes.remember("An entirely different matter.")
    for form in group:
        [match] = await notes.recall(f"Which {form}?")
        assert (match.record.id, match.score) == (kept.id, 1.0), form


async def test_forms_count_in_pairs_of_words():
    """What is close together in other forms comes before what is far apart in them."""
    notes = Notes(MemoryStore())
    await notes.remember("The vase on the shelf of her mother broke, and her arm is long.")
    near = await notes.remember("On the way to the market of the town she broke her arm.")
    [first, second] = await notes.recall("Whose broken arm?")
    assert first.record.id == near.id
    assert first.parts["lexical"] > second.parts["lexical"]


async def test_a_word_that_is_in_notes_in_many_forms_counts():
    """It never counts below zero, though its forms together are in more texts than there are."""
    notes = Notes(MemoryStore())
    for place in range(3):
        await notes.remember(f"Lie, lies, lying, lay, lain: number {place}.")
    matches = await notes.recall("Which tram lies?")
    assert len(matches) == 3
    assert all(match.score > 0.1 and match.parts["lexical"] > 0 for match in matches)
