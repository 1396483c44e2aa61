"""The file of a SqliteStore: making it, opening it, and what its errors mean."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, cast

from graphagent.errors import DamagedStoreError, StoreError
from graphagent.store._encoding import INT, decode
from graphagent.store._items import Item, Key
from graphagent.store._sealed_detection import KEYS_PLACE, MAGIC

APPLICATION_ID = 0x67616731
FORMAT = 2
FORMAT_BITS = 8
"""How much of `user_version` the format is; above stands the mark of a deletion whose bytes may still be in the file."""
# Short values lie beside their neighbours: a commit writes one page, a scan reads few. Longer ones lie apart, in the
# order in which they came. There they fill their pages, of which by key a sixth would stay empty, and a search for a key
# does not have to read them.
SCHEMA = (
    (
        "CREATE TABLE items (key BLOB PRIMARY KEY, version INTEGER NOT NULL, value BLOB, apart INTEGER,"
        " CHECK ((value IS NULL) <> (apart IS NULL))) WITHOUT ROWID"
    ),
    "CREATE TABLE apart (id INTEGER PRIMARY KEY, value BLOB NOT NULL)",
)
_OWN_SCHEMA = "SELECT sql FROM sqlite_schema WHERE tbl_name NOT GLOB 'notes_*' AND tbl_name <> 'sqlite_sequence'"
"""Without what is derived of items, which may stand beside them."""
SHORT = 256
"""The longest value that lies beside its key, in bytes; a page holds thirteen of them. Any store can be read with another."""
ROWS = "SELECT key, version, ifnull(items.value, apart.value) FROM items LEFT JOIN apart ON id = apart"
"""Every item. The value is NULL where one that should lie apart is missing."""
_FRESH = re.compile(r"\.new-[0-9a-f]{16}(-wal|-shm|-journal)?")
"""The names of a file that is being made, and of those that SQLite puts beside it."""
BUSY_SECONDS = 30
CACHE_KIBIBYTES = 8 * 1024
"""How much of the file each connection may keep in memory."""


class Cursor(Iterable[tuple[object, ...]], Protocol):
    """What is used of a cursor of the driver."""

    def fetchall(self) -> list[tuple[object, ...]]: ...
    def close(self) -> None: ...


class Connection(Protocol):
    """What is used of a connection of the driver."""

    def execute(self, statements: str, bindings: tuple[bytes | int | None, ...] = ()) -> Cursor: ...
    def executemany(self, statements: str, bindings: Iterable[tuple[bytes | int | None, ...]]) -> Cursor: ...
    def changes(self) -> int: ...
    def data_version(self) -> int: ...
    def set_wal_hook(self, function: Callable[[object, str, int], int]) -> None: ...
    def set_busy_timeout(self, milliseconds: int) -> None: ...
    def config(self, option: int, value: int) -> object: ...
    def close(self) -> None: ...


def make(path: Path) -> None:
    """Make an empty store, where there is no file yet, so that it is there whole or not at all.

    Raises:
        StoreError: the folder or the file cannot be made.
        DamagedStoreError: only the log of a file is there.
    """
    import apsw

    if _has_log(path) and not path.exists():
        # SQLite would put the commits of the lost file into the new one.
        raise DamagedStoreError(
            os.fspath(path), f"the file is missing, but the log '{path.name}-wal' that belongs to it is there"
        )
    try:
        _make_folder(path.parent)
        with _locked(path.parent, alone=False):
            fresh = path.parent / f".new-{os.urandom(8).hex()}"
            os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
            try:
                _fill(cast(Connection, apsw.Connection(os.fspath(fresh))))
                _publish(fresh, path)
            finally:
                for left in (fresh, Path(f"{fresh}-wal"), Path(f"{fresh}-shm"), Path(f"{fresh}-journal")):
                    left.unlink(missing_ok=True)
        _sync_folder(path.parent)
    except (OSError, apsw.Error) as error:
        raise explained(error, path) from error


def clear_away(folder: Path) -> None:
    """Remove what processes left in a folder that ended while they made a store there; nothing while another one makes one."""
    try:
        left = [each for each in folder.iterdir() if _FRESH.fullmatch(each.name)]
        if left:
            with _locked(folder, alone=True) as locked:
                for each in left if locked else ():
                    each.unlink(missing_ok=True)
    except OSError:
        pass  # they do no harm; whoever may write here removes them


@contextmanager
def _locked(folder: Path, *, alone: bool) -> Generator[bool]:
    """Hold the lock of a folder that those who make a store there share; with `alone`, say whether nobody else has it.

    It is a lock of the folder, not of the file that is being made: closing that would release the locks that SQLite has on it.
    """
    if os.name == "nt":  # folders cannot be locked there; what is left stays
        yield not alone
        return
    import fcntl

    number = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
            locked = True
        except OSError:  # somebody else has it, or this file system knows no such locks
            locked = False
        yield locked
    finally:
        os.close(number)


def _has_log(path: Path) -> bool:
    log = Path(f"{path}-wal")
    return log.exists() and log.stat().st_size > 0


def _fill(connection: Connection) -> None:
    try:
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={FORMAT}").fetchall()
        connection.execute("; ".join(SCHEMA)).fetchall()
        connection.execute("PRAGMA journal_mode=WAL").fetchall()
    finally:
        connection.close()


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return  # folders cannot be opened there, and need not be
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _publish(fresh: Path, path: Path) -> None:
    # A link never replaces what another process made meanwhile; a rename would.
    try:
        os.link(fresh, path)
    except FileExistsError:
        pass
    except OSError as error:
        if (
            error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
            or path.exists()
        ):
            raise
        fresh.rename(path)  # this file system knows no links


def identity(path: Path) -> tuple[int, int]:
    """Give what tells this file from another one that may take its name.

    Raises:
        StoreError: there is none.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise explained(error, path) from error
    return status.st_dev, status.st_ino


