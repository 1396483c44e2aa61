"""Runs that other code goes on with: strategies that were changed since, and values that keep their types."""

from __future__ import annotations

import dataclasses
import enum
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import anyio
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphagent import END, START, Agent, Context, Strategy, each, node, parallel, tool
from graphagent.errors import AnswerError, NodeFailedError, SerializationError, StrategyChangedError
from graphagent.llm import ToolCall
from graphagent.nodes import ask_human
from graphagent.store import MemoryStore, SqliteStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.thorough import examples


@node
async def draft(ctx: Context, text: str) -> str:
    return f"{text}, drafted"


@node
async def polish(ctx: Context, text: str) -> str:
    return f"{text}, polished"


@node
async def count(ctx: Context, text: str) -> int:
    return len(text)


@node
async def words(ctx: Context, text: str) -> list[str]:
    return text.split()


@node
async def join(ctx: Context, parts: object) -> str:
    return repr(parts)


@node
async def send(ctx: Context, approved: bool) -> str:
    return f"sent: {approved}"


@node
async def number(ctx: Context, amount: int) -> str:
    return f"number: {amount}"


ask = ask_human("Send it?", bool).named("ask")


def path(name, *nodes):
    """Give a strategy of nodes one behind the other."""
    way = START
    for each_ in nodes:
        way = way >> each_
    return Strategy(name, way >> END)


def inner(*nodes):
    return path("inner", *nodes)


def fork(*branches):
    return parallel(*branches, name="fork")


MAIL = path("mail", draft, ask, send)
NESTED = path("mail", draft, inner(polish, ask), send)
FORKED = path("mail", draft, fork(inner(polish, ask), count), join)
EACH = path("mail", words, each(inner(ask), name="fork"), join)
LOOKED = Strategy("mail", START >> draft >> ask, ask.when(lambda given: given) >> send >> END, ask.otherwise() >> send)


async def items(store):
    """Give everything that a store has."""
    return [(item.key, item.version, item.value) async for item in store.scan(("runs",))]


async def waiting(strategy):
    """Give a store in which run `r` waits."""
    store = MemoryStore()
    assert (await Agent(strategy, store=store).run("two words", run_id="r")).status == "waiting"
    return store


async def refusal(store, strategy, **options):
    """Give the error with which a run is refused to another strategy, which leaves it untouched."""
    before = await items(store)
    for go_on in (Agent(strategy, store=store).resume, Agent(strategy, store=store).read):
        with pytest.raises(StrategyChangedError, match="since run 'r' began") as caught:
            await go_on("r", **options)
        assert caught.value.run_id == "r"
    assert await items(store) == before
    return caught.value


CHANGES = [
    pytest.param(MAIL, path("mail", ask, send), "- node draft: str -> str", id="a node removed"),
    pytest.param(MAIL, path("mail", draft.named("d"), ask, send), "+ node d: str -> str", id="a node renamed"),
    pytest.param(MAIL, path("mail", draft, polish, ask, send), "+ node polish: str -> str", id="a node added"),
    pytest.param(MAIL, path("letter", draft, ask, send), "- strategy mail: str -> str", id="the strategy renamed"),
    pytest.param(MAIL, LOOKED, "- edge ask -> send", id="an edge changed"),
    pytest.param(LOOKED, MAIL, "+ edge ask -> send", id="an edge removed"),
    pytest.param(
        MAIL, path("mail", draft, ask_human("?", bool).named("ask"), join), "- node send: bool -> str", id="another node"
    ),
    pytest.param(MAIL, path("mail", draft, ask, number.named("send")), "+ node send: int -> str", id="another type"),
    pytest.param(NESTED, path("mail", draft, inner(draft, ask), send), "- node inner/polish", id="a node inside"),
    pytest.param(FORKED, path("mail", draft, fork(inner(polish, ask), count, polish), join), "+ node fork/2/polish: str -> str", id="a branch added"),
    pytest.param(
        FORKED, path("mail", draft, fork(inner(polish, draft.named("more"), ask), count), join),
        "+ node fork/0/inner/more", id="a node within a branch",
    ),
    pytest.param(EACH, path("mail", words, each(inner(ask), name="fork"), join, polish), "+ node polish", id="a node behind"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "difference"), CHANGES)
