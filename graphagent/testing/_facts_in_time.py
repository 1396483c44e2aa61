"""The contract of providers about time: validity, `as_of`, `history(at=)`, what hides what, withdrawing, and forgetting a value."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from graphagent.errors import ValueNotFoundError
from graphagent.memory import (
    Fact,
    FactProvider,
    FactType,
    FactVersion,
    KeepingProvider,
    MultipleFacts,
    Scope,
    SingleFact,
    Source,
    Withdrawal,
)
from graphagent.testing._promise import answer, promise
from graphagent.testing._samples import CITY, TOOLS, USER, values_of

_Own = TypeVar("_Own", bound=FactProvider)
_ZONELESS = datetime.fromisoformat("2026-05-01")
_VALUE = "sextant"


def _year(year: int) -> datetime:
    return datetime(year, 1, 1, tzinfo=UTC)


def _milliseconds(year: int) -> int:
    return int(_year(year).timestamp() * 1000)


async def parameters(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    """The methods of a KeepingProvider have the parameters about time of the protocol."""
    place = {"subject": USER, "scope": scope, "owner": owner}
    for name, given, when in (
        ("load", {"concept": CITY}, "as_of"),
        ("load_all", {}, "as_of"),
        ("load_by_description", {"description": "lives"}, "as_of"),
        ("history", {"concept": CITY}, "at"),
    ):
        for moment in (_year(2026), None):
            text = f"{name}({when}=) takes a moment by keyword, or None"
            await answer(getattr(provider, name), text, **given, **place, **{when: moment})
    await provider.save(MultipleFacts(TOOLS, ["git", "vim"]), USER, scope, owner=owner)
    text = "withdraw(withdrawal, subject, scope, owner=) is an async method, with parameters by position or by keyword"
    await answer(getattr(provider, "withdraw", None), text, Withdrawal(TOOLS, ["git"]), USER, scope, owner=owner)
    await answer(provider.withdraw, text, withdrawal=Withdrawal(TOOLS, ["vim"]), **place)
    text = "forget(concept=, value=) is an async method, with parameters by keyword"
    await answer(provider.forget, text, concept=TOOLS, value="git", subject=USER, scope=scope, owner=owner)


async def _found(
    provider: KeepingProvider, scope: Scope, owner: str, as_of: datetime | None
) -> Sequence[tuple[str, list[Fact]]]:
    """Return the results of each way to load for the two concepts, in the order of their keywords."""
    when = {} if as_of is None else {"as_of": as_of}
    city = await provider.load(CITY, USER, scope, owner=owner, **when)
    tools = await provider.load(TOOLS, USER, scope, owner=owner, **when)
    everything = await provider.load_all(USER, scope, owner=owner, **when)
    described = await provider.load_by_description("user", USER, scope, owner=owner, **when)
    return (
        ("load", [*city, *tools]),
        ("load_all", sorted(everything, key=_keyword)),
        ("load_by_description", sorted(described, key=_keyword)),
    )


def _keyword(fact: Fact) -> str:
    return fact.concept.keyword


async def validity(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    """A fact holds from and to its times."""
    await provider.save(SingleFact(CITY, "Oslo", _milliseconds(2020)), USER, scope, owner=owner)
    later = SingleFact(CITY, "Bergen", _milliseconds(2021), valid_from=_year(3000))
    visit = SingleFact(CITY, "Paris", _milliseconds(2021), valid_from=_year(2015), valid_to=_year(2016))
    for fact in (later, visit):
        await provider.save(fact, USER, scope, owner=owner)
    past = await provider.history(CITY, USER, scope, owner=owner)
    times = [(fact.valid_from, fact.valid_to) for fact in past if isinstance(fact, SingleFact)]
    promise(
        times == [(visit.valid_from, visit.valid_to), (later.valid_from, None), (None, None)],
        "a fact comes back with the times from and to which it holds",
    )
    for as_of, expected in (
        (None, ["Oslo"]), (_year(2010), []), (_year(2015), ["Paris"]), (_year(2016), []), (_year(2020), ["Oslo"]),
        (_year(2999), ["Oslo"]), (_year(3000), ["Bergen"]),
    ):  # fmt: skip
        for name, facts in await _found(provider, scope, owner, as_of):
            promise(
                [fact.value for fact in facts] == expected,
                f"{name} returns the last fact that holds at the moment: a fact hides nothing before and after its times",
            )
    for call in (partial(provider.load, CITY), provider.load_all):
        text = "load and load_all raise ValueError for a moment without a time zone"
        await _refused(text, partial(call, USER, scope, owner=owner, as_of=_ZONELESS))


async def recording(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    """The history at a moment has the versions that were recorded by then."""
    for value, year in (("Oslo", 2010), ("Rome", 2030), ("Bergen", 2020)):  # the clock went back
        await provider.save(SingleFact(CITY, value, _milliseconds(year)), USER, scope, owner=owner)
        await provider.save(MultipleFacts(TOOLS, [value], _milliseconds(year)), USER, scope, owner=owner)
    text = "history(at=) returns the versions recorded by the moment, in the order of saving even if clocks go back"
    for year, versions, values, tools in (
        (2009, [], [], []),
        (2010, [1], [("Oslo",)], [("Oslo",)]),
        (2019, [1], [("Oslo",)], [("Oslo",)]),
        (2020, [3, 2, 1], [("Bergen",)], [("Oslo", "Rome", "Bergen")]),
    ):
        for concept, expected in ((CITY, values), (TOOLS, tools)):
            past = await provider.history(concept, USER, scope, owner=owner, at=_year(year))
            promise([fact.version for fact in past] == versions, text)
            found = await provider.load(concept, USER, scope, owner=owner, as_of=_year(year))
            promise(
                values_of(found) == expected,
                "load(as_of=) returns the facts that hold then, even if clocks went back: values from the time they were recorded",
            )

    text = "history raises ValueError for a moment without a time zone"
    await _refused(text, partial(provider.history, CITY, USER, scope, owner=owner, at=_ZONELESS))


async def hiding(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    """Untrusted facts do not hide other facts."""
    text = "an untrusted fact does not hide one that is not: both are returned, the more trusted one first"
    for value, trust, expected in (
        ("Oslo", "untrusted", ["Oslo"]),
        ("Rome", "inferred", ["Rome"]),
        ("Bergen", "untrusted", ["Rome", "Bergen"]),
        ("Paris", "untrusted", ["Rome", "Paris"]),
        ("Kyiv", "", ["Kyiv"]),
    ):
        await provider.save(SingleFact(CITY, value, source=Source(trust=trust)), USER, scope, owner=owner)
        for name, facts in await _found(provider, scope, owner, None):
            promise([fact.value for fact in facts] == expected, f"{name}: {text}")


async def withdrawing(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    """A value is withdrawn."""
    await provider.save(MultipleFacts(TOOLS, ["git", "vim", "ed"], _milliseconds(2020)), USER, scope, owner=owner)
    bare = replace(TOOLS, description="")
    source = Source("run-1", 3, "learn", "inferred")
    taken = Withdrawal(bare, ["vim", "ed"], _milliseconds(2022), id="given", source=source)
    await provider.withdraw(taken, USER, scope, owner=owner)

    async def known(expected: list[tuple[str, ...]], text: str, as_of: datetime | None = None) -> None:
        for _, facts in await _found(provider, scope, owner, as_of):
            promise(values_of(facts) == expected, text)

    await known([("git",)], "a value that was withdrawn is not known any more")
    await known([("git", "vim", "ed")], "a value that was withdrawn was known before", _year(2021))
    past = await provider.history(TOOLS, USER, scope, owner=owner)
    last = past[0]
    promise(
        isinstance(last, Withdrawal) and (last.values, last.version, last.id) == (("vim", "ed"), 2, "given"),
        "a withdrawal is a version in the history, with its values and its id",
    )
    promise(
        (last.timestamp, last.source, last.concept.description) == (taken.timestamp, source, TOOLS.description),
        "a withdrawal keeps its time and its source, and the concept its description",
    )
    promise(past[1].values == ("git", "vim", "ed"), "earlier versions keep the values that were withdrawn")
    for wrong in (["vim"], ["git", _VALUE]):
        try:
            await provider.withdraw(Withdrawal(TOOLS, wrong), USER, scope, owner=owner)
        except ValueNotFoundError as error:
            promise(
                (error.keyword, error.values) == ("tools", 1), "the error of a value that is not known counts values"
            )
            promise(_VALUE not in str(error), "the error of a value that is not known does not contain it")
        else:
            promise(False, "withdraw raises ValueNotFoundError for a value that is not known")
    await known([("git",)], "a withdrawal that is refused withdraws nothing")
    page = Source(trust="untrusted")
    await provider.withdraw(Withdrawal(TOOLS, ["git"], source=page), USER, scope, owner=owner)
    await known([("git",)], "an untrusted withdrawal takes back untrusted values alone")
    await provider.save(MultipleFacts(TOOLS, ["vim"]), USER, scope, owner=owner)
    await known([("git", "vim")], "a value that was withdrawn can be saved again")
    await provider.withdraw(Withdrawal(TOOLS, ["git", "vim"]), USER, scope, owner=owner)
    await known([], "if every value was withdrawn, no value is known")
    await provider.save(SingleFact(CITY, "Oslo"), USER, scope, owner=owner)
    one = Withdrawal(replace(CITY, fact_type=FactType.MULTIPLE), ["Oslo"])
    text = "withdraw raises ValueError for a concept with one value"
    await _refused(text, partial(provider.withdraw, one, USER, scope, owner=owner))
    await carried_over(provider, scope, owner)


async def carried_over(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    """Times and withdrawals are exported and imported without loss."""
    await provider.save(SingleFact(CITY, "Rome", valid_to=_year(3000)), USER, scope, owner=owner)
    before = [await provider.history(concept, USER, scope, owner=owner) for concept in (CITY, TOOLS)]
    records = [record async for record in provider.export(owner=owner)]
    promise(json.loads(json.dumps(records)) == records, "records of an export are plain JSON data")
    await provider.forget(owner=owner, everything=True)
    await provider.import_(records)
    after = [await provider.history(concept, USER, scope, owner=owner) for concept in (CITY, TOOLS)]
    promise(after == before, "export and import_ keep times and withdrawals")


async def forgetting_values(provider: KeepingProvider, scope: Scope, owner: str) -> None:
    """A value is forgotten."""
    other = f"{owner}-other"
    for who in (owner, other):
        await provider.save(MultipleFacts(TOOLS, ["git", _VALUE]), USER, scope, owner=who)
        await provider.save(MultipleFacts(TOOLS, [_VALUE]), USER, scope, owner=who)
        await provider.save(SingleFact(CITY, _VALUE), USER, scope, owner=who)
    await provider.withdraw(Withdrawal(TOOLS, [_VALUE]), USER, scope, owner=owner)
    await provider.save(MultipleFacts(TOOLS, [_VALUE, "vim"]), USER, scope, owner=owner)
    await provider.load(TOOLS, USER, scope, owner=owner)
    before = await provider.history(TOOLS, USER, scope, owner=owner)
    receipt = await provider.forget(concept=TOOLS, value=_VALUE, owner=owner)
    promise(receipt.facts == 4, "the receipt of forget(value=) counts the versions that had the value")
    past: list[FactVersion] = await provider.history(TOOLS, USER, scope, owner=owner)
    promise(
        [fact.values for fact in past] == [(), ("vim",), (), (), ("git",)],
        "forget(value=) removes the value from every version, and adds a withdrawal without values",
    )
    promise(
        all(isinstance(fact, Withdrawal) for fact in past if not fact.values),
        "a version that had no other value than the forgotten one is a withdrawal without values",
    )
    promise([fact.id for fact in past[1:]] == [fact.id for fact in before], "forget(value=) keeps the ids of versions")
    for name, facts in await _found(provider, scope, owner, None):
        promise(values_of(facts) == [(_VALUE,), ("git", "vim")], f"{name} does not return a value that was forgotten")
    for name, facts in await _found(provider, scope, other, None):
        promise(
            values_of(facts) == [(_VALUE,), ("git", _VALUE)],
            f"forget(value=) removes the given value of the given owner, and nothing else: {name}",
        )
    exported = [record async for record in provider.export(owner=owner) if record["keyword"] == "tools"]
    promise(_VALUE not in json.dumps(exported), "export does not return a value that was forgotten")
    again = await provider.forget(concept=TOOLS, value=_VALUE, owner=owner)
    promise(again.facts == 0, "forgetting an unknown value counts no facts")
    promise(
        len(await provider.history(TOOLS, USER, scope, owner=owner)) == 5, "forgetting an unknown value adds no version"
    )
    text = "forget(value=) raises ValueError without a concept, and for a concept with one value"
    for concept in (CITY, None):
        await _refused(text, partial(provider.forget, concept=concept, value=_VALUE, owner=owner))
    promise(
        values_of(await provider.load(CITY, USER, scope, owner=owner)) == [(_VALUE,)],
        "a forget that raises ValueError removes nothing",
    )
    await provider.forget(owner=other, everything=True)


async def _refused(text: str, call: Callable[[], Awaitable[object]]) -> None:
    try:
        await call()
    except ValueError:
        return
    promise(False, text)


CHECKS: tuple[Callable[[KeepingProvider, Scope, str], Awaitable[None]], ...] = (
    parameters,
    validity,
    recording,
    hiding,
    withdrawing,
    forgetting_values,
)
"""The promises of every KeepingProvider about time."""


async def durable_time(provider: _Own, reopen: Callable[[_Own], KeepingProvider], scope: Scope, owner: str) -> None:
    """Times, withdrawals and forgotten values are durable."""
    text = "times, withdrawals and forgotten values are the same when facts are opened again"
    first = reopen(provider)
    await first.save(SingleFact(CITY, "Oslo"), USER, scope, owner=owner)
    await first.save(SingleFact(CITY, "Bergen", valid_from=_year(3000)), USER, scope, owner=owner)
    await first.save(MultipleFacts(TOOLS, ["git", "vim", _VALUE]), USER, scope, owner=owner)
    await reopen(provider).withdraw(Withdrawal(TOOLS, ["git"]), USER, scope, owner=owner)
    await reopen(provider).forget(concept=TOOLS, value=_VALUE, owner=owner)
    again = reopen(provider)
    for name, facts in await _found(again, scope, owner, None):
        promise(values_of(facts) == [("Oslo",), ("vim",)], f"{text}: {name}")
    for name, facts in await _found(first, scope, owner, _year(3001)):
        promise(values_of(facts) == [("Bergen",), ("vim",)], f"a provider sees the changes of another one: {name}")
    await again.forget(owner=owner, everything=True)
