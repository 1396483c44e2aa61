"""Programs with everything in them that die in three lives, at any commit, and are gone on with by other agents over the same store.

What is recorded is not done again, the models are sent nothing that an undisturbed run does not send them, and the end is the same.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import anyio
import pytest

from graphagent.log._entries import Asked, EffectRecorded
from graphagent.testing import fixed_clock
from tests.run.lives import Mortal, Undisturbed, broken, cut, one_of, resumed_everywhere
from tests.thorough import SEED, some

SMALL = {
    "tools in one turn": {"built": [("model", 3)], "tasks": ["task 3"]},
    "an edited transcript": {"built": [("model", 2)], "tasks": ["task 7"], "edits": True},
    "a sub-agent": {"built": [("agent", [("work", 1), ("model", 1)])], "tasks": ["task 2"]},
    "a sub-agent that is a tool": {"built": [("helper", 2)], "tasks": ["task 3"]},
    "a question in a sub-agent": {"built": [("agent", [("human", 1), ("work", 0)])]},
    "parallel branches": {"built": [("parallel", [[("work", 1)], [("human", 1)]], ("keep", None), False)]},
    "a race": {"built": [("race", [("model", 1)], "keep")], "tasks": ["task 3"]},
    "retries": {"built": [("flaky", 2), ("sub", [("model", 0), ("work", 1)], True)]},
    "a thread": {"built": [("model", 0), ("human", 1)], "tasks": ["one", "two", "three"]},
}
LARGE = {
    "built": [
        ("note", 1), ("model", 3), ("flaky", 2), ("helper", 1),
        ("sub", [("work", 1), ("model", 2)], True),
        ("parallel", [[("plain", 0), ("model", 2)], [("human", 1)], [("plain", 1), ("agent", [("model", 2)])]], ("keep", None), False),
        ("each", [("work", 1), ("agent", [("human", 1)])], 2, ("drop", 2), True),
        ("race", [("model", 1)], "keep"), ("caught", [("model", 1)]), ("loop", [("work", 0)]),
    ],
    "tasks": ["task 31", "more 31", "again 31"], "edits": True,
}  # fmt: skip
WAYS = ("refused", "unheard", "cancelled")


async def undisturbed(program):
    """Give the undisturbed run of a program."""
    whole = await Undisturbed.of(**program)
    whole.compared = False  # there are so many lives
    return whole


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("name", SMALL)
def test_a_small_program_is_killed_at_every_three_commits(name, backend):
    """All triples, on one loop: the process dies behind a commit, the next one behind a later one, and the third one too."""

    async def everywhere():
        with fixed_clock(step_ms=0):
            whole = await undisturbed(SMALL[name])
            first = partial(some, most=3, salt=name)
            later = partial(some, most=1, thorough=None if backend == "asyncio" else 1, salt=name)
            await resumed_everywhere(whole, whole.commits, first, later, later)

    anyio.run(everywhere, backend=backend)


@pytest.mark.parametrize("name", SMALL)
async def test_a_small_program_breaks_off_at_every_commit_before_it_and_behind_it(name):
    """The store refuses a commit, or is gone behind it, or the run is cancelled there, in three lives."""
    with fixed_clock(step_ms=0):
        whole = await undisturbed(SMALL[name])
        cases = [(number, way) for number in range(1, len(whole.commits) + 1) for way in WAYS]
        for number, way in some(cases, 6, salt=name):
            await broken_thrice(whole, random.Random(f"{name} {number} {way}"), number, way)


async def broken_thrice(whole, chance, number, way):
    """Break three lives off, the first one at this commit, and live once more. A call that is made again has the key that it had."""
    store, keys = Mortal(), set()
    for _ in range(3):
        ended = await broken(whole, store, number, way)
        keys.update(whole.life.world.keys)
        if ended:
            break
        number, way = chance.randint(1, max(len(whole.commits) - len(store.commits), 1)), chance.choice(WAYS)
    assert await broken(whole, store, -1, "")
    keys.update(whole.life.world.keys)
    for name, many in Counter(name for name, _ in keys).items():
        assert many <= whole.done[name], [key for key in keys if key[0] == name]


@pytest.mark.one_value("way")
@pytest.mark.parametrize("way", ["killed", "broken"])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_program_with_everything_in_it_survives_three_deaths(backend, way):
    """Parallel tool calls, branches, a race, sub-agents, questions, retries and edited transcripts, in a thread of three runs."""

    async def somewhere():
        with fixed_clock(step_ms=0):
            whole = await undisturbed(LARGE)
            chance = random.Random(SEED)
            for number in some(range(1, len(whole.commits)), 1, thorough=8, salt=f"{backend} {way}"):
                if way == "broken":
                    await broken_thrice(whole, chance, number, chance.choice(WAYS))
                else:
                    await resumed_everywhere(
                        whole, whole.commits, lambda _, number=number: [number], one_of(chance), one_of(chance)
                    )

    anyio.run(somewhere, backend=backend)


@pytest.mark.thorough
async def test_there_is_everything_in_it():
    """The program does what its name says, so that its deaths are worth something."""
    with fixed_clock(step_ms=0):
        whole = await undisturbed(LARGE)
        entries = [each.entry for each in await whole.life.entries(await cut(whole.commits))]
    done = Counter(type(each).__name__ for each in entries)
    effects = Counter(each.kind for each in entries if isinstance(each, EffectRecorded))
    asked = {each.kind for each in entries if isinstance(each, Asked)}
    assert asked == {"question", "approval", "result"}
    assert min(effects[kind] for kind in ("turn", "tool", "once", "check", "answer", "add")) >= 9
    assert min(done[kind] for kind in ("AgentStarted", "BranchesStarted", "TranscriptEdited", "NodeRetried")) >= 6
