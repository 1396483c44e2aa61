"""Measure the structure of the library: `make house` prints what is beside what is aimed at, and fails where a figure got worse.

It also fails where what needs a reason, such as a long module, gives none. `house.toml` has the highest figure that is allowed, for each
room: what moves from one room to another is measured there, and a new room has no budget until somebody gives it one. `--more`
shows where the figures come from, `--write` writes the table.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import itertools
import re
import sys
import tempfile
import tomllib
from collections import Counter, abc, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import anyio
import networkx as nx

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.events import NodeStarted
from graphagent.nodes import llm_request
from graphagent.store import SqliteStore
from graphagent.testing import ScriptedModel

if TYPE_CHECKING:
    from graphagent.graph import Node

HOME = Path(__file__).parents[1]
PACKAGE = HOME / "graphagent"
TABLE = Path(__file__).with_suffix(".toml")
HEAD = """\
# The highest figures that `make house` allows, written by `make house ARGS=--write`; lines are rounded up.
# A commit that changes this file changes nothing else, and its message says why."""
GENERATED = ("blocking_types.py",)

MEASURES = {
    "lines": "lines",
    "floors": "floors: files that import one another in a row, imports for types included",
    "upward": "imports between rooms against their direction, for types",
    "largest-cycle": "files of the largest import cycle, imports for types included",
    "log-tests": "tests whether there is a log or store, outside of log",
    "private-reaches": "uses of private attributes of other modules' classes",
    "entry-readers": "files that interpret kinds of entries",
    "public-names": "public names",
    "phrases": 'times "is no", "are no" or "what is"',
    "functions": "functions executed",
    "files": "files executed",
    "engine-files": "files of the core executed",
    "commits": "commits",
}
TARGETS = {
    ("core", "lines"): "≤ 19,300",
    ("run", "floors"): "≤ 8",
    ("graphagent", "upward"): "≤ 5",
    ("graphagent", "entry-readers"): "1, beside the state and its bytes",
    ("graphagent", "largest-cycle"): "≤ 3",
    ("graphagent", "log-tests"): "0",
    ("graphagent", "private-reaches"): "0",
    ("graphagent", "public-names"): "≤ 270",
    ("graphagent", "phrases"): "≤ 40",
    ("durable-node", "functions"): "≤ 40",
    ("durable-node", "files"): "≤ 12",
    ("model-turn", "files"): "≤ 30",
    ("model-turn", "engine-files"): "≤ 15",
    ("model-turn", "commits"): "2",
}
CORE = frozenset({"run", "log", "history", "memory/steps", "memory/transcript"})
"""The core is these rooms, and those that only these import. A transcript was a part of `memory/steps` when the aim was set."""
LOGS = frozenset({"journal", "log", "recorder", "store"})
LONG_MODULE, LONG_FUNCTION = 450, 60
"""The lines beyond which a module or a function says why it is long; the docstring of a function does not count."""
PHRASES = re.compile(r"\b(?:is no|are no|what is)\b")
"""What reads as a translation: each has a plainer form."""
BARE_IGNORE = re.compile(r"# noqa: [A-Z]+\d+(?:, ?[A-Z]+\d+)*\s*$")
PYTHONS_OWN = {"_asdict", "_fields", "_make", "_replace"}.union(
    *(dir(kind) for module in (builtins, abc, contextlib) for kind in vars(module).values() if isinstance(kind, type))
)
"""Names with an underscore that Python gave: those of the data model, and what a named tuple has."""

Figures = Mapping[str, Mapping[str, int]]
"""Figures by their measures, of each room, of rooms together, of the tests, and of a node and a model turn of a durable run."""


# What the source says


@dataclass
class Source:
    """A file of the package."""

    path: Path
    text: str
    tree: ast.Module = field(init=False)

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.text)

    @property
    def name(self) -> str:
        """The name of the module."""
        parts = self.path.relative_to(HOME).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def room(self) -> str:
        """The folder of the package that the file is in; those of `memory` are rooms of their own."""
        folders = self.path.relative_to(PACKAGE).parts[:-1]
        return "/".join(folders[: 2 if folders[0] == "memory" else 1]) if folders else "top"

    @property
    def lines(self) -> int:
        """How many lines the file has."""
        return self.text.count("\n")

    def imports(self) -> Iterator[str]:
        """Yield the modules that the file imports, those for types included, and the names, as if they were modules too."""
        for part in ast.walk(self.tree):
            match part:
                case ast.ImportFrom(module=str(module), names=names):
                    yield module
                    yield from (f"{module}.{each.name}" for each in names)
                case ast.Import(names=names):
                    yield from (each.name for each in names)
                case _:
                    pass


