from __future__ import annotations

import itertools
import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from graphagent.memory import Notes, NoteSettings
from graphagent.memory.notes.recall._query import parse_query
from graphagent.memory.notes.recall._times import times_of
from graphagent.testing import fixed_clock
from tests.memory.notes.conftest import Words, WordVectors
from tests.thorough import examples

NOW = datetime(2024, 3, 15, 12, 30, tzinfo=UTC)  # a Friday


def days(text, now=NOW, names=frozenset()):
    """Return the spans that a text names, each as one date or two."""
    dates = [
        [date.fromordinal(719163 + moment // 86_400_000).isoformat() for moment in (span.since, span.until)]
        for span in times_of(text, now, names).spans
    ]
    return [first if first == last else f"{first} {last}" for first, last in dates]


# Phrases


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("today", ["2024-03-15"]),
        ("tonight", ["2024-03-15"]),
        ("this morning", ["2024-03-15"]),
        ("last night", ["2024-03-14"]),
        ("the day before yesterday", ["2024-03-13"]),
        ("tomorrow", ["2024-03-16"]),
        ("10 days ago", ["2024-03-05"]),
        ("a couple of days ago", ["2024-03-12 2024-03-13"]),
        ("a few weeks ago", ["2024-02-06 2024-03-04"]),
        ("two weeks ago", ["2024-02-27 2024-03-04", "2024-02-26 2024-03-03"]),
        ("one month ago", ["2024-01-31 2024-03-01", "2024-02-01 2024-02-29"]),
        ("three years ago", ["2020-12-14 2021-06-14", "2021-01-01 2021-12-31"]),
    ],
)
def test_days_are_counted_from_today(text, spans):
    """What is some weeks, months or years ago is about that long ago, or at any time in that week, month or year."""
    assert days(f"What did Ada say {text}?") == spans


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("this week", ["2024-03-11 2024-03-17"]),
        ("last week", ["2024-03-04 2024-03-10"]),
        ("the previous week", ["2024-03-04 2024-03-10"]),
        ("the week before last", ["2024-02-26 2024-03-03"]),
        ("next week", ["2024-03-18 2024-03-24"]),
        ("this month", ["2024-03-01 2024-03-31"]),
        ("last month", ["2024-02-01 2024-02-29"]),
        ("last quarter", ["2023-10-01 2023-12-31"]),
        ("this year", ["2024-01-01 2024-12-31"]),
        ("last year", ["2023-01-01 2023-12-31"]),
        ("last weekend", ["2024-03-09 2024-03-10"]),
        ("over the weekend", ["2024-03-09 2024-03-10"]),
        ("this weekend", ["2024-03-09 2024-03-10", "2024-03-16 2024-03-17"]),
    ],
)
def test_units_are_those_of_the_calendar(text, spans):
    """Last week is from Monday to Sunday; only "this weekend" may be the one before or the one to come."""
    assert days(f"What did Ada say {text}?") == spans


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("in the past week", ["2024-03-08 2024-03-15"]),
        ("in the last three days", ["2024-03-12 2024-03-15"]),
        ("in the last 2 weeks", ["2024-03-01 2024-03-15"]),
        ("during the past six months", ["2023-09-15 2024-03-15"]),
        ("over the last few days", ["2024-03-10 2024-03-15"]),
        ("in the next two weeks", ["2024-03-15 2024-03-29"]),
    ],
)
def test_a_number_of_units_ends_or_begins_today(text, spans):
    """So does "the past week"."""
    assert days(f"What did Ada say {text}?") == spans


