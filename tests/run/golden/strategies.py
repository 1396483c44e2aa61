"""The strategies of the golden journals, and how each of their runs went in the process that wrote the journal."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import anyio
import pydantic
from anyio.lowlevel import checkpoint

from graphagent import END, START, Agent, Context, Strategy, each, node, parallel, race, tap, tool
from graphagent.errors import ModelError, NodeFailedError, RunError, VetoError
from graphagent.llm import Approve, Deny, Image, Message, ModelRequest, ToolCall, ToolCalls, ToolResults
from graphagent.memory import (
    ActionStep,
    AgentMemory,
    Concept,
    FactType,
    MessageStep,
    MultipleFacts,
    NoteMemory,
    Notes,
    Scope,
    SingleFact,
    Source,
    StoreMemoryProvider,
    Subject,
    WholeHistory,
)
from graphagent.nodes import (
    ask_human,
    auto_detect_facts,
    compress_history,
    execute_tools,
    llm_request,
    load_all_facts,
    recall_notes,
    update_prompt,
)
from graphagent.run import Question
from graphagent.store import MemoryStore
from tests.run.golden.world import Broken, Oracle, World, digest, priced

RUN = "r"
PIXEL = bytes.fromhex("89504e470d0a1a0a") + b"a picture of moss"
BIG_PIXEL = bytes.fromhex("89504e470d0a1a0a") + bytes(range(256)) * 70


def answer_to(question: Any) -> Any:
    """Return the answer to any question of these runs."""
    if question.kind == "approval":
        return {
            "refuse": Deny("not now"),
            "change": Approve({"of": "what is allowed"}),
            "text": "no, thanks",
        }.get(question.call.arguments["of"], True)
    if question.kind == "in_flight":
        return True
    if question.kind == "result":
        return {"parcel": question.call.arguments["of"], "weights": [1, 2.5]}
    answers = {
        "Publish?": True,
        "Which page?": Page("moss", 7),
        "Which form?": Form(name="Ada", tags=["a", "b"]),
        "How large?": "large",
        "When?": date(2025, 2, 3),
        "Which amounts?": [Decimal("1.10"), Decimal("2.20")],
    }
    return answers.get(question.question, f"answer to {question.question}")


async def play_all(agent: Agent[Any, Any], run_id: str = RUN) -> None:
    """Resume a run to its end: all questions are answered, and where a node fails in the first process, it is resumed once."""
    for _ in range(30):
        run = await agent.read(run_id)
        if run.done:
            return
        try:
            await agent.resume(run_id, answers={each.id: answer_to(each) for each in run.questions})
        except RunError:
            return


async def play_to_the_end(agent: Agent[Any, Any], world: World, task: Any) -> None:
    """Begin the run and answer its questions."""
    try:
        await agent.run(task, run_id=RUN)
    except RunError:
        return
    await play_all(agent)


Play = Callable[[Callable[[], Agent[Any, Any]], World], Awaitable[None]]


@dataclass(frozen=True)
class Scenario:
    """A strategy, and how its run went."""

    name: str
    make: Callable[[World, Any], Agent[Any, Any]]
    """Makes the agent over a world and a store."""
    task: Any = "moss"
    play: Play | None = None
    """What the first process did; by default it ran the agent, and answered all questions."""
    prepare: Callable[[World], Awaitable[None]] | None = None
    """What is there before: facts and notes."""
    afterwards: Callable[[World], Awaitable[None]] | None = None
    """What happened to that after the run was stored, before it is read again."""
    allow_changed: bool = False
    exact: bool = True
    """Whether a run that is resumed after any entry does what the run of the journal did after it."""
    mutates: bool = False
    """Whether nodes change values in place that steps of the transcript hold: then the run itself shows them changed."""
    reads_back: bool = True
    """Whether a run that ended is read as that. One that learned after its end, in the process that ended it, is not today: what
    it learned is written after the answer."""
    reruns_everywhere: bool = True
    """Whether it can be executed again up to any entry. Where sub-agents at once wait for people, questions are lost today."""
    runs: tuple[str, ...] = (RUN,)
    """The runs that are stored besides those of sub-agents."""


SCENARIOS: list[Scenario] = []


def scenario(**options: Any) -> Callable[[Callable[[World, Any], Agent[Any, Any]]], Any]:
    """Register the agent that a function makes."""

    def register(make: Callable[[World, Any], Agent[Any, Any]]) -> Callable[[World, Any], Agent[Any, Any]]:
        SCENARIOS.append(Scenario(make.__name__, make, **options))
        return make

    return register


def line(name: str, *elements: Any) -> Strategy[Any, Any]:
    """Return a strategy of elements in a row."""
    path = START
    for element in elements:
        path = path >> element
    return Strategy[Any, Any](name, path >> END)


# ---- values


@dataclass
class Basket:
    """A value that nodes and taps change in place."""

    owner: str
    items: list[str] = field(default_factory=list)
    weights: dict[str, float] = field(default_factory=dict)


@dataclass
class Page:
    """A typed answer."""

    of: str
    number: int


class Form(pydantic.BaseModel):
    """A typed answer of pydantic."""

    name: str
    tags: list[str] = []


class Size(enum.Enum):
    """A value that is no JSON."""

    SMALL = "small"
    LARGE = "large"


@dataclass(frozen=True)
class Many:
    """Everything that a journal keeps."""

    size: Size
    when: datetime
    day: date
    took: timedelta
    amount: Decimal
    name: UUID
    raw: bytes
    pair: tuple[int, str]
    words: frozenset[str]
    nested: dict[str, list[int | None]]
    infinite: float
    huge: int


@scenario(task=Basket("Ada", ["moss"]), mutates=True)
def plain(world: World, store: Any) -> Agent[Any, Any]:
    """Nodes, conditions, changes on edges, taps that mutate what they are given, a loop, and values of all types."""

    @node
    async def fill(ctx: Context, basket: Basket) -> Basket:
        basket.items.append(f"fern {len(basket.items)}")
        return basket

    @tap
    async def weigh(ctx: Context, basket: Basket) -> None:
        basket.weights[basket.items[-1]] = len(basket.items) / 2

    @tap
    async def look(ctx: Context, basket: Basket) -> None:
        await ctx.once("looked", lambda: seen(len(basket.items)))

    async def seen(count: int) -> str:
        return world.do("seen", count)

    @node
    async def same(ctx: Context, basket: Basket) -> Basket:
        return basket

    @node
    async def count(ctx: Context, items: list[str]) -> int:
        return len(items)

    @tap
    async def nothing(ctx: Context, number: int) -> None:
        pass

    @node
    async def many(ctx: Context, number: int) -> Many:
        return Many(
            Size.LARGE, datetime(2025, 1, 2, 3, 4, 5, 6, tzinfo=UTC), date(2025, 1, 2), timedelta(seconds=1.5),
            Decimal("0.10"), UUID(int=7), b"\x00\xff", (number, "x"), frozenset({"b", "a"}), {"n": [1, None]},
            float("inf"), 2**70,
        )  # fmt: skip

    @node
    async def text(ctx: Context, value: Many) -> tuple[str, bool | None]:
        return f"{value.amount} {value.pair}", None

    @tap
    async def extend(ctx: Context, items: list[str]) -> None:
        items.append("lichen")

    return Agent(
        Strategy[Any, Any](
            "plain",
            START >> fill >> weigh >> look >> same,
            same.when(lambda basket: len(basket.items) < 3) >> fill,
            same.otherwise().map(lambda basket: list(basket.items))
            >> extend
            >> count
            >> nothing
            >> many
            >> text
            >> END,
        ),
        store=store,
    )


@scenario()
def failures(world: World, store: Any) -> Agent[Any, Any]:
    """Error paths: to a handler, with a change, of a tap, of an error that is a text only, of one that is data, from inside."""

    class Known(Exception):
        """Made without its constructor when it is read."""

        def __init__(self, code: int, why: str) -> None:
            super().__init__(f"{code}: {why}")
            self.code = code

    @node
    async def first(ctx: Context, text: str) -> str:
        await ctx.once("did", lambda: did(ctx.node, text))
        raise Broken(f"{text} is wet")

    async def did(*what: object) -> str:
        return world.do(*what)

    @node
    async def handle(ctx: Context, error: Broken) -> str:
        return f"handled {error}"

    @node
    async def second(ctx: Context, text: str) -> str:
        raise Known(7, text)

    @tap
    async def third(ctx: Context, text: str) -> None:
        raise Broken("in a tap")

    @tap
    async def fourth(ctx: Context, text: str) -> None:
        raise Broken("in a tap whose value is changed")

    @node
    async def deep(ctx: Context, text: str) -> str:
        await ctx.once("did", lambda: did(ctx.node, text))
        raise Broken(f"deep {len(text)}")

    @node
    async def group(ctx: Context, text: str) -> str:
        raise ExceptionGroup("several", [Broken(text), ValueError("other")])

    @node
    async def last(ctx: Context, text: str) -> str:
        return f"{text}!"

    @node
    async def length(ctx: Context, error: Exception) -> int:
        return len(str(error))

    inside = line("inside", update_prompt("inside", name="tell"), deep)
    return Agent(
        Strategy[Any, Any](
            "failures",
            START >> first,
            first >> END,
            first.on_error(Broken) >> handle >> second,
            second >> END,
            second.on_error(Known).map(lambda error: f"known {error}") >> third >> fourth >> inside,
            third.on_error(Broken) >> fourth,
            fourth.on_error(Broken).map(lambda text: text[::-1]) >> inside,
            inside >> group,
            inside.on_error(Broken).map(str) >> group,
            group >> END,
            group.on_error(ExceptionGroup) >> length,
            length.map(str) >> last >> END,
        ),
        store=store,
    )


@scenario()
def retries(world: World, store: Any) -> Agent[Any, Any]:
    """A node, a subgraph and the whole strategy are tried again; attempts and what was said in them are in the journal."""

    async def did(*what: object) -> str:
        return world.do(*what)

    @node
    async def flaky(ctx: Context, text: str) -> str:
        done = await ctx.once("did", lambda: did(ctx.node, text, ctx.attempt))
        if ctx.attempt < 3:
            raise Broken(f"attempt {ctx.attempt}")
        return f"{text} {done}"

    @node
    async def shaky(ctx: Context, text: str) -> str:
        await ctx.add(MessageStep(Message.user(f"shaky {ctx.attempt}")))
        done = await ctx.once("did", lambda: did(ctx.node, text, len(ctx.memory.steps)))
        return f"{text} {done}"

    @node
    async def fate(ctx: Context, text: str) -> str:
        if (await ctx.once("fate", lambda: times("fate", ctx.memory)))[-1] == "1":
            raise Broken("the subgraph fails once")
        return text

    async def times(what: str, memory: Any) -> str:
        count = sum(isinstance(step, MessageStep) for step in memory.steps)
        return f"{world.do(what, count)} {count}"

    @node
    async def end(ctx: Context, text: str) -> str:
        count = await ctx.once("end", lambda: times("end", ctx.memory))
        if int(count.split()[-1]) < 4:
            raise Broken("the whole strategy fails once")
        return digest(text)

    patient = flaky.retry(attempts=3, wait=0)
    inside = line("inside", shaky, fate).retry(attempts=2, wait=0)
    ask = llm_request(tools=False, name="ask")
    return Agent(
        line("retries", patient, inside, ask, end).retry(attempts=3, wait=0),
        model=Oracle(world, lambda request, tag: f"I see {len(request.messages)} {tag}"),
        store=store,
    )


def _counted(step: Any) -> str:
    return type(step).__name__


async def _play_in_flight(make: Callable[[], Agent[Any, Any]], world: World) -> None:
    """Fail in the middle of attempts, and resume."""
    for _ in range(4):
        try:
            run = await make().read(RUN)
        except LookupError:
            run = make().start("moss", run_id=RUN)
        try:
            await run.finish()
            return
        except RunError:
            pass


@scenario(play=_play_in_flight, exact=False)
def attempts(world: World, store: Any) -> Agent[Any, Any]:
    """A retry that gave up: the run fails, and is resumed with fresh attempts; budgets of nested strategies count on."""

    @node
    async def stubborn(ctx: Context, text: str) -> str:
        await ctx.once("did", lambda: did(ctx.node, ctx.attempt, world.first))
        if world.first and len(list(world.done)) < 5:
            raise Broken(f"attempt {ctx.attempt}")
        return text

    async def did(*what: object) -> str:
        return world.do(*what, len(world.done))

    ask = llm_request(tools=False, name="ask")
    inner = line("inner", ask, stubborn.retry(attempts=2, wait=0)).using(max_turns=3, max_nodes=20)
    return Agent(
        line("attempts", line("outer", inner).using(max_nodes=30)),
        model=Oracle(world, lambda request, tag: f"so {tag}"),
        store=store,
    )


# ---- forks


@scenario(task="moss fern lichen")
def forks(world: World, store: Any) -> Agent[Any, Any]:
    """Parallel branches that talk, `each` over a list with a limit, over a set and over an iterator, a fork in a fork."""

    async def did(*what: object) -> str:
        return world.do(*what)

    @node
    async def words(ctx: Context, text: str) -> list[str]:
        return text.split()

    @node
    async def loud(ctx: Context, text: str) -> str:
        return f"{text.upper()} {await ctx.once('did', lambda: did(ctx.node, text))}"

    @node
    async def unique(ctx: Context, texts: list[str]) -> set[str]:
        return {text.split()[0] for text in texts}

    @node
    async def stream(ctx: Context, texts: list[str]) -> Iterator[str]:
        return iter(texts)

    @node
    async def first(ctx: Context, text: str) -> str:
        return text[:1]

    @node
    async def one(ctx: Context, both: tuple[str, int]) -> str:
        return f"{both[0]} {both[1]}"

    @node
    async def size(ctx: Context, text: str) -> int:
        await checkpoint()
        return len(text)

    @node
    async def join(ctx: Context, value: object) -> str:
        return digest(value)

    ask = llm_request(tools=False, name="ask")
    talk = line("talk", update_prompt("talk", name="tell"), ask)
    both = parallel(talk, size, transcript="keep", name="both")
    return Agent(
        Strategy[Any, Any](
            "forks",
            START >> words >> each(loud, limit=2, name="all") >> unique >> each(first, name="set") >> _lists()
            >> each(line("deep", both, one), transcript="keep", limit=1, name="deeper")
            >> join.named("mid") >> parallel(ask.named("x"), ask.named("y"), name="dropped") >> join >> END,
        ),
        model=Oracle(world, lambda request, tag: f"{len(request.messages)} messages {tag}"),
        system_prompt="Be brief.",
        store=store,
    )  # fmt: skip


def _lists() -> Any:
    @node
    async def iterator(ctx: Context, texts: list[str]) -> Iterable[str]:
        return tuple(texts)

    return iterator


@scenario(exact=False)
def races(world: World, store: Any) -> Agent[Any, Any]:
    """A race whose losers did something, one that a failed branch loses, and branches whose failures are collected."""

    async def did(*what: object) -> str:
        return world.do(*what)

    @node
    async def slow(ctx: Context, text: str) -> str:
        await ctx.once("did", lambda: did("slow", text))
        await anyio.sleep_forever()
        return text

    @node
    async def failing(ctx: Context, text: str) -> str:
        await ctx.once("did", lambda: did("failing", text))
        raise Broken("it fails")

    @node
    async def last(ctx: Context, text: str) -> str:
        for _ in range(9):
            await checkpoint()
        return f"{text} {await ctx.once('did', lambda: did('last', text))}"

    @node
    async def join(ctx: Context, results: tuple[Any, ...]) -> str:
        return digest([str(each) for each in results])

    ask = llm_request(tools=False, name="ask")
    won = race(slow, line("talk", ask, last), failing, transcript="keep", name="won")
    collected = parallel(
        line("bad", update_prompt("bad", name="tell"), failing), last.named("good"), failures="collect",
        transcript="keep", name="collected",
    )  # fmt: skip
    return Agent(
        line("races", won, collected, join), model=Oracle(world, lambda request, tag: f"I run {tag}"), store=store
    )


async def _play_retried(make: Callable[[], Agent[Any, Any]], world: World) -> None:
    await play_to_the_end(make(), world, "moss")


@scenario()
def forks_again(world: World, store: Any) -> Agent[Any, Any]:
    """A race inside each inside a retry of the whole strategy: what branches did is undone, and done again."""

    async def did(*what: object) -> str:
        return world.do(*what)

    @node
    async def names(ctx: Context, text: str) -> list[str]:
        return [text, text[::-1]]

    @node
    async def quick(ctx: Context, text: str) -> str:
        count = len(ctx.memory.steps)
        return f"{text} {await ctx.once('did', lambda: did('quick', text, count))}"

    @node
    async def failing(ctx: Context, text: str) -> str:
        raise Broken("it loses")

    @node
    async def last(ctx: Context, texts: list[str]) -> str:
        count = len(ctx.memory.steps)
        if (await ctx.once("fate", lambda: times(count)))[-1] == "2":
            raise Broken("once more")
        return " ".join(texts)

    async def times(count: int) -> str:
        return f"{world.do('fate', count)} {count}"

    run = each(race(line("try", quick), failing, name="raced"), transcript="keep", name="every")
    tell = update_prompt("again", name="tell")
    return Agent(line("forks_again", tell, names, run, last).retry(attempts=3, wait=0), store=store)


# ---- budgets


@scenario()
def nested(world: World, store: Any) -> Agent[Any, Any]:
    """Strategies in strategies with budgets of their own, entered twice, with a fork inside."""

    @node
    async def again(ctx: Context, text: str) -> str:
        return text[:40]

    ask = llm_request(tools=False, name="ask")
    deepest = line("deepest", ask, again).using(max_turns=2, max_tokens=5000)
    middle = line("middle", deepest, parallel(deepest, again, name="both"), _pair()).using(max_nodes=50)
    return Agent(
        Strategy[Any, Any](
            "nested",
            START >> middle,
            middle.when(lambda ctx, text: len(ctx.memory.steps) < 5) >> middle,
            middle.otherwise() >> END,
        ),
        model=priced(world, lambda request, tag: f"{tag} and more"),
        store=store,
        max_cost=100,
    )


def _pair() -> Any:
    @node
    async def pair(ctx: Context, both: tuple[str, str]) -> str:
        return f"{both[0]} {both[1]}"

    return pair


# ---- tools and people


def tools_of(world: World) -> list[Any]:
    """Return tools of all kinds."""

    @tool
    async def look(of: str) -> str:
        """Look something up."""
        return f"{of} is green {world.do('look', of)}"

    @tool
    async def twice(ctx: Context, of: str) -> dict[str, Any]:
        """Do two things, each recorded by itself."""

        async def did(what: str) -> str:
            return world.do(what, of)

        return {
            "first": await ctx.once("first", lambda: did("first")),
            "second": await ctx.once("second", lambda: did("2")),
        }

    @tool
    async def fail(of: str) -> str:
        """Fail."""
        raise Broken(f"no {of} {world.do('fail', of)}")

    @tool
    async def draw(of: str) -> Sequence[Any]:
        """Draw something."""
        return [f"{of} {world.do('draw', of)}", Image(PIXEL)]

    @tool
    async def long(of: str) -> str:
        """Tell at length."""
        return f"{world.do('long', of)} {of} " * 900

    @tool(approve=True)
    async def pay(of: str) -> str:
        """Pay."""
        return f"paid {of} {world.do('pay', of)}"

    @tool(deferred=True)
    async def order(of: str) -> str:
        """Order something that takes days."""
        raise AssertionError("never called")

    @tool(in_flight="ask")
    async def send(ctx: Context, of: str) -> str:
        """Send something that must not be sent twice."""
        if world.first and world.scope is not None:
            world.scope.cancel()
            await anyio.sleep_forever()
        return f"sent {of} {world.do('send', of)}"

    return [look, twice, fail, draw, long, pay, order, send]


def calls(*names: tuple[str, str], text: str = "") -> ToolCalls:
    """Return calls of tools, which have ids that follow from what they are given."""
    return ToolCalls([ToolCall(name, {"of": of}, f"{name}-{of}") for name, of in names], text)


def by_turn(*replies: Any) -> Callable[[ModelRequest, str], Any]:
    """Return a rule that answers by how many answers there are in what is sent."""

    def rule(request: ModelRequest, tag: str) -> Any:
        turn = sum(message.role == "assistant" for message in request.messages)
        reply = replies[min(turn, len(replies) - 1)]
        if isinstance(reply, str):
            return f"{reply} {tag}"
        return ToolCalls(reply.calls, f"{reply.text} {tag}")

    return rule


def react(name: str, *, limit: int = 1) -> Strategy[Any, Any]:
    """Return a strategy that calls tools until there is text."""
    ask, act = llm_request(name="ask"), execute_tools(limit=limit, name="act")
    return Strategy[Any, Any](name, START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)


@scenario(task="Tell me about moss.")
def tools(world: World, store: Any) -> Agent[Any, Any]:
    """Model turns with calls of several tools, errors, images, long results, and calls that are changed on an edge."""
    ask, act = llm_request(name="ask"), execute_tools(name="act")

    @tap
    async def glance(ctx: Context, found: ToolCalls) -> None:
        pass

    @tap
    async def read(ctx: Context, found: ToolResults) -> None:
        pass

    @node
    async def short(ctx: Context, text: str) -> str:
        return text

    return Agent(
        Strategy[Any, Any](
            "tools",
            START >> ask,
            ask.on(ToolCalls) >> glance >> act >> read >> ask,
            ask.on(str) >> short >> END,
        ),
        model=priced(
            world,
            by_turn(
                calls(("look", "moss"), ("twice", "fern"), ("fail", "rock"), text="Let me see."),
                calls(("draw", "moss")),
                calls(("long", "tale"), ("look", "moss")),
                "It is green.",
            ),
        ),
        tools=tools_of(world),
        system_prompt="Use the tools.",
        store=store,
    )


@scenario(task="Tell me about moss.")
def edited_calls(world: World, store: Any) -> Agent[Any, Any]:
    """Some calls of a turn are dropped on the edge, others made by a node; results are turned into text for the model."""
    ask, act = llm_request(name="ask"), execute_tools(name="act")
    return Agent(
        Strategy[Any, Any](
            "edited_calls",
            START >> ask,
            ask.on(ToolCalls).map(lambda found: ToolCalls(found.calls[:1], found.text)) >> act,
            act.map(lambda found: f"{len(found)} results") >> ask,
            ask.on(str) >> END,
        ),
        model=Oracle(world, by_turn(calls(("look", "a"), ("look", "b")), "Done.")),
        tools=tools_of(world),
        store=store,
    )


async def _play_one_by_one(make: Callable[[], Agent[Any, Any]], world: World) -> None:
    """Answer one question in each process, the last one first."""
    await make().run("moss", run_id=RUN)
    for _ in range(30):
        agent = make()
        run = await agent.read(RUN)
        if not run.questions:
            return
        asked = run.questions[-1]
        with contextlib.suppress(RunError):
            await agent.resume(RUN, answers={asked.id: answer_to(asked)})


@scenario(play=_play_one_by_one, exact=False)
def approvals(world: World, store: Any) -> Agent[Any, Any]:
    """Calls that people approve, refuse and change, and results that come days later, each answered by itself."""
    return Agent(
        react("approvals", limit=9),
        model=Oracle(
            world,
            by_turn(
                calls(("pay", "rent"), ("pay", "refuse"), ("look", "moss"), ("order", "moss")),
                calls(("pay", "change"), ("pay", "text")),
                "Paid.",
            ),
        ),
        tools=tools_of(world),
        store=store,
    )


async def _play_killed(make: Callable[[], Agent[Any, Any]], world: World) -> None:
    """Have the run cancelled while a tool is executed that must not be executed twice, and resume it."""
    with anyio.CancelScope() as world.scope:
        await make().run("moss", run_id=RUN)
    world.first = False
    await play_all(make())


@scenario(play=_play_killed, exact=False)
def in_flight(world: World, store: Any) -> Agent[Any, Any]:
    """A call that was about to be executed when the process was cancelled: a person is asked before it is made again."""
    return Agent(
        react("in_flight"),
        model=Oracle(world, by_turn(calls(("look", "moss"), ("send", "letter"), text="I send it."), "Sent.")),
        tools=tools_of(world),
        store=store,
    )


@scenario(play=_play_one_by_one, exact=False)
def questions(world: World, store: Any) -> Agent[Any, Any]:
    """Questions whose answers have types, in a row and in branches, and a node that asks after it did something."""

    @node
    async def told(ctx: Context, answers: tuple[Any, ...]) -> str:
        return digest(answers)

    @node
    async def shown(ctx: Context, value: object) -> str:
        return digest(value)

    def ask(question: str, kind: Any, name: str) -> Any:
        return ask_human(question, kind, name=name)

    inside = line("inside", update_prompt("inside", name="tell"), ask("Which form?", Form, "form"), shown)
    return Agent(
        line(
            "questions",
            ask(("What of it?"), str, "text"),
            ask("Publish?", bool, "publish"),
            parallel(ask("Which page?", Page, "page"), inside, transcript="keep", name="both"),
            told,
            parallel(
                ask("How large?", Literal["small", "large"], "size"), ask("When?", date, "date"),
                ask("Which amounts?", list[Decimal], "amounts"), name="three",
            ),
            told.named("end"),
        ),
        store=store,
    )  # fmt: skip


# ---- sub-agents


def _researcher(world: World, *, asks: bool) -> Agent[Any, Any]:
    @tool(approve=True)
    async def open_book(of: str) -> str:
        """Open a book."""
        return f"page of {of} {world.do('open', of)}"

    @tool
    async def look(of: str) -> str:
        """Look something up."""
        return f"{of} is green {world.do('look', of)}"

    reader = Agent(
        react("reading"),
        model=priced(world, by_turn(calls(("open_book", "book")) if asks else "short", "I read."), "reader"),
        tools=[open_book],
        name="reader",
        description="Reads.",
    )
    return Agent(
        react("research", limit=9),
        model=priced(
            world,
            by_turn(
                ToolCalls([ToolCall("look", {"of": "moss"}, "l"), ToolCall("reader", {"task": "a book"}, "b")]),
                "Found.",
            ),
            "researcher",
        ),
        tools=[look, reader],
        name="researcher",
        description="Finds out.",
    )


@scenario()
def sub_agents(world: World, store: Any) -> Agent[Any, Any]:
    """An agent calls an agent that calls an agent, twice."""
    researcher = _researcher(world, asks=False)

    def rule(request: ModelRequest, tag: str) -> Any:
        turn = sum(message.role == "assistant" for message in request.messages)
        return (
            f"Done {tag}"
            if turn == 2
            else ToolCalls([ToolCall("researcher", {"task": f"task {turn}"}, f"c{turn}")], tag)
        )

    return Agent(react("lead"), model=priced(world, rule, "chief"), tools=[researcher], store=store, max_cost=50)


@scenario(play=_play_one_by_one, exact=False, reruns_everywhere=False)
def asking_sub_agents(world: World, store: Any) -> Agent[Any, Any]:
    """Two agents at once, each of which waits for a person in an agent of its own."""
    researcher = _researcher(world, asks=True)

    def rule(request: ModelRequest, tag: str) -> Any:
        if any(message.role == "tool" for message in request.messages):
            return f"Done {tag}"
        return ToolCalls([ToolCall("researcher", {"task": of}, of) for of in ("moss", "fern")], tag)

    return Agent(react("lead", limit=1), model=priced(world, rule, "chief"), tools=[researcher], store=store)


# ---- transcripts


async def _play_edits(make: Callable[[], Agent[Any, Any]], world: World) -> None:
    """Stop between the steps, and change the transcript in every way that a list can be changed."""
    run = make().start("moss", run_id=RUN)
    await run.step()
    turn = run.memory.steps[-1]
    assert isinstance(turn, ActionStep)
    turn.observations = "edited"
    run.memory.steps.insert(1, MessageStep(Message.user("inserted")))
    await run.step()
    del run.memory.steps[1]
    run.memory.steps.append(MessageStep(Message.user("appended")))
    run.pause("a break")
    await run.finish()
    run = await make().read(RUN)
    steps = run.memory.steps
    steps[1:1] = [MessageStep(Message.user("one")), MessageStep(Message.user("two"))]
    steps[1], steps[2] = steps[2], steps[1]
    appended = steps[-1]
    assert isinstance(appended, MessageStep)
    appended.message = Message.user("appended and changed")
    run.pause("another break")
    await run.finish()
    run = await make().read(RUN)
    assert isinstance(run.memory.steps[-1], MessageStep | ActionStep)
    run.memory.steps[-1:] = []
    await run.finish()


@scenario(play=_play_edits, exact=False)
def edits(world: World, store: Any) -> Agent[Any, Any]:
    """Steps that people changed between the steps of a run, and steps that nodes change."""

    @tap
    async def change(ctx: Context, found: ToolResults) -> None:
        open_turn = ctx.memory.open
        if open_turn is not None:
            open_turn.error = None
        first = next((step for step in ctx.memory.steps if isinstance(step, MessageStep)), None)
        if first is not None:
            first.message = Message.user(f"{first.message.text} changed by a node")

    @tap
    async def remove(ctx: Context, text: str) -> None:
        ctx.memory.steps[1:2] = [MessageStep(Message.user("put by a node")), MessageStep(Message.user("and another"))]

    ask, act = llm_request(name="ask"), execute_tools(name="act")
    return Agent(
        Strategy[Any, Any](
            "edits", START >> ask, ask.on(ToolCalls) >> act >> change >> ask, ask.on(str) >> remove >> END
        ),
        model=Oracle(world, by_turn(calls(("look", "a")), calls(("look", "b")), calls(("look", "c")), "Done.")),
        tools=tools_of(world),
        store=store,
    )


async def _play_open_turn(make: Callable[[], Agent[Any, Any]], world: World) -> None:
    """Edit the turn whose calls wait for a person."""
    await make().run("moss", run_id=RUN)
    run = await make().read(RUN)
    assert run.memory.open is not None
    run.memory.open.error = None
    run.memory.steps.append(MessageStep(Message.user("said while it waits")))
    run.pause("look again")
    await run.finish()
    await play_all(make())


@scenario(play=_play_open_turn, exact=False)
def open_turns(world: World, store: Any) -> Agent[Any, Any]:
    """A turn that is open while people change the transcript."""
    return Agent(
        react("open_turns"),
        model=Oracle(world, by_turn(calls(("look", "a"), ("pay", "rent")), "Done.")),
        tools=tools_of(world),
        store=store,
    )


async def _play_vetoed(make: Callable[[], Agent[Any, Any]], world: World) -> None:
    """A callback refuses the first answer, and ends the run later; then the run is resumed."""
    with contextlib.suppress(RunError):
        await make().run("moss", run_id=RUN)
    world.first = False
    await play_all(make())


@scenario(play=_play_vetoed, exact=False)
def vetoes(world: World, store: Any) -> Agent[Any, Any]:
    """A callback refuses answers, so that the model is asked again, and a step that was added, so that the run fails."""

    def strict(step: ActionStep) -> None:
        if "refused" not in str([message.text for message in step.to_messages()]) and step.step_number == 1:
            step.observations = "seen by the callback"
            raise VetoError("ActionStep", "refused: say more")

    def stop(step: MessageStep) -> None:
        if world.first and step.message.text == "stop here":
            raise VetoError("MessageStep", "not in the first process")

    return Agent(
        line("vetoes", llm_request(tools=False, name="ask"), update_prompt("stop here", name="tell"), _same()),
        model=Oracle(world, lambda request, tag: f"{len(request.messages)} {tag}"),
        step_callbacks={ActionStep: strict, MessageStep: stop},
        store=store,
    )


def _same() -> Any:
    @node
    async def same(ctx: Context, text: str) -> str:
        return text

    return same


async def _play_interrupted(make: Callable[[], Agent[Any, Any]], world: World) -> None:
    """Nodes are interrupted after they added steps: by a question, by a cancellation, by an error; in the run and in branches."""
    await make().run("moss", run_id=RUN)
    run = await make().read(RUN)
    [asked] = run.questions
    with anyio.CancelScope() as world.scope:
        await make().resume(RUN, answers={asked.id: answer_to(asked)})
    with contextlib.suppress(RunError):
        await make().resume(RUN)
    world.first = False
    await play_all(make())


@scenario(play=_play_interrupted, exact=False)
def said(world: World, store: Any) -> Agent[Any, Any]:
    """Nodes that were interrupted after they had added to the transcript."""

    async def did(*what: object) -> str:
        return world.do(*what)

    @node
    async def talkative(ctx: Context, text: str) -> str:
        await ctx.add(MessageStep(Message.user("before the question")))
        await ctx.once("did", lambda: did("talkative"))
        answer = await ctx.ask(Question("talk", "What of it?", ctx.node, about=text))
        await ctx.add(MessageStep(Message.user("after the question")))
        return f"{text} {answer}"

    @node
    async def cancelled(ctx: Context, text: str) -> str:
        await ctx.add(MessageStep(Message.user("before the end")), MessageStep(Message.user("and again")))
        await ctx.add(MessageStep(Message.user("an attempt that lasts")), lasting=True)
        await ctx.once("did", lambda: did("cancelled"))
        if world.first and world.scope is not None:
            scope, world.scope = world.scope, None
            scope.cancel()
            await anyio.sleep_forever()
        return text

    @node
    async def failing(ctx: Context, text: str) -> str:
        await ctx.add(MessageStep(Message.user("before the error")))
        await ctx.once("did", lambda: did("failing"))
        if world.first:
            raise Broken("in the first process")
        return text

    @node
    async def join(ctx: Context, both: tuple[str, str]) -> str:
        return " ".join(both)

    ask = llm_request(tools=False, name="ask")
    branches = parallel(
        line("one", update_prompt("one", name="tell"), failing), ask.named("two"), transcript="keep", name="both"
    )
    return Agent(
        line("said", talkative, cancelled, branches, join),
        model=Oracle(world, lambda request, tag: f"{len(request.messages)} {tag}"),
        store=store,
    )


async def _play_failing_model(make: Callable[[], Agent[Any, Any]], world: World) -> None:
    for _ in range(3):
        try:
            run = await make().read(RUN)
        except LookupError:
            run = make().start("moss", run_id=RUN)
        try:
            await run.finish()
        except RunError:
            world.first = len(world.done) < 3


@scenario(play=_play_failing_model, exact=False)
def failed_turns(world: World, store: Any) -> Agent[Any, Any]:
    """A model that fails: each failed turn stays in the transcript, and the turn is made again when the run is resumed."""

    def rule(request: ModelRequest, tag: str) -> Any:
        if world.first and any(message.role == "tool" for message in request.messages):
            return ModelError("the server is gone")
        return by_turn(calls(("look", "a")), "Done.")(request, tag)

    return Agent(react("failed_turns"), model=Oracle(world, rule), tools=tools_of(world), store=store)


# ---- how runs stop


async def _play_stops(make: Callable[[], Agent[Any, Any]], world: World) -> None:
    """Pause, release, wait, fail, use up a budget, cancel, and go on each time."""
    run = make().start("moss", run_id=RUN)
    run.pause("before anything")
    await run.finish()
    async with await make().read(RUN) as run:
        await run.step()
    run = await make().read(RUN)
    await run.step()
    run.pause("by hand")
    await run.finish()
    with contextlib.suppress(RunError):
        await make().resume(RUN)
    run = await make().read(RUN)
    run.allow(max_turns=5)
    with anyio.CancelScope() as world.scope:
        await run.finish()
    with contextlib.suppress(NodeFailedError):
        await run.finish()
    world.first = False
    run = await make().read(RUN)
    run.allow(max_turns=9)
    await run.finish()


@scenario(play=_play_stops, exact=False)
def stops(world: World, store: Any) -> Agent[Any, Any]:
    """A run that stopped in every way before it ended."""

    @node
    async def cancelled(ctx: Context, text: str) -> str:
        if world.scope is not None:
            scope, world.scope = world.scope, None
            scope.cancel()
            await anyio.sleep_forever()
        return text

    @node
    async def failing(ctx: Context, text: str) -> str:
        await ctx.once("did", lambda: did())
        if world.first:
            raise Broken("with a reason that is in the journal")
        return text

    async def did(*what: object) -> str:
        return world.do("failing", *what)

    ask = llm_request(tools=False, name="ask")
    return Agent(
        line("stops", ask, ask.named("again"), ask.named("more"), cancelled, failing),
        model=Oracle(world, lambda request, tag: f"{len(request.messages)} {tag}"),
        store=store,
        max_turns=2,
    )


async def _play_never_ended(make: Callable[[], Agent[Any, Any]], world: World) -> None:
    with contextlib.suppress(RunError):
        await make().run("moss", run_id=RUN)


@scenario(play=_play_never_ended)
def over_budget(world: World, store: Any) -> Agent[Any, Any]:
    """A run that failed for good, in a strategy with a budget of its own inside a branch."""
    ask = llm_request(tools=False, name="ask")
    inner = line("inner", ask, ask.named("more")).using(max_turns=1)
    return Agent(
        line("over_budget", parallel(inner, _same(), transcript="keep", name="both"), _joined()),
        model=Oracle(world, lambda request, tag: f"{len(request.messages)} {tag}"),
        store=store,
    )


def _joined() -> Any:
    @node
    async def joined(ctx: Context, both: tuple[str, ...]) -> str:
        return " ".join(both)

    return joined


async def _play_cancelled(make: Callable[[], Agent[Any, Any]], world: World) -> None:
    with anyio.CancelScope() as world.scope:
        await make().run("moss", run_id=RUN)


@scenario(play=_play_cancelled)
def cancelled(world: World, store: Any) -> Agent[Any, Any]:
    """A run that was cancelled in branches, one of which had ended, and was never resumed."""

    @node
    async def stuck(ctx: Context, text: str) -> str:
        await ctx.once("did", lambda: did("stuck"))
        for _ in range(9):
            await checkpoint()
        if world.first and world.scope is not None:
            world.scope.cancel()
            await anyio.sleep_forever()
        return text

    async def did(*what: object) -> str:
        return world.do(*what)

    ask = llm_request(tools=False, name="ask")
    return Agent(
        line("cancelled", parallel(line("one", ask), stuck, transcript="keep", name="both"), _joined()),
        model=Oracle(world, lambda request, tag: f"{len(request.messages)} {tag}"),
        store=store,
    )


# ---- compression, plans, structured output


@scenario()
def summaries(world: World, store: Any) -> Agent[Any, Any]:
    """Plans, summaries of what was said, and a strategy that goes on after them."""

    def rule(request: ModelRequest, tag: str) -> Any:
        if request.tools and sum(message.role == "tool" for message in request.messages) < 2:
            return calls(("look", f"n{len(request.messages)}"), text=tag)
        return f"{len(request.messages)} words {tag}"

    first, second = react("first"), react("second")
    return Agent(
        line(
            "summaries", first, compress_history(WholeHistory(keep=1)), second, compress_history(name="again"), _same()
        ),
        model=Oracle(world, rule),
        tools=tools_of(world),
        planning_interval=2,
        store=store,
    )


class Weather(pydantic.BaseModel):
    """What a node makes of what a model says as JSON."""

    place: str
    degrees: float
    told: str


@dataclass
class Report:
    """The same as a dataclass."""

    title: str
    parts: list[str]
    told: str


@scenario(mutates=True)
def structured(world: World, store: Any) -> Agent[Any, Any]:
    """Answers as JSON, one of them after an answer that did not fit, and values of pydantic and of dataclasses made of them."""

    def rule(request: ModelRequest, tag: str) -> Any:
        shown = " ".join(message.text for message in request.messages)
        if request.output is not None and "number" in str(request.output.schema):
            return {tag: [1.5, -2]} if "Answer again" in shown else f"no JSON {tag}"
        return ["a", tag]

    @node
    async def weather(ctx: Context, found: dict[str, list[float]]) -> Weather:
        [(told, numbers)] = found.items()
        return Weather(place="Oslo", degrees=numbers[0], told=told)

    @node
    async def report(ctx: Context, found: list[str]) -> Report:
        return Report("moss", found, "")

    @node
    async def both(ctx: Context, found: Report) -> Report:
        found.parts.append("c")
        return found

    says = llm_request(output=dict[str, list[float]], name="says")
    lists = llm_request(output=list[str], name="lists")
    return Agent(
        Strategy[Any, Any](
            "structured",
            START >> says >> weather,
            weather.map(lambda found: found.place) >> lists >> report >> both >> END,
        ),
        model=Oracle(world, rule),
        store=store,
    )


# ---- facts, notes, payloads

USER = Subject("user", "the user", priority=1)
CITY = Concept("city", "where the user lives")
PETS = Concept("pets", "the pets of the user", FactType.MULTIPLE)


async def _prepare_facts(world: World) -> None:
    world.facts = StoreMemoryProvider(MemoryStore())
    source = Source("earlier", 1, "n", "trusted")
    here = Scope.agent("golden")
    await world.facts.save(SingleFact(CITY, "Oslo", source=source), USER, here)
    await world.facts.save(MultipleFacts(PETS, ["a cat", "a dog"], source=source), USER, here)


async def _forget_city(world: World) -> None:
    await world.facts.forget(concept=CITY)


def _with_facts(world: World, store: Any) -> Agent[Any, Any]:
    def rule(request: ModelRequest, tag: str) -> Any:
        if request.output is not None or ("facts" in request.messages[-1].text[:600].lower() and not request.tools):
            return {
                "facts": [{"subject": "user", "keyword": "tea", "description": "what they drink", "value": "green"}]
            }
        return f"hello {tag}"

    ask = llm_request(tools=False, name="ask")
    agent = Agent(
        line(
            "facts",
            load_all_facts(subjects=[USER], name="load"),
            ask,
            auto_detect_facts(subjects=[USER], name="learn"),
            _same(),
        ),
        model=priced(world, rule),
        store=store,
    )
    agent.install(AgentMemory, provider=world.facts, agent_name="golden")
    return agent


@scenario(prepare=_prepare_facts)
def facts(world: World, store: Any) -> Agent[Any, Any]:
    """Facts that are loaded, and learned: the journal refers to their versions."""
    return _with_facts(world, store)


@scenario(prepare=_prepare_facts, afterwards=_forget_city)
def forgotten_facts(world: World, store: Any) -> Agent[Any, Any]:
    """The same after one of the facts was forgotten."""
    return _with_facts(world, store)


async def _prepare_notes(world: World) -> None:
    world.notes = Notes(MemoryStore())
    await world.notes.remember_many(["The cat is black.", "The cat sleeps on the printer."])


async def _forget_a_note(world: World) -> None:
    records = await world.notes.list_records()
    await world.notes.forget(ids=[record.id for record in records if "printer" in record.content])


def _with_notes(world: World, store: Any) -> Agent[Any, Any]:
    ask = llm_request(tools=False, name="ask")
    agent = Agent(
        line("notes", recall_notes(name="recall"), ask, ask.named("more")),
        model=Oracle(world, lambda request, tag: f"{len(request.messages)} {tag}"),
        store=store,
    )
    agent.install(NoteMemory, notes=world.notes, recall=False, learn=False)
    return agent


@scenario(task="Where does the cat sleep?", prepare=_prepare_notes)
def notes(world: World, store: Any) -> Agent[Any, Any]:
    """Notes that were recalled: the journal refers to them."""
    return _with_notes(world, store)


@scenario(task="Where does the cat sleep?", prepare=_prepare_notes, afterwards=_forget_a_note)
def forgotten_notes(world: World, store: Any) -> Agent[Any, Any]:
    """The same after one of the notes was forgotten."""
    return _with_notes(world, store)


async def _play_images(make: Callable[[], Agent[Any, Any]], world: World) -> None:
    await make().run("moss " * 4000, run_id=RUN, images=[BIG_PIXEL, PIXEL])


@scenario(play=_play_images)
def payloads(world: World, store: Any) -> Agent[Any, Any]:
    """Images, and texts of more than 16 kB, are stored apart, once, wherever they occur."""

    @node
    async def longer(ctx: Context, text: str) -> dict[str, Any]:
        return {"text": text + "fern " * 4000, "image": BIG_PIXEL}

    @node
    async def back(ctx: Context, found: dict[str, Any]) -> Message:
        return Message.user(found["text"], found["image"])

    ask = llm_request(tools=False, name="ask")
    return Agent(
        line("payloads", ask, longer, back, ask.named("more")),
        model=Oracle(world, lambda request, tag: f"{tag} " + "words " * 3000),
        store=store,
    )


async def _play_unlearned(make: Callable[[], Agent[Any, Any]], world: World) -> None:
    await make().run("I live in Oslo.", run_id=RUN)


@scenario(play=_play_unlearned, prepare=_prepare_facts, exact=False, reads_back=False)
def unlearned(world: World, store: Any) -> Agent[Any, Any]:
    """A tap that could not learn: the run ended, and the tap learns when the run is resumed."""

    def rule(request: ModelRequest, tag: str) -> Any:
        if any(message.role == "assistant" for message in request.messages) or request.output is not None:
            if world.first:
                return ModelError("the server is gone")
            return {"facts": [{"subject": "user", "keyword": "city", "description": "home", "value": "Bergen"}]}
        return f"hello {tag}"

    ask = llm_request(tools=False, name="ask")
    agent = Agent(
        line("unlearned", ask, auto_detect_facts(subjects=[USER], name="learn"), _same()),
        model=Oracle(world, rule),
        store=store,
    )
    agent.install(AgentMemory, provider=world.facts, agent_name="golden")
    return agent


# ---- runs from runs


async def _play_forked(make: Callable[[], Agent[Any, Any]], world: World) -> None:
    await make().run("moss", run_id="origin")

    def edit(snapshot: Any) -> None:
        snapshot.value = "another value"
        snapshot.memory.steps.append(MessageStep(Message.user("added to the fork")))

    await make().fork("origin", before="second", edit=edit, run_id="middle")
    await make().fork("middle", after="second", run_id=RUN)


@scenario(play=_play_forked, runs=("origin", "middle", RUN))
def forked(world: World, store: Any) -> Agent[Any, Any]:
    """A fork of a fork, one of them with another value and another transcript."""
    ask = llm_request(tools=False, name="first")
    return Agent(
        line("forked", ask, _same(), ask.named("second"), ask.named("third")),
        model=Oracle(world, lambda request, tag: f"{len(request.messages)} {tag}"),
        store=store,
    )


async def _play_changed(make: Callable[[], Agent[Any, Any]], world: World) -> None:
    await make().run("moss", run_id=RUN)
    world.first = False
    await make().resume(RUN, answer=True, allow_changed=True)


@scenario(play=_play_changed, allow_changed=True, exact=False)
def changed(world: World, store: Any) -> Agent[Any, Any]:
    """A run that was resumed with a strategy that has one node more."""

    @node
    async def tell(ctx: Context, yes: bool) -> str:
        return f"told {yes}"

    @node
    async def more(ctx: Context, text: str) -> str:
        return f"{text}, and more"

    ask = ask_human("Publish?", bool, name="ask")
    return Agent(line("changed", _same(), ask, tell, *([] if world.first else [more])), store=store)


async def _play_continued(make: Callable[[], Agent[Any, Any]], world: World) -> None:
    earlier = await make().run("moss", run_id="earlier")
    await make().run("fern", run_id=RUN, steps=earlier.memory)


@scenario(play=_play_continued, runs=("earlier", RUN))
def continued(world: World, store: Any) -> Agent[Any, Any]:
    """A run that began with the transcript of an earlier one."""
    return Agent(
        react("continued"),
        model=Oracle(world, by_turn(calls(("look", "a")), "Done.", calls(("look", "b")), "Done again.")),
        tools=tools_of(world),
        system_prompt="Go on.",
        store=store,
    )


async def _play_checked(make: Callable[[], Agent[Any, Any]], world: World) -> None:
    await make().run("moss", run_id=RUN)


def _scenario_of(name: str) -> Scenario:
    return next(each for each in SCENARIOS if each.name == name)


@scenario()
def checked(world: World, store: Any) -> Agent[Any, Any]:
    """An answer that a final check refused: the model is asked once more."""

    def long_enough(answer: str) -> bool:
        return "better" in answer

    def rule(request: ModelRequest, tag: str) -> Any:
        asked = sum(message.role == "assistant" for message in request.messages)
        return f"better {tag}" if asked else f"short {tag}"

    return Agent(
        line("checked", llm_request(tools=False, name="ask")),
        model=Oracle(world, rule),
        final_answer_checks=[long_enough],
        store=store,
    )


# ---- what is found again inside of forks


@scenario(play=_play_one_by_one, exact=False)
def retried_forks(world: World, store: Any) -> Agent[Any, Any]:
    """A fork that is tried again: what its branches said the first time is not what they say now."""

    async def did(*what: object) -> str:
        return world.do(*what)

    @node
    async def talk(ctx: Context, text: str) -> str:
        await ctx.add(MessageStep(Message.user(f"attempt {len(text)}")))
        return await ctx.once("did", lambda: did("talk", len(text)))

    @node
    async def fails_once(ctx: Context, text: str) -> str:
        count = await ctx.once("count", lambda: did("count", len(ctx.memory.steps)))
        await checkpoint()
        if world.done[count] == 1 and world.first:
            world.first = False
            raise Broken("the fork fails once")
        return text

    @node
    async def more(ctx: Context, text: str) -> str:
        await ctx.add(MessageStep(Message.user(f"more of {text}")))
        return text

    ask = ask_human("What of it?", str, name="ask")
    fork = parallel(line("one", talk, more, ask, more.named("last")), fails_once, transcript="keep", name="both")
    return Agent(line("retried_forks", fork.retry(attempts=3, wait=0), _joined()), store=store)


@scenario(play=_play_one_by_one, exact=False)
def open_forks(world: World, store: Any) -> Agent[Any, Any]:
    """A fork between a model's calls and their execution: its branches begin with the open turn as a step."""

    @node
    async def first(ctx: Context, both: tuple[ToolResults, str]) -> ToolResults:
        return both[0]

    ask, act = llm_request(name="ask"), execute_tools(name="act")
    asks = ask_human("Shall I?", str, name="asks")
    fork = parallel(act, line("aside", update_prompt("aside", name="tell"), asks), name="both")
    return Agent(
        Strategy[Any, Any]("open_forks", START >> ask, ask.on(ToolCalls) >> fork >> first >> ask, ask.on(str) >> END),
        model=Oracle(world, by_turn(calls(("look", "a"), ("look", "b")), "Done.")),
        tools=tools_of(world),
        store=store,
    )


