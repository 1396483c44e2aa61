from __future__ import annotations

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.testing import record


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
