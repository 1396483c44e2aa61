"""The contract that every fact provider keeps, as a test for one's own."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
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
from graphagent.testing._promise import accepts, answer, iterates, keeps, promise

_Own = TypeVar("_Own", bound=FactProvider)

_KeepingCheck = Callable[[KeepingProvider, Scope, str], Awaitable[None]]

_USER = Subject("user", "the user", priority=1)
_CITY = Concept("city", "Where the user LIVES")
_TOOLS = Concept("tools", "tools the user works with", FactType.MULTIPLE)
_ODD = "two\nlines, \"quotes\", 'tab\t', \u2028, \x00, e\u0301 and \u00e9, \U0001f600"
_VALUES = (_ODD, "", " \t padded \r\n", "null", "007", "x" * 100_000)
_PARAMETERS: dict[str, dict[str, object]] = {
    "save": {"fact": SingleFact(_CITY, "Oslo"), "subject": _USER},
    "load": {"concept": _CITY, "subject": _USER},
    "load_all": {"subject": _USER},
    "load_by_description": {"description": "lives", "subject": _USER},
    "history": {"concept": _CITY, "subject": _USER},
}


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
        await _keeping_checks(make, (_abilities,))
    for check in (_methods, _single, _multiple, _everything, _apart, _descriptions, _any_text, _as_saved):
        provider, scope = make(), Scope.product(f"check-{_clock.new_id()}")
        await keeps("provider", check, provider, scope)
        if isinstance(provider, KeepingProvider):
            await keeps("provider", _cleared, provider, scope)
    if isinstance(first, KeepingProvider):
        await _keeping_checks(make, (_owners, _history, _union, _forgetting, _careful, _export, _together, _closing))
    if reopen is not None:
        scope = Scope.product(f"check-{_clock.new_id()}")
        await keeps("provider", _durable, make(), reopen, scope)
        if isinstance(first, KeepingProvider):
            await keeps("provider", _durable_history, make(), reopen, scope, scope.name)


async def _keeping_checks(make: Callable[[], FactProvider], checks: Iterable[_KeepingCheck]) -> None:
    for check in checks:
        provider, name = make(), f"check-{_clock.new_id()}"
        assert isinstance(provider, KeepingProvider), "make must return the same kind of provider each time"
        await keeps("provider", check, provider, Scope.product(name), name)
        await keeps("provider", _gone, provider, name)


def _values(facts: Iterable[Fact]) -> list[tuple[str, ...]]:
    return [tuple(fact.values) for fact in facts]


def _added_up(facts: Iterable[Fact]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for fact in facts for value in fact.values))


async def _cleared(provider: KeepingProvider, scope: Scope) -> None:
    """Forgetting removes the facts of a scope."""
    await provider.forget(scope=scope)


async def _gone(provider: KeepingProvider, owner: str) -> None:
    """Forgetting removes the facts of an owner."""
    await provider.forget(owner=owner, everything=True)


async def _called(provider: FactProvider, name: str, scope: Scope, **owner: str) -> None:
    """Call a method of FactProvider by position and by keyword."""
    parameters = {**_PARAMETERS[name], "scope": scope}
    text = f"{name}({', '.join([*parameters, *owner])}) is an async method, with parameters by position or by keyword"
    if owner:
        text += " and owner= by keyword"
    method = getattr(provider, name, None)
    answers: list[list[Fact]] = []
    for given, named in ((tuple(parameters.values()), owner), ((), {**parameters, **owner})):
        found = await answer(method, text, *given, **named)
        if name == "save":
            found = await provider.load(_CITY, _USER, scope, **owner)
        promise(isinstance(found, list), f"{'load' if name == 'save' else name} returns a list of facts")
        answers.append(found)
    promise(bool(answers[0]) == bool(answers[1]), f"{text}, in this order")


async def _methods(provider: FactProvider, scope: Scope) -> None:
    """A provider has four async methods, whose parameters are passed by position or by keyword."""
    for name in ("save", "load", "load_all", "load_by_description"):
        await _called(provider, name, scope)


async def _single(provider: FactProvider, scope: Scope) -> None:
    """Of a concept with one value the last fact saved counts."""
    promise(await provider.load(_CITY, _USER, scope) == [], "load returns an empty list where nothing was saved")
    promise(await provider.load_all(_USER, scope) == [], "load_all returns an empty list where nothing was saved")
    await provider.save(SingleFact(_CITY, "Oslo"), _USER, scope)
    promise(_values(await provider.load(_CITY, _USER, scope)) == [("Oslo",)], "load returns what was saved")
    for value, timestamp in (("Bergen", 9), ("Paris", 5), ("Rome", 5), ("Oslo", 5)):  # times do not decide
        await provider.save(SingleFact(_CITY, value, timestamp), _USER, scope)
        found = _values(await provider.load(_CITY, _USER, scope))
        promise(found == [(value,)], "load returns one fact of a single concept: the last one saved")
        found = _values(await provider.load_all(_USER, scope))
        promise(found == [(value,)], "load_all returns one fact of each single concept: the last one saved")
        found = _values(await provider.load_by_description(_CITY.description, _USER, scope))
        promise(found == [(value,)], "load_by_description returns one fact of a single concept: the last one saved")
    same = Concept("city", "said in other words")
    promise(_values(await provider.load(same, _USER, scope)) == [("Oslo",)], "a concept is found by its keyword alone")


async def _multiple(provider: FactProvider, scope: Scope) -> None:
    """The values of several MultipleFacts add up."""
    await provider.save(MultipleFacts(_TOOLS, ["vim", "git"]), _USER, scope)
    found = await provider.load(_TOOLS, _USER, scope)
    promise(_values(found) == [("vim", "git")], "load returns all values of a multiple fact, in order")
    promise(isinstance(found[0], MultipleFacts), "a multiple fact comes back as a MultipleFacts")
    await provider.save(MultipleFacts(_TOOLS, ["ed", "git", "a, b", "c\nd", ""]), _USER, scope)
    for name, found in (
        ("load", await provider.load(_TOOLS, _USER, scope)),
        ("load_all", await provider.load_all(_USER, scope)),
        ("load_by_description", await provider.load_by_description(_TOOLS.description, _USER, scope)),
    ):
        promise(
            _added_up(found) == ("vim", "git", "ed", "a, b", "c\nd", ""),
            f"{name} returns the values of all MultipleFacts of a concept, the oldest first",
        )
        promise(all(isinstance(fact, MultipleFacts) for fact in found), "multiple facts come back as MultipleFacts")


async def _everything(provider: FactProvider, scope: Scope) -> None:
    """load_all returns the facts of every concept, as load does for one."""
    name, pets = Concept("name", "the name"), Concept("pets", "the animals", FactType.MULTIPLE)
    for round_ in ("1", "2"):
        for concept in (_CITY, name):
            await provider.save(SingleFact(concept, f"{concept.keyword} {round_}", 5), _USER, scope)
        for concept in (_TOOLS, pets):
            await provider.save(MultipleFacts(concept, [f"{concept.keyword} {round_}"], 5), _USER, scope)
    found = await provider.load_all(_USER, scope)
    keywords = {fact.concept.keyword for fact in found}
    promise(keywords == {"city", "name", "tools", "pets"}, "load_all returns the facts of every concept")
    for concept in (_CITY, name, _TOOLS, pets):
        of = [fact for fact in found if fact.concept == concept]
        promise(of == await provider.load(concept, _USER, scope), _everything.__doc__ or "")
    found.clear()
    (await provider.load(_CITY, _USER, scope)).clear()
    left = {fact.concept.keyword for fact in await provider.load_all(_USER, scope)}
    promise(left == keywords, "whoever changes a list that was returned changes nothing of what is stored")


async def _apart(provider: FactProvider, scope: Scope) -> None:
    """Facts are found under exactly their concept, subject and scope."""
    await provider.save(SingleFact(_CITY, "Oslo"), _USER, scope)
    for other in (Scope.agent(scope.name), Scope.feature(scope.name), Scope.cross_product(scope.name)):
        promise(await provider.load(_CITY, _USER, other) == [], "scopes of one name and several kinds are kept apart")
        promise(await provider.load_all(_USER, other) == [], "scopes of one name and several kinds are kept apart")
    for name in (scope.name + "/..", scope.name.upper(), scope.name + " ", scope.name[:-1]):
        found = await provider.load_all(_USER, Scope.product(name))
        promise(found == [], "scopes of several names are kept apart, also where they differ in case or spaces alone")
    promise(await provider.load(_CITY, EVERYTHING, scope) == [], "subjects are kept apart")
    promise(await provider.load_all(EVERYTHING, scope) == [], "subjects are kept apart")
    promise(await provider.load_by_description("lives", EVERYTHING, scope) == [], "subjects are kept apart")
    for name in ("User", "user ", "use", "\uff55ser"):
        found = await provider.load_all(Subject(name), scope)
        promise(found == [], "subjects are kept apart, also where their names differ in case or spaces alone")
    promise(await provider.load(_TOOLS, _USER, scope) == [], "concepts are kept apart")
    for keyword in ("City", "city ", "cit", "\uff43ity"):
        found = await provider.load(Concept(keyword), _USER, scope)
        promise(found == [], "concepts are kept apart, also where their keywords differ in case or spaces alone")
    same = Subject("user", "said in other words", priority=7)
    promise(len(await provider.load(_CITY, same, scope)) == 1, "a subject is found by its name alone")


async def _descriptions(provider: FactProvider, scope: Scope) -> None:
    """load_by_description finds a part of the description."""
    await provider.save(SingleFact(_CITY, "Oslo"), _USER, scope)
    await provider.save(MultipleFacts(_TOOLS, ["git"]), _USER, scope)
    found = _values(await provider.load_by_description("user lives", _USER, scope))
    promise(found == [("Oslo",)], "load_by_description finds a part of the description, in any case")
    found = _values(await provider.load_by_description("USER", _USER, scope))
    promise(sorted(found) == [("Oslo",), ("git",)], "load_by_description returns every concept that fits")
    for wanted in ("Oslo", "city"):
        found = _values(await provider.load_by_description(wanted, _USER, scope))
        promise(found == [], "load_by_description looks at descriptions, not at values and keywords")
    for wanted in ("user%lives", "user_lives", "user.lives", "lives user"):
        found = _values(await provider.load_by_description(wanted, _USER, scope))
        promise(found == [], "load_by_description looks for the text as it is; no character stands for others")
    other = Scope.agent(scope.name)
    promise(await provider.load_by_description("user", _USER, other) == [], "load_by_description looks in one scope")


async def _any_text(provider: FactProvider, scope: Scope) -> None:
    """Any text is kept exactly."""
    subject, concept = Subject(f"../{_ODD}"), Concept(_ODD, _ODD)
    for value in _VALUES:
        await provider.save(SingleFact(concept, value), subject, scope)
        promise(_values(await provider.load(concept, subject, scope)) == [(value,)], "any text is kept exactly")
    [fact] = await provider.load_all(subject, scope)
    promise(fact.concept.keyword == _ODD.replace("e\u0301", "\u00e9"), "any keyword comes back as it was")
    promise(fact.concept.description == _ODD, "any description comes back as it was")
    long = Subject("\u00e9" * 1_000), Concept("k" * 1_000)
    await provider.save(SingleFact(long[1], "Oslo"), long[0], scope)
    found = _values(await provider.load(long[1], long[0], scope))
    promise(found == [("Oslo",)], "names and keywords may have 1,000 characters")


async def _as_saved(provider: FactProvider, scope: Scope) -> None:
    """A fact comes back as it was saved."""
    source = Source("run-1", 3, "learn", "inferred")
    await provider.save(SingleFact(_CITY, "Oslo", 7, id="given", source=source), _USER, scope)
    [city] = await provider.load(Concept("city"), _USER, scope)
    promise(isinstance(city, SingleFact), "a single fact comes back as a SingleFact")
    concept = (city.concept.keyword, city.concept.description, city.concept.fact_type)
    promise(concept == ("city", _CITY.description, FactType.SINGLE), "a fact comes back with its concept")
    promise(city.timestamp == 7, "a timestamp that a fact has is kept")
    promise(city.source == source, "a fact comes back with its source")
    promise(city.id == "given", "a fact that has an id and no version keeps that id")
    for value, trust in (("git", "untrusted"), ("vim", "trusted")):
        fact = MultipleFacts(_TOOLS, [value], id=f"given-{value}", source=Source(trust=trust))
        await provider.save(fact, _USER, scope)
    tools = await provider.load(_TOOLS, _USER, scope)
    promise("given-vim" in {fact.id for fact in tools}, "of multiple facts the last one that was saved keeps its id")
    trusted = {fact.source.trust for fact in tools if "git" in fact.values}
    promise(trusted == {"untrusted"}, "values that are joined with others are not trusted more than before")


async def _durable(provider: _Own, reopen: Callable[[_Own], FactProvider], scope: Scope) -> None:
    """Facts are durable when save returns: they are there when they are opened again."""
    text = "facts are durable when save returns: whoever opens them again finds them as they were"
    source = Source("run-1", 3, "learn", "inferred")
    for fact in (
        SingleFact(_CITY, "Oslo", 5, id="one", source=source),
        SingleFact(_CITY, "Bergen", 5, id="two", source=source),
        MultipleFacts(_TOOLS, ["vim", "git"], 6, id="three", source=source),
        MultipleFacts(_TOOLS, ["ed", "git"], 7, id="four", source=source),
    ):
        await provider.save(fact, _USER, scope)
        again = reopen(provider)
        for concept in (_CITY, _TOOLS):
            promise(await again.load(concept, _USER, scope) == await provider.load(concept, _USER, scope), text)
        found = await again.load_by_description("user", _USER, scope)
        promise(_by_keyword(found) == _by_keyword(await provider.load_all(_USER, scope)), text)
        promise(_by_keyword(found) == _by_keyword(await again.load_all(_USER, scope)), text)
    again = reopen(provider)
    await again.save(SingleFact(_CITY, "Paris"), _USER, scope)
    await again.save(MultipleFacts(_TOOLS, ["sed"]), _USER, scope)
    last = reopen(provider)
    promise(_values(await last.load(_CITY, _USER, scope)) == [("Paris",)], text)
    tools = _added_up(await last.load(_TOOLS, _USER, scope))
    promise(
        tools == ("vim", "git", "ed", "sed"), "what was saved before adds up with what is saved after opening again"
    )
    if isinstance(last, KeepingProvider):
        await _cleared(last, scope)


def _by_keyword(facts: Iterable[Fact]) -> list[Fact]:
    return sorted(facts, key=lambda fact: fact.concept.keyword)


async def _durable_history(provider: _Own, reopen: Callable[[_Own], FactProvider], scope: Scope, owner: str) -> None:
    """Versions, owners and what was forgotten are durable."""

    def opened(before: _Own) -> KeepingProvider:
        again = reopen(before)
        assert isinstance(again, KeepingProvider), "reopen must return the same kind of provider as make"
        return again

    first = opened(provider)
    for value in ("Oslo", "Bergen"):
        await first.save(SingleFact(_CITY, value), _USER, scope, owner=owner)
    before = await first.history(_CITY, _USER, scope, owner=owner)
    second = opened(provider)
    after = await second.history(_CITY, _USER, scope, owner=owner)
    promise(after == before, "history is durable: ids, versions, timestamps and sources are the same when opened again")
    await second.save(SingleFact(_CITY, "Paris"), _USER, scope, owner=owner)
    versions = [fact.version for fact in await opened(provider).history(_CITY, _USER, scope, owner=owner)]
    promise(versions == [3, 2, 1], "versions are counted on after facts are opened again")
    await second.save(MultipleFacts(_TOOLS, ["git"]), _USER, scope, owner=owner)
    await second.forget(concept=_CITY, owner=owner)
    third = opened(provider)
    left = [fact.concept.keyword for fact in await third.load_all(_USER, scope, owner=owner)]
    past = await third.history(_CITY, _USER, scope, owner=owner)
    promise((left, past) == (["tools"], []), "what was forgotten is not there when facts are opened again")
    await third.forget(owner=owner, everything=True)
    promise(
        await opened(provider).load_all(_USER, scope, owner=owner) == [],
        "what was forgotten is not there when facts are opened again",
    )


async def _abilities(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    """The methods of a KeepingProvider have the parameters of the protocol."""
    for name in _PARAMETERS:
        await _called(provider, name, scope, owner=owner)
    text = "forget(concept=, subject=, scope=, owner=, everything=) is an async method, with parameters by keyword"
    filters = {"concept": _CITY, "subject": _USER, "scope": scope}
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

    async def found(who: str) -> dict[str, list[Fact]]:
        return {
            "load": await provider.load(_CITY, _USER, scope, owner=who),
            "load_all": await provider.load_all(_USER, scope, owner=who),
            "load_by_description": await provider.load_by_description("lives", _USER, scope, owner=who),
            "history": await provider.history(_CITY, _USER, scope, owner=who),
        }

    def fails(name: str) -> str:
        return f"owners are kept apart: {name} returns the facts of the owner that it is given, and no others"

    other = f"{owner}-other"
    kept: dict[str, list[tuple[str, ...]]] = {other: [], "": [], owner.upper(): [], owner: []}
    for who, city in ((owner, "Oslo"), (other, "Bergen"), ("", "Paris")):
        await provider.save(SingleFact(_CITY, city), _USER, scope, owner=who)
        kept[who] = [(city,)]
        for each, values in kept.items():
            for name, facts in (await found(each)).items():
                promise(_values(facts) == values, fails(name))
    promise(_values(await provider.load(_CITY, _USER, scope)) == [("Paris",)], "without owner= the owner is ''")
    # In this order, a provider that ignores owners removes no fact of anybody else.
    for who, everything in (("", False), (other, False), (owner, True)):
        await provider.forget(scope=None if everything else scope, owner=who, everything=everything)
        kept[who] = []
        for each, values in kept.items():
            for facts in (await found(each)).values():
                promise(_values(facts) == values, "forgetting removes what an owner has, and leaves other owners alone")


async def _union(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    """Several multiple facts are one."""
    await provider.save(MultipleFacts(_TOOLS, ["vim", "git"]), _USER, scope, owner=owner)
    await provider.save(MultipleFacts(_TOOLS, ["ed", "git"]), _USER, scope, owner=owner)
    for found in (
        await provider.load(_TOOLS, _USER, scope, owner=owner),
        await provider.load_all(_USER, scope, owner=owner),
        await provider.load_by_description("works with", _USER, scope, owner=owner),
    ):
        expected = [("vim", "git", "ed")]
        promise(_values(found) == expected, "several multiple facts are one: each value once, in the order of saving")
    past = _values(await provider.history(_TOOLS, _USER, scope, owner=owner))
    promise(past == [("ed", "git"), ("vim", "git")], "history returns multiple facts as they were saved, newest first")


async def _history(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    """Every version is kept."""
    source = Source("run-1", 3, "learn", "inferred")
    promise(await provider.history(_CITY, _USER, scope, owner=owner) == [], "history of what was never saved is empty")
    before = _clock.now()
    await provider.save(SingleFact(_CITY, "Oslo", source=source), _USER, scope, owner=owner)
    await provider.save(SingleFact(_CITY, "Bergen", timestamp=7), _USER, scope, owner=owner)
    found = await provider.history(_CITY, _USER, scope, owner=owner)
    promise(_values(found) == [("Bergen",), ("Oslo",)], "history returns every version, the newest first")
    new, old = found
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


async def _forgetting(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    """Forgetting removes what fits all that is given, and nothing else."""
    wide = Scope.cross_product(scope.name)
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
    found = await provider.history(_CITY, _USER, scope, owner=owner)
    promise([(fact.value, fact.version) for fact in found] == [("Oslo", 1)], "what was forgotten can be learned again")


async def _careful(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    """Forgetting removes nothing by accident."""
    await provider.save(SingleFact(_CITY, "Oslo"), _USER, scope, owner=owner)
    for concept, everything in ((None, False), (_CITY, True)):
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
    left = await provider.load(_CITY, _USER, scope, owner=owner)
    promise(_values(left) == [("Oslo",)], "a forget that raises ValueError removes nothing")


async def _export(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    """What is exported is imported without loss."""
    other = f"{owner}-other"
    await provider.save(SingleFact(_CITY, "Paris"), _USER, scope, owner=other)
    await provider.save(SingleFact(_CITY, _ODD, source=Source("r", 1, "o", "trusted")), _USER, scope, owner=owner)
    first = [record async for record in provider.export(owner=owner)]
    promise(len(first) == 1, "export returns the facts of the owner that it is given, and no others")
    await provider.save(SingleFact(_CITY, "Bergen"), _USER, scope, owner=owner)
    versions = [record async for record in provider.export(owner=owner)]
    promise(len(versions) == 2 and versions[:1] == first, "export returns every version of a concept, the oldest first")
    await provider.save(MultipleFacts(_TOOLS, ["git", "vim"]), EVERYTHING, scope, owner=owner)
    before = await provider.history(_CITY, _USER, scope, owner=owner)
    records = [record async for record in provider.export(owner=owner)]
    promise(json.loads(json.dumps(records)) == records, "records of an export are plain JSON data")
    whole = [record async for record in provider.export()]
    promise(all(record in whole for record in records), "export without an owner returns the facts of all owners")
    promise(len(whole) > 3, "export without an owner returns the facts of all owners")
    promise(await provider.import_(records) == 0, "importing what is there already changes nothing")
    await provider.forget(owner=owner, everything=True)
    try:
        await provider.import_([*records, {"nonsense": True}])
    except ValueError:
        pass
    else:
        promise(False, "import_ raises ValueError for a record that is not one of an export")
    promise(await provider.load_all(_USER, scope, owner=owner) == [], "where one record is wrong, import_ keeps none")
    promise(await provider.import_(records) == 3, "import_ returns how many facts were new")
    after = await provider.history(_CITY, _USER, scope, owner=owner)
    promise(after == before, "import_ keeps ids, versions, timestamps and sources")
    again = [record async for record in provider.export(owner=owner)]
    promise(sorted(map(repr, again)) == sorted(map(repr, records)), "what is imported is exported the same")
    left = _values(await provider.load_all(_USER, scope, owner=other))
    promise(left == [("Paris",)], "import_ changes nothing of other owners")
    promise(await provider.verify() >= 4, "verify returns the number of facts, all versions counted")
    await provider.forget(owner=other, everything=True)


async def _together(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    """No fact is lost when several are saved at the same time."""
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
    """A provider that was closed opens again when it is used."""
    async with provider as opened:
        await opened.save(SingleFact(_CITY, "Oslo"), _USER, scope, owner=owner)
    found = _values(await provider.load(_CITY, _USER, scope, owner=owner))
    promise(found == [("Oslo",)], "a provider that was closed opens again when it is used")
