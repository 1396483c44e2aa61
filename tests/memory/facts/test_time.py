"""Facts in time: validity, `as_of`, `history(at=)`, withdrawing, and what hides what, over every provider."""

from __future__ import annotations

import json
import pickle
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, timezone
from functools import partial
from itertools import count
from pathlib import Path
from zoneinfo import ZoneInfo

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphagent import END, START, Agent, Context, Strategy, _clock, node
from graphagent.errors import FeatureError, NodeFailedError, UnsupportedError, ValueNotFoundError
from graphagent.memory import (
    TRUST_LEVELS,
    AgentMemory,
    Concept,
    EncryptedMemoryProvider,
    FactType,
    FileMemoryProvider,
    MultipleFacts,
    NoMemory,
    Scope,
    SingleFact,
    Source,
    StoreMemoryProvider,
    Subject,
    Withdrawal,
)
from graphagent.memory.facts._json import fact_record, read_fact
from graphagent.store import MemoryStore, Receipt
from graphagent.testing import ScriptedModel
from tests.thorough import examples

USER, APP = Subject("user"), Scope.product("app")
CITY = Concept("city", "where the user lives")
DIET = Concept("diet", "what the user eats", FactType.MULTIPLE)
BEGIN = 1_000
"""The second from which times are counted."""


NAIVE = datetime.fromisoformat("2026-05-01")


def at(second: float) -> datetime:
    return datetime.fromtimestamp(BEGIN + second, UTC)


def makers(folder: Path):
    store = MemoryStore()
    return {
        "file": lambda: FileMemoryProvider(folder / "files"),
        "store": lambda: StoreMemoryProvider(store),
        "sealed": lambda: EncryptedMemoryProvider(folder / "sealed", key=bytes(32)),
    }


@pytest.fixture(params=["file", "store", "sealed"])
def provider(request, tmp_path):
    return makers(tmp_path)[request.param]()


@pytest.fixture
def clock():
    """The second that the clock says, which a test may change."""
    said = [100.0]
    token = _clock.clock.set(lambda: int((BEGIN + said[0]) * 1000))
    yield said
    _clock.clock.reset(token)


# The model: what a history says, by hand. It knows nothing of the code that is tested.


@dataclass
class Version:
    kind: str
    value: str
    recorded: int
    trust: str = ""
    begins: float | None = None
    ends: float | None = None


def recorded(history: list[Version], now: float) -> list[float]:
    """When each version was recorded: no later than those after it, and not in the future."""
    return [min(now, *(later.recorded for later in history[place:])) for place in range(len(history))]


def has_ended(version: Version, history: list[Version], moment: float) -> bool:
    """Whether a later version that may say so says that the only value has ended after it began."""
    place = next(place for place, each in enumerate(history) if each is version)
    return any(
        (each.kind, each.value) == ("single", version.value)
        and each.ends is not None and each.ends <= moment
        and (version.begins is None or version.begins < each.ends)
        and (each.trust != "untrusted" or version.trust == "untrusted")
        for each in history[place + 1 :]
    )  # fmt: skip


def known(history: list[Version], moment: float, now: float) -> list[tuple[str, ...]]:
    """What is known of each moment: values, and then what is untrusted beside what is not."""
    said: list[tuple[str, str]] = []  # value and trust, the same value perhaps several times
    beside: list[tuple[str, str]] = []
    single: list[Version | None] = [None, None]  # which version with one value said them
    for version, time in zip(history, recorded(history, now), strict=True):
        begins = time if version.begins is None else version.begins
        if moment < begins or (version.ends is not None and moment >= version.ends):
            continue
        claim = (version.value, version.trust)
        if version.kind == "erased":
            said, beside = ([], []) if version.value == "single" else (said + beside, [])
            single = [None, None]
            continue
        if version.kind == "single":
            if version.trust == "untrusted" and any(trust != "untrusted" for _, trust in said):
                beside, single[1] = [claim], version
            else:
                said, beside, single = [claim], [], [version, None]
            continue
        said, beside, single = said + beside, [], [None, None]
        if version.kind == "multiple":
            said.append(claim)
        else:
            said = [
                (value, trust)
                for value, trust in said
                if value != version.value or (version.trust == "untrusted" and trust != "untrusted")
            ]
    left = [
        each
        for each, version in zip((said, beside), single, strict=True)
        if each and not (version is not None and has_ended(version, history, moment))
    ]
    return [tuple(dict.fromkeys(value for value, _ in each)) for each in left]


