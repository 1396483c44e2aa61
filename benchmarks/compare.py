"""graphagent beside LangGraph, pydantic-graph and Burr, all at the same tasks, each in a process of its own.

The other engines live in .venv/peers, which `make bench-peers` makes from benchmarks/requirements.txt.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.measure import Figure, micro, milli, table, times

HOME = Path(__file__).parents[1]
PEERS = HOME / ".venv" / "peers" / "bin" / "python"
ENGINES = {"ours": Path(sys.executable), "peers.pydantic_graph": PEERS, "peers.burr": PEERS, "peers.langgraph": PEERS}
HEAD = [
    "engine", "a loop, per node", "a path of 100, per node", "fan-out of 100, per branch",
    "1,000 runs of 10 nodes, per run", "1,000 nodes made ready",
]  # fmt: skip


def report(*, quick: bool) -> str:
    """Measure all engines that are installed. Gives a Markdown table."""
    rows: list[list[str]] = []
    for module, python in ENGINES.items():
        package = module.removeprefix("peers.")
        if python is PEERS and not installed(package):
            rows.append([package, "not installed", *[""] * (len(HEAD) - 2)])
            continue
        found = _measured(module, python, quick=quick)
        figures = {task: Figure(**each) for task, each in found["tasks"].items()}
        built = figures.pop("build")
        if not rows:
            rows.append(["bare Python", *[micro(each.bare) for each in figures.values()], ""])
        cells = [f"{times(each.ratio)} ({micro(each.seconds)})" for each in figures.values()]
        rows.append([f"{found['name']} {found['version']}", *cells, milli(built.seconds)])
    return table(HEAD, rows)


def installed(package: str) -> bool:
    """Tell whether the peers' environment is there and has a package."""
    program = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({package!r}) is None)"
    return PEERS.exists() and subprocess.run([PEERS, "-c", program], check=False).returncode == 0


def _measured(module: str, python: Path, *, quick: bool) -> dict:
    options = ["--quick"] if quick else []
    ended = subprocess.run(
        [python, "-m", f"benchmarks.{module}", *options], cwd=HOME, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(ended.stdout.splitlines()[-1])
