"""Faults of smolagents' runs, each reproduced there, and what happens here in their place."""

from __future__ import annotations

import base64
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import redirect_stdout

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent.errors import BudgetError, HandlerError, ModelRequestError, RunError
from graphagent.events import ModelResponded, RunFinished, TextStreamed, ToolCalled
from graphagent.llm import Image, Message, ModelResponse, ToolCall, ToolCalls, Usage
from graphagent.llm.openai import OpenAIModel
from graphagent.memory import ActionStep, FinalAnswerStep, PlanningStep, RunMemory, TaskStep
from graphagent.nodes import execute_tools, llm_request
from graphagent.run import Console, list_runs
from graphagent.store import SqliteStore
from graphagent.testing import ScriptedModel, openai_server
from graphagent_strategies import single_run

TASK = "What is the 20th Fibonacci number?"
ANSWER = "The 20th Fibonacci number is 6765."
PICTURE = Image(os.urandom(600))


@tool
async def fibonacci(n: int) -> int:
    """Give the n-th Fibonacci number."""
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def script():
    return ScriptedModel([ToolCall("fibonacci", {"n": 20}), ANSWER])


def kinds(memory):
    return [type(step).__name__ for step in memory.steps]


def sent(request):
    return "\n".join(message.text for message in request.messages)


PROGRAM = '''
import sys
from pathlib import Path

import anyio

from graphagent import Agent, Context, tool
from graphagent.llm.openai import OpenAIModel
from graphagent.store import SqliteStore
from graphagent_strategies import single_run

what, folder, url = sys.argv[1], Path(sys.argv[2]), sys.argv[3]


def note(text):
    with (folder / "effects.log").open("a") as log:
        log.write(f"{text}\\n")


@tool
async def charge(ctx: Context) -> str:
    """Take the money."""
    note("charged")
    return "charged"


@tool
async def ship(ctx: Context) -> str:
    """Send the parcel."""
    note(f"shipping {ctx.idempotency_key}")
    if what == "begin":
        await anyio.sleep_forever()
    return "shipped"


async def main():
    model = OpenAIModel("scripted", base_url=url)
    agent = Agent(single_run(), model=model, tools=[charge, ship], store=SqliteStore(folder / "runs.db"))
    if what == "begin":
        await agent.run("Buy it.", run_id="order")
    print((await agent.resume("order")).output)


anyio.run(main)
'''


def test_a_run_killed_during_a_tool_goes_on_without_repeating_what_was_done(tmp_path):
    """After SIGKILL another process makes only the call that was in flight again, under the same idempotency key."""
    program, log = tmp_path / "order.py", tmp_path / "effects.log"
    program.write_text(PROGRAM)
    calls = ToolCalls([ToolCall("charge", id="a"), ToolCall("ship", id="b")])
    with openai_server([calls, "It is on its way."]) as server:
        started = [sys.executable, str(program), "begin", str(tmp_path), server.base_url]
        with subprocess.Popen(started, stderr=subprocess.PIPE, text=True) as process:
            try:
                until = time.monotonic() + 600
                while not (log.exists() and "shipping" in log.read_text()):
                    assert process.poll() is None, process.stderr.read()
                    assert time.monotonic() < until
                    time.sleep(0.02)
            finally:
                process.kill()
            assert process.wait() == -signal.SIGKILL
        started[2] = "go_on"
        ended = subprocess.run(started, capture_output=True, text=True, check=False, timeout=600)
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout == "It is on its way.\n"
        assert len(server.requests) == 2
    charged, *shipped = log.read_text().splitlines()
    assert charged == "charged"
    assert len(shipped) == 2
    assert len(set(shipped)) == 1


@node
async def sort(ctx: Context, said: str) -> tuple[frozenset[str], dict[int, str], tuple[int, ...]]:
    return frozenset(said.split()), {1: "one"}, (1, 2)


