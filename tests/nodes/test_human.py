"""Waiting for people: questions, approvals, results from outside, and calls that were broken off."""

from __future__ import annotations

import enum
import json
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import anyio
import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from graphagent import END, START, Agent, Context, Strategy, each, node, parallel, race, tool
from graphagent.errors import AnswerError, DeclinedError, NodeFailedError, QuestionError, RunError, ToolError, Veto
from graphagent.events import Event, RunSuspended, ToolCalled
from graphagent.history import read_run
from graphagent.llm import Approve, Deny, Tool, ToolCall, ToolCalls, ToolResult
from graphagent.nodes import Approved, Denied, approval, ask_human, execute_tools, llm_request
from graphagent.run import Question
from graphagent.store import MemoryStore, SqliteStore
from graphagent.testing import ScriptedModel, fixed_clock

ask, act = llm_request(), execute_tools()
react = Strategy("react", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)
at_once = execute_tools(limit=8)
hasty = Strategy("hasty", START >> ask, ask.on(ToolCalls) >> at_once >> ask, ask.on(str) >> END)


@node
async def upper(ctx: Context, said: str) -> str:
    return said.upper()


@node
async def shown(ctx: Context, value: object) -> str:
    return f"{value!r}"


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Trip:
    where: str
    days: int


class Party(BaseModel):
    guests: int
    when: date


class Place(BaseModel):
    town: str
    country: str


class Visit(BaseModel):
    model_config = ConfigDict(extra="forbid")
    days: int = Field(ge=1)
    where: Place
    colour: Colour
    key: UUID


def shouted(said: str) -> str:
    if not said.isupper():
        raise ValueError("say it louder")
    return said


@pytest.fixture(params=["in one process", "a store in memory", "a file"])
async def life(request, tmp_path):
    """Run an agent until it stops, and go on with it: in the same object, or with another agent and the store."""
    if request.param == "a file":
        async with SqliteStore(tmp_path / "runs.db") as store:
            yield Life(store)
    else:
        yield Life(MemoryStore() if request.param == "a store in memory" else None)


class Life:
    def __init__(self, store):
        self.store = store
        self.run = None

    async def begin(self, strategy, task="x", **settings):
        self.made = lambda: Agent(strategy, store=self.store, **settings)
        self.run = self.made().start(task, run_id="r1")
        return await self.run.finish()

    async def go_on(self, *answer, **answers):
        """Answer and go on. With a store, another agent reads the run from it."""
        if self.store is None:
            if answer or answers:
                self.run.answer(*answer, **answers)
            return await self.run.finish()
        given = {"answer": answer[0]} if answer else {}
        return await self.made().resume("r1", **given, **answers)


# ---- questions


@pytest.mark.parametrize(
    ("kind", "answers", "wrong"),
    [
        (bool, [(True, True), (False, False)], ["yes", 1, 0, None, "true"]),
        (str, [("hello", "hello"), ("", "")], [1, None, b"x", ["x"]]),
        (int, [(3, 3), (-1, -1)], ["3", 3.5, True, None]),
        (float, [(1.5, 1.5), (2, 2.0)], ["1.5", True]),
        (Literal["send", "drop"], [("send", "send")], ["sent", "", True]),
        (Colour, [(Colour.RED, Colour.RED), ("blue", Colour.BLUE)], ["green", 1]),
        (Trip, [(Trip("Rome", 3), Trip("Rome", 3)), ({"where": "Rome", "days": 3}, Trip("Rome", 3))],
         [{"where": "Rome"}, {"where": "Rome", "days": "3"}, "Rome"]),
        (Party, [(Party(guests=2, when=date(2030, 1, 2)), Party(guests=2, when=date(2030, 1, 2))),
                 ({"guests": 2, "when": "2030-01-02"}, Party(guests=2, when=date(2030, 1, 2)))],
         [{"guests": "2", "when": "2030-01-02"}, {"guests": 2}]),
        (int | None, [(None, None), (4, 4)], ["4", False]),
        (list[str], [(["a"], ["a"]), ([], [])], ["a", [1], {"a": 1}]),
        (tuple[int, str], [((1, "a"), (1, "a")), ([1, "a"], (1, "a"))], [[1], ["a", 1]]),
        (date, [(date(2030, 1, 2), date(2030, 1, 2)), ("2030-01-02", date(2030, 1, 2))], ["tomorrow", 5.5]),
        (Any, [({"any": "thing"}, {"any": "thing"})], []),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)) if not isinstance(value, list) else "",
)  # fmt: skip
async def test_an_answer_is_of_the_type_that_was_asked_for(life, kind, answers, wrong):
    """Answers are taken strictly, as Python values or as JSON has them; a wrong one is refused, and the question stays open."""
    for number, (given, expected) in enumerate(answers):
        life.__init__(life.store if number == 0 else None)
        result = await life.begin(Strategy("s", START >> ask_human("Well?", kind) >> END))
        assert (result.status, result.pending.question, result.pending.kind) == ("waiting", "Well?", "question")
        for each_ in wrong:
            with pytest.raises(AnswerError, match="asks for") as info:
                await life.go_on(each_)
            assert info.value.run_id == "r1"
            assert info.value.question.startswith("ask_human:")
            if isinstance(each_, str) and len(each_) > 3:
                assert each_ not in str(info.value).replace(f"{kind}", "")
        result = await life.go_on(given)
        assert (result.output, type(result.output)) == (expected, type(expected))
        assert result.nodes == 1


async def test_nothing_is_written_for_a_wrong_answer():
    """The entries of the run stay as they were, and nobody has to be told."""
    store = MemoryStore()
    agent = Agent(Strategy("s", START >> ask_human("Well?", bool) >> END), store=store)
    events = []
    agent.on(RunSuspended, events.append)
    await agent.run("x", run_id="r1")
    before = await agent.history("r1")
    for given in ({"answer": "yes"}, {"answers": {"other": True}}, {"answers": {}, "results": {"call": 1}}):
        with pytest.raises(AnswerError):
            await agent.resume("r1", **given)
    assert await agent.history("r1") == before
    assert len(events) == 1


async def test_a_question_may_be_made_of_the_input(life):
    """A function of the node's input gives the text; the input stands beside it."""
    question = ask_human(lambda draft: f"Send {draft!r}?", bool)
    result = await life.begin(Strategy("s", START >> upper >> question >> shown >> END), "hello")
    assert (result.pending.question, result.pending.about, result.pending.node) == (
        "Send 'HELLO'?",
        "HELLO",
        "ask_human",
    )
    assert "HELLO" not in repr(result.pending.about.__class__)
    assert (await life.go_on(True)).output == "True"


