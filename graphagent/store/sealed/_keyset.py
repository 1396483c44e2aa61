"""The keys of a sealed store: the key row, which contains them, and blinded keys. `docs/format.md` specifies both."""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING

from graphagent.store._items import encode
from graphagent.store._sealed_detection import MAGIC
from graphagent.store.sealed._format import (
    HEAD,
    KeyState,
    NamedKey,
    Reader,
    UnreadableError,
    associated_data,
    fresh_keys,
    keys_plain,
    primary,
    read_keys,
    seal,
    unseal,
)
from graphagent.store.sealed._secret import SlotKind
from graphagent.store.sealed._slots import (
    SEALED_BYTES,
    NewerSlotError,
    Pair,
    RemovedSlot,
    Slot,
    fingerprint_of,
    pair_of,
    parameters_of,
    read_time,
)

if TYPE_CHECKING:
    from graphagent.store._items import Key
    from graphagent.store.sealed._secret import Secret

FORMAT = 3
_WRITTEN = (2, FORMAT)
"""The formats in which a key row is written. Where it has the first one, the rows of domains are those of formats 1 and 2."""
_HEAD = struct.Struct(">7sB16s8s")
"""Magic, format, store id and checksum ("The key row" in `docs/format.md`)."""
_LARGEST_ROW = 2**17
MOST_SLOTS = 32
_MOST_REMOVED = 64
_MOST_KEYS = 64
FIRST_NAME = "main"
"""The name of the key that a store is made with."""


class Purpose(IntEnum):
    """The purpose of a key of the keyset."""

    SEAL = 1
    """Sealing the rows of the domains and of the root."""
    INDEX = 2
    """Blinding text segments."""
    SUM = 3
    """Computing the digests that a sum adds up."""


class OtherFormatError(Exception):
    """The key row is sound, but of another format, whose number is the argument."""


class OtherKeyError(Exception):
    """The key row is sound, but no slot opens with this key."""


class RemovedSlotError(Exception):
    """The key row is sound, and the slot of this key was removed; the `RemovedSlot` is the argument."""


class NoSlotsError(Exception):
    """The key row is sound, and the keys of the store were destroyed, at the time that is the argument."""


