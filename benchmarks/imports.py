"""What importing graphagent costs: CPU time in fresh processes, and whether anything heavy came along.

As in an installed package, the modules are compiled already: to a folder of their own, by an import that does not count.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile

from benchmarks.measure import milli, table

HEAVY = ("openai", "networkx", "cryptography", "pydantic")
TARGETS = {
    "import asyncio, anyio": "",
    "import graphagent": "",
    "from graphagent import Agent": "≤ 1.7 × asyncio, anyio",
    "from graphagent import Agent; import networkx": "",
}
PROGRAM = f"""
import sys, time
began = time.process_time()
{{statement}}
took = time.process_time() - began
import json, resource
print(json.dumps({{{{
    "seconds": took,
    "heavy": sorted(set(sys.modules) & set({HEAVY})),
    "modules": len(sys.modules),
    "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
}}}}))
"""


def report(*, quick: bool) -> str:
    """Measure imports in fresh processes, in turn. Gives a Markdown table."""
    found: dict[str, list[dict]] = {statement: [] for statement in TARGETS}
    with tempfile.TemporaryDirectory() as compiled:
        for _ in range(2 if quick else 11):
            for statement, each in found.items():
                each.append(_imported(statement, compiled))
    return table(
        ["what", "CPU", "target", "modules", "memory", f"of {', '.join(HEAVY)}"], list(map(_row, found, found.values()))
    )


def _row(statement: str, found: list[dict]) -> list[str]:
    middle = statistics.median(each["seconds"] for each in found[1:])
    memory = statistics.median(each["megabytes"] for each in found[1:])
    heavy = ", ".join(found[0]["heavy"]) or "none"
    return [f"`{statement}`", milli(middle), TARGETS[statement], str(found[0]["modules"]), f"{memory:.0f} MB", heavy]


def _imported(statement: str, compiled: str) -> dict:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    program = [sys.executable, "-c", PROGRAM.format(statement=statement)]
    ended = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(ended.stdout)
