"""Durable runs in graphagent, in a SqliteStore."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import networkx  # noqa: F401  a strategy's check imports it at first use, which is not what is measured here

import graphagent
from benchmarks import durable
from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.llm import Message
from graphagent.memory import MessageStep
from graphagent.nodes import ask_human
from graphagent.run import list_runs
from graphagent.store import SqliteStore


@dataclass(frozen=True, slots=True)
class Page:
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Sight:
    messages: int
    arrived: float
    read: float


@node
async def say(ctx: Context, number: int) -> int:
    ctx.memory.steps.append(MessageStep(Message.user(durable.message(number)["content"])))
    return number + 1


@node
async def look(ctx: Context, answer: bool) -> Sight:
    arrived = time.process_time()
    messages = sum(isinstance(step, MessageStep) for step in ctx.memory.steps)
    return Sight(messages, arrived, time.process_time())


class Runs:
    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def rewriting(self, steps: int, size: int) -> durable.ByName[int]:
        @node
        async def rewrite(ctx: Context, page: Page) -> Page:
            return Page(page.number + 1, durable.texts(size)[page.number % 16])

        onward = rewrite.when(lambda page: page.number < steps)
        agent = Agent(
            Strategy("rewriting", START >> rewrite, onward >> rewrite, rewrite.otherwise() >> END),
            store=self._store,
            max_nodes=None,
        )

        async def execute(run: str) -> int:
            return (await agent.run(Page(0, ""), run_id=run)).output.number

        return execute

    def _grown(self, steps: int) -> Agent[int, Sight]:
        ask = ask_human("Go on?", bool)
        strategy = Strategy(
            "growing",
            START >> say,
            say.when(lambda number: number < steps) >> say,
            say.otherwise() >> ask >> look >> END,
        )
        return Agent(strategy, store=self._store, max_nodes=None)

    def growing(self, steps: int) -> durable.ByName[object]:
        agent = self._grown(steps)
        return lambda run: agent.run(0, run_id=run)

    def resuming(self, steps: int) -> durable.ByName[durable.Seen]:
        agent = self._grown(steps)

        async def execute(run: str) -> durable.Seen:
            sight = (await agent.resume(run, answer=True)).output
            return durable.Seen(sight.messages, sight.arrived, sight.read)

        return execute

    async def heads(self) -> int:
        return len(await list_runs(self._store))


@asynccontextmanager
async def opened(path: Path, synchronous: str) -> AsyncIterator[Runs]:
    async with SqliteStore(path, synchronous=synchronous) as store:
        yield Runs(store)


if __name__ == "__main__":
    durable.serve("graphagent", graphagent.__version__, opened)