async def test_what_is_no_question_is_refused():
    """An async function and what is no type at once, a function that gives no text when it is asked."""
    with pytest.raises(TypeError, match="'ask_human' is an async function"):
        ask_human(upper.function, bool)
    with pytest.raises(TypeError, match=r"the output type of 'ask_human' must be a type, .* not True"):
        ask_human("Well?", True)
    with pytest.raises(NodeFailedError) as info:
        await Agent(Strategy("s", START >> ask_human(len, bool) >> END)).run("abc")
    assert "not a int" in str(info.value.__cause__) or "not an int" in str(info.value.__cause__)


async def test_a_question_in_a_loop_is_another_question_each_time():
    """Each time it has an id of its own, so an answer that comes twice is refused the second time."""
    more = ask_human("More?", bool)
    loop = Strategy("loop", START >> more, more.on(True) >> more, more.on(False) >> END)
    run = Agent(loop).start("x")
    ids = []
    for answer in (True, True, False):
        result = await run.finish()
        ids.append(result.pending.id)
        run.answer(answers={ids[-1]: answer})
        with pytest.raises(AnswerError, match="no open question"):
            run.answer(answers={"ask_human:0": True})
    result = await run.finish()
    assert (result.output, result.nodes, len(set(ids))) == (False, 3, 3)
    with pytest.raises(AnswerError, match="waits for no answer"):
        run.answer(True)


async def test_several_questions_are_open_at_once(life):
    """Branches ask side by side; answers come together or one after the other, and each reaches who asked."""
    fork = parallel(
        ask_human("How many?", int, name="many"),
        Strategy("inner", START >> upper >> ask_human("Which?", str, name="which") >> END),
        upper,
    )
    result = await life.begin(Strategy("s", START >> fork >> shown >> END))
    assert [(question.node, question.question) for question in result.questions] == [
        ("parallel/0/many", "How many?"),
        ("parallel/1/inner/which", "Which?"),
    ]
    many, which = (question.id for question in result.questions)
    with pytest.raises(AnswerError, match=r"waits for several answers.*the ids are"):
        await life.go_on(3)
    with pytest.raises(AnswerError, match="asks for str"):
        await life.go_on(answers={many: 3, which: 4})
    result = await life.go_on(answers={which: "red"})
    assert [question.id for question in result.questions] == [many]
    result = await life.go_on(answers={})
    assert [question.id for question in result.questions] == [many]
    result = await life.go_on(3)
    assert (result.output, result.nodes) == ("(3, 'red', 'X')", 5)


async def test_every_item_may_ask(life):
    """An `each` opens the questions of all items, also of those behind its limit; what was answered is not asked again."""
    sure = ask_human(lambda name: f"Invite {name}?", bool)
    result = await life.begin(Strategy("s", START >> each(sure, limit=2) >> shown >> END), ["Ada", "Bob", "Cy", "Di"])
    assert [question.question for question in result.questions] == [
        f"Invite {name}?" for name in ("Ada", "Bob", "Cy", "Di")
    ]
    ids = {question.question.split()[1][:-1]: question.id for question in result.questions}
    result = await life.go_on(answers={ids["Bob"]: True, ids["Di"]: False})
    assert [question.question for question in result.questions] == ["Invite Ada?", "Invite Cy?"]
    assert [question.id for question in result.questions] == [ids["Ada"], ids["Cy"]]
    result = await life.go_on(answers={ids["Cy"]: True, ids["Ada"]: False})
    assert (result.output, result.nodes) == ("[False, True, True, False]", 5)


async def test_a_race_is_won_while_one_waits():
    """A branch that needs nobody wins, and the question is closed; a node of one's own that asks waits until all others failed."""

    @node
    async def asking(ctx: Context, said: str) -> str:
        return await ctx.ask("Well?")

    result = await Agent(Strategy("s", START >> race(asking, upper) >> END)).run("x")
    assert (result.output, result.questions) == ("X", ())

    @node
    async def fail(ctx: Context, said: str) -> str:
        raise ValueError

    run = Agent(Strategy("s", START >> race(fail, asking) >> END)).start("x")
    assert (await run.finish()).pending.question == "Well?"
    run.answer("yes")
    assert (await run.finish()).output == "yes"


wait = Strategy("wait", START >> upper >> ask_human("Well?", str) >> END)


@pytest.mark.parametrize(
    ("node", "path"),
    [
        (ask_human("Well?", str), "ask_human"),
        (ask_human("Well?", str, name="a").named("b").retry(attempts=2), "b"),
        (approval("Well?"), "approval"),
        (wait, "wait/ask_human"),
        (parallel(upper, wait), "parallel/1/wait/ask_human"),
        (each(approval("Well?")), "each/approval"),
    ],
)
def test_a_timeout_around_a_question_is_refused(node, path):
    """No process waits for a person, so it would never be over."""
    with pytest.raises(TypeError) as info:
        node.timeout(5)
    assert str(info.value) == (
        f"{path!r} asks a person. No process runs meanwhile, so .timeout(5) would not end the wait; give the question a deadline=, and the "
        "nodes around it the .timeout"
    )


async def test_a_failure_beside_a_question_closes_it(life):
    """The run has failed and waits for nothing; when it goes on the question is asked again, under its id."""
    broken = [True]

    @node
    async def flaky(ctx: Context, said: str) -> str:
        await anyio.sleep(0.01)
        if broken and broken.pop():
            raise ConnectionError
        return said

    fork = parallel(ask_human("Well?", bool), flaky)
    with pytest.raises(NodeFailedError):
        await life.begin(Strategy("s", START >> fork >> shown >> END))
    assert (life.run.status, life.run.questions) == ("failed", ())
    result = await life.go_on()
    assert (result.status, result.pending.question) == ("waiting", "Well?")
    assert (await life.go_on(True)).output == "(True, 'x')"


# ---- approvals of values


@dataclass
class Letter:
    to: str
    text: str


@node
async def write(ctx: Context, to: str) -> Letter:
    return Letter(to, f"Dear {to}")


def letter_text(letter: Letter) -> str:
    return f"Send {letter.text!r}?"


def posting(approve, kind):
    return Strategy(
        "posting",
        START >> write >> approve,
        approve.on(Approved[kind]) >> shown >> END,
        approve.on(Denied[kind]) >> END,
    )


@pytest.mark.parametrize("approve", [approval("Send it?", Letter), approval(letter_text)])
async def test_an_approved_value_goes_on_with_who_and_when(life, approve):
    """The node after it gets what was asked about, of its own type, in whatever process."""

    @node
    async def post(ctx: Context, approved: Approved[Letter]) -> str:
        return f"{approved.value.text}, approved by {approved.by} at {approved.at:%H:%M}"

    strategy = Strategy(
        "posting", START >> write >> approve, approve.on(Approved[Letter]) >> post >> END, approve.on(Denied[Letter]) >> END
    )  # fmt: skip
    result = await life.begin(strategy, "Ada")
    question = result.pending
    assert (question.kind, question.about, question.call) == ("approval", Letter("Ada", "Dear Ada"), None)
    with fixed_clock(int(datetime(2030, 1, 2, 3, 4, tzinfo=UTC).timestamp() * 1000), 0):
        result = await life.go_on(Approve(by="Grace"))
    assert result.output == "Dear Ada, approved by Grace at 03:04"


