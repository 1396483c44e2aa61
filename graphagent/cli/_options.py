"""Options shared by several commands, and the meaning of their values."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from graphagent import _clock
from graphagent.cli._store_place import SERVER, StorePlace, store_place
from graphagent.errors import GraphAgentError
from graphagent.memory import Scope, ScopeKind, Subject

AGENT_NAME = "chat"
"""The agent whose facts `graphagent chat` saves."""
SUBJECTS = (
    Subject("user", "the person who speaks: name, home, work, preferences, tools, health, people around", priority=1),
    Subject("project", "what the person works on: its name, dates, tools, people, decisions", priority=2),
)
"""The subjects of `graphagent chat`."""
_LAST = time(23, 59, 59, 999_000)
"""The last millisecond of a day, since times are counted in milliseconds."""
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def option(name: str, metavar: str, text: str, **more: Any) -> Any:
    """Return an option with a help text, which names the default."""
    return typer.Option(name, metavar=metavar, help=text, show_default=False, **more)


def flag(*names: str, text: str) -> Any:
    """Return an option without a value."""
    return typer.Option(*names, help=text)


def argument(metavar: str, text: str, **more: Any) -> Any:
    """Return a positional argument with a help text."""
    return typer.Argument(metavar=metavar, help=text, show_default=False, **more)


def expand_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of a command that is a dataclass by one option per field.

    Typer reads the options of a command from its signature. With this decorator, options that several commands share are
    declared in one dataclass, and arrive as one object.
    """
    given = inspect.signature(command, eval_str=True).parameters.values()
    groups: dict[str, Any] = {each.name: each.annotation for each in given if is_dataclass(each.annotation)}
    options: list[inspect.Parameter] = []
    for each in given:
        if each.name in groups:
            hints = get_type_hints(each.annotation, include_extras=True)
            for field in fields(each.annotation):
                option = each.replace(name=field.name, default=field.default, annotation=hints[field.name])
                options.append(option.replace(kind=each.KEYWORD_ONLY))
        else:
            options.append(each.replace(kind=each.KEYWORD_ONLY))

    @functools.wraps(command)
    def expanded(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    vars(expanded).update(__signature__=inspect.Signature(options))
    expanded.__annotations__ = {each.name: each.annotation for each in options}
    del vars(expanded)["__wrapped__"]  # otherwise Typer would read the signature of the wrapped function
    return expanded


def _owner(name: str | None) -> str | None:
    try:
        return name and Scope.agent(name).name  # an owner's name has the same limits as a scope's
    except ValueError:
        raise typer.BadParameter("the name of an owner must have at most 1,000 characters of Unicode text") from None


def owner_option(text: str) -> Any:
    """Return the option `--owner` with a help text."""
    return option("--owner", "NAME", text, callback=_owner)


def place_option(text: str) -> Any:
    """Return the option `--store`, which names a path or a database, with a help text."""
    return option("--store", "PATH|DSN", f"{text}. A database on a server: {SERVER}, or env:NAME.", parser=store_place)


def place_argument(metavar: str, text: str) -> Any:
    """Return a positional argument that names a path or a database, with a help text."""
    return argument(metavar, text, parser=store_place)


def store_option(text: str, default: str) -> Any:
    """Return the option `--store`, with the given beginning of its help text and the name of its default."""
    return place_option(f"{text}. Default: {default} in $GRAPHAGENT_HOME, or else in your user data folder")


def file_option(what: str, *, first: str = "") -> Any:
    """Return the option `--store` for the `runs` or the `notes`, with the `first` place to look in by default."""
    before = f"{first}, or else " if first else ""
    return store_option(f"The file with the {what}, or its folder, in which it is {what}.db", f"{before}{what}.db")


def key_option(text: str) -> Any:
    """Return the option `--key` with the beginning of its help text."""
    return option("--key", "KEY", f"{text}: {KEY_PLACES}.")


def anchor_of(anchor: str | None, store: StorePlace) -> str | None:
    """Return the anchor that `--anchor` names for a store: in a folder, it has the name of the store.

    Raises:
        BadParameter: a folder is named, and the store is a database.
    """
    if anchor is None or anchor.startswith("keyring:"):
        return anchor
    place = Path(anchor).expanduser()
    if not place.is_dir():
        return str(place)
    if store.is_server:
        raise typer.BadParameter(
            f"{anchor!r} is a folder; the anchor of a database is a file: {anchor.rstrip('/')}/NAME.anchor, or keyring:SERVICE/NAME",
            param_hint="--anchor",
        )
    return str(place / f"{store.path.name}.anchor")


def key_shown(key: str | None) -> str | None:
    """Return the value of `--key` for a printed command: the place of a key, but never a key itself."""
    place = key if key is None else key.removeprefix(f"{PASSPHRASE}:")
    return key if place is None or place == PASSPHRASE or place.startswith(("env:", "file:", "keyring:")) else "KEY"


PASSPHRASE = "passphrase"  # noqa: S105  the word that is written for one
KEY_PLACES = "env:NAME, file:PATH or keyring:SERVICE/NAME names where the key is; passphrase asks for one"
AnyPlace = Annotated[
    StorePlace | None,
    place_argument(
        "STORE",
        f"The file of a store, a folder, or a database ({SERVER}). Default: $GRAPHAGENT_HOME, or else your user data folder.",
    ),
]
"""A store, or everything in a folder."""
AnchorPlace = Annotated[
    str | None,
    option(
        "--anchor",
        "PLACE",
        "Refuse an older copy of an encrypted store: a file elsewhere, a folder with one for each store, or keyring:SERVICE/NAME.",
    ),
]
AllOwners = Annotated[bool, flag("--all-owners", text="Those of all owners. This reads everything in the store.")]
AnyOwner = Annotated[str | None, owner_option("Only this owner's. Default: all owners.")]
Out = Annotated[Path | None, option("--out", "FILE", "A new file that only you can read. Default: standard output.")]
Json = Annotated[bool, flag("--json", text="Print JSON, for programs.")]
Yes = Annotated[bool, flag("--yes", "-y", text="Do not ask for confirmation.")]


@contextmanager
def value_of(option: str | None = None) -> Generator[None]:
    """Report a ValueError as a wrong value of an option."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, GraphAgentError):
            raise
        raise typer.BadParameter(str(error), param_hint=option) from None


def age_of(text: str | None, option: str = "--older-than") -> timedelta | None:
    """Return the duration that a text such as `30d` stands for.

    Raises:
        BadParameter: the text is not a duration.
    """
    if text is None:
        return None
    fits = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip().lower())
    if fits is None:
        raise typer.BadParameter(f"{text!r} is not a time; write a number and s, m, h, d or w: 30d", param_hint=option)
    try:
        return timedelta(seconds=float(fits[1]) * _SECONDS[fits[2]])
    except OverflowError:
        raise typer.BadParameter(f"{text!r} is too long ago to be a time", param_hint=option) from None


def time_of(text: str | None, option: str, *, end: bool = False) -> datetime | None:
    """Return the time that a text stands for.

    Args:
        text: A date or a time in the zone of this machine, or an age such as `30d`.
        option: The option that it is the value of.
        end: Whether a date stands for the end of its day.

    Raises:
        BadParameter: the text is not a time.
    """
    if text is None:
        return None
    given = text.strip()
    try:
        is_age = re.fullmatch(r"\d+(?:\.\d+)?\s*[smhdw]", given.lower())
        if (age := age_of(given if is_age else None, option)) is not None:
            return datetime.fromtimestamp(_clock.now() / 1000, UTC) - age
        if len(given) == len("2026-01-31"):
            return datetime.combine(date.fromisoformat(given), _LAST if end else time.min).astimezone()
        moment = datetime.fromisoformat(given)
        return moment if moment.tzinfo else moment.astimezone()
    except OverflowError:
        raise typer.BadParameter(f"{text!r} is too long ago to be a time", param_hint=option) from None
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time; write a date such as 2026-01-31 or 2026-01-31T09:30, or how long ago, such as 30d",
            param_hint=option,
        ) from None


def scope_of(text: str) -> Scope:
    """Return the scope that a text such as `agent:chat` names.

    Raises:
        BadParameter: the text is not a scope.
    """
    kind, colon, name = text.partition(":")
    kinds = [each.value for each in ScopeKind]
    if not colon or kind not in kinds or not name:
        raise typer.BadParameter(
            f"{text!r} is not a scope; write KIND:NAME, where KIND is one of {', '.join(kinds)}", param_hint="--scope"
        )
    with value_of("--scope"):
        return Scope(ScopeKind(kind), name)


def subject_of(name: str) -> Subject:
    """Return the subject with that name; those of `graphagent chat` have a description and a priority.

    Raises:
        BadParameter: the name is not valid.
    """
    with value_of("--subject"):
        return next((each for each in SUBJECTS if each.name == name), None) or Subject(name)
