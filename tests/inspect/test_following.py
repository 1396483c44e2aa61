"""What a page hears of a run that grows while it is looked at, and the path in its drawing."""

from __future__ import annotations

import json
import re
from contextlib import aclosing

import anyio

from graphagent import END, START, Agent, Context, Strategy, node, parallel, tool
from graphagent.history import read_run
from graphagent.inspect._follow import events
from graphagent.llm import ToolCall
from graphagent.run import RunHeader
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.inspect.pages import HOSTILE, address, filled, looking, read


async def test_a_run_that_grows_is_told_by_the_numbers_of_its_entries():
    """The page offers what is new; a browser that connects again with the number that it knows is told what came after."""
    going, told = anyio.Event(), []

    @tool
    async def wait() -> str:
        """Wait."""
        await going.wait()
        return "waited"

    store = MemoryStore()
    agent = Agent(single_run(), model=ScriptedModel([ToolCall("wait"), "Done."]), tools=[wait], store=store)
    async with anyio.create_task_group() as group, looking(store) as client:
        run = agent.start("Wait.", run_id="grows")
        group.start_soon(run.finish)
        async with aclosing(events_of(store)) as heard:
            async for number, name, data in heard:
                told.append(number)
                if name == "over":
                    break
                if data["at"] == "execute_tools" and not going.is_set():
                    page = (await client.get(address("run", id="grows"))).text
                    assert 'data-follow="/follow?id=grows"' in page
                    going.set()
    assert told == sorted(told)
    entries = (await read_run(store, "grows")).entries
    assert told[-1] <= entries[-1].number
    async with looking(store) as client:
        assert "data-follow" not in (await client.get(address("run", id="grows"))).text
        over = await client.get(address("follow", id="grows"), headers={"Last-Event-ID": "7"})
        assert over.headers["content-type"].startswith("text/event-stream")
        assert over.text == "id: 7\nevent: over\ndata: {}\n\n"
        assert (await client.get(address("follow", id="gone"))).status_code == 404


async def events_of(store):
    while True:
        async with aclosing(events(store, RunHeader(run_id="grows"), 0)) as found:
            async for each in found:
                number, name, data = re.fullmatch(r"id: (\d+)\n(?:event: (\w+)\n)?data: (.*)\n\n", each).groups()
                if name != "over" or int(number):  # it had not begun
                    yield int(number), name, json.loads(data)
        await anyio.sleep(0.01)


async def test_the_drawing_shows_the_path_that_was_taken():
    """Edges by their names, also inside of strategies and forks; the page names the nodes that were not reached."""

    @node
    async def first(ctx: Context, text: str) -> str:
        """Return it."""
        return text

    @node
    async def second(ctx: Context, text: str) -> str:
        """Return it."""
        return text

    @node
    async def breaks(ctx: Context, text: str) -> str:
        """Break."""
        raise ValueError(text)

    @node
    async def mends(ctx: Context, error: ValueError) -> str:
        """Mend it."""
        return "mended"

    @node
    async def joins(ctx: Context, both: tuple[str, str]) -> str:
        """Join them."""
        return "".join(both)

    inner = Strategy("inner", START >> first >> END)
    whole = Strategy(
        "whole",
        START >> inner >> parallel(first, second, name="both") >> joins >> breaks,
        breaks >> END,
        breaks.on_error(ValueError) >> mends >> END,
    )
    store = await filled()
    await Agent(whole, store=store).run("x", run_id="path")
    taken = (await read_run(store, "path")).taken
    drawn = (await read_run(store, "path")).strategy.to_svg()
    edges = {*re.findall(r'data-edge="([^"]*)"', drawn)}
    assert {*taken} & edges == edges - {"breaks:0"}
    async with looking(store) as client:
        shown = (await client.get(address("graph.svg", id="path"))).text
        rules = shown.rpartition("<style>")[2]
        assert '[data-edge="breaks\\3a 1"] .edge' in rules
        assert '[data-edge="breaks\\3a 0"]' not in rules
        assert "mends 1 time" in (await read(client, address("run", id="path"))).text
        hostile = (await client.get(address("graph.svg", id="found"))).text
        assert HOSTILE not in hostile
