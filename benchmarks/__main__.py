"""Measures and prints Markdown tables; `--write` puts them into their page in docs, between the comments that name them.

`python -m benchmarks recall --fit` fits the weights by which notes are ranked.
`python -m benchmarks locomo PATH` measures how well notes are found, with LoCoMo's data, which are not here.
`python -m benchmarks soak` shows memory, open files and threads over time.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import re
import sys
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
PICTURES = DOCS / "pictures"
NAMES = (
    "engine",
    "tools",
    "wrappers",
    "compare",
    "journal",
    "threads",
    "growth",
    "facts",
    "forgetting",
    "backups",
    "rotation",
    "anchor",
    "listing",
    "inspector",
    "processes",
    "imports",
    "embedders",
    "notes",
    "recall",
)
ON_SERVERS = ("postgres", "notes_postgres")
"""What is measured where it is named alone, since it starts servers."""


def main() -> None:
    """Measure what is named, or everything."""
    if sys.argv[1:2] == ["locomo"]:
        _quality(sys.argv[2:])
        return
    if sys.argv[1:2] == ["recall"]:
        _recall(sys.argv[2:])
        return
    if sys.argv[1:2] == ["soak"]:
        _soak(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        choices=[*NAMES, *ON_SERVERS, []],
        metavar="|".join([*NAMES, *ON_SERVERS]),
        help="what to measure",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--quick", action="store_true", help="tiny sizes: shows that everything runs; the figures say nothing"
    )
    how.add_argument(
        "--write", action="store_true", help="rewrite the tables of the pages in docs, and the pictures of them"
    )
    chosen = parser.parse_args()
    for name in chosen.names or NAMES:
        benchmark = importlib.import_module(f"benchmarks.{name}")
        tables = benchmark.report(quick=chosen.quick)
        text = _told(name, tables)
        if chosen.write:
            _write(name, text)
            for file, picture in benchmark.pictures(tables).items() if hasattr(benchmark, "pictures") else ():
                (PICTURES / file).write_text(picture, "utf-8")


def page_of(name: str) -> Path:
    """Return the page that has a benchmark's tables."""
    if name == "embedders":
        return DOCS / "embedders.md"
    return DOCS / (
        "notes-quality.md" if name in ("notes", "notes_postgres", "recall", "weights", "locomo") else "performance.md"
    )


def _recall(arguments: list[str]) -> None:
    """Measure how well notes are found on the project's own material, or fit the weights of their ranking on it."""
    from benchmarks import recall, weights

    chosen = recall.options(arguments)
    name, command, benchmark = ("weights", "recall --fit", weights) if chosen.fit else ("recall", "recall", recall)
    text = _told(command, benchmark.report(quick=chosen.quick))
    if chosen.write:
        _write(name, text)


def _quality(arguments: list[str]) -> None:
    """Measure how well notes are found with LoCoMo's data."""
    from benchmarks import locomo

    chosen = locomo.options(arguments)
    text = _told("locomo PATH", locomo.report(quick=chosen.quick, path=chosen.path))
    if chosen.write:
        _write("locomo", text)


def _soak(arguments: list[str]) -> None:
    """Show memory, open files and threads over time."""
    from benchmarks import soak

    chosen = soak.options(arguments)
    tables = soak.report(seconds=chosen.seconds, owners=chosen.owners, cache_bytes=chosen.cache_bytes)
    text = _told(f"soak --seconds {chosen.seconds:.0f}", tables)
    if chosen.write:
        _write("soak", text)


def _told(command: str, tables: str) -> str:
    text = f"{tables}\n\n*{_machine()}: `python -m benchmarks {command}`*"
    print(f"\n{text}", flush=True)
    return text


def _machine() -> str:
    info = Path("/proc/cpuinfo")
    models = re.findall(r"^model name\s*: (.+)$", info.read_text("utf-8"), re.MULTILINE) if info.exists() else []
    model = models[0] if models else platform.machine()
    return f"CPython {platform.python_version()}, {platform.system()}, {os.cpu_count()} cores of {model}"


def _write(name: str, text: str) -> None:
    path = page_of(name)
    page = path.read_text("utf-8")
    block = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not block.search(page):
        raise SystemExit(f"{path} has no block for {name!r}: <!-- {name} --> … <!-- /{name} -->")
    path.write_text(block.sub(lambda found: f"{found[1]}{text}\n{found[2]}", page), "utf-8")


if __name__ == "__main__":
    main()
