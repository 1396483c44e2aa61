"""`graphagent draw`: a strategy of a module or a file, as a picture."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import typer

from graphagent import Agent, Strategy
from graphagent.errors import StoreError


def strategy_at(target: str) -> Strategy[Any, Any]:
    """Give the strategy that `module:name` or `file.py:name` names; what is callable is called, an agent gives its own.

    Raises:
        BadParameter: there is none.
    """
    place, colon, name = target.rpartition(":")
    if not colon or "/" in name or "\\" in name:
        place, name = target, ""
    module = _module(place)
    if not name:
        return _only(module, place)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise typer.BadParameter(f"{place!r} has no {name!r}; strategies in it: {_listed(module)}")
        found = getattr(found, part)
    if callable(found) and not isinstance(found, Strategy | type):
        try:
            found = found()
        except TypeError as error:
            raise typer.BadParameter(f"{target!r} cannot be called without arguments: {error}") from None
    if isinstance(found, Agent):
        found = cast("Any", found).strategy
    if not isinstance(found, Strategy):
        raise typer.BadParameter(
            f"{target!r} is a {type(found).__name__}, and no strategy; in it are: {_listed(module)}"
        )
    return cast("Any", found)  # type: ignore[no-any-return]


def write(text: str, out: Path | None) -> None:
    """Write a picture to a file, or to standard output.

    Raises:
        StoreError: the file cannot be written.
    """
    if out is None:
        sys.stdout.write(text)
        return
    try:
        out.write_text(text, "utf-8")
    except OSError as error:
        raise StoreError(f"{str(out)!r} cannot be written: {error.strerror}") from None


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
        with redirect_stdout(sys.stderr):  # what a program prints is no part of the picture
            spec.loader.exec_module(module)
        return module
    try:
        with redirect_stdout(sys.stderr):
            return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not (place == error.name or place.startswith(f"{error.name}.")):
            raise
        raise typer.BadParameter(
            f"there is no module {error.name!r}; name a module or a file: pkg.module:name, file.py:name"
        ) from None


def _strategies(module: ModuleType) -> dict[str, Strategy[Any, Any]]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Strategy)}


def _listed(module: ModuleType) -> str:
    return ", ".join(sorted(_strategies(module))) or "none"


def _only(module: ModuleType, place: str) -> Strategy[Any, Any]:
    found = _strategies(module)
    if len(found) != 1:
        raise typer.BadParameter(
            f"{place!r} does not hold exactly one strategy; write {place}:NAME (there: {_listed(module)})"
        )
    return next(iter(found.values()))
