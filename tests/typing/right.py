"""What must be clean under mypy and pyright, both strict: every type that a strategy infers. Checked, never executed."""

# pyright: strict

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar, assert_type

from graphagent import Agent, RunResult, tool
from graphagent.errors import NodeFailedError
from graphagent.events import NodeFinished
from graphagent.graph import (
    END,
    START,
    Node,
    Outlet,
    PathRule,
    Strategy,
    Tap,
    TapOf,
    each,
    guarded,
    never_together,
    node,
    parallel,
    precedes,
    race,
    select_tools,
    tap,
)
from graphagent.llm import (
    CachedModel,
    FallbackModel,
    LimitedModel,
    Moderation,
    PricedModel,
    Prices,
    RetryModel,
    ToolCall,
    ToolCalls,
    ToolResults,
)
from graphagent.llm.openai import OpenAIModerator
from graphagent.memory import AgentMemory, FileMemoryProvider
from graphagent.nodes import (
    Accepted,
    Approved,
    Denied,
    Flagged,
    Prompt,
    Rejected,
    approval,
    choose,
    execute_tools,
    llm_choices,
    llm_request,
    load_all_facts,
    moderate,
    passthrough,
    task,
    verify,
)
from graphagent.run import Context, ResumeOptions, RunOptions
from graphagent.testing import RecordedModel, Reply, ScriptedModel, next_node, record
from graphagent_strategies import Expert, route, single_run

if TYPE_CHECKING:
    from graphagent.protocols import Model, Store


class Mood(enum.Enum):
    GOOD = 1
    BAD = 2


A = TypeVar("A")


def ask_human(question: str, kind: type[A]) -> Node[object, A]:
    raise NotImplementedError


recall, ask, act, learn = load_all_facts(), llm_request(), execute_tools(), load_all_facts(name="again")


@tap
async def log(ctx: Context, text: str) -> None: ...


@tap(name="loud")
async def shout(ctx: Context, text: str) -> None: ...


@node
async def count(ctx: Context, text: str) -> int:
    return len(text)


@node(name="twice")
async def double(ctx: Context, number: int) -> int:
    return number * 2


@node
async def maybe(ctx: Context, number: int) -> str | float:
    return 1.0


@node
async def mend(ctx: Context, error: ValueError) -> bytes:
    return b""


@node
async def total(ctx: Context, counts: Iterable[int]) -> int:
    return sum(counts)


@node
async def feel(ctx: Context, text: str) -> Mood:
    return Mood.GOOD


class Counter:
    async def __call__(self, ctx: Context, text: str) -> int:
        return len(text)


assert_type(log, TapOf[str])
assert_type(shout, TapOf[str])
assert_type(count, Node[str, int])
assert_type(double, Node[int, int])
assert_type(node(Counter()), Node[str, int])

assistant = Strategy(
    "assistant",
    START >> recall >> ask,
    ask.on(ToolCalls) >> act >> ask,
    ask.on(str) >> learn >> END,
)
assert_type(assistant, Strategy[Prompt, str])

straight = Strategy("straight", START >> log >> count >> double >> END)
assert_type(straight, Strategy[str, int])

tapped = Strategy("tapped", START >> recall >> log >> END)
assert_type(tapped, Strategy[str, str])
assert_type(log.retry(attempts=2, wait=0).timeout(1), TapOf[str])
assert_type(recall.retry(attempts=2).timeout(1), Tap)
assert_type(log.on_error(ValueError), Outlet[str, str])
spared = Strategy("spared", START >> log >> END, log.on_error(ValueError).map(len) >> END)
assert_type(spared, Strategy[str, str | int])
quiet_tap = Strategy("quiet", START >> recall >> log >> END, recall.on_error(ValueError) >> log)
assert_type(quiet_tap, Strategy[str, str])

rules = [precedes(count, double), never_together(log, assistant, "double"), guarded(recall, by=log, before="twice")]
assert_type(rules, list[PathRule])
ruled = Strategy("ruled", START >> log >> count >> double >> END, rules=[precedes(count, double)])
assert_type(ruled, Strategy[str, int])
ruled_ends = Strategy("two", START >> maybe, maybe.on(str) >> count >> END, maybe.on(float) >> END, rules=rules)
assert_type(ruled_ends, Strategy[int, int | float])
assert_type(ruled.path_rules, tuple[PathRule, ...])

