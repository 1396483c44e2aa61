"""`EncryptedMemoryProvider`: facts in an encrypted file."""

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
    """Stores facts in an encrypted SQLite file, `facts.db`, in a folder. The file contains no readable name and no readable value.

    It is a StoreMemoryProvider over an EncryptedStore over a SqliteStore. Each owner, scope and subject has its own data key,
    which forgetting destroys. The facts that were used last stay in memory, up to about `cache_bytes`; others are read,
    decrypted and checked each time. The key is anything that EncryptedStore accepts: 32 bytes, base64 text of 32 bytes,
    `env:NAME`, `file:PATH` or a callable.

    Every method raises WrongKeyError if the file was encrypted with another key, and DamagedStoreError if it was tampered
    with or is corrupt.

    Raises:
        ValueError: the key is not valid, or `cache_bytes` is not a number of bytes.
        StoreError: the folder belongs to a FileMemoryProvider.
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
        """Save a fact as the next version of its concept. It is on the disk when this returns."""
        await self._facts.save(fact, subject, scope, owner=owner)

    async def load(self, concept: Concept, subject: Subject, scope: Scope, *, owner: str = "") -> list[Fact]:
        """Return the current fact about a concept, the last SingleFact or one MultipleFacts of all values, as a list of one or none."""
        return await self._facts.load(concept, subject, scope, owner=owner)

    async def load_all(self, subject: Subject, scope: Scope, *, owner: str = "") -> list[Fact]:
        """Return the current facts about all concepts, in the order in which the concepts were first saved."""
        return await self._facts.load_all(subject, scope, owner=owner)

    async def load_by_description(
        self, description: str, subject: Subject, scope: Scope, *, owner: str = ""
    ) -> list[Fact]:
        """Return the current facts about concepts whose description, as last saved, contains a text; case is ignored."""
        return await self._facts.load_by_description(description, subject, scope, owner=owner)

    async def history(self, concept: Concept, subject: Subject, scope: Scope, *, owner: str = "") -> list[Fact]:
        """Return every version of the facts about a concept as it was saved, the newest first."""
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
        """Erase every version of all facts of one owner that match the arguments, and the data keys that are no longer used.

        With `everything`, all facts of the owner are erased.

        Raises:
            ValueError: neither a concept, a subject, a scope nor `everything` is given, or one besides `everything`.
        """
        return await self._facts.forget(
            concept=concept, subject=subject, scope=scope, owner=owner, everything=everything
        )

    def export(self, *, owner: str | None = None) -> AsyncGenerator[dict[str, object]]:
        """Yield every version of every fact of one owner, or of all, decrypted; those of each concept in the order of saving."""
        return self._facts.export(owner=owner)

    async def import_(self, records: Sequence[dict[str, object]]) -> int:
        """Save the records of an export, in one commit, but not facts that are stored already (by id). Return how many were new.

        Raises:
            ValueError: a record is not one of an export; nothing was saved.
        """
        return await self._facts.import_(records)

    async def verify(self) -> int:
        """Read, decrypt and check everything. Return the number of facts, all versions counted."""
        return await self._facts.verify()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self._facts.__aexit__(kind, error, trace)
        await self._store.__aexit__(kind, error, trace)
