"""What it costs to commit each step of a run to PostgreSQL before the next begins: graphagent beside LangGraph and DBOS.

Each engine works in a process and in a database of its own, and they are asked in turn. GRAPHAGENT_BENCH_POSTGRES may have the DSN of
a database of a server, on which these databases are made; otherwise one is started, with its files where TMPDIR says.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import anyio
import psycopg

from benchmarks.compare import HOME, PEERS, installed
from benchmarks.durable_postgres import ROW, STEPS
from benchmarks.measure import milli, table, times, weight
from benchmarks.submitted import strategy
from graphagent import Agent
from graphagent.store import Put
from graphagent.store.postgres import PostgresStore
from tests import postgres

DSN = "GRAPHAGENT_BENCH_POSTGRES"
SAVER = "langgraph.checkpoint.postgres"
ENGINES = (
    ("durable_postgres", (), ""), ("ours_postgres", (), ""), ("ours_postgres", ("--sealed",), ""),
    *(("peers.langgraph_postgres", (way,), SAVER) for way in ("sync", "async", "threads")),
    ("peers.dbos_postgres", (), "dbos"),
)  # fmt: skip
"""The module of each engine, its options, and what must be installed in the peers' environment for it."""


@dataclass
class Engine:
    """The process of an engine."""

    process: subprocess.Popen[str]
    name: str
    admin: psycopg.Connection
    """A connection to its server."""
    seconds: dict[int, list[float]]
    """The seconds of its turns, by the number of runs at once."""
    wal: list[float]
    """The bytes of write-ahead log of each step, of its turns."""

    def take(self, runs: int) -> None:
        """Execute so many runs at once."""
        [before] = self.admin.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()
        assert self.process.stdin is not None
        self.process.stdin.write(f"{runs}\n")
        self.process.stdin.flush()
        self.seconds.setdefault(runs, []).append(answer(self.process))
        [after] = self.admin.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()
        self.wal.append(float(after - before) / (runs * STEPS))

    def steps(self, runs: int) -> float:
        """Return how many steps a second it commits, the median of its turns."""
        return runs * STEPS / statistics.median(self.seconds[runs])


def report(*, quick: bool) -> str:
    """Ask all engines that are installed in turn. Return the tables."""
    sizes, rounds = ((1, 2), 1) if quick else ((1, 50), 9)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(served())
        there = [each for each in ENGINES if not each[2] or installed(each[2])]
        engines = [stack.enter_context(begun(server, *each)) for each in there]
        for number in range(rounds):
            for engine in engines[:: -1 if number % 2 else 1]:
                for runs in sizes:
                    engine.take(runs)
        ours = engines[1]
        rows = [
            [
                each.name,
                *(cell for runs in sizes for cell in (f"{each.steps(runs):,.0f}", beside(ours, each, runs))),
                weight(statistics.median(each.wal)),
            ]
            for each in engines
        ]
        head = [word for runs in sizes for word in (f"{runs} at once: steps/s", "graphagent ÷ it")]
        tables = [
            table([f"runs of {STEPS} steps", *head, "WAL a step"], rows),
            latency(server, 5 if quick else 400),
            submitted(server, 3 if quick else 200),
        ]
    if missing := [each[0] for each in ENGINES if each not in there]:
        tables.append(f"Not installed: {', '.join(dict.fromkeys(missing))}; `make bench-peers` installs them.")
    return "\n\n".join(tables)


def beside(ours: Engine, it: Engine, runs: int) -> str:
    """Return how many times as many steps graphagent commits: the median of the ratios of the turns."""
    return times(statistics.median(b / a for a, b in zip(ours.seconds[runs], it.seconds[runs], strict=True)))


@contextlib.contextmanager
def served() -> Iterator[Callable[[str], str]]:
    """Yield a function that makes a database and returns its DSN."""
    with contextlib.ExitStack() as stack:
        given = os.environ.get(DSN) or stack.enter_context(postgres.served(fsync="on", full_page_writes="on"))

        def made(name: str) -> str:
            name = f"bench_{name}_{os.getpid()}"
            with psycopg.connect(given, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}")
            return psycopg.conninfo.make_conninfo(given, dbname=name)

        yield made


