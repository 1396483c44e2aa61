"""Every example runs, offline and without a key."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.thorough import some

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").rglob("*.py"))


def test_there_are_examples():
    """The folder was found, so that the next test cannot pass by finding nothing."""
    assert EXAMPLES


@pytest.mark.parametrize("path", some(EXAMPLES, 6), ids=lambda path: path.stem)
def test_an_example_runs(path, tmp_path):
    """It ends well in an empty folder and with no key in the environment."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    ended = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout
