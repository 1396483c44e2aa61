"""The contract that every fact provider keeps, as a test for one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import anyio

from graphagent import _clock
from graphagent.memory import (
    EVERYTHING,
    Concept,
    Fact,
    FactProvider,
    FactType,
    KeepingProvider,
    MultipleFacts,
    Scope,
    SingleFact,
    Source,
    Subject,
)
from graphagent.testing._promise import promise

_USER = Subject("user", "the user", priority=1)
_CITY = Concept("city", "Where the user LIVES")
_TOOLS = Concept("tools", "tools the user works with", FactType.MULTIPLE)
_ODD = "two\nlines, \"quotes\", 'tab\t', \u2028, \x00, e\u0301 and \u00e9, \U0001f600"


async def check_provider(make: Callable[[], FactProvider]) -> None:
    """Check that a provider keeps the promises of FactProvider and, where it has all its methods, of KeepingProvider.

    `make` is called several times and may return the same provider, or another one over the same facts, each time. The check
    uses scopes and owners that nothing else uses; a KeepingProvider is asked to forget them in the end.

    A provider of the four methods alone is held to a little less: of several MultipleFacts `load` may return the last one
    only, and `load_all` may return earlier versions too.

    Raises:
        AssertionError: a promise is not kept; the text says which.
    """
    for check in (_single, _multiple, _apart, _descriptions, _any_text):
        scope = Scope.product(f"check-{_clock.new_id()}")
        provider = make()
        await check(provider, scope)
        if isinstance(provider, KeepingProvider):
            await provider.forget(scope=scope)
    if isinstance(make(), KeepingProvider):
        for keeping_check in (_union, _history, _owners, _forgetting, _careful, _export, _together, _closing):
            provider = make()
            assert isinstance(provider, KeepingProvider), "make must return the same kind of provider each time"
            owner = f"check-{_clock.new_id()}"
            await keeping_check(provider, Scope.product("check"), owner)
            await provider.forget(owner=owner, everything=True)


def _values(facts: Iterable[Fact]) -> list[tuple[str, ...]]:
    return [tuple(fact.values) for fact in facts]


async def _single(provider: FactProvider, scope: Scope) -> None:
    promise(await provider.load(_CITY, _USER, scope) == [], "load returns an empty list where nothing was saved")
    promise(await provider.load_all(_USER, scope) == [], "load_all returns an empty list where nothing was saved")
    await provider.save(SingleFact(_CITY, "Oslo"), _USER, scope)
    promise(_values(await provider.load(_CITY, _USER, scope)) == [("Oslo",)], "load returns what was saved")
    await provider.save(fact=SingleFact(_CITY, "Bergen"), subject=_USER, scope=scope)
    found = _values(await provider.load(concept=_CITY, subject=_USER, scope=scope))
    promise(found == [("Bergen",)], "load returns one fact of a single concept: the last one saved")
    same = Concept("city", "said in other words")
    promise(
        _values(await provider.load(same, _USER, scope)) == [("Bergen",)], "a concept is found by its keyword alone"
    )
    last = await provider.load_all(subject=_USER, scope=scope)
    promise(
        _values(last)[-1:] == [("Bergen",)],
        "load_all returns the last fact saved, after earlier ones if it returns those",
    )


async def _multiple(provider: FactProvider, scope: Scope) -> None:
    await provider.save(MultipleFacts(_TOOLS, ["git", "vim"]), _USER, scope)
    found = await provider.load(_TOOLS, _USER, scope)
    promise(_values(found) == [("git", "vim")], "load returns all values of a multiple fact, in order")
    promise(isinstance(found[0], MultipleFacts), "a multiple fact comes back as a MultipleFacts")
    await provider.save(SingleFact(_CITY, "Oslo"), _USER, scope)
    keywords = {fact.concept.keyword for fact in await provider.load_all(_USER, scope)}
    promise(keywords == {"city", "tools"}, "load_all returns the facts of every concept")


async def _apart(provider: FactProvider, scope: Scope) -> None:
    await provider.save(SingleFact(_CITY, "Oslo"), _USER, scope)
    for other in (Scope.agent(scope.name), Scope.feature(scope.name), Scope.cross_product(scope.name)):
        promise(await provider.load(_CITY, _USER, other) == [], "scopes of one name and several kinds are kept apart")
    other = Scope.product(scope.name + "/..")
    promise(await provider.load_all(_USER, other) == [], "scopes of several names are kept apart")
    promise(await provider.load(_CITY, EVERYTHING, scope) == [], "subjects are kept apart")
    promise(await provider.load(_TOOLS, _USER, scope) == [], "concepts are kept apart")
    same = Subject("user", "said in other words", priority=7)
    promise(len(await provider.load(_CITY, same, scope)) == 1, "a subject is found by its name alone")


async def _descriptions(provider: FactProvider, scope: Scope) -> None:
    await provider.save(SingleFact(_CITY, "Oslo"), _USER, scope)
    await provider.save(MultipleFacts(_TOOLS, ["git"]), _USER, scope)
    found = _values(await provider.load_by_description(description="user lives", subject=_USER, scope=scope))
    promise(found == [("Oslo",)], "load_by_description finds a part of the description, in any case")
    found = _values(await provider.load_by_description("USER", _USER, scope))
    promise(sorted(found) == [("Oslo",), ("git",)], "load_by_description returns every concept that fits")
    found = _values(await provider.load_by_description("Oslo", _USER, scope))
    promise(found == [], "load_by_description looks at descriptions, not at values")
    [city] = await provider.load(_CITY, _USER, scope)
    promise(city.concept.description == _CITY.description, "a fact comes back with the description of its concept")


async def _any_text(provider: FactProvider, scope: Scope) -> None:
    subject, concept = Subject(f"../{_ODD}"), Concept(_ODD, _ODD)
    for value in (_ODD, "", "x" * 100_000):
        await provider.save(SingleFact(concept, value), subject, scope)
        promise(_values(await provider.load(concept, subject, scope)) == [(value,)], "any text is kept exactly")


async def _union(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    await provider.save(MultipleFacts(_TOOLS, ["git", "vim"]), _USER, scope, owner=owner)
    await provider.save(MultipleFacts(_TOOLS, ["ed", "git"]), _USER, scope, owner=owner)
    for found in (
        await provider.load(_TOOLS, _USER, scope, owner=owner),
        await provider.load_all(_USER, scope, owner=owner),
        await provider.load_by_description("works with", _USER, scope, owner=owner),
    ):
        expected = [("git", "vim", "ed")]
        promise(_values(found) == expected, "several multiple facts are one: each value once, in the order of saving")


async def _history(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    source = Source("run-1", 3, "learn", "inferred")
    before = _clock.now()
    await provider.save(SingleFact(_CITY, "Oslo", source=source), _USER, scope, owner=owner)
    await provider.save(SingleFact(_CITY, "Bergen", timestamp=7), _USER, scope, owner=owner)
    new, old = await provider.history(_CITY, _USER, scope, owner=owner)
    promise((new.value, old.value) == ("Bergen", "Oslo"), "history returns every version, the newest first")
    promise((new.version, old.version) == (2, 1), "versions are 1, 2, 3 … in the order of saving")
    promise(bool(old.id) and new.id not in ("", old.id), "every saved fact has its own id")
    promise(new.timestamp == 7, "a timestamp that a fact has is kept")
    promise(
        old.timestamp is not None and before <= old.timestamp <= _clock.now(),
        "save stamps the time where it is missing",
    )
    promise((old.source, new.source) == (source, Source()), "a fact comes back with its source")
    promise(
        await provider.load(_CITY, _USER, scope, owner=owner) == [new],
        "load returns the newest version, as history does",
    )
    promise(await provider.load_all(_USER, scope, owner=owner) == [new], "load_all returns the newest version alone")
    await provider.save(new, _USER, scope, owner=owner)
    again = (await provider.history(_CITY, _USER, scope, owner=owner))[0]
    promise(
        (again.version, again.id == new.id) == (3, False), "a fact that is saved again is a new version with a new id"
    )
    await provider.save(SingleFact(_CITY, "Oslo", id="given"), _USER, scope, owner=owner)
    named = (await provider.history(_CITY, _USER, scope, owner=owner))[0]
    promise(named.id == "given", "a fact that has an id and no version keeps that id")


async def _owners(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    await provider.save(SingleFact(_CITY, "Oslo"), _USER, scope, owner=owner)
    other = f"{owner}-other"
    await provider.save(SingleFact(_CITY, "Bergen"), _USER, scope, owner=other)
    promise(_values(await provider.load(_CITY, _USER, scope, owner=owner)) == [("Oslo",)], "owners are kept apart")
    await provider.forget(owner=owner, everything=True)
    promise(await provider.load_all(_USER, scope, owner=owner) == [], "forgetting an owner removes what it has")
    left = _values(await provider.load(_CITY, _USER, scope, owner=other))
    promise(left == [("Bergen",)], "forgetting one owner leaves the others alone")
    await provider.forget(owner=other, everything=True)


async def _forgetting(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    wide = Scope.cross_product("check")
    places = [(subject, where) for subject in (_USER, EVERYTHING) for where in (scope, wide)]

    async def refill() -> None:
        await provider.forget(owner=owner, everything=True)
        for subject, where in places:
            await provider.save(SingleFact(_CITY, "Oslo"), subject, where, owner=owner)
            await provider.save(SingleFact(_CITY, "Bergen"), subject, where, owner=owner)
            await provider.save(MultipleFacts(_TOOLS, ["git"]), subject, where, owner=owner)

    for concept in (None, _CITY):
        for subject in (None, _USER):
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
                    promise(left == expected_left, "forget removes what fits all that is given, and nothing else")
                    if each in fits:
                        past = await provider.history(_CITY, *each, owner=owner)
                        promise(past == [], "forget removes the history too")
    await provider.forget(owner=owner, everything=True)
    await provider.save(SingleFact(_CITY, "Oslo"), _USER, scope, owner=owner)
    [fact] = await provider.load(_CITY, _USER, scope, owner=owner)
    promise(fact.value == "Oslo", "what was forgotten can be learned again")


async def _careful(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    await provider.save(SingleFact(_CITY, "Oslo"), _USER, scope, owner=owner)
    for concept, everything in ((None, False), (_CITY, True)):
        try:
            await provider.forget(concept=concept, owner=owner, everything=everything)
        except ValueError:
            pass
        else:
            raise AssertionError(
                "forget raises ValueError where neither a concept, a subject, a scope nor everything=True is given, and where "
                "one of them is given beside everything=True"
            )
    left = await provider.load(_CITY, _USER, scope, owner=owner)
    promise(_values(left) == [("Oslo",)], "a forget that raises ValueError removes nothing")


async def _export(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    await provider.save(SingleFact(_CITY, _ODD, source=Source("r", 1, "o", "trusted")), _USER, scope, owner=owner)
    await provider.save(SingleFact(_CITY, "Bergen"), _USER, scope, owner=owner)
    await provider.save(MultipleFacts(_TOOLS, ["git", "vim"]), EVERYTHING, scope, owner=owner)
    before = await provider.history(_CITY, _USER, scope, owner=owner)
    records = [record async for record in provider.export(owner=owner)]
    promise(len(records) == 3, "export returns every version of every fact of an owner")
    promise(await provider.import_(records) == 0, "importing what is there already changes nothing")
    await provider.forget(owner=owner, everything=True)
    try:
        await provider.import_([*records, {"nonsense": True}])
    except ValueError:
        pass
    else:
        raise AssertionError("import_ raises ValueError for a record that is not one of an export")
    promise(await provider.load_all(_USER, scope, owner=owner) == [], "where one record is wrong, import_ keeps none")
    promise(await provider.import_(records) == 3, "import_ returns how many facts were new")
    after = await provider.history(_CITY, _USER, scope, owner=owner)
    promise(after == before, "import_ keeps ids, versions, timestamps and sources")
    again = [record async for record in provider.export(owner=owner)]
    promise(sorted(map(repr, again)) == sorted(map(repr, records)), "what is imported is exported the same")
    promise(await provider.verify() >= 3, "verify returns the number of facts, all versions counted")


async def _together(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(_save_for, provider, SingleFact(_CITY, str(number)), scope, owner)
    found = await provider.history(_CITY, _USER, scope, owner=owner)
    promise(
        [fact.version for fact in found] == list(range(20, 0, -1)), "facts saved at the same time get one version each"
    )
    promise(len({fact.value for fact in found}) == 20, "no fact is lost when several are saved at the same time")


async def _save_for(provider: KeepingProvider, fact: Fact, scope: Scope, owner: str) -> None:
    await provider.save(fact, _USER, scope, owner=owner)


async def _closing(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    async with provider as opened:
        await opened.save(SingleFact(_CITY, "Oslo"), _USER, scope, owner=owner)
    found = _values(await provider.load(_CITY, _USER, scope, owner=owner))
    promise(found == [("Oslo",)], "a provider that was closed opens again when it is used")
