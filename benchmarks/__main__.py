"""Measures and prints Markdown tables; `--write` puts them into docs/performance.md, between the comments that name them."""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
PICTURES = PAGE.parent / "pictures"
NAMES = ("engine", "compare", "journal", "facts", "forgetting", "imports")


def main() -> None:
    """Measure what is named, or everything."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], metavar="|".join(NAMES), help="what to measure")
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--quick", action="store_true", help="tiny sizes: shows that everything runs; the figures say nothing"
    )
    how.add_argument(
        "--write", action="store_true", help=f"rewrite the tables of {PAGE.name}, and the pictures of them"
    )
    chosen = parser.parse_args()
    for name in chosen.names or NAMES:
        benchmark = importlib.import_module(f"benchmarks.{name}")
        tables = benchmark.report(quick=chosen.quick)
        text = f"{tables}\n\n*{_machine()}: `python -m benchmarks {name}`*"
        print(f"\n{text}", flush=True)
        if chosen.write:
            _write(name, text)
            for file, picture in benchmark.pictures(tables).items() if hasattr(benchmark, "pictures") else ():
                (PICTURES / file).write_text(picture, "utf-8")


def _machine() -> str:
    info = Path("/proc/cpuinfo")
    models = re.findall(r"^model name\s*: (.+)$", info.read_text("utf-8"), re.MULTILINE) if info.exists() else []
    model = models[0] if models else platform.machine()
    return f"CPython {platform.python_version()}, {platform.system()}, {os.cpu_count()} cores of {model}"


def _write(name: str, text: str) -> None:
    page = PAGE.read_text("utf-8")
    block = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not block.search(page):
        raise SystemExit(f"{PAGE} has no block for {name!r}: <!-- {name} --> … <!-- /{name} -->")
    PAGE.write_text(block.sub(lambda found: f"{found[1]}{text}\n{found[2]}", page), "utf-8")


if __name__ == "__main__":
    main()
