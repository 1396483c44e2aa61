from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphagent.memory.notes.index._fts import Row
from graphagent.memory.notes.recall import _ranking as ranking
from graphagent.memory.notes.recall._query import Query
from graphagent.memory.notes.recall._times import Span

DAY = 86_400_000
SCORES = st.dictionaries(st.integers(1, 30), st.floats(-5, 50, allow_nan=False).map(lambda score: round(score, 3)))
ASKED = Query("what", ("what",))


def row(number, session="s", place=None, speaker="Ada", role="", said=None, created=0):
    """Give a turn of a conversation."""
    place = number if place is None else place
    return Row(number, f"id{number}", "/", session, place, speaker, role, said, created, 0.5)


def ranked(channels, rows, query=ASKED, weights=None):
    """Give the order and the stages."""
    stages = ranking.stages(channels, rows, query, weights or ranking.Ranking())
    return ranking.order(stages), stages


@given(SCORES)
def test_scores_are_brought_to_one_scale(scores):
    """They are from 0 to 1 then, the best has 1, and their order is what it was."""
    found = ranking.scaled(scores)
    assert found.keys() == scores.keys()
    assert all(0 <= each <= 1 for each in found.values())
    assert not found or max(found.values()) == 1
    assert all(found[a] <= found[b] for a in scores for b in scores if scores[a] < scores[b])


@given(SCORES, SCORES, st.floats(0, 1), st.floats(0.01, 1))
def test_fused_scores_are_at_most_one(words, vectors, lexical, semantic):
    """Whatever kinds of scores there are, the best possible is 1."""
    found = ranking.fused({"lexical": words, "semantic": vectors}, {"lexical": lexical, "semantic": semantic})
    for number in words.keys() | vectors.keys():
        assert 0 <= sum(each.get(number, 0) for each in found.values()) <= 1 + 1e-9


def test_words_alone_count_fully():
    """Without vectors, the weight of words does not matter; whatever has a word has more than nothing."""
    scores = {1: 4.0, 2: 1.0, 3: 2.0}
    assert ranking.fused({"lexical": scores, "semantic": {}}, {"lexical": 0.4, "semantic": 0.6}) == {
        "lexical": {1: 1.0, 2: 0.25, 3: 0.5}
    }


@given(SCORES, SCORES, st.randoms())
def test_the_order_of_what_is_given_does_not_matter(words, vectors, random):
    """The same candidates in another order are ranked the same."""
    rows = {number: row(number, session=f"s{number % 3}") for number in words.keys() | vectors.keys()}
    before = ranked({"lexical": words, "semantic": vectors}, rows)

    def mixed(mapping):
        items = list(mapping.items())
        random.shuffle(items)
        return dict(items)

    after = ranked({"semantic": mixed(vectors), "lexical": mixed(words)}, mixed(rows))
    assert after[0] == before[0] or all(
        math.isclose(total(after[1], one), total(before[1], one), abs_tol=1e-9) for one in before[0]
    )
    assert set(after[0]) == set(before[0])


def total(stages, number):
    """Give the sum of what all stages add."""
    return sum(scores.get(number, 0) for scores in stages.values())


@given(SCORES.filter(lambda scores: len(scores) > 1), st.data())
def test_a_higher_score_does_not_lower_the_rank(scores, data):
    """Raising one candidate's score to the top never puts it behind one that it was before."""
    rows = {number: row(number, session="") for number in scores}
    raised = data.draw(st.sampled_from(sorted(scores)))
    before, _ = ranked({"lexical": scores, "semantic": {}}, rows)
    after, _ = ranked({"lexical": {**scores, raised: max(scores.values()) + 1}, "semantic": {}}, rows)
    assert after.index(raised) <= before.index(raised)
    assert after[0] == raised


