"""The contract of providers with owners, history, forgetting and export."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio

from graphagent import _clock
from graphagent.memory import (
    EVERYTHING,
    Fact,
    FactProvider,
    FactVersion,
    KeepingProvider,
    MultipleFacts,
    Scope,
    SingleFact,
    Source,
)
from graphagent.testing import _facts_in_time
from graphagent.testing._promise import accepts, answer, iterates, keeps, promise
from graphagent.testing._samples import CITY, ODD, PARAMETERS, TOOLS, USER, called, values_of

_Own = TypeVar("_Own", bound=FactProvider)
_KeepingCheck = Callable[[KeepingProvider, Scope, str], Awaitable[None]]


async def check_abilities(make: Callable[[], FactProvider]) -> None:
    """Check that every method can be called as the protocol says."""
    await _check(make, _abilities)


async def check_keeping(make: Callable[[], FactProvider]) -> None:
    """Check the promises of a KeepingProvider beyond those of FactProvider."""
    await _check(make, _owners, _history, _union, _forgetting, _careful, _export, _together, _closing)
    await _check(make, *_facts_in_time.CHECKS)


async def _check(make: Callable[[], FactProvider], *checks: _KeepingCheck) -> None:
    for check in checks:
        provider, name = make(), f"check-{_clock.new_id()}"
        assert isinstance(provider, KeepingProvider), "make must return the same kind of provider each time"
        await keeps("provider", check, provider, Scope.product(name), name)
        await keeps("provider", _gone, provider, name)


async def _gone(provider: KeepingProvider, owner: str) -> None:
    """Forgetting removes the facts of an owner."""
    await provider.forget(owner=owner, everything=True)


async def _abilities(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    """The methods of a KeepingProvider have the parameters of the protocol."""
    for name in PARAMETERS:
        await called(provider, name, scope, owner=owner)
    text = "forget(concept=, subject=, scope=, owner=, everything=) is an async method, with parameters by keyword"
    filters = {"concept": CITY, "subject": USER, "scope": scope}
    await answer(provider.forget, text, **filters, owner=owner, everything=False)
    await answer(provider.forget, text, owner=owner, everything=True)
    text = "export(owner=) returns an asynchronous iterator, and is not awaited"
    for options in ({}, {"owner": None}, {"owner": owner}):
        promise(accepts(provider.export, **options), text)
        promise(iterates(provider.export(**options)), text)
    added = await answer(provider.import_, "import_(records) is an async method, with records by position", [])
    promise(added == 0, "import_ of no records returns 0")
    counted = await answer(provider.verify, "verify() is an async method")
    promise(isinstance(counted, int), "verify returns the number of facts")


async def _owners(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    """Owners are kept apart."""

    async def found(who: str) -> dict[str, Sequence[FactVersion]]:
        return {
            "load": await provider.load(CITY, USER, scope, owner=who),
            "load_all": await provider.load_all(USER, scope, owner=who),
            "load_by_description": await provider.load_by_description("lives", USER, scope, owner=who),
            "history": await provider.history(CITY, USER, scope, owner=who),
        }

    def fails(name: str) -> str:
        return f"owners are kept apart: {name} returns the facts of the owner that it is given, and no others"

    other = f"{owner}-other"
    kept: dict[str, list[tuple[str, ...]]] = {other: [], "": [], owner.upper(): [], owner: []}
    for who, city in ((owner, "Oslo"), (other, "Bergen"), ("", "Paris")):
        await provider.save(SingleFact(CITY, city), USER, scope, owner=who)
        kept[who] = [(city,)]
        for each, values in kept.items():
            for name, facts in (await found(each)).items():
                promise(values_of(facts) == values, fails(name))
    promise(values_of(await provider.load(CITY, USER, scope)) == [("Paris",)], "without owner= the owner is ''")
    # In this order, a provider that ignores owners removes no fact of another owner; only then a fact without an owner exists again.
    for who, everything in (("", False), (other, False), (owner, False), (owner, True)):
        if everything:
            for again in ("", owner):
                await provider.save(SingleFact(CITY, "Paris"), USER, scope, owner=again)
                kept[again] = [("Paris",)]
        await provider.forget(scope=None if everything else scope, owner=who, everything=everything)
        kept[who] = []
        for each, values in kept.items():
            for facts in (await found(each)).values():
                promise(
                    values_of(facts) == values,
                    "forgetting removes the facts of an owner, and keeps those of other owners",
                )
    await provider.forget(scope=scope)


async def _union(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    """Several multiple facts are one."""
    await provider.save(MultipleFacts(TOOLS, ["vim", "git"]), USER, scope, owner=owner)
    await provider.save(MultipleFacts(TOOLS, ["ed", "git"]), USER, scope, owner=owner)
    for found in (
        await provider.load(TOOLS, USER, scope, owner=owner),
        await provider.load_all(USER, scope, owner=owner),
        await provider.load_by_description("works with", USER, scope, owner=owner),
    ):
        expected = [("vim", "git", "ed")]
        promise(values_of(found) == expected, "several multiple facts are one: each value once, in the order of saving")
    past = values_of(await provider.history(TOOLS, USER, scope, owner=owner))
    promise(past == [("ed", "git"), ("vim", "git")], "history returns multiple facts as they were saved, newest first")


async def _history(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    """Every version is kept."""
    source = Source("run-1", 3, "learn", "inferred")
    promise(await provider.history(CITY, USER, scope, owner=owner) == [], "the history of an unknown concept is empty")
    before = _clock.now()
    await provider.save(SingleFact(CITY, "Oslo", source=source), USER, scope, owner=owner)
    await provider.save(SingleFact(CITY, "Bergen", timestamp=7), USER, scope, owner=owner)
    found = await provider.history(CITY, USER, scope, owner=owner)
    promise(values_of(found) == [("Bergen",), ("Oslo",)], "history returns every version, the newest first")
    new, old = found
    assert isinstance(new, SingleFact)  # as load says, too
    promise((new.version, old.version) == (2, 1), "versions are 1, 2, 3 … in the order of saving")
    promise(bool(old.id) and new.id not in ("", old.id), "every saved fact has its own id")
    promise(new.timestamp == 7, "a timestamp that a fact has is kept")
    promise(
        old.timestamp is not None and before <= old.timestamp <= _clock.now(),
        "save stamps the time where it is missing",
    )
    promise((old.source, new.source) == (source, Source()), "a fact comes back with its source")
    promise(
        await provider.load(CITY, USER, scope, owner=owner) == [new],
        "load returns the newest version, as history does",
    )
    promise(await provider.load_all(USER, scope, owner=owner) == [new], "load_all returns the newest version alone")
    await provider.save(new, USER, scope, owner=owner)
    again = (await provider.history(CITY, USER, scope, owner=owner))[0]
    promise(
        (again.version, again.id == new.id) == (3, False), "a fact that is saved again is a new version with a new id"
    )
    await provider.save(SingleFact(CITY, "Oslo", id="given"), USER, scope, owner=owner)
    named = (await provider.history(CITY, USER, scope, owner=owner))[0]
    promise(named.id == "given", "a fact that has an id and no version keeps that id")


async def _forgetting(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    """Forgetting removes the facts that match all arguments, and no others."""
    wide = Scope.cross_product(scope.name)
    places = [(subject, where) for subject in (USER, EVERYTHING) for where in (scope, wide)]

    async def refill() -> None:
        await provider.forget(owner=owner, everything=True)
        for subject, where in places:
            await provider.save(SingleFact(CITY, "Oslo"), subject, where, owner=owner)
            await provider.save(SingleFact(CITY, "Bergen"), subject, where, owner=owner)
            await provider.save(MultipleFacts(TOOLS, ["git"]), subject, where, owner=owner)

    for concept in (None, CITY):
        for subject in (None, USER):
            for where in (None, wide):
                await refill()
                everything = all(each is None for each in (concept, subject, where))
                receipt = await provider.forget(
                    concept=concept, subject=subject, scope=where, owner=owner, everything=everything
                )
                fits = [each for each in places if subject in (None, each[0]) and where in (None, each[1])]
                expected = len(fits) * (3 if concept is None else 2)
                promise(receipt.facts == expected, "the receipt of forget counts every version of every fact removed")
                for each in places:
                    left = {fact.concept.keyword for fact in await provider.load_all(*each, owner=owner)}
                    gone = {"city", "tools"} if concept is None else {"city"}
                    expected_left = {"city", "tools"} - (gone if each in fits else set())
                    promise(left == expected_left, "forget removes the facts that match all arguments, and no others")
                    if each in fits:
                        past = await provider.history(CITY, *each, owner=owner)
                        promise(past == [], "forget removes the history too")
    await provider.forget(owner=owner, everything=True)
    await provider.save(SingleFact(CITY, "Oslo"), USER, scope, owner=owner)
    found = await provider.history(CITY, USER, scope, owner=owner)
    promise([(fact.value, fact.version) for fact in found] == [("Oslo", 1)], "a forgotten fact can be learned again")


async def _careful(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    """Forgetting removes nothing by accident."""
    await provider.save(SingleFact(CITY, "Oslo"), USER, scope, owner=owner)
    for concept, everything in ((None, False), (CITY, True)):
        try:
            await provider.forget(concept=concept, owner=owner, everything=everything)
        except ValueError:
            pass
        else:
            promise(
                False,
                "forget raises ValueError where neither a concept, a subject, a scope nor everything=True is given, and where "
                "one of them is given beside everything=True",
            )
    left = await provider.load(CITY, USER, scope, owner=owner)
    promise(values_of(left) == [("Oslo",)], "a forget that raises ValueError removes nothing")


async def _export(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    """Exported facts are imported without loss."""
    other = f"{owner}-other"
    await provider.save(SingleFact(CITY, "Paris"), USER, scope, owner=other)
    await provider.save(SingleFact(CITY, ODD, source=Source("r", 1, "o", "trusted")), USER, scope, owner=owner)
    first = [record async for record in provider.export(owner=owner)]
    promise(len(first) == 1, "export returns the facts of the owner that it is given, and no others")
    await provider.save(SingleFact(CITY, "Bergen"), USER, scope, owner=owner)
    versions = [record async for record in provider.export(owner=owner)]
    promise(len(versions) == 2 and versions[:1] == first, "export returns every version of a concept, the oldest first")
    await provider.save(MultipleFacts(TOOLS, ["git", "vim"]), EVERYTHING, scope, owner=owner)
    before = await provider.history(CITY, USER, scope, owner=owner)
    records = [record async for record in provider.export(owner=owner)]
    promise(json.loads(json.dumps(records)) == records, "records of an export are plain JSON data")
    whole = [record async for record in provider.export()]
    promise(all(record in whole for record in records), "export without an owner returns the facts of all owners")
    promise(len(whole) > 3, "export without an owner returns the facts of all owners")
    promise(await provider.import_(records) == 0, "importing records that exist already changes nothing")
    await provider.forget(owner=owner, everything=True)
    try:
        await provider.import_([*records, {"nonsense": True}])
    except ValueError:
        pass
    else:
        promise(False, "import_ raises ValueError for a record that is not one of an export")
    promise(await provider.load_all(USER, scope, owner=owner) == [], "where one record is wrong, import_ keeps none")
    promise(await provider.import_(records) == 3, "import_ returns how many facts were new")
    after = await provider.history(CITY, USER, scope, owner=owner)
    promise(after == before, "import_ keeps ids, versions, timestamps and sources")
    again = [record async for record in provider.export(owner=owner)]
    promise(sorted(map(repr, again)) == sorted(map(repr, records)), "imported records are exported the same")
    left = values_of(await provider.load_all(USER, scope, owner=other))
    promise(left == [("Paris",)], "import_ changes nothing of other owners")
    promise(await provider.verify() >= 4, "verify returns the number of facts, all versions counted")
    await provider.forget(owner=other, everything=True)


async def _together(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    """No fact is lost when several are saved at the same time."""
    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(_save_for, provider, SingleFact(CITY, str(number)), scope, owner)
    found = await provider.history(CITY, USER, scope, owner=owner)
    promise(
        [fact.version for fact in found] == list(range(20, 0, -1)), "facts saved at the same time get one version each"
    )
    promise(len({fact.value for fact in found}) == 20, "no fact is lost when several are saved at the same time")


async def _save_for(provider: KeepingProvider, fact: Fact, scope: Scope, owner: str) -> None:
    await provider.save(fact, USER, scope, owner=owner)


async def _closing(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    """A provider that was closed opens again when it is used."""
    async with provider as opened:
        await opened.save(SingleFact(CITY, "Oslo"), USER, scope, owner=owner)
    found = values_of(await provider.load(CITY, USER, scope, owner=owner))
    promise(found == [("Oslo",)], "a provider that was closed opens again when it is used")


async def durable_history(provider: _Own, reopen: Callable[[_Own], FactProvider], scope: Scope, owner: str) -> None:
    """Versions, owners and forgetting are durable."""

    def opened(before: _Own) -> KeepingProvider:
        again = reopen(before)
        assert isinstance(again, KeepingProvider), "reopen must return the same kind of provider as make"
        return again

    first = opened(provider)
    for value in ("Oslo", "Bergen"):
        await first.save(SingleFact(CITY, value), USER, scope, owner=owner)
    before = await first.history(CITY, USER, scope, owner=owner)
    second = opened(provider)
    after = await second.history(CITY, USER, scope, owner=owner)
    promise(after == before, "history is durable: ids, versions, timestamps and sources are the same when opened again")
    await second.save(SingleFact(CITY, "Paris"), USER, scope, owner=owner)
    versions = [fact.version for fact in await opened(provider).history(CITY, USER, scope, owner=owner)]
    promise(versions == [3, 2, 1], "versions are counted on after facts are opened again")
    await second.save(MultipleFacts(TOOLS, ["git"]), USER, scope, owner=owner)
    await second.forget(concept=CITY, owner=owner)
    third = opened(provider)
    left = [fact.concept.keyword for fact in await third.load_all(USER, scope, owner=owner)]
    past = await third.history(CITY, USER, scope, owner=owner)
    promise((left, past) == (["tools"], []), "forgotten facts do not exist when a provider is opened again")
    await _facts_in_time.durable_time(provider, opened, scope, f"{owner}-time")
    await third.forget(owner=owner, everything=True)
    promise(
        await opened(provider).load_all(USER, scope, owner=owner) == [],
        "forgotten facts do not exist when a provider is opened again",
    )