async def test_a_run_comes_back_from_json_as_it_was(tmp_path):
    """Images, sets, tuples, numbers as keys, text that looks like JSON and errors come back equal and of their types."""

    @tool
    async def look(fail: bool) -> Image:
        """Look at the page."""
        if fail:
            raise ValueError('{"not": "data"}')
        return PICTURE

    calls = ToolCalls([ToolCall("look", {"fail": False}), ToolCall("look", {"fail": True})], '["text"]')
    ask, act = llm_request(), execute_tools()
    strategy = Strategy(
        "s",
        START >> ask,
        ask.on(ToolCalls) >> act >> ask,
        ask.on(str) >> sort >> END,
        ask.on_error(ModelRequestError).map(lambda error: f"after {error}") >> ask,
    )
    model = ScriptedModel([calls, ModelRequestError("busy", status=429), "b a b"])
    async with SqliteStore(tmp_path / "runs.db") as store:
        agent = Agent(strategy, model=model, tools=[look], store=store)
        result = await agent.run('{"a": 1}', run_id="r", images=[PICTURE])
        kept = (await agent.read("r")).memory

    for memory in (RunMemory.from_json(result.memory.to_json()), kept):
        assert memory == result.memory
        task, looked, failed, _, _, final = memory.steps
        assert (task.task, task.task_images) == ('{"a": 1}', (PICTURE,))
        assert (looked.model_output, looked.observations_images) == ('["text"]', (PICTURE,))
        assert [each.is_error for each in looked.results] == [False, True]
        assert looked.results[1].content == 'Error: ValueError: {"not": "data"}'
        assert (failed.error.type, failed.error.message) == ("ModelRequestError", "busy")
        assert final.output == result.output == (frozenset({"a", "b"}), {1: "one"}, (1, 2))
        assert [type(part) for part in final.output] == [frozenset, dict, tuple]
    assert json.loads(json.dumps(result.memory.full_steps())) == result.memory.full_steps()


async def test_the_step_by_step_loop_runs_as_it_is_documented():
    """A step is made without a timing, adds itself, and gives no answer before the last; changes to it reach the model."""
    model = script()
    run = Agent(single_run(), model=model, tools=[fibonacci]).start(TASK)
    final_answer, step_number = None, 1
    while final_answer is None and step_number <= 10:
        memory_step = await run.step()
        assert run.memory.steps[-1] is memory_step
        step_number += 1
        if isinstance(memory_step, ActionStep) and memory_step.observations:
            memory_step.observations = "6766, they say"
            run.memory.steps[-1] = memory_step
        final_answer = run.output if run.done else None
    assert final_answer == ANSWER
    assert step_number == 4
    assert kinds(run.memory) == ["TaskStep", "ActionStep", "ActionStep", "FinalAnswerStep"]
    assert model.requests[1].messages[-1].text == "6766, they say"
    assert await run.step() is None


async def test_an_injected_step_without_a_timing_is_seen_and_kept(tmp_path):
    """The model reads it, it is plain data, and it comes back from JSON and from the store."""
    model = script()
    injected = ActionStep(step_number=0, observations="The system was down for 2 hours yesterday", timing=None)
    async with SqliteStore(tmp_path / "runs.db") as store:
        agent = Agent(single_run(), model=model, tools=[fibonacci], store=store)
        run = agent.start(TASK, run_id="r")
        run.memory.steps.append(TaskStep("Previous monitoring session"))
        run.memory.steps.append(injected)
        await run.finish()
        assert (await agent.read("r")).memory == run.memory
    assert all("down for 2 hours" in sent(request) for request in model.requests)
    assert run.memory.succinct_steps()[2]["timing"] is None
    assert RunMemory.from_json(run.memory.to_json()).steps[2] == injected


async def test_tool_calls_with_the_same_id_or_with_none_are_all_executed():
    """Each gets an id of its own, under which the model finds its result."""
    made = []

    @tool
    async def write(text: str) -> str:
        """Write a text."""
        made.append(text)
        return f"wrote {text}"

    ids = ["same", "same", "", "", "other"]
    calls = ToolCalls([ToolCall("write", {"text": text}, id_) for text, id_ in zip("abcde", ids, strict=True)])
    async with openai_server([calls, "Done."]) as server, OpenAIModel("scripted", base_url=server.base_url) as model:
        result = await Agent(single_run(), model=model, tools=[write]).run("Write.")
        *_, turn, a, b, c, d, e = server.requests[1]["messages"]
    assert made == list("abcde")
    assert [call.arguments["text"] for call in result.memory.steps[1].tool_calls] == list("abcde")
    asked = [call["id"] for call in turn["tool_calls"]]
    assert len(set(asked)) == 5
    assert (asked[0], asked[4]) == ("same", "other")
    assert [(each["tool_call_id"], each["content"]) for each in (a, b, c, d, e)] == [
        (id_, f"wrote {text}") for id_, text in zip(asked, "abcde", strict=True)
    ]


