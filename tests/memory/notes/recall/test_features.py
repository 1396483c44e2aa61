"""The features of candidates, compared with plain loops over all turns."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from graphagent.memory.notes.index._tables import CHUNKS, Row
from graphagent.memory.notes.index._traits import NAME, NUMBER, QUESTION, TIME
from graphagent.memory.notes.index._vectors import LateScores
from graphagent.memory.notes.recall import _features as features
from graphagent.memory.notes.recall._lexical import Words
from graphagent.memory.notes.recall._query import Query
from graphagent.memory.notes.recall._times import Span
from tests.thorough import examples

DAY = 86_400_000
ASKED = Query("what", ("what",))
SCORES = st.dictionaries(st.integers(1, 30), st.floats(-5, 50).map(lambda score: round(score, 3)))


def row(number, session="s", place=None, *, speaker="Ada", role="", said=None, created=0, chunks=1, traits=0):
    """Return the fields of a turn of a conversation."""
    place = number if place is None else place
    return Row(number, f"id{number}", session, place, speaker, role, said, created, chunks, traits)


def words_of(places, weights, silent=(), named=()):
    """Return the words of a question: of each its weight, and the similarities of the texts that have it."""
    return Words(weights, frozenset(silent), 0.0, frozenset(), frozenset(named), places, {}, {}, 0.0)


def at_of(rows):
    """Return the rows of turns, by their conversations and places."""
    return {(each.session, each.place): number for number, each in rows.items() if each.session}


# No two turns have one place; some places are empty, and some notes are of no conversation.
ROWS = st.dictionaries(
    st.tuples(st.sampled_from(["", "s", "t"]), st.integers(1, 8)),
    st.tuples(st.integers(1, 3), st.integers(0, 15)),
    max_size=16,
).map(
    lambda given: {
        number: row(number, session, place, chunks=chunks, traits=traits)
        for number, ((session, place), (chunks, traits)) in enumerate(given.items(), 1)
    }
)


@settings(max_examples=examples(200, most=60))
@given(ROWS, st.data())
def test_around_is_the_share_of_the_words_of_a_turn_and_its_neighbours(rows, data):
    """Each word counts once, by how much it says and by the most similar one; names and silent words do not count."""
    texts = [number * CHUNKS + text for number, each in rows.items() for text in range(each.chunks)]
    having = st.dictionaries(st.sampled_from(texts), st.sampled_from([0.4, 0.7, 1.0])) if texts else st.just({})
    places = {stem: data.draw(having) for stem in "abcde"}
    weights = dict(zip("abcdef", data.draw(st.tuples(*[st.floats(0.1, 9)] * 6)), strict=True))
    found = features.around(words_of(places, weights, silent="d", named="e"), rows, at_of(rows))

    def similarity(stem, number):
        return max(places[stem].get(number * CHUNKS + text, 0) for text in range(rows[number].chunks))

    expected = {}
    for number, each in rows.items():
        near = [
            other
            for other, one in rows.items()
            if each.session and one.session == each.session and abs(one.place - each.place) <= 1
        ]
        share = sum(weights[stem] * max((similarity(stem, other) for other in near), default=0) for stem in "abc")
        if share:
            expected[number] = share
    highest = max(expected.values(), default=1)
    assert found == pytest.approx({number: share / highest for number, share in expected.items()})


@settings(max_examples=examples(200, most=60))
@given(ROWS, st.data())
def test_the_context_of_a_turn_are_the_scores_of_the_turns_around_it(rows, data):
    """Of the two before and the two after it, of a question just before it, and of the best of its conversation."""
    base = {number: data.draw(st.floats(0, 9)) for number in rows}
    found = features.context(base, rows, at_of(rows))
    turns = {number: each for number, each in rows.items() if each.session}

    def at(number, step):
        return next(
            (
                other
                for other, each in turns.items()
                if (each.session, each.place) == (turns[number].session, turns[number].place + step)
            ),
            None,
        )

    expected = {name: {} for name in ("previous", "next", "previous2", "next2", "answer", "session")}
    for number, each in turns.items():
        for name, step in (("previous", -1), ("next", 1), ("previous2", -2), ("next2", 2)):
            if (near := at(number, step)) is not None:
                expected[name][number] = base[near]
        if (asked := at(number, -1)) is not None and rows[asked].traits & QUESTION:
            expected["answer"][number] = base[asked]
        expected["session"][number] = max(base[other] for other in turns if turns[other].session == each.session)
    assert found == expected


def test_single_notes_have_no_context():
    """Those that were saved singly have no neighbours, even if their places follow each other."""
    rows = {number: row(number, "") for number in (1, 2)}
    assert not any(features.context({1: 1.0, 2: 0.5}, rows, at_of(rows)).values())
    assert features.around(words_of({"a": {CHUNKS: 1.0}}, {"a": 1.0}), rows, at_of(rows)) == {}


@given(SCORES)
def test_shares_are_of_the_highest_score(scores):
    """The highest has 1, their order is what it was, and without a score above 0 there are none."""
    found = features.shares(scores)
    assert found.keys() == (scores.keys() if any(score > 0 for score in scores.values()) else set())
    assert not found or max(found.values()) == 1
    assert all(found[a] < found[b] for a in found for b in found if scores[a] < scores[b])


@given(SCORES, st.sets(st.integers(1, 40)))
def test_cosines_are_brought_to_one_scale(scores, pool):
    """Those of the pool are from 0 to 1, its best has 1, and nothing below it is less than 0; their order is what it was."""
    found = features.scaled(scores, pool)
    among = pool & scores.keys()
    assert found.keys() == scores.keys()
    assert all(score >= 0 for score in found.values())
    assert all(found[number] <= 1 for number in among)
    assert not among or max(found[number] for number in among) == 1
    assert all(found[a] <= found[b] for a in scores for b in scores if scores[a] < scores[b])


@given(SCORES, st.sets(st.integers(1, 40)), st.floats(0.01, 1))
def test_narrow_cosines_say_as_much_as_wide_ones(scores, pool, deviation):
    """Each counts by how far it is above the lowest of the pool, what is below that is 0, and the highest has at least 1."""
    assume(pool & scores.keys())
    found = features.standing(scores, pool, deviation)
    narrow = {row: 0.8 + score / 50 for row, score in scores.items()}
    assert features.standing(narrow, pool, deviation / 50) == pytest.approx(found, abs=1e-6)
    among = {row: found[row] for row in pool & scores.keys()}
    assert max(among.values()) >= 1 - 1e-9
    assert all(found[row] == 0 for row in scores if scores[row] < min(scores[each] for each in among))
    assert all(found[a] <= found[b] for a in scores for b in scores if scores[a] < scores[b])


@given(SCORES)
def test_vectors_count_less_the_more_of_the_question_a_text_has(standing):
    """All where no text has any of its words, nothing where one has all of them."""
    assert features.wordless(standing, 0.0) == standing
    assert features.wordless(standing, 0.5) == {row: score * 0.75 for row, score in standing.items()}
    assert not any(features.wordless(standing, 1.0).values())


@pytest.mark.parametrize(
    ("each", "kind"),
    [(row(1, ""), "note"), (row(1, "", role="user"), "note"), (row(1), "turn"), (row(1, role="user"), "message")],
)
def test_the_kind_of_a_note_is_that_of_where_it_was_said(each, kind):
    """Only what is of a conversation is a turn, or a message if it has a role."""
    assert features.kind_of(each) == kind


@settings(max_examples=examples(200, most=60))
@given(ROWS, st.data())
def test_words_are_found_in_the_two_turns_before_and_after(rows, data):
    """Each word of the question counts by its best score in these five turns, as far as they were compared."""
    numbers = sorted(data.draw(st.sets(st.sampled_from(sorted(rows))))) if rows else []
    scores = st.lists(st.floats(-1, 1, width=32), min_size=3, max_size=3)
    best = np.array([data.draw(scores) for _ in numbers], "float32").reshape(len(numbers), 3)
    found = features.late_around(LateScores(numbers, best.mean(axis=1), best), rows, at_of(rows))
    there = {(rows[number].session, rows[number].place): each for number, each in zip(numbers, best, strict=True)}
    expected = {
        number: np.max(
            [
                there[key]
                for step in range(-2, 3)
                if (key := (rows[number].session, rows[number].place + step)) in there
            ],
            axis=0,
        ).mean()
        for number in numbers
        if rows[number].session
    }
    assert found == pytest.approx(expected, abs=1e-6)


def test_one_speaker_who_is_named_is_found():
    """If two are named, neither is; one may be written in several ways."""
    rows = {1: row(1, speaker="Ada"), 2: row(2, speaker="Ben"), 3: row(3, speaker="ADA"), 4: row(4, speaker="")}
    one = Query("", (), speakers=("ADA", "Ada"), named=frozenset({"ada"}))
    assert features.speaker(rows, one) == {1: 1.0, 3: 1.0}
    two = Query("", (), speakers=("Ada", "Ben"), named=frozenset({"ada", "ben"}))
    assert features.speaker(rows, two) == {}
    assert features.speaker(rows, ASKED) == {}


def test_a_time_that_is_named_is_found():
    """What was said then; if nothing was, what was saved then and has no time."""
    rows = {1: row(1, said=5 * DAY, created=900 * DAY), 2: row(2, created=5 * DAY), 3: row(3, said=40 * DAY)}
    asked = Query("", (), spans=(Span(4 * DAY, 6 * DAY),))
    assert features.dated(rows, asked) == {1: 1.0}
    assert features.dated({2: rows[2], 3: rows[3]}, asked) == {2: 1.0}
    assert features.dated(rows, ASKED) == {}


@given(st.lists(st.tuples(st.none() | st.integers(0, 9), st.integers(0, 9)), max_size=8), st.integers(0, 9))
def test_both_ends_of_a_time_are_included(times, day):
    """Whether a time of saying or of saving is compared."""
    rows = {number: row(number, said=said, created=created) for number, (said, created) in enumerate(times)}
    found = features.dated(rows, Query("", (), spans=(Span(day, day + 2),)))
    said = [number for number, (time, _) in enumerate(times) if time is not None and day <= time <= day + 2]
    saved = [number for number, (time, created) in enumerate(times) if time is None and day <= created <= day + 2]
    assert list(found) == (said or saved)


@pytest.mark.parametrize(("asks", "trait"), [("time", TIME), ("number", NUMBER), ("name", NAME)])
def test_what_has_the_kind_of_answer_that_is_asked_for_is_found(asks, trait):
    """And nothing where no kind is asked for."""
    rows = {number: row(number, traits=traits) for number, traits in enumerate((0, TIME, NUMBER, NAME, QUESTION), 1)}
    [wanted] = [number for number, each in rows.items() if each.traits == trait]
    assert features.answers(rows, Query("", (), asks=asks)) == {asks: {wanted: 1.0}}
    assert features.answers(rows, ASKED) == {}
    assert features.question(rows) == {5: 1.0}


def test_roles_other_than_the_user_are_found():
    """Turns between people and single notes have no role."""
    rows = {
        1: row(1, role="user"),
        2: row(2, role="assistant"),
        3: row(3),
        4: row(4, "", role=""),
        5: row(5, role="tool"),
    }
    assert features.role(rows) == {2: 1.0, 5: 1.0}


@given(st.integers(1, 1024), st.integers(1, 1024))
def test_the_length_of_notes_and_messages_grows_with_their_texts(few, many):
    """That of turns between people is not measured."""
    rows = {
        1: row(1, role="user", chunks=few),
        2: row(2, role="user", chunks=many),
        3: row(3, chunks=many),
        4: row(4, "", chunks=many),
    }
    found = features.length(rows)
    assert (found.get(1, 0) < found.get(2, 0)) == (few < many)
    assert found.get(2, 0) == found.get(4, 0) == math.log(many)
    assert 3 not in found
