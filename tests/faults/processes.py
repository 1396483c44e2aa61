"""Real processes: killed at each system call, which strace counts, and killed among others that use the same store."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import anyio

from tests.faults.crashes import fresh
from tests.faults.crowd import PROCESSES
from tests.faults.oracle import after_crash

HOME = Path(__file__).parents[2]
CHANGING = (
    "pwrite64", "fdatasync", "fsync", "ftruncate", "link", "linkat", "rename", "renameat", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir",
    "flock",
)  # fmt: skip
"""The calls that Python itself does not make while it starts, so that any of them is one of the store."""
ALSO = ("openat", "close", "read", "pread64", "write", "fcntl", "mmap")
"""The calls that are counted only where they are about a file of the store."""


@cache
def can_trace():
    """Return whether there is strace, and it may trace."""
    if shutil.which("strace") is None:
        return False
    return not subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode


async def traced(subject, folder, chance, share, tally):
    """Kill -9 at a system call, of each that a process makes, at least at one: strace counts each kind of them on its own."""
    if not can_trace():
        return
    counts, log = Counter(), f"{folder}-calls"
    for calls in (CHANGING, ALSO):
        paths = _paths(Path(folder)) if calls is ALSO else []
        fresh(folder)
        await _run(["strace", "-f", "-o", log, *paths, "-e", f"trace={','.join(calls)}"], subject, folder)
        counts.update(_counted(log))
    points = [(name, number) for name in counts for number in range(1, counts[name] + 1)]
    for call, at in [each for each in points if share.takes()] or [chance.choice(points)]:
        fresh(folder)
        about = paths if call in ALSO else []
        command = ["strace", "-f", "-o", "/dev/null", *about, "-e", f"trace={call}"]
        code, told = await _run([*command, "-e", f"inject={call}:signal=SIGKILL:when={at}"], subject, folder)
        if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
            await after_crash(subject, folder, _marks(told), f"killed at {call} {at}", tally)
        elif code:
            tally.add(f"{call} {at}: the program ended with {code}", unusable=1)


def _counted(log):
    """Return how often each call was made."""
    return Counter(re.findall(r"^(?:\d+ +)?(\w+)\(", Path(log).read_text(), re.MULTILINE))


def _paths(folder):
    """Return the options of strace for calls about the files of a folder."""
    paths = [folder / "at", *folder.rglob("*")]
    paths += [Path(f"{path}{side}") for path in paths if path.suffix == ".db" for side in ("-wal", "-shm", "-journal")]
    return [part for path in paths for part in ("-P", str(path))]


async def _run(command, subject, folder):
    command = [*command, sys.executable, "-m", "tests.faults.program", subject.name, folder]
    done = await anyio.run_process(command, cwd=HOME, check=False)
    return done.returncode, done.stdout.decode()


def _marks(told):
    return [tuple(line.rstrip("\n").split(" ", 1)) for line in told.splitlines(keepends=True) if line.endswith("\n")]


async def crowd(subject, folder, chance, many, tally):
    """Eight processes of eight threads write, read, forget, back up and rotate keys; one is killed at a random moment."""
    for number in range(round(many)):
        fresh(folder)
        _remove_beside(Path(folder))
        seed = str(chance.getrandbits(32))
        command = [sys.executable, "-m", "tests.faults.crowd", subject.name, folder, seed]
        done = await anyio.run_process(command, cwd=HOME, check=False)
        if done.returncode:
            failed = f"{done.returncode} of {PROCESSES - 1} processes fail: {done.stderr.decode()[-600:]}"
            tally.add(f"{number}: {failed}", unusable=1)
        else:
            await after_crash(subject, folder, _told_beside(Path(folder)), f"{number}: {seed}", tally)


def _remove_beside(folder):
    for left in folder.parent.glob(f"{folder.name}-*"):
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()


def _told_beside(folder):
    """Return what the processes were told: first what happened to the records that are forgotten, which one thread does alone."""
    forgets = sorted(folder.parent.glob(f"{folder.name}-told-*"), key=lambda path: not path.name.endswith("forgets"))
    return [mark for path in forgets for mark in _marks(path.read_text())]
