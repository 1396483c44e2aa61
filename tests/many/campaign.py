"""The campaign: each kind of trouble, happening to eight workers on two hosts with one database while clients submit runs."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import anyio
import anyio.to_thread
import psycopg

from graphagent.errors import StoreError
from graphagent.store import new_key
from tests import postgres
from tests.many import program
from tests.many.client import Clients, runs
from tests.many.hosts import ENDING, Host
from tests.many.marks import Marks
from tests.many.oracle import Tally, judge
from tests.many.proxy import Proxy

WORKERS, RUNS = 8, 2000
TOGETHER = 2
"""Tasks side by side: most of their time they wait."""
SWEEP = 1.25
"""Seconds between two looks of a worker, at most."""
STOPPED = 2 * program.LEASE
DOWN = 3
"""Seconds for which the server is down, at most."""
STARTING = 20
"""Seconds for which workers are waited for until they work, at most."""
PATIENCE = 4 * (program.LEASE + SWEEP + DOWN + program.DEADLINE)
"""Seconds for which no run does anything before those that have not ended are given up: four times what one takes whose process dies, which
is found, meets a server that is down, and waits until its question expires."""
ASKING = 60
"""Seconds for which the store is asked where the runs are in the end, at most."""
TELLING = 15
"""Seconds between two lines about what is going on."""


@dataclass(frozen=True)
class Kind:
    """A kind of trouble."""

    name: str
    happens: tuple = ()
    """What happens, by the names of the methods of a scenario; what is there twice may happen twice at a time."""
    through: bool = False
    """Whether workers reach the server through a proxy."""
    hours: float = 0
    """By how much the clocks of workers differ, at most."""
    amount: int = 1
    """How much of the campaign."""


KINDS = (
    Kind("workers killed", ("kill", "kill")),
    Kind("workers stopped for twice their lease", ("stop",) * 3),
    Kind("connections ended by the server", ("terminate",)),
    Kind("connections cut by a proxy", ("cut",), through=True),
    Kind("the server crashes and is started again", ("restart",)),
    Kind("clocks hours apart", hours=12),
    Kind(
        "all of it at once",
        ("kill", "kill", "stop", "stop", "terminate", "cut", "restart"),
        through=True,
        hours=12,
        amount=4,
    ),
)
_PARTS = 2 * sum(kind.amount for kind in KINDS)


@dataclass(frozen=True)
class Task:
    """A part of one kind of trouble, plain or sealed."""

    kind: Kind
    sealed: bool
    seed: str
    runs: int
    part: int = 0

    @property
    def name(self):
        """What it is called; so are all parts of the same kind."""
        return f"{self.kind.name}, sealed" if self.sealed else self.kind.name

    @property
    def most(self):
        """Seconds for which there is trouble, at most, and after that without any: several times what an idle machine takes."""
        return PATIENCE + 3 * self.runs

    @property
    def limit(self):
        """Seconds after which it is ended by force: more than all that it waits for, in the order in which it does."""
        ending_trouble = max(STOPPED, DOWN + postgres.LONGEST, STARTING)
        return (
            postgres.LONGEST
            + STARTING
            + self.most
            + ending_trouble
            + self.most
            + ASKING
            + 2 * ENDING
            + postgres.LONGEST
        )

    def run(self, folder):
        """Do it in a folder, and return what was counted."""
        tally = Tally()
        with postgres.served() as dsn:
            anyio.run(_Scenario(self, folder, dsn, tally).run)
        if tally.shown:
            said = _said(folder)
            tally.shown += [f"  worker {line}" for line in said if "WARNING" in line and "no word" not in line][-20:]
            if kept := os.environ.get("GRAPHAGENT_MANY_KEEP"):
                Path(kept, f"{self.name}, {self.part}".replace(" ", "-")).write_text("\n".join(said))
        return tally


def tasks(seed, share=1.0, kinds="", stores=""):
    """Return the tasks of a campaign, or of a share of it; of chosen kinds, and plain or sealed ones."""
    return [
        Task(kind, sealed, seed, max(9, round(RUNS * share / _PARTS)), part)
        for kind in KINDS
        for sealed in (False, True)
        for part in range(kind.amount)
        if kinds in kind.name and stores in ("sealed" if sealed else "plain")
    ]


def _said(folder):
    """Return the lines that workers have printed, in the order of their times as they tell them."""
    lines = []
    for path in sorted(Path(folder).glob("said-*")):
        name = path.name.removeprefix("said-")
        lines += [f"{name}: {line}" for line in path.read_text("utf-8", "replace").splitlines()]
    return lines


class _Scenario:
    """What happens to one database."""

    def __init__(self, task, folder, dsn, tally):
        self._task, self._folder, self._dsn, self._tally = task, folder, dsn, tally
        self._chance = random.Random(f"{task.seed} {task.name} {task.part}")
        self._key = new_key() if task.sealed else ""
        self._path = f"{folder}/marks"
        self._marks = Marks(self._path)
        self._hosts, self._workers, self._outages = [], [], []
        self._proxy, self._speaking = None, anyio.Lock()
        self._began = time.monotonic()

    async def run(self):
        """Let it happen, and judge."""
        marks, groups = self._marks, runs(self._task.runs, self._chance)
        try:
            for name in ("one", "two"):
                self._hosts.append(Host(name, self._folder, {program.MARKS: self._path, program.SEALED: self._key}))
            self._proxy = Proxy(f"{postgres.place_of(self._dsn)}/.s.PGSQL.5432")
            async with self._proxy.serving(), program.store_at(self._dsn, self._key) as store:
                async with anyio.create_task_group() as starting:
                    for number in range(WORKERS):
                        starting.start_soon(self._start, number % 2)
                clients = Clients(program.agents(store, marks), marks, self._chance)
                await self._until_all_is_over(clients, groups)
                await self._see_fallen()
        finally:
            for host in self._hosts:
                host.end()
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
                await self._until(every)
                troubles.cancel_scope.cancel()
            await self._until(every)
            await self._look_for(clients, every)
            working.cancel_scope.cancel()

    async def _look_for(self, clients, runs):
        """Note which runs are not in the store, show where those are that have not ended, and what workers are doing."""
        until = time.monotonic() + ASKING
        for run in runs:
            told = await self._told(clients, run, until - time.monotonic())
            run.gone = run.submitted and not told
            if not run.over:
                self._tally.shown.append(f"{run.run_id}: {told or 'it is not in the store'}")
        if not all(run.over for run in runs):
            for host, worker in self._workers:
                await self._ask(host, "signal", worker, signal.SIGUSR1)
            with open(f"{self._folder}/said-clients", "a") as said:  # noqa: ASYNC230  of a campaign that is over
                faulthandler.dump_traceback(said)
            for host in range(len(self._hosts)):
                alive = await self._ask(host, "alive")
                self._tally.shown.append(f"host {self._hosts[host].name}: the states of its workers are {alive}")

    async def _told(self, clients, run, seconds):
        """Return where a run is, or why that is not known."""
        try:
            with anyio.fail_after(max(seconds, 0)):
                return await clients.told(run)
        except (StoreError, TimeoutError) as error:
            return f"its store does not say it: {error!r}"

    async def _until(self, runs):
        """Wait until all are over, or for as long as there is hope: until none has done anything for a while, or it takes too long."""
        began = since = told = now = time.monotonic()
        length = 0
        while not all(run.over for run in runs) and now < min(began + self._task.most, since + PATIENCE):
            if (found := self._marks.length()) > length:
                length, since = found, now
            if now > told + TELLING:
                told = now
                self._tell(runs, now - since)
            await anyio.sleep(0.2)
            now = time.monotonic()

    def _tell(self, runs, idle):
        """Print how far it is, and for what it waits if nothing has happened for a while."""
        counts = ", ".join(f"{self._tally.counts[each]} {each}" for each in ("killed", "stopped", "cut", "restarted"))
        over = sum(run.over for run in runs)
        waits = [run.run_id for run in runs if run.submitted and not run.over]
        names = f"; for {idle:.0f} s nothing has happened to {', '.join(waits[:8])}" if idle > TELLING else ""
        print(
            f"{datetime.now(UTC):%H:%M:%S} {self._task.name}, part {self._task.part + 1}: {over} of {len(runs)} runs have ended after "
            f"{time.monotonic() - self._began:.0f} s, {len(waits)} go on; {counts}{names}",
            file=sys.stderr,
            flush=True,
        )

    async def _again_and_again(self, trouble):
        while True:
            await anyio.sleep(self._chance.uniform(0.5, 2.5) * min(len(set(self._task.kind.happens)), 2))
            with anyio.CancelScope(shield=True):
                await trouble()

    # ---- workers

    async def _start(self, host):
        """Start a worker, and wait until it works: so there are always enough of them."""
        hours = self._task.kind.hours
        dsn = (
            f"postgresql://{postgres.USER}@127.0.0.1:{self._proxy.port}/postgres"
            if self._task.kind.through
            else self._dsn
        )
        worker = await self._ask(host, "start", self._chance.uniform(-hours, hours) * 3600, dsn)
        self._workers.append((host, worker))
        with anyio.move_on_after(STARTING) as scope:
            while "Working: " not in await self._ask(host, "said", worker):  # noqa: ASYNC110  it is another process
                await anyio.sleep(0.1)
        if scope.cancelled_caught:
            self._tally.shown.append(f"worker {self._hosts[host].name}-{worker} did not work after {STARTING} s")

    async def _see_fallen(self):
        """Count the workers that have ended by themselves."""
        for host in range(len(self._hosts)):
            for worker in await self._ask(host, "fallen"):
                last = "\n".join((await self._ask(host, "said", worker)).splitlines()[-10:])
                self._tally.add("wrong", said=f"worker {self._hosts[host].name}-{worker} ended by itself:\n{last}")

    async def _ask(self, host, what, *arguments):
        async with self._speaking:
            return await anyio.to_thread.run_sync(getattr(self._hosts[host], what), *arguments)

    async def _kill(self):
        host, worker = self._workers.pop(self._chance.randrange(len(self._workers)))
        number = signal.SIGKILL if self._chance.random() < 0.8 else signal.SIGTERM
        self._tally.add("killed", await self._ask(host, "signal", worker, number))
        await self._start(host)

    async def _stop(self):
        host, worker = self._workers.pop(self._chance.randrange(len(self._workers)))
        self._tally.add("stopped", await self._ask(host, "signal", worker, signal.SIGSTOP))
        try:
            await anyio.sleep(STOPPED)
        finally:
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
