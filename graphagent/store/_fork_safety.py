"""Keeping stores sound when the process forks.

SQLite remembers, for the whole process, which locks it holds on a file. A forked process inherits this memory, but not the locks:
it would rely on locks that it does not have, or wait for threads that exist only in its parent. So a fork waits until no
connection is in use, and the child closes the connections that it inherited, which clears that memory.
"""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType
from typing import Protocol


class Inherited(Protocol):
    """An object with connections or locks that a forked process must not use."""

    def abandon(self) -> None:
        """Close or replace them."""
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
        self.condition = (
            threading.Condition()
        )  # the inherited one may be held by a thread that exists only in the parent
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
    """Have a forked process call `abandon` of this object."""
    _forks.holders.add(holder)


class OwnLock:
    """A lock that is free in a forked process, which does not have the thread that holds it."""

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
        """Replace the lock that a thread of the parent may hold."""
        self._lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_forks.before, after_in_parent=_forks.after_in_parent, after_in_child=_forks.after_in_child
    )
