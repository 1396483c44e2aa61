"""Who may see the pages, from where, and below which path."""

from __future__ import annotations

import re

import pytest

from graphagent.inspect import Inspector
from graphagent.store import MemoryStore
from tests.inspect.pages import filled, looking, read

TOKEN = "plum-quarry-ledger-ninety"
# The client leaves generators of httpx2 unfinished where an answer comes before the whole request is read, which trio alone remarks on.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator '(httpx2|httpcore2):ResourceWarning")


async def test_a_request_that_is_not_from_here_is_refused():
    """A foreign `Host` or `Origin` gets nothing; every answer forbids keeping it, framing it, and what is not of this server."""
    async with looking(await filled()) as client:
        for headers, status in (
            ({}, 200), ({"Host": "localhost:9"}, 200), ({"Origin": "http://127.0.0.1:8766"}, 200), ({"Host": "evil.example"}, 421),
            ({"Host": "127.0.0.1.evil.example:80"}, 421), ({"Origin": "https://evil.example"}, 403), ({"Origin": "null"}, 403),
        ):  # fmt: skip
            answer = await client.get("/runs", headers=headers)
            assert answer.status_code == status, headers
            assert answer.headers["cache-control"] == "no-store"
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
        assert (await client.post("/runs")).status_code == 405


async def test_a_browser_gives_the_token_once():
    """What it keeps opens this server alone, and is not the token; programs send it with each request."""
    store = await filled()
    async with looking(store, token=TOKEN) as client:
        asked = await client.get("/runs")
        assert asked.status_code == 401
        assert "found" not in asked.text
        assert 'type="password"' in asked.text
        assert (await client.get("/shape.svg?id=found")).status_code == 401
        assert (await client.get("/inspect.css")).status_code == 200
        assert (await client.get("/runs", headers={"Authorization": f"Bearer {TOKEN}x"})).status_code == 401
        assert (await client.get("/runs", headers={"Authorization": f"Bearer {TOKEN}"})).status_code == 200
        for wrong in ("", "token=", f"token={TOKEN}x", "token=" + "x" * 5000, "token=%ff"):
            assert (await client.post("/sign-in", content=wrong)).status_code == 401
        foreign = {"Origin": "https://evil.example"}
        assert (await client.post("/sign-in", data={"token": TOKEN}, headers=foreign)).status_code == 403
        answer = await client.post("/sign-in", data={"token": TOKEN})
        assert answer.status_code == 303
        assert re.search(r"HttpOnly.*SameSite=strict", answer.headers["set-cookie"])
        assert TOKEN not in answer.headers["set-cookie"]
        assert "found" in (await read(client, "/runs")).text
        kept = client.cookies
    async with looking(store, token=TOKEN) as another:
        another.cookies = kept
        assert (await another.get("/runs")).status_code == 401


@pytest.mark.parametrize("taken_out", [True, False])
async def test_it_works_below_a_prefix(taken_out):
    """All links stay below it, whether a proxy takes it out of paths or not."""
    below = "/team/all%20runs"
    async with looking(await filled(), prefix="/team/all runs") as client:
        left = "" if taken_out else below
        assert (await client.get(f"{left}/")).headers["location"] == f"{below}/runs"
        page = await read(client, f"{left}/runs")
        assert len(page.links + page.loaded) > 20
        assert all(each.startswith(f"{below}/") or each == "#content" for each in page.links + page.loaded)


async def test_other_machines_are_served_with_a_token_alone():
    """What is wrong is said before anything is served."""
    pages = Inspector(MemoryStore())
    for host, options, said in (
        ("192.0.2.1", {}, "other machines can reach"),
        ("0.0.0.0", {"token": TOKEN}, "is every address of this machine; name the hosts"),
        ("127.0.0.1", {"token": "short"}, "at least 16 printable ASCII characters"),
        ("127.0.0.1", {"prefix": "inspect/"}, "is not a path"),
    ):
        with pytest.raises(ValueError, match=said):
            await pages.serve(host, 0, **options)
