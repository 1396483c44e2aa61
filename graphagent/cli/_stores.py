"""Where the data of commands is: folders, files and databases, opened with or without a key.

The file is long because each kind of place has its checks, its errors and its advice.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import typer

from graphagent.cli._options import KEY_PLACES, PASSPHRASE, anchor_of, value_of
from graphagent.cli._output import aside
from graphagent.cli._prompts import ask_unseen
from graphagent.cli._store_place import StorePlace
from graphagent.errors import PlainStoreError, SealedStoreError, StoreError, StoreNotFoundError
from graphagent.memory import EncryptedMemoryProvider, FileMemoryProvider, StoreMemoryProvider
from graphagent.store import EncryptedStore, Passphrase, SqliteStore
from graphagent.store._dsn import named_database
from graphagent.store.sqlite._copying import is_store_file

if TYPE_CHECKING:
    from graphagent.history import Place
    from graphagent.protocols import KeepingProvider, Store
    from graphagent.store import KeySource
    from graphagent.store.postgres import PostgresStore

T = TypeVar("T")
SEALED = "facts.db"
"""The file of encrypted facts in the folder of a memory."""


CONVERSATIONS = "conversations.db"
"""The file of the threads of `graphagent chat` in the folder of a memory."""
_NAMES = {"facts": "memory", "notes": "notes.db", "runs": "runs.db"}
"""The names of stores in the default folder."""
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


def conversations_of(memory: StorePlace) -> StorePlace:
    """Return where the threads of `graphagent chat` are that belong to a memory."""
    return memory if memory.is_server else StorePlace(str(memory.path / CONVERSATIONS))


def memory_of(given: StorePlace | None) -> StorePlace | None:
    """Return the memory to which the conversations at a place belong; for any other place, or none, the place itself."""
    if given is None or given.is_server or given.path.name != CONVERSATIONS:
        return given
    return StorePlace(str(given.path.parent))


def is_one_store(given: StorePlace | None) -> bool:
    """Return whether a place is one store for everything, a file or a database, and not a folder with a store for each kind."""
    return given is not None and (given.is_server or not names_folder(given.path))


def other_conversations(memory: StorePlace) -> str | None:
    """Return a hint that conversations may contain the forgotten facts, if any are stored with a memory."""
    place = conversations_of(memory)
    if not place.is_server and not place.path.exists():
        return None
    where = shlex.quote(str(place))
    return (
        f"Conversations may still contain it. They are listed by graphagent runs threads --store {where}, and removed by "
        f"graphagent runs forget --thread NAME --store {where}"
    )


def place_of(what: str, given: StorePlace | None, *, new: bool) -> StorePlace:
    """Return the place of the `facts`, the `notes` or the `runs` in the target of `--store`, or without it in the default place.

    Facts are in a folder, or in a file of a program. Notes and runs are in a file, which has the default name where a folder is named.
    In a database, all are together.

    Raises:
        BadParameter: the store does not exist, and it is not to be `new`.
        StoreError: the default place is meant, and nothing has been kept there yet.
    """
    if given is not None and given.is_server:
        return given
    named = given.path if given is not None else home() / _NAMES[what]
    path = named / _NAMES[what] if what != "facts" and names_folder(named) else named
    if new or path.exists():
        return StorePlace(str(path))
    if given is None and what in _BEGIN:
        raise StoreError(f"no data have been kept yet; begin with: graphagent {_BEGIN[what]}")
    kind, place = (
        ("memory", "the folder or the file of the facts")
        if what == "facts"
        else ("store", f"the file of the {what}, or the folder that has it")
    )
    error = StoreNotFoundError(kind, str(path if named.exists() else named), f"name {place}: --store PATH")
    raise typer.BadParameter(str(error), param_hint="--store")


def names_folder(path: Path) -> bool:
    """Return whether a path is a folder, or would be one: a path with a suffix, such as `.db`, would be a file."""
    return path.is_dir() or not (path.exists() or path.suffix)


def key_source(key: KeySource, *, new: bool = False, what: str = "The pass phrase") -> KeySource:
    """Return the key that `--key` names; the pass phrase is asked for, twice if it is a new one.

    Raises:
        BadParameter: no terminal can be asked for a pass phrase, or the pass phrase is empty.
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
            "If you forget it, no one can open the store. Make a recovery key now: graphagent keys add recovery --recovery --key passphrase"
        )
    return given


