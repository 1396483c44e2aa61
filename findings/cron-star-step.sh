#!/usr/bin/env bash
# A cron line that limits the day of the month and the day of the week, one of them by a step: `0 0 */2 * MON`.
# Guess: either of them is enough, as cron's manual says of two limited fields; and all readers of cron lines agree on that.
# What happens: croniter takes Mondays and every second day. cronsim takes Mondays that are a second day, as Debian's cron does, which asks
#   whether a field *begins* with a star. `1-31/2` is the same days as `*/2`, and with it both take either. Nor do they agree on `1,*`.
# For users: moving a schedule from one library to another, or writing a field in another way, turns 18 days of a month into 3.
# In graphagent: lines are read by cronsim; docs/workers.md, Schedules, says which days they mean (tests/work/test_schedules.py).
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check cronsim==2.8 croniter==7.0.0
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

from croniter import croniter
from cronsim import CronSim

print("cronsim", version("cronsim"), "croniter", version("croniter"))
print("guess: the same days in both, and */2 is 1-31/2")

BEGIN, END = datetime(2027, 3, 1, tzinfo=UTC), datetime(2027, 4, 1, tzinfo=UTC)


def days(times):
    return " ".join(str(each.day) for each in takewhile(lambda each: each < END, times))


def by_croniter(line):
    times = croniter(line, BEGIN - timedelta(minutes=1))
    while True:
        yield times.get_next(datetime)


EITHER = "1 3 5 7 8 9 11 13 15 17 19 21 22 23 25 27 29 31"
for line, recorded, others in (
    ("0 0 1-31/2 * MON", EITHER, EITHER),
    ("0 0 */2 * MON", "1 15 29", EITHER),
    ("0 0 13 * */2", "13", "2 4 6 7 9 11 13 14 16 18 20 21 23 25 27 28 30"),
    ("0 0 1,* * MON", " ".join(map(str, range(1, 32))), "1 8 15 22 29"),
):
    compare(f"{line}, days of March 2027 by cronsim", days(CronSim(line, BEGIN - timedelta(minutes=1))), recorded)
    compare("… by croniter", days(by_croniter(line)), others)
PYTHON
venv/bin/python program.py
