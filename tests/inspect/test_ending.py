"""Runs are ended from their pages, unless nothing may be changed."""

from __future__ import annotations

from graphagent.history import run_head
from tests.inspect.pages import address, filled, looking, read
from tests.inspect.test_inbox import fields, seats

FAILED = "../fails & more"


async def test_a_run_is_ended_where_it_is():
    """With its reason; without the agent in the store, with it as the agent does. One that is over has no form for it."""
    store = await filled()
    agent = seats(store)
    await agent.run("Oslo", run_id="trip")
    async with looking(store, options={"agents": [agent]}) as client:
        for run_id in (FAILED, "trip"):
            page = (await client.get(address("run", id=run_id))).text
            form = fields(page.partition("End…")[2])
            assert (await client.post("/end", data={**form, "form": "x"})).status_code == 403
            assert (await client.post("/end", data={**form, "reason": "not needed"})).status_code == 303
            assert (await run_head(store, run_id)).status == "ended"
            ended = await read(client, address("run", id=run_id))
            assert "ended: not needed" in ended.text
            assert "End…" not in ended.text
        assert (await client.post("/end", data={**form, "id": "gone"})).status_code == 404
    async with looking(store, options={"owner": "ada"}) as client:
        page = (await client.get(address("run", id="chat-1", owner="ada"))).text
        assert "End…" not in page


async def test_pages_that_only_read_change_nothing():
    """They have no form, and none is accepted."""
    store = await filled()
    agent = seats(store)
    await agent.run("Oslo", run_id="trip")
    async with looking(store, options={"agents": [agent], "read_only": True}) as client:
        inbox = (await client.get("/inbox")).text
        assert inbox.count("these pages are read-only") == 2
        assert "End…" not in (await client.get(address("run", id="trip"))).text
        for path in ("/end", "/answer"):
            sent = {"form": "", "id": "trip", "owner": "", "question": "x", "do": "deny"}
            assert (await client.post(path, data=sent)).status_code == 403
    assert (await run_head(store, "trip")).status == "waiting"
