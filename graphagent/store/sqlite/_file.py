"""The file of a SqliteStore: making it, opening it, reading its rows, and translating its errors.

The file is long because making, opening and reading a file share its schema and its errors.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, cast
from zlib import crc32

from graphagent.errors import DamagedStoreError, ReadOnlyStoreError, StoreError
from graphagent.store._durable_files import sync_folder, sync_name
from graphagent.store._items import INT, Item, Key, decode
from graphagent.store._sealed_detection import KEYS_PLACE, MAGIC

APPLICATION_ID = 0x67616731
SEALED_ID = 0x67616773
"""The application id of a file that was sealed: without its key row, it is not an empty store."""
FORMAT = 3
_UNSUMMED = 2
"""The format of files whose rows have no checksums. They are read, and get the column for checksums with the next write."""
FORMAT_BITS = 8
"""How many bits of `user_version` are the format. The others are the mark of a deletion whose bytes may still be in the file."""


# Short values are stored in the table of keys: a commit writes one page, and a scan reads few. Longer ones are stored apart, in
# the order of their commits. There they fill their pages, of which a sixth would stay empty in the order of keys, and finding a
# key does not read them.
def _schema(columns: str) -> tuple[str, ...]:
    return (
        (
            f"CREATE TABLE items (key BLOB PRIMARY KEY, version INTEGER NOT NULL, value BLOB, {columns},"
            " CHECK ((value IS NULL) <> (apart IS NULL))) WITHOUT ROWID"
        ),
        "CREATE TABLE apart (id INTEGER PRIMARY KEY, value BLOB NOT NULL)",
    )


SCHEMA = _schema("apart INTEGER, sum INTEGER")
_SCHEMAS = {FORMAT: SCHEMA, _UNSUMMED: _schema("apart INTEGER")}
_OWN_SCHEMA = "SELECT sql FROM sqlite_schema WHERE tbl_name NOT GLOB 'notes_*' AND tbl_name <> 'sqlite_sequence'"
"""The schema without the tables of data that is derived from items (`SqliteStore.commit(…, along=)`)."""
SHORT = 256
"""The longest value that is stored with its key, in bytes; a page holds thirteen of them. Files written with another limit are read too."""
ROWS = "SELECT key, version, value, sum FROM rows"
"""Every item. The value is NULL if it should be stored apart and is missing; the checksum, if the row was written without one."""
_ROWS = (
    "CREATE TEMP VIEW rows AS SELECT key, version, ifnull(items.value, apart.value) AS value, {} AS sum"
    " FROM items LEFT JOIN apart ON id = apart"
)
HEAD_BITS = 31
"""Above so many bits of the checksum of a row is that of its key and version, which is checked without reading the value."""
_FRESH = re.compile(r"\.new-[0-9a-f]{16}(-wal|-shm|-journal)?")
"""The names of a file that is being made, and of the files that SQLite makes for it."""
_UNLOCKED = "win32-none" if os.name == "nt" else "unix-none"
"""The VFS of SQLite that locks nothing."""
SIDES = ("-wal", "-shm", "-journal")
"""How the names of the files end that SQLite makes for a file."""
BUSY_SECONDS = 30
CACHE_KIBIBYTES = 8 * 1024
"""How much of the file each connection may cache."""


class Cursor(Iterable[tuple[object, ...]], Protocol):
    """The methods that are used of a cursor of the driver."""

    def fetchall(self) -> list[tuple[object, ...]]: ...
    def close(self) -> None: ...


class Connection(Protocol):
    """The methods that are used of a connection of the driver."""

    def execute(self, statements: str, bindings: tuple[bytes | int | None, ...] = ()) -> Cursor: ...
    def executemany(self, statements: str, bindings: Iterable[tuple[bytes | int | None, ...]]) -> Cursor: ...
    def changes(self) -> int: ...
    def data_version(self) -> int: ...
    def set_wal_hook(self, function: Callable[[object, str, int], int]) -> None: ...
    def set_busy_timeout(self, milliseconds: int) -> None: ...
    def config(self, option: int, value: int) -> object: ...
    def close(self) -> None: ...


def make(path: Path) -> None:
    """Make an empty store if the file does not exist yet, completely or not at all.

    Raises:
        StoreError: the folder or the file cannot be made.
        DamagedStoreError: the file is missing, but its log exists.
    """
    import apsw

    if exists(path):
        return
    try:
        make_folder(path.parent)
        with making(path) as fresh:
            _fill(cast(Connection, apsw.Connection(os.fspath(fresh))))
            _publish(fresh, path)
    except (OSError, apsw.Error) as error:
        raise as_store_error(error, path) from error


@contextmanager
def making(path: Path) -> Generator[Path]:
    """Yield the path of a new, empty file in the folder of another one, whose name it is to get; without that, it is removed."""
    with _locked(path.parent, alone=False):
        fresh = path.parent / f".new-{os.urandom(8).hex()}"
        os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        try:
            yield fresh
        finally:
            for left in ("", *SIDES):
                Path(f"{fresh}{left}").unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Remove unfinished files of processes that ended while they made a store in a folder, unless another one is making one now."""
    try:
        left = [each for each in folder.iterdir() if _FRESH.fullmatch(each.name)]
        if left:
            with _locked(folder, alone=True) as locked:
                for each in left if locked else ():
                    each.unlink(missing_ok=True)
    except OSError:
        pass  # they do no harm, and a process that may write here removes them later


