"""The bytes under which a key is in the index: those of `_encoding.py`, with hashes where these would not fit.

An entry of an index of PostgreSQL has at most 2,704 bytes. So a long text segment has a hash, as has one that follows a thousand
bytes. The bytes of a segment do not depend on later segments, so the bytes of a key begin with those of its prefixes here, too, and
numbers are in their order. The whole key is kept beside a hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from graphagent.store._items import encode, encode_key

if TYPE_CHECKING:
    from graphagent.store._items import Key, Segment

_LONG = 255
"""The longest encoded segment that is in the index itself."""
_FULL = 1024
"""After how many bytes a segment that is longer than a hash has a hash."""
_MOST = 2600
_HASHED = b"\x03"


def place_of(key: Iterable[Segment]) -> bytes:
    """Return the bytes of a key or a prefix in the index.

    Raises:
        ValueError: a segment is neither text nor an int of 0 to 2**63 - 1, or there are more segments than fit into the index.
    """
    whole = encode(key)
    if len(whole) <= _LONG:
        return whole
    place = b""
    for segment in key:
        part = encode((segment,))
        if len(part) > _LONG or (len(place) > _FULL and len(part) > 33):
            part = _HASHED + hashlib.sha256(part).digest()
        place += part
    if len(place) > _MOST:
        raise ValueError("a key has more segments than the index of PostgreSQL has place for; some forty long ones fit")
    return place


def bounds_of(prefix: Key, after: Key | None, *, reverse: bool) -> tuple[bytes, bytes]:
    """Return the bounds of a scan in the index: from the first one on, up to and without the second.

    Raises:
        ValueError: `prefix` or `after` is not a key.
    """
    low = place_of(prefix)
    high = low + b"\xff"
    if after is None:
        return low, high
    encode_key(after)  # it has a segment
    if reverse:
        return low, min(high, place_of(after))
    return max(low, place_of(after) + b"\0"), high
