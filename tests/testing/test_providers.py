"""`check_provider` passes providers that keep their promises, and names the promise that another one breaks."""

from __future__ import annotations

import contextlib
import re
import unicodedata
from dataclasses import replace
from datetime import UTC
from pathlib import Path

import anyio.lowlevel
import pytest

from graphagent.errors import ValueNotFoundError
from graphagent.memory import (
    EncryptedMemoryProvider,
    FactType,
    FileMemoryProvider,
    MultipleFacts,
    Scope,
    SingleFact,
    Source,
    StoreMemoryProvider,
    Subject,
    Withdrawal,
)
from graphagent.store import EncryptedStore, MemoryStore, Receipt, SqliteStore
from graphagent.store.postgres import PostgresStore
from graphagent.testing import check_provider
from tests.testing.dictionary import Dictionary, Disk
from tests.testing.mutants import Mutants

KEY = bytes(range(32))
MUTANTS = Mutants()


class OneDict:
    """A provider of the four methods alone, as simple as can be. Its facts are in a dictionary that lasts."""

    def __init__(self, disk=None):
        self.disk = {} if disk is None else disk

    async def save(self, fact, subject, scope):
        facts = self.disk.setdefault((fact.concept, subject, scope), [])
        if isinstance(fact, SingleFact):
            facts.clear()
        facts.append(fact)

    async def load(self, concept, subject, scope):
        return list(self.disk.get((concept, subject, scope), ()))

    async def load_all(self, subject, scope):
        places = list(self.disk)
        return [fact for place in places if place[1:] == (subject, scope) for fact in await self.load(*place)]

    async def load_by_description(self, description, subject, scope):
        found = await self.load_all(subject, scope)
        return [fact for fact in found if description.casefold() in fact.concept.description.casefold()]


class OneFact(OneDict):
    """Joins multiple facts as they are saved."""

    async def save(self, fact, subject, scope):
        for known in await self.load(fact.concept, subject, scope):
            if isinstance(fact, MultipleFacts):
                trust = Source(trust="untrusted") if known.source.trust == "untrusted" else fact.source
                fact = replace(fact, values=tuple(dict.fromkeys([*known.values, *fact.values])), source=trust)
        self.disk[fact.concept, subject, scope] = [fact]


def reopened(provider):
    """Give another provider of the same kind over what lasts of a provider."""
    return type(provider)(provider.disk)


@pytest.mark.parametrize("kind", [OneDict, OneFact])
async def test_four_methods_are_enough(kind):
    """A provider without history or owners passes, whether it joins multiple facts or leaves that to `resolve`."""
    await check_provider(kind, reopen=reopened)


@pytest.mark.parametrize(
    "opened",
    [
        FileMemoryProvider,
        lambda folder: StoreMemoryProvider(SqliteStore(folder / "facts.db")),
        lambda folder: EncryptedMemoryProvider(folder, key=KEY),
    ],
    ids=["file", "sqlite", "sealed"],
)
async def test_what_is_on_the_disk_is_opened_again(opened, tmp_path: Path):
    """Every provider that keeps facts on the disk keeps the promise that they are durable."""
    await check_provider(lambda: opened(tmp_path), reopen=lambda _: opened(tmp_path))


@pytest.mark.thorough
@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
async def test_what_is_in_a_database_is_opened_again(sealed, postgres_dsn):
    """The facts that a provider keeps in a database are as durable."""
    stores = [PostgresStore(postgres_dsn) for _ in range(2)]
    one, two = (StoreMemoryProvider(EncryptedStore(each, KEY) if sealed else each) for each in stores)
    async with stores[0], stores[1]:
        await check_provider(lambda: one, reopen=lambda _: two)


class Own(StoreMemoryProvider):
    """A KeepingProvider that changes what it is asked and what it answers; its facts are in a store that lasts."""

    def __init__(self, disk=None):
        self.disk = MemoryStore() if disk is None else disk
        super().__init__(self.disk)


async def test_a_keeping_provider_is_opened_again():
    """A provider with all methods passes, whose facts are opened again."""
    await check_provider(Own, reopen=reopened)


# 1. Lost values


@MUTANTS.breaks("load returns the saved fact")
class Forgetful(OneDict):
    async def save(self, fact, subject, scope):
        pass


@MUTANTS.breaks("load returns all values of a multiple fact")
class FirstValue(OneDict):
    async def save(self, fact, subject, scope):
        if isinstance(fact, MultipleFacts):
            fact = replace(fact, values=fact.values[:1])
        await super().save(fact, subject, scope)


@MUTANTS.breaks("load returns the values of all MultipleFacts of a concept")
class LastMultiple(OneDict):
    """Replaces multiple facts too, as the page on Koog once did."""

    async def save(self, fact, subject, scope):
        self.disk[fact.concept, subject, scope] = [fact]


@MUTANTS.breaks("load_all returns the values of all MultipleFacts")
class LastMultipleOfAll(OneDict):
    async def load_all(self, subject, scope):
        return list({fact.concept: fact for fact in await super().load_all(subject, scope)}.values())


@MUTANTS.breaks("load_by_description returns the values of all MultipleFacts")
class LastMultipleByDescription(OneDict):
    async def load_by_description(self, description, subject, scope):
        found = await super().load_by_description(description, subject, scope)
        return list({fact.concept: fact for fact in found}.values())


@MUTANTS.breaks("load_all returns the facts of 30 concepts")
class EightFacts(OneDict):
    async def load_all(self, subject, scope):
        return (await super().load_all(subject, scope))[:8]


@MUTANTS.breaks("load returns the values of 30 MultipleFacts, which were saved at the same time")
class LastThreeSaves(OneDict):
    async def load(self, concept, subject, scope):
        return (await super().load(concept, subject, scope))[-3:]


