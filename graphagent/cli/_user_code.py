"""Strategies and agents that the user's modules and files define."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

import typer

from graphagent import Agent, Strategy, tool
from graphagent._article import kind_of
from graphagent._sync import bare
from graphagent.llm import Tool
from graphagent.work import Schedule

T = TypeVar("T")


def strategy_at(target: str) -> Strategy[Any, Any]:
    """Return the strategy that `module:name` or `file.py:name` names. A function is called; of an agent, its strategy is returned.

    Raises:
        BadParameter: there is none.
    """
    found = _found(target, Strategy, "strategy", "strategies")
    if isinstance(found, Agent):
        return cast("Any", found).strategy  # type: ignore[no-any-return]
    return cast("Any", found)  # type: ignore[no-any-return]


def agent_at(target: str) -> Agent[Any, Any]:
    """Return the agent that `module:name` or `file.py:name` names. A function is called.

    Raises:
        BadParameter: there is none.
    """
    return cast("Any", _found(target, Agent, "agent", "agents"))  # type: ignore[no-any-return]


def tool_at(target: str) -> Tool | Agent[Any, Any]:
    """Return the tool or the agent that `module:name` or `file.py:name` names; of any other function, a tool is made.

    Raises:
        BadParameter: there is none.
    """
    place, colon, name = target.rpartition(":")
    module = _module(place) if colon else None
    found: Any = bare(getattr(module, name, None))
    if isinstance(found, (Tool, Agent)):
        return cast("Any", found)  # type: ignore[no-any-return]
    try:
        if inspect.isfunction(found):
            return tool(found)
    except TypeError as error:
        raise typer.BadParameter(f"{target!r} cannot be a tool: {error}", param_hint="--tool") from None
    there = ", ".join(_of(module, Tool)) if module is not None else ""
    raise typer.BadParameter(
        f"{target!r} is not a function; write MODULE:NAME or FILE.py:NAME{f' (tools in it: {there})' if there else ''}",
        param_hint="--tool",
    )


def work_at(target: str) -> tuple[list[Agent[Any, Any]], list[Schedule]]:
    """Return the agents and the schedules that `module:name` or `file.py:name` names: one agent, or several of both. A function is called.

    Raises:
        BadParameter: there are none.
    """
    given, there = _named(target, Agent, "agent", "agents")
    several: list[Any] = [bare(each) for each in cast("Any", given)] if isinstance(given, list | tuple) else [given]
    for each in several:
        if not isinstance(each, (Agent, Schedule)):
            raise typer.BadParameter(
                f"{target!r} has {kind_of(each)}, and a worker has agents and schedules; in it are: {there}"
            )
    if not several:
        raise typer.BadParameter(f"{target!r} is empty; a worker has agents and schedules")
    return [each for each in several if isinstance(each, Agent)], [
        each for each in several if isinstance(each, Schedule)
    ]


def _found(target: str, kind: type[Any], one: str, several: str) -> object:
    given, there = _named(target, kind, one, several)
    if not isinstance(given, (kind, Agent)):
        raise typer.BadParameter(f"{target!r} is {kind_of(given)}, and no {one}; in it are: {there}")
    return given


def _named(target: str, kind: type[Any], one: str, several: str) -> tuple[object, str]:
    """Return the object that a target names, made if it is a function, and the other possible names in its module."""
    place, colon, name = target.rpartition(":")
    if not colon or "/" in name or "\\" in name:
        place, name = target, ""
    module = _module(place)
    there = ", ".join(sorted(_there(module, kind))) or "none"
    if not name:
        held = _of(module, kind)
        if len(held) != 1:
            raise typer.BadParameter(f"{place!r} does not hold exactly one {one}; write {place}:NAME (there: {there})")
        return next(iter(held.values())), there
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise typer.BadParameter(f"{place!r} has no {name!r}; {several} in it: {there}")
        found = getattr(found, part)
    try:
        return bare(found() if _makes(found) else found), there
    except TypeError as error:
        raise typer.BadParameter(
            f"{target!r} cannot be called without arguments: {error}; {several} in {place!r}: {there}"
        ) from None


def _makes(found: object) -> bool:
    """Return whether an object has to be called to get a strategy or an agent."""
    return callable(found) and not isinstance(found, (Strategy, type))


def _of(module: ModuleType, kind: type[T]) -> dict[str, T]:
    return {name: value for name, each in vars(module).items() if isinstance(value := bare(each), kind)}


def _there(module: ModuleType, kind: type[Any]) -> list[str]:
    """Return the names that a person can choose from: objects of that type, agents, and functions that return one."""
    public = {name: bare(value) for name, value in vars(module).items() if not name.startswith("_")}
    return [
        name
        for name, value in public.items()
        if isinstance(value, (kind, Agent)) or (inspect.isfunction(value) and _returns(value, {kind, Agent}))
    ]


def _returns(function: Callable[..., object], kinds: set[type[Any]]) -> bool:
    """Return whether a function can be called without arguments and is annotated to return one of some types."""
    signature = inspect.signature(function)
    if any(each.default is each.empty and each.kind is not each.VAR_KEYWORD and each.kind is not each.VAR_POSITIONAL
           for each in signature.parameters.values()):  # fmt: skip
        return False
    given: object = signature.return_annotation
    text = given if isinstance(given, str) else inspect.formatannotation(given)
    return text.partition("[")[0].rpartition(".")[2] in {each.__name__ for each in kinds}


@contextmanager
def _loading(place: str) -> Generator[None]:
    """Load a user's module: it sees no arguments of the command, and standard output is for the result of the command."""
    arguments, sys.argv = sys.argv, [place]
    try:
        with redirect_stdout(sys.stderr):
            yield
    except SystemExit as error:
        raise typer.BadParameter(
            f"{place!r} ends the process when it is loaded (exit code {error.code!r}); put the code that it runs as a program under "
            f"if __name__ == '__main__':"
        ) from None
    except (ImportError, SyntaxError):  # they come from its imports and its syntax, not from its own code
        raise
    except Exception as error:
        error.add_note(
            f"{place!r} is loaded for its definitions; put the code that it runs as a program under if __name__ == '__main__':"
        )
        raise
    finally:
        sys.argv = arguments


def _module(place: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    if place.endswith(".py") or "/" in place or "\\" in place:
        path = Path(place)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if not path.is_file() or spec is None or spec.loader is None:
            raise typer.BadParameter(f"there is no Python file {place!r}")
        sys.path.insert(0, str(path.parent.absolute()))
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        with _loading(place):
            spec.loader.exec_module(module)
        return module
    if not all(part.isidentifier() for part in place.split(".")):
        raise typer.BadParameter(
            f"{place!r} names neither a module nor a Python file; write pkg.module:name or file.py:name"
        )
    try:
        with _loading(place):
            return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not (place == error.name or place.startswith(f"{error.name}.")):
            raise
        raise typer.BadParameter(
            f"there is no module {error.name!r}; name a module or a file: pkg.module:name, file.py:name"
        ) from None
