"""What the workers of the campaign execute: runs of nine kinds, whose effects are marks."""

from __future__ import annotations

import itertools
import os
import random
import uuid
from datetime import timedelta
from functools import partial

import anyio

from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent.errors import QuestionExpiredError
from graphagent.llm import ToolCall, ToolCalls
from graphagent.memory import TaskStep
from graphagent.store import EncryptedStore
from graphagent.store.postgres import PostgresStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.many.marks import Marks

LEASE, HEARTBEAT = 6, 2
NAP, DEADLINE, LATER = 4, 5, 600
"""Seconds: of a sleep for which no process waits, until a question expires that nobody answers, and of those that somebody does."""
TASK, SECOND, BILLS = "task", "task,task", ("first", "left", "right")
DEFAULT, NOBODY = "none", "nobody"
LONGEST_EFFECT = 0.1
MARKS, SEALED = "GRAPHAGENT_MANY_MARKS", "GRAPHAGENT_MANY_KEY"


def store_at(dsn, key):
    """Return a store, sealed if there is a key."""
    plain = PostgresStore(dsn, lease=LEASE, heartbeat=HEARTBEAT)
    return EncryptedStore(plain, key) if key else plain


def work():
    """Return the agents of a worker."""
    return list(agents(store_at("env:DSN", os.environ[SEALED]), Marks(os.environ[MARKS])).values())


async def effect(marks, run, name):
    """Do something that can be seen outside of the store; return its name and what tells this time from others."""
    token = uuid.uuid4().hex[:8]
    marks.put(run, "begins", name, token)
    await anyio.sleep(random.uniform(0, LONGEST_EFFECT))
    marks.put(run, "has done", name, token)
    return f"{name}={token}"


async def once(ctx, name):
    """Do an effect, unless it is recorded."""
    return await ctx.once(name, partial(effect, ctx.deps, ctx.run_id, name))


@node
async def first(ctx: Context[Marks], text: str) -> str:
    ctx.deps.put(ctx.run_id, "goes on")
    return await once(ctx, "first")


@node
async def last(ctx: Context[Marks], text: str) -> str:
    done = await once(ctx, "last")
    ctx.deps.put(ctx.run_id, "ends")
    return f"{text} {done}"


@node
async def both(ctx: Context[Marks], text: str) -> str:
    ctx.deps.put(ctx.run_id, "goes on")
    return " ".join([text, *await ctx.gather([partial(once, name=name) for name in ("left", "right")])])


@node
async def rest(ctx: Context[Marks], text: str) -> str:
    for seconds in (0.2, NAP):
        ctx.deps.put(ctx.run_id, "sleeps", due=seconds)
        await ctx.sleep(seconds)
    ctx.deps.put(ctx.run_id, "goes on")
    return f"{text} {await once(ctx, 'middle')}"


async def answered(ctx, due, **options):
    """Return the answer to a question, which can be expected in so many seconds, or when a client has answered it."""
    ctx.deps.put(ctx.run_id, "asks", due=due)
    answer = await ctx.ask("What is it?", str, **options)
    ctx.deps.put(ctx.run_id, "goes on")
    return f"answer={answer}"


@node
async def ask(ctx: Context[Marks], text: str) -> str:
    return f"{text} {await answered(ctx, None)}"


@node
async def ask_in_time(ctx: Context[Marks], text: str) -> str:
    return f"{text} {await answered(ctx, None, deadline=timedelta(seconds=LATER), default=DEFAULT)}"


@node
async def ask_nobody(ctx: Context[Marks], text: str) -> str:
    return f"{text} {await answered(ctx, DEADLINE, deadline=timedelta(seconds=DEADLINE), default=DEFAULT)}"


@node
async def insist(ctx: Context[Marks], text: str) -> str:
    return await answered(ctx, DEADLINE, deadline=timedelta(seconds=DEADLINE))


@node
async def late(ctx: Context[Marks], error: QuestionExpiredError) -> str:
    ctx.deps.put(ctx.run_id, "goes on")
    return f"answer={NOBODY}"


@node
async def hear(ctx: Context[Marks], text: str) -> str:
    ctx.deps.put(ctx.run_id, "goes on")
    heard = [str(step.task) for step in ctx.memory.steps if isinstance(step, TaskStep)]
    return f"heard={','.join(heard)} {await once(ctx, 'first')}"


@node
async def doubt(ctx: Context[Marks], text: str) -> str:
    return f"{text} {await answered(ctx, None)}" if text.startswith(f"heard={SECOND} ") else text


@tool
async def pay(ctx: Context[Marks], name: str) -> str:
    """Pay a bill.

    Args:
        name: Of the bill.
    """
    run = ctx.run_id.partition("/")[0]
    ctx.deps.put(run, "has key", name, ctx.idempotency_key)
    return await effect(ctx.deps, run, name)


def model(tool, argument):
    """Return a model that calls a tool for one bill, and then for the others at once, and repeats the results."""

    def answer(request):
        results = [each for each in request.messages if each.role == "tool"]
        if len(results) == len(BILLS):
            return " ".join(each.text for each in results)
        return ToolCalls([ToolCall(tool, {argument: each}) for each in (BILLS[1:] if results else BILLS[:1])])

    return ScriptedModel(itertools.repeat(answer))


def helped(request):
    """Pay the bill that is the task, and repeat the result."""
    said = request.messages[-1]
    return said.text if said.role == "tool" else ToolCall("pay", {"name": said.text})


def agents(store, marks):
    """Return the agents, by the kinds of their runs. The output of each run says which execution of each effect was recorded."""
    helper = Agent(
        single_run(name="helper"), name="helper", description="Pays a bill.", tools=[pay],
        model=ScriptedModel(itertools.repeat(helped)),
    )  # fmt: skip
    strategies = [
        Strategy("steps", START >> first >> both >> last >> END),
        Strategy("sleeps", START >> first >> rest >> last >> END),
        Strategy("asks", START >> first >> ask >> last >> END),
        Strategy("answered in time", START >> first >> ask_in_time >> last >> END),
        Strategy("expires", START >> first >> ask_nobody >> last >> END),
        Strategy("expires with an error", START >> insist >> last >> END, insist.on_error(QuestionExpiredError) >> late >> last),
        Strategy("thread", START >> hear >> doubt >> last >> END),
    ]  # fmt: skip
    two = partial(single_run, parallel_tools=2)
    options = {"store": store, "deps_factory": lambda: marks}
    made = [Agent(each, **options) for each in strategies]
    made.append(Agent(two(name="tools"), tools=[pay], model=model("pay", "name"), **options))
    made.append(Agent(two(name="sub-agent"), tools=[helper], model=model("helper", "task"), **options))
    return {agent.strategy.name: agent for agent in made}
