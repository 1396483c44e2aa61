"""Strategies made at random, stopped after every entry and gone on with by another agent over the same definition."""

from __future__ import annotations

import random

import anyio
import pytest
from hypothesis import HealthCheck, given, settings

from graphagent.errors import JournalError
from graphagent.store import EncryptedStore, MemoryStore, SqliteStore, new_key
from graphagent.testing import fixed_clock
from tests.run.lives import Mortal, Undisturbed, cut, entries_of, one_of, recorded_in, resumed, resumed_everywhere
from tests.run.worlds import parts
from tests.thorough import examples, some

MANY = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None, "derandomize": True}

backends = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def chosen(numbers):
    """Return the places of a run that are tried."""
    return some(numbers, 8, thorough=20)


async def stopped_everywhere(built, *, one=False):
    """Stop a run in three lives: the first time everywhere, then somewhere behind that, and again."""
    with fixed_clock(step_ms=0):
        whole, chance = await Undisturbed.of(built), random.Random(1)
        await resumed_everywhere(whole, whole.commits, chosen, one_of(chance), one_of(chance), one=one)


@backends
def test_a_run_stopped_after_any_entry_ends_the_same_with_nothing_done_twice(backend):
    """Output, transcript with its prompts, and usage are those of the undisturbed run; each recorded effect is done once.

    The strategies have loops, error paths, retries, strategies inside, forks inside forks, values changed in place, model
    turns, tools that wait for people, and questions. What goes on is stopped again, and what goes on then once more.
    """

    @settings(max_examples=examples(6, 2), **MANY)
    @given(parts(2, agents=True))
    def everywhere(built):
        anyio.run(stopped_everywhere, built, backend=backend)

    everywhere()


def test_questions_are_answered_one_by_one():
    """Several open questions are answered in several lives, and the answers that were given stay given."""

    @settings(max_examples=examples(6, 2), **MANY)
    @given(parts(1, agents=True))
    def everywhere(built):
        anyio.run(
            lambda: stopped_everywhere([*built, ("parallel", [[("human", 1)]] * 3, ("keep", None), False)], one=True)
        )

    everywhere()


async def broken_everywhere(built, how):
    """Have the store break at each commit, go on in the same process when it works again, and in another one."""
    with fixed_clock(step_ms=0):
        whole = await Undisturbed.of(built)
        for number in chosen(range(how != "refused", len(whole.commits) + 1)):
            await broken(whole, number, how, here=True)
            await broken(whole, number, how, here=False)


async def broken(whole, number, how, *, here):
    life = whole.life
    life.world.begin()
    store = Mortal(number, how)
    run = life.agent(store).start("the task", run_id="r")
    said = result = failed = None
    with anyio.CancelScope() as store.scope:
        try:
            said, result = await life.go_on(run)
        except JournalError as error:
            failed = error
    store.mend()
    if failed is not None:
        assert "the disk is" in str(failed)
    if here and said is None:
        said, result = await life.go_on(run)
    elif said is None:
        await in_another_process(whole, store)
        return
    whole.compare(said, result)


async def in_another_process(whole, store):
    left = await cut(store.commits)
    entries = await entries_of(left)
    whole.life.world.begin(recorded_in(entries))
    whole.compare(*await whole.life.live(left), entries)


@backends
@pytest.mark.parametrize("how", ["refused", "unheard", "cancelled"])
def test_a_commit_that_fails_loses_nothing(backend, how, caplog):
    """A full disk, a lost acknowledgement and a cancellation at any commit: the run goes on from there when the store works.

    In the same process not even what could not be recorded is done again.
    """

    @settings(max_examples=examples(5, 3), **MANY)
    @given(parts(1, agents=True))
    def everywhere(built):
        anyio.run(broken_everywhere, built, how, backend=backend)

    everywhere()


@pytest.mark.parametrize("kind", ["sqlite", "encrypted"])
def test_other_stores_keep_runs_as_well(kind, tmp_path):
    """In a file, and sealed, a run that was stopped goes on the same."""
    numbers, key = iter(range(10_000)), new_key()

    def made():
        folder = tmp_path / str(next(numbers))
        return SqliteStore(folder / "runs.db") if kind == "sqlite" else EncryptedStore(MemoryStore(), key)

    async def five(built):
        with fixed_clock(step_ms=0):
            whole = await Undisturbed.of(built, made())
            for number in range(1, len(whole.commits), max(len(whole.commits) // 5, 1)):
                await resumed(whole, whole.commits[:number], made())

    @settings(max_examples=4, **MANY)
    @given(parts(1, agents=True))
    def everywhere(built):
        anyio.run(five, built)

    everywhere()
