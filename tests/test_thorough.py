"""What the fast suite leaves out on one day it executes on another, and the thorough suite leaves out nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

import pytest

from tests import thorough

LOOPS, KINDS = ("asyncio", "trio"), ("file", "sealed-file", "memory")
TESTS = [
    ("tests/test_a.py::test_a", f"{loop}-{case}-{kind}", {"anyio_backend": loop, "kind": kind})
    for case in ("one", "two")
    for loop in LOOPS
    for kind in KINDS
]


@pytest.fixture
def days(monkeypatch):
    """Seven days in a row, on each of which the suite is fast."""
    monkeypatch.setattr(thorough, "THOROUGH", False)

    def following():
        for number in range(7):
            monkeypatch.setattr(thorough, "DAY", date(2026, 11, 22) + timedelta(number))
            yield number

    return following()


def test_each_case_is_executed_once_a_day_and_in_every_way_within_a_week(days):
    """One event loop and one kind of store at a time; six days have them all."""
    executed = []
    for _ in days:
        out = thorough.left_out(TESTS)
        today = [id_ for position, (_, id_, _) in enumerate(TESTS) if position not in out]
        assert sorted(each.split("-")[1] for each in today) == ["one", "two"]
        executed += today
    assert set(executed) == {id_ for _, id_, _ in TESTS}


def test_a_test_that_exists_in_one_way_only_is_never_left_out(days):
    """Nor is one that exists on one loop, but with two kinds: of these it has one each day."""
    for _ in days:
        assert thorough.left_out(TESTS[:1]) == set()
        assert len(thorough.left_out(TESTS[:2])) == 1


def test_some_cases_are_others_each_day_and_keep_their_order(days):
    """After a week, most cases have been among them."""
    seen = set()
    for _ in days:
        today = thorough.some(range(20), 8)
        assert len(today) == 8
        assert today == sorted(today)
        seen.update(today)
    assert len(seen) > 15
    assert thorough.some("abc", 3) == ["a", "b", "c"]


def test_the_thorough_suite_has_all(monkeypatch):
    """All cases, and as many examples as a property asks for."""
    monkeypatch.setattr(thorough, "THOROUGH", True)
    assert thorough.some(range(20), 8) == list(range(20))
    assert len(thorough.some(range(20), 8, 15)) == 15
    assert thorough.examples(400) == 400


def test_the_fast_suite_tries_few_examples(days):
    """A property that asks for fewer has as many as it asks for."""
    next(days)
    assert [thorough.examples(number) for number in (6, 20, 400)] == [6, 20, 20]
    assert thorough.examples(12, 4) == 4


def collected(*words, size):
    """Return the ids of the tests that pytest would execute."""
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", *words],
        cwd=Path(__file__).parents[1], env={**os.environ, "GRAPHAGENT_TESTS": size},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {line for line in ended.stdout.splitlines() if "::" in line}


@pytest.mark.thorough
def test_what_is_executed_depends_on_what_a_test_is_about():
    """Each test of a file is in the fast suite; one about scheduling has both loops, and one that is named has all repetitions."""
    views, forks = "tests/memory/notes/test_views.py", "tests/run/test_forks.py"
    fast, whole = collected(views, size=""), collected(views, size="thorough")
    assert fast < whole
    assert len(fast) * 4 < len(whole)
    assert {each.partition("[")[0] for each in fast} == {each.partition("[")[0] for each in whole}
    [name] = {each.partition("[")[0] for each in whole if "test_owners_have_nothing_of_one_another" in each}
    assert collected(name, size="") == {each for each in whole if each.startswith(f"{name}[")}
    assert collected(forks, size="") == collected(forks, size="thorough")
