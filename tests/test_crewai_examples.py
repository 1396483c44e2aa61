"""crewAI's page on memory as programs, all thirty-six blocks, and a crew of each process; each shows what it promises."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forkserver
from tests.thorough import some

HOME = Path(__file__).parents[1]
FOLDER = HOME / "examples" / "crewai"
CREWS = {
    "sequential": """\
Publish 'Connections' with 2 points?
published after ['research', 'write', 'guardrail', 'write', 'guardrail', 'review', 'review', 'publish']
""",
    "hierarchical": """\
Report: PostgreSQL takes twice as many connections as MySQL.
report/researcher/5 | PostgreSQL takes 10,000 connections, MySQL 5,000.
report/writer/21 | PostgreSQL takes twice as many connections as MySQL.
""",
}
PROGRAMS = sorted(path for path in FOLDER.glob("*.py") if path.stem not in CREWS)
PAGE = HOME / "docs" / "crewai.md"
HEADING = re.compile(r"^ *# (\d\d) (.+)$", re.MULTILINE)
NUMBERS = [f"{number:02}" for number in range(1, 37)]


def _headings():
    """Give the title of each block under its number, over all programs."""
    return sorted(found for path in PROGRAMS for found in HEADING.findall(path.read_text("utf-8")))


def test_there_are_thirty_six_blocks():
    """The headings of all programs together count from 01 to 36, each once."""
    assert [number for number, _ in _headings()] == NUMBERS


def test_the_page_shows_the_same_blocks_in_order():
    """docs/crewai.md has each block under the same number and title."""
    shown = re.findall(r"^#+ (\d\d) (.+)$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert shown == _headings()


def _run(path, folder):
    """Run a program in a folder, without a key, and with warnings as errors."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    return forkserver.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


@pytest.mark.parametrize("path", some(PROGRAMS, 3), ids=lambda path: path.stem)
def test_a_program_prints_a_line_for_each_of_its_blocks(path, tmp_path):
    """It runs in an empty folder, without a key and without a warning, says what it did under each number, and leaves nothing."""
    ended = _run(path, tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert not ended.stderr
    printed = {found for line in ended.stdout.splitlines() if (found := line[:2]) in NUMBERS}
    assert printed == {number for number, _ in HEADING.findall(path.read_text("utf-8"))}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_what_a_program_shows_is_checked(path):
    """Each async function that opens notes has an assertion, or calls one that has."""
    functions = [
        part for part in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(part, ast.AsyncFunctionDef)
    ]
    opening = [each for each in functions if "Notes(" in ast.unparse(each)]
    assert opening or "finds(" in path.read_text("utf-8")
    for each in opening:
        asserted = any(isinstance(part, ast.Assert | ast.Raise) for part in ast.walk(each))
        assert asserted or "finds(" in ast.unparse(each), each.name


@pytest.mark.parametrize("process", CREWS)
def test_a_crew_of_each_process_does_its_tasks(process, tmp_path):
    """The tasks are done in the order of the process, by those it names, and what the guardrail refuses is done again."""
    ended = _run(FOLDER / f"{process}.py", tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith(CREWS[process])
    assert list(tmp_path.iterdir()) == []


def test_the_page_names_a_program_for_each_process():
    """docs/crewai.md points to both, and shows crewAI's name of the process beside ours."""
    page = PAGE.read_text("utf-8")
    for process in CREWS:
        assert f"`{process}.py`" in page
        assert f"Process.{process}" in page