@MUTANTS.breaks("load returns all 30 values of one MultipleFacts")
class TenValues(OneDict):
    async def save(self, fact, subject, scope):
        if isinstance(fact, MultipleFacts):
            fact = replace(fact, values=fact.values[:10])
        await super().save(fact, subject, scope)


@MUTANTS.breaks("saved at the same time")
class ReadsThenWrites(OneDict):
    async def save(self, fact, subject, scope):
        there = list(self.disk.get((fact.concept, subject, scope), []))
        await anyio.lowlevel.checkpoint()
        self.disk[fact.concept, subject, scope] = [*there, fact] if isinstance(fact, MultipleFacts) else [fact]


@MUTANTS.breaks("load returns one fact of a single concept: the last one saved")
class OnlyNewValues(OneDict):
    """Takes a value that was saved before for one that is still the last."""

    def __init__(self, disk=None):
        super().__init__(disk)
        self.seen = set()

    async def save(self, fact, subject, scope):
        if isinstance(fact, MultipleFacts) or (fact.value, subject, scope) not in self.seen:
            await super().save(fact, subject, scope)
        self.seen.add((fact.values[0], subject, scope))


class Texts(OneDict):
    """Keeps each value as another text."""

    def text(self, value):
        return value

    async def save(self, fact, subject, scope):
        values = tuple(map(self.text, fact.values))
        changed = replace(fact, value=values[0]) if isinstance(fact, SingleFact) else replace(fact, values=values)
        await super().save(changed, subject, scope)


MUTANTS.like(
    "Ascii", Texts, "any text is kept exactly", text=lambda _, value: value.encode("ascii", "replace").decode()
)
MUTANTS.like("Stripped", Texts, "any text is kept exactly", text=lambda _, value: value.strip())
MUTANTS.like("Normalised", Texts, "any text is kept exactly", text=lambda _, value: unicodedata.normalize("NFC", value))
MUTANTS.like("UntilNul", Texts, "any text is kept exactly", text=lambda _, value: value.partition("\0")[0])
MUTANTS.like("Short", Texts, "any text is kept exactly", text=lambda _, value: value[:65_536])
MUTANTS.like("NoNull", Texts, "any text is kept exactly", text=lambda _, value: "" if value == "null" else value)
MUTANTS.like(
    "Numbers", Texts, "any text is kept exactly", text=lambda _, value: str(int(value)) if value.isdigit() else value
)


@MUTANTS.breaks("load returns the values of all MultipleFacts")
class Joined(OneDict):
    """Keeps several values in one text."""

    async def save(self, fact, subject, scope):
        if isinstance(fact, MultipleFacts):
            fact = replace(fact, values=", ".join(fact.values).split(", "))
        await super().save(fact, subject, scope)


# 2. Wrong order and the wrong version


class Versions(OneDict):
    """Keeps every version, and chooses when it is asked."""

    def chosen(self, facts):
        return facts[-1:]

    async def save(self, fact, subject, scope):
        self.disk.setdefault((fact.concept, subject, scope), []).append(fact)

    async def load(self, concept, subject, scope):
        found = await super().load(concept, subject, scope)
        return found if found and isinstance(found[0], MultipleFacts) else self.chosen(found)


MUTANTS.like(
    "Oldest",
    Versions,
    "load returns one fact of a single concept: the last one saved",
    chosen=lambda _, facts: facts[:1],
)
MUTANTS.like(
    "AllVersions",
    Versions,
    "load returns one fact of a single concept: the last one saved",
    chosen=lambda _, facts: facts,
)
# Takes the highest timestamp for the last one saved; of two of one millisecond, the older.
MUTANTS.like(
    "NewestTime",
    Versions,
    "load returns one fact of a single concept: the last one saved",
    chosen=lambda _, facts: [max(facts, key=lambda fact: fact.timestamp or 0)] if facts else [],
)


@MUTANTS.breaks("load_all returns one fact of each single concept: the last one saved")
class OldestOfAll(Versions):
    """Answers `load` rightly, and with the oldest in `load_all`, as the page on Koog once did."""

    async def load_all(self, subject, scope):
        return [fact for place, facts in self.disk.items() if place[1:] == (subject, scope) for fact in facts]


@MUTANTS.breaks("load returns all values of a multiple fact, in order")
class Reversed(OneDict):
    async def save(self, fact, subject, scope):
        if isinstance(fact, MultipleFacts):
            fact = replace(fact, values=fact.values[::-1])
        await super().save(fact, subject, scope)


@MUTANTS.breaks("the oldest first")
class NewestFirst(OneDict):
    async def load(self, concept, subject, scope):
        return (await super().load(concept, subject, scope))[::-1]


@MUTANTS.breaks("newest first")
class UpsideDown(Own):
    async def history(self, *args, **kwargs):
        return (await super().history(*args, **kwargs))[::-1]


@MUTANTS.breaks("export returns every version of a concept, the oldest first")
class NewestExportedFirst(Own):
    async def export(self, *, owner=None):
        for record in [record async for record in super().export(owner=owner)][::-1]:
            yield record


@MUTANTS.breaks("the oldest first")
class ValuesAgain(Own):
    """Moves a value that is saved again to the end."""

    async def load(self, *args, **kwargs):
        facts = (await self.history(*args, **kwargs))[::-1]
        if not facts or isinstance(facts[-1], SingleFact):
            return facts[-1:]
        values = dict.fromkeys([value for fact in facts for value in fact.values][::-1])
        return [replace(facts[-1], values=tuple(values)[::-1])]


# 3. Names that are taken for one another