seconds = st.integers(0, 8)
halves = st.none() | st.integers(-1, 18).map(lambda half: half / 2)


@st.composite
def versions(draw, kinds):
    kind, value = draw(st.sampled_from(kinds)), draw(st.sampled_from("abc"))
    begins, ends = (draw(halves), draw(halves)) if kind == "single" else (None, None)
    if begins is not None and ends is not None and begins >= ends:
        ends = begins + 0.5
    return Version(kind, value, draw(seconds), draw(st.sampled_from(TRUST_LEVELS)), begins, ends)


def histories(*kinds):
    return st.lists(versions(kinds), min_size=1, max_size=6)


FOLDERS = count()


async def save(provider, version: Version, concept: Concept, owner: str) -> bool:
    """Record a version; False if it withdraws what is not there."""
    options = {"timestamp": (BEGIN + version.recorded) * 1000, "source": Source(trust=version.trust)}
    if version.kind == "single":
        times = {"valid_from": version.begins, "valid_to": version.ends}
        moments = {name: at(second) for name, second in times.items() if second is not None}
        one = replace(concept, fact_type=FactType.SINGLE)
        await provider.save(SingleFact(one, version.value, **options, **moments), USER, APP, owner=owner)
    elif version.kind == "multiple":
        await provider.save(MultipleFacts(concept, [version.value], **options), USER, APP, owner=owner)
    else:
        try:
            await provider.withdraw(Withdrawal(concept, [version.value], **options), USER, APP, owner=owner)
        except (ValueError, LookupError):
            return False
    return True


@given(
    drawn=histories("single") | histories("multiple", "withdrawn") | histories("single", "multiple", "withdrawn"),
    now=st.integers(0, 9),
    forgotten=st.none() | st.sampled_from("abc"),
)
@settings(max_examples=examples(60))
def test_what_is_known_at_any_moment_is_what_replaying_the_history_says(drawn, now, forgotten, tmp_path_factory):
    """At each moment, in each provider, fresh or warm, after a value was forgotten too, `load`, `load_all` and `history` say what holds."""
    base = tmp_path_factory.getbasetemp() / "replayed"
    owner, concept = f"owner-{next(FOLDERS)}", replace(DIET, keyword="k")
    moments = sorted({0.0, 9.0, now} | {second + step for second in range(-1, 10) for step in (0, 0.5)})

    async def check(fresh, warm, history: list[Version]) -> None:
        for provider in (fresh, warm, warm):
            for moment in moments:
                found = [
                    await provider.load(concept, USER, APP, owner=owner, as_of=at(moment)),
                    await provider.load_all(USER, APP, owner=owner, as_of=at(moment)),
                    await provider.load_by_description("eats", USER, APP, owner=owner, as_of=at(moment)),
                ]
                expected = known(history, moment, now)
                for facts in found:
                    assert [fact.values for fact in facts] == expected, moment
                past = await provider.history(concept, USER, APP, owner=owner, at=at(moment))
                by_then = sum(time <= moment for time in recorded(history, now))
                assert [each.version for each in past] == list(range(by_then, 0, -1))
            facts = await provider.load(concept, USER, APP, owner=owner)
            assert [fact.values for fact in facts] == known(history, now, now)
            assert facts == await provider.load_all(USER, APP, owner=owner)

    async def replay(make) -> None:
        async with AsyncExitStack() as stack:
            warm = await stack.enter_async_context(make())
            other = await stack.enter_async_context(make())
            history: list[Version] = []
            for version in drawn:
                there = {value for values in known(history, now, now) for value in values}
                if await save(warm, version, concept, owner):
                    assert version.kind != "withdrawn" or version.value in there
                    history.append(version)
                else:
                    assert version.value not in there or history[-1].kind == "single"
                for provider in (warm, other):  # so that they have in memory what is then added to
                    await provider.load(concept, USER, APP, owner=owner)
            await check(await stack.enter_async_context(make()), other, history)
            if forgotten and any(each.value == forgotten for each in history) and history[-1].kind != "single":
                receipt = await warm.forget(concept=concept, value=forgotten, owner=owner)
                assert receipt.facts == sum(each.value == forgotten for each in history)
                history = [
                    Version("erased", each.kind, each.recorded) if each.value == forgotten else each for each in history
                ]
                history.append(Version("erased", "multiple", now))
                await check(await stack.enter_async_context(make()), other, history)
                assert not any([forgotten in record["values"] async for record in warm.export(owner=owner)])
            exported = [record async for record in warm.export(owner=owner)]
            again = StoreMemoryProvider(MemoryStore())
            assert await again.import_(exported) == len(history)
            assert [record async for record in again.export(owner=owner)] == exported

    async def main() -> None:
        for make in makers(base).values():
            await replay(make)

    token = _clock.clock.set(lambda: (BEGIN + now) * 1000)
    try:
        anyio.run(main)
    finally:
        _clock.clock.reset(token)


