#!/usr/bin/env bash
# Values in a checkpoint of LangGraph: what its serializer gives back.
# Guess: it is careful, since it has its own types for sets, decimals and keys that are no text; so a tuple comes back as a tuple, and what it
#   cannot keep is refused.
# What happens: sets, decimals and a dict with tuples as keys come back. A tuple comes back as a list, also inside of lists, and half a
#   surrogate pair (a text cut in the middle of an emoji by a server) as a question mark, both silently. 2**64 is refused.
# For users: a state whose type says tuple is one until the first checkpoint is read; a comparison with what was stored fails afterwards.
# In graphagent: the codec keeps tuples, texts of any kind and integers of any size, each with a test (tests/codec/test_stored_bytes.py).
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check langgraph-checkpoint==4.3.2
cd "$folder"

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


from decimal import Decimal

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

print("langgraph-checkpoint", version("langgraph-checkpoint"))
print("guess: the same, or refused")

serializer = JsonPlusSerializer()


def again(value):
    try:
        return serializer.loads_typed(serializer.dumps_typed(value))
    except TypeError:
        return "refused"


for kept in ({1, 2}, Decimal("1.10"), {(1, 2): 3}):
    compare(f"{kept!r}", again(kept), kept)
compare("(1, 2)", again((1, 2)), [1, 2])
compare("[('a', 1)]", again([("a", 1)]), [["a", 1]])
compare("'Hi \\ud83d'", again("Hi \ud83d"), "Hi ?")
compare("2**64", again(2**64), "refused")
PYTHON
venv/bin/python program.py
