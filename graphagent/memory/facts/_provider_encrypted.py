"""`EncryptedMemoryProvider`: facts in an encrypted file."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from graphagent._options import check_path
from graphagent.errors import StoreError
from graphagent.memory._byte_cache import check_cache_bytes
from graphagent.memory.facts._file_folder import SEALED_FILE
from graphagent.memory.facts._provider_store import StoreMemoryProvider
from graphagent.store import EncryptedStore, SqliteStore
from graphagent.store import _durable_files as durable_files

if TYPE_CHECKING:
    from graphagent.protocols import Anchor
    from graphagent.store import KeySource, StoreKeys


class EncryptedMemoryProvider(StoreMemoryProvider):
    """Stores facts in an encrypted SQLite file, `facts.db`, in a folder. Names and values are not readable in the file.

    It is a StoreMemoryProvider over an EncryptedStore over a SqliteStore, which `async with` closes. Each owner, scope and
    subject has its own data key, which forgetting destroys. The most recently used facts stay in memory, up to about
    `cache_bytes`; others are read, decrypted and checked each time. The key is anything that EncryptedStore accepts: see `KeySource`.
    With `anchor`, an older copy of the file is refused, as by an EncryptedStore.

    Every method raises WrongKeyError if the file was encrypted with another key, and DamagedStoreError if it was tampered
    with or is corrupt.

    Raises:
        TypeError: `root` is not a path.
        ValueError: the key is not valid, `root` is not the path of a folder, `cache_bytes` is not a number of bytes, or an EncryptedStore
            refuses `anchor` or `anchor_every`.
        KeySourceError: the variable or the file that `key` names has no key.
        StoreError: the folder belongs to a FileMemoryProvider.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        key: KeySource,
        cache_bytes: int = 64 * 2**20,
        anchor: str | os.PathLike[str] | Anchor | None = None,
        anchor_every: float = 0.0,
    ) -> None:
        check_path("root=", root, "'facts'")
        check_cache_bytes(cache_bytes)
        names = (os.path.join(root, durable_files.LOCK_FILE), os.path.join(root, SEALED_FILE))  # noqa: PTH118  a Path raises, see below
        plain, sealed = map(os.path.exists, names)  # if the folder cannot be entered, the first use raises
        if plain and not sealed:
            raise StoreError(
                f"{os.fspath(root)!r} holds plain facts; open it with FileMemoryProvider, or use another folder"
            )
        own = cache_bytes // 4
        self._sealed = EncryptedStore(
            SqliteStore(Path(root) / SEALED_FILE),
            key,
            cache_bytes=cache_bytes - own,
            anchor=anchor,
            anchor_every=anchor_every,
        )
        super().__init__(self._sealed, cache_bytes=own)

    @property
    def keys(self) -> StoreKeys:
        """The keys that open the file: list, add, remove, rotate and destroy them."""
        return self._sealed.keys

    async def __aenter__(self) -> Self:
        await self._sealed.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await super().__aexit__(kind, error, trace)
        await self._sealed.aclose()
