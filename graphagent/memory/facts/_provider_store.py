"""`StoreMemoryProvider`: facts in any store."""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncGenerator, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import orjson

from graphagent._concurrency import turn
from graphagent._options import check_can
from graphagent.errors import ConflictError, DamagedStoreError
from graphagent.memory._byte_cache import ByteCache, check_cache_bytes
from graphagent.memory.facts._json import export_record, fact_record, following, read_export, read_fact
from graphagent.memory.facts._resolve import Known
from graphagent.memory.facts._types import (
    Concept,
    Fact,
    Scope,
    ScopeKind,
    SingleFact,
    Subject,
    check_filter,
    check_given,
    checked_owner,
    folded,
    stamped,
)
from graphagent.store import Change, DeleteAll, Exists, Item, Key, Put, Receipt
from graphagent.store._internal import cached_of, checked, collect, get_many, unchecked

if TYPE_CHECKING:
    from graphagent.memory.facts._json import Place
    from graphagent.protocols import Store

_ROOM = "facts"
_CONCEPTS = ""
_ENTRY_BYTES, _VALUE_BYTES = 800, 150
"""The bytes of memory that a concept in the cache, and each of its values, takes besides their texts."""
_MOST_STEPS = 8
_EXPORTED_AT_ONCE = 256
_READS = 4
"""How many reads a concept takes the first time; in an encrypted store, each takes a while."""


