"""Cron lines: what is missed, what occurs twice, and what is left out."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphagent import END, START, Agent, Strategy
from graphagent.errors import RunExistsError
from graphagent.nodes import passthrough
from graphagent.store import MemoryStore
from graphagent.work import Schedule
from tests.thorough import examples, some

AGENT = Agent(Strategy("report", START >> passthrough(str, name="echo") >> END), store=MemoryStore())
ZONES = (
    "Europe/Oslo", "Australia/Lord_Howe", "America/New_York", "America/Sao_Paulo", "Africa/Casablanca", "Africa/Cairo", "Asia/Kolkata",
    "Atlantic/Azores",
)  # fmt: skip


def utc(text):
    return datetime.fromisoformat(text).astimezone(UTC)


def moment_of(day, hour, minute, zone):
    """Return when a clock on the wall first shows a time, or, if it never does on that day, when it has passed it."""
    wall = datetime.combine(day, time(hour, minute))
    found = wall.replace(tzinfo=zone).astimezone(UTC)
    if found.astimezone(zone).replace(tzinfo=None) != wall:
        found -= timedelta(hours=3)
        while found.astimezone(zone).replace(tzinfo=None) < wall:
            found += timedelta(minutes=1)
    return found


def test_a_moment_without_a_time_zone_is_refused():
    """It would be another moment on another machine."""
    schedule, naive = Schedule("0 9 * * *", AGENT), datetime.fromisoformat("2026-03-30T09:00")
    for ask in (schedule.after, schedule.until, schedule.task, schedule.run_id):
        with pytest.raises(ValueError, match="=2026-03-30T09:00:00 has no time zone"):
            ask(naive)


@pytest.mark.parametrize("zone", ZONES)
def test_a_time_of_the_day_comes_once_a_day_also_when_clocks_change(zone):
    """Twice shown, it counts once; left out, it counts as the end of the gap. Looking back finds the same times."""
    for hour, minute in some([(0, 0), (0, 30), (1, 30), (2, 0), (2, 30), (3, 0), (23, 30)], 3):
        schedule = Schedule(f"{minute} {hour} * * *", AGENT, zone=zone)
        moment = datetime(2025, 1, 1, 12, tzinfo=UTC)
        for day in range(2, 366):
            expected = moment_of(date(2025, 1, 1) + timedelta(days=day), hour, minute, ZoneInfo(zone))
            if day == 2:
                moment = expected - timedelta(hours=20)
            assert schedule.after(moment) == expected
            assert schedule.until(expected + timedelta(hours=2)) == expected
            moment = expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [("*/30 2 * * *", "02:00 02:30"), ("30 */2 * * *", "00:30 02:30 04:30"), ("0,30 2 * * *", "02:00 02:30")],
)
def test_no_time_is_left_out_where_clocks_are_set_by_half_an_hour(line, expected):
    """Looking ahead and looking back find the same times, on the night when two o'clock becomes half past one."""
    zone = ZoneInfo("Australia/Lord_Howe")
    schedule, begin, end = Schedule(line, AGENT, zone=zone.key), utc("2027-04-03T13:00Z"), utc("2027-04-03T19:00Z")
    ahead, moment = list[datetime](), begin
    while (moment := schedule.after(moment)) < end:
        ahead.append(moment)
    assert [f"{each.astimezone(zone):%H:%M}" for each in ahead] == expected.split()
    for minute in (ahead[0] + timedelta(minutes=number) for number in range(300)):
        assert schedule.until(minute) == max(each for each in ahead if each <= minute)


@pytest.mark.parametrize(
    ("line", "days"),
    [
        ("0 9 13 * 5", "Fri 05, Fri 12, Sat 13, Fri 19"),
        ("0 9 */2 * 1", "Mon 15, Mon 29, Mon 05, Mon 19"),
        ("0 9 1-31/2 * 1", "Wed 03, Fri 05, Sun 07, Mon 08"),
    ],
)
def test_a_day_of_the_month_or_one_of_the_week_is_enough_unless_a_field_begins_with_a_star(line, days):
    """As in Debian's cron, `*/2` and `1-31/2` are the same days and follow different rules."""
    schedule, times = Schedule(line, AGENT), [utc("2027-03-01T12:00Z")]
    for _ in range(4):
        times.append(schedule.after(times[-1]))
    assert ", ".join(f"{each:%a %d}" for each in times[1:]) == days


