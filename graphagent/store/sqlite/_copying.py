"""Copying the file of a SqliteStore while others write it, and putting the copy in its place: entirely or not at all.

The copy is made by SQLite, in one read transaction: writers go on meanwhile, and their commits stay in the log. It needs no key, for
sealed data are copied as they are. It is written under another name, synced, read and checked, and gets its name last.

A store that is replaced must not be open anywhere: a process with the store open would go on in a file without a name, and its log would be
applied to the new file. SQLite's own lock says so, also of a file that is damaged: every open connection shares it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from graphagent.errors import DamagedStoreError, StoreError, StoreExistsError, StoreInUseError, StoreNotFoundError
from graphagent.store._durable_files import sync_folder
from graphagent.store._fork_safety import in_use
from graphagent.store.sqlite._file import (
    SIDES,
    as_store_error,
    connect,
    exists,
    making,
    remove_leftovers,
)
from graphagent.store.sqlite._soundness import is_sound

_PAGES = 4096
"""How many pages are copied before the caller may stop it."""


def copy_file(source: Path, target: Path, *, replace: bool, step: Callable[[], object]) -> int:
    """Copy a store to another path. Return the size of the copy in bytes.

    Args:
        source: The file of the store. It is not written.
        target: Where the copy is put. Its folder must exist.
        replace: Whether a store that is there is replaced.
        step: Called after each part; its errors end the copying, and no partial copy is left.

    Raises:
        StoreExistsError: there is a file at `target`, and it is not to be replaced or is not a store.
        DamagedStoreError: the store is damaged, which the copy would be too.
        StoreError: it cannot be read, or the copy cannot be written.
    """
    import apsw

    if not exists(source):
        raise StoreNotFoundError("store", os.fspath(source), "give the path of one that exists")
    if os.path.lexists(target):
        _check_replaced(target, replace=replace)
    remove_leftovers(target.parent)
    try:
        with in_use(), making(target) as fresh:
            _copy_pages(source, fresh, step)
            number = os.open(fresh, os.O_RDONLY)
            try:
                os.fsync(number)
            finally:
                os.close(number)
            _check_copy(source, fresh)
            size = fresh.stat().st_size
            step()
            if replace and os.path.lexists(target):
                _replace(fresh, target)
            else:
                _name(fresh, target)
            sync_folder(target.parent)
    except (OSError, apsw.Error) as error:
        raise as_store_error(error, target) from error
    return size


def give_name(part: Path, target: Path) -> None:
    """Give a closed store the name under which it is found from now on, durably.

    Raises:
        StoreExistsError: there is something under that name.
        StoreError: it cannot be named.
    """
    try:
        with alone([part]):
            _name(part, target)
            part.unlink(missing_ok=True)
            sync_folder(target.parent)
    except OSError as error:
        raise as_store_error(error, target) from error


def _name(fresh: Path, target: Path) -> None:
    try:
        os.link(fresh, target)
    except FileExistsError:
        raise StoreExistsError(os.fspath(target), "give another path") from None
    except OSError:
        if os.path.lexists(target):
            raise
        fresh.rename(target)  # this file system has no links


def is_store_file(path: Path) -> bool:
    """Return whether a file in a folder is a store, sound or damaged, and has an ending by which SQLite's files are known."""
    return path.suffix in (".db", ".sqlite", ".sqlite3") and path.is_file() and is_store(path)


def is_store(path: Path) -> bool:
    """Return whether a file is a store, sound or damaged."""
    try:
        connect(path, "FULL", writing=False).close()
    except DamagedStoreError:
        return path.stat().st_size > 0 and _has_head(path)
    except StoreError:
        return False
    return True


def _has_head(path: Path) -> bool:
    # Opening the file would end the locks of this process on it, so SQLite reads its head.
    with _opened(path) as file, suppress(Exception):
        return bytes(file.xRead(16, 0)) == b"SQLite format 3\0"
    return False


def _check_replaced(target: Path, *, replace: bool) -> None:
    if not replace:
        raise StoreExistsError(
            os.fspath(target), "give another path, or replace=True (--replace) if it may be replaced"
        )
    if target.is_dir() or not (target.stat().st_size == 0 or is_store(target)):
        raise StoreExistsError(os.fspath(target), "it is not a store, so it is not replaced; give another path")


def _copy_pages(source: Path, fresh: Path, step: Callable[[], object]) -> None:
    import apsw

    try:
        reading = cast(Any, connect(source, "FULL", writing=False))
    except Exception as error:
        raise as_store_error(error, source) from error
    try:
        writing = cast(Any, apsw.Connection(os.fspath(fresh)))
        try:
            # No other process sees this file before it is whole, and it is synced once.
            writing.execute("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA locking_mode=EXCLUSIVE").fetchall()
            reading.execute("BEGIN; SELECT 1 FROM items LIMIT 1").fetchall()  # all pages are of this moment
            with writing.backup("main", reading, "main") as copying:
                while not copying.done:
                    copying.step(_PAGES)
                    step()
        finally:
            writing.close()
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise as_store_error(error, source) from error
    finally:
        reading.close()


def _check_copy(source: Path, fresh: Path) -> None:
    """Check the written file.

    Raises:
        DamagedStoreError: it is damaged, since the store is.
    """
    try:
        # Its rows are those of the store, page by page, so they are not read one by one.
        if not is_sound(fresh):
            raise DamagedStoreError(os.fspath(fresh), "SQLite's own check failed")
    except DamagedStoreError as error:
        reason = str(error).partition(" is damaged: ")[2].partition("; nothing was written")[0]
        raise DamagedStoreError(os.fspath(source), reason) from error


def _replace(fresh: Path, target: Path) -> None:
    """Put a new file in the place of a store that is open nowhere. Until then, the old one is whole."""
    with suppress(StoreError), suppress(Exception):  # a damaged store is replaced too
        connection = connect(target, "FULL", writing=True)
        try:
            connection.set_busy_timeout(0)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            connection.close()
    with alone([target]):
        # A log without its file would be applied to the new one.
        for side in SIDES:
            Path(f"{target}{side}").unlink(missing_ok=True)
        fresh.rename(target)


@contextmanager
def _opened(path: Path) -> Generator[Any]:
    """Open a file as SQLite does, so that closing it does not end the locks of this process."""
    import apsw

    file = apsw.VFSFile("", os.fspath(path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE, 0])
    try:
        yield file
    finally:
        file.xClose()


@contextmanager
def alone(paths: Iterable[Path]) -> Generator[None]:
    """Keep stores from being opened by anybody."""
    import apsw

    with ExitStack() as stack:
        for path in paths:
            file = stack.enter_context(_opened(path))
            try:
                for level in (apsw.SQLITE_LOCK_SHARED, apsw.SQLITE_LOCK_RESERVED, apsw.SQLITE_LOCK_EXCLUSIVE):
                    file.xLock(level)
            except apsw.BusyError:
                raise StoreInUseError(os.fspath(path)) from None
            stack.callback(file.xUnlock, apsw.SQLITE_LOCK_NONE)
        yield