@pytest.mark.parametrize(
    ("answer", "reason", "by"),
    [(False, "", ""), (Deny("too short"), "too short", ""), (Deny("too short", by="Grace"), "too short", "Grace")],
)
async def test_a_denied_value_is_kept_with_the_reason(life, answer, reason, by):
    """And with the time at which the run was told, unless the answer has another one."""
    approve = approval("Send it?", Letter)
    await life.begin(posting(approve, Letter), "Ada")
    then = datetime(2030, 1, 2, tzinfo=UTC)
    with fixed_clock(int(then.timestamp() * 1000), 0):
        result = await life.go_on(answer)
    assert result.output == Denied(Letter("Ada", "Dear Ada"), reason, by, then)


async def test_a_verdict_may_say_when_it_was_reached(life):
    """Somebody may have decided yesterday, in a mail. A time without a zone is refused."""
    approve = approval("Send it?", Letter)
    await life.begin(posting(approve, Letter), "Ada")
    yesterday = datetime(2020, 1, 2, 3, tzinfo=UTC)
    result = await life.go_on(Deny(at=yesterday))
    assert result.output.at == yesterday
    for verdict in (Approve, Deny):
        with pytest.raises(ValueError, match=f"{verdict.__name__}: at=.* has no time zone"):
            verdict(at=datetime(2020, 1, 2, 3))  # noqa: DTZ001  that is the mistake


async def test_a_denial_is_a_message_to_who_wrote_the_value(life):
    """The model is told the reason, and asked again, as often as it takes."""
    draft, approve = llm_request(tools=False), approval("Send it?")
    letters = Strategy(
        "letters",
        START >> draft >> approve,
        approve.on(Approved).map(lambda approved: approved.value) >> upper >> END,
        approve.on(Denied).map(Denied.to_prompt) >> draft,
    )
    model = ScriptedModel(["hi", "hello", "good day"])
    assert (await life.begin(letters, "Greet.", model=model)).pending.about == "hi"
    assert (await life.go_on(Deny("politer"))).pending.about == "hello"
    assert "A person did not approve this: politer" in model.requests[1].messages[-1].text
    assert (await life.go_on(False)).pending.about == "good day"
    assert "A person did not approve this: no reason was stated" in model.requests[2].messages[-1].text
    assert (await life.go_on(True)).output == "GOOD DAY"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (1, r"asks for a yes or no; answer True, False, Approve\(\) or Deny\(reason\), not an int"),
        (None, "asks for a yes or no"),
        *(
            (said, r"answer True, False, Approve\(\) or Deny\(reason\), not a text; a reason for a no is Deny\('…'\)")
            for said in ("Yes", "ok", "approve", "Yes, send it", "no", "too short", "")
        ),
        (Letter("Bob", "Hi"), "not a Letter"),
        (Approve({"to": "Bob"}), r"is about no tool call, so Approve\(…\) has no arguments= to change"),
    ],
)
async def test_what_is_no_verdict_on_a_value_is_refused(life, answer, said):
    """Nothing is taken, and the question stays open."""
    await life.begin(posting(approval("Send it?", Letter), Letter), "Ada")
    with pytest.raises(AnswerError, match=said):
        await life.go_on(answer)
    assert (await life.go_on(False)).done


async def test_each_of_several_values_is_approved_by_itself(life):
    """The verdicts may come together or one after the other."""
    many = Strategy("many", START >> each(approval(lambda name: f"Invite {name}?", str)) >> END)
    result = await life.begin(many, ["Ada", "Bob"])
    assert [(each_.question, each_.about) for each_ in result.questions] == [
        ("Invite Ada?", "Ada"),
        ("Invite Bob?", "Bob"),
    ]
    ada, bob = (each_.id for each_ in result.questions)
    assert (await life.go_on(answers={bob: Deny("busy")})).pending.id == ada
    result = await life.go_on(True)
    assert [type(each_) for each_ in result.output] == [Approved, Denied]
    assert [each_.value for each_ in result.output] == ["Ada", "Bob"]


async def test_runs_that_differ_in_the_time_of_a_verdict_alone_do_not_differ():
    """A comparison of two runs shows what each did, and not when."""
    agent = Agent(Strategy("s", START >> act >> END), tools=[send], store=MemoryStore())
    for run_id in ("a", "b"):
        await agent.run(letters("ada"), run_id=run_id)
        await agent.resume(run_id, answer=Approve(by="Grace", at=datetime(2030, 1, ord(run_id) - 90, tzinfo=UTC)))
    found = await agent.diff("a", "b")
    assert (found.only_a, found.only_b) == ((), ())


@pytest.mark.parametrize("make", [approval, lambda asked: ask_human(asked, bool)])
def test_a_question_is_text_or_a_plain_function(make):
    """Anything else is refused where it is written."""
    with pytest.raises(TypeError, match=r"the question of '\w+' is text, or a function that makes it, not int"):
        make(5)
    with pytest.raises(TypeError, match="is an async function; make the text in a node before it"):
        make(upper.function)


# ---- approvals of calls

SENT: list[tuple[str, int]] = []


@tool(approve=True)
async def send(to: str, copies: int = 1) -> str:
    """Send a letter."""
    SENT.append((to, copies))
    return f"sent to {to}"


@tool
async def look(what: str) -> str:
    """Look at something."""
    SENT.append((what, 0))
    return f"saw {what}"


@pytest.fixture(autouse=True)
def nothing_sent():
    SENT.clear()


def letters(*names):
    return ToolCalls([ToolCall("send", {"to": name}, id=name) for name in names])


def writer(*replies, **settings):
    return {"model": ScriptedModel([*replies, "Done."]), "tools": [send, look], **settings}


async def test_an_approved_call_is_made(life):
    """The question names the call and its arguments; True lets it go ahead, once."""
    result = await life.begin(react, **writer(letters("ada")))
    question = result.pending
    assert (question.id, question.kind, question.node, question.question) == (
        "ada", "approval", "execute_tools", "May 'send' be called?",
    )  # fmt: skip
    assert (question.call.name, question.call.arguments, SENT) == ("send", {"to": "ada"}, [])
    result = await life.go_on(True)
    assert (result.output, SENT, result.nodes, result.turns) == ("Done.", [("ada", 1)], 3, 2)


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (False, "Error: a person refused this call"),
        (Deny(), "Error: a person refused this call"),
        (Deny("she moved"), "Error: a person refused this call: she moved"),
    ],
)
async def test_a_denied_call_is_not_made_and_the_model_is_told_why(life, verdict, said):
    """False, or Deny with a reason."""
    settings = writer(letters("ada"))
    await life.begin(react, **settings)
    assert (await life.go_on(verdict)).output == "Done."
    assert SENT == []
    assert settings["model"].requests[1].messages[-1].text == said


