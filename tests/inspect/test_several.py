"""Several runs of the list are resumed or ended at once, and a page says what became of each."""

from __future__ import annotations

import json

from graphagent.history import forget_runs, run_head
from graphagent.store import MemoryStore
from tests.inspect.pages import Page, address, filled, looking, read
from tests.inspect.test_acts import Shop, until
from tests.inspect.test_inbox import fields


def chosen(*run_ids, owner=""):
    """Return the fields of boxes that were ticked."""
    return {f"run.{json.dumps([owner, each])}": "on" for each in run_ids}


async def test_all_that_failed_are_resumed_and_each_says_what_became_of_it():
    """Of three that are shown, one is removed meanwhile, and one is left to a worker, without its agent; neither is in the way of the other one."""
    shop, other = Shop(store := MemoryStore()), Shop(store, "returns")
    await shop.fail("17", "18")
    await other.fail("r-1")
    async with looking(store, options={"agents": [shop.agent]}) as client:
        page = (await client.get(address("runs", status="failed"))).text
        assert page.count('type="checkbox"') == 4
        assert Page(page).tags.count("form") == 2
        form = {**fields(page), "do": "resume"}
        none = await client.post("/several", data=form)
        assert (none.status_code, none.headers["location"]) == (303, "/runs?chosen=none")
        assert "No run was chosen" in (await read(client, "/runs?chosen=none")).text
        shop.there = shop.sent = True
        await forget_runs(store, run_ids=["18"])
        answer = await client.post("/several", data={**form, "all": "shown"})
        assert answer.status_code == 303
        report = await read(client, answer.headers["location"])
        assert "2 of 3 runs done, 1 not" in report.text
        assert "a worker is to continue it" in report.text
        assert "'18'" in report.text
        assert (await until(store, "17", "done")).status == "done"
        again = await client.post("/several", data={**form, **chosen("17")})
        assert "is done, so there is nothing to resume" in (await read(client, again.headers["location"])).text
        assert (await client.get("/report?of=x")).status_code == 404
    assert (await run_head(store, "r-1")).status == "queued"


async def test_runs_are_ended_after_a_second_look():
    """Without their agents, too. What is done already is said; what is chosen twice is ended once."""
    store = await filled()
    async with looking(store) as client:
        form = fields((await client.get("/runs")).text.partition('action="/several"')[2])
        picked = chosen("../fails & more", "asks", "found")
        asked = await client.post("/several", data={**form, **picked, "do": "ask"})
        assert (asked.status_code, "End 3 runs?" in asked.text) == (200, True)
        assert (await run_head(store, "asks")).status == "waiting"
        sure = {**fields(asked.text), "reason": "not needed", "do": "end"}
        report = await read(client, (await client.post("/several", data=sure)).headers["location"])
        assert "2 of 3 runs done, 1 not" in report.text
        for run_id in ("asks", "../fails & more"):
            assert (await run_head(store, run_id)).reason == "it was ended: not needed"


async def test_what_is_malformed_or_not_of_this_server_changes_nothing():
    """So is a form of pages that only read, and a run of an owner who is not shown here."""
    store = await filled()
    await Shop(store).fail("17", owner="ben")
    async with looking(store, options={"owner": "ada"}) as client:
        page = (await client.get(address("runs"))).text
        assert "checkbox" not in page  # both of hers are done
    async with looking(store) as client:
        form = fields((await client.get("/runs")).text)
    async with looking(store, options={"owner": ""}) as client:
        form = fields((await client.get("/runs")).text)
        for wrong in (
            {"all": "shown", "shown": "{"}, {"all": "shown", "shown": '["17"]'}, {"all": "shown", "shown": "[[1, 2]]"}, {"run.x": "on"},
            {"do": "dance", **chosen("asks")}, {"form": "x", **chosen("asks")},
        ):  # fmt: skip
            assert (await client.post("/several", data={**form, "do": "end", **wrong})).status_code == 403
        origin = {"Origin": "https://evil.example"}
        assert (
            await client.post("/several", data={**form, **chosen("asks"), "do": "end"}, headers=origin)
        ).status_code == 403
        not_hers = await client.post("/several", data={**form, **chosen("17", owner="ben"), "do": "end"})
        assert "0 of 1 run done, 1 not" in (await read(client, not_hers.headers["location"])).text
    async with looking(store, options={"read_only": True}) as client:
        assert "checkbox" not in (await client.get("/runs")).text
        assert (await client.post("/several", data={"form": "", "do": "end", **chosen("asks")})).status_code == 403
    assert (await run_head(store, "17", owner="ben")).status == "failed"
    assert (await run_head(store, "asks")).status == "waiting"
