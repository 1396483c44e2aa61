"""Measure whether the tests notice a mistake: `python -m scripts.mutants` changes the core in small ways, and tests each change.

A mutant is a copy of the code with one change: another comparison, a truth turned round, a number that is one higher, a call
left out, None for a result. A mutant is killed if a test fails of those that execute the changed line, also in a process that
they start, and that pass without the change. All of the fast suite is executed once, to learn which tests these are.

```console
$ python -m scripts.mutants --out before.json                 # 60 mutants of this commit, chosen by --seed
$ python -m scripts.mutants --as before.json --out after.json  # the same, after a change of the tests
```

The second command fails if a mutant survives that was killed before. A copy of the repository is changed, never this one.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HOME = Path(__file__).parents[1]
ROOMS = ("run", "log", "memory/transcript", "graph", "store", "codec", "memory/facts", "nodes", "llm", "history")
COMPARISONS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
SEED = "caddaae65f6f"  # of the tests: both suites choose the same cases
FIRST = 40  # tests that are tried before the others: the cheapest


@dataclass(frozen=True)
class Mutant:
    """One change of one file: what stands between two positions, and what stands there instead."""

    key: str
    """What the same change has in another version of the file."""
    file: str
    line: int
    start: int
    end: int
    text: bytes
    statement: bool

    def applied(self, source: bytes) -> bytes:
        """Return the source of the file with the change."""
        return source[: self.start] + self.text + source[self.end :]


def choose(home: Path, number: int, seed: str) -> list[Mutant]:
    """Return that many mutants of different lines, of each room in turn; another seed chooses others."""

    def rank(mutant: Mutant) -> bytes:
        return hashlib.sha256(f"{seed} {mutant.key}".encode()).digest()

    rooms = [sorted(of_room(home, room), key=rank) for room in ROOMS]
    found: dict[tuple[str, int], Mutant] = {}
    for each in (each for turn in itertools.zip_longest(*rooms) for each in turn if each is not None):
        if len(found) < number:
            found.setdefault((each.file, each.line), each)
    return list(found.values())


def of_room(home: Path, room: str) -> Iterator[Mutant]:
    """Yield every mutant of a room."""
    for path in sorted((home / "graphagent" / room).rglob("*.py")):
        yield from _of_file(home, path)


def _of_file(home: Path, path: Path) -> Iterator[Mutant]:
    """Yield the mutants of a file: one for each changed place of each function."""
    source = path.read_bytes()
    file = str(path.relative_to(home))
    lines = list(itertools.accumulate((len(line) for line in source.splitlines(keepends=True)), initial=0))
    seen: dict[str, int] = defaultdict(int)
    for function, node, text in _changes(ast.parse(source)):
        start, end = lines[node.lineno - 1] + node.col_offset, lines[node.end_lineno - 1] + node.end_col_offset
        name = f"{file}:{function}: {ast.unparse(node)} -> {text}"
        seen[name] += 1
        yield Mutant(f"{name} #{seen[name]}", file, node.lineno, start, end, text.encode(), isinstance(node, ast.stmt))


def _changes(tree: ast.AST, function: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yield the name of each function, a node in it, and the text that changes the node."""
    if isinstance(tree, ast.JoinedStr | ast.pattern | ast.Raise):  # without a position, no expression, only words
        return
    if function and (text := _changed(tree)):
        yield function, tree, text
    if isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef):
        inner, children = f"{function}.{tree.name}", tree.body
    elif isinstance(tree, ast.ClassDef):
        inner, children = f"{function}.{tree.name}" if function else "", tree.body
    elif isinstance(tree, ast.AnnAssign):
        inner, children = function, [tree.value] if tree.value else []
    else:
        inner, children = function, list(ast.iter_child_nodes(tree))
    for child in children:
        yield from _changes(child, inner)


def _changed(node: ast.AST) -> str | None:
    """Return what stands instead of a node in a mutant, None if this node has no mutant."""
    match node:
        case ast.Compare(ops=[operation]) if type(operation) in COMPARISONS:
            other = COMPARISONS[type(operation)]
            return f"({ast.unparse(node.left)} {other} {ast.unparse(node.comparators[0])})"
        case ast.BoolOp():
            other = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
            return f"({ast.unparse(ast.BoolOp(other, node.values))})"
        case ast.UnaryOp(op=ast.Not()):
            return f"bool({ast.unparse(node.operand)})"
        case ast.Constant(value=bool() as truth):
            return repr(not truth)
        case ast.Constant(value=int() as number):
            return repr(number + 1)
        case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())):
            return "pass"
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            return "return None"
    return None


def marked(source: bytes, chosen: dict[int, Mutant]) -> bytes:
    """Return the source of a file in which the place of each mutant notes that it is executed, and by which test."""
    inserted = []
    for number, each in chosen.items():
        note = f'__import__("mutants").seen({number})'
        inserted.append((each.start, f"{note}; " if each.statement else f"({note}, "))
        if not each.statement:
            inserted.append((each.end, ")[1]"))
    for position, text in sorted(inserted, reverse=True):
        source = source[:position] + text.encode() + source[position:]
    return source


_noted: set[tuple[str, int]] = set()