def sources() -> list[Source]:
    """Read the files of the package that a person wrote."""
    paths = sorted(path for path in PACKAGE.rglob("*.py") if path.name not in GENERATED)
    return [Source(path, path.read_text("utf-8")) for path in paths]


def strategies() -> list[Source]:
    """Read the files of the ready-made strategies, which are not measured."""
    paths = sorted((HOME / "strategies").rglob("*.py"))
    return [Source(path, path.read_text("utf-8")) for path in paths]


def core(files: list[Source]) -> set[str]:
    """Return the rooms of the core."""
    rooms = {source.name: source.room for source in files}
    importers = defaultdict[str, set[str]](set)
    for source in files:
        for room in {rooms[name] for name in source.imports() if name in rooms} - {source.room}:
            importers[room].add(source.room)
    found = set(CORE)
    while more := {room for room, by in importers.items() if by <= found} - found:
        found |= more
    return found & set(rooms.values())


def largest_cycle(files: list[Source], folder: str) -> list[str]:
    """Return the files of a folder in the largest group that imports itself in a circle; doors are left out."""
    names = {
        source.name: source
        for source in files
        if source.room.partition("/")[0] == folder and source.path.name != "__init__.py"
    }
    graph = nx.DiGraph((name, each) for name, source in names.items() for each in source.imports() if each in names)
    found = max(nx.strongly_connected_components(graph), key=len, default=set[str]())
    return sorted(found) if len(found) > 1 else []


def floors(files: list[Source], room: str) -> int:
    """Return the length of the longest row of files of a room in which each imports the next; files that import each other are one."""
    names = {source.name: source for source in files if source.room == room}
    graph = nx.DiGraph((name, each) for name, source in names.items() for each in source.imports() if each in names)
    graph.add_nodes_from(names)
    return nx.dag_longest_path_length(nx.condensation(graph)) + 1 if names else 0


def upward() -> list[str]:
    """Return the imports between rooms that `pyproject.toml` allows against the direction."""
    contracts = tomllib.loads((HOME / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    return [
        each for contract in contracts if contract["type"] == "layers" for each in contract.get("ignore_imports", [])
    ]


def tests_of_logs(source: Source) -> Iterator[ast.expr]:
    """Yield where a log or a store is compared with None, or is true or false."""
    for part in ast.walk(source.tree):
        tested: list[ast.expr] = []
        match part:
            case ast.Compare(left=left, comparators=[ast.Constant(None)]):
                tested = [left]
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) | ast.UnaryOp(ast.Not(), test):
                tested = [test]
            case ast.BoolOp(values=values):
                tested = values
            case _:
                pass
        yield from (each for each in tested if last_name(each).rpartition("_")[2] in LOGS)


def private_attributes(source: Source) -> set[str]:
    """Return the names with an underscore in front that classes of a file define; those of Python's own are left out."""
    found = set[str]()
    for kind in (part for part in ast.walk(source.tree) if isinstance(part, ast.ClassDef)):
        for part in ast.walk(kind):
            match part:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.Name(name, ast.Store()):
                    found.add(name)
                case ast.Attribute(ast.Name("self" | "cls"), name, ast.Store()):
                    found.add(name)
                case _:
                    pass
    return {name for name in found - PYTHONS_OWN if name.startswith("_")}


def reaches(source: Source, attributes: set[str]) -> Iterator[ast.expr]:
    """Yield where a file uses one of these attributes, and does not define it itself."""
    for part in ast.walk(source.tree):
        match part:
            case ast.Attribute(ast.Name("self" | "cls") | ast.Call(ast.Name("super"))):
                pass
            case ast.Attribute(attr=name) if name in attributes:
                yield part
            case _:
                pass


def interpreted(source: Source, entries: set[str]) -> set[str]:
    """Return the classes of entries that a file tells from others; what a table of functions does is not seen."""
    kinds = list[ast.AST]()
    for part in ast.walk(source.tree):
        match part:
            case ast.MatchClass(cls=kind):
                kinds.append(kind)
            case ast.Call(func=ast.Name("isinstance"), args=[_, named]):
                kinds += ast.walk(named)
            case _:
                pass
    return entries & set(map(last_name, kinds))


def entry_classes(files: list[Source]) -> set[str]:
    """Return the names of the classes of entries: those of the files of the core that are called for entries."""
    found = {
        part.name
        for source in files
        if source.room in CORE and source.path.stem.endswith("entries")
        for part in ast.walk(source.tree)
        if isinstance(part, ast.ClassDef)
    }
    if not found:
        raise LookupError("no file of the core is called entries.py; name the one that has the classes of entries")
    return found


def last_name(expression: ast.AST) -> str:
    """Return the name of a variable or an attribute."""
    match expression:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def public_names(files: list[Source]) -> set[str]:
    """Return the names that users may import from a path without an underscore; the command line has none."""
    found = set[str]()
    for source in files:
        if source.room != "cli" and "._" not in source.name:
            for part in ast.walk(source.tree):
                if isinstance(part, ast.ImportFrom):
                    found.update(each.name for each in part.names if each.asname == each.name)
            for part in source.tree.body:
                match part:
                    case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                        found.add(name)
                    case ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)):
                        found.add(name)
                    case _:
                        pass
    return {name for name in found if not name.startswith("_")}