def fact_provider(
    store: StorePlace | None, key: KeySource | None, anchor: str | None = None, *, new: bool
) -> KeepingProvider:
    """Return the provider of the facts in a folder: encrypted with a key, readable files without one.

    Raises:
        BadParameter: the folder does not exist, and it is not to be `new`, or it is a file; the facts are encrypted without a
            key, or they are plain and there is one; or it is not a key.
        StoreError: the default place is meant, and nothing has been kept there yet.
    """
    folder = place_of("facts", store, new=new).path
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
        encrypted = EncryptedMemoryProvider(
            folder, key=given, anchor=anchor_of(anchor, StorePlace(str(folder / SEALED)))
        )
    return encrypted if new or is_sealed else FileMemoryProvider(folder)


@asynccontextmanager
async def open_facts(
    store: StorePlace | None, key: KeySource | None, anchor: str | None = None, *, new: bool
) -> AsyncGenerator[KeepingProvider]:
    """Open the provider of the facts in a folder, or in the file or the database of a program with a `StoreMemoryProvider`.

    Raises:
        BadParameter: as in `fact_provider` and `open_store`.
        StoreError: the store cannot be read, or the default place is meant, and nothing has been kept there yet.
    """
    place = place_of("facts", store, new=new)
    if not place.is_server and names_folder(place.path):
        provider = fact_provider(store, key, anchor, new=new)
        async with provider:
            yield provider
    else:
        async with open_store("facts", store, key, anchor, new=new) as opened:
            yield StoreMemoryProvider(opened)


@asynccontextmanager
async def open_memory(
    store: StorePlace | None, key: KeySource | None, anchor: str | None = None
) -> AsyncGenerator[KeepingProvider]:
    """Open the provider of the facts in a folder or a database, which may be new.

    Raises:
        BadParameter: it is a file; or as in `fact_provider` and `open_store`.
        StoreError: the store cannot be read.
    """
    if store is None or not store.is_server:
        async with fact_provider(store, key, anchor, new=True) as provider:
            yield provider
    else:
        async with open_facts(store, key, anchor, new=True) as provider:
            yield provider


def plain_store(place: StorePlace) -> SqliteStore | PostgresStore:
    """Return the store in a file or a database, without encryption.

    Raises:
        BadParameter: no schema can have this name.
        MissingExtraError: it is a database, and its driver is not installed.
    """
    if not place.is_server:
        return SqliteStore(place.path)
    from graphagent.store.postgres import PostgresStore

    with value_of("--store"):
        return PostgresStore(*named_database(place.text))


@asynccontextmanager
async def open_plain(place: StorePlace, *, new: bool = False) -> AsyncGenerator[SqliteStore | PostgresStore]:
    """Open the store in a file or a database, without encryption. A database without one is refused, unless it is to be `new`.

    Raises:
        StoreNotFoundError: there is none in the database.
    """
    async with plain_store(place) as plain:
        if not new and not isinstance(plain, SqliteStore) and not await _is_there(plain):
            where = f" in {str(place)!r}"
            raise StoreNotFoundError(
                "store",
                plain.schema,
                "see whether this is the database, and name the schema of the store: ?schema=NAME at the end",
                where=where,
            )
        yield plain


async def _is_there(plain: PostgresStore) -> bool:
    try:
        return await plain.read(partial(_has_tables, plain.schema))
    except SealedStoreError:
        return True


def _has_tables(schema: str, connection: Any) -> bool:
    """Return whether a schema has the table of a store, as a connection of psycopg tells."""
    found = connection.execute("SELECT FROM pg_tables WHERE schemaname = %s AND tablename = 'items'", [schema])
    return bool(found.fetchall())


