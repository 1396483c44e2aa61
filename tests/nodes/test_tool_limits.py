"""How many calls of a tool are made at once, and how much of a result the model sees."""

from __future__ import annotations

import anyio
import pytest

from graphagent import Agent, tool
from graphagent.llm import ToolCall, ToolCalls, ToolResult
from graphagent.memory import ContextWindow
from graphagent.store import SqliteStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run


def agent(*tools, calls, **options):
    model = ScriptedModel([ToolCalls(calls), "done"])
    return Agent(single_run(parallel_tools=10), model=model, tools=tools, **options)


def results(agent):
    parts = [part for message in agent.model.requests[-1].messages for part in message.parts]
    return [part for part in parts if isinstance(part, ToolResult)]


class Counted:
    """A tool that knows how many calls of it were made at once."""

    def __init__(self, **limits):
        self.now = self.most = 0

        @tool(**limits)
        async def work() -> str:
            """Work."""
            self.now += 1
            self.most = max(self.most, self.now)
            await anyio.sleep(0.01)
            self.now -= 1
            return "done"

        self.tool = work


async def test_a_tool_is_called_so_many_times_at_once_in_a_run():
    """`concurrency=2` lets two of ten parallel calls in; without it, all ten are made at once."""
    limited, free = Counted(concurrency=2), Counted()
    for each in (limited, free):
        await agent(each.tool, calls=[ToolCall("work") for _ in range(10)]).run("work")
    assert (limited.most, free.most) == (2, 10)


async def test_the_limit_holds_for_all_runs_of_an_event_loop():
    """Runs of several agents share the slots of a tool."""
    limited = Counted(concurrency=3)
    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(agent(limited.tool, calls=[ToolCall("work") for _ in range(4)]).run, "work")
    assert limited.most == 3


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_tool_with_a_limit_serves_one_event_loop_after_the_other(backend):
    """Slots belong to an event loop, and one that ended leaves nothing behind."""
    limited = Counted(concurrency=1)
    for _ in range(2):
        anyio.run(agent(limited.tool, calls=[ToolCall("work"), ToolCall("work")]).run, "work", backend=backend)
    assert limited.most == 1


async def test_waiting_for_a_slot_does_not_count_in_the_time_limit():
    """Each of three calls that come one after the other has its whole time."""

    @tool(concurrency=1, timeout=0.5)
    async def work() -> str:
        """Work."""
        await anyio.sleep(0.2)
        return "done"

    running = agent(work, calls=[ToolCall("work") for _ in range(3)])
    await running.run("work")
    assert [each.content for each in results(running)] == ["done"] * 3


async def test_a_cancelled_call_leaves_its_slot():
    """A call that is given up, while it works or while it waits, does not keep others out."""
    limited = Counted(concurrency=1)
    with anyio.move_on_after(0.001):
        await agent(limited.tool, calls=[ToolCall("work"), ToolCall("work")]).run("work")
    limited.now = 0
    running = agent(limited.tool, calls=[ToolCall("work")])
    await running.run("work")
    assert results(running)[0].content == "done"


async def test_agents_as_tools_have_the_same_limits():
    """An agent is called once at a time, within a time limit, and its answer is shortened."""
    inner = Counted()
    helper = Agent(
        single_run(),
        model=ScriptedModel([ToolCall("work")] * 3 + ["x" * 1000] * 3),
        tools=[inner.tool],
        name="helper",
        description="Helps.",
    )
    limited = helper.as_tool(concurrency=1, max_size=400)
    running = agent(limited, calls=[ToolCall("helper", {"task": "t"}) for _ in range(3)])
    await running.run("work")
    assert inner.most == 1
    assert helper.as_tool() is helper.as_tool()
    slow = Agent(
        single_run(), model=ScriptedModel([ToolCall("work"), "done"]), tools=[sleepy], name="slow", description="s"
    )
    running = agent(slow.as_tool(timeout=0.1), calls=[ToolCall("slow", {"task": "t"})])
    await running.run("work")
    assert "'slow' did not return within 0.1 seconds" in results(running)[0].content


@tool(name="work")
async def sleepy() -> str:
    """Sleep."""
    await anyio.sleep(1000)
    return ""


@tool(max_size=400)
def read() -> str:
    """Read a lot."""
    return "a" * 5_000 + "z" * 5_000


async def test_the_model_sees_a_part_of_a_long_result_and_the_whole_is_kept(tmp_path):
    """Head and tail are shown, with the number of characters between them; the journal has all of it."""
    store = SqliteStore(tmp_path / "runs.db")
    running = agent(read, calls=[ToolCall("read", id="c")], store=store)
    result = await running.run("read", run_id="r")
    [seen] = results(running)
    assert len(seen.content) <= 400
    assert seen.content.startswith("aaa")
    assert seen.content.endswith("zzz")
    assert "characters are left out here" in seen.content
    kept = (await running.read("r")).memory.steps[1].results[0]
    assert kept.full == read()
    assert kept.content == seen.content
    assert result.output == "done"


async def test_a_result_that_fits_and_images_are_left_as_they_are():
    """Only text that is too long is shortened, whatever form the tool returned it in."""

    @tool(max_size=400)
    def short() -> str:
        """Return a little."""
        return "x" * 400

    @tool(max_size=400)
    def own() -> ToolResult:
        """Return a result of its own."""
        return ToolResult("", "", "y" * 1000, value=[1])

    running = agent(short, own, calls=[ToolCall("short"), ToolCall("own")])
    await running.run("read")
    first, second = results(running)
    assert (first.content, first.full) == ("x" * 400, "")
    assert len(second.content) <= 400
    assert second.full == "y" * 1000


async def test_what_was_left_out_can_be_read_with_a_context_window():
    """The whole is one: `ContextWindow` shortens further, from the whole, and its tool reads on in it."""
    model = ScriptedModel(
        [
            ToolCall("long", id="c"),
            ToolCall("read_result", {"call_id": "c", "start": 4_990, "length": 20}, id="d"),
            "done",
        ]
    )

    @tool(max_size=2_000)
    def long() -> str:
        """Read a lot."""
        return read()

    running = Agent(single_run(), model=model, tools=[long])
    running.install(ContextWindow, observation_chars=500)
    await running.run("read")
    first, second = results(running)
    assert len(first.content) <= 500
    assert "of 10,000 characters are left out here; to read on, call read_result" in first.content
    assert second.content.endswith("a" * 10 + "z" * 10)


async def test_the_answer_to_a_deferred_call_is_shortened():
    """What comes from outside is limited as well."""

    @tool(deferred=True, max_size=400)
    def later() -> str:
        """Ask someone else."""
        return ""

    running = agent(later, calls=[ToolCall("later", id="c")])
    await running.run("ask")
    running.last.answer(answers={"c": "x" * 1000})
    await running.last.finish()
    assert len(results(running)[0].content) <= 400


async def test_tools_of_mcp_servers_have_the_same_limits():
    """The settings of a server are those of each of its tools; by default the model sees 100,000 characters."""
    from tests.mcp.test_stdio import stdio

    server = stdio(only=["text"], concurrency=2)
    [found] = server.tools_from(await server.list_tools())
    assert (found.concurrency, found.max_size) == (2, 100_000)
    running = agent(server, calls=[ToolCall("text", {"size": 10_000_000})])
    await running.run("read")
    assert len(results(running)[0].content) <= 100_000
    await server.aclose()