def places(files: list[Source]) -> dict[str, dict[str, list[str]]]:
    """Return, for each room and each measure that counts places, these places."""
    found: dict[str, dict[str, list[str]]] = {source.room: defaultdict(list) for source in files}
    private = {source.name: private_attributes(source) for source in files}
    entries = entry_classes(files)
    for source in files:
        room = found[source.room]
        elsewhere = set[str]().union(*private.values()) - private[source.name]
        uses = [("private-reaches", each) for each in reaches(source, elsewhere)]
        uses += [("log-tests", each) for each in tests_of_logs(source) if source.room != "log"]
        for measure, part in sorted(uses, key=lambda use: use[1].lineno):
            room[measure].append(f"{source.name}, line {part.lineno}: {ast.unparse(part)}")
        if kinds := interpreted(source, entries):
            room["entry-readers"].append(f"{source.name}: {', '.join(sorted(kinds))}")
    for folder in found.keys() & {name.partition("/")[0] for name in found}:
        found[folder]["largest-cycle"] = largest_cycle(files, folder)
    return found


def unexplained(source: Source) -> Iterator[str]:
    """Yield what needs a reason and gives none.

    A long module says in its docstring that it is "long because …". A long function has a comment beside its signature. A lint ignore
    has its reason behind it, or in the line above.
    """
    if source.lines > LONG_MODULE and "long because" not in " ".join((ast.get_docstring(source.tree) or "").split()):
        yield f"{source.name} has {source.lines} lines; say in its docstring: The file is long because …"
    lines = source.text.splitlines()
    for part in ast.walk(source.tree):
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = part.body[0] if ast.get_docstring(part) else None
            own = range(part.lineno, (part.end_lineno or part.lineno) + 1)
            length = len(own) - (len(range(docstring.lineno, docstring.end_lineno or 0)) + 1 if docstring else 0)
            if length > LONG_FUNCTION and not any(
                "  # " in each for each in lines[own[0] - 1 : part.body[0].lineno - 1]
            ):
                yield f"{source.name}, line {own[0]}: {part.name} has {length} lines; say why beside its signature: # long because …"
    for number, (above, line) in enumerate(itertools.pairwise(["", *lines]), 1):
        if BARE_IGNORE.search(line) and not above.lstrip().startswith("# "):
            yield f"{source.name}, line {number}: a lint ignore without its reason, which stands behind the code of the rule"


# How much executes


@node
async def plain(ctx: Context, value: str) -> str:
    """Return its input: a node that does nothing else."""
    return value


