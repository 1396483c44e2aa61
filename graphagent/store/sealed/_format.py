"""The sealed format, which `docs/format.md` specifies: records, sums and plaintexts. The key row is in `_keyset.py`.

Everything here is bytes in, bytes out. A change of it changes the specification, and needs a new format number.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ALGORITHM = 1
_LABEL = b"graphagent/1"
HEAD = struct.Struct(">BI")
"""Algorithm and key number of a record, kind and number of a slot, or state and number of a key."""
_RECORD = struct.Struct(">5s24s32s")
"""Head, salt and commitment of a record; the ciphertext and its tag follow ("Records" in `docs/format.md`)."""
_DOMAIN = struct.Struct(">BQ32s")
"""Whether a domain has a single item, the number of its items and their sum; its keys follow ("Records")."""
_HELD = 2
"""The first byte of a domain's row that holds the item; its keys, the version, the key and the value of the item follow."""
_KEY = struct.Struct(">BI32s")
"""State, number and bytes of a key."""
_SALT = slice(HEAD.size, HEAD.size + 24)
_TAG_BYTES = 16
OVERHEAD = _RECORD.size + _TAG_BYTES
_NONCE = bytes(12)
_SMALLEST = 256
_WRITER_SIZE = 36
_SUM = 2**256


class UnreadableError(Exception):
    """Bytes do not follow the format. The caller knows where they come from, and whether that means damage."""


class UnknownKeyError(UnreadableError):
    """Bytes are sealed with a key that is not among those at hand, or that was destroyed."""


class KeyState(IntEnum):
    """The permitted uses of a key."""

    PRIMARY = 1
    """It seals and opens. Each purpose has exactly one."""
    ENABLED = 2
    """It opens, and may become the primary one."""
    OPENS = 3
    """It only opens records that it has sealed."""
    DESTROYED = 4
    """It was replaced by 32 zero bytes."""


class NamedKey(NamedTuple):
    """A key, the number that refers to it, and its state."""

    number: int
    state: KeyState
    key: bytes

    def __repr__(self) -> str:
        return f"NamedKey(number={self.number}, state={self.state.name})"


def primary(keys: Iterable[NamedKey]) -> NamedKey:
    """Return the key that seals."""
    return next(key for key in keys if key.state is KeyState.PRIMARY)


# Records


def associated_data(store_id: bytes, kind: bytes, place: bytes, version: int) -> bytes:
    """Return the data that a record authenticates besides its content: its store, its kind, its place and its version.

    A record that is moved to another place, or put back after a later version, cannot be opened there.
    """
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


def seal(key: NamedKey, data: bytes, plain: bytes, *, least: int = _SMALLEST) -> bytes:
    """Return the record of `plain`, padded to at least `least` bytes, which also authenticates the associated data."""
    head = HEAD.pack(ALGORITHM, key.number)
    salt = os.urandom(24)
    record_key, commitment = _derived(key.key, salt, head + data)
    padded = len(plain).to_bytes(4, "big") + plain
    padded += bytes(padded_size(len(padded), least) - len(padded))
    return _RECORD.pack(head, salt, commitment) + encrypt(record_key, padded, head + data)


def unseal(keys: Iterable[NamedKey], data: bytes, record: bytes, *, least: int = _SMALLEST) -> bytes:
    """Return the plaintext of a record.

    Raises:
        UnknownKeyError: it was sealed with another key.
        UnreadableError: it was sealed with other associated data, or was changed.
    """
    if len(record) < OVERHEAD + 4:
        raise UnreadableError("is cut off")
    head, salt, commitment = _RECORD.unpack_from(record)
    algorithm, number = HEAD.unpack(head)
    for key in keys:
        if key.number == number and key.state is not KeyState.DESTROYED and algorithm == ALGORITHM:
            break
    else:
        raise UnknownKeyError("is sealed with an unknown key or in an unknown way")
    record_key, expected = _derived(key.key, salt, head + data)
    # AES-GCM alone does not commit to its key: a record could be made that opens with two keys, to different plaintexts.
    if not hmac.compare_digest(expected, commitment):
        raise UnreadableError("was changed, or is not where it was put")
    padded = decrypt(record_key, record[_RECORD.size :], head + data)
    size = int.from_bytes(padded[:4], "big") + 4
    if size > len(padded) or padded_size(size, least) != len(padded) or padded.count(0, size) != len(padded) - size:
        raise UnreadableError("is padded wrongly")
    return padded[4:size]


