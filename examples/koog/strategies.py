"""Koog's predefined strategies, its functional strategies and planners, and agents as tools.

python examples/koog/strategies.py
python examples/koog/strategies.py --model llama3.2 --base-url http://localhost:11434/v1
"""

from __future__ import annotations

from dataclasses import dataclass

from index import agent, clock, model_of, show, weather

from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent.llm import Message, ModelRequest, ToolCall, ToolCalls, ToolResults
from graphagent.memory import WholeHistory
from graphagent.nodes import compress_history, execute_tools, llm_request
from graphagent_strategies import plan_and_execute, react, single_run

CALL = ToolCall("weather", {"city": "Oslo"})
TASK = "How is Oslo?"


@dataclass
class Report:
    city: str
    sunny: bool


@tool
def submit(report: str) -> str:
    """Submit the report. Call it when you are done."""
    return f"submitted: {report}"


def was_submitted(results: ToolResults) -> bool:
    return any(result.name == "submit" and not result.is_error for result in results)


def last_content(results: ToolResults) -> str:
    return results[len(results) - 1].content


async def one_run() -> object:
    """Ask, execute tools, ask again, until there is text."""
    return (await agent(single_run(), CALL, "Sunny.", tools=[weather]).run(TASK)).output


async def one_run_parallel() -> object:
    """The calls of a turn at the same time."""
    calls = [CALL, ToolCall("clock", {"city": "Oslo"})]
    return (
        await agent(single_run(parallel_tools=8), calls, "Sunny, at noon.", tools=[weather, clock]).run(TASK)
    ).output


async def one_run_with_compression() -> object:
    """The history is compressed where the strategy says so; the feature ContextWindow does it by the number of tokens."""
    ask, act, compress = llm_request(), execute_tools(), compress_history(WholeHistory(keep=1))

    def is_long(ctx: Context, results: ToolResults) -> bool:
        return len(ctx.memory.steps) > 2

    strategy = Strategy(
        "s",
        START >> ask,
        ask.on(ToolCalls) >> act,
        act.when(is_long) >> compress >> ask,
        act.otherwise() >> ask,
        ask.on(str) >> END,
    )
    return (await agent(strategy, CALL, CALL, "Ada asked for Oslo.", "Sunny.", tools=[weather]).run(TASK)).output


async def one_run_with_terminal_tools() -> object:
    """A tool that succeeds ends the run; if it fails, the model sees the error."""
    ask, act = llm_request(), execute_tools()
    strategy = Strategy(
        "s",
        START >> ask,
        ask.on(ToolCalls) >> act,
        act.when(was_submitted).map(last_content) >> END,
        act.otherwise() >> ask,
        ask.on(str) >> END,
    )
    return (
        await agent(strategy, CALL, ToolCall("submit", {"report": "sunny"}), tools=[weather, submit]).run(TASK)
    ).output


async def tools_only() -> object:
    """The model must call a tool in every turn; one of them ends the run. (`chat()` here is a conversation with a person.)"""
    ask, act = llm_request(tools="required"), execute_tools()
    strategy = Strategy(
        "s",
        START >> ask >> act,
        act.when(was_submitted).map(last_content) >> END,
        act.otherwise() >> ask,
    )
    running = agent(strategy, CALL, ToolCall("submit", {"report": "sunny"}), tools=[weather, submit])
    return (await running.run(TASK)).output


async def reasoning_and_acting() -> object:
    """Think without tools, act, and think again."""
    return (await agent(react(), "I need the weather.", CALL, "I know it.", "Sunny.", tools=[weather]).run(TASK)).output


async def structured_output_with_tools() -> object:
    """Tools first, and then a value of a type."""
    ask, act = llm_request(output=Report, tools=True), execute_tools()
    strategy = Strategy("s", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(Report) >> END)
    return (await agent(strategy, CALL, {"city": "Oslo", "sunny": True}, tools=[weather]).run(TASK)).output


@node
async def twice(ctx: Context, question: str) -> str:
    """Any code is a node. Its requests are recorded, so a run that is resumed does not ask again."""
    first = await ctx.request(ModelRequest([Message.user(question)]), counts=True)
    better = Message.user(f"Say this in fewer words: {first.message.text}")
    return (await ctx.request(ModelRequest([better]), counts=True)).message.text


async def functional() -> object:
    """A strategy of one node, with the loops that Python has."""
    return (await agent(Strategy("s", START >> twice >> END), "It is rather sunny.", "Sunny.").run(TASK)).output


async def planner() -> object:
    """A plan, its steps, a review that may add steps, and the answer; `replans=0` leaves out the review."""
    script = [{"steps": ["Look."]}, CALL, "Looked.", {"steps": []}, "Sunny."]
    return (await agent(plan_and_execute(), *script, tools=[weather]).run(TASK)).output


async def agent_as_tool() -> object:
    """An agent with a name and a description is a tool of another one, also of several calls at the same time."""
    expert = Agent(
        single_run(), model=model_of("Sunny."), name="meteorologist", description="Knows the weather of any city."
    )
    script = [ToolCall("meteorologist", {"task": "Oslo?"}), "It is sunny."]
    return (await agent(single_run(parallel_tools=8), *script, tools=[expert]).run(TASK)).output


if __name__ == "__main__":
    show(one_run, one_run_parallel, one_run_with_compression, one_run_with_terminal_tools, tools_only)
    show(reasoning_and_acting, structured_output_with_tools, functional, planner, agent_as_tool)