def check_identity(path: Path, known: tuple[int, int]) -> None:
    """Look whether the file is still the one that was opened; what is written to a deleted one is lost.

    Raises:
        StoreError: it is not.
    """
    try:
        status = path.stat()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise explained(error, path) from error
    else:
        if (status.st_dev, status.st_ino) == known:
            return
    raise StoreError(f"{path} was moved, deleted or replaced while it was open; close the store before that is done")


def connect(path: Path, synchronous: str, *, writing: bool) -> Connection:
    """Open a store that exists.

    Raises:
        StoreError: it cannot be opened, or is something else than a store (DamagedStoreError: it is damaged).
    """
    import apsw

    try:
        if path.stat().st_size == 0:
            raise DamagedStoreError(os.fspath(path), "the file is empty")
        connection = cast(Connection, apsw.Connection(os.fspath(path), flags=apsw.SQLITE_OPEN_READWRITE))
    except (OSError, apsw.Error) as error:
        raise explained(error, path) from error
    try:
        connection.set_busy_timeout(int(BUSY_SECONDS * 1000))
        # Else SQLite prepares the join of ROWS anew for each key that it is asked for.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.execute(
            f"PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON; PRAGMA mmap_size=0; PRAGMA secure_delete=ON;"
            f"PRAGMA synchronous={synchronous}; PRAGMA query_only={'OFF' if writing else 'ON'};"
            f"PRAGMA cache_size=-{CACHE_KIBIBYTES}"
        ).fetchall()
        _check(connection, path)
    except Exception as error:  # a damaged header makes the driver raise nearly anything
        connection.close()
        raise explained(error, path) from error
    return connection


def is_sound(path: Path) -> bool:
    """Tell what SQLite's own check says, asked over a connection of its own.

    An older one may remember of a full-text index what another process has changed since, and take that for damage.
    """
    connection = connect(path, "FULL", writing=False)
    try:
        return connection.execute("PRAGMA integrity_check(1)").fetchall() == [("ok",)]
    finally:
        connection.close()


