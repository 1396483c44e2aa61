"""Python processes that tests start, forked from one that has imported what they need: a fifth of the work of a new Python.

`run` and `Popen` are those of `subprocess` and `terminal` is `pexpect.spawn`, for commands that begin with `sys.executable`. The
process is a real one, with its own id, arguments, environment, folder and streams, and dies of a real signal. A new Python is
started where only that will do: for options such as `-X`, and in an environment with another locale or other variables of Python.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import io
import marshal
import os
import pty
import runpy
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import types
import warnings
from fcntl import ioctl
from functools import partial
from pathlib import Path
from typing import NamedTuple

import anyio.to_thread
import pexpect
import ptyprocess

HOME = Path(__file__).parents[1]
IMPORTED = (
    "anyio._backends._asyncio", "anyio._backends._trio", "cryptography.hazmat.primitives.ciphers.aead", "graphagent",
    "graphagent.cli._app", "graphagent.events", "graphagent.history", "graphagent.llm.openai", "graphagent.memory.notes",
    "graphagent.nodes", "graphagent.store", "graphagent.testing", "graphagent_strategies", "hypothesis", "mcp.client", "mcp.server", "networkx",
    "openai", "pytest", "rich.live", "rich.markdown", "rich.traceback", "typer.rich_utils", "uvicorn",
)  # fmt: skip
ADDRESS = "GRAPHAGENT_TESTS_FORKSERVER"
READ_AT_START = ("PYTHON", "LANG", "LC_", "LD_")
"""What the names of variables begin with that are read when Python starts."""


def run(command, *, input=None, capture_output=False, check=False, timeout=None, **options):
    """Do what `subprocess.run` does."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with Popen(command, **options) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    ended = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        ended.check_returncode()
    return ended


async def ended(command, *, check=True):
    """Do what `anyio.run_process` does."""
    return await anyio.to_thread.run_sync(partial(run, command, check=check, capture_output=True))


def Popen(command, **options):
    """Do what `subprocess.Popen` does."""
    words = [os.fsdecode(each) for each in command]
    return (_Popen if _can_fork(words, options.get("env")) else subprocess.Popen)(words, **options)


def words(*given):
    """Return a command that others can start, which is forked too: `words("server.py", "stdio")` for `python server.py stdio`."""
    return [sys.executable, "-I", "-S", str(HOME / "tests" / "forked.py"), _address(), *map(str, given)]


def terminal(command, words=(), *, cwd=None, env=None, dimensions=(24, 80), **options):
    """Do what `pexpect.spawn` does."""
    command, *words = map(str, [command, *words] if words else shlex.split(command))
    if not _can_fork([command, *words], env):
        return pexpect.spawn(command, words, cwd=cwd, env=env, dimensions=dimensions, **options)
    spawned = pexpect.spawn(None, dimensions=dimensions, **options)
    spawned.child_fd, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, dimensions)
    spawned.ptyproc = _Terminal(_Child(words, env, cwd, [theirs] * 3, terminal=True), spawned.child_fd)
    os.close(theirs)
    spawned.pid, spawned.closed, spawned.terminated = spawned.ptyproc.pid, False, False
    return spawned


