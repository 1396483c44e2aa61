"""Runs are resumed, paused and ended from their pages, unless nothing may be changed, or something is in the way."""

from __future__ import annotations

from contextlib import aclosing, suppress

import anyio
import httpx2
import pytest

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.errors import NodeFailedError
from graphagent.history import run_head
from graphagent.inspect import Inspector, _acts
from graphagent.inspect._follow import events
from graphagent.nodes import sleep
from graphagent.run import _session as heartbeat
from graphagent.run import _sleep as sleeping
from graphagent.store import MemoryStore
from graphagent.work import Worker
from tests.inspect.pages import address, looking
from tests.inspect.test_inbox import fields


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    """Have runs look for requests more often than once a second."""
    monkeypatch.setattr(heartbeat, "LOOK", 0.01)


class Shop:
    """An agent whose run fails as long as the order is not there, and then packs it over and over until it is sent."""

    def __init__(self, store, name="orders"):
        self.there, self.sent, self.fetched = False, False, 0

        @node
        async def fetch(ctx: Context, task: str) -> str:
            """Fetch something."""
            self.fetched += self.there
            if not self.there:
                raise LookupError(f"order {task} is not there")
            return f"order {task}"

        @node
        async def pack(ctx: Context, task: str) -> str:
            """Pack it."""
            await anyio.sleep(0.005)
            return task

        packing = pack.when(lambda _: not self.sent) >> pack
        self.agent = Agent(
            Strategy(name, START >> fetch >> pack, packing, pack.otherwise() >> END), store=store, max_nodes=None
        )

    async def fail(self, *run_ids, owner=""):
        for run_id in run_ids:
            with suppress(NodeFailedError):
                await self.agent.run(run_id, run_id=run_id, owner=owner)


async def until(store, run_id, *statuses):
    """Wait until a run has one of these states, and return its header."""
    while True:
        head = await run_head(store, run_id)
        if head.status in statuses:
            return head
        await anyio.sleep(0.005)


async def test_a_run_is_resumed_and_goes_on_here():
    """With its agent, this process executes it. A second tab is told that there is nothing to resume; what is paused stays so."""
    shop = Shop(store := MemoryStore())
    await shop.fail("17")
    async with looking(store, options={"agents": [shop.agent]}) as client:
        page = (await client.get(address("run", id="17"))).text
        assert ">Resume</button>" in page
        form = fields(page)
        for refused in ({"form": "x"}, {"form": ""}):
            assert (await client.post("/resume", data={**form, **refused})).status_code == 403
        assert (await client.post("/resume", data=form, headers={"Origin": "https://evil.example"})).status_code == 403
        shop.there = True
        answer = await client.post("/resume", data=form)
        assert (answer.status_code, answer.headers["location"]) == (303, "/run?id=17")
        assert (await client.post("/resume", data=form)).status_code in (303, 409)
        await until(store, "17", "running")
        again = await client.post("/resume", data=form)
        assert again.status_code == 409
        assert "nothing to resume" in again.text
        assert ">Pause</button>" in (await client.get(address("run", id="17"))).text
        assert (await client.post("/pause", data=form)).status_code == 303
        assert (await run_head(store, "17")).status == "paused"
        assert (await client.post("/resume", data=form)).status_code == 303
        await until(store, "17", "running")
        shop.sent = True
        await until(store, "17", "done")
        assert (await client.post("/pause", data=form)).status_code == 409
        assert ">Resume" not in (await client.get(address("run", id="17"))).text
    assert shop.fetched == 1


