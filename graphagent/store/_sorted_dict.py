"""A dictionary whose keys are sorted."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")
_MANY = 64


class SortedDict(Generic[T]):
    """Values under bytes, in the order of the bytes.

    Looking up takes the same time at any size; adding and removing shift the end of one list.
    """

    def __init__(self, entries: Mapping[bytes, T] | None = None) -> None:
        self._entries = dict(entries or {})
        self._order = sorted(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, place: bytes) -> bool:
        return place in self._entries

    def get(self, place: bytes) -> T | None:
        """Return the value under `place`, or None."""
        return self._entries.get(place)

    def put(self, place: bytes, value: T) -> None:
        """Set the value under `place`."""
        if place not in self._entries:
            insort(self._order, place)
        self._entries[place] = value

    def update(self, entries: Mapping[bytes, T]) -> None:
        """Set many values. This sorts once instead of shifting the list for each."""
        if self._entries and len(entries) < _MANY:
            for place, value in entries.items():
                self.put(place, value)
            return
        new = [place for place in entries if place not in self._entries]
        self._entries.update(entries)
        self._order = sorted(self._order + new)

    def remove(self, places: Iterable[bytes]) -> None:
        """Remove the values under some places, as far as there are any. For many, the list is made anew once."""
        gone = [place for place in places if self._entries.pop(place, None) is not None]
        if len(gone) >= _MANY:
            self._order = [place for place in self._order if place in self._entries]
            return
        for place in gone:
            del self._order[bisect_left(self._order, place)]

    def chunk(self, low: bytes, high: bytes, size: int, *, reverse: bool = False) -> list[bytes]:
        """Return up to `size` places from `low` on and before `high`; with `reverse` the last ones, backwards."""
        start, end = bisect_left(self._order, low), bisect_left(self._order, high)
        return (
            self._order[max(start, end - size) : end][::-1] if reverse else self._order[start : min(end, start + size)]
        )

    def between(self, low: bytes, high: bytes) -> Iterator[bytes]:
        """Return all present places from `low` on and before `high`."""
        return iter(self._order[bisect_left(self._order, low) : bisect_left(self._order, high)])
