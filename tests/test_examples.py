"""Every example runs, offline and without a key."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forkserver
from tests.thorough import some

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").rglob("*.py"))


def test_there_are_examples():
    """The folder was found, so that the next test cannot pass by finding nothing."""
    assert EXAMPLES


@pytest.mark.parametrize("path", some(EXAMPLES, 6), ids=lambda path: path.stem)
def test_an_example_runs_and_leaves_nothing(path, tmp_path):
    """It ends well with no key in the environment; its files are temporary ones, not in the current folder, and are removed."""
    here, temporary = tmp_path / "here", tmp_path / "temporary"
    here.mkdir()
    temporary.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    environment["TMPDIR"] = str(temporary)
    ended = forkserver.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=here, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout
    assert [*here.iterdir(), *temporary.iterdir()] == []