async def _play_put(make: Callable[[], Agent[Any, Any]], world: World) -> None:
    """Fork a run that stands in branches, with another value before the fork of the strategy."""
    await make().run("moss", run_id="origin")

    def edit(snapshot: Any) -> None:
        snapshot.value = "another value"

    last = len(await make().history("origin"))
    await make().fork("origin", at=last, edit=edit, run_id=RUN)
    await play_all(make())


@scenario(play=_play_put, runs=("origin", RUN), exact=False)
def put_over_branches(world: World, store: Any) -> Agent[Any, Any]:
    """A fork of a run with another value in the place of its branches, which begin anew."""

    async def did(*what: object) -> str:
        return world.do(*what)

    @node
    async def work(ctx: Context, text: str) -> str:
        await ctx.add(MessageStep(Message.user(f"work on {text}")))
        return await ctx.once("did", lambda: did(ctx.node, text))

    ask = ask_human("What of it?", str, name="ask")
    fork = parallel(line("one", work, ask), line("two", work, work.named("again"), ask), transcript="keep", name="both")
    return Agent(line("put_over_branches", _same(), fork, _joined()), store=store)


@scenario(play=_play_one_by_one, exact=False)
def own_in_branches(world: World, store: Any) -> Agent[Any, Any]:
    """Branches of a strategy with a budget of its own, of which the one that came last has not spent most."""

    async def did(*what: object) -> str:
        return world.do(*what)

    @node
    async def talks(ctx: Context, text: str) -> str:
        await ctx.once("did", lambda: did("talks"))
        for _ in range(20):
            await checkpoint()
        first = await ctx.request(ModelRequest([Message.user(text)]), turn=True)
        answer = await ctx.ask(Question("talks", "Go on?", ctx.node))
        return f"{first.message.text} {answer}"

    inner = line(
        "inner",
        parallel(talks, line("other", _same(), ask_human("And?", str, name="ask")), name="both"),
        _joined(),
        llm_request(tools=False, name="more"),
        llm_request(tools=False, name="last"),
    ).using(max_turns=2)
    return Agent(
        line("own_in_branches", inner),
        model=Oracle(world, lambda request, tag: f"{len(request.messages)} {tag}"),
        store=store,
    )


