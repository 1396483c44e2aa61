"""What a loop of model turns and tool calls costs over bare Python that does the same: CPU time, side by side in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from benchmarks.measure import QUICK, Figure, Rounds, alternate, figure, micro, table, times
from graphagent import END, START, Agent, Strategy, tool
from graphagent.llm import Message, ModelRequest, ModelResponse, ToolCall, ToolCalls, ToolResult, Usage
from graphagent.nodes import execute_tools, llm_request
from graphagent.protocols import Feature
from graphagent.store import MemoryStore

TURNS = 40
"""Turns with a tool call before the answer."""
SEEN = "the window is shut, the lamp is off"


@tool
async def look(room: int) -> str:
    """Look into a room."""
    return SEEN


class Guard:
    """A model that has a tool called in each of its turns, and then answers."""

    name = "guard"

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        turn = len(request.messages) // 2
        if turn < TURNS:
            message = Message.assistant(calls=[ToolCall("look", {"room": turn}, f"call-{turn}")])
            return ModelResponse(message, Usage(10, 5), "tool_calls")
        return ModelResponse(Message.assistant("All is well."), Usage(10, 5))


class Middleware(Feature):
    """Is wrapped around everything, and changes nothing."""

    async def around_model(self, ctx: Any, request: ModelRequest, proceed: Callable[[Any], Any]) -> ModelResponse:
        return await proceed(request)

    async def around_tool(self, ctx: Any, call: ToolCall, proceed: Callable[[Any], Any]) -> ToolResult:
        return await proceed(call)

    async def around_node(self, ctx: Any, value: Any, proceed: Callable[[Any], Any]) -> Any:
        return await proceed(value)


def report(*, quick: bool) -> str:
    """Measure the loop. Return the table."""
    return asyncio.run(_report(QUICK if quick else Rounds()))


async def _report(rounds: Rounds) -> str:
    ask, act = llm_request(), execute_tools()
    rooms = Strategy("rooms", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)
    settings: dict[str, Any] = {"model": Guard(), "tools": [look], "max_turns": None}
    agents = {
        "a turn and its tool call, without a store": Agent(rooms, **settings),
        "… with a store in memory": Agent(rooms, store=MemoryStore(), **settings),
    }
    wrapped = agents["… with middleware around model, tool and node"] = Agent(rooms, **settings)
    wrapped.install(Middleware)
    works = {name: _running(agent) for name, agent in agents.items()}
    took = await alternate({"bare": _bare, **works}, rounds)
    rows: list[list[str]] = []
    for name in works:
        found: Figure = figure(took[name], took["bare"], units=TURNS)
        rows.append([name, micro(found.bare), micro(found.seconds), times(found.ratio)])
    return table(["what", "bare Python", "graphagent", "ratio"], rows)


def _running(agent: Agent[Any, Any]) -> Callable[[], Any]:
    async def run() -> None:
        result = await agent.run("Look into every room.")
        if result.output != "All is well.":
            raise AssertionError(result.output)

    return run


async def _bare() -> None:
    """Do the same without graphagent's agent: the messages, the model, a call of the function."""
    model, messages = Guard(), [Message.user("Look into every room.")]
    while True:
        response = await model.respond(ModelRequest(tuple(messages), (look,)))
        messages.append(response.message)
        if not response.message.tool_calls:
            break
        for call in response.message.tool_calls:
            said = await look.function(**call.arguments)
            messages.append(Message.tool(ToolResult(call.id, call.name, said)))


if __name__ == "__main__":
    print(report(quick=False))