async def test_one_of_three_parallel_tools_fails_and_the_others_keep_their_results():
    """The results stand in the order of the calls, whatever their ids and whichever ended first."""
    together = anyio.Event()
    inside = 0

    @tool
    async def look(at: str) -> str:
        """Look at something."""
        nonlocal inside
        inside += 1
        if inside == 3:
            together.set()
        with anyio.fail_after(600):
            await together.wait()  # all three are being executed at once
        if at == "moon":
            raise OSError("clouds")
        return f"saw the {at}"

    places = {"call_10": "sun", "call_2": "moon", "call_1": "sea"}
    calls = ToolCalls([ToolCall("look", {"at": at}, id_) for id_, at in places.items()])
    model = ScriptedModel([calls, "I saw two of three."])
    result = await Agent(single_run(parallel_tools=3), model=model, tools=[look]).run("Look around.")
    step = result.memory.steps[1]
    assert [(each.call_id, each.is_error) for each in step.results] == [
        ("call_10", False), ("call_2", True), ("call_1", False),
    ]  # fmt: skip
    assert step.observations == "saw the sun\nError: OSError: clouds\nsaw the sea"
    assert [part.call_id for message in model.requests[1].messages[-3:] for part in message.parts] == [*places]


@pytest.mark.parametrize(("event", "asked"), [(TextStreamed, 3), (ToolCalled, 2)])
async def test_a_stream_that_is_left_early_leaves_a_run_that_goes_on(event, asked):
    """Leaving it raises nothing, stops the work, and what was broken off is done again when the run goes on."""
    began = []

    @tool
    async def look(n: int) -> int:
        """Look a number up."""
        began.append(n)
        if len(began) == 1 and event is ToolCalled:
            await anyio.sleep_forever()
        return 6765

    model = ScriptedModel([*([ToolCalls([ToolCall("look", {"n": 20})], "Let me see.")] * (asked - 1)), ANSWER])
    async with Agent(single_run(), model=model, tools=[look]).stream(TASK) as events:
        async for each in events:
            if isinstance(each, event):
                break
    run = events.run
    assert run.status == "cancelled"
    assert kinds(run.memory) == ["TaskStep"]
    await anyio.sleep(0.02)
    assert (len(model.requests), len(began)) == (1, asked == 2)
    result = await run.finish()
    assert result.output == ANSWER
    assert len(model.requests) == asked
    assert kinds(run.memory) == ["TaskStep", "ActionStep", "ActionStep", "FinalAnswerStep"]


async def test_a_callback_that_raises_loses_no_step(tmp_path):
    """The step stands in the memory and in the journal, the error names the callback, and the run goes on from there."""
    disk = iter([OSError("the disk is full")])

    def save(step: ActionStep) -> None:
        for error in disk:
            raise error

    model = script()
    async with SqliteStore(tmp_path / "runs.db") as store:
        agent = Agent(single_run(), model=model, tools=[fibonacci], store=store, step_callbacks=[save])
        run = agent.start(TASK, run_id="r")
        with pytest.raises(HandlerError, match="'save'") as raised:
            await run.finish()
        assert isinstance(raised.value.__cause__, OSError)
        assert kinds(run.memory) == ["TaskStep", "ActionStep"]
        assert run.memory.steps[1].observations == "6765"
        assert (await agent.read("r")).memory == run.memory
        result = await agent.resume("r")
    assert result.output == ANSWER
    assert len(model.requests) == 2


