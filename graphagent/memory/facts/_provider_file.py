"""`FileMemoryProvider`: facts in files that people can read."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Never, Self

from anyio import to_thread

from graphagent._concurrency import Worker
from graphagent._options import check_path
from graphagent.errors import StoreError
from graphagent.memory._byte_cache import check_cache_bytes
from graphagent.memory.facts._file_folder import FactFiles
from graphagent.memory.facts._json import export_record, read_export
from graphagent.memory.facts._types import (
    Concept,
    Fact,
    Scope,
    Subject,
    check_filter,
    check_given,
    checked_owner,
    folded,
)

if TYPE_CHECKING:
    from graphagent.memory.facts._file_format import Page
    from graphagent.memory.facts._json import Place
    from graphagent.store import Receipt


class FileMemoryProvider:
    """Stores facts as lines of JSON in a folder, readable with any editor.

    There is one file for each owner, scope and subject: `<owner>/<kind of scope>/<scope>/<subject>.jsonl`. A save writes one
    line, which is on the disk when it returns, at a cost that does not grow with the number of facts. Any number of providers
    and processes may use one folder at the same time. The contents of the files that were used last stay in memory, up to
    `cache_bytes` in all (but always those of the last file), and are checked against the disk at every load. Names and values
    are readable on the disk; EncryptedMemoryProvider encrypts them. The file locks of POSIX systems are needed.

    Every method raises StoreError if a file cannot be read or written, and DamagedStoreError, which names file and line,
    if a line is damaged. A damaged last line, as a power loss may leave it, is ignored with a warning in the log; the next
    save moves it to a file of its own.

    Raises:
        TypeError: `root` is no path.
        ValueError: `root` names no folder, or `cache_bytes` is not a number of bytes.
        StoreError: this system lacks the file locks of POSIX.
    """

    def __init__(self, root: str | os.PathLike[str], *, cache_bytes: int = 64 * 2**20) -> None:
        check_path("root=", root, "'facts'")
        check_cache_bytes(cache_bytes)
        if sys.platform == "win32":
            raise StoreError(
                "FileMemoryProvider needs the locks of POSIX; use StoreMemoryProvider(SqliteStore(path)) here"
            )
        self._files = FactFiles(str(Path(root).absolute()), cache_bytes)
        self._writer = Worker()

    def __repr__(self) -> str:
        return f"FileMemoryProvider({self._files.root!r})"

    async def save(self, fact: Fact, subject: Subject, scope: Scope, *, owner: str = "") -> None:
        """Save a fact as the next version of its concept. It is on the disk when this returns."""
        check_given("save(fact, subject, scope)", fact=fact, subject=subject, scope=scope)
        place = (checked_owner(owner), scope, subject.name)
        await self._writer.run(lambda: self._files.save(place, fact))

    async def load(self, concept: Concept, subject: Subject, scope: Scope, *, owner: str = "") -> list[Fact]:
        """Return the current fact about a concept, the last SingleFact or one MultipleFacts of all values, as a list of one or none."""
        check_given("load(concept, subject, scope)", concept=concept, subject=subject, scope=scope)
        fact = (await self._page((checked_owner(owner), scope, subject.name))).fact(concept.keyword)
        return [fact] if fact else []

    async def load_all(self, subject: Subject, scope: Scope, *, owner: str = "") -> list[Fact]:
        """Return the current facts about all concepts, in the order in which the concepts were first saved."""
        check_given("load_all(subject, scope)", subject=subject, scope=scope)
        return (await self._page((checked_owner(owner), scope, subject.name))).all()

    async def load_by_description(
        self, description: str, subject: Subject, scope: Scope, *, owner: str = ""
    ) -> list[Fact]:
        """Return the current facts about concepts whose description, as last saved, contains a text; case is ignored."""
        check_given(
            "load_by_description(description, subject, scope)", description=description, subject=subject, scope=scope
        )
        wanted = folded(description)
        found = await self.load_all(subject, scope, owner=owner)
        return [fact for fact in found if wanted in folded(fact.concept.description)]

    async def history(self, concept: Concept, subject: Subject, scope: Scope, *, owner: str = "") -> list[Fact]:
        """Return every version of the facts about a concept as it was saved, the newest first.

        The whole file is read, and the lines that may be about the concept are decoded.
        """
        check_given("history(concept, subject, scope)", concept=concept, subject=subject, scope=scope)
        place = checked_owner(owner), scope, subject.name
        return (await to_thread.run_sync(self._files.history, place, concept.keyword))[::-1]

    async def forget(
        self,
        *others: Never,
        concept: Concept | None = None,
        subject: Subject | None = None,
        scope: Scope | None = None,
        owner: str = "",
        everything: bool = False,
    ) -> Receipt:
        """Erase every version of all facts of one owner that match the arguments; with `everything`, all facts of the owner.

        Files and folders that are empty then are removed too, and with them the names; so are torn lines of the same subjects,
        whatever they are about. The removed bytes are overwritten; copies, snapshots and the disk's own bookkeeping are out of
        reach.

        Raises:
            TypeError: something is given by position.
            ValueError: neither a concept, a subject, a scope nor `everything` is given, or one besides `everything`.
        """
        check_filter(concept, subject, scope, everything=everything, by_position=others)
        return await to_thread.run_sync(self._files.forget, concept, subject, scope, checked_owner(owner))

    async def export(self, *, owner: str | None = None) -> AsyncGenerator[dict[str, object]]:
        """Yield every version of every fact of one owner, or of all; those of each scope and subject in the order of saving."""
        name = None if owner is None else checked_owner(owner)
        for location in await to_thread.run_sync(self._files.locations, name):
            for place, fact in await to_thread.run_sync(self._files.read, location):
                yield export_record(place, fact)

    async def import_(self, records: Sequence[dict[str, object]]) -> int:
        """Save the records of an export, but not facts that are stored already (by id). Return how many were new.

        If a concept has facts already, new ones come after them, with the versions that follow. All existing files are read and
        checked before the first is written, so nothing is saved if one is damaged. If the disk fails or the process ends in
        between, some of the facts are saved, each of them whole; importing the same records again adds the others.

        Raises:
            ValueError: a record is not one of an export; nothing was saved.
        """
        places = await read_export(records)
        for place in places:
            await to_thread.run_sync(self._files.facts, place)
        added = 0
        for place, facts in places.items():
            added += await to_thread.run_sync(self._files.add, place, facts)
        return added

    async def verify(self) -> int:
        """Read and check every line of every file. Return the number of facts, all versions counted.

        Raises:
            StoreNotFoundError: there is no folder; none is made.
            DamagedStoreError: a line is damaged; or a last line is torn, or was moved to another file because it was torn: then
                everything else is undamaged.
        """
        return await to_thread.run_sync(self._files.verify)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._files.close()

    async def _page(self, place: Place) -> Page:
        page = self._files.current(place)
        return await to_thread.run_sync(self._files.page, place) if page is None else page
