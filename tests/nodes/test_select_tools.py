"""Subgraphs whose tools a model chooses when they are entered."""

from __future__ import annotations

from decimal import Decimal

import pytest

from graphagent import END, START, Agent, Context, Strategy, each, node, parallel, tool
from graphagent.errors import FeatureError, NodeFailedError, OutputError, StrategyError
from graphagent.graph import select_tools
from graphagent.llm import Message, ModelRequest, PricedModel, Prices, ToolCall, ToolCalls
from graphagent.llm.openai import OpenAIModel
from graphagent.nodes import execute_tools, llm_request, task
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel, openai_server
from tests.nodes.everywhere import resumed_everywhere
from tests.nodes.test_model_nodes import check_sendable


def tool_named(name):
    async def run(word: str) -> str:
        return f"{name}: {word}"

    return tool(name=name, description=f"Do {name} with a word.")(run)


TOOLS = [tool_named(name) for name in ("search", "count", "translate", "send")]


def loop(name="inner"):
    ask, act = llm_request(), execute_tools()
    return Strategy(name, START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)


def around(inner, *after):
    path = START >> inner
    for element in after:
        path = path >> element
    return Strategy("outer", path >> END)


def is_choice(request: ModelRequest) -> bool:
    return request.output is not None and request.output.name == "tools"


def offered(request):
    return [each.name for each in request.tools]


async def work(replies, inner, *, tools=TOOLS, said="Translate a word.", **settings):
    model = ScriptedModel(replies)
    result = await Agent(around(inner), model=model, tools=tools, **settings).run(said)
    check_sendable(model)
    return result, model


async def test_a_model_chooses_the_tools_once_when_the_subgraph_is_entered():
    """It is shown names, descriptions and the task, in one request that is no turn; its choice is offered inside."""
    replies = [["translate", "count"], ToolCall("translate", {"word": "a"}, "c"), "done"]
    result, model = await work([{"value": replies[0]}, *replies[1:]], loop().using(tools=select_tools()))
    choice, first, second = model.requests
    assert is_choice(choice)
    assert [message.role for message in choice.messages] == ["user"]
    assert "- translate: Do translate with a word." in choice.messages[0].text
    assert choice.messages[0].text.endswith("The task:\nTranslate a word.")
    assert offered(first) == offered(second) == ["count", "translate"]  # in the order in which the parent has them
    assert (result.output, result.turns) == ("done", 2)
    assert [row.what for row in result.ledger.charges] == ["tools", "model:1", "model:1"]


async def test_servers_can_enforce_the_names():
    """The schema has the names of the tools, and nothing else."""
    _, model = await work([{"value": []}, "done"], loop().using(tools=select_tools()))
    form = model.requests[0].output
    assert form.strict
    assert form.schema["properties"]["value"]["items"]["enum"] == [each.name for each in TOOLS]


@pytest.mark.parametrize(
    ("said", "known"),
    [
        (["count", "fly", "count", "send"], ["count", "send"]),
        ([], []),
        (["send", "translate", "search", "count"], ["search", "translate", "send"]),
    ],
)
async def test_unknown_and_repeated_names_are_dropped_and_a_limit_is_kept(said, known):
    """The first ones count; an empty choice offers no tools."""
    _, model = await work([{"value": said}, "done"], loop().using(tools=select_tools(max_tools=3)))
    assert offered(model.requests[1]) == known
    assert "Choose at most 3" in model.requests[0].messages[0].text


async def test_a_choice_of_nothing_that_exists_is_asked_for_once_more():
    """As is an answer that is no choice at all; then the node fails, and a run that is resumed asks again."""
    _, model = await work([{"value": ["fly"]}, {"value": ["send"]}, "done"], loop().using(tools=select_tools()))
    assert (
        "no tool has such a name; the tools are: search, count, translate, send" in model.requests[1].messages[-1].text
    )
    assert offered(model.requests[2]) == ["send"]

    store, strategy = MemoryStore(), around(loop().using(tools=select_tools()))
    broken = Agent(strategy, model=ScriptedModel(["All of them!", "Really."]), tools=TOOLS, store=store)
    with pytest.raises(NodeFailedError) as failed:
        await broken.run("x", run_id="r")
    assert isinstance(failed.value.__cause__, OutputError)
    model = ScriptedModel([{"value": ["send"]}, "done"])
    assert (await Agent(strategy, model=model, tools=TOOLS, store=store).resume("r")).output == "done"
    assert offered(model.requests[1]) == ["send"]


async def test_the_tools_to_choose_from_may_be_others_than_those_of_the_parent():
    """And the model that chooses another than the one that works."""
    small, large = ScriptedModel([{"value": ["b"]}]), ScriptedModel(["done"])
    inner = loop().using(tools=select_tools([tool_named("a"), tool_named("b")], model=small), model=large)
    result = await Agent(around(inner)).run("x")
    assert result.output == "done"
    assert offered(large.requests[0]) == ["b"]


async def test_nothing_is_asked_where_there_is_nothing_to_choose():
    """Without tools there is no request."""
    _, model = await work(["done"], loop().using(tools=select_tools()), tools=[])
    assert len(model.requests) == 1


async def test_the_model_sees_the_last_messages_and_no_more():
    """A few, each shortened, so that a choice stays cheap however long the transcript is."""
    talk = [llm_request(tools=False, name=f"talk{n}") for n in range(9)]
    model = ScriptedModel([*(f"answer {n} " + "x" * 900 for n in range(9)), {"value": ["send"]}, "done"])
    path = START
    for element in talk:
        path = path >> element
    strategy = Strategy("outer", path >> loop().using(tools=select_tools()) >> END)
    await Agent(strategy, model=model, tools=TOOLS).run("begin")
    choice = next(filter(is_choice, model.requests))
    assert "assistant: answer 7" in choice.messages[0].text
    assert "answer 1 " not in choice.messages[0].text
    assert len(choice.messages[0].text) < 6_000