def test_times_keep_their_offset_and_need_a_zone():
    """A time is the same moment with the same offset when it is read again, also within the hour that a clock repeats; else it is refused."""
    oslo = ZoneInfo("Europe/Oslo")
    twice = datetime(2026, 10, 25, 2, 30, tzinfo=oslo)
    for moment in (twice, twice.replace(fold=1), datetime.max.replace(tzinfo=timezone(timedelta(hours=-14)))):
        fact = SingleFact(
            CITY, "Oslo", 1, id="i", version=1, valid_from=datetime.min.replace(tzinfo=UTC), valid_to=moment
        )
        again = read_fact(json.loads(json.dumps(fact_record(fact))))
        assert isinstance(again, SingleFact)
        assert again == fact == pickle.loads(pickle.dumps(fact))
        assert again.valid_to is not None
        assert again.valid_to.isoformat() == moment.isoformat()
    for name in ("valid_from", "valid_to"):
        with pytest.raises(ValueError, match=rf"{name}= has no time zone; write datetime\(2026, 5, 1, tzinfo=UTC\)"):
            SingleFact(CITY, "Oslo", **{name: NAIVE})
        for wrong in ("2026-05-01", date(2026, 5, 1), 5):
            with pytest.raises(TypeError, match=f"{name}= is a datetime with a time zone"):
                SingleFact(CITY, "Oslo", **{name: wrong})
    for begins, ends in ((at(1), at(1)), (at(2), at(1))):
        with pytest.raises(ValueError, match="valid_to= of a fact about 'city' must be after valid_from="):
            SingleFact(CITY, "Oslo", valid_from=begins, valid_to=ends)
    for broken in ({"valid_to": "2026-05-01"}, {"valid_from": 5}, {"withdrawn": False}, {"else": 1}):
        with pytest.raises(ValueError, match=r"a time|a withdrawal|exactly the keys"):
            read_fact({**fact_record(fact), **broken})


async def test_moments_need_a_zone(provider):
    """`as_of` and `at` say which zone is missing, also where nothing is known."""
    for each in (provider, NoMemory()):
        for ask in (each.load, each.load_by_description):
            with pytest.raises(ValueError, match="as_of= has no time zone"):
                await ask(CITY if ask == each.load else "x", USER, APP, as_of=NAIVE)
        with pytest.raises(ValueError, match="at= has no time zone"):
            await each.history(CITY, USER, APP, at=NAIVE)
        with pytest.raises(TypeError, match="as_of= is a datetime"):
            await each.load_all(USER, APP, as_of="2026-05-01")


