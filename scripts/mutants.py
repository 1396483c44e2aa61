"""Measure whether the tests notice a mistake: `python -m scripts.mutants` changes the core in small ways, and tests each change.

A mutant is a copy of the code with one change: another comparison, a truth turned round, a number that is one higher, a call
left out, None for a result. A mutant is killed if a test fails of those that execute the changed line, also in a process that
they start, and that pass without the change. All of the fast suite is executed once, to learn which tests these are;
then one process collects them, and forks for each mutant a process in which the functions have other code.

```console
$ python -m scripts.mutants --out before.json                 # 60 mutants of this commit, chosen by --seed
$ python -m scripts.mutants --as before.json --out after.json  # the same, after a change of the tests
```

The second command fails if a mutant survives that was killed before. A copy of the repository is changed, never this one.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import hashlib
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

HOME = Path(__file__).parents[1]
ROOMS = ("run", "log", "memory/transcript", "graph", "store", "codec", "memory/facts", "nodes", "llm", "history")
COMPARISONS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
SEED = "caddaae65f6f"  # of the tests: both suites choose the same cases
LONGEST = 3600.0  # seconds that the tests of a mutant may take, which may never end


@dataclass(frozen=True)
class Mutant:
    """One change of one file: what stands between two positions, and what stands there instead."""

    key: str
    """What the same change has in another version of the file."""
    file: str
    line: int
    start: int
    end: int
    text: str
    statement: bool

    def applied(self, source: bytes) -> bytes:
        """Return the source of the file with the change."""
        return source[: self.start] + self.text.encode() + source[self.end :]


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
        yield Mutant(f"{name} #{seen[name]}", file, node.lineno, start, end, text, isinstance(node, ast.stmt))


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


_failed: list[str] = []


def pytest_runtest_logreport(report: Any) -> None:
    """Note how a test ended, and how long it took."""
    if report.failed:
        _failed.append(report.nodeid)
    noted = report.when == "call" or report.failed
    if noted and "MUTANTS_ENDED" in os.environ and "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(os.environ["MUTANTS_ENDED"]).open("a") as file:
            file.write(json.dumps([report.nodeid, report.outcome, report.duration]) + "\n")


def pytest_runtestloop(session: Any) -> bool | None:
    """Instead of executing the tests once, execute those of each mutant until one fails."""
    if "MUTANTS_PLAN" not in os.environ:
        return None
    items = {item.nodeid: item for item in session.items}
    for line in Path(os.environ["MUTANTS_PLAN"]).read_text().splitlines():
        told = json.loads(line)
        tests = [items[id_] for id_ in told["tests"] if id_ in items]
        killer = _killer(Mutant(**told["mutant"]), tests)
        with Path(os.environ["MUTANTS_OUT"]).open("a") as file:
            file.write(json.dumps({"key": told["mutant"]["key"], "tests": len(tests), "killer": killer}) + "\n")
    return True


def _killer(mutant: Mutant, tests: list[Any]) -> str | None:
    """Return the first test that fails with the mutant and passes without it, None if there is none."""
    path = Path(mutant.file)
    source = path.read_bytes()
    while tests:
        path.write_bytes(mutant.applied(source))  # processes that a test starts read it
        failed = _forked(partial(_first_failure_with, mutant, source, tests))
        path.write_bytes(source)
        if not failed:
            return None
        suspects = [item for item in tests if item.nodeid == failed]
        if not suspects or not _forked(partial(_first_failure, suspects)):
            return failed
        tests = [item for item in tests if item not in suspects]
    return None


def _first_failure_with(mutant: Mutant, source: bytes, tests: list[Any]) -> str:
    replace(mutant, source)
    return _first_failure(tests)


def replace(mutant: Mutant, source: bytes) -> None:
    """Give each function that is there the code that it has in the mutant."""
    gc.unfreeze()
    found: dict[tuple[str, int], list[FunctionType]] = defaultdict(list)
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename.endswith(mutant.file):
            found[each.__code__.co_qualname, each.__code__.co_firstlineno].append(each)
    for old, new in _codes(mutant, source):
        for function in found[old.co_qualname, old.co_firstlineno]:
            function.__code__ = new
    gc.freeze()  # or each collection would look at all tests that there are


def _codes(mutant: Mutant, source: bytes) -> Iterator[tuple[CodeType, CodeType]]:
    """Yield the code of each function that is another one in the mutant, before and after."""

    def inside(code: CodeType) -> Iterator[CodeType]:
        for each in code.co_consts:
            if isinstance(each, CodeType):
                yield each
                yield from inside(each)

    def by_name(text: bytes) -> dict[tuple[str, int], CodeType]:
        times: dict[str, int] = defaultdict(int)
        found = {}
        for each in inside(compile(text, mutant.file, "exec")):
            times[each.co_qualname] += 1
            found[each.co_qualname, times[each.co_qualname]] = each
        return found

    before, after = by_name(source), by_name(mutant.applied(source))
    for name, old in before.items():
        new = after.get(name)
        if new is not None and new.co_freevars == old.co_freevars and new != old:
            yield old, new


def _first_failure(tests: list[Any]) -> str:
    """Return the id of the first test that fails, nothing if none does."""
    for item, following in zip(tests, [*tests[1:], None], strict=True):
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        if _failed:
            return item.nodeid
    return ""


def _forked(do: Callable[[], str]) -> str:
    """Return what a function returns in a process of its own, or what became of the process."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.setpgid(0, 0)
        os.close(reading)
        try:
            os.write(writing, json.dumps(do()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    answers = select.select([reading], [], [], LONGEST)[0]
    said = os.read(reading, 10_000) if answers else b'"the tests do not end"'
    os.close(reading)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return json.loads(said or b'"the process of the tests died"')


def main() -> None:
    """Choose mutants, test each, and say how many were killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=60)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--home", type=Path, default=HOME, help="the repository whose commit is tested")
    parser.add_argument("--as", dest="before", type=Path, help="an earlier result, whose mutants are tested")
    parser.add_argument(
        "--tests", type=Path, help="where is kept which tests execute what; learnt if there is no such file"
    )
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    earlier = {each["key"]: each["killer"] for each in _lines(given.before)} if given.before else {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Copy(given.home.resolve(), Path(folder))
        if earlier:
            chosen = [each for room in ROOMS for each in of_room(copy.home, room) if each.key in earlier]
        else:
            chosen = choose(copy.home, given.number, given.seed)
        kept = given.tests or Path(folder) / "tests"
        if not kept.exists():
            kept.write_text(json.dumps(copy.tests_of(dict(enumerate(chosen)))))
        tests = json.loads(kept.read_text())
        plan = [{"mutant": asdict(each), "tests": tests.get(each.key, [])} for each in chosen]
        copy.test(plan, given.out.resolve())
    ended = {each["key"]: each["killer"] for each in _lines(given.out)}
    print(f"{sum(map(bool, ended.values()))} of {len(ended)} mutants are killed")
    if earlier:
        print(f"{len(earlier) - len(ended)} of {len(earlier)} are of code that is no longer there")
    missed = [key for key, killer in ended.items() if earlier.get(key) and not killer]
    for key in missed:
        print(f"killed before, and not now: {key}")
    sys.exit(bool(missed) or len(ended) < len(chosen))


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class Copy:
    """A copy of a repository, whose files may be changed, with the environment of the repository."""

    def __init__(self, home: Path, folder: Path) -> None:
        """Clone what is committed."""
        self.home = folder / "copy"
        subprocess.run(["git", "clone", "-q", home, self.home], check=True)
        (self.home / ".venv").symlink_to(home / ".venv")
        shutil.copy(__file__, self.home / "mutants.py")
        self.python = str(home / ".venv" / "bin" / "python")
        self.seen, self.ended, self.plan = (folder / name for name in ("seen", "ended", "plan"))

    def pytest(self, *arguments: str, **environment: Path) -> None:
        """Execute the tests of the copy."""
        given = {name: str(path) for name, path in environment.items()}
        given |= {"PYTHONPATH": f"{self.home}:{self.home / 'strategies'}", "GRAPHAGENT_TESTS_SEED": SEED}
        environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        command = [self.python, "-m", "pytest", "-p", "mutants", "-p", "no:cacheprovider", "--tb=no", *arguments]
        subprocess.run(command, cwd=self.home, env=environ | given, stdout=subprocess.DEVNULL, check=False)

    def tests_of(self, chosen: dict[int, Mutant]) -> dict[str, list[str]]:
        """Return which tests execute the place of each mutant and pass, the cheapest first."""
        by_file: dict[str, dict[int, Mutant]] = defaultdict(dict)
        for number, each in chosen.items():
            by_file[each.file][number] = each
        originals = {file: (self.home / file).read_bytes() for file in by_file}
        for file, there in by_file.items():
            (self.home / file).write_bytes(marked(originals[file], there))
        self.pytest("-n", "auto", "--dist", "worksteal", MUTANTS_ENDED=self.ended, MUTANTS_SEEN=self.seen)
        for file, source in originals.items():
            (self.home / file).write_bytes(source)
        seconds = {id_: duration for id_, outcome, duration in _lines(self.ended) if outcome == "passed"}
        found: dict[int, set[str]] = defaultdict(set)
        for id_, number in _lines(self.seen):
            if id_ in seconds:
                found[number].add(id_)
        return {each.key: sorted(found[number], key=lambda id_: (seconds[id_], id_)) for number, each in chosen.items()}

    def test(self, plan: list[dict[str, Any]], out: Path) -> None:
        """Write a line for each mutant: its key, how many tests execute its place, and which of them kills it."""
        out.write_text("")
        self.plan.write_text("".join(json.dumps(each) + "\n" for each in plan))
        self.pytest("-n", "0", "--timeout=300", MUTANTS_PLAN=self.plan, MUTANTS_OUT=out)


if __name__ == "__main__":
    main()
