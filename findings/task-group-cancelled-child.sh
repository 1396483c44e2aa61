#!/usr/bin/env bash
# A child of a task group that is cancelled from inside, such as by awaiting a task that somebody else cancelled.
# Guess: the group fails, as it does for every other exception of a child.
# What happens: the group ends as if the child had succeeded, in asyncio and in anyio. Nobody cancelled the child or the group; the
#   CancelledError came out of a library, and is dropped. Without a group, the same error goes through `except Exception`.
# For users: results that a child was to store are missing, without an error anywhere.
# In graphagent: such a cancellation is an error of the node or call (graphagent/run/_sleep.py,
#   tests/run/test_leaked_cancellations.py).
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check anyio==4.16.0
cd "$folder"

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


import asyncio
import platform

import anyio

print("anyio", version("anyio"), "on Python", platform.python_version())
print("guess: an ExceptionGroup with the CancelledError")


async def child(results):
    request = asyncio.ensure_future(asyncio.sleep(60))
    request.cancel()  # a client whose connection was closed, for example
    results.append(await request)


async def in_asyncio():
    results = []
    async with asyncio.TaskGroup() as group:
        group.create_task(child(results))
    return results


async def in_anyio():
    results = []
    async with anyio.create_task_group() as group:
        group.start_soon(child, results)
    return results


for main in (in_asyncio, in_anyio):
    try:
        found = f"no error, results {asyncio.run(main())}"
    except BaseException as error:
        found = repr(error)
    compare(main.__name__, found, "no error, results []")
PYTHON
venv/bin/python program.py