class Places(OneDict):
    """Finds facts under other names."""

    def named(self, name):
        return name

    def place(self, concept, subject, scope):
        return concept, subject, scope

    async def save(self, fact, subject, scope):
        place = self.place(fact.concept, subject, scope)
        facts = self.disk.setdefault(place, [])
        if isinstance(fact, SingleFact):
            facts.clear()
        facts.append(fact)

    async def load(self, concept, subject, scope):
        return await super().load(*self.place(concept, subject, scope))

    async def load_all(self, subject, scope):
        wanted = self.place(None, subject, scope)[1:]
        return [fact for place, facts in self.disk.items() if place[1:] == wanted for fact in facts]


MUTANTS.like(
    "NoKinds",
    Places,
    "scopes of one name and several kinds are kept apart",
    place=lambda _, concept, subject, scope: (concept, subject, scope.name),
)
MUTANTS.like(
    "NoSubjects", Places, "subjects are kept apart", place=lambda _, concept, subject, scope: (concept, None, scope)
)


@MUTANTS.breaks("subjects are kept apart")
class NoSubjectsInAll(OneDict):
    async def load_all(self, subject, scope):
        return [fact for place, facts in self.disk.items() if place[2] == scope for fact in facts]


@MUTANTS.breaks("subjects are kept apart, also where their names differ in case")
class AnyCaseInLoad(OneDict):
    async def load(self, concept, subject, scope):
        named = ((place[0], place[1].name.casefold(), place[2]) for place in self.disk)
        wanted = concept, subject.name.casefold(), scope
        found = [facts for place, facts in zip(named, self.disk.values(), strict=True) if place == wanted]
        return [fact for facts in found for fact in facts]


@MUTANTS.breaks("scopes of several names are kept apart, also where they differ in case")
class AnyScopeByDescription(OneDict):
    async def load_by_description(self, description, subject, scope):
        found = []
        for other in {place[2] for place in self.disk}:
            if (other.kind, other.name.casefold()) == (scope.kind, scope.name.casefold()):
                found += await super().load_by_description(description, subject, other)
        return found


MUTANTS.like(
    "LowerKeywords",
    Places,
    "keywords differ in case or spaces alone",
    place=lambda _, concept, subject, scope: (concept and concept.keyword.casefold(), subject, scope),
)


MUTANTS.like(
    "LowerSubjects",
    Places,
    "subjects are kept apart, also where their names differ in case",
    place=lambda _, concept, subject, scope: (concept, subject.name.casefold(), scope),
)
MUTANTS.like(
    "LowerScopes",
    Places,
    "scopes of several names are kept apart, also where they differ in case",
    place=lambda _, concept, subject, scope: (concept, subject, (scope.kind, scope.name.casefold())),
)
MUTANTS.like(
    "StrippedKeywords",
    Places,
    "keywords differ in case or spaces alone",
    place=lambda _, concept, subject, scope: (concept and concept.keyword.strip(), subject, scope),
)
# Takes letters of full width for others, as form NFKC does.
MUTANTS.like(
    "Compatible",
    Places,
    "keywords differ in case or spaces alone",
    place=lambda _, concept, subject, scope: (
        concept and unicodedata.normalize("NFKC", concept.keyword),
        subject,
        scope,
    ),
)


@MUTANTS.breaks("concepts are kept apart")
class Beginnings(OneDict):
    async def load(self, concept, subject, scope):
        places = [(subject, scope) == place[1:] and place[0].keyword.startswith(concept.keyword) for place in self.disk]
        found = [facts for fits, facts in zip(places, self.disk.values(), strict=True) if fits]
        return [fact for facts in found for fact in facts]


@MUTANTS.breaks("Any text is kept exactly. The provider raised OSError")
class FileNames(Places):
    """Takes names for those of files, which may be too long."""

    def place(self, concept, subject, scope):
        if len(subject.name.encode()) > 255:
            raise OSError(36, "File name too long")
        return concept, subject, scope


# Tells concepts of one keyword apart by their descriptions.
MUTANTS.like(
    "WholeConcepts",
    Places,
    "a concept is found by its keyword alone",
    place=lambda _, concept, subject, scope: (concept and (concept.keyword, concept.description), subject, scope),
)
MUTANTS.like(
    "WholeSubjects",
    Places,
    "a subject is found by its name alone",
    place=lambda _, concept, subject, scope: (concept, (subject.name, subject.priority), scope),
)


# 4. Wrong signatures


@MUTANTS.breaks(r"load\(concept, subject, scope\) is an async method, with parameters by position or by keyword")
class OtherNames(OneDict):
    async def load(self, what, subject, scope):
        return await super().load(what, subject, scope)


@MUTANTS.breaks(r"load_by_description\(description, subject, scope\) is an async method")
class NoMethod(OneDict):
    load_by_description = None


@MUTANTS.breaks(r"load_all\(subject, scope\) is an async method")
class NotAsync(OneDict):
    def load_all(self, subject, scope):
        return []


@MUTANTS.breaks(r"load_all\(subject, scope\) is an async method, .*, in this order")
class OtherOrder(OneDict):
    async def load_all(self, scope, subject):
        return await super().load_all(subject, scope)

    async def save(self, fact, subject, scope):
        if not isinstance(scope, Scope):
            raise TypeError("the scope is a Scope")
        await super().save(fact, subject, scope)


@MUTANTS.breaks(r"save\(fact, subject, scope\) is an async method, .*, in this order")
class SwappedSave(OneDict):
    async def save(self, fact, scope, subject):
        await super().save(fact, subject.name and subject, scope)


@MUTANTS.breaks(r"save\(fact, subject, scope\) is an async method, with parameters by position or by keyword")
class ByKeyword(OneDict):
    async def save(self, fact, *, subject, scope):
        await super().save(fact, subject, scope)