async def test_the_arguments_of_a_call_may_be_changed(life):
    """The call is made with those of the person; ToolCalled tells of what is called."""
    told = []
    settings = writer(letters("ada"))
    await life.begin(react, **settings)
    if life.store is None:
        life.run.on(ToolCalled, lambda event: told.append(event.call.arguments))
    assert (await life.go_on(Approve(arguments={"to": "bob", "copies": 2}))).output == "Done."
    assert SENT == [("bob", 2)]
    assert told in ([], [{"to": "bob", "copies": 2}])


@pytest.mark.parametrize("arguments", [{"to": 5}, {"nobody": "x"}, {"to": "x", "copies": "many"}, {}])
async def test_changed_arguments_that_do_not_fit_are_refused_before_anything_is_written(life, arguments):
    """The person is told what is wrong with them, without their values, and may answer again."""
    await life.begin(react, **writer(letters("ada")))
    with pytest.raises(AnswerError, match="the answer to 'ada' changes the call: the arguments of 'send' do not fit"):
        await life.go_on(Approve(arguments=arguments))
    assert SENT == []
    assert (await life.go_on(True)).output == "Done."
    assert SENT == [("ada", 1)]


@pytest.mark.parametrize("answer", [1, None, {"approve": True}, ["yes"], "ok"])
async def test_a_verdict_is_a_verdict(life, answer):
    """Anything else is refused with what may be answered."""
    await life.begin(react, **writer(letters("ada")))
    with pytest.raises(AnswerError, match=r"True, False, Approve\(arguments=…\) or Deny\(reason\)"):
        await life.go_on(answer)


@pytest.mark.parametrize("strategy", [react, hasty], ids=lambda strategy: strategy.name)
async def test_several_calls_of_one_turn(life, strategy):
    """What needs nobody is made at once; each of the others waits for its own verdict; the model sees all in its order."""
    calls = ToolCalls([*letters("ada", "bob"), ToolCall("look", {"what": "sky"}, id="sky"), *letters("cy", "di")])
    settings = writer(calls)
    result = await life.begin(strategy, **settings)
    assert [question.id for question in result.questions] == ["ada", "bob", "cy", "di"]
    assert SENT == [("sky", 0)]
    result = await life.go_on(answers={"bob": False, "cy": Approve({"to": "cyril"})})
    assert ([question.id for question in result.questions], SENT) == (["ada", "di"], [("sky", 0), ("cyril", 1)])
    result = await life.go_on(answers={"di": Deny("too far"), "ada": True})
    assert (result.output, SENT) == ("Done.", [("sky", 0), ("cyril", 1), ("ada", 1)])
    assert [message.text for message in settings["model"].requests[1].messages[2:]] == [
        "sent to ada",
        "Error: a person refused this call",
        "saw sky",
        "sent to cyril",
        "Error: a person refused this call: too far",
    ]
    assert result.turns == 2


async def test_calls_of_branches_with_the_same_id_are_different_questions(life):
    """Models number their calls from the beginning; each question has an id of its own all the same."""
    model = ScriptedModel([ToolCall("send", {"to": "ada"}, id="call_0")] * 2 + ["Done."] * 2)
    fork = each(react, limit=1)
    result = await life.begin(Strategy("s", START >> fork >> shown >> END), ["a", "b"], model=model, tools=[send])
    assert len({question.id for question in result.questions}) == len(result.questions) == 2
    result = await life.go_on(answers={result.questions[0].id: True, result.questions[1].id: False})
    assert (result.output, SENT) == ("['Done.', 'Done.']", [("ada", 1)])


async def test_callbacks_see_a_call_before_a_person_does_and_again_when_it_was_changed():
    """A refused call bothers nobody; what a person made of a call is looked at as well."""
    seen = []

    def guard(call: ToolCall) -> None:
        seen.append(dict(call.arguments))
        if call.arguments["to"] == "eve":
            raise Veto("not to eve")

    settings = writer(letters("eve", "ada"), step_callbacks=[guard])
    run = Agent(react, **settings).start("x")
    assert [question.id for question in (await run.finish()).questions] == ["ada"]
    run.answer(Approve({"to": "eve"}))
    assert (await run.finish()).output == "Done."
    assert (SENT, seen) == ([], [{"to": "eve"}, {"to": "ada"}, {"to": "eve"}])
    refused = "Error: this call was refused: not to eve"
    assert [message.text for message in settings["model"].requests[1].messages[2:]] == [refused, refused]


# ---- results from outside


@tool(deferred=True)
async def poll(question: str) -> str:
    """Ask the public, which takes days."""
    raise AssertionError("never called")


async def test_a_deferred_result_comes_when_it_comes(life):
    """The call is never made here; `results={call_id: …}` gives what came of it, text or data."""
    model = ScriptedModel([ToolCalls([ToolCall("poll", {"question": n}, id=n) for n in ("a", "b")]), "Done."])
    result = await life.begin(react, model=model, tools=[poll])
    assert [(question.id, question.kind, question.question) for question in result.questions] == [
        ("a", "result", "What is the result of 'poll'?"),
        ("b", "result", "What is the result of 'poll'?"),
    ]
    key = "results" if life.store is not None else "answers"
    result = await life.go_on(**{key: {"b": {"yes": 12, "no": 3}}})
    assert [question.id for question in result.questions] == ["a"]
    result = await life.go_on(**{key: {"a": "42 %"}})
    assert result.output == "Done."
    said = [message.text for message in model.requests[1].messages[2:]]
    assert (said[0], json.loads(said[1])) == ("42 %", {"yes": 12, "no": 3})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (ToolError("the line was busy"), "Error: the line was busy"),
        (ToolResult("", "", "busy since noon", is_error=True), "busy since noon"),
        (Deny("too dear"), "Error: a person refused this call: too dear"),
        (Deny(), "Error: a person refused this call"),
    ],
)
async def test_a_deferred_call_may_fail_or_be_declined(life, given, said):
    """The model reads that as an error, and not as what the call returned."""
    model = ScriptedModel([ToolCall("poll", {"question": "a"}, id="a"), "Done."])
    await life.begin(react, model=model, tools=[poll])
    result = await life.go_on(**{"results" if life.store is not None else "answers": {"a": given}})
    assert (result.output, model.requests[1].messages[-1].text) == ("Done.", said)
    [outcome] = result.memory.steps[1].results
    assert (outcome.call_id, outcome.name, outcome.is_error) == ("a", "poll", True)


@pytest.mark.parametrize(("given", "named"), [(Approve(), "an Approve"), (ValueError("busy"), "a ValueError")])
async def test_what_is_no_result_of_a_call_is_refused(life, given, named):
    """Nothing is taken, and the error says how a failure is reported, and how the call is declined."""
    await life.begin(react, model=ScriptedModel([ToolCall("poll", {"question": "a"}, id="a")]), tools=[poll])
    ways = rf"ToolError\(reason\) if the call failed, or Deny\(reason\) if it is not made, not with {named}"
    with pytest.raises(AnswerError, match=ways):
        await life.go_on(given)


