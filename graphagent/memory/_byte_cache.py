"""What was used last, up to a number of bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values under keys, each with the bytes that it takes; those that were not used for longest make room for others.

    The last `at_least` are kept however many bytes they take.
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
        """Return the value under a key, or None."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def take(self, key: K) -> V | None:
        """Return the value under a key, or None, and forget it."""
        with self._lock:
            found = self._values.pop(key, None)
            if found is None:
                return None
            self._bytes -= found[1]
            return found[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Keep a value of `size` bytes, in place of one that is there."""
        with self._lock:
            if key in self._values:
                self._bytes -= self._values.pop(key)[1]
            self._values[key] = value, size
            self._bytes += size
            while self._bytes > self._most and len(self._values) > self._least:
                self._bytes -= self._values.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._values.clear()
            self._bytes = 0
