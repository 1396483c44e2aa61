"""Search by words, compared with plain computations from the texts."""

from __future__ import annotations

import itertools
import math
import random
import re
from dataclasses import replace
from datetime import UTC, datetime

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphagent.errors import DamagedStoreError
from graphagent.memory._note_values import Filter, Record
from graphagent.memory.notes.index import _tokens
from graphagent.memory.notes.index._chunks import worded
from graphagent.memory.notes.index._fts import SqliteTables
from graphagent.memory.notes.index._tables import CHUNKS, Phrase, expected
from graphagent.memory.notes.index._words import similarities
from graphagent.memory.notes.recall import _lexical
from graphagent.memory.notes.recall._lexical import inverse_frequency, search_words, whole_of
from graphagent.memory.notes.recall._query import parse_query
from tests.thorough import examples

NOW = datetime(2024, 3, 15, tzinfo=UTC)
# Words that are their own stems, begin with different letters, and are no stop words: none is another spelling of another.
WORDS = ["apricot", "bread", "cloud", "desk", "fork", "garden", "horn", "junk", "kiln", "lamp"]
UNKNOWN = ["quartz", "zinc"]
CONTENT = st.one_of(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join),
    # Long enough to be divided, into sentences of which some words occur in one piece alone.
    st.builds(
        lambda seed, size: " ".join(
            f"{each}." if place % 9 == 8 else each
            for place, each in enumerate(random.Random(seed).choices([*WORDS, "filler"], [1] * 10 + [30], k=size))
        ),
        st.integers(0, 99),
        st.integers(121, 300),
    ),
)
RECORDS = st.lists(
    st.builds(
        lambda content, owner, scope, private, speaker: (content, owner, scope, private, speaker),
        CONTENT,
        st.sampled_from(["a", "a", "b"]),
        st.sampled_from(["/", "/x", "/x/y", "/z"]),
        st.booleans(),
        st.sampled_from(["", "Mo"]),
    ),
    min_size=1,
    max_size=10,
).map(
    lambda given: [
        Record(f"id{number}", content, scope, owner=owner, private=private, source="s", speaker=speaker, created_at=NOW)
        for number, (content, owner, scope, private, speaker) in enumerate(given)
    ]
)
FILTERS = st.builds(
    Filter,
    st.sampled_from(["a", "b"]),
    st.sampled_from([("/",), ("/x",), ("/x/y", "/z"), ()]),
    asker=st.sampled_from([None, "s", "other"]),
)
ASKED = st.lists(st.sampled_from([*WORDS, *UNKNOWN]), min_size=1, max_size=11, unique=True)


def index_of(records):
    """Return a connection to the tables of records, and these by their rows."""
    connection = apsw.Connection(":memory:")
    SqliteTables(connection).make()
    rows = SqliteTables(connection).add([(record, worded(record)) for record in records])
    return connection, dict(zip(rows, records, strict=True))


def tokens(text):
    """Return the words of a text."""
    return re.findall(r"[a-z]+", text.lower())


def idf(word, texts):
    """Return how much a word says among texts; one that is in none says as much as one that is in one."""
    having = max(1, sum(word in tokens(text) for text in texts))
    return math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))


def plainly(records, asked, fits):
    """Return the BM25 score of each record by its best text, from the texts alone."""
    texts = [text for record in records for text in worded(record)]
    mean = sum(len(tokens(text)) for text in texts) / len(texts)
    whole = sum(sorted((idf(word, texts) for word in asked), reverse=True)[:8])
    found = {}
    for record in records:
        if not fits.matches(record):
            continue
        scores = []
        for text in worded(record):
            length = 1.2 * (0.25 + 0.75 * len(tokens(text)) / mean)
            scores.append(sum(idf(word, texts) * 2.2 / (1 + length) for word in asked if word in tokens(text)) / whole)
        if max(scores) > 0:
            found[record.id] = max(scores)
    return found


@settings(max_examples=examples(200, most=60))
@given(RECORDS, FILTERS, ASKED)
def test_the_score_by_words_is_bm25_of_the_best_text(records, fits, asked):
    """As a share of what a text of mean length would have with all words; of notes of any length, owner and scope, and only those that fit."""
    connection, rows = index_of(records)
    words = search_words(SqliteTables(connection), parse_query(" ".join(asked), now=NOW), fits)
    found = {rows[row].id: score for row, score in words.lexical.items()}
    assert found == pytest.approx(plainly(records, asked, fits))


