"""Sealed bytes and the rows that speak of keys, as `docs/format.md` lays them out. Bytes in, bytes out."""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from graphagent.store._encoding import encode
from graphagent.store._sealed_detection import MAGIC

if TYPE_CHECKING:
    from graphagent.store._items import Key

ALGORITHM = 1
FORMAT = 1
OVERHEAD = 77
_LABEL = b"graphagent/1"
_HEAD = struct.Struct(">BI")
_NONCE = bytes(12)
_SMALLEST = 256
_SUM = 2**256
_LARGEST_ROW = 2**16
_MOST_SLOTS = 32


class UnreadableError(Exception):
    """Bytes are not what this format says; the caller knows where they stand, and whether that means damage."""


class State(IntEnum):
    """What a key is still used for."""

    PRIMARY = 1
    """It seals and opens; there is one of each purpose."""
    ENABLED = 2
    """It opens, and may become the primary one."""
    OPENS = 3
    """It opens what it has sealed."""
    DESTROYED = 4
    """It is gone; 32 zero bytes stand in its place."""


class Purpose(IntEnum):
    """What a key of the keyset does."""

    SEAL = 1
    """It seals the rows of the domains and of the root."""
    INDEX = 2
    """It blinds text segments."""
    SUM = 3
    """It makes the members of a sum."""


class NamedKey(NamedTuple):
    """A key, the number it is known by, and its state."""

    number: int
    state: State
    key: bytes

    def __repr__(self) -> str:
        return f"NamedKey(number={self.number}, state={self.state.name})"


def primary(keys: Iterable[NamedKey]) -> NamedKey:
    """Give the key that seals."""
    return next(key for key in keys if key.state is State.PRIMARY)


# Records


def associated_data(store_id: bytes, kind: bytes, place: bytes, version: int) -> bytes:
    """Give what a record is bound to: its store, its kind, its place and its version."""
    return b"".join(
        (
            b"\0\0\0\x05",
            len(_LABEL).to_bytes(4, "big"),
            _LABEL,
            len(store_id).to_bytes(4, "big"),
            store_id,
            len(kind).to_bytes(4, "big"),
            kind,
            len(place).to_bytes(4, "big"),
            place,
            b"\0\0\0\x08",
            version.to_bytes(8, "big"),
        )
    )


def seal(key: NamedKey, to: bytes, plain: bytes) -> bytes:
    """Give the record of `plain`, bound to `to`."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    head = _HEAD.pack(ALGORITHM, key.number)
    salt = os.urandom(24)
    record_key, commitment = _derived(key.key, salt, head + to)
    padded = len(plain).to_bytes(4, "big") + plain
    padded += bytes(padded_size(len(padded)) - len(padded))
    return b"".join((head, salt, commitment, AESGCM(record_key).encrypt(_NONCE, padded, head + to)))


def unseal(keys: Iterable[NamedKey], to: bytes, record: bytes) -> bytes:
    """Give what was sealed.

    Raises:
        UnreadableError: not with one of these keys, not bound to `to`, or changed since.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if len(record) < OVERHEAD + 4:
        raise UnreadableError("is cut off")
    algorithm, number = _HEAD.unpack_from(record)
    key = next((key for key in keys if key.number == number and key.state is not State.DESTROYED), None)
    if algorithm != ALGORITHM or key is None:
        raise UnreadableError("is sealed with an unknown key or in an unknown way")
    head = record[: _HEAD.size]
    record_key, commitment = _derived(key.key, record[5:29], head + to)
    if not hmac.compare_digest(commitment, record[29:61]):
        raise UnreadableError("was changed, or stands where it was not put")
    try:
        padded = AESGCM(record_key).decrypt(_NONCE, record[61:], head + to)
    except InvalidTag:
        raise UnreadableError("was changed") from None
    size = int.from_bytes(padded[:4], "big") + 4
    if size > len(padded) or padded_size(size) != len(padded) or padded.count(0, size) != len(padded) - size:
        raise UnreadableError("is padded wrongly")
    return padded[4:size]