def test_neighbours_are_raised():
    """Turns before and behind a candidate get a share of its score, those of other conversations nothing."""
    rows = {number: row(number) for number in (1, 2, 3, 4)} | {9: row(9, session="other", place=3)}
    assert ranking.neighbours({2: 1.0}, rows, 0.1) == {1: 0.1, 3: 0.1}
    assert ranking.neighbours({2: 1.0, 1: 0.5}, rows, 0.1) == pytest.approx({1: 0.1, 3: 0.1, 2: 0.05})
    assert ranking.neighbours({9: 1.0}, rows, 0.1) == {}


def test_notes_outside_of_conversations_have_no_neighbours():
    """Those that were kept singly stand for themselves."""
    rows = {number: row(number, session="", place=0) for number in (1, 2)}
    order, stages = ranked({"lexical": {1: 2.0, 2: 1.0}, "semantic": {}}, rows)
    assert order == [1, 2]
    assert stages["neighbours"] == stages["session"] == {}


def test_a_conversation_raises_its_turns():
    """All turns of one get the same: a share of the mean of its three best, where missing ones count 0."""
    rows = {number: row(number, session="ab"[number % 2]) for number in range(1, 6)}
    found = ranking.sessions({1: 0.9, 3: 0.6, 5: 0.3, 2: 0.9}, rows, 0.5)
    assert found == pytest.approx({1: 0.3, 3: 0.3, 5: 0.3, 2: 0.15})


def test_one_speaker_who_is_named_is_raised():
    """Where two are named, neither is."""
    rows = {1: row(1, speaker="Ada"), 2: row(2, speaker="Ben")}
    assert ranking.speakers(rows, Query("", (), named=frozenset({"ada"})), 0.2) == {1: 0.2}
    assert ranking.speakers(rows, Query("", (), named=frozenset({"ada", "ben"})), 0.2) == {}


def test_a_time_that_is_named_raises():
    """What was said then is raised; if nothing was, what was saved then and has no time; months without a year, in any."""
    rows = {1: row(1, said=5 * DAY, created=900 * DAY), 2: row(2, created=5 * DAY), 3: row(3, said=40 * DAY)}
    asked = Query("", (), spans=(Span(4 * DAY, 6 * DAY),))
    assert ranking.dates(rows, asked, 0.2) == {1: 0.2}
    assert ranking.dates({2: rows[2], 3: rows[3]}, asked, 0.2) == {2: 0.2}
    assert ranking.dates(rows, Query("", (), months=frozenset({2})), 0.2) == {3: 0.2}
    assert ranking.dates(rows, ASKED, 0.2) == {}


def test_roles_raise():
    """What the user said may count more than what an assistant did."""
    rows = {1: row(1, role="user"), 2: row(2, role="assistant")}
    assert ranking.roles(rows, {"user": 0.2}) == {1: 0.2}


@given(st.integers(1, 1000), st.integers(1, 1000), st.integers(1, 1000))
def test_rare_words_tell_more(first, second, more):
    """The rarer a word, the more it tells, and every word tells something."""
    total = max(first, second) + more
    assert ranking.inverse_frequency(max(first, second), total) > 0
    if first < second:
        assert ranking.inverse_frequency(first, total) > ranking.inverse_frequency(second, total)


WEIGHTS = st.dictionaries(st.sampled_from("abcdef"), st.floats(0.01, 10), min_size=1)


@given(WEIGHTS, st.lists(st.sampled_from("abcdefgh")), st.sampled_from("abcdef"))
def test_a_share_is_of_what_was_asked(weights, has, another):
    """It is from 0 to 1, repeats do not count, and one word more never lowers it."""
    share = ranking.share(has, weights)
    assert 0 <= share <= 1 + 1e-9
    assert ranking.share(has * 2, weights) == share
    assert ranking.share([*has, another], weights) >= share - 1e-9
    assert ranking.share(weights, weights) == pytest.approx(1)
    assert ranking.share(has, {}) == 0


def test_recency_halves():
    """After one half-life it is 0.5, and what is from the future is new."""
    assert ranking.decay(0, 30 * DAY, 30) == pytest.approx(0.5)
    assert ranking.decay(0, 60 * DAY, 30) == pytest.approx(0.25)
    assert ranking.decay(5 * DAY, 0, 30) == 1