async def test_a_changed_strategy_is_refused_and_taken_when_asked_for(old, new, difference):
    """The error names what is gone and what is new; the place of the run is still there, so `allow_changed` goes on."""
    store = await waiting(old)
    error = await refusal(store, new)
    assert any(each_.startswith(difference) for each_ in error.differences), error.differences
    assert str(error).endswith("or, since its journal still fits, with allow_changed=True")
    run = await Agent(new, store=store).read("r", allow_changed=True)
    answers = {question.id: True for question in run.questions}
    result = await Agent(new, store=store).resume("r", answers=answers, allow_changed=True)
    assert result.done
    executed = [entry.node for entry in await Agent(new, store=store).history("r") if entry.node]
    assert executed.count(executed[0]) == 1
    again = await Agent(new, store=store).resume("r")
    assert again.output == result.output


async def test_a_run_that_was_taken_goes_on_with_the_new_strategy_alone():
    """From then on it is the new one that is compared, and the old one is refused."""
    store = await waiting(path("mail", draft, ask, ask.named("again"), send))
    new = path("mail", draft, ask, ask.named("again"), send, polish)
    result = await Agent(new, store=store).resume("r", answer=True, allow_changed=True)
    assert result.pending.node == "again"
    error = await refusal(store, path("mail", draft, ask, ask.named("again"), send))
    assert "- node polish: str -> str" in error.differences
    assert (await Agent(new, store=store).resume("r", answer=False)).output == "sent: False, polished"


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        pytest.param(MAIL, path("mail", draft, ask.named("other"), send), "- 'ask', where the run is", id="renamed"),
        pytest.param(MAIL, path("mail", draft), "- 'ask', where the run is", id="removed"),
        pytest.param(
            MAIL, Strategy("mail", START >> count >> number.named("ask") >> END),
            "+ node 'ask' takes int, and a str is there", id="takes another type",
        ),
        pytest.param(NESTED, MAIL, "- 'inner', where the run is", id="the strategy around removed"),
        pytest.param(
            NESTED, path("mail", draft, inner(polish, ask.named("other")), send), "- 'inner/ask', where the run is", id="inside"
        ),
        pytest.param(NESTED, path("mail", draft, draft.named("inner")), "- 'inner', inside of which", id="a node now"),
        pytest.param(
            NESTED, path("mail", draft, parallel(polish, ask, name="inner"), join), "- 'inner', inside", id="a fork now"
        ),
        pytest.param(
            FORKED, path("mail", draft, fork(count), join), "- 'fork/0/inner', where the run is", id="a branch removed"
        ),
        pytest.param(
            FORKED, path("mail", draft, fork(inner(polish, ask)), join), "- 'fork/1', inside of",
            id="a branch that ended removed",
        ),
        pytest.param(
            FORKED, path("mail", draft, fork(inner(polish, ask), polish), join), "- 'fork/1/count', inside of",
            id="a branch that ended replaced",
        ),
        pytest.param(
            FORKED, path("mail", draft, fork(path("other", polish, ask), count), join),
            "- 'fork/0/inner', where the run is", id="a branch renamed",
        ),
        pytest.param(
            FORKED, path("mail", draft, fork(count, inner(polish, ask)), join), "- 'fork/0/inner', where the run is",
            id="branches exchanged",
        ),
        pytest.param(FORKED, path("mail", draft, polish.named("fork")), "- 'fork/", id="a fork that is a node now"),
        pytest.param(EACH, path("mail", words, join.named("fork")), "- 'fork/", id="an each that is a node now"),
        pytest.param(
            path("mail", count, parallel(inner(join, ask), name="fork"), join),
            path("mail", words, each(inner(join, ask), name="fork"), join),
            "+ node 'fork' takes Iterable[object], and an int is there", id="an each now",
        ),
    ],
)  # fmt: skip
async def test_where_the_place_of_the_run_is_gone_it_is_refused_in_any_case(old, new, difference):
    """`allow_changed` takes only what the journal fits: the error names the place, and the run can be resumed with the old code.

    Without it, the error says that it would not help, so that nobody is sent in a circle.
    """
    store = await waiting(old)
    first, error = await refusal(store, new), await refusal(store, new, allow_changed=True)
    assert error.differences[0].startswith(difference), error.differences
    assert first.differences[-1] == error.differences[-1]
    for refused in (first, error):
        assert "so allow_changed=True does not help; resume it with the code that it began with" in str(refused)
    run = await Agent(old, store=store).read("r")
    answers = {question.id: True for question in run.questions}
    assert (await Agent(old, store=store).resume("r", answers=answers)).done


