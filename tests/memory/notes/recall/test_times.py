from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from graphagent.memory import Notes
from graphagent.testing import fixed_clock
from tests.memory.notes.conftest import Words

NOW = datetime(2024, 3, 15, 12, 30, tzinfo=UTC)  # a Friday


def at(time):
    """Fix the clock at a time."""
    return fixed_clock(round(time.timestamp() * 1000))


async def found(notes, question, **options):
    """Return the texts that a question finds now, the best first."""
    with at(NOW):
        return [match.record.content for match in await notes.recall(question, **options)]


@pytest.mark.every_loop
async def test_after_an_import_the_note_of_today_is_first(notes):
    """300 notes without a time were saved today; only one was said today, and only that one counts as such."""
    with at(NOW):
        await notes.remember_many([f"Page {number} of the old handbook." for number in range(300)])
        await notes.remember("A parcel from Oslo.", at=NOW - timedelta(hours=2))
    assert await found(notes, "What arrived today?", limit=400) == ["A parcel from Oslo."]


@pytest.mark.parametrize("weight", [0.0, 0.3])
async def test_with_vectors_only_that_note_is_raised_for_its_time(store, weight):
    """Pages that are similar to the question are found by it, but not as said today; recency does not change that."""
    async with Notes(store, embedder=Words(), recency_weight=weight or None) as notes:
        with at(NOW):
            await notes.remember_many([f"Page {number} of the old handbook." for number in range(50)])
            await notes.remember("A parcel from Oslo.", at=NOW - timedelta(hours=2))
            matches = await notes.recall("What arrived today?", limit=100)
    best = max(matches, key=lambda match: match.parts["relevance"])
    assert best.record.content == "A parcel from Oslo."
    assert all("date" not in match.reasons for match in matches if match is not best)


@pytest.mark.every_loop
async def test_notes_saved_live_are_found_by_the_day_of_saving(notes):
    """No note says when it was said, so the day on which each was saved is the best that is known."""
    for days, text in ((0, "The parcel arrived."), (1, "The roof leaks."), (40, "Ada has a new bicycle.")):
        with at(NOW - timedelta(days=days)):
            await notes.remember(text)
    assert await found(notes, "What did I note today?") == ["The parcel arrived."]
    assert await found(notes, "What did I note yesterday?") == ["The roof leaks."]
    assert await found(notes, "What did I note on 4 February 2024?") == ["Ada has a new bicycle."]


async def test_a_note_of_another_time_does_not_hide_those_saved_then(notes):
    """What was said last year is no reason against the day of saving of what was noted today."""
    with at(NOW):
        await notes.remember("We went to Norway.", at=NOW - timedelta(days=300))
        await notes.remember("The parcel arrived.")
    assert await found(notes, "What did I note today?") == ["The parcel arrived."]


async def test_a_note_that_may_not_be_seen_does_not_hide_those_saved_then(notes):
    """A note of another scope, or private to another source, does not count as one that was said then."""
    with at(NOW):
        await notes.remember("The parcel arrived.", scope="/mine")
        await notes.remember("The doctor called.", scope="/other", at=NOW)
        await notes.remember("Ben is ill.", scope="/mine", at=NOW, private=True, source="ben")
    assert await found(notes.of("ada"), "What did I note today?", scope="/mine") == ["The parcel arrived."]


async def test_the_score_of_a_time_counts_a_day_of_saving_only_if_nothing_was_said_then(notes):
    """Otherwise it fits the words of the question alone."""
    with at(NOW):
        await notes.remember("A parcel arrived.")
        [alone] = await notes.recall("What parcel arrived today?")
        await notes.remember("Flowers arrived.", at=NOW)
        matches = {match.record.content: match for match in await notes.recall("What parcel arrived today?")}
    assert "date" in alone.reasons
    assert "date" not in matches["A parcel arrived."].reasons
    assert matches["A parcel arrived."].score < alone.score


async def test_filters_by_time_still_count_a_note_without_one_as_said_when_it_was_saved(notes):
    """`since` and `until` mean what they say, whatever else was said then."""
    with at(NOW):
        await notes.remember("A parcel arrived.")
        await notes.remember("Another parcel arrived.", at=NOW)
        await notes.remember("A third parcel arrived.", at=NOW - timedelta(days=3))
    since = NOW - timedelta(days=1)
    assert set(await found(notes, "parcel", since=since)) == {"A parcel arrived.", "Another parcel arrived."}
    assert await found(notes, "parcel", until=since) == ["A third parcel arrived."]
    assert await found(notes, "What was noted today?", until=since) == []
