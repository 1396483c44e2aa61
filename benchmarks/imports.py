"""What `import graphagent` costs: CPU time in fresh processes, and whether anything heavy came along.

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
TARGETS = {"asyncio, anyio": "", "graphagent": "≤ 100 ms", "graphagent, networkx": ""}
PROGRAM = f"""
import sys, time
began = time.process_time()
import {{module}}
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
    found: dict[str, list[dict]] = {module: [] for module in TARGETS}
    with tempfile.TemporaryDirectory() as compiled:
        for _ in range(2 if quick else 11):
            for module, each in found.items():
                each.append(_imported(module, compiled))
    return table(
        ["what", "CPU", "target", "modules", "memory", f"of {', '.join(HEAVY)}"], list(map(_row, found, found.values()))
    )


def _row(module: str, found: list[dict]) -> list[str]:
    middle = statistics.median(each["seconds"] for each in found[1:])
    memory = statistics.median(each["megabytes"] for each in found[1:])
    heavy = ", ".join(found[0]["heavy"]) or "none"
    return [f"`import {module}`", milli(middle), TARGETS[module], str(found[0]["modules"]), f"{memory:.0f} MB", heavy]


def _imported(module: str, compiled: str) -> dict:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    program = [sys.executable, "-c", PROGRAM.format(module=module)]
    ended = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(ended.stdout)
