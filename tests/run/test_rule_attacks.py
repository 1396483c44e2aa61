"""Attempts to break a rule as a strategy is executed. In each, something is to be done that a rule forbids, and it is not begun."""

from __future__ import annotations

import functools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from anyio.lowlevel import checkpoint

from graphagent import END, START, Agent, Context, Strategy, node, tap, tool
from graphagent.errors import RuleError, StrategyChangedError, ToolError
from graphagent.events import NodeStarted, ToolCalled
from graphagent.graph import each, guarded, never_together, parallel, precedes, race, select_tools
from graphagent.llm import Tool, ToolCall, ToolCalls
from graphagent.nodes import ask_human, execute_tools, llm_request
from graphagent.protocols import Feature
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel

DONE: list[str] = []
"""What was done, in order."""


def doing(name: str) -> Any:
    """Make a node that says that it was executed."""

    async def do(ctx: Context, x: str) -> str:
        DONE.append(name)
        return x

    return node(name=name)(do)


approve, pay, search, moderate, same = map(doing, ("approve", "pay", "search", "moderate", "same"))


@node
async def wait(ctx: Context, x: str) -> str:
    await ctx.ask("Go on?")
    return x


@node
async def fails(ctx: Context, x: str) -> str:
    raise OSError(x)


@node
async def never(ctx: Context, x: str) -> str:
    await ctx.sleep_until(datetime.now(UTC) + timedelta(days=1))
    return x


@tap
async def note(ctx: Context, x: str) -> None:
    DONE.append("note")


@tool
def refund() -> str:
    """Pay money back."""
    DONE.append("pay")
    return "refunded"


@tool
def look() -> str:
    """Look something up."""
    DONE.append("search")
    return "found"


@tool
def broken() -> str:
    """Check an account."""
    raise OSError("no connection")


@node
async def seldom(ctx: Context, x: str) -> str:
    return x if x == "x" else str((await ctx.call_tool(look, ToolCall("look", {}))).content)


def calling(called: Any = refund, name: str = "act") -> Any:
    """Make a node that calls a tool."""

    async def act(ctx: Context, x: str) -> str:
        return str((await ctx.call_tool(called, ToolCall(called.name, {}, id=name))).content)

    return node(name=name)(act)


def when(name: str) -> Any:
    """Make a node that ends when something was done."""

    async def wait_for(ctx: Context, x: str) -> str:
        while name not in DONE:
            await checkpoint()
        return x

    return node(name=f"after {name}")(wait_for)


def text(value: object) -> str:
    return "x"


def chain(*nodes: Any, rules: Any = (), name: str = "s") -> Any:
    path: Any = START
    for one in nodes:
        path = path >> one
    return Strategy(name, path >> END, rules=rules)


def apart(kept: Any, *nodes: Any, rule: Any) -> Any:
    """Make a strategy that executes some nodes, or another one, and never both."""
    path: Any = same.otherwise()
    for one in nodes:
        path = path >> one
    return Strategy("s", START >> same, same.on("other") >> kept >> END, path >> END, rules=[rule])


APPROVED, APART = precedes(approve, pay), never_together(search, pay)
GUARDED = guarded(search, by=moderate, before=pay)
REFUNDED = precedes(approve, refund)


def skipping(*paths: str) -> type[Feature]:
    """Make middleware that passes on the input of some nodes, and does not execute them."""

    class Skip(Feature):
        async def around_node(self, ctx: Any, value: Any, proceed: Any) -> Any:
            return value if ctx.node in paths else await proceed(value)

    return Skip


class Catches(Feature):
    async def around_node(self, ctx: Any, value: Any, proceed: Any) -> Any:
        try:
            return await proceed(value)
        except Exception:
            return "caught"


def agent(strategy: Any, *features: Any, **settings: Any) -> Any:
    made = Agent(strategy, **settings)
    made.on(NodeStarted, lambda event: started.append(event.node.rpartition("/")[2]))
    made.on(ToolCalled, lambda event: started.append(event.call.name))
    for feature in features:
        made.install(feature)
    return made


started: list[str] = []
"""The nodes and tool calls of which somebody heard that they began."""


def run(strategy: Any, *features: Any, **settings: Any) -> Any:
    return lambda: agent(strategy, *features, **settings).run("x")


def changed(before: Any, after: Any) -> Any:
    """Begin a run with one strategy, and continue it with another."""

    async def attack() -> None:
        store = MemoryStore()
        await Agent(before, store=store).run("x", run_id="r")
        await agent(after, store=store).resume("r", answer="yes", allow_changed=True)

    return attack


