#!/usr/bin/env bash
# A time limit around a call in a thread that is not abandoned.
# Guess: the block ends with TimeoutError, late, when the thread has ended.
# What happens: the block ends without an error and with the value, on asyncio and trio alike. The limit did cancel its scope, but the
#   await of the thread is shielded, and nothing else in the block waits for the cancellation to arrive.
# For users: `fail_after` says nothing about a blocking call inside it. Whoever needs to know asks the scope, or abandons the thread.
# In graphagent: graphagent/_functions.py abandons the thread of a blocking function; tests/run/test_blocking_functions.py.
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


import time

import anyio

print("anyio", version("anyio"), "trio", version("trio"))
print("guess: TimeoutError after 0.5 s")


async def main():
    began = time.monotonic()
    try:
        with anyio.fail_after(0.1) as scope:
            value = await anyio.to_thread.run_sync(lambda: time.sleep(0.5) or "value")
    except TimeoutError:
        return "TimeoutError"
    waited = "waited for the thread" if time.monotonic() - began > 0.4 else "did not wait"
    return f"{value}, {waited}, cancel_called={scope.cancel_called}, cancelled_caught={scope.cancelled_caught}"


for backend in ("asyncio", "trio"):
    recorded = "value, waited for the thread, cancel_called=True, cancelled_caught=False"
    compare(backend, anyio.run(main, backend=backend), recorded)
PYTHON
venv/bin/python program.py
