"""The claim of a run is renewed while it is executed, and an execution that lost its run ends at once."""

from __future__ import annotations

import logging
import os
import signal
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import anyio
import pytest
from msgspec import structs

from graphagent import END, START, Agent, Context, Strategy, _clock, node, parallel, tool
from graphagent.errors import NodeFailedError, RunClaimedError, RunNotFoundError, StoreError
from graphagent.history import forget_runs
from graphagent.llm import ToolCall, ToolCalls
from graphagent.log._claim import LEASE, Claim, Token
from graphagent.log._entries import Started
from graphagent.log._header import RunHeader as Head
from graphagent.log._header import header_key as head_key
from graphagent.log._log import Log
from graphagent.nodes import ask_human
from graphagent.run import _session, list_runs
from graphagent.store import MemoryStore, Put
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.run.family import Family
from tests.run.test_claims import (
    OUTPUT,
    Gate,
    Process,
    agent_at,
    at_once,
    elsewhere,
    forks,
    heads_in,
    holding,
    items,
    items_in,
    resumes_from_elsewhere,
)
from tests.run.test_leaked_cancellations import leak

pytestmark = pytest.mark.every_loop


class Beats:
    """Decides when claims are renewed, in place of the time that passes."""

    def __init__(self):
        self._send, self._receive = anyio.create_memory_object_stream(10)
        self.waits = []
        self.waiting = anyio.Event()

    async def sleep(self, seconds):
        self.waits.append(seconds)
        self.waiting.set()
        await self._receive.receive()

    async def beat(self):
        """Have the claims renewed, and return when that is over and the next pause has begun."""
        with anyio.fail_after(600):
            await self.waiting.wait()
            self.waiting = anyio.Event()
            self._send.send_nowait(None)
            await self.waiting.wait()

    def last(self):
        """Have the claims renewed for the last time."""
        self._send.send_nowait(None)

    def close(self):
        self._send.close(), self._receive.close()


@pytest.fixture
def beats(monkeypatch):
    beats = Beats()
    monkeypatch.setattr(_session, "sleep", beats.sleep)
    yield beats
    beats.close()


class Failing(MemoryStore):
    """A store that can be made to fail."""

    fails = False

    async def commit(self, *changes):
        if self.fails:
            raise self.error("the disk is full")
        await super().commit(*changes)


@contextmanager
def much_later():
    """Have it be two leases later for all tasks within; `fixed_clock` holds for one alone."""
    now, later = _clock.now, _clock.now() + 2 * LEASE
    _clock.now = lambda: later
    try:
        yield
    finally:
        _clock.now = now


async def test_a_call_longer_than_the_lease_keeps_the_claim(beats):
    """Another machine finds the run taken, though no entry was written for longer than the lease; the run ends as usual."""
    store, gate = MemoryStore(), Gate()
    run = Agent(holding(gate), store=store).start("x", run_id="r")
    async with anyio.create_task_group() as group:
        group.start_soon(run.finish)
        await gate.reached.wait()
        (before,) = await list_runs(store)
        with much_later():
            await beats.beat()
            (after,) = await list_runs(store)
            assert after.claim.until == _clock.now() + LEASE
        assert after.claim.token == before.claim.token
        with elsewhere(2 * LEASE), pytest.raises(RunClaimedError, match="process"):
            await Agent(holding(at_once), store=store).resume("r")
        gate.open.set()
    assert run.output == OUTPUT
    assert set(beats.waits) == {LEASE / 3 / 1000}


async def test_a_renewal_that_a_store_breaks_off_is_made_again(beats):
    """A cancellation that leaks out of a store ends neither the run nor the renewals."""

    class Leaking(Failing):
        async def commit(self, *changes):
            if self.fails:
                self.fails = False
                await leak()
            await super().commit(*changes)

    store, gate = Leaking(), Gate()
    run = Agent(holding(gate), store=store).start("x", run_id="r")
    async with anyio.create_task_group() as group:
        group.start_soon(run.finish)
        await gate.reached.wait()
        with much_later():
            store.fails = True
            await beats.beat()
            await beats.beat()
            (head,) = await list_runs(store)
            assert head.claim.until == _clock.now() + LEASE
        gate.open.set()
    assert run.output == OUTPUT


async def test_the_runs_of_sub_agents_are_renewed_with_the_run_around_them(beats):
    """They are parts of it, so its claim is that of the whole tree."""
    store, gate = MemoryStore(), Gate()
    boss = calling(gate, store)
    async with anyio.create_task_group() as group:
        group.start_soon(boss.run, "x")
        await gate.reached.wait()
        with much_later():
            await beats.beat()
            heads = await list_runs(store)
            assert [head.claim and head.claim.until for head in heads] == [None, _clock.now() + LEASE]
            assert [head.status for head in heads] == ["running", "running"]
        gate.open.set()
    assert len(beats.waits) == 2
    assert [head.claim for head in await list_runs(store)] == [None, None]


