"""Keeps stores whole when the process forks.

SQLite notes for the whole process which locks it holds on a file. A forked process inherits the notes, but not the locks, and
would believe that it is protected where it is not, or wait for a thread that it does not have. So a fork waits until no
connection is in use, and the child closes the connections that it inherited, which clears the notes.
"""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType
from typing import Protocol


class Inherited(Protocol):
    """What has connections or locks that a forked process must not keep."""

    def abandon(self) -> None:
        """Let go of them."""
        ...


class _Forks:
    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.active = 0
        self.forking = False
        self.holders: weakref.WeakSet[Inherited] = weakref.WeakSet()

    def before(self) -> None:
        with self.condition:
            self.forking = True
            self.condition.wait_for(lambda: self.active == 0)

    def after_in_parent(self) -> None:
        with self.condition:
            self.forking = False
            self.condition.notify_all()

    def after_in_child(self) -> None:
        self.condition = threading.Condition()  # the inherited one may be held by a thread that is not here
        self.active, self.forking = 0, False
        holders, self.holders = list(self.holders), weakref.WeakSet()
        for each in holders:
            each.abandon()


_forks = _Forks()


class in_use:
    """A context in which no fork happens, because a store is at work. Not to be nested.

    It is entered for every read, and a generator would take twice as long.
    """

    def __enter__(self) -> None:
        with _forks.condition:
            if _forks.forking:
                _forks.condition.wait_for(lambda: not _forks.forking)
            _forks.active += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        with _forks.condition:
            _forks.active -= 1
            if _forks.forking:
                _forks.condition.notify_all()


def register(holder: Inherited) -> None:
    """Have a forked process abandon what this one holds."""
    _forks.holders.add(holder)


class OwnLock:
    """A lock that a forked process finds free, since the thread that held it is not there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        register(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._lock.release()

    def abandon(self) -> None:
        """Let go of what the parent's threads hold."""
        self._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_forks.before, after_in_parent=_forks.after_in_parent, after_in_child=_forks.after_in_child
    )
