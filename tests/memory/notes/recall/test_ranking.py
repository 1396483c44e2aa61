"""Ranking: what the order is made of, whatever the fitted weights are."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphagent.memory import Ranking
from graphagent.memory.notes.index._tables import CHUNKS
from graphagent.memory.notes.index._traits import QUESTION
from graphagent.memory.notes.recall import _ranking as ranking
from graphagent.memory.notes.recall._features import dated, kind_of
from graphagent.memory.notes.recall._lexical import Words
from graphagent.memory.notes.recall._query import Query
from graphagent.memory.notes.recall._search import Candidates
from graphagent.memory.notes.recall._times import Span
from graphagent.memory.notes.recall._weights import WEIGHTS
from tests.memory.notes.recall.test_features import at_of, row
from tests.thorough import examples

DAY = 86_400_000
ASKED = Query("what", ("what",))
WORDS = Words({}, frozenset(), 0.0, frozenset(), frozenset(), {}, {}, {}, 0.0)
SCORES = st.dictionaries(st.integers(1, 30), st.floats(0, 1).map(lambda score: round(score, 3)), min_size=1)
FACTORS = [each.name for each in fields(Ranking) if each.name != "roles"]


def candidates(rows, query=ASKED, words=WORDS, cosines=None, **scores):
    """Return candidates with scores by words and by vectors."""
    tier = (
        "contextual"
        if scores.get("tokens")
        else "vectors"
        if scores.get("semantic") or scores.get("standing")
        else "words"
    )
    kinds = {number: kind_of(each) for number, each in rows.items()}
    return Candidates(query, words, scores, rows, kinds, at_of(rows), dated(rows, query), cosines or {}, tier)


def ranked(found, weights=None):
    """Return the order of candidates."""
    return ranking.order(ranking.ranked(found, weights or Ranking()), found.rows)


def rows_of(numbers, session="s"):
    """Return turns between people, messages and single notes, mixed."""
    kinds = ({"session": session}, {"session": f"chat {session}", "role": "user"}, {"session": ""})
    return {number: row(number, **kinds[number % 3], traits=QUESTION * (number % 2)) for number in numbers}


def test_each_feature_belongs_to_one_reason():
    """Every weight is of a feature that some reason names, and every reason has a factor."""
    names = [name for features in ranking.REASONS.values() for name in features]
    assert len(names) == len(set(names))
    assert set(ranking.SEARCHED) <= set(names)
    assert {name for kinds in WEIGHTS.values() for each in kinds.values() for name in each} <= set(names)
    assert set(FACTORS) == set(ranking.REASONS)
    assert all(kinds.keys() == {"note", "turn", "message"} for kinds in WEIGHTS.values())


@settings(max_examples=examples(100, most=40))
@given(SCORES, SCORES, st.randoms())
def test_the_order_of_candidates_does_not_matter(words, vectors, rng):
    """The same candidates in another order are ranked the same, but for what is equal but for rounding."""
    rows = rows_of(words.keys() | vectors.keys())

    def mixed(mapping):
        items = list(mapping.items())
        rng.shuffle(items)
        return dict(items)

    before = ranking.ranked(candidates(rows, lexical=words, semantic=vectors), Ranking())
    after = ranking.ranked(candidates(mixed(rows), semantic=mixed(vectors), lexical=mixed(words)), Ranking())
    for reason, parts in before.items():
        assert after[reason] == pytest.approx(parts)
    one, other = ranking.order(before, rows), ranking.order(after, mixed(rows))
    assert set(one) == set(other) == set(rows)
    assert one == other or all(
        math.isclose(total(before, a), total(after, b), abs_tol=1e-9) for a, b in zip(one, other, strict=True)
    )


def total(parts, number):
    """Return the sum of what all reasons add."""
    return sum(scores.get(number, 0) for scores in parts.values())


@settings(max_examples=examples(100, most=40))
@given(SCORES.filter(lambda scores: len(scores) > 1), st.sampled_from(["share", "standing"]), st.data())
def test_a_higher_score_does_not_lower_the_rank(scores, kind, data):
    """Raising one note's score above all others never puts it after one that it was before."""
    rows = {number: row(number, session="") for number in scores}
    raised = data.draw(st.sampled_from(sorted(scores)))
    before = ranked(candidates(rows, **{kind: scores}))
    after = ranked(candidates(rows, **{kind: {**scores, raised: max(scores.values()) + 1}}))
    assert after.index(raised) <= before.index(raised)
    assert after[0] == raised


@given(st.sets(st.integers(1, 99), min_size=1), st.randoms())
def test_of_equal_notes_the_one_saved_last_is_first(numbers, rng):
    """In whatever order they were found."""
    numbers = list(numbers)
    rng.shuffle(numbers)
    rows = {number: row(number, session="") for number in numbers}
    assert ranked(candidates(rows, lexical=dict.fromkeys(numbers, 0.5))) == sorted(numbers, reverse=True)
    assert ranking.order({}, numbers) == sorted(numbers, reverse=True)


