"""A host: a process that starts workers, and signals them by its own numbers of processes; in namespaces, where these can be made.

Two hosts have two names, and processes of the same numbers. Workers are forked from their host, which has imported what they need.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from functools import cache
from pathlib import Path

from graphagent.cli import main as graphagent
from tests.many import program

HOME = Path(__file__).parents[2]
_APART = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]


@cache
def can_be_apart():
    """Return whether this process may make namespaces."""
    try:
        return not subprocess.run([*_APART, "true"], capture_output=True, check=False).returncode
    except OSError:
        return False


class Host:
    """A host, as the campaign has it."""

    def __init__(self, name, folder, environment):
        command = [sys.executable, "-m", "tests.many.hosts", str(folder)]
        if can_be_apart():
            command = [*_APART, "sh", "-c", 'hostname "$0" && exec "$@"', name, *command]
        self._process = subprocess.Popen(
            command, cwd=HOME, env=os.environ | environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, clock, dsn):
        """Start a worker of a database, whose clock differs by so many seconds; return its number."""
        return self._do("start", clock, dsn)

    def signal(self, worker, number):
        """Send a signal to a worker; return whether it was alive."""
        return self._do("signal", worker, number)

    def fallen(self):
        """Return how many workers have ended by themselves."""
        return self._do("fallen")

    def end(self):
        """End the host and its workers."""
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def _do(self, *what):
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def main(folder):
    """Do what is asked on the standard input, until that ends."""
    workers, fallen = set(), 0
    for line in sys.stdin:
        what, *arguments = json.loads(line)
        while ended := _ended():
            fallen += ended in workers
            workers.discard(ended)
        if what == "start":
            answer = _forked(folder, *arguments)
            workers.add(answer)
        elif what == "signal":
            worker, number = arguments
            answer = worker in workers
            if answer:
                os.kill(worker, number)
            if number in (signal.SIGKILL, signal.SIGTERM):
                workers.discard(worker)
        else:
            answer = fallen
        print(json.dumps(answer), flush=True)
    for worker in workers:
        os.kill(worker, signal.SIGKILL)


def _ended():
    try:
        return os.waitpid(-1, os.WNOHANG)[0]
    except ChildProcessError:
        return 0


def _forked(folder, clock, dsn):
    pid = os.fork()
    if pid:
        return pid
    try:
        null = os.open(os.devnull, os.O_RDWR)
        said = os.open(f"{folder}/said", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for stream, file in enumerate((null, null, said)):
            os.dup2(file, stream)
        sys.stdin = open(0)  # noqa: SIM115  the command sets how it is decoded, which is too late once something was read
        faulthandler.register(signal.SIGUSR1)  # a worker that hangs says where
        os.environ["DSN"] = dsn
        real, by = time.time_ns, round(clock * 1e9)
        time.time_ns = lambda: real() + by
        sys.argv = ["graphagent", "worker", f"{program.__name__}:work"]
        graphagent()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
