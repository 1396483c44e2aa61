"""Verifying an encrypted store: everything is read and compared."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from graphagent._article import counted
from graphagent.errors import DamagedStoreError
from graphagent.store._items import decode, encode
from graphagent.store._sealed_detection import ROOT, is_plain
from graphagent.store.sealed._domains import Domain, MismatchError
from graphagent.store.sealed._scan import open_item
from graphagent.store.sealed._session import SealedSession, folded

if TYPE_CHECKING:
    from graphagent.store._items import Item, Key


async def verify(session: SealedSession) -> int | None:
    """Open every item of a store, in a session that was opened for this alone.

    Return the number of items, or None if others have written meanwhile, so that no single state of the store was read.
    """
    domains: list[Domain] = []
    count, known = 0, 1
    await session.renew_list()
    listed = session.listed.members
    if listed is None:
        return None
    for path in await session.domains_under(()):
        domain = await session.domain(path, "(any)")
        if domain is None or domain.members is None or not await _opens(session, domain):
            return None
        domains.append(domain)
        count += domain.state.count
        known += 1 + domain.state.rows
        session.drop(path)
        # Both were compared and are not needed any more; of all domains together it may be much.
        domain.members, domain.state = None, replace(domain.state, held=None)
    rows, plain = 0, Counter[object]()
    async for found in session.store.scan(()):
        rows += found.key[0] != ROOT[0]  # rows of writers, which come and go, were checked at opening
        if is_plain(found.key):
            plain[found.key[0]] += 1
    still = not [each for each in domains if await session.moved(each, each.version, "(any)")]
    await session.renew_list()
    if not still or session.listed.members is not listed:
        return None
    if plain and rows == known + plain.total():
        raise _beside_plain(session, plain)
    if rows != known:
        raise DamagedStoreError(session.where, f"it has {counted(rows, 'row')}, but knows of {known}")
    return count


def _beside_plain(session: SealedSession, plain: Counter[object]) -> DamagedStoreError:
    rooms = ", ".join(f"{count} in room {room!r}" for room, count in plain.items())
    return DamagedStoreError(
        session.where,
        f"besides the sealed rows, there are rows in plain text ({rooms}), put there by someone who opened it without its key",
        remedy="The sealed data are sound: export them with the key, import them into a new store, and delete this one with its plain "
        "text. Of a SqliteStore, scan(()) still returns the plain rows",
    )


async def _opens(session: SealedSession, domain: Domain) -> bool:
    """Open all items of a domain; return False if others have changed it meanwhile."""
    seen = domain.version
    try:
        if domain.state.held is not None:
            _check_place(session, ("i", *domain.path), domain.state.held.clear)
        await folded(session.rows(domain), partial(_open, session, domain))
    except MismatchError as error:
        if await session.moved(domain, seen, "(any)"):
            return False
        raise session.damaged("(any)", str(error)) from None
    return True


def _open(session: SealedSession, domain: Domain, rows: list[Item]) -> None:
    for found in rows:
        place = encode(found.key)
        clear, _ = open_item(session, domain, place, found)
        _check_place(session, found.key, clear)


def _check_place(session: SealedSession, row: Key, clear: bytes) -> None:
    try:
        fits = ("i", *session.blind(decode(clear))) == row
    except ValueError:
        fits = False
    if not fits:
        raise MismatchError("an item is sealed under another key")
