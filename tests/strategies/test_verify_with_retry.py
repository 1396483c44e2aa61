"""`verify_with_retry`: only an answer that passed a check is returned as text."""

from __future__ import annotations

import pytest

from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent.errors import StrategyError
from graphagent.llm import ToolCall
from graphagent.nodes import Accepted, Rejected
from graphagent.testing import ScriptedModel, record
from graphagent_strategies import verify_with_retry
from tests.strategies.resuming import left_out, resumed_everywhere

WRONG = {"feedback": "It lacks the year.", "passed": False}
RIGHT = {"feedback": "", "passed": True}


@tool
def search(query: str) -> str:
    """Search."""
    return "1871"


def has_a_year(answer: str) -> Accepted | Rejected:
    good = any(word.strip(".").isdecimal() for word in answer.split())
    return Accepted(answer) if good else Rejected(answer, "name the year")


async def test_a_refused_answer_is_given_again_with_the_feedback():
    """The model knows the criteria, is told what was wrong, and the second answer is the output."""
    model = ScriptedModel(["Long ago.", WRONG, ToolCall("search", {"query": "x"}), "In 1871.", RIGHT])
    agent = Agent(verify_with_retry("It names a year."), model=model, tools=[search])
    taken = record(agent)
    assert (await agent.run("When?")).output == "In 1871."
    assert left_out(agent.strategy, taken) == {("verify", "on Rejected, when is_last", "END")}
    assert model.requests[0].messages[1].text.endswith("This must hold: It names a year.")
    assert [bool(request.tools) for request in model.requests] == [True, False, True, True, False]
    assert model.requests[2].messages[-1].text == "The answer was refused: It lacks the year.\nAnswer again, in full."


@pytest.mark.parametrize("attempts", [1, 2, 4])
async def test_after_the_last_attempt_the_outcome_says_so(attempts):
    """It is a value of its own type, with the last answer and what is wrong with it."""
    replies = [reply for number in range(attempts) for reply in (f"Answer {number + 1}.", WRONG)]
    agent = Agent(verify_with_retry(attempts=attempts), model=ScriptedModel(replies))
    taken = record(agent)
    result = await agent.run("When?")
    assert ("verify", "on Rejected, when is_last", "END") in taken.paths
    assert result.output == Rejected(f"Answer {attempts}.", "It lacks the year.")
    assert result.turns == 2 * attempts


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_function_gives_the_verdict(asynchronous):
    """Async or not, it is called with each answer, and the model is asked for answers alone."""

    async def has_a_year_async(answer: str) -> Accepted | Rejected:
        return has_a_year(answer)

    check = has_a_year_async if asynchronous else has_a_year
    model = ScriptedModel(["Long ago.", "Very long ago.", "In 1871."])
    agent = Agent(verify_with_retry(check), model=model)
    assert (await agent.run("When?")).output == "In 1871."
    assert model.requests[1].messages[-1].text == "The answer was refused: name the year\nAnswer again, in full."
    late = Agent(verify_with_retry(check, attempts=2), model=ScriptedModel(["Long ago.", "Very long ago."]))
    assert (await late.run("When?")).output == Rejected("Very long ago.", "name the year")


async def test_a_larger_strategy_has_an_edge_for_each_outcome():
    """Used as a node twice in one run, it counts the attempts of each time from one."""

    @node
    async def ask_again(ctx: Context, failed: Rejected) -> str:
        return f"What instead of {failed.value}"

    first, second = (
        verify_with_retry(has_a_year, attempts=2, name="first"),
        verify_with_retry(has_a_year, name="second"),
    )
    both = Strategy(
        "both",
        START >> first,
        first.on(str) >> END,
        first.on(Rejected) >> ask_again >> second,
        second.on(str) >> END,
        second.on(Rejected).map(lambda failed: failed.value) >> END,
    )
    model = ScriptedModel(["a", "b", "c", "d", "in 3", "1 x"])
    assert (await Agent(both, model=model).run("When?")).output == "in 3"
    assert (await Agent(both, model=model).run("When?")).output == "1 x"


async def test_a_run_is_resumed_from_any_commit():
    """The number of attempts is known in every process."""

    def reply(request):
        if request.output is not None:
            return WRONG
        return f"answer {sum(message.role == 'assistant' for message in request.messages)}"

    whole = await resumed_everywhere(verify_with_retry(attempts=2), reply)
    assert whole.output == Rejected("answer 1", "It lacks the year.")
    whole = await resumed_everywhere(verify_with_retry(has_a_year, attempts=3), lambda request: reply(request)[:6])
    assert whole.output == Rejected("answer", "name the year")


def test_a_strategy_without_an_edge_for_refused_answers_is_refused_when_it_is_made():
    """Its output is text or `Rejected`, also for the check of the graph."""
    checked = verify_with_retry("It names a year.", name="checked")
    with pytest.raises(StrategyError, match="no edge takes its output Rejected"):
        Strategy("s", START >> checked, checked.on(str) >> END)