@contextmanager
def _locked(folder: Path, *, alone: bool) -> Generator[bool]:
    """Hold the lock of a folder, which all processes that create a store there share; with `alone`, yield whether no other process has it.

    The lock is on the folder and not on the new file, because closing that file would release the locks that SQLite has on it.
    """
    if os.name == "nt":  # folders cannot be locked there; unfinished files stay
        yield not alone
        return
    import fcntl

    number = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
            locked = True
        except OSError:  # another process has it, or this file system has no such locks
            locked = False
        yield locked
    finally:
        os.close(number)


def has_log(path: Path) -> bool:
    log = Path(f"{path}-wal")
    return log.exists() and log.stat().st_size > 0


def exists(path: Path) -> bool:
    """Return whether there is a file.

    Raises:
        StoreError: the path leads nowhere, or may not be followed.
        DamagedStoreError: the file is missing, but its log exists.
    """
    try:
        path.stat()
    except FileNotFoundError:
        pass
    except OSError as error:  # such as a file where a folder should be
        raise as_store_error(error, path) from error
    else:
        return True
    try:
        if not has_log(path):
            return False
        if path.exists():  # another process has made it between the two looks
            return True
    except OSError as error:
        raise as_store_error(error, path) from error
    # SQLite would apply the commits of the lost file to a new one.
    raise DamagedStoreError(
        os.fspath(path), f"the file is missing, but the log '{path.name}-wal' that belongs to it is there"
    )


def is_writable(path: Path) -> bool:
    """Return whether this process may write a file, for which SQLite makes others in its folder."""
    effective = os.access in os.supports_effective_ids
    return all(os.access(each, os.W_OK, effective_ids=effective) for each in (path, path.parent))


State = tuple[tuple[int, int, int] | None, ...]


def unlocked_state(path: Path) -> State | None:
    """Return the state of a file, and of its log, that is read without locks; None if SQLite locks it.

    For its locks in WAL mode, SQLite needs a file beside, and makes it if it may. A process that may not can only read a file that never changes: a backup, a
    copy on a read-only file system. Whether it has changed in spite of that, this state tells.
    """
    if is_writable(path) or Path(f"{path}-shm").exists():
        return None
    return _state(path), _state(Path(f"{path}-wal"))


