"""Two sizes of the test suite, chosen by one environment variable: `GRAPHAGENT_TESTS=thorough` executes everything.

Without it the suite is fast. It leaves out no behaviour, only repetitions: an async test runs on one event loop, a test
of notes on one kind of store, a property with fewer examples, and a few dozen of the thousands of ways to damage a
file. Which ones is drawn anew each day, so that successive days try different ones. `GRAPHAGENT_TESTS_DAY` repeats the
choice of a day: `GRAPHAGENT_TESTS_DAY=2026-11-22 make test`.
"""

from __future__ import annotations

import collections
import hashlib
import os
import random
from datetime import UTC, date, datetime

THOROUGH = os.environ.get("GRAPHAGENT_TESTS") == "thorough"

# Kept in the environment, so that all workers of a run that crosses midnight make the same choice.
DAY = date.fromisoformat(os.environ.setdefault("GRAPHAGENT_TESTS_DAY", datetime.now(UTC).date().isoformat()))


def some(cases, most, thorough=None, salt=""):
    """Return `most` of the cases in their order, others each day; if the suite is thorough all, or that many.

    `salt` separates calls that choose from equally many cases.
    """
    cases = list(cases)
    most = thorough if THOROUGH else most
    if most is None or len(cases) <= most:
        return cases
    chosen = random.Random(f"{DAY} {salt}").sample(range(len(cases)), most)
    return [cases[number] for number in sorted(chosen)]


def examples(number, most=20):
    """Return how many examples a property tries that tries `number` if the suite is thorough: at most `most` otherwise."""
    return number if THOROUGH else min(number, most)


def turn(name, ways):
    """Return which of `ways` a test of this name is executed in today: on as many days as there are ways, each once."""
    start = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    return ways[(start + DAY.toordinal()) % len(ways)]


def left_out(tests):
    """Return the positions of the tests whose turn is another day.

    Each test is its name, its id, and those of its parameters of which one value a day is enough, each with its value,
    as it stands in the id. Tests that differ in nothing else are repetitions of one another: of these, one is executed.
    """
    groups = collections.defaultdict(list)
    for position, (name, id_, repeated) in enumerate(tests):
        others = f"-{id_}-"
        for value in repeated.values():
            others = others.replace(f"-{value}-", "-", 1)
        groups[name, others, *repeated].append((position, repeated))
    found = set()
    for key, group in groups.items():
        for parameter in group[0][1]:
            today = turn(f"{key} {parameter}", list(dict.fromkeys(repeated[parameter] for _, repeated in group)))
            found.update(position for position, repeated in group if repeated[parameter] != today)
    return found
