"""`route`: one of several experts answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent.errors import NodeFailedError, OutputError
from graphagent.events import TextStreamed
from graphagent.llm import Message, ToolCall
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel, record
from graphagent_strategies import Expert, route, single_run
from tests.strategies.resuming import left_out, resumed_everywhere


@tool
def invoices(customer: str) -> str:
    """List invoices."""
    return "none"


BILLING = Expert("invoices and payments", single_run().using(tools=[invoices]))
SUPPORT = Expert("how the product is used", single_run(name="help").using(tools=[]))
EXPERTS = {"billing": BILLING, "support": SUPPORT}
CHOICE = """\
Do not answer that yourself, but choose who should answer it:
- billing: invoices and payments
- support: how the product is used"""


async def test_the_chosen_expert_answers():
    """It has its own tools, the question, and nothing of the choice; every edge is taken."""
    model = ScriptedModel(
        [{"value": "billing"}, ToolCall("invoices", {"customer": "x"}), "None.", {"value": "support"}, "So."]
    )
    agent = Agent(route(EXPERTS), model=model)
    taken = record(agent)
    assert (await agent.run("Do I owe you anything?")).output == "None."
    first = replace(taken, nodes=[*taken.nodes], paths=[*taken.paths])
    assert (await agent.run("How do I print?")).output == "So."
    assert left_out(agent.strategy, first, taken) == set()
    choosing, asking = model.requests[0], model.requests[1]
    assert [message.text for message in choosing.messages] == [
        "Do I owe you anything?",
        CHOICE,
    ]
    assert choosing.output.schema["properties"]["value"]["enum"] == ["billing", "support"]
    assert [message.text for message in asking.messages] == ["Do I owe you anything?"]
    assert [tool.name for tool in asking.tools] == ["invoices"]
    assert model.requests[4].tools == ()


async def test_a_choice_of_nobody_is_asked_for_once_more():
    """The model learns what the names are; the second choice counts."""
    model = ScriptedModel(["the boss", {"value": "support"}, "So."])
    result = await Agent(route(EXPERTS), model=model).run("How?")
    assert (result.output, result.turns) == ("So.", 3)
    assert "'billing', 'support'" in model.requests[1].messages[-1].text.replace('"', "'")


async def test_the_default_expert_answers_if_nobody_is_chosen_twice():
    """Without one, the run ends with an error that names the experts."""
    model = ScriptedModel(["the boss", "me", "So."])
    assert (await Agent(route(EXPERTS, default="support"), model=model).run("How?")).output == "So."
    with pytest.raises(NodeFailedError) as failed:
        await Agent(route(EXPERTS), model=ScriptedModel(["the boss", "me"])).run("How?")
    assert isinstance(failed.value.__cause__, OutputError)
    assert "no expert was chosen: " in str(failed.value)


async def test_a_choice_that_failed_is_asked_for_again_when_the_run_is_resumed():
    """What was recorded is the choice, not the answers that were none; a rerun asks nobody."""
    store = MemoryStore()
    with pytest.raises(NodeFailedError):
        await Agent(route(EXPERTS), model=ScriptedModel(["the boss", "me"]), store=store).run("How?", run_id="r")
    result = await Agent(route(EXPERTS), model=ScriptedModel([{"value": "support"}, "So."]), store=store).resume("r")
    assert (result.output, result.turns) == ("So.", 4)
    assert (await Agent(route(EXPERTS), model=ScriptedModel(), store=store).rerun("r")).output == "So."


async def test_a_function_may_choose():
    """Then no model is asked for the choice; what it returns is checked as well."""

    def first_word(prompt):
        return prompt.partition(" ")[0]

    chosen = route(EXPERTS, choose=first_word, default="support")
    with pytest.raises(NodeFailedError, match="no expert was chosen: 'what' is none of billing, support"):
        await Agent(route(EXPERTS, choose=lambda prompt: "what"), model=ScriptedModel()).run("Hi")
    model = ScriptedModel(["a", "b"])
    taken = record(agent := Agent(chosen, model=model))
    assert (await agent.run("billing please")).output == "a"
    assert ("decide", "when billing", "billing") in taken.paths
    assert (await agent.run("what?")).output == "b"
    assert ("decide", "otherwise", "support") in taken.paths


async def test_a_question_that_is_not_the_task_is_shown_to_whoever_chooses():
    """As part of a larger strategy, what arrives is what is routed."""

    @node
    async def translate(ctx: Context, text: str) -> str:
        return f"translated {text}"

    inner = route(EXPERTS)
    model = ScriptedModel([{"value": "billing"}, "None."])
    await Agent(Strategy("outer", START >> translate >> inner >> END), model=model).run("Ho?")
    assert "translated Ho?" in [message.text for message in model.requests[0].messages]
    model = ScriptedModel([{"value": "billing"}, "None."])
    await Agent(inner, model=model).run(Message.user("Ho?"))
    assert [message.text for message in model.requests[0].messages].count("Ho?") == 1


async def test_an_expert_may_be_an_agent():
    """It has its own model and transcript, in which the question is the task."""
    small = ScriptedModel(["So it is."])
    helper = Agent(single_run(), name="helper", model=small, system_prompt="You help.")
    experts = {"billing": BILLING, "support": Expert("how the product is used", helper.as_node())}
    result = await Agent(route(experts), model=ScriptedModel([{"value": "support"}])).run("How?")
    assert (result.output, len(result.children)) == ("So it is.", 1)
    assert [message.text for message in small.requests[0].messages] == ["You help.", "How?"]


async def test_the_choice_is_not_streamed_as_an_answer():
    """Whoever prints the text of a run sees what the expert says."""
    agent = Agent(route(EXPERTS), model=ScriptedModel([{"value": "support"}, "So it is."]))
    said = []
    agent.on(TextStreamed, lambda event: said.append(event.text))
    await agent.run("How?")
    assert "".join(said) == "So it is."


async def test_a_run_is_resumed_from_any_commit():
    """The choice is recorded, and the question arrives as the same one."""

    def reply(request):
        return {"value": "support"} if request.output is not None else "So."

    assert (await resumed_everywhere(route(EXPERTS), reply)).output == "So."
    assert (await resumed_everywhere(route(EXPERTS), reply, task=Message.user("How?"))).output == "So."


@pytest.mark.parametrize(
    ("experts", "default", "named"), [({}, None, r"\(none\)"), (EXPERTS, "boss", "billing, support")]
)
def test_experts_and_the_default_must_exist(experts, default, named):
    """The error names those that there are."""
    with pytest.raises(ValueError, match=named):
        route(experts, default=default)
