"""`FileMemoryProvider`: facts in files that people can read."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self

from anyio import to_thread

from graphagent._concurrency import Worker, turn
from graphagent._options import check_path
from graphagent.errors import StoreError
from graphagent.memory._byte_cache import check_cache_bytes
from graphagent.memory.facts._arguments import check_filter, check_given
from graphagent.memory.facts._file_folder import FactFiles
from graphagent.memory.facts._json import export_record, read_export
from graphagent.memory.facts._known import Moment, recorded_by
from graphagent.memory.facts._types import (
    Concept,
    Fact,
    FactVersion,
    Scope,
    Subject,
    Withdrawal,
    checked_owner,
    folded,
)

if TYPE_CHECKING:
    from datetime import datetime

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
        TypeError: `root` is not a path.
        ValueError: `root` is not the path of a folder, or `cache_bytes` is not a number of bytes.
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

    async def withdraw(self, withdrawal: Withdrawal, subject: Subject, scope: Scope, *, owner: str = "") -> None:
        """Take back values of a concept with several, as its next version. It is on the disk when this returns.

        Raises:
            ValueNotFoundError: a value is not known.
            ValueError: the concept has one value.
        """
        check_given("withdraw(withdrawal, subject, scope)", withdrawal=withdrawal, subject=subject, scope=scope)
        place = (checked_owner(owner), scope, subject.name)
        await self._writer.run(lambda: self._files.withdraw(place, withdrawal))

    async def load(
        self, concept: Concept, subject: Subject, scope: Scope, *, owner: str = "", as_of: datetime | None = None
    ) -> list[Fact]:
        """Return the known fact about a concept, the last SingleFact that holds or one MultipleFacts of all values, or an empty list.

        If that SingleFact is untrusted, the last one that holds and is not untrusted comes before it.

        Args:
            concept: The concept, found by its keyword.
            subject: The subject.
            scope: The scope.
            owner: The owner.
            as_of: The moment at which the facts hold, with a time zone, by all that is known today; by default the current time. For a
                moment before the last version was recorded, the first load reads the whole file.

        Raises:
            ValueError: `as_of` has no time zone.
        """
        check_given("load(concept, subject, scope)", concept=concept, subject=subject, scope=scope)
        place = (checked_owner(owner), scope, subject.name)
        moment = None if as_of is None else Moment(as_of)
        page = self._files.current(place)
        found = None if page is None else page.facts_of(concept.keyword, moment)
        return (
            found if found is not None else await to_thread.run_sync(self._files.load, place, concept.keyword, moment)
        )

    async def load_all(
        self, subject: Subject, scope: Scope, *, owner: str = "", as_of: datetime | None = None
    ) -> list[Fact]:
        """Return the known facts about all concepts, each as `load` does, in the order in which the concepts were first saved."""
        check_given("load_all(subject, scope)", subject=subject, scope=scope)
        place = (checked_owner(owner), scope, subject.name)
        moment = None if as_of is None else Moment(as_of)
        page = self._files.current(place)
        found = None if page is None else page.all(moment)
        return found if found is not None else await to_thread.run_sync(self._files.load, place, None, moment)

    async def load_by_description(
        self, description: str, subject: Subject, scope: Scope, *, owner: str = "", as_of: datetime | None = None
    ) -> list[Fact]:
        """Return the known facts about concepts whose description, as last saved, contains a text; case is ignored."""
        check_given(
            "load_by_description(description, subject, scope)", description=description, subject=subject, scope=scope
        )
        wanted = folded(description)
        at: dict[str, Any] = {} if as_of is None else {"as_of": as_of}
        found = await self.load_all(subject, scope, owner=owner, **at)
        return [fact for fact in found if wanted in folded(fact.concept.description)]

    async def history(
        self, concept: Concept, subject: Subject, scope: Scope, *, owner: str = "", at: datetime | None = None
    ) -> list[FactVersion]:
        """Return every version of the facts about a concept as it was recorded, withdrawals among them, the newest first.

        The first time, the whole file is read, and the lines that may be about the concept are decoded.

        Args:
            concept: The concept, found by its keyword.
            subject: The subject.
            scope: The scope.
            owner: The owner.
            at: A moment with a time zone; only versions recorded by then are returned.

        Raises:
            ValueError: `at` has no time zone.
        """
        check_given("history(concept, subject, scope)", concept=concept, subject=subject, scope=scope)
        place = checked_owner(owner), scope, subject.name
        by = None if at is None else Moment(at, "at=")
        return recorded_by((await to_thread.run_sync(self._files.history, place, concept.keyword))[::-1], by)

    async def forget(
        self,
        *others: Never,
        concept: Concept | None = None,
        subject: Subject | None = None,
        scope: Scope | None = None,
        value: str | None = None,
        owner: str = "",
        everything: bool = False,
    ) -> Receipt:
        """Erase every version of all facts of one owner that match the arguments; with `everything`, all facts of the owner.

        With `value`, only this value of the concept is erased, from every version, and a Withdrawal without values is added. Files and folders that are empty then are removed too, and with them the names; so are torn lines of the same subjects,
        whatever they are about. The removed bytes are overwritten; copies, snapshots and the disk's own bookkeeping are out of
        reach.

        Raises:
            TypeError: something is given by position.
            ValueError: neither a concept, a subject, a scope nor `everything` is given, or one besides `everything`; or a value without
                its concept, or of a concept with one value.
        """
        check_filter(concept, subject, scope, value, everything=everything, by_position=others)
        return await to_thread.run_sync(self._files.forget, concept, subject, scope, checked_owner(owner), value)

    async def export(self, *, owner: str | None = None) -> AsyncGenerator[dict[str, object]]:
        """Yield every version of every fact of one owner, or of all; those of each scope and subject in the order of saving."""
        name = None if owner is None else checked_owner(owner)
        for location in await to_thread.run_sync(self._files.locations, name):
            for number, (place, fact) in enumerate(await to_thread.run_sync(self._files.read, location), 1):
                await turn(number)
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
            StoreNotFoundError: the folder does not exist; it is not created.
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
