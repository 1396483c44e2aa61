"""Bytes under keys: stores, and encryption as a store around a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent._lazy import lazy as _lazy
from graphagent.store._claims import Claimed as Claimed
from graphagent.store._items import Change as Change
from graphagent.store._items import Delete as Delete
from graphagent.store._items import DeleteAll as DeleteAll
from graphagent.store._items import Exists as Exists
from graphagent.store._items import Item as Item
from graphagent.store._items import Key as Key
from graphagent.store._items import Put as Put
from graphagent.store._items import Receipt as Receipt

if TYPE_CHECKING:
    from graphagent.store._backup import BackupReport as BackupReport
    from graphagent.store._backup import backup as backup
    from graphagent.store._backup import restore as restore
    from graphagent.store._copy import copy_store as copy_store
    from graphagent.store._memory import MemoryStore as MemoryStore
    from graphagent.store.sealed._key_sources import KeySource as KeySource
    from graphagent.store.sealed._key_sources import Passphrase as Passphrase
    from graphagent.store.sealed._key_sources import new_key as new_key
    from graphagent.store.sealed._key_sources import new_recovery_key as new_recovery_key
    from graphagent.store.sealed._keys import KeyKind as KeyKind
    from graphagent.store.sealed._keys import RotationProgress as RotationProgress
    from graphagent.store.sealed._keys import StoreKey as StoreKey
    from graphagent.store.sealed._keys import StoreKeys as StoreKeys
    from graphagent.store.sealed._store import EncryptedStore as EncryptedStore
    from graphagent.store.sqlite._store import SqliteStore as SqliteStore
else:
    __getattr__ = _lazy(
        __name__,
        {
            "graphagent.store._backup": ("BackupReport", "backup", "restore"),
            "graphagent.store._copy": ("copy_store",),
            "graphagent.store._memory": ("MemoryStore",),
            "graphagent.store.sealed._key_sources": ("KeySource", "Passphrase", "new_key", "new_recovery_key"),
            "graphagent.store.sealed._keys": ("KeyKind", "RotationProgress", "StoreKey", "StoreKeys"),
            "graphagent.store.sealed._store": ("EncryptedStore",),
            "graphagent.store.sqlite._store": ("SqliteStore",),
        },
    )
