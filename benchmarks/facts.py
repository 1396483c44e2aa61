"""What keeping facts costs: durable saves beside a bare program's on the same disk, loads, the first touch, loading all, as of a moment.

Saves are measured in wall time, since waiting for the disk is most of them: one save, one bare write and so on in turn, over
stores of several sizes. All facts belong to one subject, which is the worst case: what is read and checked at the first touch
is a subject's. The files are made where TMPDIR says.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import random
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import apsw

from benchmarks.measure import QUICK, Rounds, cpu, figure, micro, milli, table, times
from graphagent.memory import (
    Concept,
    EncryptedMemoryProvider,
    FileMemoryProvider,
    Scope,
    SingleFact,
    StoreMemoryProvider,
    Subject,
)
from graphagent.store import Change, EncryptedStore, Item, Key, Put, SqliteStore
from graphagent.store.sealed._format import fresh_keys, primary, seal, unseal

if TYPE_CHECKING:
    from graphagent.protocols import KeepingProvider

SIZES = (10, 1_000, 100_000)
KEY = secrets.token_bytes(32)
SUBJECT = Subject("ada")
SCOPE = Scope.agent("benchmark")
VALUE = "prefers the terminal, dark, with a large font, and wants to be asked before anything is deleted. " * 3
AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class Kind:
    """A provider, and a bare program that keeps as many bytes as durably."""

    name: str
    make: Callable[[Path], KeepingProvider]
    bare: Callable[[Path], Callable[[bytes], None]]
    bytes_of_a_save: Callable[[Path], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Shelf:
    """A provider that keeps so many facts, beside a bare program."""

    size: int
    provider: KeepingProvider
    bare: Callable[[bytes], None]
    first: list[float]
    """Seconds of its first touch, in several fresh providers."""


@dataclass(frozen=True, slots=True)
class Took:
    """What single saves took, in seconds."""

    wall: list[float]
    cpu: list[float]

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Measure what is done inside."""
        began, cpu = time.perf_counter(), time.process_time()
        yield
        self.wall.append(time.perf_counter() - began)
        self.cpu.append(time.process_time() - cpu)

    def rounds(self) -> list[float]:
        """Give the wall time of rounds of ten saves: the disk is quick or slow by turns, and a round sees both."""
        return [sum(self.wall[start : start + 10]) for start in range(0, len(self.wall), 10)]


def report(*, quick: bool) -> str:
    """Measure both providers, loading all facts, and sealing. Gives five Markdown tables."""
    return anyio.run(functools.partial(_report, quick=quick))


async def _report(*, quick: bool) -> str:
    sizes, count = ((3, 5), 3) if quick else (SIZES, 300)
    saves: list[list[str]] = []
    loads: list[list[str]] = []
    for kind in (FILES, ENCRYPTED):
        with tempfile.TemporaryDirectory() as folder:
            shelves = [await _shelf(kind, Path(folder), size) for size in sizes]
            data = bytes(await kind.bytes_of_a_save(Path(folder, "one")))
            for size, (mine, bare) in (await _save_in_turn(shelves, data, count)).items():
                cells = [f"`{kind.name}`", f"{size:,}"]
                for each in (bare, mine):
                    wall = figure(each.wall)
                    cells += [milli(wall.seconds), milli(wall.p90), milli(figure(each.cpu).seconds)]
                saves.append([*cells, times(figure(mine.rounds(), bare.rounds()).ratio), "≤ 2 ×"])
            for shelf in shelves:
                again, first = figure(await _loads(shelf, count)), figure(shelf.first)
                cells = [micro(again.seconds), micro(again.p90), "≤ 100 µs", milli(first.seconds)]
                loads.append([f"`{kind.name}`", f"{shelf.size:,}", *cells])
    head = ["a save", "facts before", "bare: median", "p90", "CPU", "save: median", "p90", "CPU", "ratio", "target"]
    first = ["a load", "facts", "median", "p90", "target", "the first of a process, median"]
    rounds = QUICK if quick else Rounds()
    everything = await _load_all(5 if quick else 10_000, rounds.count)
    moments = await _moments(3 if quick else 200, rounds.count)
    return "\n\n".join((table(head, saves), table(first, loads), everything, moments, await _sealing(rounds)))


