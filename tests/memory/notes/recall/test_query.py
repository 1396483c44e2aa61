from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from graphagent.memory.notes.index._languages import stopwords
from graphagent.memory.notes.index._words import normal, separated, words_of_name
from graphagent.memory.notes.recall._query import parse_query, speakers_in

NOW = datetime(2024, 3, 15, 12, 30, tzinfo=UTC)


def days(text):
    """Give the times that a question names, as the first and the last day of each."""
    return [
        tuple(datetime.fromtimestamp(each / 1000, UTC).strftime("%Y-%m-%d") for each in (span.since, span.until))
        for span in parse_query(text, now=NOW).spans
    ]


def test_words_that_say_nothing_are_left_out():
    """What is left is searched for, each word once, as it was written."""
    assert parse_query("What is the Port of our staging, and what of staging-ports?").words == (
        "Port",
        "staging",
        "ports",
    )


def test_a_question_of_such_words_alone_is_searched_for_as_a_phrase():
    """So it finds who said just that, and not every note that has one of them."""
    assert parse_query("Who are you?").words == ("Who are you",)
    assert parse_query("?!").words == ()


def test_negations_are_no_stop_words():
    """They say something."""
    assert not {"not", "no", "never", "without"} & stopwords(())


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("on 2023-05-07", ("2023-05-07", "2023-05-07")),
        ("in 2023-12", ("2023-12-01", "2023-12-31")),
        ("on 7 May 2023", ("2023-05-07", "2023-05-07")),
        ("on May 7th, 2023", ("2023-05-07", "2023-05-07")),
        ("in February 2024", ("2024-02-01", "2024-02-29")),
        ("in Dec 2022", ("2022-12-01", "2022-12-31")),
        ("back in 2021", ("2021-01-01", "2021-12-31")),
        ("yesterday", ("2024-03-14", "2024-03-14")),
        ("today", ("2024-03-15", "2024-03-15")),
        ("three days ago", ("2024-03-12", "2024-03-12")),
        ("this week", ("2024-03-11", "2024-03-17")),
    ],
)
def test_times_are_read(text, span):
    """A day, a month or a year, by its date or from today."""
    assert days(f"What did she say {text}?") == [span]


@pytest.mark.parametrize(
    "text", ["31 February 2023", "2023-13-01", "2023-02-30", "0 May 2023", "9999-99", "0000-00-00"]
)
def test_days_that_do_not_exist_break_nothing(text):
    """At most what is left of them counts."""
    parse_query(f"What was on {text}?", now=NOW)


def test_the_last_month_that_there_is():
    """The calendar ends with the year 9999."""
    parse_query("What will be on 9999-12-31, in December 9999, in 9999-12?", now=NOW)


@pytest.mark.parametrize(
    ("text", "months"),
    [
        ("in May", {5}),
        ("What may I do?", set()),
        ("in March or April", {3, 4}),
        ("this sept", {9}),
        ("march on", set()),
    ],
)
def test_months_without_a_year(text, months):
    """They are those of several years; "may" and "march" only where they are no verbs."""
    assert {int(first[5:7]) for first, _ in days(text)} == months


def test_speakers_who_are_named():
    """By their whole name, in any case, as owner of something; and their name is not in what is made a vector of."""
    found = parse_query("What did ADA and Mary Ann's sister say of Bens?", ["Ada", "Mary Ann", "Ben"])
    assert found.named == {"ada", "mary ann"}
    assert found.bare == "What did and sister say of Bens?"
    assert "ADA" in found.words


def test_the_whole_text_is_made_a_vector_of_if_common_words_alone_would_ask_something():
    """Who someone is can be understood; of what someone said, nothing is left that a vector could find."""
    assert parse_query("Who is Ada?", ["Ada"]).bare == "Who is Ada?"
    assert parse_query("What did Ada say?", ["Ada"]).bare == ""
    assert parse_query("What did I do last month?").bare == ""
    assert parse_query("What did you do?").bare == "What did you do?"


def test_names_in_text_without_spaces_are_not_made_a_vector_of():
    """In Chinese and Japanese no spaces divide a name from the rest."""
    found = parse_query("田中太郎は何を飼っていますか", ["田中太郎"])
    assert (found.named, found.bare) == ({"田中太郎"}, "は何を飼っていますか")


def test_names_are_the_same_with_accents_and_without():
    """In one character or two, too."""
    for text in ("What does Zoe play?", "What does Zoë play?", "What does Zoe\u0308 play?"):
        found = parse_query(text, ["Zoë"])
        assert (found.named, found.bare) == ({"zoe"}, "What does play?")
        assert parse_query(text, ["Zoe"]).named == {"zoe"}


def test_a_common_word_that_is_a_name_is_searched_for():
    """Will, IT and US, if they are written so in a sentence; and speakers with any name."""
    assert parse_query("Who is Will?").words == ("Will",)
    assert parse_query("Will Will come?").words == ("Will", "come")
    assert parse_query("Who works in IT?").words == ("works", "IT")
    assert parse_query("What will it cost us?").words == ("cost",)
    assert parse_query("Please, and Please go").words == ("go",)
    assert parse_query("What did An say?", ["An"]).words == ("An", "say")


