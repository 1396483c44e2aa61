"""Writes `graphagent/blocking_types.pyi`: for each class that `blocking` has a type for, what it is where nothing is async.

`python -m scripts.blocking_types` does it, and so does `make format`. Methods are read from the source of the classes, so that
nobody writes them twice; a test fails where the file is not what would be written.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

from graphagent import Agent, Run
from graphagent._sync import _is_async
from graphagent.llm import Tool
from graphagent.memory import KeepingProvider, Notes, NoteView
from graphagent.run import RunStream
from graphagent.store import EncryptedStore, MemoryStore, SqliteStore
from graphagent.work import RunHandle

FILE = Path(__file__).parents[1] / "graphagent" / "blocking_types.pyi"
CLASSES: list[type] = [
    NoteView, Notes, Agent, Run, RunStream, RunHandle, Tool, KeepingProvider, SqliteStore, MemoryStore, EncryptedStore
]  # fmt: skip
HEAD = '''"""What `blocking` returns, for annotations such as `def summary(notes: BlockingNotes) -> str: …`.

Written by `python -m scripts.blocking_types` from the async classes; change those instead. What these are made of inside is left
out. What is blocking only where it is one of ours, such as the store of an agent, is Any.
"""

from collections.abc import Generator, Iterator
from typing import Any, ParamSpec, Protocol, TypeVar, overload
'''
DOORS = {
    "graphagent._policies": "graphagent.graph",
}  # fmt: skip
"""The doors of what stands in no room, or in one without a door."""
SPECIAL = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__"}
PLAIN = {"AsyncIterator": "Iterator[{}]", "AsyncGenerator": "Generator[{}, None, None]"}
ANY = ast.Name("Any")
OURS_OR_NOT = {"F"}
"""Type variables without a bound that may be a class of ours: an installed feature, which is blocking then."""


class Wanted:
    """What the written file needs beside its classes."""

    def __init__(self) -> None:
        self.names: defaultdict[str, set[str]] = defaultdict(set)
        self.variables: dict[str, str] = {}


class Source:
    """The file that a class stands in, and what the names in it mean."""

    def __init__(self, cls: type, wanted: Wanted) -> None:
        self.body = ast.parse(inspect.getsource(import_module(cls.__module__))).body
        self.wanted = wanted
        self.names: dict[str, tuple[str, str]] = {}
        self.variables: dict[str, ast.Call] = {}
        for part in (each for statement in self.body for each in ast.walk(statement)):
            match part:
                case ast.ImportFrom(module=str(module), names=names):
                    self.names |= {each.asname or each.name: (module, each.name) for each in names}
                case ast.Import(names=names):
                    self.names |= {each.name: (each.name, "") for each in names}
                case _:
                    pass
        for part in self.body:
            match part:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                    self.names[name] = (cls.__module__, name)
                case ast.Assign([ast.Name(name)], ast.Call(ast.Name("TypeVar" | "ParamSpec")) as call):
                    self.variables[name] = call
                case ast.Assign([ast.Name(name)]):
                    self.names[name] = (cls.__module__, name)
                case _:
                    pass

    def want(self, annotation: ast.expr) -> None:
        """Make the written file import, or declare, what an annotation names."""
        for name in (part.id for part in ast.walk(annotation) if isinstance(part, ast.Name)):
            if name in self.variables:
                self._declare(name, self.variables[name])
            elif name in self.names:
                module, own = self.names[name]
                room = _room(module, own)
                if own and not hasattr(import_module(room), own):
                    raise ValueError(f"{module}.{own} is reached through no door: re-export it")
                self.wanted.names[room].add(own)

    def _declare(self, name: str, call: ast.Call) -> None:
        for option in call.keywords:
            if option.arg == "bound":
                bound = (
                    ast.literal_eval(option.value)
                    if isinstance(option.value, ast.Constant)
                    else ast.unparse(option.value)
                )
                self.want(_expression(bound))
                option.value = _expression(bound)
        said = f"{name} = {ast.unparse(call)}"
        if self.wanted.variables.setdefault(name, said) != said:
            raise ValueError(f"two type variables: {self.wanted.variables[name]}, and {said}")

    def meant(self, name: str) -> Any:
        """Return the object that a name stands for; for a type variable, its bound; None where it is none of ours."""
        if name in self.variables:
            bound = next((option.value for option in self.variables[name].keywords if option.arg == "bound"), None)
            return None if bound is None else self.meant(ast.unparse(bound).strip("'\""))
        module, own = self.names.get(name, ("", ""))
        return getattr(import_module(_room(module, own)), own, None) if module.startswith("graphagent") else None

    def given(self, annotation: ast.expr) -> ast.expr:
        """Return what a method gives, or an attribute is, where nothing is async, of what is annotated."""
        match annotation:
            case ast.Constant(str(text)):
                return self.given(_expression(text))
            case ast.BinOp(left, ast.BitOr(), right):
                sides = self.given(left), self.given(right)
                return ANY if ANY in sides else ast.BinOp(sides[0], ast.BitOr(), sides[1])
            case ast.Subscript(ast.Name(name), inner) if name in PLAIN:
                return _expression(PLAIN[name].format(ast.unparse(self.given(inner))))
            case ast.Subscript(
                ast.Name("Callable" as name), ast.Tuple([takes, ast.Subscript(ast.Name("Awaitable"), inner)])
            ):
                return ast.Subscript(ast.Name(name), ast.Tuple([takes, self.given(inner)]))
            case ast.Name(name) if name in OURS_OR_NOT:
                return ANY
            case ast.Name(name) | ast.Subscript(ast.Name(name)):
                meant = self.meant(name)
                if meant in CLASSES:
                    return _renamed(annotation, name)
                kinds = [each for each in (meant, *get_args(meant)) if isinstance(each, type)]
                return ANY if any(map(_is_async, kinds)) else annotation
            case _:
                return annotation


def written() -> str:
    """Return the text of the file."""
    wanted = Wanted()
    classes = "\n".join(ast.unparse(ast.fix_missing_locations(_class(cls, Source(cls, wanted)))) for cls in CLASSES)
    imports = [
        f"from {room} import {', '.join(names)}" if names != {""} else f"import {room}"
        for room, names in wanted.names.items()
    ]
    text = "\n".join([HEAD, *imports, "", *wanted.variables.values(), classes])
    text = _ruff("check", "--select", "I,F401,UP043", "--fix", given=text)
    return _ruff("format", given=text)


def _class(cls: type, source: Source) -> ast.ClassDef:
    """Return the class for a class."""
    node = next(part for part in source.body if isinstance(part, ast.ClassDef) and part.name == cls.__name__)
    above = [base for base in cls.__bases__ if base in CLASSES]
    variables = ", ".join(each.__name__ for each in getattr(cls, "__parameters__", ()))
    bases = [*(f"Blocking{each.__name__}" for each in above), f"Protocol[{variables}]" if variables else "Protocol"]
    for variable in getattr(cls, "__parameters__", ()):
        source.want(ast.Name(variable.__name__))
    body: list[ast.stmt] = [_said(f"`{cls.__name__}` where nothing is async.")]
    body += [_fitted(each, source, cls) for each in _members(node)]
    return ast.ClassDef(f"Blocking{cls.__name__}", [_expression(each) for each in bases], [], body, [])


def _members(node: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the public methods of a class, and its attributes as properties."""
    overloaded = {
        each.name
        for each in node.body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and _is_overload(each)
    }
    for part, behind in zip(node.body, [*node.body[1:], None], strict=True):
        match part:
            case ast.AnnAssign(ast.Name(name), annotation) if not name.startswith("_"):
                yield _property(name, annotation, behind)
            case ast.Assign([ast.Name(name)], ast.Constant(value)) if not name.startswith("_"):
                yield _property(name, ast.Name(type(value).__name__), behind)
            case ast.FunctionDef(name="__init__"):
                yield from _set(part)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name in SPECIAL or name[0] != "_":
                if name not in overloaded or _is_overload(part):
                    yield part
            case _:
                pass


