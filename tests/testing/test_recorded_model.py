"""RecordedModel: what is recorded, what is replayed, and what an error says about a request that is not there."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import anyio
import pytest

from graphagent import Agent, tool
from graphagent.errors import ModelRequestError, NodeFailedError, ScriptError
from graphagent.llm import (
    FallbackModel,
    Message,
    ModelRequest,
    ModelResponse,
    PricedModel,
    Prices,
    ProviderData,
    Reasoning,
    RetryModel,
    Text,
    ToolCall,
    Usage,
)
from graphagent.llm.openai import OpenAIModel
from graphagent.testing import RecordedModel, ScriptedModel, openai_server
from graphagent_strategies import single_run
from tests import forkserver

HELLO = ModelRequest((Message.system("Be brief."), Message.user("Hello?")))
PNG = b"\x89PNG\r\n\x1a\n-nightingale-"
CALL = ToolCall("weather", {"city": "Oslo"}, "call-1")


@tool
def weather(city: str) -> str:
    """Give the weather in a city."""
    return f"sunny in {city}"


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.delenv("GRAPHAGENT_RECORD", raising=False)
    return tmp_path / "recorded" / "oslo.json"


async def test_a_run_is_recorded_and_replayed_without_a_model(path):
    """Over a real server, with tools and streaming: the second run is the same, word by word, and asks nobody."""
    with openai_server([CALL, "It is sunny in Oslo."]) as server:
        async with OpenAIModel(
            "small", base_url=server.base_url, api_key="s3cret", headers={"x-key": "s3cret"}
        ) as inner:
            model = RecordedModel(path, PricedModel(inner, Prices(1, 1)), record=True)
            first = await Agent(single_run(), model=model, tools=[weather]).run("Oslo?")
    assert len(server.requests) == 2
    replayed = RecordedModel(path)
    agent = Agent(single_run(), model=replayed, tools=[weather])
    pieces = [text async for text in agent.stream("Oslo?").text()]
    assert "".join(pieces) == first.output == "It is sunny in Oslo."
    assert len(pieces) == 5
    again = await Agent(single_run(), model=RecordedModel(path), tools=[weather]).run("Oslo?")
    assert again.usage == first.usage
    assert again.ledger.charges == first.ledger.charges
    assert replayed.name == "small"
    assert "s3cret" not in path.read_text("utf-8")


async def test_the_file_is_for_people(path):
    """JSON with texts as they are, in the order of recording; images by hash, no secret parameter, the same bytes each time."""
    request = replace(
        HELLO,
        messages=(Message.user("Grüß Gott?", PNG),),
        parameters={"temperature": 0, "extra_headers": {"Authorization": "s3cret"}},
    )

    async def recorded(file):
        await RecordedModel(file, ScriptedModel(["Grüß Gott!"], name="small"), record=True).respond(request)
        return file.read_bytes()

    content = await recorded(path)
    assert await recorded(path.with_name("other.json")) == content
    assert b"nightingale" not in content
    assert b"s3cret" not in content
    assert "Grüß Gott!" in content.decode()
    [entry] = json.loads(content)["recorded"]
    assert list(entry) == ["name", "request", "response"]
    assert entry["request"]["parameters"] == {"temperature": 0}
    assert entry["response"]["parts"] == ["Grüß Gott!"]


async def test_nothing_of_an_answer_is_lost(path):
    """Reasoning, data of providers, ids, usage with its cost and the reason of the end come back as they were."""
    data = ProviderData("openai", {"encrypted": "x" * 9, "n": 2**70})
    given = ModelResponse(
        Message("assistant", (Reasoning("", provider=data), Text("\ud800"), replace(CALL, malformed="{"))),
        Usage(1, 2, 3, 4, Prices("0.1", "0.2").cost(Usage(7, 7))),
        "length",
        "small-2026",
    )
    await RecordedModel(path, ScriptedModel([given]), record=True).respond(HELLO)
    assert await RecordedModel(path).respond(HELLO) == given


async def test_equal_requests_are_answered_in_their_order(path):
    """The third of two is an error that says how often it was recorded."""
    model = RecordedModel(path, ScriptedModel(["one", "two"]), record=True)
    assert [(await model.respond(HELLO)).message.text for _ in range(2)] == ["one", "two"]
    model = RecordedModel(path)
    assert [(await model.respond(HELLO)).message.text for _ in range(2)] == ["one", "two"]
    with pytest.raises(ScriptError, match=r"request 3 is not recorded .* once more: it is there 2 times"):
        await model.respond(HELLO)


async def test_what_is_missing_is_added(path):
    """Recording again asks for new requests only."""
    other = replace(HELLO, parameters={"seed": 1})
    await RecordedModel(path, ScriptedModel(["one"]), record=True).respond(HELLO)
    inner = ScriptedModel(["two"])
    model = RecordedModel(path, inner, record=True)
    assert [(await model.respond(each)).message.text for each in (HELLO, other)] == ["one", "two"]
    assert inner.requests == [other]
    model = RecordedModel(path)
    assert [(await model.respond(each)).message.text for each in (other, HELLO)] == ["two", "one"]


async def test_the_environment_turns_recording_on(path, monkeypatch):
    """GRAPHAGENT_RECORD=1 records; record=False wins over it; 0 is off."""
    for value, records in (("1", True), ("0", False), ("", False)):
        monkeypatch.setenv("GRAPHAGENT_RECORD", value)
        assert RecordedModel(path).record is records
    monkeypatch.setenv("GRAPHAGENT_RECORD", "1")
    assert RecordedModel(path, record=False).record is False
    await RecordedModel(path, ScriptedModel(["one"])).respond(HELLO)
    assert path.exists()


async def test_a_request_that_is_not_there_shows_what_differs(path):
    """The nearest recorded request is compared line by line, and the error says how to record."""
    model = RecordedModel(path, ScriptedModel(["one", "two"]), record=True)
    await model.respond(HELLO)
    await model.respond(ModelRequest((Message.user("something else entirely"),)))
    asked = replace(HELLO, messages=(HELLO.messages[0], Message.user("Hello there?")))
    with pytest.raises(ScriptError) as info:
        await RecordedModel(path).respond(asked)
    text = str(info.value)
    assert "The nearest is number 1 there" in text
    assert '-        "Hello?"' in text
    assert '+        "Hello there?"' in text
    assert "Be brief" not in text
    assert "GRAPHAGENT_RECORD=1" in text


async def test_an_error_is_not_a_page_long(path):
    """Of a long difference the beginning is shown, and of a long line too."""
    await RecordedModel(path, ScriptedModel(["one"]), record=True).respond(HELLO)
    with pytest.raises(ScriptError) as info:
        await RecordedModel(path).respond(ModelRequest(tuple(Message.user("x" * 9_999) for _ in range(100))))
    assert "more lines" in str(info.value)
    assert len(str(info.value)) < 10_000


async def test_without_a_file_or_a_model(path):
    """The error says that there is no file; recording without a model does not invent an answer."""
    with pytest.raises(ScriptError, match=r"oslo\.json, which does not exist\. To record it, set GRAPHAGENT_RECORD=1"):
        await RecordedModel(path).respond(HELLO)
    with pytest.raises(ScriptError, match="with a model"):
        await RecordedModel(path, record=True).respond(HELLO)
    assert not path.exists()


async def test_another_model_does_not_answer_for_the_recorded_one(path):
    """If a model is given, its name must be the one that was recorded."""
    await RecordedModel(path, ScriptedModel(["one"], name="small"), record=True).respond(HELLO)
    with pytest.raises(ScriptError, match="answered by model 'small', and not by 'large'"):
        await RecordedModel(path, ScriptedModel([], name="large")).respond(HELLO)
    assert (await RecordedModel(path, ScriptedModel([], name="small")).respond(HELLO)).message.text == "one"


async def test_a_missing_recording_fails_a_run_and_no_wrapper_hides_it(path):
    """Neither another model nor another attempt replaces what a test must record."""
    model = FallbackModel(RetryModel(RecordedModel(path), 2), ScriptedModel(["never"]), on=Exception)
    with pytest.raises(NodeFailedError) as info:
        await Agent(single_run(), model=model).run("Hello?")
    assert isinstance(info.value.__cause__, ScriptError)


async def test_failures_are_not_recorded(path):
    """The error of the model comes through, and the file has what came before."""
    model = RecordedModel(path, ScriptedModel(["one", ModelRequestError("no")]), record=True)
    await model.respond(HELLO)
    with pytest.raises(ModelRequestError):
        await model.respond(replace(HELLO, parameters={"seed": 1}))
    assert len(json.loads(path.read_bytes())["recorded"]) == 1


@pytest.mark.every_loop
async def test_requests_at_once_are_all_recorded(path):
    """Whatever ends when, the file has every answer and is whole."""
    requests = [replace(HELLO, parameters={"seed": number}) for number in range(20)]
    inner = ScriptedModel([lambda request: str(request.parameters["seed"])] * 20)
    model = RecordedModel(path, inner, record=True)
    async with anyio.create_task_group() as group:
        for request in requests:
            group.start_soon(model.respond, request)
    replayed = RecordedModel(path)
    assert [(await replayed.respond(each)).message.text for each in requests] == [str(each) for each in range(20)]
    assert [each.name for each in path.parent.iterdir()] == ["oslo.json"]


def test_a_test_that_dies_leaves_a_whole_file(path):
    """What was answered before is there, in a file that can be replayed."""
    program = f"""