nested = Strategy("nested", START >> assistant >> count >> END)
assert_type(nested, Strategy[Prompt, int])

two_ends = Strategy("two", START >> maybe, maybe.on(str) >> count >> END, maybe.on(float) >> END)
assert_type(two_ends, Strategy[int, int | float])

both_types = Strategy("both", START >> maybe, maybe.on(str, float) >> END)
assert_type(both_types, Strategy[int, str | float])

mended = Strategy("mended", START >> count >> END, count.on_error(ValueError) >> mend >> END)
assert_type(mended, Strategy[str, int | bytes])

fan = Strategy("fan", START >> parallel(count, assistant) >> END)
assert_type(fan, Strategy[str, tuple[int, str]])
assert_type(parallel(count, feel, count), Node[str, tuple[int, Mood, int]])
assert_type(parallel(count, feel, failures="collect"), Node[str, tuple[int | NodeFailedError, Mood | NodeFailedError]])
assert_type(parallel(*[count, count]), Node[str, tuple[int, ...]])

mapped = Strategy("mapped", START >> each(count, limit=2) >> END)
assert_type(mapped, Strategy[Iterable[str], list[int]])
assert_type(each(count, failures="collect"), Node[Iterable[str], list[int | NodeFailedError]])
summed = Strategy("summed", START >> each(count) >> total >> END)
assert_type(summed, Strategy[Iterable[str], int])

raced = Strategy("raced", START >> race(count, feel) >> END)
assert_type(raced, Strategy[str, int | Mood])
assert_type(race(count, feel, mood := feel.named("mood")), Node[str, int | Mood])
assert_type(mood, Node[str, Mood])

approve = ask_human("Send it?", bool)
asked = Strategy("asked", START >> approve, approve.on(True) >> END, approve.on(False) >> END)
assert_type(asked, Strategy[object, bool])

moods = Strategy("moods", START >> feel, feel.on(Mood.GOOD) >> END, feel.on(Mood.BAD) >> END)
assert_type(moods, Strategy[str, Mood])

chosen = Strategy(
    "chosen",
    START >> count,
    count.when(lambda n: n > 3) >> double >> END,
    count.when(lambda ctx, n: n > 1) >> END,
    count.otherwise() >> END,
)
assert_type(chosen, Strategy[str, int])

changed = Strategy("changed", START >> count, count.when(lambda n: n > 3).map(str) >> END, count.otherwise() >> END)
assert_type(changed, Strategy[str, str | int])

patient = Strategy("patient", START >> count.retry(attempts=3).timeout(5.0) >> END)
assert_type(patient, Strategy[str, int])
assert_type(count.retry(attempts=3, wait=0.5, errors=(ValueError, OSError)).timeout(5.0).named("slow"), Node[str, int])
assert_type(straight.retry(attempts=2), Strategy[str, int])
assert_type(straight.using(max_nodes=5).named("short"), Strategy[str, int])


def about(number: int) -> str:
    return f"What of {number}?"


assert_type(task(), Strategy[Prompt, str])
assert_type(task("Count {input}."), Strategy[str, str])
assert_type(task(about, tools=[]), Strategy[int, str])
assert_type(task(output=int), Strategy[Prompt, int])
assert_type(task("Count {input}.", output=int), Strategy[str, int])
assert_type(task(about, output=Mood, max_turns=3), Strategy[int, Mood])
assert_type(llm_request(tools="required"), Node[Prompt, ToolCalls])

assert_type(verify("It is short."), Strategy[str, Accepted[str] | Rejected[str]])
assert_type(verify("It is even.", int), Strategy[int, Accepted[int] | Rejected[int]])
assert_type(verify(about), Strategy[int, Accepted[int] | Rejected[int]])
draft, check = llm_request(tools=False), verify("It is short.")
drafted = Strategy(
    "drafted",
    START >> draft >> check,
    check.on(Accepted[str]) >> END,
    check.on(Rejected).map(Rejected[str].to_prompt) >> draft,
)
assert_type(drafted, Strategy[Prompt, Accepted[str]])


@node
async def send(ctx: Context, letter: Approved[str]) -> int:
    return len(letter.value)


@node
async def post(ctx: Context, number: Approved[int]) -> int:
    return number.value + 1


