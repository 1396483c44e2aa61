"""Backups of stores and of folders with stores, and putting them back.

A backup has the form of its original: a file of a store, or a folder in which the files have the same names. So it is opened,
read and verified like a store, and restoring is copying the other way. It needs no key.

Of a folder, files of stores and readable facts are copied, and nothing else: no keys, no configuration. Each file is copied as it is
at one moment; a folder of readable facts has a lock, which is held for each of its files.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread
from anyio.from_thread import check_cancelled

from graphagent._options import check_path
from graphagent.errors import (
    DamagedStoreError,
    StoreError,
    StoreExistsError,
    StoreNotFoundError,
)
from graphagent.store import _durable_files
from graphagent.store._dsn import Named, is_dsn, named_database, without_password

if TYPE_CHECKING:
    from collections.abc import Iterator

_OF = ".backup"
"""The file in a folder that is a backup, which names the folder that it is a backup of."""
_FACTS = re.compile(r".*~.*\.jsonl(\.torn-[0-9a-f]{8})?")
_SECONDS = 2
"""How long ago a file must have been changed so that another change would give it another time."""


@dataclass(frozen=True, slots=True)
class BackupReport:
    """The contents of a backup, or of a restored copy."""

    stores: int = 0
    """How many files of stores it has."""
    files: int = 0
    """How many files of readable facts it has."""
    written: int = 0
    """How many of all these files were written; files that had not changed since an earlier backup were not."""
    bytes: int = 0
    """The size of the written files."""
    left: tuple[str, ...] = field(default=(), repr=False)
    """The names of the files in the folder that were not copied: files other than stores and readable facts, and links to folders."""


async def backup(store: str | os.PathLike[str], to: str | os.PathLike[str], *, replace: bool = False) -> BackupReport:
    """Copy a store, or a folder with stores and readable facts, consistently, while others read and write it. No key is needed.

    The copy of a store is made at one moment, which commits neither wait for nor disturb; it is read and checked before it gets its
    name. If that fails, or is cancelled, nothing is left of it. The files are accessible to this user alone. In a folder, each file is
    of one moment, and files other than stores and readable facts are not copied. A second backup of the same folder into the
    same place writes only the files of facts that have changed, and removes files that do not exist any more.

    Args:
        store: The file of a store, or a folder.
        to: Where the backup is put: a new path, or for a folder also its earlier backup.
        replace: Whether a store that is at `to` is replaced, such as an earlier backup, or the backup of another folder.

    Raises:
        StoreNotFoundError: the store does not exist.
        StoreExistsError: there is something at `to`.
        StoreInUseError: the store at `to`, which is to be replaced, is open.
        DamagedStoreError: the store is damaged; no backup of it was made.
        StoreError: the store cannot be read, or `to` cannot be written; or it is a database on a server, which has tools of its own.
    """
    source, target = _paths("backup(store, to)", store, to, _dump)
    return await anyio.to_thread.run_sync(_back_up, source, target, replace)


async def restore(
    backup: str | os.PathLike[str], store: str | os.PathLike[str], *, replace: bool = False
) -> BackupReport:
    """Put a backup back, as a store or a folder of its own, entirely or not at all.

    The backup is not written. Everything is as it was when the backup was made: data forgotten since then are back, and data saved
    since then are missing.

    Args:
        backup: The result of `backup`.
        store: Where the store was.
        replace: Whether a store that is there is replaced; it stays until the restored one was read and checked.

    Raises:
        StoreNotFoundError: the backup does not exist.
        StoreExistsError: there is something at `store`, and it is not to be replaced.
        StoreInUseError: the store to be replaced is open, in another process or in this one.
        DamagedStoreError: the backup is damaged; the store stays as it is.
        StoreError: the backup cannot be read, or the store cannot be written.
    """
    source, target = _paths("restore(backup, store)", backup, store, partial(_put_back, replace_it=replace))
    return await anyio.to_thread.run_sync(_restore, source, target, replace)


def _dump(source: object, target: object) -> str:
    """Return the command that backs up a database: all but who has a run at the moment, which ends with its processes."""
    dsn, schema = _named(source)
    pattern = schema if re.fullmatch(r"[a-z_][a-z0-9_]*", schema) else '"' + schema.replace('"', '""') + '"'
    words = ("--format=custom", "--no-owner", f"--schema={pattern}", f"--exclude-table-data={pattern}.claims")
    return shlex.join(["pg_dump", *words, f"--file={_file_named(target)}", f"--dbname={dsn}"])


def _put_back(source: object, target: object, *, replace_it: bool) -> str:
    """Return the command that restores such a backup, entirely or not at all."""
    words = (
        "--exit-on-error",
        "--single-transaction",
        "--no-owner",
        *(("--clean", "--if-exists") if replace_it else ()),
    )
    return shlex.join(["pg_restore", *words, f"--dbname={_named(target).dsn}", _file_named(source)])


def _named(given: object) -> Named:
    """Return the database that was given, without its password; a place in the command where another thing was given."""
    if not (isinstance(given, str) and is_dsn(given)):
        return Named("DSN", "graphagent")
    dsn, schema = named_database(given)
    found = os.environ.get(dsn.removeprefix("env:"), "").strip() if dsn.startswith("env:") else dsn
    return Named(without_password(found) or "DSN", schema)


def _file_named(given: object) -> str:
    """Return the name of the file that was given; a place in the command where another thing was given."""
    name = str(given) if isinstance(given, str | Path) else ""
    return name if name and not is_dsn(name) else "FILE"


def _paths(call: str, source: object, target: object, command: Callable[[object, object], str]) -> tuple[Path, Path]:
    """Return the paths that were given; `command` is that of a database."""
    found: list[Path] = []
    for given in (source, target):
        if isinstance(given, str) and is_dsn(given):
            raise StoreError(
                f"this is a database on a server, which has its own tools for this: {command(source, target)}. They ask for the "
                f"password, or find it in ~/.pgpass or PGPASSWORD"
            )
        check_path(f"{call}:", given, "'notes.db'")
        found.append(Path(given).absolute())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  it was checked
    source_path, target_path = found
    real, other = source_path.resolve(), target_path.resolve()
    if real == other or (source_path.exists() and target_path.exists() and source_path.samefile(target_path)):
        raise StoreError(f"{target_path} is {source_path} itself; name another path for the copy")
    if other.is_relative_to(real) and source_path.is_dir():
        raise StoreError(f"{target_path} is inside of {source_path}; name a path outside")
    if real.is_relative_to(other) and target_path.is_dir():
        raise StoreError(f"{source_path} is inside of {target_path}; name another path for the copy")
    # The target of a link is replaced, and the link stays: it may be to another disk.
    return source_path, other if target_path.is_symlink() and target_path.exists() else target_path


def _back_up(source: Path, target: Path, replace_it: bool) -> BackupReport:
    with _durable_files.typed_errors("back up", os.fspath(source)):
        if not source.is_dir():
            return _file(source, target, replace_it=replace_it)
        if target.exists() and (target / _OF).exists():
            return _renew(source, target, replace_it=replace_it)
        if target.exists() and any(target.iterdir()):
            raise StoreExistsError(os.fspath(target), "it is not an earlier backup of this folder; give another path")
        with _new_folder(target) as fresh:
            return _fill(source, fresh, of=source)


def _restore(source: Path, target: Path, replace_it: bool) -> BackupReport:
    with _durable_files.typed_errors("restore", os.fspath(source)):
        if not source.is_dir():
            return _file(source, target, replace_it=replace_it)
        if target.exists() and any(target.iterdir()) and not replace_it:
            raise StoreExistsError(os.fspath(target), "give replace=True (--replace) to replace it, or another path")
        with _new_folder(target) as fresh:
            return _fill(source, fresh, of=None)


def _file(source: Path, target: Path, *, replace_it: bool) -> BackupReport:
    from graphagent.store.sqlite._copying import copy_file
    from graphagent.store.sqlite._file import make_folder

    if not source.exists():
        raise StoreNotFoundError("store", os.fspath(source), "give the path of one that exists")
    make_folder(target.parent)
    size = copy_file(source, target, replace=replace_it, step=check_cancelled)
    return BackupReport(stores=1, written=1, bytes=size)


def _fill(source: Path, target: Path, *, of: Path | None) -> BackupReport:
    """Copy the contents of a folder into a folder that is empty, or has an earlier copy."""
    from graphagent.store.sqlite._copying import copy_file
    from graphagent.store.sqlite._file import make_folder

    report = BackupReport()
    known: set[Path] = set()
    for found in sorted(_files(source)):
        check_cancelled()
        within = found.relative_to(source)
        kind = _kind(found)
        if found.is_symlink() and _kind(found.resolve()) == "store":
            kind = "store"  # its target is copied, which may be on another disk
        if kind is None:
            report = replace(report, left=(*report.left, os.fspath(within)))
        if kind in (None, "side"):
            continue
        known.add(within)
        copy = target / within
        make_folder(copy.parent)
        if kind == "store":
            size = copy_file(found.resolve(), copy, replace=True, step=check_cancelled)
            report = replace(report, stores=report.stores + 1, written=report.written + 1, bytes=report.bytes + size)
        else:
            copied = _copy_facts(source, found, copy)
            if copied is None:
                known.remove(within)
                continue
            report = replace(
                report, files=report.files + 1, written=report.written + (copied > 0), bytes=report.bytes + copied
            )
    if not known:
        raise StoreError(f"{source} has neither a store nor readable facts, so there is nothing to copy")
    for there in _files(target):
        if there.relative_to(target) not in known and _kind(there) in ("store", "facts"):
            with _durable_files.opened_folder(os.fspath(there.parent), ()) as folder:
                _durable_files.erase(there.name, folder)
    if of is not None:
        with _durable_files.opened_folder(os.fspath(target), ()) as folder:
            _durable_files.replace(_OF, folder, json.dumps({"of": os.fspath(of.resolve())}).encode())
    return report


def _renew(source: Path, target: Path, *, replace_it: bool) -> BackupReport:
    try:
        of = json.loads((target / _OF).read_bytes()).get("of")
    except (ValueError, AttributeError):
        of = None
    if of != os.fspath(source.resolve()) and not replace_it:
        raise StoreExistsError(
            os.fspath(target), "it is the backup of another folder; give another path, or replace=True (--replace)"
        )
    return _fill(source, target, of=source)


def _files(folder: Path) -> Iterator[Path]:
    for above, folders, names in os.walk(folder):
        links = [name for name in folders if Path(above, name).is_symlink()]  # which are not followed
        for name in names + links:
            if not (name in (_durable_files.LOCK_FILE, _OF) or name.startswith(".new-")):
                yield Path(above, name)


def _kind(path: Path) -> str | None:
    """Return whether a file is a `store`, has readable `facts`, or lies at the `side` of a store; None if it is something else."""
    from graphagent.store.sqlite._copying import is_store_file
    from graphagent.store.sqlite._file import SIDES

    if path.is_symlink():
        return None
    if _FACTS.fullmatch(path.name):
        return "facts"
    for side in SIDES:
        if path.name.endswith(side) and Path(os.fspath(path).removesuffix(side)).exists():
            return "side"
    return "store" if is_store_file(path) else None


def _copy_facts(root: Path, source: Path, target: Path) -> int | None:
    """Copy a file of readable facts, if it has changed. Return how many bytes were written; None if it was forgotten meanwhile."""
    locking = next((each for each in source.parents if (each / _durable_files.LOCK_FILE).exists()), None)
    within = locking if locking is not None and locking.is_relative_to(root) else root
    with _durable_files.locked(os.fspath(within), shared=True), _durable_files.opened(os.fspath(source)) as file:
        if file is None:
            return None
        status = os.fstat(file)
        if target.exists() and _same(target.stat(), status):
            return 0
        data = _durable_files.read_from(file, 0)
    with _durable_files.opened_folder(os.fspath(target.parent), ()) as folder:
        _durable_files.replace(target.name, folder, data)
    if target.read_bytes() != data:
        raise DamagedStoreError(os.fspath(target), "it is not as it was written a moment ago", remedy="Check the disk")
    # A file that is changed twice at the same time, as the file system counts it, is copied again the next time.
    settled = time.time() - status.st_mtime > _SECONDS
    os.utime(target, ns=(status.st_mtime_ns, status.st_mtime_ns if settled else 0))
    return len(data)


def _same(copy: os.stat_result, found: os.stat_result) -> bool:
    return (copy.st_size, copy.st_mtime_ns) == (found.st_size, found.st_mtime_ns)


@contextmanager
def _new_folder(target: Path) -> Generator[Path]:
    """Yield a new folder beside the place where it is put at the end, in the place of one that is there; it is removed if that fails."""
    from graphagent.store.sqlite._file import make_folder

    make_folder(target.parent)
    fresh = target.parent / f".new-{os.urandom(8).hex()}"
    fresh.mkdir(mode=0o700)
    try:
        yield fresh
        for above, _, _ in os.walk(fresh, topdown=False):
            _durable_files.sync_folder(Path(above))
        with _replaced(target, fresh):
            fresh.rename(target)
        _durable_files.sync_folder(target.parent)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


@contextmanager
def _replaced(target: Path, fresh: Path) -> Generator[None]:
    """Move the file or folder at a path away while another is put there; then remove it, or put it back."""
    from graphagent.store.sqlite._copying import alone

    if not target.exists():
        yield
        return
    if not any(target.iterdir()):
        target.rmdir()
        yield
        return
    if others := [each.name for each in _files(target) if _kind(each) is None]:
        named = ", ".join(map(repr, sorted(others)[:4]))
        raise StoreExistsError(
            os.fspath(target),
            f"it has other files than stores and facts ({named}); move them away, or give another path",
        )
    aside = target.parent / f"{target.name}.replaced-{os.urandom(4).hex()}"
    lock = target / _durable_files.LOCK_FILE
    with alone([each for each in _files(target) if _kind(each) == "store"]):
        if lock.exists():
            os.link(
                lock, fresh / _durable_files.LOCK_FILE
            )  # so that those who wait for it have the lock of the new one
        with _locked(target, facts=lock.exists()):
            target.rename(aside)
            try:
                yield
            except BaseException:
                aside.rename(target)
                raise
    shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def _locked(root: Path, *, facts: bool) -> Generator[None]:
    if not facts:
        yield
        return
    with _durable_files.locked(os.fspath(root)):
        yield
