"""News for the pages with lists: how many runs changed. The lists themselves stay as they are while somebody reads them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, final

import anyio

from graphagent.history import RunWatch

if TYPE_CHECKING:
    from graphagent.inspect._chosen import Chosen
    from graphagent.protocols import Store
    from graphagent.run import RunHeader

_PAUSE = 1.0
"""Seconds between two looks at the store, however many pages ask."""


@final
class Changed:
    """The runs that changed since pages were made. It serves all pages, and reads nothing while no page is open."""

    def __init__(self, store: Store, owner: str | None) -> None:
        self._watch = RunWatch(store, owner=owner)
        self.number = 0
        """The number of changes so far."""
        self._heads: dict[tuple[str, str], tuple[int, RunHeader]] = {}
        """The runs that changed, each with the number of its last change."""
        self._going: dict[tuple[str, str], RunHeader] = {}
        self._due = 0.0
        self._lock = anyio.Lock()

    def seen(self, heads: Iterable[RunHeader]) -> int:
        """Note the runs that a page shows; return the number after which changes are new to the page."""
        known = list(heads)
        self._going.update({(each.owner, each.run_id): each for each in known if each.status == "running" and not each.parent})  # fmt: skip
        self._note(self._watch.seen(known))
        return self.number

    async def since(self, before: int, chosen: Chosen) -> tuple[int, list[RunHeader]]:
        """Return how many chosen runs changed after a number, and the chosen runs that are being executed.

        Raises:
            StoreError: the store cannot be read.
        """
        async with self._lock:
            if time.monotonic() >= self._due:
                self._due = time.monotonic() + _PAUSE
                self._note(await self._watch.look())
        if before > self.number:  # the number is of an earlier start of the server
            before = 0
        changed = sum(at > before and chosen.fits(head) for at, head in self._heads.values())
        return changed, [each for each in self._going.values() if chosen.fits(each)]

    def _note(self, found: Iterable[RunHeader]) -> None:
        for head in found:
            key = head.owner, head.run_id
            before = self._going.get(key)
            if head.written == "running":
                self._going[key] = head
            else:
                self._going.pop(key, None)
            if before is None or head.written != "running":
                self.number += 1
                self._heads[key] = self.number, head