@settings(max_examples=examples(100, most=30))
@given(RECORDS, FILTERS, ASKED)
def test_each_row_is_known_by_the_words_that_one_of_its_texts_has(records, fits, asked):
    """Whichever of its texts that is; rows that do not fit have none."""
    connection, rows = index_of(records)
    words = search_words(SqliteTables(connection), parse_query(" ".join(asked), now=NOW), fits)
    for fields in SqliteTables(connection).rows_of(rows, Filter("a", private=True)).values():
        record = rows[fields.row]
        has = {word for text in worded(record) for word in tokens(text)} if fits.matches(record) else set()
        assert {stem for stem in words.weights if words.similarity(stem, fields)} == has & set(asked)


@settings(max_examples=examples(100, most=30))
@given(RECORDS, ASKED, st.randoms())
def test_the_order_of_saving_and_of_the_words_does_not_matter(records, asked, rng):
    """The same notes have the same scores."""
    fits = Filter("a", private=True)

    def scores(records, asked):
        connection, rows = index_of(records)
        words = search_words(SqliteTables(connection), parse_query(" ".join(asked), now=NOW), fits)
        return {rows[row].id: score for row, score in words.lexical.items()}

    before = scores(records, asked)
    rng.shuffle(records)
    rng.shuffle(asked)
    assert scores(records, asked) == pytest.approx(before)


@settings(max_examples=examples(100, most=30))
@given(RECORDS, st.data())
def test_lengths_and_their_mean_are_those_of_the_texts(records, data):
    """After notes were added, replaced and removed, as if only those that are left had ever been saved."""
    connection, rows = index_of(records)
    changed = {each.id: each for each in records}
    for record in data.draw(st.lists(st.sampled_from(records), max_size=4)):
        if data.draw(st.booleans()):
            SqliteTables(connection).remove(record.owner, [record.id])
            changed.pop(record.id, None)
        else:
            again = Record(record.id, data.draw(CONTENT), owner=record.owner, created_at=NOW)
            SqliteTables(connection).add([(again, worded(again))])
            changed[again.id] = again
    rows = {row: id_ for owner in "ab" for row, id_ in SqliteTables(connection).all_rows(owner).items()}
    expected = {
        row * CHUNKS + number: len(tokens(text))
        for row, id_ in rows.items()
        for number, text in enumerate(worded(changed[id_]))
    }
    assert SqliteTables(connection).lengths(expected) == expected
    count = len(expected)
    assert SqliteTables(connection).totals("a") == (
        count,
        pytest.approx(sum(expected.values()) / count) if count else 1.0,
    )
    with pytest.raises(DamagedStoreError):  # only places that were found are looked up
        SqliteTables(connection).lengths([10**9])


@pytest.mark.parametrize("many", [0, 255, 256, 600])
def test_new_and_known_records_and_those_given_twice_are_added_in_one_call(many):
    """The last of those with an id wins, each gets a row that none had before, and nothing of those replaced is left."""
    known = [Record(f"id{number}", "apricot", owner=owner, categories=("old",), metadata={"a": 1}, created_at=NOW)
             for owner in "ab" for number in range(3)]  # fmt: skip
    connection, before = index_of(known)
    SqliteTables(connection).remove("b", ["id2"])  # the newest row, whose number must not be used again
    others = [Record(f"other{number}", "cloud", owner="a", created_at=NOW) for number in range(many)]
    twice = [
        Record("id1", "bread", owner="a", categories=("x",), created_at=NOW),
        Record("new", "bread", "/x", owner="a", private=True, created_at=NOW),
        *others,
        Record("id1", "desk", "/y", owner="a", metadata={"b": 2}, created_at=NOW),
        Record("id1", "fork", owner="b", categories=("y", "y"), created_at=NOW),
        Record("new", "garden", owner="a", created_at=NOW),
    ]
    rows = SqliteTables(connection).add((record, worded(record)) for record in twice)
    assert rows == list(range(max(before) + 1, max(before) + 1 + len(twice)))
    last = {(each.owner, each.id): (row, each) for row, each in [*before.items(), *zip(rows, twice, strict=True)]}
    del last["b", "id2"]
    for owner in "ab":
        own = {id_: (row, record) for (of, id_), (row, record) in last.items() if of == owner}
        assert SqliteTables(connection).all_rows(owner) == {row: id_ for id_, (row, _) in own.items()}
        assert SqliteTables(connection).whole(owner) == {id_: expected(record, 1) for id_, (_, record) in own.items()}
        fits = Filter(owner, private=True)
        for word in ("apricot", "bread", "cloud", "desk", "fork", "garden"):
            term = (Phrase(word),)
            having = [row * CHUNKS for row, record in own.values() if record.content == word]
            assert sorted(SqliteTables(connection).postings([term], fits)[term]) == sorted(having)
    left = {row for row, _ in last.values()}
    for table in ("notes_categories", "notes_metadata"):
        assert {row for (row,) in connection.execute(f"SELECT row FROM {table}")} <= left