def test_what_is_written_in_several_ways_is_searched_for_in_one():
    """Full-width letters, composed letters, Hebrew and Arabic without vowel points, and words without what nobody sees in them."""
    assert parse_query("Ｐｏｒｔ ４０").words == ("Port", "40")
    assert parse_query("cafe\u0301").words == ("café",)
    assert parse_query("שָׁלוֹם").words == ("שלום",)
    assert parse_query("كِتَابٌ").words == ("كتاب",)
    assert parse_query("Zahn\u00adarzt").words == ("Zahnarzt",)
    assert parse_query("דנ\u200fה").words == ("דנה",)
    assert parse_query("क्\u200dषेत्र वाङ्\u200cमय").words == ("क्षेत्र", "वाङ्मय")
    assert parse_query("می\u200cخواهم").words == ("مي", "خواهم")  # there it divides words


@pytest.mark.parametrize("text", ["x" * 300_000, "数" * 30_000, "x-" * 100_000, "xY" * 100_000])
def test_a_question_without_spaces_is_read_once(text):
    """Reading each part of it to its end would take minutes."""
    assert parse_query(text).text == text


def test_names_are_no_patterns():
    """They are found as they are written, whatever characters they have."""
    found = parse_query("What did a.b (c) say of axb?", ["a.b (c)", "(", "", "[x"])
    assert found.named == {"a.b (c)"}


@pytest.mark.parametrize(
    "text",
    [
        "데이터베이스는 무엇입니까?",
        "データベースは何ですか",
        "ما هي قاعدة البيانات؟",
        "कौन सा डेटाबेस है?",
        "Ποια βάση;",
        "какая база?",
        "🙂🙂",
    ],
)
def test_other_languages_are_searched_for(text):
    """Their words stay; nothing breaks."""
    found = parse_query(text, ["Анна", "数"])
    assert found.text == found.bare == text
    assert all(word in separated(text) for word in found.words)
    assert bool(found.words) is (text != "🙂🙂")


@given(st.text(max_size=80), st.lists(st.text(max_size=8), max_size=4))
@example("A:I", [])  # stop words alone are one phrase, in which blanks are between them
@example("Øyvind", [])
def test_any_text_is_a_question(text, speakers):
    """Whatever it is, words are of the text, and times are stretches."""
    found = parse_query(text, speakers, now=NOW)
    there = separated(normal(text))
    assert all(word in there for phrase in found.words for word in phrase.split())
    assert all(span.since <= span.until for span in found.spans)


def test_letters_of_identifiers_are_searched_for():
    """An identifier with a letter that is a stop word elsewhere is one phrase; the s of a plural is none."""
    assert parse_query("Is S3 on the M1, or 5m from D12, v2 and 1x1?").words == (
        "S 3",
        "M 1",
        "5 m",
        "D 12",
        "v",
        "2",
        "1 x 1",
    )
    assert parse_query("Who sang in the 1980s?", now=NOW).words == ("sang", "1980")
    assert parse_query("你好你好").words == ("你好", "好你")
    assert parse_query("Does a plan A need vitamin D?").words == ("a", "plan", "A", "need", "vitamin", "D")
    assert parse_query("A plan, I'D say").words == ("plan", "say")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("How much was the bill?", set()),
        ("What did Bill pay?", {"bill"}),
        ("What about Bill's car?", {"bill"}),
        ("Bill, what did you pay?", {"bill"}),
        ("what did ann say", {"ann"}),
        ("What did Bob say of the bill?", set()),
        ("What did Ann and Bill pay?", {"ann", "bill"}),
        ("What did Maria and the rest of Maria Rosa's family say?", {"maria rosa"}),
        ("What did Maria say?", {"maria"}),
        ("What did maria say?", set()),
        ("Project plans?", set()),
        ("What did B say of A?", {"a", "b"}),
        ("Is there a b?", {"b"}),
    ],
)
def test_who_is_named(text, named):
    """A name that is a common word needs a capital letter, and so does the first name of the only speaker who has it."""
    speakers = ["Ann", "Bill", "Maria Rosa", "Project Lead", "A", "B"]
    assert parse_query(text, speakers).named == named
    by_word = {}
    for speaker in speakers:
        by_word.setdefault(words_of_name(speaker)[0], []).append(speaker)
    assert set(parse_query(text, speakers).speakers) <= set(speakers_in(text, by_word))


@pytest.mark.parametrize(
    "text",
    [
        "What did Ada buy on May 2?",
        "What did Ada buy around May 2nd?",
        "What did Ada buy from May 2 to May 9?",
        "What did Ada buy between April and May?",
        "What did Ada buy between May and June?",
        "In May, what did Ada buy?",
        "What did Ada buy in May, and why?",
        "Did Ada buy it on 2 May?",
    ],
)
def test_may_next_to_a_day_or_a_month_is_no_speaker(text):
    """Nor is it after "in" and the like, whatever follows."""
    assert parse_query(text, ["May", "Ada"]).named == {"ada"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("What may I do?", set()),
        ("May I ask you something?", set()),
        ("What did I buy in May?", set()),
        ("What did I buy on 3 May?", set()),
        ("What did May buy in May?", {"may"}),
        ("May's car?", {"may"}),
        ("Will it rain?", set()),
        ("What will Ada do?", {"ada"}),
        ("Did Will come?", {"will"}),
        ("Will, did you come?", {"will"}),
        ("Who came before Will?", {"will"}),
        ("What did I note?\nWill it rain?", set()),
        ("Who Is The Best, Will Or Ada", {"ada"}),
        ("It is late. Will you go?", set()),
    ],
)
def test_a_name_that_is_also_another_word_is_one_only_where_it_is_written_as_a_name(text, named):
    """Will and may are words of most questions."""
    assert parse_query(text, ["Will", "May", "Ada"]).named == named