async def _shelf(kind: Kind, root: Path, size: int) -> Shelf:
    folder = root / str(size)
    async with kind.make(folder) as provider:
        for start in range(0, size, AT_ONCE):
            await provider.import_([_record(number) for number in range(start, min(start + AT_ONCE, size))])
    first: list[float] = []
    for _ in range(3):
        provider = kind.make(folder)
        first.append(await _wall(_load(provider, 0)))
    return Shelf(size, provider, kind.bare(root / f"{size}-bare"), first)


def _record(number: int) -> dict[str, object]:
    return {
        "owner": "", "scope": {"kind": SCOPE.kind.value, "name": SCOPE.name}, "subject": SUBJECT.name,
        "keyword": _concept(number).keyword, "values": [VALUE], "type": "single", "description": "", "timestamp": 1,
        "version": 1, "source": {"run_id": "", "step": None, "origin": "", "trust": ""}, "id": f"{number:032x}",
    }  # fmt: skip


def _concept(number: int) -> Concept:
    return Concept(f"concept-{number}")


async def _moments(size: int, count: int) -> str:
    """Measure `load` as of a moment beside `load`, in turn: of facts with five versions each, which were all loaded so before."""
    began = datetime(2026, 1, 1, tzinfo=UTC)
    moments = {"now": began + timedelta(days=9), "before the last version": began + timedelta(days=3.5)}
    rows: list[list[str]] = []
    for kind in (FILES, STORE, ENCRYPTED):
        with tempfile.TemporaryDirectory() as folder:
            async with kind.make(Path(folder)) as provider:
                for day in range(5):
                    time_ = int((began + timedelta(days=day)).timestamp() * 1000)
                    for number in range(size):
                        await provider.save(SingleFact(_concept(number), str(day), time_), SUBJECT, SCOPE)
                for name, moment in moments.items():
                    bare, mine = list[float](), list[float]()
                    for _ in range(count + 1):
                        for seconds, as_of in ((bare, None), (mine, moment)):
                            began_at = time.process_time()
                            for number in range(size):
                                [_] = await provider.load(_concept(number), SUBJECT, SCOPE, as_of=as_of)
                            seconds.append((time.process_time() - began_at) / size)
                    told = figure(mine[1:], bare[1:])
                    rows.append(
                        [f"`{kind.name}`", name, micro(told.bare), micro(told.seconds), times(told.ratio), "≤ 1.1 ×"]
                    )
    return table(["`load(…, as_of=)`", "moment", "`load`, CPU", "with `as_of`, CPU", "ratio", "target"], rows)


async def _save(provider: KeepingProvider, number: int) -> None:
    await provider.save(SingleFact(_concept(number), VALUE), SUBJECT, SCOPE)


async def _load(provider: KeepingProvider, number: int) -> None:
    [fact] = await provider.load(_concept(number), SUBJECT, SCOPE)
    if fact.value != VALUE:
        raise AssertionError(f"{provider!r} gave back something else for concept {number}")