def _state(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _uri(path: Path, *, unlocked: bool) -> str:
    """Return the name with which SQLite opens a file."""
    from urllib.parse import quote

    place = f"file:{quote(os.fsencode(path))}"
    if not unlocked:
        return place
    # Opened as immutable, SQLite would ignore a log with commits.
    return f"{place}?vfs={_UNLOCKED}" if has_log(path) else f"{place}?immutable=1"


def sync_log(path: Path) -> None:
    """Make the commits in the log durable; commits that have left the log are in the file, and durable already.

    Raises:
        StoreError: the disk has failed.
    """
    # SQLite has no locks on the log, so closing it drops none.
    try:
        number = os.open(f"{path}-wal", os.O_RDWR)
    except FileNotFoundError:
        return
    except OSError as error:
        raise as_store_error(error, path) from error
    try:
        os.fsync(number)
    except OSError as error:
        raise as_store_error(error, path) from error
    finally:
        os.close(number)


def _fill(connection: Connection) -> None:
    try:
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={FORMAT}").fetchall()
        connection.execute("; ".join(SCHEMA)).fetchall()
        connection.execute("PRAGMA journal_mode=WAL").fetchall()
    finally:
        connection.close()


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, durably and for this user alone."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    sync_name(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    sync_folder(folder.parent)


def _publish(fresh: Path, path: Path) -> None:
    # A link never replaces a file that another process has made meanwhile; renaming would.
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
        fresh.rename(path)  # this file system has no links


def identity(path: Path) -> tuple[int, int]:
    """Return what distinguishes this file from another one under the same name.

    Raises:
        StoreError: it does not exist.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise as_store_error(error, path) from error
    return status.st_dev, status.st_ino


def check_identity(path: Path, known: tuple[int, int]) -> None:
    """Check that the file is still the one that was opened, because data written to a deleted file are lost.

    Raises:
        StoreError: it is not.
    """
    try:
        status = path.stat()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise as_store_error(error, path) from error
    else:
        if (status.st_dev, status.st_ino) == known:
            return
    raise StoreError(f"{path} was moved, deleted or replaced while it was open; close the store before that is done")


def connect(path: Path, synchronous: str, *, writing: bool) -> Connection:
    """Return a connection to a store that exists.

    Raises:
        StoreError: it cannot be opened, or is not a store (DamagedStoreError: it is damaged).
    """
    import apsw

    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
    try:
        if path.stat().st_size == 0:
            raise DamagedStoreError(os.fspath(path), "the file is empty")
        if writing and not is_writable(path):
            raise ReadOnlyStoreError(os.fspath(path))
        unlocked = unlocked_state(path) is not None
        connection = cast(Connection, apsw.Connection(_uri(path, unlocked=unlocked), flags=flags))
    except (OSError, apsw.Error) as error:
        raise as_store_error(error, path) from error
    try:
        connection.set_busy_timeout(int(BUSY_SECONDS * 1000))
        # Otherwise SQLite would prepare the join of ROWS again for each key.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.execute(
            f"PRAGMA locking_mode={'EXCLUSIVE' if unlocked else 'NORMAL'};"
            f"PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON; PRAGMA mmap_size=0; PRAGMA secure_delete=ON;"
            f"PRAGMA synchronous={synchronous}; PRAGMA cache_size=-{CACHE_KIBIBYTES}"
        ).fetchall()
        form = _check(connection, path)
        if form == _UNSUMMED and writing:
            form = _add_sums(connection, path)
        make_view(connection, summed=form == FORMAT)
        connection.execute(f"PRAGMA query_only={'OFF' if writing else 'ON'}").fetchall()
        if is_emptied(connection):
            raise DamagedStoreError(os.fspath(path), "it was sealed, and the row with its keys is missing")
        if writing:  # copies by VACUUM INTO have a rollback journal
            connection.execute("PRAGMA journal_mode=WAL").fetchall()
            # The log exists by now. SQLite makes its name durable too, but looks no further if that fails.
            sync_name(path.parent)
            sync_folder(path.parent)
    except Exception as error:  # a damaged header makes the driver raise nearly anything
        connection.close()
        raise as_store_error(error, path) from error
    return connection


def make_view(connection: Connection, *, summed: bool = True) -> None:
    """Make the view of ROWS, which this connection alone sees."""
    connection.execute(_ROWS.format("sum" if summed else "NULL")).fetchall()


def _add_sums(connection: Connection, path: Path) -> int:
    """Add the column of checksums to a file, unless another process has."""
    connection.execute("BEGIN IMMEDIATE").fetchall()
    form = _check(connection, path)
    if form == _UNSUMMED:
        [(user,)] = connection.execute("PRAGMA user_version").fetchall()
        connection.execute(
            f"ALTER TABLE items ADD COLUMN sum INTEGER; PRAGMA user_version={cast(int, user) - _UNSUMMED + FORMAT}"
        ).fetchall()
    connection.execute("COMMIT").fetchall()
    return FORMAT


def sum_of(place: bytes, version: int, value: bytes) -> int:
    """Return the checksum of a row: that of its key and version, and below it that of everything."""
    head = crc32(place, version & 0xFFFFFFFF)
    return head << HEAD_BITS | crc32(value, head) >> 1


def _check(connection: Connection, path: Path) -> int:
    [(page,)] = connection.execute("PRAGMA page_size").fetchall()
    if path.stat().st_size % cast(int, page) and not has_log(path):
        # SQLite would read zeros in place of the missing part of the last page.
        raise DamagedStoreError(os.fspath(path), "it is cut off")
    schema = tuple(sql for (sql,) in connection.execute(_OWN_SCHEMA).fetchall())
    [(application, user)] = connection.execute("SELECT * FROM pragma_application_id, pragma_user_version").fetchall()
    version: int = cast(int, user) % 2**FORMAT_BITS
    mode = connection.execute("PRAGMA journal_mode").fetchall()
    ids = (APPLICATION_ID, SEALED_ID)
    if schema == _SCHEMAS.get(version) and application in ids and mode in ([("wal",)], [("delete",)]):
        return version
    known = schema in _SCHEMAS.values()
    if not known and application not in ids:
        raise StoreError(f"{path} is a database, but not a store of graphagent; give the store a file of its own")
    if not known and version not in _SCHEMAS:
        raise StoreError(f"{path} was made by another graphagent, in format {version}; this one reads format {FORMAT}")
    raise DamagedStoreError(os.fspath(path), "its head is not that of a store")


def is_emptied(connection: Connection) -> bool:
    """Return whether the file was sealed, and is not any more."""
    return connection.execute("PRAGMA application_id").fetchall() == [(SEALED_ID,)] and not is_sealed(connection)


def is_sealed(connection: Connection) -> bool:
    """Return whether the file is sealed."""
    found = connection.execute(f"{ROWS} WHERE key=?", (KEYS_PLACE,)).fetchall()
    return any(type(value) is bytes and value.startswith(MAGIC) for _, _, value, _ in found)


def items(
    rows: Iterable[tuple[object, ...]], path: Path, prefix: Key = (), low: bytes = b"", *, most_bytes: int = sys.maxsize
) -> list[Item]:
    """Return the items of ROWS, up to the one with which their values reach `most_bytes`.

    All keys begin with `prefix`, encoded `low`, so only the rest of each is decoded.

    Raises:
        DamagedStoreError: a row is not one that a store writes.
    """
    found: list[Item] = []
    size, head, begin, at, end = 0, prefix, low, len(low), len(low) + INT.size
    # This is executed for every row of a scan, and calling Item itself takes twice as long.
    make: Callable[..., Item] = tuple.__new__  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    unpack = INT.unpack_from
    try:
        for place, version, value, sum_ in rows:
            if not (type(place) is bytes and place.startswith(low) and type(value) is bytes):
                break
            if not (type(version) is int and version > 0):
                break
            if sum_ is not None:
                check = crc32(place, version & 0xFFFFFFFF)
                if check << HEAD_BITS | crc32(value, check) >> 1 != sum_:
                    break
            # Most keys differ from the one before in the last int, such as a version. This decodes it in a third of the time.
            if len(place) == end and place[at] == 1 and place[at + 1] < 128 and place.startswith(begin):
                key = head + unpack(place, at)
            else:
                key = prefix + decode(place, len(low))
                if key and type(key[-1]) is int:
                    head, at, end = key[:-1], len(place) - INT.size, len(place)
                    begin = place[:at]
            found.append(make(Item, (key, value, version)))
            size += len(value)
            if size >= most_bytes:
                return found
        else:
            return found
    except ValueError:
        pass  # a key that cannot be decoded
    raise DamagedStoreError(os.fspath(path), "a row is not one that a store writes")


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a folder above may not be accessible
        return False


def as_store_error(error: BaseException, path: Path) -> StoreError:
    """Return the StoreError for an error of the driver or the system, which names the fault of this file and says what to do."""
    import apsw

    if isinstance(error, StoreError):
        return error
    where = os.fspath(path)
    detail = getattr(error, "extendedresult", 0)
    if isinstance(error, apsw.IOError) and detail in (apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS):
        return DamagedStoreError(where, "it is cut off")
    if _is_folder(path):
        return StoreError(f"{where} is a folder; give the store the path of a file")
    if blocked := next((each for each in path.parents if os.path.lexists(each) and not _is_folder(each)), None):
        return StoreError(
            f"{where} cannot be made: {os.fspath(blocked)} is a file, not a folder; move it or choose another path"
        )
    if isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError) or (
        isinstance(error, OSError) and error.errno == errno.EROFS
    ):
        return ReadOnlyStoreError(where)
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
        (apsw.CantOpenError, "it cannot be opened; check that the file and its folder may be read and written"),
        (apsw.IOError, "reading or writing failed; check the disk, its quota and the space left"),
        ((apsw.NoMemError, MemoryError), "there is not enough memory"),
    ]
    for kinds, reason in reasons:
        if isinstance(error, kinds):
            return StoreError(f"{where}: {reason}")
    # Whatever else SQLite or its driver raises (no such table, a wrong type, text that is not UTF-8) is caused by the file.
    return DamagedStoreError(where, f"SQLite cannot make sense of it ({type(error).__name__})")
