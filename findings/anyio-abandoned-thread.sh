#!/usr/bin/env bash
# What an abandoned thread still holds.
# Guess: `abandon_on_cancel=True` means the same on both event loops: the thread keeps its place in the limiter until it ends (or: it
#   gives it back at once), and the end of the program waits for it (or: does not).
# What happens: on asyncio the place is free at once, so any number of abandoned threads runs beside a limit of two, and the program waits
#   for them before it ends. On trio each keeps its place until it ends, so two of them block the limiter, and the program ends without them.
# For users: with time limits over blocking calls that hang, asyncio collects threads without bound, and trio runs out of places.
# In graphagent: each call has a limiter of its own, abandoned threads are counted for the whole process, and above a number of them the
#   next call is an AbandonedThreadsError (graphagent/_functions.py, tests/run/test_blocking_functions.py).
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


import subprocess
import threading
import time

import anyio

print("anyio", version("anyio"), "trio", version("trio"))
print("guess: both loops do the same")


async def places():
    limiter, end = anyio.CapacityLimiter(2), threading.Event()
    begun = 0

    def hang():
        nonlocal begun
        begun += 1
        end.wait()

    for _ in range(5):
        with anyio.move_on_after(0.5):
            await anyio.to_thread.run_sync(hang, abandon_on_cancel=True, limiter=limiter)
    held = limiter.borrowed_tokens
    end.set()
    return f"{begun} of 5 calls began, {held} places held"


compare("asyncio", anyio.run(places, backend="asyncio"), "5 of 5 calls began, 0 places held")
compare("trio", anyio.run(places, backend="trio"), "2 of 5 calls began, 2 places held")

PROGRAM = """
import sys, time, anyio

async def main():
    with anyio.move_on_after(0.1):
        await anyio.to_thread.run_sync(time.sleep, 20, abandon_on_cancel=True)

anyio.run(main, backend=sys.argv[1])
"""
for backend, recorded in (("asyncio", "waits for the thread"), ("trio", "ends without it")):
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", PROGRAM, backend], check=True)
    found = "waits for the thread" if time.monotonic() - began > 18 else "ends without it"
    compare(f"the program on {backend}", found, recorded)
PYTHON
venv/bin/python program.py