class StoreMemoryProvider:
    """Stores facts in a store, each version as one item.

    The keys are `("facts", owner, kind of scope, scope, subject, keyword, version)`. The list of the concepts of a subject has
    `""` and a number in the place of a keyword. Versions are only appended, without gaps, or removed altogether. So a load of
    one concept, and a save, cost the same however many facts and versions there are: they read the last version that was seen
    and the position after it. `load_all` costs as much for each concept. The combined values of multiple facts stay in memory
    for the concepts that were used last, and only newer versions are read. This cache takes at most about `cache_bytes`.

    The store belongs to the caller: `async with` leaves it open. Every method raises StoreError if the store cannot be read or
    written, and DamagedStoreError if an item is damaged.

    Raises:
        ValueError: `cache_bytes` is not a number of bytes.
    """

    def __init__(self, store: Store, *, cache_bytes: int = 64 * 2**20) -> None:
        check_cache_bytes(cache_bytes)
        check_can("commit", store, "a StoreMemoryProvider takes a store", "StoreMemoryProvider(SqliteStore(path))")
        self._store = store
        self._versions: ByteCache[Key, int] = ByteCache(cache_bytes // 2)
        self._known: ByteCache[Key, tuple[Known, int]] = ByteCache(cache_bytes // 2)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._store!r})"

    async def save(self, fact: Fact, subject: Subject, scope: Scope, *, owner: str = "") -> None:
        """Save a fact as the next version of its concept. It is as durable as the store when this returns."""
        check_given("save(fact, subject, scope)", fact=fact, subject=subject, scope=scope)
        domain = _domain((checked_owner(owner), scope, subject.name))
        keys = (*domain, fact.concept.keyword)
        number = self._versions.get(keys) or 0
        while True:
            number = number or _version(await self._last(keys))
            version = number + 1
            changes: list[Change] = [_put(keys, stamped(fact, version))]
            if number:
                changes.append(Exists((*keys, number)))  # it may have been forgotten since
            else:
                changes.append(_listed(domain, _version(await self._highest((*domain, _CONCEPTS))), fact))
            try:
                await self._store.commit(*changes)
            except ConflictError:
                number = 0
                self._versions.take(keys)
                continue  # another process was faster, so this loop ends
            self._versions.put(keys, version, _size(keys))
            return

    async def load(self, concept: Concept, subject: Subject, scope: Scope, *, owner: str = "") -> list[Fact]:
        """Return the current fact about a concept, the last SingleFact or one MultipleFacts of all values, as a list of one or none."""
        check_given("load(concept, subject, scope)", concept=concept, subject=subject, scope=scope)
        fact = await self._load((*_domain((checked_owner(owner), scope, subject.name)), concept.keyword))
        return [fact] if fact else []

    async def load_all(self, subject: Subject, scope: Scope, *, owner: str = "") -> list[Fact]:
        """Return the current facts about all concepts, in the order in which the concepts were first saved."""
        check_given("load_all(subject, scope)", subject=subject, scope=scope)
        domain = _domain((checked_owner(owner), scope, subject.name))
        listed = [_keyword(item) async for item in self._store.scan((*domain, _CONCEPTS))]
        found: list[Fact] = []
        for number, keyword in enumerate(dict.fromkeys(listed), 1):
            await turn(number * _READS)
            fact = await self._load((*domain, keyword))
            if fact is not None:
                found.append(fact)
        return found

    async def load_by_description(
        self, description: str, subject: Subject, scope: Scope, *, owner: str = ""
    ) -> list[Fact]:
        """Return the current facts about concepts whose description, as last saved, contains a text; case is ignored."""
        check_given(
            "load_by_description(description, subject, scope)", description=description, subject=subject, scope=scope
        )
        wanted = folded(description)
        found = await self.load_all(subject, scope, owner=owner)
        return [fact for fact in found if wanted in folded(fact.concept.description)]

    async def history(self, concept: Concept, subject: Subject, scope: Scope, *, owner: str = "") -> list[Fact]:
        """Return every version of the facts about a concept as it was saved, the newest first."""
        check_given("history(concept, subject, scope)", concept=concept, subject=subject, scope=scope)
        keys = (*_domain((checked_owner(owner), scope, subject.name)), concept.keyword)
        return [_fact(item) async for item in self._store.scan(keys, reverse=True)]

    async def forget(
        self,
        *,
        concept: Concept | None = None,
        subject: Subject | None = None,
        scope: Scope | None = None,
        owner: str = "",
        everything: bool = False,
    ) -> Receipt:
        """Erase every version of all facts of one owner that match the arguments, in one commit; with `everything`, all facts.

        What was cached in the store for the owner is erased too, since it may repeat them.

        Raises:
            ValueError: neither a concept, a subject, a scope nor `everything` is given, or one besides `everything`.
        """
        check_filter(concept, subject, scope, everything=everything)
        wanted = (
            *((scope.kind.value, scope.name) if scope else (None, None)),
            subject.name if subject else None,
            concept.keyword if concept else None,
        )
        # The prefix ends before the keyword, so that the list of concepts is read too.
        given = next((depth for depth, part in enumerate(wanted[:3]) if part is None), 3)
        base = (_ROOM, checked_owner(owner), *(part for part in wanted[:given] if part is not None))
        depth = 2 + max((place + 1 for place, part in enumerate(wanted) if part is not None), default=0)
        prefixes: dict[Key, None] = {}
        facts, size = 0, 0
        async for item in self._store.scan(base):
            _place(item)
            *place, keyword, _ = item.key[2:]
            is_listed = keyword == _CONCEPTS
            of = _keyword(item) if is_listed else keyword
            if all(part in (None, segment) for part, segment in zip(wanted, (*place, of), strict=True)):
                prefixes[item.key if concept and is_listed else item.key[:depth]] = None
                facts, size = facts + (not is_listed), size + len(item.value)
        self._clear()
        await self._store.commit(*map(DeleteAll, prefixes), DeleteAll(cached_of(owner)))
        self._clear()
        return Receipt(facts=facts, bytes=size)

    async def export(self, *, owner: str | None = None) -> AsyncGenerator[dict[str, object]]:
        """Yield every version of every fact of one owner, or of all; those of each concept in the order of saving."""
        prefix = (_ROOM,) if owner is None else (_ROOM, checked_owner(owner))
        after: Key | None = None
        while True:
            # Scans are read to their end before anything is yielded, so that a caller who stops reading leaves none open.
            items = await collect(self._store.scan(prefix, after=after, limit=_EXPORTED_AT_ONCE))
            for number, item in enumerate(items, 1):
                await turn(number)
                place = _place(item)
                if item.key[5] != _CONCEPTS:
                    yield export_record(place, _fact(item))
            if len(items) < _EXPORTED_AT_ONCE:
                return
            after = items[-1].key

    async def import_(self, records: Sequence[dict[str, object]]) -> int:
        """Save the records of an export, in one commit, but not facts that are stored already (by id). Return how many were new.

        If a concept has facts already, new ones come after them, with the versions that follow.

        Raises:
            ValueError: a record is not one of an export; nothing was saved.
        """
        places = await read_export(records)
        while True:
            new = 0
            changes: list[Put] = []
            steps = itertools.count(1)
            for place, facts in places.items():
                missing = await self._missing(_domain(place), facts, steps)
                new += sum(put.key[5] != _CONCEPTS for put in missing)
                changes += missing
            try:
                await self._store.commit(*changes)
            except ConflictError:
                continue  # another process was faster, so this loop ends
            return new

    async def verify(self) -> int:
        """Read and check every fact, and the store as far as it can check itself. Return the number of facts."""
        check = getattr(self._store, "verify", None)
        if check is not None:
            await check()
        count = 0
        concepts: set[Key] = set()
        listed: set[Key] = set()
        async for item in self._store.scan((_ROOM,)):
            _place(item)
            if item.key[5] == _CONCEPTS:
                listed.add((*item.key[:5], _keyword(item)))
            else:
                _fact(item)
                concepts.add(item.key[:6])
                count += 1
        # Two processes that forget one concept at the same time may leave its name in the list, but no fact is ever missing from
        # it. A fact that is saved during this scan may be listed at a position that was read before, so the list is read again.
        for keys in concepts - listed:
            names = [_keyword(item) async for item in self._store.scan((*keys[:5], _CONCEPTS))]
            if keys[5] not in names and await self._highest(keys):
                raise DamagedStoreError(f"the facts about {keys[5]!r}", "they are in no list of concepts")
        return count

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._clear()

    def _clear(self) -> None:
        self._versions.clear()
        self._known.clear()

    async def _last(self, keys: Key) -> Item | None:
        """Return the last version of a concept. No search is needed if it is near the one that was seen last."""
        number, item = self._versions.take(keys) or 0, None
        for _ in range(_MOST_STEPS if number else 0):
            this, next_ = (*keys, number), (*keys, number + 1)
            found = await get_many(self._store, (this, next_))
            if this not in found:
                break  # it was forgotten
            if next_ not in found:
                item = found[this]
                break
            number += 1
        if item is None:
            item = await self._highest(keys)
        if item is not None:
            self._versions.put(keys, _version(item), _size(keys))
        return item

    async def _highest(self, keys: Key) -> Item | None:
        found = [item async for item in self._store.scan(keys, limit=1, reverse=True)]
        return found[0] if found else None

    async def _load(self, keys: Key) -> Fact | None:
        item = await self._last(keys)
        if item is None:
            return None
        last = _fact(item)
        if isinstance(last, SingleFact):
            return last
        # Removed from the cache while versions are added to it, so that two threads never add to the same object.
        known, size = self._known.take(keys) or (None, 0)
        if known is None or known.last.id != last.id:
            known = await self._caught_up(keys, known)
            if known is None:
                return None
            size = _size(keys) + sum(_VALUE_BYTES + len(value) for value in known.fact().values)
        self._known.put(keys, (known, size), size)
        return known.fact()

    async def _caught_up(self, keys: Key, known: Known | None) -> Known | None:
        if known is not None:
            there = await self._store.get((*keys, known.last.version))
            if there is None or _fact(there).id != known.last.id:
                known = None
        after = (*keys, known.last.version) if known else None
        async for item in self._store.scan(keys, after=after):
            fact = _fact(item)
            if known is None:
                known = Known(fact)
            else:
                known.add(fact)
        return known

    async def _missing(self, domain: Key, facts: list[Fact], steps: Iterator[int]) -> list[Put]:
        """Return the changes that add the missing facts; `steps` counts the work done so far, for all domains together."""
        concepts: dict[str, list[Fact]] = {}
        for fact in facts:
            concepts.setdefault(fact.concept.keyword, []).append(fact)
        number = _version(await self._highest((*domain, _CONCEPTS)))
        puts: list[Put] = []
        for keyword, given in concepts.items():
            await turn(next(steps) * _READS)
            ids: set[str] = set()
            last = 0
            async for item in self._store.scan((*domain, keyword)):
                ids.add(_fact(item).id)
                last = _version(item)
            missing = [fact for fact in given if fact.id not in ids]
            for fact in following(missing, {keyword: last}.__getitem__):
                await turn(next(steps) * _READS)
                puts.append(_put((*domain, keyword), fact))
            if missing and not last:
                listed = _listed(domain, number, missing[0])
                number = int(listed.key[-1])
                puts.append(listed)
        return puts


def _size(keys: Key) -> int:
    return _ENTRY_BYTES + sum(len(segment) for segment in keys if isinstance(segment, str))


def _listed(domain: Key, last: int, fact: Fact) -> Put:
    # A number is never used twice, so that removing a concept from the list cannot remove another one that was added since.
    number = last + 1 + int.from_bytes(os.urandom(4))
    return Put((*domain, _CONCEPTS, number), checked(fact.concept.keyword.encode()), expected=0)


def _keyword(item: Item) -> str:
    try:
        return Concept(unchecked(item.value).decode()).keyword
    except ValueError:
        raise DamagedStoreError(f"a list of concepts of room {_ROOM!r}", "it is not what was written") from None


def _domain(place: Place) -> Key:
    owner, scope, subject = place
    return (_ROOM, owner, scope.kind.value, scope.name, subject)


def _put(keys: Key, fact: Fact) -> Put:
    return Put((*keys, fact.version), checked(orjson.dumps(fact_record(fact))), expected=0)


def _version(item: Item | None) -> int:
    number = item.key[-1] if item else 0
    if isinstance(number, str):
        raise DamagedStoreError(f"a key of room {_ROOM!r}", "it is not that of a fact")
    return number


def _fact(item: Item) -> Fact:
    try:
        fact = read_fact(orjson.loads(unchecked(item.value)))
        if (fact.concept.keyword, fact.version) != item.key[5:]:
            raise ValueError("it is a fact of another place")
    except (ValueError, TypeError) as error:
        reason = "it is not JSON" if isinstance(error, orjson.JSONDecodeError) else str(error)
    else:
        return fact
    # Outside the except clause, because the JSON error contains the text and would be the context of this error.
    raise DamagedStoreError(f"version {item.key[-1]} of the facts about {item.key[-2]!r}", reason)


def _place(item: Item) -> Place:
    try:
        _, owner, kind, name, subject, keyword, number = item.key
        if not isinstance(keyword, str) or not isinstance(number, int):
            raise TypeError
        return checked_owner(str(owner)), Scope(ScopeKind(kind), str(name)), Subject(str(subject)).name
    except (ValueError, TypeError):
        raise DamagedStoreError(f"a key of room {_ROOM!r}", "it is not that of a fact") from None
