"""Two runs side by side."""

from __future__ import annotations

from graphagent.store import MemoryStore
from tests.inspect.pages import HOSTILE, address, assistant, looking, read


async def test_two_runs_are_shown_from_the_first_difference_on():
    """A fork leads to the run that it comes from; what only one did has nothing beside it. Runs of the same strategy are offered."""
    store = MemoryStore()
    await assistant(store, "Oslo.").run("Where?", run_id="first")
    agent = assistant(store, f"Bergen {HOSTILE}")
    await agent.fork("first", at=1, run_id="second")
    async with looking(store) as client:
        run = await read(client, address("run", id="second"))
        link, choice = [each for each in run.links if each.startswith("/compare?")]
        page = await read(client, link)
        assert "1 entry in common" in page.text
        assert page.text.index("Oslo.") < page.text.index("Bergen <script>")
        same = await read(client, address("compare", a="first", b="first"))
        assert "This is one run" in same.text
        assert (await client.get(address("compare", a="first", b="gone"))).status_code == 404
        offered = await read(client, choice)
        assert [each for each in offered.links if each.startswith("/compare?")] == [
            address("compare", a="second", b="first")
        ]
    async with looking(store, options={"owner": "ada"}) as client:
        assert (await client.get(link)).status_code == 404
