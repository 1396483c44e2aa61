"""Runs in which everything that somebody wrote is a word that begins with `zq`, and so are numbers and ids of theirs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent.errors import GraphAgentError
from graphagent.graph import each
from graphagent.history import end_run
from graphagent.llm import Message, ModelResponse, Reasoning, ToolCall, Usage
from graphagent.memory import (
    AgentMemory,
    Concept,
    NoteMemory,
    Notes,
    Scope,
    SingleFact,
    Source,
    Step,
    StoreMemoryProvider,
    Subject,
)
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

NUMBER = 7_731_442_109


@dataclass(slots=True)
class Jotted(Step):
    """A step type of a user."""

    kind: ClassVar[str] = "jotted"

    text: str

    def to_messages(self):
        return [Message.user(self.text)]


@dataclass
class Order:
    """A value of a user's type."""

    name: str
    number: int


@tool
def look(place: str) -> str:
    """Look.

    Args:
        place: Where.
    """
    secret = "zqlocal"
    if place == "zqnowhere":
        raise LookupError(f'zqtoolerror {secret}\n  File "/home/zqhome/zqfile", zqline\n    zqmore = 1')
    return f"zqresult {place} " + "zqlong " * 3000


@node
async def breaks(ctx: Context, task: str) -> str:
    """Fail, with a cause."""
    zqvariable = "zqinvariable"
    try:
        raise KeyError("zqcause")
    except KeyError as error:
        raise ValueError(f"zqfailure {zqvariable}\nzqsecond line") from error


@node
async def writes(ctx: Context, task: str) -> list[Order]:
    """Do something once, add a step, and pass values on."""

    async def work():
        return {"zqkey": ["zqkept", NUMBER]}

    await ctx.once("zqonce", work)
    await ctx.add(Jotted("zqjotted"))
    return [Order("zqfirst", NUMBER), Order("zqother", 2)]


@node
async def reads(ctx: Context, order: Order) -> str:
    """Return something for an item."""
    return f"zqitem {order.name}"


@node
async def asks(ctx: Context, task: object) -> str:
    """Ask a person."""
    return await ctx.ask("zqquestion?", about={"zqabout": NUMBER})


async def talk(store):
    """A conversation with calls, facts, notes, reasoning and a sub-agent."""
    facts, notes = StoreMemoryProvider(store), Notes(store, owner="zqowner")
    user, source = Subject("zqsubject", "zqdescribed"), Source(trust="inferred", origin="zqorigin")
    await facts.save(
        SingleFact(Concept("zqconcept", "zqdescription"), "zqfact", source=source),
        user,
        Scope.agent("desk"),
        owner="zqowner",
    )
    await notes.remember("The printer of zqnote is on the second floor.", scope="/zqscope", source="zqsource")
    told = Message("assistant", (Reasoning("zqreasoning"), ToolCall("look", {"place": "zqnowhere"}, "zqcallid")))
    replies = [
        ModelResponse(told, Usage(), "tool_calls"), [ToolCall("look", {"place": "zqplace"}), ToolCall("zqmadeup", {"zqargument": NUMBER})], ToolCall("helper", {"task": "zqsubtask"}),
        "zqsubanswer", ToolCall("look", malformed="{zqmalformed"), "zqanswer",
    ]  # fmt: skip
    helper = single_run(name="helper").as_tool("Helps.")
    agent = Agent(
        single_run(), model=ScriptedModel(replies), tools=[look, helper], system_prompt="zqrules", store=store
    )
    agent.install(AgentMemory, provider=facts, agent_name="desk", subjects=[user], recall=True, learn=False)
    agent.install(NoteMemory, notes=notes, learn=False)
    await agent.run("zqtask: where is the printer?", run_id="talks", owner="zqowner", thread="zqthread")


async def written(store):
    """Make the runs in a store, and return their ids with their owners."""
    await talk(store)
    with suppress(GraphAgentError):
        await Agent(Strategy("breaking", START >> breaks.retry(attempts=2, wait=0.001) >> END), store=store).run(
            "zqorder", run_id="breaks"
        )
    orders = Strategy("orders", START >> writes >> each(reads) >> asks >> END)
    agent = Agent(orders, store=store)
    await agent.run("zqlist", run_id="answered")
    await agent.resume("answered", answer="zqreply")
    await agent.run("zqlist", run_id="questions")
    await agent.run("zqlist", run_id="ends")
    await end_run(store, "ends", "zqreason")
    return {"talks": "zqowner", "breaks": "", "answered": "", "questions": "", "ends": ""}