async def test_tools_of_features_stay():
    """They are no part of the choice, and are offered even if it is empty."""
    from graphagent.memory import FileMemoryProvider  # noqa: F401  the room is loaded
    from graphagent.memory.notes import NoteMemory, Notes

    for said in (["send"], []):
        model = ScriptedModel([{"value": said}, "done"])
        agent = Agent(around(loop().using(tools=select_tools())), model=model, tools=TOOLS)
        agent.install(NoteMemory, notes=Notes(), recall=False, learn=False)
        await agent.run("x")
        inside = offered(model.requests[-1])
        assert inside[: len(said)] == said
        assert {"recall", "remember"} <= set(inside), inside
        assert "recall" not in model.requests[0].output.schema["properties"]["value"]["items"]["enum"]


async def test_a_task_takes_chosen_tools():
    """`finish` is offered besides them."""
    model = ScriptedModel([{"value": ["count"]}, ToolCall("finish", {"value": 3}, "f")])
    strategy = around(task("Count {input}.", output=int, tools=select_tools()))
    assert (await Agent(strategy, model=model, tools=TOOLS).run("x")).output == 3
    assert offered(model.requests[1]) == ["count", "finish"]


async def test_each_branch_chooses_for_itself():
    """In a fork, every item has its own choice."""

    def answer(request):
        text = request.messages[-1].text
        return {"value": ["count" if text.endswith("one") else "send"]} if is_choice(request) else str(offered(request))

    @node
    async def items(ctx: Context, text: str) -> list[str]:
        return text.split()

    strategy = Strategy("s", START >> items >> each(loop().using(tools=select_tools())) >> END)
    model = ScriptedModel([answer] * 4)
    assert (await Agent(strategy, model=model, tools=TOOLS).run("one two")).output == ["['count']", "['send']"]


# ---- what is refused


def test_the_own_strategy_of_an_agent_has_no_parent_to_choose_from():
    """The error says what to write."""
    with pytest.raises(
        ValueError, match=r"Agent\(Strategy\('outer', START >> inner\.using\(tools=select_tools\(\)\) >> END\)\)"
    ):
        Agent(loop().using(tools=select_tools()), tools=TOOLS)


def test_edges_for_tool_calls_are_checked_as_with_other_tools():
    """What a model may choose, it may call."""
    ask = llm_request()
    deaf = Strategy("deaf", START >> ask, ask.on(str) >> END).using(tools=select_tools())
    with pytest.raises(StrategyError, match="no edge takes its output ToolCalls"):
        Agent(around(deaf), tools=TOOLS)


async def test_a_choice_without_a_model_is_refused_before_the_first_node():
    """As any other node that asks one."""
    work = Strategy("work", START >> execute_tools() >> END).using(tools=select_tools())
    with pytest.raises(FeatureError, match="'work' asks a model"):
        await Agent(around(work), tools=TOOLS).run(ToolCalls([]))


def test_a_budget_of_money_needs_a_price_for_the_choice():
    """The model that chooses spends too."""
    small, priced = ScriptedModel(), PricedModel(ScriptedModel(), Prices(input=1, output=1))
    with pytest.raises(ValueError, match="does not say what its answers cost"):
        Agent(around(loop().using(tools=select_tools(model=small))), model=priced, max_cost=Decimal(1))


def test_the_choice_is_drawn():
    """In the small print of the subgraph."""
    assert "tools that a model selects" in around(loop().using(tools=select_tools())).to_mermaid()


# ---- resumption, and a real server


def by_turns(request):
    if is_choice(request):
        return {"value": ["count", "send"]}
    made = sum(message.role == "tool" for message in request.messages)
    return ToolCall(offered(request)[made], {"word": "w"}, f"c{made}") if made < 2 else f"{offered(request)}"


async def test_a_choice_is_resumed_from_any_step():
    """A run that is resumed does not ask again, and offers the same tools."""
    strategy = Strategy("s", START >> parallel(loop("a").using(tools=select_tools()), loop("b")) >> END)
    result, model = await resumed_everywhere(strategy, by_turns, tools=TOOLS)
    assert result.output[0] == "['count', 'send']"
    assert sum(map(is_choice, model.requests)) == 1


class Server:
    """A server of tools, which are known when it is asked."""

    name = "server"
    required = True

    async def list_tools(self, ctx):
        return [{"name": each.name} for each in TOOLS]

    def tools_from(self, listed):
        return [tool_named(each["name"]) for each in listed]

    async def aclose(self):
        pass


@pytest.mark.parametrize("own", [False, True])
async def test_a_model_chooses_among_the_tools_of_a_server(own):
    """Of the agent, or of the subgraph alone; a run that is resumed from any step has the same."""
    server = Server()
    inner = loop().using(tools=select_tools([server] if own else None))
    result, model = await resumed_everywhere(around(inner), by_turns, tools=[] if own else [server])
    assert result.output == "['count', 'send']"
    assert sum(map(is_choice, model.requests)) == 1


async def test_a_choice_works_over_http():
    """Also where a server ignores the schema and answers in prose."""
    for said in ({"value": ["count"]}, 'I would take {"value": ["count"]}.'):
        async with openai_server([said, "done"]) as server:
            agent = Agent(
                around(loop().using(tools=select_tools())),
                model=OpenAIModel("m", base_url=server.base_url),
                tools=TOOLS,
            )
            assert (await agent.run(Message.user("Count."))).output == "done"
            assert [each["function"]["name"] for each in server.requests[1]["tools"]] == ["count"]
            assert server.requests[0]["response_format"]["json_schema"]["strict"] is True
