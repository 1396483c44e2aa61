"""Streams: the events of a run, read while they happen."""

from __future__ import annotations

import gc
import math
from contextvars import ContextVar

import anyio
import anyio.lowlevel
import pytest

from graphagent import END, START, Agent, Context, Run, Strategy, blocking, each, node, parallel, race, tool
from graphagent.errors import AnswerError, HandlerError, ModelRequestError, NodeFailedError, RunNotFoundError, Veto
from graphagent.events import (
    Event,
    ModelRequested,
    ModelResponded,
    NodeStarted,
    RunAnswered,
    RunFailed,
    RunFinished,
    RunResumed,
    RunStarted,
    RunSuspended,
    StepCommitted,
    TextStreamed,
)
from graphagent.llm import ToolCall, ToolCalls
from graphagent.memory import ActionStep, AgentMemory, FinalAnswerStep, NoMemory, StoreMemoryProvider, Subject, TaskStep
from graphagent.nodes import ask_human, auto_detect_facts, compress_history, execute_tools, llm_request
from graphagent.run import RunStream
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

pytestmark = pytest.mark.every_loop


@tool
async def double(n: int) -> int:
    """Double a number."""
    return n * 2


@node
async def upper(ctx: Context, said: str) -> str:
    return said.upper()


@node
async def count(ctx: Context, said: str) -> int:
    return len(said)


@node
async def gather(ctx: Context, found: list[int]) -> str:
    return f"{found}"


@node
async def fail(ctx: Context, said: str) -> str:
    raise ValueError(said)


ask, act = llm_request(), execute_tools()
react = Strategy("react", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)
words = upper.named("words")
nested = Strategy(
    "nested",
    START >> react >> words,
    words.map(str.split) >> each(Strategy("inner", START >> upper >> count >> END)) >> gather >> END,
)


def an_agent(strategy=react, replies=None):
    model = ScriptedModel(replies or [ToolCall("double", {"n": 2}), "That is four."])
    return Agent(strategy, model=model, tools=[double])


def told(events):
    """What events say, without what is different in each run."""
    return [(type(event).__name__, getattr(event, "node", ""), getattr(event, "text", "")) for event in events]


@pytest.mark.parametrize("strategy", [react, nested], ids=lambda strategy: strategy.name)
async def test_a_stream_gives_what_a_run_without_it_does(strategy):
    """The events come in the same order, and transcript and result are the same, over any strategy."""
    plain, heard = an_agent(strategy), []
    plain.on(Event, heard.append)
    without = await plain.run("task")
    events = []
    async with an_agent(strategy).stream("task") as stream:
        async for event in stream:
            events.append(event)
    assert told(events) == told(heard)
    result = stream.result
    assert (result.output, result.status, result.usage) == (without.output, "done", without.usage)
    assert [type(step) for step in result.memory.steps] == [type(step) for step in without.memory.steps]
    assert result.memory.to_messages()[-1] == without.memory.to_messages()[-1]


async def test_what_the_model_says_comes_in_pieces_before_it_has_ended():
    """TextStreamed is read while the model still speaks; the pieces are its answer."""
    spoken = anyio.Event()

    class Slow(ScriptedModel):
        async def respond(self, request, on_text=None):
            on_text("Hello ")
            await spoken.wait()
            on_text("you.")
            return self.answer(request)

    agent = Agent(Strategy("s", START >> llm_request(tools=False) >> END), model=Slow(["Hello you."]))
    pieces = []
    async with agent.stream("hi") as events:
        async for event in events:
            if isinstance(event, TextStreamed):
                pieces.append((event.text, events.run.status))
                spoken.set()
    assert pieces == [("Hello ", "running"), ("you.", "done")]


