"""What a server attached to its answer travels through the run, its journal and the next request; failed requests are reported."""

from __future__ import annotations

from graphagent import END, START, Agent, Strategy, tool
from graphagent.events import ModelRequestFailed
from graphagent.llm import (
    FailedRequest,
    Message,
    ModelResponse,
    ProviderData,
    Reasoning,
    Text,
    ToolCall,
    ToolCalls,
)
from graphagent.nodes import ask_human, execute_tools, llm_request
from graphagent.store import SqliteStore
from graphagent.testing import ScriptedModel

ask, act = llm_request(), execute_tools()
loop = Strategy("loop", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)


@tool
async def look(place: str) -> str:
    """Look at a place."""
    return f"{place} is empty"


def signed(name):
    return ProviderData("tests", {"signature": name})


TURN = Message(
    "assistant",
    (
        Reasoning("", provider=signed("first")),
        ToolCall("look", {"place": "hall"}, "1", provider=signed("call")),
        Reasoning("and", provider=signed("second")),
        Text("Looking.", provider=signed("text")),
        ToolCall("look", {"place": "yard"}, "1"),
    ),
)


async def test_data_of_a_server_returns_to_the_model_with_its_parts_in_their_order():
    """Also where two calls had one id: only the id of the second is another one."""
    model = ScriptedModel([ModelResponse(TURN), "Nobody."])
    await Agent(loop, model=model, tools=[look]).run("Who is there?")
    [said] = [message for message in model.requests[1].messages if message.role == "assistant"]
    assert [part for part in said.parts if not isinstance(part, ToolCall)] == [
        part for part in TURN.parts if not isinstance(part, ToolCall)
    ]
    assert [type(part) for part in said.parts] == [type(part) for part in TURN.parts]
    assert [call.provider for call in said.tool_calls] == [signed("call"), None]
    assert said.tool_calls[0].id != said.tool_calls[1].id


async def test_data_of_a_server_survives_a_stop(tmp_path):
    """A run that another process resumes sends back what its first process was given."""
    path = tmp_path / "runs.db"
    wait = ask_human("Go on?", kind=str)
    again = llm_request(name="again")
    waiting = Strategy(
        "waiting", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> wait >> again,
        again.on(ToolCalls).map(str) >> END, again.on(str) >> END,
    )  # fmt: skip
    first = Agent(waiting, model=ScriptedModel([ModelResponse(TURN), "Nobody."]), tools=[look], store=SqliteStore(path))
    await first.run("Who is there?", run_id="r")
    model = ScriptedModel(["Still nobody."])
    second = Agent(waiting, model=model, tools=[look], store=SqliteStore(path))
    result = await second.resume("r", answer="Look again")
    assert result.output == "Still nobody."
    parts = [part for message in model.requests[0].messages for part in message.parts]
    assert [part.provider for part in parts if isinstance(part, Reasoning)] == [signed("first"), signed("second")]


async def test_requests_that_failed_before_an_answer_are_reported_once(tmp_path):
    """Handlers learn of them when the answer arrives, and not again when the run is resumed from its journal."""
    answer = ModelResponse(Message.assistant("Yes."), failed=(FailedRequest("big", "it answered 503"),))
    agent = Agent(
        Strategy("two", START >> llm_request(tools=False) >> ask_human("Go on?", kind=str) >> END),
        model=ScriptedModel([answer]),
        store=SqliteStore(tmp_path / "runs.db"),
    )
    heard = []
    agent.on(ModelRequestFailed, heard.append)
    await agent.run("x", run_id="r")
    await agent.resume("r", answer="on")
    assert heard == [ModelRequestFailed("r", "llm_request", "big", "it answered 503")]