def sealed_store(plain: Store, place: StorePlace, key: KeySource, anchor: str | None) -> EncryptedStore:
    """Return a store as its key opens it.

    Raises:
        BadParameter: it is not a key, or not an anchor.
    """
    with value_of("--key"):
        return EncryptedStore(plain, key, anchor=anchor_of(anchor, place))


@contextmanager
def opening(what: str, place: StorePlace) -> Generator[None]:
    """Say which option is missing, or too much, where something opens a store within the block.

    Raises:
        BadParameter: the store is encrypted and no key was given, or it is plain and one was.
    """
    try:
        yield
    except SealedStoreError:
        raise typer.BadParameter(
            f"the store {str(place)!r} is sealed; say where its key is: --key, where {KEY_PLACES}"
        ) from None
    except PlainStoreError:
        raise typer.BadParameter(
            f"the store {str(place)!r} is plain; leave out --key, or move its {what} into a sealed one: graphagent {what} "
            f"export, then graphagent {what} import with another --store and --key"
        ) from None


@asynccontextmanager
async def unopened_store(
    place: StorePlace, key: KeySource | None, anchor: str | None = None, *, new: bool = False
) -> AsyncGenerator[Store]:
    """Yield a store, encrypted if there is a key, and close it. It is opened by its first use.

    Raises:
        BadParameter: it is not a key, or not an anchor.
    """
    check_anchor(key, anchor)
    async with open_plain(place, new=new) as plain:
        if key is None:
            yield plain
        else:
            is_first = key == PASSPHRASE and await is_new(place, plain)
            yield sealed_store(plain, place, key_source(key, new=is_first), anchor)


@asynccontextmanager
async def open_store(
    what: str, store: StorePlace | None, key: KeySource | None, anchor: str | None = None, *, new: bool = False
) -> AsyncGenerator[Store]:
    """Open the store with the `runs`, the `notes` or the `facts`, encrypted if there is a key.

    A store that does not exist is created if it is to be `new`.

    Raises:
        BadParameter: the store does not exist; it is encrypted and no key was given, or it is plain and one was.
        StoreError: the store cannot be read, or the default place is meant, and nothing has been kept there yet.
    """
    place = place_of(what, store, new=new)
    async with unopened_store(place, key, anchor, new=new) as opened:
        with opening(what, place):
            await opened.get((what,))  # an item that does not exist; but a wrong key fails here, before any change
        yield opened


async def is_new(place: StorePlace, plain: Store) -> bool:
    """Return whether a store does not exist, or is a database without any item."""
    if not place.is_server:
        return not place.path.exists()
    try:
        return not [item async for item in plain.scan((), limit=1)]
    except SealedStoreError:
        return False


@asynccontextmanager
async def open_everything(
    stores: Sequence[StorePlace] | None, key: str | None, anchor: str | None = None
) -> AsyncGenerator[list[Place]]:
    """Open all that is kept in some files, folders and databases, or else in the default folder: with the key, where it is sealed.

    In a folder, these are the memory that it is or has, and the files of stores in it and in its folder `memory`.

    Raises:
        BadParameter: a path does not exist, or has nothing; or something is sealed, and no key was given.
        StoreError: something cannot be read, or the default folder is meant, and nothing has been kept there yet.
    """
    check_anchor(key, anchor)
    given = None if key is None else key_source(key)
    async with AsyncExitStack() as opened:
        yield [await opened.enter_async_context(open_place(each, given, anchor)) for each in all_kept(stores)]


def all_kept(stores: Sequence[StorePlace] | None) -> list[StorePlace]:
    """Return the memories and the stores in some files, folders and databases, or else in the default folder.

    Raises:
        BadParameter: a path does not exist, or has nothing.
        StoreError: the default folder is meant, and nothing has been kept there yet.
    """
    places: list[StorePlace] = []
    for given in [StorePlace(str(home()))] if stores is None else stores:
        found = found_in(given)
        if not found and stores is not None:
            raise typer.BadParameter(
                f"{str(given.path)!r} has nothing that is kept by graphagent", param_hint="--store"
            )
        places += found
    if not places:
        raise StoreError(f"no data have been kept yet; begin with: graphagent {_BEGIN['facts']}")
    return places


