"""Edits of a transcript at odd moments and places, and values that change or cannot be stored: what they mean, or how they are refused."""

from __future__ import annotations

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, node, parallel
from graphagent.history import read_run
from graphagent.llm import Message
from graphagent.memory import MessageStep, TaskStep
from graphagent.store import MemoryStore


@pytest.fixture(params=["none", "memory"])
def store(request):
    """No store, and one."""
    return MemoryStore() if request.param == "memory" else None


def message(text):
    return MessageStep(Message.user(text))


def texts(memory):
    """Return what the tasks and messages of a transcript say."""
    return [
        step.task if isinstance(step, TaskStep) else step.message.text
        for step in memory.steps
        if isinstance(step, TaskStep | MessageStep)
    ]


async def check_stored(store, memory):
    """Check that a store has the same transcript."""
    if store is not None:
        assert texts((await read_run(store, "r")).memory) == texts(memory)


@node
async def echo(ctx: Context, topic: str) -> str:
    return topic


@node
async def name_of(ctx: Context, value: object) -> str:
    return type(value).__name__


# ---- callbacks beside branches


@pytest.mark.parametrize("kept", ["drop", "keep"])
async def test_a_callback_in_a_branch_edits_the_transcript_of_the_run(store, kept):
    """An edit of `run.memory` is in it at once, at its place there, and stays; what the branch added is where it was."""
    seen = []

    @node
    async def say(ctx: Context, topic: str) -> str:
        for text in ("one", "two", "three"):
            await ctx.add(message(text))
        return topic

    def also(step: MessageStep, run) -> None:
        if step.message.text == "two":
            before = len(run.memory.steps)
            run.memory.steps.append(message("noted"))
            seen.append(len(run.memory.steps) - before)

    strategy = Strategy("s", START >> echo >> parallel(say, echo, transcript=kept) >> END)
    result = await Agent(strategy, store=store, step_callbacks=[also]).run("x", run_id="r")
    assert seen == [1]
    assert texts(result.memory) == ["x", "noted", *(["one", "two", "three"] if kept == "keep" else [])]
    await check_stored(store, result.memory)


async def test_callbacks_that_overlap_edit_what_they_see(store):
    """In two branches, and between the steps afterwards: each edit is recorded where it was made."""
    began, both = [], anyio.Event()

    def saying(name):
        @node(name=name)
        async def say(ctx: Context, topic: str) -> str:
            await ctx.add(message(f"said {name}"))
            return topic

        return say

    async def overlap(step: MessageStep, run) -> None:
        name = step.message.text.removeprefix("said ")
        began.append(name)
        if len(began) == 2:
            both.set()
        await both.wait()
        step.message = Message.user(f"changed {name}")
        run.memory.steps.append(message(f"noted {name}"))

    strategy = Strategy("s", START >> parallel(saying("a"), saying("b"), transcript="keep") >> name_of >> END)
    run = Agent(strategy, store=store, step_callbacks=[overlap]).start("x", run_id="r")
    assert await run.step() is not None
    run.memory.steps[0].task = "y"
    await run.finish()
    assert texts(run.memory)[0] == "y"
    assert sorted(texts(run.memory)[1:3]) == ["noted a", "noted b"]
    assert texts(run.memory)[3:] == ["changed a", "changed b"]
    await check_stored(store, run.memory)
