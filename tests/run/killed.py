"""A program that is killed for real, and a server that starts processes with it: each is forked from one that has imported everything.

`python -m tests.run.killed` reads lines `folder how number`, forks a process for each and prints its status. It kills itself `before`
or `behind` the commit of that number, or is killed after so many microseconds: `outside`. With `never` it lives to its end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import anyio

from graphagent.store import SqliteStore
from tests.run.lives import Life, recorded_in
from tests.run.worlds import World

PROGRAM = {
    "built": [
        ("model", 3), ("flaky", 1), ("sub", [("work", 1)], True), ("human", 1),
        ("parallel", [[("plain", 0), ("model", 2)], [("agent", [("human", 1), ("work", 1)])]], ("keep", None), False),
        ("race", [("work", 0)], "keep"),
    ],
    "tasks": ["task 3", "more"], "edits": True,
}  # fmt: skip


class Written(World):
    """A world whose effects stand in a file before anybody hears of them."""

    def __init__(self, path):
        super().__init__()
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def write(self, kind, *what):
        """Write a line."""
        os.write(self._file, f"{json.dumps([kind, *what])}\n".encode())

    def do(self, *what):
        """Do something, and give what names it."""
        said = super().do(*what)
        self.write("done", said[2:])
        return said

    def execute(self, name):
        """Note that a plain node was executed, under what it gave."""
        self.write("bodies", name)

    def ask(self, sent):
        """Note what a model is sent."""
        self.write("asked", sent)

    def call(self, said, key):
        """Note what a tool call did, and its idempotency key."""
        self.write("keys", said[2:], key)


class Deadly(SqliteStore):
    """A store that kills its process at a commit."""

    def __init__(self, path, how, number):
        super().__init__(path)
        self._how, self._left = how, number

    async def commit(self, *changes):
        self._left -= 1
        if self._left == 0 and self._how == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        await super().commit(*changes)
        if self._left == 0 and self._how == "behind":
            os.kill(os.getpid(), signal.SIGKILL)


async def _live(folder, how, number):
    life = Life(**PROGRAM, world=Written(f"{folder}/effects"))
    async with Deadly(f"{folder}/runs.db", how, number) as store:
        life.world.before = recorded_in(await life.entries(store))
        said, _ = await life.live(store)
    life.world.write("said", said)


def _fork(folder, how, number):
    """Start a process, and return its status when it has ended."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            anyio.run(_live, folder, how, number)
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    if how == "outside":
        time.sleep(number / 1e6)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main():
    """Start a process for each line."""
    for line in sys.stdin:
        folder, how, number = line.split()
        print(_fork(folder, how, int(number)), flush=True)


if __name__ == "__main__":
    main()
