"""Journals that were damaged, torn off in the middle of a write or kept on a full disk, and what stands in whole ones."""

from __future__ import annotations

import random
import re
import resource
import threading
import zlib
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import msgpack

from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent.errors import DamagedStoreError, JournalError, NodeFailedError, SerializationError, StoreError
from graphagent.history import read_run, verify_runs
from graphagent.llm import ToolCall, ToolCalls
from graphagent.log._header import RunHeader, header_key, rows_key
from graphagent.nodes import ask_human, execute_tools, llm_request
from graphagent.run import list_runs
from graphagent.store import Delete, MemoryStore, Put, SqliteStore
from graphagent.testing import ScriptedModel, fixed_clock
from tests.run.lives import Undisturbed, Watched, cut, entries_of, recorded_in
from tests.run.test_bad_edits import Link
from tests.thorough import some

LONG = "A very long letter. " * 1000
"""So long that it stands apart, as a payload."""
RIGHT = "got 1, got 2, got 3"
PARTS = [("plain", 1), ("work", 2), ("model", 3), ("each", [("typed", 2)], 2, ("keep", 1), False), ("human", 1)]
FRAME = 24 + 4096
"""Bytes that a page takes in the log of a file, behind the 32 of the log's head."""


@tool
async def look(number: int) -> str:
    """Look something up."""
    return f"got {number}"


@node
async def draft(ctx: Context, topic: str) -> str:
    return f"{topic} {LONG}"


def agent_over(store):
    """Give an agent whose model asks for three things, one after the other, and says what it was told."""

    def reply(request):
        told = [message.text for message in request.messages if message.role == "tool"]
        if len(told) == 3:
            return ", ".join(told)
        return ToolCalls([ToolCall("look", {"number": len(told) + 1}, f"c{len(told)}")], f"I look for {len(told) + 1}.")

    ask, act = llm_request(), execute_tools()
    strategy = Strategy("s", START >> draft >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)
    return Agent(strategy, model=ScriptedModel([reply] * 9), tools=[look], store=store, system_prompt="Be right.")


async def interrupted():
    """Give what a store has of a run whose process died in the middle, and of a run beside it that is done."""
    store = Watched()
    assert (await agent_over(store).run("the party", run_id="r")).output == RIGHT
    left = await cut(store.commits[:-3])
    assert (await agent_over(left).run("the weather", run_id="other")).output == RIGHT
    assert (await agent_over(await copy_of(await rows(left))).resume("r")).output == RIGHT
    return await rows(left)


async def rows(store):
    """Everything that a store has of runs."""
    return {item.key: item.value async for item in store.scan(("runs",))}


async def copy_of(kept):
    store = MemoryStore()
    await store.commit(*(Put(key, value) for key, value in kept.items()))
    return store


ROWS_OF_R = rows_key(RunHeader(run_id="r"))


def numbers_in(kept):
    """Give the numbers of the first entries of the rows of the run."""
    return sorted(key[-1] for key in kept if key[:-1] == ROWS_OF_R)


def payloads_in(kept):
    """Give the keys of the payloads of the run."""
    return [key for key in kept if key[:-1] == (*ROWS_OF_R, 0)]


def cuts(value):
    """Give the beginnings of a value, of every length."""
    return [value[:size] for size in range(len(value))]


def flips(value):
    """Give a value with each single bit of it flipped."""
    return [flipped(value, place, bit) for place in range(len(value)) for bit in range(8)]


def flipped(value, place, bit):
    return b"%b%c%b" % (value[:place], value[place] ^ 1 << bit, value[place + 1 :])


async def refused(kept, match):
    """See that every way to a damaged run is refused by name, and that nothing was written."""
    store = await copy_of(kept)
    for way in (agent_over(store).resume, agent_over(store).read, lambda run_id: read_run(store, run_id)):
        with pytest.raises(DamagedStoreError, match=match):
            await way("r")
    assert await rows(store) == kept


# ---- entries