def seen(number: int) -> None:
    """Note that the place of a mutant is executed, by the test that is executed or that started this process."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if test and (test, number) not in _noted:
        _noted.add((test, number))
        with open(os.environ["MUTANTS_SEEN"], "a") as file:  # noqa: PTH123 (a mark in the code under test costs little)
            file.write(json.dumps([test, number]) + "\n")


def pytest_runtest_logreport(report: Any) -> None:
    """Note whether a test passed, and how long it took."""
    noted = report.when == "call" or report.failed
    if noted and "MUTANTS_ENDED" in os.environ and "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(os.environ["MUTANTS_ENDED"]).open("a") as file:
            file.write(json.dumps([report.nodeid, report.outcome, report.duration]) + "\n")


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Leave only the tests that are asked for, in that order."""
    if "MUTANTS_TESTS" in os.environ:
        asked = {id_: place for place, id_ in enumerate(json.loads(Path(os.environ["MUTANTS_TESTS"]).read_text()))}
        items[:] = sorted((each for each in items if each.nodeid in asked), key=lambda each: asked[each.nodeid])


class Copy:
    """A copy of a repository, whose files may be changed, with the environment of the repository."""

    def __init__(self, home: Path, folder: Path) -> None:
        """Clone what is committed."""
        self.home = folder / "copy"
        subprocess.run(["git", "clone", "-q", home, self.home], check=True)
        (self.home / ".venv").symlink_to(home / ".venv")
        shutil.copy(__file__, self.home / "mutants.py")
        self.python = str(home / ".venv" / "bin" / "python")
        self.seen, self.ended, self.asked = (folder / name for name in ("seen", "ended", "asked"))

    def pytest(self, *arguments: str, timeout: float, **environment: str) -> list[tuple[str, str, float]] | None:
        """Return id, outcome and seconds of each test that was executed, None if pytest did not end by itself."""
        self.ended.write_text("")
        environment = {**os.environ, "GRAPHAGENT_TESTS_SEED": SEED, **environment}
        environment["PYTHONPATH"] = f"{self.home}:{self.home / 'strategies'}"
        environment |= {"MUTANTS_SEEN": str(self.seen), "MUTANTS_ENDED": str(self.ended)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [self.python, "-m", "pytest", "-p", "mutants", "-p", "no:cacheprovider", "--tb=no", *arguments]
        try:
            code = subprocess.run(
                command, cwd=self.home, env=environment, stdout=subprocess.DEVNULL, timeout=timeout, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            return None
        return [json.loads(line) for line in self.ended.read_text().splitlines()] if code in (0, 1) else None

    def tests_of(self, chosen: dict[int, Mutant]) -> dict[int, list[str]]:
        """Return which tests execute the place of each mutant and pass, the cheapest first."""
        by_file: dict[str, dict[int, Mutant]] = defaultdict(dict)
        for number, each in chosen.items():
            by_file[each.file][number] = each
        originals = {file: (self.home / file).read_bytes() for file in by_file}
        for file, there in by_file.items():
            (self.home / file).write_bytes(marked(originals[file], there))
        ended = self.pytest("-n", "auto", "--dist", "worksteal", timeout=4 * 3600) or []
        for file, source in originals.items():
            (self.home / file).write_bytes(source)
        seconds = {id_: duration for id_, outcome, duration in ended if outcome == "passed"}
        found: dict[int, set[str]] = defaultdict(set)
        for line in self.seen.read_text().splitlines():
            id_, number = json.loads(line)
            if id_ in seconds:
                found[number].add(id_)
        return {number: sorted(found[number], key=lambda id_: (seconds[id_], id_)) for number in chosen}

    def killer(self, mutant: Mutant, tests: list[str]) -> str | None:
        """Return the first test that fails with the mutant and passes without it, None if there is none."""
        path = self.home / mutant.file
        source = path.read_bytes()
        left = [tests[:FIRST], tests[FIRST:]]
        while left:
            some = left.pop(0)
            path.write_bytes(mutant.applied(source))
            failed = self._failed(some)
            path.write_bytes(source)
            if failed is None:
                return "it does not end, or not even start"
            if failed and not self._failed([failed]):
                return failed
            if failed:
                left.insert(0, [id_ for id_ in some if id_ != failed])
        return None

    def _failed(self, tests: list[str]) -> str | None:
        """Return the first of some tests that fails, empty if all pass, None if they did not end."""
        if not tests:
            return ""
        self.asked.write_text(json.dumps(tests))
        files = sorted({id_.partition("::")[0] for id_ in tests})
        limits = {"timeout": 900.0 + 10 * len(tests)}
        ended = self.pytest("-n", "0", "-x", "--timeout=300", *files, **limits, MUTANTS_TESTS=str(self.asked))
        return None if ended is None else next((id_ for id_, outcome, _ in ended if outcome == "failed"), "")


def main() -> None:
    """Choose mutants, test each, write a line for each, and say how many were killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=60)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--home", type=Path, default=HOME, help="the repository whose commit is tested")
    parser.add_argument("--as", dest="before", type=Path, help="an earlier result, whose mutants are tested")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    earlier = {
        each["key"]: each for line in (given.before.open() if given.before else ()) for each in [json.loads(line)]
    }
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Copy(given.home.resolve(), Path(folder))
        if earlier:
            found = [each for room in ROOMS for each in of_room(copy.home, room) if each.key in earlier]
            print(f"{len(earlier) - len(found)} of {len(earlier)} mutants are of code that is no longer there")
        else:
            found = choose(copy.home, given.number, given.seed)
        chosen = dict(enumerate(found))
        tests = copy.tests_of(chosen)
        missed, killed = [], 0
        with given.out.open("w") as out:
            for number, each in chosen.items():
                killer = copy.killer(each, tests[number])
                killed += killer is not None
                if killer is None and earlier.get(each.key, {}).get("killer"):
                    missed.append(each.key)
                out.write(json.dumps({"key": each.key, "tests": len(tests[number]), "killer": killer}) + "\n")
                out.flush()
    print(f"{killed} of {len(chosen)} mutants are killed")
    for key in missed:
        print(f"killed before, and not now: {key}")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