def encrypt(key: bytes, padded: bytes, data: bytes, nonce: bytes = _NONCE) -> bytes:
    """Return AES-256-GCM's ciphertext and tag. A key is used once, so all records have the same nonce."""
    return AESGCM(key).encrypt(nonce, padded, data)


def decrypt(key: bytes, encrypted: bytes, data: bytes, nonce: bytes = _NONCE) -> bytes:
    """Return the bytes that `encrypt` was given.

    Raises:
        UnreadableError: it was encrypted with another key or other associated data, or was changed.
    """
    try:
        return AESGCM(key).decrypt(nonce, encrypted, data)
    except InvalidTag:
        raise UnreadableError("was changed") from None


def record_number(record: bytes) -> int:
    """Return the number of the key that a record is sealed with, or 0 if it is cut off."""
    return HEAD.unpack_from(record)[1] if len(record) >= HEAD.size else 0


def least_size(kind: bytes) -> int:
    """Return the smallest padded size of the plaintexts of a kind of records; those of writers all have the same size."""
    return _WRITER_SIZE if kind == b"writer" else _SMALLEST


def padded_size(size: int, least: int = _SMALLEST) -> int:
    """Return the size that a plaintext is padded to: at least 256, above it Padmé, which adds at most 12 %."""
    if size <= least:
        return least
    exponent = size.bit_length() - 1
    step = 1 << (exponent - exponent.bit_length())
    return -(-size // step) * step


def _derived(key: bytes, salt: bytes, context: bytes) -> tuple[bytes, bytes]:
    """Return the key of one record, and the commitment to it."""
    # HKDF-Expand of RFC 5869 with SHA-512; 64 bytes are its first block, T(1).
    info = b"graphagent/1 record\0" + salt + hashlib.sha256(context).digest()
    block = hmac.digest(key, info + b"\x01", "sha512")
    return block[:32], block[32:]


def item_mark(version: int, record: bytes) -> bytes:
    """Return the bytes by which two records at one place differ: the salt and the tag stand for the whole record."""
    return version.to_bytes(8, "big") + record[_SALT] + record[-_TAG_BYTES:]


def marked_version(mark: bytes) -> int:
    """Return the version of the item that a mark stands for."""
    return int.from_bytes(mark[:8], "big")


def item_digest(key: bytes, place: bytes, mark: bytes) -> bytes:
    """Return the member that an item with this mark adds to the sum of its domain."""
    return hmac.digest(key, b"\x01" + mark + place, "sha256")


def sum_with(total: int, digest: bytes | None = None, *, without: bytes | None = None) -> int:
    """Return a sum with one digest more, or one less, or both."""
    more = int.from_bytes(digest, "big") if digest else 0
    less = int.from_bytes(without, "big") if without else 0
    return (total + more - less) % _SUM


# Plaintexts


class Reader:
    """Reads bytes from front to back, and refuses bytes that do not fit exactly."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    def take(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        if len(part) != size:
            raise UnreadableError("is cut off")
        self._at += size
        return part

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return len(self._data) - self._at

    def end(self) -> None:
        if self._at != len(self._data):
            raise UnreadableError("has more bytes than belong to it")


def item_plain(key: bytes, value: bytes) -> bytes:
    """Return the plaintext of an item: its key and its value. `key` is encoded."""
    return len(key).to_bytes(4, "big") + key + value


def read_item(plain: bytes) -> tuple[bytes, bytes]:
    """Return the encoded key and the value of an item.

    Raises:
        UnreadableError: this is not the plaintext of an item.
    """
    size = int.from_bytes(plain[:4], "big") + 4
    if not 4 < size <= len(plain):
        raise UnreadableError("is cut off, or has no key")
    return plain[4:size], plain[size:]


class HeldItem(NamedTuple):
    """The only item of a domain, in the row of the domain."""

    version: int
    clear: bytes
    """Its encoded key."""
    value: bytes

    def __repr__(self) -> str:
        return f"HeldItem(version={self.version})"


@dataclass(frozen=True, slots=True)
class DomainState:
    """The plaintext of a domain's row."""

    keys: tuple[NamedKey, ...] = field(repr=False)
    """The data keys of the domain, which are stored only here: without them its items cannot be opened."""
    count: int = 0
    total: int = field(default=0, repr=False)
    """The sum of the digests of its items."""
    single: bool = False
    """Whether it is the domain of a single item, whose key is too short for a domain of many."""
    held: HeldItem | None = None
    """The item, if the domain is that of a single one and has no other row; `total` is 0 then."""

    @classmethod
    def holding(cls, keys: tuple[NamedKey, ...], item: HeldItem) -> DomainState:
        """Return the state of a domain whose row holds its only item."""
        return cls(keys, 1, 0, True, item)

    @property
    def rows(self) -> int:
        """How many rows its items have."""
        return self.count if self.held is None else 0

    def plain(self) -> bytes:
        """Return its bytes."""
        if self.held is not None:
            version, clear, value = self.held
            kind = bytes([_HELD])
            return kind + keys_plain(self.keys) + version.to_bytes(8, "big") + item_plain(clear, value)
        return _DOMAIN.pack(self.single, self.count, self.total.to_bytes(32, "big")) + keys_plain(self.keys)

    @classmethod
    def read(cls, plain: bytes) -> DomainState:
        """Parse its bytes.

        Raises:
            UnreadableError: the bytes do not follow the format.
        """
        if plain[:1] == bytes([_HELD]):
            reader = Reader(plain, 1)
            keys, version = read_keys(reader), reader.number(8)
            if not version:
                raise UnreadableError("holds an item without a version")
            return cls(keys, 1, 0, True, HeldItem(version, *read_item(reader.take(reader.left))))
        if len(plain) < _DOMAIN.size:
            raise UnreadableError("is cut off")
        single, count, total = _DOMAIN.unpack_from(plain)
        reader = Reader(plain, _DOMAIN.size)
        keys = read_keys(reader)
        reader.end()
        if single > 1:
            raise UnreadableError("is of an unknown kind")
        return cls(keys, count, int.from_bytes(total, "big"), bool(single))


class RootState(NamedTuple):
    """The plaintext of the root's row, which stores of formats 1 and 2 have in place of a base row with rooms."""

    domains: int
    """How many domains there are."""
    total: int
    """The sum of the digests of the domains."""
    depths: Mapping[bytes, int]
    anchored: bool
    """Whether there are a base row and rows of writers beside it."""

    @classmethod
    def read(cls, plain: bytes) -> RootState:
        """Parse its bytes.

        Raises:
            UnreadableError: the bytes do not follow the format.
        """
        reader = Reader(plain)
        count, total = reader.number(8), reader.number(32)
        depths = read_depths(reader)
        anchored = reader.left > 0
        if anchored and reader.number(1) != 1:
            raise UnreadableError("is of an unknown kind")
        reader.end()
        return cls(count, total, depths, anchored)


def depths_plain(depths: Mapping[bytes, int]) -> bytes:
    """Return the bytes of the number of segments that make a domain, for each encoded room."""
    rooms = [len(room).to_bytes(4, "big") + room + depth.to_bytes(1, "big") for room, depth in sorted(depths.items())]
    return len(rooms).to_bytes(4, "big") + b"".join(rooms)


def read_depths(reader: Reader) -> dict[bytes, int]:
    """Parse the result of `depths_plain`.

    Raises:
        UnreadableError: the bytes do not follow the format.
    """
    depths: dict[bytes, int] = {}
    for _ in range(reader.number(4)):
        room = reader.take(reader.number(4))
        depths[room] = reader.number(1)
    return depths


def keys_plain(keys: tuple[NamedKey, ...]) -> bytes:
    return bytes([len(keys)]) + b"".join(_KEY.pack(key.state, key.number, key.key) for key in keys)


def read_keys(reader: Reader) -> tuple[NamedKey, ...]:
    listed = reader.take(reader.number(1) * _KEY.size)
    if len(listed) == _KEY.size and listed[0] == KeyState.PRIMARY:  # as nearly always, in half the time
        return (NamedKey(int.from_bytes(listed[1:5], "big"), KeyState.PRIMARY, listed[5:]),)
    try:
        keys = tuple([NamedKey(number, KeyState(state), key) for state, number, key in _KEY.iter_unpack(listed)])
    except ValueError:
        raise UnreadableError("has a key in an unknown state") from None
    if [key.state for key in keys].count(KeyState.PRIMARY) != 1:
        raise UnreadableError("has not exactly one primary key")
    if len({key.number for key in keys}) != len(keys):
        raise UnreadableError("has two keys of one number")
    return keys


def fresh_keys(number: int = 1) -> tuple[NamedKey, ...]:
    """Return one new random key of this number, which is the primary one."""
    return (NamedKey(number, KeyState.PRIMARY, os.urandom(32)),)
