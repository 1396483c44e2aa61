"""The ready-made nodes use nothing of graphagent that is not public: in files of a user they do the same."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nodes.as_user_code import PACKAGE, copy_nodes
from tests.thorough import HOME, some

OF_FACTS = ("test_agent_memory.py", "test_facts_in_runs.py", "test_learning_faults.py")
FILES = [
    *(f"tests/nodes/{path.name}" for path in sorted(Path(__file__).parent.glob("test_*.py")) if path != Path(__file__)),
    *(f"tests/memory/facts/{name}" for name in OF_FACTS),
]


def test_nothing_that_a_node_imports_is_private(tmp_path):
    """Each module and name of graphagent has a path without an underscore, for type checkers too."""
    imported = set()
    for path in copy_nodes(tmp_path):
        for part in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(part, ast.Import):
                imported |= {each.name for each in part.names}
            elif isinstance(part, ast.ImportFrom):
                imported |= {f"{part.module}.{each.name}" for each in part.names}
    assert f"{PACKAGE}._model.Prompt" in imported
    assert "graphagent.run.Context" in imported
    assert [name for name in sorted(imported) if name.startswith("graphagent") and "._" in name] == []


@pytest.mark.parametrize("file", some(FILES, 1))
def test_nodes_in_files_of_a_user_pass_the_tests_of_the_ready_made_ones(file):
    """Each file of tests in the thorough suite and one in the fast suite, always on one event loop."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.nodes.as_user_code", "-p", "no:cacheprovider"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment.pop("GRAPHAGENT_TESTS", None)
    ended = subprocess.run([*command, file], cwd=HOME, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-8000:] + ended.stderr[-2000:]
