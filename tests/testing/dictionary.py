"""A store as simple as can be, from which tests make stores that break a promise."""

from __future__ import annotations

import threading

from graphagent.errors import ConflictError
from graphagent.store import Delete, DeleteAll, Exists, Item, Put
from graphagent.store._items import version_after


class Disk(dict):
    """What lasts of stores, how often it was changed, and the lock of who changes it."""

    def __init__(self):
        self.changes, self.lock = 0, threading.Lock()


class Dictionary:
    """A store in a dictionary, and what of it lasts in another one, which others may share."""

    def __init__(self, disk=None):
        self.disk = Disk() if disk is None else disk
        self.items, self.seen = self.read(dict(self.disk)), self.disk.changes

    def look(self):
        """Read again what another store has changed."""
        if self.seen != self.disk.changes:
            self.items, self.seen = self.read(dict(self.disk)), self.disk.changes

    async def get(self, key):
        self.look()
        return self.items.get(key)

    async def scan(self, prefix, *, after=None, limit=None, reverse=False):
        def place(key):
            return [(isinstance(each, str), each) for each in key]

        self.look()
        keys = sorted((key for key in self.items if key[: len(prefix)] == prefix), key=place, reverse=reverse)
        if after is not None:
            keys = [key for key in keys if (place(key) < place(after) if reverse else place(key) > place(after))]
        for key in keys[:limit]:
            if key in self.items:
                yield self.items[key]

    async def commit(self, *changes):
        with self.disk.lock:
            self.look()
            items = dict(self.items)
            for each in changes:
                if isinstance(each, DeleteAll):
                    items = {key: item for key, item in items.items() if key[: len(each.prefix)] != each.prefix}
                    continue
                found = items[each.key].version if each.key in items else 0
                expected = (each.version or found or 1) if isinstance(each, Exists) else each.expected
                bytes_differ = (
                    getattr(each, "before", None) is not None and found and items[each.key].value != each.before
                )
                if expected not in (None, found) or bytes_differ:
                    raise ConflictError(each.key, expected, found)
                if isinstance(each, Put):
                    items[each.key] = Item(each.key, each.value, version_after(each, found))
                elif isinstance(each, Delete):
                    items.pop(each.key, None)
            before, self.items = self.items, items
            self.write(before, changes)
            self.disk.changes += 1
            self.seen = self.disk.changes

    def read(self, disk):
        """Return the items that are found when the store is opened."""
        return disk

    def write(self, before, changes):
        """Make the items last."""
        self.disk.clear()
        self.disk.update(self.items)