def forked(old: Any, new: Any, /, **where: Any) -> Any:
    """End a run with one strategy, and continue a fork of it with another."""

    async def attack() -> None:
        store = MemoryStore()
        await Agent(old, store=store).run("x", run_id="r")
        DONE.remove("pay")
        await agent(new, store=store).fork("r", allow_changed=True, **where)

    return attack


async def a_fork_of_a_fork() -> None:
    store = MemoryStore()
    old = Agent(chain(search, pay), store=store)
    await old.run("x", run_id="r")
    await old.fork("r", before="pay", run_id="f")
    DONE.clear()
    await (
        await agent(apart(search, pay, rule=APART), store=store).fork("f", before="pay", allow_changed=True)
    ).finish()


def again(before: Any, after: Any, *features: Any) -> Any:
    """Execute a run again with another agent, on its recorded outcomes."""

    async def attack() -> None:
        store = MemoryStore()
        await Agent(before, store=store).run("x", run_id="r")
        DONE.clear()
        await agent(after, *features, store=store).rerun("r")

    return attack


def child(inner: Any, *, rules: Any) -> Any:
    """Have a sub-agent execute what the rules of its caller are about."""
    return run(chain(delegating(inner), approve, pay, rules=rules))


def chat(*replies: Any, rules: Any, tools: Any) -> Any:
    """Have a model call tools."""
    ask, act = llm_request(), execute_tools()
    strategy = Strategy(
        "s", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> approve >> pay >> END, rules=rules
    )
    return lambda: agent(strategy, model=ScriptedModel(list(replies)), tools=tools).run("x")


def twice(first: Any, then: Any, *, rules: Any, whole: bool = False) -> Any:
    """Make a strategy whose first attempt executes one node and fails, and whose second one executes another."""
    attempts: list[int] = []

    async def choose(ctx: Context, x: str) -> int:
        attempts.append(1)  # each run of the strategy makes two
        return len(attempts) % 2

    one = node(choose)
    paths: Any = (
        START >> one,
        one.on(1).map(text) >> first >> fails >> END,
        one.otherwise().map(text) >> then >> END,
    )
    if whole:
        return Strategy("s", *paths, rules=rules).retry(attempts=2, wait=0)
    return chain(Strategy("inner", *paths).retry(attempts=2, wait=0), rules=rules)


def conversation(*strategies: Any, by_steps: bool = False) -> Any:
    """Continue a conversation with one strategy after the other; in the last run, middleware skips the approval."""

    async def attack() -> None:
        store, given = MemoryStore(), dict[str, Any]()
        for number, strategy in enumerate(strategies, 1):
            last = number == len(strategies)
            DONE.clear()
            started.clear()
            result = await agent(strategy, *[skipping("approve")] * last, store=store).run(
                "x", **(given if by_steps else {"thread": "t"})
            )
            given = {"steps": result.memory}

    return attack


def entered_twice() -> Any:
    """A subgraph keeps its rules each time that it is entered."""

    class SkipSecond(Feature):
        async def around_node(self, ctx: Any, value: Any, proceed: Any) -> Any:
            return value if ctx.node == "inner/approve" and "pay" in DONE else await proceed(value)

    inner = chain(approve, pay, rules=[APPROVED], name="inner")

    async def attack() -> None:
        await agent(Strategy("s", START >> inner, inner.when(first_time) >> inner, inner >> END), SkipSecond).run("x")

    def first_time(value: str) -> bool:
        return DONE.count("pay") == 1

    return attack


def caught_in_a_node() -> Any:
    async def tries(ctx: Context, x: str) -> str:
        try:
            await ctx.call_tool(refund, ToolCall("refund", {}, id="1"))
        except RuleError:
            DONE.append("caught")
        await ctx.call_tool(refund, ToolCall("refund", {}, id="2"))
        return x

    return run(chain(node(tries), approve, rules=[REFUNDED]))


def with_error_edge() -> Any:
    return Strategy(
        "s", START >> approve >> pay >> END, pay.on_error(Exception).map(text) >> same >> END, rules=[APPROVED]
    )


def running(one: Any) -> Any:
    """Make a node that runs an agent."""

    async def runs(ctx: Context, x: str) -> str:
        return str(await ctx.run_agent(one, x))

    return node(runs)


def calling_text(called: Any) -> Any:
    """Make a node that passes its text to a tool."""

    async def act(ctx: Context, x: str) -> str:
        arguments = dict.fromkeys(called.parameters["properties"], x)
        return str((await ctx.call_tool(called, ToolCall(called.name, arguments, id="1"))).content)

    return node(act)


def delegating(inner: Any) -> Any:
    """Make a node that runs an agent."""
    helper = Agent(inner, name="helper", description="Helps.")

    async def call(ctx: Context, x: str) -> str:
        return str(await ctx.run_agent(helper, x))

    return node(call)


@node
async def any_text(ctx: Context, x: object) -> str:
    return "x"


