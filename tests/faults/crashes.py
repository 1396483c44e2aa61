"""Processes that are killed, calls that fail, and the loss of power: as the calls of one program leave the files of a folder."""

from __future__ import annotations

import copy
import errno
import itertools
import random
import shutil
import time
from pathlib import Path

from graphagent.errors import GraphAgentError
from tests.faults.calls import Fault, watch
from tests.faults.disk import Durable, Files
from tests.faults.oracle import after_crash
from tests.faults.subjects import OURS, closed, do

NEXT = "save 12"
"""What the process after a killed one does."""
NEXT_STATES = 6
"""At how many calls of the process after a killed one that one is killed too, or loses its power."""


def fresh(folder):
    """Make an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    Path(folder).mkdir(parents=True)


async def recorded(subject, folder, fault=None, offsets=None):
    """Return the calls of a program that goes on after an error, as one that answers requests does, and its worst error."""
    fresh(folder)
    worst = handle = None
    with watch(folder, fault) as watched:
        for number, step in enumerate(subject.steps):
            watched.mark("begin", step)
            try:
                with shifted(offsets[number] if offsets else 0):
                    handle = handle or subject.open(folder)
                    await do(subject, handle, step)
            except AssertionError:
                raise
            except Exception as error:
                worst = error if worst is None or isinstance(worst, GraphAgentError) else worst
            else:
                watched.mark("ack", step)
        try:
            if handle is not None:
                await subject.close(handle)
        except Exception as error:
            worst = worst or error
    return watched.calls, worst


class shifted:
    """Have the clock of the computer differ by some nanoseconds."""

    def __init__(self, by):
        self._by = by

    def __enter__(self):
        self._real = time.time_ns
        if self._by:
            time.time_ns = lambda real=self._real, by=self._by: real() + by

    def __exit__(self, *_):
        time.time_ns = self._real


async def killed(subject, folder, chance, share, tally):
    """Kill -9 at a call: before it, and in the middle of writing."""
    async for _, files, marks, where in _kills(subject, folder, chance, share):
        files.put(folder)
        await after_crash(subject, folder, marks, where, tally)


async def _kills(subject, folder, chance, share):
    """Yield what is sure to survive a loss of power, the files, what was told, and where that is, at each call or at some."""
    calls, error = await recorded(subject, folder)
    if error is not None:
        raise error
    files, durable, marks = Files(), Durable(), []
    for at, call in enumerate(calls):
        if call[0] == "mark":
            marks.append(call[1:])
            continue
        if share.takes():
            yield durable, files, marks, f"killed before call {at}, {call[:2]}"
        if call[0] == "write" and len(call[3]) > 1 and share.takes():
            size = chance.randrange(1, len(call[3]))
            half = (*call[:3], call[3][:size])
            torn, unsure = copy.deepcopy(files), copy.deepcopy(durable)
            torn.apply(half), unsure.apply(half)
            yield unsure, torn, marks, f"killed in call {at}, {call[:2]}, after {size} bytes"
        files.apply(call), durable.apply(call)


async def killed_again(subject, folder, chance, share, tally):
    """A second kill -9, while the next process opens what the first one left, and uses it."""
    async for _, before, marks, where in _kills(subject, folder, chance, share):
        calls = await process_after(subject, folder, before, where, tally)
        for at in _some(calls, chance):
            files, told = copy.deepcopy(before), list(marks)
            _replay(calls[:at], told, files)
            files.put(folder)
            await after_crash(subject, folder, told, f"{where}, and before call {at} of the next process", tally)


async def killed_then_power(subject, folder, chance, share, tally):
    """Kill -9, a next process, and a loss of power: names that the killed process made need not be durable."""
    async for unsure, before, marks, where in _kills(subject, folder, chance, share):
        calls = await process_after(subject, folder, before, where, tally)
        for at in [*_some(calls, chance), len(calls)]:
            durable, told, seed = copy.deepcopy(unsure), list(marks), chance.getrandbits(32)
            _replay(calls[:at], told, durable)
            durable.left(random.Random(seed)).put(folder)
            said = f"{where}, and power lost before call {at} of the next process, {seed}"
            await after_crash(subject, folder, told, said, tally, verified=False)


async def process_after(subject, folder, files, where, tally):
    """Return the calls of the process that comes next."""
    files.put(folder)
    with watch(folder) as watched:
        watched.names = dict(files.names)
        watched.numbers = itertools.count(max(files.bytes, default=0) + 1)
        try:
            async with closed(subject, folder) as handle:
                await subject.records(handle)
                watched.mark("begin", NEXT)
                await do(subject, handle, NEXT)
                watched.mark("ack", NEXT)
        except Exception as error:
            tally.add(f"{where}: {type(error).__name__}: {error}", unusable=1)
            return []
    return watched.calls


def _some(calls, chance):
    states = [at for at, call in enumerate(calls) if call[0] != "mark"]
    return chance.sample(states, min(NEXT_STATES, len(states)))


def _replay(calls, marks, files):
    for call in calls:
        if call[0] == "mark":
            marks.append(call[1:])
        else:
            files.apply(call)


async def power(subject, folder, chance, many, tally):
    """A loss of power after a call: what no sync has confirmed may be there or not."""
    calls, _ = await recorded(subject, folder)
    await _power(subject, folder, chance, many, tally, calls, "power lost")


async def _power(subject, folder, chance, many, tally, calls, what):
    durable, marks = Durable(), []
    for at, call in enumerate(calls):
        if call[0] == "mark":
            marks.append(call[1:])
            continue
        durable.apply(call)
        for _ in range(int(many) + (chance.random() < many % 1)):
            seed = chance.getrandbits(32)
            durable.left(random.Random(seed)).put(folder)
            where = f"{what} after call {at}, {call[:2]}, {seed}"
            await after_crash(subject, folder, marks, where, tally, verified=False)


async def failing(subject, folder, _, share, tally, *, error, calls=1):
    """A call fails, or several in a row: what was acknowledged stays, and it goes on when the disk is well again."""
    async for at, made, raised in failures(subject, folder, share, lambda at: Fault(error, at, calls)):
        marks = [call[1:] for call in made if call[0] == "mark"]
        if isinstance(raised, Exception) and not isinstance(raised, GraphAgentError) and subject in OURS:
            tally.add(f"call {at} fails: {type(raised).__name__}: {raised}", unusable=1)
        else:
            await after_crash(subject, folder, marks, f"call {at} fails", tally)


async def failing_then_power(subject, folder, chance, share, tally):
    """A sync fails, of a file or of a folder, and the power is lost later."""
    async for at, calls, _ in failures(subject, folder, share, SyncFault):
        await _power(subject, folder, chance, 0.2, tally, calls, f"sync {at} fails, power lost")


async def failures(subject, folder, share, make):
    """Yield the numbers of failing calls, each with the calls of a program, until none is left that can fail."""
    at = 0
    while True:
        at += 1
        while not share.takes():
            at += 1
        fault = make(at)
        calls, raised = await recorded(subject, folder, fault)
        if not fault.met:
            return
        yield at, calls, raised


class SyncFault(Fault):
    """A sync that fails."""

    def __init__(self, at):
        super().__init__(errno.EIO, at)

    def meets(self, kind):
        """Return whether this call fails."""
        return kind in {"sync", "named"} and super().meets(kind)


async def clock(subject, folder, chance, many, tally):
    """The clock jumps by up to ten years, back and forth, before each step."""
    years = 10 * 365 * 86_400 * 10**9
    for number in range(round(many)):
        offsets = [chance.randint(-years, years) for _ in subject.steps]
        calls, raised = await recorded(subject, folder, offsets=offsets)
        marks = [call[1:] for call in calls if call[0] == "mark"]
        if raised is not None:
            tally.add(f"clock {number}: {type(raised).__name__}: {raised}", unusable=1)
            continue
        with shifted(chance.randint(-years, years)):
            await after_crash(subject, folder, marks, f"clock {number}", tally)
