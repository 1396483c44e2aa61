"""The fast suite leaves out repetitions only, another seed leaves out others, and the thorough suite next to nothing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests import thorough

TESTS = [
    ("tests/test_a.py::test_a", f"{loop}-{case}-{kind}", {"anyio_backend": loop, "kind": kind})
    for case in ("one", "two")
    for loop in ("asyncio", "trio")
    for kind in ("file", "sealed-file", "memory")
]


@pytest.fixture
def seeds(monkeypatch):
    """The seeds of many commits."""
    monkeypatch.setattr(thorough, "THOROUGH", False)
    return (monkeypatch.setattr(thorough, "SEED", f"{number:012x}") for number in range(50))


def test_each_case_is_executed_once_and_in_every_way_by_some_commit(seeds):
    """One event loop and one kind of store at a time; and what exists in one way only is never left out."""
    executed = set()
    for _ in seeds:
        out = thorough.left_out(TESTS)
        chosen = [id_ for position, (_, id_, _) in enumerate(TESTS) if position not in out]
        assert sorted(each.split("-")[1] for each in chosen) == ["one", "two"]
        executed.update(chosen)
        assert thorough.left_out(TESTS[:1]) == set()
    assert executed == {id_ for _, id_, _ in TESTS}


def test_some_cases_are_others_for_each_commit_and_keep_their_order(seeds, monkeypatch):
    """Few and in order; over many commits, all of them. The thorough suite has all at once, or as many as it asks for."""
    seen = set()
    for _ in seeds:
        chosen = thorough.some(range(20), 8)
        assert chosen == thorough.some(range(20), 8) == sorted(chosen)
        assert len(chosen) == 8
        seen.update(chosen)
    assert seen == set(range(20))
    assert [thorough.examples(number) for number in (6, 400)] == [6, 20]
    monkeypatch.setattr(thorough, "THOROUGH", True)
    assert [len(thorough.some(range(20), *most)) for most in ((8,), (8, 15))] == [20, 15]
    assert thorough.examples(400) == 400


def test_each_loop_has_some_of_the_kinds_and_over_many_commits_all(seeds, monkeypatch):
    """In the thorough suite too, where each kind of store has one loop."""
    monkeypatch.setattr(thorough, "THOROUGH", True)
    loops = {tuple(thorough.in_turn(("asyncio", "trio"), place, "test_a") for place in range(4)) for _ in seeds}
    assert loops == {("asyncio", "trio") * 2, ("trio", "asyncio") * 2}


def test_without_a_repository_the_code_decides(tmp_path):
    """The seed is the same until a file changes."""
    (tmp_path / "tests").mkdir()
    seeds = []
    for text in ("first", "first", "second"):
        (tmp_path / "tests" / "test_a.py").write_text(text)
        seeds.append(thorough.commit(tmp_path))
    assert [seeds[0] == each for each in seeds] == [True, True, False]


@pytest.mark.thorough
def test_what_is_left_out_are_repetitions():
    """The fast suite has each test of a file, and all ways of one that is named."""

    def collected(what, **environment):
        command = [sys.executable, "-m", "pytest", "--collect-only", what]
        environment = {**os.environ, "GRAPHAGENT_TESTS": "", **environment}
        ended = subprocess.run(command, cwd=thorough.HOME, env=environment, capture_output=True, text=True, check=True)
        return {line for line in ended.stdout.splitlines() if "::" in line}

    file = "tests/memory/notes/test_views.py"
    fast, whole = collected(file), collected(file, GRAPHAGENT_TESTS="thorough")
    assert len(fast) * 3 < len(whole)
    assert {each.partition("[")[0] for each in fast} == {each.partition("[")[0] for each in whole}
    name = min(whole).partition("[")[0]
    assert collected(name) >= {each for each in whole if each.startswith(f"{name}[")}
