"""What a run is passed as `deps`: found by nodes and tools, checked at the door, never stored."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import pytest

from graphagent import END, START, Agent, Context, Strategy, node, tap, tool
from graphagent.errors import NodeFailedError
from graphagent.graph import each
from graphagent.llm import ToolCall, ToolCalls
from graphagent.nodes import ask_human, llm_request
from graphagent.run import RunStream
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

SECRET = "sesame-7319"


class Db:
    """A connection: nothing that could be stored."""

    def __init__(self, name: str = "db"):
        self.name = name
        self.lock = (each for each in ())  # neither copied nor pickled

    def __repr__(self):
        return f"Db({self.name!r})"


class ReadOnly(Db): ...


@node
async def find(ctx: Context[Db], text: str) -> str:
    return f"{text} in {ctx.deps.name}"


@node
async def plain(ctx: Context, text: str) -> str:
    return f"{text}, {ctx.deps}"


finding = Strategy("finding", START >> find >> END)


async def test_nodes_find_what_the_run_was_passed():
    """It is the same object, whichever call executes the run; an object of a subclass fits too."""
    agent, db = Agent(finding), ReadOnly("shelf")
    assert (await agent.run("moss", deps=db)).output == "moss in shelf"
    assert (await agent.start("fern", deps=db).finish()).output == "fern in shelf"
    async with agent.stream("ivy", deps=db) as events:
        async for _ in events:
            pass
    assert events.result.output == "ivy in shelf"


def test_run_sync_passes_it():
    """A script passes it as async code does."""
    assert Agent(finding).run_sync("moss", deps=Db()).output == "moss in db"


async def test_a_run_without_it_has_none():
    """A plain Context asks for nothing, and finds None, or what the run was passed for others."""
    agent = Agent(Strategy("plain", START >> plain >> END))
    assert (await agent.run("moss")).output == "moss, None"
    assert (await agent.run("moss", deps=Db())).output == "moss, Db('db')"


async def test_runs_of_one_agent_have_each_their_own():
    """What one run was passed is not there in the next."""
    agent = Agent(Strategy("plain", START >> plain >> END))
    await agent.run("moss", deps=Db())
    assert (await agent.run("moss")).output == "moss, None"


async def test_tools_taps_branches_and_tests_of_outlets_find_it():
    """Wherever a context is, it is there."""
    seen: list[tuple[str, Any]] = []

    @tool
    async def look(ctx: Context[Db], text: str) -> str:
        """Look something up."""
        seen.append(("tool", ctx.deps))
        return "nothing"

    @tap
    async def watch(ctx: Context[Db], value: object) -> None:
        seen.append(("tap", ctx.deps))

    @node
    async def split(ctx: Context[Db], text: str) -> list[str]:
        return text.split()

    @node
    async def join(ctx: Context, texts: list[str]) -> str:
        return "; ".join(texts)

    def known(ctx: Context[Db], text: str) -> bool:
        seen.append(("test", ctx.deps))
        return True

    asking = single_run()
    strategy = Strategy(
        "all", START >> asking >> watch >> split >> each(find) >> join, join.when(known) >> END, join.otherwise() >> END
    )
    db = Db()
    model = ScriptedModel([ToolCalls([ToolCall("look", {"text": "moss"})]), "a b"])
    result = await Agent(strategy, model=model, tools=[look]).run("t", deps=db)
    assert result.output == "a in db; b in db"
    assert [(where, given is db) for where, given in seen] == [("tool", True), ("tap", True), ("test", True)]


async def test_an_agent_that_is_called_as_a_tool_gets_its_callers():
    """Also when both are resumed, where it is passed again."""

    @tool(approve=True)
    async def look(ctx: Context[Db], text: str) -> str:
        """Look something up."""
        return f"{text} in {ctx.deps.name}"

    store = MemoryStore()
    inner = ScriptedModel([ToolCalls([ToolCall("look", {"text": "moss"})]), lambda request: request.messages[-1].text])
    outer = ScriptedModel([ToolCalls([ToolCall("helper", {"task": "t"})]), lambda request: request.messages[-1].text])

    def made():
        helper = Agent(single_run(), model=inner, tools=[look], name="helper", description="Helps.")
        return Agent(single_run(), model=outer, tools=[helper], store=store)

    with pytest.raises(TypeError, match=r"tool 'helper/look' takes Context\[Db\], and deps= is missing"):
        await made().run("t")
    waiting = await made().run("t", deps=Db("first"))
    assert waiting.status == "waiting"
    with pytest.raises(TypeError, match="helper/look"):
        await made().resume(waiting.run_id, answer=True)
    result = await made().resume(waiting.run_id, answer=True, deps=Db("second"))
    assert result.output == "moss in second"


async def test_it_is_passed_again_on_resume_and_never_stored():
    """Neither the object nor what it says of itself is in the store; without it the run cannot go on, and is not lost."""

    @node
    async def uses(ctx: Context[Db], text: str) -> str:
        return f"{text} {len(ctx.deps.name)}"

    store = MemoryStore()
    strategy = Strategy("asks", START >> uses >> ask_human("Go on?", str) >> find >> END)
    waiting = await Agent(strategy, store=store).run("moss", deps=Db(SECRET))
    stored = [item.value async for item in store.scan(())]
    assert any(b"moss 11" in data for data in stored)
    assert not any(SECRET.encode() in data for data in stored)

    agent = Agent(strategy, store=store)
    with pytest.raises(TypeError, match=r"deps= is missing; write agent\.resume\(run_id, deps=…\) with a Db"):
        await agent.resume(waiting.run_id, answer="yes")
    run = await agent.read(waiting.run_id)  # to look at it, nothing is needed
    assert run.status == "waiting"
    run = await agent.read(waiting.run_id, deps=Db("other"))
    run.answer("yes")
    assert (await run.finish()).output == "yes in other"
    # What has ended is only read.
    assert (await agent.resume(waiting.run_id)).output == "yes in other"


async def test_forks_and_reruns_get_their_own():
    """Without it nothing is begun."""
    store = MemoryStore()
    agent = Agent(finding, store=store)
    ended = await agent.run("moss", deps=Db(), run_id="one")
    before = {item.key async for item in store.scan(())}
    with pytest.raises(TypeError, match=r"write agent\.fork\(origin, …, deps=…\) with a Db"):
        await agent.fork(ended.run_id, at=1, run_id="two")
    with pytest.raises(TypeError, match=r"write agent\.rerun\(run_id, deps=…\) with a Db"):
        await agent.rerun(ended.run_id, new_id="three")
    assert {item.key async for item in store.scan(())} == before
    assert (await agent.fork(ended.run_id, at=1, run_id="two", deps=Db("fork"))).output == "moss in fork"
    assert (await agent.rerun(ended.run_id, new_id="three", deps=Db("rerun"))).output == "moss in rerun"


@pytest.mark.parametrize("wrong", [None, 3, Db, "db"])
async def test_a_run_is_refused_before_its_first_node_where_it_does_not_fit(wrong):
    """The error names the node, the type and the line to write; the store stays empty."""
    executed: list[str] = []

    @node
    async def first(ctx: Context, text: str) -> str:
        executed.append(text)
        return text

    store = MemoryStore()
    agent = Agent(Strategy("late", START >> first >> find >> END), store=store)
    for begun in (agent.run, agent.start, agent.stream):
        with pytest.raises(TypeError, match=r"node 'find' takes Context\[Db\].*agent\.run\(task, deps=…\) with a Db"):
            found = begun("moss", deps=wrong)
            await (found if begun == agent.run else found.finish())
    assert executed == []
    assert [item async for item in store.scan(())] == []


async def test_an_error_shows_nothing_of_it():
    """It may hold passwords: only its class is named."""
    with pytest.raises(TypeError) as caught:
        await Agent(finding).run("moss", deps=SECRET)
    assert SECRET not in str(caught.value)


class Finds(Protocol):
    name: str


@runtime_checkable
class Named(Protocol):
    name: str


@pytest.mark.parametrize(
    ("asked", "fits", "refused"),
    [
        (Db | None, [None, Db()], [3]),
        (Db | str, [Db(), "db"], [None, 3]),
        (Any, [None, Db(), 3], []),
        (object, [None, Db(), 3], []),
        (None, [None, Db()], []),
        (Named, [Db()], [3, None]),
        (Finds, [Db(), 3], [None]),  # what cannot be tested passes, but that nothing was passed is known
        (dict[str, int], [{}, {"a": 1}], [{"a": "b"}, [], None]),
    ],
    ids=str,
)
async def test_unions_protocols_and_any_are_checked_as_far_as_they_can_be(asked, fits, refused):
    """What fits is let in, and the rest is refused."""

    async def take(ctx, text: str) -> str:
        return text

    take.__annotations__["ctx"] = Context[asked]
    agent = Agent(Strategy("takes", START >> node(take) >> END))
    for deps in fits:
        assert (await agent.run("moss", deps=deps)).output == "moss"
    for deps in refused:
        with pytest.raises(TypeError, match="node 'take' takes Context"):
            await agent.run("moss", deps=deps)


async def test_a_context_is_recognised_however_it_is_written():
    """As a text, as one of several, and in a class that is callable; a node that takes it second is told so."""

    @tool
    def look(text: str, ctx: Context[Db] | None = None) -> str:
        """Look something up."""
        return ctx.deps.name if ctx is not None else ""

    assert list(look.parameters["properties"]) == ["text"]

    class Finder:
        async def __call__(self, ctx: Context[Db], text: str) -> str:
            return ctx.deps.name

    agent = Agent(Strategy("callable", START >> node(name="finder")(Finder()) >> END))
    with pytest.raises(TypeError, match="node 'finder'"):
        await agent.run("moss")
    assert (await agent.run("moss", deps=Db())).output == "db"

    with pytest.raises(TypeError, match="takes the context first"):

        @node
        async def swapped(text: str, ctx: Context[Db]) -> str:
            return text


async def test_a_subgraphs_nodes_and_tools_are_asked_too():
    """The path says where."""

    @tool
    def look(text: str, ctx: Context[Db]) -> str:
        """Look something up."""
        return ctx.deps.name

    inner = Strategy("inner", START >> find >> END)
    agent = Agent(Strategy("outer", START >> inner >> END))
    with pytest.raises(TypeError, match="node 'inner/find'"):
        await agent.run("moss")
    with_tools = single_run().using(tools=[look], model=ScriptedModel(["done"]))
    agent = Agent(Strategy("outer", START >> with_tools >> END))
    with pytest.raises(TypeError, match="tool 'single_run/look'"):
        await agent.run("moss")
    assert (await agent.run("moss", deps=Db())).output == "done"


async def test_a_stopped_run_keeps_it_in_its_process():
    """Going on in the same process needs nothing more."""
    failing = [True]

    @node
    async def once(ctx: Context[Db], text: str) -> str:
        if failing:
            failing.clear()
            raise ValueError("not yet")
        return ctx.deps.name

    run = Agent(Strategy("once", START >> once >> END)).start("moss", deps=Db())
    with pytest.raises(NodeFailedError):
        await run.finish()
    stream = RunStream(run)
    async with stream as events:
        async for _ in events:
            pass
    assert stream.result.output == "db"
    assert llm_request().context is None