async def _wall(work: Awaitable[None]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


async def _save_in_turn(shelves: list[Shelf], data: bytes, count: int) -> dict[int, tuple[Took, Took]]:
    """Save a fact to each shelf and write as many bytes barely, in turn. Gives what both took for each size."""
    found = {shelf.size: (Took([], []), Took([], [])) for shelf in shelves}
    for number in range(count):
        for shelf in shelves:
            mine, bare = found[shelf.size]
            with mine.watch():
                await _save(shelf.provider, number % 3)
            with bare.watch():
                shelf.bare(data)
    return found


async def _loads(shelf: Shelf, count: int) -> list[float]:
    """Load facts here and there. Each was loaded once before."""
    numbers = random.Random(1).choices(range(shelf.size), k=count)
    for number in numbers:
        await _load(shelf.provider, number)
    return [await _wall(_load(shelf.provider, number)) for number in numbers]


async def _load_all(size: int, count: int) -> str:
    """Measure `load_all` from a sealed store beside a plain one, in turn, in providers that know nothing and again in the same ones."""
    with tempfile.TemporaryDirectory() as folder:
        stores: dict[str, Callable[[], SqliteStore | EncryptedStore]] = {
            "SqliteStore": lambda: SqliteStore(Path(folder, "plain.db")),
            "EncryptedStore": lambda: EncryptedStore(SqliteStore(Path(folder, "sealed.db")), KEY),
        }
        for make in stores.values():
            async with make() as store:
                await StoreMemoryProvider(store).import_([_record(number) for number in range(size)])
        took = {name: (list[float](), list[float]()) for name in stores}
        for _ in range(count):
            for name, make in stores.items():
                async with make() as store:
                    provider = StoreMemoryProvider(store)
                    for seconds in took[name]:
                        gc.collect()
                        began = time.process_time()
                        if len(await provider.load_all(SUBJECT, SCOPE)) != size:
                            raise AssertionError(f"{provider!r} did not give back all facts")
                        seconds.append(time.process_time() - began)
    rows: list[list[str]] = []
    for when, bare, mine in zip(("the first of a process", "again"), *took.values(), strict=True):
        told = figure(mine, bare)
        rows.append([when, f"{size:,}", milli(told.bare), milli(told.seconds), times(told.ratio), "≤ 2 ×"])
    return table(["`load_all`", "facts", "`SqliteStore`, CPU", "`EncryptedStore`, CPU", "ratio", "target"], rows)


def _appending(path: Path) -> Callable[[bytes], None]:
    """Give a bare program that appends a line to an open file."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(data: bytes) -> None:
        os.write(file, data)
        os.fdatasync(file)

    return write


async def _line(folder: Path) -> int:
    provider = FileMemoryProvider(folder)
    sizes: list[int] = []
    for _ in range(2):
        await _save(provider, 0)
        sizes += [path.stat().st_size for path in folder.rglob("*.jsonl")]  # noqa: ASYNC240  nothing else runs
    return sizes[1] - sizes[0]


def _committing(path: Path) -> Callable[[bytes], None]:
    """Give a bare program that commits a row to an open database, as durably as a SqliteStore does."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL").fetchall()
    connection.execute("CREATE TABLE items (key INTEGER PRIMARY KEY, value BLOB NOT NULL)").fetchall()

    def write(data: bytes) -> None:
        connection.execute("INSERT INTO items (value) VALUES (?)", (data,)).fetchall()

    return write


class _Weighed:
    """A store that says how many bytes the last commit put into it."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.last = 0

    async def get(self, key: Key) -> Item | None:
        return await self._store.get(key)

    def scan(
        self, prefix: Key, *, after: Key | None = None, limit: int | None = None, reverse: bool = False
    ) -> AsyncIterator[Item]:
        return self._store.scan(prefix, after=after, limit=limit, reverse=reverse)

    async def commit(self, *changes: Change) -> None:
        self.last = sum(len(change.value) for change in changes if isinstance(change, Put))
        await self._store.commit(*changes)


async def _sealed_rows(folder: Path) -> int:
    store = _Weighed(SqliteStore(folder / "facts.db"))
    provider = StoreMemoryProvider(EncryptedStore(store, KEY, domains={"facts": 5}))
    for _ in range(3):
        await _save(provider, 0)
    return store.last


FILES = Kind("FileMemoryProvider", FileMemoryProvider, _appending, _line)
ENCRYPTED = Kind(
    "EncryptedMemoryProvider", lambda root: EncryptedMemoryProvider(root, key=KEY), _committing, _sealed_rows
)
STORE = Kind(
    "StoreMemoryProvider",
    lambda root: StoreMemoryProvider(SqliteStore(root / "facts.db")),
    _committing,
    _sealed_rows,
)


async def _sealing(rounds: Rounds) -> str:
    """Measure the CPU time of sealing and opening a record of 1 KB."""
    keys = fresh_keys()
    key, to, plain = primary(keys), bytes(64), bytes(1024)
    record = seal(key, to, plain)
    works = {"sealing a record of 1 KB": lambda: seal(key, to, plain), "opening it": lambda: unseal(keys, to, record)}
    rows: list[list[str]] = []
    for name, work in works.items():
        thousand = await cpu(lambda work=work: [work() for _ in range(1_000)], rounds)
        rows.append([name, micro(thousand.seconds / 1_000), "≤ 15 µs" if "sealing" in name else ""])
    return table(["what", "CPU", "target"], rows)
