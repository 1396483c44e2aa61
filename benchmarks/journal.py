"""What it costs to commit each step of a run before the next begins: graphagent beside bare sqlite3, LangGraph and Burr.

Each engine works in a process of its own, and they are measured in turn. The files are made where TMPDIR says.
"""

from __future__ import annotations

import contextlib
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks import chart
from benchmarks.compare import HOME, PEERS, installed
from benchmarks.durable import MESSAGE, Order, Took
from benchmarks.measure import UNITS, Figure, figure, micro, milli, table, times, weight


@dataclass(frozen=True, slots=True)
class Engine:
    """One that keeps runs."""

    name: str
    module: str
    look: str
    """How its line is drawn."""
    options: Sequence[str] = ()
    needs: str = ""
    """What must be installed in the peers' environment; nothing for what runs in this one."""
    most: int = 4_000
    """Messages in the longest run that is asked of it."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    steps: int = 1_000
    grown: Sequence[int] = (250, 500, 1_000, 2_000, 4_000)
    runs: int = 50
    short: int = 40
    """Steps of each of those."""
    listed: int = 10_000
    rounds: int = 3
    many: int = 7
    """Rounds of what is measured in wall time."""


SMALL = Sizes(steps=3, grown=(2, 3), runs=2, short=2, listed=3, rounds=2, many=2)
PAGE, NOTE = 10 * 1024, 1024
BARE = Engine("bare sqlite3", "durable", "bare")
OURS = Engine("graphagent", "ours_durable", "ours")
SAVER = "langgraph.checkpoint.sqlite.aio"
LANGGRAPH = Engine("LangGraph", "peers.langgraph_durable", "first", needs=SAVER)
DELTA = Engine("LangGraph, DeltaChannel (beta)", "peers.langgraph_durable", "second", ("--delta",), SAVER)
BURR = Engine("Burr", "peers.burr_durable", "third", needs="burr.integrations.persisters.b_aiosqlite", most=1_000)
ENGINES = (BARE, OURS, LANGGRAPH, DELTA, BURR)
GROWN = "on disk after so many steps"


class Worker:
    """The process of an engine."""

    def __init__(self, engine: Engine) -> None:
        python = PEERS if engine.needs else sys.executable
        command = [python, "-m", f"benchmarks.{engine.module}", *engine.options]
        self.engine = engine
        self._process = subprocess.Popen(command, cwd=HOME, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        told = self._answer()
        self.name = f"{told['name']} {told['version']}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()  # a worker ends with its orders

    def obey(self, work: str, *, steps: int, runs: int = 1, size: int = 0, synchronous: str = "NORMAL") -> Took:
        """Have something measured, in a folder of its own."""
        with tempfile.TemporaryDirectory() as folder:
            order = Order(work, str(Path(folder, "runs.db")), synchronous, runs, steps, size)
            assert self._process.stdin is not None
            self._process.stdin.write(f"{json.dumps(asdict(order))}\n")
            self._process.stdin.flush()
            return Took(**self._answer())

    def _answer(self) -> dict:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.communicate()
            raise SystemExit(f"{self.engine.name} ended with {self._process.returncode} and no answer")
        return json.loads(line)


Found = Mapping[Worker, Sequence[Took]]


def report(*, quick: bool) -> str:
    """Measure all engines that are installed. Gives Markdown tables."""
    sizes = SMALL if quick else Sizes()
    with contextlib.ExitStack() as stack:
        there = [each for each in ENGINES if not each.needs or installed(each.needs)]
        workers = [stack.enter_context(Worker(engine)) for engine in there]
        for worker in workers:  # the first run of a process imports what later ones use
            worker.obey("rewrite", steps=3)
            worker.obey("grow", steps=3)
        whole = [worker for worker in workers if worker.engine is not DELTA]
        mine = [worker for worker in workers if worker.engine in (BARE, OURS)]
        missing = [each.name for each in ENGINES if each not in there]
        tables = [_rewritten(whole, sizes), _at_once(whole, sizes), *_grown(workers, sizes), _listed(mine, sizes)]
    if missing:
        tables.append(f"Not installed: {', '.join(missing)}; `make bench-peers` installs them.")
    return "\n\n".join(tables)


def _in_turn(workers: Sequence[Worker], rounds: int, work: str, **order: int | str) -> Found:
    found: dict[Worker, list[Took]] = {worker: [] for worker in workers}
    for number in range(rounds):
        for worker in workers[:: -1 if number % 2 else 1]:
            found[worker].append(worker.obey(work, **order))
    return found


def _figures(found: Found, what: str, units: int) -> Iterator[Figure]:
    """Give what each worker took of something for one of so many units, beside the first worker."""
    bare, *_ = ([getattr(took, what) for took in each] for each in found.values())
    for each in found.values():
        yield figure([getattr(took, what) for took in each], bare, units=units)


def _rewritten(workers: Sequence[Worker], sizes: Sizes) -> str:
    rows = [[worker.name] for worker in workers]
    for synchronous in ("NORMAL", "FULL"):
        found = _in_turn(workers, sizes.rounds, "rewrite", steps=sizes.steps, size=PAGE, synchronous=synchronous)
        cpu, wall = (_figures(found, what, sizes.steps) for what in ("cpu", "wall"))
        for row, spent, waited in zip(rows, cpu, wall, strict=True):
            row += [micro(spent.seconds), times(spent.ratio), micro(waited.seconds)]
    for row, took in zip(rows, found.values(), strict=True):
        row.append(times(statistics.median(each.bytes for each in took) / (sizes.steps * PAGE)))
    rows.append(["target", "", "≤ 2 ×", "", "", "≤ 2.5 ×", "", "≤ 1.3 ×"])
    head = ["CPU", "beside bare", "wall"]
    return table(["a step that keeps 10 KB", *head, *(f"FULL: {each}" for each in head), "file beside text"], rows)


def _at_once(workers: Sequence[Worker], sizes: Sizes) -> str:
    steps = sizes.runs * sizes.short
    order = {"runs": sizes.runs, "steps": sizes.short, "size": NOTE, "synchronous": "FULL"}
    found = _in_turn(workers, sizes.many, "rewrite", **order)
    rows = [
        [worker.name, f"{1 / wall.seconds:,.0f}", times(1 / wall.ratio), micro(cpu.seconds)]
        for worker, wall, cpu in zip(found, _figures(found, "wall", steps), _figures(found, "cpu", steps), strict=True)
    ]
    rows.append(["target", "≥ 10 × LangGraph", "", ""])
    return table([f"{sizes.runs} runs at once, FULL", "steps a second", "beside bare", "CPU a step"], rows)


def _grown(workers: Sequence[Worker], sizes: Sizes) -> list[str]:
    found = {
        steps: _in_turn([each for each in workers if each.engine.most >= steps], sizes.rounds, "grow", steps=steps)
        for steps in sizes.grown
    }

    def grid(what: str, cell: Callable[[Took, int], float], show: Callable[[float], str], target: str) -> str:
        rows = [["target", *[""] * (len(sizes.grown) - 1), target]]
        for worker in reversed(workers):
            row = [worker.name]
            for steps, took in found.items():
                row.append(
                    show(statistics.median(cell(each, steps) for each in took[worker])) if worker in took else ""
                )
            rows.insert(0, row)
        return table([what, *[f"{steps:,}" for steps in sizes.grown]], rows)

    return [
        grid(GROWN, lambda took, _: took.bytes, weight, "≤ 2 MB"),
        grid("CPU a step, with so many steps", lambda took, steps: took.cpu / steps, micro, "as 1,000, ± 15 %"),
        grid("CPU to go on after so many steps", lambda took, _: took.resume, milli, "≤ 15 ms"),
        grid("… and to look at every message", lambda took, _: took.read, milli, "≤ 30 ms"),
    ]


def _listed(workers: Sequence[Worker], sizes: Sizes) -> str:
    found = _in_turn(workers, sizes.rounds, "heads", runs=sizes.listed, steps=1)
    rows = [
        [worker.name, milli(cpu.seconds), times(cpu.ratio)]
        for worker, cpu in zip(found, _figures(found, "cpu", 1), strict=True)
    ]
    rows.append(["target", "≤ 50 ms", ""])
    return table([f"listing {sizes.listed:,} runs", "CPU", "beside bare"], rows)


def pictures(tables: str) -> dict[str, str]:
    """Draw what the tables say. Gives the pictures by the names of their files."""
    [block] = (each.splitlines() for each in tables.split("\n\n") if each.startswith(f"| {GROWN} |"))
    (_, *steps), _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in block)
    lines: list[chart.Line] = []
    for engine in sorted(ENGINES, key=lambda each: each is OURS):
        for named, *cells in rows:
            if re.fullmatch(rf"{re.escape(engine.name)} [\d.]+", named):
                points = [(_steps(at), _bytes(cell)) for at, cell in zip(steps, cells, strict=True) if cell]
                name, _, note = engine.name.partition(", ")
                lines.append(chart.Line(name, [cell for cell in cells if cell][-1], note, engine.look, points))
    title = "Bytes on disk of one run, by its length"
    note = f"Each step adds a message of {MESSAGE} bytes and is committed before the next."
    return {"growth.svg": chart.draw(title, note, "steps", lines, _plain)}


def _steps(cell: str) -> float:
    return float(cell.replace(",", ""))


def _bytes(cell: str) -> float:
    number, unit = cell.split()
    return float(number.replace(",", "")) * UNITS[unit]


def _plain(count: float) -> str:
    number, unit = weight(count).split()
    return f"{float(number):g} {unit}"
