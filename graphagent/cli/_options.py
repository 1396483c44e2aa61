"""Which memory a command works on: a folder, a key, and the names that stand in it."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphagent.errors import PlainStoreError, SealedStoreError
from graphagent.memory import EncryptedMemoryProvider, FileMemoryProvider, Scope, ScopeKind, Subject
from graphagent.store import EncryptedStore, SqliteStore

if TYPE_CHECKING:
    from graphagent.protocols import KeepingProvider, Store

SEALED = "facts.db"
AGENT_NAME = "chat"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
SUBJECTS = (
    Subject("user", "the person who speaks: name, home, work, preferences, tools, health, people around", priority=1),
    Subject("project", "what the person works on: its name, dates, tools, people, decisions", priority=2),
)

Memory = Annotated[
    Path | None,
    typer.Option(
        "--memory",
        metavar="DIR",
        help="The folder of the memory; by default $GRAPHAGENT_HOME/memory, else one in your user data folder.",
        show_default=False,
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        help="Seal the memory, or open a sealed one: env:NAME or file:PATH says where the key is. The base64 text of a key "
        "is taken as well, but would stay in your shell's history. Without a key, facts are plain files.",
        show_default=False,
    ),
]


def _owner(name: str | None) -> str | None:
    try:
        return name and Scope.agent(name).name  # what names a scope names an owner
    except ValueError:
        raise typer.BadParameter("the name of an owner must have at most 1,000 characters of Unicode text") from None


Owner = Annotated[
    str, typer.Option("--owner", metavar="NAME", callback=_owner, help="Whose facts: each owner has a memory apart.")
]
AnyOwner = Annotated[
    str | None,
    typer.Option(
        "--owner", metavar="NAME", callback=_owner, help="Only this owner's; all by default.", show_default=False
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="FILE", help="A new file, which only you can read; else standard output.", show_default=False
    ),
]
InSubject = Annotated[
    str | None,
    typer.Option("--subject", metavar="NAME", help="Only what is known about this subject.", show_default=False),
]
InScope = Annotated[
    str | None,
    typer.Option(
        "--scope",
        metavar="KIND:NAME",
        help="Only this scope, such as agent:chat or product:my-app.",
        show_default=False,
    ),
]


def _file_of(what: str) -> Any:
    return typer.Option(
        "--store",
        metavar="FILE",
        help=f"The file with the {what}; by default $GRAPHAGENT_HOME/{what}.db, else one in your user data folder.",
        show_default=False,
    )


def _key_for(what: str) -> Any:
    return typer.Option(
        "--key", metavar="KEY", help=f"{what}: env:NAME or file:PATH says where the key is.", show_default=False
    )


RunsFile = Annotated[Path | None, _file_of("runs")]
RunsKey = Annotated[str | None, _key_for("Open a sealed store")]
NotesFile = Annotated[Path | None, _file_of("notes")]
NotesKey = Annotated[str | None, _key_for("Seal the notes, or open sealed ones")]
NotesOwner = Annotated[str, typer.Option("--owner", metavar="NAME", callback=_owner, help="Whose notes.")]
ToOwner = Annotated[
    str | None,
    typer.Option(
        "--owner",
        metavar="NAME",
        callback=_owner,
        help="Whose they are to be; by default as the file says.",
        show_default=False,
    ),
]
RunsOwner = Annotated[str, typer.Option("--owner", metavar="NAME", callback=_owner, help="Whose runs.")]
Json = Annotated[bool, typer.Option("--json", metavar="", help="Show it as JSON, for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", metavar="", help="Do not ask.")]


def home() -> Path:
    """Give the folder in which everything stands by default."""
    if folder := os.environ.get("GRAPHAGENT_HOME"):
        return Path(folder).expanduser()
    from platformdirs import user_data_path

    return user_data_path("graphagent", appauthor=False)


def folder(memory: Path | None) -> Path:
    """Give the folder of the memory."""
    return memory.expanduser() if memory is not None else home() / "memory"


@asynccontextmanager
async def store(what: str, file: Path | None, key: str | None, *, new: bool = False) -> AsyncGenerator[Store]:
    """Open the store with the `runs` or the `notes`, sealed where there is a key; `new` makes one that is not there.

    Raises:
        BadParameter: there is none, it is sealed and there is no key, or it is plain and there is one.
        StoreError: it cannot be read.
    """
    path = _file(file, what, new=new)
    async with SqliteStore(path) as plain:
        try:
            opened = plain if key is None else EncryptedStore(plain, key)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--key") from None
        try:
            await opened.get((what,))  # nothing stands there; but whether the key fits shows before anything is done
        except SealedStoreError:
            raise typer.BadParameter(
                f"the store {str(path)!r} is sealed; say where its key is: --key env:NAME or file:PATH"
            ) from None
        except PlainStoreError:
            raise typer.BadParameter(
                f"the store {str(path)!r} is plain; leave out --key, or move its {what} into a sealed one: graphagent {what} "
                f"export, then graphagent {what} import with another --store and --key"
            ) from None
        yield opened


def provider(root: Path, key: str | None) -> KeepingProvider:
    """Give the provider of a folder: sealed where there is a key, else plain."""
    sealed = (root / SEALED).exists()
    if key is None:
        if sealed:
            raise typer.BadParameter(
                f"the memory in {str(root)!r} is sealed; say where its key is: --key env:NAME or file:PATH"
            )
        return FileMemoryProvider(root)
    if not sealed and root.is_dir() and any(root.rglob("*.jsonl")):
        raise typer.BadParameter(
            f"the memory in {str(root)!r} is plain; leave out --key, or move it into a sealed one: "
            f"graphagent facts export, then graphagent facts import with another --memory and --key"
        )
    try:
        return EncryptedMemoryProvider(root, key=key)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--key") from None


def _file(file: Path | None, what: str, *, new: bool) -> Path:
    path = file.expanduser() if file is not None else home() / f"{what}.db"
    if not path.exists():
        if not new:
            raise typer.BadParameter(f"there is no store {str(path)!r}; name the file with the {what}: --store FILE")
        path.parent.mkdir(parents=True, exist_ok=True)
    return path


def age_of(text: str | None, option: str = "--older-than") -> timedelta | None:
    """Give the time that a text such as `30d` says.

    Raises:
        BadParameter: it says none.
    """
    if text is None:
        return None
    fits = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip().lower())
    if fits is None:
        raise typer.BadParameter(f"{text!r} is no time; write a number and s, m, h, d or w: 30d", param_hint=option)
    try:
        return timedelta(seconds=float(fits[1]) * _SECONDS[fits[2]])
    except OverflowError:
        raise typer.BadParameter(f"{text!r} is longer ago than time is counted", param_hint=option) from None


def scope_of(text: str) -> Scope:
    """Give the scope that a text such as `agent:chat` names."""
    kind, colon, name = text.partition(":")
    kinds = [each.value for each in ScopeKind]
    if not colon or kind not in kinds or not name:
        raise typer.BadParameter(
            f"{text!r} is no scope; write KIND:NAME, where KIND is one of {', '.join(kinds)}", param_hint="--scope"
        )
    try:
        return Scope(ScopeKind(kind), name)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--scope") from None


def subject_of(name: str) -> Subject:
    """Give the subject of that name."""
    try:
        return next((each for each in SUBJECTS if each.name == name), None) or Subject(name)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--subject") from None
