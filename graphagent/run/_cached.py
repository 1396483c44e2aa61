"""Outputs of nodes and results of tools in the store of a run, where later runs of the same owner find them."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any, final

import orjson

from graphagent.codec._blobs import HeldBlobs
from graphagent.codec._values import decode, encode
from graphagent.errors import FeatureError
from graphagent.log._header import header_key
from graphagent.store._cache import Cache

if TYPE_CHECKING:
    from graphagent.codec._values import Json
    from graphagent.graph import CachePolicy
    from graphagent.run._agent_run import AgentRun

_FORMAT = 1
"""The format of stored values; a part of the hash, so that values of another format are not found."""


def no_store(what: str) -> FeatureError:
    """Return the error of a cached node in a run without a store, with the line to write."""
    return FeatureError(
        f"{what} is cached, and the agent has no store to keep it in; write Agent(strategy, store=SqliteStore('runs.db')), "
        f"or store=MemoryStore() for this process alone"
    )


@final
class CacheEntry:
    """The place of one value in the store of a run: the value computed from one input for one owner."""

    __slots__ = ("_cache", "_head", "_name")

    def __init__(self, run: AgentRun, policy: CachePolicy, identity: Json, value: Any, kind: Any, *, what: str) -> None:
        """Find the place of what `identity` computes from a value of a declared type; errors name it as `what`.

        Raises:
            SerializationError: the input cannot be stored.
        """
        if run.log.store is None:
            raise no_store(what)
        self._cache = Cache(run.log.store, "run", run.owner, policy.ttl)
        self._head = header_key(run.owner, run.session.run_id)
        blobs = HeldBlobs()
        parts = [_FORMAT, identity, policy.version, encode(value, blobs, kind)]
        # In full, since the hashes of blobs are too short to tell apart inputs that someone chose to be mistaken.
        parts.append([hashlib.sha256(data).hexdigest() for data in blobs.held.values()])
        self._name = hashlib.sha256(orjson.dumps(parts)).hexdigest()

    async def get(self, kind: Any) -> tuple[Any] | None:
        """Return the stored value; None if there is none, it has expired, or it cannot be read as that type.

        Raises:
            StoreError: the store cannot be read.
        """
        data = await self._cache.get(self._name)
        if data is None:
            return None
        try:
            value, blobs = orjson.loads(data)
            return (decode(value, HeldBlobs({name: base64.b64decode(text) for name, text in blobs.items()}), kind),)
        except (AttributeError, TypeError, ValueError):
            return None

    async def put(self, value: Any, kind: Any) -> None:
        """Store a value, unless the run was forgotten meanwhile: then what it knew is not kept.

        Raises:
            SerializationError: it cannot be stored.
            StoreError: the store cannot be written.
        """
        blobs = HeldBlobs()
        encoded = encode(value, blobs, kind)
        record = [encoded, {name: base64.b64encode(data).decode() for name, data in blobs.held.items()}]
        await self._cache.put(self._name, orjson.dumps(record), self._head)