async def test_a_deferred_call_that_needs_approval_is_approved_first_and_then_waits_for_its_result(life):
    """A person is asked before anybody makes the call; a refusal is its result, and what a person changed is what is made."""

    @tool(approve=True, deferred=True)
    def wire(euros: int) -> str:
        """Wire money; the bank answers days later."""
        raise AssertionError("never called")

    model = ScriptedModel([ToolCalls([ToolCall("wire", {"euros": n}, id=f"w{n}") for n in (5, 6)]), "Done."])
    result = await life.begin(react, model=model, tools=[wire])
    assert [(question.id, question.kind) for question in result.questions] == [("w5", "approval"), ("w6", "approval")]
    result = await life.go_on(answers={"w5": Approve({"euros": 4}), "w6": False})
    assert [(question.id, question.kind, question.call.arguments) for question in result.questions] == [
        ("w5", "result", {"euros": 4}),
    ]  # fmt: skip
    result = await life.go_on(answers={"w5": "wired"})
    assert result.output == "Done."
    assert [message.text for message in model.requests[1].messages[2:]] == [
        "wired", "Error: a person refused this call",
    ]  # fmt: skip


async def test_a_result_is_no_answer_to_whether_a_call_may_be_made():
    """The text of a result that comes too early does not refuse the call; the question stays open."""

    @tool(approve=True, deferred=True)
    def wire(euros: int) -> str:
        """Wire money; the bank answers days later."""
        raise AssertionError("never called")

    model = ScriptedModel([ToolCall("wire", {"euros": 5}, id="w"), "Done."])
    agent = Agent(react, model=model, tools=[wire], store=MemoryStore())
    await agent.run("x", run_id="r")
    for answers in ({}, {"w": True}):
        with pytest.raises(
            AnswerError, match="question 'w' is of the kind 'approval', and answered with answers="
        ) as info:
            await agent.resume("r", answers=answers, results={"w": "wired"})
        assert (info.value.question, info.value.run_id) == ("w", "r")
    await agent.resume("r", answers={"w": True})
    assert (await agent.resume("r", results={"w": "wired"})).output == "Done."
    assert model.requests[1].messages[-1].text == "wired"


async def test_a_result_that_cannot_be_kept_is_refused_before_anything_is_written():
    """The question stays open, and a result that can be kept is taken."""
    model = ScriptedModel([ToolCall("poll", {"question": "a"}, id="a"), "Done."])
    agent = Agent(react, model=model, tools=[poll], store=MemoryStore())
    await agent.run("x", run_id="r1")
    before = len(await agent.history("r1"))
    with pytest.raises(AnswerError, match="the answer to 'a' cannot be kept"):
        await agent.resume("r1", results={"a": object()})
    assert len(await agent.history("r1")) == before
    assert (await agent.resume("r1", results={"a": 1})).output == "Done."


async def test_a_result_is_given_to_a_call_that_waits_for_one():
    """By the id of the call, also of a sub-agent's; it is no answer to another question, and two calls of one id are told apart."""

    @tool(approve=True, deferred=True)
    def order(item: str) -> str:  # type: ignore[empty-body]
        """Order."""

    def desk(name):
        reply = ToolCall("order", {"item": "x"}, id="c1")
        return Agent(react, model=ScriptedModel([reply, "done"]), tools=[order], name=name).as_node()

    agent = Agent(Strategy("s", START >> parallel(desk("a"), desk("b")) >> END), store=MemoryStore())
    first, second = (await agent.run("x", run_id="r")).questions
    with pytest.raises(
        AnswerError, match=f"question '{first.id}' is of the kind 'approval', and answered with answers="
    ):
        await agent.resume("r", results={first.id: "sent"})
    with pytest.raises(AnswerError, match="run 'r' has no open question 'c2'; open are: none"):
        await agent.resume("r", results={"c2": "sent"})
    await agent.resume("r", answers={first.id: True, second.id: True})
    with pytest.raises(AnswerError, match=r"several open calls have the id 'c1'; open are: '[ab]/"):
        await agent.resume("r", results={"c1": "sent"})
    await agent.resume("r", results={first.id: "sent"})
    assert (await agent.resume("r", results={"c1": "sent"})).output == ("done", "done")


# ---- calls that were broken off


class Payments:
    """A tool that is broken off in some of its calls."""

    def __init__(self, in_flight, *dies):
        self.made, self.dies = [], dies
        """The idempotency keys of the calls that were begun, and which of them are broken off."""

        @tool(in_flight=in_flight)
        async def pay(amount: int, ctx: Context) -> str:
            """Pay."""
            self.made.append(ctx.idempotency_key)
            if len(self.made) in self.dies:
                self.scope.cancel()
                await anyio.sleep_forever()
            return f"paid {amount}"

        self.tool = pay

    async def broken_off(self, go_on, *args, **settings):
        with anyio.CancelScope() as self.scope:
            await go_on(*args, **settings)
        assert self.scope.cancelled_caught


async def test_a_call_that_was_broken_off_is_made_again_under_the_same_key(life):
    """`retry`: nobody is asked, and a service that knows the idempotency key does nothing twice."""
    payments = Payments("retry", 1)
    model = ScriptedModel([ToolCall("pay", {"amount": 5}, id="p"), "Done."])
    await payments.broken_off(life.begin, react, model=model, tools=[payments.tool])
    assert life.run.status == "cancelled"
    assert (await life.go_on()).output == "Done."
    assert (len(payments.made), len(set(payments.made)), len(model.requests)) == (2, 1, 2)
    assert payments.made[0].startswith("r1:")


async def test_a_call_that_was_broken_off_is_told_to_the_model(life):
    """`fail`: it is not made again, and the model knows that nobody knows."""
    payments = Payments("fail", 1)
    model = ScriptedModel([ToolCall("pay", {"amount": 5}, id="p"), "Done."])
    await payments.broken_off(life.begin, react, model=model, tools=[payments.tool])
    assert (await life.go_on()).output == "Done."
    assert len(payments.made) == 1
    assert "nobody knows whether it took effect" in model.requests[1].messages[-1].text


async def test_a_call_that_was_broken_off_is_asked_about_each_time(life):
    """`ask`: the call waits for a verdict, and for another one when it is broken off again."""
    payments = Payments("ask", 1, 2)
    model = ScriptedModel([ToolCall("pay", {"amount": 5}, id="p"), "Done."])
    await payments.broken_off(life.begin, react, model=model, tools=[payments.tool])
    result = await life.go_on()
    assert (result.pending.id, result.pending.kind, len(payments.made)) == ("p:again", "in_flight", 1)
    await payments.broken_off(life.go_on, True)
    result = await life.go_on()
    assert (result.pending.kind, len(payments.made)) == ("in_flight", 2)
    assert result.pending.id != "p:again"
    assert (await life.go_on(Deny("let it be"))).output == "Done."
    assert len(payments.made) == 2
    assert model.requests[1].messages[-1].text.endswith("nobody knows whether it took effect: let it be")


