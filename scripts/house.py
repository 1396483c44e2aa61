"""Measure the structure of the library: `make house` prints a table of what is, beside what is aimed at.

Two kinds of figures: how much code executes for one durable model turn, one saved fact and one recall, from a trace; and
what the source says about sizes, import cycles, names and docstrings. It takes a few seconds.
"""

from __future__ import annotations

import ast
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import FrameType

import anyio
import networkx as nx

from graphagent import END, START, Agent, Strategy
from graphagent.events import NodeStarted
from graphagent.memory import Concept, Notes, Scope, SingleFact, StoreMemoryProvider, Subject
from graphagent.nodes import llm_request
from graphagent.store import SqliteStore
from graphagent.testing import ScriptedModel

HOME = Path(__file__).parents[1]
PACKAGE = HOME / "graphagent"
GENERATED = ("blocking_types.py",)
TARGETS = {
    "model turn: functions": "≤ 70",
    "model turn: files": "≤ 14",
    "model turn: file switches": "≤ 60",
    "files that interpret entry kinds": "the reducer and renderers",
    "lines": "≤ 35,000",
    "largest import cycle in run": "≤ 3",
    "public names": "≤ 260",
    "private functions used once, % of all functions": "≤ 9",
    "docstrings that begin with “Give”": "0",
    "class names used more than once": "0",
}
LONG_MODULE, LONG_FUNCTION = 450, 60

Function = ast.FunctionDef | ast.AsyncFunctionDef


# How much executes


