"""The keys that open a sealed store: listing, adding, removing, rotating and destroying them."""

from __future__ import annotations

import unicodedata
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Literal

import anyio

from graphagent import _clock
from graphagent._options import check_text
from graphagent.errors import ConflictError, NotErasedError, StoreError
from graphagent.store._items import DeleteAll, Put
from graphagent.store._sealed_detection import KEYS, ROOMS
from graphagent.store.sealed._key_sources import HeldKey, KeySource
from graphagent.store.sealed._secret import SlotKind

if TYPE_CHECKING:
    from graphagent.protocols import Store
    from graphagent.store._items import Change
    from graphagent.store.sealed._keyset import Keyset
    from graphagent.store.sealed._secret import Secret
    from graphagent.store.sealed._session import SealedSession

KeyKind = Literal["key", "passphrase", "recovery", "newer"]
"""The kind of a key that opens a store: 32 random bytes, a pass phrase, a recovery key, or a kind that only a newer graphagent knows."""

_KINDS: dict[int, KeyKind] = {SlotKind.KEY: "key", SlotKind.PASSPHRASE: "passphrase", SlotKind.RECOVERY: "recovery"}
_TRIES = 20
_NAME = 64


@dataclass(frozen=True, slots=True)
class StoreKey:
    """One of the keys that open a store, without its secret."""

    name: str
    kind: KeyKind
    added: datetime | None
    """When it was added, in UTC; None if an earlier version of graphagent made the store, which did not record it."""
    current: bool
    """Whether the store was opened with this one."""


@dataclass(frozen=True, slots=True)
class RotationProgress:
    """How far the rotation of the data of a store has come."""

    domains: int
    """How many domains have new keys alone."""
    total: int
    """How many domains there were when it was begun or continued."""
    items: int
    """How many items were sealed anew since."""