@pytest.mark.parametrize(
    ("text", "now", "spans"),
    [
        ("on Monday", NOW, ["2024-03-11"]),
        ("on Friday", NOW, ["2024-03-15", "2024-03-08"]),
        ("on Sun", NOW, ["2024-03-10"]),
        ("this Tuesday", NOW, ["2024-03-12"]),
        ("next Tuesday", NOW, ["2024-03-19"]),
        ("last Friday", NOW, ["2024-03-08"]),
        ("last Monday", NOW, ["2024-03-11", "2024-03-04"]),
        ("last Friday", NOW + timedelta(days=1), ["2024-03-15", "2024-03-08"]),
        ("this past Friday", NOW + timedelta(days=1), ["2024-03-15", "2024-03-08"]),
        ("from Monday to Wednesday", NOW, ["2024-03-11 2024-03-13"]),
        ("from Friday to Sunday", NOW, ["2024-03-08 2024-03-10"]),
    ],
)
def test_weekdays_are_the_nearest_ones_that_are_past(text, now, spans):
    """Where people mean two different days by the same words, both are returned."""
    assert days(f"What did Ada say {text}?", now) == spans


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("in May", ["2023-05-01 2023-05-31"]),
        ("in March", ["2024-03-01 2024-03-31"]),
        ("last May", ["2023-05-01 2023-05-31"]),
        ("last March", ["2023-03-01 2023-03-31"]),
        ("next May", ["2024-05-01 2024-05-31"]),
        ("in May 2021", ["2021-05-01 2021-05-31"]),
        ("in May of 2021", ["2021-05-01 2021-05-31"]),
        ("in May last year", ["2023-05-01 2023-05-31"]),
        ("May last year", ["2023-05-01 2023-05-31"]),
        ("in Sept. 2021", ["2021-09-01 2021-09-30"]),
        ("in early May", ["2023-05-01 2023-05-11"]),
        ("in mid-May 2021", ["2021-05-11 2021-05-21"]),
        ("in late May", ["2023-05-21 2023-05-31"]),
        ("at the end of last month", ["2024-02-20 2024-02-29"]),
        ("since the beginning of the year", ["2024-01-01 2024-05-01"]),
        ("about the May bill", ["2023-05-01 2023-05-31"]),
        ("in early 2023", ["2023-01-01 2023-05-02"]),
        ("in April or May", ["2023-04-01 2023-04-30", "2023-05-01 2023-05-31"]),
    ],
)
def test_months(text, spans):
    """A month without a year, or a part of it, is that of ten years, the nearest first."""
    assert days(f"What did Ada say {text}?")[: len(spans)] == spans


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("on 3 May 2021", ["2021-05-03"]),
        ("on Monday, the 3rd of May, 2021", ["2021-05-03"]),
        ("on May 3rd,2021", ["2021-05-03"]),
        ("on 2021-05-03", ["2021-05-03"]),
        ("at 2021-05-03T10:00", ["2021-05-03"]),
        ("on 24/12/2023", ["2023-12-24"]),
        ("on 12/24/2023", ["2023-12-24"]),
        ("on 24.12.2023", ["2023-12-24"]),
        ("on 5/5/2023", ["2023-05-05"]),
        ("on 5/7/2023", ["2023-01-01 2023-12-31"]),
        ("on the 3rd", ["2024-03-03"]),
        ("on the 31st", ["2024-01-31"]),
    ],
)
def test_dates(text, spans):
    """A day of a month is the nearest one that is past; of a date that may be read in two ways, only the year is clear."""
    assert days(f"What did Ada say {text}?") == spans


