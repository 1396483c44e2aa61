"""Agents as nodes: parts of a strategy with features, a transcript and budgets of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent.errors import BudgetError, FeatureError, NodeFailedError, RuleError, StrategyError
from graphagent.graph import each, never_together, parallel, precedes
from graphagent.history import read_run
from graphagent.llm import ToolCall
from graphagent.memory import ActionStep
from graphagent.nodes import ask_human, auto_detect_facts, llm_request
from graphagent.protocols import Feature
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run


@node
async def first(ctx: Context, text: str) -> str:
    return f"{text}!"


@node
async def last(ctx: Context, text: str) -> str:
    return f"({text})"


class Watch(Feature):
    """Notes which nodes it is wrapped around."""

    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    async def around_node(self, ctx: Any, value: Any, proceed: Any) -> Any:
        self.seen.append(ctx.node)
        return await proceed(value)


class Other(Watch):
    """Another feature."""


async def test_an_agent_as_a_node_has_its_own_features_beside_those_around():
    """They hold in it alone; its transcript, model and rules are its own, and its run is a child."""
    own, around = [], []
    helper = Agent(single_run(), model=ScriptedModel(["helped"]), name="helper", system_prompt="Help.")
    helper.install(Watch, own)
    agent = Agent(Strategy("outer", START >> first >> helper.as_node() >> last >> END))
    agent.install(Other, around)
    result = await agent.run("x")
    assert result.output == "(helped)"
    assert own == ["llm_request"]
    assert around == ["first", "helper", "llm_request", "last"]
    assert [message.text for message in helper.model.requests[0].messages] == ["Help.", "x!"]
    [child] = result.children
    assert (child.run_id.split("/")[1], child.output) == ("helper", "helped")
    assert not any(isinstance(step, ActionStep) for step in result.memory.steps)


async def test_a_run_that_is_read_without_its_agent_shows_agents_as_nodes(capsys):
    """As its replay does, after the steps of the run: no call in these is for them."""
    helper = Agent(single_run(), model=ScriptedModel(["helped"]), name="helper")
    agent = Agent(Strategy("outer", START >> helper.as_node() >> END), store=MemoryStore())
    result = await agent.run("x", run_id="r")
    result.replay()
    shown = (await read_run(agent.store, "r")).to_text()
    assert shown.count(f"Run {result.children[0].run_id} (done):\n    Task:") == 1
    assert capsys.readouterr().out == f"{shown}\n"


async def test_the_model_that_it_lacks_is_that_of_the_agent_around():
    """As where it is a tool; the tools of that agent are not its own."""

    @tool
    def look(what: str) -> str:
        """Look something up."""
        return f"seen {what}"

    outer = Strategy("outer", START >> Agent(single_run()).as_node() >> last >> END)
    with pytest.raises(FeatureError, match="llm_request' asks a model, and there is none"):
        await Agent(outer).run("x")
    model = ScriptedModel(["done"])
    assert (await Agent(outer, model=model, tools=[look]).run("x")).output == "(done)"
    assert model.requests[0].tools == ()


async def test_what_is_missing_in_it_is_named_before_the_first_step():
    """By the path through the node."""
    learner = Agent(Strategy("learner", START >> llm_request(tools=False) >> auto_detect_facts() >> END))
    agent = Agent(Strategy("outer", START >> first >> learner.as_node() >> END), model=ScriptedModel([]))
    with pytest.raises(FeatureError, match="node 'learner/learner/auto_detect_facts' needs AgentMemory"):
        await agent.run("x")


@dataclass
class Order:
    city: str


@node
async def order(ctx: Context, text: str) -> Order:
    return Order(text)


@node
async def confirm(ctx: Context, order: Order) -> str:
    return f"{order.city}?"


@node
async def say(ctx: Context, answer: bool) -> str:
    return "yes" if answer else "no"


async def test_another_process_goes_on_in_it():
    """Its task has its declared type there, and the run is known as a child before it goes on."""
    store = MemoryStore()

    def agents():
        asks = Strategy("asks", START >> confirm >> ask_human("Right?", bool) >> say >> END)
        seen = []
        asking = Agent(asks)
        asking.install(Watch, seen)
        return Agent(Strategy("outer", START >> order >> asking.as_node() >> last >> END), store=store), seen

    agent, _ = agents()
    assert (await agent.run("Oslo", run_id="r")).status == "waiting"
    agent, seen = agents()
    [child] = (await agent.read("r")).result.children
    assert child.memory.steps[0].task == Order("Oslo")
    assert (await agent.resume("r", answer=True)).output == "(yes)"
    assert seen == ["ask_human", "say"]


async def test_it_is_one_declaration_wherever_it_is_a_node():
    """Under another name, too. What happens in it counts for the rules around it."""
    helper = Agent(Strategy("helper", START >> last >> END))
    copy = helper.as_node().named("copy")
    with pytest.raises(StrategyError, match="'copy': it breaks the rule"):
        Strategy("s", START >> copy >> first >> END, rules=[precedes(first, helper.as_node())])
    agent = Agent(Strategy("s", START >> helper.as_node() >> first >> last >> END, rules=[precedes(first, last)]))
    with pytest.raises(RuleError, match="'helper/helper/2/last' was not begun"):
        await agent.run("x")


async def test_it_is_a_node_like_any_other():
    """In a fork, tried again, with an edge for its errors."""
    attempts = []

    @node
    async def fails(ctx: Context, text: str) -> str:
        attempts.append(text)
        raise OSError(text)

    failing = Agent(Strategy("fails", START >> fails >> END)).as_node().retry(attempts=2, wait=0)
    many = each(Agent(Strategy("one", START >> first >> END)).as_node())
    caught = failing.on_error(Exception).map(lambda _: ["a", "b"]) >> many
    result = await Agent(Strategy("s", START >> failing >> END, caught, many.map(str) >> END)).run("x")
    assert (result.output, attempts) == ("['a!', 'b!']", ["x", "x"])
    with pytest.raises(NodeFailedError):
        await Agent(Strategy("s", START >> failing >> END)).run("x")


async def test_it_counts_as_a_node():
    """So a loop of agents ends with the budget; the nodes in them count for themselves."""
    again = Agent(Strategy("again", START >> first >> END)).as_node()
    loop = Strategy("loop", START >> again, again.when(lambda text: len(text) > 100) >> END, again.otherwise() >> again)
    with pytest.raises(BudgetError) as caught:
        await Agent(loop, max_nodes=7).run("x")
    assert caught.value.result.nodes == 7


def test_it_is_not_cached():
    """What an agent answers depends on more than its task."""
    with pytest.raises(TypeError, match="'first' is an agent; write"):
        Agent(Strategy("first", START >> first >> END)).as_node().cached(60)


async def test_agents_of_one_name_are_told_apart_by_their_places():
    """Nodes, and tools of subgraphs: another process goes on in each with its own strategy, and knows the types of its questions."""
    store = MemoryStore()

    def asking(kind):
        strategy = Strategy(f"asks_{kind.__name__}", START >> ask_human("What?", kind) >> END)
        return Agent(strategy, name="same", description="Asks.")

    def reply(request):
        return "done" if request.messages[-1].role == "tool" else ToolCall("same", {"task": "t"})

    def calling(name, kind):
        return single_run().named(name).using(model=ScriptedModel([reply] * 2), tools=[asking(kind)])

    def agent():
        branches = (asking(int).as_node().named("a"), asking(str).as_node().named("b"))
        return Agent(
            Strategy("s", START >> parallel(*branches, calling("c", float), calling("d", bool)) >> END), store=store
        )

    answers: dict[type, object] = {int: 1, str: "two", float: 3.0, bool: True}
    await agent().run("x", run_id="r")
    questions = (await agent().read("r")).result.questions
    assert {question.node.split("/")[2]: question.type for question in questions} == {
        "a": int, "b": str, "c": float, "d": bool,
    }  # fmt: skip
    result = await agent().resume("r", answers={each.id: answers[each.type] for each in questions})
    assert result.output == (1, "two", "done", "done")
    children = (await agent().read("r")).result.children
    assert {type(child.output): child.output for child in children} == answers


async def test_edges_and_retries_take_what_was_raised_in_it():
    """As with a subgraph; a budget of its own that is used up is such an error, and one of the run around is not."""
    attempts: list[str] = []

    @node
    async def flaky(ctx: Context, text: str) -> str:
        attempts.append(text)
        raise ConnectionError(text)

    inner = Agent(Strategy("inner", START >> flaky >> END)).as_node()
    again, kept = (
        inner.retry(attempts=3, wait=0, errors=ConnectionError),
        inner.retry(attempts=3, wait=0, errors=KeyError),
    )
    caught = again.on_error(OSError).map(lambda error: f"caught {error!r}")
    result = await Agent(Strategy("s", START >> again >> END, caught >> END)).run("x")
    assert (result.output, len(attempts)) == ("caught ConnectionError('x')", 3)
    with pytest.raises(
        NodeFailedError, match="node 'inner' failed with NodeFailedError: node 'flaky' failed with Conn"
    ):
        await Agent(Strategy("s", START >> kept >> END)).run("x")
    assert len(attempts) == 4

    asking = Agent(
        single_run(), model=ScriptedModel([ToolCall("no", {}), "ok"] * 2), max_turns=1, name="asking"
    ).as_node()
    limited = Strategy("s", START >> asking >> END, asking.on_error(BudgetError).map(lambda _: "used up") >> END)
    assert (await Agent(limited).run("x")).output == "used up"


async def texts(strategy, *replies, **settings):
    """Return the text of the answer of a strategy as it is streamed."""
    all_text = settings.pop("all_text", False)
    agent = Agent(strategy, model=ScriptedModel(list(replies)), **settings)
    return [text async for text in agent.stream("x", all_text=all_text).text()]


def desk(*replies, name="desk", **settings):
    return Agent(single_run(), model=ScriptedModel(list(replies)), name=name, description="Answers.", **settings)


async def test_its_text_is_a_part_of_the_answer():
    """At any depth, of branches one after the other; that of a tool is not, whatever is in it."""
    for all_text in (False, True):
        within = Agent(Strategy("within", START >> desk("It is open.").as_node() >> last >> END))
        deep = Strategy("deep", START >> first >> within.as_node() >> END)
        assert await texts(deep, all_text=all_text) == ["It", " is", " open."]
        at_once = parallel(desk("one two").as_node(), desk("three four").as_node().named("other"))
        heard = await texts(Strategy("s", START >> at_once >> END))
        assert sorted((heard[:2], heard[2:])) == [["one", " two"], ["three", " four"]]
        inside = Agent(Strategy("t", START >> desk("not heard").as_node() >> END), name="ask", description="Asks.")
        call = ToolCall("ask", {"task": "x"})
        assert await texts(single_run(), call, "The answer.", tools=[inside], all_text=all_text) == ["The", " answer."]


async def test_its_text_waits_for_the_final_checks():
    """Its own, and those of the agents around; what was said before it is heard, and of a refused answer nothing."""

    def good(answer: str) -> bool:
        return "bad" not in answer

    again = llm_request(tools=False, name="again")
    checked = desk(*["bad one", "good one"] * 2, final_answer_checks=[good])
    own = Strategy("s", START >> again >> checked.as_node() >> END)
    around = Strategy("s", START >> again >> desk("bad one", "good one").as_node() >> END)
    assert await texts(own, "first") == ["first", "good", " one"]
    assert await texts(own, "first", final_answer_checks=[good]) == ["first", "good", " one"]
    assert await texts(around, "first", "second", final_answer_checks=[good]) == ["first", "second", "good", " one"]


@pytest.mark.parametrize("by_path", [False, True])
async def test_rules_of_its_strategy_may_be_newer_than_the_run(by_path):
    """What it had executed by then counts, and is held against what comes."""
    store = MemoryStore()

    def agent(*rules):
        inner = Strategy("inner", START >> first >> ask_human("Go on?", str) >> last >> END)
        inner.path_rules = rules
        return Agent(Strategy("outer", START >> Agent(inner).as_node() >> END), store=store)

    before, after = ("first", "last") if by_path else (first, last)
    for run, rule in (("allowed", precedes(before, after)), ("forbidden", never_together(before, after))):
        await agent().run("x", run_id=run)
        if run == "allowed":
            assert (await agent(rule).resume(run, answer="y")).output == "(y)"
        else:
            with pytest.raises(NodeFailedError, match="'inner/inner/2/last' was not begun, by the rule never_together"):
                await agent(rule).resume(run, answer="y")