import anyio, os
from graphagent.llm import Message, ModelRequest
from graphagent.testing import RecordedModel, ScriptedModel
def die(request): os._exit(1)
model = RecordedModel({str(path)!r}, ScriptedModel(["one", die]), record=True)
async def main():
    for number in (1, 2):
        await model.respond(ModelRequest((Message.user("Hello?"),), parameters={{"seed": number}}))
anyio.run(main)
"""
    assert forkserver.run([sys.executable, "-c", program], check=False).returncode == 1
    model = RecordedModel(path)
    response = anyio.run(model.respond, ModelRequest((Message.user("Hello?"),), parameters={"seed": 1}))
    assert response.message.text == "one"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "JSONDecodeError"),
        ("[]", "TypeError"),
        ("{}", "KeyError"),
        ('{"format": 2, "recorded": []}', "its format is 2, not 1"),
        ('{"format": 1, "recorded": [{"name": "m", "request": {}, "response": {}}]}', "not a model response"),
        ('{"format": 1, "recorded": [{"name": 1, "request": {}, "response": RESPONSE}]}', "no request or no name"),
        ("[" * 100_000, "RecursionError"),
    ],
)
def test_a_file_of_another_kind_is_refused(path, content, reason):
    """Before anything is asked, and it is left as it is."""
    path.parent.mkdir()
    path.write_text(content.replace("RESPONSE", '{"model":"m","parts":[],"finish_reason":"stop","usage":{}}'), "utf-8")
    with pytest.raises(ValueError, match=f"oslo.json is not a file of a RecordedModel .*{reason}.*; restore it"):
        RecordedModel(path)


async def test_two_objects_record_into_one_file(path):
    """What one recorded is kept by the other, which was made before that."""
    models = [RecordedModel(path, ScriptedModel([name], name="small"), record=True) for name in ("one", "two")]
    requests = [ModelRequest((Message.user(name),)) for name in ("first", "second")]
    for model, request in zip(models, requests, strict=True):
        await model.respond(request)
    replayed = RecordedModel(path)
    assert [(await replayed.respond(each)).message.text for each in requests] == ["one", "two"]


RECORDING = """
import sys
from threading import Thread
import anyio
from graphagent.llm import Message, ModelRequest
from graphagent.testing import RecordedModel, ScriptedModel

async def record(name):
    model = RecordedModel(sys.argv[1], ScriptedModel([name] * 20), record=True)
    for number in range(20):
        await model.respond(ModelRequest((Message.user(f"{name} {number}"),)))

threads = [Thread(target=anyio.run, args=(record, f"{sys.argv[2]}-{thread}")) for thread in range(2)]
for each in threads:
    each.start()
for each in threads:
    each.join()
"""


def test_threads_of_two_processes_record_into_one_file(path):
    """Nothing that one of them recorded is lost, and nothing but the file remains."""
    processes = [forkserver.Popen([sys.executable, "-c", RECORDING, path, name]) for name in "ab"]
    assert [each.wait(60) for each in processes] == [0, 0]
    replayed = RecordedModel(path)
    for name in ("a-0", "a-1", "b-0", "b-1"):
        for number in range(20):
            response = anyio.run(replayed.respond, ModelRequest((Message.user(f"{name} {number}"),)))
            assert response.message.text == name
    assert [each.name for each in path.parent.iterdir()] == [path.name]
