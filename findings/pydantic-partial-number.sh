#!/usr/bin/env bash
# The JSON of a model's answer, read while it arrives: `from_json(…, allow_partial=True)`, which leaves out what is not complete.
# Guess: each value is there when it is complete, and not before: as texts and `true` are.
# What happens: a number is there from its first digit on, as the number that its digits so far are. 1250 is 1, 12 and 125 before; 1.5e3 is 1
#   and 1.5. It is left out as long as it ends in a point or an e. A TypeAdapter with `experimental_allow_partial` checks these
#   numbers, so `le=100` accepts the beginning of an amount of 1250.
# For users: a program that acts as soon as a field is there, as it may with texts, acts on a part of the amount, the page or the id; what is drawn
#   meanwhile jumps. A number is complete once anything follows it.
# In graphagent: a number at the end of what has arrived is left out (graphagent/llm/_output.py).
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pydantic==2.14.4 pydantic-core==2.50.5
cd "$folder"

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


from typing import Annotated

from pydantic import Field, TypeAdapter
from pydantic_core import from_json
from typing_extensions import TypedDict

print(*(f"{name} {version(name)}" for name in ("pydantic", "pydantic-core")))
print("guess: one value of each field")

ANSWER = '{"name": "Ada", "paid": true, "amount": 1250, "rate": 1.5e3}'
BEGINNINGS = [ANSWER[:end] for end in range(1, len(ANSWER) + 1)]


def values(field):
    """Return the values that a field has one after the other, as the answer arrives."""
    found = [from_json(text, allow_partial=True).get(field) for text in BEGINNINGS]
    return list(dict.fromkeys(each for each in found if each is not None))


compare("name", values("name"), ["Ada"])
compare("paid", values("paid"), [True])
compare("amount", values("amount"), [1, 12, 125, 1250])
compare("rate", values("rate"), [1, 1.5, 1500.0])
compare("rate, at 1. and at 1.5e", [from_json(f'{{"rate": {end}', allow_partial=True) for end in ("1.", "1.5e")], [{}, {}])


class Payment(TypedDict, total=False):
    amount: Annotated[int, Field(le=100)]


def accepted(text):
    return TypeAdapter(Payment).validate_json(text, experimental_allow_partial=True)


compare("amount at most 100", [accepted('{"amount": 12'), accepted('{"amount": 1250}')], [{"amount": 12}, {}])
PYTHON
venv/bin/python program.py
