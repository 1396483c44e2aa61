#!/usr/bin/env bash
# A year, or a day without hyphens (ISO 8601, basic), where a datetime is expected: "2026" and "20260501".
# Guess: the day is read as `datetime.fromisoformat` reads it since Python 3.11, or refused; the year alone is refused. At the latest with
#   `strict=True`, which refuses even "2026-05-01", a day without a time.
# What happens: text of nothing but digits is seconds since 1970: "2026" is 33 minutes after the beginning of 1970, and "20260501" a day in
#   August 1970, silently, with `strict=True` too. msgspec does the same with `strict=False`. A field of type date refuses both.
#   Above 20,000,000,000 the digits are milliseconds, so the second after 11 October 2603 11:33:20 lies in 1970 too.
# For users: a model that is asked when something happened, and knows only the year, says so; a schema with `format: date-time` does not keep a
#   server without a grammar for it from that. The answer is valid, and in 1970.
# In graphagent: structured output and arguments of tools are read by pydantic: docs/models.md says what to declare. Times of facts that are
#   learnt are read by `fromisoformat` (graphagent/memory/facts/_extraction.py).
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check msgspec==0.22.0 pydantic==2.14.4
cd "$folder"

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


from datetime import date, datetime

import msgspec
from pydantic import TypeAdapter, ValidationError

print("Python", sys.version.split()[0], *(f"{name} {version(name)}" for name in ("pydantic", "msgspec")))
print("guess: refused, or the day in 2026")


def read(reader, text):
    try:
        return reader(text).isoformat()
    except (ValueError, ValidationError, msgspec.ValidationError):
        return "refused"


moment, day = TypeAdapter(datetime), TypeAdapter(date)
READERS = {
    "Python": datetime.fromisoformat,
    "pydantic": lambda text: moment.validate_json(f'"{text}"'),
    "pydantic, strict": lambda text: moment.validate_json(f'"{text}"', strict=True),
    "pydantic, date": lambda text: day.validate_json(f'"{text}"'),
    "msgspec": lambda text: msgspec.convert(text, datetime),
    "msgspec, not strict": lambda text: msgspec.convert(text, datetime, strict=False),
}
YEAR, DAY = "1970-01-01T00:33:46+00:00", "1970-08-23T11:55:01+00:00"
RECORDED = {
    "2026": ["refused", YEAR, YEAR, "refused", "refused", YEAR],
    "20260501": ["2026-05-01T00:00:00", DAY, DAY, "refused", "refused", DAY],
    "2026-05-01": ["2026-05-01T00:00:00", "2026-05-01T00:00:00", "refused", "2026-05-01", "refused", "refused"],
}
for text, recorded in RECORDED.items():
    for (name, reader), expected in zip(READERS.items(), recorded, strict=True):
        compare(f"{text!r}, {name}", read(reader, text), expected)
compare("20,000,000,000", moment.validate_json("20000000000").isoformat(), "2603-10-11T11:33:20+00:00")
compare("20,000,000,001", moment.validate_json("20000000001").isoformat(), "1970-08-20T11:33:20.001000+00:00")
PYTHON
venv/bin/python program.py
