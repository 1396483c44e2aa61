"""Several answers to one prompt, of which one is chosen and joins the transcript.

Where the order of the answers matters, they are asked for one after the other: a scripted model answers in the order of the requests.
"""

from __future__ import annotations

from dataclasses import dataclass

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.errors import BudgetError, ModelRequestError, NodeFailedError, OutputError
from graphagent.events import TextStreamed
from graphagent.llm import ModelResponse, ToolCall
from graphagent.memory import ActionStep
from graphagent.nodes import choose, llm_choices, llm_request
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from tests.nodes.everywhere import resumed_everywhere
from tests.nodes.test_model_nodes import check_sendable


def longest(answers: list[str]) -> int:
    return max(range(len(answers)), key=lambda n: len(answers[n]))


def only(*elements):
    path = START
    for element in elements:
        path = path >> element
    return Strategy("s", path >> END)


async def test_only_the_chosen_answer_joins_the_transcript():
    """The requests are the same, the answers come in order, and what follows sees one of them."""
    model = ScriptedModel(["a", "ccc", "bb", "fine"])
    ask = llm_request(tools=False)

    @node
    async def go_on(ctx: Context, answer: str) -> str:
        return f"Is {answer} good?"

    result = await Agent(only(llm_choices(3, limit=1), choose(longest), go_on, ask), model=model).run("Write.")
    check_sendable(model)
    assert model.requests[0] == model.requests[1] == model.requests[2]
    assert model.requests[0].tools == ()
    assert [message.text for message in model.requests[3].messages] == ["Write.", "ccc", "Is ccc good?"]
    assert [step.model_output for step in result.memory.steps if isinstance(step, ActionStep)] == ["ccc", "fine"]
    assert (result.output, result.turns) == ("fine", 4)


@pytest.mark.every_loop
async def test_the_requests_run_at_once():
    """All of them, or as many as the limit says."""
    inside, most = 0, []

    class Slow(ScriptedModel):
        async def respond(self, request, on_text=None):
            nonlocal inside
            inside += 1
            most.append(inside)
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
            inside -= 1
            return await super().respond(request, on_text)

    for limit, expected in ((None, 5), (2, 2)):
        most.clear()
        await Agent(only(llm_choices(5, limit=limit), choose(longest)), model=Slow(["a"] * 5)).run("x")
        assert max(most) == expected


async def test_a_model_chooses_by_criteria():
    """It is shown the answers with their numbers; what it says is no turn, and not in the transcript."""
    model = ScriptedModel(["a rose", "a thorn", {"value": 2}])
    result = await Agent(only(llm_choices(2, limit=1), choose("The least romantic one.")), model=model).run("Write.")
    assert result.output == "a thorn"
    [asked] = model.requests[2].messages
    assert "The least romantic one." in asked.text
    assert asked.text.endswith("Answer 1:\na rose\n\nAnswer 2:\na thorn")
    assert result.turns == 2


async def test_a_number_that_does_not_exist_is_asked_for_once_more():
    """And is an OutputError the second time."""
    strategy = only(llm_choices(2, limit=1), choose("The best."))
    assert (await Agent(strategy, model=ScriptedModel(["a", "b", {"value": 3}, {"value": 1}])).run("x")).output == "a"
    with pytest.raises(NodeFailedError) as failed:
        await Agent(strategy, model=ScriptedModel(["a", "b", {"value": 3}, {"value": 0}])).run("x")
    assert isinstance(failed.value.__cause__, OutputError)


@dataclass(frozen=True)
class Offer:
    price: int


async def test_answers_may_have_a_type():
    """Each is asked for as JSON, and once more by itself where it does not fit."""

    def cheapest(offers: list[Offer]) -> int:
        return min(range(len(offers)), key=lambda n: offers[n].price)

    choices, choice = llm_choices(2, output=Offer, limit=1), choose(cheapest)
    assert (choices.output_type, choice.input_type, choice.output_type) == (list[Offer], list[Offer], Offer)
    model = ScriptedModel(
        [
            lambda request: {"price": 7} if len(request.messages) > 1 else "cheap",
            lambda request: {"price": 9},
            {"price": 7},
        ]
    )
    result = await Agent(only(choices, choice), model=model).run("Offer.")
    assert result.output == Offer(7)
    assert result.memory.to_messages()[-1].text == '{"price":7}'


