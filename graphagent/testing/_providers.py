"""The contract that every fact provider keeps, as a test for one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

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
from graphagent.testing._keeping import check_abilities, check_keeping, durable_history
from graphagent.testing._promise import keeps, promise
from graphagent.testing._samples import CITY, ODD, TOOLS, USER, VALUES, added_up, called, values_of

_Own = TypeVar("_Own", bound=FactProvider)
_MANY = 30
"""The numbers of concepts, values and concurrent saves that no provider may drop."""


async def check_provider(make: Callable[[], _Own], *, reopen: Callable[[_Own], FactProvider] | None = None) -> None:
    """Check that a provider keeps the promises of FactProvider and, where it has all its methods, of KeepingProvider.

    `make` is called several times and may return the same provider, or another one, each time. `reopen` opens the facts of a
    provider again, as another process would: it is passed the provider, which was not closed, and returns another one over the
    same facts. Without it, the check cannot see whether facts are durable.

    The check uses scopes and owners that nothing else uses; a KeepingProvider is asked to forget them in the end.

    Raises:
        AssertionError: a promise is not kept; the text says which.
    """
    first = make()
    if isinstance(first, KeepingProvider):
        await check_abilities(make)
    for check in (_methods, _single, _multiple, _everything, _apart, _descriptions, _any_text, _as_saved):
        provider, scope = make(), Scope.product(f"check-{_clock.new_id()}")
        await keeps("provider", check, provider, scope)
        if isinstance(provider, KeepingProvider):
            await keeps("provider", _cleared, provider, scope)
    if isinstance(first, KeepingProvider):
        await check_keeping(make)
    provider, scope = make(), Scope.product(f"check-{_clock.new_id()}")
    await keeps("provider", _many, provider, scope)
    if isinstance(provider, KeepingProvider):
        await keeps("provider", _cleared, provider, scope)
    if reopen is not None:
        scope = Scope.product(f"check-{_clock.new_id()}")
        await keeps("provider", _durable, make(), reopen, scope)
        if isinstance(first, KeepingProvider):
            await keeps("provider", durable_history, make(), reopen, scope, scope.name)


async def _cleared(provider: KeepingProvider, scope: Scope) -> None:
    """Forgetting removes the facts of a scope."""
    await provider.forget(scope=scope)


async def _methods(provider: FactProvider, scope: Scope) -> None:
    """A provider has four async methods, whose parameters are passed by position or by keyword."""
    for name in ("save", "load", "load_all", "load_by_description"):
        await called(provider, name, scope)


async def _single(provider: FactProvider, scope: Scope) -> None:
    """Of a concept with one value the last fact saved counts."""
    promise(await provider.load(CITY, USER, scope) == [], "load returns an empty list where nothing was saved")
    promise(await provider.load_all(USER, scope) == [], "load_all returns an empty list where nothing was saved")
    await provider.save(SingleFact(CITY, "Oslo"), USER, scope)
    promise(values_of(await provider.load(CITY, USER, scope)) == [("Oslo",)], "load returns the saved fact")
    for value, timestamp in (("Bergen", 9), ("Paris", 5), ("Rome", 5), ("Oslo", 5)):  # times do not decide
        await provider.save(SingleFact(CITY, value, timestamp), USER, scope)
        found = values_of(await provider.load(CITY, USER, scope))
        promise(found == [(value,)], "load returns one fact of a single concept: the last one saved")
        found = values_of(await provider.load_all(USER, scope))
        promise(found == [(value,)], "load_all returns one fact of each single concept: the last one saved")
        found = values_of(await provider.load_by_description(CITY.description, USER, scope))
        promise(found == [(value,)], "load_by_description returns one fact of a single concept: the last one saved")
    same = Concept("city", "said in other words")
    promise(values_of(await provider.load(same, USER, scope)) == [("Oslo",)], "a concept is found by its keyword alone")


async def _multiple(provider: FactProvider, scope: Scope) -> None:
    """The values of several MultipleFacts add up."""
    await provider.save(MultipleFacts(TOOLS, ["vim", "git"]), USER, scope)
    found = await provider.load(TOOLS, USER, scope)
    promise(values_of(found) == [("vim", "git")], "load returns all values of a multiple fact, in order")
    promise(isinstance(found[0], MultipleFacts), "a multiple fact comes back as a MultipleFacts")
    await provider.save(MultipleFacts(TOOLS, ["ed", "git", "a, b", "c\nd", ""]), USER, scope)
    for name, found in (
        ("load", await provider.load(TOOLS, USER, scope)),
        ("load_all", await provider.load_all(USER, scope)),
        ("load_by_description", await provider.load_by_description(TOOLS.description, USER, scope)),
    ):
        promise(
            added_up(found) == ("vim", "git", "ed", "a, b", "c\nd", ""),
            f"{name} returns the values of all MultipleFacts of a concept, the oldest first",
        )
        promise(all(isinstance(fact, MultipleFacts) for fact in found), "multiple facts come back as MultipleFacts")


async def _everything(provider: FactProvider, scope: Scope) -> None:
    """load_all returns the facts of every concept, as load does for one."""
    name, pets = Concept("name", "the name"), Concept("pets", "the animals", FactType.MULTIPLE)
    for round_ in ("1", "2"):
        for concept in (CITY, name):
            await provider.save(SingleFact(concept, f"{concept.keyword} {round_}", 5), USER, scope)
        for concept in (TOOLS, pets):
            await provider.save(MultipleFacts(concept, [f"{concept.keyword} {round_}"], 5), USER, scope)
    found = await provider.load_all(USER, scope)
    keywords = {fact.concept.keyword for fact in found}
    promise(keywords == {"city", "name", "tools", "pets"}, "load_all returns the facts of every concept")
    for concept in (CITY, name, TOOLS, pets):
        of = [fact for fact in found if fact.concept == concept]
        promise(of == await provider.load(concept, USER, scope), _everything.__doc__ or "")
    found.clear()
    (await provider.load(CITY, USER, scope)).clear()
    left = {fact.concept.keyword for fact in await provider.load_all(USER, scope)}
    promise(left == keywords, "changing a returned list does not change the stored facts")


async def _many(provider: FactProvider, scope: Scope) -> None:
    """Nothing is lost where there is much."""
    concepts = [Concept(f"key-{number}", "one of many") for number in range(_MANY)]
    async with anyio.create_task_group() as tasks:
        for concept in concepts:
            tasks.start_soon(provider.save, SingleFact(concept, concept.keyword), USER, scope)
    expected = sorted((concept.keyword,) for concept in concepts)
    for name, found in (
        ("load_all", await provider.load_all(USER, scope)),
        ("load_by_description", await provider.load_by_description("one of many", USER, scope)),
    ):
        promise(
            sorted(values_of(found)) == expected,
            f"{name} returns the facts of {_MANY} concepts, which were saved at the same time",
        )
    first = tuple(f"value {number}" for number in range(_MANY))
    await provider.save(MultipleFacts(TOOLS, first), USER, scope)
    async with anyio.create_task_group() as tasks:
        for number in range(_MANY):
            tasks.start_soon(provider.save, MultipleFacts(TOOLS, [f"later {number}"]), USER, scope)
    values = added_up(await provider.load(TOOLS, USER, scope))
    later = {f"later {number}" for number in range(_MANY)}
    promise(
        later <= set(values),
        f"load returns the values of {_MANY} MultipleFacts, which were saved at the same time",
    )
    promise(values[:_MANY] == first, f"load returns all {_MANY} values of one MultipleFacts")


async def _apart(provider: FactProvider, scope: Scope) -> None:
    """Facts are found under exactly their concept, subject and scope."""
    await provider.save(SingleFact(CITY, "Oslo"), USER, scope)

    async def found_in(subject: Subject, scope: Scope) -> list[Fact]:
        by_description = await provider.load_by_description("lives", subject, scope)
        return [*await provider.load(CITY, subject, scope), *await provider.load_all(subject, scope), *by_description]

    for other in (Scope.agent(scope.name), Scope.feature(scope.name), Scope.cross_product(scope.name)):
        promise(await found_in(USER, other) == [], "scopes of one name and several kinds are kept apart")
    for name in (scope.name + "/..", scope.name.upper(), scope.name + " ", scope.name[:-1]):
        found = await found_in(USER, Scope.product(name))
        promise(found == [], "scopes of several names are kept apart, also where they differ in case or spaces alone")
    promise(await found_in(EVERYTHING, scope) == [], "subjects are kept apart")
    for name in ("User", "user ", "use", "\uff55ser"):
        found = await found_in(Subject(name), scope)
        promise(found == [], "subjects are kept apart, also where their names differ in case or spaces alone")
    promise(await provider.load(TOOLS, USER, scope) == [], "concepts are kept apart")
    for keyword in ("City", "city ", "cit", "\uff43ity"):
        found = await provider.load(Concept(keyword), USER, scope)
        promise(found == [], "concepts are kept apart, also where their keywords differ in case or spaces alone")
    same = Subject("user", "said in other words", priority=7)
    promise(len(await provider.load(CITY, same, scope)) == 1, "a subject is found by its name alone")


async def _descriptions(provider: FactProvider, scope: Scope) -> None:
    """load_by_description finds a part of the description."""
    await provider.save(SingleFact(CITY, "Oslo"), USER, scope)
    await provider.save(MultipleFacts(TOOLS, ["git"]), USER, scope)
    found = values_of(await provider.load_by_description("user lives", USER, scope))
    promise(found == [("Oslo",)], "load_by_description finds a part of the description, in any case")
    found = values_of(await provider.load_by_description("USER", USER, scope))
    promise(sorted(found) == [("Oslo",), ("git",)], "load_by_description returns every concept that fits")
    for wanted in ("Oslo", "city"):
        found = values_of(await provider.load_by_description(wanted, USER, scope))
        promise(found == [], "load_by_description looks at descriptions, not at values and keywords")
    for wanted in ("user%lives", "user_lives", "user.lives", "lives user"):
        found = values_of(await provider.load_by_description(wanted, USER, scope))
        promise(found == [], "load_by_description looks for the text literally; no character is a wildcard")


async def _any_text(provider: FactProvider, scope: Scope) -> None:
    """Any text is kept exactly."""
    subject, concept = Subject(f"../{ODD}"), Concept(ODD, ODD)
    for value in VALUES:
        await provider.save(SingleFact(concept, value), subject, scope)
        promise(values_of(await provider.load(concept, subject, scope)) == [(value,)], "any text is kept exactly")
    [fact] = await provider.load_all(subject, scope)
    promise(fact.concept.keyword == ODD.replace("e\u0301", "\u00e9"), "any keyword comes back as it was")
    promise(fact.concept.description == ODD, "any description comes back as it was")
    long = Subject("\u00e9" * 1_000), Concept("k" * 1_000)
    await provider.save(SingleFact(long[1], "Oslo"), long[0], scope)
    found = values_of(await provider.load(long[1], long[0], scope))
    promise(found == [("Oslo",)], "names and keywords may have 1,000 characters")


async def _as_saved(provider: FactProvider, scope: Scope) -> None:
    """A fact comes back as it was saved."""
    source = Source("run-1", 3, "learn", "inferred")
    await provider.save(SingleFact(CITY, "Oslo", 7, id="given", source=source), USER, scope)
    [city] = await provider.load(Concept("city"), USER, scope)
    promise(isinstance(city, SingleFact), "a single fact comes back as a SingleFact")
    concept = (city.concept.keyword, city.concept.description, city.concept.fact_type)
    promise(concept == ("city", CITY.description, FactType.SINGLE), "a fact comes back with its concept")
    promise(city.timestamp == 7, "a timestamp that a fact has is kept")
    promise(city.source == source, "a fact comes back with its source")
    promise(city.id == "given", "a fact that has an id and no version keeps that id")
    for value, trust in (("git", "untrusted"), ("vim", "trusted")):
        fact = MultipleFacts(TOOLS, [value], id=f"given-{value}", source=Source(trust=trust))
        await provider.save(fact, USER, scope)
    tools = await provider.load(TOOLS, USER, scope)
    promise("given-vim" in {fact.id for fact in tools}, "of multiple facts the last one that was saved keeps its id")
    trusted = {fact.source.trust for fact in tools if "git" in fact.values}
    promise(trusted == {"untrusted"}, "values that are joined with others are not trusted more than before")


async def _durable(provider: _Own, reopen: Callable[[_Own], FactProvider], scope: Scope) -> None:
    """Facts are durable when save returns: they are there when they are opened again."""
    text = "facts are durable when save returns: a provider opened again finds them unchanged"
    source = Source("run-1", 3, "learn", "inferred")
    for fact in (
        SingleFact(CITY, "Oslo", 5, id="one", source=source),
        SingleFact(CITY, "Bergen", 5, id="two", source=source),
        MultipleFacts(TOOLS, ["vim", "git"], 6, id="three", source=source),
        MultipleFacts(TOOLS, ["ed", "git"], 7, id="four", source=source),
    ):
        await provider.save(fact, USER, scope)
        again = reopen(provider)
        for concept in (CITY, TOOLS):
            promise(await again.load(concept, USER, scope) == await provider.load(concept, USER, scope), text)
        found = await again.load_by_description("user", USER, scope)
        promise(_by_keyword(found) == _by_keyword(await provider.load_all(USER, scope)), text)
        promise(_by_keyword(found) == _by_keyword(await again.load_all(USER, scope)), text)
    again = reopen(provider)
    await again.save(SingleFact(CITY, "Paris"), USER, scope)
    await again.save(MultipleFacts(TOOLS, ["sed"]), USER, scope)
    last = reopen(provider)
    promise(values_of(await last.load(CITY, USER, scope)) == [("Paris",)], text)
    tools = added_up(await last.load(TOOLS, USER, scope))
    promise(
        tools == ("vim", "git", "ed", "sed"),
        "earlier values are kept beside values that are saved after opening again",
    )
    if isinstance(last, KeepingProvider):
        await _cleared(last, scope)


def _by_keyword(facts: Iterable[Fact]) -> list[Fact]:
    return sorted(facts, key=lambda fact: fact.concept.keyword)
