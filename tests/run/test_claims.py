"""One process at a time: who has a run, when it is free, and what becomes of one that has lost it.

Where it says process, it is a real one, with its own store over the same file; it is killed and stopped by signals.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import time
import warnings
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from msgspec import structs

from graphagent import END, START, Agent, Context, Strategy, _clock, each, node, parallel
from graphagent.errors import (
    JournalError,
    NodeFailedError,
    RunClaimedError,
    RunExistsError,
    RunNotFoundError,
    StoreError,
)
from graphagent.history import choose_runs, read_run, verify_runs
from graphagent.llm import Message
from graphagent.log import _claim, _log
from graphagent.log._claim import LEASE, Claim, Token
from graphagent.log._header import RunHeader as Head
from graphagent.log._header import header_key as head_key
from graphagent.memory import MessageStep
from graphagent.nodes import ask_human
from graphagent.run import list_runs
from graphagent.store import MemoryStore, Put, SqliteStore
from graphagent.testing import fixed_clock

pytestmark = pytest.mark.every_loop

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
looks = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="processes cannot be looked at here")


@node
async def begin(ctx: Context, text: str) -> str:
    await ctx.add(MessageStep(Message.user(text)))
    return f"{text}, begun"


@node
async def end(ctx: Context, text: str) -> str:
    return f"{text}, ended"


def holding(hold):
    """Give a strategy that is held up in its middle by an async function."""

    @node
    async def held(ctx: Context, text: str) -> str:
        await hold()
        return f"{text}, held"

    return Strategy("holding", START >> begin >> held >> end >> END)


async def at_once():
    pass


class Gate:
    """Holds a run up in this process until it is opened."""

    def __init__(self):
        self.reached, self.open = anyio.Event(), anyio.Event()

    async def __call__(self):
        self.reached.set()
        await self.open.wait()


def forked():
    """Fork, though a thread of a pool may not have ended yet: the child uses none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