async def test_a_newer_value_closes_the_older_one_where_it_begins(provider, clock):
    """A fact in the future, or for a while, hides nothing before and after."""
    await provider.save(SingleFact(CITY, "Oslo"), USER, APP)
    clock[0] = 200
    await provider.save(SingleFact(CITY, "Bergen", valid_from=at(300)), USER, APP)
    await provider.save(SingleFact(CITY, "Paris", valid_from=at(220), valid_to=at(240)), USER, APP)
    said = []
    for clock[0] in (200, 219, 220, 239, 240, 299, 300):
        [fact] = await provider.load(CITY, USER, APP)
        [same] = await provider.load_all(USER, APP)
        said.append((clock[0], fact.value, same == fact))
    assert said == [
        (200, "Oslo", True), (219, "Oslo", True), (220, "Paris", True), (239, "Paris", True), (240, "Oslo", True),
        (299, "Oslo", True), (300, "Bergen", True),
    ]  # fmt: skip
    assert await provider.load(CITY, USER, APP, as_of=at(99)) == []
    assert [fact.value for fact in await provider.history(CITY, USER, APP, at=at(100))] == ["Oslo"]


async def test_what_is_untrusted_hides_nothing_that_is_not(provider):
    """A page beside what the user said is shown after it, until the user says something newer."""

    def said(value, trust):
        return SingleFact(CITY, value, source=Source(trust=trust))

    for value, trust in (("Oslo", "inferred"), ("Rome", "untrusted"), ("Paris", "untrusted")):
        await provider.save(said(value, trust), USER, APP)
    for found in (await provider.load(CITY, USER, APP), await provider.load_all(USER, APP)):
        assert [(fact.value, fact.source.trust) for fact in found] == [("Oslo", "inferred"), ("Paris", "untrusted")]
    await provider.save(said("Bergen", "inferred"), USER, APP)
    assert [fact.value for fact in await provider.load(CITY, USER, APP)] == ["Bergen"]


async def test_a_withdrawn_value_is_in_the_history_alone(provider):
    """A withdrawal is a version of its own; what is not there is refused by number, and untrusted ones take back nothing that is not."""
    await provider.save(MultipleFacts(DIET, ["meat", "rice"], source=Source(trust="inferred")), USER, APP)
    await provider.save(MultipleFacts(DIET, ["fish"], source=Source(trust="untrusted")), USER, APP)
    await provider.withdraw(Withdrawal(Concept("diet", fact_type=FactType.MULTIPLE), ["meat"]), USER, APP)
    [known] = await provider.load(DIET, USER, APP)
    assert (known.values, known.version, known.source.trust) == (("rice", "fish"), 3, "untrusted")
    assert known.concept.description == "what the user eats"
    last, *_ = await provider.history(DIET, USER, APP)
    assert (type(last), last.value, str(last), repr(last)) == (
        Withdrawal,
        "meat",
        "meat",
        "Withdrawal('diet', version=3)",
    )
    for wrong in (["meat"], ["rice", "MEAT-SECRET"]):
        with pytest.raises(
            ValueNotFoundError, match="'diet' does not exist: 2 values of it are known, and not this one"
        ) as raised:
            await provider.withdraw(Withdrawal(DIET, wrong), USER, APP)
        assert (raised.value.keyword, raised.value.values) == ("diet", 2)
        assert "SECRET" not in str(raised.value)
    page = Source(trust="untrusted")
    await provider.withdraw(Withdrawal(DIET, ["rice", "fish"], source=page), USER, APP)
    [known] = await provider.load(DIET, USER, APP)
    assert (known.values, known.source.trust) == (("rice",), "inferred")
    await provider.save(SingleFact(CITY, "Oslo"), USER, APP)
    with pytest.raises(ValueError, match="'city' has one value"):
        await provider.withdraw(Withdrawal(replace(CITY, fact_type=FactType.MULTIPLE), ["Oslo"]), USER, APP)
    with pytest.raises(ValueError, match=r"'city' is FactType.SINGLE.*valid_to="):
        Withdrawal(CITY, ["Oslo"])
    with pytest.raises(ValueError, match="at least one value"):
        Withdrawal(DIET, [])