def calling(gate, store):
    """An agent that calls another one, which waits at a gate."""

    @tool
    async def look() -> str:
        """Look."""
        await gate()
        return "seen"

    def says(tool, arguments, end):
        return ScriptedModel([ToolCalls([ToolCall(tool, arguments, "c")]), end])

    helper = Agent(single_run(), model=says("look", {}, "helped"), tools=[look], name="helper", description="Helps.")
    return Agent(single_run(), model=says("helper", {"task": "t"}, "done"), tools=[helper], store=store)


@pytest.mark.parametrize("shape", ["node", "parallel", "inside"])
async def test_an_execution_that_lost_its_run_is_cancelled(beats, shape):
    """At its next await, and not only when it writes: nothing more is executed or written, and the other ends right."""
    store, mine, other = MemoryStore(), Gate(), Gate()
    cancelled = []

    def strategy(gate):
        @node
        async def held(ctx: Context, text: str) -> str:
            try:
                await gate()
            except anyio.get_cancelled_exc_class():
                cancelled.append(text)
                raise
            return text

        @node
        async def after(ctx: Context, values: object) -> str:
            return "after"

        inside = Strategy("t", START >> held >> END)
        middle = {"node": held, "parallel": parallel(held, held.named("too")), "inside": inside}[shape]
        return Strategy("s", START >> middle >> after >> END)

    run = Agent(strategy(mine), store=store).start("x", run_id="r")
    results = []

    async def take_over():
        with elsewhere(2 * LEASE):
            results.append(await Agent(strategy(other), store=store).resume("r"))

    async def lose():
        with (
            pytest.raises(RunClaimedError, match="another process, which continued it") as caught,
            anyio.fail_after(600),
        ):
            await run.finish()
        assert caught.value.run_id == "r"
        lost.set()

    lost = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(lose)
        await mine.reached.wait()
        group.start_soon(take_over)
        await other.reached.wait()
        before = await items(store)
        beats.last(), beats.last()  # one is for the other, which has its claim
        with anyio.fail_after(600):
            await lost.wait()
        assert len(cancelled) == (2 if shape == "parallel" else 1)
        assert run.status == "failed"
        assert [item for item in await items(store) if item[0][2] != 0] == [item for item in before if item[0][2] != 0]
        other.open.set()
    assert results[0].output == "after"


async def test_of_a_lost_run_the_parts_are_neither_renewed_nor_written(beats):
    """The next holder finds the runs of its sub-agents as they were, and free when their lease is over."""
    store, gate = MemoryStore(), Gate()
    run = calling(gate, store).start("x", run_id="r")

    async def lose():
        with pytest.raises(RunClaimedError) as caught, anyio.fail_after(600):
            await run.finish()
        assert caught.value.run_id == "r"

    async with anyio.create_task_group() as group:
        group.start_soon(lose)
        await gate.reached.wait()
        item = await store.get(head_key("", "r"))
        head = Head.unpack(item.value, "r")
        taken = structs.replace(head, claim=replace(head.claim, token="of another", host="elsewhere 123"))
        await store.commit(Put(item.key, taken.pack(), expected=item.version))
        before = await items(store)
        beats.last()
    assert await items(store) == before
    (child,) = run.result.children
    assert (run.status, child.status) == ("failed", "failed")


async def test_a_run_that_was_removed_ends_too(beats):
    """`forget_runs` ends a long call in it, which says why."""
    store, gate = MemoryStore(), Gate()
    run = Agent(holding(gate), store=store).start("x", run_id="r")
    async with anyio.create_task_group() as group:

        async def lose():
            with pytest.raises(RunNotFoundError), anyio.fail_after(600):
                await run.finish()

        group.start_soon(lose)
        await gate.reached.wait()
        await forget_runs(store)
        beats.last()
    assert await items(store) == []


@pytest.mark.parametrize("error", [StoreError, ConnectionError])
async def test_a_renewal_that_fails_is_tried_again(beats, caplog, error):
    """A store that is out of order for a moment ends no call, whatever it raises; the log says which run, and nothing of what is in it."""
    store, gate = Failing(), Gate()
    store.error = error
    run = Agent(holding(gate), store=store).start("secret", run_id="r")
    async with anyio.create_task_group() as group:
        group.start_soon(run.finish)
        await gate.reached.wait()
        store.fails = True
        with caplog.at_level(logging.WARNING, "graphagent"):
            await beats.beat()
        store.fails = False
        with much_later():
            await beats.beat()
            (head,) = await list_runs(store)
            assert head.claim.until == _clock.now() + LEASE
        gate.open.set()
    assert [record.message for record in caplog.records] == [
        f"the claim of run 'r' could not be renewed: {error.__name__}"
    ]
    assert run.output == "secret, begun, held, ended"


