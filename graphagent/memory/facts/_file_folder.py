"""A folder of facts: finds, reads, extends and erases its files. Everything here may block."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from graphagent.errors import DamagedStoreError, StoreError, StoreNotFoundError
from graphagent.memory._byte_cache import ByteCache
from graphagent.memory.facts import _file_format
from graphagent.memory.facts._file_format import FactLines, Page
from graphagent.memory.facts._json import following
from graphagent.memory.facts._types import (
    Concept,
    Fact,
    FactVersion,
    Scope,
    ScopeKind,
    Subject,
    Withdrawal,
    stamped,
)
from graphagent.memory.facts._withdrawing import erased_bytes, of_known, without_value
from graphagent.store import Receipt, _durable_files

if TYPE_CHECKING:
    from graphagent.memory.facts._json import Place
    from graphagent.memory.facts._known import Moment

_log = logging.getLogger("graphagent.memory")
SEALED_FILE = "facts.db"
"""The file in which EncryptedMemoryProvider stores its facts. FileMemoryProvider refuses a folder with such a file."""
_NO_OWNER = "default"
_PAGE_SIZE = 3000
"""The approximate bytes of memory of a page without its facts, with the names and the path of its file."""
_SUFFIX = ".jsonl"
_Make = Callable[["Page", Callable[[], list["FactVersion"]]], list["FactVersion"]]


class FileLocation(NamedTuple):
    """The position of a file of facts."""

    folders: tuple[str, ...]
    """The folders under the root that lead to it."""
    name: str
    path: str
    """The whole path."""


class FactFiles:
    """The files of facts under one folder: `<owner>/<kind of scope>/<scope>/<subject>.jsonl`.

    One lock covers the whole folder, so that forgetting does not leave a lock file with a name in it.
    """

    def __init__(self, root: str, cache_bytes: int) -> None:
        self.root = root
        self._cache_bytes = cache_bytes
        self._pages: ByteCache[Place, tuple[Page, FileLocation]] = ByteCache(cache_bytes, at_least=1)
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._synced: set[tuple[str, ...]] = set()
        """The folders whose own name and all names in them are durable, among those that this object changed or found."""

    def close(self) -> None:
        """Clear the cache; files are read again when they are needed."""
        self._turn()
        self._pages.clear()

    def current(self, place: Place) -> Page | None:
        """Return the page of a place if its file has not changed since it was read, otherwise None. Fast enough for an event loop."""
        self._turn()
        page, location = self._cached(place)
        with _durable_files.typed_errors("read", location.path):
            try:
                stat = os.stat(location.path, follow_symlinks=False)  # noqa: PTH116 (a Path costs more than the call)
            except FileNotFoundError:
                self._refuse_sealed()
                return Page()
        return page if page and page.stamp == _file_format.stamp_of(stat) else None

    def load(self, place: Place, keyword: str | None, moment: Moment | None) -> list[Fact]:
        """Return the facts that hold at a moment, or now, about one concept of a place or all, with lines added to its file."""
        with self._turn():
            _, location = self._cached(place)
            with self._reading(location) as file:
                if file is None:
                    return []
                page = self._read(file, place, location)
                if moment is not None:
                    self._complete(file, page, page.without_history(keyword, moment), place, location)
                found = page.all(moment) if keyword is None else page.facts_of(keyword, moment)
                assert found is not None  # the needed histories were read above
                return found

    def facts(self, place: Place) -> list[FactVersion]:
        """Return every version of every fact of a place, in the order of saving."""
        location = _locate(self.root, place)
        with self._reading(location) as file:
            return [] if file is None else _lines(file, place, location.path).facts

    def history(self, place: Place, keyword: str) -> list[FactVersion]:
        """Return every version of the facts about a concept, in the order of saving."""
        with self._turn():
            _, location = self._cached(place)
            with self._reading(location) as file:
                if file is None:
                    return []
                page = self._read(file, place, location)
                if page.history(keyword) is None:
                    self._complete(file, page, {keyword}, place, location)
                return page.history(keyword) or []

    def save(self, place: Place, fact: Fact) -> None:
        """Add a fact as the next version of its concept."""
        self._append(place, lambda page, _: [stamped(fact, page.version(fact.concept.keyword) + 1)])

    def withdraw(self, place: Place, withdrawal: Withdrawal) -> None:
        """Add a withdrawal as the next version of its concept.

        Raises:
            ValueError: the concept has one value.
        """
        keyword = withdrawal.concept.keyword
        self._append(
            place,
            lambda page, _: [
                stamped(of_known(withdrawal, page.facts_of(keyword, None) or ()), page.version(keyword) + 1)
            ],
        )

    def add(self, place: Place, facts: Iterable[FactVersion]) -> int:
        """Append the saved versions that the file does not have yet. Return their number."""

        def new(page: Page, there: Callable[[], list[FactVersion]]) -> list[FactVersion]:
            ids = {fact.id for fact in there()}
            return list(following([fact for fact in facts if fact.id not in ids], page.version))

        return self._append(place, new)

    def forget(
        self, concept: Concept | None, subject: Subject | None, scope: Scope | None, owner: str, value: str | None
    ) -> Receipt:
        """Erase the matching facts, or a value from them, and the files and folders that are then empty."""
        removed, size = 0, 0
        with _durable_files.typed_errors("write", self.root), self._turn(), ExitStack() as stack:
            self._pages.clear()
            self._refuse_sealed()
            if next(self._walk(owner, scope, subject), None) is None:
                return Receipt()
            stack.enter_context(self._locked())
            locations = list(self._walk(owner, scope, subject))
            if concept is not None and value is not None:
                for location in locations:  # read before anything is erased, since a concept with one value is refused
                    with _durable_files.opened_folder(self.root, location.folders) as folder:
                        _left_in(folder, location, concept, value)
            for location in locations:
                with _durable_files.opened_folder(self.root, location.folders) as folder:
                    facts, lines = _forget_in(folder, location, concept, value)
                removed, size = removed + facts, size + lines
                self._prune(location.folders)
        return Receipt(facts=removed, bytes=size)

    def locations(self, owner: str | None) -> list[FileLocation]:
        """Return all files of an owner, or with None, of all owners."""
        self._refuse_sealed()
        with _durable_files.typed_errors("read", self.root):
            return [each for each in self._walk(owner, None, None) if not _durable_files.leftover_of(each.name)]

    def read(self, location: FileLocation) -> list[tuple[Place, FactVersion]]:
        """Return all facts of a file, checked; an empty list if the file was erased meanwhile. A torn last line is ignored."""
        place, found = self._checked(location)
        return [(place, fact) for fact in found.facts] if place and found else []

    def verify(self) -> int:
        """Read and check every file. Return the number of facts, all versions counted."""
        with _durable_files.typed_errors("read", self.root):
            if not os.path.lexists(self.root):
                raise StoreNotFoundError("memory", os.fspath(self.root), "give the folder of an existing memory")
        facts = 0
        torn: tuple[str, str] | None = None
        for location in self.locations(None):
            _, found = self._checked(location)
            facts += len(found.facts) if found else 0
            if found and found.torn:
                torn = torn or (f"{location.path}, line {len(found.facts) + 2}", found.torn)
        if torn:
            raise DamagedStoreError(
                *torn, remedy="The lines before it are intact. The next save moves the rest into a file beside this one"
            )
        with _durable_files.typed_errors("read", self.root):
            aside = next((each for each in self._walk(None, None, None) if _durable_files.is_torn(each.name)), None)
        if aside:
            raise DamagedStoreError(
                aside.path, "it is a torn line, as a power loss or a bad sector leaves it, that was moved here",
                remedy="Everything else is intact. Check whether the line has a missing fact, and remove this file",
            )  # fmt: skip
        return facts

    def _cached(self, place: Place) -> tuple[Page | None, FileLocation]:
        """Return the page of a place, or None, and the location of its file."""
        return self._pages.get(place) or (None, _locate(self.root, place))

    def _keep(self, place: Place, page: Page, location: FileLocation) -> None:
        self._pages.put(place, (page, location), page.size + _PAGE_SIZE)

    def _checked(self, location: FileLocation) -> tuple[Place | None, FactLines | None]:
        with self._reading(location) as file:
            if file is None:
                return None, None
            place = _file_format.read_place_of(file, location.path)
            if _locate(self.root, place) != location:
                raise DamagedStoreError(f"{location.path}, line 1", "by this line, the file belongs to another place")
            return place, _lines(file, place, location.path)

    def _locked(self, *, shared: bool = False, make: bool = False) -> AbstractContextManager[None]:
        self._refuse_sealed()
        return _durable_files.locked(self.root, shared=shared, make=make)

    def _refuse_sealed(self) -> None:
        if os.path.exists(f"{self.root}/{SEALED_FILE}"):  # noqa: PTH110  three times as fast
            raise StoreError(
                f"{self.root!r} holds sealed facts ({SEALED_FILE}); "
                f"open it with EncryptedMemoryProvider, or use another folder"
            )

    def _turn(self) -> threading.Lock:
        """Return the lock that a thread holds while it reads or writes pages."""
        if self._pid != os.getpid():
            # A forked process lacks the threads that hold the locks, so the locks would never be released.
            self._pages = ByteCache(self._cache_bytes, at_least=1)
            self._pid, self._lock = os.getpid(), threading.Lock()
        return self._lock

    @contextmanager
    def _reading(self, location: FileLocation) -> Generator[int | None]:
        with _durable_files.typed_errors("read", location.path), ExitStack() as stack:
            try:
                stack.enter_context(self._locked(shared=True))
                folder = stack.enter_context(_durable_files.opened_folder(self.root, location.folders))
                file = stack.enter_context(_durable_files.opened(location.name, folder))
            except FileNotFoundError:
                file = None
            yield file

    def _read(self, file: int, place: Place, location: FileLocation) -> Page:
        page, stamp = self._cached(place)[0], _file_format.stamp_of(os.fstat(file))
        if page is None or page.stamp != stamp:
            self._pages.take(place)
            if page is None or not page.continues(file, stamp):
                page = Page()
            page.add(_lines(file, place, location.path, page), stamp)
            self._keep(place, page, location)
        return page

    def _complete(self, file: int, page: Page, keywords: set[str], place: Place, location: FileLocation) -> None:
        """Read the histories of concepts into a page."""
        if keywords:
            self._pages.take(place)
            page.keep(_file_format.histories_of(file, page, keywords, location.path))
            self._keep(place, page, location)

    def _append(self, place: Place, make: _Make) -> int:
        """Append the facts that `make` returns; `make` gets the page and a function that reads all facts of the file."""
        with self._turn():
            page, location = self._cached(place)
            synced = location.folders in self._synced
            self._synced.discard(location.folders)  # until nothing has failed
            with _durable_files.typed_errors("write", location.path), self._locked(make=True):
                added = self._append_in(place, page if synced else None, location, make, synced=synced)
            self._synced.add(location.folders)
            return added

    def _append_in(self, place: Place, page: Page | None, location: FileLocation, make: _Make, *, synced: bool) -> int:
        if page is not None:
            # The file was opened before without following links, and is unchanged, so the folders need not be opened.
            with _durable_files.opened(location.path, write=True) as file:
                if file is not None and page.is_of(_file_format.stamp_of(os.fstat(file))):
                    return self._append_to(file, place, location, make)
        with _durable_files.opened_folder(self.root, location.folders, make=True) as folder:
            _durable_files.remove_leftover(location.name, folder)
            if not synced:
                _durable_files.sync_names(self.root, location.folders)
            with _durable_files.opened(location.name, folder, write=True) as file:
                if file is not None:
                    os.fsync(folder)  # the process that replaced the file may have died before its name was durable
                    return self._append_to(file, place, location, make)
            page = Page()
            lines = _file_format.new_file(place, make(page, list))
            page.add(lines, _file_format.stamp_of(_durable_files.replace(location.name, folder, lines.data)))
            self._keep(place, page, location)
            return len(lines.facts)

    def _append_to(self, file: int, place: Place, location: FileLocation, make: _Make) -> int:
        page = self._read(file, place, location)
        facts = make(page, lambda: _file_format.read_lines(file, place, location.path).facts)
        if facts and page.stamp is not None:
            lines = _file_format.lines(facts, page.crc)
            if page.unended:
                lines = lines._replace(data=b"\n" + lines.data)
            self._pages.take(place)
            if page.torn or len(facts) > 1:
                # Only single lines are appended, so that a power loss can only tear the last line.
                stat = self._rewrite(location, _durable_files.read_from(file, 0), page, lines)
            else:
                stat = _durable_files.append(file, lines.data, page.end, page.stamp.size, location.path)
            page.add(lines, _file_format.stamp_of(stat))
            self._keep(place, page, location)
        return len(facts)

    def _rewrite(self, location: FileLocation, data: bytes, page: Page, lines: FactLines) -> os.stat_result:
        """Write a whole file with added lines, after moving a torn line to another file."""
        _, name, path = location
        torn = data[page.end :]
        with _durable_files.opened_folder(self.root, location.folders) as folder:
            if page.torn:
                aside = _durable_files.torn_name(name, torn)
                _durable_files.replace(aside, folder, torn)
                _log.warning("a torn line was moved from the end of %r to %r beside it", path, aside)
            return _durable_files.replace(name, folder, data[: page.end] + lines.data)

    def _walk(self, owner: str | None, scope: Scope | None, subject: Subject | None) -> Generator[FileLocation]:
        wanted = (
            None if owner is None else {_owner_folder(owner)},
            {scope.kind.value} if scope else {kind.value for kind in ScopeKind},
            {_durable_files.file_name(scope.name)} if scope else None,
        )
        file = _durable_files.file_name(subject.name) + _SUFFIX if subject else None
        for folders in self._folders((), wanted):
            for name in self._names(folders):
                whole = _durable_files.leftover_of(name) or name
                if "~" in whole and whole.endswith(_SUFFIX) and file in (None, whole):
                    yield FileLocation(folders, name, "/".join((self.root, *folders, name)))

    def _folders(self, above: tuple[str, ...], wanted: tuple[set[str] | None, ...]) -> Generator[tuple[str, ...]]:
        if not wanted:
            yield above
            return
        here, *below = wanted
        for name in self._names(above):
            if name in here if here else "~" in name or (not above and name == _NO_OWNER):
                yield from self._folders((*above, name), tuple(below))

    def _names(self, folders: tuple[str, ...]) -> list[str]:
        try:
            with _durable_files.opened_folder(self.root, folders) as folder:
                return sorted(os.listdir(folder))  # noqa: PTH208 (a Path cannot be relative to an open folder)
        except FileNotFoundError:
            return []

    def _prune(self, folders: tuple[str, ...]) -> None:
        for depth in range(len(folders), 0, -1):
            with _durable_files.opened_folder(self.root, folders[: depth - 1]) as above:
                try:
                    os.rmdir(folders[depth - 1], dir_fd=above)
                except OSError:
                    return  # the folder is not empty
                os.fsync(above)


def _lines(file: int, place: Place, path: str, page: Page | None = None) -> FactLines:
    """Read the lines of a file, and report a torn one."""
    found = _file_format.read_lines(file, place, path, page)
    if found.torn:
        line = len(found.facts) + (page.facts if page else 0) + 2
        _log.warning("line %d of %r is damaged: %s; the lines before it are used", line, path, found.torn)
    return found


def _locate(root: str, place: Place) -> FileLocation:
    owner, scope, subject = place
    folders = (_owner_folder(owner), scope.kind.value, _durable_files.file_name(scope.name))
    name = _durable_files.file_name(subject) + _SUFFIX
    return FileLocation(folders, name, "/".join((root, *folders, name)))


def _owner_folder(owner: str) -> str:
    return _durable_files.file_name(owner) if owner else _NO_OWNER


def _forget_in(folder: int, location: FileLocation, concept: Concept | None, value: str | None) -> tuple[int, int]:
    """Remove a concept (None: all), or a value of it, from a file. Return the number of facts and of bytes that were removed."""
    _, name, _ = location
    if _durable_files.leftover_of(name):
        with suppress(FileNotFoundError):  # rewriting the file has removed it
            _durable_files.erase(name, folder)
        return 0, 0
    with _durable_files.opened(name, folder) as file:
        if file is None:
            return 0, 0
        size = os.fstat(file).st_size
        if concept is None:
            removed, rest = _file_format.count(file), b""
        else:
            left = _left_in(folder, location, concept, value)
            if left is None:
                return 0, 0
            place, removed, kept = left
            rest = _file_format.new_file(place, kept).data if kept else b""
    if rest:
        _durable_files.replace(name, folder, rest)
    else:
        _durable_files.erase(name, folder)
    return removed, size - len(rest) if value is None else erased_bytes(removed, value)


def _left_in(
    folder: int, location: FileLocation, concept: Concept, value: str | None
) -> tuple[Place, int, list[FactVersion]] | None:
    """Return a file without a concept, or a value of it: its place, the number of removed facts, and the remaining facts.

    The result is None if nothing is removed.

    Raises:
        ValueError: `value` is given, and the concept has one value.
    """
    if _durable_files.leftover_of(location.name):
        return None
    with _durable_files.opened(location.name, folder) as file:
        if file is None:
            return None
        place = _file_format.read_place_of(file, location.path)
        found = _lines(file, place, location.path)
    about = [fact for fact in found.facts if fact.concept.keyword == concept.keyword]
    others = [fact for fact in found.facts if fact.concept.keyword != concept.keyword]
    if value is None:
        removed, kept = len(about), others
    else:
        removed = sum(value in fact.values for fact in about)
        left = {fact.version: fact for fact in without_value(about, value)}
        kept = [
            left.pop(fact.version, fact) if fact.concept.keyword == concept.keyword else fact for fact in found.facts
        ]
        kept += left.values()
    if kept and not removed and not found.torn:  # a torn line may be about any concept, so it is erased with each
        return None
    return place, removed, kept
