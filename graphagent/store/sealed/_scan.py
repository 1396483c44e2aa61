"""Reading from an encrypted store: scans over domains, and several items by their keys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import NamedTuple

import anyio.to_thread

from graphagent.store._bulk import collect, get_many
from graphagent.store._items import Item, Key, bounds, decode, encode
from graphagent.store.sealed._base import domain_row
from graphagent.store.sealed._commit import check
from graphagent.store.sealed._domains import Domain, Location, MismatchError
from graphagent.store.sealed._format import HeldItem, UnreadableError
from graphagent.store.sealed._session import TRIES, SealedSession

INLINE, _CHUNK = 32, 1024
_FEW = 4
"""With fewer domains of a single item than this, each is read by itself, and cached."""


class SealedScan:
    """The position of a scan, which goes through the domains under a prefix, and in each through the members.

    The inner store is scanned in step with the members, and the two are compared: an item that the inner scan leaves out, because it
    was put since, is read by its key, and an item that is not a member is skipped, because it was removed since. If items
    contradict the members after all, the domain is looked at again: only if it has not changed since is it damaged.
    """

    def __init__(
        self,
        ready: Callable[[], Awaitable[SealedSession | None]],
        prefix: Key,
        after: Key | None,
        left: int,
        *,
        reverse: bool,
    ) -> None:
        self._ready = ready
        self._prefix, self._after, self._left, self._reverse = prefix, after, left, reverse
        self._room: object = prefix[0] if prefix else "(all)"
        self._low, self._high = bounds(prefix, after, reverse=reverse)
        self._within: Key = ()
        self._depth = 0
        """The number of segments of a domain in the room; the path of a domain of a single item is shorter."""
        self._generations: Mapping[Key, int] = {}
        self._paths: list[Key] | None = None
        self._looked_at: Key | None = None
        """The domain whose row was read again when the scan reached it, so that it finds all that others had put by then."""
        self._size = INLINE
        self._last: Key | None = None
        """The inner key after which the scan continues."""
        self._inner: AsyncIterator[Item] | None = None
        self._inner_of: tuple[Domain, int] | None = None
        """The domain and its version when the inner scan was begun: items that it read ahead may be out of date after a change."""
        self._ahead: Item | None = None

    async def more(self) -> list[Item]:
        """Return the next page of items, which is empty only at the end."""
        session = await self._ready()
        if session is None or not self._left:
            return []
        if self._paths is None:
            self._paths = await self._begin(session)
        while self._paths:
            if len(self._paths[-1]) < self._depth and (found := await self._singles(session, self._paths)):
                self._left -= len(found)
                return found
            found = await self._chunk(session, self._paths[-1])
            if found:
                self._left -= len(found)
                return found
            self._paths.pop()
            self._inner = self._ahead = None
        return []

    async def _begin(self, session: SealedSession) -> list[Key]:
        """Return the paths of the domains, the first one last, where `pop` takes it."""
        if self._prefix and len(self._prefix) >= session.depth(self._prefix[0]):
            depth = session.depth(self._prefix[0])
            paths = [session.blind(self._prefix[:depth])]
            await session.domain(paths[0], self._room)
            if session.depth(self._prefix[0]) != depth:  # another process has made the room meanwhile
                return await self._begin(session)
        else:
            self._generations = await session.domains_under(session.blind(self._prefix))
            self._depth = session.depth(self._prefix[0]) if self._prefix else 0
            paths = list(self._generations)
        self._last = None if self._after is None else ("i", *session.blind(self._after))
        self._within = ("i", *session.blind(self._prefix))
        self._low, self._high = bounds(self._within, self._last, reverse=self._reverse)
        if self._last is not None:  # domains before the position are not read again
            paths = [path for path in paths if self._is_left(path)]
        return paths if self._reverse else paths[::-1]

    def _is_left(self, path: Key) -> bool:
        """Return whether something of a domain comes after the position; of one with a single item, that is the item itself."""
        place = encode(("i", *path))
        end = place if len(path) < self._depth else place + b"\xff"
        return place < self._high and self._low <= end

    async def _chunk(self, session: SealedSession, path: Key) -> list[Item]:
        for _ in range(TRIES):
            domain = await session.domain(path, self._room)
            if domain is None:
                return []
            seen = domain.version
            if self._looked_at != path:
                self._looked_at = path
                if await session.moved(domain, seen, self._room):
                    continue
            if self._inner_of is None or self._inner_of[0] is not domain or self._inner_of[1] != seen:
                # Items that were read ahead before the domain changed would contradict its present members.
                self._inner = self._ahead = None
            held, place = domain.state.held, encode(("i", *path))
            if held is not None:
                if not self._low <= place < self._high:
                    return []
                self._advance(place, ("i", *path))
                return [self._held_item(session, path, held)]
            reason, rows = "", list[tuple[bytes, Item]]()
            try:
                rows = await self._rows(session, domain)
            except MismatchError as error:
                reason = str(error)
            if rows and not reason:
                work = _Opening(session, domain, rows, self._prefix)
                items = work() if len(rows) <= INLINE else await anyio.to_thread.run_sync(work)
                if items:
                    place, last = rows[len(items) - 1]
                    self._advance(place, last.key)
                    self._inner, self._ahead = (None, None) if work.reason else (self._inner, self._ahead)
                    self._size = _CHUNK
                    return items
                reason = work.reason
            if not reason:
                return []
            self._inner = self._ahead = None
            if not await session.moved(domain, seen, self._room):
                raise session.damaged(self._room, reason)
        raise session.restless(self._room)

    def _held_item(self, session: SealedSession, path: Key, held: HeldItem) -> Item:
        try:
            key = decode(held.clear)
            if session.blind(key) == path:
                return Item(key, held.value, held.version)
        except ValueError:
            pass
        raise session.damaged(self._room, "an item is sealed under another key")

    async def _singles(self, session: SealedSession, paths: list[Key]) -> list[Item]:
        """Return the items of the next domains, as long as each has a single item and is sound, and take these from `paths`.

        The rows are read for many domains at once; where an item has a row of its own, both at one moment. Items that do not fit are left to
        `_chunk`, which distinguishes damage from changes of others. The domains are not cached, because so many would displace all others.
        """
        generations: dict[Key, int] = {}
        for path in islice(reversed(paths), min(self._size, self._left)):
            if len(path) >= self._depth:
                break
            generations[path] = self._generations[path]
        if len(generations) < _FEW:
            return []
        first = next(iter(generations))
        scan = session.store.scan(
            ("d", *self._within[1:]),
            after=(*domain_row(first), 0) if self._reverse else ("d", *first),
            limit=len(generations) + 1,
            reverse=self._reverse,
        )
        rows = {row.key: row for row in await collect(scan)}
        items = await self._opened_singles(session, generations, rows)
        if not items:  # the first item has a row of its own, as the others may have
            rows = await get_many(
                session.store, [key for path in generations for key in (domain_row(path), ("i", *path))]
            )
            former = [(*domain_row(path), each) for path, each in generations.items() if domain_row(path) not in rows]
            if former:  # they were put before the row of a domain had its present key
                rows |= await get_many(session.store, former)
            items = await self._opened_singles(session, generations, rows)
        if items:
            last = ("i", *paths[-len(items)])
            del paths[-len(items) :]
            self._advance(encode(last), last)
            self._inner = self._ahead = None
            self._size = _CHUNK
        return items

    async def _opened_singles(
        self, session: SealedSession, generations: Mapping[Key, int], rows: Mapping[Key, Item]
    ) -> list[Item]:
        work = partial(_open_singles, session, generations, rows, self._prefix)
        return work() if len(generations) <= INLINE else await anyio.to_thread.run_sync(work)

    def _advance(self, place: bytes, last: Key) -> None:
        self._last = last
        self._low, self._high = (self._low, place) if self._reverse else (place + b"\0", self._high)

    async def _rows(self, session: SealedSession, domain: Domain) -> list[tuple[bytes, Item]]:
        """Return the sealed items that come next in a domain, each with its encoded inner key."""
        size, rows = min(self._size, self._left), list[tuple[bytes, Item]]()
        # In a variable, because another task may take over changes of another process while this one waits.
        members = domain.members
        if members is None:
            while len(rows) < size and (found := await self._next(session, domain)) is not None:
                self._ahead = None
                rows.append((encode(found.key), found))
            return rows
        cut, depth = len(domain.items), domain.depth
        low, high = max(self._low, domain.items), min(self._high, domain.items + b"\xff")
        if low >= high:
            return rows
        rests = members.chunk(low[cut:], high[cut:], size, reverse=self._reverse)
        for rest in rests:
            wanted = domain.items + rest
            found = await self._next(session, domain)
            place = None if found is None else encode(found.key[depth:])
            if place == rest:
                self._ahead = None
            elif place is not None and place not in members:
                found = None
            else:
                found = await session.store.get(decode(wanted))
            if found is None:
                if rows:
                    break
                raise MismatchError("an item is missing, or one was added by someone without the key")
            rows.append((wanted, found))
        if not rests and (stray := await self._next(session, domain)) is not None:
            check(session, domain, encode(stray.key), stray)
        return rows

    async def _next(self, session: SealedSession, domain: Domain) -> Item | None:
        """Return the next item of the inner scan, the same one until `_ahead` is set to None."""
        if self._ahead is None:
            if self._inner is None:
                within = max(self._within, ("i", *domain.path), key=len)
                inside = self._last is not None and self._last[: len(within)] == within
                after = self._last if inside else None
                self._inner = session.rows(domain, within, after, limit=self._left, reverse=self._reverse)
                self._inner_of = domain, domain.version
            self._ahead = await anext(self._inner, None)
        return self._ahead


class _Opening:
    """Opens items up to the first that cannot be opened, and keeps the reason."""

    def __init__(self, session: SealedSession, domain: Domain, rows: list[tuple[bytes, Item]], prefix: Key) -> None:
        self._session, self._domain, self._rows, self._prefix = session, domain, rows, prefix
        self.reason = ""

    def __call__(self) -> list[Item]:
        opened: list[Item] = []
        prefix, low = self._prefix, encode(self._prefix)
        try:
            for place, found in self._rows:
                clear, value = open_item(self._session, self._domain, place, found)
                # Decoding all of each key would take as long as comparing its digest.
                key = prefix + decode(clear, len(low)) if clear.startswith(low) else decode(clear)
                opened.append(Item(key, value, found.version))
        except MismatchError as error:
            self.reason = str(error)
        except ValueError:
            self.reason = "an item does not contain a key"
        return opened


def _open_singles(
    session: SealedSession, generations: Mapping[Key, int], found: Mapping[Key, Item], prefix: Key
) -> list[Item]:
    """Open the items of domains with a single one each, up to the first that does not fit."""
    opened: list[Item] = []
    low = encode(prefix)
    for path, generation in generations.items():
        row = domain_row(path)
        state = session.single_state(path, generation, found.get(row) or found.get((*row, generation)))
        if state is None:
            break
        item = state.held or session.opened_single(path, state, found.get(("i", *path)))
        if item is None:
            break
        version, clear, value = item
        try:
            key = prefix + decode(clear, len(low)) if clear.startswith(low) else decode(clear)
        except ValueError:
            break
        opened.append(Item(key, value, version))
    return opened


def open_item(session: SealedSession, domain: Domain, place: bytes, found: Item) -> tuple[bytes, bytes]:
    """Return the encoded key and the value of a sealed item, compared with the members of its domain.

    Raises:
        MismatchError: it contradicts the domain, or cannot be opened.
    """
    if domain.members is not None:
        check(session, domain, place, found)
    try:
        return session.opened(domain.state.keys, place, found)
    except UnreadableError as error:
        raise MismatchError(f"an item {error}") from None


class Read(NamedTuple):
    """An item that is to be read by its key."""

    location: Location
    domain: Domain
    seen: int
    """The version that the domain had before the item was read."""
    clear: bytes
    """The encoded key of the item."""
    held: HeldItem | None
    """The item, if the row of the domain had it at that version."""

    @property
    def row(self) -> Key:
        """The row that is to be read: that of the item, or if the domain's holds it, that one, to see whether it has changed."""
        return self.location.inner if self.held is None else self.domain.row


def open_all(
    session: SealedSession, reads: Iterable[Read], rows: Mapping[Key, Item]
) -> tuple[dict[Key, Item], list[tuple[Read, str]]]:
    """Open the read rows; `rows` are the sealed items by their inner keys.

    Returns:
        The items by their keys, and those that their domains contradict, each with the reason.
    """
    opened: dict[Key, Item] = {}
    mismatches: list[tuple[Read, str]] = []
    for each in reads:
        location, row = each.location, rows.get(each.row)
        try:
            if each.held is not None:
                if row is None or row.version != each.seen:
                    raise MismatchError("the row of a domain is missing, or was put back")
                version, clear, value = each.held
                if clear != each.clear:
                    raise MismatchError("an item is sealed under another key")
                opened[location.key] = Item(location.key, value, version)
                continue
            if row is None:
                check(session, each.domain, location.place, None)
                continue
            clear, value = open_item(session, each.domain, location.place, row)
            if clear != each.clear:
                raise MismatchError("an item is sealed under another key")
        except MismatchError as error:
            mismatches.append((each, str(error)))
        else:
            opened[location.key] = Item(location.key, value, row.version)
    return opened, mismatches
