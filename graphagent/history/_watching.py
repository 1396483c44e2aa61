"""Which runs of a store changed, found with small reads however many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from msgspec import structs

from graphagent.errors import DamagedStoreError
from graphagent.log._header import HEADERS, ROOM, RunHeader, header_key, rows_key
from graphagent.store._bulk import collect, get_many

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphagent.protocols import Store
    from graphagent.store import Item, Key

_ITEMS = 200
_GOING, _FOLLOWED = 50, 10
"""How many items one look reads at most, how many of these are headers of runs that were being executed, and of how many it reads the last entries."""


@final
class RunWatch:
    """Finds runs that are new or changed, again and again, with a small read each time.

    A look reads the headers of runs that were being executed, and some of the others, in turn: with 10,000 runs, a change of one that nobody
    executed is found some fifty looks later, and with two hundred by the next one.

    Args:
        store: Where the runs are.
        owner: Whose; None: of all owners.
    """

    def __init__(self, store: Store, *, owner: str | None = None) -> None:
        self._store, self._whose = store, owner
        self._known: dict[tuple[str, str], tuple[str, int]] = {}
        """The status and the last entry of each run, as its header was seen last."""
        self._owner: str | None = owner
        self._after: Key | None = None
        """The last header of the owner that was read."""
        self._end: Key | None = None
        """The last key of the owner before that."""
        self._is_first = True

    def seen(self, heads: Iterable[RunHeader]) -> list[RunHeader]:
        """Note headers that somebody read; return those that are new, or changed since they were seen."""
        found: list[RunHeader] = []
        for each in heads:
            key = each.owner, each.run_id
            before = self._known.get(key)
            known = before[1] if before is not None and before[0] == each.written else 0
            head = each if known <= each.last else structs.replace(each, last=known)
            now = head.written, head.last
            self._known[key] = now
            if before != now and not (before is None and self._is_first) and not head.parent:
                found.append(head)
        return found

    async def look(self) -> list[RunHeader]:
        """Return headers of runs that are new, or changed since they were seen. The first round over all runs only notes them.

        Raises:
            StoreError: the store cannot be read.
        """
        going = [header_key(*key) for key, (status, _) in self._known.items() if status == "running"][:_GOING]
        at_work = _heads((await get_many(self._store, going)).values()) if going else []
        for place, head in enumerate(at_work[:_FOLLOWED]):
            rows = await collect(self._store.scan(rows_key(head), reverse=True, limit=1))
            number = int(rows[0].key[-1]) if rows and len(rows[0].key) == len(rows_key(head)) + 1 else 0
            at_work[place] = structs.replace(head, last=max(head.last, number))
        found = self.seen(at_work)
        left = _ITEMS - len(going)
        while left > 0:
            if self._owner is None:
                items = await collect(self._store.scan((ROOM,), after=self._end, limit=1))
                left -= 1
                if not items:
                    self._end, self._is_first = None, False
                    return found
                self._owner, self._after = str(items[0].key[1]), None
            items = await collect(self._store.scan((ROOM, self._owner, HEADERS), after=self._after, limit=left))
            found += self.seen(_heads(items))
            if len(items) == left:
                self._after = items[-1].key
                return found
            left -= len(items) + 1
            self._after = None
            if self._whose is not None:
                self._is_first = False
                return found
            ends = await collect(self._store.scan((ROOM, self._owner), reverse=True, limit=1))
            self._owner, self._end = None, ends[0].key if ends else self._end
        return found


def _heads(items: Iterable[Item]) -> list[RunHeader]:
    """Return the headers of whole runs among items."""
    heads: list[RunHeader] = []
    for item in items:
        if len(item.key) == len(header_key("", "")):
            try:
                heads.append(RunHeader.unpack(item.value, str(item.key[3])))
            except DamagedStoreError as error:
                heads.append(RunHeader(run_id=str(item.key[3]), owner=str(item.key[1]), damaged=str(error)))
    return heads
