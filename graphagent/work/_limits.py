"""How many runs of a queue, or of an owner, are executed at once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from graphagent import _clock
from graphagent.log._lease import Lease
from graphagent.store._claims import claims_of

if TYPE_CHECKING:
    from graphagent.protocols import Store
    from graphagent.store import Key

_ROOM = "places"
"""The first segment of the keys of the claims. There are as many for a queue, or an owner, as runs may be executed at once."""


class Limits:
    """Lets so many runs begin. In a store with claims of its own, all workers of the store count together; else this one counts alone."""

    def __init__(self, store: Store, queues: Mapping[str, int], each_owner: int | None) -> None:
        self._store, self._queues, self._each_owner = store, queues, each_owner
        self._running: Counter[tuple[str, str]] = Counter()

    def are_full(self, queue: str, owner: str) -> bool:
        """Return whether this worker alone executes as many runs as all may."""
        return any(self._running[name] >= most for name, most in self._of(queue, owner))

    def begin(self, queue: str, owner: str) -> None:
        """Count a run that this worker is to execute."""
        self._running.update(name for name, _ in self._of(queue, owner))

    def end(self, queue: str, owner: str) -> None:
        """Count it no more."""
        self._running.subtract(name for name, _ in self._of(queue, owner))

    async def enter(self, queue: str, owner: str) -> AsyncExitStack | None:
        """Return an object that gives the places of a run among those of all workers back when it is closed; None if no place is free.

        Raises:
            StoreError: the store cannot be asked.
        """
        async with AsyncExitStack() as places:
            if claims_of(self._store) is not None:
                for name, most in self._of(queue, owner):
                    place = await self._place((_ROOM, *name), most)
                    if place is None:
                        return None
                    places.push_async_callback(place.release)
            return places.pop_all()
        return None

    def _of(self, queue: str, owner: str) -> list[tuple[tuple[str, str], int]]:
        found = [(("queue", queue), self._queues[queue])] if queue in self._queues else []
        return found if self._each_owner is None else [*found, (("owner", owner), self._each_owner)]

    async def _place(self, key: Key, most: int) -> Lease | None:
        """Claim one of so many places; None if all are taken."""
        claims = claims_of(self._store)
        assert claims is not None
        keys = [(*key, number) for number in range(most)]
        held = await claims.holders(keys)
        free = [each for each in keys if each not in held or held[each].lapsed]
        random.shuffle(free)
        for each in free:
            lease = await Lease.take(self._store, each, _clock.new_id(), after=0)
            if lease is not None:
                return lease
        return None
