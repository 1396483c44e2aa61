"""Tasks of the campaign in processes of their own: each ends, by itself or by force, and everything that it started ends with it.

Hosts end when the process of their task does, and so does the server of its database, whatever a thread of it waits for.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tests.many.oracle import Tally

SPEAKING = 2
"""Seconds for which a process that is to be killed may say where it is."""
_STACKS = "stacks"


@dataclass
class _Going:
    task: Any
    pipe: Connection
    process: BaseProcess
    folder: tempfile.TemporaryDirectory
    until: float


def run_all(tasks, together):
    """Yield each task and what was counted, as they end, so many of them side by side; a task has `run(folder)`, `runs` and `limit`."""
    left, going = list(tasks), []
    try:
        while left or going:
            while left and len(going) < together:
                going.append(_started(left.pop(0)))
            wait([each.pipe for each in going], max(0, min(each.until for each in going) - time.monotonic()))
            for each in list(going):
                if each.pipe.poll() or time.monotonic() >= each.until:
                    tally = _outcome(each)
                    _end(each)
                    going.remove(each)
                    yield each.task, tally
    finally:
        for each in going:
            _end(each)


def _started(task):
    context = multiprocessing.get_context("spawn")
    folder = tempfile.TemporaryDirectory(prefix="graphagent-many-", ignore_cleanup_errors=True)
    pipe, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(task, folder.name, theirs))
    process.start()
    theirs.close()
    return _Going(task, pipe, process, folder, time.monotonic() + task.limit)


def _outcome(going):
    """Return what a task has counted; of one that failed, or that did not end, that none of its runs did."""
    if going.pipe.poll():
        try:
            found = going.pipe.recv()
        except EOFError:
            found = "its process ended"
    else:
        os.kill(going.process.pid, signal.SIGUSR1)
        time.sleep(SPEAKING)
        stacks = Path(going.folder.name, _STACKS)
        where = stacks.read_text("utf-8", "replace") if stacks.exists() else "it had not begun"
        found = f"it had not ended after {going.task.limit:.0f} s, and was killed:\n{where}"
    if isinstance(found, str):
        tally = Tally()
        tally.add("runs", going.task.runs)
        tally.add("did not end", going.task.runs, found)
        return tally
    return found


def _end(going):
    going.process.kill()
    going.process.join()
    going.pipe.close()
    going.folder.cleanup()


def _run(task, folder, pipe):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    logging.getLogger("graphagent").setLevel(logging.ERROR)  # that a server is down is known here
    with open(f"{folder}/{_STACKS}", "w") as stacks:
        faulthandler.register(signal.SIGUSR1, stacks)
        try:
            found = task.run(folder)
        except Exception:
            found = traceback.format_exc()
        sys.stderr.flush()
        with contextlib.suppress(BrokenPipeError):
            pipe.send(found)
        pipe.close()
        os._exit(0)  # what a thread waits for is in nobody's way


def _end_with_parent():
    multiprocessing.parent_process().join()
    os.kill(os.getpid(), signal.SIGKILL)