async def test_what_a_person_is_asked_for_may_change():
    """The answer is of the type that is asked for now; one of the old type is refused, and nothing is written."""
    store, new = await waiting(MAIL), path("mail", draft, ask_human("Which?", str).named("ask"), polish)
    before = await items(store)
    with pytest.raises(AnswerError, match="asks for str"):
        await Agent(new, store=store).resume("r", answer=True, allow_changed=True)
    assert await items(store) == before
    assert (await Agent(new, store=store).resume("r", answer="this", allow_changed=True)).output == "this, polished"


async def test_a_run_that_ended_is_read_with_any_strategy():
    """There is nothing to go on with."""
    store = await waiting(MAIL)
    await Agent(MAIL, store=store).resume("r", answer=True)
    assert (await Agent(path("other", polish), store=store).resume("r")).output == "sent: True"


async def test_functions_and_tests_may_change():
    """What a node does, and how a way out decides, is not compared."""

    @node(name="draft")
    async def better(ctx: Context, text: str) -> str:
        return f"{text}, drafted well"

    store = await waiting(LOOKED)
    same = Strategy(
        "mail", START >> better >> ask, ask.when(lambda given: True) >> send >> END, ask.otherwise() >> send
    )
    assert (await Agent(same, store=store).resume("r", answer=False)).output == "sent: False"


@tool(approve=True)
async def remove(name: str) -> str:
    """Remove a file."""
    return f"{name} is gone"


async def test_a_tool_that_was_removed_while_it_was_asked_about_is_not_called():
    """Tools are no part of a strategy: the model is told that there is none, and the run goes on."""
    store = MemoryStore()

    def agent(tools, *replies):
        return Agent(single_run(), model=ScriptedModel(replies), tools=tools, store=store)

    result = await agent([remove], ToolCall("remove", {"name": "a"}), "never").run("x", run_id="r")
    assert result.pending.call.name == "remove"
    last = agent([], "then not")
    assert (await last.resume("r", answer=True)).output == "then not"
    assert "remove" in last.last.memory.to_text()
    assert "is gone" not in last.last.memory.to_text()


# ---- values


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


class Level(enum.IntEnum):
    LOW = 1


class Bits(enum.Flag):
    ONE = 1
    TWO = 2


class Point(NamedTuple):
    x: int
    y: float = 0.5


class Options(TypedDict):
    colour: Colour
    when: datetime


@dataclasses.dataclass(frozen=True)
class Stamp:
    at: datetime
    by: UUID


@dataclasses.dataclass
class Letter:
    title: str
    tags: set[str]
    stamps: tuple[Stamp, ...]
    colour: Colour | None = None
    file: PurePosixPath | None = None


class Item(pydantic.BaseModel):
    price: Decimal
    data: bytes = b"\x00\xff"
    at: datetime | None = None


class Order(pydantic.BaseModel):
    items: list[Item]
    by_name: dict[str, Item] = {}
    letter: Letter | None = None