def test_a_day_without_a_year_is_that_of_ten_years():
    """The nearest one that is past is first; years that do not have the day are left out."""
    assert days("on 3 May") == [f"{year}-05-03" for year in range(2023, 2013, -1)]
    assert days("on 29 February") == ["2024-02-29", "2020-02-29", "2016-02-29"]


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("over the summer", ["2023-06-01 2023-08-31"]),
        ("last summer", ["2023-06-01 2023-08-31"]),
        ("this summer", ["2024-06-01 2024-08-31"]),
        ("in spring 2022", ["2022-03-01 2022-05-31"]),
        ("in the fall of 2022", ["2022-09-01 2022-11-30"]),
        ("last winter", ["2023-12-01 2024-02-29"]),
        ("in winter 2022", ["2022-12-01 2023-02-28", "2021-12-01 2022-02-28"]),
        ("at Christmas", ["2023-12-24 2023-12-26"]),
        ("on New Year’s Eve", ["2023-12-31"]),
        ("on Christmas Day 2020", ["2020-12-25"]),
        ("in Q2 2023", ["2023-04-01 2023-06-30"]),
        ("in Q4", ["2023-10-01 2023-12-31"]),
        ("in 2019", ["2019-01-01 2019-12-31"]),
        ("in the nineties", ["1990-01-01 1999-12-31"]),
        ("in the 2010s", ["2010-01-01 2019-12-31"]),
        ("in the '80s", ["1980-01-01 1989-12-31"]),
    ],
)
def test_seasons_holidays_quarters_and_years(text, spans):
    """Without a year, the nearest one that has begun is first."""
    assert days(f"What did Ada say {text}?")[: len(spans)] == spans


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("since March", ["2024-03-01 2024-03-31"]),
        ("since May 2023", ["2023-05-01 2024-03-15"]),
        ("since yesterday", ["2024-03-14 2024-03-15"]),
        ("before June 2023", ["0001-01-01 2023-05-31"]),
        ("after June 2023", ["2023-07-01 2024-03-15"]),
        ("after June 2030", ["2030-07-01 9999-12-31"]),
        ("until June 2023", ["0001-01-01 2023-06-30"]),
        ("between 3 and 9 May 2023", ["2023-05-03 2023-05-09"]),
        ("on 3-9 May 2023", ["2023-05-03 2023-05-09"]),
        ("on 3 or 4 May 2023", ["2023-05-03 2023-05-04"]),
        ("in 2019-2021", ["2019-01-01 2021-12-31"]),
        ("in 2019–2021", ["2019-01-01 2021-12-31"]),
        ("in mid-2023", ["2023-05-02 2023-08-31"]),
        ("between May 3 and May 9, 2023", ["2023-05-03 2023-05-09"]),
        ("from 2023-05-03 to 2023-06-09", ["2023-05-03 2023-06-09"]),
        ("from March to May", ["2023-03-01 2023-05-31"]),
        ("from november until february", ["2023-11-01 2024-02-29"]),
        ("from March 2022 to May", ["2022-03-01 2022-05-31"]),
        ("between 2019 and 2021", ["2019-01-01 2021-12-31"]),
        ("in 2019 and 2021", ["2019-01-01 2019-12-31", "2021-01-01 2021-12-31"]),
        ("the day after Christmas 2023", ["2023-12-26 2023-12-27", "2023-12-24 2023-12-26"]),
        ("the week before 9 May 2023", ["2023-05-02 2023-05-09", "2023-05-09"]),
        ("two weeks before 2023-05-20", ["2023-05-03 2023-05-09", "2023-05-20"]),
        ("on the Friday before 9 May 2023", ["2023-05-05", "2023-05-09"]),
        ("last weekend, before 9 May 2023", ["2023-05-06 2023-05-07", "2023-05-09"]),
    ],
)
def test_ranges(text, spans):
    """Both ends belong to them; what was before a day may also have been told on that day."""
    assert days(f"Where was Ada {text}?")[: len(spans)] == spans
    assert len(days(f"Where was Ada {text}?")) in (len(spans), 10)


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("in March", ["2024-03-01 2024-03-31", "2023-03-01 2023-03-31"]),
        ("in early March", ["2024-03-01 2024-03-11", "2023-03-01 2023-03-11"]),
        ("between March and April", ["2023-03-01 2023-04-30", "2022-03-01 2022-04-30"]),
        ("from November to February", ["2023-11-01 2024-02-29", "2022-11-01 2023-02-28"]),
        ("on 3 May", ["2023-05-03", "2022-05-03"]),
        ("from 3 May to 2 June", ["2023-05-03 2023-06-02", "2022-05-03 2022-06-02"]),
    ],
)
def test_what_comes_every_year_is_that_of_ten_years(text, spans):
    """So the notes of earlier years are found too."""
    found = days(f"What did Ada say {text}?")
    assert found[: len(spans)] == spans
    assert len(found) == 10


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("on Monday of last week", ["2024-03-04"]),
        ("on Tuesday next week", ["2024-03-19"]),
        ("last week on Sunday", ["2024-03-10"]),
        ("on the last Friday in February", ["2024-02-23", "2023-02-24"]),
        ("on the first Monday of May 2023", ["2023-05-01"]),
        ("last year in March", ["2023-03-01 2023-03-31"]),
        ("half a year ago", ["2023-08-31 2023-09-30"]),
        ("this past weekend", ["2024-03-09 2024-03-10"]),
        ("two hours ago", ["2024-03-14 2024-03-15"]),
        ("in the last 48 hours", ["2024-03-13 2024-03-15"]),
        ("20 minutes ago", ["2024-03-14 2024-03-15"]),
    ],
)
def test_what_several_words_mean_together(text, spans):
    """A weekday of a week or of a month, a month of a year, half of a unit; of hours, the days in which they can be."""
    found = times_of(f"What did Ada say {text}?", NOW)
    assert days(f"What did Ada say {text}?")[: len(spans)] == spans
    assert len(found.places) == 1


@pytest.mark.parametrize(
    "text",
    [
        "When did Ada go to Paris?",
        "In which month, on what day and at what time did they meet?",
        "How many weeks ago was it, and how long did it last?",
        "What may I do?",
        "This may be hers.",
        "Did they march on, or march at all?",
        "Who sat on the sofa in the sun on the second try?",
        "Who is Jan?",
        "Where do the spring onions fall?",
        "Who has a Christmas tree?",
        "Who works on Sundays, and every Friday?",
        "Was it the 3rd floor, on the 3rd attempt?",
        "How old is the 90-year-old?",
        "Does it cost 2.000, €2023 or 2023%?",
        "the last day of the trip, and the last one",
        "the years before",
        "What are the 5 march songs, and which 2 may I take?",
        "Who wrote the book of the year?",
    ],
)
def test_ordinary_words_are_no_times(text):
    """Words that also name times, and questions that ask for one, name none."""
    assert times_of(text, NOW) == times_of("", NOW)