@MUTANTS.breaks("load returns a list of facts")
class Tuples(OneDict):
    async def load(self, concept, subject, scope):
        return tuple(await super().load(concept, subject, scope))


@MUTANTS.breaks(r"load_all\(subject, scope, owner\) is an async method.* and owner= by keyword")
class NoOwner(Own):
    async def load_all(self, subject, scope):
        return await super().load_all(subject, scope)


@MUTANTS.breaks(r"history\(concept, subject, scope, owner\) is an async method")
class NoOwnerInHistory(Own):
    async def history(self, concept, subject, scope):
        return await super().history(concept, subject, scope)


@MUTANTS.breaks(
    r"forget\(concept=, subject=, scope=, owner=, everything=\) is an async method, with parameters by keyword"
)
class ForgetOne(Own):
    async def forget(self, concept, subject, scope, owner=""):
        return await super().forget(concept=concept, subject=subject, scope=scope, owner=owner)


@MUTANTS.breaks(r"export\(owner=\) returns an asynchronous iterator, and is not awaited")
class AwaitedExport(Own):
    async def export(self, *, owner=None):
        return [record async for record in super().export(owner=owner)]


@MUTANTS.breaks("The methods of a KeepingProvider have the parameters of the protocol. The provider raised ValueError")
class ImportedApart(Own):
    async def import_(self, *records):
        return await super().import_(list(records))


@MUTANTS.breaks(r"verify\(\) is an async method")
class VerifiedAtOnce(Own):
    def verify(self):
        return 0


# 5. Lost owners


@MUTANTS.breaks("owners are kept apart")
class SavedForNobody(Own):
    async def save(self, fact, subject, scope, *, owner=""):
        await super().save(fact, subject, scope)


@MUTANTS.breaks("owners are kept apart: load returns")
class LoadedForNobody(Own):
    async def load(self, concept, subject, scope, *, owner=""):
        return await super().load(concept, subject, scope)


@MUTANTS.breaks("owners are kept apart: load_all returns")
class AllForNobody(Own):
    async def load_all(self, subject, scope, *, owner=""):
        return await super().load_all(subject, scope)


@MUTANTS.breaks("owners are kept apart: history returns")
class HistoryOfNobody(Own):
    async def history(self, concept, subject, scope, *, owner=""):
        return await super().history(concept, subject, scope)


@MUTANTS.breaks("owners are kept apart")
class LowerOwners(Own):
    async def save(self, fact, subject, scope, *, owner=""):
        await super().save(fact, subject, scope, owner=owner.lower())

    async def load(self, concept, subject, scope, *, owner=""):
        return await super().load(concept, subject, scope, owner=owner.lower())


@MUTANTS.breaks("owners are kept apart")
class Everybody(Own):
    """Shows whoever gives no owner the facts of all."""

    def __init__(self, disk=None):
        super().__init__(disk)
        self.owners = {}

    async def save(self, fact, subject, scope, *, owner=""):
        self.owners[owner] = None
        await super().save(fact, subject, scope, owner=owner)

    async def load(self, concept, subject, scope, *, owner=""):
        owners = [owner] if owner else list(self.owners)
        return [
            fact for each in owners for fact in await super(Everybody, self).load(concept, subject, scope, owner=each)
        ]


@MUTANTS.breaks("forgetting removes the facts of an owner, and keeps those of other owners")
class ForgetsNobodyToo(Own):
    async def forget(self, *, owner="", everything=False, **filters):
        if everything and owner:
            await super().forget(owner="", everything=True)
        return await super().forget(owner=owner, everything=everything, **filters)


@MUTANTS.breaks("forgetting removes the facts of an owner, and keeps those of other owners")
class ForgetForNobody(Own):
    async def forget(self, *, concept=None, subject=None, scope=None, owner="", everything=False):
        return await super().forget(concept=concept, subject=subject, scope=scope, everything=everything)


@MUTANTS.breaks("forgetting removes the facts of an owner, and keeps those of other owners")
class ForgetForEverybody(Own):
    async def forget(self, *, owner="", everything=False, **filters):
        receipt = await super().forget(owner=owner, everything=everything, **filters)
        if everything:
            async for record in super().export():
                await super().forget(owner=record["owner"], everything=True)
        return receipt


@MUTANTS.breaks("export returns the facts of the owner that it is given, and no others")
class ExportOfAll(Own):
    async def export(self, *, owner=None):
        async for record in super().export():
            yield record


@MUTANTS.breaks("export without an owner returns the facts of all owners")
class ExportOfNobody(Own):
    async def export(self, *, owner=None):
        async for record in super().export(owner=owner or ""):
            yield record


@MUTANTS.breaks("importing records that exist already changes nothing")
class ImportForNobody(Own):
    async def import_(self, records):
        return await super().import_([{**record, "owner": ""} if "owner" in record else record for record in records])


# 6. Missing durability


@MUTANTS.breaks("facts are durable when save returns")
class NotWritten(OneDict):
    def __init__(self, disk=None):
        super().__init__({})


class Opened(OneDict):
    """Reads what lasts when it is opened."""

    def __init__(self, disk=None):
        super().__init__(disk)
        if disk is not None:
            self.disk = {place: self.read(facts) for place, facts in disk.items()}

    def read(self, facts):
        return list(facts)


MUTANTS.like(
    "NoSources",
    Opened,
    "facts are durable when save returns: a provider opened again finds them unchanged",
    read=lambda _, facts: ([replace(fact, source=Source()) for fact in facts]),
)
MUTANTS.like("LastOnly", Opened, "facts are durable when save returns", read=lambda _, facts: facts[-1:])
MUTANTS.like(
    "NoDescriptions",
    Opened,
    "facts are durable when save returns",
    read=lambda _, facts: ([replace(fact, concept=replace(fact.concept, description="")) for fact in facts]),
)


