"""The slots of a key row: for each key that opens a store, the public key that the keys of the store are sealed to.

The private key follows from the key that opens the slot, so a process that has the store open can seal its keys again for all slots,
without their keys. `docs/format.md` specifies the bytes.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, MLKEM768X25519PrivateKey, MLKEM768X25519PublicKey, Suite
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from graphagent.errors import StoreError
from graphagent.store.sealed._format import Reader, UnreadableError

if TYPE_CHECKING:
    from graphagent.store.sealed._secret import Secret

_MLKEM_BYTES = 1184
PUBLIC_BYTES = _MLKEM_BYTES + 32
SEALED_BYTES = 1088 + 32 + 32 + 16
"""The size of 32 bytes sealed by HPKE: two encapsulated keys, the ciphertext and its tag."""
NAME_BYTES = 256
_PARAMETERS_BYTES = 64
_FIXED = struct.Struct(">BI")
"""The kind and the number of a slot."""
_LAST_TIME = 253_402_300_799_999
"""The end of the year 9999, in milliseconds since 1970."""
_ARGON2 = struct.Struct(">BIIB")
"""Algorithm, passes, KiB of memory and lanes."""
_ARGON2ID = 1
_NEW_PASSPHRASE = _ARGON2.pack(_ARGON2ID, 3, 2**16, 4)
"""The parameters of a new slot that opens with a pass phrase: those that RFC 9106 recommends if memory is short."""
_MOST_KIB, _MOST_PASSES, _MOST_LANES, _MOST_WORK = 2**17, 16, 16, 2**20
"""The largest parameters of a slot: 128 MiB, and as much work as 16 passes over 64 MiB."""


class NewerSlotError(Exception):
    """A slot opens in a way that this version does not know."""


class Pair(NamedTuple):
    """The private key of a slot, its public key, and the key by which its owner knows that a key row is genuine."""

    private: MLKEM768X25519PrivateKey
    public: bytes
    authenticator: bytes

    def __repr__(self) -> str:
        return "Pair(…)"


def parameters_of(secret: Secret) -> bytes:
    """Return the parameters of a new slot for a secret."""
    return _NEW_PASSPHRASE if secret.slow else b""


def pair_of(secret: Secret, store_id: bytes, parameters: bytes) -> Pair:
    """Return the keys of a slot of a store, which follow from the secret that opens it. For a pass phrase this is slow.

    Raises:
        NewerSlotError: these parameters are unknown, or ask for more than any version has written.
        StoreError: the installed `cryptography` was built without an algorithm that this needs.
    """
    label = b"graphagent/2 slot\0" + bytes([secret.kind])
    try:
        seed = HKDF(SHA512(), 128, salt=store_id, info=label).derive(_material(secret, store_id, parameters))
        mlkem, x25519 = MLKEM768PrivateKey.from_seed_bytes(seed[:64]), X25519PrivateKey.from_private_bytes(seed[64:96])
    except UnsupportedAlgorithm as error:
        raise StoreError(
            f"the cryptography that is installed cannot open a sealed store ({error}); install it from its wheel, which has all "
            f"that is needed"
        ) from None
    public = mlkem.public_key().public_bytes_raw() + x25519.public_key().public_bytes_raw()
    return Pair(MLKEM768X25519PrivateKey(mlkem, x25519), public, seed[96:])


def _material(secret: Secret, store_id: bytes, parameters: bytes) -> bytes:
    if not secret.slow and not parameters:
        return secret.material
    if not secret.slow or len(parameters) != _ARGON2.size:
        raise NewerSlotError
    algorithm, passes, kib, lanes = _ARGON2.unpack(parameters)
    if (
        algorithm != _ARGON2ID
        or not 1 <= passes <= _MOST_PASSES
        or not 1 <= lanes <= _MOST_LANES
        or not 8 * lanes <= kib <= _MOST_KIB
        or passes * kib > _MOST_WORK
    ):
        raise NewerSlotError

    def stretch() -> bytes:
        return Argon2id(salt=store_id, length=32, iterations=passes, lanes=lanes, memory_cost=kib).derive(
            secret.material
        )

    return secret.stretched(store_id, parameters, stretch)


@dataclass(frozen=True, slots=True)
class Slot:
    """A key that opens the store: its name, and its public key."""

    kind: int
    """A `SlotKind`, or that of a newer version."""
    number: int
    added: int
    """Milliseconds since 1970; 0 if unknown, in a store of format 1."""
    name: str
    parameters: bytes = field(repr=False)
    public: bytes = field(repr=False)

    def plain(self) -> bytes:
        """Return its bytes, without the keys that are sealed to it."""
        return _named(self.kind, self.number, self.added, self.name, self.parameters) + self.public

    @classmethod
    def read(cls, reader: Reader) -> Slot:
        """Parse its bytes."""
        return cls(*_read_named(reader), reader.take(PUBLIC_BYTES))

    def sealed(self, store_id: bytes, key: bytes) -> bytes:
        """Return a key of 32 bytes, sealed so that only the private key of this slot opens it."""
        mlkem = MLKEM768PublicKey.from_public_bytes(self.public[:_MLKEM_BYTES])
        public = MLKEM768X25519PublicKey(mlkem, X25519PublicKey.from_public_bytes(self.public[_MLKEM_BYTES:]))
        return _suite().encrypt(key, public, self._info(store_id))

    def unsealed(self, store_id: bytes, sealed: bytes, pair: Pair) -> bytes:
        """Return the key that was sealed to this slot.

        Raises:
            UnreadableError: the sealed keys were changed.
        """
        try:
            return _suite().decrypt(sealed, pair.private, self._info(store_id))
        except (InvalidTag, ValueError):
            raise UnreadableError("has a slot that was changed") from None

    def _info(self, store_id: bytes) -> bytes:
        return b"graphagent/2 keys\0" + store_id + self.number.to_bytes(4, "big")


@dataclass(frozen=True, slots=True)
class RemovedSlot:
    """A key that no longer opens the store."""

    kind: int
    number: int
    added: int
    name: str
    parameters: bytes = field(repr=False)
    fingerprint: bytes = field(repr=False)
    """The SHA-256 of its public key, by which its owner is recognized."""
    removed: int
    """Milliseconds since 1970."""

    @classmethod
    def of(cls, slot: Slot, now: int) -> RemovedSlot:
        """Return the rest of a slot."""
        fingerprint = fingerprint_of(slot.public)
        return cls(slot.kind, slot.number, slot.added, slot.name, slot.parameters, fingerprint, now)

    def plain(self) -> bytes:
        """Return its bytes."""
        named = _named(self.kind, self.number, self.added, self.name, self.parameters)
        return named + self.fingerprint + self.removed.to_bytes(8, "big")

    @classmethod
    def read(cls, reader: Reader) -> RemovedSlot:
        """Parse its bytes."""
        return cls(*_read_named(reader), reader.take(32), read_time(reader))


def fingerprint_of(public: bytes) -> bytes:
    """Return the SHA-256 of a public key."""
    return hashlib.sha256(public).digest()


def read_time(reader: Reader) -> int:
    """Parse a time, in milliseconds since 1970."""
    time = reader.number(8)
    if time > _LAST_TIME:
        raise UnreadableError("has a time that is none")
    return time


def _suite() -> Suite:
    return Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


def _named(kind: int, number: int, added: int, name: str, parameters: bytes) -> bytes:
    text = name.encode()
    fixed = _FIXED.pack(kind, number) + added.to_bytes(8, "big")
    return fixed + len(text).to_bytes(2, "big") + text + len(parameters).to_bytes(1, "big") + parameters


def _read_named(reader: Reader) -> tuple[int, int, int, str, bytes]:
    kind, number = _FIXED.unpack(reader.take(_FIXED.size))
    added = read_time(reader)
    text = reader.take(reader.number(2))
    parameters = reader.take(reader.number(1))
    if len(text) > NAME_BYTES or len(parameters) > _PARAMETERS_BYTES:
        raise UnreadableError("has a slot that is too long")
    try:
        return kind, number, added, text.decode(), parameters
    except UnicodeDecodeError:
        raise UnreadableError("has a slot whose name is not text") from None
