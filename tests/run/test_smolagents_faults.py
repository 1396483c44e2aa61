"""Faults of the runs of smolagents that no other file tests, each reproduced there, and what happens here in their place."""

from __future__ import annotations

import base64
import io
import itertools
import json
import os
import threading
from contextlib import redirect_stdout

import anyio
import pytest

from graphagent import Agent, Context, tool
from graphagent.errors import ModelRequestError, RunError
from graphagent.llm import Image, ToolCall, ToolCalls
from graphagent.llm.openai import OpenAIModel
from graphagent.run import Console
from graphagent.store import SqliteStore
from graphagent.testing import ScriptedModel, openai_server
from graphagent_strategies import single_run

PICTURE = Image(os.urandom(600))


@tool
async def fibonacci(n: int) -> int:
    """Give the n-th Fibonacci number."""
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def kinds(memory):
    return [type(step).__name__ for step in memory.steps]


def sent(request):
    return "\n".join(message.text for message in request.messages)


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
