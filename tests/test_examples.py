"""Every example runs, offline and without a key."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.compare import PEERS, installed
from tests import forkserver
from tests.thorough import some

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(path for path in FOLDER.rglob("*.py") if path.parent.name != "service")  # which has a test of its own


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


@pytest.mark.thorough
def test_a_run_is_a_step_of_a_dbos_workflow():
    """With the DBOS that `make bench-peers` installs."""
    if not installed("dbos"):
        pytest.skip("make bench-peers installs DBOS")
    program = FOLDER / "dbos_step.py"
    packages = os.pathsep.join(filter(None, sys.path))
    ended = subprocess.run(
        [PEERS, str(program)], env=os.environ | {"PYTHONPATH": packages}, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "paid\n"), ended.stderr
