"""Koog's nodes, subgraphs and strategies as programs: every name has an example, which runs against a real server, too."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from graphagent.testing import openai_server
from tests import forkserver
from tests.replies import reply
from tests.thorough import some

HOME = Path(__file__).parents[1]
FOLDER = HOME / "examples" / "koog"
PROGRAMS = sorted(path for path in FOLDER.glob("*.py") if path.name != "index.py")
EXAMPLES = runpy.run_path(str(FOLDER / "index.py"))["EXAMPLES"]


def _shown(path):
    """Give the names of the functions that a program shows, in order."""
    calls = [part for part in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(part, ast.Call)]
    return [each.id for call in calls if getattr(call.func, "id", "") == "show" for each in call.args]


def test_every_name_has_an_example_and_every_example_a_name():
    """The table of the index says where each is."""
    shown = {f"{path.name} {name}" for path in PROGRAMS for name in _shown(path)}
    assert shown == set(EXAMPLES.values())
    assert all(len(_shown(path)) == len(set(_shown(path))) > 3 for path in PROGRAMS)


def test_the_page_has_the_same_table():
    """docs/koog.md names the program and the function for each name in Koog."""
    rows = re.findall(
        r"^\| `(.+?)` \| `(\w+\.py)` \| `(\w+)` \|$", (HOME / "docs" / "koog.md").read_text("utf-8"), re.MULTILINE
    )
    assert [(name, f"{program} {function}") for name, program, function in rows] == list(EXAMPLES.items())


@pytest.mark.parametrize("path", some(PROGRAMS, 2), ids=lambda path: path.stem)
def test_a_program_asks_a_server(path, tmp_path):
    """With --model and --base-url the same examples run against it, one line each."""
    with openai_server(reply, model="local") as server:
        ended = forkserver.run(
            [sys.executable, "-W", "error", str(path), "--model", "local", "--base-url", server.base_url],
            cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        asked = len(server.requests)
    assert ended.returncode == 0, ended.stderr
    assert [line.partition(":")[0] for line in ended.stdout.splitlines()] == _shown(path)
    assert asked
