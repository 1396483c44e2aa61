"""Two sizes of the test suite, chosen by one environment variable: `GRAPHAGENT_TESTS=thorough` executes every test in every way.

One repetition it leaves out as well: a test of notes that is not about scheduling has each kind of store on one event loop, and each loop
with some of the kinds, since a fault of one kind on one loop alone would be one of scheduling.

Without it the suite is fast. It leaves out no behaviour, only repetitions: an async test runs on one event loop, a test
of notes on one kind of store, a property with fewer examples, and a few dozen of the thousands of ways to damage a file or
of the moments at which a run can die, of which the thorough suite has hundreds. The commit decides which, so that a test
fails because of a commit and not because of a date, and other commits try others. `GRAPHAGENT_TESTS_SEED` repeats a choice:
`GRAPHAGENT_TESTS_SEED=caddaae65f6f make test`.
"""

from __future__ import annotations

import collections
import hashlib
import os
import random
import shutil
import subprocess
from pathlib import Path

HOME = Path(__file__).parents[1]
CODE = ("graphagent", "strategies", "tests")
THOROUGH = os.environ.get("GRAPHAGENT_TESTS") == "thorough"


def commit(home):
    """Return the beginning of the id of the commit that is checked out; without a repository, of a digest of the code."""
    if (home / ".git").exists() and shutil.which("git"):
        command = ["git", "rev-parse", "--verify", "--quiet", "HEAD"]
        found = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False).stdout
    else:
        found = ""
    files = sorted(path for folder in CODE for path in (home / folder).rglob("*.py"))
    return (found or hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest())[:12]


# Kept in the environment, so that all workers make the same choice.
SEED = os.environ.get("GRAPHAGENT_TESTS_SEED") or commit(HOME)
os.environ["GRAPHAGENT_TESTS_SEED"] = SEED


def some(cases, most, thorough=None, salt=""):
    """Return `most` of the cases in their order, others for each seed; if the suite is thorough all, or that many.

    `salt` separates calls that choose from equally many cases.
    """
    cases = list(cases)
    most = thorough if THOROUGH else most
    if most is None or len(cases) <= most:
        return cases
    chosen = random.Random(f"{SEED} {salt}").sample(range(len(cases)), most)
    return [cases[number] for number in sorted(chosen)]


def in_turn(cases, place, salt):
    """Return the case at a place where the cases take turns, of which each seed lets another begin."""
    [first] = some(range(len(cases)), 1, thorough=1, salt=salt)
    return cases[(first + place) % len(cases)]


def examples(number, most=20):
    """Return how many examples a property tries that tries `number` if the suite is thorough: at most `most` otherwise."""
    return number if THOROUGH else min(number, most)


def left_out(tests):
    """Return the positions of the tests that the seed leaves out.

    Each test is its name, its id, and those of its parameters of which one value is enough, each with its value,
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
            [chosen] = some(dict.fromkeys(repeated[parameter] for _, repeated in group), 1, salt=f"{key} {parameter}")
            found.update(position for position, repeated in group if repeated[parameter] != chosen)
    return found
