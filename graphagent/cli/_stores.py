"""Where the data of commands is: folders and files, opened with or without a key."""

from __future__ import annotations

import os
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio
import typer

from graphagent.cli._options import value_of
from graphagent.errors import PlainStoreError, SealedStoreError
from graphagent.memory import EncryptedMemoryProvider, FileMemoryProvider
from graphagent.store import EncryptedStore, SqliteStore

if TYPE_CHECKING:
    from graphagent.protocols import KeepingProvider, Store

T = TypeVar("T")
SEALED = "facts.db"
"""The file of encrypted facts in the folder of a memory."""


CONVERSATIONS = "conversations.db"
"""The file of the threads of `graphagent chat` in the folder of a memory."""


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


def memory_folder(memory: Path | None) -> Path:
    """Return the folder of the facts: the one that is named, or the default."""
    return memory.expanduser() if memory is not None else home() / "memory"


def fact_provider(folder: Path, key: str | None, *, new: bool = True) -> KeepingProvider:
    """Return the provider of the facts in a folder: encrypted with a key, readable files without one.

    Unless it is to be `new`, a memory that does not exist is not created by reading it: it has no facts.

    Raises:
        BadParameter: the facts are encrypted and there is no key, or they are plain and there is one; or it is not a key.
    """
    is_sealed = (folder / SEALED).exists()
    if key is None:
        if is_sealed:
            raise typer.BadParameter(
                f"the memory in {str(folder)!r} is sealed; say where its key is: --key env:NAME or file:PATH"
            )
        return FileMemoryProvider(folder)
    if not is_sealed and folder.is_dir() and any(folder.rglob("*.jsonl")):
        raise typer.BadParameter(
            f"the memory in {str(folder)!r} is plain; leave out --key, or move it into a sealed one: "
            f"graphagent facts export, then graphagent facts import with another --memory and --key"
        )
    with value_of("--key"):
        encrypted = EncryptedMemoryProvider(folder, key=key)
    return encrypted if new or is_sealed else FileMemoryProvider(folder)


@asynccontextmanager
async def open_store(what: str, file: Path | None, key: str | None, *, new: bool = False) -> AsyncGenerator[Store]:
    """Open the store with the `runs` or the `notes`, in the default file without one, encrypted if there is a key.

    A store that does not exist is created if it is to be `new`.

    Raises:
        BadParameter: there is no such store; it is encrypted and there is no key, or it is plain and there is one.
        StoreError: the store cannot be read.
    """
    path = _file(file, what, new=new)
    async with SqliteStore(path) as plain:
        with value_of("--key"):
            store = plain if key is None else EncryptedStore(plain, key)
        try:
            await store.get(
                (what,)
            )  # there is no such item; but a wrong or a missing key fails here, before any change
        except SealedStoreError:
            raise typer.BadParameter(
                f"the store {str(path)!r} is sealed; say where its key is: --key env:NAME or file:PATH"
            ) from None
        except PlainStoreError:
            raise typer.BadParameter(
                f"the store {str(path)!r} is plain; leave out --key, or move its {what} into a sealed one: graphagent {what} "
                f"export, then graphagent {what} import with another --store and --key"
            ) from None
        yield store


def _file(file: Path | None, what: str, *, new: bool) -> Path:
    path = file.expanduser() if file is not None else home() / f"{what}.db"
    if not path.exists():
        if not new:
            raise typer.BadParameter(f"there is no store {str(path)!r}; name the file with the {what}: --store FILE")
        path.parent.mkdir(parents=True, exist_ok=True)
    return path


def with_store(
    what: str, file: Path | None, key: str | None, work: Callable[[Store], Awaitable[T]], *, new: bool = False
) -> T:
    """Open a store as `open_store` does, await `work` with it, close it, and return what `work` returned."""

    async def main() -> T:
        async with open_store(what, file, key, new=new) as store:
            return await work(store)

    return anyio.run(main)
