"""Journals that 0.1 wrote: each is read, resumed after any entry, forked, and executed again, as 0.1 did.

The journals, and what 0.1 made of them, are in `golden/data`; `golden/make.py` wrote both, from `golden/strategies.py`. Everything
here uses public names alone, so it holds for any other way to read the same journals.
"""

from __future__ import annotations

import os
import random

import anyio
import pytest

from graphagent.store import EncryptedStore, SqliteStore, new_key
from tests.run.golden import journals
from tests.run.golden.strategies import SCENARIOS

THOROUGH = os.environ.get("GRAPHAGENT_TESTS") == "thorough"
"""Whether each journal is cut after every entry; otherwise after some that are chosen at random, always the same."""
FEW = 6
"""How many cuts, forks and reruns of each journal are tried otherwise."""

each_journal = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)


def chosen(what, scenario):
    """Return some of the places of a journal."""
    places = list(what)
    if THOROUGH or len(places) <= FEW:
        return places
    return random.Random(scenario.name).sample(places, FEW)


@each_journal
def test_a_journal_of_01_is_read_as_it_was(scenario):
    """Its history, and after each entry places, values, questions, counts and the transcript."""

    async def read():
        expected = journals.read_expected(scenario.name)
        store = await journals.stored(journals.read_journal(scenario.name))
        assert await journals.read_whole(scenario, store) == {name: expected[name] for name in ("history", "read")}
        for number, state in expected["states"].items():
            assert await journals.state_after(scenario, store, int(number)) == state, f"after entry {number}"

    anyio.run(read)


@each_journal
def test_a_journal_of_01_is_resumed_after_any_entry(scenario):
    """A process that was killed after an entry is continued: output, transcript, what is spent, and nothing is done twice."""

    async def resume():
        records, expected = journals.read_journal(scenario.name), journals.read_expected(scenario.name)["resumed"]
        for number in chosen(expected, scenario):
            found = await journals.resumed_after(scenario, records, int(number))
            assert not found["again"]
            assert found == expected[number], f"after entry {number}"

    anyio.run(resume)


@each_journal
def test_a_journal_of_01_is_forked(scenario):
    """At every entry, before and after every node: a fork ends as it did, and does what it did."""

    async def fork():
        records, expected = journals.read_journal(scenario.name), journals.read_expected(scenario.name)
        places = journals.places_of(records, expected["history"])
        assert places.keys() == expected["forked"].keys()
        for name in chosen(places, scenario):
            found = await journals.forked_from(scenario, records, places[name])
            assert found == expected["forked"][name], name

    anyio.run(fork)


@each_journal
def test_a_journal_of_01_is_executed_again(scenario):
    """On its recorded effects, all of them or those up to an entry."""

    async def rerun():
        records, expected = journals.read_journal(scenario.name), journals.read_expected(scenario.name)["rerun"]
        for number in ["None", *chosen([each for each in expected if each != "None"], scenario)]:
            found = await journals.rerun_of(scenario, records, None if number == "None" else int(number))
            assert found == expected[number], f"until {number}"
        assert not expected["None"]["done"]

    anyio.run(rerun)


@pytest.mark.parametrize("kind", ["sqlite", "encrypted"])
@pytest.mark.parametrize("name", ["forks", "asking_sub_agents", "payloads"])
def test_other_stores_take_a_journal_of_01_as_well(kind, name, tmp_path):
    """In a file, and sealed: read, and resumed in its middle."""
    [scenario] = [each for each in SCENARIOS if each.name == name]

    async def resume():
        records, expected = journals.read_journal(name), journals.read_expected(name)
        number = sorted(expected["resumed"], key=int)[len(expected["resumed"]) // 2]
        async with SqliteStore(tmp_path / "runs.db") as file:
            store = file if kind == "sqlite" else EncryptedStore(file, new_key())
            assert await journals.resumed_after(scenario, records, int(number), store) == expected["resumed"][number]

    anyio.run(resume)
