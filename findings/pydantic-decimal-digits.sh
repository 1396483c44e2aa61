#!/usr/bin/env bash
# A Decimal field and a number in JSON.
# Guess: the digits of the text are the digits of the Decimal, since that is what Decimal is for.
# What happens: pydantic reads the number as a float first: 17 digits are left, and 12345678901234567890.12 becomes 12345678901234567000.
#   Of a JSON string all digits are kept. msgspec keeps them in both.
# For users: a model that is asked for a Decimal mostly writes a number. An amount of more than 15 digits, or a rate with many, changes.
# In graphagent: structured output and arguments of tools are read by pydantic, so where digits count, ask for text with a pattern (docs/models.md). The
#   codec writes decimals as text (tests/codec/test_stored_bytes.py).
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


from decimal import Decimal

import msgspec
from pydantic import TypeAdapter

print(*(f"{name} {version(name)}" for name in ("pydantic", "msgspec")))
print("guess: 12345678901234567890.12, four times")

NUMBER = "12345678901234567890.12"
amount = TypeAdapter(Decimal)
compare("pydantic, a number", str(amount.validate_json(NUMBER)), "12345678901234567000")
compare("pydantic, a string", str(amount.validate_json(f'"{NUMBER}"')), NUMBER)
compare("msgspec, a number", str(msgspec.json.decode(NUMBER, type=Decimal)), NUMBER)
compare("msgspec, a string", str(msgspec.json.decode(f'"{NUMBER}"', type=Decimal)), NUMBER)
PYTHON
venv/bin/python program.py