@node
async def as_list(ctx: Context, x: str) -> list[str]:
    return [x, x]


def edit(snapshot: Any) -> None:
    snapshot.value = "y"


def talk(*called: Any, tools: Any, rules: Any, then: Any = (approve,), **settings: Any) -> Any:
    """Have a model call tools at once, in a subgraph; what the rules name comes later."""
    calls = ToolCalls([ToolCall(name, {"task": "x"} if task else {}) for name, task in called])
    model = ScriptedModel([calls, "done"])
    return run(chain(helper(), *then, rules=rules), *settings.pop("features", ()), model=model, tools=tools, **settings)


def helper(name: str = "helper") -> Any:
    ask, act = llm_request(), execute_tools()
    return Strategy(name, START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)


PAYING, CHECKING = chain(pay, name="paying"), chain(search, name="checking")
"""Strategies that rules name, and that are executed as agents."""
ORDERED, GIVEN = precedes(approve, PAYING), precedes(approve, PAYING.as_tool("Pays."))


def clerk(strategy: Any = PAYING, **settings: Any) -> Any:
    """Make an agent of a strategy, which may be a tool."""
    return Agent(strategy, name="clerk", description="Works.", **settings)


def clerk_node(strategy: Any = PAYING) -> Any:
    return clerk(strategy).as_node()


CLERK = clerk()


def later(*nodes: Any, rules: Any = (ORDERED,)) -> Any:
    """Make a strategy that executes some nodes before the approval, which middleware skips, and the payment."""
    return chain(approve, *nodes, rules=rules)


BROKEN = chain(fails, name="broken")


@node
async def tries_broken(ctx: Context, x: str) -> str:
    try:
        return await ctx.run_agent(clerk(BROKEN), x)
    except ToolError:
        return x


def choosing(strategy: Any) -> Any:
    """Make a subgraph whose tools a model selects."""
    return helper().using(tools=select_tools([strategy.as_tool("Works."), look]))


class Bank:
    @tool
    async def refund(self) -> str:
        """Pay money back."""
        DONE.append("pay")
        return "refunded"

    @staticmethod
    @tool
    def give() -> str:
        """Pay money back."""
        DONE.append("pay")
        return "given"

    def bare(self) -> str:
        """Pay money back."""
        DONE.append("pay")
        return "given"


class Branch(Bank):
    """A bank that inherits its tools."""


BANK = Bank()


async def both(ctx: Context, x: str) -> str:
    """Pay, as a node or as a tool."""
    DONE.append("pay")
    return x


@functools.wraps(refund.function)
def wrapped() -> str:
    return refund.function()


def called_as(called: Any, rule: Any, **settings: Any) -> Any:
    """Have a node call a tool before the approval."""
    return run(chain(calling(called), approve, rules=[precedes(approve, rule)]), **settings)


class Shop(Feature):
    """Has a tool, and offers it beside others."""

    tools = (refund,)


GUARDED_LATER = guarded(search, by=same, before=pay)
guard = doing("guard")
skip = skipping("approve")