@MUTANTS.breaks("history is durable")
class NoOwnersOnDisk(Own):
    """Has the facts of owners in memory alone."""

    def __init__(self, disk=None):
        super().__init__(disk)
        self.memory = StoreMemoryProvider(MemoryStore())

    def of(self, owner):
        return self.memory if owner else super()

    async def save(self, fact, subject, scope, *, owner=""):
        await self.of(owner).save(fact, subject, scope, owner=owner)

    async def withdraw(self, withdrawal, subject, scope, *, owner=""):
        await self.of(owner).withdraw(withdrawal, subject, scope, owner=owner)

    async def load(self, concept, subject, scope, *, owner="", **moment):
        return await self.of(owner).load(concept, subject, scope, owner=owner, **moment)

    async def load_all(self, subject, scope, *, owner="", **moment):
        return await self.of(owner).load_all(subject, scope, owner=owner, **moment)

    async def load_by_description(self, description, subject, scope, *, owner="", **moment):
        return await self.of(owner).load_by_description(description, subject, scope, owner=owner, **moment)

    async def history(self, concept, subject, scope, *, owner="", **moment):
        return await self.of(owner).history(concept, subject, scope, owner=owner, **moment)

    async def forget(self, *, owner="", **filters):
        return await self.of(owner).forget(owner=owner, **filters)

    async def export(self, *, owner=None):
        for each in (self.memory, super()):
            async for record in each.export(owner=owner):
                yield record

    async def import_(self, records):
        return await self.memory.import_(records)

    async def verify(self):
        return await self.memory.verify() + await super().verify()


class Stored(StoreMemoryProvider):
    """A KeepingProvider over a store that forgets something when it is opened again."""

    store = Dictionary

    def __init__(self, disk=None):
        self.disk = Disk() if disk is None else disk
        super().__init__(self.store(self.disk))


class StillThere(Dictionary):
    def write(self, before, changes):
        if before.keys() <= self.items.keys():  # and not where something is forgotten
            self.disk.update(self.items)


@MUTANTS.breaks("forgotten facts do not exist when a provider is opened again")
class ForgottenInMemory(Stored):
    """Leaves on the disk what it forgets."""

    store = StillThere


class LastVersions(Dictionary):
    def read(self, disk):
        last = {key[:-1]: key for key in sorted(disk, key=repr)}
        return {key: item for key, item in disk.items() if "city" not in key or last[key[:-1]] == key}


@MUTANTS.breaks("history is durable")
class HistoryInMemory(Stored):
    store = LastVersions


# 7. Wrong forgetting


@MUTANTS.breaks("forgetting removes the facts of an owner")
class ForgetNothing(Own):
    async def forget(self, **_):
        return Receipt()


@MUTANTS.breaks("the receipt of forget counts every version")
class ForgetTooMuch(Own):
    async def forget(self, *, concept=None, subject=None, scope=None, owner="", everything=False):
        everything = subject is scope is None
        return await super().forget(subject=subject, scope=scope, owner=owner, everything=everything)


@MUTANTS.breaks("the receipt of forget counts every version")
class AnySubject(Own):
    async def forget(self, *, concept=None, subject=None, scope=None, owner="", everything=False):
        everything = everything or concept is scope is None
        return await super().forget(concept=concept, scope=scope, owner=owner, everything=everything)


@MUTANTS.breaks("the receipt of forget counts every version")
class AnyScope(Own):
    async def forget(self, *, concept=None, subject=None, scope=None, owner="", everything=False):
        everything = everything or concept is subject is None
        return await super().forget(concept=concept, subject=subject, owner=owner, everything=everything)


@MUTANTS.breaks("forget removes the facts that match all arguments, and no others")
class EitherOne(Own):
    """Forgets what fits one of the arguments, instead of all."""

    async def forget(self, *, concept=None, subject=None, scope=None, owner="", everything=False):
        receipt = await super().forget(
            concept=concept, subject=subject, scope=scope, owner=owner, everything=everything
        )
        if concept and subject:
            await super().forget(subject=subject, scope=scope, owner=owner)
        return receipt


@MUTANTS.breaks("forget raises ValueError where neither")
class ByAccident(Own):
    async def forget(self, *, concept=None, subject=None, scope=None, owner="", everything=False):
        everything = concept is subject is scope is None
        return await super().forget(concept=concept, subject=subject, scope=scope, owner=owner, everything=everything)


@MUTANTS.breaks("a forget that raises ValueError removes nothing")
class ForgetInPart(Own):
    async def forget(self, *, concept=None, subject=None, scope=None, owner="", everything=False):
        if concept and everything:
            await super().forget(concept=concept, owner=owner)
        return await super().forget(concept=concept, subject=subject, scope=scope, owner=owner, everything=everything)


@MUTANTS.breaks("the receipt of forget counts every version")
class CountsConcepts(Own):
    async def forget(self, **filters):
        receipt = await super().forget(**filters)
        return replace(receipt, facts=min(receipt.facts, 1))


@MUTANTS.breaks(
    "Forgetting removes the facts that match all arguments, and no others. The provider raised AttributeError"
)
class NoReceipt(Own):
    async def forget(self, **filters):
        await super().forget(**filters)


@MUTANTS.breaks("forget removes the facts that match all arguments")
class OldVersionsStay(Own):
    """Forgets the last version alone."""

    async def forget(self, **filters):
        versions = [record async for record in super().export(owner=filters.get("owner", "")) if record["version"] == 1]
        receipt = await super().forget(**filters)
        if filters.get("concept") is not None:
            await super().import_(versions)
        return receipt


