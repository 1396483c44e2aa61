"""Many processes that keep and find sealed notes at the same time: each goes on, and nothing is lost."""

from __future__ import annotations

import subprocess
import sys

import anyio

from graphagent.memory import Notes
from tests import forkserver
from tests.memory.notes.conftest import store_of

PROCESSES, ROUNDS = 8, 6

PROGRAM = """
import sys
from functools import partial
from pathlib import Path
import anyio
from graphagent.memory import Notes
from tests.memory.notes.conftest import store_of

async def main(folder, name, rounds, backend):
    async with Notes(store_of("sealed-file", Path(folder))) as notes:
        kept = await notes.remember(f"pear of {name}", scope=f"/{name}")
        print("ready", flush=True)
        sys.stdin.readline()  # so that all are at it at once
        for number in range(rounds):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(notes.remember, scope=f"/{name}"), f"pear {number} of {name}")
                tasks.start_soon(partial(notes.remember, scope="/shared"), f"apple {number} of {name}")
                tasks.start_soon(notes.recall, "pear")
                tasks.start_soon(notes.recall, "apple")
            if number % 3 == 1:
                await notes.forget(ids=[kept.id])
                kept = await notes.remember(f"pear again {number} of {name}", scope=f"/{name}")
            assert await notes.recall(f"pear of {name}")

anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], backend=sys.argv[4])
"""


def test_many_processes_keep_and_find_sealed_notes(tmp_path):
    """Each finds its own notes at any time, none fails, and all notes are there in the end."""
    children = [
        forkserver.Popen(
            [sys.executable, "-c", PROGRAM, tmp_path, f"p{number}", str(ROUNDS), ("asyncio", "trio")[number % 2]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    assert [child.stdout.readline() for child in children] == ["ready\n"] * PROCESSES
    for child in children:
        child.stdin.write("\n")
        child.stdin.flush()
    errors = [child.communicate()[1] for child in children]
    assert [child.returncode for child in children] == [0] * PROCESSES, "".join(errors)

    async def count():
        async with Notes(store_of("sealed-file", tmp_path)) as notes:
            return await notes.verify()

    assert anyio.run(count) == PROCESSES * (2 * ROUNDS + 1)