assert_type(approval("Send it?"), Node[str, Approved[str] | Denied[str]])
assert_type(approval("Count it?", int), Node[int, Approved[int] | Denied[int]])
assert_type(approval(about), Node[int, Approved[int] | Denied[int]])
sure, number_sure = approval("Send it?"), approval(about, name="number")
letters = Strategy(
    "letters",
    START >> draft >> sure,
    sure.on(Approved) >> send >> END,
    sure.on(Denied).map(Denied[str].to_prompt) >> draft,
)
assert_type(letters, Strategy[Prompt, int])
texts = Strategy(
    "texts",
    START >> draft >> sure,
    sure.on(Approved).map(lambda approved: approved.value) >> count >> END,
    sure.on(Denied[str]) >> END,
)
assert_type(texts, Strategy[Prompt, int | Denied[str]])
numbers = Strategy(
    "numbers",
    START >> count >> number_sure,
    number_sure.on(Approved[int]) >> post >> END,
    number_sure.on(Denied[int]).map(lambda denied: denied.reason) >> END,
)
assert_type(numbers, Strategy[str, int | str])


def harmless(text: str) -> Moderation:
    return Moderation(flagged=False)


def first(answers: list[int]) -> int:
    return 0


async def last(ctx: Context, answers: list[str]) -> int:
    return -1


assert_type(moderate(harmless), Node[str, str | Flagged[str]])
assert_type(moderate("Be kind."), Node[str, str | Flagged[str]])
assert_type(moderate(OpenAIModerator(), ToolResults), Node[ToolResults, ToolResults | Flagged[ToolResults]])
pure = moderate(harmless)
kept = Strategy("kept", START >> draft >> pure, pure.on(Flagged[str]) >> END, pure.on(str) >> count >> END)
assert_type(kept, Strategy[Prompt, Flagged[str] | int])

assert_type(llm_choices(3), Node[Prompt, list[str]])
assert_type(llm_choices(output=int), Node[Prompt, list[int]])
assert_type(choose("The best."), Node[list[str], str])
assert_type(choose("The best.", int), Node[list[int], int])
assert_type(choose(first), Node[list[int], int])
assert_type(choose(last), Node[list[str], str])
assert_type(Strategy("best", START >> llm_choices() >> choose(last) >> END), Strategy[Prompt, str])
assert_type(straight.using(tools=select_tools(max_tools=3)), Strategy[str, int])

nothing = Strategy("nothing", START >> END)
assert_type(nothing, Strategy[Any, Any])

eight = Strategy(
    "eight",
    START >> count,
    count.on(1) >> END,
    count.on(2).map(str) >> END,
    count.on(3).map(float) >> END,
    count.on(4).map(lambda n: b"") >> END,
    count.on(5) >> double >> END,
    count.on_error(ValueError) >> END,
    count.otherwise().map(lambda n: n > 1) >> END,
)
assert_type(eight, Strategy[str, int | str | float | bytes | ValueError | bool])

many: Strategy[str, int] = Strategy(
    "many", START >> count, *[count.on(n) >> END for n in range(20)], count.otherwise() >> END
)

element: Tap | TapOf[Any] | Node[Any, Any] = recall


@tap
async def anything(ctx: Context, value: object) -> None: ...


assert_type(anything, Tap)
watched = Strategy("watched", START >> anything >> count >> END)
assert_type(watched, Strategy[str, int])

assert_type(llm_request(), Node[Prompt, str | ToolCalls])
assert_type(llm_request(tools=False), Node[Prompt, str])
assert_type(llm_request(force="search"), Node[Prompt, ToolCalls])
assert_type(llm_request(output=Mood), Node[Prompt, Mood])
assert_type(llm_request(output=Mood, tools=True), Node[Prompt, Mood | ToolCalls])
assert_type(execute_tools(limit=4), Node[ToolCalls, ToolResults])
assert_type(passthrough(bool), Node[bool, bool])


@tool
async def fibonacci(n: int) -> int:
    """The n-th Fibonacci number."""
    return n


script: list[Reply] = [ToolCalls([ToolCall("fibonacci", {"n": 20})]), "6765"]
agent: Agent[str, str] = Agent(assistant, model=ScriptedModel(script), tools=[fibonacci])
other = Agent(assistant, model=ScriptedModel(["Hello!", {"values": ["Oslo"]}, [1, 2], OSError("down")]))
assert_type(other, Agent[Prompt, str])
assert_type(agent.install(AgentMemory, provider=FileMemoryProvider("memory"), product_name="app"), AgentMemory)
agent.on(NodeFinished, lambda event: print(event.node))


