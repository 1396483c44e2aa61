"""Items, keys and changes: the values that stores exchange, their checks, and keys as bytes whose order is that of the keys.

A text segment is `02`, its UTF-8 with every `00` written as `00 FF`, and `00`. An int segment is `01` and 8 bytes, the
highest first. So ints sort as numbers, no two keys have the same bytes, and the bytes of a key begin with those of its prefixes
and of no other key. Lone surrogates are allowed, in the three bytes that UTF-8 would have for them.
"""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Never

from graphagent._article import kind_of
from graphagent.errors import ConflictError

Segment = str | int
Key = tuple[Segment, ...]
"""Segments, of which the first is the room: `("facts", owner, …, 17)`. Text is any text; ints are 0 to 2**63 - 1."""


class Item(NamedTuple):  # not a dataclass, because a scan makes many
    """Bytes under a key."""

    key: Key
    value: bytes
    version: int
    """1 after the first put, and one more after each further put, unless that says another."""

    def __repr__(self) -> str:
        return f"Item(version={self.version})"


@dataclass(frozen=True, slots=True)
class Put:
    """Store a value under a key."""

    key: Key = field(repr=False)
    value: bytes = field(repr=False)
    expected: int | None = None
    """The version that the item must have now. 0: it must not exist. None: any."""
    version: int | None = None
    """The version that the item has then. None: one more than it had.

    The expected version itself is for bytes with the same meaning, such as the value under another encryption key: others who expect
    this version still find it. Any other version is for items that are copied from another store.
    """
    before: bytes | None = field(default=None, repr=False)
    """The bytes that the item of the expected version must have now. None: any."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the item under a key, if there is one. Bytes of it may stay on the disk until a DeleteAll removes something."""

    key: Key = field(repr=False)
    expected: int | None = None
    """The version that the item must have now. None: any, and it need not exist."""


@dataclass(frozen=True, slots=True)
class DeleteAll:
    """Remove every item whose key begins with a prefix, and erase their bytes from the files."""

    prefix: Key = field(repr=False)


@dataclass(frozen=True, slots=True)
class Exists:
    """Change nothing, but require that an item exists under a key."""

    key: Key = field(repr=False)
    version: int | None = None
    """The version that the item must have now, 1 or above. None: any."""


Change = Put | Delete | DeleteAll | Exists


def check_expected(change: Put | Delete | Exists, version: int) -> None:
    """Check that an item is at the version that a change of it expects; 0 means that no item exists.

    Raises:
        ConflictError: it is not.
    """
    expected = change.version or version or 1 if isinstance(change, Exists) else change.expected
    if expected is not None and expected != version:
        raise ConflictError(change.key, expected, version)


def version_after(change: Put, version: int) -> int:
    """Return the version of an item after a put that finds it at a version; 0 means that no item exists."""
    return version + 1 if change.version is None else change.version


def only_removes(changes: Iterable[Change]) -> bool:
    """Return whether changes only remove items without conditions, so that a store that does not exist need not be created for them."""
    for each in changes:  # noqa: SIM110  a generator would cost each commit more than this loop
        if not (isinstance(each, DeleteAll) or (isinstance(each, Delete) and each.expected is None)):
            return False
    return True


def check_before(change: Put, item: Item) -> None:
    """Check that an item has the bytes that a put expects.

    Raises:
        ConflictError: it has not.
    """
    if change.before not in (None, item.value):
        raise ConflictError(change.key, item.version, item.version)


@dataclass(frozen=True, slots=True)
class Receipt:
    """Counts of the data that forgetting has removed."""

    facts: int = 0
    """Facts; every version counts."""
    notes: int = 0
    runs: int = 0
    threads: int = 0
    cached: int = 0
    """Outputs of nodes, results of tools and answers of models that were cached."""
    bytes: int = 0
    """The size of the removed values, not how much smaller the files are."""
    parts: Mapping[str, Receipt] = field(default_factory=dict[str, "Receipt"])
    """The removed data of each place, if there are several: its `repr`, and the counts."""

    def __repr__(self) -> str:
        shown = [f"{name}={count}" for name, count in self.counts().items() if count or name == "bytes"]
        return f"Receipt({', '.join(shown)})"

    def counts(self) -> dict[str, int]:
        """Return all counts by their names, without those of the parts."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "parts"}

    @staticmethod
    def of(parts: Mapping[str, Receipt]) -> Receipt:
        """Return the sum of the receipts of several places."""
        each = [part.counts() for part in parts.values()]
        total: dict[str, Any] = {name: sum(part[name] for part in each) for name in Receipt().counts()}
        return Receipt(**total, parts=dict(parts))


def checked(data: bytes) -> bytes:
    """Return bytes after their CRC-32, which takes four bytes."""
    return zlib.crc32(data).to_bytes(4, "big") + data


def is_intact(value: bytes) -> bool:
    """Return whether bytes fit their checksum."""
    return len(value) > 4 and zlib.crc32(memoryview(value)[4:]) == int.from_bytes(value[:4], "big")


def unchecked(value: bytes) -> bytes:
    """Return bytes without their checksum.

    Raises:
        ValueError: they do not fit it.
    """
    if not is_intact(value):
        raise ValueError("checksum mismatch")
    return value[4:]


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
            else b"\x01" + segment.to_bytes(8, "big")
            if type(segment) is int and 0 <= segment < 2**63
            else _refuse(segment)
            for segment in key
        ]
    )


def _refuse(segment: object) -> Never:
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
    # A union for isinstance would be made at each call, and a run with a store makes two calls for each of its steps.
    if isinstance(change, Put):
        _check_put(change)
        version: Any = change.version
    elif isinstance(change, Exists):
        version = change.version
    elif isinstance(change, Delete):
        return encode_key(change.key)
    elif isinstance(change, DeleteAll):  # pyright: ignore[reportUnnecessaryIsInstance]
        return encode(change.prefix)
    else:
        raise ValueError(f"a change is a Put, a Delete, a DeleteAll or an Exists, not {kind_of(change)}")  # noqa: TRY004 - as for keys
    if version is not None and (type(version) is not int or version < 1):
        name = type(change).__name__
        raise ValueError(f"{name}(version={version!r}): the version of an item is an int of 1 or more")
    return encode_key(change.key)


def _check_put(change: Put) -> None:
    value: Any = change.value
    if not isinstance(value, bytes):
        raise ValueError(f"a value is bytes, not {type(value).__name__}")  # noqa: TRY004 - as for keys
    if len(value) > MAX_VALUE:
        raise ValueError(f"a value has {len(value)} bytes; at most {MAX_VALUE} can be kept under one key")
    before: Any = change.before
    if before is None:
        return
    if not isinstance(before, bytes):
        raise ValueError(f"Put(before=) is bytes, not {type(before).__name__}")  # noqa: TRY004 - as for keys
    if not change.expected:
        raise ValueError("Put(before=) says which bytes a version has; give expected=, the version of the item")
