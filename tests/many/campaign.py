"""The campaign: each kind of trouble, happening to eight workers on two hosts with one database while clients submit runs."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import random
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
import psycopg

from graphagent.store import new_key
from tests import postgres
from tests.many import program
from tests.many.client import Clients, runs
from tests.many.hosts import Host
from tests.many.marks import Marks
from tests.many.oracle import Tally, judge
from tests.many.proxy import Proxy

WORKERS, RUNS = 8, 2000
SWEEP = 1.25
"""Seconds between two looks of a worker, at most."""
STOPPED = 2 * program.LEASE
STARTING = 20
"""Seconds for which a worker is waited for that takes the place of another one, at most."""
DOWN = 3
"""Seconds for which the server is down, at most."""
PATIENCE = 60
"""Seconds for which nothing more happens before a run that has not ended is lost."""


@dataclass(frozen=True)
class Kind:
    """A kind of trouble."""

    name: str
    happens: tuple = ()
    """What happens, by the names of the methods of Troubles."""
    through: bool = False
    """Whether workers reach the server through a proxy."""
    hours: float = 0
    """By how much the clocks of workers differ, at most."""
    amount: int = 1
    """How much of the campaign."""


KINDS = (
    Kind("workers killed", ("kill",)),
    Kind("workers stopped for twice their lease", ("stop",)),
    Kind("connections ended by the server", ("terminate",)),
    Kind("connections cut by a proxy", ("cut",), through=True),
    Kind("the server crashes and is started again", ("restart",)),
    Kind("clocks hours apart", hours=12),
    Kind("all of it at once", ("kill", "stop", "terminate", "cut", "restart"), through=True, hours=12, amount=4),
)
_PARTS = 2 * sum(kind.amount for kind in KINDS)


@dataclass(frozen=True)
class Task:
    """One kind of trouble, plain or sealed."""

    kind: Kind
    sealed: bool
    seed: str
    runs: int

    @property
    def name(self):
        """What it is called."""
        return f"{self.kind.name}, sealed" if self.sealed else self.kind.name

    def run(self):
        """Do it, and return what was counted."""
        tally = Tally()
        with tempfile.TemporaryDirectory(prefix="graphagent-many-") as folder, postgres.served() as dsn:
            anyio.run(_Scenario(self, folder, dsn, tally).run)
            if tally.shown:
                said = Path(folder, "said").read_text("utf-8", "replace").splitlines()
                tally.shown += [f"  worker: {line}" for line in said if "WARNING" in line and "no word" not in line][
                    -20:
                ]
                if kept := os.environ.get("GRAPHAGENT_MANY_KEEP"):
                    Path(kept, self.name.replace(" ", "-")).write_text("\n".join(said))
        return tally


def tasks(seed, share=1.0, kinds="", stores=""):
    """Return the tasks of a campaign, or of a share of it; of chosen kinds, and plain or sealed ones."""
    return [
        Task(kind, sealed, seed, max(9, round(RUNS * share * kind.amount / _PARTS)))
        for kind in KINDS
        for sealed in (False, True)
        if kinds in kind.name and stores in ("sealed" if sealed else "plain")
    ]


class _Scenario:
    """What happens to one database."""

    def __init__(self, task, folder, dsn, tally):
        self._task, self._folder, self._dsn, self._tally = task, folder, dsn, tally
        self._chance = random.Random(f"{task.seed} {task.name}")
        self._key = new_key() if task.sealed else ""
        self._hosts, self._workers, self._outages = [], [], []
        self._proxy, self._speaking = None, anyio.Lock()
        self._started, self._over, self._since = 0, 0, time.monotonic()

    async def run(self):
        """Let it happen, and judge."""
        path = f"{self._folder}/marks"
        marks, groups = Marks(path), runs(self._task.runs, self._chance)
        for name in ("one", "two"):
            self._hosts.append(Host(name, self._folder, {program.MARKS: path, program.SEALED: self._key}))
        try:
            self._proxy = Proxy(f"{postgres.place_of(self._dsn)}/.s.PGSQL.5432")
            async with self._proxy.serving(), program.store_at(self._dsn, self._key) as store:
                for number in range(WORKERS):
                    await self._start(number % 2)
                await self._until_they_work()
                clients = Clients(program.agents(store, marks), marks, self._chance)
                await self._until_all_is_over(clients, groups)
            fallen = [host.fallen() for host in self._hosts]
        finally:
            for host in self._hosts:
                host.end()
        if any(fallen):
            self._tally.shown.append(f"{fallen} workers of the hosts ended by themselves")
        allowed = program.LEASE + SWEEP
        judge([run for group in groups for run in group], marks.read(), self._outages, allowed, self._tally)

    async def _until_all_is_over(self, clients, groups):
        """Let clients do their work amid trouble, which ends after a while."""
        every = [run for group in groups for run in group]
        async with anyio.create_task_group() as working:
            working.start_soon(clients.all, groups)
            async with anyio.create_task_group() as troubles:
                for each in self._task.kind.happens:
                    troubles.start_soon(self._again_and_again, getattr(self, f"_{each}"))
                await self._until(every, PATIENCE)
                troubles.cancel_scope.cancel()
            await self._until(every, PATIENCE)
            await self._look_for(clients, every)
            working.cancel_scope.cancel()

    async def _look_for(self, clients, runs):
        """Count runs that ended and are gone, and show where those are that have not ended, and what workers are doing."""
        for run in runs:
            if run.over and not await clients.told(run):
                self._tally.add("lost", said=f"{run.run_id} ended, and is not in the store")
            elif not run.over:
                self._tally.shown.append(f"{run.run_id}: {await clients.told(run) or 'it is not in the store'}")
        if not all(run.over for run in runs):
            for host, worker in self._workers:
                await self._ask(host, "signal", worker, signal.SIGUSR1)
            with open(f"{self._folder}/said", "a") as said:
                faulthandler.dump_traceback(said)

    async def _until(self, runs, seconds):
        """Wait until all are over, or until so many seconds have passed since one was."""
        self._since = time.monotonic()
        while (over := sum(run.over for run in runs)) < len(runs) and time.monotonic() - self._since < seconds:
            if over > self._over:
                self._over, self._since = over, time.monotonic()
            await anyio.sleep(0.2)

    async def _again_and_again(self, trouble):
        while True:
            await anyio.sleep(self._chance.uniform(0.5, 2.5) * min(len(self._task.kind.happens), 2))
            with anyio.CancelScope(shield=True):
                await trouble()

    # ---- workers

    async def _until_they_work(self):
        """Wait for as many workers to have begun as were started: so there are always enough of them."""
        said = anyio.Path(self._folder, "said")
        while not await said.exists() or (await said.read_text("utf-8", "replace")).count("Working: ") < self._started:
            if any([await self._ask(host, "fallen") for host in range(len(self._hosts))]):
                raise RuntimeError(f"a worker has ended:\n{await said.read_text('utf-8', 'replace')}")
            await anyio.sleep(0.1)

    async def _start(self, host):
        hours = self._task.kind.hours
        dsn = (
            f"postgresql://{postgres.USER}@127.0.0.1:{self._proxy.port}/postgres"
            if self._task.kind.through
            else self._dsn
        )
        worker = await self._ask(host, "start", self._chance.uniform(-hours, hours) * 3600, dsn)
        self._workers.append((host, worker))
        self._started += 1

    async def _ask(self, host, what, *arguments):
        async with self._speaking:
            return await anyio.to_thread.run_sync(getattr(self._hosts[host], what), *arguments)

    async def _kill(self):
        host, worker = self._workers.pop(self._chance.randrange(len(self._workers)))
        number = signal.SIGKILL if self._chance.random() < 0.8 else signal.SIGTERM
        self._tally.add("killed", await self._ask(host, "signal", worker, number))
        await self._start(host)
        with anyio.move_on_after(STARTING):
            await self._until_they_work()

    async def _stop(self):
        host, worker = self._workers.pop(self._chance.randrange(len(self._workers)))
        self._tally.add("stopped", await self._ask(host, "signal", worker, signal.SIGSTOP))
        await anyio.sleep(STOPPED)
        await self._ask(host, "signal", worker, signal.SIGCONT)
        self._workers.append((host, worker))

    # ---- connections and the server

    async def _terminate(self):
        with contextlib.suppress(psycopg.Error):
            self._tally.add("cut", await anyio.to_thread.run_sync(_terminated, self._dsn))

    async def _cut(self):
        self._tally.add("cut", self._proxy.cut(self._chance))

    async def _restart(self):
        begin = time.monotonic()
        await anyio.to_thread.run_sync(postgres.restart, self._dsn, self._chance.uniform(0, DOWN))
        self._outages.append((begin, time.monotonic()))
        self._tally.add("restarted")


def _terminated(dsn):
    """End some connections, as an administrator does; return how many."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        ended = connection.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND random() < 0.5"
        )
        return ended.fetchone()[0]
