"""What must be an error in mypy and in pyright: the lines that end in `# E`, and no others. Checked, never executed."""

# pyright: strict, reportUnusedExpression=false

from __future__ import annotations

from typing import Any

from graphagent import Agent
from graphagent.events import NodeFinished
from graphagent.graph import (
    END,
    START,
    Node,
    Strategy,
    each,
    guarded,
    never_together,
    node,
    parallel,
    precedes,
    race,
    tap,
)
from graphagent.memory import AgentMemory
from graphagent.nodes import Accepted, Approved, Denied, Rejected, approval, execute_tools, llm_request, task, verify
from graphagent.run import Context


@tap
async def log(ctx: Context, text: str) -> None: ...


@node
async def count(ctx: Context, text: str) -> int:
    return len(text)


@node
async def double(ctx: Context, number: int) -> int:
    return number * 2


@node
async def maybe(ctx: Context, number: int) -> str | float:
    return 1.0


@node
async def mend(ctx: Context, error: ValueError) -> bytes:
    return b""


@node
async def maybe_none(ctx: Context, text: str) -> str | None:
    return None


async def plain(ctx: Context, text: str) -> int:
    return 1


good = Strategy("good", START >> count >> END)

# Edges that do not fit
double >> count  # E
maybe.on(float) >> count  # E
maybe >> count  # E
maybe_none >> count  # E
START >> good >> count  # E
START >> double >> log  # E
START >> log >> double  # E
count.map(str) >> double  # E
count.on_error(TypeError) >> mend  # E
count >> parallel(count, good)  # E
count >> each(double)  # E
each(count) >> count  # E
parallel(count, good) >> double  # E

# What is no part of a path
count >> plain  # E
count >> 5  # E
START >> plain  # E
START >> START  # E
count >> count.on(int)  # E
log >> count  # E

# Taps with policies and error paths
log.retry(2)  # E
log.timeout("1")  # E
log.on_error(int)  # E
log.on_error(ValueError) >> double  # E

# Nodes and taps
node(len)  # E
node(lambda text: text)  # E
tap(plain)  # E


@node  # E
def not_async(ctx: Context, text: str) -> int:
    return 1


@node  # E
async def no_input(ctx: Context) -> int:
    return 1


# Policies
count.retry(attempts="3")  # E
count.retry()  # E
count.retry(attempts=3, errors=ValueError("x"))  # E
count.retry(attempts=3, errors=KeyboardInterrupt)  # E
count.timeout("5")  # E
count.timeout()  # E
count.named(5)  # E

# Outlets
count.when(lambda text: text.upper())  # E
count.when(lambda ctx, n, more: True)  # E
count.when(5)  # E
count.map(str.upper)  # E
count.map(lambda number: number.upper())  # E
count.on_error(ValueError("x"))  # E
count.on_error(KeyboardInterrupt)  # E
count.on()  # E

# Branches
parallel(count, plain)  # E
parallel(count, log)  # E
each(plain)  # E
each(count, 3)  # E
race(count, plain)  # E
parallel(count, good, failures="ignore")  # E
parallel(count, good, limit="2")  # E

# Strategies
Strategy("x", count >> END)  # E
Strategy("x", START)  # E
Strategy("x", START >> count, START >> count)  # E
Strategy(START >> count >> END)  # E
good.using(max_nodes="5")  # E
verify("short").on(Accepted[int]) >> double  # E
verify("short", int).on(Rejected[int]).map(Rejected[int].to_prompt) >> double  # E
task(output=str) >> double  # E
task(output=str, max_turn=3)  # E
verify("short", parallel_tools=2)  # E
Strategy("x", START >> count >> verify("short") >> END)  # E
Strategy("x", START >> count >> approval("Well?") >> END)  # E
approval("Well?", int) >> count  # E
approval("Well?").on(Approved) >> count  # E
approval("Well?", int).on(Approved) >> double  # E
approval("Well?", int).on(Denied[int]).map(lambda denied: denied.feedback)  # E
approval("Well?", kind=5)  # E
out: Strategy[str, str] = good  # E
into: Node[int, int] = good  # E
many: Strategy[str, str] = Strategy("x", START >> count >> END)  # E
fine: Node[str, Any] = good

# Agents
plain_agent = Agent(good)
wrong_output: Agent[str, str] = plain_agent  # E
wrong_input: Agent[int, int] = plain_agent  # E
Agent(good, max_nodes="many")  # E
Agent(count)  # E
Agent(good, tools=[print])  # E
plain_agent.install(AgentMemory, product="app")  # E
plain_agent.install(AgentMemory, provider="memory")  # E
plain_agent.on(str, print)  # E
plain_agent.on(NodeFinished, lambda event: event.nodes)  # E
llm_request(output="City")  # E
llm_request(tool=True)  # E
execute_tools() >> good  # E


async def use() -> None:
    await plain_agent.run(5)  # E
    await plain_agent.run()  # E
    await plain_agent.run("a", onwer="ada")  # E
    plain_agent.start("a", thread=5)  # E
    plain_agent.stream("a", all_texts=True)  # E
    await plain_agent.resume("r", anwser=True)  # E
    await plain_agent.resume("r", True)  # E
    plain_agent.resume_stream("r", answers=["yes"])  # E
    (await plain_agent.run("a")).output.upper()  # E


# Rules over paths
Strategy("s", START >> count >> END, rules=["precedes"])  # E
Strategy("s", START >> count >> END, rules=precedes(count, good))  # E
precedes(count, 5)  # E
precedes(count)  # E
guarded(count, good, before=good)  # E
never_together(count, count.on(3))  # E


# What a run is passed as deps
class Db:
    def find(self, text: str) -> int:
        raise NotImplementedError


@node
async def look_up(ctx: Context[Db], text: str) -> int:
    return ctx.deps.close()  # E


@node
async def without(ctx: Context, text: str) -> int:
    return ctx.deps.find(text)  # E


@node
async def perhaps(ctx: Context[Db | None], text: str) -> int:
    return ctx.deps.find(text)  # E


@node
async def delegates(ctx: Context, number: int) -> int:
    return await ctx.run_agent(plain_agent, number)  # E


Strategy("desk", START >> delegates >> plain_agent.as_node() >> delegates >> END)  # E


async def takes_none(ctx: Context) -> None: ...


async def passes_on(ctx: Context[Db]) -> None:
    await takes_none(ctx)  # E


look_up >> count  # E
