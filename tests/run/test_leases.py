"""Runs in a store that says who has them: taken, renewed and released there, and left alone once the claim may be over."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from contextlib import suppress

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent.errors import LeaseLostError, RunClaimedError, RunNotFoundError, StoreError
from graphagent.history import forget, forget_runs, prune_runs
from graphagent.llm import ToolCall, ToolCalls, ToolResult
from graphagent.protocols import Feature
from graphagent.run import list_runs
from graphagent.store import EncryptedStore, MemoryStore, SqliteStore, new_key
from graphagent.store.postgres import PostgresStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.run.test_claims import OUTPUT, Gate, Process, at_once, forks, holding, items
from tests.store.leased import Leased

pytestmark = pytest.mark.every_loop

MINUTE = 60_000


@pytest.fixture
def leased(tmp_path):
    """Make stores over the same items, each that of another machine: how late it is there, and how long a lease and a heartbeat are."""
    inner = MemoryStore()

    def make(*, late=0, lease=MINUTE, heartbeat=20):
        store = Leased(inner, tmp_path / "claims.db", lease=lease, heartbeat=heartbeat)
        store.claims.late = late
        return store

    return make


async def until(holds):
    """Wait for something that another thread does."""
    while not holds():  # noqa: ASYNC110  nothing tells when
        await anyio.sleep(0.005)


# ---- taken, renewed, released


@pytest.mark.parametrize("sealed", [False, True])
async def test_a_run_is_taken_renewed_and_released(leased, sealed):
    """Another machine finds it taken; released, it is free at once, and each holder has a number of its own, which the header says."""
    key, store, gate = new_key(), leased(), Gate()
    mine = EncryptedStore(store, key) if sealed else store
    other = EncryptedStore(leased(), key) if sealed else leased()
    run = Agent(holding(gate), store=mine).start("x", run_id="r")
    async with anyio.create_task_group() as group:
        group.start_soon(run.finish)
        await gate.reached.wait()
        await until(lambda: "renew" in store.claims.asked)
        (head,) = await list_runs(other)
        assert (head.status, head.running, head.fence) == ("running", True, 1)
        before = await items(other)
        with pytest.raises(RunClaimedError, match="run 'r' is being executed by"):
            await Agent(holding(at_once), store=other).resume("r")
        with pytest.raises(RunClaimedError):
            await forget_runs(other, run_ids=["r"])
        assert await items(other) == before
        gate.open.set()
    assert run.output == OUTPUT
    (head,) = await list_runs(other)
    assert (head.status, head.claim, head.fence) == ("done", None, 1)
    assert await other.claims.holders([("runs", "", 0, "r")]) == {}


async def test_what_a_dead_process_had_is_free_at_the_end_of_its_lease(leased):
    """It is listed as interrupted from then on; of several that resume it, one does."""
    run = Agent(holding(at_once), store=leased()).start("x", run_id="r")
    assert await run.step() is not None
    with pytest.raises(RunClaimedError):
        await Agent(holding(at_once), store=leased(late=MINUTE // 2)).resume("r")
    del run
    gc.collect()
    later = leased(late=2 * MINUTE)
    assert [head.status for head in await list_runs(leased())] == ["running"]
    assert [head.status for head in await list_runs(later)] == ["interrupted"]
    assert [claim.key for claim in await later.claims.lapsed("runs", 10)] == [("runs", "", 0, "r")]
    done, refused = [], []

    async def hold():
        await until(lambda: len(refused) == 4)

    async def resume():
        try:
            done.append((await Agent(holding(hold), store=leased(late=2 * MINUTE)).resume("r")).output)
        except RunClaimedError:
            refused.append("r")

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(resume)
    assert (done, len(refused)) == ([OUTPUT], 4)
    (head,) = await list_runs(later)
    assert (head.status, head.fence) == ("done", 2)


async def test_all_runs_of_a_process_are_renewed_with_one_call_and_listed_with_one(leased):
    store = leased(heartbeat=200)
    gates = [Gate() for _ in range(12)]
    async with anyio.create_task_group() as group:
        for number, gate in enumerate(gates):
            group.start_soon(Agent(holding(gate), store=store).start("x", run_id=f"r{number}").finish)
        for gate in gates:
            await gate.reached.wait()
        begun = len(store.claims.renewed)
        await until(lambda: len(store.claims.renewed) > begun + 1)
        renewals = store.claims.renewed[-1]
        store.claims.asked.clear()
        assert {head.status for head in await list_runs(store)} == {"running"}
        assert store.claims.asked.count("holders") == 1
        for gate in gates:
            gate.open.set()
    assert renewals == 12


async def test_a_run_between_two_steps_is_renewed_though_the_event_loop_is_blocked(leased):
    store = leased()
    run = Agent(holding(at_once), store=store).start("x", run_id="r")
    assert await run.step() is not None
    renewals = store.claims.asked.count("renew")
    while store.claims.asked.count("renew") < renewals + 3:
        time.sleep(0.005)  # noqa: ASYNC251  it is to block the loop
    assert (await run.finish()).output == OUTPUT


async def test_a_renewal_that_fails_is_made_again(leased, caplog):
    """A store that fails for a while costs no run."""
    store, gate = leased(), Gate()
    run = Agent(holding(gate), store=store).start("x", run_id="r")
    async with anyio.create_task_group() as group:
        group.start_soon(run.finish)
        await gate.reached.wait()
        store.claims.fails = StoreError("the server is down")
        failed = len(store.claims.asked) + 3
        await until(lambda: len(store.claims.asked) > failed)
        store.claims.fails = None
        renewed = store.claims.asked.count("renew") + 2
        await until(lambda: store.claims.asked.count("renew") > renewed)
        gate.open.set()
    assert run.output == OUTPUT
    assert "could not be renewed: StoreError" in caplog.text


async def test_a_run_is_free_though_its_release_failed(leased, caplog):
    """The header says which claims are over."""
    store, gate = leased(), Gate()
    waiting = Agent(holding(gate), store=store).start("x", run_id="r")
    async with anyio.create_task_group() as group:
        group.start_soon(waiting.finish)
        await gate.reached.wait()
        store.claims.release = _fail
        waiting.pause("for a moment")
        gate.open.set()
    assert waiting.status == "paused"
    assert "could not be released: StoreError" in caplog.text
    assert (await Agent(holding(at_once), store=leased()).resume("r")).output == OUTPUT
    assert (await list_runs(store))[0].fence == 2


async def _fail(claims):
    raise StoreError("the server is down")


@pytest.mark.parametrize("way", ["prune", "forget runs", "forget all runs", "forget everything"])
async def test_of_a_run_that_was_removed_no_claim_is_left(leased, way):
    run = Agent(holding(at_once), store=leased()).start("x", run_id="r", owner="ada")
    assert await run.step() is not None
    del run
    gc.collect()
    later = leased(late=2 * MINUTE)
    await {
        "prune": lambda: prune_runs(later, owner="ada", run_ids=["r"]),
        "forget runs": lambda: forget_runs(later, owner="ada", run_ids=["r"]),
        "forget all runs": lambda: forget_runs(later, owner="ada"),
        "forget everything": lambda: forget(later, owner="ada", everything=True),
    }[way]()
    assert await later.claims.lapsed("runs", 10) == []


# ---- lost


async def test_a_run_that_somebody_else_took_is_broken_off(leased):
    """At the next heartbeat, in whatever it waits for; whoever has it is not disturbed, and a removed run ends too."""
    mine, other = Gate(), Gate()
    run = Agent(holding(mine), store=leased()).start("x", run_id="r")
    results = []

    async def take_over():
        results.append(await Agent(holding(other), store=leased(late=2 * MINUTE)).resume("r"))

    async with anyio.create_task_group() as group:

        async def lose():
            with pytest.raises(LeaseLostError) as caught:
                await run.finish()
            assert caught.value.run_id == "r"

        group.start_soon(lose)
        await mine.reached.wait()
        group.start_soon(take_over)
        await other.reached.wait()
        await until(lambda: run.status == "failed")
        with pytest.raises(RunClaimedError):
            await run.finish()
        other.open.set()
    assert results[0].output == OUTPUT
    gate = Gate()
    removed = Agent(holding(gate), store=leased()).start("x", run_id="gone")
    async with anyio.create_task_group() as group:

        async def end():
            with pytest.raises(RunNotFoundError):
                await removed.finish()

        group.start_soon(end)
        await gate.reached.wait()
        await forget_runs(leased())


class Swallowing(Feature):
    """Middleware that goes on whatever happens, and says so."""

    def __init__(self, acted):
        self.acted = acted

    async def around_tool(self, ctx, call, proceed):
        try:
            return await proceed(call)
        except Exception:
            await ctx.once("instead of the tool", self.acted)
            return ToolResult(call.id, call.name, "all is well")

    async def around_node(self, ctx, value, proceed):
        try:
            return await proceed(value)
        except Exception:
            await ctx.once("instead of the node", self.acted)
            return value


class Ways:
    """Programs that go on after every error they can catch. The claim is over when `lose` returns, and nothing has noticed yet."""

    def __init__(self, lose, store):
        self.acts = []

        async def act():
            self.acts.append("acted")

        @node
        async def effect(ctx: Context, text: str) -> str:
            lose(ctx)
            await ctx.once("effect", act)
            return text

        @node
        async def catching(ctx: Context, text: str) -> str:
            lose(ctx)
            for number in range(3):
                with suppress(Exception):
                    await ctx.once(f"effect {number}", act)
            return text

        @node
        async def gathering(ctx: Context, text: str) -> str:
            lose(ctx)
            await asyncio.gather(*(ctx.once(f"{number}", act) for number in range(3)), return_exceptions=True)
            return text

        @node
        async def together(ctx: Context, text: str) -> str:
            lose(ctx)
            await ctx.gather([lambda ctx: ctx.once("one", act), lambda ctx: ctx.once("two", act)])
            return text

        @node
        async def instead(ctx: Context, error: Exception) -> str:
            await ctx.once("instead", act)
            return "instead"

        @node
        async def after(ctx: Context, text: str) -> str:
            await ctx.once("after", act)
            return text

        @tool
        async def look(ctx: Context) -> str:
            """Look."""
            lose(ctx)
            await ctx.once("in a tool", act)
            return "seen"

        def calling():
            model = ScriptedModel([ToolCalls([ToolCall("look", {}, "1")]), "done"])
            return Agent(single_run(), model=model, tools=[look], store=store)

        def over(*paths):
            return Agent(Strategy("s", *paths), store=store)

        self.agents = {
            "error path": over(START >> effect >> END, effect.on_error(Exception) >> instead >> END),
            "retry": over(START >> effect.retry(attempts=5, wait=0) >> END),
            "except Exception": over(START >> catching >> after >> END),
            "asyncio.gather": over(START >> gathering >> after >> END),
            "ctx.gather": over(START >> together >> after >> END),
            "tool": calling(),
            "middleware of tools": _with(calling(), act),
            "middleware of nodes": _with(over(START >> effect >> after >> END), act),
        }


def _with(agent, act):
    agent.install(Swallowing, acted=act)
    return agent


WAYS = [
    "error path",
    "retry",
    "except Exception",
    "asyncio.gather",
    "ctx.gather",
    "tool",
    "middleware of tools",
    "middleware of nodes",
]


@pytest.mark.parametrize("way", WAYS)
async def test_nothing_in_a_program_takes_the_loss_of_a_claim(leased, way):
    """Once the deadline is past, no effect is caused and nothing is written, whatever the program does with the error."""
    if way == "asyncio.gather" and not _is_asyncio():
        return
    store, before = leased(heartbeat=MINUTE // 3), []

    def lose(ctx):
        run._run.log.lease.deadline = 0.0  # as after a pause: neither the store nor the heartbeat knows
        before.append(len(store.commits))

    ways = Ways(lose, store)
    run = ways.agents[way].start("x", run_id="r")
    with pytest.raises(LeaseLostError):
        await run.finish()
    assert ways.acts == []
    assert len(store.commits) == before[0]
    assert run.status == "failed"
    ended = Ways(lambda ctx: None, leased(late=2 * MINUTE))
    assert (await ended.agents[way].resume("r")).done
    assert ended.acts


def _is_asyncio():
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


# ---- stopped for longer than the lease

LEASE = 1_000
EFFECTS = 6


KEY = "CRqs5oPBSYoJGPbWT0Pm2yk2X2X4Nn4Vd7nE5Hm5m0Q="


def acting(folder, dsn, sealed, who, hold):
    """Give an agent whose run causes effects that leave a line each, and is held up before the third."""

    @node
    async def act(ctx: Context, text: str) -> str:
        for number in range(EFFECTS):
            if number == 3:
                hold()

            async def write(number=number):
                with (folder / "effects").open("a") as file:
                    file.write(f"{who} {number}\n")

            await ctx.once(f"effect {number}", write)
        return text

    seconds = {"lease": LEASE / 1000, "heartbeat": LEASE / 4000}
    store = PostgresStore(dsn, **seconds) if dsn else Leased(SqliteStore(folder / "runs.db"), folder / "claims.db", lease=LEASE, heartbeat=LEASE // 4)  # fmt: skip
    return Agent(Strategy("acting", START >> act >> END), store=EncryptedStore(store, KEY) if sealed else store)


async def acts(here, folder, dsn, sealed):
    """Execute the run, and stop with the whole process before the third effect."""

    def hold():
        here.say("holds")
        here.wait()

    await here.tell(acting(folder, dsn, sealed, "stopped", hold).run("x", run_id="r"))


@forks
@pytest.mark.parametrize("kind", ["sqlite", "postgres", "sealed postgres"])
def test_a_process_that_was_stopped_for_longer_than_its_lease_does_nothing_more(request, tmp_path, kind):
    """Another one takes over meanwhile, and each effect is caused once."""
    dsn, sealed = "" if kind == "sqlite" else request.getfixturevalue("postgres_dsn"), kind.startswith("sealed")
    process = Process(acts, tmp_path, dsn, sealed)
    assert process.says() == ["holds"]
    os.kill(process.pid, signal.SIGSTOP)

    async def take_over():
        other = acting(tmp_path, dsn, sealed, "other", lambda: None)
        while True:
            try:
                return await other.resume("r")
            except RunClaimedError:
                await anyio.sleep(0.05)

    result = anyio.run(take_over)
    process.go_on()
    os.kill(process.pid, signal.SIGCONT)
    kind, said, run_id = process.says()
    assert (kind, run_id, process.end()) == ("LeaseLostError", "r", 0)
    assert "was given up here" in said
    assert result.done
    lines = (tmp_path / "effects").read_text().splitlines()
    assert lines == [f"{'stopped' if number < 3 else 'other'} {number}" for number in range(EFFECTS)]