@dataclass
class Trace:
    """Records which functions of the package this thread calls, in order.

    Each frame counts once, however often a coroutine is resumed. Comprehensions do not count, because whether they have
    frames of their own depends on the version of Python; nor do other threads, such as those of a store.
    """

    called: list[tuple[str, str, int]] = field(default_factory=list)
    frames: set[FrameType] = field(default_factory=set)
    """Kept until the end, so that no two frames have the same identity."""

    def start(self) -> None:
        """Trace this thread from now on."""
        sys.setprofile(self._event)

    def stop(self) -> None:
        """Trace no longer."""
        sys.setprofile(None)
        self.frames.clear()

    def _event(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event != "call" or frame in self.frames or not code.co_filename.startswith(f"{PACKAGE}/"):
            return
        self.frames.add(frame)
        if not re.fullmatch("<(?!lambda).*>", code.co_name):
            self.called.append((code.co_filename, code.co_name, code.co_firstlineno))

    def figures(self, name: str) -> dict[str, int]:
        """Return the numbers of distinct functions, distinct files, and calls from one file into another."""
        files = [file for file, *_ in self.called]
        return {
            f"{name}: functions": len(set(self.called)),
            f"{name}: files": len(set(files)),
            f"{name}: file switches": sum(one != two for one, two in pairwise(files)),
        }


async def model_turn(folder: Path) -> Trace:
    """Trace a run of one model turn from the start of its node until its last journal entry is committed.

    It is the second run of its agent: the first one prepares the strategy.
    """
    trace = Trace()
    async with SqliteStore(folder / "runs.db") as store:
        strategy = Strategy("measured", START >> llm_request(tools=False) >> END)
        agent = Agent(strategy, model=ScriptedModel(["one", "two"]), store=store)
        agent.on(NodeStarted, lambda event: trace.start() if event.run_id == "second" else None)
        await agent.run("task", run_id="first")
        try:
            await agent.run("task", run_id="second")
        finally:
            trace.stop()
    return trace


async def traced(work: Callable[[], Awaitable[object]]) -> Trace:
    """Trace an operation that was done once before."""
    await work()
    trace = Trace()
    trace.start()
    try:
        await work()
    finally:
        trace.stop()
    return trace


async def fact_saved(folder: Path) -> Trace:
    """Trace the saving of a fact in a SQLite store."""
    async with SqliteStore(folder / "facts.db") as store:
        provider = StoreMemoryProvider(store)
        fact, subject, scope = SingleFact(Concept("city"), "Berlin"), Subject("user"), Scope.product("app")
        return await traced(lambda: provider.save(fact, subject, scope))


async def note_recalled(folder: Path) -> Trace:
    """Trace a recall of 10 among 20 notes, without an embedder."""
    async with Notes(SqliteStore(folder / "notes.db")) as notes:
        await notes.remember_many([f"note {number} about pears" for number in range(20)])
        return await traced(lambda: notes.recall("pears", limit=10))


def execution() -> dict[str, int]:
    """Return what the three operations execute."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            **anyio.run(model_turn, Path(folder)).figures("model turn"),
            **anyio.run(fact_saved, Path(folder)).figures("saving a fact"),
            **anyio.run(note_recalled, Path(folder)).figures("recall of notes"),
        }


# What the source says


@dataclass
class Source:
    """A file of the package."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def is_door(self) -> bool:
        """Whether this is the `__init__.py` of a room."""
        return self.path.name == "__init__.py"

    @property
    def room(self) -> str:
        """The first folder of the package that the file is in; empty at the top."""
        return self.name.split(".")[1] if self.path.parent != PACKAGE else ""

    def functions(self) -> Iterator[Function]:
        """Yield all functions, nested ones too."""
        return (each for each in ast.walk(self.tree) if isinstance(each, Function))

    def classes(self) -> Iterator[ast.ClassDef]:
        """Yield all classes, nested ones too."""
        return (each for each in ast.walk(self.tree) if isinstance(each, ast.ClassDef))


def sources() -> list[Source]:
    """Read the files of the package that a person wrote."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name not in GENERATED:
            parts = path.relative_to(HOME).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            text = path.read_text("utf-8")
            found.append(Source(name, path, text, ast.parse(text)))
    return found


def is_private(name: str) -> bool:
    """Whether a name begins with an underscore and is not one of Python's own."""
    return name.startswith("_") and not name.startswith("__")


def lines(source: Source) -> int:
    """Return how many lines a file has."""
    return source.text.count("\n")


def interprets_entries(source: Source, entries: set[str]) -> bool:
    """Whether a file compares the kind of journal entries: `entry["t"] == …`, or the class of an entry.

    A heuristic: it sees comparisons, `match` and `isinstance`, and not what is done by a table of functions.
    """
    for part in ast.walk(source.tree):
        match part:
            case ast.Compare() | ast.Match() if any(map(_is_kind, _looked_at(part))):
                return True
            case ast.MatchMapping(keys=keys) if any(isinstance(k, ast.Constant) and k.value == "t" for k in keys):
                return True
            case ast.MatchClass(cls=named) if _last_name(named) in entries:
                return True
            case ast.Call(func=ast.Name("isinstance"), args=[_, kinds]):
                if any(_last_name(each) in entries for each in ast.walk(kinds)):
                    return True
            case _:
                pass
    return False


def _looked_at(part: ast.Compare | ast.Match) -> list[ast.expr]:
    return [part.subject] if isinstance(part, ast.Match) else [part.left, *part.comparators]


def _is_kind(expression: ast.expr) -> bool:
    """Whether an expression is `entry["t"]` or `entry.get("t")`."""
    match expression:
        case ast.Subscript(slice=ast.Constant("t")):
            return True
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant("t"), *_]):
            return True
    return False


def _last_name(expression: ast.AST) -> str:
    match expression:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
    return ""


def entry_classes(files: list[Source]) -> set[str]:
    """Return the names of the classes of journal entries: those of a file of `run` that is called for entries."""
    return {
        each.name
        for source in files
        if source.room == "run" and source.path.stem.endswith("entries")
        for each in source.classes()
    }


def largest_cycle(files: list[Source], room: str) -> list[str]:
    """Return the files of a room in the largest group that imports itself in a circle, imports for types included."""
    names = {source.name: source for source in files if source.room == room}
    graph: nx.DiGraph[str] = nx.DiGraph()
    for source in names.values():
        for part in ast.walk(source.tree):
            if isinstance(part, ast.ImportFrom) and part.module:
                targets = [f"{part.module}.{each.name}" for each in part.names]
                graph.add_edges_from((source.name, each if each in names else part.module) for each in targets)
            elif isinstance(part, ast.Import):
                graph.add_edges_from((source.name, each.name) for each in part.names)
    graph.remove_nodes_from([each for each in graph if each not in names or names[each].is_door])
    return sorted(max(nx.strongly_connected_components(graph), key=len, default=()))


