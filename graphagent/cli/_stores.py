"""Where the data of commands is: folders and files, opened with or without a key."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio
import typer

from graphagent.cli._options import KEY_PLACES, PASSPHRASE, anchor_of, value_of
from graphagent.cli._output import aside
from graphagent.cli._prompts import ask_unseen
from graphagent.errors import PlainStoreError, SealedStoreError, StoreError, StoreNotFoundError
from graphagent.memory import EncryptedMemoryProvider, FileMemoryProvider, StoreMemoryProvider
from graphagent.store import EncryptedStore, Passphrase, SqliteStore
from graphagent.store._internal import is_store_file

if TYPE_CHECKING:
    from graphagent.history import Place
    from graphagent.protocols import KeepingProvider, Store
    from graphagent.store import KeySource

T = TypeVar("T")
SEALED = "facts.db"
"""The file of encrypted facts in the folder of a memory."""


CONVERSATIONS = "conversations.db"
"""The file of the threads of `graphagent chat` in the folder of a memory."""
_NAMES = {"facts": "memory", "notes": "notes.db", "runs": "runs.db"}
"""What is where in the default folder."""
_OWN = (CONVERSATIONS, _NAMES["notes"], _NAMES["runs"])
"""The files of stores that commands keep beside facts."""
_READABLE = "*/*/*/*.jsonl"
"""The readable files of a memory in its folder: those of an owner, a kind of scopes, a scope, a subject."""
_BEGIN = {"facts": "chat", "notes": 'notes remember "…"'}
"""The command that keeps the first of them."""


def home() -> Path:
    """Return the default folder for everything that commands store."""
    if folder := os.environ.get("GRAPHAGENT_HOME"):
        return Path(folder).expanduser()
    from platformdirs import user_data_path

    return user_data_path("graphagent", appauthor=False)


def other_conversations(folder: Path) -> str | None:
    """Return a hint that conversations may contain what was forgotten, if any are stored in the folder of a memory."""
    file = folder / CONVERSATIONS
    if not file.exists():
        return None
    where = shlex.quote(str(file))
    return (
        f"Conversations may still contain it. They are listed by graphagent runs threads --store {where}, and removed by "
        f"graphagent runs forget --thread NAME --store {where}"
    )


def place_of(what: str, given: Path | None, *, new: bool) -> Path:
    """Return where the `facts`, the `notes` or the `runs` are in what `--store` names, or in the default place without it.

    Facts are in a folder, or in a file of a program. Notes and runs are in a file, which has the default name where a folder is named.

    Raises:
        BadParameter: there is no such store, and it is not to be `new`.
        StoreError: the default place is meant, and nothing has been kept there yet.
    """
    named = given.expanduser() if given is not None else home() / _NAMES[what]
    path = named / _NAMES[what] if what != "facts" and names_folder(named) else named
    if new or path.exists():
        return path
    if given is None and what in _BEGIN:
        raise StoreError(f"nothing has been kept yet; begin with: graphagent {_BEGIN[what]}")
    kind, place = (
        ("memory", "the folder or the file of the facts")
        if what == "facts"
        else ("store", f"the file of the {what}, or the folder that has it")
    )
    error = StoreNotFoundError(kind, str(path if named.exists() else named), f"name {place}: --store PATH")
    raise typer.BadParameter(str(error), param_hint="--store")


def names_folder(path: Path) -> bool:
    """Return whether a path is a folder, or would be one: what ends with a suffix, such as `.db`, would be a file."""
    return path.is_dir() or not (path.exists() or path.suffix)


def key_source(key: KeySource, *, new: bool = False, what: str = "The pass phrase") -> KeySource:
    """Return the key that `--key` names; the pass phrase is asked for, twice if it is a new one.

    Raises:
        BadParameter: there is no terminal to ask for a pass phrase at, or it is empty.
        Exit: the person left.
    """
    if key != PASSPHRASE:
        return key
    if not sys.stdin.isatty():
        raise typer.BadParameter(
            "there is no terminal to ask for the pass phrase at; write passphrase:env:NAME, or passphrase:file:PATH with a file that "
            "only you can read",
            param_hint="--key",
        )
    with value_of("--key"):
        return _typed_passphrase(what, new=new)


@cache
def _typed_passphrase(what: str, *, new: bool) -> Passphrase:
    """Ask for a pass phrase, once for a command, which may open several stores with it."""
    given = Passphrase(ask_unseen(what, twice=new))
    if new:
        aside(
            "If you forget it, nobody can help. Make a recovery key now: graphagent keys add recovery --recovery --key passphrase"
        )
    return given


def fact_provider(
    store: Path | None, key: KeySource | None, anchor: str | None = None, *, new: bool
) -> KeepingProvider:
    """Return the provider of the facts in a folder: encrypted with a key, readable files without one.

    Raises:
        BadParameter: there is no such folder, and it is not to be `new`, or it is a file; the facts are encrypted and there is no
            key, or they are plain and there is one; or it is not a key.
        StoreError: the default place is meant, and nothing has been kept there yet.
    """
    folder = place_of("facts", store, new=new)
    if not names_folder(folder):
        raise typer.BadParameter(
            f"{str(folder)!r} is the name of a file, and a memory is a folder", param_hint="--store"
        )
    is_sealed = (folder / SEALED).exists()
    check_anchor(key, anchor)
    if key is None:
        if is_sealed:
            raise typer.BadParameter(
                f"the memory in {str(folder)!r} is sealed; say where its key is: --key, where {KEY_PLACES}"
            )
        return FileMemoryProvider(folder)
    if not is_sealed and folder.is_dir() and any(folder.rglob("*.jsonl")):
        raise typer.BadParameter(
            f"the memory in {str(folder)!r} is plain; leave out --key, or move it into a sealed one: "
            f"graphagent facts export, then graphagent facts import with another --store and --key"
        )
    given = key_source(key, new=not is_sealed)
    with value_of():
        encrypted = EncryptedMemoryProvider(folder, key=given, anchor=anchor_of(anchor, folder / SEALED))
    return encrypted if new or is_sealed else FileMemoryProvider(folder)


@asynccontextmanager
async def open_facts(
    store: Path | None, key: KeySource | None, anchor: str | None = None, *, new: bool
) -> AsyncGenerator[KeepingProvider]:
    """Open the provider of the facts in a folder, or in the file of a program with a `StoreMemoryProvider`.

    Raises:
        BadParameter: as in `fact_provider` and `open_store`.
        StoreError: the store cannot be read, or the default place is meant, and nothing has been kept there yet.
    """
    path = place_of("facts", store, new=new)
    if names_folder(path):
        provider = fact_provider(store, key, anchor, new=new)
        async with provider:
            yield provider
    else:
        async with open_store("facts", store, key, anchor, new=new) as opened:
            yield StoreMemoryProvider(opened)


@asynccontextmanager
async def open_store(
    what: str, store: Path | None, key: KeySource | None, anchor: str | None = None, *, new: bool = False
) -> AsyncGenerator[Store]:
    """Open the store with the `runs`, the `notes` or the `facts`, encrypted if there is a key.

    A store that does not exist is created if it is to be `new`.

    Raises:
        BadParameter: there is no such store; it is encrypted and there is no key, or it is plain and there is one.
        StoreError: the store cannot be read, or the default place is meant, and nothing has been kept there yet.
    """
    path = place_of(what, store, new=new)
    check_anchor(key, anchor)
    key = key if key is None else key_source(key, new=not path.exists())
    async with SqliteStore(path) as plain:
        with value_of("--key"):
            opened = plain if key is None else EncryptedStore(plain, key, anchor=anchor_of(anchor, path))
        try:
            await opened.get(
                (what,)
            )  # there is no such item; but a wrong or a missing key fails here, before any change
        except SealedStoreError:
            raise typer.BadParameter(
                f"the store {str(path)!r} is sealed; say where its key is: --key, where {KEY_PLACES}"
            ) from None
        except PlainStoreError:
            raise typer.BadParameter(
                f"the store {str(path)!r} is plain; leave out --key, or move its {what} into a sealed one: graphagent {what} "
                f"export, then graphagent {what} import with another --store and --key"
            ) from None
        yield opened


@asynccontextmanager
async def open_everything(
    stores: Sequence[Path] | None, key: str | None, anchor: str | None = None
) -> AsyncGenerator[list[Place]]:
    """Open all that is kept in some files and folders, or else in the default folder: encrypted with the key, where it is sealed.

    In a folder, these are the memory that it is or has, and the files of stores in it and in its folder `memory`.

    Raises:
        BadParameter: a path does not exist, or has nothing; or something is sealed, and there is no key.
        StoreError: something cannot be read, or the default folder is meant, and nothing has been kept there yet.
    """
    check_anchor(key, anchor)
    given = None if key is None else key_source(key)
    async with AsyncExitStack() as opened:
        yield [await opened.enter_async_context(open_place(each, given, anchor)) for each in all_kept(stores)]


def all_kept(stores: Sequence[Path] | None) -> list[Path]:
    """Return the memories and the files of stores in some files and folders, or else in the default folder.

    Raises:
        BadParameter: a path does not exist, or has nothing.
        StoreError: the default folder is meant, and nothing has been kept there yet.
    """
    places: list[Path] = []
    for given in [home()] if stores is None else [each.expanduser() for each in stores]:
        found = [given] if given.is_file() else list(_kept_in(given))
        if not found and stores is not None:
            raise typer.BadParameter(f"{str(given)!r} has nothing that is kept by graphagent", param_hint="--store")
        places += found
    if not places:
        raise StoreError(f"nothing has been kept yet; begin with: graphagent {_BEGIN['facts']}")
    return places


def _kept_in(folder: Path) -> Iterator[Path]:
    """Yield the memories and the files of stores in a folder and in its folder `memory`: those of commands and of programs."""
    for each in (folder / _NAMES["facts"], folder):
        if (each / SEALED).exists() or any(each.glob(_READABLE)):
            yield each
        for file in sorted(
            each.glob("*")
        ):  # a file that a command made is found even if nothing of it is left to recognise
            if file.name in _OWN or (file.name != SEALED and is_store_file(file)):
                yield file


def stores_in(named: Path, kind: str = "store") -> list[Path]:
    """Return the file that is named, or the files of the stores in a folder, sealed or not; readable facts are not a store.

    Raises:
        StoreNotFoundError: there is no such file or folder, or the folder has no store.
    """
    if named.is_file():
        return [named]
    found = [each / SEALED if each.is_dir() else each for each in _kept_in(named)]
    if stores := [each for each in found if each.is_file()]:
        return stores
    advice = "name the file of a store, or a folder with some: --store PATH"
    if named.is_dir():
        raise StoreError(f"the folder {str(named)!r} has no {kind}; {advice}")
    raise StoreNotFoundError(kind, str(named), advice)


def stores_of_programs(folder: Path | None) -> str:
    """Return a hint that names the stores in a folder in which a program may keep facts; empty if there are none."""
    found = iter(()) if folder is None else _kept_in(folder.expanduser())
    files = [str(each) for each in found if each.is_file() and each.name not in _OWN]
    return (
        f" A program may keep facts in a store of this folder: --store {' or '.join(map(shlex.quote, files))}"
        if files
        else ""
    )


def _memory_in(path: Path, key: KeySource | None, anchor: str | None) -> KeepingProvider | None:
    """Return the provider of the facts in a folder; None if it is a file."""
    if not path.is_dir():
        return None
    sealed = (path / SEALED).exists()
    return fact_provider(path, key if sealed else None, anchor if sealed else None, new=False)


@asynccontextmanager
async def open_place(path: Path, key: KeySource | None, anchor: str | None = None) -> AsyncGenerator[Place]:
    """Open a memory or the file of a store, encrypted with the key, if it is sealed.

    Raises:
        BadParameter: it is sealed, and there is no key.
        StoreError: it cannot be read.
    """
    if (memory := _memory_in(path, key, anchor)) is not None:
        async with memory:
            yield memory
        return
    async with SqliteStore(path) as plain:
        try:
            await plain.get(("facts",))  # there is no such item; but what is sealed is refused here
            store: Store = plain
        except SealedStoreError:
            if key is None:
                raise typer.BadParameter(
                    f"the store {str(path)!r} is sealed; say where its key is: --key, where {KEY_PLACES}"
                ) from None
            with value_of("--key"):
                store = EncryptedStore(plain, key, anchor=anchor_of(anchor, path))
            await store.get(("facts",))  # a wrong key fails here, before any change
        yield store


def check_anchor(key: KeySource | None, anchor: str | None) -> None:
    """Raise a `BadParameter` if there is an anchor and no key."""
    if anchor is not None and key is None:
        raise typer.BadParameter("only what is encrypted has an anchor; give --key too", param_hint="--anchor")


def with_store(
    what: str,
    store: Path | None,
    key: str | None,
    work: Callable[[Store], Awaitable[T]],
    *,
    anchor: str | None = None,
    new: bool = False,
) -> T:
    """Open a store as `open_store` does, await `work` with it, close it, and return what `work` returned."""

    async def main() -> T:
        async with open_store(what, store, key, anchor, new=new) as opened:
            return await work(opened)

    return anyio.run(main)