@pytest.mark.parametrize(
    "text",
    [
        "PO-2023-17",
        "PO-2023-05",
        "OPS-2021-04-03",
        "2024-0001",
        "2023-555-1234",
        "A2023",
        "room 2024",
        "flight 2023",
        "port 2000",
        "1999-1",
        "192.168.20.10",
        "12/2023/7",
        "2023/117",
        "Monday.com",
        "12.11.20231",
    ],
)
def test_identifiers_are_no_times(text):
    """Parts of them look like years and dates; as times they would no longer be searched for as what they are."""
    assert times_of(f"What about {text}?", NOW) == times_of("", NOW)


def test_a_month_that_is_the_name_of_a_speaker():
    """It counts only where it cannot be the person."""
    assert parse_query("What did June cook?", ["June"], now=NOW).spans == ()
    assert parse_query("What did June cook in June?", ["June"], now=NOW).timed == {"june"}
    assert parse_query("What did we cook, June or July?", now=NOW).timed == {"june", "july"}


def test_march_with_a_capital_letter_inside_a_sentence_is_the_month():
    """At its beginning it may be the verb."""
    assert days("What were the March figures?")[0] == "2024-03-01 2024-03-31"
    assert days("It is late. March on!") == []


def test_the_words_that_name_times_are_not_searched_for_as_a_topic():
    """Nor are words such as "in" among them, which a note that names the time need not have."""
    found = parse_query("What did Ada pay in late May 2023 for the bike that she saw two weeks before?", now=NOW)
    assert found.timed == {"late", "may", "2023"}
    assert parse_query("Since when, and until last Friday?", now=NOW).timed == {"last", "friday"}


def test_the_guide_lists_what_is_understood():
    """Each phrase in its table names a time, and the ordinary words below it name none."""
    page = (Path(__file__).parents[4] / "docs/notes.md").read_text("utf-8")
    table, after = page.split("| in the question | means |")[1].split("\n\n", 1)
    listed = [phrase for row in table.splitlines()[2:] for phrase in re.findall(r'"(.+?)"', row.split("|")[1])]
    assert len(listed) > 40
    assert [phrase for phrase in listed if not times_of(f"Where was I {phrase}?", NOW).places] == []
    assert times_of(after.split("name none:")[1].split("\n\n")[0], NOW).places == ()


# Any text and any day

WORDS = """
    the in on at of to and or from between since before after until early mid late end this last next past few two 3 31st 12 29 2023 9999
    0001 2024-02-30 1/1/2023 may march May sat Sat friday weekend week month year days ago yesterday tomorrow christmas winter q4 nineties
    90s new year's eve february - , . ?
"""
TODAY = st.datetimes(timezones=st.just(UTC))


@given(st.lists(st.sampled_from(WORDS.split()), max_size=9).map(" ".join) | st.text(max_size=40), TODAY)
@example("yesterday or last week, 999 years ago", datetime(1, 1, 1, tzinfo=UTC))
@example("tomorrow, next year and in the next 999 decades", datetime(9999, 12, 31, tzinfo=UTC))
@example("frİday ſat maı weeK ٣ days ago", NOW)
@settings(max_examples=examples(400))
def test_any_text_on_any_day_has_times(text, now):
    """No span ends before it begins, none is beyond the calendar, and whatever is named has words that name it."""
    found = times_of(text, now)
    assert all(span.since <= span.until for span in found.spans)
    assert all(datetime(1, 1, 1, tzinfo=UTC).timestamp() * 1000 <= span.since for span in found.spans)
    assert all(span.until < datetime(9999, 12, 31, tzinfo=UTC).timestamp() * 1000 + 86_400_000 for span in found.spans)
    assert len(set(found.spans)) == len(found.spans) <= 60
    assert found.places or not found.spans
    assert all(begin < end for begin, end in found.places)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(found.places))


PHRASES = [
    "yesterday",
    "last Friday",
    "two weeks ago",
    "in May 2023",
    "since March",
    "between 3 and 9 May",
    "at Christmas",
]


