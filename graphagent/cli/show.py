"""`graphagent show`: what a folder, a file or a database holds, without any value of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import anyio
from anyio import to_thread
from rich.text import Text

from graphagent._article import counted
from graphagent.cli import _output
from graphagent.cli._options import KEY_PLACES, AnchorPlace, AnyPlace, Json, key_option
from graphagent.cli._store_place import StorePlace
from graphagent.cli._stores import check_anchor, found_in, home, key_source, open_plain, sealed_file, sealed_store
from graphagent.errors import AnchorError, DamagedStoreError, RolledBackError, StoreError, StoreNotFoundError
from graphagent.memory import FileMemoryProvider
from graphagent.store._sealed_detection import KEYS, MAGIC
from graphagent.store._sizes import sizes
from graphagent.store.sqlite._copying import is_store_file

if TYPE_CHECKING:
    from graphagent.protocols import Store
    from graphagent.store import EncryptedStore, KeySource, SqliteStore
    from graphagent.store.postgres import PostgresStore

_NAMED = 5
"""How many owners and scopes are named in a line."""
_SIDES = ("", "-wal", "-shm")


@dataclass(slots=True)
class Facts:
    """Facts, by the keys of their versions."""

    facts: int = 0
    """Concepts of which something is known or was withdrawn."""
    versions: int = 0
    owners: dict[str, int] = field(default_factory=dict[str, int])
    """The facts of each owner."""


@dataclass(slots=True)
class NotesHeld:
    """Notes."""

    notes: int = 0
    owners: dict[str, int] = field(default_factory=dict[str, int])
    scopes: dict[str, int] = field(default_factory=dict[str, int])
    """The notes directly in each scope."""
    vectors: dict[str, int] = field(default_factory=dict[str, int])
    """The notes with vectors of each embedder."""
    index: str = ""
    """Where the search index is: `stored`, `missing`, or `in memory` of each process."""
    bytes: int = 0


@dataclass(slots=True)
class Runs:
    """Runs."""

    runs: int = 0
    """Without those of sub-agents."""
    parts: int = 0
    """The runs of sub-agents."""
    status: dict[str, int] = field(default_factory=dict[str, int])
    threads: int = 0
    owners: dict[str, int] = field(default_factory=dict[str, int])
    bytes: int = 0


@dataclass(slots=True)
class Held:
    """The contents of one place."""

    place: str
    kind: str
    """`readable facts`, `SQLite`, `PostgreSQL`, or `no store` for another file."""
    bytes: int | None = None
    """On the disk."""
    format: int | None = None
    sealed: bool = False
    keys: list[dict[str, Any]] | None = None
    """The keys that open it; None without one that does."""
    anchor: str = ""
    facts: Facts = field(default_factory=Facts)
    notes: NotesHeld = field(default_factory=NotesHeld)
    runs: Runs = field(default_factory=Runs)
    cached: int = 0
    """Cached outputs of nodes, results of tools and answers of models."""
    problems: list[str] = field(default_factory=list[str])
    """The parts that are damaged, or cannot be read."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was found, and nothing stood in the way."""
        return not (self.facts.versions or self.notes.notes or self.runs.runs or self.cached or self.problems)


def show(
    path: AnyPlace = None,
    key: Annotated[str | None, key_option("Open sealed stores")] = None,
    anchor: AnchorPlace = None,
    as_json: Json = False,
) -> None:
    """Show what a store or a folder holds: facts, notes, runs, keys, sizes. No text and no value is shown, and nothing is written.

    Parts that are damaged, or sealed with another key, are named. To check every byte, use `graphagent verify`.
    """
    check_anchor(key, anchor)
    where = StorePlace(str(home())) if path is None else path
    places = found_in(where)
    if not places and path is not None and not path.path.exists():
        raise StoreNotFoundError("store or folder", str(path.path), "name one that exists")
    given = None if key is None else key_source(key)

    async def look() -> list[Held]:
        return [await _held(each, given, anchor) for each in places]

    found = anyio.run(look)
    if as_json:
        print(_output.json_text([asdict(each) for each in found]))
        return
    console = _output.screen()
    for number, each in enumerate(found):
        if number:
            console.print()
        for line in _lines(each):
            console.print(line, soft_wrap=not console.is_terminal)
    if not found:
        at = "" if path is None else f" --store {where}"
        print(_output.for_output(f"Nothing is kept in {str(where)!r} yet."))
        _output.aside(
            f'Facts are kept by graphagent chat{at}, notes by graphagent notes remember "…"{at}, and runs by graphagent run react "…"{at}.'
        )


# Reading


async def _held(place: StorePlace, key: KeySource | None, anchor: str | None) -> Held:
    if not place.is_server and place.path.is_dir() and not sealed_file(place).path.exists():
        return await _readable_facts(place)
    where = place if place.is_server or place.path.is_file() else sealed_file(place)
    held = Held(str(where), "PostgreSQL" if where.is_server else "SQLite")
    if not where.is_server:
        held.kind = "SQLite" if await to_thread.run_sync(is_store_file, where.path) else "no store"
        held.bytes = await to_thread.run_sync(_size, [Path(f"{where.path}{each}") for each in _SIDES])
    async with _naming(held, ""), open_plain(where) as plain:
        await _look_into(held, plain, where, key, anchor)
    return held


