"""Files that survive crashes: opened without following links, locked, appended to durably, replaced atomically, erased."""

from __future__ import annotations

import errno
import io
import os
import re
import sys
import threading
import time
import zlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from graphagent.errors import ReadOnlyStoreError, StoreError

if sys.platform != "win32":
    import fcntl

LOCK_FILE = ".lock"
_LOCK_SECONDS = 30.0
_TEMPORARY = ".tmp"
_TORN = ".torn-"
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC if sys.platform != "win32" else 0
_HINTS = {
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room on the disk",
    errno.EFBIG: "allow larger files",
    errno.EACCES: "give this user the right to read and write there",
    errno.EPERM: "give this user the right to read and write there",
    errno.ENOTDIR: "a file or link stands where a folder should be; move it away",
    errno.EISDIR: "a folder stands where a file should be; move it away",
    errno.ELOOP: "a link stands where a file or folder should be; move it away",
}


def file_name(name: str) -> str:
    """Return a file name for any text: a readable part and 16 digits of its SHA-256. It never leads out of a folder."""
    import hashlib

    readable = re.sub(r"[^a-z0-9_-]+", "-", name.lower())[:48].strip("-")
    return f"{readable}~{hashlib.sha256(name.encode()).hexdigest()[:16]}"


@contextmanager
def typed_errors(doing: str, path: str) -> Generator[None]:
    """Raise errors of the operating system as StoreErrors that say what to do."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        if doing == "write" and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) and _may_read(path):
            raise ReadOnlyStoreError(path) from error
        hint = _HINTS.get(error.errno or 0, "look at the disk and the folder")
        raise StoreError(f"cannot {doing} {path!r}: {error.strerror or error}; {hint}") from error


def _may_read(path: str) -> bool:
    nearest = next(each for each in (Path(path), *Path(path).parents) if os.path.lexists(each))
    return os.access(nearest, os.R_OK, effective_ids=os.access in os.supports_effective_ids)


class _Locks:
    """The lock files that this process has open.

    A lock belongs to the open file description, which a forked process shares: it is held until one of the processes unlocks it
    or all have closed the file. So a process unlocks explicitly, and a forked one closes an inherited file without unlocking it.
    """

    def __init__(self) -> None:
        self._opened: set[io.FileIO] = set()
        self._changing = threading.Lock()

    def open(self, path: str, flags: int) -> io.FileIO:
        """Open a lock file."""
        with self._changing:
            file = io.FileIO(os.open(path, flags | _SAFE, 0o600), "r")
            self._opened.add(file)
        return file

    def close(self, file: io.FileIO) -> None:
        """Unlock and close a lock file, unless this process is a fork that inherited it."""
        with self._changing:
            if not file.closed:
                self._opened.discard(file)
                try:
                    fcntl.flock(file, fcntl.LOCK_UN)
                finally:
                    file.close()

    def before_fork(self) -> None:
        self._changing.acquire()

    def after_in_parent(self) -> None:
        self._changing.release()

    def after_in_child(self) -> None:
        opened, self._opened = self._opened, set()
        for file in opened:
            file.close()
        self._changing.release()


_locks = _Locks()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_locks.before_fork, after_in_parent=_locks.after_in_parent, after_in_child=_locks.after_in_child
    )


@contextmanager
def locked(root: str, *, shared: bool = False, make: bool = False) -> Generator[None]:
    """Hold the lock of a whole folder, against other threads and processes. The lock file is never renamed or deleted.

    A process that is forked meanwhile neither holds nor releases the lock.

    Args:
        root: The folder.
        shared: Whether others may hold the lock too, if they also share it.
        make: Whether a missing folder is created.

    Raises:
        OSError: the lock file cannot be opened (FileNotFoundError: the folder does not exist).
        StoreError: another process has held it for 30 seconds.
    """
    try:
        lock = _open_lock(root, shared=shared)
    except FileNotFoundError:
        if not make:
            raise
        _make_root(root)
        lock = _open_lock(root, shared=shared)
    if lock is None:
        yield
        return
    try:
        deadline, pause = time.monotonic() + _LOCK_SECONDS, 0.0002
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        while True:
            try:
                fcntl.flock(lock, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise StoreError(
                        f"{root!r} has been locked by another process for {_LOCK_SECONDS:.0f} seconds; stop that process"
                    ) from None
            time.sleep(pause)
            pause = min(pause * 2, 0.005)
        yield
    finally:
        _locks.close(lock)


def _open_lock(root: str, *, shared: bool) -> io.FileIO | None:
    path = f"{root}/{LOCK_FILE}"
    if not shared:
        return _locks.open(path, os.O_RDWR | os.O_CREAT)
    try:
        return _locks.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None  # not written yet


def _make_root(root: str) -> None:
    """Create a folder, and those above it; only its owner may enter it."""
    missing = [folder for folder in (Path(root), *Path(root).parents) if not folder.is_dir()]
    for folder in reversed(missing):
        sync_name(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        sync_folder(folder.parent)


def sync_names(root: str, parts: Sequence[str]) -> None:
    """Make the names of the files in root/parts durable, and those of the folders that lead there.

    The process that made them may have died, or met an error, before they were durable.
    """
    folder = Path(root)
    sync_name(folder.parent)
    sync_folder(folder.parent)
    for part in parts:
        sync_folder(folder)
        folder /= part
    sync_folder(folder)


def sync_name(folder: Path) -> None:
    """Make the name of a folder durable: the process that made it may have died, or met an error, before that."""
    with suppress(PermissionError):  # a folder of others that may not be read was not made here
        sync_folder(folder.parent)


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    if sys.platform == "win32":
        return  # folders cannot be opened there, and need no syncing
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def opened_folder(root: str, parts: Sequence[str], *, make: bool = False) -> Generator[int]:
    """Open root/parts, no part of which may be a link, for use as `dir_fd`."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            try:
                inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | _SAFE, dir_fd=folder)
            except FileNotFoundError:
                if not make:
                    raise
                os.mkdir(part, 0o700, dir_fd=folder)
                os.fsync(folder)
                inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | _SAFE, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


