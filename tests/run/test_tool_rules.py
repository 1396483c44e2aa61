"""Rules over paths that name tools: what is proven when an agent is made, and what stored runs did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot

from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent.errors import NodeFailedError, RuleError, StrategyError, Veto
from graphagent.graph import each, guarded, never_together, parallel, precedes, select_tools
from graphagent.graph.rules._proof import check_rules
from graphagent.history import broken_rules
from graphagent.llm import ToolCall, ToolCalls, ToolResult
from graphagent.nodes import execute_tools, llm_request, task
from graphagent.protocols import Feature
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel, record
from tests.graph.interleavings import small_strategies
from tests.thorough import examples


@tool
def refund(euros: int = 1) -> str:
    """Pay money back."""
    return "refunded"


@tool
def look(what: str = "") -> str:
    """Look something up."""
    if what == "nothing":
        raise OSError(what)
    return "looked"


@node
async def approve(ctx: Context, text: str) -> str:
    return text


@node
async def send(ctx: Context, text: str) -> str:
    return text


REFUNDED = precedes(approve, refund)


def helper(name="helper"):
    """Make a loop of a model and its tools."""
    ask, act = llm_request(), execute_tools()
    return Strategy(name, START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)


def problem(strategy, **options):
    """Return what an agent says against a strategy."""
    with pytest.raises(StrategyError) as caught:
        Agent(strategy, model=ScriptedModel([]), **options)
    [found] = caught.value.problems
    return str(found)


def proven(strategy, **options):
    return Agent(strategy, model=ScriptedModel([]), **options)


def line(*nodes, rules=()):
    """Make a strategy of nodes that follow each other."""
    path: Any = START
    for one in nodes:
        path = path >> one
    return Strategy("line", path >> END, rules=rules)


def test_a_tool_that_a_subgraph_has_is_proven_wherever_it_may_be_called():
    """The problem draws the path to the node that may call it, and a path through the approval lets the agent be made."""
    with_refund = helper().using(tools=[look, refund])
    assert problem(line(with_refund, approve, rules=[REFUNDED])) == snapshot(
        "'helper/execute_tools': it breaks the rule precedes(approve, refund) on the path START -> helper/llm_request -[on ToolCalls]-> helper/execute_tools: 'approve' has not been executed to its end before; lead the path through it first, or change the rule; a model may call 'refund' in 'helper/execute_tools'"
    )
    assert proven(line(approve, with_refund, rules=[REFUNDED]))
    either = Strategy(
        "either",
        START >> send,
        send.when(str.isupper) >> approve >> with_refund >> END,
        send.otherwise() >> with_refund,
        rules=[REFUNDED],
    )
    assert "START -> send -[otherwise]-> helper/llm_request -[on ToolCalls]-> helper/execute_tools" in problem(either)


@pytest.mark.parametrize(
    ("rule", "before", "after", "is_broken"),
    [
        (guarded(look, by=approve, before=send), [], [send, approve], True),
        (guarded(look, by=approve, before=send), [], [approve, send], False),
        (guarded(send, by=approve, before=look), [approve, send], [], True),
        (guarded(send, by=approve, before=look), [send, approve], [], False),
        (never_together(look, send), [], [send], True),
        (never_together(look, send), [send], [], True),
    ],
)
def test_every_kind_of_rule_may_name_one_tool(rule, before, after, is_broken):
    """As a source, as what is forbidden, and as one of several of which a run may execute one alone."""
    strategy = line(*before, helper().using(tools=[look]), *after, rules=[rule])
    if is_broken:
        assert "a model may call 'look' in 'helper/execute_tools'" in problem(strategy)
    else:
        proven(strategy)


@pytest.mark.parametrize(
    ("inner", "place"),
    [
        (helper().using(tools=[replace(refund, name="give")]), "helper/execute_tools"),
        (helper().using(tools=select_tools([refund, look])), "helper/execute_tools"),
        (Strategy("wide", START >> helper() >> END).using(tools=[refund]), "wide/helper/execute_tools"),
        (parallel(helper().using(tools=[refund]), send), "parallel/0/helper/execute_tools"),
        (task("Pay {input}", tools=[refund], name="pay"), "pay/execute_tools"),
        (Strategy("wide", START >> helper().using(tools=[]) >> END).using(tools=[refund]), ""),
        (helper().using(tools=[look]), ""),
        (helper(), ""),
    ],
)
def test_the_nodes_that_may_call_a_tool_are_found(inner, place):
    """Of the innermost subgraph that has tools: under another name, in what a model selects, in forks and tasks."""
    strategy = line(approve, inner, rules=[never_together(approve, refund)])
    if place:
        assert f"a model may call 'refund' in {place!r}" in problem(strategy, tools=[look])
    else:
        proven(strategy, tools=[refund])


@pytest.mark.parametrize("rule", [precedes(look, refund), precedes(look, send), never_together(look, refund)])
async def test_what_a_model_decides_is_checked_when_it_calls(rule):
    """Of two tools, and of one that has to be called before something, the edges say nothing."""
    inner = helper().using(tools=[look, refund])
    strategy = line(inner, send, rules=[rule])
    model = ScriptedModel([ToolCalls([ToolCall("look", {"what": "nothing"}), ToolCall("refund", {})]), "done"])
    with pytest.raises(RuleError):
        await Agent(strategy, model=model).run("x")


async def test_the_tools_of_the_agent_itself_are_checked_when_they_are_called():
    """They are offered everywhere, so the model decides whether it calls one too early."""
    strategy = line(helper(), approve, rules=[REFUNDED])
    early = Agent(strategy, model=ScriptedModel([ToolCall("refund", {}), "done"]), tools=[refund])
    with pytest.raises(RuleError, match="'helper/execute_tools: refund' was not begun"):
        await early.run("x")


def test_an_answer_that_is_refused_leads_to_the_tools_again():
    """The model that may call them is asked again after what came later."""
    strategy = line(approve, helper().using(tools=[look]), send, rules=[guarded(send, by=approve, before=look)])
    proven(strategy)
    assert "-[answer refused]-> helper" in problem(strategy, final_answer_checks=[str.isascii])


@given(st.data())
@settings(max_examples=examples(500, 60))
def test_a_rule_about_a_tool_is_proven_as_one_about_the_node_that_may_call_it(data):
    """Whatever the strategy around it: what names the tool is refused just where what names the place is."""
    leaves = [approve, send, helper().using(tools=[refund])]
    strategy = data.draw(small_strategies(leaves))
    places = [path for path, _ in strategy.walk() if path.endswith("helper/execute_tools")]
    kind = data.draw(st.sampled_from(("precedes", "source", "sink", "never_together")))
    rules = {
        "precedes": lambda last: precedes(approve, last),
        "source": lambda last: guarded(last, by=approve, before=send),
        "sink": lambda last: guarded(send, by=approve, before=last),
        "never_together": lambda last: never_together(send, last),
    }
    names = {path.rpartition("/")[2] for path, _ in strategy.walk()}
    if len(places) != 1 or not {"approve", "send"} <= names:
        return

    def refused(last):
        ruled = strategy.named("s")
        ruled.path_rules = (rules[kind](last),)
        try:
            proven(ruled)
        except StrategyError:
            return True
        return bool(check_rules(strategy.edges, ruled.path_rules))

    assert refused(refund) == refused(places[0])


async def test_middleware_may_answer_a_call_that_a_rule_forbids():
    """Then it is not made, and the run continues."""

    class Answers(Feature):
        async def around_tool(self, ctx: Any, call: Any, proceed: Any) -> Any:
            return ToolResult(call.id, call.name, "no")

    model = ScriptedModel([ToolCall("refund", {}), "done"])
    agent = Agent(line(helper(), approve, rules=[REFUNDED]), model=model, tools=[refund])
    agent.install(Answers)
    assert (await agent.run("x")).output == "done"


async def test_nobody_is_asked_about_a_call_that_a_rule_forbids():
    """Who would have to approve it. A callback that refuses it comes first: then nothing is called."""
    approved = tool(approve=True)(refund.function)

    def agent(*callbacks):
        strategy = line(helper(), approve, rules=[precedes(approve, approved)])
        model = ScriptedModel([ToolCall("refund", {}), "done"])
        return Agent(strategy, model=model, tools=[approved], step_callbacks=callbacks)

    def no(call: ToolCall) -> None:
        raise Veto("no")

    with pytest.raises(RuleError, match="'helper/execute_tools: refund' was not begun"):
        await agent().run("x")
    assert (await agent(no).run("x")).output == "done"


async def test_agents_and_strategies_as_tools_are_tools():
    """By what as_tool() returns, before and after an agent has it."""
    agent = Agent(line(send), name="payer", description="Pays.")
    for called in (agent.as_tool(), line(send).as_tool("Pays.", name="payer")):
        rule = precedes(approve, called)
        model = ScriptedModel([ToolCall("payer", {"task": "x"}), "done"])
        with pytest.raises(RuleError, match="'helper/execute_tools: payer' was not begun"):
            await Agent(line(helper(), approve, rules=[rule]), model=model, tools=[called]).run("x")
        own = helper().using(tools=[called])
        assert "a model may call 'payer'" in problem(line(own, approve, rules=[rule]))
        assert proven(line(approve, own, rules=[rule]))
    with pytest.raises(TypeError, match=r"not an Agent; write agent\.as_tool\(\) or agent\.as_node\(\)"):
        precedes(approve, agent)


def test_two_tools_of_one_name_are_refused():
    """In one rule, and in the rules of one strategy: a stored run could not tell them apart."""

    @tool(name="refund")
    def other() -> str:
        """Pay other money back."""
        return ""

    with pytest.raises(ValueError, match=r"never_together\(refund, refund\) names two tools 'refund'"):
        never_together(refund, other)
    with pytest.raises(StrategyError, match="'refund': the rules name two tools 'refund', and a stored run"):
        line(approve, send, rules=[precedes(approve, refund), precedes(send, other)])
    with pytest.raises(ValueError, match="names 'refund' twice"):
        never_together(refund, tool(name="give")(refund.function))


def test_what_stands_for_one_declaration_is_one():
    """A strategy and its tools, an agent as a node and as a tool, a method of a class and of its objects."""
    strategy = line(send)
    agent = Agent(strategy, name="payer", description="Pays.")
    desk = Desk()
    for one, other in (
        (strategy, strategy.as_tool("Pays.", name="a")),
        (strategy.as_tool("Pays.", name="a"), strategy.as_tool("Pays.", name="b")),
        (agent.as_node(), agent.as_tool(approve=True)),
        (strategy, agent.as_node()),
        (Desk.work, desk.work),
        (desk.work, replace(Desk().work, name="other")),
    ):
        with pytest.raises(ValueError, match="twice; name different nodes"):
            never_together(one, other)
    assert never_together(agent.as_node(), Agent(strategy, name="other").as_node())


class Desk:
    @tool
    def work(self) -> str:
        """Work."""
        return ""

    async def send(self, ctx: Context, text: str) -> str:
        return await self.call(ctx, text)

    async def call(self, ctx: Context, text: str) -> str:
        return (await ctx.call_tool(self.work, ToolCall("work", {}))).content


async def call_later(ctx: Context, text: str) -> str:
    return (await ctx.call_tool(look, ToolCall("look", {}))).content


@node
async def calls_far_away(ctx: Context, text: str) -> str:
    async def inside() -> str:
        return await call_later(ctx, text)

    return await inside()


class Shop(Feature):
    tools = (refund,)


@pytest.mark.parametrize(
    "named", [refund, Agent(line(send), name="x", description="X.").as_tool(), line(send).as_tool("X.")]
)
async def test_a_rule_about_a_tool_that_the_agent_does_not_have_is_refused(named):
    """Before the first run, and before one of the store is read; the error says which rule and tool, what there is, and what to do."""
    strategy = line(helper(), approve, rules=[precedes(approve, named)])
    agent = Agent(strategy, model=ScriptedModel([]), tools=[look], store=MemoryStore())
    for attempt in (lambda: agent.run("x"), lambda: agent.resume("r")):
        with pytest.raises(StrategyError) as caught:
            await attempt()
        [found] = caught.value.problems
        name = named.name
        assert str(found) == (
            f"{name!r}: the rule precedes(approve, {name}) names this tool, and the agent does not have it (there are: 'look'); "
            f"pass it in tools=[…] of the agent or of .using(…), or name the node that executes it"
        )


async def test_a_tool_exists_wherever_it_may_be_called():
    """Among the tools of the agent, of a subgraph, of a sub-agent, of a feature, or in a function that calls tools by itself."""
    model = ScriptedModel(["done"] * 20)
    inner = Agent(helper("inner"), model=model, tools=[refund], name="inner", description="Helps.")
    cases: list[tuple[Any, dict[str, Any]]] = [
        (helper(), {"tools": [refund]}),
        (helper(), {"tools": [inner]}),
        (inner.as_node(), {}),
        (calls_far_away, {}),
        (node(Desk().send), {}),
    ]
    for first, options in cases:
        agent = Agent(line(first, approve, rules=[precedes(first, refund)]), model=model, **options)
        assert (await agent.run("x")).status == "done"
    offered = Agent(line(helper(), approve, rules=[REFUNDED]), model=model, tools=[look])
    offered.install(Shop)
    assert (await offered.run("x")).status == "done"


# ---- stored runs


def calling(called, *, fails=False):
    """Make a node that calls a tool."""
    arguments = {"what": "nothing"} if fails else {}

    @node(name=f"call_{called.name}")
    async def call(ctx: Context, text: str) -> str:
        await ctx.call_tool(called, ToolCall(called.name, arguments, id=called.name))
        return text

    return call


async def broken_in(strategy, *rules, features=(), **settings):
    """Return which nodes and calls of a stored run broke a rule, and after what."""
    store = MemoryStore()
    agent = Agent(strategy, store=store, **settings)
    for feature in features:
        agent.install(feature)
    await agent.run("x", run_id="r")
    return [(each.node, each.after) for each in await broken_rules(store, "r", strategy, rules=rules)]


async def test_calls_of_a_stored_run_are_checked():
    """A call that came too early, what came after a call, and a call that had to come before and failed, or did not."""
    strategy = line(calling(refund), approve, send)
    assert await broken_in(strategy, REFUNDED) == [("call_refund: refund", "START")]
    assert await broken_in(strategy, never_together(refund, send)) == [("send", "call_refund: refund")]
    assert await broken_in(strategy, precedes(refund, send)) == []
    assert await broken_in(line(calling(look, fails=True), send), precedes(look, send)) == [("send", "START")]
    assert await broken_in(line(approve, calling(refund)), REFUNDED) == []


async def test_a_call_of_a_model_is_checked():
    """By the name of the tool; one of a tool that there is not is no call of it."""
    calls = ToolCalls([ToolCall("look", {}), ToolCall("refund", {})])
    rule = never_together(look, refund)
    found = await broken_in(helper(), rule, model=ScriptedModel([calls, "done"]), tools=[look, refund])
    assert found == [("execute_tools: refund", "execute_tools: look")]
    assert await broken_in(helper(), rule, model=ScriptedModel([calls, "done"]), tools=[look]) == []


async def test_a_call_that_was_refused_is_none():
    """By a callback; the tool was not begun."""

    def no(call: ToolCall) -> None:
        raise Veto("no")

    strategy = line(calling(look), send)
    assert await broken_in(strategy, never_together(look, send), step_callbacks=[no]) == []


async def test_a_call_that_middleware_answers_is_none():
    """It has not been executed; one whose result is kept has."""

    class Answers(Feature):
        async def around_tool(self, ctx: Any, call: Any, proceed: Any) -> Any:
            return ToolResult(call.id, call.name, "no")

    strategy = line(calling(look), send)
    assert await broken_in(strategy, precedes(look, send), features=[Answers]) == [("send", "START")]
    kept = tool(cached=60)(look.function)
    twice = line(calling(kept), calling(replace(kept, name="look")).named("again"), send)
    assert await broken_in(twice, precedes(kept, send)) == []
    assert await broken_in(twice, never_together("again", kept)) == [
        ("again", "call_look: look"),
        ("again: look", "again"),
    ]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_call_ended_as_the_tool_did(fails):
    """Whatever middleware makes of its result, also when the run is executed again."""

    class Turns(Feature):
        async def around_tool(self, ctx: Any, call: Any, proceed: Any) -> Any:
            result = await proceed(call)
            return replace(result, is_error=not result.is_error)

    strategy, store = line(calling(look, fails=fails), send), MemoryStore()
    agent = Agent(strategy, store=store)
    agent.install(Turns)
    await agent.run("x", run_id="r")
    await agent.rerun("r", new_id="again")
    for run in ("r", "again"):
        found = await broken_rules(store, run, strategy, rules=[precedes(look, send)])
        assert [each.node for each in found] == ["send"] * fails


async def test_a_call_that_waited_is_one_call():
    """It is begun again when it is answered."""

    @tool
    async def sure(ctx: Context) -> str:
        """Ask."""
        return str(await ctx.ask("Sure?"))

    strategy, store = line(calling(sure), approve), MemoryStore()
    agent = Agent(strategy, store=store)
    await agent.run("x", run_id="r")
    await agent.resume("r", answer="yes")
    [broken] = await broken_rules(store, "r", strategy, rules=[precedes(approve, sure)])
    assert broken.node == "call_sure: sure"


async def test_a_tool_of_another_name_is_known_when_the_run_is_resumed():
    """As what had to come before, and as what forbids something: what was called before the process died counts afterwards."""

    @node
    async def wait(ctx: Context, text: str) -> str:
        return str(await ctx.ask("Go on?"))

    for rule, forbids in ((precedes(look, send), False), (never_together(look, send), True)):
        strategy, store = line(calling(replace(look, name="see")), wait, send, rules=()), MemoryStore()
        strategy.path_rules = (rule,)
        assert (await Agent(strategy, store=store, tools=[look]).run("x", run_id="r")).status == "waiting"
        resumed = Agent(strategy, store=store, tools=[look]).resume("r", answer="yes")
        if forbids:
            with pytest.raises(RuleError, match="'call_see: look' has been executed"):
                await resumed
        else:
            assert (await resumed).status == "done"


async def test_items_whose_turn_has_not_come_have_not_begun_when_the_run_is_resumed():
    """Of an `each` that executes one item at a time, those that wait for their turn forbid nothing."""
    failures = [OSError("no connection")]

    @node
    async def fails(ctx: Context, text: str) -> str:
        if failures:
            raise failures.pop()
        return text

    strategy = line(each(line(approve, calling(look), fails, send), limit=1))
    strategy.path_rules, store = (guarded(approve, by=look, before=send),), MemoryStore()
    with pytest.raises(NodeFailedError):
        await Agent(strategy, store=store, tools=[look]).run(["a", "b"], run_id="r")
    assert (await Agent(strategy, store=store, tools=[look]).resume("r")).status == "done"


async def test_a_call_of_a_sub_agent_is_checked():
    """As a part of the run that calls it."""
    inner = Agent(line(calling(refund)), name="inner", description="Pays.")

    @node
    async def delegate(ctx: Context, text: str) -> str:
        return await ctx.run_agent(inner, text)

    found = await broken_in(line(delegate, approve), REFUNDED)
    assert found == [("delegate/inner/2/call_refund: refund", "START")]


async def test_a_record_of_events_has_no_calls():
    """Rules about tools are refused there; those of the strategy, which held in the run, are left out."""
    strategy = Strategy("s", START >> approve >> calling(refund) >> END, rules=[REFUNDED])
    agent = Agent(strategy)
    taken = record(agent)
    await agent.run("x")
    assert taken.broken_rules() == []
    with pytest.raises(ValueError, match=r"precedes\(approve, refund\) is about a tool; check the stored run"):
        taken.broken_rules([REFUNDED])
