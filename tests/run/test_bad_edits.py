"""Edits of a transcript at odd moments and places, and values that change or cannot be stored: what they mean, or how they are refused."""

from __future__ import annotations

import threading

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, node, parallel
from graphagent.errors import DivergedError, NodeFailedError, SerializationError
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
async def test_a_callback_in_a_branch_edits_the_transcript_of_the_branch(store, kept):
    """An edit of `run.memory` is in it at once, at its place there, and is kept or dropped with the branch."""
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
    assert texts(result.memory) == ["x", *(["one", "noted", "two", "three"] if kept == "keep" else [])]
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
    assert texts(run.memory)[1:] == ["noted a", "changed a", "noted b", "changed b"]
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
        DivergedError, match="'work' does something other than was recorded: it edits step 2 of a transcript that has 1"
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


# ---- values


class Link:
    """Something that lives in this process alone."""

    def __init__(self):
        self.lock = threading.Lock()


@node
async def link(ctx: Context, topic: str) -> object:
    return Link()


BETWEEN = {
    "passed": ("link", START >> link >> name_of >> END),
    "the answer": ("link", START >> link >> END),
    "mapped": ("echo", START >> echo, echo.map(lambda _: Link()) >> name_of >> END),
    "mapped to the answer": ("echo", START >> echo, echo.map(lambda _: Link()) >> END),
    "of a branch": ("parallel/0/link", START >> parallel(link, echo) >> END),
}


@pytest.mark.parametrize("what", BETWEEN)
async def test_a_value_that_cannot_be_stored_fails_its_node(what):
    """Wherever it is passed, with a store; without one it is passed on as it is."""
    where, *path = BETWEEN[what]
    strategy = Strategy("s", *path)
    assert (await Agent(strategy).run("x")).status == "done"
    store = MemoryStore()
    with pytest.raises(
        NodeFailedError, match=f"^node '{where}' failed with SerializationError: .* type Link cannot be kept"
    ) as raised:
        await Agent(strategy, store=store).run("x", run_id="r")
    assert isinstance(raised.value.__cause__, SerializationError)
    assert (await read_run(store, "r")).head.status == "failed"


async def test_a_task_that_cannot_be_stored_begins_no_run():
    """It is refused before anything is written."""
    store = MemoryStore()
    with pytest.raises(SerializationError, match="type Link cannot be kept"):
        await Agent(Strategy("s", START >> name_of >> END), store=store).run(Link(), run_id="r")
    assert [item async for item in store.scan(("runs",))] == []


async def test_a_value_changed_in_place_is_with_a_store_what_was_returned(store):
    """Without one it is the object, as a value that one function passes to another."""
    kept = []

    @node
    async def make(ctx: Context, topic: str) -> list[str]:
        kept.append([topic])
        return kept[0]

    @node
    async def change(ctx: Context, value: list[str]) -> list[str]:
        kept[0].append("changed")
        return value

    result = await Agent(Strategy("s", START >> make >> change >> END), store=store).run("x", run_id="r")
    assert result.output == (["x"] if store is not None else ["x", "changed"])
    assert result.memory.steps[-1].output == result.output