@pytest.mark.parametrize("store", [None, MemoryStore], ids=["in this process", "from its store"])
async def test_an_early_end_of_the_block_cancels_the_run_which_can_be_gone_on_with(store):
    """Nothing of what was done is done again: the model is asked once for each turn, the tool is called once."""
    calls = []

    @tool
    async def note(n: int) -> int:
        """Note a number."""
        calls.append(n)
        return n

    model = ScriptedModel([ToolCall("note", {"n": 1}), ToolCall("note", {"n": 2}), "done"])
    agent = Agent(react, model=model, tools=[note], store=store and store())
    async with agent.stream("task", run_id="r") as events:
        async for event in events:
            if isinstance(event, StepCommitted):
                break
    assert events.result.status == "cancelled"
    assert calls in ([1], [1, 2])
    result = await (agent.resume("r") if store else events.run.finish())
    assert (result.output, calls, len(model.requests)) == ("done", [1, 2], 3)
    assert [type(step).__name__ for step in result.memory.steps] == [
        "TaskStep", "ActionStep", "ActionStep", "ActionStep", "FinalAnswerStep",
    ]  # fmt: skip


async def test_a_block_that_is_left_by_an_error_of_its_own_raises_that_error():
    """The error of who reads is neither wrapped nor lost, and the run is cancelled."""
    with pytest.raises(KeyError, match="mine"):
        async with an_agent().stream("task") as events:
            async for _ in events:
                raise KeyError("mine")
    assert events.result.status == "cancelled"


async def test_errors_of_the_run_are_raised_where_its_events_are_read():
    """What happened before is read first, RunFailed included; then the error comes, once."""
    agent = Agent(Strategy("s", START >> upper >> fail >> END))
    events = []
    async with agent.stream("x") as stream:
        with pytest.raises(NodeFailedError, match="'fail' failed with ValueError"):
            async for event in stream:
                events.append(type(event).__name__)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
    assert events == ["RunStarted", "NodeStarted", "NodeFinished", "NodeStarted", "NodeFailed", "RunFailed"]
    assert stream.result.status == "failed"


async def test_an_error_that_nobody_read_is_raised_at_the_end_of_the_block():
    """A failed run does not look like one that went well."""
    agent = Agent(Strategy("s", START >> fail >> END))
    with pytest.raises(NodeFailedError):
        async with agent.stream("x") as stream:
            while stream.run.status != "failed":
                await anyio.lowlevel.checkpoint()


async def test_events_that_nobody_reads_do_not_hold_up_the_run():
    """A run comes to its end while its reader does something else, and all events can be read then."""
    loop = Strategy("loop", START >> count.named("n") >> END)
    many = Strategy("many", START >> words, words.map(str.split) >> each(loop) >> gather >> END)
    async with Agent(many, max_nodes=None).stream(" ".join(["word"] * 500)) as stream:
        with anyio.fail_after(600):
            while not stream.run.done:
                await anyio.lowlevel.checkpoint()
        kinds = [type(event) async for event in stream]
    assert kinds[0] is RunStarted
    assert kinds[-1] is RunFinished
    assert kinds.count(NodeStarted) == 1003


async def test_streams_stand_in_task_groups_and_cancel_scopes():
    """Several at once, in tasks and within time limits; a limit from outside ends the block and cancels the run."""
    results = {}

    async def read(number):
        with anyio.fail_after(600):
            async with an_agent(replies=[ToolCall("double", {"n": number}), f"run {number}"]).stream("task") as events:
                async for _ in events:
                    await anyio.lowlevel.checkpoint()
        results[number] = events.result.output

    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(read, number)
    assert results == {number: f"run {number}" for number in range(5)}

    @node
    async def wait(ctx: Context, said: str) -> str:
        await anyio.sleep(math.inf)
        return said

    agent = Agent(Strategy("s", START >> wait >> END))
    with anyio.move_on_after(0.02) as scope:
        async with agent.stream("x") as events:
            async for _ in events:
                pass
    assert scope.cancelled_caught
    assert events.result.status == "cancelled"


async def test_a_stream_inside_a_stream():
    """A reader may run another stream while it reads: each has its own events."""
    inside = []
    async with an_agent().stream("outer") as events:
        async for event in events:
            if isinstance(event, ModelResponded):
                async with an_agent().stream("inner") as others:
                    inside += [other.run_id async for other in others]
    assert events.result.done
    assert events.run.run_id not in inside
    assert len(set(inside)) == 2


