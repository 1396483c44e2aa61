#!/usr/bin/env bash
# Two tasks of one program, and a lock of the module: `lock = AsyncFileLock("work.lock")`, then `async with lock:` in each.
# Guess: one task waits until the other has left, as with `asyncio.Lock`; and processes wait for each other too, which the file is for.
# What happens: both are inside at once. The lock is reentrant by counting, for the object and not for the task, so each further task enters at
#   once and counts one up. Two objects for the same file exclude each other, in the same loop too; `is_singleton=True` makes them one again.
# For users: a task overwrites what another task of its process has written. Two processes do not, and these are what such a lock is tested with.
#   The example of the library for `async with` has its lock in the module. Create a lock where it is used, or hold an `asyncio.Lock` around it.
# In graphagent: filelock is not used; a store excludes other processes by locks of its database.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check filelock==4.3.1
cd "$folder"

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


import asyncio

from filelock import AsyncFileLock

print("filelock", version("filelock"))
print("guess: 10, each time")


async def counted(lock_of_task):
    """Return what a counter is after ten tasks have read it, waited, and written it, each with its lock."""
    count = 0

    async def add():
        nonlocal count
        async with lock_of_task():
            before = count
            await asyncio.sleep(0.02)
            count = before + 1

    await asyncio.gather(*(add() for _ in range(10)))
    return count


async def main():
    shared, plain = AsyncFileLock("shared"), asyncio.Lock()
    return [
        await counted(lambda: plain),
        await counted(lambda: AsyncFileLock("own", poll_interval=0.01)),
        await counted(lambda: shared),
        await counted(lambda: AsyncFileLock("singleton", is_singleton=True)),
    ]


plain, own, shared, singleton = asyncio.run(main())
compare("one asyncio.Lock", plain, 10)
compare("an AsyncFileLock in each task", own, 10)
compare("one AsyncFileLock", shared, 1)
compare("AsyncFileLock(…, is_singleton=True) in each task", singleton, 1)
PYTHON
venv/bin/python program.py
