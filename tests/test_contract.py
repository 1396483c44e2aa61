"""Programs that are promised to run as written, where they lie beside the repository."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests import forkserver

PROGRAMS = Path(__file__).parents[2] / "shared" / "contract"


@pytest.mark.skipif(not PROGRAMS.is_dir(), reason="the promised programs are not beside this repository")
@pytest.mark.parametrize(
    "name", ["01_remember", "02_facts", "03_steps", "04_durable", "05_notes", "06_graph", "07_fact_nodes"]
)
def test_a_promised_program_runs_unchanged(name, tmp_path):
    """It ends well and prints ok at its end; only the one that replays a run prints more."""
    command = [sys.executable, "-W", "error", str(PROGRAMS / f"{name}.py")]
    ended = forkserver.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    *said, last = ended.stdout.splitlines() or [""]
    assert (last, ended.returncode) == ("ok", 0), ended.stderr
    assert not said or name == "03_steps"
