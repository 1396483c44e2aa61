"""`@tool(cached=…)`: which results are used again, and that approvals, events and errors stay as they are."""

from __future__ import annotations

import signal
import sys
from dataclasses import replace

import pytest

from graphagent import Agent, Context, tool
from graphagent._clock import clock
from graphagent.errors import FeatureError, NodeFailedError
from graphagent.events import CacheUsed, ToolCalled, ToolReturned
from graphagent.graph import CachePolicy
from graphagent.history import clear_cache, forget_runs
from graphagent.llm import Approve, Deny, Image, Tool, ToolCall, ToolCalls, ToolResult
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests import forkserver

PNG = b"\x89PNG\r\n\x1a\n"


class Weather:
    """A tool that counts its calls, and what its results are."""

    def __init__(self, *, fails=0, **options):
        self.called, self.fails = 0, fails
        options.setdefault("cached", 60)

        @tool(**options)
        async def weather(city: str, days: int = 1) -> str:
            """Tell the weather."""
            self.called += 1
            if self.called <= self.fails:
                raise ConnectionError("down")
            return f"sunny in {city} for {days}: {self.called}"

        self.tool = weather


def agent(store, *tools, calls, **options):
    return Agent(single_run(), model=ScriptedModel([*calls, "done"]), tools=tools, store=store, **options)


async def results(store, *tools, calls, owner="", **options):
    """Let a model make calls, one after the other, and return what it sees of their results."""
    made = agent(store, *tools, calls=[ToolCalls([call]) for call in calls], **options)
    await made.run("go", owner=owner)
    messages = made.model.requests[-1].messages
    return [part for message in messages for part in message.parts if isinstance(part, ToolResult)]


async def test_a_result_is_used_for_equal_arguments(store):
    """Within a run and in later ones; the order of arguments does not count, an argument that is left out does."""
    weather = Weather()
    oslo = {"city": "Oslo", "days": 2}
    calls = [
        ToolCall("weather", oslo),
        ToolCall("weather", dict(reversed(oslo.items()))),
        ToolCall("weather", {"city": "Oslo"}),
    ]
    first = await results(store, weather.tool, calls=calls)
    assert [each.content for each in first] == ["sunny in Oslo for 2: 1"] * 2 + ["sunny in Oslo for 1: 2"]
    assert len({each.call_id for each in first}) == 3
    again = await results(store, weather.tool, calls=calls[:1])
    assert again[0].content == "sunny in Oslo for 2: 1"
    assert weather.called == 2


async def test_results_expire_and_belong_to_one_owner_and_one_version(store):
    """After `ttl`, for another owner and under another version, a tool is called; under a `key`, tools share results."""
    now = [1_000_000]
    token = clock.set(lambda: now[0])
    call = [ToolCall("weather", {"city": "Oslo"})]
    weather = Weather(cached=10)
    try:
        for owner, time in (("ada", 0), ("ada", 9_000), ("bob", 9_000), ("ada", 10_000)):
            now[0] = 1_000_000 + time
            await results(store, weather.tool, calls=call, owner=owner)
    finally:
        clock.reset(token)
    assert weather.called == 3
    newer = replace(weather.tool, cached=CachePolicy(version="2"))
    await results(store, newer, calls=call, owner="ada")
    assert weather.called == 4
    for name in ("weather", "wetter"):
        shared = replace(weather.tool, name=name, cached=CachePolicy(key="weather"))
        await results(store, shared, calls=[ToolCall(name, {"city": "Oslo"})])
    assert weather.called == 5


async def test_tools_that_a_model_sees_differently_do_not_share_results(store):
    """The name, the description and the parameters tell tools apart."""
    weather = Weather()
    call = [ToolCall("weather", {"city": "Oslo"})]
    for other in (weather.tool, replace(weather.tool, description="Tell the weather of tomorrow."),
                  replace(weather.tool, parameters={"type": "object"})):  # fmt: skip
        await results(store, other, calls=call)
    assert weather.called == 3


async def test_errors_are_not_kept(store):
    """A tool that raised, and arguments that do not fit, are no results to keep."""
    weather = Weather(fails=1)
    call = ToolCall("weather", {"city": "Oslo"})
    wrong = ToolCall("weather", {"town": "Oslo"})
    found = await results(store, weather.tool, calls=[wrong, call, call, call, wrong])
    assert [each.is_error for each in found] == [True, True, False, False, True]
    assert weather.called == 2


async def test_events_say_that_a_result_was_found(store):
    """A call and its result are events as before, with a CacheUsed between them where nothing was called."""
    heard = []
    call = ToolCall("weather", {"city": "Oslo"})
    made = agent(store, Weather().tool, calls=[ToolCalls([call]), ToolCalls([call])])
    for kind in (ToolCalled, CacheUsed, ToolReturned):
        made.on(kind, heard.append)
    await made.run("go")
    assert [type(each) for each in heard] == [ToolCalled, ToolReturned, ToolCalled, CacheUsed, ToolReturned]
    assert heard[3].call == heard[2].call
    assert heard[4].result.call_id == heard[2].call.id


async def test_the_model_sees_the_same_of_a_result_that_was_found(store):
    """Images, the head and tail of a long result, and the whole of it are kept."""

    @tool(cached=CachePolicy(), max_size=400)
    async def draw(size: int) -> list[Image | str]:
        """Draw."""
        return [Image(PNG * 100, "image/png"), "x" * size]

    first, second = await results(store, draw, calls=[ToolCall("draw", {"size": 50_000})] * 2)
    assert replace(second, call_id=first.call_id) == first
    assert (len(second.full), len(second.images), second.content) == (50_000, 1, first.content)