@given(st.sampled_from(PHRASES), st.text("abcdefxyz ,;éß漢", max_size=30), st.text("abcdefxyz ,;éß漢", max_size=30))
@settings(max_examples=examples(100))
def test_other_words_change_nothing(phrase, before, after):
    """A phrase names the same time in any sentence."""
    assume("dec" not in before + after and "feb" not in before + after)
    alone, inside = times_of(phrase, NOW), times_of(f"{before} z {phrase} z {after}", NOW)
    assert inside.spans == alone.spans
    assert len(inside.places) == len(alone.places)


def test_a_text_full_of_dates_names_a_limited_number_of_times():
    """Each is looked up in the index, and nobody asks for a hundred days at once."""
    found = times_of("; ".join(f"{day % 28 + 1} May {1950 + day % 70}" for day in range(2_000)), NOW)
    assert len(found.spans) == 60
    assert len(found.places) == 2_000


# Notes


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
    async with Notes(store, embedder=Words(), settings=NoteSettings(recency_weight=weight or None)) as notes:
        with at(NOW):
            await notes.remember_many([f"Page {number} of the old handbook." for number in range(50)])
            await notes.remember("A parcel from Oslo.", at=NOW - timedelta(hours=2))
            matches = await notes.recall("What arrived today?", limit=100)
    best = max(matches, key=lambda match: match.parts["relevance"])
    assert best.record.content == "A parcel from Oslo."
    assert all("date" not in match.reasons for match in matches if match is not best)


@pytest.mark.parametrize("embedder", [None, Words(), WordVectors()], ids=["words", "vectors", "tokens"])
async def test_what_was_said_at_a_time_is_before_what_names_it(store, embedder):
    """The words that name the time hardly count where nothing else is asked, nor do vectors, which would be near by chance."""
    async with Notes(store, embedder=embedder) as notes:
        with at(NOW):
            await notes.remember("Sold the boat.", at=NOW - timedelta(days=31))
            await notes.remember_many(
                [
                    "What did I do to deserve this.",
                    "Last month is a long time.",
                    "The month of what I did.",
                    "I do yoga.",
                ]
            )
        assert (await found(notes, "What did I do last month?"))[0] == "Sold the boat."
        assert (await found(notes, "Last month"))[0] == "Sold the boat."


async def test_a_time_is_found_where_notes_name_it(notes):
    """If nothing was said then."""
    with at(NOW):
        await notes.remember_many(["In May we fly to Rome.", "In June we rest."])
    assert await found(notes, "What happens in May?") == ["In May we fly to Rome."]


async def test_the_date_of_a_note_is_not_among_its_words(notes):
    """May is a person here, and 12 a number of rooms."""
    with at(NOW):
        await notes.remember("We moved.", at=datetime(2023, 5, 12, tzinfo=UTC))
        await notes.remember("May has 12 rooms.", at=datetime(2023, 8, 1, tzinfo=UTC))
    assert await found(notes, "Who is May?") == ["May has 12 rooms."]
    assert await found(notes, "12") == ["May has 12 rooms."]
    assert (await found(notes, "What did I note on 12 May 2023?"))[0] == "We moved."


async def test_recency_is_that_of_what_was_said(store):
    """By the time that a note has, and otherwise by that of saving: an import of old notes makes nothing new."""
    async with Notes(store, settings=NoteSettings(recency_weight=0.9, relevance_gate=0)) as notes:
        with at(NOW):
            await notes.remember("The port is 80.", at=NOW - timedelta(days=900))
            await notes.remember("The port is 81.", at=NOW - timedelta(days=1))
            matches = await notes.recall("port")
    assert [match.record.content for match in matches] == ["The port is 81.", "The port is 80."]
    new, old = (match.parts["recency"] for match in matches)
    assert new > 0.5
    assert old < 0.01


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


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What happened last Monday?", {4, 11}),
        ("What happened last week?", set(range(5, 12))),
        ("What happened between 1 and 3 March?", {12, 13, 14}),
        ("What happened in the past three days?", set(range(4))),
        ("What happened before 26 February 2024?", {19}),
        ("When did it happen?", set()),
    ],
)
async def test_all_that_was_said_in_the_time_that_a_question_may_mean_is_found_for_it(notes, question, expected):
    """And nothing else is; other notes may have words of the question, such as the month."""
    with at(NOW):
        for ago in range(20):
            await notes.remember(chr(ord("a") + ago) * 3, at=NOW - timedelta(days=ago))
        matches = await notes.recall(question, limit=30)
    timely = [match.record.content for match in matches if "date" in match.reasons]
    assert {ord(text[0]) - ord("a") for text in timely} == expected