async def test_a_run_that_waits_ends_its_events():
    """The last event says what it waits for; with the answer, a new stream reads how it goes on."""
    approve = ask_human("Send it?", bool)
    agent = Agent(Strategy("s", START >> upper >> approve >> END))
    async with agent.stream("x") as events:
        kinds = [type(event) async for event in events]
    assert kinds[-1] is RunSuspended
    assert events.result.pending.question == "Send it?"
    events.run.answer(True)
    async with RunStream(events.run) as later:
        kinds = [type(event) async for event in later]
    assert (kinds[0], kinds[-1], later.result.output) == (RunResumed, RunFinished, True)
    assert [event async for event in events] == []


def waiting(store):
    """An agent as each process creates it, whose runs ask a person, and then a model."""
    ask = llm_request()
    strategy = Strategy("s", START >> upper >> ask_human("Send it?", str) >> ask >> END)
    return Agent(strategy, model=ScriptedModel(["It is done."]), store=store)


async def test_a_stored_run_goes_on_with_its_events():
    """`resume_stream` reads it, gives the answer, and yields what happens then, and not what happened before."""
    store = MemoryStore()
    await waiting(store).run("x", run_id="r")
    agent = waiting(store)
    events = [event async for event in agent.resume_stream("r", answer="Go.")]
    assert (type(events[0]), type(events[-1])) == (RunResumed, RunFinished)
    assert [event.text for event in events if isinstance(event, TextStreamed)] != []
    assert (agent.last.run_id, agent.last.result.output) == ("r", "It is done.")


async def test_the_text_of_a_resumed_run_is_read_in_a_block():
    """There the run is known from the beginning, and its result at the end."""
    store = MemoryStore()
    question = (await waiting(store).run("x", run_id="r")).pending
    async with waiting(store).resume_stream("r", answers={question.id: "Go."}) as events:
        assert (events.run.run_id, events.run.status) == ("r", "waiting")
        text = [piece async for piece in events.text()]
    assert ("".join(text), events.result.output) == ("It is done.", "It is done.")


async def test_a_run_that_cannot_be_resumed_is_told_where_its_events_are_read():
    """At the first event, or at the beginning of the block; nothing is written, and the question stays open."""
    store = MemoryStore()
    await waiting(store).run("x", run_id="r")
    for wrong, error in (({"answer": 5}, AnswerError), ({"answers": {"other": "x"}}, AnswerError)):
        stream = waiting(store).resume_stream("r", **wrong)
        assert "not read yet" in repr(stream)
        with pytest.raises(RuntimeError, match="the run is read when its events are"):
            _ = stream.run
        with pytest.raises(error):
            async for _ in stream:
                pass
        with pytest.raises(error):
            async with waiting(store).resume_stream("r", **wrong):
                pass
    with pytest.raises(RunNotFoundError):
        async for _ in waiting(store).resume_stream("none").text():
            pass
    assert (await waiting(store).resume("r", answer="Go.")).output == "It is done."


async def test_a_resumed_stream_that_is_left_early_cancels_the_run():
    """As with a new one, it can be continued."""
    store = MemoryStore()
    await waiting(store).run("x", run_id="r")
    async with waiting(store).resume_stream("r", answer="Go.") as events:
        assert isinstance(await anext(events), RunResumed)
    assert events.run.status == "cancelled"
    assert (await waiting(store).resume("r")).output == "It is done."


async def test_a_stream_is_read_once():
    """Entering its block again is refused, with the remedy."""
    stream = an_agent().stream("x")
    async with stream:
        pass
    with pytest.raises(RuntimeError, match=r"RunStream\(events.run\)"):
        async with stream:
            pass


async def test_handlers_of_the_agent_are_called_as_well():
    """Listeners and a stream hear the same; what a listener raises ends the run, and is raised where the events are read."""
    heard = []
    agent = an_agent()
    agent.on(RunStarted, heard.append)
    async with agent.stream("x") as events:
        assert heard == [await anext(events)]
        async for _ in events:
            pass

    def explode(event):
        raise RuntimeError("secret")

    agent = an_agent()
    agent.on(ModelResponded, explode)
    async with agent.stream("x") as events:
        with pytest.raises(HandlerError, match="explode"):
            async for _ in events:
                pass
    assert events.result.status == "failed"