@pytest.mark.parametrize("size", [1, 63, 64, 126, 127, 128, 129, 255, 256, 16_383, 16_384, 20_000])
def test_the_length_of_a_text_is_read_whatever_bytes_it_takes(size):
    """A number of words from 128 on takes two bytes, from 16,384 on three."""
    connection = apsw.Connection(":memory:")
    SqliteTables(connection).make()
    record = Record("id", "lamp", owner="a", created_at=NOW)
    [row] = SqliteTables(connection).add([(record, ["lamp " * size])])
    assert SqliteTables(connection).lengths([row * CHUNKS]) == {row * CHUNKS: size}
    assert SqliteTables(connection).totals("a") == (1, size)


def test_empty_tables_have_no_texts():
    """Nothing is divided by their number."""
    connection, _ = index_of([])
    assert SqliteTables(connection).totals("a") == (0, 1.0)
    words = search_words(SqliteTables(connection), parse_query("Where is the lamp?", now=NOW), Filter("a"))
    assert (words.lexical, words.pairs) == ({}, {})


@given(st.integers(1, 1000), st.integers(1, 1000), st.integers(1, 1000))
def test_rare_words_tell_more(first, second, more):
    """The rarer a word, the more it tells, and every word tells something."""
    total = max(first, second) + more
    assert inverse_frequency(max(first, second), total) > 0
    if first < second:
        assert inverse_frequency(first, total) > inverse_frequency(second, total)


@given(st.lists(st.floats(0, 20), max_size=12), st.randoms())
def test_the_whole_of_a_question_is_its_eight_rarest_words(weights, rng):
    """In whatever order they are."""
    expected = math.fsum(sorted(weights)[-8:])
    rng.shuffle(weights)
    assert whole_of(weights) == expected


@settings(max_examples=examples(100, most=30))
@given(RECORDS, ASKED)
def test_pairs_are_words_that_follow_one_another_closely(records, asked):
    """The share of the consecutive pairs of a question that a note has with at most two words between them, weighted by their words."""
    fits = Filter("a", private=True)
    connection, rows = index_of(records)
    words = search_words(SqliteTables(connection), parse_query(" ".join(asked), now=NOW), fits)
    texts = [text for record in records for text in worded(record)]
    pairs = list(itertools.pairwise(asked))[:8]
    whole = sum(idf(one, texts) + idf(other, texts) for one, other in pairs)

    def is_near(one, other, text):
        told = tokens(text)
        places = [[place for place, word in enumerate(told) if word == each] for each in (one, other)]
        return any(abs(first - second) <= 3 for first in places[0] for second in places[1])

    expected = {}
    for record in filter(fits.matches, records):
        near = [pair for pair in pairs if any(is_near(*pair, text) for text in worded(record))]
        if near:
            expected[record.id] = sum(idf(one, texts) + idf(other, texts) for one, other in near) / whole
    found = {rows[row].id: score for row, score in words.pairs.items()}
    assert found == pytest.approx(expected)
    assert all(score <= 1 + 1e-9 for score in found.values())


def searched(texts, question, **options):
    """Return the words of a question in notes of some texts, with the score of each text that was found."""
    records = [Record(f"id{number}", text, owner="a", created_at=NOW, **options) for number, text in enumerate(texts)]
    connection, rows = index_of(records)
    words = search_words(SqliteTables(connection), parse_query(question, now=NOW), Filter("a"))
    return words, {rows[row].content: score for row, score in words.lexical.items()}


def test_words_that_no_note_has_are_searched_as_they_are_spelt_elsewhere():
    """What has the word that was meant is found, with less than its full score."""
    texts = ["The calendar is green.", "The garden is large."]
    _, exactly = searched(texts, "calendar")
    words, found = searched(texts, "calender")
    assert found.keys() == exactly.keys() == {texts[0]}
    assert 0 < found[texts[0]] < exactly[texts[0]]
    [similarity] = {similarity for places in words.places.values() for similarity in places.values()}
    assert 0 < similarity < 1


