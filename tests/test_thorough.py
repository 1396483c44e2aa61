"""What the fast suite leaves out on one day it executes on another, and the thorough suite leaves out nothing."""

from __future__ import annotations

from datetime import date, timedelta

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