def test_two_threads_with_one_agent_have_a_memory_each(tmp_path):
    """Their steps, numbers, answers and tokens are those of the same two runs one after the other."""
    both = threading.Barrier(2, timeout=600)

    @tool
    def wait(name: str) -> str:
        """Wait for the other run."""
        both.wait()
        return f"{name} waited"

    def reply(request):
        last = request.messages[-1]
        return f"Answer: {last.text}" if last.role == "tool" else ToolCall("wait", {"name": last.text})

    model, store = ScriptedModel(itertools.repeat(reply)), SqliteStore(tmp_path / "runs.db")
    agent = Agent(single_run(), model=model, tools=[wait], store=store)
    results = {}

    def execute(name):
        results[name] = agent.run_sync(name, run_id=name)

    threads = [threading.Thread(target=execute, args=[name]) for name in ("anna", "bert")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results.keys() == {"anna", "bert"}
    for name, result in results.items():
        assert kinds(result.memory) == ["TaskStep", "ActionStep", "ActionStep", "FinalAnswerStep"]
        task, first, second, final = result.memory.steps
        assert (task.task, first.step_number, second.step_number) == (name, 1, 2)
        assert first.observations == f"{name} waited"
        assert final.output == result.output == f"Answer: {name} waited"
        assert result.usage == (first.token_usage + second.token_usage)
        assert anyio.run(agent.read, name).memory == result.memory


async def test_replay_shows_everything_however_silent_the_run_was():
    """Steps with their times and tokens, tool calls, observations, errors, plans, images and the answer, detailed or not."""

    @tool
    async def look(at: str) -> Image:
        """Look at something."""
        if at == "moon":
            raise OSError("clouds")
        return PICTURE

    model = ScriptedModel(
        ["1. look", ToolCall("look", {"at": "sun"}), ToolCall("look", {"at": "moon"}), "Half of it is there."]
    )
    agent = Agent(single_run(), model=model, tools=[look], system_prompt="You look.", planning_interval=5)
    agent.install(Console, level=0, file=io.StringIO())
    await agent.run("Look around.", images=[PICTURE])
    for detailed in (False, True):
        printed = io.StringIO()
        with redirect_stdout(printed):
            agent.replay(detailed=detailed)
        text = printed.getvalue()
        told = (
            "Task:", "Look around.", "Plan", "1. look", "Step 1 (", "Step 2 (", "Step 3 (", " s; ", " tokens: ",
            'look({"at": "sun"})', 'look({"at": "moon"})', "image", "OSError: clouds", "Final answer:", "Half of it is there.",
        )  # fmt: skip
        assert [each for each in told if each not in text] == []
        assert ("You look." in text) == detailed


async def test_all_counts_of_tokens_agree(tmp_path):
    """Result, events, steps, store and a resumed run say the same, with the plans and the sub-agent counted."""
    spent = Usage(10, 5)

    def replies(*given):
        return ScriptedModel([ModelResponse(each, spent) for each in given])

    say, call = Message.assistant, lambda name, **arguments: Message.assistant(calls=[ToolCall(name, arguments, "c")])
    heard = []

    def make(store, model, helping):
        helper = Agent(single_run(), model=helping, tools=[fibonacci], name="helper", description="Computes.")
        agent = Agent(single_run(), model=model, tools=[helper], store=store, planning_interval=1)
        agent.on(ModelResponded, lambda event: heard.append(event.response.usage))
        agent.on(RunFinished, lambda event: ended.update({event.run_id: event.usage}))
        return agent

    ended = {}
    model = replies(say("1. ask"), call("helper", task=TASK), say("2. answer"), say(ANSWER))
    helping = replies(call("fibonacci", n=20), say("It is 6765."))
    async with SqliteStore(tmp_path / "runs.db") as store:
        run = make(store, model, helping).start(TASK, run_id="r")
        assert isinstance(await run.step(), PlanningStep)
        assert isinstance(await run.step(), ActionStep)
        assert run.result.usage == Usage(40, 20)
        await run.aclose()
        result = await make(store, model, helping).resume("r")
        (inside,) = [head for head in await list_runs(store) if head.parent == "r"]
        again = await make(store, model, helping).read("r")
        (helped,) = again.result.children
        (head,) = [head for head in await list_runs(store) if head.run_id == "r"]

    total = Usage(60, 30)
    steps = [*result.memory.steps, *helped.memory.steps]
    assert [step.token_usage for step in steps if isinstance(step, ActionStep | PlanningStep)] == [spent] * 6
    assert result.usage == ended["r"] == again.result.usage == total
    assert sum(heard, Usage()) == total
    assert helped.result.usage == ended[inside.run_id] == Usage(20, 10)
    assert (head.tokens, inside.tokens) == (total.total_tokens, 30)


def test_what_a_run_takes_on_disk_grows_with_its_length_alone(tmp_path):
    """A run of 200 turns takes no more for each turn than one of 50, though its last prompt is four times as long."""

    @tool
    async def read(page: int) -> str:
        """Read a page."""
        return f"page {page}: " + "word " * 40

    def size(turns):
        def reply(request):
            done = (len(request.messages) - 1) // 2
            return ToolCall("read", {"page": done}) if done < turns - 1 else "Read."

        path = tmp_path / f"{turns}.db"

        async def main():
            async with SqliteStore(path) as store:
                model = ScriptedModel(itertools.repeat(reply))
                agent = Agent(single_run(), model=model, tools=[read], store=store, max_turns=turns)
                result = await agent.run("Read the book.", run_id="r")
                assert result.turns == turns
                again = (await agent.read("r")).memory
                assert again.steps[-2].model_input_messages == model.requests[-1].messages
                return sum(len(item.value) for item in [item async for item in store.scan(("runs",))])

        return anyio.run(main), path.stat().st_size

    (few, small), (many, large) = size(50), size(200)
    assert many / few < 4.2
    assert large / small < 4.4


async def test_each_prompt_has_the_image_of_the_task_once(tmp_path):
    """However many turns there were; and the journal keeps it once."""
    async with (
        openai_server([*[ToolCall("fibonacci", {"n": n}) for n in range(4)], "Done."]) as server,
        OpenAIModel("scripted", base_url=server.base_url) as model,
        SqliteStore(tmp_path / "runs.db") as store,
    ):
        agent = Agent(single_run(), model=model, tools=[fibonacci], store=store)
        await agent.run("What is on it?", images=[PICTURE])
        kept = b"".join([item.value async for item in store.scan(("runs",))])
    encoded = base64.b64encode(PICTURE.data).decode()
    assert [json.dumps(body).count(encoded) for body in server.requests] == [1] * 5
    assert kept.count(PICTURE.data) + kept.count(encoded.encode()) == 1


async def test_a_run_out_of_turns_goes_on_with_more(tmp_path):
    """The error holds what was done; an agent with a larger budget goes on from there, and asks for nothing again."""
    model = ScriptedModel([*[ToolCall("fibonacci", {"n": n}) for n in range(5)], ANSWER])
    async with SqliteStore(tmp_path / "runs.db") as store:

        def agent(turns):
            return Agent(single_run(), model=model, tools=[fibonacci], store=store, max_turns=turns)

        with pytest.raises(BudgetError, match="2 turns") as raised:
            await agent(2).run(TASK, run_id="r")
        assert kinds(raised.value.result.memory) == ["TaskStep", "ActionStep", "ActionStep"]
        with pytest.raises(BudgetError, match="4 turns"):
            await agent(4).resume("r")
        result = await agent(6).resume("r")
    assert result.output == ANSWER
    assert result.turns == len(model.requests) == 6
    assert [step.step_number for step in result.memory.steps if isinstance(step, ActionStep)] == [1, 2, 3, 4, 5, 6]
    assert isinstance(result.memory.steps[-1], FinalAnswerStep)


async def test_nothing_of_one_run_is_visible_in_another_of_the_same_agent():
    """Neither its steps nor what it did, spent or failed with; nor do steps that were handed on change with their copies."""
    seen = []

    @tool
    async def keep(ctx: Context, secret: str) -> str:
        """Keep a secret."""

        async def work() -> str:
            return secret

        seen.append(await ctx.once("kept", work))
        return f"kept {seen[-1]}"

    def reply(request):
        last = request.messages[-1]
        if "fail" in last.text:
            raise ModelRequestError("busy")
        return "Kept." if last.role == "tool" else ToolCall("keep", {"secret": last.text}, "same")

    model = ScriptedModel(itertools.repeat(reply))
    agent = Agent(single_run(), model=model, tools=[keep], max_turns=2)
    first = await agent.run("violet")
    with pytest.raises(RunError):
        await agent.run("fail with indigo")
    second = await agent.run("yellow")
    assert seen == ["violet", "yellow"]
    assert all("violet" not in sent(each) and "indigo" not in sent(each) for each in model.requests[-2:])
    assert kinds(second.memory) == kinds(first.memory) == ["TaskStep", "ActionStep", "ActionStep", "FinalAnswerStep"]
    assert [step.step_number for step in second.memory.steps[1:3]] == [1, 2]
    assert (second.turns, second.nodes, second.usage) == (first.turns, first.nodes, first.usage)

    third = agent.start("green", steps=first.memory)
    third.memory.steps[0].task = "changed"
    third.memory.steps[1].observations = "changed"
    del third.memory.steps[2:]
    assert first.memory.steps[0].task == "violet"
    assert first.memory.steps[1].observations == "kept violet"
    assert len(first.memory.steps) == 4


async def test_an_error_of_the_models_server_is_a_step_and_not_the_end(tmp_path):
    """The step says what went wrong and keeps its place; no turn and no tool call before it is made again."""
    busy = ModelRequestError("overloaded", status=503)
    async with (
        openai_server([ToolCall("fibonacci", {"n": 20}), busy, busy, ANSWER]) as server,
        OpenAIModel("scripted", base_url=server.base_url, max_retries=0) as model,
        SqliteStore(tmp_path / "runs.db") as store,
    ):
        agent = Agent(single_run(), model=model, tools=[fibonacci], store=store)
        run = agent.start(TASK, run_id="r")
        for asked in (2, 3):
            with pytest.raises(RunError) as raised:
                await run.finish()
            assert isinstance(raised.value.__cause__, ModelRequestError)
            assert raised.value.__cause__.status == 503
            assert (run.status, len(server.requests)) == ("failed", asked)
            assert run.memory.steps[-1].error.type == "ModelRequestError"
            assert "503" in str(run.memory.steps[-1].error)
        result = await agent.resume("r")
        assert (await agent.read("r")).memory == result.memory
    assert result.output == ANSWER
    assert len(server.requests) == 4
    assert [message["role"] for message in server.requests[3]["messages"]] == ["user", "assistant", "tool"]