async def test_a_forgotten_value_leaves_the_disk(tmp_path, subtests):
    """`forget(value=)` erases the value from every version, in other open providers too, and leaves entries that say so much."""
    for name, make in makers(tmp_path).items():
        with subtests.test(name):
            provider, other = make(), make()
            for values in (["MEATBALLS", "rice"], ["MEATBALLS"], ["fish"]):
                await provider.save(MultipleFacts(DIET, values), USER, APP)
            await provider.withdraw(Withdrawal(DIET, ["MEATBALLS"]), USER, APP)
            await provider.save(SingleFact(CITY, "Oslo"), USER, APP)
            assert len((await other.load(DIET, USER, APP))[0].values) == 2
            for wrong in ({"value": "x"}, {"value": "x", "subject": USER}, {"value": "x", "everything": True}):
                with pytest.raises(ValueError, match="value= needs the concept"):
                    await provider.forget(**wrong)
            with pytest.raises(ValueError, match="'city' has one value"):
                await provider.forget(concept=CITY, value="Oslo")
            assert await provider.forget(concept=DIET, value="MEAT") == Receipt()
            before = [each.id for each in await provider.history(DIET, USER, APP)]
            receipt = await provider.forget(concept=DIET, value="MEATBALLS")
            assert receipt.facts == 3
            assert receipt.bytes > 0
            assert [fact.values for fact in await other.load(DIET, USER, APP)] == [("rice", "fish")]
            past = await other.history(DIET, USER, APP)
            assert [each.values for each in past] == [(), (), ("fish",), (), ("rice",)]
            assert [each.id for each in past[1:]] == before
            assert await make().verify() == 6
            files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
            assert not any(b"MEATBALLS" in data for data in files)
            for each in (provider, other):
                await each.__aexit__(None, None, None)


async def test_a_value_that_is_forgotten_while_it_is_withdrawn_does_not_come_back():
    """What another provider, or another task, does before the withdrawal is written is noticed."""
    waiting = []

    class Slow(MemoryStore):
        async def commit(self, *changes):
            while waiting:
                await waiting.pop()()
            await super().commit(*changes)

    store = Slow()
    provider, other = StoreMemoryProvider(store), StoreMemoryProvider(store)
    for by in (provider, other):
        await provider.save(MultipleFacts(DIET, ["meat", "rice"]), USER, APP)
        waiting.append(partial(by.forget, concept=DIET, value="meat"))
        with pytest.raises(ValueNotFoundError):
            await provider.withdraw(Withdrawal(DIET, ["meat"]), USER, APP)
        assert not any("meat" in version.values for version in await other.history(DIET, USER, APP))
    waiting.append(partial(other.save, MultipleFacts(DIET, ["fish"]), USER, APP))
    await provider.withdraw(Withdrawal(DIET, ["rice"]), USER, APP)
    assert [fact.values for fact in await other.load(DIET, USER, APP)] == [("fish",)]


def agent_of(step, provider):
    agent = Agent(Strategy("talk", START >> step >> END), model=ScriptedModel([]), store=MemoryStore())
    agent.install(AgentMemory, provider=provider)
    return agent