def test_words_that_are_known_are_searched_only_as_they_are_written():
    """However rare, and however much like another one."""
    texts = ["The calendar is green.", "A calender presses paper."]
    words, found = searched(texts, "calender")
    assert found.keys() == {texts[1]}
    assert {similarity for places in words.places.values() for similarity in places.values()} == {1.0}


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("The wifi is slow.", "wi-fi"),
        ("The WiFi is slow.", "Wi\u2011Fi"),
        ("The wifi is slow.", "wi fi"),
        ("The wi-fi is slow.", "wifi"),
        ("The wi-fi is slow.", "wi-fi"),
        ("Send an e-mail.", "email"),
        ("Send an email.", "e-mail"),
        ("The shop is online.", "on-line"),
        ("They use TCP/IP.", "tcpip"),
    ],
)
def test_words_with_a_hyphen_are_found_as_one_word_and_as_two(text, asked):
    """Whichever way a note or a question has it, also with a space, with the full score."""
    words, found = searched(["The garden is large.", text], asked)
    assert found.keys() == {text}
    assert {similarity for places in words.places.values() for similarity in places.values()} == {1.0}


def test_words_of_others_do_not_divide_a_word():
    """What others wrote decides nothing: a word that they write in two is still searched as it is spelt elsewhere."""
    mine = Record("m", "Our emails are sorted.", owner="a", created_at=NOW)
    other = Record("o", "Send an e-mail or some mail.", owner="b", created_at=NOW)
    for records in ([mine], [mine, other]):
        connection, rows = index_of(records)
        words = search_words(SqliteTables(connection), parse_query("emaill", now=NOW), Filter("a"))
        assert [rows[row] for row in words.lexical] == [mine]


@pytest.mark.parametrize("asked", ["4022", "E4022", "40221", "E-4022", "v40211"])
def test_numbers_are_never_taken_for_others(asked):
    """Nothing is found by a number that is only like one that was asked for."""
    words, _ = searched(["Code 4021 means stop."], asked)
    assert not any(words.places.get(stem) for stem in words.weights if stem.isdigit())


@pytest.mark.parametrize("asked", ["abuot", "whcih", "ZZZ", "cal"])
def test_short_and_common_words_are_not_spelt_otherwise(asked):
    """Neither words of three letters, nor what resembles nothing."""
    assert searched(["Pots and pans, in the calm."], asked)[1] == {}


def test_words_of_others_are_not_found_by_a_likeness():
    """A misspelt word finds only notes that fit."""
    mine = Record("m", "The garden is large.", owner="a", created_at=NOW)
    other = Record("o", "The calendar is green.", owner="b", created_at=NOW)
    connection, _ = index_of([mine, other])
    assert search_words(SqliteTables(connection), parse_query("calender", now=NOW), Filter("a")).lexical == {}


@settings(max_examples=examples(50))
@given(st.lists(st.text("ab", min_size=4, max_size=8), min_size=1, max_size=12), st.text("ab", min_size=4, max_size=8))
def test_similar_words_are_the_most_similar_of_those_that_begin_alike(known, asked):
    """At most 200, the most similar first, all compared one by one."""
    connection, _ = index_of([Record("id", " ".join(known), owner="a", created_at=NOW)])
    terms = {
        stem
        for stems in SqliteTables(connection).tokens.split(known).values()
        for stem in stems
        if stem[:2] == asked[:2]
    }
    near = {term: max(likeness(asked, term), default=0.0) for term in terms}
    found = SqliteTables(connection).similar(asked, "a")
    assert all(found[term] == near[term] for term in found)
    best = sorted((each for each in near.values() if each), reverse=True)
    assert list(found.values()) == best[: _tokens._MOST_ALIKE]


def likeness(asked, term):
    """Yield the similarity of a word with a stem, and with the stem and each ending, as far as they are alike and about as long."""
    endings = _tokens._ENDINGS if term[:4] == asked[:4] and len(term) >= 4 else ()
    for word in (term, *(term + end for end in endings)):
        similarity = similarities(asked, [word])[word]
        if abs(len(word) - len(asked)) <= 2 and similarity >= (0.3 if word == term else 0.5):
            yield similarity


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ("separaton", "The separation of waste."),
        ("renovatd", "They renovated the attic."),
        ("applicaton", "Her application was late."),
        ("measurment", "One measurement was wrong."),
    ],
)
def test_words_whose_endings_are_misspelt_are_found(asked, text):
    """The stemmer cuts off the ending of the word that was meant, and not that of the misspelt one."""
    assert searched([text, "The garden is large."], asked)[1].keys() == {text}


@pytest.mark.parametrize("asked", ["carpet", "planetary", "forest"])
def test_words_that_only_begin_alike_are_not_found(asked):
    """A shorter word is like a longer one only with an ending."""
    assert searched(["The car has a plan for us."], asked)[1] == {}


