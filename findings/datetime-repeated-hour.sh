#!/usr/bin/env bash
# A moment in the hour that the clocks of a place repeat, and the same moment in UTC.
# Guess: aware datetimes are compared as moments: it is equal to `moment.astimezone(UTC)`, and to itself after a way through JSON.
# What happens: it is neither equal, nor before, nor after, and the difference is 0. A datetime in a zone with such an hour is unequal to every
#   one with another tzinfo, by definition (PEP 495), so that equal ones have equal hashes. So what is stored and read again is another
#   value: msgspec and pydantic return the offset in place of the zone. Within one tzinfo, the two half past twos, an hour apart, are equal.
# For users: for two hours a year, looking a moment up in a set or dict misses, `old != new` sees a change, and a "must not be later" passes.
# In graphagent: the times of facts and notes have an offset, or UTC, in place of their zone before they are compared
#   (graphagent/memory/facts/_moments.py, graphagent/memory/notes/_validation.py).
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check msgspec==0.22.0 pydantic==2.14.4 tzdata==2026.6
cd "$folder"

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import msgspec
from pydantic import TypeAdapter

print("Python", sys.version.split()[0], *(f"{name} {version(name)}" for name in ("msgspec", "pydantic", "tzdata")))
print("guess: equal, six times; and the two in one zone are not equal")

BERLIN = ZoneInfo("Europe/Berlin")
adapter = TypeAdapter(datetime)
WAYS = {
    "in UTC": lambda moment: moment.astimezone(UTC),
    "through msgspec": lambda moment: msgspec.json.decode(msgspec.json.encode(moment), type=datetime),
    "through pydantic": lambda moment: adapter.validate_json(adapter.dump_json(moment)),
}
for what, day, recorded in (("a repeated hour", 25, (False, False, False, 0.0)), ("any other hour", 24, (True, False, False, 0.0))):
    moment = datetime(2026, 10, day, 2, 30, tzinfo=BERLIN)
    for name, way in WAYS.items():
        other = way(moment)
        seen = (moment == other, moment < other, moment > other, (moment - other).total_seconds())
        compare(f"{what}, {name}: equal, before, after, difference", seen, recorded)

first = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)
second = first.replace(fold=1)
seconds = second.timestamp() - first.timestamp()
compare("the two in one zone: equal, seconds apart", (first == second, seconds), (True, 3600.0))
PYTHON
PYTHONTZPATH='' venv/bin/python program.py