@contextmanager
def opened(name: str, folder: int | None = None, *, write: bool = False) -> Generator[int | None]:
    """Open a file that is not a link; yield None if it does not exist. Without a folder, `name` is a whole path."""
    try:
        file = os.open(name, (os.O_RDWR if write else os.O_RDONLY) | _SAFE, dir_fd=folder)
    except FileNotFoundError:
        yield None
        return
    try:
        yield file
    finally:
        os.close(file)


def read_from(file: int, start: int) -> bytes:
    """Return the bytes of a file from a position on."""
    pieces: list[bytes] = []
    while piece := os.pread(file, 1 << 20, start):
        pieces.append(piece)
        start += len(piece)
    return b"".join(pieces)


def append(file: int, data: bytes, end: int, size: int, path: str) -> os.stat_result:
    """Write bytes at the position `end` of an open file, durably, or leave the file as it was.

    `size` is the length of the file. Bytes after `end` are cut off first.
    """
    try:
        if size > end:
            os.ftruncate(file, end)
        _write(file, data, end)
        os.fdatasync(file)
        return os.fstat(file)
    except OSError:
        # After a failed sync a descriptor may claim success for bytes that never reached the disk, so a new one cuts them off.
        with suppress(OSError), opened(path, write=True) as again:
            if again is not None and os.path.sameopenfile(again, file):
                os.ftruncate(again, end)
                os.fsync(again)
        raise


def replace(name: str, folder: int, data: bytes) -> os.stat_result:
    """Write a whole file, durably and atomically, and overwrite the bytes of the old one."""
    temporary = name + _TEMPORARY
    remove_leftover(name, folder)
    file = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | _SAFE, 0o600, dir_fd=folder)
    try:
        _write(file, data, 0)
        os.fsync(file)
        with _erasing(name, folder):
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        return os.fstat(file)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    finally:
        os.close(file)


def remove_leftover(name: str, folder: int) -> None:
    """Remove the files of a process that was killed while it replaced a file: they have facts, and are not used."""
    with suppress(FileNotFoundError):
        erase(name + _TEMPORARY, folder)


def erase(name: str, folder: int) -> None:
    """Remove a file, durably, and overwrite the bytes that it had."""
    with _erasing(name, folder):
        os.unlink(name, dir_fd=folder)
        os.fsync(folder)


def torn_name(name: str, data: bytes) -> str:
    """Return the name of the file, in the same folder, for torn bytes of a file: the same name for the same bytes."""
    return f"{name}{_TORN}{zlib.crc32(data):08x}"


def is_torn(name: str) -> bool:
    """Return whether a file holds the torn bytes of another one."""
    return _TORN in name and not name.endswith(_TEMPORARY)


def leftover_of(name: str) -> str | None:
    """Return the name of the file from which this one is left over, by a crash during a `replace` or as its torn bytes."""
    of = name.removesuffix(_TEMPORARY).partition(_TORN)[0]
    return of if of != name else None


@contextmanager
def _erasing(name: str, folder: int) -> Generator[None]:
    # The bytes are overwritten once no name leads to them: earlier, a crash would leave a file of zeros; and where another
    # name leads to them still (a backup made of hard links), they are not ours to destroy.
    with opened(name, folder, write=True) as file:
        yield
        if file is not None and (left := os.fstat(file)).st_nlink == 0:
            for start in range(0, left.st_size, 1 << 20):
                _write(file, bytes(min(1 << 20, left.st_size - start)), start)
            os.fsync(file)


def _write(file: int, data: bytes, start: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(file, rest, start)
        rest, start = rest[written:], start + written