@MUTANTS.breaks("a forgotten fact can be learned again")
class CountsOn(Own):
    """Counts the versions of what is learned again from where they were."""

    async def history(self, *args, **kwargs):
        return [replace(fact, version=fact.version + self.past) for fact in await super().history(*args, **kwargs)]

    past = 0

    async def forget(self, *, everything=False, **filters):
        self.past = self.past or 2 * everything
        return await super().forget(everything=everything, **filters)


# 8. Wrong versions


@MUTANTS.breaks("versions are 1, 2, 3")
class FromZero(Own):
    async def history(self, *args, **kwargs):
        return [replace(fact, version=fact.version - 1) for fact in await super().history(*args, **kwargs)]


@MUTANTS.breaks("every saved fact has its own id")
class OneId(Own):
    async def history(self, *args, **kwargs):
        return [replace(fact, id="same") for fact in await super().history(*args, **kwargs)]


@MUTANTS.breaks("every saved fact has its own id")
class NoId(Own):
    async def history(self, *args, **kwargs):
        return [replace(fact, id="") for fact in await super().history(*args, **kwargs)]


@MUTANTS.breaks("a fact that is saved again is a new version with a new id")
class SameIdAgain(Own):
    async def save(self, fact, subject, scope, *, owner=""):
        await super().save(replace(fact, version=0), subject, scope, owner=owner)


@MUTANTS.breaks("a fact that has an id and no version keeps that id")
class NewIdAlways(Own):
    async def save(self, fact, subject, scope, *, owner=""):
        await super().save(replace(fact, id=""), subject, scope, owner=owner)


@MUTANTS.breaks("a timestamp that a fact has is kept")
class NewTimeAlways(Own):
    async def save(self, fact, subject, scope, *, owner=""):
        await super().save(replace(fact, timestamp=None), subject, scope, owner=owner)


@MUTANTS.breaks("save stamps the time where it is missing")
class TimeOfLong(Own):
    async def save(self, fact, subject, scope, *, owner=""):
        await super().save(replace(fact, timestamp=fact.timestamp or 1), subject, scope, owner=owner)


@MUTANTS.breaks("a fact comes back with its source")
class NoSource(Own):
    async def save(self, fact, subject, scope, *, owner=""):
        await super().save(replace(fact, source=Source()), subject, scope, owner=owner)


@MUTANTS.breaks("a fact comes back with its source")
class SourceOfLast(Own):
    async def history(self, *args, **kwargs):
        found = await super().history(*args, **kwargs)
        return [replace(fact, source=found[0].source) for fact in found]


@MUTANTS.breaks("history returns multiple facts as they were saved")
class MergedHistory(Own):
    async def history(self, concept, *args, **kwargs):
        found = await super().history(concept, *args, **kwargs)
        return (
            await super().load(concept, *args, **kwargs) if isinstance(next(iter(found), 0), MultipleFacts) else found
        )


# 9. Wrong searches


class Searches(OneDict):
    def fits(self, description, fact):
        return description.casefold() in fact.concept.description.casefold()

    async def load_by_description(self, description, subject, scope):
        return [fact for fact in await self.load_all(subject, scope) if self.fits(description, fact)]


MUTANTS.like(
    "OneCase",
    Searches,
    "load_by_description finds a part of the description, in any case",
    fits=lambda _, description, fact: description in fact.concept.description,
)
MUTANTS.like(
    "Beginning",
    Searches,
    "load_by_description finds a part of the description",
    fits=lambda _, description, fact: fact.concept.description.casefold().startswith(description.casefold()),
)
MUTANTS.like(
    "ByValue",
    Searches,
    "looks at descriptions, not at values and keywords",
    fits=lambda _, description, fact: description.casefold() in (fact.concept.description + str(fact)).casefold(),
)
MUTANTS.like(
    "ByKeywordToo",
    Searches,
    "looks at descriptions, not at values and keywords",
    fits=lambda _, description, fact: (
        description.casefold() in (fact.concept.description + fact.concept.keyword).casefold()
    ),
)


@MUTANTS.breaks("no character is a wildcard")
class Patterns(Searches):
    """Searches as LIKE of SQL does."""

    def fits(self, description, fact):
        pattern = re.escape(description).replace("%", ".*").replace("_", ".")
        return re.search(pattern, fact.concept.description, re.IGNORECASE | re.DOTALL) is not None


MUTANTS.like(
    "Expressions",
    Searches,
    "no character is a wildcard",
    fits=lambda _, description, fact: re.search(description, fact.concept.description, re.IGNORECASE) is not None,
)
MUTANTS.like(
    "EveryWord",
    Searches,
    "no character is a wildcard",
    fits=lambda _, description, fact: all(
        word in fact.concept.description.casefold() for word in description.casefold().split()
    ),
)


@MUTANTS.breaks("load_by_description returns every concept that fits")
class OneConcept(Searches):
    async def load_by_description(self, description, subject, scope):
        found = await super().load_by_description(description, subject, scope)
        return [fact for fact in found if fact.concept == found[0].concept]


@MUTANTS.breaks("scopes of one name and several kinds are kept apart")
class AnywhereDescribed(Searches):
    async def load_by_description(self, description, subject, scope):
        found = [fact for facts in self.disk.values() for fact in facts]
        return [fact for fact in found if self.fits(description, fact)]


@MUTANTS.breaks("load_by_description returns one fact of a single concept")
class OldDescribed(Own):
    """Searches every version."""

    async def load_by_description(self, description, subject, scope, *, owner=""):
        found = await super().load_by_description(description, subject, scope, owner=owner)
        return [old for fact in found for old in await self.history(fact.concept, subject, scope, owner=owner)]


