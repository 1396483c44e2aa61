"""`StoreMemoryProvider`: facts in any store.

The file is long because every method says what it does and raises for users.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self

from graphagent._concurrency import turn
from graphagent._options import check_can
from graphagent.errors import ConflictError, DamagedStoreError
from graphagent.memory._byte_cache import ByteCache, check_cache_bytes
from graphagent.memory.facts._arguments import check_filter, check_given
from graphagent.memory.facts._concept_list import CONCEPTS, keywords_of, list_row, number_of, with_keywords
from graphagent.memory.facts._json import export_record, following, read_export
from graphagent.memory.facts._known import Known, Moment, Newest, is_plain, known_at, recorded_by, size_of
from graphagent.memory.facts._store_items import ROOM, concept_of, domain_of, place_of, put_of, version_of
from graphagent.memory.facts._types import (
    Concept,
    Fact,
    FactVersion,
    Scope,
    SingleFact,
    Subject,
    Withdrawal,
    checked_owner,
    folded,
    stamped,
)
from graphagent.memory.facts._withdrawing import erased_bytes, of_known, without_value
from graphagent.store import Change, DeleteAll, Exists, Item, Key, Put, Receipt
from graphagent.store._bulk import collect, get_many
from graphagent.store._cache import cached_of

if TYPE_CHECKING:
    from datetime import datetime

    from graphagent.protocols import Store

_ENTRY_BYTES, _VALUE_BYTES = 800, 150
"""The bytes of memory that a concept in the cache, and each of its values, takes besides their texts."""
_MOST_STEPS = 8
_EXPORTED_AT_ONCE = 256
_FIRST_PAGE, _LONGEST_PAGE, _GROWTH = 8, 4096, 4
"""How many items `load_all` reads at once: few again after a page that was mostly the past of its last concept."""
_READS = 4
"""How many reads a concept takes the first time; in an encrypted store, each takes a while."""


@dataclass(slots=True)
class _Past:
    """The newest versions of a concept, the newest first."""

    versions: list[FactVersion]
    size: int
    """About how many bytes of memory they take."""
    whole: bool = False
    """Whether these are all versions."""


class StoreMemoryProvider:
    """Stores facts in a store, each version as one item.

    The keys are `("facts", owner, kind of scope, scope, subject, keyword, version)`. The list of the concepts of a subject has
    `""` and a number in the place of a keyword, and several concepts in a row. Versions are only appended, without gaps, or removed
    altogether. So a load of one concept, and a save, cost the same however many facts and versions there are: they read the last
    version that was seen and the position after it. `load_all` is one scan, which leaves out long histories. The combined values
    of multiple facts stay in memory for the concepts that were used last, and only newer versions are read. This cache takes at
    most about `cache_bytes`.

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
        self._known: ByteCache[Key, tuple[Known, int]] = ByteCache(cache_bytes // 4)
        self._pasts: ByteCache[Key, _Past] = ByteCache(cache_bytes // 4)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._store!r})"

    @property
    def store(self) -> Store:
        """The store that has the facts."""
        return self._store

    async def save(self, fact: Fact, subject: Subject, scope: Scope, *, owner: str = "") -> None:
        """Save a fact as the next version of its concept. It is as durable as the store when this returns."""
        check_given("save(fact, subject, scope)", fact=fact, subject=subject, scope=scope)
        await self._append(fact, domain_of((checked_owner(owner), scope, subject.name)))

    async def withdraw(self, withdrawal: Withdrawal, subject: Subject, scope: Scope, *, owner: str = "") -> None:
        """Take back values of a concept with several, as its next version. It is as durable as the store when this returns.

        Raises:
            ValueNotFoundError: a value is not known.
            ValueError: the concept has one value.
        """
        check_given("withdraw(withdrawal, subject, scope)", withdrawal=withdrawal, subject=subject, scope=scope)
        domain = domain_of((checked_owner(owner), scope, subject.name))
        while True:
            last = await self._last((*domain, withdrawal.concept.keyword))
            known = await self.load(withdrawal.concept, subject, scope, owner=owner)
            # If a version comes between, such as one that says that the value was forgotten, it may not be known any more.
            if await self._added(of_known(withdrawal, known), domain, number_of(last)):
                return

    async def _append(self, fact: FactVersion, domain: Key) -> None:
        keys = (*domain, fact.concept.keyword)
        number, apart = self._versions.get(keys) or 0, False
        while not await self._added(fact, domain, number or number_of(await self._last(keys)), apart=apart):
            # Another writer was faster, so this loop ends; tasks that begin concepts at the same time write separate rows.
            number, apart = 0, True

    async def _added(self, fact: FactVersion, domain: Key, number: int, *, apart: bool = False) -> bool:
        """Add a version after the one of a number, which is 0 before the first, and return whether that was the last one."""
        keys = (*domain, fact.concept.keyword)
        version = number + 1
        changes: list[Change] = [put_of(keys, stamped(fact, version))]
        if number:
            changes.append(Exists((*keys, number)))  # it may have been forgotten since
        else:
            changes += with_keywords(
                domain, await self._highest((*domain, CONCEPTS)), [fact.concept.keyword], apart=apart
            )
        try:
            await self._store.commit(*changes)
        except ConflictError:
            self._versions.take(keys)
            return False
        self._versions.put(keys, version, _size(keys))
        return True

    async def load(
        self, concept: Concept, subject: Subject, scope: Scope, *, owner: str = "", as_of: datetime | None = None
    ) -> list[Fact]:
        """Return the known fact about a concept, the last SingleFact that holds or one MultipleFacts of all values, or an empty list.

        If that SingleFact is untrusted, the last one that holds and is not untrusted comes before it.

        Args:
            concept: The concept, found by its keyword.
            subject: The subject.
            scope: The scope.
            owner: The owner.
            as_of: The moment at which the facts hold, with a time zone, by all that is known today; by default the current time.

        Raises:
            ValueError: `as_of` has no time zone.
        """
        check_given("load(concept, subject, scope)", concept=concept, subject=subject, scope=scope)
        moment = None if as_of is None else Moment(as_of)
        return await self._load((*domain_of((checked_owner(owner), scope, subject.name)), concept.keyword), moment)

    async def load_all(
        self, subject: Subject, scope: Scope, *, owner: str = "", as_of: datetime | None = None
    ) -> list[Fact]:
        """Return the known facts about all concepts, each as `load` does, in the order in which the concepts were first saved."""
        check_given("load_all(subject, scope)", subject=subject, scope=scope)
        domain = domain_of((checked_owner(owner), scope, subject.name))
        listed, facts = await self._current(domain, Moment(as_of))
        # A concept that is in no list was saved after the list was read, or was forgotten since, or its name is lost.
        for keyword in sorted(facts.keys() - listed.keys()):
            if await self._is_listed((*domain, keyword)):
                listed[keyword] = None
        return [fact for keyword in listed for fact in facts.get(keyword, ())]

    async def load_by_description(
        self, description: str, subject: Subject, scope: Scope, *, owner: str = "", as_of: datetime | None = None
    ) -> list[Fact]:
        """Return the known facts about concepts whose description, as last saved, contains a text; case is ignored."""
        check_given(
            "load_by_description(description, subject, scope)", description=description, subject=subject, scope=scope
        )
        wanted = folded(description)
        at: dict[str, Any] = {} if as_of is None else {"as_of": as_of}
        found = await self.load_all(subject, scope, owner=owner, **at)
        return [fact for fact in found if wanted in folded(fact.concept.description)]

    async def history(
        self, concept: Concept, subject: Subject, scope: Scope, *, owner: str = "", at: datetime | None = None
    ) -> list[FactVersion]:
        """Return every version of the facts about a concept as it was recorded, withdrawals among them, the newest first.

        Args:
            concept: The concept, found by its keyword.
            subject: The subject.
            scope: The scope.
            owner: The owner.
            at: A moment with a time zone; only versions recorded by then are returned.

        Raises:
            ValueError: `at` has no time zone.
        """
        check_given("history(concept, subject, scope)", concept=concept, subject=subject, scope=scope)
        keys = (*domain_of((checked_owner(owner), scope, subject.name)), concept.keyword)
        by = None if at is None else Moment(at, "at=")
        return recorded_by([version_of(item) async for item in self._store.scan(keys, reverse=True)], by)

    async def forget(
        self,
        *others: Never,
        concept: Concept | None = None,
        subject: Subject | None = None,
        scope: Scope | None = None,
        value: str | None = None,
        owner: str = "",
        everything: bool = False,
    ) -> Receipt:
        """Erase every version of all facts of one owner that match the arguments, in one commit; with `everything`, all facts.

        With `value`, only this value of the concept is erased, from every version, and a Withdrawal without values is added. What was
        cached in the store for the owner is erased too, since it may repeat them.

        Raises:
            TypeError: something is given by position.
            ValueError: neither a concept, a subject, a scope nor `everything` is given, or one besides `everything`; or a value without
                its concept, or of a concept with one value.
        """
        check_filter(concept, subject, scope, value, everything=everything, by_position=others)
        wanted = (
            *((scope.kind.value, scope.name) if scope else (None, None)),
            subject.name if subject else None,
            concept.keyword if concept else None,
        )
        # The prefix ends before the keyword, so that the list of concepts is read too.
        given = next((depth for depth, part in enumerate(wanted[:3]) if part is None), 3)
        base = (ROOM, checked_owner(owner), *(part for part in wanted[:given] if part is not None))
        if value is not None:
            return await self._erase(base, wanted, value)
        depth = 2 + max((place + 1 for place, part in enumerate(wanted) if part is not None), default=0)
        while True:
            prefixes: dict[Key, None] = {}
            shorter: list[Put] = []
            facts, size = 0, 0
            async for item in self._store.scan(base):
                place_of(item)
                *place, keyword, _ = item.key[2:]
                is_listed = keyword == CONCEPTS
                names = keywords_of(item) if is_listed else [str(keyword)]
                left = [name for name in names if wanted[3] not in (None, name)]
                if left == names or any(
                    part not in (None, segment) for part, segment in zip(wanted, place, strict=False)
                ):
                    continue
                if left:
                    shorter.append(list_row(item.key, left, item.version))
                else:
                    prefixes[item.key if is_listed and concept else item.key[:depth]] = None
                facts += not is_listed
                size += len(item.value) - (len(shorter[-1].value) if left else 0)
            self._clear()
            try:
                await self._store.commit(*shorter, *map(DeleteAll, prefixes), DeleteAll(cached_of(owner)))
            except ConflictError:
                continue  # another process was faster, so this loop ends
            self._clear()
            return Receipt(facts=facts, bytes=size)

    async def _erase(self, base: Key, wanted: tuple[str | None, ...], value: str) -> Receipt:
        """Erase a value from every version of a concept under a prefix, as far as kind and name of the scope and subject fit."""
        while True:
            found: dict[Key, list[Item]] = {}
            async for item in self._store.scan(base):
                place_of(item)
                if all(part in (None, each) for part, each in zip(wanted, item.key[2:], strict=False)):
                    found.setdefault(item.key[:-1], []).append(item)
            changes: list[Change] = []
            facts = 0
            for keys, items in found.items():
                versions = [version_of(item) for item in items]
                left = without_value(versions, value)
                if not left:
                    continue
                puts = [put_of(keys, version) for version in left]
                # The last version is still there, and nobody has added one. Only then the old bytes are erased.
                changes += [Exists(items[-1].key), puts[-1], DeleteAll(keys), *puts]
                facts += sum(value in version.values for version in versions)
            if not changes:
                await self._store.commit()  # raises if facts may come back whose saving failed
                return Receipt()
            self._clear()
            try:
                await self._store.commit(*changes, DeleteAll(cached_of(str(base[1]))))
            except ConflictError:
                continue  # another process was faster, so this loop ends
            self._clear()
            return Receipt(facts=facts, bytes=erased_bytes(facts, value))

    async def export(self, *, owner: str | None = None) -> AsyncGenerator[dict[str, object]]:
        """Yield every version of every fact of one owner, or of all; those of each concept in the order of saving."""
        prefix = (ROOM,) if owner is None else (ROOM, checked_owner(owner))
        after: Key | None = None
        while True:
            # Scans are read to their end before anything is yielded, so that a caller who stops reading leaves none open.
            items = await collect(self._store.scan(prefix, after=after, limit=_EXPORTED_AT_ONCE))
            for number, item in enumerate(items, 1):
                await turn(number)
                place = place_of(item)
                if item.key[5] != CONCEPTS:
                    yield export_record(place, version_of(item))
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
                missing = await self._missing(domain_of(place), facts, steps)
                new += sum(put.key[5] != CONCEPTS for put in missing)
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
        async for item in self._store.scan((ROOM,)):
            place_of(item)
            if item.key[5] == CONCEPTS:
                listed.update((*item.key[:5], keyword) for keyword in keywords_of(item))
            else:
                version_of(item)
                concepts.add(item.key[:6])
                count += 1
        for keys in concepts - listed:
            await self._is_listed(keys)
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
        self._pasts.clear()

    async def _current(self, prefix: Key, moment: Moment) -> tuple[dict[str, None], dict[str, list[Fact]]]:
        """Return the list of a subject's concepts, and the known facts by keyword, by one scan of its items.

        With the prefix of one concept, only that is read, and the list is empty. The scan goes backwards, from the newest version of
        each concept to the oldest one that is needed.
        """
        rows: list[list[str]] = []
        newest: dict[str, Newest] = {}
        after, size, steps = None, _FIRST_PAGE, itertools.count(1)
        while True:
            page = await collect(self._store.scan(prefix, after=after, limit=size, reverse=True))
            past = 0  # how many versions at the end of the page make no difference
            for item in page:
                await turn(next(steps))
                keyword = concept_of(item)
                this = newest.get(keyword)
                if keyword == CONCEPTS:
                    rows.append(keywords_of(item))
                elif this is None:
                    newest[keyword] = self._begun(item, moment)
                elif not this.complete:
                    this.add(version_of(item))
                else:
                    past += 1
                    continue
                past = 0
            if len(page) < size:
                break
            after = page[-1].key[:-1] if past else page[-1].key
            size = _FIRST_PAGE if past > size // 2 else min(size * _GROWTH, _LONGEST_PAGE)
        facts: dict[str, list[Fact]] = {}
        for keyword, each in newest.items():
            await turn(next(steps))
            known = each.known()
            if known is None:
                facts[keyword] = each.facts()
            else:
                facts[keyword] = self._combined((*prefix[:5], keyword), known, moment)
        return dict.fromkeys(itertools.chain.from_iterable(reversed(rows))), facts

    def _begun(self, item: Item, moment: Moment) -> Newest:
        keys, last = item.key[:-1], version_of(item)
        self._versions.put(keys, last.version, _size(keys))
        combined = not isinstance(last, SingleFact) and moment.has(last)
        known, _ = (combined and self._known.take(keys)) or (None, 0)
        return Newest(last, moment, known)

    def _combined(self, keys: Key, known: Known, moment: Moment, size: int = 0) -> list[Fact]:
        """Put combined values into the cache, and return them as facts; `size` is known if nothing was added."""
        facts = list(known.facts(moment))
        size = size or _size(keys) + sum(_VALUE_BYTES + len(value) for fact in facts for value in fact.values)
        self._known.put(keys, (known, size), size)
        return facts

    async def _is_listed(self, keys: Key) -> bool:
        """Return whether a concept that seemed to be in no list is in one; if it is not, it was forgotten meanwhile.

        Two processes that forget one concept at the same time may leave its name in the list, but no fact is ever missing from it.
        """
        async for item in self._store.scan((*keys[:-1], CONCEPTS)):
            if keys[-1] in keywords_of(item):
                return True
        if await self._highest(keys):
            raise DamagedStoreError(f"the facts about {keys[-1]!r}", "they are in no list of concepts")
        return False

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
            self._versions.put(keys, number_of(item), _size(keys))
        return item

    async def _highest(self, keys: Key) -> Item | None:
        found = [item async for item in self._store.scan(keys, limit=1, reverse=True)]
        return found[0] if found else None

    async def _load(self, keys: Key, moment: Moment | None) -> list[Fact]:
        """Return the facts about a concept that hold at a moment, or now: from its last version alone, if that is enough."""
        item = await self._last(keys)
        if item is None:
            return []
        last = version_of(item)
        if is_plain(last) and (moment is None or moment.has(last)):
            return [last]
        moment = moment or Moment(None)
        if isinstance(last, SingleFact) or not moment.has(last):
            return await self._at(keys, last, moment)
        # Removed from the cache while versions are added to it, so that two threads never add to the same object.
        kept = self._known.take(keys)
        if kept is not None:
            facts = self._combined(keys, kept[0], moment, kept[1])
            if kept[0].last.id == last.id:
                return facts
        _, found = await self._current(keys, moment)
        return found.get(last.concept.keyword, [])

    async def _at(self, keys: Key, last: FactVersion, moment: Moment) -> list[Fact]:
        """Return the facts about a concept that hold at a moment. The versions that are read for them stay in the cache."""
        past = self._pasts.take(keys)
        if past is None or past.versions[0].id != last.id:
            past = _Past([last], _size(keys) + size_of(last))
        versions, size = past.versions, _FIRST_PAGE
        while True:
            facts, complete = known_at(versions, moment)
            if complete or past.whole:
                break
            after = (*keys, versions[-1].version)
            page = await collect(self._store.scan(keys, after=after, limit=size, reverse=True))
            for number, item in enumerate(page, 1):
                await turn(number)
                versions.append(version_of(item))
                past.size += size_of(versions[-1])
            past.whole, size = len(page) < size, min(size * _GROWTH, _LONGEST_PAGE)
        if len(versions) > 1:
            self._pasts.put(keys, past, past.size)
        return facts

    async def _missing(self, domain: Key, facts: list[FactVersion], steps: Iterator[int]) -> list[Put]:
        """Return the changes that add the missing facts; `steps` counts the work done so far, for all domains together."""
        concepts: dict[str, list[FactVersion]] = {}
        for fact in facts:
            concepts.setdefault(fact.concept.keyword, []).append(fact)
        puts: list[Put] = []
        new: list[str] = []
        for keyword, given in concepts.items():
            await turn(next(steps) * _READS)
            ids: set[str] = set()
            last = 0
            async for item in self._store.scan((*domain, keyword)):
                ids.add(version_of(item).id)
                last = number_of(item)
            missing = [fact for fact in given if fact.id not in ids]
            for fact in following(missing, {keyword: last}.__getitem__):
                await turn(next(steps) * _READS)
                puts.append(put_of((*domain, keyword), fact))
            if missing and not last:
                new.append(keyword)
        return [*puts, *with_keywords(domain, await self._highest((*domain, CONCEPTS)), new)]


def _size(keys: Key) -> int:
    return _ENTRY_BYTES + sum(len(segment) for segment in keys if isinstance(segment, str))
