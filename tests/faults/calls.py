"""Seeing each call by which graphagent and SQLite change files, and having one of them fail.

SQLite is seen through a file system of its own (a VFS around the usual one), which is the one of all connections while a folder is
watched; everything else through the functions of `os`. Nothing of graphagent is replaced.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from dataclasses import dataclass

import apsw

WRITING = ("write", "cut", "make", "folder", "link", "move", "sync", "named")
APPLY = {
    errno.EIO: ("read", "write", "cut", "sync", "named", "gone", "look", "open", "make", "folder", "link", "move"),
    errno.ENOSPC: WRITING,
    errno.EACCES: ("open", "make", "folder", "link", "move", "gone"),
    0: ("write",),
}
"""The kinds of calls that can fail with each number of an error; 0 is for a write of which only half is made."""


@dataclass
class Fault:
    """A call that fails: the `at`-th of those that can."""

    error: int
    at: int
    calls: int = 1
    """How many fail, from that one on."""
    met: bool = False

    def meets(self, kind):
        """Return whether this call fails."""
        if kind not in APPLY[self.error]:
            return False
        self.at -= 1
        hit = -self.calls <= self.at < 0
        self.met = self.met or hit
        return hit


class Watched:
    """A folder, of which each call that changes something is kept; marks of the program stand among them."""

    def __init__(self, root, fault=None):
        self.root = os.path.realpath(root)
        self.fault = fault
        self.calls = []
        self.numbers = itertools.count(1)
        self.names = {}
        """The number of the file under each name."""
        self.opened = {}
        """The file or folder of each descriptor."""

    def name(self, path, folder=None):
        """Return the name of a path in the folder; None if it is elsewhere."""
        path = os.fspath(path)
        if isinstance(path, bytes):
            return None
        if folder is not None:
            above = self.opened.get(folder)
            return None if above is None else f"{above}/{path}".lstrip("/")
        path = os.path.abspath(path)
        if path == self.root:
            return ""
        return path[len(self.root) + 1 :] if path.startswith(self.root + "/") else None

    def do(self, call):
        """Keep a call that was made."""
        from tests.faults.disk import NAMING, rename

        if call[0] in NAMING:
            rename(self.names, call)
        self.calls.append(call)

    def check(self, kind):
        """Raise the error of the system if this call is to fail."""
        if self.fault is not None and self.fault.error and self.fault.meets(kind):
            raise OSError(self.fault.error, os.strerror(self.fault.error))

    def halves(self):
        """Return whether only half of a write is to be made."""
        return self.fault is not None and not self.fault.error and self.fault.meets("write")

    def mark(self, *what):
        """Take note of what the program was told."""
        self.calls.append(("mark", *what))


_watched: Watched | None = None
_real = {
    name: getattr(os, name)
    for name in (
        "open", "close", "write", "pwrite", "read", "pread", "ftruncate", "fsync", "fdatasync", "rename", "replace", "unlink", "remove",
        "rmdir", "mkdir", "link", "stat", "fstat", "listdir",
    )
}  # fmt: skip


@contextlib.contextmanager
def watch(root, fault=None):
    """See the calls of this process to a folder."""
    global _watched
    _watched = watched = Watched(root, fault)
    usual = apsw.vfs_names()[0]
    vfs = _Files(usual)
    for name, function in _SEEN.items():
        setattr(os, name, function)
    connection, apsw.Connection = apsw.Connection, _Connection
    try:
        yield watched
    finally:
        for name in _SEEN:
            setattr(os, name, _real[name])
        apsw.Connection = connection
        apsw.set_default_vfs(usual)
        vfs.unregister()
        _watched = None


# ---- the functions of os


def _open(path, flags, mode=0o777, *, dir_fd=None):
    here = _watched
    name = here.name(path, dir_fd)
    if name is None:
        return _real["open"](path, flags, mode, dir_fd=dir_fd)
    made = bool(flags & os.O_CREAT) and name not in here.names
    here.check("make" if made else "open")
    number = _real["open"](path, flags, mode, dir_fd=dir_fd)
    if name in here.names or made:
        if made:
            here.do(("make", name, next(here.numbers)))
        file = here.names[name]
        here.opened[number] = name if file is None else file
        if flags & os.O_TRUNC and file is not None:
            here.do(("cut", file, 0))
    else:
        here.opened[number] = name
    return number


def _close(number):
    _watched.opened.pop(number, None)
    return _real["close"](number)


def _pwrite(number, data, at):
    here, file = _watched, _watched.opened.get(number)
    if isinstance(file, int):
        here.check("write")
        if len(data) > 1 and here.halves():
            data = data[: len(data) // 2]
        written = _real["pwrite"](number, data, at)
        here.do(("write", file, at, bytes(data[:written])))
        return written
    return _real["pwrite"](number, data, at)


def _write(number, data):
    if isinstance(_watched.opened.get(number), int):
        at = os.lseek(number, 0, os.SEEK_CUR)
        written = _pwrite(number, data, at)
        os.lseek(number, at + written, os.SEEK_SET)
        return written
    return _real["write"](number, data)


def _seen(name, kind, change=lambda file, *args: None):
    """Return a function of descriptors that is seen."""

    def function(number, *args):
        here, file = _watched, _watched.opened.get(number)
        if file is None:
            return _real[name](number, *args)
        here.check(("named" if kind == "sync" else kind) if isinstance(file, str) else kind)
        result = _real[name](number, *args)
        call = change(file, *args)
        if call is not None:
            here.do(call)
        return result

    return function


def _synced(file):
    return ("named", file) if isinstance(file, str) else ("sync", file)


def _named(name, kind, call):
    """Return a function of one name that is seen."""

    def function(path, *args, dir_fd=None, **options):
        here = _watched
        found = None if isinstance(path, int) else here.name(path, dir_fd)
        if dir_fd is not None:
            options["dir_fd"] = dir_fd
        if found is not None:
            here.check(kind)
        result = _real[name](path, *args, **options)
        if found is not None and call:
            here.do((kind, found))
        return result

    return function


def _two_names(name, kind):
    def function(src, dst, *, src_dir_fd=None, dst_dir_fd=None, **options):
        here = _watched
        first, second = here.name(src, src_dir_fd), here.name(dst, dst_dir_fd)
        if first is not None:
            here.check(kind)
        if src_dir_fd is not None:
            options.update(src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        result = _real[name](src, dst, **options)
        if first is not None:
            here.do((kind, first, second))
        return result

    return function


_SEEN = {
    "open": _open, "close": _close, "pwrite": _pwrite, "write": _write,
    "read": _seen("read", "read"), "pread": _seen("pread", "read"), "fstat": _seen("fstat", "look"),
    "ftruncate": _seen("ftruncate", "cut", lambda file, size: ("cut", file, size)),
    "fsync": _seen("fsync", "sync", _synced), "fdatasync": _seen("fdatasync", "sync", _synced),
    "mkdir": _named("mkdir", "folder", True), "unlink": _named("unlink", "gone", True), "remove": _named("remove", "gone", True),
    "rmdir": _named("rmdir", "gone", True), "stat": _named("stat", "look", False),
    "rename": _two_names("rename", "move"), "replace": _two_names("replace", "move"), "link": _two_names("link", "link"),
}  # fmt: skip


# ---- SQLite


_WITH_FOLDER = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL
"""The files with whose first sync each connection syncs their folder too, and looks no further if that fails."""
_CODES = {
    "read": apsw.SQLITE_IOERR_READ,
    "write": apsw.SQLITE_IOERR_WRITE,
    "cut": apsw.SQLITE_IOERR_TRUNCATE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "gone": apsw.SQLITE_IOERR_DELETE,
    "look": apsw.SQLITE_IOERR_FSTAT,
}


class _Connection(apsw.Connection):
    """A connection that can be closed while the disk fails, as SQLite's can: errors of a file system in Python would come out."""

    def close(self, force=False):
        with contextlib.suppress(apsw.IOError, apsw.FullError, apsw.CantOpenError):
            super().close(force)


