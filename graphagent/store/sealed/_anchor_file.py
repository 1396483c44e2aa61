"""An anchor in a file: two slots, of which one is on the disk, whole, at any moment.

Writing replaces the newest slot in place and waits for nothing: if the process is killed, the system has the written bytes, and after
a loss of power the other slot is read, which is older. At most a second later, the newest slot is synced, and the other one is
written from then on. So a commit does not wait for the disk a second time.
"""

from __future__ import annotations

import errno
import hashlib
import os
import struct
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from graphagent.errors import AnchorError
from graphagent.store._durable_files import sync_folder

if sys.platform != "win32":
    import fcntl

MAGIC = b"ganchor\0"
"""The first bytes of an anchor."""
_SLOT = 4096
_HEAD = struct.Struct(">QI32s")
"""The number of the writing, the length of the contents, and the SHA-256 of the rest of the slot."""
_SYNC_SECONDS = 1.0


class AnchorFile:
    """An anchor in a file, which several processes may write."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._synced: int = 0
        """The number of the writing that is known to be on the disk."""
        self._synced_at = -_SYNC_SECONDS

    def __repr__(self) -> str:
        return repr(os.fspath(self._path))

    def read(self) -> bytes | None:
        """Return the contents that were written last, or None without a file.

        Raises:
            AnchorError: it cannot be read, or both slots are damaged.
        """
        try:
            number = os.open(self._path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed("read", error) from error
        try:
            with _locked(number, alone=False):
                slots = self._slots(number)
        except OSError as error:
            raise self._failed("read", error) from error
        finally:
            os.close(number)
        return max(slots.values())[1]

    def update(self, change: Callable[[bytes | None], bytes | None], *, make: bool = False, waits: bool = True) -> bool:
        """Replace the last contents by the result of a function, unless that is None. No other process writes meanwhile.

        With `make`, it is durable afterwards. Without `waits`, return False if another process writes now, or the file has to be synced: then nothing was written.

        Raises:
            AnchorError: it cannot be written; or it does not exist, and is not to be made.
        """
        try:
            number = os.open(self._path, os.O_RDWR | getattr(os, "O_BINARY", 0))
        except FileNotFoundError as error:
            if not make:
                raise self._failed("written", error) from error
            self._make(change(None))
            return True
        except OSError as error:
            raise self._failed("written", error) from error
        try:
            if not waits and self._is_sync_due():
                return False
            with _locked(number, alone=True, waits=waits):
                self._replace(number, change, make=make)
            if make:  # also a folder whose sync failed for an earlier process
                os.fsync(number)
                sync_folder(self._path.parent)
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._failed("written", error) from error
        finally:
            os.close(number)
        return True

    def _is_sync_due(self) -> bool:
        return time.monotonic() - self._synced_at >= _SYNC_SECONDS

    def _replace(self, number: int, change: Callable[[bytes | None], bytes | None], *, make: bool) -> None:
        try:
            slots = self._slots(number)
        except AnchorError:
            if not make or _is_something_else(number):
                raise
            slots = dict[int, tuple[int, bytes]]()
        at, last = 1, 0
        content: bytes | None = None
        if slots:
            at = max(slots, key=lambda each: slots[each][0])
            last, content = slots[at]
        wanted = change(content)
        if wanted is None or wanted == content:
            return
        if last != self._synced and self._is_sync_due():
            os.fsync(number)
            self._synced, self._synced_at = last, time.monotonic()
        if last == self._synced:
            at = 1 - at
        _write(number, at, _packed(last + 1, wanted))

    def _make(self, content: bytes | None) -> None:
        if content is None:
            return
        fresh = self._path.with_name(f".{self._path.name}.{os.urandom(8).hex()}")
        try:
            number = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
            try:
                _write(number, 0, _packed(1, content).ljust(2 * _SLOT, b"\0"))
                os.fsync(number)
            finally:
                os.close(number)
            fresh.replace(self._path)
            sync_folder(self._path.parent)
        except OSError as error:
            fresh.unlink(missing_ok=True)
            raise self._failed("made", error) from error

    def _slots(self, number: int) -> dict[int, tuple[int, bytes]]:
        os.lseek(number, 0, os.SEEK_SET)
        data = os.read(number, 2 * _SLOT)
        slots: dict[int, tuple[int, bytes]] = {}
        for at in (0, 1):
            slot = data[at * _SLOT : (at + 1) * _SLOT]
            if len(slot) < _HEAD.size:
                continue
            written, size, digest = _HEAD.unpack_from(slot)
            content = slot[_HEAD.size : _HEAD.size + size]
            if written and len(content) == size and _digest(written, content) == digest:
                slots[at] = written, content
        if not slots:
            raise AnchorError(
                repr(self),
                "it is damaged, or is not an anchor; restore it, or remove it and begin a new one: graphagent anchor reset",
            )
        return slots

    def _failed(self, what: str, error: OSError) -> AnchorError:
        if isinstance(error, AnchorError):
            return error
        reason, folder = error.strerror, Path(self._path).parent
        if error.errno == errno.ENOENT:
            reason = "the file does not exist"
            if not folder.is_dir():
                reason = f"there is no folder {str(folder)!r}; create it, or attach the disk that has it"
        return AnchorError(repr(self), f"it cannot be {what}: {reason}")


def _is_something_else(number: int) -> bool:
    """Return whether a file has something, and nothing that was ever in an anchor."""
    os.lseek(number, 0, os.SEEK_SET)
    data = os.read(number, 2 * _SLOT)
    return data != b"" and MAGIC not in data


def _packed(written: int, content: bytes) -> bytes:
    return _HEAD.pack(written, len(content), _digest(written, content)) + content


def _digest(written: int, content: bytes) -> bytes:
    return hashlib.sha256(written.to_bytes(8, "big") + content).digest()


def _write(number: int, slot: int, data: bytes) -> None:
    os.lseek(number, slot * _SLOT, os.SEEK_SET)
    if os.write(number, data) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def _locked(number: int, *, alone: bool, waits: bool = True) -> Generator[None]:
    if sys.platform == "win32":  # one of two processes that write at the same moment may undo the writing of the other
        yield
        return
    fcntl.flock(number, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | (0 if waits else fcntl.LOCK_NB))
    try:
        yield
    finally:
        fcntl.flock(number, fcntl.LOCK_UN)
