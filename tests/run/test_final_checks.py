"""Final checks: an answer that does not pass is asked for again, with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import repeat

import pytest

from graphagent import END, START, Agent, Context, Run, Strategy, node, parallel, tool
from graphagent.errors import BudgetError, CheckError, NodeFailedError, ScriptError
from graphagent.llm import ToolCall, ToolCalls
from graphagent.memory import ActionStep, FinalAnswerStep, MessageStep
from graphagent.nodes import ask_human, llm_request
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from tests.run.family import Commits, react


def short(answer: str) -> bool:
    return len(answer.split()) <= 3


def asker(replies, *checks, strategy=None, **settings):
    say = Strategy("s", START >> llm_request(tools=False) >> END)
    return Agent(strategy or say, model=ScriptedModel(replies), final_answer_checks=checks, **settings)


async def test_an_answer_that_does_not_pass_is_asked_for_again():
    """The model sees its answer and why it was refused; what passes is the output, and the only final answer."""
    agent = asker(["far too long an answer", "short"], short)
    result = await agent.run("say it")
    assert result.output == "short"
    assert [message.text for message in agent.model.requests[1].messages] == [
        "say it",
        "far too long an answer",
        "Your answer did not pass the check 'short'. Answer again.",
    ]
    assert [type(step) for step in result.memory.steps[1:]] == [ActionStep, MessageStep, ActionStep, FinalAnswerStep]
    assert result.turns == 2


async def test_an_exception_refuses_with_its_words():
    """An assertion without words refuses with its type."""

    def has_number(answer: str) -> None:
        if not any(map(str.isdigit, answer)):
            raise ValueError("there is no number in it")

    def has_dot(answer: str) -> None:
        if not answer.endswith("."):
            raise AssertionError

    agent = asker(["none", "7", "7."], has_number, partial(has_dot))
    assert (await agent.run("x")).output == "7."
    said = [request.messages[-1].text for request in agent.model.requests]
    assert said[1] == "Your answer did not pass the check 'has_number': there is no number in it. Answer again."
    assert said[2] == "Your answer did not pass the check 'has_dot': AssertionError. Answer again."


async def test_checks_are_called_in_order_until_one_refuses():
    """The next answer is checked by all of them again."""
    called = []

    def first(answer: str) -> bool:
        called.append(("first", answer))
        return answer != "a"

    def second(answer: str) -> bool:
        called.append(("second", answer))
        return answer != "b"

    assert (await asker(["a", "b", "c"], first, second).run("x")).output == "c"
    assert called == [("first", "a"), ("first", "b"), ("second", "b"), ("first", "c"), ("second", "c")]


async def test_a_check_may_look_at_the_run_and_may_be_async():
    """It is given the answer, or the answer and the run; what it gives back counts, and nothing means that it passes."""
    seen = []

    async def look(answer: str, run: Run[str]) -> bool:
        seen.append((answer, run.run_id, len(run.memory.steps)))
        return len(seen) > 1

    class Silent:
        def __call__(self, answer: str) -> None: ...

    result = await asker(["a", "b"], look, Silent(), str.isalpha).run("x", run_id="r")
    assert result.output == "b"
    assert seen == [("a", "r", 2), ("b", "r", 4)]


@pytest.mark.parametrize("wrong", [lambda: True, lambda a, b, c: True, lambda answer, *, strict: True])
def test_a_check_that_cannot_be_called_is_refused(wrong):
    """When the agent is made, with what to write."""
    with pytest.raises(TypeError, match=r"the final check '<lambda>' is called with the answer.*it takes \("):
        asker([], wrong)


async def test_the_turns_bound_it():
    """A model that never passes uses up its turns."""
    agent = asker(repeat("far too long an answer"), short, max_turns=4)
    with pytest.raises(BudgetError) as info:
        await agent.run("x")
    assert (info.value.budget, info.value.result.turns) == ("turns", 4)


async def test_where_no_model_was_asked_the_check_is_an_error():
    """There is nobody to ask again, or nobody who takes words."""

    @node
    async def fixed(ctx: Context, text: str) -> str:
        return "far too long an answer"

    @node
    async def ask_inside(ctx: Context, number: int) -> str:
        from graphagent.llm import Message, ModelRequest

        return (await ctx.request(ModelRequest((Message.user(f"{number}"),)))).message.text

    with pytest.raises(CheckError) as info:
        await asker([], short, strategy=Strategy("s", START >> fixed >> END)).run("x", run_id="r")
    assert (info.value.check, info.value.run_id) == ("short", "r")
    with pytest.raises(CheckError):
        await asker(["a b c d"], short, strategy=Strategy("s", START >> ask_inside >> END)).run(1)


async def test_typed_answers_are_checked_as_they_are():
    """The check gets the value, and the model is asked for the type again."""

    @dataclass
    class Trip:
        city: str
        days: int

    def affordable(trip: Trip) -> bool:
        return trip.days <= 3

    strategy = Strategy("s", START >> llm_request(output=Trip) >> END)
    agent = asker([{"city": "Oslo", "days": 9}, {"city": "Oslo", "days": 3}], affordable, strategy=strategy)
    assert (await agent.run("x")).output == Trip("Oslo", 3)
    assert agent.model.requests[1].output is not None


async def test_the_model_goes_on_with_its_tools():
    """It is asked in the node where it was asked last, and may call tools before it answers again."""
    called = []

    @tool
    async def look(what: str) -> str:
        """Look something up."""
        called.append(what)
        return "found"

    agent = asker(
        [ToolCall("look", {"what": "a"}), "far too long an answer", ToolCall("look", {"what": "b"}), "ok"], short,
        strategy=react("s"), tools=[look],
    )  # fmt: skip
    result = await agent.run("x")
    assert (result.output, called) == ("ok", ["a", "b"])


async def test_a_node_behind_the_model_sees_the_next_answer_too():
    """The strategy goes on from where the model was asked: what stands behind is executed again."""
    shouted = []

    @node
    async def shout(ctx: Context, text: str) -> str:
        shouted.append(text)
        return text.upper()

    strategy = Strategy("s", START >> llm_request(tools=False) >> shout >> END)
    result = await asker(["far too long an answer", "ok"], short, strategy=strategy).run("x")
    assert (result.output, shouted) == ("OK", ["far too long an answer", "ok"])


async def test_a_subgraph_in_which_the_model_was_asked_is_entered_again():
    """It takes words, so it is asked with the reason."""
    inside = Strategy("inside", START >> llm_request(tools=False, name="in") >> END)
    agent = asker(["far too long an answer", "ok"], short, strategy=Strategy("s", START >> inside >> END))
    result = await agent.run("x")
    assert result.output == "ok"
    assert agent.model.requests[1].messages[-1].text.startswith("Your answer did not pass")


async def test_branches_are_asked_again_all_of_them():
    """Where the model was asked in a fork, the whole fork is."""
    one = Strategy("one", START >> llm_request(tools=False) >> END)

    @node
    async def joined(ctx: Context, parts: tuple[str, str]) -> str:
        return " ".join(parts)

    strategy = Strategy("s", START >> parallel(one, one.named("two")) >> joined >> END)
    result = await asker(["a b", "c d", "a", "b"], short, strategy=strategy).run("x")
    assert sorted(result.output.split()) == ["a", "b"]


async def test_a_script_that_is_too_short_in_a_check_ends_the_run():
    """A check that asks a model in a test must not refuse for that reason."""
    judge = Agent(Strategy("j", START >> llm_request(tools=False) >> END), model=ScriptedModel([]))

    async def judged(answer: str) -> bool:
        try:
            return (await judge.run(answer)).output == "yes"
        except NodeFailedError as error:
            raise error.__cause__ from None

    with pytest.raises(ScriptError):
        await asker(["a"], judged).run("x")


async def test_a_check_may_pause_the_run():
    """It pauses before the model is asked again, and goes on from there."""

    def once(answer: str, run: Run[str]) -> bool:
        if answer == "no":
            run.pause("let me see")
        return answer != "no"

    run = asker(["no", "yes"], once).start("x")
    result = await run.finish()
    assert result.status == "paused"
    assert (await run.finish()).output == "yes"


async def test_a_sub_agent_has_its_checks():
    """They are those of its own agent, and its model is asked again."""
    inner = asker(["far too long an answer", "ok"], short, name="helper", description="Helps.")
    agent = Agent(react("s"), model=ScriptedModel([ToolCall("helper", {"task": "t"}), "a b c d e"]), tools=[inner])
    result = await agent.run("x")
    assert result.output == "a b c d e"
    assert result.children[0].output == "ok"


# ---- kept


async def test_it_survives_the_death_of_its_process_anywhere():
    """Behind every commit, also between a refusal and the next answer: nothing is asked twice, and the prompts are the same."""
    calls: list[ToolCalls | str] = [ToolCalls([ToolCall("look", {"what": "a"}, "c1")])]

    @tool
    async def look(what: str) -> str:
        """Look something up."""
        return "found"

    def rule(request):
        said = [message.text for message in request.messages if message.role == "assistant"]
        return [*calls, "one far too long answer", "another far too long answer", "ok"][len(said)]

    def agent(store):
        return asker(repeat(rule), short, strategy=react("s"), tools=[look], store=store)

    first = agent(Commits())
    whole = await first.run("x", run_id="r")
    assert whole.turns == 4
    for count in range(1, len(first.store.commits) + 1):
        store = await first.store.after(count)
        answered = len(await store.effects("turn", "decision"))
        again = agent(store)
        result = await again.resume("r")
        told = f"cut behind commit {count}"
        assert (result.output, result.turns, result.usage) == ("ok", 4, whole.usage), told
        assert [request.messages for request in again.model.requests] == [
            request.messages for request in first.model.requests[answered:]
        ], told
        stored = await again.read("r")
        assert [type(step) for step in stored.memory.steps] == [type(step) for step in whole.memory.steps], told
        assert sum(isinstance(step, FinalAnswerStep) for step in stored.memory.steps) == 1


async def test_it_waits_for_people_in_between():
    """A strategy that asks a person before the model is not asked for it again."""
    strategy = Strategy("s", START >> ask_human("What?", str) >> llm_request(tools=False) >> END)
    store = MemoryStore()
    assert (await asker([], short, strategy=strategy, store=store).run("x", run_id="r")).pending is not None
    agent = asker(["far too long an answer", "ok"], short, strategy=strategy, store=store)
    result = await agent.resume("r", answer="this")
    assert (result.output, result.turns) == ("ok", 2)
    entries = [entry.node for entry in await agent.history("r") if entry.node]
    assert entries == ["ask_human", "llm_request", "llm_request"]


async def test_checks_may_be_others_when_the_run_goes_on():
    """They are no part of what is kept: the agent that goes on has its own."""
    store = MemoryStore()
    with pytest.raises(BudgetError):
        await asker(repeat("far too long an answer"), short, store=store, max_turns=1).run("x", run_id="r")
    assert (
        await asker(["any answer that comes to mind"], store=store).resume("r")
    ).output == "any answer that comes to mind"