@dataclass(frozen=True, slots=True)
class Keyset:
    """The keys of a store, and the slots that open it. Each change returns another keyset."""

    store_id: bytes
    keys: Mapping[Purpose, tuple[NamedKey, ...]] = field(repr=False)
    slots: tuple[Slot, ...] = ()
    removed: tuple[RemovedSlot, ...] = ()
    own: int = 0
    """The number of the slot that it was opened with."""
    authenticators: Mapping[int, bytes] = field(default_factory=dict[int, bytes], repr=False)
    """By the number of a slot: the key with which the row is authenticated for the opener of that slot."""
    format: int = FORMAT
    """The format of the rows of the store, which the key row states."""

    @classmethod
    def fresh(cls, secret: Secret, *, now: int) -> Keyset:
        """Return the keyset of a new store, which opens with `secret`."""
        keys = {purpose: fresh_keys() for purpose in Purpose}
        return cls(os.urandom(16), keys).with_slot(FIRST_NAME, secret, now=now, own=True)

    # Slots

    def with_slot(self, name: str, secret: Secret, *, now: int, own: bool = False) -> Keyset:
        """Return it with one slot more, which opens with `secret`; `own` says that it is that of this user.

        Raises:
            ValueError: there are as many slots as there may be, one has this name, or one opens with this key.
        """
        parameters = parameters_of(secret)
        pair = pair_of(secret, self.store_id, parameters)
        if len(self.slots) >= MOST_SLOTS:
            raise ValueError(f"a store has at most {MOST_SLOTS} keys; remove one first")
        for slot in self.slots:
            if slot.name == name:
                raise ValueError(
                    f"there is a key {name!r} already; give this one another name, or remove that one first"
                )
            if slot.public == pair.public:
                raise ValueError(f"this key is there already, as {slot.name!r}")
        number = 1 + max([slot.number for slot in self.slots] + [slot.number for slot in self.removed], default=0)
        slot = Slot(secret.kind, number, now, name, parameters, pair.public)
        return replace(
            self,
            slots=(*self.slots, slot),
            own=number if own else self.own,
            authenticators={**self.authenticators, number: pair.authenticator},
        )

    def without_slot(self, number: int, *, now: int) -> Keyset:
        """Return it without a slot, which leaves its name, its fingerprint and the date."""
        [gone] = [slot for slot in self.slots if slot.number == number]
        return replace(
            self,
            slots=tuple(slot for slot in self.slots if slot.number != number),
            removed=(*self.removed, RemovedSlot.of(gone, now))[-_MOST_REMOVED:],
            authenticators={each: key for each, key in self.authenticators.items() if each != number},
        )

    # Keys

    def with_key(self, purpose: Purpose) -> Keyset:
        """Return it with a new key for a purpose, which opens, and does not seal yet.

        Of the destroyed keys the newest are kept, so that no number is used twice.
        """
        keys = self.keys[purpose]
        number = 1 + max(key.number for key in keys)
        kept = [key for key in keys if key.state is not KeyState.DESTROYED]
        kept += [key for key in keys if key.state is KeyState.DESTROYED][len(kept) + 1 - _MOST_KEYS :]
        fresh = NamedKey(number, KeyState.ENABLED, os.urandom(32))
        return self._with(purpose, *sorted(kept, key=lambda key: key.number), fresh)

    def promoted(self, purpose: Purpose, number: int) -> Keyset:
        """Return it with another primary key for a purpose; the one before only opens from then on."""
        states = {primary(self.keys[purpose]).number: KeyState.OPENS, number: KeyState.PRIMARY}
        return self._with(
            purpose, *(key._replace(state=states.get(key.number, key.state)) for key in self.keys[purpose])
        )

    def destroyed(self, purpose: Purpose, number: int) -> Keyset:
        """Return it with a key replaced by zeros, which opens nothing."""
        gone = NamedKey(number, KeyState.DESTROYED, bytes(32))
        return self._with(purpose, *(gone if key.number == number else key for key in self.keys[purpose]))

    def _with(self, purpose: Purpose, *keys: NamedKey) -> Keyset:
        return replace(self, keys={**self.keys, purpose: keys})

    def in_present_format(self) -> Keyset:
        """Return the keyset of a store whose other rows are put in the present format as well."""
        return replace(self, format=FORMAT)

    @property
    def is_former(self) -> bool:
        """Whether the store has a root row, as stores of formats 1 and 2 have."""
        return self.format != FORMAT

    # The row

    def row(self, version: int) -> bytes:
        """Return the key row, which every slot opens, for the version of the row that it is put as."""
        row_key = os.urandom(32)
        slots = b"".join(slot.plain() + slot.sealed(self.store_id, row_key) for slot in self.slots)
        plain = bytes([len(self.keys)]) + b"".join(
            bytes([purpose]) + keys_plain(keys) for purpose, keys in sorted(self.keys.items())
        )
        plain += b"".join(self.authenticators[slot.number] for slot in self.slots)
        record = seal(
            NamedKey(1, KeyState.PRIMARY, row_key), associated_data(self.store_id, b"keys", b"", version), plain
        )
        row = b"".join(
            (
                _head(self.store_id, self.format),
                bytes(8),
                bytes([len(self.slots)]),
                slots,
                _removed_plain(self.removed),
                len(record).to_bytes(4, "big"),
                record,
            )
        )
        row += b"".join(_authentication(self.authenticators[slot.number], row, version) for slot in self.slots)
        return row + _checksum(row, 16)

    def destroyed_row(self, now: int) -> bytes:
        """Return a key row without slots: nothing that was sealed with these keys can be read again."""
        removed = (*self.removed, *(RemovedSlot.of(slot, now) for slot in self.slots))[-_MOST_REMOVED:]
        row = _head(self.store_id, self.format) + now.to_bytes(8, "big") + b"\0" + _removed_plain(removed) + bytes(4)
        return row + _checksum(row, 16)

    @classmethod
    def open(cls, row: bytes, version: int, secret: Secret) -> Keyset:
        """Return the keyset from a key row that has this version. If `secret` is slow, this takes up to 0.3 seconds.

        Raises:
            UnreadableError: the row is damaged.
            OtherFormatError: the row is sound, but of another format.
            NewerSlotError: no slot opens with `secret`, but there are some of which this version does not know how they open.
            OtherKeyError: the row is sound, but no slot opens with `secret`.
            RemovedSlotError: `secret` opened the store once.
            NoSlotsError: the keys were destroyed.
        """
        reader = Reader(row)
        head = reader.take(_HEAD.size)
        magic, format_, store_id, checksum = _HEAD.unpack(head)
        if magic != MAGIC or _checksum(head[: -len(checksum)], len(checksum)) != checksum or len(row) > _LARGEST_ROW:
            raise UnreadableError("has no sound head")
        if format_ == 1:
            return _opened_1(head, store_id, reader, secret)
        if format_ not in _WRITTEN:
            raise OtherFormatError(format_)
        if _checksum(row[:-16], 16) != row[-16:]:
            raise UnreadableError("was changed")
        destroyed = read_time(reader)
        count = reader.number(1)
        if count > MOST_SLOTS:
            raise UnreadableError("has a wrong number of slots")
        slots: list[Slot] = []
        sealed: list[bytes] = []
        for _ in range(count):
            slots.append(Slot.read(reader))
            sealed.append(reader.take(SEALED_BYTES))
        removed = tuple(RemovedSlot.read(reader) for _ in range(_at_most(reader.number(1), _MOST_REMOVED)))
        record = reader.take(reader.number(4))
        authenticated = row[: len(row) - reader.left]
        tags = [reader.take(32) for _ in slots]
        reader.take(16)
        reader.end()
        if destroyed:
            raise NoSlotsError(destroyed)
        at, pair = _own_slot(store_id, slots, removed, secret)
        _check_tag(tags[at], pair.authenticator, authenticated, version)
        opening = (NamedKey(1, KeyState.OPENS, slots[at].unsealed(store_id, sealed[at], pair)),)
        plain = Reader(unseal(opening, associated_data(store_id, b"keys", b"", version), record))
        keys = _read_purposes(plain)
        authenticators = {slot.number: plain.take(32) for slot in slots}
        plain.end()
        for slot, tag in zip(slots, tags, strict=True):
            _check_tag(tag, authenticators[slot.number], authenticated, version)
        return cls(store_id, keys, tuple(slots), removed, slots[at].number, authenticators, format_)