def _check(connection: Connection, path: Path) -> None:
    [(page,)] = connection.execute("PRAGMA page_size").fetchall()
    if path.stat().st_size % cast(int, page) and not _has_log(path):
        # SQLite would read zeros for what is missing of the last page.
        raise DamagedStoreError(os.fspath(path), "it is cut off")
    schema = tuple(sql for (sql,) in connection.execute(_OWN_SCHEMA).fetchall())
    [(application, user)] = connection.execute("SELECT * FROM pragma_application_id, pragma_user_version").fetchall()
    version = cast(int, user) % 2**FORMAT_BITS
    mode = connection.execute("PRAGMA journal_mode").fetchall()
    if schema == SCHEMA and (application, version) == (APPLICATION_ID, FORMAT) and mode == [("wal",)]:
        return
    if schema != SCHEMA and application != APPLICATION_ID:
        raise StoreError(f"{path} is a database, but not a store of graphagent; give the store a file of its own")
    if schema != SCHEMA and version != FORMAT:
        raise StoreError(f"{path} was made by another graphagent, in format {version}; this one reads format {FORMAT}")
    raise DamagedStoreError(os.fspath(path), "its head is not that of a store")


def is_sealed(connection: Connection) -> bool:
    """Say whether the rows are those of a sealed store."""
    found = connection.execute(f"{ROWS} WHERE key=?", (KEYS_PLACE,)).fetchall()
    return any(type(value) is bytes and value.startswith(MAGIC) for _, _, value in found)


def items(
    rows: Iterable[tuple[object, ...]], path: Path, prefix: Key = (), low: bytes = b"", *, most_bytes: int = sys.maxsize
) -> list[Item]:
    """Return the items of ROWS up to the one with which their values have `most_bytes` or more.

    All keys begin with `prefix`, which is encoded as `low`: only the rest of each is decoded.

    Raises:
        DamagedStoreError: no store writes such a row.
    """
    found: list[Item] = []
    size, at, end = 0, len(low), len(low) + INT.size
    # This is executed for every row of a scan, and Item(…) itself takes twice as long.
    make: Callable[..., Item] = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    unpack = INT.unpack_from
    try:
        for place, version, value in rows:
            if not (type(place) is bytes and place.startswith(low) and type(value) is bytes):
                break
            if not (type(version) is int and version > 0):
                break
            # Most scans are over one int, such as a version: then this does what `decode` does in a third of the time.
            if len(place) == end and place[at] == 1 and place[at + 1] < 128:
                key = prefix + unpack(place, at)
            else:
                key = prefix + decode(place, at)
            found.append(make(Item, (key, value, version)))
            size += len(value)
            if size >= most_bytes:
                return found
        else:
            return found
    except ValueError:
        pass  # a key that cannot be decoded
    raise DamagedStoreError(os.fspath(path), "a row is not one that a store writes")


def explained(error: BaseException, path: Path) -> StoreError:
    """Give the StoreError that says what an error of the driver or the system means for this file, and what to do."""
    import apsw

    if isinstance(error, StoreError):
        return error
    where = os.fspath(path)
    detail = getattr(error, "extendedresult", 0)
    if isinstance(error, apsw.IOError) and detail in (apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS):
        return DamagedStoreError(where, "it is cut off")
    if path.is_dir():
        return StoreError(f"{where} is a folder; give the store the path of a file")
    if blocked := next((each for each in path.parents if each.exists() and not each.is_dir()), None):
        return StoreError(
            f"{where} cannot be made: {os.fspath(blocked)} is a file, not a folder; move it or choose another path"
        )
    if isinstance(error, OSError):
        return StoreError(
            f"{where} cannot be opened: {error.strerror}; check the path, its permissions and the space left"
        )
    reasons: list[tuple[type[BaseException] | tuple[type[BaseException], ...], str]] = [
        (
            (apsw.BusyError, apsw.LockedError),
            f"another process has held it for {BUSY_SECONDS} seconds; end that process",
        ),
        (apsw.FullError, "the disk is full; make room, then try again"),
        ((apsw.ReadOnlyError, apsw.PermissionsError), "it is read-only; allow writing to the file and its folder"),
        (apsw.CantOpenError, "it cannot be opened; check that the file and its folder may be read and written"),
        (apsw.IOError, "reading or writing failed; check the disk, its quota and the space left"),
        ((apsw.NoMemError, MemoryError), "there is not enough memory"),
    ]
    for kinds, reason in reasons:
        if isinstance(error, kinds):
            return StoreError(f"{where}: {reason}")
    # Whatever else SQLite or its driver raises here (no such table, a wrong type, text that is no UTF-8) comes from the file.
    return DamagedStoreError(where, f"SQLite cannot make sense of it ({type(error).__name__})")