# 10. Lost in an export


@MUTANTS.breaks("export returns the facts of the owner")
class ExportNothing(Own):
    async def export(self, *, owner=None):
        for record in ():
            yield record


@MUTANTS.breaks("records of an export are plain JSON data")
class NotJson(Own):
    async def export(self, *, owner=None):
        async for record in super().export(owner=owner):
            yield {**record, "values": tuple(record["values"])}

    async def import_(self, records):
        return await super().import_([{**each, "values": list(each.get("values", ()))} for each in records])


@MUTANTS.breaks("importing records that exist already changes nothing")
class ImportTwice(Own):
    async def import_(self, records):
        return await super().import_([{**record, "id": f"{record.get('id')}-2"} for record in records])


@MUTANTS.breaks("where one record is wrong, import_ keeps none")
class ImportInPart(Own):
    async def import_(self, records):
        return sum([await super(ImportInPart, self).import_([record]) for record in records])


@MUTANTS.breaks("import_ raises ValueError for a record that is not one of an export")
class ImportAnything(Own):
    async def import_(self, records):
        return await super().import_([record for record in records if "keyword" in record])


@MUTANTS.breaks("importing records that exist already changes nothing")
class ImportCounted(Own):
    async def import_(self, records):
        await super().import_(records)
        return len(records)


@MUTANTS.breaks("import_ keeps ids, versions, timestamps and sources")
class ImportedNow(Own):
    async def import_(self, records):
        return await super().import_([{**each, "timestamp": 5} if "timestamp" in each else each for each in records])


@MUTANTS.breaks("verify returns the number of facts")
class VerifyNobody(Own):
    async def verify(self):
        return len([record async for record in self.export(owner="")])


# 11. Wrong kinds


@MUTANTS.breaks("a single fact comes back as a SingleFact")
class Multiples(OneDict):
    async def load(self, concept, subject, scope):
        found = await super().load(concept, subject, scope)
        return [MultipleFacts(replace(fact.concept, fact_type=FactType.MULTIPLE), fact.values) for fact in found]


@MUTANTS.breaks("a fact comes back with its concept")
class Asked(Own):
    """Gives facts the concept with which they were asked for."""

    async def load(self, concept, *args, **kwargs):
        return [replace(fact, concept=concept) for fact in await super().load(concept, *args, **kwargs)]


@MUTANTS.breaks("any keyword comes back as it was")
class NoKeywords(OneDict):
    async def load(self, concept, subject, scope):
        found = await super().load(concept, subject, scope)
        return [replace(fact, concept=replace(fact.concept, keyword=fact.concept.keyword[:8])) for fact in found]


@MUTANTS.breaks("any description comes back as it was")
class ShortDescriptions(OneDict):
    async def load(self, concept, subject, scope):
        found = await super().load(concept, subject, scope)
        concepts = [replace(fact.concept, description=fact.concept.description.strip("\U0001f600")) for fact in found]
        return [replace(fact, concept=concept) for fact, concept in zip(found, concepts, strict=True)]


@MUTANTS.breaks("changing a returned list does not change the stored facts")
class OwnList(OneDict):
    """Gives away the list in which it keeps its facts."""

    async def load(self, concept, subject, scope):
        return self.disk.get((concept, subject, scope), [])


@MUTANTS.breaks("values that are joined with others are not trusted more than before")
class Laundered(OneDict):
    """Joins values under the source of the last, so that what was not trusted is."""

    async def save(self, fact, subject, scope):
        for known in await self.load(fact.concept, subject, scope):
            if isinstance(fact, MultipleFacts):
                fact = replace(fact, values=tuple(dict.fromkeys([*known.values, *fact.values])))
        self.disk[fact.concept, subject, scope] = [fact]


@MUTANTS.breaks("of multiple facts the last one that was saved keeps its id")
class FirstId(OneDict):
    """Joins values under the id of the first, so that a node that is executed again does not find what it saved."""

    async def save(self, fact, subject, scope):
        for known in await self.load(fact.concept, subject, scope):
            if isinstance(fact, MultipleFacts):
                fact = replace(known, values=tuple(dict.fromkeys([*known.values, *fact.values])))
        self.disk[fact.concept, subject, scope] = [fact]


@MUTANTS.breaks("load_all returns the facts of every concept")
class SomeConcepts(OneDict):
    async def load_all(self, subject, scope):
        found = await super().load_all(subject, scope)
        return [fact for fact in found if fact.concept == found[0].concept]


# 12. Several at once, and after the end


@MUTANTS.breaks("saved at the same time")
class LastWins(Own):
    """Reads, waits and writes without a lock."""

    async def save(self, fact, subject, scope, *, owner=""):
        past = (await self.history(fact.concept, subject, scope, owner=owner))[::-1]
        await anyio.lowlevel.checkpoint()
        await super().forget(concept=fact.concept, subject=subject, scope=scope, owner=owner)
        for old in past:
            await super().save(replace(old, version=0), subject, scope, owner=owner)
        await super().save(fact, subject, scope, owner=owner)


@MUTANTS.breaks("No fact is lost when several are saved at the same time. The provider raised")
class Busy(Own):
    saving = False

    async def save(self, fact, subject, scope, *, owner=""):
        if self.saving:
            raise RuntimeError("another task is saving")
        self.saving = True
        await anyio.lowlevel.checkpoint()
        await super().save(fact, subject, scope, owner=owner)
        self.saving = False


