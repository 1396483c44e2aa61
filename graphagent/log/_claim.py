"""Who executes a run: one process at a time."""

from __future__ import annotations

import os
import weakref
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from graphagent import _clock

LEASE = 5 * 60_000
"""Milliseconds for which a claim holds whose process cannot be looked at."""


class Token:
    """Keeps a claim of this process. Others may take the run once it is garbage-collected, or an exception leaves `with token:`."""

    __slots__ = ("__weakref__", "id")

    def __init__(self) -> None:
        self.id = _clock.new_id()
        _LIVE[self.id] = self

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:  # who keeps the error keeps the frames that have the token
            _LIVE.pop(self.id, None)


_LIVE: weakref.WeakValueDictionary[str, Token] = weakref.WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class Claim:
    """Which process has a run, and until when, if nobody can look whether it still lives."""

    token: str
    host: str
    """The name of the machine, and after a space what tells it from others of that name."""
    boot: str
    """Names the time since the machine was started."""
    pid: int
    started: int
    """When the process started, in clock ticks since the boot; 0 where that cannot be known."""
    until: int
    """Milliseconds UTC."""

    @staticmethod
    def of(token: Token) -> Claim:
        """Claim for this process."""
        host, boot = _machine()
        pid = os.getpid()
        return Claim(token.id, host, boot, pid, _started(pid) or 0, _clock.now() + LEASE)

    @property
    def holder(self) -> str:
        """The process, for people."""
        mine = (self.host, self.boot) == _machine() and self.pid == os.getpid()
        return "another task of this process" if mine else f"process {self.pid} on {self.host.partition(' ')[0]!r}"

    def holds(self) -> bool:
        """Tell whether the run is taken: its process lives, or may live."""
        host, boot = _machine()
        if self.host != host or os.name == "nt":  # where a look at a process costs more than to wait
            return _clock.now() < self.until
        if self.boot != boot:  # it was started anew since; or it is another one, where nothing tells them apart
            return self.host.endswith(_UNTOLD) and _clock.now() < self.until
        if self.pid == os.getpid() and _started(self.pid) in (self.started, None):
            return self.token in _LIVE
        if not _alive(self.pid):
            return False
        started = _started(self.pid)
        return started is None or started == self.started


_UNTOLD = " -"
"""The machine id of a machine that has none."""


@cache
def _machine() -> tuple[str, str]:
    """Return the name of the machine or container whose process numbers these are, and of its boot, after which they begin anew."""
    import hashlib
    import socket

    name = socket.gethostname().replace(" ", "-")
    told = _line("/etc/machine-id") or _line("/var/lib/dbus/machine-id")
    try:
        space = str(Path("/proc/self/ns/pid").readlink())  # containers of one machine may share its name
    except OSError:
        space = ""
    # See machine-id(5): it is not shown to others as it is.
    known = hashlib.blake2b(f"{told} {space}".encode(), digest_size=6, person=b"graphagent").hexdigest()
    return f"{name} {known}" if told else f"{name} {space}{_UNTOLD}", _line("/proc/sys/kernel/random/boot_id")


def _line(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _stat(pid)[:1] not in (["Z"], ["X"])


def _started(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def _stat(pid: int) -> list[str]:
    """Return the fields of a process after its name: see proc_pid_stat(5)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