async def test_the_run_can_be_watched_from_outside_the_block():
    """A stream may be made before a loop runs, and its run has an id at once."""
    stream = an_agent().stream("x", run_id="mine", owner="ada")
    assert isinstance(stream.run, Run)
    assert (stream.run.run_id, stream.run.owner, stream.result.status) == ("mine", "ada", "new")
    async with stream as events:
        failed = [event async for event in events if isinstance(event, RunFailed)]
    assert failed == []


async def test_forks_tell_their_events_in_a_stream():
    """Branches are told as they happen, under their paths."""
    strategy = Strategy("s", START >> parallel(upper, count) >> END)
    async with Agent(strategy).stream("x") as events:
        nodes = {event.node async for event in events if isinstance(event, NodeStarted)}
    assert nodes == {"parallel", "parallel/0/upper", "parallel/1/count"}


# ---- without a block


class Endless:
    """A node that begins and waits for ever; both can be waited for."""

    def __init__(self):
        self.begun, self.broken = anyio.Event(), anyio.Event()

        @node
        async def wait(ctx: Context, said: str) -> str:
            try:
                self.begun.set()
                await anyio.sleep(math.inf)
            finally:
                self.broken.set()
            return said

        self.agent = Agent(Strategy("s", START >> upper >> wait >> END))


async def test_the_events_can_be_read_without_a_block():
    """A bare loop gives what a block does, and the run has ended when the loop has."""
    plain, heard = an_agent(nested), []
    plain.on(Event, heard.append)
    await plain.run("task")
    events = an_agent(nested).stream("task")
    with anyio.fail_after(600):
        assert told([event async for event in events]) == told(heard)
    assert events.result.status == "done"


async def test_the_text_of_the_answer_can_be_read_by_itself():
    """The pieces are what the model said in its turns; the same within a block."""
    with anyio.fail_after(600):
        assert [text async for text in an_agent().stream("task").text()] == ["That", " is", " four."]
        async with an_agent().stream("task") as events:
            assert "".join([text async for text in events.text()]) == events.result.output == "That is four."


@pytest.mark.parametrize("named", [False, True])
async def test_leaving_a_bare_loop_early_cancels_the_run(named):
    """A break is enough, also where the stream is still known by a name."""
    endless = Endless()
    stream = endless.agent.stream("x")
    with anyio.fail_after(600):
        async for event in stream if named else endless.agent.stream("x"):
            if getattr(event, "node", "") == "wait":
                await endless.begun.wait()
                break
        await endless.broken.wait()
    if named:
        await stream.aclose()
        assert stream.result.status == "cancelled"
        with pytest.raises(RuntimeError, match=r"RunStream\(events.run\)"):
            await anext(aiter(stream))


async def test_a_bare_loop_that_is_cancelled_while_it_waits_has_stopped_the_run_when_it_is_left():
    """The run is cancelled with whoever reads it, and has come to rest before that goes on."""
    endless = Endless()
    stream = endless.agent.stream("x")

    async def read():
        async for _ in stream:
            pass

    with anyio.fail_after(600):
        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await endless.begun.wait()
            group.cancel_scope.cancel()
    assert endless.broken.is_set()
    assert stream.result.status == "cancelled"


async def test_a_run_whose_reader_is_garbage_is_cancelled():
    """Also where only the garbage collector finds that nobody can read it, in whatever thread."""
    endless = Endless()
    reader = aiter(endless.agent.stream("x"))
    with anyio.fail_after(600):
        await anext(reader)
        await endless.begun.wait()
        circle = [reader]
        circle.append(circle)
        del reader, circle
        await anyio.to_thread.run_sync(gc.collect)
        await endless.broken.wait()


async def test_a_stream_that_nobody_reads_never_begins():
    """It leaves nothing behind, and warns of nothing."""
    stream = an_agent().stream("x")
    reader, text = aiter(stream), stream.text()
    del reader, text
    assert stream.result.status == "new"
    await stream.aclose()
    with pytest.raises(RuntimeError, match="async with"):
        await anext(stream)


async def test_errors_of_a_run_are_raised_in_a_bare_loop():
    """What happened before is read first, then the error comes where the events or the text are read."""
    agent = Agent(Strategy("s", START >> upper >> fail >> END))
    events = []
    with pytest.raises(NodeFailedError, match="'fail' failed with ValueError"):
        async for event in agent.stream("x"):
            events.append(type(event))
    assert events[-1] is RunFailed
    with pytest.raises(NodeFailedError, match="'fail' failed with ValueError"):
        async for _ in agent.stream("x").text():
            pass