@MUTANTS.breaks("A provider that was closed opens again when it is used. The provider raised ValueError")
class Closed(Own):
    closed = False

    async def __aexit__(self, *error):
        self.closed = True

    async def load(self, *args, **kwargs):
        if self.closed:
            raise ValueError("the provider is closed")
        return await super().load(*args, **kwargs)


@MUTANTS.breaks("a provider that was closed opens again when it is used")
class EmptiedAtTheEnd(Own):
    async def __aexit__(self, *error):
        async for record in self.export():
            await self.forget(owner=record["owner"], everything=True)


@MUTANTS.breaks(r"A provider that was closed opens again when it is used. The provider raised AssertionError\(\)")
class Asserting(Own):
    """Has an assertion of its own, which says nothing."""

    async def __aenter__(self):
        raise AssertionError


# 13. Time


@MUTANTS.breaks(r"load\(as_of=\) takes a moment by keyword, or None")
class NoMoments(Own):
    async def load(self, concept, subject, scope, *, owner=""):
        return await super().load(concept, subject, scope, owner=owner)


@MUTANTS.breaks("withdraw.* is an async method")
class NoWithdrawals(Own):
    withdraw = property()  # as `isinstance` sees it, it is there


@MUTANTS.breaks("a fact comes back with the times from and to which it holds")
class NoTimes(Own):
    async def save(self, fact, *args, **kwargs):
        timeless = replace(fact, valid_from=None, valid_to=None) if isinstance(fact, SingleFact) else fact
        await super().save(timeless, *args, **kwargs)


@MUTANTS.breaks("load returns the last fact that holds at the moment")
class AlwaysNow(Own):
    async def load(self, *args, as_of=None, **kwargs):
        return await super().load(*args, **kwargs)


@MUTANTS.breaks("load_all returns the last fact that holds at the moment")
class AllNow(Own):
    async def load_all(self, *args, as_of=None, **kwargs):
        return await super().load_all(*args, **kwargs)


@MUTANTS.breaks("load returns the last fact that holds at the moment")
class LastSaved(Own):
    """Returns what was saved last, though it does not hold yet, or no longer."""

    async def load(self, *args, as_of=None, **kwargs):
        if as_of is not None:
            return await super().load(*args, as_of=as_of, **kwargs)
        past = await super().history(*args, **kwargs)
        return past[:1] if past and isinstance(past[0], SingleFact) else await super().load(*args, **kwargs)


@MUTANTS.breaks("load and load_all raise ValueError for a moment without a time zone")
class AnyMoment(Own):
    async def load(self, *args, as_of=None, **kwargs):
        return await super().load(*args, as_of=as_of and as_of.replace(tzinfo=as_of.tzinfo or UTC), **kwargs)


@MUTANTS.breaks(r"history\(at=\) returns the versions recorded by the moment")
class WholeHistory(Own):
    async def history(self, *args, at=None, **kwargs):
        return await super().history(*args, **kwargs)


@MUTANTS.breaks(r"history\(at=\) returns the versions recorded by the moment, in the order of saving")
class ByTheClock(Own):
    """Believes each timestamp."""

    async def history(self, *args, at=None, **kwargs):
        past = await super().history(*args, **kwargs)
        return [fact for fact in past if at is None or fact.timestamp <= at.timestamp() * 1000]


@MUTANTS.breaks("an untrusted fact does not hide one that is not")
class NewestAlone(Own):
    async def load(self, *args, **kwargs):
        return (await super().load(*args, **kwargs))[-1:]


@MUTANTS.breaks("a value that was withdrawn is not known any more")
class WithdrawnInVain(Own):
    async def withdraw(self, *args, **kwargs):
        pass


@MUTANTS.breaks("withdraw raises ValueNotFoundError for a value that is not known")
class Withdraws(Own):
    async def withdraw(self, *args, **kwargs):
        with contextlib.suppress(ValueNotFoundError):
            await super().withdraw(*args, **kwargs)


@MUTANTS.breaks("an untrusted withdrawal takes back untrusted values alone")
class AnyWithdrawal(Own):
    async def withdraw(self, withdrawal, *args, **kwargs):
        source = Source() if withdrawal.source.trust == "untrusted" else withdrawal.source
        await super().withdraw(replace(withdrawal, source=source), *args, **kwargs)


@MUTANTS.breaks("a withdrawal is a version in the history, with its values and its id")
class WithdrawnAnew(Own):
    async def withdraw(self, withdrawal, *args, **kwargs):
        await super().withdraw(replace(withdrawal, id=""), *args, **kwargs)


@MUTANTS.breaks("removes the value from every version")
class Hidden(Own):
    """Withdraws what it is asked to forget."""

    async def forget(self, *, concept=None, subject=None, scope=None, value=None, owner="", everything=False):
        if value is None or scope is not None:
            return await super().forget(
                concept=concept, subject=subject, scope=scope, owner=owner, everything=everything
            )
        [place] = {(record["subject"], record["scope"]["name"]) async for record in self.export(owner=owner)}
        await self.withdraw(Withdrawal(concept, [value]), Subject(place[0]), Scope.product(place[1]), owner=owner)
        return Receipt(facts=4)


@MUTANTS.breaks(r"forget\(value=\) raises ValueError without a concept")
class ForgetsAnyValue(Own):
    async def forget(self, *, concept=None, value=None, **options):
        if value is not None and concept is None:
            return Receipt()
        return await super().forget(concept=concept, value=value, **options)


@pytest.mark.parametrize(("mutant", "told"), MUTANTS, ids=[mutant.__name__ for mutant, _ in MUTANTS])
async def test_a_broken_promise_is_named(mutant, told):
    """Each way to be wrong fails the check with a sentence that says which promise is not kept."""
    with pytest.raises(AssertionError, match=told):
        await check_provider(mutant, reopen=reopened)
