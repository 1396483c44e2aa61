"""A host: a process that starts workers, and signals them by its own numbers of processes; in namespaces, where these can be made.

Two hosts have two names, and processes of the same numbers. Workers are forked from their host, which has imported what they need.
A host ends, with all of its workers, when the process that started it does, however that ends.
"""

from __future__ import annotations

import contextlib
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
ENDING = 10
"""Seconds after which a host is killed that does not end by itself."""
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
        self.name, self._folder = name, folder
        command = [sys.executable, "-m", "tests.many.hosts", str(folder), name]
        if can_be_apart():
            command = [*_APART, "sh", "-c", 'hostname "$0" && exec "$@"', name, *command]
        self.process = subprocess.Popen(
            command, cwd=HOME, env=os.environ | environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip

    def start(self, clock, dsn):
        """Start a worker of a database, whose clock differs by so many seconds; return its number."""
        return self._do("start", clock, dsn)

    def signal(self, worker, number):
        """Send a signal to a worker; return whether it was alive."""
        return self._do("signal", worker, number)

    def fallen(self):
        """Return the numbers of the workers that have ended by themselves."""
        return self._do("fallen")

    def alive(self):
        """Return the states of the workers that live, as the system calls these (T: stopped), by their numbers."""
        return self._do("alive")

    def said(self, worker):
        """Return what a worker has printed."""
        path = _said(self._folder, self.name, worker)
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def end(self):
        """End the host and its workers."""
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):  # the host has ended already
                pipe.close()
        try:
            self.process.wait(ENDING)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _do(self, *what):
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def main(folder, name):
    """Do what is asked on the standard input, until that ends."""
    workers, alive, fallen = set(), set(), []
    try:
        for line in sys.stdin:
            what, *arguments = json.loads(line)
            while ended := _ended():
                alive.discard(ended)
                if ended in workers:
                    workers.discard(ended)
                    fallen.append(ended)
            if what == "start":
                answer = _forked(folder, name, *arguments)
                workers.add(answer)
                alive.add(answer)
            elif what == "signal":
                worker, number = arguments
                answer = worker in workers
                if answer:
                    os.kill(worker, number)
                if number in (signal.SIGKILL, signal.SIGTERM):
                    workers.discard(worker)
            elif what == "alive":
                answer = {each: _state(each) for each in alive}
            else:
                answer = fallen
            print(json.dumps(answer), flush=True)
    finally:
        for worker in alive:  # also those that were told to end, and have not
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)


def _ended():
    try:
        return os.waitpid(-1, os.WNOHANG)[0]
    except ChildProcessError:
        return 0


def _state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return "?"


def _said(folder, name, pid):
    return Path(folder, f"said-{name}-{pid}")


def _forked(folder, name, clock, dsn):
    pid = os.fork()
    if pid:
        return pid
    try:
        null = os.open(os.devnull, os.O_RDWR)
        said = os.open(_said(folder, name, os.getpid()), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for stream, file in enumerate((null, null, said)):
            os.dup2(file, stream)
        sys.stdin = open(0)  # noqa: SIM115  the command sets how it is decoded, which is too late once something was read
        faulthandler.register(signal.SIGUSR1)  # a worker that hangs says where
        os.environ["DSN"] = dsn
        real, by = time.time_ns, round(clock * 1e9)
        time.time_ns = lambda: real() + by
        sys.argv = ["graphagent", "worker", f"{program.__name__}:work"]
        graphagent()
    except SystemExit as end:
        print("The process ends with", end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
