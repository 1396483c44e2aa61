"""Encoding keys as bytes, whose order is that of the keys; and checking the arguments of stores.

A text segment is `02`, its UTF-8 with every `00` written as `00 FF`, and `00`. An int segment is `01` and 8 bytes, the
highest first. So ints sort as numbers, no two keys have the same bytes, and the bytes of a key begin with those of its prefixes
and of no other key. Lone surrogates are allowed, in the three bytes that UTF-8 would have for them.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable

from graphagent._article import kind_of
from graphagent.store._items import Change, Delete, DeleteAll, Exists, Key, Put, Segment

INT = struct.Struct(">xQ")
"""An int segment. Its first byte, which says that it is one, is skipped and has to be checked separately."""
MAX_VALUE = 2**29
"""The largest value, in bytes; SQLite does not accept much more."""


def encode(key: Iterable[Segment]) -> bytes:
    """Return the bytes of a key or a prefix.

    Raises:
        ValueError: a segment is neither text nor an int of 0 to 2**63 - 1.
    """
    # Not cached: names would stay in memory after the store that they belong to is closed.
    return b"".join(
        [
            b"\x02%b\0" % segment.encode("utf-8", "surrogatepass").replace(b"\0", b"\0\xff")
            if type(segment) is str
            else _number(segment)
            for segment in key
        ]
    )


def _number(segment: object) -> bytes:
    if type(segment) is int and 0 <= segment < 2**63:
        return b"\x01" + segment.to_bytes(8, "big")
    what = "an int out of range" if type(segment) is int else kind_of(segment)
    raise ValueError(f"a key has {what} as a segment; segments are text or ints of 0 to 2**63 - 1")


def encode_key(key: Key) -> bytes:
    """Return the bytes of the key of an item, which has at least one segment.

    Raises:
        ValueError: it has no segment, or one that is neither text nor an int of 0 to 2**63 - 1.
    """
    if not isinstance(key, tuple) or not key:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError("a key is a tuple of at least one segment: (room, …)")
    return encode(key)


def decode(place: bytes, at: int = 0) -> Key:
    """Return the key that these bytes encode, without the segments before the one that begins at index `at`.

    Raises:
        ValueError: these are not the bytes of a key.
    """
    # One int, or one text without a zero byte, or such a text and an int, is usual: this takes a third of the time.
    if len(place) == at + INT.size and place[at] == 1 and place[at + 1] < 128:
        return INT.unpack_from(place, at)
    if len(place) > at + 1 and place[at] == 2 and (zero := place.find(b"\0", at)) > 0:
        if zero == len(place) - 1:
            return (place[at + 1 : zero].decode("utf-8", "surrogatepass"),)
        if zero == len(place) - 1 - INT.size and place[zero + 1] == 1 and place[zero + 2] < 128:
            return place[at + 1 : zero].decode("utf-8", "surrogatepass"), *INT.unpack_from(place, zero + 1)
    segments: list[Segment] = []
    while at < len(place):
        end = 0
        if place[at] == 1:
            number = int.from_bytes(place[at + 1 : at + 9], "big")
            end = at + 9 if number < 2**63 else 0
            segments.append(number)
        elif place[at] == 2:
            end = place.find(b"\0", at) + 1
            while end and place[end : end + 1] == b"\xff":
                end = place.find(b"\0", end) + 1
            segments.append(place[at + 1 : end - 1].replace(b"\0\xff", b"\0").decode("utf-8", "surrogatepass"))
        if not 0 < end <= len(place):
            raise ValueError("no key has these bytes")
        at = end
    return tuple(segments)


def bounds(prefix: Key, after: Key | None = None, *, reverse: bool = False) -> tuple[bytes, bytes]:
    """Return the bounds of a scan: encoded keys are found from the first one on, up to and without the second.

    Raises:
        ValueError: `prefix` or `after` is not a key.
    """
    low = encode(prefix)
    high = low + b"\xff"
    if after is None:
        return low, high
    if reverse:
        return low, min(high, encode_key(after))
    return max(low, encode_key(after) + b"\0"), high


def checked_limit(limit: int | None) -> int:
    """Return how many items a scan returns at most.

    Raises:
        ValueError: it is below zero.
    """
    if limit is not None and limit < 0:
        raise ValueError(f"limit={limit} is below zero; leave it out to get everything")
    return sys.maxsize if limit is None else limit


def check_change(change: Change) -> bytes:
    """Return the bytes of a change's key or prefix.

    Raises:
        ValueError: the key is not a key, the value is not bytes or too large, or no item can have the version.
    """
    if isinstance(change, Put):
        for what, value in (("a value", change.value), ("Put(before=)", change.before or b"")):
            if not isinstance(value, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ValueError(f"{what} is bytes, not {type(value).__name__}")  # noqa: TRY004 - as for keys
        if len(change.value) > MAX_VALUE:
            raise ValueError(f"a value has {len(change.value)} bytes; at most {MAX_VALUE} can be kept under one key")
        if change.before is not None and not change.expected:
            raise ValueError("Put(before=) says which bytes a version has; give expected=, the version of the item")
    version = change.version if isinstance(change, Put | Exists) else None
    if version is not None and (type(version) is not int or version < 1):
        name = type(change).__name__
        raise ValueError(f"{name}(version={version!r}): the version of an item is an int of 1 or more")
    if isinstance(change, Put | Delete | Exists):
        return encode_key(change.key)
    if isinstance(change, DeleteAll):  # pyright: ignore[reportUnnecessaryIsInstance]
        return encode(change.prefix)
    raise ValueError(f"a change is a Put, a Delete, a DeleteAll or an Exists, not {kind_of(change)}")
