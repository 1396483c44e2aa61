"""Real processes, killed with SIGKILL in three lives: before a commit, behind one, or at any moment from outside."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import anyio
import pytest

from graphagent.store import SqliteStore
from tests.run.killed import PROGRAM
from tests.run.lives import Undisturbed, recorded_in
from tests.thorough import some

HOME = Path(__file__).parents[2]
PARTS, TRIPLES = 4, 300


@pytest.fixture
def live():
    """Have a process live: a function of a folder, how it dies and when, which returns its status."""
    command = [sys.executable, "-m", "tests.run.killed"]
    with subprocess.Popen(command, cwd=HOME, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:

        def live(folder, how, number):
            print(folder, how, number, file=server.stdin, flush=True)
            return int(server.stdout.readline())

        yield live
        server.stdin.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("part", range(PARTS))
def test_a_process_that_is_killed_in_three_lives_does_nothing_recorded_again(part, live, tmp_path):
    """Each triple of deaths follows from a seed. The end, the transcript and what models are sent are those of an undisturbed run.

    Two runs of a thread, with tool calls and branches at once, a sub-agent, questions, retries, a race and edits of the transcript.
    """
    whole, kills = anyio.run(lambda: Undisturbed.of(**PROGRAM)), Counter()
    for seed in some(range(part, TRIPLES, PARTS), 1, thorough=25, salt=f"kill {part}"):
        chance, folder, keys = random.Random(seed), tmp_path / str(seed), set()
        folder.mkdir()
        for _ in range(3):
            how = chance.choice(("before", "behind", "outside"))
            number = chance.randint(0, 60_000) if how == "outside" else chance.randint(1, len(whole.commits) // 2)
            status = anyio.run(lived, whole, live, folder, keys, how, number)
            kills[status] += 1
            if not status:
                break
        assert anyio.run(lived, whole, live, folder, keys, "never", 0) == 0
        for name, many in Counter(name for name, _ in keys).items():
            assert many <= whole.done[name], f"a call that is made again has another key: {keys}"
    assert kills.keys() <= {0, -signal.SIGKILL}
    assert kills[-signal.SIGKILL] > kills[0]


async def lived(whole, live, folder, keys, how, number):
    """Let a process live, and compare what it did with what was recorded before. Return its status."""
    world = whole.life.world
    async with SqliteStore(folder / "runs.db") as store:
        entries = await whole.life.entries(store)
    status = live(folder, how, number)
    world.begin(recorded_in(entries))
    said = None
    for kind, name, *key in written(folder / "effects"):
        if kind == "keys":
            world.keys.append((name, *key))
        elif kind == "said":
            said = name
        else:
            getattr(world, kind)[name] += 1
    keys.update(world.keys)
    whole.compare_begun(entries)
    if status == 0:
        async with SqliteStore(folder / "runs.db") as store:
            result = (await whole.life.agent(store).read("r1")).result
        whole.compare_ended(entries)
        assert said == whole.said
        assert result.memory.to_messages() == whole.memory.to_messages()
        assert result.usage == whole.usage
    return status


def written(path):
    """Give the lines that a life wrote, and have the next one begin."""
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return [json.loads(line) for line in lines]
