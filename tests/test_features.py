"""Features: each defines only the methods that it needs, whether or not it inherits from `Feature`."""

from __future__ import annotations

import pytest

from graphagent import Agent, tool
from graphagent.errors import ModelRequestError, NodeFailedError
from graphagent.llm import ToolCall, ToolResult
from graphagent.memory import KnownNote, Notes, NotesStep
from graphagent.protocols import Feature
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


ADDING = ToolCall("add", {"a": 1, "b": 2})


def agent_with(feature, replies=(), **settings):
    model = ScriptedModel([*replies, "done"])
    agent = Agent(single_run(), model=model, tools=[add], **settings)
    return model, agent, agent.install(feature)


class Nothing(Feature):
    """Keeps every default."""


async def test_the_defaults_change_nothing():
    """A class that only inherits is a feature; the run, its journal and its requests are the same without it."""
    _, agent, installed = agent_with(Nothing, [ADDING], store=MemoryStore())
    assert (await agent.run("x", run_id="one")).output == "done"
    assert (await agent.resume("one")).output == "done"
    assert agent.features == {Nothing: installed}
    assert installed.bind(None) is installed
    assert list(installed.tools) == []
    assert installed.refers == ()
    assert await installed.make_room(None, ()) is False
    result = ToolResult("1", "add", "3")
    assert installed.shown(result) is result


def test_what_is_no_feature_is_refused():
    """The error names it, and says what to inherit from."""
    agent = Agent(single_run(), model=ScriptedModel([]))
    with pytest.raises(TypeError, match=r"dict is not a feature: .* inherit from protocols.Feature"):
        agent.install(dict)
    with pytest.raises(TypeError, match=r"Notes is not a feature: .* install\(NoteMemory, notes=…\)"):
        agent.install(Notes, MemoryStore())
    assert agent.features == {}


class Hiding(Feature):
    """Changes what tools returned, and nothing else."""

    def shown(self, result):
        return ToolResult(result.call_id, result.name, "hidden")


class More(Feature):
    """Offers a tool, and nothing else."""

    @property
    def tools(self):
        return [double]


class Waiting(Feature):
    """Looks back at ended runs, and nothing else."""

    def __init__(self):
        self.seen = []

    async def ended(self, ctx, output):
        self.seen.append(output)


class Refusing(Feature):
    """Looks at requests, and nothing else."""

    def check_request(self, ctx, request, output):
        raise ModelRequestError("not this one")


async def test_one_method_is_enough():
    """Each optional method counts without the others."""
    model, agent, _ = agent_with(Hiding, [ADDING])
    await agent.run("x")
    assert "hidden" in str(model.requests[1].messages)
    model, agent, _ = agent_with(More)
    await agent.run("x")
    assert [each.name for each in model.requests[0].tools] == ["add", "double"]
    _, agent, waiting = agent_with(Waiting)
    await agent.run("x")
    assert waiting.seen == ["done"]
    _, agent, _ = agent_with(Refusing)
    with pytest.raises(NodeFailedError, match="not this one"):
        await agent.run("x")


class Letters(Feature):
    """Shows the model a letter, which it keeps itself."""

    def __init__(self):
        self.letters = {"l1": "Dear Ada"}

    refers = ("note",)

    async def begin(self, ctx):
        if not ctx.memory.run_steps[1:]:
            await ctx.add(NotesStep((KnownNote("l1", self.letters["l1"], kept=True),)))

    async def look_up(self, known, *, owner):
        assert all(isinstance(each, KnownNote) for each in known)
        return [KnownNote(each.id, self.letters.get(each.id, "[burnt]"), kept=True) for each in known]


class MoreLetters(Letters):
    """Refers to the same kind, and is installed later."""

    async def begin(self, ctx):
        pass

    async def look_up(self, known, *, owner):
        raise AssertionError


async def test_what_a_feature_refers_to_is_looked_up_whenever_the_run_is_read():
    """The log has the reference alone, and the feature that was installed first is asked for each kind to which it refers."""
    store = MemoryStore()
    _, agent, letters = agent_with(Letters, store=store)
    agent.install(MoreLetters)
    await agent.run("x", run_id="one")
    assert not [item async for item in store.scan(()) if b"Dear Ada" in item.value]
    for text in ("Dear Ada", "[burnt]"):
        memory = (await agent.state_at("one", (await agent.history("one"))[-1].number)).memory
        assert [each.notes[0].content for each in memory.steps if isinstance(each, NotesStep)] == [text]
        letters.letters.clear()


class Own:
    """Inherits from nothing; its `tools` are of another kind, and it lacks the other methods of their group."""

    tools = ("hammer",)

    def install(self, agent):
        pass

    async def begin(self, ctx):
        pass

    def bind(self, ctx):
        return self


class OwnPrompts(Own):
    """Inherits from nothing of ours, and has the whole group; its tools are set when it is made."""

    def __init__(self):
        self.tools = (double,)
        self.asked = 0

    def shown(self, result):
        return ToolResult(result.call_id, result.name, "hidden")

    async def before_request(self, ctx, tools):
        self.asked += 1

    async def make_room(self, ctx, tools):
        return False


async def test_a_class_that_does_not_inherit_is_a_feature_too():
    """Methods that belong together count only together, since a name alone may mean something else."""
    model, agent, installed = agent_with(Own, [ADDING])
    assert (await agent.run("x")).output == "done"
    assert [each.name for each in model.requests[0].tools] == ["add"]
    assert agent.features == {Own: installed}
    model, agent, installed = agent_with(OwnPrompts, [ADDING])
    assert (await agent.run("x")).output == "done"
    assert [each.name for each in model.requests[0].tools] == ["add", "double"]
    assert installed.asked == 2
    assert "hidden" in str(model.requests[1].messages)


def test_a_misspelt_method_of_a_feature_is_refused():
    """It would never be called; methods of one's own are free."""

    class Wrong(Feature):
        async def around_models(self, ctx, request, proceed):
            return await proceed(request)

    class Own(Feature):
        async def around_model(self, ctx, request, proceed):
            return await proceed(request)

        def report(self): ...

    agent = Agent(single_run(), model=ScriptedModel([]))
    with pytest.raises(
        TypeError, match="has a method 'around_models', which would never be called; did you mean around_model"
    ):
        agent.install(Wrong)
    agent.install(Own)