async def test_a_person_may_choose():
    """The function gets the context, and the run waits for the answer."""

    async def ask(ctx: Context, answers: list[str]) -> int:
        return await ctx.ask(f"Which of {answers}?", int)

    agent = Agent(only(llm_choices(2, limit=1), choose(ask)), model=ScriptedModel(["a", "b"]))
    run = agent.start("x")
    assert (await run.finish()).status == "waiting"
    run.answer(1)
    assert (await run.finish()).output == "b"


async def test_listeners_hear_the_chosen_answer_alone():
    """In one piece, once it is chosen; with all_text=True the others too, as decisions."""
    heard, others = [], []
    agent = Agent(
        only(llm_choices(2, limit=1), choose(longest)), model=ScriptedModel(["one rose", "a rose and a thorn"])
    )
    agent.on(TextStreamed, lambda event: heard.append(event.text))
    agent.on(TextStreamed, lambda event: others.append(event.output), all_text=True)
    await agent.run("x")
    assert heard == ["a rose and a thorn"]
    assert set(others) == {"decision", "answer"}


async def test_a_final_check_asks_for_other_choices():
    """The refusal is the next prompt of the node that asked."""
    model = ScriptedModel(["a", "bb", "c", "ddd"])
    agent = Agent(
        only(llm_choices(2, limit=1), choose(longest)), model=model, final_answer_checks=[lambda said: len(said) > 2]
    )
    assert (await agent.run("x")).output == "ddd"


@pytest.mark.parametrize("wrong", [3, -1, "a", None, True, 0.0])
async def test_a_choice_of_nothing_is_an_error(wrong):
    """The error says what a function returns."""
    with pytest.raises(NodeFailedError) as failed:
        await Agent(only(llm_choices(3), choose(lambda answers: wrong)), model=ScriptedModel(["a"] * 3)).run("x")
    assert "it returns the index of an answer, 0 to 2" in str(failed.value.__cause__)


async def test_nothing_to_choose_from_is_an_error():
    """As from a node of one's own."""
    with pytest.raises(NodeFailedError) as failed:
        await Agent(only(choose(longest))).run([])
    assert "has no answers to choose from" in str(failed.value.__cause__)


async def test_a_failure_keeps_the_other_answers():
    """One of the requests fails; a run that is resumed asks only for what is missing. So it is with a turn too few."""
    store, strategy = MemoryStore(), only(llm_choices(3, limit=1), choose(longest))
    broken = ScriptedModel(["a", "bb", ModelRequestError("out of order")])
    with pytest.raises(NodeFailedError, match="out of order"):
        await Agent(strategy, model=broken, store=store).run("x", run_id="r")
    model = ScriptedModel(["ccc"])
    assert (await Agent(strategy, model=model, store=store).resume("r")).output == "ccc"

    with pytest.raises(BudgetError, match="2 turns"):
        await Agent(strategy, model=ScriptedModel(["a", "bb"]), store=store, max_turns=2).run("x", run_id="s")
    assert (await Agent(strategy, model=ScriptedModel(["ccc"]), store=store).resume("s")).output == "ccc"


async def test_a_call_that_nobody_offered_is_no_answer():
    """A server that calls tools unasked is asked once more, and then it is an OutputError."""
    with pytest.raises(NodeFailedError) as failed:
        await Agent(only(llm_choices(1), choose(longest)), model=ScriptedModel([ToolCall("x")] * 2)).run("x")
    assert isinstance(failed.value.__cause__, OutputError)


def by_turns(request):
    """Answer a choice by its criteria, and the rest by what was said before."""
    last = request.messages[-1].text
    return {"value": 2} if last.startswith("Choose the best") else f"answer to {last}"


async def test_choices_are_resumed_from_any_step():
    """No recorded answer is asked for again."""
    result, model = await resumed_everywhere(
        only(llm_choices(3), choose("The second."), llm_request(tools=False)), by_turns
    )
    assert result.output == "answer to answer to the task"
    assert len(model.requests) == 5


async def test_an_answer_cut_off_at_its_limit_is_an_answer():
    """Text is used as far as it goes, as elsewhere."""
    from graphagent.llm import Message

    cut = ModelResponse(Message.assistant("half of"), finish_reason="length")
    assert (await Agent(only(llm_choices(1), choose(longest)), model=ScriptedModel([cut])).run("x")).output == "half of"
