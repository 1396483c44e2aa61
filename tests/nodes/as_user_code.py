"""A plugin of pytest that puts copies in the place of the ready-made nodes: what they do, anyone's nodes can do.

`python -m pytest -p tests.nodes.as_user_code tests/nodes` executes the tests with files that lie outside of graphagent.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path

import graphagent

NODES = Path(graphagent.__file__).parent / "nodes"
PACKAGE = "nodes_of_a_user"


def copy_nodes(folder):
    """Copy the ready-made nodes into a package of a folder, where they import one another. Return the files."""
    package = Path(folder) / PACKAGE
    package.mkdir()
    for path in NODES.glob("*.py"):
        text = path.read_text("utf-8").replace("from graphagent.nodes._", f"from {PACKAGE}._")
        (package / path.name).write_text(text, "utf-8")
    return sorted(package.iterdir())


def _loaded(package):
    files = (getattr(module, "__file__", None) for module in sys.modules.values())
    return {Path(file).name for file in files if file and Path(file).parent == package}


def pytest_configure(config):
    """Load the copies under the names of the ready-made nodes, before anything imports these."""
    folder = tempfile.TemporaryDirectory(prefix="graphagent-tests-")
    config.add_cleanup(folder.cleanup)
    files = copy_nodes(folder.name)
    sys.path.insert(0, folder.name)
    for path in files:
        name = "" if path.stem == "__init__" else f".{path.stem}"
        sys.modules[f"graphagent.nodes{name}"] = importlib.import_module(PACKAGE + name)
    graphagent.nodes = sys.modules["graphagent.nodes"]
    config.user_code = files


def pytest_sessionfinish(session):
    """Check that the tests had the copies, and nothing else."""
    files = session.config.user_code
    assert (_loaded(NODES), _loaded(files[0].parent)) == (set(), {path.name for path in files})
