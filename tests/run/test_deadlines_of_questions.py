"""A question with a deadline is answered before it is recorded as expired, or expires; and exactly one of both, which the log has."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphagent import END, START, Agent, Context, Strategy, node, parallel, race, tool
from graphagent.errors import (
    AnswerError,
    LateAnswerError,
    NodeFailedError,
    QuestionExpiredError,
    SerializationError,
    StoreError,
)
from graphagent.history import export_runs, import_runs, list_questions
from graphagent.llm import Deny, ToolCall
from graphagent.log._entries import EffectRecorded, Expired
from graphagent.log._header import read_due
from graphagent.nodes import Approved, Denied, approval, ask_human, sleep
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel, fixed_clock
from graphagent_strategies import single_run
from tests.run.lives import Mortal, entries_of
from tests.thorough import examples

pytestmark = pytest.mark.every_loop

EVENING = 1_735_761_600_000
DAY = timedelta(days=1)


def at(moment):
    return datetime.fromtimestamp(moment / 1000, UTC)


TOMORROW = at(EVENING) + DAY


@pytest.fixture
def clock():
    with fixed_clock(EVENING, 0) as fixed:
        yield fixed


@dataclass
class Seat:
    row: int


@node
async def late(ctx: Context, error: QuestionExpiredError) -> str:
    return f"{error.question} expired"


def agent_of(element, store=None, **options):
    return Agent(Strategy("s", START >> element >> END), store=store, **options)


# ---- one question


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("deadline", [DAY, TOMORROW])
async def test_a_question_expires_when_the_run_is_resumed_after_its_deadline(clock, stored, deadline):
    """With its default; the run waits until then as for any question, and says when it is due."""
    ask = ask_human("Where?", Seat, deadline=deadline, default=Seat(1))
    agent = agent_of(ask, MemoryStore() if stored else None)
    result = await agent.run("x", run_id="r")
    assert (result.status, result.due, result.pending.deadline) == ("waiting", TOMORROW, TOMORROW)
    clock.move(DAY - timedelta(milliseconds=1))
    result = await (agent.resume("r") if stored else agent.last.finish())
    assert (result.status, result.due) == ("waiting", TOMORROW)  # asked again, it would be due later
    clock.move(timedelta(milliseconds=1))
    result = await (agent.resume("r") if stored else agent.last.finish())
    assert (result.output, result.due, result.questions) == (Seat(1), None, ())


async def test_the_answer_counts_until_it_is_recorded_that_there_was_none(clock):
    """After the deadline, as long as nobody has resumed the run without it; then it is refused, and nothing is written."""
    agent = agent_of(
        Strategy("inner", START >> ask_human("Where?", str, deadline=DAY, default="no") >> sleep(DAY) >> END),
        MemoryStore(),
    )
    for run_id in ("a", "b"):
        await agent.run("x", run_id=run_id)
    clock.move(2 * DAY)
    assert (await agent.resume("a", answer="yes")).status == "sleeping"
    assert (await agent.resume("b")).status == "sleeping"
    (id_,) = [each.data["id"] for each in await agent.history("b") if each.kind == "expired"]
    entries = len(await agent.history("b"))
    with pytest.raises(LateAnswerError, match="has expired: its deadline was 2025-01-02 20:00:00") as caught:
        await agent.resume("b", answers={id_: "yes"})
    assert (caught.value.question, caught.value.deadline, caught.value.run_id) == (id_, TOMORROW, "b")
    with pytest.raises(AnswerError, match="waits for no answer"):
        await agent.resume("b", answer="yes")
    assert len(await agent.history("b")) == entries
    clock.move(DAY)
    assert [(await agent.resume(run_id)).output for run_id in ("a", "b")] == ["yes", "no"]


@pytest.mark.parametrize(
    "make", [lambda: ask_human("Well?", str, deadline=DAY), lambda: approval("Well?", deadline=DAY)]
)
async def test_without_a_default_an_error_edge_is_taken(clock, make):
    """It is given the error, which has the question and the deadline."""
    ask, seen = make(), []

    @node
    async def end(ctx: Context, value: str | Approved[str] | Denied[str]) -> str:
        return str(value)

    @node
    async def escalate(ctx: Context, error: QuestionExpiredError) -> str:
        seen.append(error)
        return "escalated"

    agent = Agent(
        Strategy("s", START >> ask >> end >> END, ask.on_error(QuestionExpiredError) >> escalate >> END),
        store=MemoryStore(),
    )
    result = await agent.run("x", run_id="r")
    clock.move(DAY)
    assert (await agent.resume("r")).output == "escalated"
    (error,) = seen
    assert (error.node, error.question, error.deadline) == (ask.name, result.pending.id, TOMORROW)
    assert isinstance(error, TimeoutError)
    assert (
        str(error)
        == f"nobody answered question {error.question!r} of node {ask.name!r} until its deadline, 2025-01-02 20:00:00+00:00"
    )


async def test_a_run_that_failed_with_it_asks_again(clock):
    """With a new deadline; the answer to the question that was asked again is taken."""
    agent = agent_of(ask_human("Well?", str, deadline=DAY), MemoryStore())
    await agent.run("x", run_id="r")
    clock.move(DAY)
    with pytest.raises(NodeFailedError) as caught:
        await agent.resume("r")
    assert type(caught.value.__cause__) is QuestionExpiredError
    result = await agent.resume("r")
    assert (result.status, result.due) == ("waiting", TOMORROW + DAY)
    assert (await agent.resume("r", answer="yes")).output == "yes"


async def test_a_question_of_a_tool_of_a_sub_agent_expires(clock):
    """The model is told, and the run goes on."""

    @tool
    async def book(ctx: Context) -> str:
        """Book."""
        return await ctx.ask("Which seat?", deadline=DAY)

    asked = ScriptedModel([ToolCall("book", {}, "c"), "no seat"])
    helper = Agent(single_run(), model=asked, tools=[book], name="helper", description="Helps.")
    agent = agent_of(helper.as_node(), MemoryStore())
    question = (await agent.run("x", run_id="r")).pending
    assert question.deadline == TOMORROW
    assert question.run_id.startswith("r/helper/")
    clock.move(DAY)
    assert (await agent.resume("r")).output == "no seat"
    assert "nobody answered question" in asked.requests[-1].messages[-1].text


async def test_who_looks_for_questions_sees_deadlines(clock):
    """Also in a copy of the run in another store, where it is due at the same time."""
    asks = parallel(ask_human("A?", str, deadline=DAY), ask_human("B?", str), sleeper)
    agent = agent_of(asks, MemoryStore())
    assert (await agent.run("x", run_id="r")).due == TOMORROW
    copy = MemoryStore()
    lines = [line async for line in export_runs(agent.store, owner="")]
    await import_runs(copy, lines)
    for store in (agent.store, copy):
        assert [(each.question.question, each.deadline) for each in await list_questions(store)] == [
            ("A?", TOMORROW),
            ("B?", None),
        ]
        assert (await agent_of(asks, store).read("r")).result.due == TOMORROW
        assert [each.run_id for each in await read_due(store, EVENING + 86_400_000, 9)] == ["r"]


@node
async def sleeper(ctx: Context, text: str) -> str:
    await ctx.sleep(2 * DAY)
    return text


# ---- bad input


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"deadline": 3600}, TypeError, "deadline= is an int; give a timedelta"),
        ({"deadline": timedelta(0)}, ValueError, "deadline=datetime.timedelta(0) leaves no time to answer"),
        ({"deadline": -DAY}, ValueError, "deadline: -86400.0 seconds are not between 0 and"),
        (
            {"deadline": TOMORROW.replace(tzinfo=None)},
            ValueError,
            "deadline=2025-01-02T20:00:00 has no time zone; write",
        ),
        ({"default": "x"}, TypeError, "default= is the answer after a deadline, and there is none"),
        ({"deadline": DAY, "default": 1}, TypeError, "default= is an int, and the answer is of type str"),
        ({"deadline": DAY, "default": Deny("no")}, TypeError, "default= is a Deny, and the answer is of type str"),
    ],
)
async def test_a_wrong_deadline_or_default_is_refused_where_it_is_given(clock, options, kind, text):
    """By the node when it is made, and by `ctx.ask` before anything is recorded."""

    @node
    async def asks(ctx: Context, value: str) -> str:
        return await ctx.ask("Well?", **options)

    with pytest.raises(kind, match=f"'ask_human': {re.escape(text)}"):
        ask_human("Well?", str, **options)
    agent = agent_of(asks, MemoryStore())
    with pytest.raises(NodeFailedError) as caught:
        await agent.run("x", run_id="r")
    assert type(caught.value.__cause__) is kind
    assert text in str(caught.value.__cause__)
    assert not [each for each in await agent.history("r") if each.kind == "asked"]


async def test_what_only_the_run_can_know_is_refused_when_it_asks(clock):
    """A deadline that is past, a default that a person could not answer or that cannot be stored, and one for an approval."""

    class Strange:
        pass

    def asking(*args, **options):
        @node
        async def asks(ctx: Context, value: str) -> str:
            return await ctx.ask("Well?", *args, **options)

        return asks

    for element, kind, text in (
        (
            ask_human("Well?", str, deadline=at(EVENING)),
            ValueError,
            "asks with deadline=2025-01-01 20:00:00+00:00, which is past",
        ),
        (asking(object, deadline=DAY, default=Strange()), SerializationError, "Strange"),
        (asking(kind="approval", about="x", deadline=DAY, default=True), TypeError, "default= is for questions"),
    ):
        with pytest.raises(NodeFailedError) as caught:
            await agent_of(element, MemoryStore()).run("x")
        assert isinstance(caught.value.__cause__, kind)
        assert text in str(caught.value.__cause__)


# ---- beside others


@node
async def give_up(ctx: Context, text: str) -> str:
    return "too late"


def race_with_time():
    return race(ask_human("Well?", str), Strategy("time", START >> sleep(DAY) >> give_up >> END))


@pytest.mark.parametrize("stored", [False, True])
async def test_a_race_of_a_question_with_a_time(clock, stored):
    """An answer wins, also one that comes after the time as long as nobody has resumed the run; the time wins otherwise."""
    for moved, answers, output in ((DAY / 2, ["yes"], "yes"), (2 * DAY, ["yes"], "yes"), (DAY, [], "too late")):
        agent = agent_of(race_with_time(), MemoryStore() if stored else None)
        result = await agent.run("x", run_id="r")
        assert result.status == "waiting"
        clock.move(moved)
        for answer in answers:
            agent.last.answer(answer)
        if stored:
            result = await agent.resume("r", **({"answer": answers[0]} if answers else {}))
        else:
            result = await agent.last.finish()
        assert (result.output, result.due) == (output, None)
        if stored:
            with pytest.raises(AnswerError):
                await agent.resume("r", answer="yes")


async def test_a_question_beside_work_expires_while_that_goes_on(clock, monkeypatch):
    """The branch that asked goes on at the deadline, in the same process."""
    over = anyio.Event()

    @node
    async def work(ctx: Context, text: str) -> str:
        await over.wait()
        return "worked"

    @node
    async def asks(ctx: Context, text: str) -> str:
        answer = await ctx.ask("Well?", deadline=timedelta(seconds=0.01), default="none")
        over.set()
        return answer

    from graphagent.run import _sleep

    def move_on_after(seconds):
        clock.move(timedelta(seconds=seconds))
        return anyio.move_on_after(0)

    monkeypatch.setattr(_sleep, "move_on_after", move_on_after)
    agent = agent_of(parallel(asks, work), MemoryStore())
    assert (await agent.run("x", run_id="r")).output == ("none", "worked")


async def test_a_rerun_and_a_difference_know_expiries(clock):
    """A rerun takes them and asks nobody; when they were makes no difference."""
    agent = agent_of(ask_human("Well?", Seat, deadline=DAY, default=Seat(2)), MemoryStore())
    for run_id in ("a", "b"):
        await agent.run("x", run_id=run_id)
        clock.move(DAY + DAY)
        await agent.resume(run_id)
    assert [each.value for each in await agent.history("a") if each.kind == "expired"] == [Seat(2)]
    assert (await agent.rerun("a")).output == Seat(2)
    diff = await agent.diff("a", "b")
    assert (diff.only_a, diff.only_b) == ((), ())


# ---- any order of what may happen


class Asked:
    """A strategy with three questions, of which one has a default, one an error edge, and one races with a time."""

    def __init__(self):
        ask = ask_human("B?", str, deadline=DAY / 2, name="b")
        self.strategy = Strategy(
            "s",
            START
            >> parallel(
                ask_human("A?", str, deadline=DAY, default="default", name="a"),
                Strategy("edge", START >> ask >> END, ask.on_error(QuestionExpiredError) >> late >> END),
                race_with_time(),
            )
            >> END,
        )

    def agent(self, store):
        return Agent(self.strategy, store=store)


WHAT = st.one_of(
    st.tuples(st.just("answer"), st.sampled_from(["A?", "B?", "Well?"])),
    st.tuples(st.just("time"), st.sampled_from([DAY / 4, DAY / 2, DAY])),
    st.tuples(st.just("resume"), st.none()),
    st.tuples(st.just("kill"), st.integers(0, 3)),
)


@settings(max_examples=examples(60, 15))
@given(what=st.lists(WHAT, max_size=9), backend=st.sampled_from(["asyncio", "trio"]))
def test_each_question_has_exactly_one_outcome_and_it_is_the_one_in_the_log(what, backend):
    """In any order of answers, of time that passes, of resuming, and of processes that die at a commit."""
    anyio.run(_one_outcome, what, backend=backend)


async def _one_outcome(what):
    asked, store, accepted = Asked(), Mortal(), {}
    with fixed_clock(EVENING, 0) as clock:
        await asked.agent(store).run("x", run_id="r")
        for kind, value in [*what, ("time", 2 * DAY), ("resume", None)]:
            if kind == "time":
                clock.move(value)
            elif kind == "kill":
                store.break_at(value, "refused")
            else:
                await _resume(asked.agent(store), value, accepted)
                store.mend()
        result = await asked.agent(store).resume("r")
    a, b, raced = result.output
    outcomes = {}
    for each in await entries_of(store):
        if isinstance(each.entry, Expired) or (isinstance(each.entry, EffectRecorded) and each.entry.kind == "answer"):
            assert (each.entry.at, each.entry.key) not in outcomes
            outcomes[each.entry.at, each.entry.key] = each.entry
    assert a == ("yes" if "A?" in accepted else "default")
    assert (b == "yes") == ("B?" in accepted)
    assert b == "yes" or b.endswith("expired")
    assert raced == ("yes" if "Well?" in accepted else "too late")
    expired = [each.has_default for each in outcomes.values() if isinstance(each, Expired)]
    assert sorted(expired) == sorted([*([False] * (b != "yes")), *([True] * (a != "yes"))])
    assert len(outcomes) == 3 - (raced == "too late")


async def _resume(agent, question, accepted):
    """Resume the run, with an answer to a question or without. What was answered before the process died counts if it is in the log."""
    open_ = {each.question: each.id for each in (await agent.read("r")).questions}
    if question is not None and question not in open_:
        return
    answers = {open_[question]: "yes"} if question is not None else {}
    with suppress(StoreError):
        await agent.resume("r", answers=answers)
    log = (await agent.read("r"))._run.log.state
    if question is not None and open_[question] not in log.questions:
        accepted[question] = True