async def test_a_call_that_ended_is_never_asked_about(life):
    """Only what was in flight is uncertain: a sibling that has its result keeps it."""
    payments = Payments("ask", 2)
    calls = ToolCalls([ToolCall("pay", {"amount": n}, id=f"p{n}") for n in (1, 2, 3)])
    model = ScriptedModel([calls, "Done."])
    await payments.broken_off(life.begin, react, model=model, tools=[payments.tool])
    result = await life.go_on()
    assert [question.id for question in result.questions] == ["p2:again"]
    assert (await life.go_on(True)).output == "Done."
    assert len(payments.made) == 4
    assert [message.text for message in model.requests[1].messages[2:]] == ["paid 1", "paid 2", "paid 3"]


@pytest.mark.parametrize("in_flight", ["retry", "ask", "fail"])
async def test_a_call_that_waits_for_an_answer_was_not_broken_off(life, in_flight):
    """Whatever `in_flight` says of a process that dies: the call gets its answers, one after the other, and is told as it ended."""

    @tool(in_flight=in_flight)
    async def pay(ctx: Context) -> str:
        """Pay."""
        return f"paid {await ctx.ask('How much?', int)} to {await ctx.ask('To whom?')}"

    model = ScriptedModel([ToolCall("pay", id="p"), "Done."])
    assert (await life.begin(react, model=model, tools=[pay])).pending.question == "How much?"
    assert (await life.go_on(5)).pending.question == "To whom?"
    assert (await life.go_on("Ada")).output == "Done."
    assert model.requests[1].messages[-1].text == "paid 5 to Ada"


async def test_a_call_that_waited_and_is_broken_off_then_is_asked_about(life):
    """What it did since the answer is uncertain, as that of any other call."""

    @tool(in_flight="ask")
    async def pay(ctx: Context) -> str:
        """Pay."""
        amount = await ctx.ask("How much?", int)
        payments.made.append(amount)
        if len(payments.made) == 1:
            payments.scope.cancel()
            await anyio.sleep_forever()
        return f"paid {amount}"

    payments = Payments("ask")
    model = ScriptedModel([ToolCall("pay", id="p"), "Done."])
    assert (await life.begin(react, model=model, tools=[pay])).pending.question == "How much?"
    await payments.broken_off(life.go_on, 5)
    result = await life.go_on()
    assert (result.pending.id, result.pending.kind, payments.made) == ("p:again", "in_flight", [5])
    assert (await life.go_on(True)).output == "Done."
    assert payments.made == [5, 5]


async def test_a_server_of_tools_may_ask_before_it_lists_them():
    """The run waits before its first node, which then is executed as if nobody had been asked."""

    class Said(Event):
        pass

    class Server:
        name = "server"
        required = True

        async def list_tools(self, ctx):
            return [{"name": await ctx.ask("Which?")}]

        def tools_from(self, listed):
            return [Tool(each["name"], "A tool.", {"type": "object"}, str) for each in listed]

        async def aclose(self): ...

    @node
    async def tell(ctx: Context, said: str) -> str:
        ctx.emit(Said(ctx.run_id))
        return ctx.tools[0].name

    heard = []
    agent = Agent(Strategy("s", START >> tell >> END), tools=[Server()], store=MemoryStore())
    agent.on(Said, heard.append)
    assert (await agent.run("x", run_id="r")).pending.question == "Which?"
    assert heard == []
    assert (await agent.resume("r", answer="pay")).output == "pay"
    assert len(heard) == 1


async def test_servers_of_tools_that_ask_do_not_keep_others_from_being_listed():
    """Each gets the answer to its own question, and one that does not ask is not asked again."""
    listed = []

    class Server:
        required = True

        def __init__(self, name):
            self.name = name

        async def list_tools(self, ctx):
            said = "plain" if self.name == "plain" else await ctx.ask(f"What for {self.name}?")
            listed.append(self.name)
            return [{"name": said}]

        def tools_from(self, listed):
            return [Tool(each["name"], "A tool.", {"type": "object"}, str) for each in listed]

        async def aclose(self): ...

    @node
    async def tell(ctx: Context, said: str) -> list[str]:
        return [each.name for each in ctx.tools]

    servers = [Server(each) for each in ("a", "b", "plain")]
    agent = Agent(Strategy("s", START >> tell >> END), tools=servers, store=MemoryStore())
    asked = {each.question: each.id for each in (await agent.run("x", run_id="r")).questions}
    result = await agent.resume("r", answers={asked["What for b?"]: "of-b"})
    assert [each.question for each in result.questions] == ["What for a?"]
    assert (await agent.resume("r", answer="of-a")).output == ["of-a", "of-b", "plain"]
    assert listed == ["plain", "b", "a"]


# ---- together


async def test_an_unfinished_run_has_no_output(life):
    """Its result says what it waits for."""
    result = await life.begin(Strategy("s", START >> ask_human("Well?", bool) >> END))
    with pytest.raises(RunError, match=r"'r1' has no output: it waits for an answer: Well?"):
        _ = result.output
    assert not result.done


async def test_the_idempotency_key_is_another_one_for_each_call():
    """Two calls, two turns, two runs: as many keys; outside of tools the key names the execution of the node."""
    keys = []

    @tool
    async def note(ctx: Context) -> str:
        """Note."""
        keys.append(ctx.idempotency_key)
        return "ok"

    @node
    async def last(ctx: Context, said: str) -> str:
        keys.append(ctx.idempotency_key)
        return said

    strategy = Strategy("s", START >> react >> last >> last.named("again") >> END)
    for run_id in ("a", "b"):
        model = ScriptedModel([ToolCalls([ToolCall("note"), ToolCall("note")]), ToolCall("note"), "Done."])
        await Agent(strategy, model=model, tools=[note]).run("x", run_id=run_id)
    assert len(keys) == len(set(keys)) == 10
    assert all(key.startswith(("a:", "b:")) for key in keys)


async def test_the_idempotency_key_of_each_owner_is_another_one():
    """Also in runs of one id; and it does not say who they are."""
    keys = []

    @node
    async def note(ctx: Context, said: str) -> str:
        keys.append(ctx.idempotency_key)
        return said

    agent = Agent(Strategy("s", START >> note >> END))
    for owner in ("", "ada@example.org", "bob@example.org"):
        await agent.run("x", run_id="r", owner=owner)
    assert len(set(keys)) == 3
    assert "@" not in str(keys)


async def test_a_run_without_a_store_says_how_it_is_continued():
    """The result that waits and the refused resume name calls, and these calls work."""
    agent = Agent(Strategy("s", START >> ask_human("Well?", bool) >> END))
    result = await agent.run("x")
    with pytest.raises(RunError, match=r"agent\.last after agent\.run\(…\); run\.answer\(…\); await run\.finish\(\)"):
        _ = result.output
    with pytest.raises(RunError, match=r"agent\.last\.answer\(…\), and then await agent\.last\.finish\(\)"):
        await agent.resume(result.run_id, answer=True)
    agent.last.answer(True)
    assert (await agent.last.finish()).output is True