def attacks() -> dict[str, dict[str, Any]]:
    """Make the attacks, whose models each answer once."""
    return {
        "middleware that does not proceed": {
            "in memory": run(chain(approve, pay, rules=[APPROVED]), skip),
            "in a store": run(chain(approve, pay, rules=[APPROVED]), skip, store=MemoryStore()),
            "around a copy": run(chain(approve.named("ok").retry(attempts=2), pay, rules=[APPROVED]), skipping("ok")),
            "around a subgraph": run(chain(chain(approve, name="sub"), pay, rules=[APPROVED]), skipping("sub")),
            "in a subgraph": run(chain(chain(approve, name="sub"), pay, rules=[APPROVED]), skipping("sub/approve")),
            "around a tap": run(chain(same, note, pay, rules=[precedes(note, pay)]), skipping("note")),
            "around a guard": run(chain(search, moderate, pay, rules=[GUARDED]), skipping("moderate")),
            "in a branch": run(
                chain(parallel(approve, same, name="both"), any_text, pay, rules=[APPROVED]), skipping("both/0/approve")
            ),
        },
        "a strategy that was changed": {
            "there was no approval": changed(chain(wait, pay), chain(approve, wait, pay, rules=[APPROVED])),
            "another node had its name": changed(
                chain(same.named("approve"), wait, pay), chain(approve, wait, pay, rules=[APPROVED])
            ),
            "another guard had its name": changed(
                chain(search, same.named("moderate"), wait, pay), chain(search, moderate, wait, pay, rules=[GUARDED])
            ),
            "what excludes it was executed": changed(chain(search, wait, pay), apart(search, wait, pay, rule=APART)),
            "the source was executed": changed(chain(search, wait, pay), apart(search, wait, pay, rule=GUARDED_LATER)),
            "it was executed in a subgraph": changed(
                chain(chain(search, name="sub"), wait, pay), apart(chain(search, name="sub"), wait, pay, rule=APART)
            ),
            "it was executed in a branch": changed(
                chain(parallel(search, same, name="both"), any_text, wait, pay), apart(search, wait, pay, rule=APART)
            ),
            "it was executed in an attempt": changed(
                chain(twice(search, same, rules=()), wait, pay), apart(search, wait, pay, rule=APART)
            ),
            "a tool was called": changed(
                chain(calling(look), wait, pay), apart(calling(look), wait, pay, rule=never_together(look, pay))
            ),
            "a child executed it": changed(
                chain(delegating(chain(search)), wait, pay), apart(search, wait, pay, rule=APART)
            ),
        },
        "a prefix that was copied by a fork": {
            "after another node of the name": forked(
                chain(same.named("approve"), pay), chain(approve, pay, rules=[APPROVED]), after="approve"
            ),
            "before the payment": forked(
                chain(same.named("approve"), pay), chain(approve, pay, rules=[APPROVED]), before="pay"
            ),
            "with an edit": forked(
                chain(same.named("approve"), pay), chain(approve, pay, rules=[APPROVED]), before="pay", edit=edit
            ),
            "of what excludes it": forked(chain(search, pay), apart(search, pay, rule=APART), before="pay"),
            "of a fork": a_fork_of_a_fork,
        },
        "a run that is executed again": {
            "without the approval": again(chain(approve, pay), chain(approve, pay, rules=[APPROVED]), skip),
            "without the guard": again(
                chain(search, moderate, pay), chain(search, moderate, pay, rules=[GUARDED]), skipping("moderate")
            ),
            "with a tool": again(chain(approve, calling()), chain(approve, calling(), rules=[REFUNDED]), skip),
            "with a subgraph": again(
                chain(chain(approve, name="sub"), pay),
                chain(chain(approve, name="sub"), pay, rules=[APPROVED]),
                skipping("sub"),
            ),
        },
        "a tool": {
            "too early": run(chain(calling(), approve, rules=[REFUNDED])),
            "under another name": run(chain(calling(replace(refund, name="give")), approve, rules=[REFUNDED])),
            "made again of its function": run(
                chain(calling(tool(name="give")(refund.function)), approve, rules=[REFUNDED])
            ),
            "made again of what it runs": run(
                chain(calling(Tool("give", "Pay.", {}, refund.run)), approve, rules=[REFUNDED])
            ),
            "called by a model": chat(ToolCall("refund", {}), rules=[REFUNDED], tools=[refund]),
            "called beside another": chat(
                ToolCalls([ToolCall("look", {}), ToolCall("refund", {})]),
                rules=[never_together(look, refund)],
                tools=[look, refund],
            ),
            "whose result comes from outside": run(
                chain(calling(replace(refund, deferred=True)), approve, rules=[REFUNDED])
            ),
            "after a source": run(chain(guard, search, calling(), rules=[guarded(search, by=guard, before=refund)])),
            "that is the source": run(chain(guard, calling(look), pay, rules=[guarded(look, by=guard, before=pay)])),
            "that excludes a node": run(chain(calling(look), pay, rules=[never_together(look, pay)])),
            "that had to come before, and failed": run(
                chain(calling(broken, "check"), calling(), rules=[precedes(broken, refund)])
            ),
            "that had to come before, and was not called": run(chain(seldom, pay, rules=[precedes(look, pay)])),
            "in a subgraph": run(chain(chain(calling(), name="sub"), approve, rules=[REFUNDED])),
            "for each item": run(
                chain(same.named("list"), as_list, each(calling()), any_text, approve, rules=[REFUNDED])
            ),
        },
        "a sub-agent": {
            "pays": child(chain(pay), rules=[APPROVED]),
            "pays under another name": child(chain(pay.named("x").retry(attempts=2)), rules=[APPROVED]),
            "pays in a subgraph": child(chain(chain(pay, name="deep")), rules=[APPROVED]),
            "calls a tool": child(chain(calling()), rules=[REFUNDED]),
            "of a sub-agent": child(chain(delegating(chain(pay))), rules=[APPROVED]),
            "did what excludes it": run(apart(search, delegating(chain(search)), pay, rule=APART)),
            "is called in a subgraph": run(
                chain(chain(delegating(chain(pay)), name="sub"), approve, pay, rules=[APPROVED])
            ),
        },
        "an agent whose strategy a rule names": {
            "as a node": run(later(clerk_node()), skip),
            "as a node, in a store": run(later(clerk_node()), skip, store=MemoryStore()),
            "as a copy of a node": run(later(clerk_node().retry(attempts=2, wait=0).timeout(9).named("x")), skip),
            "as a copy of a strategy": run(
                later(clerk_node(PAYING.named("x").retry(attempts=2).using(max_nodes=9))), skip
            ),
            "in a subgraph": run(later(chain(clerk_node(), name="sub")), skip),
            "in a branch": run(later(parallel(clerk_node(), same), any_text), skip),
            "in a race": run(later(race(clerk_node(), never)), skip),
            "for each item": run(later(as_list, each(clerk_node()), any_text), skip),
            "as a tool": talk(("clerk", 1), tools=[clerk()], rules=[ORDERED], then=(approve, PAYING)),
            "as a tool, in a store": talk(
                ("clerk", 1), tools=[clerk()], rules=[ORDERED], then=(approve, PAYING), store=MemoryStore()
            ),
            "as a tool that a person has to approve": talk(
                ("clerk", 1), tools=[clerk().as_tool(approve=True)], rules=[ORDERED], then=(approve, PAYING)
            ),
            "as the tool of a strategy": talk(
                ("paying", 1), tools=[PAYING.as_tool("Pays.")], rules=[ORDERED], then=(approve, PAYING)
            ),
            "as another tool of the strategy": talk(
                ("give", 1),
                tools=[PAYING.as_tool("Gives.", name="give")],
                rules=[GIVEN],
            ),
            "as a tool that a rule names, by a function": run(chain(delegating(PAYING), approve, rules=[GIVEN])),
            "as a tool that a rule names, as a node": run(later(clerk_node(), rules=[GIVEN]), skip),
            "as a tool that a model selects": run(
                chain(choosing(PAYING), approve, rules=[never_together(look, PAYING.as_tool("Gives.", name="give"))]),
                model=ScriptedModel(
                    [
                        {"value": ["paying", "look"]},
                        ToolCalls([ToolCall("look", {}), ToolCall("paying", {"task": "x"})]),
                        "done",
                    ]
                ),
            ),
            "by a function": run(chain(delegating(PAYING), approve, PAYING, rules=[ORDERED])),
            "of a sub-agent": run(chain(delegating(chain(delegating(PAYING))), approve, PAYING, rules=[ORDERED])),
            "of a sub-agent of a sub-agent": run(
                later(clerk_node(chain(clerk_node(chain(parallel(clerk_node(), same), any_text)))), rules=[GIVEN]), skip
            ),
            "inside of an agent that is a node": run(
                later(clerk_node(chain(PAYING, name="outer")), rules=[GIVEN]), skip
            ),
            "beside what excludes it, both as agents": talk(
                ("checking", 1),
                ("paying", 1),
                tools=[CHECKING.as_tool("Checks."), PAYING.as_tool("Pays.")],
                rules=[never_together(CHECKING.as_tool("Looks.", name="a"), PAYING.as_tool("Gives.", name="b"))],
            ),
            "after it was the source": run(
                chain(
                    guard, delegating(CHECKING), pay, rules=[guarded(CHECKING.as_tool("Checks."), by=guard, before=pay)]
                )
            ),
            "that had to come before, and failed": run(
                chain(tries_broken, pay, rules=[precedes(BROKEN.as_tool("Checks."), pay)])
            ),
            "that had to come before, in an attempt that was taken back": run(
                twice(clerk_node(CHECKING), calling(), rules=[precedes(CHECKING.as_tool("Checks."), refund)])
            ),
            "that had to come before, in a branch that was lost": run(
                chain(
                    race(chain(clerk_node(CHECKING), never, name="slow"), when("search")),
                    calling(),
                    rules=[precedes(CHECKING.as_tool("Checks."), refund)],
                )
            ),
            "that was executed before the rule": changed(
                chain(delegating(CHECKING), wait, pay), apart(CHECKING, wait, pay, rule=never_together(CHECKING, pay))
            ),
            "that was a node before the rule": changed(
                chain(clerk_node(CHECKING), wait, pay),
                apart(clerk_node(CHECKING), wait, pay, rule=never_together(CHECKING, pay)),
            ),
            "in a fork": forked(
                chain(same.named("approve"), clerk_node()),
                chain(approve, clerk_node(), rules=[ORDERED]),
                before="clerk",
            ),
            "in a run that is executed again": again(
                chain(approve, clerk_node()), chain(approve, clerk_node(), rules=[ORDERED]), skip
            ),
        },
        "an agent that a rule names": {
            "as another tool": run(
                chain(calling_text(CLERK.as_tool()), approve, rules=[precedes(approve, CLERK.as_tool(approve=True))])
            ),
            "as a node": run(later(CLERK.as_node(), rules=[precedes(approve, CLERK.as_tool())]), skip),
            "by a function": run(chain(running(CLERK), approve, rules=[precedes(approve, CLERK.as_tool())])),
            "as a tool, where the rule names its node": talk(
                ("clerk", 1), tools=[CLERK], then=(approve, CLERK.as_node()), rules=[precedes(approve, CLERK.as_node())]
            ),
        },
        "a method of another object": {
            "where the rule names that of the class": called_as(Bank().refund, Bank.refund),
            "where the rule names that of an object": called_as(Bank().refund, BANK.refund),
            "of the same object": called_as(BANK.refund, BANK.refund),
            "of a class that inherits it": called_as(Branch().refund, BANK.refund),
            "of a class, where the rule names that of one that inherits it": called_as(BANK.refund, Branch.refund),
            "under another name": called_as(replace(Bank().refund, name="give"), BANK.refund),
            "with a time limit": called_as(replace(Bank().refund, timeout=9), Bank.refund),
            "made again of what it runs": called_as(Tool("give", "Pay.", {}, Bank().refund.run), Bank.refund),
            "made again of its function": called_as(tool(name="give")(Bank().refund.function), Bank.refund),
            "called by a model": talk(("refund", 0), tools=[Bank().refund], rules=[precedes(approve, BANK.refund)]),
            "that is static": called_as(Bank().give, Bank.give),
            "that is static, under another name": called_as(replace(Branch.give, name="x"), BANK.give),
        },
        "a function in another form": {
            "as a partial": called_as(
                tool(name="give", description="Pay.")(functools.partial(refund.function)), refund
            ),
            "as a wrapper": called_as(tool(name="give")(wrapped), refund),
            "as the call of the tool": called_as(Tool("give", "Pay.", {}, refund.call), refund),
            "as the call of the tool of an object": called_as(
                Tool("give", "Pay.", {}, Bank().refund.call), Bank.refund
            ),
            "with another thing to run": called_as(replace(refund, run=refund.call, name="give"), refund),
            "as a node, where the rule names the tool": run(
                later(node(both).named("x"), rules=[precedes(approve, tool(both))]), skip
            ),
            "as a tool, where the rule names the node": run(
                chain(calling_text(tool(both)), approve, node(both), rules=[precedes(approve, node(both))])
            ),
            "as a partial that is a node": run(
                later(node(name="x")(functools.partial(both)), rules=[precedes(approve, tool(both))]), skip
            ),
        },
        "a tool from elsewhere": {
            "of a feature": talk(("refund", 0), tools=[look], rules=[REFUNDED], features=[Shop]),
            "of a caller, in the tool of a strategy": run(
                chain(helper(), approve, rules=[REFUNDED]),
                model=ScriptedModel([ToolCall("inner", {"task": "x"}), ToolCall("refund", {}), "a", "b"]),
                tools=[refund, helper("inner").as_tool("Helps.")],
            ),
            "of an agent that is a node": run(
                later(clerk(helper("inner"), tools=[refund]).as_node(), rules=[REFUNDED]),
                skip,
                model=ScriptedModel([ToolCall("refund", {}), "a", "b"]),
            ),
            "that a model selects": run(
                chain(
                    helper().using(tools=select_tools([refund, look])), approve, rules=[never_together(refund, look)]
                ),
                model=ScriptedModel(
                    [{"value": ["refund", "look"]}, ToolCalls([ToolCall("look", {}), ToolCall("refund", {})]), "d"]
                ),
            ),
        },
        "an error that is caught": {
            "by an edge": run(with_error_edge(), skip),
            "by a retry": run(chain(approve, pay.retry(attempts=3, wait=0), rules=[APPROVED]), skip),
            "by a subgraph that is tried again": run(
                chain(approve, chain(pay, name="sub").retry(attempts=2, wait=0), rules=[APPROVED]), skip
            ),
            "by a fork that collects": run(
                chain(approve, parallel(pay, same, failures="collect"), any_text, rules=[APPROVED]), skip
            ),
            "by a race": run(chain(approve, race(pay, never), rules=[APPROVED]), skip),
            "by middleware": run(chain(approve, pay, rules=[APPROVED]), Catches, skip),
            "by the node that calls a tool": caught_in_a_node(),
        },
        "an attempt that was taken back": {
            "with an approval": run(twice(approve, calling(), rules=[REFUNDED])),
            "with an approval, in a store": run(twice(approve, calling(), rules=[REFUNDED]), store=MemoryStore()),
            "of the strategy as a whole": run(twice(approve, calling(), rules=[REFUNDED], whole=True)),
            "with what excludes it": run(twice(calling(look), pay, rules=[never_together(look, pay)])),
            "with a guard": run(
                chain(calling(look), twice(guard, calling(), rules=()), rules=[guarded(look, by=guard, before=refund)])
            ),
        },
        "a branch that was lost": {
            "with an approval": run(
                chain(race(chain(approve, never, name="slow"), when("approve")), calling(), rules=[REFUNDED])
            ),
            "with an approval, in a store": run(
                chain(race(chain(approve, never, name="slow"), when("approve")), calling(), rules=[REFUNDED]),
                store=MemoryStore(),
            ),
            "with what excludes it": run(
                chain(
                    race(chain(search, never, name="slow"), when("search")),
                    calling(),
                    rules=[never_together(search, refund)],
                )
            ),
            "with a source": run(
                chain(
                    guard,
                    race(chain(search, never, name="slow"), when("search")),
                    calling(),
                    rules=[guarded(search, by=guard, before=refund)],
                )
            ),
        },
        "what was executed elsewhere": {
            "in the run before of the thread": conversation(chain(approve), chain(approve, pay, rules=[APPROVED])),
            "in a run whose steps are taken": conversation(
                chain(approve), chain(approve, pay, rules=[APPROVED]), by_steps=True
            ),
            "in a run of the same strategy": conversation(*[chain(approve, pay, rules=[APPROVED])] * 2),
            "when the subgraph was entered before": entered_twice(),
            "in the item before": run(
                chain(as_list, each(chain(approve, pay, rules=[APPROVED], name="one"), limit=1), any_text),
                skipping("each/1/one/approve"),
            ),
        },
    }


