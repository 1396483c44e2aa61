"""A run that calls the tools of a server, in a process that may be killed: `python run.py STORE LOG begin|resume`."""

from __future__ import annotations

import sys

import anyio

from graphagent import Agent
from graphagent.llm import ToolCall
from graphagent.store import SqliteStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.mcp.test_stdio import stdio


async def main(store, log, what):
    calls = [ToolCall("add", {"a": 1, "b": 2}, "c1"), ToolCall("slow", {"seconds": 1000}, "c2")]
    replies = [*calls, "done"] if what == "begin" else ["done"]
    async with Agent(single_run(), model=ScriptedModel(replies), tools=[stdio(log)], store=SqliteStore(store)) as agent:
        result = await (agent.run("add", run_id="r") if what == "begin" else agent.resume("r"))
        print(result.output, *(part.content for message in agent.model.requests[-1].messages for part in message.parts if hasattr(part, "call_id")), sep="\n")  # fmt: skip


anyio.run(main, *sys.argv[1:])