@settings(max_examples=examples(60, most=20))
@given(SCORES, SCORES, st.sampled_from(FACTORS))
def test_a_factor_of_nothing_leaves_a_reason_out(words, vectors, reason):
    """No candidate has a part of it, and reasons that do not depend on it are as they were."""
    rows = rows_of(words.keys() | vectors.keys())
    found = candidates(rows, Query("when", (), spans=(Span(-1, 1),), asks="time"), lexical=words, semantic=vectors)
    whole = ranking.ranked(found, Ranking())
    without = ranking.ranked(found, Ranking(**{reason: 0}))
    assert not without[reason]
    context = {"neighbours", "answer", "session"}
    for other in set(FACTORS) - {reason} - (context if reason in ("lexical", "semantic", "neighbours") else set()):
        assert without[other] == whole[other]


@settings(max_examples=examples(60, most=20))
@given(SCORES, st.floats(0, 4), st.sampled_from(["lexical", "semantic", "date", "speaker", "session", "answer"]))
def test_a_factor_multiplies_what_its_reason_adds(scores, factor, reason):
    """So 2 counts twice as much as was fitted."""
    rows = rows_of(scores)
    query = Query("what", (), speakers=("Ada",), named=frozenset({"ada"}), spans=(Span(0, DAY),))
    found = candidates(rows, query, lexical=scores, semantic=scores)
    whole = ranking.ranked(found, Ranking())[reason]
    found = ranking.ranked(found, Ranking(**{reason: factor}))[reason]
    for number in rows:
        assert found.get(number, 0) == pytest.approx(factor * whole.get(number, 0))


def test_all_factors_of_nothing_leave_the_reverse_order_of_saving():
    """Then no candidate has a reason."""
    scores = {1: 0.1, 2: 0.9, 3: 0.5}
    found = candidates(rows_of(scores), lexical=scores, semantic=scores)
    parts = ranking.ranked(found, Ranking(**dict.fromkeys(FACTORS, 0)))
    assert not any(parts.values())
    assert ranking.order(parts, found.rows) == [3, 2, 1]


def test_the_turns_around_a_good_one_are_among_the_first():
    """Each of the four counts half as much as it, and what is of the time that is asked for comes before all others."""
    rows = {number: row(number) for number in range(1, 9)} | {number: row(number, "other") for number in (20, 30, 40)}
    found = candidates(rows, lexical={5: 1.0, 20: 0.49, 30: 0.51})
    assert ranking.first(found, 1) == [5]
    assert ranking.first(found, 2) == [5, 30]
    assert set(ranking.first(found, 6)) == {3, 4, 5, 6, 7, 30}
    assert ranking.first(replace(found, dated={40: 1.0}), 1) == [40]


def test_turns_around_a_good_one_are_raised():
    """Turns before and after it get more than those of another conversation, single notes nothing."""
    rows = {number: row(number) for number in (1, 2, 3)} | {8: row(8, "other"), 9: row(9, "", 2)}
    parts = ranking.ranked(candidates(rows, lexical={2: 1.0}), Ranking(session=0))
    assert 9 not in parts["neighbours"]
    assert parts["neighbours"].get(8, 0) == 0
    assert sum(parts["neighbours"].get(number, 0) for number in (1, 3)) > 0


def test_a_conversation_raises_its_turns():
    """All turns of the one that has the best turn get the same, those of another less, and single notes nothing."""
    rows = {1: row(1, "a"), 2: row(2, "b"), 3: row(3, "a"), 5: row(5, "a"), 7: row(7, "")}
    parts = ranking.ranked(candidates(rows, lexical={1: 1.0, 2: 0.5, 7: 1.0}), Ranking(neighbours=0))["session"]
    assert parts[1] == parts[3] == parts[5] > parts[2] > 0
    assert 7 not in parts


def test_an_answer_is_raised_and_a_question_is_not():
    """The turn after a question that was found gets some of its score; the question itself is lowered."""
    rows = {1: row(1, traits=QUESTION), 2: row(2), 3: row(3)}
    parts = ranking.ranked(candidates(rows, lexical={1: 1.0}), Ranking())["answer"]
    assert parts[2] > 0 > parts[1]
    assert parts.get(3, 0) == 0


def test_other_roles_are_added_as_they_are_given():
    """Whatever was fitted for them, also for single notes, and below 0 too."""
    rows = {1: row(1, role="tool"), 2: row(2, role="user"), 3: row(3, "", role="tool")}
    plain = ranking.ranked(candidates(rows), Ranking())["role"]
    found = ranking.ranked(candidates(rows), Ranking(roles={"tool": -3.0}))["role"]
    assert {number: found.get(number, 0) - plain.get(number, 0) for number in rows} == pytest.approx(
        {1: -3, 2: 0, 3: -3}
    )