ATTACKS = attacks()
CASES = [(kind, name) for kind, cases in ATTACKS.items() for name in cases]


@pytest.mark.parametrize(("kind", "name"), CASES, ids=[f"{kind}: {name}" for kind, name in CASES])
async def test_no_attack_breaks_a_rule(kind: str, name: str):
    """The run ends with an error that names the rule, the node and the path; it was not begun, and nobody heard that it was."""
    DONE.clear()
    started.clear()
    with pytest.raises(RuleError) as caught:
        await attacks()[kind][name]()
    error = caught.value
    assert error.path[0] == "START"
    assert error.path[-1] == error.node
    assert str(error).startswith(f"{error.node!r} was not begun, by the rule {error.rule}: ")
    assert error.run_id
    kept = kind == "what was executed elsewhere" and ("entered" in name or "item" in name)
    assert DONE.count("pay") == (1 if kept else 0)
    assert {"pay", "refund", "give"}.isdisjoint(started) or kept


async def test_what_has_begun_as_another_node_is_not_continued_as_one_that_a_rule_names():
    """The answer to one question is none to another, whatever the name of the node that asks."""
    mine, other = ask_human("Send it?", str, name="ask"), ask_human("Your name?", str, name="ask")
    DONE.clear()
    store = MemoryStore()
    await Agent(chain(other, pay), store=store).run("x", run_id="r")
    for allow_changed in (False, True):
        with pytest.raises(
            StrategyChangedError, match="node 'ask', which has begun and which a rule names, is another"
        ):
            await Agent(chain(mine, pay, rules=[precedes(mine, pay)]), store=store).resume(
                "r", answer="Ada", allow_changed=allow_changed
            )
    assert DONE == []
    await Agent(chain(other, pay, rules=[precedes(other, pay)]), store=store).resume("r", answer="Ada")
    assert DONE == ["pay"]


