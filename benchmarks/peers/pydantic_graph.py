"""The tasks in pydantic-graph, with its builder; instrumentation is off."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from itertools import pairwise

from pydantic_graph import Graph, GraphBuilder, StepContext, reduce_list_append

from benchmarks import tasks


async def add_one(ctx: StepContext[None, None, int]) -> int:
    return ctx.inputs + 1


def loop(size: int) -> Graph:
    builder = GraphBuilder(input_type=int, output_type=int, auto_instrument=False)
    step = builder.step(add_one)
    onward = (
        builder.decision()
        .branch(builder.match(int, matches=lambda number: number < size).to(step))
        .branch(builder.match(int).to(builder.end_node))
    )
    builder.add(builder.edge_from(builder.start_node).to(step), builder.edge_from(step).to(onward))
    return builder.build()


def chain(size: int) -> Graph:
    builder = GraphBuilder(input_type=int, output_type=int, auto_instrument=False)
    steps = [builder.step(add_one, node_id=f"n{place}") for place in range(size)]
    places = [builder.start_node, *steps, builder.end_node]
    builder.add(*[builder.edge_from(source).to(target) for source, target in pairwise(places)])
    return builder.build()


def fan_out(size: int) -> Graph:
    builder = GraphBuilder(input_type=int, output_type=list, auto_instrument=False)
    together = builder.join(reduce_list_append, initial_factory=list, node_id="together")
    steps = [builder.step(add_one, node_id=f"n{place}") for place in range(size)]
    builder.add(
        builder.edge_from(builder.start_node).to(*steps),
        builder.edge_from(*steps).to(together),
        builder.edge_from(together).to(builder.end_node),
    )
    return builder.build()


def engine(sizes: tasks.Sizes) -> tasks.Engine:
    looping, chained = loop(sizes.loop), chain(sizes.chain)
    forking, small = fan_out(sizes.fan_out), chain(sizes.run)

    async def join() -> int:
        return sum(await forking.run(inputs=0))

    async def runs() -> int:
        return sum(await asyncio.gather(*[small.run(inputs=0) for _ in range(sizes.runs)]))

    return tasks.Engine(
        "pydantic-graph",
        version("pydantic-graph"),
        loop=lambda: looping.run(inputs=0),
        chain=lambda: chained.run(inputs=0),
        fan_out=join,
        runs=runs,
        build=lambda: chain(sizes.build),
    )


if __name__ == "__main__":
    tasks.main(engine)
