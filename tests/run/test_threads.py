"""Threads: runs that continue the transcript of an earlier one by reference."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from datetime import timedelta

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent.errors import (
    DamagedStoreError,
    NodeFailedError,
    RunClaimedError,
    RunError,
    RunExistsError,
    ThreadBusyError,
)
from graphagent.history import (
    export_runs,
    forget_runs,
    forget_thread,
    import_runs,
    list_threads,
    measure_runs,
    prune_runs,
    verify_runs,
)
from graphagent.llm import Image, Message, ModelResponse, ProviderData, ToolCall
from graphagent.log._header import header_key, rows_key
from graphagent.memory import (
    AgentMemory,
    Concept,
    FileMemoryProvider,
    MessageStep,
    RunMemory,
    Scope,
    SingleFact,
    Subject,
    TaskStep,
)
from graphagent.nodes import ask_human, llm_request, load_all_facts
from graphagent.protocols import Feature
from graphagent.run import list_runs
from graphagent.store import Delete, DeleteAll, EncryptedStore, MemoryStore, Put, new_key
from graphagent.testing import ScriptedModel, fixed_clock
from graphagent_strategies import single_run
from tests.run.lives import Life, Watched, cut
from tests.run.test_resume import MANY
from tests.run.worlds import answer_to, parts
from tests.thorough import examples

chat = Strategy("chat", START >> llm_request() >> END)


@dataclass
class Old:
    city: str


@dataclass
class New:
    city: str
    country: str


def counting():
    """Return a model that answers each question with how many messages it was sent."""
    return ScriptedModel(itertools.repeat(lambda request: f"I was sent {len(request.messages)}."))


def answering(*answers, store, strategy=chat, **options):
    """Return an agent whose model gives some answers."""
    return Agent(strategy, model=ScriptedModel([*answers]), store=store, **options)


def texts(memory):
    """Return what a model would be sent."""
    return [message.text for message in memory.to_messages()]


# ---- continuing


async def test_a_run_of_a_thread_continues_the_one_before(store):
    """Another process continues it too; what the model is sent, and the steps, are as with `steps=`."""
    first = answering("Oslo.", "Rainy.", store=store, system_prompt="Be brief.")
    await first.run("Where am I?", thread="ada-1")
    live = await first.run("How is it there?", thread="ada-1")
    other = answering("In Oslo.", store=store, system_prompt="Be brief.")
    last = await other.run("Where?", thread="ada-1", run_id="last")
    assert texts(live.memory) == ["Be brief.", "Where am I?", "Oslo.", "How is it there?", "Rainy."]
    assert texts(last.memory) == [*texts(live.memory), "Where?", "In Oslo."]
    assert [message.text for message in other.model.requests[0].messages] == texts(last.memory)[:-1]
    read = await answering(store=store).read("last")
    assert read.memory.full_steps() == last.memory.full_steps()
    assert len(read.memory.run_steps) == len(last.memory.run_steps) == 3
    assert last.usage == read.result.usage
    assert [message.text for message in read.memory.steps[-2].model_input_messages] == texts(last.memory)[:-1]


async def test_a_thread_is_stored_once(store):
    """Each run takes as much space as the second one, however many there were."""
    agent = Agent(chat, model=counting(), store=store)
    for number in range(12):
        await agent.run(f"Question {number:02}?", thread="long", run_id=f"run-{number:02}")
    sizes = await measure_runs(store)
    assert {sizes[f"run-{number:02}"].entries for number in range(12)} == {3}
    assert sizes["run-11"].bytes <= sizes["run-02"].bytes + 40


async def test_threads_are_those_of_an_owner(store):
    """Two owners have threads of one name, and neither sees what the other said; other names are other threads."""
    agent = Agent(chat, model=counting(), store=store)
    await agent.run("a secret", thread="t", owner="ada")
    result = await agent.run("hello", thread="t", owner="bob")
    assert texts(result.memory)[:1] == ["hello"]
    assert texts((await agent.run("hello", thread="u", owner="ada")).memory)[:1] == ["hello"]


async def test_what_was_edited_after_a_run_is_not_in_its_thread():
    """The transcript of a thread is the stored one, in the same process and in another."""
    store = MemoryStore()
    agent = Agent(chat, model=counting(), store=store)
    result = await agent.run("one", thread="t")
    result.memory.steps.append(MessageStep(Message.user("never stored")))
    assert "never stored" not in texts((await agent.run("two", thread="t")).memory)


async def test_a_run_of_a_thread_can_be_edited_before_it_begins():
    """Steps that are added before its first step come after those of the thread, and are read back."""
    store = MemoryStore()
    agent = Agent(chat, model=counting(), store=store)
    await agent.run("one", thread="t")
    run = agent.start("two", thread="t", run_id="two")
    run.memory.steps.append(MessageStep(Message.user("and this")))
    result = await run.finish()
    assert texts(result.memory)[:4] == ["one", "I was sent 1.", "two", "and this"]
    assert (
        await Agent(chat, model=counting(), store=store).read("two")
    ).memory.full_steps() == result.memory.full_steps()


class Hesitant(Feature):
    """A feature that refuses the run of a task once, after it has changed the transcript."""

    def __init__(self, task: str) -> None:
        self.task, self.has_refused = task, False

    async def begin(self, ctx: Context) -> None:
        if self.task in texts(ctx.memory):
            ctx.memory.steps.append(MessageStep(Message.user("noted")))
            if not self.has_refused:
                self.has_refused = True
                raise RuntimeError("not yet")


@pytest.mark.parametrize("thread", ["t", None], ids=["a thread", "no store"])
async def test_a_run_that_was_refused_begins_again_as_users_have_made_it(thread):
    """Of the first attempt nothing is left, and steps that were read before are those of the run."""
    agent = Agent(chat, model=counting(), store=MemoryStore() if thread else None)
    agent.install(Hesitant, "two")
    if thread:
        await agent.run("one", thread=thread)
    run = agent.start("two", thread=thread)
    task = run.memory.steps[0]
    with pytest.raises(RuntimeError, match="not yet"):
        await run.finish()
    assert [*run.memory.steps] == [task]
    run.memory.steps.append(MessageStep(Message.user("please")))
    result = await run.finish()
    assert texts(result.memory)[-4:-1] == ["two", "please", "noted"]
    assert any(step is task for step in result.memory.steps)


async def test_a_stream_continues_a_thread():
    """As `run` does."""
    store = MemoryStore()
    agent = Agent(chat, model=counting(), store=store)
    await agent.run("one", thread="t")
    async with agent.stream("two", thread="t") as events:
        assert "".join([text async for text in events.text()]) == "I was sent 3."


async def test_another_strategy_and_other_rules_continue_a_thread(store):
    """After a deployment: what the earlier strategy declared is still shown, and the rules are the new ones."""

    @node
    async def reply(ctx: Context, text: str) -> str:
        return f"{text}!"

    old = Strategy("old", START >> llm_request(tools=False) >> reply >> END)
    await answering("Oslo", store=store, strategy=old, system_prompt="Old.").run("Where?", thread="t")
    new = answering("Yes.", store=store, system_prompt="New.")
    result = await new.run("Sure?", thread="t", run_id="new")
    assert texts(result.memory) == ["New.", "Where?", "Oslo", "Oslo!", "Sure?", "Yes."]
    assert result.memory.steps[2].output == "Oslo!"
    assert (
        await answering(store=store, system_prompt="New.").read("new")
    ).memory.full_steps() == result.memory.full_steps()


@pytest.mark.parametrize("tasks", [(Old, Old), (Old, New), (Old, str), (str, Old), (Old, New, Old)])
async def test_types_may_change_from_run_to_run(store, tasks):
    """Values that an earlier strategy declared are read as plain data where the strategy is another one."""
    given = {Old: Old("Oslo"), New: New("Oslo", "Norway"), str: "Oslo"}
    for number, kind in enumerate(tasks):

        @node
        async def same(ctx: Context, task: kind) -> kind:
            return task

        agent = Agent(Strategy("same", START >> same >> END), store=store)
        result = await agent.run(given[kind], thread="t", run_id=f"r{number}")
        assert result.output == given[kind]
        assert len(result.memory.run_steps) == len(result.memory.steps) - 2 * number
        read = (await Agent(Strategy("same", START >> same >> END), store=store).read(f"r{number}")).memory
        assert read.full_steps() == result.memory.full_steps()


@settings(max_examples=examples(40, 3), **MANY)
@given(parts(1, agents=True), st.integers(0, 3))
def test_any_strategy_reads_back_in_a_thread(built, answered):
    """Three runs of a strategy, of which one may wait and be answered: each is read as it was."""

    async def lived():
        store, life = MemoryStore(), Life(built)
        agent = life.agent(store)
        for number in range(3):
            try:
                result = await agent.run(f"task {number}", thread="t", run_id=f"run {number}")
                while not result.done:
                    answers = {each.id: answer_to(each) for each in result.questions}
                    result = await agent.resume(f"run {number}", answers=answers)
            except NodeFailedError:
                continue
            read = await life.agent(store).read(f"run {number}")
            assert read.memory.full_steps() == result.memory.full_steps()
            assert read.result.usage == result.usage

    anyio.run(lived)


# ---- runs that do not end


async def test_a_run_that_failed_is_left_out(store):
    """The next one continues after the last that ended, whichever process begins it; the failed one can be resumed."""
    agent = answering("Oslo.", OSError("the model is away"), "Rainy.", "Late.", store=store)
    await agent.run("Where?", thread="t")
    with pytest.raises(NodeFailedError):
        await agent.run("How is it?", thread="t", run_id="failed")
    assert texts((await agent.run("How is it now?", thread="t")).memory) == [
        "Where?",
        "Oslo.",
        "How is it now?",
        "Rainy.",
    ]
    assert texts((await agent.resume("failed")).memory) == ["Where?", "Oslo.", "How is it?", "Late."]
    assert [thread.runs for thread in await list_threads(store)] == [3]


async def test_a_first_run_that_failed_is_left_out_too(store):
    """And so are several in a row."""
    agent = answering(OSError("away"), OSError("away"), "Oslo.", store=store)
    for _ in range(2):
        with pytest.raises(NodeFailedError):
            await agent.run("Where?", thread="t")
    assert texts((await agent.run("Where am I?", thread="t")).memory) == ["Where am I?", "Oslo."]


async def test_a_run_that_waits_keeps_the_thread(store):
    """The next message is refused, with the run to answer; nothing is written. Then it continues."""
    asking = Strategy("asking", START >> llm_request(tools=False) >> ask_human("Send it?", str) >> END)
    agent = answering("A letter.", "Sent.", store=store, strategy=asking)
    await agent.run("Write.", thread="t", run_id="first")
    with pytest.raises(
        ThreadBusyError, match=r"run 'first' of thread 't' is waiting.*agent.resume\('first', answer=…\)"
    ) as caught:
        await agent.run("And?", thread="t")
    assert (caught.value.thread, caught.value.run_id, caught.value.status) == ("t", "first", "waiting")
    assert len(await list_runs(store)) == 1
    await agent.resume("first", answer="yes")
    memory = (await agent.run("And?", thread="t")).memory
    assert len(memory.steps) - len(memory.run_steps) == 3


async def test_two_at_once_do_not_part_a_thread():
    """One of two processes that continue a thread at the same time is refused."""
    store = MemoryStore()

    @node
    async def slow(ctx: Context, text: str) -> str:
        started.set()
        await go.wait()
        return text

    agents = [Agent(Strategy("slow", START >> slow >> END), store=store) for _ in range(2)]
    started, go = anyio.Event(), anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agents[0].run, "one")
        tasks.start_soon(lambda: agents[0].run("two", thread="t", run_id="two"))
        await started.wait()
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(ThreadBusyError, match="run 'two' of thread 't' is running"):
            await agents[1].run("three", thread="t")
        go.set()
    memory = (await agents[1].run("three", thread="t")).memory
    assert len(memory.steps) - len(memory.run_steps) == 2


class Between(MemoryStore):
    """A store in which something happens right before a run of a thread begins."""

    def __init__(self):
        super().__init__()
        self.between = []

    async def commit(self, *changes):
        begins = any(isinstance(change, Put) and change.key[2] == 3 for change in changes)
        if begins and self.between:
            await self.between.pop()()
        await super().commit(*changes)


@pytest.mark.parametrize(
    "happens", ["a whole run", "a run begins", "the last run is pruned", "the thread is forgotten"]
)
async def test_what_comes_between_is_continued(happens):
    """After the thread was read, another process continues it or removes from it: what is written is what was said."""
    store, held = Between(), []
    agent = Agent(chat, model=counting(), store=store)
    for text in ("one", "two"):
        last = await agent.run(text, thread="t")

    async def happen():
        other = Agent(chat, model=counting(), store=store)
        if happens == "a whole run":
            await other.run("between", thread="t")
        elif happens == "a run begins":
            held.append(other.start("between", thread="t"))  # else nobody has it, and its claim is over
            await held[0].step()
        elif happens == "the last run is pruned":
            await prune_runs(store, run_ids=[last.run_id])
        else:
            await forget_thread(store, "t")

    store.between.append(happen)
    if happens == "a run begins":
        with pytest.raises(ThreadBusyError):
            await agent.run("three", thread="t")
        return
    result = await agent.run("three", thread="t", run_id="three")
    said = {
        "a whole run": ["one", "two", "between", "three"], "the last run is pruned": ["one", "three"],
        "the thread is forgotten": ["three"],
    }[happens]  # fmt: skip
    assert texts(result.memory)[::2] == said
    other = Agent(chat, model=counting(), store=store)
    assert (await other.read("three")).memory.full_steps() == result.memory.full_steps()
    assert texts((await other.run("four", thread="t")).memory)[::2] == [*said, "four"]


async def test_a_removed_thread_is_not_remembered_under_the_ids_of_another():
    """A process that still has the transcript of runs that were removed uses what has their ids now; so do `steps=`."""
    store = MemoryStore()
    first, other = (Agent(chat, model=counting(), store=store) for _ in range(2))
    for number in range(2):
        result = await first.run("secret", thread="t", run_id=f"t-{number}")
    await forget_thread(store, "t")
    await anyio.sleep(0.002)  # a run that starts in another millisecond is another run
    for number in range(2):
        await other.run("hello", thread="t", run_id=f"t-{number}")
    assert "secret" not in texts((await first.run("and now?", thread="t")).memory)
    await first.run("again", steps=result.memory, run_id="again")
    assert texts((await other.read("again")).memory)[:1] == ["secret"]


async def test_a_process_that_dies_loses_nothing():
    """Killed after any commit of the second run, it is resumed, and the third run continues it; without, it is left out."""
    store = Watched()
    agent = Agent(chat, model=counting(), store=store)
    await agent.run("one", thread="t")
    begun = len(store.commits)
    whole = await agent.run("two", thread="t", run_id="two")
    for number in range(begun + 1, len(store.commits)):
        for resumed in (True, False):
            left = await cut(store.commits[:number])
            other = Agent(chat, model=counting(), store=left)
            if resumed:
                result = await other.resume("two")
                assert texts(result.memory) == texts(whole.memory)
            last = await other.run("three", thread="t")
            assert texts(last.memory)[:-2] == texts(whole.memory)[: 4 if resumed else 2]


# ---- by reference through `steps=`


async def test_steps_of_a_stored_run_are_a_reference(store):
    """As long as they are as the store has them, and the owner is the same; a run that was read counts, too."""
    agent = Agent(chat, model=counting(), store=store)
    result = await agent.run("one", run_id="one")
    for number in range(5):
        result = await agent.run("more", steps=result.memory, run_id=f"more {number}")
    read = (await agent.read("more 4")).memory
    last = await agent.run("more", steps=read, run_id="last")
    sizes = await measure_runs(store)
    assert {size.entries for size in sizes.values()} == {3}
    assert sizes["last"].bytes <= sizes["more 1"].bytes + 40
    assert texts(last.memory)[-2:] == ["more", "I was sent 13."]
    assert (
        await Agent(chat, model=counting(), store=store).read("last")
    ).memory.full_steps() == last.memory.full_steps()


@pytest.mark.parametrize("how", ["edited", "sliced", "removed", "other owner", "other store", "edited later"])
async def test_steps_that_the_store_does_not_have_are_written(how):
    """Then the run has all of them itself, and needs no other."""
    store = MemoryStore()
    agent = Agent(chat, model=counting(), store=store)
    steps = (await agent.run("one", run_id="one")).memory
    into = store
    if how == "edited":
        steps.steps[0].task = "uno"
    elif how == "sliced":
        steps = RunMemory(steps=steps.steps[:2])
    elif how == "other store":
        into = MemoryStore()
    run = Agent(chat, model=counting(), store=into).start(
        "two", steps=steps, run_id="two", owner="ada" if how == "other owner" else ""
    )
    if how == "removed":
        await prune_runs(store, run_ids=["one"])
    elif how == "edited later":
        run.memory.steps[0].task = "uno"
    result = await run.finish()
    read = await Agent(chat, model=counting(), store=into).read("two", owner="ada" if how == "other owner" else "")
    assert read.memory.full_steps() == result.memory.full_steps()
    heads = {head.run_id: head for head in await list_runs(into, owner="ada" if how == "other owner" else "")}
    assert heads["two"].previous == ""
    assert texts(result.memory)[0] == ("uno" if how.startswith("edited") else "one")


# ---- what can be done with stored runs


async def test_a_run_of_a_thread_is_one_run(store):
    """Its history, its states, its forks and its repetitions are its own; they begin where it began."""
    agent = answering("Oslo.", "Rainy.", "Sunny.", store=store)
    await agent.run("Where?", thread="t", run_id="first")
    whole = await agent.run("How is it?", thread="t", run_id="second")
    entries = await agent.history("second")
    assert [entry.kind for entry in entries] == ["started", "effect", "finished", "stopped"]
    assert entries[0].number == 1
    snapshot = await agent.state_at("second", entries[0].number)
    assert (snapshot.places, snapshot.turns) == ({"llm_request": "How is it?"}, 0)
    assert texts(snapshot.memory) == ["Where?", "Oslo.", "How is it?"]
    with pytest.raises(ValueError, match="5"):
        await agent.state_at("second", 5)
    forked = await agent.fork("second", before="llm_request", run_id="fork")
    assert texts(forked.memory) == ["Where?", "Oslo.", "How is it?", "Sunny."]
    again = await agent.rerun("second", new_id="again")
    assert texts(again.memory) == texts(whole.memory)
    difference = await agent.diff("second", "fork")
    assert (difference.common, len(difference.only_a)) == (1, 3)
    assert {head.run_id: (head.thread, head.origin is not None) for head in await list_runs(store)} == {
        "first": ("t", False), "second": ("t", False), "fork": ("", True), "again": ("", False),
    }  # fmt: skip


async def test_threads_are_listed(store):
    """The one that was continued last comes first; runs are listed by their thread."""
    agent = Agent(chat, model=counting(), store=store)
    assert await list_threads(store) == []
    for thread in ("a", "b", "a"):
        await agent.run(f"to {thread}", thread=thread)
        await anyio.sleep(0.002)  # each at a time of its own
    await agent.run("alone")
    threads = await list_threads(store)
    assert [(thread.name, thread.runs, thread.title, thread.last.status) for thread in threads] == [
        ("a", 2, "to a", "done"), ("b", 1, "to b", "done"),
    ]  # fmt: skip
    assert [head.title for head in await list_runs(store, thread="b")] == ["to b"]
    assert await list_threads(store, owner="ada") == []
    assert "to a" not in repr(threads)


@pytest.mark.parametrize("gone", [[0], [1], [0, 1], [2], [1, 2], [0, 1, 2], [3], [2, 3], [0, 3], [0, 1, 2, 3]])
async def test_what_is_pruned_from_a_thread_leaves_the_rest_whole(store, gone):
    """Earlier runs leave their transcript to the next; after the last one was removed, the thread continues before it."""
    agent = Agent(chat, model=counting(), store=store)
    results = [await agent.run(f"{number}", thread="t", run_id=f"r{number}") for number in range(4)]
    left = [number for number in range(4) if number not in gone]
    await prune_runs(store, run_ids=[f"r{number}" for number in gone])
    other = Agent(chat, model=counting(), store=store)
    for number in left:
        read = (await other.read(f"r{number}")).memory
        assert read.succinct_steps() == results[number].memory.succinct_steps()
    last = await other.run("next", thread="t", run_id="next")
    assert texts(last.memory)[::2] == [*map(str, range(left[-1] + 1 if left else 0)), "next"]
    assert (
        await Agent(chat, model=counting(), store=store).read("next")
    ).memory.full_steps() == last.memory.full_steps()


async def test_a_thread_whose_last_run_failed_survives_the_pruning_of_the_one_before():
    """The failed run has the transcript then, and the next run continues it."""
    store = MemoryStore()
    agent = answering("Oslo.", "Rainy.", OSError("away"), "Sunny.", store=store)
    await agent.run("Where?", thread="t", run_id="one")
    await agent.run("How is it?", thread="t", run_id="two")
    with pytest.raises(NodeFailedError):
        await agent.run("And now?", thread="t", run_id="failed")
    await prune_runs(store, run_ids=["one", "two"])
    result = await answering("Sunny.", store=store).run("And today?", thread="t", run_id="last")
    assert texts(result.memory) == ["Where?", "Oslo.", "How is it?", "Rainy.", "And today?", "Sunny."]
    assert (await answering(store=store).read("last")).memory.full_steps() == result.memory.full_steps()


async def test_the_order_of_a_thread_does_not_depend_on_clocks():
    """A run on a machine whose clock is behind is the last one all the same."""
    store = MemoryStore()
    agent = Agent(chat, model=counting(), store=store)
    for number, time in enumerate((3000, 2000, 1000)):
        with fixed_clock(time):
            await agent.run(f"{number}", thread="t", run_id=f"r{number}")
    [thread] = await list_threads(store)
    assert (thread.last.run_id, thread.title) == ("r2", "0")
    assert (await prune_runs(store, thread="t", keep=1)).runs == 2
    assert texts((await agent.run("next", thread="t")).memory)[::2] == ["0", "1", "2", "next"]


async def test_failed_runs_are_pruned_from_a_thread(store):
    """By their status, within the thread alone; what ended stays."""
    agent = answering("Oslo.", OSError("away"), OSError("away"), "Rainy.", store=store)
    await agent.run("Where?", thread="t")
    for thread in ("t", "u"):
        with pytest.raises(NodeFailedError):
            await agent.run("How?", thread=thread)
    assert (await prune_runs(store, thread="t", status=["failed"])).runs == 1
    assert [(thread.name, thread.runs) for thread in await list_threads(store)] == [("u", 1), ("t", 1)]
    assert texts((await agent.run("How is it?", thread="t")).memory)[:2] == ["Where?", "Oslo."]
    assert (await prune_runs(store, thread="t", keep=1)).runs == 1
    assert (await prune_runs(store, thread="t", older_than=timedelta(0))).runs == 1
    assert [thread.name for thread in await list_threads(store)] == ["u"]


async def test_a_thread_is_forgotten(store):
    """With all its runs and its name; others stay, and one that is executed is refused."""
    agent = Agent(chat, model=counting(), store=store)
    for thread in ("secret", "other"):
        for _ in range(3):
            await agent.run("Hush.", thread=thread)
    run = agent.start("Now.", thread="secret")
    await run.step()
    with pytest.raises(RunClaimedError):
        await forget_thread(store, "secret")
    await run.finish()
    assert (await forget_thread(store, "secret")).runs == 4
    keys = [item.key async for item in store.scan(("runs",))]
    assert not any("secret" in map(str, key) for key in keys)
    assert [thread.name for thread in await list_threads(store)] == ["other"]
    memory = (await agent.run("Again.", thread="secret")).memory
    assert len(memory.steps) == len(memory.run_steps)
    await forget_runs(store)
    assert [item async for item in store.scan(("runs",))] == []


async def test_a_thread_that_is_continued_while_it_is_forgotten_is_forgotten_whole():
    """The run that came between is removed with the others; while it is executed, nothing is."""

    class Meanwhile(MemoryStore):
        async def commit(self, *changes):
            if between and any(isinstance(change, Delete) for change in changes):
                await between.pop()()
            await super().commit(*changes)

    store, between, runs = Meanwhile(), [], []
    agent = Agent(chat, model=counting(), store=store)

    async def whole():
        await agent.run("secret", thread="t")

    async def begun():
        runs.append(agent.start("secret", thread="t"))
        await runs[0].step()

    await whole()
    between.append(whole)
    assert (await forget_thread(store, "t")).runs == 2
    assert [item async for item in store.scan(("runs",)) if item.key[2] != 2] == []
    await whole()
    between.append(begun)
    with pytest.raises(RunClaimedError):
        await forget_thread(store, "t")
    await runs[0].finish()
    assert [thread.runs for thread in await list_threads(store)] == [2]


async def test_a_later_export_of_a_thread_continues_it():
    """Imported after an earlier one, the thread continues after the later run; one that continued elsewhere stays there."""
    store, into = MemoryStore(), MemoryStore()
    agent, other = (Agent(chat, model=counting(), store=each) for each in (store, into))
    for number in range(4):
        await agent.run(f"{number}", thread="t", run_id=f"r{number}")
        if number % 2:
            await import_runs(into, [record async for record in export_runs(store)])
    assert texts((await other.run("here", thread="t", run_id="here")).memory)[::2] == ["0", "1", "2", "3", "here"]
    await agent.run("there", thread="t", run_id="there")
    await import_runs(into, [record async for record in export_runs(store)])
    assert texts((await other.run("next", thread="t")).memory)[::2] == ["0", "1", "2", "3", "here", "next"]


async def test_threads_are_exported_and_imported(store):
    """Without loss, and the thread continues there; also if only its last run is exported."""
    agent = Agent(chat, model=counting(), store=store)
    for number in range(3):
        last = await agent.run(f"{number}", thread="t", run_id=f"r{number}")
    for ids in (None, ["r2"]):
        records = [json.loads(json.dumps(record)) async for record in export_runs(store, run_ids=ids)]
        into = MemoryStore()
        assert await import_runs(into, records) == (3 if ids is None else 1)
        assert await import_runs(into, records) == 0
        other = Agent(chat, model=counting(), store=into)
        assert (await other.read("r2")).memory.succinct_steps() == last.memory.succinct_steps()
        assert texts((await other.run("next", thread="t")).memory)[::2] == ["0", "1", "2", "next"]


async def test_images_of_a_thread_stay_whole(store):
    """Payloads are those of the run that stored them, also after that was pruned."""
    agent = Agent(chat, model=counting(), store=store)
    image = Image(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40)
    await agent.run("Look.", thread="t", run_id="one", images=[image])
    await agent.run("Well?", thread="t", run_id="two")
    for run_id in ("one", "nothing"):
        if run_id == "one":
            await prune_runs(store, run_ids=["one"])
        other = Agent(chat, model=counting(), store=store)
        steps = (await other.read("two")).memory.steps
        assert isinstance(steps[0], TaskStep)
        assert steps[0].task_images == (image,)


async def test_a_forgotten_fact_is_in_no_run_of_a_thread(tmp_path):
    """Runs that continued the one that loaded it show that it was forgotten."""
    provider = FileMemoryProvider(tmp_path)
    city = Concept("city", "where the user lives")
    store = MemoryStore()
    user, here = Subject("user", "the user"), Scope.agent("me")
    knowing = Strategy("knowing", START >> load_all_facts(subjects=[user]) >> llm_request() >> END)

    def agent():
        made = Agent(knowing, model=counting(), store=store)
        made.install(AgentMemory, provider=provider, agent_name="me")
        return made

    await provider.save(SingleFact(city, "Oslo-1187"), user, here)
    live = agent()
    await live.run("one", thread="t")
    result = await live.run("two", thread="t", run_id="two")
    assert "Oslo-1187" in result.memory.to_text(detailed=True)
    await provider.forget(concept=city)
    read = await agent().read("two")
    assert "Oslo-1187" not in read.memory.to_text(detailed=True)
    assert not [item.key async for item in store.scan(("runs",)) if b"Oslo-1187" in item.value]
    for each in (live, agent()):  # also the process that loaded it
        sent = (await each.run("three", thread="t")).memory.to_messages()
        assert not any("Oslo-1187" in message.text for message in sent)


# ---- what is refused


async def test_what_cannot_be_a_thread_is_refused():
    """At once, with what to write."""
    agent = Agent(chat, model=counting(), store=MemoryStore())
    with pytest.raises(ValueError, match="thread='' is not a name; give one, such as 'alice-7'"):
        await agent.run("hello", thread="")
    with pytest.raises(ValueError, match="leave out steps="):
        await agent.run("hello", thread="t", steps=RunMemory())
    with pytest.raises(ValueError, match="half a surrogate pair"):
        await agent.run("hello", thread="\ud800")
    for name in ("", None):
        with pytest.raises(TypeError, match="a thread is named by a text"):
            await forget_thread(MemoryStore(), name)
    with pytest.raises(ValueError, match="keep=-1"):
        await prune_runs(MemoryStore(), thread="t", keep=-1)
    with pytest.raises(RunError, match="give the agent one: Agent"):
        await Agent(chat, model=counting()).run("hello", thread="t")


async def test_an_id_that_exists_is_refused_in_a_thread():
    """As without one; the thread stays as it was."""
    agent = Agent(chat, model=counting(), store=MemoryStore())
    await agent.run("one", thread="t", run_id="one")
    with pytest.raises(RunExistsError):
        await agent.run("two", thread="t", run_id="one")
    run = agent.start("two", thread="t", run_id="two")
    await run.step()
    with pytest.raises(RunExistsError):  # a message that a client sent twice, and not another one
        await agent.run("two", thread="t", run_id="two")
    memory = (await run.finish()).memory
    assert len(memory.steps) - len(memory.run_steps) == 3


class Counting(MemoryStore):
    """Counts how often it is read."""

    def __init__(self):
        super().__init__()
        self.reads = 0

    async def get(self, key):
        self.reads += 1
        return await super().get(key)

    async def get_many(self, keys):
        before = self.reads
        found = await super().get_many(keys)  # which gets one after the other
        self.reads = before + 1
        return found

    def scan(self, prefix, **options):
        self.reads += 1
        return super().scan(prefix, **options)


@pytest.mark.parametrize("how", ["thread", "steps"])
async def test_a_long_log_is_read_as_often_as_a_short_one(how):
    """However many runs are in it, the store is asked for all of them together."""
    store, counts, steps = Counting(), [], None
    agent = Agent(chat, model=counting(), store=store)
    for number in range(12):
        store.reads = 0
        given = {"thread": "t"} if how == "thread" else {"steps": steps}
        steps = (await agent.run(str(number), **given)).memory
        counts.append(store.reads)
    assert len(steps.steps) == 36
    assert len(set(counts[2:])) == 1


@pytest.mark.parametrize("sealed", [False, True])
async def test_an_id_may_be_used_again_while_its_log_goes_on(sealed):
    """The run that began a log was removed; another one of its id begins a log beside it, and neither is in the other."""
    store = EncryptedStore(MemoryStore(), new_key()) if sealed else MemoryStore()
    agent = Agent(chat, model=counting(), store=store)
    for name in ("one", "two", "three"):
        await agent.run(name, thread="t", run_id=name)
    await prune_runs(store, run_ids=["one"])
    await agent.run("uno", run_id="one")
    await agent.run("due", steps=(await agent.read("one")).memory, run_id="later")
    thread = await agent.run("four", thread="t", run_id="four")
    assert texts(thread.memory)[::2] == ["one", "two", "three", "four"]
    assert texts((await agent.read("later")).memory)[::2] == ["uno", "due"]
    await forget_runs(store, run_ids=["one"])
    assert texts((await agent.read("four")).memory) == texts(thread.memory)
    assert texts((await agent.read("later")).memory)[::2] == ["[forgotten]", "due"]
    assert await verify_runs(store) == 4


async def test_a_forgotten_call_keeps_nothing_of_its_server():
    """What a server attached to a call may repeat its arguments."""

    @tool
    async def greet(name: str) -> str:
        """Greet."""
        return f"Hello, {name}."

    store = MemoryStore()
    attached = ProviderData("openai", {"arguments": '{ "name": "topsecret" }'})
    call = ToolCall("greet", {"name": "topsecret"}, "c1", provider=attached)
    replies = [ModelResponse(Message("assistant", (call,))), "Done.", "And?"]
    agent = Agent(single_run(), model=ScriptedModel(replies), tools=[greet], store=store)
    first = await agent.run("one", run_id="one")
    await agent.run("two", steps=first.memory, run_id="two")
    assert any([b"topsecret" in item.value async for item in store.scan(())])
    await forget_runs(store, run_ids=["one"])
    assert not any([b"topsecret" in item.value async for item in store.scan(())])


@pytest.mark.parametrize("what", ["header", "entries"])
async def test_what_a_thread_lost_in_its_middle_is_reported(what):
    """The run is named that is missing, whichever run is read or continued."""
    store = MemoryStore()
    agent = Agent(chat, model=counting(), store=store)
    for name in ("one", "two", "three"):
        await agent.run(name, thread="t", run_id=name)
    head = next(head for head in await list_runs(store) if head.run_id == "two")
    prefix = header_key("", "two") if what == "header" else rows_key(head)
    await store.commit(DeleteAll(prefix))
    with pytest.raises(DamagedStoreError, match="run 'two'"):
        await agent.run("four", thread="t")
    with pytest.raises(DamagedStoreError, match="run 'two'"):
        await agent.read("three")
    with pytest.raises(DamagedStoreError, match="run 'two'"):
        await verify_runs(store)


@pytest.mark.parametrize("what", ["thread", "entry"])
async def test_a_damaged_thread_is_reported(what):
    """And nothing is begun."""
    store = MemoryStore()
    await Agent(chat, model=counting(), store=store).run("one", thread="t", run_id="one")
    key = ("runs", "", 3, "t") if what == "thread" else ("runs", "", 1, "one", "one", 1)
    item = await store.get(key)
    await store.commit(Put(key, item.value[:-2] + b"x}"))
    with pytest.raises(DamagedStoreError):
        await Agent(chat, model=counting(), store=store).run("two", thread="t", run_id="two")
    assert [head.run_id for head in await list_runs(store)] == ["one"]


async def test_steps_of_runs_that_were_forgotten_since_are_copied():
    """The log of the run shows `[forgotten]` then, and the new run what it was given."""
    store = MemoryStore()
    agent = Agent(chat, model=counting(), store=store)
    first = await agent.run("one", run_id="first")
    second = await agent.run("two", steps=first.memory, run_id="second")
    await forget_runs(store, run_ids=["first"])
    third = await agent.run("three", steps=second.memory, run_id="third")
    assert texts(third.memory)[0] == "one"
    assert {head.run_id: head.previous for head in await list_runs(store)} == {"second": "", "third": ""}
    assert texts((await agent.read("second")).memory)[0] == "[forgotten]"