def found_in(given: StorePlace) -> list[StorePlace]:
    """Return a named file or database, or the memories and the stores in a folder; an empty list if the folder is empty or does not exist."""
    return [given] if given.is_server or given.path.is_file() else list(_kept_in(given.path))


def sealed_file(memory: StorePlace) -> StorePlace:
    """Return the file of encrypted facts in the folder of a memory."""
    return StorePlace(str(memory.path / SEALED))


def _kept_in(folder: Path) -> Iterator[StorePlace]:
    """Yield the memories and the files of stores in a folder and in its folder `memory`: those of commands and of programs."""
    for each in (folder / _NAMES["facts"], folder):
        if (each / SEALED).exists() or any(each.glob(_READABLE)):
            yield StorePlace(str(each))
        for file in sorted(
            each.glob("*")
        ):  # a file that a command made is found even if nothing of it is left to recognise
            if file.name in _OWN or (file.name != SEALED and is_store_file(file)):
                yield StorePlace(str(file))


def stores_in(given: StorePlace | None, kind: str = "store") -> list[StorePlace]:
    """Return the file or database that is named, or the files of the stores in a folder, or else in the default folder.

    They are sealed or not; readable facts are not a store.

    Raises:
        StoreNotFoundError: the file or folder does not exist, or the folder has no store.
    """
    if given is not None and (given.is_server or given.path.is_file()):
        return [given]
    named = home() if given is None else given.path
    found = [sealed_file(each) if each.path.is_dir() else each for each in _kept_in(named)]
    if stores := [each for each in found if each.path.is_file()]:
        return stores
    advice = "name the file of a store, or a folder with some: --store PATH"
    if named.is_dir():
        raise StoreError(f"the folder {str(named)!r} has no {kind}; {advice}")
    raise StoreNotFoundError(kind, str(named), advice)


def stores_of_programs(memory: StorePlace | None) -> str:
    """Return a hint that names the stores in a folder in which a program may keep facts; empty if there are none."""
    found = iter(()) if memory is None or memory.is_server else _kept_in(memory.path)
    files = [str(each) for each in found if each.path.is_file() and each.path.name not in _OWN]
    return (
        f" A program may keep facts in a store of this folder: --store {' or '.join(map(shlex.quote, files))}"
        if files
        else ""
    )


@asynccontextmanager
async def open_place(place: StorePlace, key: KeySource | None, anchor: str | None = None) -> AsyncGenerator[Place]:
    """Open a memory, or a store in a file or a database: encrypted with the key, if it is sealed.

    Raises:
        BadParameter: the store is sealed, and no key was given.
        StoreError: it cannot be read.
    """
    if not place.is_server and place.path.is_dir():
        sealed = (place.path / SEALED).exists()
        async with fact_provider(place, key if sealed else None, anchor if sealed else None, new=False) as memory:
            yield memory
        return
    async with open_plain(place) as plain:
        try:
            await plain.get(("facts",))  # an item that does not exist; but a sealed store is refused here
            store: Store = plain
        except SealedStoreError:
            if key is None:
                raise typer.BadParameter(
                    f"the store {str(place)!r} is sealed; say where its key is: --key, where {KEY_PLACES}"
                ) from None
            store = sealed_store(plain, place, key, anchor)
            await store.get(("facts",))  # a wrong key fails here, before any change
        yield store


def check_anchor(key: KeySource | None, anchor: str | None) -> None:
    """Raise a `BadParameter` if there is an anchor and no key."""
    if anchor is not None and key is None:
        raise typer.BadParameter("only encrypted data have an anchor; give --key too", param_hint="--anchor")


def with_store(
    what: str,
    store: StorePlace | None,
    key: str | None,
    work: Callable[[Store], Awaitable[T]],
    *,
    anchor: str | None = None,
    new: bool = False,
) -> T:
    """Open a store as `open_store` does, await `work` with it, close it, and return the result of `work`."""

    async def main() -> T:
        async with open_store(what, store, key, anchor, new=new) as opened:
            return await work(opened)

    return anyio.run(main)
