"""Attempts to break a rule as a strategy is executed. In each, something is to be done that a rule forbids, and it is not begun."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from anyio.lowlevel import checkpoint

from graphagent import END, START, Agent, Context, Strategy, node, tap, tool
from graphagent.errors import RuleError, StrategyChangedError
from graphagent.events import NodeStarted, ToolCalled
from graphagent.graph import each, guarded, never_together, parallel, precedes, race
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


GUARDED_LATER = guarded(search, by=same, before=pay)
guard = doing("guard")
skip = skipping("approve")

ATTACKS: dict[str, dict[str, Callable[[], Any]]] = {
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
        "that had to come before, and was not called": run(chain(same, pay, rules=[precedes(look, pay)])),
        "in a subgraph": run(chain(chain(calling(), name="sub"), approve, rules=[REFUNDED])),
        "for each item": run(chain(same.named("list"), as_list, each(calling()), any_text, approve, rules=[REFUNDED])),
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
CASES = [(kind, name) for kind, cases in ATTACKS.items() for name in cases]


@pytest.mark.parametrize(("kind", "name"), CASES, ids=[f"{kind}: {name}" for kind, name in CASES])
async def test_no_attack_breaks_a_rule(kind: str, name: str):
    """The run ends with an error that names the rule, the node and the path; it was not begun, and nobody heard that it was."""
    DONE.clear()
    started.clear()
    with pytest.raises(RuleError) as caught:
        await ATTACKS[kind][name]()
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


SEARCHING = chain(search, wait, name="searching")


def resumed(strategy: Any) -> Any:
    return changed(strategy, strategy)


HONEST: dict[str, Callable[[], Any]] = {
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
        chain(parallel(approve, same, name="both"), any_text, wait, pay), chain(approve, wait, pay, rules=[APPROVED])
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
}


@pytest.mark.parametrize("name", HONEST)
async def test_what_keeps_the_rules_is_not_refused(name: str):
    """Whatever the log has of what had to come before counts, also if the rule is newer than the run."""
    DONE.clear()
    await HONEST[name]()
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