NOON = datetime(2026, 3, 4, 12, 30, 1, 5, tzinfo=UTC)
STAMP = Stamp(NOON, UUID(int=7))
LETTER = Letter("a", {"x", "y"}, (STAMP, STAMP), Colour.BLUE, PurePosixPath("/c"))
ITEM = Item(price=Decimal("1.10"), at=NOON)
VALUES = [
    (Item, ITEM),
    (Order, Order(items=[ITEM, Item(price=Decimal(0))], by_name={"$": ITEM}, letter=LETTER)),
    (Letter, LETTER),
    (list[Letter | Item], [LETTER, ITEM, LETTER]),
    (Letter | Item | str, ITEM),
    (Letter | Item | str, "plain"),
    (dict[str, list[tuple[Item, Colour]]], {"a": [(ITEM, Colour.RED)], "b": []}),
    (dict[tuple[int, str], Stamp], {(1, "a"): STAMP}),
    (dict[Colour, int], {Colour.RED: 1}),
    (Colour, Colour.RED),
    (Level, Level.LOW),
    (Bits, Bits.ONE | Bits.TWO),
    (Point, Point(1)),
    (Options, {"colour": Colour.RED, "when": NOON}),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (set[date], {date(2026, 1, 2), date(2026, 1, 3)}),
    (frozenset[Colour], frozenset({Colour.RED, Colour.BLUE})),
    (datetime, NOON),
    (datetime, datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1)),
    (datetime, datetime(2026, 10, 25, 2, 30)),  # noqa: DTZ001  without a zone is another value
    (time, time(1, 2, 3, 4)),
    (timedelta, timedelta(-1, 3, 7)),
    (Decimal, Decimal("1E+3")),
    (bytes, bytes(range(256)) * 5),
    (PurePosixPath, PurePosixPath("/a/../b")),
    (UUID, UUID(int=2**127)),
    (Fraction, Fraction(1, 3)),
    (int, 2**70),
    (complex, -0.0 + 2j),
    (Literal["a", 1], 1),
    (Annotated[Item, "an item"], ITEM),
    (list[list[set[tuple[int, ...]]]], [[{(1, 2), (3,)}], []]),
    (int | None, None),
    (str, "half \ud800 a letter"),
    (object, [1, (2, {3}), {"$": b"4"}, {5: Decimal(6)}]),
]


def keeping(kind, value):
    """Give a strategy that makes a value, asks, and hands on what it was; and what it handed on."""
    seen = []

    async def make(ctx, text):
        return value

    make.__annotations__ = {"ctx": Context, "text": str, "return": kind}

    async def look(ctx, given):
        seen.append(given)
        if not going:
            raise ValueError("not yet")
        return given

    look.__annotations__ = {"ctx": Context, "given": kind, "return": kind}
    going = []
    return Strategy("values", START >> node(make) >> node(look) >> END), seen, going


async def crossed(kind, value, store):
    """Give what comes of a value in the journal of a run that failed behind it, for other code of the same types."""
    with pytest.raises(NodeFailedError):
        await Agent(keeping(kind, value)[0], store=store).run("x", run_id="r")
    strategy, seen, going = keeping(kind, None)
    going.append(True)
    result = await Agent(strategy, store=store).resume("r")
    assert alike(result.output, seen[0])
    read = await Agent(keeping(kind, None)[0], store=store).read("r")
    assert alike(read.output, seen[0])
    return seen[0]


def alike(one, other):
    """Tell whether values are the same, types within them too."""
    return one == other and shape_of(one) == shape_of(other)


def shape_of(value):
    if isinstance(value, dict):
        return dict, [(shape_of(key), shape_of(part)) for key, part in value.items()]
    if isinstance(value, set | frozenset):
        return type(value), sorted((shape_of(part) for part in value), key=repr)
    if isinstance(value, list | tuple):
        return type(value), [shape_of(part) for part in value]
    if isinstance(value, pydantic.BaseModel) or dataclasses.is_dataclass(value):
        return type(value), [(name, shape_of(part)) for name, part in vars(value).items()]
    if isinstance(value, datetime):
        return type(value), str(value.tzinfo), value.fold
    return type(value), repr(value)


@pytest.mark.parametrize(
    ("kind", "value"), VALUES, ids=lambda value: str(value)[:30] if isinstance(value, type) else ""
)
async def test_values_cross_a_resume_with_their_types(kind, value, tmp_path):
    """What a node gave is what the next one gets in another process: the same value, of the same types down to its parts."""
    async with SqliteStore(tmp_path / "runs.db") as store:
        again = await crossed(kind, value, store)
    assert alike(again, value)
    assert again is not value or isinstance(value, enum.Enum) or value is None or type(value) in (int, str)


scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | st.decimals(allow_nan=False)
    | st.datetimes() | st.datetimes(timezones=st.timezones()) | st.dates() | st.times() | st.timedeltas() | st.complex_numbers(allow_nan=False)
)  # fmt: skip
hashable = st.recursive(scalars, lambda part: st.tuples(part, part) | st.frozensets(part, max_size=3), max_leaves=4)
plain = st.recursive(
    hashable,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(hashable, part, max_size=3) | st.tuples(part, part),
    max_leaves=8,
) | st.sets(hashable, max_size=3)


@settings(
    max_examples=examples(60), deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(plain)
def test_plain_values_need_no_declared_type(value):
    """Whatever is nested in whatever."""
    assert alike(anyio.run(crossed, object, value, MemoryStore()), value)


def version(kind, fields, **defaults):
    """Give a class `Letter` as it is in one version of a program."""
    if kind == "model":
        return pydantic.create_model(
            "Letter", **{name: (part, defaults.get(name, ...)) for name, part in fields.items()}
        )
    made = [
        (name, part, dataclasses.field(default=defaults[name])) if name in defaults else (name, part)
        for name, part in fields.items()
    ]
    return dataclasses.make_dataclass("Letter", made)


@pytest.mark.parametrize("kind", ["model", "dataclass"])
@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"title": str}, "was kept with other fields"),
        ({"title": str, "size": int, "by": str}, "without 'by', which has no default"),
        ({"name": str, "size": int}, "was kept with"),
    ],
)
async def test_a_class_whose_fields_changed_is_refused_by_name(kind, allowed, fields, said):
    """The error names the node and the type, and the run stays as it was, to be resumed by the old code."""
    old, new = version(kind, {"title": str, "size": int}), version(kind, fields)
    store, value = MemoryStore(), old(title="a", size=1)
    with pytest.raises(NodeFailedError):
        await Agent(keeping(old, value)[0], store=store).run("x", run_id="r")
    error = await refusal(store, keeping(new, None)[0], allow_changed=allowed)
    assert "node 'make'" in str(error)
    assert "Letter" in str(error)
    assert said in str(error)
    strategy, _, going = keeping(old, None)
    going.append(True)
    assert (await Agent(strategy, store=store).resume("r")).output == value


@pytest.mark.parametrize("flag", [False, True])
async def test_a_member_that_an_enum_lost_is_told(flag):
    """The error names the node and the enum, and lists the members that it has now, without the one that was kept."""
    base = enum.Flag if flag else enum.Enum
    old, new = base("Colour", {"SECRET": 1, "BLUE": 2}), base("Colour", {"BLUE": 2})
    store = MemoryStore()
    with pytest.raises(NodeFailedError):
        await Agent(keeping(old, old.SECRET)[0], store=store).run("x", run_id="r")
    error = await refusal(store, keeping(new, None)[0])
    assert "node 'make': the stored value is a member of Colour that it does not have; there are BLUE\n" in str(error)
    assert "SECRET" not in str(error)


@pytest.mark.parametrize("kind", ["model", "dataclass"])
async def test_a_field_that_was_added_with_a_default_has_it(kind):
    """Such a change needs no consent."""
    old = version(kind, {"title": str})
    new = version(kind, {"title": str, "size": int}, size=7)
    store = MemoryStore()
    with pytest.raises(NodeFailedError):
        await Agent(keeping(old, old(title="a"))[0], store=store).run("x", run_id="r")
    strategy, _, going = keeping(new, None)
    going.append(True)
    assert (await Agent(strategy, store=store).resume("r")).output == new(title="a", size=7)


async def test_a_value_that_cannot_be_kept_fails_its_node_by_name():
    """It is not written as something else."""
    strategy, _, _ = keeping(Any, LETTER)
    with pytest.raises(NodeFailedError, match=r"node 'make' failed with SerializationError: .*type Letter") as caught:
        await Agent(strategy, store=MemoryStore()).run("x")
    assert isinstance(caught.value.__cause__, SerializationError)