def _size(files: Iterable[Path]) -> int:
    return sum(each.stat().st_size for each in files if each.exists())


async def _look_into(
    held: Held, plain: SqliteStore | PostgresStore, where: StorePlace, key: KeySource | None, anchor: str | None
) -> None:
    """Describe a store, and count what it holds if it opens."""
    row = await plain.get(KEYS)
    held.sealed = row is not None and row.value.startswith(MAGIC)
    if row is None or not held.sealed:
        await plain.get(("facts",))  # an item that does not exist; but a file of something else is refused here
        held.format, size = await plain.read(_format_and_size)
        held.bytes = size if held.bytes is None else held.bytes
        await _count(held, plain)
        return
    held.format = row.value[len(MAGIC)]
    if key is None:
        rows = len([each async for each in plain.scan(("d",))])
        held.problems.append(
            f"it is sealed, and its contents ({counted(rows, 'part')}) cannot be read without a key: --key, where {KEY_PLACES}"
        )
        return
    sealed = sealed_store(plain, where, key, anchor)
    held.keys = [{"name": each.name, "kind": each.kind, "given": each.current} for each in await sealed.keys.list()]
    held.anchor = await _anchor_of(sealed, given=anchor is not None)
    await _count(held, sealed)


async def _anchor_of(store: EncryptedStore, *, given: bool) -> str:
    try:
        anchored = await store.is_anchored()
    except RolledBackError:
        return "older than its anchor"
    except AnchorError as error:
        return str(error)
    if not anchored:
        return "none"
    return "as new as its anchor" if given else "anchored, not compared; give --anchor"


def _format_and_size(connection: Any) -> tuple[int | None, int | None]:
    """Return the format of a file, or the size of the tables of a database."""
    from graphagent.store.sqlite._file import FORMAT_BITS

    if type(connection).__module__.startswith("psycopg"):
        [(size,)] = connection.execute(
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"
        ).fetchall()
        return None, int(size or 0)
    [(user,)] = connection.execute("PRAGMA user_version").fetchall()
    return user % 2**FORMAT_BITS, None


async def _count(held: Held, store: Store) -> None:
    """Count what a store holds. Of plain stores, only notes and headers of runs are read, and keys of the rest."""
    parts: tuple[tuple[str, Callable[[Held, Store], Awaitable[None]]], ...] = (
        ("facts", _facts),
        ("notes", _notes),
        ("runs", _runs),
        ("cached values", _cached),
    )
    for name, part in parts:
        async with _naming(held, name):
            await part(held, store)


@asynccontextmanager
async def _naming(held: Held, what: str) -> AsyncGenerator[None]:
    """Name an error within the block among the problems."""
    try:
        yield
    except StoreError as error:
        held.problems.append(f"{what}: {error}" if what else str(error))


async def _facts(held: Held, store: Store) -> None:
    from graphagent.memory.facts._store_items import ROOM, is_fact

    concepts: dict[tuple[object, ...], int] = Counter()
    async for key, _ in sizes(store, (ROOM,)):
        if is_fact(key):
            concepts[key[:6]] += 1
    owners = Counter(str(each[1]) for each in concepts)
    held.facts = Facts(len(concepts), sum(concepts.values()), _ranked(owners))


async def _notes(held: Held, store: Store) -> None:
    from graphagent.memory import Notes
    from graphagent.memory.notes.index import _storage

    owners, vectors, size = Counter[str](), Counter[str](), 0
    async for key, length in sizes(store, (_storage.ROOM,)):
        size += length
        owners[str(key[1])] += key[2] == _storage.NOTES
        vectors[str(key[1])] += key[2] == _storage.VECTORS
    scopes, made, damaged = Counter[str](), Counter[str](), 0
    for owner in +owners:
        async for item in store.scan(_storage.notes_key(owner)):
            try:
                scopes[_storage.unpack(item).scope] += 1
            except DamagedStoreError:
                damaged += 1
        if vectors[owner] and (embedder := await Notes(store, owner=owner).stored_embedder()):
            made[embedder] += vectors[owner]
    if damaged:
        held.problems.append(f"notes: {counted(damaged, 'note')} damaged; see graphagent verify")
    counts = _ranked(owners)
    held.notes = NotesHeld(sum(counts.values()), counts, _ranked(scopes), _ranked(made), "", size)
    if counts:
        held.notes.index = await _index_of(store)


async def _index_of(store: Store) -> str:
    from graphagent.memory.notes.index._backend import index_of
    from graphagent.memory.notes.index._fts import SqliteTables
    from graphagent.store import SqliteStore

    if isinstance(store, SqliteStore):
        made = await store.read(lambda connection: SqliteTables(connection).are_made())
        return "stored" if made else "missing"
    return "stored" if index_of(store).shared else "in memory"


