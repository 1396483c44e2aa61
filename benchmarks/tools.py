"""What model turns and tool calls cost over bare Python that does the same, and after many others: CPU time in one process."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from benchmarks.measure import QUICK, Figure, Rounds, alternate, figure, micro, milli, table, times
from graphagent import END, START, Agent, Strategy, tool
from graphagent.errors import NodeFailedError
from graphagent.llm import Message, ModelRequest, ModelResponse, ToolCall, ToolCalls, ToolResult, Usage
from graphagent.memory import ActionStep, RunMemory
from graphagent.nodes import execute_tools, llm_request
from graphagent.protocols import Feature
from graphagent.store import MemoryStore
from graphagent.telemetry import OpenTelemetry

TURNS = 40
"""Turns with a tool call before the answer."""
EARLIER = (250, 500, 1_000, 2_000, 4_000)
"""Turns with a tool call of an earlier run, whose transcript the next one begins with."""
SEEN = "the window is shut, the lamp is off"


@tool
async def look(room: int) -> str:
    """Look into a room."""
    return SEEN


class Guard:
    """A model that has a tool called in each of its turns, and then answers."""

    name = "guard"

    def __init__(self, turns: float = TURNS) -> None:
        self.turns = turns

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        turn = len(request.messages) // 2
        if turn < self.turns:
            message = Message.assistant(calls=[ToolCall(request.tools[0].name, {"room": turn}, f"call-{turn}")])
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
    """Measure the loop, a run behind many turns, and a tool call after a resume. Return three tables."""
    rounds = QUICK if quick else Rounds()
    earlier = EARLIER[:2] if quick else EARLIER
    loop, behind = asyncio.run(_loop(rounds)), asyncio.run(_behind(earlier, rounds))
    return f"{loop}\n\n{behind}\n\n{asyncio.run(_resumed(earlier, rounds))}"


async def _loop(rounds: Rounds) -> str:
    ask, act = llm_request(), execute_tools()
    rooms = Strategy("rooms", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)
    settings: dict[str, Any] = {"model": Guard(), "tools": [look], "max_turns": None}
    agents = {
        "a turn and its tool call, without a store": Agent(rooms, **settings),
        "… with a store in memory": Agent(rooms, store=MemoryStore(), **settings),
    }
    wrapped = agents["… with middleware around model, tool and node"] = Agent(rooms, **settings)
    wrapped.install(Middleware)
    reported = agents["… with OpenTelemetry, and nothing that exports"] = Agent(rooms, **settings)
    reported.install(OpenTelemetry)
    works = {name: _running(agent) for name, agent in agents.items()}
    took = await alternate({"bare": _bare, **works}, rounds)
    rows: list[list[str]] = []
    for name in works:
        found: Figure = figure(took[name], took["bare"], units=TURNS)
        rows.append([name, micro(found.bare), micro(found.seconds), times(found.ratio)])
    return table(["what", "bare Python", "graphagent", "ratio"], rows)


async def _behind(earlier: tuple[int, ...], rounds: Rounds) -> str:
    ask, act = llm_request(), execute_tools()
    once = Strategy("once", START >> ask, ask.on(ToolCalls) >> act >> END, ask.on(str) >> END)
    agent = Agent(once, model=Guard(math.inf), tools=[look])

    def going_on(turns: int) -> Callable[[], Any]:
        calls = [Message.assistant(calls=[ToolCall("look", {"room": turn}, f"call-{turn}")]) for turn in range(turns)]
        steps = [
            ActionStep(step_number=number, model_output_message=message) for number, message in enumerate(calls, 1)
        ]
        return lambda: agent.run("Look once more.", steps=RunMemory("", steps))

    took = await alternate({f"{turns}": going_on(turns) for turns in earlier}, rounds)
    found = [figure(took[f"{turns}"]).seconds for turns in earlier]
    least = [figure(took[f"{turns}"], took[f"{earlier[0]}"]).ratio for turns in earlier]
    head = ["a turn and its tool call, with so many turns before", *(f"{turns:,}" for turns in earlier)]
    rows = [["CPU", *map(milli, found)], [f"beside {earlier[0]}", *map(times, least)]]
    return table(head, rows)


class Interrupted(Guard):
    """A guard that has its tool called once more in each of its runs, which an error ends then; it notes when it answers."""

    def __init__(self, turns: int) -> None:
        super().__init__(math.inf)
        self.left = turns
        self.answered = 0.0

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        if not self.left:
            self.left = 1
            raise ConnectionError("the line is dead")
        self.left -= 1
        response = await super().respond(request, on_text)
        self.answered = time.process_time()
        return response


async def _resumed(earlier: tuple[int, ...], rounds: Rounds) -> str:
    took = {turns: await _first_calls(turns, rounds.count) for turns in earlier}
    found = [figure(took[turns]).seconds for turns in earlier]
    least = [figure(took[turns], took[earlier[0]]).ratio for turns in earlier]
    head = ["from an answer to its tool call, the first after a resume", *(f"{turns:,}" for turns in earlier)]
    return table(head, [["CPU", *map(milli, found)], [f"beside {earlier[0]}", *map(times, least)]])


async def _first_calls(turns: int, count: int) -> list[float]:
    """Resume a run that failed after many turns. Return the seconds from the answer of the model to the call of its tool."""
    guard, took = Interrupted(turns), list[float]()

    @tool
    async def see(room: int) -> str:
        """Look into a room."""
        took.append(time.process_time() - guard.answered)
        return SEEN

    ask, act = llm_request(), execute_tools()
    rooms = Strategy("rooms", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)
    agent = Agent(rooms, model=guard, tools=[see], store=MemoryStore(), max_turns=None, max_nodes=None)
    with suppress(NodeFailedError):
        await agent.run("Look into every room.", run_id="watch")
    took.clear()
    for _ in range(count):
        with suppress(NodeFailedError):
            await agent.resume("watch")
    return took


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
