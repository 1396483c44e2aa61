"""The ready-made strategies: their pictures, every edge they have, what they refuse."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import graphagent_strategies
from graphagent import END, START, Agent, Strategy, tool
from graphagent.events import FactsLoaded, NodeFinished
from graphagent.llm import ToolCall
from graphagent.memory import AgentMemory, FileMemoryProvider, Subject
from graphagent.nodes import llm_request
from graphagent.testing import ScriptedModel
from graphagent_strategies import (
    Expert,
    chat,
    personal,
    plan_and_execute,
    react,
    reflect,
    research,
    route,
    single_run,
    verify_with_retry,
)

USER = Subject("user", "the user")
FACTORIES = [chat, personal, plan_and_execute, react, reflect, research, route, single_run, verify_with_retry]
ANSWERING = Strategy("answering", START >> llm_request(tools=False) >> END)
EXPERTS = {"billing": Expert("invoices", ANSWERING), "support": Expert("everything else", ANSWERING)}


def _made(factory, **options):
    """Make a strategy as its docstring draws it."""
    return factory(EXPERTS, **options) if factory is route else factory(**options)


@tool
def weather(city: str) -> str:
    """Give the weather of a city."""
    return f"sunny in {city}"


def _look(city):
    return ToolCall("weather", {"city": city})


def _executed(agent):
    """The names of the nodes, as they are executed."""
    nodes = []
    agent.on(NodeFinished, lambda event: nodes.append(event.node))
    return nodes


def _walked(nodes):
    """The edges between neighbours, START and END included."""
    return set(zip(["START", *nodes], [*nodes, "END"], strict=True))


def _edges(strategy):
    return {(getattr(edge.source, "name", "START"), getattr(edge.target, "name", "END")) for edge in strategy.edges}


@pytest.mark.parametrize("factory", FACTORIES, ids=lambda factory: factory.__name__)
def test_the_picture_in_the_docstring_is_the_strategy(factory):
    """What the docstring draws is what `to_mermaid` draws."""
    [drawn] = re.findall(r"```mermaid\n(.*?)```", "\n".join(map(str.strip, factory.__doc__.splitlines())), re.DOTALL)
    assert drawn.split("\n") == [line.strip() for line in _made(factory).to_mermaid().split("\n")]


@pytest.mark.parametrize("factory", FACTORIES, ids=lambda factory: factory.__name__)
def test_a_strategy_has_only_named_options_and_no_model_inside(factory):
    """Each call gives a new strategy, under the name that is asked for."""
    assert _made(factory).name == factory.__name__
    assert _made(factory, name="other").name == "other"
    with pytest.raises(TypeError, match="positional"):
        factory(None, "other")


def test_no_file_is_missing_here():
    """Every function of the room is tested above."""
    door = Path(graphagent_strategies.__file__)
    named = {
        each.name
        for line in ast.parse(door.read_text()).body
        if isinstance(line, ast.ImportFrom)
        for each in line.names
    }
    assert named - {"annotations"} == {"Expert", *(factory.__name__ for factory in FACTORIES)}
    assert all(len(path.read_text().splitlines()) <= 120 for path in door.parent.glob("*.py"))


async def test_a_single_run_calls_tools_until_there_is_text():
    """Every edge of `single_run` is taken by one tool call and an answer."""
    model = ScriptedModel([_look("Oslo"), "It is sunny."])
    agent = Agent(single_run(), model=model, tools=[weather])
    nodes = _executed(agent)
    result = await agent.run("How is Oslo?")
    assert result.output == "It is sunny."
    assert nodes == ["llm_request", "execute_tools", "llm_request"]
    assert _walked(nodes) == _edges(agent.strategy)
    assert model.requests[1].messages[-1].text == "sunny in Oslo"


async def test_react_thinks_without_tools_and_acts_with_them():
    """A thought stands in the transcript, and the acting turn is asked for behind it."""
    model = ScriptedModel(["I need the weather.", _look("Oslo"), "Now I know.", "It is sunny."])
    agent = Agent(react(), model=model, tools=[weather])
    nodes = _executed(agent)
    result = await agent.run("How is Oslo?")
    assert result.output == "It is sunny."
    assert nodes == ["prepare", "reason", "act", "execute_tools", "prepare", "reason", "act"]
    assert [len(request.tools) for request in model.requests] == [0, 1, 0, 1]
    task, instruction, thought, going_on = model.requests[1].messages
    assert (task.text, thought.text) == ("How is Oslo?", "I need the weather.")
    assert (instruction.role, thought.role, going_on.role) == ("user", "assistant", "user")


@pytest.mark.parametrize("interval", [1, 2, 3])
async def test_react_thinks_again_after_so_many_turns(interval):
    """Of five turns of tool calls, each `reasoning_interval` follow one thought, whatever was said in an earlier run."""
    asked = []

    def reply(request):
        asked.append("act" if request.tools else "reason")
        return "thought" if not request.tools else _look("Oslo") if asked.count("act") <= 5 else "done"

    agent = Agent(react(reasoning_interval=interval), model=ScriptedModel([reply] * 30), tools=[weather])
    first = await agent.run("Go")
    once = list(asked)
    asked.clear()
    await agent.run("Go", steps=first.memory)
    assert asked == once
    assert once.count("act") == 6
    assert "".join(each[0] for each in once) == "".join(
        "r" + "a" * len(range(n, min(n + interval, 6))) for n in range(0, 6, interval)
    )


async def test_every_edge_of_react_is_taken():
    """With an interval of two, tool results lead back to acting once and to reasoning once."""
    model = ScriptedModel(["Think.", _look("Oslo"), _look("Bergen"), "Think.", "Sunny in both."])
    agent = Agent(react(reasoning_interval=2), model=model, tools=[weather])
    nodes = _executed(agent)
    await agent.run("How is Norway?")
    assert _walked(nodes) == _edges(agent.strategy)


async def test_a_personal_assistant_learns_and_remembers(tmp_path):
    """What one run was told stands in front of the task of the next; every edge is taken."""
    detected = {
        "facts": [{"subject": "user", "keyword": "city", "description": "where the user lives", "value": "Oslo"}]
    }
    model = ScriptedModel([_look("Oslo"), "It is sunny.", detected, detected, "In Oslo.", {"facts": []}])
    agent = Agent(personal(subjects=[USER]), model=model, tools=[weather])
    agent.install(AgentMemory, provider=FileMemoryProvider(tmp_path))
    nodes, loaded = _executed(agent), []
    agent.on(FactsLoaded, loaded.append)
    await agent.run("How is the weather in Oslo, where I live?")
    assert _walked(nodes) == _edges(agent.strategy)
    assert loaded == []
    assert (await agent.run("Where do I live?")).output == "In Oslo."
    assert [event.count for event in loaded] == [1]
    facts, task = model.requests[4].messages
    assert '"value":"Oslo"' in facts.text
    assert task.text == "Where do I live?"


async def test_the_subjects_of_a_personal_assistant_may_be_an_iterator(tmp_path):
    """Subjects that can be walked through once serve loading and learning alike; without them the agent's count."""
    detected = {"facts": [{"subject": "user", "keyword": "city", "description": "home", "value": "Oslo"}]}
    for strategy, subjects in ((personal(subjects=iter([USER])), None), (personal(), [USER])):
        model = ScriptedModel(["Noted.", detected, "Oslo.", {"facts": []}])
        agent = Agent(strategy, model=model)
        agent.install(AgentMemory, provider=FileMemoryProvider(tmp_path / str(subjects)), subjects=subjects)
        await agent.run("I live in Oslo.")
        await agent.run("Where do I live?")
        assert '"value":"Oslo"' in model.requests[2].messages[0].text
