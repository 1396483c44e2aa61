from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphagent import END, START, Agent, Context, Strategy, node, tap, tool
from graphagent.errors import BudgetError, NodeFailedError, NoPathError, ScriptError
from graphagent.llm import ToolCall, ToolCalls
from graphagent.nodes import execute_tools, llm_request
from graphagent.testing import ScriptedModel, Trace, next_node, record


@node
async def read(ctx: Context, text: str) -> str:
    return text


@node
async def shout(ctx: Context, text: str) -> str:
    return text.upper()


async def test_record_tells_which_nodes_and_ways_a_run_took():
    """A test can say which nodes ran, inside subgraphs too, and which way was chosen; each run begins anew."""
    inner = Strategy("inner", START >> shout >> END)
    strategy = Strategy("s", START >> read, read.when(len) >> inner >> END, read.otherwise() >> END)
    agent = Agent(strategy)
    taken = record(agent)
    await agent.run("")
    assert (taken.nodes, taken.paths) == (["read"], [("read", "otherwise", "END")])
    await agent.run("a")
    assert taken.nodes == ["read", "inner", "inner/shout"]
    assert taken.paths == [("read", "when len", "inner")]


# Assertions on the path


def taken_by(*nodes, edges=()):
    return Trace(list(nodes), [(node, "on str", target) for node, target in edges])


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        (("ask", "act", "ask"), True),
        (("ask", "act"), False),
        (("act", "ask"), False),
        ((), False),
        ((...,), True),
        (("ask", ...), True),
        ((..., "act", ...), True),
        (("ask", ..., "ask"), True),
        (("ask", ..., "act"), False),
        ((..., "ask", ..., "ask", ...), True),
        ((..., "ask", ..., "act", ..., "act"), False),
        (("ask", "act", "ask", ...), True),
        (("ask", "act", "ask", "act"), False),
    ],
)
def test_a_path_is_fixed_in_full_or_in_parts(pattern, fits):
    """Names fit themselves, `...` fits any number of nodes."""
    taken = taken_by("ask", "act", "ask")
    if fits:
        taken.assert_path(*pattern)
        return
    with pytest.raises(AssertionError, match=r"the run took another path \(- expected, \+ taken\):"):
        taken.assert_path(*pattern)


@given(st.lists(st.sampled_from(["a", "b", ...]), max_size=6), st.lists(st.sampled_from("ab"), max_size=6))
def test_a_path_fits_as_a_regular_expression_does(pattern, nodes):
    """Any pattern, any path."""
    expected = re.fullmatch("".join(".*" if each is ... else each for each in pattern), "".join(nodes))
    try:
        taken_by(*nodes).assert_path(*pattern)
    except AssertionError:
        assert not expected
    else:
        assert expected


def test_another_path_is_shown_beside_the_expected_one():
    """Line by line, so that it is seen at a glance where they part."""
    with pytest.raises(AssertionError) as info:
        taken_by("ask", "summarise", "ask").assert_path("ask", "execute_tools", "ask")
    assert str(info.value).splitlines()[1:] == ["  ask", "- execute_tools", "+ summarise", "  ask"]


def test_visited_nodes_and_edges():
    """Each node at least once, in any order; each choice in its order. The texts name what was taken."""
    taken = taken_by("ask", "act", "ask", edges=[("ask", "act"), ("ask", "END")])
    taken.assert_visited("act", "ask")
    taken.assert_edges(("ask", "act"), ("ask", "END"))
    with pytest.raises(AssertionError, match="did not execute 'plan', but 'ask', 'act', 'ask'"):
        taken.assert_visited("ask", "plan")
    with pytest.raises(AssertionError) as info:
        taken.assert_edges(("ask", "END"))
    assert str(info.value).splitlines()[1:] == ["+ ask -> act", "  ask -> END"]


async def test_assertions_on_a_real_run():
    """With tools, over a loop."""
    agent = Agent(helper, model=ScriptedModel([ToolCall("look", {}), "Done."]), tools=[look])
    taken = record(agent)
    await agent.run("Go.")
    taken.assert_path("llm_request", "execute_tools", "llm_request")
    taken.assert_edges(("llm_request", "execute_tools"), ("llm_request", "END"))


# Edges without a run


@tool
def look() -> str:
    """Look."""
    return "seen"


@node
async def grade(ctx: Context, text: str) -> int:
    return len(text)


@tap
async def log(ctx: Context, text: str) -> None:
    pass


ask, act = llm_request(), execute_tools()
helper = Strategy("helper", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)
graded = Strategy(
    "graded",
    START >> grade,
    grade.when(lambda points: points > 9).map(str) >> log >> END,
    grade.when(lambda ctx, points: points in ctx.deps).map(str) >> read >> END,
    grade.otherwise().map(str) >> END,
    grade.on_error(ValueError).map(str) >> shout >> END,
)


def test_the_node_that_follows():
    """By type, by condition with or without a context, by error, after a plain edge, inside a subgraph."""
    assert next_node(helper, "llm_request", "text") == "END"
    assert next_node(helper, "llm_request", ToolCalls([ToolCall("look", {})])) == "execute_tools"
    assert next_node(helper, "execute_tools", None) == "llm_request"
    assert next_node(graded, "grade", 10) == "log"
    assert next_node(graded, "log", "10") == "END"
    assert next_node(graded, "grade", 3, ctx=SimpleNamespace(deps={3})) == "read"
    assert next_node(graded, "grade", 3, ctx=SimpleNamespace(deps=())) == "END"
    assert next_node(graded, "grade", UnicodeError("x")) == "shout"
    failed = NodeFailedError("inside", ValueError("x"))
    failed.__cause__ = ValueError("x")
    assert next_node(graded, "grade", failed) == "shout"
    outer = Strategy("outer", START >> helper >> END)
    assert next_node(outer, "helper/llm_request", "text") == "END"
    assert next_node(outer, "helper", "text") == "END"


def test_no_edge_and_no_node():
    """An output that nothing takes raises what a run would raise; a name that is not there is told beside those that are."""
    with pytest.raises(NoPathError, match=r"node 'llm_request' gave an int .*tried: on ToolCalls, on str"):
        next_node(helper, "llm_request", 3)
    for error in (KeyError("x"), BudgetError("turns", 1, None), ScriptError("x")):
        with pytest.raises(NoPathError):
            next_node(graded, "grade", error)
    with pytest.raises(LookupError, match="no node 'graed' in 'graded'; it has 'grade', 'log', 'read', 'shout'"):
        next_node(graded, "graed", 1)
    with pytest.raises(LookupError, match="no strategy 'grade' in 'graded'"):
        next_node(graded, "grade/x", 1)


@pytest.mark.parametrize("text", ["", "word", "a long sentence"])
async def test_a_run_goes_where_the_edge_says(text):
    """The function decides as the engine does."""
    strategy = Strategy(
        "s", START >> read, read.when(len).when(lambda t: " " in t) >> shout >> END, read.otherwise() >> END
    )
    agent = Agent(strategy)
    taken = record(agent)
    await agent.run(text)
    assert taken.paths[-1][2] == next_node(strategy, "read", text)