def test_weights_are_those_of_what_was_searched():
    """Each tier has weights for each kind of note, and leaves out what it does not search with."""
    for tier, kinds in WEIGHTS.items():
        assert kinds.keys() == {"note", "turn", "message"}
        names = {name for weights in kinds.values() for name in weights}
        assert ("semantic" in names) is ("wordless" in names) is (tier != "words")
        assert ("tokens" in names) is (tier in ("static", "contextual"))
        assert all(
            weights.get(name, 0) >= 0 for weights in kinds.values() for name in ("standing", "wordless", "semantic")
        )
        assert names <= {name for names in ranking.REASONS.values() for name in names}


STEMS = st.dictionaries(st.sampled_from("abcdef"), st.floats(0.01, 10), min_size=1)


def asked(weights, has, similarity=1.0, **options):
    """Return candidates of which row 1 has some words."""
    places = {stem: {CHUNKS: similarity} for stem in has}
    silent, times = frozenset(options.pop("silent", ())), frozenset(options.pop("times", ()))
    words = Words(weights, silent, options.pop("time", 0.0), times, frozenset(), places, {}, {}, 0.0)
    return candidates({1: row(1, ""), 2: row(2, "")}, words=words, **options)


@given(STEMS, st.sets(st.sampled_from("abcdefgh")), st.sampled_from("abcdef"))
def test_relevance_is_the_share_of_what_was_asked(weights, has, another):
    """It is from 0 to 1, one word more never lowers it, and all words are all of it."""
    [relevance] = ranking.relevance(asked(weights, has), [1]).values()
    assert 0 <= relevance <= 1
    assert relevance == pytest.approx(sum(weights[stem] for stem in has & weights.keys()) / sum(weights.values()))
    assert ranking.relevance(asked(weights, has | {another}), [1])[1] >= relevance - 1e-9
    assert ranking.relevance(asked(weights, weights), [1])[1] == pytest.approx(1)
    assert ranking.relevance(asked({}, has), [1]) == {1: 0}


@given(STEMS, st.floats(0, 1))
def test_a_word_that_is_spelt_otherwise_is_less_relevant(weights, similarity):
    """By as much as it is less similar."""
    assert ranking.relevance(asked(weights, weights, similarity), [1])[1] == pytest.approx(similarity)


@given(STEMS, st.sets(st.sampled_from("abcdef")), st.floats(-1, 1))
def test_a_cosine_counts_if_it_is_higher(weights, has, cosine):
    """What has no vector is judged by its words alone."""
    by_words = ranking.relevance(asked(weights, has), [1, 2])
    both = ranking.relevance(asked(weights, has, cosines={1: cosine}), [1, 2])
    assert both == {1: pytest.approx(max(by_words[1], cosine)), 2: by_words[2]}


def test_silent_words_are_no_share():
    """What has them alone has nothing of the question, and what lacks them may have all of it."""
    weights = {"a": 1.0, "b": 5.0}
    assert ranking.relevance(asked(weights, "b", silent="b"), [1]) == {1: 0}
    assert ranking.relevance(asked(weights, "a", silent="b"), [1]) == {1: 1}


def test_a_time_is_had_by_its_date_or_its_words():
    """Whether it was said then, or its text names the time."""
    query = Query("", (), spans=(Span(0, DAY),))
    weights = {"a": 3.0, "t": 1.0}
    options = {"query": query, "silent": "t", "times": "t", "time": 3.0}
    assert ranking.relevance(asked(weights, "t", **options), [1]) == {1: 0.5}
    assert ranking.relevance(asked(weights, "at", **options), [1]) == {1: 1}
    found = asked(weights, "a", **options)
    found = replace(found, dated={1: 1.0})
    assert ranking.relevance(found, [1, 2]) == {1: 1, 2: 0}


@given(st.integers(0, 10**13), st.integers(0, 10**13), st.integers(0, 10**12), st.floats(0.01, 1e4))
def test_what_is_older_is_never_more_recent(created, now, earlier, half_life):
    """Recency is from 0 to 1."""
    assert 0 <= ranking.decay(created - earlier, now, half_life) <= ranking.decay(created, now, half_life) <= 1


def test_recency_halves():
    """After one half-life it is 0.5, and what is from the future is new."""
    assert ranking.decay(0, 30 * DAY, 30) == pytest.approx(0.5)
    assert ranking.decay(0, 60 * DAY, 30) == pytest.approx(0.25)
    assert ranking.decay(5 * DAY, 0, 30) == 1