class Process:
    """A process that executes an async function, is told to go on, and says what comes of it."""

    def __init__(self, main, folder, *given):
        read, self._write = os.pipe()
        self._read, write = os.pipe()
        self.pid = forked()
        if self.pid:
            os.close(read), os.close(write)
            return
        code = 1
        try:
            os.close(self._write), os.close(self._read)
            anyio.run(main, Inside(read, write), folder, *given)
            code = 0
        except BaseException as error:
            os.write(write, f"{json.dumps(['broke', repr(error)])}\n".encode())
        finally:
            os._exit(code)

    def says(self):
        """Wait for what it says next."""
        ready, _, _ = select.select([self._read], [], [], 600)
        assert ready, "the process says nothing"
        line = b""
        while not line.endswith(b"\n"):
            got = os.read(self._read, 1)
            assert got, f"the process ended: {line!r}"
            line += got
        return json.loads(line)

    def go_on(self):
        """Have it go on from where it waits."""
        os.write(self._write, b"\n")

    def end(self):
        """Wait until it has ended; give how."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self._read), os.close(self._write)
        return os.waitstatus_to_exitcode(status)

    def kill(self):
        """Kill it, and wait until it is gone."""
        os.kill(self.pid, signal.SIGKILL)
        assert self.end() == -signal.SIGKILL


class Inside:
    """What a process has of the one that began it."""

    def __init__(self, read, write):
        self.read, self._write = read, write

    def say(self, *what):
        os.write(self._write, f"{json.dumps(what)}\n".encode())

    def wait(self):
        """Wait, with the whole process, until it may go on."""
        assert os.read(self.read, 1)

    async def hold(self):
        """Hold the run up."""
        self.say("holds")
        await anyio.wait_readable(self.read)
        os.read(self.read, 1)

    async def tell(self, going):
        """Say what a run comes to."""
        try:
            result = await going
        except (RunClaimedError, RunExistsError) as error:
            self.say(type(error).__name__, str(error), error.run_id)
        else:
            self.say(result.status, result.output if result.done else "")


def agent_at(folder, hold):
    return Agent(holding(hold), store=SqliteStore(folder / "runs.db"))


async def starts(here, folder):
    """Start run `r`, and be held up."""
    await here.tell(agent_at(folder, here.hold).run("x", run_id="r"))


async def resumes(here, folder):
    """Resume run `r`, and be held up."""
    await here.tell(agent_at(folder, here.hold).resume("r"))


async def resumes_when_told(here, folder):
    agent = agent_at(folder, here.hold)
    here.say("ready")
    here.wait()
    await here.tell(agent.resume("r"))


async def starts_when_told(here, folder):
    agent = agent_at(folder, here.hold)
    here.say("ready")
    here.wait()
    await here.tell(agent.run("x", run_id="r"))


async def resumes_at_once(here, folder):
    await here.tell(agent_at(folder, at_once).resume("r"))


async def resumes_from_elsewhere(here, folder, later):
    """Resume run `r` on what seems another machine, and so many milliseconds later."""
    with elsewhere(later):
        await here.tell(agent_at(folder, here.hold).resume("r"))


@contextmanager
def elsewhere(later=0):
    """Have it look like another machine within, where it is so many milliseconds later."""
    now, machine = time.time_ns() // 1_000_000 + later, _claim._machine
    _claim._machine = lambda: ("elsewhere 123", "another boot")
    try:
        with fixed_clock(now, 0):
            yield
    finally:
        _claim._machine = machine


def started(folder):
    """Give a process that has started run `r`, and is held up in it."""
    process = Process(starts, folder)
    assert process.says() == ["holds"]
    return process


def heads_in(folder):
    async def look():
        async with SqliteStore(folder / "runs.db") as store:
            return await list_runs(store)

    return anyio.run(look)


def items_in(folder):
    async def look():
        async with SqliteStore(folder / "runs.db") as store:
            return await items(store)

    return anyio.run(look)


async def items(store):
    """Give everything that a store has."""
    return [(item.key, item.version, item.value) async for item in store.scan(("runs",))]


OUTPUT = "x, begun, held, ended"


# ---- who has a run


async def test_a_run_that_goes_on_is_refused_to_another_task():
    """The error names the run and who has it, nothing is written, and the run ends as it would have."""
    store, gate = MemoryStore(), Gate()
    run = Agent(holding(gate), store=store).start("x", run_id="r")
    async with anyio.create_task_group() as group:
        group.start_soon(run.finish)
        await gate.reached.wait()
        before = await items(store)
        for _ in range(2):
            with pytest.raises(RunClaimedError, match=r"run 'r' is being executed by another task") as caught:
                await Agent(holding(at_once), store=store).resume("r")
        assert (caught.value.run_id, caught.value.holder) == ("r", "another task of this process")
        assert await items(store) == before
        gate.open.set()
    assert run.output == OUTPUT


async def test_a_run_between_two_steps_is_refused_too():
    """Whoever steps through a run has it until it is let go."""
    store = MemoryStore()
    run = Agent(holding(at_once), store=store).start("x", run_id="r")
    assert await run.step() is not None
    with pytest.raises(RunClaimedError):
        await Agent(holding(at_once), store=store).resume("r")
    assert (await run.finish()).output == OUTPUT


@forks
def test_a_run_that_goes_on_is_refused_to_another_process(tmp_path):
    """The error names the process and its machine; the run is not touched and ends there."""
    holder = started(tmp_path)
    before = items_in(tmp_path)
    other = Process(resumes_at_once, tmp_path)
    kind, said, run_id = other.says()
    assert other.end() == 0
    assert (kind, run_id) == ("RunClaimedError", "r")
    assert f"run 'r' is being executed by process {holder.pid} on '{socket.gethostname()}'" in said
    assert items_in(tmp_path) == before
    assert heads_in(tmp_path)[0].running
    holder.go_on()
    assert holder.says() == ["done", OUTPUT]
    assert holder.end() == 0
    assert heads_in(tmp_path)[0].claim is None


# ---- when it is free


@forks
@looks
def test_what_a_killed_process_had_is_free_at_once(tmp_path):
    """One after the other is killed, and the next goes on without waiting, even before the dead one was reaped."""
    process = started(tmp_path)
    for _ in range(4):
        os.kill(process.pid, signal.SIGKILL)
        while _claim._alive(process.pid):
            time.sleep(0.001)
        assert heads_in(tmp_path)[0].status == "interrupted"
        following = Process(resumes, tmp_path)
        assert following.says() == ["holds"]
        assert process.end() == -signal.SIGKILL
        process = following
    process.go_on()
    assert process.says() == ["done", OUTPUT]
    assert process.end() == 0


async def interrupted(store, claim):
    """Leave a run in a store as a process left it that had this claim."""
    run = Agent(holding(at_once), store=store).start("x", run_id="r")
    assert await run.step() is not None
    item = await store.get(head_key("", "r"))
    head = Head.unpack(item.value, "r")
    await store.commit(Put(item.key, structs.replace(head, claim=claim).pack(), expected=item.version))


async def is_free(store):
    """Tell whether a run can be resumed; where not, nothing is written."""
    before = await items(store)
    result = None
    with suppress(RunClaimedError):
        result = await Agent(holding(at_once), store=store).resume("r")
    if result is None:
        assert await items(store) == before
        return False
    assert result.output == OUTPUT
    return True


@pytest.fixture(scope="module")
def stranger():
    """The claim of a process that lives."""
    if not hasattr(os, "fork"):
        pytest.skip("there is no fork here")
    pid = forked()
    if not pid:
        signal.pause()
    yield replace(Claim.of(Token()), pid=pid, started=_claim._started(pid) or 0)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


async def test_what_a_living_process_has_is_taken(stranger):
    """However long ago it was heard of, and whatever the clock says."""
    for when in (0, stranger.until - LEASE, stranger.until + 10 * LEASE):
        store = MemoryStore()
        await interrupted(store, stranger)
        with fixed_clock(when, 0):
            assert not await is_free(store)


@looks
@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda claim: replace(claim, started=claim.started + 1), id="the number was given anew"),
        pytest.param(lambda claim: replace(claim, pid=os.getpid()), id="to the one that looks"),
        pytest.param(lambda claim: replace(claim, pid=1), id="to one of another user"),
        pytest.param(lambda claim: replace(claim, pid=2**22 + 1), id="there is no such process"),
        pytest.param(lambda claim: replace(claim, boot="another"), id="the machine was started anew"),
        pytest.param(lambda claim: Claim.of(Token()), id="a task of this process that is over"),
    ],
)
@pytest.mark.parametrize("when", [0, None, 2**41])
async def test_what_a_process_had_that_is_gone_is_free(stranger, other, when):
    """Numbers of processes come again, so their start and the boot of the machine count; what the clock says does not."""
    store = MemoryStore()
    await interrupted(store, other(stranger))
    if when is None:
        assert await is_free(store)
        return
    with fixed_clock(when, 0):
        assert await is_free(store)


async def test_a_run_whose_process_died_has_one_status():
    """The same in the list, read with its agent and without, in the result, and as what a list is filtered by."""
    store = MemoryStore()
    await interrupted(store, Claim.of(Token()))
    (head,), run = await list_runs(store), await Agent(holding(at_once), store=store).read("r")
    stored = (await read_run(store, "r")).head
    assert [head.status, run.status, run.result.status, stored.status] == ["interrupted"] * 4
    assert choose_runs([head], status={"interrupted"}) == [head]
    assert choose_runs([head], status={"running"}) == []


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda claim: replace(claim, host="elsewhere 5ec0"), id="another name"),
        pytest.param(lambda claim: replace(claim, host=f"{claim.host.partition(' ')[0]} 5ec0"), id="of the same name"),
    ],
)
async def test_what_another_machine_has_is_free_at_the_end_of_its_lease(stranger, other):
    """Nobody can look there. A clock that is put back frees nothing."""
    store, claim = MemoryStore(), other(stranger)
    await interrupted(store, claim)
    for when in (claim.until - LEASE, claim.until - 1, claim.until - 100 * LEASE, 0):
        with fixed_clock(when, 0):
            assert not await is_free(store)
    with fixed_clock(claim.until, 0):
        assert await is_free(store)


async def test_a_lease_is_renewed_while_the_run_goes_on():
    """Behind each entry that comes late enough, so another machine finds it taken until some minutes after the last."""
    store = MemoryStore()
    run = Agent(stepping(6), store=store).start("x", run_id="r")
    began = _clock.now()
    for number in range(6):
        with fixed_clock(began + number * LEASE * 2 // 3, 0):
            assert await run.step() is not None
        with elsewhere((number + 1) * LEASE * 2 // 3 - 1000), pytest.raises(RunClaimedError, match="process"):
            await Agent(stepping(6), store=store).resume("r")
    with elsewhere(7 * LEASE):
        assert (await Agent(stepping(6), store=store).resume("r")).done


async def test_a_lease_is_renewed_by_a_clock_that_was_put_back(monkeypatch):
    """How long ago it was renewed is measured too, so the claim does not end with a clock that stands in the past."""
    store, passed = MemoryStore(), [1000.0]
    monkeypatch.setattr(_log, "time", SimpleNamespace(monotonic=lambda: passed[0]))
    run = Agent(stepping(3), store=store).start("x", run_id="r")
    assert await run.step() is not None
    before = Head.unpack((await store.get(head_key("", "r"))).value, "r")
    passed[0] += LEASE / 1000 / 2
    with fixed_clock(before.claim.until - 3 * LEASE, 0):
        assert await run.step() is not None
        after = Head.unpack((await store.get(head_key("", "r"))).value, "r")
        assert after.claim.until == _clock.now() + LEASE
    assert after.claim.token == before.claim.token


def stepping(count):
    """Give a strategy of so many nodes that add a step each."""

    @node
    async def note(ctx: Context, text: str) -> str:
        await ctx.add(MessageStep(Message.user(text)))
        return text

    nodes = [note.named(f"note{number}") for number in range(count)]
    path = START >> nodes[0]
    for following in nodes[1:]:
        path = path >> following
    return Strategy("stepping", path >> END)


@pytest.mark.parametrize("callbacks", [[], [lambda step, run: None]], ids=["", "with callbacks"])
async def test_a_run_object_that_is_gone_has_no_run(callbacks):
    """Someone stepped through it and lost interest: the next in this process has it."""
    store = MemoryStore()
    agent = Agent(holding(at_once), store=store, step_callbacks=callbacks)
    run = agent.start("x", run_id="r")
    assert await run.step() is not None
    with pytest.raises(RunClaimedError):
        await Agent(holding(at_once), store=store).resume("r")
    del run, agent
    gc.collect()
    assert await is_free(store)


async def test_a_run_that_was_released_is_free_and_the_object_can_take_it_again():
    """`aclose`, or the end of `async with`, lets it go; whoever had it finds that someone else went on with it."""
    store = MemoryStore()
    with fixed_clock(step_ms=0):  # what two of them write at the same moment looks the same
        await _released_and_taken_again(store)
    assert await is_free(store)


async def _released_and_taken_again(store):
    async with Agent(holding(at_once), store=store).start("x", run_id="r") as run:
        assert await run.step() is not None
    (head,) = await list_runs(store)
    assert (head.claim, head.status, head.reason) == (None, "paused", "released")
    await run.aclose()
    other = await Agent(holding(at_once), store=store).read("r")
    assert (await run.finish()).output == OUTPUT
    before = await items(store)
    with pytest.raises(RunClaimedError, match="another process, which continued it"):
        await other.finish()
    assert await items(store) == before


wait = ask_human("Go on?", bool)


@node
async def breaks(ctx: Context, text: str) -> str:
    raise ValueError(text)


@node
async def pauses(ctx: Context[Any], text: str) -> str:
    ctx.deps["run"].pause("enough")
    return text


@node
async def hangs(ctx: Context, text: str) -> str:
    await anyio.sleep_forever()


@pytest.mark.parametrize(
    ("strategy", "status"),
    [
        (Strategy("s", START >> begin >> END), "done"),
        (Strategy("s", START >> begin >> breaks >> END), "failed"),
        (Strategy("s", START >> wait >> END), "waiting"),
        (Strategy("s", START >> pauses >> end >> END), "paused"),
        (Strategy("s", START >> hangs >> END), "cancelled"),
    ],
)
async def test_a_run_that_came_to_rest_is_nobodys(strategy, status):
    """One that ended, failed, waits, was paused or cancelled has no claim, though its object still lives."""
    store = MemoryStore()
    deps = {}
    run = deps["run"] = Agent(strategy, store=store).start("x", run_id="r", deps=deps)
    with anyio.move_on_after(0.05 if status == "cancelled" else None):
        with suppress(NodeFailedError):
            await run.finish()
    (head,) = await list_runs(store)
    assert (head.claim, head.running, head.status) == (None, False, status)
    assert run.status == status


# ---- one that lost it


@forks
def test_a_process_that_hung_cannot_write_any_more(tmp_path):
    """It is stopped by a signal, another machine takes over after the lease; awake again, it fails, and the other ends right."""
    hung = started(tmp_path)
    os.kill(hung.pid, signal.SIGSTOP)
    early = Process(resumes_from_elsewhere, tmp_path, 0)
    assert early.says()[0] == "RunClaimedError"
    assert early.end() == 0
    other = Process(resumes_from_elsewhere, tmp_path, LEASE + 1000)
    assert other.says() == ["holds"]
    before = items_in(tmp_path)
    hung.go_on()
    os.kill(hung.pid, signal.SIGCONT)
    kind, said, run_id = hung.says()
    assert hung.end() == 0
    assert (kind, run_id) == ("RunClaimedError", "r")
    assert "another process, which continued it" in said
    assert items_in(tmp_path) == before
    other.go_on()
    assert other.says() == ["done", OUTPUT]
    assert other.end() == 0
    (head,) = heads_in(tmp_path)
    assert (head.status, head.claim) == ("done", None)


class Ways:
    """Strategies that take every error they can, around a node that is held up, and what they did about one."""

    def __init__(self, hold):
        self.taken = taken = []

        @node
        async def held(ctx: Context, text: str) -> str:
            await ctx.once("hold", partial(self._held, hold))
            taken.append("went on")
            return text

        @node
        async def instead(ctx: Context, error: Exception) -> str:
            taken.append("took an error path")
            return "instead"

        @node
        async def after(ctx: Context, values: object) -> str:
            taken.append("went on behind the fork")
            return "after"

        @node
        async def split(ctx: Context, text: str) -> list[str]:
            return [text]

        self.strategies = {
            "retry": Strategy("s", START >> held.retry(attempts=3, wait=0) >> END),
            "error path": Strategy("s", START >> held >> END, held.on_error(Exception) >> instead >> END),
            "parallel": Strategy("s", START >> parallel(held, failures="collect") >> after >> END),
            "each": Strategy("s", START >> split >> each(held, failures="collect") >> after >> END),
            "inside": Strategy("s", START >> Strategy("t", START >> held >> END) >> END),
        }

    @staticmethod
    async def _held(hold):
        await hold()
        return "held"


@pytest.mark.parametrize("way", ["retry", "error path", "parallel", "each", "inside"])
async def test_nothing_in_a_strategy_takes_the_loss_of_a_run(way):
    """No retry, error path or fork goes on with a run that someone else has; the other is not disturbed in its middle."""
    store, mine, other = MemoryStore(), Gate(), Gate()
    mine_ways, other_ways = Ways(mine), Ways(other)
    run = Agent(mine_ways.strategies[way], store=store).start("x", run_id="r")
    lost = anyio.Event()

    async def lose():
        try:
            await run.finish()
        except RunClaimedError:
            lost.set()

    async def take_over():
        with elsewhere(2 * LEASE):
            results.append(await Agent(other_ways.strategies[way], store=store).resume("r"))

    results = []
    async with anyio.create_task_group() as group:
        group.start_soon(lose)
        await mine.reached.wait()
        group.start_soon(take_over)
        await other.reached.wait()
        before = await items(store)
        mine.open.set()
        with anyio.fail_after(600):
            await lost.wait()
        assert await items(store) == before
        assert (run.status, mine_ways.taken) == ("failed", [])
        with pytest.raises(RunClaimedError):
            await run.finish()
        assert await items(store) == before
        other.open.set()
    assert results[0].done
    assert other_ways.taken


async def test_a_run_lost_to_one_that_waits_is_lost_too():
    """Though nobody has a claim any more when the first comes back."""
    store, mine = MemoryStore(), Gate()
    asking = Strategy("holding", START >> (held := _held_by(mine)) >> wait >> END)
    run = Agent(asking, store=store).start("x", run_id="r")

    async with anyio.create_task_group() as group:

        async def lose():
            with pytest.raises(RunClaimedError):
                await run.finish()

        group.start_soon(lose)
        await mine.reached.wait()
        with elsewhere(2 * LEASE):
            again = Strategy("holding", START >> _held_by(at_once) >> wait >> END)
            assert (await Agent(again, store=store).resume("r")).status == "waiting"
        before = await items(store)
        mine.open.set()
    assert held.name == "held"
    assert await items(store) == before
    assert (await Agent(asking, store=store).resume("r", answer=True)).output is True


def _held_by(hold):
    @node
    async def held(ctx: Context, text: str) -> str:
        await hold()
        return text

    return held


# ---- several at the same moment


@forks
def test_of_several_that_resume_a_dead_run_one_has_it(tmp_path):
    """Over many rounds three processes try at the same moment: one goes on, the others are refused, and it ends right."""
    for number in range(12):
        folder = tmp_path / str(number)
        folder.mkdir()
        started(folder).kill()
        _one_of_three(folder, resumes_when_told, "RunClaimedError")
        assert heads_in(folder)[0].status == "done"


@forks
def test_of_several_that_start_a_run_of_one_id_one_does(tmp_path):
    """The others are told that it exists."""
    for number in range(6):
        folder = tmp_path / str(number)
        folder.mkdir()
        _one_of_three(folder, starts_when_told, "RunExistsError")
        assert heads_in(folder)[0].status == "done"


def _one_of_three(folder, main, refusal):
    processes = [Process(main, folder) for _ in range(3)]
    for process in processes:
        assert process.says() == ["ready"]
    for process in processes:
        process.go_on()
    said = [process.says() for process in processes]
    winners = [process for process, (first, *_) in zip(processes, said, strict=True) if first == "holds"]
    assert len(winners) == 1, said
    assert sorted(first for first, *_ in said) == sorted(["holds", refusal, refusal])
    winners[0].go_on()
    assert winners[0].says() == ["done", OUTPUT]
    assert [process.end() for process in processes] == [0, 0, 0]


async def test_of_many_tasks_that_resume_a_run_one_has_it():
    """In one process too, and the run is executed once."""
    store, gate = MemoryStore(), Gate()
    run = Agent(holding(gate), store=store).start("x", run_id="r")
    assert await run.step() is not None
    await run.aclose()
    said, refused = [], anyio.Event()

    async def resume():
        try:
            said.append((await Agent(holding(gate), store=store).resume("r")).output)
        except RunClaimedError:
            said.append("refused")
        if len(said) == 19:
            refused.set()

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(resume)
        await gate.reached.wait()
        with anyio.fail_after(600):
            await refused.wait()
        gate.open.set()
    assert sorted(said) == ["refused"] * 19 + [OUTPUT]


class Overtaken(MemoryStore):
    """A store in which another process begins a run when this one has just seen that there is none."""

    begin = None

    async def get(self, key):
        item = await super().get(key)
        if item is None and key == head_key("", "r"):
            await self.overtaken()
        return item

    async def scan(self, prefix, **options):
        async for item in super().scan(prefix, **options):
            yield item
        if prefix == head_key("", "r")[:-1]:
            await self.overtaken()

    async def overtaken(self):
        begin, self.begin = self.begin, None
        if begin is not None:
            await begin()


@pytest.mark.parametrize("looks", ["a start", "a resumption", "a check of the store"])
async def test_a_run_that_begins_between_two_reads_is_not_damaged(looks):
    """It exists, and there is nothing wrong with it."""
    store = Overtaken()
    agent = Agent(Strategy("s", START >> END), store=store)
    store.begin = partial(agent.run, "x", run_id="r")
    if looks == "a start":
        with pytest.raises(RunExistsError):
            await agent.run("x", run_id="r")
    elif looks == "a resumption":
        assert (await agent.resume("r")).output == "x"
    else:
        assert await verify_runs(store, owner="") == 0


# ---- one that does not hear that it has taken a run


class Unheard(MemoryStore):
    """A store of which a commit is made, but the caller is cancelled, or told that it broke, before it hears of that."""

    scope = None
    breaks = broken = False

    async def commit(self, *changes):
        if self.broken:
            raise StoreError("the disk is gone")
        await super().commit(*changes)
        if self.scope is not None:
            scope, self.scope = self.scope, None
            scope.cancel()
            await anyio.lowlevel.checkpoint()
        if self.breaks:
            self.broken = True
            raise StoreError("the disk is gone")


async def about_to_run(store, *, begun):
    """Give a run that is about to be begun, or to be gone on with."""
    agent = Agent(holding(partial(anyio.sleep, 0)), store=store)
    if not begun:
        return agent.start("x", run_id="r")
    async with agent.start("x", run_id="r") as first:
        assert await first.step() is not None
    return await agent.read("r")


@pytest.mark.parametrize("begun", [False, True])
async def test_one_that_is_cancelled_while_it_takes_a_run_lets_it_go(begun):
    """Another process finds it free at once, and the same object can go on with it."""
    store = Unheard()
    run = await about_to_run(store, begun=begun)
    with anyio.CancelScope() as store.scope:
        await run.finish()
    (head,) = await list_runs(store)
    assert (run.status, head.status, head.claim) == ("cancelled", "cancelled", None)
    assert (await run.finish()).output == OUTPUT


@pytest.mark.parametrize("begun", [False, True])
async def test_one_whose_store_broke_while_it_took_a_run_does_not_have_it(begun):
    """Though whoever keeps the error keeps all that was on the way; the object that it happened to cannot go on then."""
    store = Unheard()
    run = await about_to_run(store, begun=begun)
    store.breaks = True
    with pytest.raises(JournalError) as kept:
        await run.finish()
    store.breaks = store.broken = False
    (head,) = await list_runs(store)
    assert (head.status, head.claim is None) == ("interrupted", False)
    assert await is_free(store)
    assert kept.value.run_id == "r"
    before = await items(store)
    with pytest.raises((RunClaimedError, RunExistsError)):
        await run.finish()
    assert await items(store) == before


# ---- ids


@pytest.mark.parametrize("how", ["done", "waiting", "executed"])
async def test_a_run_id_that_is_taken_is_refused(how):
    """Whatever became of the run: nothing is written, and the error says what to do. Another owner may have one of that id."""
    store, gate = MemoryStore(), Gate()
    strategies = {"done": holding(at_once), "waiting": Strategy("s", START >> wait >> END), "executed": holding(gate)}
    agent = Agent(strategies[how], store=store)
    async with anyio.create_task_group() as group:
        if how == "executed":
            group.start_soon(partial(agent.run, "x", run_id="r", owner="ada"))
            await gate.reached.wait()
        else:
            await agent.run("x", run_id="r", owner="ada")
        before = await items(store)
        second = Agent(holding(at_once), store=store)
        with pytest.raises(
            RunExistsError, match=r"there is a run 'r' already; continue it with agent.resume\('r', owner='ada'\)"
        ) as caught:
            await second.run("y", run_id="r", owner="ada")
        assert caught.value.run_id == "r"
        run = second.start("y", run_id="r", owner="ada")
        for go_on in (run.step, run.finish, run.step):
            with pytest.raises(RunExistsError):
                await go_on()
        assert await items(store) == before
        for owner in ("bob", ""):
            assert (await second.run("x", run_id="r", owner=owner)).output == OUTPUT
        kept = await items(store)
        assert [item for item in kept if item[0][1] == "ada"] == before
        with pytest.raises(RunNotFoundError):
            await second.resume("r", owner="eve")
        gate.open.set()
