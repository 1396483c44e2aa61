"""Koog's page as a program: all sixteen blocks are there, in order, and each shows what it promises."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forkserver

HOME = Path(__file__).parents[1]
EXAMPLE = HOME / "examples" / "koog_memory.py"
PAGE = HOME / "docs" / "koog.md"
HEADING = re.compile(r"^# (\d\d) (.+)$", re.MULTILINE)
NUMBERS = [f"{number:02}" for number in range(1, 17)]
PRINTED = [
    "01 Dark Theme",
    "02 Kotlin, Java, Python",
    "03 machine user",
    "04 <AgentMemory over FileMemoryProvider>",
    "05 Hello!",
    "06 FileMemoryProvider",
    "07 saved",
    "08 Memories found: John",
    "09 Kotlin",
    "10 another key is refused",
    "11 Kotlin",
    "12 Kotlin",
    "13 vim, git, docker",
    "14 Oops! Couldn't save: cannot write '…': Not a directory; …",
    "15 keeps every promise",
    "16 Kotlin, Java, Python",
]


def _blocks():
    """The source of each block under its number."""
    _, *parts = HEADING.split(EXAMPLE.read_text("utf-8"))
    return {number: (title, code) for number, title, code in zip(*[iter(parts)] * 3, strict=True)}


def test_it_prints_one_line_for_each_block(tmp_path):
    """It runs in an empty folder, without a warning, and leaves nothing behind."""
    ended = forkserver.run(
        [sys.executable, "-W", "error", str(EXAMPLE)],
        cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert len(lines) == len(PRINTED)
    for line, expected in zip(lines, PRINTED, strict=True):
        assert re.fullmatch(".*".join(map(re.escape, expected.split("…"))), line), line
    assert list(tmp_path.iterdir()) == []


def test_there_are_sixteen_blocks_in_order():
    """The headings count from 01 to 16."""
    assert [number for number, _ in HEADING.findall(EXAMPLE.read_text("utf-8"))] == NUMBERS


@pytest.mark.parametrize("number", NUMBERS)
def test_a_block_checks_what_it_shows(number):
    """Each has an assertion of its own, and prints under its own number."""
    _, code = _blocks()[number]
    assert any(isinstance(part, ast.Assert) for part in ast.walk(ast.parse(code)))
    assert re.findall(r'print\(\s*f?"(\d\d)', code) == [number] * code.count("print(")


def test_the_page_shows_the_same_blocks():
    """docs/koog.md has each block under the same number and title."""
    shown = re.findall(r"^#+ (\d\d) (.+)$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert shown == [(number, title) for number, (title, _) in _blocks().items()]


async def test_the_checks_can_fail(tmp_path):
    """A provider that keeps nothing does not get past the block that loads."""
    program = runpy.run_path(str(EXAMPLE))
    with pytest.raises(AssertionError):
        await program["loading"](program["NoMemory"]())
