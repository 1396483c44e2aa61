#!/usr/bin/env bash
# A moment whose offset from UTC has seconds, as all places had before zones: noon of 1 January 1900 in Amsterdam is +00:19:32.
# Guess: it is written as Python's isoformat() does, or refused.
# What happens: it is silently another moment, and not the same one: pydantic cuts the seconds off (32 s later), msgspec and orjson round
#   them (28 s earlier). msgspec's MessagePack keeps the moment.
# For users: birth dates, genealogy, astronomy, old weather: two services that exchange such a time by JSON differ by a minute.
# In graphagent: the codec keeps zone and offset as they are (tests/codec/test_values.py::test_times_keep_their_zones).
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check msgspec==0.22.0 orjson==3.13.0 pydantic==2.14.4 tzdata==2026.3
cd "$folder"

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


from datetime import datetime
from zoneinfo import ZoneInfo

import msgspec
import orjson
from pydantic import TypeAdapter

print(*(f"{name} {version(name)}" for name in ("pydantic", "msgspec", "orjson")))
print("guess: 0.0, four times")

NOON = datetime(1900, 1, 1, 12, tzinfo=ZoneInfo("Europe/Amsterdam"))
print("the moment:", NOON.isoformat())
moment = TypeAdapter(datetime)
WAYS = {
    "pydantic": (lambda: moment.validate_json(moment.dump_json(NOON)), 32.0),
    "msgspec, JSON": (lambda: msgspec.json.decode(msgspec.json.encode(NOON), type=datetime), -28.0),
    "orjson": (lambda: datetime.fromisoformat(orjson.loads(orjson.dumps(NOON))), -28.0),
    "msgspec, MessagePack": (lambda: msgspec.msgpack.decode(msgspec.msgpack.encode(NOON), type=datetime), 0.0),
}
for name, (again, recorded) in WAYS.items():
    compare(f"{name} moves it by seconds", (again() - NOON).total_seconds(), recorded)
PYTHON
venv/bin/python program.py