@pytest.mark.parametrize("where", ["first", "middle", "last"])
async def test_a_damaged_entry_is_refused_by_name(where):
    """Cut at any byte, or with any bit flipped, it is never read as something else, nor as a shorter run."""
    kept = await interrupted()
    numbers = numbers_in(kept)
    number = {"first": numbers[0], "middle": numbers[len(numbers) // 2], "last": numbers[-1]}[where]
    key = (*ROWS_OF_R, number)
    for value in [*some(cuts(kept[key]), 60), *some(flips(kept[key]), 60, thorough=1500)]:
        store = await copy_of({**kept, key: value})
        with pytest.raises(DamagedStoreError, match=f"^entry {number} of run 'r' is damaged") as raised:
            await agent_over(store).resume("r")
        assert "party" not in str(raised.value)
    for value in (b"", kept[key] + b" ", kept[key][:-1]):
        await refused({**kept, key: value}, f"^entry {number} of run 'r' is damaged")


async def test_a_missing_entry_is_refused():
    """Whichever it is. Only what came behind the last writing of the head may be missing, as if it had never been committed."""
    kept = await interrupted()
    numbers = numbers_in(kept)
    for number in numbers[:-1]:
        less = {key: value for key, value in kept.items() if key != (*ROWS_OF_R, number)}
        await refused(less, f"^entry {number} of run 'r' is damaged: it is missing")
    less = {key: value for key, value in kept.items() if key != (*ROWS_OF_R, numbers[-1])}
    assert (await agent_over(await copy_of(less)).resume("r")).output == RIGHT
    done = await copy_of(kept)
    await agent_over(done).resume("r")
    kept = await rows(done)
    last = numbers_in(kept)[-1]
    less = {key: value for key, value in kept.items() if key != (*ROWS_OF_R, last)}
    await refused(less, f"^entry {last} of run 'r' is damaged: it is missing")


async def test_a_damaged_head_is_refused_by_name():
    """Cut at any byte, or with any bit flipped; the other runs of the store are listed and read all the same."""
    kept = await interrupted()
    key = header_key("", "r")
    for value in some([*cuts(kept[key]), *flips(kept[key])], 60, thorough=400):
        store = await copy_of({**kept, key: value})
        with pytest.raises(DamagedStoreError, match=r"^the header of run 'r' is damaged"):
            await agent_over(store).resume("r")
        [damaged] = [head for head in await list_runs(store) if head.run_id == "r"]
        assert (damaged.status, damaged.damaged.partition(":")[0]) == ("damaged", "the header of run 'r' is damaged")
    await refused({**kept, key: kept[key][:-1]}, r"^the header of run 'r' is damaged")
    store = await copy_of({**kept, key: b""})
    assert (await agent_over(store).read("other")).output == RIGHT
    assert [(head.run_id, head.status) for head in await list_runs(store)] == [("other", "done"), ("r", "damaged")]


async def test_a_damaged_payload_is_refused_by_name():
    """Cut, changed or missing: who needs it is told, with the entry that names it; nothing goes on with another text."""
    kept = await interrupted()
    [key] = payloads_in(kept)
    damages = [
        *some(cuts(kept[key]), 12, thorough=40),
        *some([flipped(kept[key], n, n % 8) for n in range(len(kept[key]))], 12, thorough=40),
    ]
    for value in [*damages, None]:
        left = {**kept, key: value} if value is not None else {k: v for k, v in kept.items() if k != key}
        store = await copy_of(left)
        with pytest.raises(
            DamagedStoreError,
            match=r"^entry \d+ of run 'r' is damaged: (a payload is missing|checksum mismatch in a payload)",
        ):
            await agent_over(store).resume("r")
        assert await rows(store) == left
        assert (await agent_over(store).read("other")).output == RIGHT


async def test_what_looks_like_a_payload_is_none():
    """A node may give an object that has the form of a reference to a payload, which no journal has."""
    looks = {"b": "0123456789abcdef01234567", "of": [{"b": "0123456789abcdef01234560"}]}

    @node
    async def make(ctx: Context, topic: str) -> dict[str, Any]:
        return looks

    agent = Agent(Strategy("s", START >> make >> ask_human("Right?", bool) >> END), store=MemoryStore())
    await agent.run("x", run_id="r")
    assert (await read_run(agent.store, "r")).entries[1].value == looks
    assert await verify_runs(agent.store) == 1
    assert (await agent.resume("r", answer=True)).output is True


# ---- files


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A run that nothing stopped, the bytes of its database, and those of its log as they came to be."""

    async def live():
        path = tmp_path_factory.mktemp("whole") / "runs.db"
        async with SqliteStore(path) as store:
            with fixed_clock(step_ms=0):
                whole = await Undisturbed.of(PARTS, store)
            data, log = bytes_of(path)
        return whole, data, log, bytes_of(path)[0]

    return anyio.run(live)


def bytes_of(path):
    """Give the bytes of a database and of its log."""
    log = Path(f"{path}-wal")
    return path.read_bytes(), log.read_bytes() if log.exists() else b""


def copied(folder, data, log):
    """Make a database of these bytes."""
    folder.mkdir()
    path = folder / "runs.db"
    path.write_bytes(data)
    if log:
        Path(f"{path}-wal").write_bytes(log)
    return path


async def resumed_from(whole, folder, data, log):
    """Let a new program live on a copy of a store. Its tables and its end must be those of the undisturbed run."""
    path = copied(folder, data, log)
    async with SqliteStore(path, synchronous="NORMAL") as store:
        entries = await entries_of(store)
        whole.life.world.begin(recorded_in(entries))
        with fixed_clock(step_ms=0):
            said, result = await whole.life.live(store)
        whole.compare(said, result, entries)
        assert result.usage == whole.usage
        await store.verify()
    return len(entries)


def test_a_torn_log_loses_only_what_was_being_committed(undisturbed, tmp_path):
    """A copy of the file whose log is cut anywhere goes on from the last whole commit, and ends the same."""
    whole, data, log, _ = undisturbed
    assert len(log) > 32 + 20 * FRAME
    chance = random.Random(3)
    cuts = {32 + FRAME * number for number in range((len(log) - 32) // FRAME + 1)}
    cuts |= {chance.randrange(len(log)) for _ in range(15)}
    ended = []
    for number, size in enumerate(sorted(cuts)):
        ended.append(anyio.run(resumed_from, whole, tmp_path / str(number), data, log[:size]))
    assert ended == sorted(ended)
    assert ended[0] < 2
    assert len(set(ended)) > 8


def test_a_log_with_a_torn_page_is_read_until_there(undisturbed, tmp_path):
    """A page of the log that was half written ends what is read of it; what comes behind does not count."""
    whole, data, log, _ = undisturbed
    chance = random.Random(4)
    for number in range(10):
        torn = chance.randrange(32, len(log) - 512)
        anyio.run(resumed_from, whole, tmp_path / str(number), data, log[:torn] + bytes(512) + log[torn + 512 :])


def test_a_file_that_is_cut_is_refused_or_whole(undisturbed, tmp_path):
    """Cut at any page, it is refused as damaged, unless nothing of it is missing; no run is found in it that is shorter."""
    whole, _, _, data = undisturbed
    refused = 0
    for number in range(len(data) // 4096):
        try:
            anyio.run(resumed_from, whole, tmp_path / str(number), data[: 4096 * number], b"")
        except DamagedStoreError:
            refused += 1
    assert refused == len(data) // 4096


@contextmanager
def no_larger_than(size):
    """Let no file of this process grow beyond so many bytes, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


async def filled(whole, folder, size, *, here):
    """Have the disk be full at some size of the log, and go on when there is room: in this program, or in a new one."""
    folder.mkdir()
    whole.life.world.begin()
    async with SqliteStore(folder / "runs.db") as store:
        await store.commit(along=lambda connection: None)  # makes the file
        with fixed_clock(step_ms=0):
            run = whole.life.agent(store).start("the task", run_id="r")
            with no_larger_than(size), pytest.raises(JournalError, match=r"run 'r' cannot be kept: .*disk") as raised:
                await whole.life.go_on(run)
            assert isinstance(raised.value.__cause__, StoreError)
            assert not isinstance(raised.value.__cause__, DamagedStoreError)
            if here:
                whole.compare(*await whole.life.go_on(run))
                return
        data, log = bytes_of(folder / "runs.db")
        del run, raised
    await resumed_from(whole, folder / "again", data, log)


@pytest.mark.parametrize("here", [True, False])
def test_a_run_goes_on_when_there_is_room_again(undisturbed, tmp_path, here):
    """Whenever the disk is full the run breaks off with what the store says, loses nothing, and goes on from there."""
    whole, _, log, _ = undisturbed
    for number in some(range(0, (len(log) - 32) // FRAME, 2), 6, salt=str(here)):
        anyio.run(lambda number=number: filled(whole, tmp_path / str(number), 32 + FRAME * number + 7, here=here))


# ---- everything once


def talk_over(store, turns):
    """Give an agent that talks with a tool for so many turns; whatever is said holds a word of its own."""

    @tool
    async def tell(number: int, why: str) -> str:
        """Tell something."""
        return f"told-{number:03} {LONG if number == 3 else ''}"

    def reply(request):
        number = sum(message.role == "tool" for message in request.messages)
        if number == turns:
            return "the-end"
        calls = [ToolCall("tell", {"number": number, "why": f"because-{number:03}"}, f"call-{number:03}")]
        return ToolCalls(calls, f"said-{number:03}")

    @node
    async def ask_for(ctx: Context, topic: str) -> str:
        return "please-now"

    @node
    async def shout(ctx: Context, answer: str) -> str:
        return "aloud"

    ask, act = llm_request(), execute_tools()
    strategy = Strategy("s", START >> ask_for >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> shout >> END)
    model = ScriptedModel([reply] * 2 * (turns + 1))
    return Agent(
        strategy, model=model, tools=[tell], store=store, system_prompt="the-rules are the rules", max_turns=None,
        max_nodes=500,
    )  # fmt: skip


MARKS = re.compile(rb"the-task|please-now|the-rules|the-end|aloud|(?:told|because|said)-\d{3}")


async def marks_in(store):
    return Counter(mark for value in (await rows(store)).values() for mark in MARKS.findall(value))


async def test_whatever_is_said_stands_in_the_store_where_it_came_up(tmp_path):
    """The rules once; each message, argument and result in its step and where a node passed it on, however many turns follow.

    Of the task the first characters stand in the header too. A long text is a payload, once. A fork has a copy.
    """
    turns, task = 20, f"{'A task. ' * 12} the-task"
    async with SqliteStore(tmp_path / "runs.db") as store:
        agent = talk_over(store, turns)
        assert (await agent.run(task, run_id="r")).output == "aloud"
        marks = await marks_in(store)
        assert (marks[b"the-rules"], marks[b"told-003"], len(marks)) == (1, 1, 5 + 3 * turns)
        assert {mark: count for mark, count in marks.items() if count > 2} == {b"the-end": 3}
        assert len(payloads_in(await rows(store))) == 1
        again = await agent.fork("r", after="execute_tools", run_id="f")
        assert again.output == "aloud"
        assert await marks_in(store) == marks + marks
        assert (await agent.read("f")).memory.steps[:-2] == (await agent.read("r")).memory.steps[:-2]


async def test_what_a_person_says_stands_in_the_store_where_it_came_up(tmp_path):
    """Each answer and each reply of a chat, though every turn is a life of its own, and however many turns follow."""
    turns = 6
    ask, reply = ask_human("What next?", str), llm_request()
    on = ask.when(lambda said: said != "stop")
    strategy = Strategy("chat", START >> reply >> ask, on >> reply, ask.otherwise() >> END)
    replies = [f"said-{number:03}" for number in range(turns)]
    async with SqliteStore(tmp_path / "runs.db") as store:
        agent = Agent(strategy, model=ScriptedModel(replies), store=store, system_prompt="the-rules")
        result = await agent.run(f"{'A task. ' * 12} the-task", run_id="r")
        for number in range(1, turns):
            result = await agent.resume("r", answer=f"told-{number:03}")
        assert result.status == "waiting"
        marks = await marks_in(store)
        assert len(marks) == 2 + turns + turns - 1
        assert marks.pop(b"the-rules") == 1
        # In its step, as the message and as the value of the turn; passed on; and what the question is about.
        assert {count for mark, count in marks.items() if mark.startswith(b"said")} == {4}
        assert max(marks.values()) == 4


async def test_what_code_made_of_a_text_is_read_without_that_code():
    """A message that a `.map` made stands in the journal as it was said, and reads the same without the agent, and in a new one."""

    @node
    async def count(ctx: Context, topic: str) -> int:
        return len(topic)

    ask = llm_request()
    strategy = Strategy("s", START >> count, count.map(lambda number: f"told-{number:03}") >> ask >> END)
    agent = Agent(strategy, model=ScriptedModel(["said-001"]), store=MemoryStore())
    await agent.run("the-task", run_id="r")
    for memory in ((await read_run(agent.store, "r")).memory, (await agent.read("r")).memory):
        assert [message.text for message in memory.to_messages()] == ["the-task", "told-008", "said-001"]


# ---- what cannot be kept


async def test_a_declared_type_that_cannot_be_kept_is_named_when_the_agent_is_made():
    """With the node, before anything is executed; without a store the agent is made."""

    @node
    async def connect(ctx: Context, topic: str) -> Link:
        return Link()

    strategy = Strategy("s", START >> connect >> END)
    with pytest.raises(SerializationError, match=r"node 'connect': .*Link cannot be kept"):
        Agent(strategy, store=MemoryStore())
    assert isinstance((await Agent(strategy).run("x")).output, Link)


@pytest.mark.parametrize("what", [Link, lambda: {"deep": [threading.Lock()]}, lambda: (n for n in range(3))])
async def test_a_value_that_cannot_be_kept_is_named_at_the_step(what):
    """With the node and the type; nothing of it is written, and the run goes on from there with code that gives another."""
    sound, before = [], []

    @node
    async def first(ctx: Context, topic: str) -> str:
        before.append(topic)
        return topic

    @node
    async def give(ctx: Context, topic: str) -> object:
        return f"{topic}!" if sound else what()

    agent = Agent(Strategy("s", START >> first >> give >> END), store=MemoryStore())
    with pytest.raises(NodeFailedError, match=r"node 'give'.* type (Link|lock|generator) cannot be kept") as raised:
        await agent.run("x", run_id="r")
    assert isinstance(raised.value.__cause__, SerializationError)
    assert [entry.kind for entry in (await read_run(agent.store, "r")).entries] == [
        "started", "finished", "failed", "stopped",
    ]  # fmt: skip
    assert [head.status for head in await list_runs(agent.store)] == ["failed"]
    sound.append(True)
    assert (await agent.resume("r")).output == "x!"
    assert before == ["x"]


# ---- what an entry is


KINDS = {
    "started", "finished", "retried", "failed", "branch failed", "branches started", "joined", "effect", "effect started",
    "results", "asked", "resumed", "stopped",
}  # fmt: skip
"""What kinds of entries the example below has."""
CODE = re.compile(rb"graphagent|tests\.|__\w+__|builtins|pydantic|<locals>|\.py\b|py/object|!!python")


def _has_pickle(data):
    """Whether bytes in decoded data begin as a pickle does. In MessagePack itself, these two bytes are an empty map and a number."""
    if isinstance(data, dict):
        return any(map(_has_pickle, data.values()))
    if isinstance(data, list):
        return any(map(_has_pickle, data))
    return isinstance(data, bytes) and re.match(rb"\x80[\x02-\x05]", data) is not None


def _everything():
    built = [
        *PARTS, ("typed", 2), ("tap", 1), ("flaky", 2), ("error", 1), ("note", 1), ("model", 5), ("caught", [("plain", 0)]),
        ("each", [("long", 1)], 3, ("keep", None), True), ("race", [("model", 1)], "keep"), ("sub", [("human", 1)], True),
    ]  # fmt: skip
    return [*built, *(("model", number) for number in range(6))]


def _without_tracebacks(data):
    """Return decoded data without the frames of tools' exceptions, which name code for people and are never looked up."""
    if isinstance(data, dict):
        return {key: _without_tracebacks(value) for key, value in data.items() if key != "traceback"}
    return list(map(_without_tracebacks, data)) if isinstance(data, list) else data


async def test_entries_say_what_they_are_and_name_no_code():
    """MessagePack with a checksum, a time and kinds; the first entry is the start; no class path, no module, no pickle."""
    with fixed_clock(step_ms=0):
        whole = await Undisturbed.of(_everything())
    kinds, numbers = set(), []
    for changes in whole.commits:
        for change in changes:
            if not isinstance(change, Put):
                continue
            is_payload = len(change.key) > 6  # as it was given
            value = change.value[4:] if is_payload else msgpack.decode(change.value[4:])
            assert not _has_pickle(value)
            assert CODE.findall(value if is_payload else msgpack.encode(_without_tracebacks(value))) == []
            assert zlib.crc32(change.value[4:]).to_bytes(4, "big") == change.value[:4]
            if change.key[:-1] == ROWS_OF_R:
                time, ran, entries = msgpack.decode(change.value[4:])
                assert (type(time), type(ran)) == (int, int)
                numbers += range(change.key[-1], change.key[-1] + len(entries))
                kinds.update(entry["type"] for entry in entries)
                assert (entries[0]["type"] == "started") == (change.key[-1] == 1)
            elif change.key == header_key("", "r"):
                assert msgpack.decode(change.value[4:])["run_id"] == "r"
    assert numbers == [*range(1, len(numbers) + 1)]
    assert kinds == KINDS


@pytest.mark.parametrize("lost", [1, 3])
async def test_nothing_is_written_behind_what_a_store_has_lost(lost):
    """Where an older copy takes the place of a store while a run is executed, the run stops, and is resumed from what is there."""
    store, done = MemoryStore(), []

    @node
    async def work(ctx: Context, task: str) -> str:
        for number in range(4):

            async def act(number=number):
                done.append(number)

            await ctx.once(f"step {number}", act)
            if number == lost and len(done) == number + 1:
                rows = [item.key async for item in store.scan(rows_key(RunHeader(run_id="r")))]
                await store.commit(Delete(rows[-1]))
        return "done"

    agent = Agent(Strategy("loses", START >> work >> END), store=store)
    with pytest.raises(JournalError, match=r"was rolled back.*agent\.resume\('r'\)"):
        await agent.run("go", run_id="r")
    first = list(done)
    assert (await agent.resume("r")).output == "done"
    assert done == first + list(range(lost, 4))
    assert (await agent.read("r")).output == "done"