def _check(here, kind):
    """Raise what SQLite's own file system would return."""
    try:
        here.check(kind)
    except OSError as error:
        if kind in {"open", "make"}:
            raise apsw.CantOpenError(str(error)) from None
        if error.errno == errno.ENOSPC and kind == "write":
            raise apsw.FullError(str(error)) from None
        failed = apsw.IOError(str(error))
        failed.extendedresult = _CODES[kind]
        raise failed from None


class _Files(apsw.VFS):
    def __init__(self, usual):
        self._usual = usual
        super().__init__("watched", usual, makedefault=True)

    def excepthook(self, *_):
        """Errors reach SQLite, and need no other way."""

    def xOpen(self, name, flags):
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        found = _watched.name(path) if _watched is not None and path else None
        if found is None:
            return apsw.VFSFile(self._usual, name, flags)
        made = bool(flags[0] & apsw.SQLITE_OPEN_CREATE) and found not in _watched.names
        _check(_watched, "make" if made else "open")
        return _File(self._usual, name, flags, found, made)

    def xDelete(self, path, sync):
        found = _watched.name(path) if _watched is not None else None
        if found is not None and found in _watched.names:
            _check(_watched, "gone")
            super().xDelete(path, sync)
            _watched.do(("gone", found))
            if sync:
                _sync_folder(found)
        else:
            super().xDelete(path, sync)

    def xAccess(self, path, flags):
        if _watched is not None and _watched.name(path) is not None:
            _check(_watched, "look")
        return super().xAccess(path, flags)


def _sync_folder(name):
    from tests.faults.disk import folder_of

    with contextlib.suppress(OSError):
        _watched.check("named")
        _watched.do(("named", folder_of(name)))


class _File(apsw.VFSFile):
    def __init__(self, usual, name, flags, found, made):
        super().__init__(usual, name, flags)
        self._name = found
        if made:
            _watched.do(("make", found, next(_watched.numbers)))
        self._number = _watched.names.get(found)
        self._with_folder = flags[0] & apsw.SQLITE_OPEN_CREATE and flags[0] & _WITH_FOLDER

    def excepthook(self, *_):
        """Errors reach SQLite, and need no other way."""

    def _seen(self):
        return _watched is not None and self._number is not None

    def xRead(self, amount, offset):
        if self._seen():
            _check(_watched, "read")
        return super().xRead(amount, offset)

    def xWrite(self, data, offset):
        if not self._seen():
            return super().xWrite(data, offset)
        _check(_watched, "write")
        half = _watched.halves()
        data = bytes(data)[: len(data) // 2] if half else bytes(data)
        super().xWrite(data, offset)
        _watched.do(("write", self._number, offset, data))
        if half:
            raise apsw.FullError("short write")
        return None

    def xTruncate(self, size):
        if not self._seen():
            return super().xTruncate(size)
        _check(_watched, "cut")
        super().xTruncate(size)
        _watched.do(("cut", self._number, size))
        return None

    def xSync(self, flags):
        if not self._seen():
            return super().xSync(flags)
        _check(_watched, "sync")
        super().xSync(flags)
        _watched.do(("sync", self._number))
        if self._with_folder:
            self._with_folder = False
            _sync_folder(self._name)
        return None

    def xFileSize(self):
        if self._seen():
            _check(_watched, "look")
        return super().xFileSize()