async def test_without_its_agent_a_run_is_resumed_for_a_worker():
    """It is due then, and executed here as little as one whose agent takes deps and has no factory for them."""

    @node
    async def fetch(ctx: Context[int], task: str) -> str:
        """Fetch."""
        raise LookupError(task)

    agent = Agent(Strategy("orders", START >> fetch >> END), store=(store := MemoryStore()))
    with suppress(NodeFailedError):
        await agent.run("17", run_id="17", deps=1)
    for agents, said in (([], "It waits for a worker."), ([agent], "takes deps, and has no deps_factory=")):
        async with looking(store, options={"agents": agents}) as client:
            page = (await client.get(address("run", id="17"))).text
            if not agents:
                assert "Resume only queues it" in page
                assert (await client.post("/resume", data=fields(page))).status_code == 303
                page = (await client.get(address("run", id="17"))).text
            assert said in page
            assert page.count("<fieldset disabled>") == 1
            answer = await client.post("/resume", data=fields(page))
            assert answer.status_code == 409
            assert said in answer.text
    assert (await run_head(store, "17")).status == "queued"


async def test_without_its_agent_a_run_of_a_worker_is_paused_and_ended():
    """The worker does so before its next node."""
    shop = Shop(store := MemoryStore())
    shop.there = True
    async with looking(store) as client, Worker(shop.agent):
        await shop.agent.submit("17", run_id="17")
        await until(store, "17", "running")
        form = fields((await client.get(address("run", id="17"))).text)
        assert (await client.post("/pause", data=form)).status_code == 303
        assert (await run_head(store, "17")).status == "paused"
        assert (await client.post("/resume", data=form)).status_code == 303
        await until(store, "17", "running")
        assert (await client.post("/end", data=form)).status_code == 303
    assert (await run_head(store, "17")).status == "ended"


async def test_a_run_that_does_not_stop_at_once_is_said_to_have_been_asked(monkeypatch):
    """It pauses before its next node, for which no page waits long."""
    monkeypatch.setattr(_acts, "_PATIENCE", 0.01)
    going = anyio.Event()

    @node
    async def slow(ctx: Context, task: str) -> str:
        """Take a while."""
        await going.wait()
        return task

    agent = Agent(Strategy("slowly", START >> slow >> END), store=(store := MemoryStore()))
    async with looking(store) as client, Worker(agent):
        await agent.submit("x", run_id="x")
        await until(store, "x", "running")
        form = fields((await client.get(address("run", id="x"))).text)
        answer = await client.post("/pause", data=form)
        assert "It was asked to stop" in (await client.get(answer.headers["location"])).text
        going.set()
        await until(store, "x", "paused", "done")
        assert "It was asked to stop" not in (await client.get(answer.headers["location"])).text


async def test_a_run_that_a_process_executes_which_is_not_a_worker_is_left_alone():
    """What is not possible is greyed out with the reason; sent all the same, nothing happens."""
    shop = Shop(store := MemoryStore())
    await shop.fail("18")
    shop.there = True
    async with looking(store, options={"agents": [shop.agent]}) as client, anyio.create_task_group() as group:
        group.start_soon(shop.agent.resume, "18")
        await until(store, "18", "running")
        page = (await client.get(address("run", id="18"))).text
        assert "which is not a worker" in page
        for path in ("pause", "end", "resume"):
            assert (await client.post(f"/{path}", data=fields(page))).status_code == 409
        shop.sent = True
    assert (await run_head(store, "18")).status == "done"


async def test_runs_of_somebody_else_and_runs_that_are_gone_are_not_found():
    """Nothing happens to them."""
    shop = Shop(store := MemoryStore())
    await shop.fail("17", owner="ben")
    async with looking(store, options={"agents": [shop.agent], "owner": "ada"}) as client:
        await shop.fail("1", owner="ada")
        form = fields((await client.get(address("run", id="1", owner="ada"))).text)
        for run in ({"id": "17", "owner": "ben"}, {"id": "x", "owner": "ada"}, {"id": ""}):
            for path in ("resume", "pause", "end"):
                assert (await client.post(f"/{path}", data={**form, **run})).status_code == 404
    assert (await run_head(store, "17", owner="ben")).status == "failed"