@scenario(exact=False)
def both_ended(world: World, store: Any) -> Agent[Any, Any]:
    """A race in which a second branch ended before it could be cancelled: the first one has won, also when it is read."""

    @node
    async def fast(ctx: Context, text: str) -> str:
        await checkpoint()
        return f"{text}, fast"

    @node
    async def second(ctx: Context, text: str) -> str:
        with anyio.CancelScope(shield=True):
            for _ in range(9):
                await checkpoint()
        return f"{text}, second"

    return Agent(line("both_ended", race(fast, second, name="race"), _same()), store=store)


@scenario()
def talkative_failures(world: World, store: Any) -> Agent[Any, Any]:
    """Nodes that add to the transcript and then fail: what they said stays, on error paths and in branches."""

    @node
    async def talks(ctx: Context, text: str) -> str:
        await ctx.add(MessageStep(Message.user(f"before the error, {len(text)}")))
        raise Broken(text[:9])

    other = talks.named("other")
    first = Strategy[Any, Any]("first", START >> talks >> END, talks.on_error(Broken).map(str) >> END)
    collected = parallel(other, _same(), failures="collect", transcript="keep", name="both")

    @node
    async def told(ctx: Context, both: tuple[Any, ...]) -> str:
        return digest([str(each) for each in both])

    return Agent(line("talkative_failures", first, collected, told), store=store)