def padded_size(size: int) -> int:
    """Give the size that is shown for `size`: at least 256, above it Padmé, which adds at most 12 %."""
    if size <= _SMALLEST:
        return _SMALLEST
    exponent = size.bit_length() - 1
    step = 1 << (exponent - exponent.bit_length())
    return -(-size // step) * step


def _derived(key: bytes, salt: bytes, context: bytes) -> tuple[bytes, bytes]:
    # HKDF-Expand of RFC 5869 with SHA-512; 64 bytes are its first block, T(1).
    info = b"graphagent/1 record\0" + salt + hashlib.sha256(context).digest()
    block = hmac.digest(key, info + b"\x01", "sha512")
    return block[:32], block[32:]


def item_digest(key: bytes, place: bytes, version: int, record: bytes) -> bytes:
    """Give what an item adds to the sum of its domain."""
    return hmac.digest(key, b"\x01" + version.to_bytes(8, "big") + record[5:29] + record[-16:] + place, "sha256")


def domain_digest(key: bytes, place: bytes) -> bytes:
    """Give what a domain, by the place of its row, adds to the sum of the root."""
    return hmac.digest(key, b"\x02" + place, "sha256")


def sum_with(total: int, digest: bytes | None = None, *, without: bytes | None = None) -> int:
    """Give a sum with a member more, or one less, or both."""
    more = int.from_bytes(digest, "big") if digest else 0
    less = int.from_bytes(without, "big") if without else 0
    return (total + more - less) % _SUM


# What is sealed


class _Reader:
    """Takes bytes apart; what does not fit exactly is unreadable."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        if len(part) != size:
            raise UnreadableError("is cut off")
        self._at += size
        return part

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def end(self) -> None:
        if self._at != len(self._data):
            raise UnreadableError("has more bytes than belong to it")


def item_plain(key: bytes, value: bytes) -> bytes:
    """Give what the record of an item seals: its key in clear, and its value."""
    return len(key).to_bytes(4, "big") + key + value


def read_item(plain: bytes) -> tuple[bytes, bytes]:
    """Give the key and the value of an item.

    Raises:
        UnreadableError: it is no item.
    """
    size = int.from_bytes(plain[:4], "big") + 4
    if len(plain) < max(size, 4):
        raise UnreadableError("is cut off")
    return plain[4:size], plain[size:]


@dataclass(frozen=True, slots=True)
class DomainState:
    """What the row of a domain seals."""

    keys: tuple[NamedKey, ...] = field(repr=False)
    """The data keys of the domain; they stand nowhere else."""
    count: int = 0
    total: int = field(default=0, repr=False)
    """The sum of the members of its items."""
    single: bool = False
    """Whether it is the domain of one key that is too short for a domain of many."""

    def plain(self) -> bytes:
        """Give its bytes."""
        numbers = self.single.to_bytes(1, "big") + self.count.to_bytes(8, "big") + self.total.to_bytes(32, "big")
        return numbers + _keys_plain(self.keys)

    @classmethod
    def read(cls, plain: bytes) -> DomainState:
        """Take its bytes apart.

        Raises:
            UnreadableError: they are none.
        """
        reader = _Reader(plain)
        single, count, total = reader.number(1), reader.number(8), reader.number(32)
        keys = _read_keys(reader)
        reader.end()
        if single > 1:
            raise UnreadableError("is of an unknown kind")
        return cls(keys, count, total, bool(single))


@dataclass(frozen=True, slots=True)
class RootState:
    """What the row of the root seals."""

    count: int = 0
    total: int = field(default=0, repr=False)
    """The sum of the members of the domains."""
    depths: Mapping[bytes, int] = field(default_factory=dict[bytes, int], repr=False)
    """The number of segments that make a domain, by the encoded room."""

    def plain(self) -> bytes:
        """Give its bytes."""
        rooms = [
            len(room).to_bytes(4, "big") + room + depth.to_bytes(1, "big")
            for room, depth in sorted(self.depths.items())
        ]
        return b"".join(
            (self.count.to_bytes(8, "big"), self.total.to_bytes(32, "big"), len(rooms).to_bytes(4, "big"), *rooms)
        )

    @classmethod
    def read(cls, plain: bytes) -> RootState:
        """Take its bytes apart.

        Raises:
            UnreadableError: they are none.
        """
        reader = _Reader(plain)
        count, total = reader.number(8), reader.number(32)
        depths: dict[bytes, int] = {}
        for _ in range(reader.number(4)):
            room = reader.take(reader.number(4))
            depths[room] = reader.number(1)
        reader.end()
        return cls(count, total, depths)


def _keys_plain(keys: tuple[NamedKey, ...]) -> bytes:
    return bytes([len(keys)]) + b"".join(_HEAD.pack(key.state, key.number) + key.key for key in keys)


def _read_keys(reader: _Reader) -> tuple[NamedKey, ...]:
    keys: list[NamedKey] = []
    for _ in range(reader.number(1)):
        state, number, key = reader.number(1), reader.number(4), reader.take(32)
        if state not in State.__members__.values():
            raise UnreadableError("has a key in an unknown state")
        keys.append(NamedKey(number, State(state), key))
    if len([key for key in keys if key.state is State.PRIMARY]) != 1:
        raise UnreadableError("has not exactly one primary key")
    if len({key.number for key in keys}) != len(keys):
        raise UnreadableError("has two keys of one number")
    return tuple(keys)


def fresh_keys() -> tuple[NamedKey, ...]:
    """Give one new random key, the primary one."""
    return (NamedKey(1, State.PRIMARY, os.urandom(32)),)


# The key row


class OtherFormatError(Exception):
    """The row of keys is sound, and of another format; the argument is its number."""


class OtherKeyError(Exception):
    """Every slot is sound, and none opens with this key."""


@dataclass(frozen=True, slots=True)
class Keyset:
    """The keys of a store, by what they do."""

    store_id: bytes
    keys: Mapping[Purpose, tuple[NamedKey, ...]] = field(repr=False)

    @classmethod
    def fresh(cls) -> Keyset:
        """Give the keyset of a new store."""
        return cls(os.urandom(16), {purpose: fresh_keys() for purpose in Purpose})

    def row(self, key: bytes) -> bytes:
        """Give the row of keys, with one slot, which opens with `key`."""
        head = MAGIC + bytes([FORMAT]) + self.store_id
        head += hashlib.sha256(head).digest()[:8]
        slot = _HEAD.pack(_RAW_KEY, 1) + b"\0\0"
        plain = bytes([len(self.keys)]) + b"".join(
            bytes([purpose]) + _keys_plain(keys) for purpose, keys in sorted(self.keys.items())
        )
        sealed = seal(NamedKey(1, State.PRIMARY, key), associated_data(self.store_id, b"slot", slot, 0), plain)
        slot += len(sealed).to_bytes(2, "big") + sealed
        return head + b"\x01" + slot + hashlib.sha256(head + slot).digest()[:16]

    @classmethod
    def open(cls, row: bytes, key: bytes) -> Keyset:
        """Open the row of keys with the first slot that fits.

        Raises:
            UnreadableError: it is damaged.
            OtherFormatError: it is sound, but of another format.
            OtherKeyError: it is sound, but no slot opens with `key`.
        """
        reader = _Reader(row)
        head = reader.take(32)
        if not head.startswith(MAGIC) or hashlib.sha256(head[:24]).digest()[:8] != head[24:] or len(row) > _LARGEST_ROW:
            raise UnreadableError("has no sound head")
        if head[7] != FORMAT:
            raise OtherFormatError(head[7])
        store_id = head[8:24]
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
                return cls(store_id, _read_purposes(_Reader(plain)))
        if None in slots:
            raise UnreadableError("has a slot that was changed")
        raise OtherKeyError


_RAW_KEY = 1


class _Slot(NamedTuple):
    kind: int
    number: int
    name: bytes
    sealed: bytes


def _read_slot(reader: _Reader, head: bytes) -> _Slot | None:
    """Give a slot, or None where its checksum says that it was changed."""
    name = reader.take(_HEAD.size)
    size = reader.take(2)
    parameters = reader.take(int.from_bytes(size, "big"))
    sealed_size = reader.take(2)
    sealed = reader.take(int.from_bytes(sealed_size, "big"))
    whole = b"".join((name, size, parameters, sealed_size, sealed))
    if hashlib.sha256(head + whole).digest()[:16] != reader.take(16):
        return None
    kind, number = _HEAD.unpack(name)
    return _Slot(kind, number, name + size + parameters, sealed)


def _read_purposes(reader: _Reader) -> dict[Purpose, tuple[NamedKey, ...]]:
    keys: dict[Purpose, tuple[NamedKey, ...]] = {}
    for _ in range(reader.number(1)):
        purpose = reader.number(1)
        if purpose not in Purpose.__members__.values() or purpose in keys:
            raise UnreadableError("has keys for an unknown purpose")
        keys[Purpose(purpose)] = _read_keys(reader)
    reader.end()
    if len(keys) != len(Purpose):
        raise UnreadableError("lacks keys for a purpose")
    return keys


# Blinding


class Blinder:
    """Turns keys into keys that tell their lengths, their ints and which of them begin alike, and nothing else."""

    _MOST = 8192
    _START: Mapping[Key, tuple[bytes, Key]] = {(): (bytes(32), ())}

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._known = dict(self._START)

    def __call__(self, key: Key) -> Key:
        """Give the blinded key: ints stay, a text becomes 22 characters that depend on all segments up to it."""
        size = len(key)
        while key[:size] not in self._known:
            size -= 1
        chain, shown = self._known[key[:size]]
        for segment in key[size:]:
            chain = hmac.digest(self._key, chain + encode((segment,)), "sha256")
            tag = segment if isinstance(segment, int) else urlsafe_b64encode(chain[:16])[:22].decode("ascii")
            size, shown = size + 1, (*shown, tag)
            if len(self._known) >= self._MOST:
                self._known = dict(self._START)
            self._known[key[:size]] = chain, shown
        return shown