class _Popen(subprocess.Popen):
    """A process whose status the server knows."""

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *others):
        pipes = others[3:9]
        streams = [number if given < 0 else given for number, given in enumerate((pipes[0], pipes[3], pipes[5]))]
        self._child = _Child(args[1:], env, cwd, streams)
        self.pid, self._child_created = self._child.pid, True
        self._close_pipe_fds(*pipes)

    def _internal_poll(self, _deadstate=None):
        if self.returncode is None:
            self.returncode = self._child.status(0)
        return self.returncode

    def _wait(self, timeout):
        if self.returncode is None:
            self.returncode = self._child.status(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode


class _Terminal(ptyprocess.PtyProcess):
    """A process at a terminal, whose status the server knows."""

    def __init__(self, child, fd):
        super().__init__(child.pid, fd)
        self._child = child

    def isalive(self):
        code = self._child.status(None if self.flag_eof else 0)
        self.terminated = code is not None
        if self.terminated:
            self.exitstatus, self.signalstatus = (code, None) if code >= 0 else (None, -code)
        return not self.terminated

    def wait(self):
        self._child.status(None)
        self.isalive()
        return self.exitstatus


def _can_fork(words, env):
    environment = os.environ if env is None else env
    differs = {name for name in {*environment, *os.environ} if environment.get(name) != os.environ.get(name)}
    option = words[3] if words[1] == "-W" else words[1]
    return (
        words[0] == sys.executable
        and (option in {"-c", "-m"} or not option.startswith("-"))
        and not any(name.startswith(READ_AT_START) for name in differs)
    )


class _Child:
    """A forked process."""

    def __init__(self, words, env, cwd, streams, *, terminal=False):
        """Have it begin, with these words after the name of Python."""
        self._code = None
        self._said = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._said.connect(_address())
        environment, folder = dict(os.environ if env is None else env), os.fspath(cwd or Path.cwd())
        asked = Command(words, environment, folder, terminal, for_another=False)
        socket.send_fds(self._said, [marshal.dumps(tuple(asked))], streams)
        self.pid = int(self._said.recv(20))

    def status(self, seconds):
        """Return the code with which it ended, negative for a signal; None if it has not ended within so many seconds."""
        if self._code is None:
            self._said.settimeout(seconds)
            with contextlib.suppress(TimeoutError, BlockingIOError):
                self._code = os.waitstatus_to_exitcode(int(self._said.recv(20)))
                self._said.close()
        return self._code

    def __del__(self):
        self._said.close()


@functools.cache
def _address():
    """Return the path of the socket of the process that forks, which ends with this one, or is that of who started this one."""
    if ADDRESS in os.environ:
        return os.environ[ADDRESS]
    folder = tempfile.TemporaryDirectory(prefix="graphagent-fork-")
    path = str(Path(folder.name) / "socket")
    command = [sys.executable, "-m", "tests.forkserver", path]
    process = subprocess.Popen(command, cwd=HOME, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdout.readline()  # it listens
    os.environ[ADDRESS] = path
    atexit.register(folder.cleanup)
    atexit.register(process.communicate)
    return path


def _serve(listening):
    """Fork a process for each command, and tell how each ended; return, in a process that was forked, its command and streams."""
    running = {}
    woken, wakes = socket.socketpair()
    woken.setblocking(False)
    wakes.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes.fileno())
    ready = selectors.DefaultSelector()
    for each in (sys.stdin, listening, woken):
        ready.register(each, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            if key.fileobj is sys.stdin:  # closed by the process that started this one
                sys.exit()
            if key.fileobj is listening:
                asking, _ = listening.accept()
                message, streams, _, _ = socket.recv_fds(asking, 1 << 20, 3)
                command = Command(*marshal.loads(message))
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for each in (ready, listening, asking, woken, wakes, *running.values()):
                        each.close()
                    return command, streams
                for fd in streams:
                    os.close(fd)
                running[pid] = asking
                asking.send(b"%d" % pid)
                if command.for_another:
                    ready.register(asking, selectors.EVENT_READ, pid)
            elif key.fileobj is woken:
                woken.recv(1000)
            else:
                os.kill(key.data, signal.SIGKILL)
                ready.unregister(key.fileobj)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                with contextlib.suppress(OSError, KeyError), running.pop(ended[0]) as asking:
                    asking.send(b"%d" % ended[1])
                    ready.unregister(asking)


class Command(NamedTuple):
    """What a process is to be."""

    words: list[str]
    environment: dict[str, str]
    folder: str
    terminal: bool
    for_another: bool
    """Whether the process stands for the one that asked, and is killed when that has ended."""


def _become(command, streams):
    """Make this process what a new Python would be."""
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    if command.terminal:
        os.setsid()
        ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(command.environment)
    os.chdir(command.folder)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        old = getattr(sys, name)
        raw = open(old.fileno(), f"{mode}b", closefd=False, buffering=-1)  # noqa: SIM115
        new = io.TextIOWrapper(
            raw, old.encoding, old.errors, line_buffering=name == "stderr" or os.isatty(old.fileno()),
            write_through=old.write_through,
        )  # fmt: skip
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _execute(words):
    """Do what a new Python does with the words after its name."""
    if words[0] == "-W":
        warnings.simplefilter(words[1])
        words = words[2:]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__builtins__ = __builtins__
    if words[0] == "-c":
        sys.argv, sys.path[0] = ["-c", *words[2:]], ""
        exec(compile(words[1], "<string>", "exec"), main.__dict__)
    elif words[0] == "-m":
        sys.argv, sys.path[0] = ["-m", *words[2:]], str(Path.cwd())
        runpy._run_module_as_main(words[1])
    else:
        path = Path(words[0])
        sys.argv, sys.path[0], main.__file__ = words, str(path.resolve().parent), words[0]
        exec(compile(path.read_bytes(), words[0], "exec"), main.__dict__)


def _end(words):
    """Execute a command and end as Python does, but for taking all modules apart, which is most of the work of a short process."""
    code = 0
    try:
        _execute(words)
    except SystemExit as ended:
        code = ended.code or 0
        if not isinstance(code, int):
            code = print(code, file=sys.stderr) or 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError:
        code = 120
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(sys.argv[1])
    listening.listen()
    print("listening", flush=True)
    command, streams = _serve(listening)
    _become(command, streams)
    _end(command.words)