def public_names(files: list[Source]) -> set[str]:
    """Return the names that users may import from a path without an underscore; the command line has none."""
    found = set()
    for source in files:
        if source.room == "cli" or any(part.startswith("_") for part in source.name.split(".")):
            continue
        for part in _statements(source.tree.body):
            match part:
                case ast.ImportFrom(names=names):
                    found.update(each.asname for each in names if each.asname == each.name)
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    found.add(name)
                case ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)):
                    found.add(name)
                case _:
                    pass
    return {name for name in found if not name.startswith("_")}


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, with those for type checkers, of which some doors import the rest lazily."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            yield from statement.body


def used_once(source: Source) -> list[str]:
    """Return the private functions of a file that this file mentions exactly once."""
    used = Counter(
        part.attr if isinstance(part, ast.Attribute) else part.id
        for part in ast.walk(source.tree)
        if isinstance(part, ast.Name | ast.Attribute)
    )
    return [each.name for each in source.functions() if is_private(each.name) and used[each.name] == 1]


def begins_with_give(source: Source) -> int:
    """Return how many docstrings of functions and classes begin with “Give”."""
    return sum((ast.get_docstring(each) or "").startswith("Give") for each in [*source.functions(), *source.classes()])


def structure(files: list[Source]) -> dict[str, int]:
    """Return what the source says."""
    functions = [each for source in files for each in source.functions()]
    once = sum(len(used_once(source)) for source in files)
    entries = entry_classes(files)
    readers = [source for source in files if source.room in ("run", "cli")]
    rooms = sorted({source.room for source in files if source.room})
    return {
        "files that interpret entry kinds": sum(interprets_entries(source, entries) for source in readers),
        "lines": sum(map(lines, files)),
        **{f"largest import cycle in {room}": len(largest_cycle(files, room)) for room in rooms},
        "public names": len(public_names(files)),
        "private functions used once, % of all functions": round(100 * once / len(functions)),
        "docstrings that begin with “Give”": sum(map(begins_with_give, files)),
        "class names used more than once": len(repeated_classes(files)),
        f"modules over {LONG_MODULE} lines": sum(lines(source) > LONG_MODULE for source in files),
        f"functions over {LONG_FUNCTION} lines": sum(_length(each) > LONG_FUNCTION for each in functions),
    }


def repeated_classes(files: list[Source]) -> Mapping[str, list[str]]:
    """Return the names that several classes have, each with the files that define them."""
    found = defaultdict(list)
    for source in files:
        for each in source.classes():
            found[each.name].append(source.name)
    return {name: where for name, where in found.items() if len(where) > 1}


def _length(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def main() -> None:
    """Print the table; with `--more`, which files and names the figures are made of."""
    files = sources()
    figures = {**execution(), **structure(files)}
    width = max(map(len, figures))
    print(f"{'measure':{width}}  {'today':>6}  target")
    for name, value in figures.items():
        print(f"{name:{width}}  {value:>6,}  {TARGETS.get(name, '')}".rstrip())
    print("\nExecution is that of the event loop's thread alone, for an operation that was done once before.")
    if "--more" in sys.argv:
        _print_more(files)


def _print_more(files: list[Source]) -> None:
    entries = entry_classes(files)
    shown = {
        "files that interpret entry kinds": [
            source.name for source in files if source.room in ("run", "cli") and interprets_entries(source, entries)
        ],
        "largest import cycle in run": largest_cycle(files, "run"),
        "class names used more than once": [f"{name}: {where}" for name, where in repeated_classes(files).items()],
        "private functions used once": [f"{source.name}: {used_once(source)}" for source in files if used_once(source)],
        f"modules over {LONG_MODULE} lines": [
            f"{source.name}: {lines(source)}" for source in files if lines(source) > LONG_MODULE
        ],
        f"functions over {LONG_FUNCTION} lines": [
            f"{source.name}.{each.name}: {_length(each)}"
            for source in files
            for each in source.functions()
            if _length(each) > LONG_FUNCTION
        ],
    }
    for title, rows in shown.items():
        print(f"\n{title}", *rows, sep="\n  ")


if __name__ == "__main__":
    main()
