"""The claims of a sealed store: those of the inner one, with blinded keys and sealed notes. `docs/format.md` specifies both."""

from __future__ import annotations

import hmac
import struct
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from graphagent.errors import DamagedStoreError
from graphagent.store._items import decode, encode, encode_key
from graphagent.store.sealed._format import KeyState, NamedKey, UnreadableError, associated_data, primary, seal, unseal
from graphagent.store.sealed._keyset import Purpose

if TYPE_CHECKING:
    from graphagent.protocols import Claims
    from graphagent.store._claims import Claimed
    from graphagent.store._items import Key
    from graphagent.store.sealed._session import SealedSession

_SIZE = struct.Struct(">I")
"""The size of the key in a note; the key follows, and then the text of the holder."""


class SealedClaims:
    """Claims whose keys and notes only the holder of the key of the store can read. Who holds them, and until when, is visible."""

    def __init__(self, inner: Claims, ready: Callable[..., Awaitable[SealedSession | None]]) -> None:
        self._inner = inner
        self._ready = ready

    @property
    def lease(self) -> int:
        """That of the inner store."""
        return self._inner.lease

    @property
    def heartbeat(self) -> int:
        """That of the inner store."""
        return self._inner.heartbeat

    async def now(self) -> int:
        """Return the time of the inner store, in milliseconds UTC.

        Raises:
            StoreError: the inner store cannot be read.
        """
        return await self._inner.now()

    async def take(self, key: Key, holder: str, lease: int, *, after: int = 0, note: bytes = b"") -> Claimed | None:
        """Claim a key, and return the claim; None if it is claimed.

        Raises:
            StoreError: the store cannot be opened, read or written.
        """
        encode_key(key)
        session = await self._ready(make=True)
        assert session is not None
        place = session.blind(key)
        sealed = seal(_key_of(session), _bound_to(session, place), _SIZE.pack(len(encode(key))) + encode(key) + note)
        claimed = await self._inner.take(place, holder, lease, after=after, note=sealed)
        return None if claimed is None else replace(claimed, key=key, note=note)

    async def renew(self, claims: Iterable[Claimed], lease: int) -> list[Claimed]:
        """Have claims end one lease from now, and return the lost ones.

        Raises:
            StoreError: the store cannot be opened, read or written.
        """
        blinded = await self._blinded(claims)
        lost = await self._inner.renew([inner for _, inner in blinded], lease)
        gone = {(each.key, each.fence) for each in lost}
        return [each for each, inner in blinded if (inner.key, inner.fence) in gone]

    async def release(self, claims: Iterable[Claimed]) -> None:
        """End claims. Those that were lost are left alone.

        Raises:
            StoreError: the store cannot be opened, read or written.
        """
        await self._inner.release([inner for _, inner in await self._blinded(claims)])

    async def holders(self, keys: Iterable[Key]) -> dict[Key, Claimed]:
        """Return the claims of keys.

        Raises:
            StoreError: the store cannot be opened or read.
        """
        session = await self._ready()
        if session is None:
            return {}
        places = {session.blind(key): key for key in keys}
        found = await self._inner.holders(places)
        return {places[place]: _opened(session, claimed) for place, claimed in found.items()}

    async def lapsed(self, room: str, limit: int) -> list[Claimed]:
        """Return lapsed claims whose keys have not been taken since, the earliest first.

        Raises:
            StoreError: the store cannot be opened or read.
        """
        session = await self._ready()
        if session is None:
            return []
        return [
            _opened(session, claimed) for claimed in await self._inner.lapsed(str(session.blind((room,))[0]), limit)
        ]

    async def _blinded(self, claims: Iterable[Claimed]) -> list[tuple[Claimed, Claimed]]:
        session = await self._ready()
        if session is None:
            return []
        return [(each, replace(each, key=session.blind(each.key), note=b"")) for each in claims]


def _key_of(session: SealedSession) -> NamedKey:
    """Return the key of the notes. A rotation of the data leaves it as it is, as it does with names: claims outlast it."""
    index = primary(session.keyset.keys[Purpose.INDEX])
    return NamedKey(index.number, KeyState.PRIMARY, hmac.digest(index.key, b"graphagent/1 claims", "sha256"))


def _bound_to(session: SealedSession, place: Key) -> bytes:
    return associated_data(session.store_id, b"claim", encode(place), 0)


def _opened(session: SealedSession, claimed: Claimed) -> Claimed:
    """Return a claim of the inner store as a reader with the key sees it."""
    try:
        plain = unseal([_key_of(session)], _bound_to(session, claimed.key), claimed.note)
        size = _SIZE.size + _SIZE.unpack_from(plain)[0]
        return replace(claimed, key=decode(plain[:size], _SIZE.size), note=plain[size:])
    except (UnreadableError, ValueError, struct.error) as error:
        reason = f"it {error}" if isinstance(error, UnreadableError) else "it is not one"
    raise DamagedStoreError("a claim of a run", reason)
