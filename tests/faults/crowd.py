"""Eight processes of eight threads on one store: writers, readers, one that forgets, backups and rotations; one of them is killed."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

import anyio

from graphagent.store import backup
from tests.faults.subjects import SUBJECTS, Stored, closed, do

PROCESSES, THREADS, SAVES = 8, 8, 4
LATEST_KILL_SECONDS = 0.6
ROUNDS = 2
"""How often each thread that does not write does its work."""


def main(name, folder, seed):
    """Start the processes, kill one, and wait for the others; exit with the number of those that failed."""
    chance = random.Random(seed)
    children = [pid for number in range(PROCESSES) if (pid := _started(name, folder, number))]
    time.sleep(chance.uniform(0, LATEST_KILL_SECONDS))
    victim = chance.choice(children)
    os.kill(victim, signal.SIGKILL)
    codes = [os.waitpid(pid, 0)[1] for pid in children if pid != victim]
    os.waitpid(victim, 0)
    sys.exit(sum(map(bool, codes)))


def _started(name, folder, number):
    pid = os.fork()
    if pid:
        return pid
    failed = []
    threads = [
        threading.Thread(target=_thread, args=(SUBJECTS[name], folder, number, each, failed)) for each in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(bool(failed))


def _thread(subject, folder, process, number, failed):
    try:
        anyio.run(_work, subject, folder, process, number)
    except BaseException:
        traceback.print_exc()
        failed.append(number)


async def _work(subject, folder, process, number):
    work = (number, process) if number == THREADS - 1 else (number, None)
    async with closed(subject, folder) as handle:
        if work == (THREADS - 1, 0):
            await _forget(subject, handle, folder)
        elif work == (THREADS - 1, 1):
            await _back_up(subject, folder)
        elif work == (THREADS - 1, 2) and hasattr(handle, "keys"):
            for _ in range(ROUNDS):
                await handle.keys.rotate_data()
        elif number >= THREADS - 3:
            for _, read in itertools.product(range(ROUNDS), subject.reads(handle, [])):
                await read()
        else:
            told = _told(folder, f"{process}-{number}")
            for each in range(SAVES):
                step = f"save {2 * (process * 1000 + number * 100 + each)}"
                os.write(told, f"begin {step}\n".encode())
                await do(subject, handle, step)
                os.write(told, f"ack {step}\n".encode())


async def _forget(subject, handle, folder):
    told = _told(folder, "forgets")
    for step in ["save 20001", "save 20003", "forget"] * ROUNDS:
        number = step.replace("2000", "2010")
        os.write(told, f"begin {number}\n".encode())
        await do(subject, handle, number)
        os.write(told, f"ack {number}\n".encode())
        if number == "forget":
            return


async def _back_up(subject, folder):
    anchored = isinstance(subject, Stored) and subject.anchored
    for number in range(ROUNDS):
        source, copy, anchor = f"{folder}/at", f"{folder}-copy-{number}", Path(folder, "anchor")
        # Each thread has a loop of its own.
        if os.path.isdir(source) and anchor.is_file() is anchored:  # noqa: ASYNC240
            if anchored:  # first: a store may be ahead of its anchor, and not behind it
                os.mkdir(copy)
                shutil.copy(anchor, f"{copy}/anchor")
            await backup(source, f"{copy}/at")
            async with closed(subject, copy) as handle:
                await subject.records(handle)  # says if it is not of one moment


def _told(folder, name):
    return os.open(f"{folder}-told-{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


if __name__ == "__main__":
    main(*sys.argv[1:])