async def test_a_run_is_executed_in_the_context_of_its_reader():
    """What a program set for itself holds in the nodes."""
    name = ContextVar("name", default="nobody")

    @node
    async def who(ctx: Context, said: str) -> str:
        return name.get()

    name.set("ada")
    events = Agent(Strategy("s", START >> who >> END)).stream("x")
    assert [event.output async for event in events if isinstance(event, RunFinished)] == ["ada"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_program_that_ends_in_the_middle_of_a_stream_leaves_nothing_running(backend):
    """The end of the event loop cancels the run, and waits for it."""
    ended = []

    @node
    async def wait(ctx: Context, said: str) -> str:
        try:
            await anyio.sleep(math.inf)
        finally:
            ended.append(True)
        return said

    kept = []

    async def main():
        reader = aiter(Agent(Strategy("s", START >> wait >> END)).stream("x"))
        kept.append(reader)
        while not isinstance(await anext(reader), NodeStarted):
            pass
        await anyio.lowlevel.checkpoint()

    anyio.run(main, backend=backend)
    assert ended == [True]
    kept.clear()  # with its loop closed, there is nothing to be cancelled any more


def test_a_stream_is_read_in_a_script():
    """`blocking` gives plain loops over events and text, and a loop that is left has stopped the run."""
    agent = blocking(an_agent(replies=["one two"] * 3))
    assert list(agent.stream("x").text()) == ["one", " two"]
    assert [event.text for event in agent.stream("x") if isinstance(event, TextStreamed)] == ["one", " two"]
    stream = blocking(Endless().agent).stream("x")
    for _ in stream:
        break
    assert stream.result.status == "cancelled"


# ---- which text


async def test_only_the_answer_is_streamed_unless_all_text_is_asked_for():
    """Plans, summaries and extraction come with all_text, and say what they are; else their models are not even asked to stream."""
    given = []

    class Asked(ScriptedModel):
        async def respond(self, request, on_text=None):
            given.append(on_text is not None)
            return await super().respond(request, on_text)

    user = Subject("user")
    strategy = Strategy(
        "s", START >> llm_request(tools=False) >> auto_detect_facts(subjects=[user]) >> compress_history() >> END
    )

    def agent():
        model = Asked(["a plan", "an answer", {"facts": []}, "a summary"])
        made = Agent(strategy, model=model, planning_interval=1)
        made.install(AgentMemory, provider=NoMemory())
        return made

    whole = {"plan": "a plan", "answer": "an answer", "extraction": '{"facts":[]}', "summary": "a summary"}
    for all_text, expected in ((False, {"answer": "an answer"}), (True, whole)):
        given.clear()
        heard: dict[str, str] = {}
        told: dict[str, str] = {}
        listening, streaming = agent(), agent()

        def hear(event, heard=heard):
            heard[event.output] = heard.get(event.output, "") + event.text

        listening.on(TextStreamed, hear, all_text=all_text)
        await listening.run("x")
        async for event in streaming.stream("x", all_text=all_text):
            if isinstance(event, TextStreamed):
                told[event.output] = told.get(event.output, "") + event.text
        assert heard == told == expected
        assert given == [all_text, True, all_text, all_text] * 2
        assert "".join([text async for text in agent().stream("x", all_text=all_text).text()]) == "an answer"


async def test_the_answer_is_an_event_before_anything_is_learned_from_it():
    """Once, whether a tap learns or the feature at END, and where a final check may refuse the answer after that; a sub-agent tells its own."""
    user = Subject("user")
    ask, learn = llm_request(tools=False), auto_detect_facts(subjects=[user])
    by_tap = Strategy("s", START >> ask >> learn >> END)
    by_feature = Strategy("s", START >> ask >> END)
    for strategy, settings, before in (
        (by_tap, {}, True),
        (by_feature, {}, True),
        (by_tap, {"final_answer_checks": [lambda answer: True]}, False),
    ):
        agent = Agent(strategy, model=ScriptedModel(["an answer", {"facts": []}]), **settings)
        agent.install(AgentMemory, provider=StoreMemoryProvider(MemoryStore()), subjects=[user])
        events = [event async for event in agent.stream("x")]
        [at] = [number for number, event in enumerate(events) if isinstance(event, RunAnswered)]
        asked = [number for number, event in enumerate(events) if isinstance(event, ModelRequested)]
        assert events[at].output == "an answer"
        assert len(asked) == 2
        assert asked[0] < at
        assert (at < asked[1]) == before
    inner = Agent(by_feature, model=ScriptedModel(["inside"]), name="inner").as_node()
    outer = Agent(Strategy("o", START >> inner >> END))
    answered = [event async for event in outer.stream("x") if isinstance(event, RunAnswered)]
    assert [event.output for event in answered] == ["inside", "inside"]
    assert len({event.run_id for event in answered}) == 2


async def test_listeners_with_and_without_all_text_hear_what_they_asked_for():
    """Each listener decides for itself; what one hears, the other need not."""
    strategy = Strategy("s", START >> llm_request(tools=False) >> END)
    agent = Agent(strategy, model=ScriptedModel(["plan", "answer"]), planning_interval=1)
    some, every, events = [], [], []
    agent.on(TextStreamed, lambda event: some.append(event.text))
    agent.on(TextStreamed, lambda event: every.append(event.text), all_text=True)
    agent.on(Event, events.append)
    await agent.run("x")
    assert (some, every) == (["answer"], ["plan", "answer"])
    assert [event.text for event in events if isinstance(event, TextStreamed)] == ["answer"]
    with pytest.raises(TypeError, match="all_text=True is for TextStreamed"):
        agent.on(RunStarted, events.append, all_text=True)


# ---- what belongs together


class Taking(ScriptedModel):
    """A model that says its next answer word by word, in turn with whoever else speaks."""

    async def respond(self, request, on_text=None):
        response = self.answer(request)
        for number, word in enumerate(response.message.text.split()):
            if on_text is not None:
                on_text(f" {word}" if number else word)
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
        return response


def asking(name):
    return llm_request(tools=False, name=name)


async def test_branches_that_speak_at_the_same_time_are_heard_one_after_the_other():
    """Each as a whole, and the first while it speaks; the events themselves come as they happen."""
    strategy = Strategy("s", START >> parallel(asking("a"), asking("b")) >> END)
    answers = ["one two three", "four five"]
    heard = [text async for text in Agent(strategy, model=Taking(answers)).stream("x").text()]
    a, b = ["one", " two", " three"], ["four", " five"]
    assert heard in (a + b, b + a)  # on trio, either may begin
    told = [
        event.text async for event in Agent(strategy, model=Taking(answers)).stream("x") if isinstance(event, TextStreamed)
    ]  # fmt: skip
    assert sorted(told) == sorted(a + b)
    assert told.index("four") < told.index(" three")
    assert told.index("one") < told.index(" five")


async def test_a_branch_that_was_cancelled_while_it_spoke_holds_up_nobody():
    """What comes after the fork is heard at once, as is what a failed node was followed by."""

    @node
    async def quick(ctx: Context, value: str) -> str:
        for _ in range(8):
            await anyio.lowlevel.checkpoint()
        return value

    fork, last = race(asking("a"), quick), asking("last")
    strategy = Strategy("s", START >> fork >> last >> END)
    long = " ".join(map(str, range(100)))
    async with Agent(strategy, model=Taking([long, "the end"])).stream("x") as stream:
        text = "".join([piece async for piece in stream.text()])
    assert text.startswith("0 1")
    assert text.endswith("the end")
    assert " 50" not in text


@pytest.mark.parametrize("tools", [False, True])
async def test_an_answer_that_a_final_check_may_refuse_is_heard_when_it_has_passed(tools):
    """A refused one is not heard at all; what is said beside a tool call is heard at once."""

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    def check(answer):
        checked.append(list(heard))
        return answer == "a good one"

    checked, heard = [], []
    script = [ToolCalls([ToolCall("look", {})], "let me see")] * tools + ["a bad one", "a good one"]
    agent = Agent(single_run(), model=ScriptedModel(script), tools=[look], final_answer_checks=[check])
    agent.on(TextStreamed, lambda event: heard.append(event.text))
    result = await agent.run("x")
    before = ["let", " me", " see"] * tools
    assert (result.output, heard) == ("a good one", [*before, "a", " good", " one"])
    assert checked == [before, before]


async def test_text_of_turns_that_are_no_answer_is_heard_where_there_are_final_checks():
    """When the run goes on, and before it waits for a person."""
    draft = asking("draft")
    path = START >> draft >> asking("again") >> ask_human("Send it?", bool) >> END
    heard = []
    agent = Agent(Strategy("s", path), model=ScriptedModel(["one", "two"]), final_answer_checks=[lambda answer: answer])
    agent.on(TextStreamed, lambda event: heard.append(event.text))
    run = agent.start("x")
    await run.finish()
    assert heard == ["one", "two"]
    run.answer(True)
    await run.finish()
    assert heard == ["one", "two"]


class BreaksOff(ScriptedModel):
    """Says its replies word by word, and loses the connection after those that end with a dash."""

    async def respond(self, request, on_text=None):
        response = await super().respond(request, on_text)
        if response.message.text.endswith("-"):
            raise ModelRequestError("the connection was lost")
        return response


async def heard_of(strategy, *replies, **options):
    agent = Agent(strategy, model=BreaksOff(list(replies)), **options)
    return "".join([piece async for piece in agent.stream("x").text()])


async def test_text_that_a_callback_refused_is_not_heard():
    """Neither that of a refused turn nor that of a refused answer; what the model says instead is heard once."""

    def no_digits(step: ActionStep) -> None:
        if "4" in step.model_output:
            raise Veto("write numbers as words")

    def in_short(step: FinalAnswerStep) -> None:
        if len(step.output) > 10:
            raise Veto("shorter")

    ask = asking("ask")
    strategy = Strategy("s", START >> ask >> END)
    loop = Strategy("loop", START >> ask, ask.when(lambda text: text.endswith("?")) >> ask, ask.otherwise() >> END)
    assert await heard_of(single_run(), "It is 4.", "Four.", step_callbacks=[no_digits]) == "Four."
    assert await heard_of(strategy, "As far as I know, four.", "Four.", step_callbacks=[in_short]) == "Four."
    both = [no_digits, in_short]
    assert await heard_of(loop, "Well?", "4.", "As far as I know, four.", "Four.", step_callbacks=both) == "Well?Four."


async def test_text_of_an_attempt_that_is_repeated_is_not_heard():
    """Of a subgraph or an agent whose later node failed, and of a request that broke off; that of an attempt that is not repeated is."""
    attempts = []

    @node
    async def flaky(ctx: Context, text: str) -> str:
        attempts.append(text)
        if len(attempts) % 2:
            raise ConnectionError
        return text

    ask = asking("ask")
    again = {"attempts": 2, "wait": 0}
    part = Strategy("part", START >> ask >> flaky >> END)
    desk = Agent(part, name="desk", description="Answers.").as_node()
    for retried in (part.retry(**again), desk.retry(**again)):
        strategy = Strategy("s", START >> asking("first") >> retried >> END)
        assert await heard_of(strategy, "First. ", "One ", "Two two.") == "First. Two two."
    strategy = Strategy("s", START >> ask.retry(attempts=3, wait=0) >> END)
    assert await heard_of(strategy, "One -", "Two -", "Three three.") == "Three three."
    attempts.clear()
    kept = part.retry(**again, errors=LookupError)
    path = kept.on_error(ConnectionError).map(lambda _: "again") >> asking("other") >> END
    assert await heard_of(Strategy("s", START >> kept >> END, path), "One. ", "Two.") == "One. Two."


async def test_text_streams_where_nothing_can_take_it_back():
    """Callbacks for other steps, and the last attempt of a node, hold up nothing: the first piece is heard before the model has answered."""

    def looks(step: TaskStep) -> None:
        pass

    heard = []
    ask = asking("ask").retry(attempts=2, wait=0)
    agent = Agent(Strategy("s", START >> ask >> END), model=BreaksOff(["One -", "Two two."]), step_callbacks=[looks])
    agent.on(TextStreamed, lambda event: heard.append(event.text))
    agent.on(ModelResponded, lambda event: heard.append("answered"))
    await agent.run("x")
    assert heard == ["Two", " two.", "answered"]