class Shape(BaseModel):
    sides: int
    name: str = "square"


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (str, {"type": "string"}),
        (Literal["red", "green"], {"enum": ["red", "green"], "type": "string"}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Any, {}),
    ],
)
async def test_a_question_has_the_json_schema_of_its_answer(life, kind, schema):
    """For web forms; empty where anything may be answered. It is in the log, so a process without the code has it as well."""

    @node
    async def asking(ctx: Context, said: str) -> object:
        return await ctx.ask("Well?", kind)

    waiting = await life.begin(Strategy("s", START >> asking >> END))
    assert waiting.pending.json_schema == schema
    if life.store is not None:
        assert [each_.json_schema for each_ in (await read_run(life.store, "r1")).questions] == [schema]


@pytest.mark.parametrize(
    ("kind", "wrong", "right"),
    [
        (Annotated[int, Field(ge=1)], 0, 1),
        (Annotated[int, Field(le=9)], 10, 9),
        (Annotated[float, Field(gt=0)], 0, 0.5),
        (Annotated[float, Field(lt=1)], 1.0, 0.5),
        (Annotated[str, Field(min_length=2)], "a", "ab"),
        (Annotated[str, Field(max_length=1)], "ab", "a"),
        (Annotated[list[bool], Field(min_length=1)], [], [True]),
        (Annotated[list[bool], Field(max_length=1)], [True, True], [True]),
    ],
)
async def test_an_answer_beyond_a_limit_is_refused(life, kind, wrong, right):
    """With the reason, in any process: it is not recorded, and the question not asked again."""

    @node
    async def asking(ctx: Context, said: str) -> object:
        return await ctx.ask("Well?", kind)

    await life.begin(Strategy("s", START >> asking >> END))
    with pytest.raises(AnswerError, match="does not fit: must "):
        await life.go_on(wrong)
    assert (await life.go_on(right)).output == right


async def test_questions_about_calls_have_a_json_schema(life):
    """An approval is a yes or no; the result of a call is anything."""
    calls = ToolCalls([ToolCall("send", {"to": "ada"}, id="a"), ToolCall("poll", {"question": "?"}, id="b")])
    settings = {"model": ScriptedModel([calls, "Done."]), "tools": [send, poll]}
    waiting = await life.begin(react, **settings)
    assert [question.json_schema for question in waiting.questions] == [
        {"type": "boolean"},
        {},
    ]
    assert waiting.questions[0].type == bool | Approve | Deny


async def test_a_question_says_when_it_was_asked(life):
    """In UTC, and still that time when the run went on without an answer, in whatever process."""
    then = datetime(2030, 1, 2, 3, 4, 5, 6000, tzinfo=UTC)
    fork = parallel(ask_human("One?", bool, name="one"), ask_human("Two?", bool, name="two"))
    with fixed_clock(int(then.timestamp() * 1000), 0):
        waiting = await life.begin(Strategy("s", START >> fork >> END))
    assert [question.asked for question in waiting.questions] == [then, then]
    waiting = await life.go_on(answers={waiting.questions[0].id: True})
    assert waiting.pending.asked == then


async def test_the_json_schema_of_a_question_names_the_fields_of_its_type():
    """What a form made of it gives is an answer."""
    run = Agent(Strategy("s", START >> ask_human("Which?", Shape) >> END)).start("x")
    result = await run.finish()
    schema = result.pending.json_schema
    assert (list(schema["properties"]), schema["required"]) == (["sides", "name"], ["sides"])
    run.answer({"sides": 4, "name": "square"})
    assert (await run.finish()).output == Shape(sides=4)


@pytest.mark.parametrize("ids", [("first", "second"), ("", "")])
async def test_a_node_asks_several_questions_one_after_the_other(life, ids):
    """Each has an id and an answer of its own."""

    @node
    async def two(ctx: Context, said: str) -> str:
        first = await ctx.ask("First?", id=ids[0])
        second = await ctx.ask("Second?", id=ids[1])
        return f"{first} {second}"

    waiting = await life.begin(Strategy("s", START >> two >> END))
    assert waiting.pending.question == "First?"
    assert waiting.pending.id == (ids[0] or waiting.pending.id)
    waiting = await life.go_on("one")
    assert waiting.pending.question == "Second?"
    assert (await life.go_on("two")).output == "one two"


@pytest.mark.parametrize(
    ("kind", "given", "expected", "wrong"),
    [
        (int, 3, 3, ["3", True, None]),
        (float, 2, 2.0, ["2", False]),
        (str, "3", "3", [3, None]),
        (Literal["send", "drop"], "send", "send", ["sent", 1]),
        (Colour, "blue", Colour.BLUE, ["green"]),
        (Colour, Colour.BLUE, Colour.BLUE, []),
        (date, "2030-01-02", date(2030, 1, 2), [5]),
        (date, date(2030, 1, 2), date(2030, 1, 2), []),
        (Trip, {"where": "Rome", "days": 3}, Trip("Rome", 3), [{"where": "Rome"}, {"where": "Rome", "days": "3"}, "Rome"]),
        (Trip, Trip("Rome", 3), Trip("Rome", 3), []),
        (Party, {"guests": 2, "when": "2030-01-02"}, Party(guests=2, when=date(2030, 1, 2)), [{"guests": 2}]),
        (list[Trip], [Trip("Rome", 3)], [Trip("Rome", 3)], [[{"where": "Rome"}], Trip("Rome", 3)]),
        (dict[str, int], {"a": 1}, {"a": 1}, [{"a": "1"}, []]),
        (tuple[int, str], [1, "a"], (1, "a"), [["a", 1], [1]]),
        (Trip | None, None, None, [3, object()]),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)) if not isinstance(value, list) else "",
)  # fmt: skip
async def test_an_answer_to_a_node_of_ones_own_is_of_the_type_that_it_asked_for(life, kind, given, expected, wrong):
    """Also in a process that has not executed the node yet, and knows of the type what the log says."""

    @node
    async def asking(ctx: Context, said: str) -> bool:
        answer = await ctx.ask("Well?", kind)
        return (answer, type(answer)) == (expected, type(expected))

    await life.begin(Strategy("s", START >> asking >> END))
    for each_ in wrong:
        with pytest.raises(AnswerError, match="asks for"):
            await life.go_on(each_)
    assert (await life.go_on(given)).output is True


