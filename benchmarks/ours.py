"""The tasks in graphagent, for `python -m benchmarks compare` and for the measurements of the engine."""

from __future__ import annotations

import asyncio

import graphagent
from benchmarks import tasks
from graphagent import END, START, Agent, Node, Strategy, node, parallel

add_one: Node[int, int] = node(tasks.add_one)


def loop(step: Node[int, int], size: int) -> Strategy[int, int]:
    return Strategy("loop", START >> step, step.when(lambda number: number < size) >> step, step.otherwise() >> END)


def chain(size: int) -> Strategy[int, int]:
    path = START >> add_one.named("n0")
    for place in range(1, size):
        path = path >> add_one.named(f"n{place}")
    return Strategy("chain", path >> END)


def decorated(size: int) -> Strategy[int, int]:
    """Make a path whose nodes read their annotations anew, as so many different functions do."""
    path = START >> node(name="n0")(tasks.add_one)
    for place in range(1, size):
        path = path >> node(name=f"n{place}")(tasks.add_one)
    return Strategy("decorated", path >> END)


def fan_out(size: int) -> Strategy[int, tuple[int, ...]]:
    return Strategy("fan_out", START >> parallel(*[add_one.named(f"n{place}") for place in range(size)]) >> END)


async def count(agent: Agent[int, int]) -> int:
    return (await agent.run(0)).output


def ready(strategy: Strategy[int, int]) -> Agent[int, int]:
    """Make an agent, and what else its first run would make."""
    agent = Agent(strategy)
    agent._config()
    return agent


def engine(sizes: tasks.Sizes) -> tasks.Engine:
    looping = Agent(loop(add_one, sizes.loop), max_nodes=sizes.loop)
    chained, small, forking = Agent(chain(sizes.chain)), Agent(chain(sizes.run)), Agent(fan_out(sizes.fan_out))

    async def join() -> int:
        return sum((await forking.run(0)).output)

    async def runs() -> int:
        return sum(await asyncio.gather(*[count(small) for _ in range(sizes.runs)]))

    return tasks.Engine(
        "graphagent",
        graphagent.__version__,
        loop=lambda: count(looping),
        chain=lambda: count(chained),
        fan_out=join,
        runs=runs,
        build=lambda: ready(decorated(sizes.build)),
    )


if __name__ == "__main__":
    tasks.main(engine)