async def test_an_agent_withdraws_a_value_once(provider):
    """A withdrawal in a node has the run as its source, and is not repeated when the node is executed again."""
    tries = []

    @node(needs=[AgentMemory])
    async def vegetarian(ctx: Context, text: str) -> str:
        memory = ctx.feature(AgentMemory)
        await memory.save(MultipleFacts(DIET, ["meat", "rice"]), USER)
        await memory.withdraw(Withdrawal(DIET, ["meat"]), USER)
        tries.append(text)
        if len(tries) == 1:
            raise ConnectionError
        assert [fact.values for fact in await memory.load(DIET, [USER])] == [("rice",)]
        before = await memory.load(DIET, [USER], as_of=datetime(2001, 1, 1, tzinfo=UTC))
        assert before == await memory.history(DIET, USER, at=datetime(2001, 1, 1, tzinfo=UTC)) == []
        await memory.forget(concept=DIET, value="meat")
        return text

    agent = agent_of(vegetarian, provider)
    with pytest.raises(NodeFailedError):
        await agent.run("No meat any more.", run_id="r")
    assert (await agent.resume("r")).output == "No meat any more."
    past = await provider.history(DIET, USER, Scope.agent("talk"))
    assert [(type(each), each.values) for each in past] == [
        (Withdrawal, ()), (Withdrawal, ()), (MultipleFacts, ("rice",)),
    ]  # fmt: skip
    assert past[1].source == Source("r", 1, "vegetarian", "trusted")


async def test_facts_that_contradict_each_other_are_shown_together(provider):
    """A model is shown both, again when one of them changes, and not again when nothing does."""
    here = Scope.agent("talk")
    shown = []

    async def say(value: str, trust: str) -> None:
        await provider.save(SingleFact(CITY, value, source=Source(trust=trust)), USER, here)

    @node(needs=[AgentMemory])
    async def looking(ctx: Context, text: str) -> str:
        memory = ctx.feature(AgentMemory)
        await say("Oslo", "inferred")
        for value in ("", "", "Rome", "", "Paris", ""):
            if value:
                await say(value, "untrusted")
            steps = len(ctx.memory.steps)
            await memory.load_all_facts_to_agent([USER])
            shown.append([known.fact.values[0] for step in ctx.memory.steps[steps:] for known in step.facts])
        assert [fact.value for fact in await memory.load(CITY, [USER])] == ["Oslo", "Paris"]
        assert [fact.value for fact in await memory.load_all([USER])] == ["Oslo", "Paris"]
        return text

    await agent_of(looking, provider).run("Where?")
    assert shown == [["Oslo"], [], ["Oslo", "Rome"], [], ["Oslo", "Paris"], []]


class Elsewhere:
    """A provider of another house, which knows no time."""

    def __init__(self):
        self.facts = {}

    async def save(self, fact, subject, scope):
        self.facts[fact.concept] = fact

    async def load(self, concept, subject, scope):
        return [self.facts[concept]] if concept in self.facts else []

    async def load_all(self, subject, scope):
        return list(self.facts.values())

    async def load_by_description(self, description, subject, scope):
        return []


async def test_a_provider_without_time_works_where_none_is_asked_for():
    """It is asked nothing about moments; what it cannot do is refused, and the owner's refusal says what it lacks."""

    @node(needs=[AgentMemory])
    async def asking(ctx: Context, text: str) -> str:
        memory = ctx.feature(AgentMemory)
        await memory.save(SingleFact(CITY, "Oslo"), USER)
        assert [fact.value for fact in await memory.load(CITY, [USER])] == ["Oslo"]
        for call in (
            lambda: memory.load(CITY, [USER], as_of=at(1)),
            lambda: memory.load_all([USER], as_of=at(1)),
            lambda: memory.withdraw(Withdrawal(DIET, ["meat"]), USER),
        ):
            with pytest.raises(UnsupportedError, match="Elsewhere has no"):
                await call()
        return text

    agent = agent_of(asking, Elsewhere())
    assert (await agent.run("Where?")).output == "Where?"
    with pytest.raises(FeatureError, match="which also has withdraw, history, forget, export, import_, verify"):
        await agent.run("Where?", owner="ada")