@node
async def looks_and_asks(ctx: Context, x: str) -> str:
    await ctx.call_tool(look, ToolCall("look", {}, id="look"))
    await ctx.ask("Go on?")
    return x


SEARCHING, WAITING = chain(search, wait, name="searching"), chain(wait, name="waiting")
CHECKED = precedes(CHECKING, pay)


def resumed(strategy: Any) -> Any:
    return changed(strategy, strategy)


def honest() -> dict[str, Any]:
    """Make runs that keep their rules, whose models each answer once."""
    return {
        "what continues called a tool itself": resumed(
            chain(looks_and_asks, approve, pay, rules=[guarded(look, by=approve, before=looks_and_asks)])
        ),
        "what continues executed a node itself": resumed(
            chain(SEARCHING, pay, rules=[guarded(search, by=wait, before=SEARCHING)])
        ),
        "what continues did so under a newer rule": changed(
            chain(looks_and_asks, approve, pay),
            chain(looks_and_asks, approve, pay, rules=[guarded(look, by=approve, before=looks_and_asks)]),
        ),
        "the approval came before the rule": changed(
            chain(approve, wait, pay), chain(approve, wait, pay, rules=[APPROVED])
        ),
        "the approval was a copy": changed(
            chain(approve.named("ok"), wait, pay), chain(approve, wait, pay.named("pay"), rules=[APPROVED])
        ),
        "the approval was in a subgraph": changed(
            chain(chain(approve, name="sub"), wait, pay), chain(chain(approve, name="sub"), wait, pay, rules=[APPROVED])
        ),
        "the approval was in a branch": changed(
            chain(parallel(approve, same, name="both"), any_text, wait, pay),
            chain(approve, wait, pay, rules=[APPROVED]),
        ),
        "the approval was in a sub-agent": changed(
            chain(delegating(chain(approve)), wait, pay), chain(approve, wait, pay, rules=[APPROVED])
        ),
        "the guard came after the source": changed(
            chain(search, moderate, wait, pay), chain(search, moderate, wait, pay, rules=[GUARDED])
        ),
        "what excludes it was not executed": changed(chain(same, wait, pay), apart(search, wait, pay, rule=APART)),
        "there was no source": changed(chain(same, wait, pay), apart(search, wait, pay, rule=GUARDED_LATER)),
        "a fork": forked(chain(approve, pay), chain(approve, pay, rules=[APPROVED]), before="pay"),
        "a fork without what excludes it": forked(chain(same, pay), apart(search, pay, rule=APART), before="pay"),
        "a run that is executed again": again(chain(approve, pay), chain(approve, pay, rules=[APPROVED])),
        "a tool after the approval": run(chain(approve, calling(), rules=[REFUNDED])),
        "a tool that came before": run(chain(calling(look), pay, rules=[precedes(look, pay)]), store=MemoryStore()),
        "a tool that came before the rule": changed(
            chain(calling(look), wait, pay), chain(calling(look), wait, pay, rules=[precedes(look, pay)])
        ),
        "a tool and a guard": run(
            chain(calling(look, "find"), guard, calling(), rules=[guarded(look, by=guard, before=refund)]),
            store=MemoryStore(),
        ),
        "a sub-agent after the approval": run(chain(approve, delegating(chain(calling())), rules=[REFUNDED])),
        "a sub-agent after the approval of its caller": run(
            chain(approve, delegating(chain(pay)), same, pay.named("later"), rules=[APPROVED])
        ),
        "an attempt after the one with the approval": run(
            twice(same, chain(approve, calling(), name="both"), rules=[REFUNDED])
        ),
        "a race that the approval won": run(
            chain(race(chain(approve, name="a"), chain(same, never, name="b")), calling(), rules=[REFUNDED])
        ),
        "middleware around it": run(chain(approve, pay, rules=[APPROVED]), Catches),
        "an agent after the approval": run(chain(approve, clerk_node(), rules=[ORDERED])),
        "an agent that came before, as a node": run(
            chain(clerk_node(CHECKING), pay, rules=[CHECKED]), store=MemoryStore()
        ),
        "an agent that came before, by a function": run(
            chain(delegating(CHECKING), pay, rules=[precedes(CHECKING.as_tool("Checks."), pay)]), store=MemoryStore()
        ),
        "an agent that came before, as a tool": talk(
            ("clerk", 1), tools=[clerk(CHECKING)], then=(pay,), rules=[precedes(CHECKING.as_tool("Checks."), pay)]
        ),
        "an agent that came before the rule, as a node": changed(
            chain(clerk_node(CHECKING), wait, pay), chain(clerk_node(CHECKING), wait, pay, rules=[CHECKED])
        ),
        "an agent that came before the rule, by a function": changed(
            chain(delegating(CHECKING), wait, pay),
            chain(delegating(CHECKING), wait, pay, rules=[precedes(CHECKING.as_tool("Checks."), pay)]),
        ),
        "an agent that waits": resumed(
            chain(approve, clerk_node(WAITING), pay, rules=[guarded(approve, by=WAITING, before=pay)])
        ),
    }


HONEST = honest()


@pytest.mark.parametrize("name", HONEST)
async def test_what_keeps_the_rules_is_not_refused(name: str):
    """Whatever the log has of what had to come before counts, also if the rule is newer than the run."""
    DONE.clear()
    await honest()[name]()
    assert "pay" in DONE


def test_there_are_many_attacks():
    """At least ten kinds with four of each, besides those on copies, which a strategy refuses when it is made."""
    assert len(ATTACKS) >= 10
    assert all(len(cases) >= 4 for cases in ATTACKS.values())


async def test_the_tool_that_stands_in_the_way_is_named():
    """Two tools that exclude each other are both named by their names, not by the ids of their calls."""
    ask, act = llm_request(), execute_tools()
    model = ScriptedModel([ToolCall("look", {}, "c1"), ToolCall("refund", {}, "c2")])
    strategy = Strategy(
        "s", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END, rules=[never_together(look, refund)]
    )
    with pytest.raises(RuleError, match=r"'execute_tools: look' has been executed") as caught:
        await Agent(strategy, model=model, tools=[look, refund]).run("x")
    assert (caught.value.node, caught.value.after) == ("execute_tools: refund", "execute_tools: look")
