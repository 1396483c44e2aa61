#!/usr/bin/env bash
# A time limit inside an async generator that its reader leaves open.
# Guess: the limit is about the generator: the time that the reader takes between two values does not count, or at worst the next value is
#   a TimeoutError.
# What happens: the limit cancels the reader, in whatever it awaits outside of the generator, with a cancellation that no scope of the
#   reader catches. On both event loops.
# For users: a stream of a client library that has its time limit inside a generator may cancel your own code.
# In graphagent: a streamed run has a task of its own, owned by a plain iterator (graphagent/run/_stream.py,
#   tests/run/test_stream.py::test_streams_stand_in_task_groups_and_cancel_scopes).
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check anyio==4.16.0 trio==0.35.0
cd "$folder"

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


import anyio

print("anyio", version("anyio"), "trio", version("trio"))
print("guess: the reader sleeps for as long as it wants")


async def pieces():
    with anyio.move_on_after(0.1):
        yield "one"
        yield "two"


async def reader():
    stream = pieces()
    async for _ in stream:
        break
    try:
        await anyio.sleep(1)
        return "slept"
    except anyio.get_cancelled_exc_class() as error:
        return f"the reader was cancelled: {type(error).__name__}"
    finally:
        await stream.aclose()


for backend, kind in (("asyncio", "CancelledError"), ("trio", "Cancelled")):
    compare(backend, anyio.run(reader, backend=backend), f"the reader was cancelled: {kind}")
PYTHON
venv/bin/python program.py