class StoreKeys:
    """The keys that open a sealed store, each of which has a name: `store.keys`.

    A program that opens the store with one of them can change them. Every change is one commit: it happens entirely or not at all, for all processes.
    Processes that have the store open notice it at their next commit; one whose own key was removed gets RemovedKeyError.

    Every method raises the errors of opening the store: KeySourceError, WrongKeyError, RemovedKeyError, DestroyedStoreError,
    NewerFormatError, PlainStoreError, DamagedStoreError, StoreError.
    """

    def __init__(
        self,
        store: Store,
        key: HeldKey,
        where: str,
        ready: Callable[..., Awaitable[SealedSession | None]],
        rotate_data: Callable[[Callable[[RotationProgress], object] | None], Awaitable[None]],
    ) -> None:
        self._store = store
        self._key = key
        self._where = where
        self._ready = ready
        self._rotate_data = rotate_data

    def __repr__(self) -> str:
        return f"StoreKeys({self._where!r})"

    async def list(self) -> tuple[StoreKey, ...]:
        """Return the keys, in the order in which they were added; none for a store that does not exist yet."""
        from graphagent.store.sealed._key_row import moment

        if await self._ready() is None:
            return ()
        keyset, _ = await self._found()
        return tuple(
            StoreKey(
                slot.name,
                _KINDS.get(slot.kind, "newer"),
                moment(slot.added) if slot.added else None,
                slot.number == keyset.own,
            )
            for slot in keyset.slots
        )

    async def add(self, name: str, key: KeySource) -> None:
        """Have another key open the store too, from now on. A store that does not exist yet is made.

        Raises:
            ValueError: the name is not 1 to 64 printable characters or is that of another key, `key` is not a key or is there already,
                or there are 32 keys.
        """
        name = checked_name(name)
        secret = await HeldKey(key).read()
        await self._ready(make=True)
        await self._change(partial(_with_slot, name, now=_clock.now()), secret, erased=False)

    async def remove(self, name: str) -> None:
        """Have a key not open the store any more. Its bytes are erased from the files, which are rewritten.

        Someone who has kept that key and an old copy of the store can still read the copy, and with the keys in the copy, everything that is
        stored later; `rotate_data` ends that.

        Raises:
            ValueError: no key has this name, or it is the one with which the store was opened, which `rotate` replaces.
            NotErasedError: it is removed, but its bytes may still be on the disk.
        """
        wanted = unicodedata.normalize("NFC", name)

        def without(keyset: Keyset, _: Secret) -> Keyset:
            slot = next((slot for slot in keyset.slots if unicodedata.normalize("NFC", slot.name) == wanted), None)
            if slot is None:
                names = ", ".join(repr(each.name) for each in keyset.slots)
                raise ValueError(f"there is no key {name!r}; there are {names}")
            if slot.number == keyset.own:
                raise ValueError(
                    f"{name!r} is the key with which the store was opened; replace it with rotate(), or open the store with another one"
                )
            return keyset.without_slot(slot.number, now=_clock.now())

        await self._change(without, await self._key.read(), erased=True)

    async def rotate(self, key: KeySource, *, name: str | None = None) -> None:
        """Replace the key with which the store was opened by another one, which has the same name or a new one.

        This takes one commit, however large the store is, and rewrites the files, to erase the old key's bytes. The stored data are not
        encrypted anew, which `rotate_data` does. This object, and its store, use the new key from then on; other processes that still have the old one get
        RemovedKeyError at their next commit. To give processes time, `add` the new key first, give it to them, and `remove` the old one.

        Raises:
            ValueError: the name is not 1 to 64 printable characters or is that of another key, `key` is not a key or is there already,
                or it would replace a recovery key.
            RemovedKeyError: another process has rotated or removed this key meanwhile.
            NotErasedError: the key is replaced, but the bytes of the old one may still be on the disk.
        """
        name = None if name is None else checked_name(name)
        held = HeldKey(key)
        secret = await held.read()

        def rotated(keyset: Keyset, secret: Secret) -> Keyset:
            now = _clock.now()
            [old] = [slot for slot in keyset.slots if slot.number == keyset.own]
            if old.kind == SlotKind.RECOVERY != secret.kind:
                raise ValueError(
                    f"the store was opened with its recovery key {old.name!r}, which this key would replace; add() the new key, and "
                    f"remove() the one that is lost"
                )
            # The old one is removed first, for the new one may take over its name.
            new = keyset.without_slot(old.number, now=now).with_slot(name or old.name, secret, now=now, own=True)
            if new.slots[-1].public == old.public:
                raise ValueError("the store is opened with this key already; rotate to another one")
            return new

        with anyio.CancelScope(shield=True):
            self._key.coming = held
            try:
                await self._change(rotated, secret, erased=True)
            except NotErasedError:
                self._key.take(held)
                raise
            finally:
                self._key.coming = None
            self._key.take(held)

    async def rotate_data(self, report: Callable[[RotationProgress], object] | None = None) -> None:
        """Seal everything that is stored with new keys, and destroy and erase those before, while others read and write.

        After this, a key that was removed or replaced opens nothing, even with an old copy of the store. Versions of items stay. If
        this is interrupted, at any point, calling it again continues it; until then everything can be read and written. Each item is
        opened with its new key before the old one is dropped. `report` is called after each commit. The files are rewritten at the end.
        The keys by which names are blinded stay: only copying everything into another store replaces these.

        Raises:
            DamagedStoreError: a row is not as it was stored last; it is left unchanged, with the keys that it needs.
            NotErasedError: everything has new keys, but bytes that were sealed with those before may still be on the disk.
            StoreError: the inner store cannot be read or written, or others change a domain all the time.
        """
        await self._rotate_data(report)

    async def destroy(self) -> None:
        """Destroy all keys and remove everything in the store, so that no one can read any of it again. This cannot be undone.

        A row remains that says when this was done: opening the store then raises DestroyedStoreError. The files are rewritten.
        Copies made before are stores with keys of their own, and stay readable.

        Raises:
            NotErasedError: it is destroyed, but bytes may still be on the disk.
        """
        for _ in range(_TRIES):
            keyset, version = await self._found()
            row = keyset.destroyed_row(_clock.now())
            changes: list[Change] = [DeleteAll((room,)) for room in sorted(ROOMS - set(KEYS))]
            try:
                await self._commit(version, Put(KEYS, row, expected=version), *changes)
            except ConflictError:
                continue
            return
        raise self._restless()

    async def _found(self) -> tuple[Keyset, int]:
        from graphagent.store.sealed._key_row import opened_keyset

        session = await self._ready()
        row = await self._store.get(KEYS)
        if session is None or row is None:
            raise StoreError(f"{self._where} does not exist yet, so it has no keys; it is made by the first commit")
        return await opened_keyset(row, self._key, self._where), row.version

    async def _change(self, change: Callable[[Keyset, Secret], Keyset], secret: Secret, *, erased: bool) -> None:
        """Change the key row; `secret` must open it before and after, or after."""
        from graphagent.store.sealed._key_row import replacing, with_secret
        from graphagent.store.sealed._keyset import Keyset

        def changed(keyset: Keyset, version: int, secret: Secret) -> list[Change]:
            changes = replacing(version, change(keyset, secret), erased=erased)
            assert isinstance(changes[0], Put)
            Keyset.open(
                changes[0].value, version + 1, secret
            )  # the new rows are read back before they replace anything
            return changes

        for _ in range(_TRIES):
            keyset, version = await self._found()
            try:
                await self._commit(version, *await with_secret(secret, partial(changed, keyset, version)))
            except ConflictError:
                continue
            return
        raise self._restless()

    async def _commit(self, version: int, *changes: Change) -> None:
        """Put another key row in the place of that of this version, and have the anchor know of it."""
        session = await self._ready()
        try:
            await self._store.commit(*changes)
        except NotErasedError:  # it is committed
            await self._anchored(session, version + 1)
            raise
        await self._anchored(session, version + 1)

    async def _anchored(self, session: SealedSession | None, version: int) -> None:
        if session is not None:
            await session.anchoring.write(version)

    def _restless(self) -> StoreError:
        return StoreError(f"the keys of {self._where} are changed by others all the time; try again")


def checked_name(name: str) -> str:
    """Return the name of a key in the one form (NFC) in which names that look the same are the same.

    Raises:
        ValueError: it is not 1 to 64 printable characters.
    """
    check_text("name=", name)
    name = unicodedata.normalize("NFC", name)
    if not 1 <= len(name) <= _NAME or not name.isprintable() or name != name.strip():
        raise ValueError(f"the name of a key is 1 to {_NAME} printable characters, such as 'laptop', not {name[:80]!r}")
    return name


def _with_slot(name: str, keyset: Keyset, secret: Secret, *, now: int) -> Keyset:
    return keyset.with_slot(name, secret, now=now)
