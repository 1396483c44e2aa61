"""Facts sealed on the disk: `EncryptedMemoryProvider`."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from graphagent.errors import StoreError
from graphagent.memory.facts._durable_files import LOCK_FILE, SEALED_FILE
from graphagent.memory.facts._provider_store import StoreMemoryProvider
from graphagent.store import EncryptedStore, SqliteStore

if TYPE_CHECKING:
    from graphagent.memory.facts._types import Concept, Fact, Scope, Subject
    from graphagent.store import KeySource, Receipt


class EncryptedMemoryProvider:
    """Keeps facts in an encrypted SQLite file, `facts.db`, under a folder; no name and no value stands there readable.

    It is a StoreMemoryProvider over an EncryptedStore over a SqliteStore. Each owner, scope and subject has a data key of its
    own, which forgetting destroys. What is known of the facts that were used last is kept in memory, about `cache_bytes` at
    most; the rest is read, opened and checked again when it is used. The key is whatever EncryptedStore takes: 32 bytes, base64 text of 32 bytes, `env:NAME`,
    `file:PATH` or a callable.

    Every method raises WrongKeyError where the file was sealed with another key, and DamagedStoreError where it was tampered
    with or is corrupt.

    Raises:
        ValueError: the key is none, or `cache_bytes` is no number of bytes.
        StoreError: the folder is a FileMemoryProvider's.
    """

    def __init__(self, root: str | os.PathLike[str], *, key: KeySource, cache_bytes: int = 64 * 2**20) -> None:
        if type(cache_bytes) is not int or cache_bytes < 0:
            raise ValueError(f"cache_bytes={cache_bytes!r} is no number of bytes; it is an int of 0 or more")
        if (Path(root) / LOCK_FILE).exists() and not (Path(root) / SEALED_FILE).exists():
            raise StoreError(
                f"{os.fspath(root)!r} holds plain facts; open it with FileMemoryProvider, or take another folder"
            )
        file = SqliteStore(Path(root) / SEALED_FILE)
        self._store = EncryptedStore(file, key, cache_bytes=cache_bytes - cache_bytes // 4)
        self._facts = StoreMemoryProvider(self._store, cache_bytes=cache_bytes // 4)

    def __repr__(self) -> str:
        return f"EncryptedMemoryProvider({self._store!r})"

    async def save(self, fact: Fact, subject: Subject, scope: Scope, *, owner: str = "") -> None:
        """Keep a fact as the next version of its concept; it is on the disk when this returns."""
        await self._facts.save(fact, subject, scope, owner=owner)

    async def load(self, concept: Concept, subject: Subject, scope: Scope, *, owner: str = "") -> list[Fact]:
        """Give what is known of a concept: the last SingleFact, or one MultipleFacts of all values."""
        return await self._facts.load(concept, subject, scope, owner=owner)

    async def load_all(self, subject: Subject, scope: Scope, *, owner: str = "") -> list[Fact]:
        """Give what is known of every concept, in the order in which the concepts were first saved."""
        return await self._facts.load_all(subject, scope, owner=owner)

    async def load_by_description(
        self, description: str, subject: Subject, scope: Scope, *, owner: str = ""
    ) -> list[Fact]:
        """Give what is known of the concepts whose description, as last saved, contains a text, in any case."""
        return await self._facts.load_by_description(description, subject, scope, owner=owner)

    async def history(self, concept: Concept, subject: Subject, scope: Scope, *, owner: str = "") -> list[Fact]:
        """Give every version of a concept's facts as it was saved, the newest first."""
        return await self._facts.history(concept, subject, scope, owner=owner)

    async def forget(
        self,
        *,
        concept: Concept | None = None,
        subject: Subject | None = None,
        scope: Scope | None = None,
        owner: str = "",
        everything: bool = False,
    ) -> Receipt:
        """Remove every version of all facts that fit what is given, of one owner, and the data keys of what is empty then.

        With `everything`, that is all that the owner has.

        Raises:
            ValueError: neither a concept, a subject, a scope nor `everything` is given, or one beside `everything`.
        """
        return await self._facts.forget(
            concept=concept, subject=subject, scope=scope, owner=owner, everything=everything
        )

    def export(self, *, owner: str | None = None) -> AsyncGenerator[dict[str, object]]:
        """Give every version of every fact of one owner, or of all, in the clear; of each concept in the order of saving."""
        return self._facts.export(owner=owner)

    async def import_(self, records: Sequence[dict[str, object]]) -> int:
        """Keep what `export` gave, in one commit; facts that are there already (same id) are left. Gives how many were new.

        Raises:
            ValueError: a record is not one of an export; nothing is kept.
        """
        return await self._facts.import_(records)

    async def verify(self) -> int:
        """Read, open and check everything. Gives the number of facts, all versions counted."""
        return await self._facts.verify()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self._facts.__aexit__(kind, error, trace)
        await self._store.__aexit__(kind, error, trace)
