"""The keys of a sealed store: the key row, which contains them, and blinded keys. `docs/format.md` specifies both."""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from graphagent.store._encoding import encode
from graphagent.store._sealed_detection import MAGIC
from graphagent.store.sealed._format import (
    HEAD,
    NamedKey,
    Reader,
    State,
    UnreadableError,
    associated_data,
    fresh_keys,
    keys_plain,
    read_keys,
    seal,
    unseal,
)

if TYPE_CHECKING:
    from graphagent.store._items import Key

FORMAT = 1
_KEY_ROW_HEAD = struct.Struct(">7sB16s8s")
"""Magic, format, store id and checksum ("The key row" in `docs/format.md`)."""
_LARGEST_ROW = 2**16
_MOST_SLOTS = 32


class Purpose(IntEnum):
    """What a key of the keyset is for."""

    SEAL = 1
    """Sealing the rows of the domains and of the root."""
    INDEX = 2
    """Blinding text segments."""
    SUM = 3
    """Computing the digests that a sum adds up."""


class OtherFormatError(Exception):
    """The key row is sound, but of another format, whose number is the argument."""


class OtherKeyError(Exception):
    """Every slot of the key row is sound, but none opens with this key."""


@dataclass(frozen=True, slots=True)
class Keyset:
    """The keys of a store."""

    store_id: bytes
    keys: Mapping[Purpose, tuple[NamedKey, ...]] = field(repr=False)

    @classmethod
    def fresh(cls) -> Keyset:
        """Return the keyset of a new store."""
        return cls(os.urandom(16), {purpose: fresh_keys() for purpose in Purpose})

    def row(self, key: bytes) -> bytes:
        """Return the key row, with one slot, which opens with `key`."""
        head = MAGIC + bytes([FORMAT]) + self.store_id
        head += _checksum(head, 8)
        slot = HEAD.pack(_RAW_KEY, 1) + b"\0\0"
        plain = bytes([len(self.keys)]) + b"".join(
            bytes([purpose]) + keys_plain(keys) for purpose, keys in sorted(self.keys.items())
        )
        sealed = seal(NamedKey(1, State.PRIMARY, key), associated_data(self.store_id, b"slot", slot, 0), plain)
        slot += len(sealed).to_bytes(2, "big") + sealed
        return head + b"\x01" + slot + _checksum(head + slot, 16)

    @classmethod
    def open(cls, row: bytes, key: bytes) -> Keyset:
        """Return the keyset from a key row, opened with the first slot that fits.

        Raises:
            UnreadableError: the row is damaged.
            OtherFormatError: the row is sound, but of another format.
            OtherKeyError: the row is sound, but no slot opens with `key`.
        """
        reader = Reader(row)
        head = reader.take(_KEY_ROW_HEAD.size)
        magic, format_, store_id, checksum = _KEY_ROW_HEAD.unpack(head)
        if magic != MAGIC or _checksum(head[: -len(checksum)], len(checksum)) != checksum or len(row) > _LARGEST_ROW:
            raise UnreadableError("has no sound head")
        if format_ != FORMAT:
            raise OtherFormatError(format_)
        count = reader.number(1)
        if not 1 <= count <= _MOST_SLOTS:
            raise UnreadableError("has a wrong number of slots")
        slots = [_read_slot(reader, head) for _ in range(count)]
        reader.end()
        for slot in slots:
            if slot is not None and slot.kind == _RAW_KEY:
                opening = NamedKey(slot.number, State.OPENS, key)
                try:
                    plain = unseal((opening,), associated_data(store_id, b"slot", slot.name, 0), slot.sealed)
                except UnreadableError:
                    continue
                return cls(store_id, _read_purposes(Reader(plain)))
        if None in slots:
            raise UnreadableError("has a slot that was changed")
        raise OtherKeyError


_RAW_KEY = 1
"""The kind of slot that opens with a key of 32 bytes; there is no other yet."""


def _checksum(data: bytes, size: int) -> bytes:
    # It tells a damaged key row from a wrong key. It protects from accidents only, for which the key is not needed.
    return hashlib.sha256(data).digest()[:size]


class _Slot(NamedTuple):
    kind: int
    number: int
    name: bytes
    sealed: bytes


def _read_slot(reader: Reader, head: bytes) -> _Slot | None:
    """Return the next slot, or None if its checksum says that it was changed."""
    name = reader.take(HEAD.size)
    size = reader.take(2)
    parameters = reader.take(int.from_bytes(size, "big"))
    sealed_size = reader.take(2)
    sealed = reader.take(int.from_bytes(sealed_size, "big"))
    whole = b"".join((name, size, parameters, sealed_size, sealed))
    if _checksum(head + whole, 16) != reader.take(16):
        return None
    kind, number = HEAD.unpack(name)
    return _Slot(kind, number, name + size + parameters, sealed)


def _read_purposes(reader: Reader) -> dict[Purpose, tuple[NamedKey, ...]]:
    keys: dict[Purpose, tuple[NamedKey, ...]] = {}
    for _ in range(reader.number(1)):
        purpose = reader.number(1)
        if purpose not in Purpose.__members__.values() or purpose in keys:
            raise UnreadableError("has keys for an unknown purpose")
        keys[Purpose(purpose)] = read_keys(reader)
    reader.end()
    if len(keys) != len(Purpose):
        raise UnreadableError("lacks keys for a purpose")
    return keys


class Blinder:
    """Blinds keys, so that they show their lengths, their ints and which of them have a common prefix, and nothing else."""

    _MOST = 8192
    """How many prefixes are cached. Few are in use at a time, and those are soon cached again."""
    _START: Mapping[Key, tuple[bytes, Key, bytes]] = {(): (bytes(32), (), b"")}

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._known = dict(self._START)
        """By prefix: the chain, the blinded prefix, and that encoded."""

    def __call__(self, key: Key) -> Key:
        """Return the blinded key: ints stay; a text becomes 22 characters, which depend on all segments up to it."""
        return self.encoded(key)[0]

    def encoded(self, key: Key) -> tuple[Key, bytes]:
        """Return the blinded key, and that encoded."""
        if key and type(key[-1]) is int:
            # Most keys end with a number of their own, which would fill the cache, and whose chain nothing depends on.
            _, blinded, place = self._prefix(key[:-1])
            return (*blinded, key[-1]), place + encode(key[-1:])
        _, blinded, place = self._prefix(key)
        return blinded, place

    def _prefix(self, key: Key) -> tuple[bytes, Key, bytes]:
        size = len(key)
        while key[:size] not in self._known:
            size -= 1
        chain, blinded, place = self._known[key[:size]]
        for segment in key[size:]:
            chain = hmac.digest(self._key, chain + encode((segment,)), "sha256")
            tag = segment if isinstance(segment, int) else urlsafe_b64encode(chain[:16])[:22].decode("ascii")
            size, blinded, place = size + 1, (*blinded, tag), place + encode((tag,))
            if len(self._known) >= self._MOST:
                self._known = dict(self._START)
            self._known[key[:size]] = chain, blinded, place
        return chain, blinded, place