async def executed(folder: Path, measured: Node[str, str], until: Node[str, str] | None = None) -> dict[str, int]:
    """Return how much of the package one node of a durable run executes, from its start until `until` starts, or the run has ended.

    Each frame counts once, however often a coroutine is resumed. Comprehensions do not count, because whether they have
    frames of their own depends on the version of Python; nor do other threads, such as those of a store. The run is the
    second one of its agent: the first one prepares the strategy.
    """
    frames = set[FrameType]()  # kept until the end, so that no two have the same identity

    def record(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        is_function = code.co_name == "<lambda>" or not code.co_name.startswith("<")
        if event == "call" and is_function and code.co_filename.startswith(f"{PACKAGE}/"):
            frames.add(frame)

    def begin(event: NodeStarted) -> None:
        if event.run_id == "second":
            sys.setprofile(None if frames else record)

    async with SqliteStore(folder / f"{measured.name}.db") as store:
        path = START >> measured >> END if until is None else START >> measured >> until >> END
        agent = Agent(Strategy("measured", path), model=ScriptedModel(["one", "two"]), store=store)
        agent.on(NodeStarted, begin)
        await agent.run("task", run_id="first")
        try:
            await agent.run("task", run_id="second")
        finally:
            sys.setprofile(None)
    codes = [frame.f_code for frame in frames]
    files = {code.co_filename for code in codes}
    return {
        "functions": len(set(codes)),
        "files": len(files),
        "engine-files": sum(
            Path(each).relative_to(PACKAGE).as_posix().startswith(tuple(f"{room}/" for room in CORE)) for each in files
        ),
        "commits": sum(code.co_qualname == "SqliteStore.commit" for code in codes),
    }


# The table


def figures(files: list[Source], found: Mapping[str, Mapping[str, list[str]]]) -> Figures:
    """Return all figures, of the files and of what was found in them."""
    lines, together = Counter[str](), Counter[str]()
    for source in files:
        lines[source.room] += source.lines
    rooms = {
        room: {"lines": lines[room], **{of: len(each) for of, each in found[room].items()}} for room in sorted(lines)
    }
    for room in rooms.values():
        together.update({of: value for of, value in room.items() if of != "largest-cycle"})
    together["largest-cycle"] = max(room.get("largest-cycle", 0) for room in rooms.values())
    if "run" in rooms:
        rooms["run"]["floors"] = floors(files, "run")
    together["upward"] = len(upward())
    together["phrases"] = sum(len(PHRASES.findall(source.text)) for source in files)
    with tempfile.TemporaryDirectory() as folder:
        step = anyio.run(executed, Path(folder), plain, plain.named("next"))
        turn = anyio.run(executed, Path(folder), llm_request(tools=False))
    return {
        "graphagent": {**together, "public-names": len(public_names(files))},
        "core": {"lines": sum(lines[room] for room in core(files))},
        "tests": {"lines": sum(path.read_text("utf-8").count("\n") for path in (HOME / "tests").rglob("*.py"))},
        "durable-node": {of: step[of] for of in ("functions", "files")},
        "model-turn": {of: turn[of] for of in ("functions", "files", "engine-files", "commits")},
        **rooms,
    }


def compared(now: Figures, allowed: Figures) -> tuple[list[str], list[str]]:
    """Return which figures are better than those of the table, and which are worse; what is missing is 0."""
    better, worse = list[str](), list[str]()
    for part, of in itertools.product(dict.fromkeys([*now, *allowed]), MEASURES):
        was, is_ = allowed.get(part, {}).get(of, 0), now.get(part, {}).get(of, 0)
        if is_ > was or budget(of, is_) < was:
            (worse if is_ > was else better).append(f"{part}: {MEASURES[of]}: was {was:,}, is {is_:,}")
    return better, worse


def budget(measure: str, value: int) -> int:
    """Return what the table allows where this is the figure: lines up to the next hundred, for small repairs."""
    return -(-value // 100) * 100 if measure == "lines" else value


def written(now: Figures) -> str:
    """Return the table for these figures, as TOML."""
    rows = [
        f'"{part}" = {{ {", ".join(f"{of} = {budget(of, value)}" for of, value in measured.items() if value)} }}'
        for part, measured in now.items()
    ]
    return "\n".join([HEAD, *rows, ""])


def main() -> None:
    """Print the figures, and exit with an error where one is worse than the table allows."""
    files = sources()
    found = places(files)
    now = figures(files, found)
    if "--write" in sys.argv:
        TABLE.write_text(written(now), "utf-8")
    for (part, of), target in TARGETS.items():
        print(f"{part:10}  {now[part].get(of, 0):>6,}  {MEASURES[of]}; target {target}")
    print()
    for room in sorted({source.room for source in files}):
        print(f"{room:18}", ", ".join(f"{of} {value:,}" for of, value in now[room].items() if value))
    if "--more" in sys.argv:
        for room, measured in sorted(found.items()):
            for of, each in measured.items():
                print(f"\n{MEASURES[of]} in {room}", *each, sep="\n  ")
    better, worse = compared(now, tomllib.loads(TABLE.read_text("utf-8")))
    if better:
        print(f"\nBetter than scripts/{TABLE.name}; lower it with `make house ARGS=--write`:", *better, sep="\n  ")
    silent = [each for source in [*files, *strategies()] for each in unexplained(source)]
    if silent:
        print("\nWithout a reason:", *silent, sep="\n  ")
    if worse:
        print(f"\nWorse than scripts/{TABLE.name}:", *worse, sep="\n  ")
        sys.exit("If it has to be, write the table with ARGS=--write in a commit of its own, whose message says why.")
    if silent:
        sys.exit("Give each its reason, or divide what is long where it falls apart by itself.")


if __name__ == "__main__":
    main()
