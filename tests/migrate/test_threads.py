"""Conversations of other libraries as threads: what the next message sees of them, and what importing twice does."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from graphagent import END, START, Agent, Strategy
from graphagent.errors import RunEndedError, SerializationError, StoreError, ThreadExistsError
from graphagent.history import (
    export_runs,
    forget_thread,
    import_runs,
    import_thread,
    list_threads,
    prune_runs,
    read_run,
    verify_runs,
)
from graphagent.llm import Message, ToolCall
from graphagent.memory import ActionStep, Concept, FoundFacts, RunMemory, Subject, TaskStep, Timing
from graphagent.migrate import langchain, openai_agents, pydantic_ai, smolagents
from graphagent.nodes import ask_human, compress_history, llm_request
from graphagent.run import list_runs
from graphagent.store import EncryptedStore, MemoryStore, SqliteStore, new_key
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.run.lives import Mortal

DATA = Path(__file__).parent / "data"
chat = Strategy("chat", START >> llm_request() >> END)


def conversations():
    """Return what each library made of the same conversation."""
    read = lambda name: json.loads((DATA / f"{name}.json").read_text("utf-8"))
    return {
        "langchain": langchain.load_messages(read("langchain")["messages_to_dict"]),
        "pydantic-ai": pydantic_ai.load_messages(read("pydantic_ai")["conversation"]),
        "openai-agents": openai_agents.load_items(read("openai_agents")["items"]),
        "smolagents": smolagents.load_steps((DATA / "smolagents_tools.json").read_text("utf-8")),
    }


@pytest.mark.parametrize("library", ["langchain", "pydantic-ai", "openai-agents", "smolagents"])
@pytest.mark.parametrize("sealed", [False, True])
async def test_the_next_message_sees_all_of_an_imported_conversation(library, sealed, tmp_path):
    """Also after a restart, in a sealed store, on each event loop; and nothing is imported a second time."""
    memory, key = conversations()[library], new_key()

    def opened():
        store = SqliteStore(tmp_path / "runs.db")
        return EncryptedStore(store, key=key) if sealed else store

    store = opened()
    header = await import_thread(store, "ada", memory, owner="me")
    assert (header.status, header.thread, header.tokens, header.turns, header.claim) == ("ended", "ada", 0, 0, None)
    await store.aclose()
    store = opened()
    agent = Agent(single_run(), model=ScriptedModel(["You are welcome."]), store=store, system_prompt="Be kind.")
    result = await agent.run("Thank you.", thread="ada", owner="me")
    said = [message for message in memory.to_messages() if message.role != "system"]
    assert list(agent.model.requests[0].messages[1:-1]) == said
    assert agent.model.requests[0].messages[0] == Message.system("Be kind.")
    assert result.memory.steps[: len(memory.steps)] == memory.steps
    again = await import_thread(store, "ada", memory, owner="me")
    assert again.run_id == header.run_id
    assert [(thread.name, thread.runs) for thread in await list_threads(store, owner="me")] == [("ada", 2)]
    assert await list_threads(store) == []
    await store.aclose()


def talk(*texts, start="2026-03-01T12:00:00+00:00"):
    """Return a conversation in which the user says texts, one each day."""
    first = round(datetime.fromisoformat(start).timestamp() * 1000)
    steps = []
    for number, text in enumerate(texts):
        at = first + number * 86_400_000
        turn = ActionStep(
            step_number=number + 1, model_output_message=Message.assistant("Noted."), timing=Timing(at, at + 1)
        )
        steps += [TaskStep(text, at=at), turn]
    return RunMemory("Rules.", steps)


async def test_a_thread_that_has_begun_takes_no_other_conversation():
    """Neither after an import nor after a message, whether that is over or waits; nothing is written."""
    store = MemoryStore()
    first = await import_thread(store, "ada", talk("a"))
    asking = Agent(Strategy("asking", START >> ask_human(str, bool) >> END), store=store)
    await asking.run("Go", thread="bo", run_id="waiting")
    before = [item async for item in store.scan(())]
    for thread, last in (("ada", first.run_id), ("bo", "waiting")):
        with pytest.raises(ThreadExistsError, match=f"thread '{thread}' has begun already, its last run is '{last}'"):
            await import_thread(store, thread, talk("a", "b"))
    assert [item async for item in store.scan(())] == before
    assert (await import_thread(store, "ada-2", talk("a"))).run_id != first.run_id
    await forget_thread(store, "ada")
    assert (await import_thread(store, "ada", talk("a", "b"))).run_id != first.run_id


async def test_one_of_two_that_import_at_once_is_first():
    """The same conversation is imported once, and of two others one is refused."""
    store = Meeting()
    headers, refused = [], []

    async def bring(memory):
        try:
            headers.append(await import_thread(store, "ada", memory))
        except ThreadExistsError as error:
            refused.append(error.thread)

    async with anyio.create_task_group() as group:
        for texts in (["a"], ["a"], ["b"]):
            group.start_soon(bring, talk(*texts))
    assert len({header.run_id for header in headers}) == 1
    assert len(headers) + len(refused) == 3
    assert len(await list_runs(store)) == 1


class Meeting(MemoryStore):
    """A store before whose first commits all who write have read."""

    def __init__(self):
        super().__init__()
        self.came = 0

    async def commit(self, *changes):
        self.came += 1
        while self.came < 3:
            await anyio.lowlevel.checkpoint()
        await super().commit(*changes)


@pytest.mark.parametrize("how", ["refused", "unheard"])
async def test_a_store_that_fails_leaves_all_or_nothing(how):
    """And the next attempt writes it, or finds that it is there."""
    store = Mortal(0 if how == "refused" else 1, how)
    with pytest.raises(StoreError):
        await import_thread(store, "ada", talk("a"))
    store.mend()
    assert len(await list_runs(store)) == (how == "unheard")
    await import_thread(store, "ada", talk("a"))
    assert [run.thread for run in await list_runs(store)] == ["ada"]
    await verify_runs(store)


async def test_an_imported_run_is_a_run_that_has_ended():
    """With a title and the time of what was said first; it is read, listed, exported and removed as any other, and never resumed."""
    store = MemoryStore()
    header = await import_thread(store, "ada", talk("Where is the key?", "And now?"))
    assert (header.title, header.started) == ("Where is the key?", 1_772_366_400_000)
    agent = Agent(chat, model=ScriptedModel(["Here."]), store=store)
    run = await agent.read(header.run_id)
    assert (run.status, run.memory.steps, run.memory.run_steps) == (
        "ended",
        talk("Where is the key?", "And now?").steps,
        run.memory.steps,
    )
    assert [entry.kind for entry in await agent.history(header.run_id)] == ["started", "ended"]
    assert (await read_run(store, header.run_id)).head == header
    with pytest.raises(RunEndedError, match="it was imported"):
        await agent.resume(header.run_id)
    result = await agent.run("Thanks.", thread="ada")
    assert (result.usage.total_tokens, len(result.memory.run_steps)) == (
        result.memory.last_turn.token_usage.total_tokens,
        3,
    )
    other = MemoryStore()
    await import_runs(other, [json.loads(json.dumps(line)) async for line in export_runs(store)])
    assert [thread.runs for thread in await list_threads(other)] == [2]
    await prune_runs(store, run_ids=[header.run_id])
    assert [message.text for message in (await agent.read(result.run_id)).memory.to_messages()] == [
        "Where is the key?", "Noted.", "And now?", "Noted.", "Thanks.", "Here.",
    ]  # fmt: skip
    with pytest.raises(ThreadExistsError):
        await import_thread(store, "ada", talk("Where is the key?", "And now?"))


async def test_odd_values_of_a_conversation_are_kept():
    """Integers of any size, half of a surrogate pair, a call whose result never came, and nothing at all."""
    store = MemoryStore()
    call = ToolCall("look", {"n": 10**40, "text": "\ud83d"}, "c")
    steps = [TaskStep("\ud83d"), ActionStep(model_output_message=Message.assistant("", [call]))]
    await import_thread(store, "odd", RunMemory("", steps))
    await import_thread(store, "empty", RunMemory())
    model = ScriptedModel(["a", "b"])
    agent = Agent(chat, model=model, store=store)
    result = await agent.run("And?", thread="odd")
    assert result.memory.steps[:2] == steps
    assert [message.text for message in model.requests[0].messages[1:]] == ["", "This call was not executed.", "And?"]
    assert len((await agent.run("And?", thread="empty")).memory.steps) == 3


@pytest.mark.parametrize(
    ("thread", "memory", "kind", "said"),
    [
        ("", RunMemory(), ValueError, "thread='' is not a name"),
        (5, RunMemory(), TypeError, "thread= is a name, such as 'alice-7', not an int"),
        ("a", [TaskStep("a")], TypeError, "memory= is a RunMemory, such as load_messages"),
        ("a", RunMemory("", [TaskStep(object())]), SerializationError, "step 0"),
    ],
)
async def test_what_cannot_be_imported_is_refused(thread, memory, kind, said):
    """Before anything is written."""
    store = MemoryStore()
    with pytest.raises(kind, match=said):
        await import_thread(store, thread, memory)
    assert await list_runs(store) == []


async def test_a_model_that_looks_for_facts_sees_the_days_of_an_imported_conversation():
    """What was said on another day than the last has its day beside it, so that "tomorrow" is the day after that one."""
    store = MemoryStore()
    said = talk("I fly to Oslo tomorrow.", "It is raining.", "Thanks.")
    said.steps[2].at = None  # as in a run, of which the turn has a time
    await import_thread(store, "ada", said)
    looks = compress_history(
        FoundFacts(Concept("flight", "when the user flies"), subject=Subject("user", "the user"), keep=0)
    )
    model = ScriptedModel([{"values": ["2026-03-02"]}, "Fine."])
    agent = Agent(Strategy("looks", START >> looks >> llm_request() >> END), model=model, store=store)
    await agent.run("And?", thread="ada")
    rules, said = (message.text for message in model.requests[0].messages)
    assert "What has a day beside it was said on that day, and not today." in rules
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert [(line.get("day"), line["text"]) for line in lines if line["speaker"] == "user"] == [
        ("Sunday, 1 March 2026 (2026-03-01)", "I fly to Oslo tomorrow."),
        ("Monday, 2 March 2026 (2026-03-02)", "It is raining."),
        ("Tuesday, 3 March 2026 (2026-03-03)", "Thanks."),
        (None, "And?"),
    ]
