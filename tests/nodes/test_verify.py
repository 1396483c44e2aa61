"""A verdict of a model about a value, on which edges decide."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent.errors import NodeFailedError, OutputError
from graphagent.events import TextStreamed
from graphagent.llm import ToolCall
from graphagent.llm.openai import OpenAIModel
from graphagent.memory import ActionStep
from graphagent.nodes import Accepted, Rejected, llm_request, update_prompt, verify
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel, openai_server, record
from tests.nodes.everywhere import resumed_everywhere
from tests.nodes.test_model_nodes import check_sendable

NO, YES = {"feedback": "Name the year.", "passed": False}, {"feedback": "", "passed": True}


def value_of(accepted: Accepted[str]) -> str:
    return accepted.value


def loop(check=None):
    """A draft that is revised until it is accepted."""
    draft = llm_request(tools=False, name="draft")
    check = check or verify("It names a year.")
    return Strategy(
        "revised",
        START >> draft >> check,
        check.on(Accepted).map(value_of) >> END,
        check.on(Rejected).map(Rejected.to_prompt) >> draft,
    )


async def test_a_draft_is_revised_with_the_feedback_until_it_is_accepted():
    """Edges take Accepted and Rejected; the feedback is what the model is asked with next."""
    model = ScriptedModel(["Long ago.", NO, "In 1871.", YES])
    result = await Agent(loop(), model=model).run("When?")
    check_sendable(model)
    assert result.output == "In 1871."
    assert model.requests[2].messages[-1].text == (
        "This was not accepted: Name the year.\n\nMend that, and answer with the whole, not only with what changed."
    )


async def test_the_verdict_is_asked_for_apart():
    """The judge sees what was said, the criteria and the value; the transcript, the turns of which are counted, has none of it."""
    model = ScriptedModel(["Long ago.", NO, "In 1871.", YES])
    result = await Agent(loop(), model=model).run("When?")
    asked = model.requests[1]
    assert [message.text for message in asked.messages[:2]] == ["When?", "Long ago."]
    assert "It names a year." in asked.messages[-1].text
    assert asked.messages[-1].text.endswith("\n\nLong ago.")
    assert asked.output is not None
    assert asked.tools == ()
    assert [step.model_output for step in result.memory.steps if isinstance(step, ActionStep)] == [
        "Long ago.",
        "In 1871.",
    ]
    assert result.turns == 4


async def test_verdicts_are_no_answers_to_listeners():
    """Who listens to the answer hears the drafts alone; with all_text=True the verdicts too, as decisions."""
    heard, everything = [], []
    agent = Agent(loop(), model=ScriptedModel(["Long ago.", NO, "In 1871.", YES]))
    agent.on(TextStreamed, lambda event: heard.append(event.text))
    agent.on(TextStreamed, lambda event: everything.append(event.output), all_text=True)
    await agent.run("When?")
    assert "".join(heard) == "Long ago.In 1871."
    assert set(everything) == {"answer", "decision"}


async def test_a_final_check_does_not_ask_the_judge():
    """The node to which a refused answer returns is the one that made it."""
    refused = []

    def short(answer: str) -> bool:
        refused.append(answer)
        return len(answer) < 9

    model = ScriptedModel(["In the year 1871.", YES, "In 1871.", YES])
    result = await Agent(loop(), model=model, final_answer_checks=[short]).run("When?")
    assert (result.output, refused) == ("In 1871.", ["In the year 1871.", "In 1871."])


async def test_no_plan_is_made_for_a_judgement():
    """An agent that plans plans its own turns."""
    model = ScriptedModel(["plan", "Long ago.", YES])
    result = await Agent(loop(), model=model, planning_interval=1).run("When?")
    assert result.output == "Long ago."


@dataclass(frozen=True)
class Draft:
    """A text under a title."""

    title: str
    text: str


async def test_a_value_of_any_type_is_judged_as_json():
    """It arrives at the edges as it was."""
    check = verify("It has a title.", Draft)
    assert check.input_type is Draft
    model = ScriptedModel([NO])
    result = await Agent(check, model=model).run(Draft("", "Long ago."))
    assert result.output == Rejected(Draft("", "Long ago."), "Name the year.")
    assert model.requests[0].messages[-1].text.endswith('\n\n{"title":"","text":"Long ago."}')


async def test_a_function_makes_the_whole_question():
    """Its parameter is the type of the input."""

    def question(draft: Draft) -> str:
        return f"Does {draft.title!r} fit {draft.text!r}?"

    check = verify(question)
    assert check.input_type is Draft
    model = ScriptedModel([YES])
    assert (await Agent(check, model=model).run(Draft("a", "b"))).output == Accepted(Draft("a", "b"))
    assert model.requests[0].messages[-1].text == "Does 'a' fit 'b'?"


async def test_a_judge_may_have_tools_and_a_model_of_its_own():
    """It calls them until it has a verdict; the others see neither."""

    @tool
    async def count(text: str) -> int:
        """Count the characters of a text."""
        return len(text)

    own = ScriptedModel([ToolCall("count", {"text": "Long ago."}, "c"), ToolCall("finish", YES, "f")])
    model = ScriptedModel(["Long ago."])
    agent = Agent(loop(verify("It is short.", tools=[count], model=own, max_turns=3)), model=model)
    taken = record(agent)
    assert (await agent.run("When?")).output == "Long ago."
    check_sendable(own)
    assert [each.name for each in own.requests[0].tools] == ["count", "finish"]
    assert len(model.requests) == 1
    assert "verify/parallel/1/judge/execute_tools" in taken.nodes


async def test_without_a_verdict_nothing_is_accepted():
    """An answer that is none, twice, is an OutputError; an answer without a reason is a rejection all the same."""
    store = MemoryStore()
    broken = Agent(loop(), model=ScriptedModel(["Long ago.", "Looks good!", "I said: good!"]), store=store)
    with pytest.raises(NodeFailedError) as failed:
        await broken.run("When?", run_id="r")
    assert isinstance(failed.value.__cause__, OutputError)
    again = Agent(loop(), model=ScriptedModel([YES]), store=store)
    assert (await again.resume("r")).output == "Long ago."
    silent = Agent(verify("It is short."), model=ScriptedModel([{"feedback": " ", "passed": False}]))
    assert (await silent.run("x")).output == Rejected("x", "it does not hold, and no reason was stated")


def by_turns(request):
    """Answer by what was asked: drafts that become better, and verdicts about them."""
    last = request.messages[-1].text
    if last.startswith("Judge"):
        return YES if last.endswith("1871.") else NO
    return "In 1871." if last.startswith("This was not") else "Long ago."


async def test_a_verification_is_resumed_from_any_step():
    """Output, transcript and usage are the same, and no recorded verdict is asked for again."""
    result, model = await resumed_everywhere(loop(), by_turns)
    assert result.output == "In 1871."
    assert len(model.requests) == 4


async def test_a_verdict_is_read_however_a_server_puts_it():
    """Over HTTP: fenced, in prose, and as text that ignores the schema, which is asked for once more with the schema in the prompt."""
    replies = [
        "A",
        'Well: {"feedback": "no", "passed": false}',
        "B",
        "Hm.",
        '```json\n{"feedback": "", "passed": true}\n```',
    ]
    async with openai_server(replies) as server:
        agent = Agent(loop(), model=OpenAIModel("m", base_url=server.base_url))
        assert (await agent.run("When?")).output == "B"
        formats = [each.get("response_format", {}).get("type") for each in server.requests]
    assert formats == [None, "json_schema", None, "json_schema", None]


async def test_a_judge_sees_rules_that_were_added():
    """What was said so far is before it as it is before any other node."""
    model = ScriptedModel([YES])
    strategy = Strategy("s", START >> update_prompt("The year is 1871.") >> verify("It is right.") >> END)
    await Agent(strategy, model=model).run("In 1871.")
    assert [message.text for message in model.requests[0].messages][:2] == ["In 1871.", "The year is 1871."]


async def test_the_types_of_a_verification_are_known_to_the_check():
    """An edge for one of the outcomes alone is refused when the strategy is made."""
    from graphagent.errors import StrategyError

    @node
    async def publish(ctx: Context, text: Accepted[str]) -> str:
        return text.value

    check = verify("It is short.")
    with pytest.raises(StrategyError, match=r"no edge takes its output Rejected\[str\]"):
        Strategy("s", START >> check, check.on(Accepted) >> publish >> END)