def _set(init: ast.FunctionDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the public attributes that a constructor sets."""
    parameters = {each.arg: each.annotation for each in (*init.args.args, *init.args.kwonlyargs)}
    for part, behind in zip(init.body, [*init.body[1:], None], strict=True):
        match part:
            case ast.AnnAssign(ast.Attribute(ast.Name("self"), name), annotation) if name[0] != "_":
                yield _property(name, annotation, behind)
            case ast.Assign([ast.Attribute(ast.Name("self"), name)], value) if name[0] != "_":
                given = parameters.get(ast.unparse(value))
                if given is None:
                    raise ValueError(f"say of what type it is: self.{name}: … = {ast.unparse(value)}")
                yield _property(name, given, behind)
            case _:
                pass


def _fitted(member: ast.FunctionDef | ast.AsyncFunctionDef, source: Source, cls: type) -> ast.FunctionDef:
    """Return a method as it is where nothing is async."""
    if member.returns is None:
        raise ValueError(f"{cls.__name__}.{member.name} does not say what it returns")
    returns = source.given(member.returns)
    arguments = member.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    for each in filter(None, every):
        if each.arg == "self" and each.annotation is not None:
            each.annotation = _renamed(each.annotation, cls.__name__)
        elif each.annotation is not None:
            source.want(each.annotation)
    source.want(returns)
    arguments.defaults = list(map(_default, arguments.defaults))
    arguments.kw_defaults = [each and _default(each) for each in arguments.kw_defaults]
    said = ast.get_docstring(member)
    body = ast.Expr(ast.Constant(...)) if said is None else _said(said.partition("\n")[0])
    name = SPECIAL.get(member.name, member.name)
    return ast.FunctionDef(name, arguments, [body], member.decorator_list, returns)


def _property(name: str, annotation: ast.expr, behind: ast.stmt | None) -> ast.FunctionDef:
    match behind:
        case ast.Expr(ast.Constant(str(said))):
            body = _said(said)
        case _:
            body = ast.Expr(ast.Constant(...))
    arguments = ast.arguments([], [ast.arg("self")], None, [], [], None, [])
    return ast.FunctionDef(name, arguments, [body], [ast.Name("property")], annotation)


def _default(value: ast.expr) -> ast.expr:
    return value if isinstance(value, ast.Constant | ast.Tuple) else ast.Constant(...)


def _is_overload(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(ast.unparse(each) == "overload" for each in function.decorator_list)


def _renamed(annotation: ast.expr, name: str) -> ast.expr:
    """Return the annotation of an async class as that of its blocking one."""
    if isinstance(annotation, ast.Subscript):
        return ast.Subscript(ast.Name(f"Blocking{name}"), annotation.slice)
    return ast.Name(f"Blocking{name}")


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _said(text: str) -> ast.Expr:
    return ast.Expr(ast.Constant(text))


def _room(module: str, name: str = "") -> str:
    """Return the door through which a name of a module is reached: the innermost package above it that exports the name."""
    if module in DOORS or not module.startswith("graphagent"):
        return DOORS.get(module, module)
    room = re.sub(
        r"\._.*", "", re.sub(r"^graphagent\.log\b", "graphagent.run", module)
    )  # the door of run has what users see of logs
    while name and "." in room and not hasattr(import_module(room), name):
        room = room.rpartition(".")[0]
    return room


def _ruff(*command: str, given: str) -> str:
    """Return a text as ruff makes it."""
    ended = subprocess.run(  # noqa: S603  ruff itself
        [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", str(FILE), "-"],
        input=given, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return ended.stdout


if __name__ == "__main__":
    FILE.write_text(written(), "utf-8")