@pytest.mark.parametrize(
    ("kind", "answer", "said"),
    [
        (list[int], ["3"], "asks for array, and the answer, a list, does not fit: 0: must be of type integer"),
        (Literal["send", "drop"], "sent", "must be 'send' or 'drop'"),
        (Trip, {"where": "Rome"}, "days: is missing"),
        (list[Trip], [{"where": 1, "days": 3}], "0.where: must be of type string"),
        (tuple[int, str], [1], "must have at least 2 items"),
        (tuple[int, str], [1, "a", True], "must have at most 2 items"),
        (dict[str, int], {"a": "1"}, "a: must be of type integer"),
        (Trip | None, 3, "has none of the forms that may be answered"),
        (Trip, object(), "is not JSON"),
    ],
)
async def test_a_process_that_knows_the_form_of_an_answer_says_what_does_not_fit(kind, answer, said):
    """The place and what must be there, without the answer."""

    @node
    async def asking(ctx: Context, said: str) -> str:
        return str(await ctx.ask("Well?", kind))

    strategy, store = Strategy("s", START >> asking >> END), MemoryStore()
    await Agent(strategy, store=store).run("x", run_id="r")
    with pytest.raises(AnswerError, match=f"{re.escape(said)}$"):
        await Agent(strategy, store=store).resume("r", answer=answer)


async def test_an_answer_that_only_the_node_can_refuse_is_asked_for_again():
    """A log does not say all of a type; the node never gets another one, and the run waits as before."""

    @node
    async def asking(ctx: Context, said: str) -> str:
        first, second = await ctx.ask("When?", date), await ctx.ask("Why?")
        return f"{first:%d.%m.%Y} {second}"

    agent = Agent(Strategy("s", START >> asking >> END), store=MemoryStore())
    asked = (await agent.run("x", run_id="r")).pending
    waiting = await agent.resume("r", answer="tomorrow")
    assert (waiting.status, waiting.pending.id, waiting.pending.question) == ("waiting", asked.id, "When?")
    waiting = await agent.resume("r", answer="2030-01-02")
    assert waiting.pending.question == "Why?"
    assert (await agent.resume("r", answer="Holiday")).output == "02.01.2030 Holiday"


@pytest.mark.parametrize("kind", [Trip, str, object])
async def test_a_person_may_decline_to_answer(life, kind):
    """The node gets an error that it can handle, once; a question whose type has Deny gets that."""
    seen = []

    @node
    async def book(ctx: Context, said: str) -> str:
        try:
            await ctx.ask("Which trip?", kind)
        except DeclinedError as error:
            seen.append((error.node, error.question, error.reason, error.by))
        verdict = await ctx.ask("Really?", Approve | Deny)
        return verdict.reason

    await life.begin(Strategy("s", START >> book >> END))
    waiting = await life.go_on(Deny("no time", by="Ada"))
    assert waiting.pending.question == "Really?"
    assert (await life.go_on(Deny("never"))).output == "never"
    assert seen == [("book", "book:1", "no time", "Ada")] * 2


async def test_a_node_that_does_not_handle_a_denial_fails_and_asks_again_when_it_is_resumed():
    """An error edge may take it. What was declined is one entry of the history."""
    seat = ask_human("Which seat?", Trip)
    agent = Agent(Strategy("s", START >> seat >> shown >> END), store=MemoryStore())
    await agent.run("x", run_id="r")
    with pytest.raises(NodeFailedError, match=r"declined to answer question 'ask_human:1' of .*: full") as info:
        await agent.resume("r", answer=Deny("full"))
    assert isinstance(info.value.__cause__, DeclinedError)
    declined = [each for each in await agent.history("r") if each.key == "answer:ask:1"]
    assert [(each.error, each.value.reason) for each in declined] == [(("DeclinedError", "full"), "full")]
    assert (await agent.resume("r")).pending.question == "Which seat?"
    assert (await agent.resume("r", answer=Trip("Rome", 3))).done

    lenient = Strategy("s", START >> seat >> shown >> END, seat.on_error(DeclinedError).map(str) >> END)
    run = Agent(lenient).start("x")
    await run.finish()
    run.answer(Deny("full"))
    assert (await run.finish()).output.endswith("full")


async def test_a_tool_whose_question_is_declined_tells_the_model():
    """It is not tried again."""

    @tool(retry=3)
    async def book(ctx: Context) -> str:
        """Book."""
        return await ctx.ask("Which seat?")

    model = ScriptedModel([ToolCall("book", {}, id="b"), "Done."])
    run = Agent(react, model=model, tools=[book]).start("x")
    await run.finish()
    run.answer(Deny("full"))
    assert (await run.finish()).output == "Done."
    assert re.fullmatch("Error: a person declined .*: full", model.requests[1].messages[-1].text)


async def test_a_second_question_under_the_id_of_another_is_refused(life):
    """It would be given the answer of the first; nobody is asked, and the error says what to do."""

    @node
    async def two(ctx: Context, said: str) -> str:
        first = await ctx.ask("First?", id="the one")
        second = await ctx.ask("Second?", id="the one")
        return f"{first} {second}"

    waiting = await life.begin(Strategy("s", START >> two >> END))
    assert waiting.pending.id == "the one"
    with pytest.raises(NodeFailedError) as caught:
        await life.go_on("yes")
    assert isinstance(caught.value.__cause__, QuestionError)
    assert str(caught.value.__cause__) == (
        "node 'two' asks 'Second?', and asked 'First?' under the same id; give each question an id of its own, and "
        "make its text from recorded values"
    )


async def test_a_question_whose_text_changes_while_it_is_open_is_refused():
    """Whoever answers would answer another question."""
    texts = ["Well?", "Sure?"]

    @node
    async def fickle(ctx: Context, said: str) -> str:
        return await ctx.ask(texts.pop(0))

    agent = Agent(Strategy("s", START >> fickle >> END), store=MemoryStore())
    await agent.run("x", run_id="r")
    with pytest.raises(NodeFailedError) as caught:
        await agent.resume("r")
    assert isinstance(caught.value.__cause__, QuestionError)


@pytest.mark.parametrize(
    ("kind", "answer", "problems"),
    [
        (
            Visit,
            {"days": 0, "where": {"town": "Bergen"}, "colour": "green", "more": 1, "key": "topsecret"},
            (
                "days: must be greater than or equal to 1",
                "where.country: is missing",
                "colour: must be 'red' or 'blue'",
                "key: must be a valid UUID",
                "more: is not one of the fields",
            ),
        ),
        (Annotated[int, Field(lt=5)], 7, ("must be less than 5",)),
        (Colour, "green", ("must be 'red' or 'blue'",)),
        (Annotated[str, AfterValidator(shouted)], "quietly", ("say it louder",)),
        (set[int], object(), ("must be a valid set",)),
    ],
)
def test_a_wrong_answer_says_which_field_does_not_fit_and_why(kind, answer, problems):
    """The error names each field and its constraint, and shows nothing of the answer."""
    with pytest.raises(AnswerError) as caught:
        Question("q", "Well?", "ask", type=kind).check(answer)
    assert caught.value.problems == problems
    assert str(caught.value).endswith(f"does not fit: {'; '.join(problems)}")
