"""A cache of the most recently used values, limited in bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


def check_cache_bytes(cache_bytes: int) -> None:
    """Raise ValueError unless the argument is a number of bytes."""
    if type(cache_bytes) is not int or cache_bytes < 0:
        raise ValueError(f"cache_bytes={cache_bytes!r} is not a number of bytes; it is an int of 0 or more")


class ByteCache(Generic[K, V]):
    """A cache limited in bytes: the least recently used values are removed first.

    The last `at_least` values stay, however many bytes they take.
    """

    def __init__(self, most_bytes: int, *, at_least: int = 0) -> None:
        self._most = most_bytes
        self._least = at_least
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def take(self, key: K) -> V | None:
        """Remove and return the value of a key; None if the key has no value."""
        with self._lock:
            found = self._values.pop(key, None)
            if found is None:
                return None
            self._bytes -= found[1]
            return found[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Store a value of `size` bytes under a key, in the place of an earlier value."""
        with self._lock:
            if key in self._values:
                self._bytes -= self._values.pop(key)[1]
            self._values[key] = value, size
            self._bytes += size
            while self._bytes > self._most and len(self._values) > self._least:
                self._bytes -= self._values.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._values.clear()
            self._bytes = 0
