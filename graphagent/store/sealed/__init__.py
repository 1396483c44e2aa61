"""Encryption as a store around a store."""

from __future__ import annotations

from graphagent.store.sealed._key_sources import KeySource as KeySource
from graphagent.store.sealed._key_sources import new_key as new_key
from graphagent.store.sealed._store import EncryptedStore as EncryptedStore