@contextlib.contextmanager
def begun(server: Callable[[str], str], module: str, options: tuple[str, ...], needs: str) -> Iterator[Engine]:
    """Start an engine in a database of its own."""
    dsn = server("_".join([module.rpartition(".")[2], *options]).replace("-", ""))
    url = url_of(dsn)
    command = [PEERS if needs else sys.executable, "-m", f"benchmarks.{module}", *options, url]
    process = subprocess.Popen(command, cwd=HOME, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process, psycopg.connect(dsn, autocommit=True) as admin:
        told = answer(process)
        yield Engine(process, f"{told['name']} {told['version']}".strip(), admin, {}, [])
        process.communicate()


def url_of(dsn: str) -> str:
    """Return a DSN as a URL, which is what some engines take."""
    parts = psycopg.conninfo.conninfo_to_dict(dsn)
    user, name = parts.pop("user", ""), parts.pop("dbname", "")
    return f"postgresql://{user}@/{name}?{'&'.join(f'{key}={value}' for key, value in parts.items())}"


def answer(process: subprocess.Popen[str]):
    """Return what a process tells, a line of JSON; other lines are what its libraries print."""
    assert process.stdout is not None
    for line in process.stdout:
        with contextlib.suppress(ValueError):
            return json.loads(line)
    raise SystemExit(f"{process.args} ended with {process.wait()} and no answer")


def latency(server: Callable[[str], str], rounds: int) -> str:
    """Commit one row at a time in three ways, in turn. Return the table."""
    dsn = server("latency")
    took: dict[str, list[float]] = {"one INSERT": [], "the same transaction by hand": [], "PostgresStore.commit": []}
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE bare (place bytea PRIMARY KEY, version bigint, value bytea)")
        connection.execute("CREATE TABLE writer (id int PRIMARY KEY, made bigint)")
        connection.execute("INSERT INTO writer VALUES (1, 0)")

        def insert(place: bytes, value: bytes) -> None:
            connection.execute("INSERT INTO bare VALUES (%b, 1, %b)", (place, value))

        def by_hand(place: bytes, value: bytes) -> None:
            connection.execute("BEGIN")
            connection.execute("UPDATE writer SET made = made + 1 WHERE id = 1")
            connection.execute(
                "INSERT INTO bare AS b VALUES (%b, 1, %b) ON CONFLICT (place) DO UPDATE SET version = b.version + 1",
                (place, value),
            )
            connection.execute("COMMIT")

        async def commits() -> None:
            async with PostgresStore(dsn) as store:
                await store.commit(Put(("bench", "warm"), b""))
                for number in range(rounds):
                    value = os.urandom(ROW)
                    for name, work in (("one INSERT", insert), ("the same transaction by hand", by_hand)):
                        place = os.urandom(40)
                        began = time.perf_counter()
                        work(place, value)
                        took[name].append(time.perf_counter() - began)
                    began = time.perf_counter()
                    await store.commit(Put(("bench", "run", number), value))
                    took["PostgresStore.commit"].append(time.perf_counter() - began)

        anyio.run(commits)
    ours = took["PostgresStore.commit"]
    rows = [
        [name, milli(statistics.median(each)), times(statistics.median(ours) / statistics.median(each))]
        for name, each in took.items()
    ]
    return table(["a commit, alone", "p50", "PostgresStore ÷ it"], rows)


def submitted(server: Callable[[str], str], rounds: int) -> str:
    """Submit one run at a time to a worker in another process. Return the table of how long it takes until its first node."""
    url = url_of(server("submitted"))
    command = [sys.executable, "-m", "graphagent", "worker", "benchmarks.submitted:agent", "--store", url]
    took: list[float] = []

    async def submit() -> None:
        async with PostgresStore(url) as store:
            agent = Agent(strategy, store=store)
            for number in range(rounds + 3):
                began = time.monotonic_ns()
                handle = await agent.submit("now")
                result = await handle.wait()
                if number >= 3:  # the worker has begun to listen
                    took.append((result.output - began) / 1e9)

    with subprocess.Popen(command, cwd=HOME, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as worker:
        anyio.run(submit)
        worker.terminate()
    rows = [
        [
            "from `agent.submit` to the first node, in another process",
            milli(statistics.median(took)),
            milli(sorted(took)[len(took) * 9 // 10]),
        ]
    ]
    return table(["one run at a time", "p50", "p90"], rows)