@pytest.mark.parametrize(
    "anyio_backend", ["trio"]
)  # asyncio raises it nowhere but in the task that it was started with
async def test_ctrl_c_during_a_renewal_is_raised_as_itself(beats, monkeypatch):
    """It is not wrapped in a group, whichever task it meets, and the run is let go."""
    store, gate = MemoryStore(), Gate()
    run = Agent(holding(gate), store=store).start("x", run_id="r")

    async def interrupted(log):
        raise KeyboardInterrupt

    async def finish():
        with pytest.raises(KeyboardInterrupt):
            await run.finish()

    async with anyio.create_task_group() as group:
        group.start_soon(finish)
        await gate.reached.wait()
        monkeypatch.setattr(Log, "renew", interrupted)
        beats.last()
    (head,) = await list_runs(store)
    assert (head.status, head.claim) == ("failed", None)


class Held(MemoryStore):
    """A store whose next commit can be held up."""

    gate = None

    async def commit(self, *changes):
        gate, self.gate = self.gate, None
        if gate is not None:
            await gate()
        await super().commit(*changes)


async def test_a_run_that_is_let_go_during_a_renewal_stays_let_go():
    """A sub-agent's run may end while the heartbeat of the run around it writes: its last head is the one that counts."""
    store, token = Held(), Token()
    log = Log(store, Head(run_id="r", claim=Claim.of(token)))
    log.append(Started(first="", value=log.keep("x")))
    await log.commit(header=True)
    gate = store.gate = Gate()
    async with anyio.create_task_group() as group:
        group.start_soon(log.renew)
        await gate.reached.wait()
        log.header = structs.replace(log.header, written="done", claim=None)
        group.start_soon(partial(log.commit, header=True))
        group.start_soon(log.renew)
        gate.open.set()
    (head,) = await list_runs(store)
    assert (head.status, head.claim) == ("done", None)


async def test_renewals_at_every_moment_disturb_nothing(monkeypatch):
    """A tree of runs comes to the same end, and lets all its claims go."""
    monkeypatch.setattr(_session, "sleep", lambda seconds: anyio.lowlevel.checkpoint())
    whole = await Family(store=MemoryStore()).finish()
    store = MemoryStore()
    result = await Family(store=store).finish()
    assert (result.output, result.usage) == (whole.output, whole.usage)
    heads = await list_runs(store)
    assert [(head.status, head.claim) for head in heads] == [("done", None)] * 5


async def test_what_ends_a_run_comes_out_as_before(beats):
    """Errors as themselves, questions as a result, cancellation as cancellation."""

    @node
    async def breaks(ctx: Context, text: str) -> str:
        raise ValueError(text)

    store = MemoryStore()
    with pytest.raises(NodeFailedError) as caught:
        await Agent(Strategy("s", START >> breaks >> END), store=store).run("x")
    assert type(caught.value.__cause__) is ValueError
    result = await Agent(Strategy("s", START >> ask_human("Go on?", bool) >> END), store=store).run("x")
    assert result.status == "waiting"
    run = Agent(holding(anyio.sleep_forever), store=store).start("x")
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(beats.waiting.wait)
            group.start_soon(run.finish)
            while run.status != "running":
                await anyio.lowlevel.checkpoint()
            scope.cancel()
    assert (scope.cancelled_caught, run.status) == (True, "cancelled")


async def test_without_a_store_nothing_is_renewed(beats):
    """No task is begun for a run that nobody else could have."""
    await Agent(holding(at_once)).run("x")
    assert beats.waits == []


# ---- processes


async def starts_a_long_call(here, folder):
    """Start run `r`, and be held up in a call that lasts two leases already; renew the claim when told to."""
    pauses = 0

    async def sleep(seconds):
        nonlocal pauses
        pauses += 1
        if pauses > 1:
            here.say("renewed")
        await anyio.wait_readable(here.read)
        os.read(here.read, 1)

    async def call():
        with much_later():
            here.say("holds")
            await anyio.sleep(60)  # where nothing ends it, it ends by itself

    _session.sleep = sleep
    await here.tell(agent_at(folder, call).run("x", run_id="r"))


@forks
def test_a_process_in_a_long_call_has_its_run_until_it_hangs(tmp_path):
    """Another machine is refused after two leases; it takes over when the process was stopped for longer, which then ends its call."""
    process = Process(starts_a_long_call, tmp_path)
    assert process.says() == ["holds"]
    process.go_on()
    assert process.says() == ["renewed"]
    early = Process(resumes_from_elsewhere, tmp_path, 2 * LEASE + 1000)
    assert early.says()[0] == "RunClaimedError"
    assert early.end() == 0
    os.kill(process.pid, signal.SIGSTOP)
    other = Process(resumes_from_elsewhere, tmp_path, 4 * LEASE)
    assert other.says() == ["holds"]
    before = items_in(tmp_path)
    process.go_on()
    os.kill(process.pid, signal.SIGCONT)
    kind, said, run_id = process.says()
    assert (kind, run_id, process.end()) == ("RunClaimedError", "r", 0)
    assert "another process, which continued it" in said
    assert items_in(tmp_path) == before
    other.go_on()
    assert other.says() == ["done", OUTPUT]
    assert other.end() == 0
    assert heads_in(tmp_path)[0].status == "done"