def test_stop_words_and_times_are_no_share_of_a_question():
    """They are searched, where the question has them, but what has them alone has nothing of it."""
    words, _ = searched(["The lamp was lit in May 2023."], "What was lit on 3 May 2023?")
    assert {"mai", "2023"} <= words.silent or {"may", "2023"} <= words.silent
    assert words.times <= words.silent
    assert "lit" not in words.silent


def test_names_of_speakers_are_named():
    """Their words are known, so that what they say is not counted as what is asked about."""
    records = [Record("m", "I like tea.", owner="a", speaker="Ada Byron", created_at=NOW)]
    connection, _ = index_of(records)
    words = search_words(
        SqliteTables(connection), parse_query("What does Ada Byron drink?", ["Ada Byron"], now=NOW), Filter("a")
    )
    assert words.named == {"ada", "byron"}


def test_too_common_words_are_silent(monkeypatch):
    """Where words are in very many texts, the rarest are searched, and the others are no share of the question."""
    monkeypatch.setattr(_lexical, "_POSTINGS", 3)
    words, found = searched(["lamp kiln", *["lamp"] * 9], "lamp kiln")
    assert words.silent == {"lamp"}
    assert set(found) == {"lamp kiln"}
    alone, found = searched(["lamp"] * 9, "lamp")
    assert (alone.silent, set(found)) == (frozenset(), {"lamp"})


@settings(max_examples=examples(200, most=60))
@given(
    st.dictionaries(st.tuples(st.integers(1, 6), st.integers(0, 2)), st.integers(1, 3), max_size=18), st.integers(1, 6)
)
def test_the_best_texts_are_scored_and_many_if_all_are_equal(given, most):
    """Those of as many notes as are asked for; with the highest score, up to a number."""
    scores = {row * CHUNKS + text: float(score) for (row, text), score in given.items()}
    ordered = sorted(scores, key=scores.__getitem__, reverse=True)
    found = _lexical._best(ordered, scores, most)
    rows = {place // CHUNKS for place in found}
    assert len(rows) >= min(most, len({place // CHUNKS for place in scores}))
    assert all(scores[place] >= scores[other] for place in found for other in scores.keys() - found)
    assert {place for place in scores if scores[place] == max(scores.values())} <= found
    if len(rows) > most:
        assert {scores[place] for place in found} == {max(scores.values())}


def test_not_all_of_very_many_equal_texts_are_scored(monkeypatch):
    """The newest are."""
    monkeypatch.setattr(_lexical, "_SCORED", 3)
    monkeypatch.setattr(_lexical, "_TIED", 5)
    records = [Record(f"id{number}", f"lamp {number}", created_at=NOW) for number in range(9)]
    connection, _ = index_of(records)
    words = search_words(SqliteTables(connection), parse_query("lamp", now=NOW), Filter(""), 2)
    assert sorted(words.lexical) == [5, 6, 7, 8, 9]


def test_words_of_a_question_count_by_how_rare_they_are():
    """In relation to their mean. Stop words and characters count too, and a word that no note has counts like the rarest."""
    records = [
        Record(f"id{number}", text, created_at=NOW)
        for number, text in enumerate(["lamp and desk", "lamp", "lamp", "desk", "猫が好き", "lamp OPS-3317"])
    ]
    connection, _ = index_of(records)
    query = parse_query("Is the lamp on the desk of ops3317 or 猫?", [])
    words = search_words(SqliteTables(connection), query, Filter(""))
    found = _lexical.weights_in(SqliteTables(connection), query, words)
    asked = ["Is", "the", "lamp", "on", "the", "desk", "of", "ops3317", "or", "猫"]
    weights = dict(zip(asked, found, strict=True))
    assert sum(found) == pytest.approx(len(asked))
    assert weights["lamp"] < weights["desk"] < weights["ops3317"]
    assert weights["lamp"] / weights["desk"] == pytest.approx(inverse_frequency(4, 6) / inverse_frequency(2, 6))
    assert weights["Is"] == weights["the"] == weights["or"]
    assert _lexical.weights_in(SqliteTables(connection), replace(query, bare=""), words) == []


def test_syntax_in_a_question_is_not_syntax():
    """Words that FTS5 knows are words, and signs divide words."""
    for text in ('near OR "lamp" AND text : NOT *', "NEAR(lamp, 2)", "{text tags} : lamp", "^lamp + -lamp"):
        _, found = searched(["Lamp, near or not."], text)
        assert len(found) == 1