@given(
    st.integers(0, 60 * 24 * 365),
    st.sampled_from(["*/15 * * * *", "0 * * * *", "7 */2 * * *", "30 2 * * *", "0 9 * * 1-5"]),
)
@settings(max_examples=examples(100), deadline=None)
def test_the_last_time_is_the_one_before_the_next(minutes, line):
    """However far a moment is from a change of clocks."""
    schedule = Schedule(line, AGENT, zone="Europe/Oslo")
    moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes, seconds=30)
    last = schedule.until(moment)
    assert last <= moment < schedule.after(moment)


def test_hours_that_pass_are_counted_by_lines_with_every_hour():
    """As with cron: each of the two hours that are shown alike has its run."""
    schedule = Schedule("0 * * * *", AGENT, zone="Europe/Oslo")
    times = [utc("2026-10-25T00:30:00+02:00")]
    for _ in range(4):
        times.append(schedule.after(times[-1]))
    assert [each.astimezone(UTC).hour for each in times[1:]] == [23, 0, 1, 2]


WRONG = {
    "fields": (("0 9 * *",), {}, "is not a cron line: it has 4 fields"),
    "seconds": (("0 0 9 * * *",), {}, "it has 6 fields"),
    "minute": (("61 9 * * *",), {}, "Bad minute"),
    "never": (("0 9 30 2 *",), {}, "Bad day-of-month"),
    "zone": (("0 9 * * *",), {"zone": "Oslo"}, "zone='Oslo' is not a time zone"),
    "slash": (("0 9 * * *",), {"name": "a/b"}, "has a slash"),
    "id": (("0 9 * * *",), {"run_id": "x"}, "takes no run_id="),
    "at": (("0 9 * * *",), {"at": 3}, "takes no at="),
    "option": (("0 9 * * *",), {"max_steps": 3}, "has no option 'max_steps'"),
    "priority": (("0 9 * * *",), {"priority": 2**31}, "is not between"),
    "queue": (("0 9 * * *",), {"queue": "q" * 129}, "at most 128 characters"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_line_is_refused_where_it_is_written(case):
    """The error says what to write."""
    (line,), options, said = WRONG[case]
    with pytest.raises((ValueError, TypeError), match=said):
        Schedule(line, AGENT, **options)


class Workers:
    """Several workers with one store, each with its own object of a schedule."""

    def __init__(self, number, line="0 9 * * *", **options):
        self.store, self.begun = MemoryStore(), []
        self.schedules = [Schedule(line, AGENT, name="report", **options) for _ in range(number)]

    async def look(self, text, *which):
        async def begin(schedule, time):
            self.begun.append(schedule.run_id(time))

        for each in which or range(len(self.schedules)):
            await self.schedules[each].begin_due(self.store, utc(text), begin)


async def test_what_was_missed_begins_one_run():
    """That of the last time, and none for times before the schedule was known."""
    workers = Workers(1)
    await workers.look("2026-03-02T10:00:00+00:00")
    await workers.look("2026-03-03T08:59:59+00:00")
    assert workers.begun == []
    await workers.look("2026-03-03T09:00:00+00:00")
    await workers.look("2026-03-03T23:00:00+00:00")
    assert workers.begun == ["report@20260303T0900Z"]
    await workers.look("2026-03-07T11:00:00+00:00")
    assert workers.begun[1:] == ["report@20260307T0900Z"]


async def test_a_worker_that_was_not_there_begins_what_others_have_not():
    """The store knows what was seen to; between workers that look at the same time, the id is the same."""
    workers = Workers(2)
    await workers.look("2026-03-02T10:00:00+00:00", 0)
    await workers.look("2026-03-03T09:00:01+00:00", 0)
    await workers.look("2026-03-03T09:00:02+00:00", 1)
    assert workers.begun == ["report@20260303T0900Z"]


async def test_another_line_counts_from_when_a_worker_has_it():
    """Times that would have been its own before are not made up for."""
    workers = Workers(1)
    await workers.look("2026-03-02T10:00:00+00:00")
    other = Workers(1, "0 8 * * *")
    other.store, other.begun = workers.store, workers.begun
    await other.look("2026-03-05T10:00:00+00:00")
    assert workers.begun == []
    await other.look("2026-03-06T10:00:00+00:00")
    assert workers.begun == ["report@20260306T0800Z"]


async def test_a_run_that_there_is_with_another_task_was_begun():
    """As by a worker of another version, which died before it took note of that."""
    workers = Workers(1)
    await workers.look("2026-03-02T10:00:00+00:00")
    tries = []

    async def begin(schedule, time):
        tries.append(time)
        raise RunExistsError(schedule.run_id(time), "")

    for text in ("2026-03-03T09:00:00+00:00", "2026-03-03T09:05:00+00:00"):
        await workers.schedules[0].begin_due(workers.store, utc(text), begin)
    assert len(tries) == 1
