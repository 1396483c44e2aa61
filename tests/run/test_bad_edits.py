"""Edits of a transcript at odd moments and places, and values that change or cannot be stored: what they mean, or how they are refused."""

from __future__ import annotations

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, node, parallel
from graphagent.errors import DivergedError, NodeFailedError
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


# ---- places and steps


async def test_a_node_that_edits_elsewhere_when_it_is_executed_again_diverges(store):
    """Its transcript has fewer steps by now, since it did something else the first time; nothing is edited."""
    again = []

    @node
    async def fill(ctx: Context, topic: str) -> str:
        ctx.memory.steps += [message("one"), message("two")]
        return topic

    @node
    async def work(ctx: Context, topic: str) -> str:
        if again:
            ctx.memory.steps[2] = message("late")
            return topic
        await ctx.add(message("three"))
        raise OSError("gone")

    def remove(step: MessageStep, run) -> None:
        run.memory.steps[:] = []

    strategy = Strategy("s", START >> fill >> work >> END)
    run = Agent(strategy, store=store, step_callbacks=[remove]).start("x", run_id="r")
    with pytest.raises(NodeFailedError):
        await run.finish()
    assert texts(run.memory) == ["three"]
    again.append(True)
    with pytest.raises(
        DivergedError, match="'work' does not do what was recorded: it edits step 2 of a transcript that has 1"
    ):
        await run.finish()
    assert texts(run.memory) == ["three"]
    await check_stored(store, run.memory)


async def test_places_that_are_not_there_are_those_of_a_list(store):
    """An index is an IndexError, a slice ends where the steps do, and nothing is recorded of what was refused."""
    refused = []

    @node
    async def edit(ctx: Context, topic: str) -> str:
        steps = ctx.memory.steps
        for index in (1, -2):
            with pytest.raises(IndexError):
                steps[index] = message("no")
            with pytest.raises(IndexError):
                del steps[index]
            refused.append(index)
        steps[7:9] = [message("last")]
        steps.insert(-9, message("first"))
        return topic

    result = await Agent(Strategy("s", START >> edit >> END), store=store).run("x", run_id="r")
    assert refused == [1, -2]
    assert texts(result.memory) == ["first", "x", "last"]
    await check_stored(store, result.memory)


async def test_a_step_of_another_run_can_be_added_twice(store):
    """Each is a copy: an edit of it changes neither the other one nor the run that it came from."""
    agent = Agent(Strategy("s", START >> echo >> END), store=store)
    other = await agent.run("one", run_id="other")
    run = agent.start("x", run_id="r")
    step = other.memory.steps[0]
    run.memory.steps += [step, step]
    run.memory.steps[1].task = "two"
    step.task = "three"
    await run.finish()
    assert (texts(run.memory), texts(other.memory)) == (["x", "two", "one"], ["three"])
    await check_stored(store, run.memory)


async def test_a_step_changed_after_the_end_is_changed_in_this_object_alone():
    """The store has what was said, and so has the next run of the thread."""
    store = MemoryStore()
    agent = Agent(Strategy("s", START >> echo >> END), store=store)
    result = await agent.run("x", run_id="r", thread="t")
    before = {item.key: item.value async for item in store.scan(("runs",))}
    result.memory.steps[0].task = "changed"
    assert texts(result.memory) == ["changed"]
    assert {item.key: item.value async for item in store.scan(("runs",))} == before
    assert texts((await agent.run("y", run_id="s", thread="t")).memory) == ["x", "y"]
