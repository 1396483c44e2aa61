"""Rules over paths in runs: what the agent knows of its runs and the strategy does not."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.errors import StrategyError
from graphagent.graph import guarded, never_together, precedes
from graphagent.memory import ActionStep, FinalAnswerStep  # noqa: TC001  annotations choose the steps that callbacks see
from graphagent.nodes import llm_request
from graphagent.protocols import Feature
from graphagent.testing import ScriptedModel

ask = llm_request(tools=False)


@node
async def search(ctx: Context, text: str) -> str:
    return text


@node
async def send(ctx: Context, text: str) -> str:
    return text


APART = never_together(search, send)
route = Strategy(
    "route", START >> ask, ask.on("search") >> search >> END, ask.otherwise() >> send >> END, rules=[APART]
)


def agent(**settings):
    return Agent(route, model=ScriptedModel(["search", "no", "send", "yes"]), **settings)


def refused(make):
    with pytest.raises(StrategyError) as caught:
        make()
    return str(caught.value)


async def test_an_answer_that_may_be_refused_is_part_of_the_proof():
    """The model may be asked again: an agent with final checks refuses a strategy whose rules that could break, and another runs."""
    assert (await agent().run("x")).output == "search"
    assert refused(lambda: agent(final_answer_checks=[str.isascii])) == snapshot("""\
strategy 'route' has 1 problem:
  'send': it breaks the rule never_together(search, send) on the path START -> llm_request -[on 'search']-> search -[answer refused]-> llm_request -[otherwise]-> send: one run executes both; choose one of them with outlets such as .on(…) and .when(…), or change the rule\
""")
    held = Strategy("held", START >> ask >> search >> send >> END, rules=[precedes(search, send)])
    checked = Agent(held, model=ScriptedModel(["no", "yes"]), final_answer_checks=[lambda answer: answer == "yes"])
    assert (await checked.run("x")).output == "yes"


def test_callbacks_that_see_the_answer_may_refuse_it():
    """Those that see other steps cannot; one that a feature adds is found before the first run."""

    def every(step) -> None: ...

    def turns(step: ActionStep) -> None: ...

    def answers(step: FinalAnswerStep) -> None: ...

    assert agent(step_callbacks=[turns])
    for callback in (every, answers):
        assert "answer refused" in refused(lambda callback=callback: agent(step_callbacks=[callback]))


async def test_a_callback_of_a_feature_is_found_before_the_first_run():
    """Features add theirs when they are installed; the run does not begin."""

    class Judge(Feature):
        def install(self, agent):
            from graphagent.run.engine._callbacks import Callback

            agent.callbacks.append(Callback.of(self.judge))

        def judge(self, step: FinalAnswerStep) -> None: ...

    judged = agent()
    judged.install(Judge)
    with pytest.raises(StrategyError, match="answer refused"):
        await judged.run("x")
    assert judged.model.requests == []


def test_both_ways_back_are_tried():
    """A refused answer of a strategy that is tried again as a whole."""
    rule = guarded(search, by="moderate", before=send)
    moderate = send.named("moderate")
    whole = Strategy("whole", START >> search >> moderate >> ask >> send >> END, rules=[rule]).retry(attempts=2)
    assert Agent(whole, model=ScriptedModel([]), final_answer_checks=[str.isascii])
    last = Strategy("last", START >> ask >> send >> search >> END, rules=[precedes(send, search)])
    assert Agent(last, model=ScriptedModel([]), final_answer_checks=[str.isascii])