async def test_runs_are_left_to_workers_where_they_have_them():
    """What is resumed is due, and a worker executes it."""
    shop = Shop(store := MemoryStore())
    await shop.fail("17")
    shop.there = shop.sent = True
    async with looking(store, options={"agents": [shop.agent], "executes": False}) as client:
        page = (await client.get(address("run", id="17"))).text
        assert (await client.post("/resume", data=fields(page))).status_code == 303
        queued = (await client.get(address("run", id="17"))).text
        assert "It waits for a worker." in queued
        assert (await client.post("/resume", data=fields(queued))).status_code == 409
        assert (await run_head(store, "17")).status == "queued"
        async with Worker(shop.agent):
            await until(store, "17", "done")


async def test_a_run_that_was_submitted_has_a_page_that_follows_it_from_then_on():
    """It has no entries yet, and can be executed here; the page that comes next does not say that it is queued."""
    shop = Shop(store := MemoryStore())
    shop.there = True
    await shop.agent.submit("17", run_id="17")
    async with looking(store, options={"agents": [shop.agent]}) as client, anyio.create_task_group() as group:
        shown = await client.get(address("run", id="17"))
        assert shown.status_code == 200
        for said in (">Execute it here</button>", "It waits to be executed", 'data-follow="/follow?id=17"', "End this run"):  # fmt: skip
            assert said in shown.text
        head = await run_head(store, "17")

        async def hear():
            """Hear of the run from before it is begun."""
            async with aclosing(events(store, head, 0)) as heard:
                async for each in heard:
                    shop.sent = shop.sent or '"at": "pack"' in each
            assert "event: over" in each

        group.start_soon(hear)
        assert (await client.post("/resume", data=fields(shown.text))).status_code == 303
        assert "state running" in (await client.get(address("run", id="17"))).text
    assert (await run_head(store, "17")).status == "done"


async def test_runs_that_are_executed_here_stop_with_the_server():
    """They are interrupted, as by a worker that ends, and can be resumed."""
    shop = Shop(store := MemoryStore())
    await shop.fail("17")
    shop.there = True
    pages = Inspector(store, agents=[shop.agent])
    app = pages.app()
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1:8766") as client:
        page = (await client.get(address("run", id="17"))).text
        assert (await client.post("/resume", data=fields(page))).status_code == 303
        await until(store, "17", "running")
        messages = iter(["lifespan.startup", "lifespan.shutdown"])

        async def receive():
            return {"type": next(messages)}

        async def send(message):
            assert message["type"].endswith(".complete")

        await app({"type": "lifespan"}, receive, send)
        assert (await run_head(store, "17")).status == "interrupted"
        shop.sent = True
        assert (await client.post("/resume", data=fields(page))).status_code == 303
        await until(store, "17", "done")


async def test_a_run_that_sleeps_is_woken_here(monkeypatch):
    """As by a worker: the process that somebody resumed it in continues it when its time has come."""
    monkeypatch.setattr(sleeping, "SHORT", 0.0)
    there = []

    @node
    async def fetch(ctx: Context, task: str) -> str:
        """Fetch."""
        if not there:
            raise LookupError(task)
        return task

    agent = Agent(Strategy("orders", START >> fetch >> sleep(0.1) >> END), store=(store := MemoryStore()))
    with suppress(NodeFailedError):
        await agent.run("17", run_id="17")
    there.append(True)
    async with looking(store, options={"agents": [agent]}) as client:
        page = (await client.get(address("run", id="17"))).text
        assert (await client.post("/resume", data=fields(page))).status_code == 303
        await until(store, "17", "done")
    assert [each.data.get("status") for each in await agent.history("17") if each.kind == "stopped"] == [
        "failed",
        "sleeping",
        "done",
    ]


async def test_a_run_that_sleeps_is_not_resumed_but_woken_when_it_is_due():
    """By this process, or else by a worker; until when it sleeps is said."""
    agent = Agent(Strategy("naps", START >> sleep(3600) >> END), store=(store := MemoryStore()))
    await agent.run("zzz", run_id="zzz")
    for agents, said in (([agent], ">Wake it here when it is due</button>"), ([], "A worker wakes it when it is due.")):
        async with looking(store, options={"agents": agents}) as client:
            page = (await client.get(address("run", id="zzz"))).text
        assert said in page
        assert ">until " in page
        assert ">Resume" not in page
