"""Lists say which runs changed, with small reads, and nothing is read while nobody asks."""

from __future__ import annotations

import anyio

from graphagent import Agent, tool
from graphagent.history import RunWatch
from graphagent.inspect import _watch
from graphagent.llm import ToolCall
from graphagent.run import list_runs
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.inspect.pages import Page, address, assistant, filled, looking


class Reads(MemoryStore):
    """A store that counts the items that were read."""

    items = 0

    async def get_many(self, keys):
        found = await super().get_many(keys)
        self.items += len(found)
        return found

    async def scan(self, prefix, **options):
        async for item in super().scan(prefix, **options):
            self.items += 1
            yield item


async def test_a_watch_finds_what_changed_with_small_reads_however_many_runs_there_are():
    """The first round notes what is there; a new run, how far it is, and that it ended are found by the next ones, those of all owners."""
    store, begun, going = Reads(), anyio.Event(), anyio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await going.wait()
        return "waited"

    for number in range(450):
        await assistant(store, "Hello").run("Hi", run_id=f"run-{number:03}", owner="ada" if number % 3 else "")
    watch = RunWatch(store)
    watch.seen([*await list_runs(store), *await list_runs(store, owner="ada")])
    agent = Agent(single_run(), model=ScriptedModel([ToolCall("wait"), "Done."]), tools=[wait], store=store)
    async with anyio.create_task_group() as group:
        found = await looks(watch, store, 6)
        assert found == []
        group.start_soon(agent.start("Wait.", run_id="waits", owner="bob").finish)
        await begun.wait()
        assert await looks(watch, store, 6) == [("waits", "running", 1), ("waits", "running", 3)]
        going.set()
    assert (await looks(watch, store, 1))[-1:] == [("waits", "done", 10)]


async def looks(watch, store, times):
    found = []
    for _ in range(times):
        store.items = 0
        found += [(each.run_id, each.written, each.last) for each in await watch.look()]
        assert store.items <= 210
    return found


async def test_a_list_is_told_how_many_runs_changed_since_it_was_made(monkeypatch):
    """Of those that it shows; tabs that ask at the same time share one look."""
    monkeypatch.setattr(_watch, "_PAUSE", 0.0)
    store = await filled()
    async with looking(store) as client:
        pages = {query: (await client.get(f"/runs{query}")).text for query in ("", "?owner=ada", "?q=nothing")}
        asked = {query: Changes(text).url for query, text in pages.items()}
        assert await told(client, asked) == {"": 0, "?owner=ada": 0, "?q=nothing": 0}
        await assistant(store, "Hello").run("Another", run_id="new", owner="ada")
        await assistant(store, "Hello").run("Another", run_id="newer")
        assert await told(client, asked) == {"": 2, "?owner=ada": 1, "?q=nothing": 0}
        again = {"": Changes((await client.get("/runs")).text).url}
        assert await told(client, again) == {"": 0}
        monkeypatch.setattr(_watch, "_PAUSE", 60.0)
        await told(client, again)
        await assistant(store, "Hello").run("Another", run_id="later")
        assert await told(client, again) == {"": 0}
        assert (await client.get(address("changes", since="x"))).status_code == 200


async def told(client, asked):
    return {query: (await client.get(url)).json()["changed"] for query, url in asked.items()}


class Changes(Page):
    """The address at which a page asks what changed."""

    url = ""

    def handle_starttag(self, tag, attrs):
        super().handle_starttag(tag, attrs)
        self.url = dict(attrs).get("data-changes", self.url)