@node
async def now(ctx: Context, nothing: None) -> float:
    ctx.feature(AgentMemory)
    return 0.0


async def use() -> None:
    assert_type(await agent.run("hello"), RunResult[str])
    run = agent.start("hello")
    run.on(NodeFinished, lambda event: print(event.node))
    assert_type((await Agent(Strategy("now", START >> now >> END)).run()).output, float)
    assert_type(agent.run_sync("hello").output, str)
    options: RunOptions = {"owner": "ada", "thread": "t"}
    assert_type(await agent.run("hello", **options), RunResult[str])
    answered: ResumeOptions = {"owner": "ada", "answer": True}
    assert_type(await agent.resume("r", **answered), RunResult[str])


# What a run is passed as deps
class Db:
    async def find(self, text: str) -> int:
        raise NotImplementedError


@node
async def look_up(ctx: Context[Db], text: str) -> int:
    assert_type(ctx.deps, Db)
    return await ctx.deps.find(text)


@tap
async def watch(ctx: Context[Db], value: object) -> None:
    assert_type(ctx.deps, Db)


@node
async def either(ctx: Context[Db | None], text: str) -> str:
    assert_type(ctx.deps, Db | None)
    return text


@node
async def without(ctx: Context, text: str) -> str:
    assert_type(ctx.deps, None)
    return text


@tool
async def find(text: str, ctx: Context[Db]) -> int:
    """Look something up."""
    return await ctx.deps.find(text)


def is_known(ctx: Context[Db], number: int) -> bool:
    return bool(ctx.deps) and number > 1


async def any_context(ctx: Context[Any], base: Context[object]) -> None: ...


async def passes_on(ctx: Context[Db]) -> None:
    await any_context(ctx, ctx)


class Finder:
    async def __call__(self, ctx: Context[Db], text: str) -> int:
        return await ctx.deps.find(text)


assert_type(look_up, Node[str, int])
assert_type(watch, Tap)
looking = Strategy(
    "looking",
    START >> either >> without >> watch >> look_up,
    look_up.when(is_known) >> END,
    look_up.otherwise().map(str) >> node(Finder()) >> END,
)
assert_type(looking, Strategy[str, int])


async def with_deps(agent: Agent[str, int], quiet: Agent[None, int]) -> None:
    agent = Agent(looking, tools=[find])
    assert_type(await agent.run("a", deps=Db()), RunResult[int])
    assert_type(await agent.start("a", deps=Db()).finish(), RunResult[int])
    assert_type(await agent.resume("r", deps=Db()), RunResult[int])
    assert_type(await agent.fork("r", at=1, deps=Db()), RunResult[int])
    assert_type(await agent.rerun("r", deps=Db()), RunResult[int])
    assert_type((await agent.read("r", deps=Db())).output, int)
    assert_type(agent.run_sync("a", deps=Db()), RunResult[int])
    assert_type(await quiet.run(deps=Db()), RunResult[int])
    async with agent.stream("a", deps=Db()) as events:
        assert_type(events.result, RunResult[int])


# Models around models


def wrapped(model: Model, store: Store) -> Model:
    """Every wrapper is a model of a model."""
    model = FallbackModel(model, RetryModel(model, 3), on=(ConnectionError, TimeoutError))
    model = FallbackModel(model, model, on=lambda error: "quota" in str(error))
    model = PricedModel(PricedModel(model, {"small": Prices(1, "2")}))
    return RecordedModel("a.json", CachedModel(LimitedModel(model, per_minute=60), store, ttl=60))


def path_of(agent: Agent[str, str], strategy: Strategy[str, str]) -> str:
    """`...` is a part of a path."""
    record(agent).assert_path("ask", ..., "answer")
    return next_node(strategy, "ask", "text", ctx=None)


@node
async def delegates(ctx: Context, text: str) -> int:
    assert_type(await ctx.run_agent(agent, text), str)
    return len(await ctx.run_agent(agent, text))


assert_type(Strategy("desk", START >> agent.as_node() >> delegates >> END), Strategy[str, int])


def routed(one: Agent[Prompt, str]) -> Strategy[Prompt, str]:
    """An expert is a strategy, or an agent as a node."""
    return route({"a": Expert("these", one.as_node()), "b": Expert("those", single_run())})
