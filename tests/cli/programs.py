"""A program with agents, as its author would write it: the tests of `graphagent runs` put it into a folder."""

from __future__ import annotations

PROGRAM = '''
from decimal import Decimal
from pathlib import Path
from typing import Literal

import anyio

from graphagent import END, START, Agent, Context, Strategy, node, parallel, tool
from graphagent.llm import Message, ModelResponse, ToolCall, ToolCalls, Usage
from graphagent.nodes import Approved, Denied, approval, ask_human, execute_tools, llm_request
from graphagent.store import SqliteStore


def done(what):
    with Path("effects.log").open("a") as log:
        log.write(what + "\\n")


@node
async def draft(ctx: Context, topic: str) -> str:
    done("drafted")
    return f"Dear all, about {topic}."


approve = ask_human("Send it?", bool)


@node
async def send(ctx: Context, approved: bool) -> str:
    done("sent")
    return "sent"


@node
async def drop(ctx: Context, approved: bool) -> str:
    return "dropped"


mail = Strategy("mail", START >> draft >> approve, approve.on(True) >> send >> END, approve.on(False) >> drop >> END)
agent = Agent(mail)
own = Agent(mail, store=SqliteStore("own.db"))


def make():
    return Agent(mail)


# A value that a person approves.

publish = approval("Publish it?")
notice = Agent(
    Strategy(
        "notice",
        START >> publish,
        publish.on(Approved).map(lambda approved: f"approved by {approved.by}") >> END,
        publish.on(Denied).map(lambda denied: f"denied by {denied.by}: {denied.reason}") >> END,
    )
)


# Questions of several types, all open at once.

ways = parallel(
    ask_human("How many?", int).named("number"),
    ask_human("Which colour?", Literal["red", "green"]).named("colour"),
    ask_human("What shall it say?", str).named("text"),
    ask_human("Which pages?", list[int]).named("pages"),
)


@node
async def told(ctx: Context, answers: tuple[int, Literal["red", "green"], str, list[int]]) -> str:
    return repr(answers)


form = Agent(Strategy("form", START >> ways >> told >> END))


# A model that is asked twice, a tool that a person approves, and a sub-agent.

class Rules:
    """Says what the messages lead to, so that every process comes to the same."""

    name = "rules"

    async def respond(self, request, on_text=None):
        names = {each.name for each in request.tools}
        results = sum(message.role == "tool" for message in request.messages)
        if "reader" in names and results == 0:
            said = Message.assistant("I ask.", [ToolCall("reader", {"task": "read"}, id="c1")])
        elif "post" in names and results == 1:
            said = Message.assistant("", [ToolCall("post", {"to": "ada"}, id="c2")])
        else:
            said = Message.assistant(f"I saw: {request.messages[-1].text}")
        usage = Usage(1000, 20, cost=Decimal("0.0012"))
        return ModelResponse(said, usage, "tool_calls" if said.tool_calls else "stop", "rules")


@tool(approve=True)
async def post(to: str) -> str:
    """Post the letter."""
    done(f"posted to {to}")
    return f"posted to {to}"


def asking(name):
    ask, act = llm_request(), execute_tools()
    return Strategy(name, START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)


reader = Agent(asking("reading"), model=Rules(), name="reader", description="Reads.")
letters = Agent(asking("letters"), model=Rules(), tools=[reader, post], system_prompt="Be kind.")


# Nodes that take their time.

@node
async def first(ctx: Context, text: str) -> str:
    done("first")
    return text


@node
async def slow(ctx: Context, text: str) -> str:
    done("slow")
    while not Path("go").exists():
        await anyio.sleep(0.02)
    return text


@node
async def last(ctx: Context, text: str) -> str:
    done("last")
    return text + "!"


waits = Agent(Strategy("waits", START >> first >> slow >> last >> END))


@node
async def fails(ctx: Context, text: str) -> str:
    if Path("broken").exists():
        raise ValueError("a secret value")
    return text


fragile = Agent(Strategy("fragile", START >> first >> fails >> last >> END))
number = 3
'''

BEGIN = """
import os
import sys

import anyio

from graphagent.store import EncryptedStore, SqliteStore


async def main(agent, run_id, task, owner, thread=None):
    async with SqliteStore("runs.db") as store:
        agent.store = EncryptedStore(store, os.environ["TEST_KEY"]) if os.environ.get("SEALED") else store
        try:
            await agent.run(task, run_id=run_id or None, owner=owner, thread=thread)
        except Exception as error:
            print(type(error).__name__)


if __name__ == "__main__":
    import program

    anyio.run(main, getattr(program, sys.argv[1]), *sys.argv[2:])
"""
