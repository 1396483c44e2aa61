#!/usr/bin/env bash
# The times of a cron line, forwards from a moment and backwards from a later one, where clocks are set by half an hour: on Lord Howe Island.
# Guess: both ways yield the same times, those minutes of the day that the line means.
# What happens: on the day on which two o'clock becomes half past one again, `*/30 2 * * *` is only 02:30 forwards, and 02:00 and 02:30
#   backwards. `30 */2 * * *` has 00:30 forwards and not backwards. In ten zones where clocks are set by whole hours, both ways agree.
# For users: a scheduler that looks back for the time it missed, and forwards for how long to sleep, skips a job once a year, or has it twice.
# In graphagent: `Schedule` looks both ways for each time (graphagent/work/_schedules.py, tests/work/test_schedules.py).
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check cronsim==2.8 tzdata==2026.6
cd "$folder"

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


from datetime import UTC, datetime, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim

print("cronsim", version("cronsim"), "tzdata", version("tzdata"))
print("guess: the same times, forwards and backwards")

LINES = ("*/30 2 * * *", "30 */2 * * *", "* 2 * * *", "0 * * * *", "*/20 * * * *", "0,30 2 * * *", "0 0-23 * * *", "0 0 * * *")
WHOLE_HOURS = (
    "Europe/Berlin Europe/Dublin Antarctica/Troll Africa/Casablanca Africa/Cairo Asia/Beirut Asia/Gaza America/Havana"
    " America/Santiago America/Nuuk"
).split()


def both_ways(line, zone, begin, end):
    forwards = takewhile(lambda each: each.astimezone(UTC) < end, CronSim(line, begin.astimezone(zone)))
    backwards = takewhile(lambda each: each.astimezone(UTC) > begin, CronSim(line, end.astimezone(zone), reverse=True))
    return list(forwards), list(backwards)[::-1]


def clocks(times):
    return " ".join(f"{each:%H:%M}" for each in times)


def changes(zone):
    """Yield the hours of 2027 after which clocks are set."""
    hour = datetime(2027, 1, 1, tzinfo=UTC)
    while hour.year == 2027:
        if hour.astimezone(zone).utcoffset() != (hour + timedelta(hours=1)).astimezone(zone).utcoffset():
            yield hour
        hour += timedelta(hours=1)


LORD_HOWE = ZoneInfo("Australia/Lord_Howe")
NIGHT = datetime(2027, 4, 3, 11, tzinfo=UTC), datetime(2027, 4, 3, 20, tzinfo=UTC)  # from 22:00 to 06:30
for line, recorded, others in (
    ("*/30 2 * * *", "02:30", "02:00 02:30"),
    ("30 */2 * * *", "22:30 00:30 02:30 04:30", "22:30 02:30 04:30"),
):
    forwards, backwards = both_ways(line, LORD_HOWE, *NIGHT)
    compare(f"{line}, forwards", clocks(forwards), recorded)
    compare("… backwards", clocks(backwards), others)

agree = sum(
    ways[0] == ways[1]
    for zone in map(ZoneInfo, WHOLE_HOURS)
    for hour in changes(zone)
    for line in LINES
    for ways in [both_ways(line, zone, hour - timedelta(hours=5), hour + timedelta(hours=6))]
)
every = sum(1 for zone in map(ZoneInfo, WHOLE_HOURS) for hour in changes(zone)) * len(LINES)
compare("elsewhere, both ways agree in", f"{agree} of {every} nights", f"{every} of {every} nights")
PYTHON
PYTHONTZPATH='' venv/bin/python program.py