@pytest.mark.parametrize("answer", [Approve(), Approve(arguments={"city": "Rome"}), Deny("no")])
async def test_a_person_is_asked_all_the_same(store, answer):
    """An approval is asked for each call, changed arguments count, and what is refused is not found."""
    weather = Weather(approve=True)
    await _approved(store, weather, Approve())
    content = await _approved(store, weather, answer)
    if isinstance(answer, Deny):
        assert content == "Error: a person refused this call: no"
    else:
        assert content == ("sunny in Rome for 1: 2" if answer.arguments else "sunny in Oslo for 1: 1")


async def _approved(store, weather, answer):
    made = agent(store, weather.tool, calls=[ToolCall("weather", {"city": "Oslo"})])
    run = made.start("go")
    assert (await run.finish()).status == "waiting"
    run.answer(answer)
    await run.finish()
    return made.model.requests[-1].messages[-1].parts[0].content


async def test_a_recorded_result_is_not_looked_for_again(store):
    """A rerun takes the result from the record, whatever the cache has."""
    weather = Weather()
    made = agent(store, weather.tool, calls=[ToolCall("weather", {"city": "Oslo"})])
    await made.run("go", run_id="r")
    assert await clear_cache(store) == 1
    await made.rerun("r")
    assert weather.called == 1
    assert await clear_cache(store) == 0


async def test_results_are_forgotten_with_the_runs_of_their_owner(store):
    """Another owner's stay."""
    weather = Weather()
    call = [ToolCall("weather", {"city": "Oslo"})]
    for owner in ("ada", "bob"):
        await results(store, weather.tool, calls=call, owner=owner)
    await forget_runs(store, owner="ada")
    for owner in ("ada", "bob"):
        await results(store, weather.tool, calls=call, owner=owner)
    assert weather.called == 3


async def test_without_a_store_a_run_is_refused():
    """The error names the tool before the first request; a tool of a server, which is not known by then, when it is called."""
    call = ToolCall("weather", {"city": "Oslo"})
    made = agent(None, Weather().tool, calls=[call])
    with pytest.raises(FeatureError, match="tool 'weather' is cached, and the agent has no store"):
        await made.run("go")
    assert made.model.requests == []

    class Server:
        name = "server"
        required = True

        async def list_tools(self, ctx):
            return [{"name": "weather"}]

        def tools_from(self, listed):
            return [Weather().tool]

        async def aclose(self): ...

    with pytest.raises(NodeFailedError) as info:
        await agent(None, Server(), calls=[call]).run("go")
    assert isinstance(info.value.__cause__, FeatureError)


async def test_what_is_no_policy_is_refused():
    """Times that are none, other types, and a deferred tool, which is never called."""
    for given, error in ((0, ValueError), (-5, ValueError), (True, TypeError), ("60", TypeError)):
        with pytest.raises(error):
            Weather(cached=given)
    with pytest.raises(ValueError, match="is deferred, so it is never called"):
        Weather(deferred=True)

    async def run(arguments, context): ...

    with pytest.raises(TypeError, match="cached is seconds or a CachePolicy, not an int"):
        Tool("x", "X.", {"type": "object"}, run, cached=5)


KILLED = """
import os, sys
import anyio
from graphagent import Agent, Context, tool
from graphagent.llm import ToolCall
from graphagent.run._policies import CacheEntry
from graphagent.store import SqliteStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

@tool(cached=60, in_flight="fail")
async def weather(city: str) -> str:
    "Tell the weather."
    with open(sys.argv[1] + "/log", "a") as log:
        log.write("called\\n")
    return "sunny"

async def main():
    replies = [ToolCall("weather", {"city": "Oslo"}), "done"]
    if sys.argv[2] == "kill":
        put = CacheEntry.put

        async def dying(self, value, kind):
            await put(self, value, kind)
            os.kill(os.getpid(), 9)

        CacheEntry.put = dying
    async with SqliteStore(sys.argv[1] + "/runs.db") as store:
        model = ScriptedModel(replies if sys.argv[2] == "kill" else replies[1:])
        agent = Agent(single_run(), model=model, tools=[weather], store=store)
        await (agent.run("go", run_id="r") if sys.argv[2] == "kill" else agent.resume("r"))
        print(model.requests[-1].messages[-1].parts[0].content)

anyio.run(main)
"""


async def test_a_call_in_flight_keeps_its_rule_when_the_process_dies(tmp_path):
    """Killed after the result was kept and before the run recorded it, a call with `in_flight="fail"` is not made again."""
    (tmp_path / "program.py").write_text(KILLED)
    command = [sys.executable, str(tmp_path / "program.py"), str(tmp_path)]
    killed = await forkserver.ended([*command, "kill"], check=False)
    assert killed.returncode == -signal.SIGKILL
    resumed = await forkserver.ended([*command, "resume"])
    assert b"nobody knows whether it took effect" in resumed.stdout
    assert (tmp_path / "log").read_text() == "called\n"


async def test_the_context_is_no_argument(store):
    """A tool with a Context is called by its arguments alone."""

    @tool(cached=60)
    async def where(ctx: Context) -> str:
        """Tell the run."""
        return ctx.run_id

    first, second = await results(store, where, calls=[ToolCall("where"), ToolCall("where")])
    (later,) = await results(store, where, calls=[ToolCall("where")])
    assert first.content == second.content == later.content
