"""All faults: each kind, how much of it, and of which stores what is not promised."""

from __future__ import annotations

import errno
import logging
import os
import random
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio

from tests.faults import crashes, damage, processes
from tests.faults.oracle import Tally
from tests.faults.subjects import OURS, SUBJECTS

FILES = ("FileMemoryProvider",)
PLAIN = ("SqliteStore", "StoreMemoryProvider", "Notes", "Runs")
SEARCHED = ("Notes",)
ANCHORED = ("EncryptedStore with an anchor",)
SEALED = tuple(name for name in SUBJECTS if "sealed" in name or name.startswith("Encrypted"))
ALL = tuple(SUBJECTS)
OUR_NAMES = tuple(subject.name for subject in OURS)
UNANCHORED = tuple(name for name in ALL if name not in ANCHORED)
OF_SQLITE = tuple(name for name in SUBJECTS if name not in {*FILES, "a file of JSON"})


class Share:
    """The part of many faults that is tried: a share of them by chance, and of these every so-manieth."""

    def __init__(self, chance=None, share=1.0, part=0, parts=1):
        self._chance, self._share, self._part, self._parts = chance, share, part, parts
        self._count = 0

    def takes(self):
        """Return whether the next fault is tried."""
        if self._share < 1 and self._chance.random() >= self._share:
            return False
        self._count += 1
        return self._count % self._parts == self._part


@dataclass
class Kind:
    """A kind of faults."""

    name: str
    run: Callable
    amount: float = 1
    """The share of all of them in the whole campaign; how many, or how many at each call, where there is no end to them."""
    counted: bool = False
    """Whether the amount is a number."""
    stores: tuple = ALL
    without: tuple = ()
    """The stores that do not promise to notice these."""
    parts: int = 1
    """By how many processes it is tried, for each store."""


KINDS = [
    Kind("killed at a call", crashes.killed),
    Kind("killed, and the next process killed too", crashes.killed_again, 0.5, parts=2),
    Kind("killed, and the power lost later", crashes.killed_then_power, 0.5, parts=2),
    Kind("power lost after a call", crashes.power, 8, counted=True),
    Kind("a call fails with EIO", partial(crashes.failing, error=errno.EIO), parts=2),
    Kind("a call fails with ENOSPC", partial(crashes.failing, error=errno.ENOSPC)),
    Kind("the disk is full for 30 calls", partial(crashes.failing, error=errno.ENOSPC, calls=30)),
    Kind("a call fails with EACCES", partial(crashes.failing, error=errno.EACCES)),
    Kind("half of a write is made", partial(crashes.failing, error=0)),
    Kind("a sync fails, and the power is lost later", crashes.failing_then_power, 0.5, parts=4),
    Kind("the clock jumps", crashes.clock, 40, counted=True),
    Kind("a bit flipped in each byte", damage.flipped, without=SEARCHED, parts=8),
    Kind("cut off at a length", damage.cut, 0.1, without=FILES, parts=4),
    Kind("sectors and pages zeroed, exchanged, moved, added", damage.blocks, 800, counted=True, without=PLAIN, parts=2),
    Kind("rows exchanged, put back, removed, changed, added", damage.forged, 800, counted=True, stores=SEALED, parts=2),
    Kind("lines exchanged, doubled, removed, edited", damage.lines, 1000, counted=True, stores=FILES),
    Kind("an older copy put in its place", damage.older, 10, counted=True, without=UNANCHORED),
    Kind("the log of a killed process cut off or flipped", damage.log, 0.02, stores=OF_SQLITE, without=UNANCHORED),
    Kind("killed at a system call, by strace", processes.traced, 0.1, stores=OUR_NAMES),
    Kind("one of eight processes killed", processes.crowd, 4, counted=True, stores=OUR_NAMES),
]


@dataclass(frozen=True)
class Task:
    """A part of the faults of one kind, for one store or provider."""

    kind: int
    store: str
    share: float
    """Of the whole campaign."""
    seed: str
    part: int = 0
    parts: int = 1

    def run(self):
        """Try them."""
        kind, tally = KINDS[self.kind], Tally()
        chance = random.Random(zlib.crc32(f"{self.seed} {kind.name} {self.store}".encode()))
        if kind.counted:
            amount = kind.amount * self.share / self.parts
            chance.seed(chance.random() + self.part)
        else:
            amount = Share(chance, kind.amount * self.share, self.part, self.parts)
        logging.getLogger("graphagent").addHandler(logging.NullHandler())
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="graphagent-faults-", dir=memory) as folder:
            anyio.run(kind.run, SUBJECTS[self.store], str(Path(folder, "files")), chance, amount, tally)
        return tally


def tasks(seed, share=1.0, kinds="", stores=""):
    """Return the tasks of a campaign, or of a share of it; of chosen kinds and stores."""
    found = []
    for number, kind in enumerate(KINDS):
        parts = kind.parts if share >= 1 else 1
        for store in kind.stores:
            if kinds in kind.name and stores in store:
                found += [Task(number, store, share, seed, part, parts) for part in range(parts)]
    return found


@dataclass
class Outcome:
    """The outcomes of a campaign."""

    tallies: dict = field(default_factory=dict)
    """By kind and store."""
    undone: int = 0
    """How many tasks ended with an error of the campaign itself."""

    def add(self, task, tally):
        """Add the outcomes of a task."""
        self.tallies.setdefault((KINDS[task.kind].name, task.store), Tally()).update(tally)

    def of(self, kinds=None, stores=None, *, promised=True):
        """Return the sum of chosen outcomes."""
        found = Tally()
        for kind in KINDS:
            for store in kind.stores:
                if (
                    kinds in (None, kind.name)
                    and (stores is None or store in stores)
                    and (store not in kind.without) == promised
                    and (kind.name, store) in self.tallies
                ):
                    found.update(self.tallies[kind.name, store])
        return found