async def _runs(held: Held, store: Store) -> None:
    from graphagent.log._header import HEADERS, ROOM, ROWS, THREADS
    from graphagent.run import list_runs

    found, runs = Runs(), Counter[str]()
    async for key, length in sizes(store, (ROOM,)):
        found.bytes += length if key[2] in (HEADERS, ROWS) else 0
        found.threads += key[2] == THREADS and len(key) == 4
        runs[str(key[1])] += key[2] == HEADERS
    status, owners = Counter[str](), Counter[str]()
    for owner in +runs:
        heads = await list_runs(store, owner=owner)
        whole = [head for head in heads if not head.parent]
        status.update(head.status for head in whole)
        owners[owner] = len(whole)
        found.parts += len(heads) - len(whole)
    found.runs, found.status, found.owners = owners.total(), _ranked(status), _ranked(owners)
    if status["damaged"]:
        held.problems.append(f"runs: {counted(status['damaged'], 'run')} damaged; see graphagent verify")
    held.runs = found


async def _cached(held: Held, store: Store) -> None:
    async for _ in sizes(store, ("cache",)):
        held.cached += 1


async def _readable_facts(place: StorePlace) -> Held:
    held = Held(str(place), "readable facts")
    held.bytes = await to_thread.run_sync(_size, place.path.glob("*/*/*/*.jsonl"))
    concepts: dict[tuple[object, ...], int] = Counter()
    async with _naming(held, "facts"), FileMemoryProvider(place.path) as provider:
        async for record in provider.export():
            each = cast("dict[str, Any]", record)
            concepts[(each["owner"], *each["scope"].values(), each["subject"], each["keyword"])] += 1
    owners = Counter(str(each[0]) for each in concepts)
    held.facts = Facts(len(concepts), sum(concepts.values()), _ranked(owners))
    return held


def _ranked(counts: Counter[str]) -> dict[str, int]:
    """Return counts without those of 0, the largest first."""
    return dict(sorted((+counts).items(), key=lambda each: (-each[1], each[0])))


# Text


def _lines(held: Held) -> Iterable[Text]:
    """Yield the lines about one place."""
    form = f"format {held.format}" if held.format is not None else ""
    size = _output.bytes_text(held.bytes) if held.bytes is not None else ""
    about = ", ".join(filter(None, ("sealed" if held.sealed else "", held.kind, form, size)))
    yield Text(_output.for_output(held.place), style="bold").append(f": {about}", style="not bold")
    if held.keys is not None:
        named = [f"{each['name']} ({each['kind']}{', given' if each['given'] else ''})" for each in held.keys]
        yield _line("keys", ", ".join(named))
        yield _line("anchor", held.anchor)
    if facts := held.facts.facts:
        versions = f" in {counted(held.facts.versions, 'version')}" if held.facts.versions > facts else ""
        yield _line("facts", f"{facts:,}{versions}{_owners(held.facts.owners)}")
    if notes := held.notes.notes:
        scopes = f"{counted(len(held.notes.scopes), 'scope')}: {_most(held.notes.scopes)}"
        yield _line("notes", f"{notes:,} in {scopes}{_owners(held.notes.owners)}")
        yield _line("", f"{_output.bytes_text(held.notes.bytes)}; {_found_by(held.notes)}")
    if runs := held.runs.runs:
        status = ", ".join(f"{count:,} {name}" for name, count in held.runs.status.items())
        yield _line("runs", f"{runs:,}: {status}{_owners(held.runs.owners)}")
        parts = f"{counted(held.runs.parts, 'run')} of sub-agents" if held.runs.parts else ""
        threads = counted(held.runs.threads, "thread") if held.runs.threads else ""
        yield _line("", "; ".join(filter(None, (_output.bytes_text(held.runs.bytes), parts, threads))))
    if held.cached:
        yield _line("cached", counted(held.cached, "value"))
    if held.is_empty:
        yield _line("", "it is empty")
    for each in held.problems:
        yield _line("problem", each, style="red")


def _line(name: str, text: str, style: str = "not dim") -> Text:
    return Text(f"  {name:<8} ", style="dim").append(_output.shown(" ".join(text.split())), style=f"not dim {style}")


def _found_by(notes: NotesHeld) -> str:
    where = {
        "stored": "the index is stored with them",
        "missing": "without an index, which is built when they are opened",
        "in memory": "the index is made in memory when they are opened",
    }[notes.index]
    made = [f"{counted(count, 'vector')} of {_output.shortened(name)}" for name, count in notes.vectors.items()]
    return "; ".join([where, *made])


def _owners(owners: Mapping[str, int]) -> str:
    return "" if owners.keys() <= {""} else f"; of {counted(len(owners), 'owner')}: {_most(owners)}"


def _most(counts: Mapping[str, int]) -> str:
    """Return the names of owners or scopes with the largest counts."""
    named = [
        f"{_output.shortened(name, 40) or 'without an owner'} {count:,}"
        for name, count in list(counts.items())[:_NAMED]
    ]
    return ", ".join([*named, *(["…"] if len(counts) > _NAMED else [])])