def _own_slot(store_id: bytes, slots: list[Slot], removed: tuple[RemovedSlot, ...], secret: Secret) -> tuple[int, Pair]:
    """Return the index of the slot that a secret opens, and the keys of that slot."""
    pairs: dict[bytes, Pair] = {}
    newer = any(slot.kind not in SlotKind.__members__.values() for slot in slots)
    known: list[Slot | RemovedSlot] = [*slots, *removed]
    for at, each in enumerate(known):
        if each.kind != secret.kind:
            continue
        try:
            pair = pairs.get(each.parameters) or pair_of(secret, store_id, each.parameters)
        except NewerSlotError:
            newer = True
            continue
        pairs[each.parameters] = pair
        if isinstance(each, Slot) and each.public == pair.public:
            return at, pair
        if isinstance(each, RemovedSlot) and each.fingerprint == fingerprint_of(pair.public):
            raise RemovedSlotError(each)
    raise NewerSlotError if newer else OtherKeyError


def _opened_1(head: bytes, store_id: bytes, reader: Reader, secret: Secret) -> Keyset:
    """Return the keyset from a key row of format 1, which has one slot, of a key.

    It opens only with that key, so the slot that its user has in format 2 follows from the key as well.
    """
    count = reader.take(1)
    name = reader.take(HEAD.size)
    sizes = reader.take(2)
    sealed = reader.take(reader.number(2))
    slot = name + sizes + len(sealed).to_bytes(2, "big") + sealed
    sound = reader.take(16) == _checksum(head + slot, 16)
    reader.end()
    if not sound or count != b"\x01" or sizes != b"\0\0" or name[0] != SlotKind.KEY:
        raise UnreadableError("has a slot that was changed")
    if secret.kind is not SlotKind.KEY:
        raise OtherKeyError
    opening = NamedKey(HEAD.unpack(name)[1], KeyState.OPENS, secret.material)
    try:
        plain = Reader(unseal((opening,), associated_data(store_id, b"slot", name + sizes, 0), sealed))
    except UnreadableError:
        raise OtherKeyError from None
    keys = _read_purposes(plain)
    plain.end()
    return Keyset(store_id, keys, format=_WRITTEN[0]).with_slot(FIRST_NAME, secret, now=0, own=True)


def store_id_of(row: bytes) -> bytes:
    """Return the id of a store from its key row, without checking the row."""
    return row[8:24]


def _head(store_id: bytes, format_: int) -> bytes:
    head = MAGIC + bytes([format_]) + store_id
    return head + _checksum(head, 8)


def _checksum(data: bytes, size: int) -> bytes:
    # It tells a damaged key row from a wrong key. It protects from accidents only, for which the key is not needed.
    return hashlib.sha256(data).digest()[:size]


def _authentication(key: bytes, row: bytes, version: int) -> bytes:
    # Public keys are public: without this, anyone could seal keys of their own to the slots of a store.
    return hmac.digest(key, b"graphagent/2 row\0" + version.to_bytes(8, "big") + row, "sha256")


def _check_tag(tag: bytes, key: bytes, row: bytes, version: int) -> None:
    if not hmac.compare_digest(tag, _authentication(key, row, version)):
        raise UnreadableError("was changed by someone without its keys, or is not where it was put")


def _removed_plain(removed: tuple[RemovedSlot, ...]) -> bytes:
    return bytes([len(removed)]) + b"".join(each.plain() for each in removed)


def _at_most(number: int, most: int) -> int:
    if number > most:
        raise UnreadableError("has too many removed slots")
    return number


def _read_purposes(reader: Reader) -> dict[Purpose, tuple[NamedKey, ...]]:
    keys: dict[Purpose, tuple[NamedKey, ...]] = {}
    for _ in range(reader.number(1)):
        purpose = reader.number(1)
        if purpose not in Purpose.__members__.values() or purpose in keys:
            raise UnreadableError("has keys for an unknown purpose")
        keys[Purpose(purpose)] = read_keys(reader)
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
