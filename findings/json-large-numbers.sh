#!/usr/bin/env bash
# Two valid JSON numbers, 2**64 and 1e999, and five readers.
# Guess: readers agree: integers are exact or refused; 1e999 is refused, at the latest by `allow_inf_nan=False`.
# What happens: four answers. orjson makes a float of the integer, silently, though it refuses to write one; the others keep it. 1e999 is
#   refused by orjson and msgspec, and is infinity for json and pydantic, also with `from_json(…, allow_inf_nan=False)`, which refuses the
#   word Infinity alone. pydantic then writes null, which it does not read as a number again.
# For users: ids and hashes of more than 64 bits change; models under a grammar do write numbers such as 8.3E1110016, and a server refuses
#   the history that has Infinity in it.
# In graphagent: such an answer does not fit and such a call is malformed (`read_answer` in graphagent/llm/_output.py, tests/llm/test_output.py,
#   tests/llm/test_chat.py); dumps of others are read by json (graphagent/migrate/smolagents.py, tests/migrate/test_smolagents.py).
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check msgspec==0.22.0 orjson==3.13.0 pydantic==2.14.4
cd "$folder"

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


import json

import msgspec
import orjson
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json

print(*(f"{name} {version(name)}" for name in ("orjson", "msgspec", "pydantic")))
print("guess: one answer for each number")


def read(reader, text):
    try:
        return repr(reader(text))
    except ValueError:
        return "refused"


READERS = {
    "json": json.loads,
    "orjson": orjson.loads,
    "msgspec": msgspec.json.decode,
    "pydantic": TypeAdapter(float | int).validate_json,
    "from_json(allow_inf_nan=False)": lambda text: from_json(text, allow_inf_nan=False),
}
EXACT = "18446744073709551616"
RECORDED = {
    "json": (EXACT, "inf"),
    "orjson": ("1.8446744073709552e+19", "refused"),
    "msgspec": (EXACT, "refused"),
    "pydantic": (EXACT, "inf"),
    "from_json(allow_inf_nan=False)": (EXACT, "inf"),
}
for name, reader in READERS.items():
    compare(name, (read(reader, EXACT), read(reader, "1e999")), RECORDED[name])
compare("from_json(allow_inf_nan=False) of Infinity", read(READERS["from_json(allow_inf_nan=False)"], "Infinity"), "refused")

number = TypeAdapter(float)
written = number.dump_json(number.validate_json("1e999"))
compare("pydantic writes it", (written, read(number.validate_json, written)), (b"null", "refused"))
PYTHON
venv/bin/python program.py
