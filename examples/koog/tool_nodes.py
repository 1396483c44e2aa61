"""Koog's nodes that execute tools: nodeExecuteTools, nodeExecuteSingleTool, nodeExecuteMultipleToolsAndSendResults.

python examples/koog/tool_nodes.py
python examples/koog/tool_nodes.py --model llama3.2 --base-url http://localhost:11434/v1
"""

from __future__ import annotations

from index import agent, clock, show, weather

from graphagent import END, START, Context, Strategy, node
from graphagent.llm import ToolCall, ToolCalls
from graphagent.nodes import execute_tools, llm_request

CALLS = [ToolCall("weather", {"city": "Oslo"}), ToolCall("clock", {"city": "Oslo"})]


def looping(limit: int) -> Strategy:
    ask, act = llm_request(), execute_tools(limit=limit)
    return Strategy("looping", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)


async def one_after_the_other() -> object:
    """The calls of a turn, in order; `llm_request()` again sends the results."""
    return (await agent(looping(1), CALLS, "Sunny, at noon.", tools=[weather, clock]).run("How is Oslo?")).output


async def at_once() -> object:
    """Up to eight calls at the same time; the results keep the order of the calls."""
    return (await agent(looping(8), CALLS, "Sunny, at noon.", tools=[weather, clock]).run("How is Oslo?")).output


@node
async def look_up(ctx: Context, city: str) -> ToolCalls:
    return ToolCalls([ToolCall("weather", {"city": city})])


async def single_tool() -> object:
    """A tool that the strategy calls, not the model, which then reads the result."""
    strategy = Strategy("s", START >> look_up >> execute_tools() >> llm_request(tools=False) >> END)
    return (await agent(strategy, "Take sunglasses.", tools=[weather]).run("Oslo")).output


async def execute_and_send() -> object:
    """Two nodes in one: a strategy is a node."""
    act, ask = execute_tools(limit=8), llm_request()
    execute_and_ask = Strategy("execute_and_ask", START >> act >> ask >> END)
    begin = llm_request(name="begin")
    strategy = Strategy(
        "s",
        START >> begin,
        begin.on(ToolCalls) >> execute_and_ask,
        begin.on(str) >> END,
        execute_and_ask.on(ToolCalls) >> execute_and_ask,
        execute_and_ask.on(str) >> END,
    )
    return (await agent(strategy, CALLS, "Sunny, at noon.", tools=[weather, clock]).run("How is Oslo?")).output


if __name__ == "__main__":
    show(one_after_the_other, at_once, single_tool, execute_and_send)
