"""CachedModel: what counts as the same request, what an answer from the store is, and what is erased."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphagent import Agent, tool
from graphagent._clock import clock
from graphagent.errors import ModelRequestError, SerializationError, StoreError
from graphagent.llm import (
    CachedModel,
    FallbackModel,
    Image,
    Message,
    ModelRequest,
    ModelResponse,
    OutputFormat,
    PricedModel,
    Prices,
    ProviderData,
    Reasoning,
    RetryModel,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from graphagent.llm._json_form import dumps, model_json, read_response, request_json, response_json
from graphagent.llm.openai import OpenAIModel
from graphagent.store import EncryptedStore, MemoryStore, Put, SqliteStore, new_key
from graphagent.testing import ScriptedModel, openai_server
from graphagent_strategies import single_run
from tests.thorough import examples

HELLO = ModelRequest((Message.system("Be brief."), Message.user("Hello?")))
PNG = b"\x89PNG\r\n\x1a\n"


@tool
def weather(city: str) -> str:
    """Give the weather in a city."""
    return f"sunny in {city}"


@pytest.fixture
def time():
    """A clock that the test sets."""

    class Time:
        now = 1_000_000

    token = clock.set(lambda: Time.now)
    yield Time
    clock.reset(token)


async def test_an_equal_request_is_answered_from_the_store(store):
    """The model is asked once, also by another object over the same store; the second answer costs nothing."""
    given = ModelResponse(Message.assistant("Hello."), Usage(10, 2, 3, 1, Decimal("0.5")), "stop", "small-2026")
    inner = ScriptedModel([given])
    first = await CachedModel(inner, store).respond(HELLO)
    again = await CachedModel(inner, store).respond(replace(HELLO, messages=tuple(HELLO.messages)))
    assert first == given
    assert again == replace(given, usage=Usage())
    assert len(inner.requests) == 1


CALL = ToolCall("weather", {"city": "Oslo"}, "1")
DATA = ProviderData("openai", {"id": "rs_1"})
ASKED = ModelRequest(
    (
        Message.user("Hello?", PNG),
        Message("assistant", (Reasoning("Hm.", provider=DATA), Text("Well."), CALL)),
        Message.tool(ToolResult("1", "weather", "sunny")),
    ),
    (weather,),
    "auto",
    OutputFormat.of(int),
    {"temperature": 0},
)


def _said(*parts):
    return replace(ASKED, messages=(ASKED.messages[0], Message("assistant", parts), ASKED.messages[2]))


CHANGED = {
    "a message": replace(ASKED, messages=(Message.user("Hello!", PNG), *ASKED.messages[1:])),
    "an image": replace(ASKED, messages=(Message.user("Hello?", PNG + b"x"), *ASKED.messages[1:])),
    "a role": replace(ASKED, messages=(Message("system", ASKED.messages[0].parts), *ASKED.messages[1:])),
    "reasoning": _said(Reasoning("Ah.", provider=DATA), Text("Well."), CALL),
    "provider data": _said(Reasoning("Hm.", provider=ProviderData("openai", {"id": "rs_2"})), Text("Well."), CALL),
    "a family": _said(Reasoning("Hm.", provider=ProviderData("google", {"id": "rs_1"})), Text("Well."), CALL),
    "arguments": _said(Reasoning("Hm.", provider=DATA), Text("Well."), ToolCall("weather", {"city": "Rome"}, "1")),
    "text as reasoning": _said(Reasoning("Hm.", provider=DATA), Reasoning("Well."), CALL),
    "a result": replace(ASKED, messages=(*ASKED.messages[:2], Message.tool(ToolResult("1", "weather", "rain")))),
    "an error": replace(ASKED, messages=(*ASKED.messages[:2], Message.tool(ToolResult("1", "weather", "sunny", is_error=True)))),
    "no tools": replace(ASKED, tools=()),
    "a tool's description": replace(ASKED, tools=(replace(weather, description="Say it."),)),
    "a tool's schema": replace(ASKED, tools=(replace(weather, parameters={"type": "object"}),)),
    "the tool choice": replace(ASKED, tool_choice="required"),
    "the output": replace(ASKED, output=OutputFormat.of(str)),
    "no output": replace(ASKED, output=None),
    "a parameter": replace(ASKED, parameters={"temperature": 1}),
}  # fmt: skip


@pytest.mark.parametrize("changed", CHANGED.values(), ids=CHANGED)
async def test_whatever_a_model_sees_makes_another_request(changed):
    """Another message, image, tool, schema, choice, format or parameter is asked anew."""
    inner = ScriptedModel(["one", "two", "never"])
    model = CachedModel(inner, MemoryStore())
    answers = [(await model.respond(each)).message.text for each in (ASKED, changed, ASKED, changed)]
    assert answers == ["one", "two", "one", "two"]


async def test_ids_of_calls_do_not_count():
    """Servers and runs make them anew; which result belongs to which call does count."""

    def asked(*ids):
        calls = [ToolCall("weather", {"city": city}, id_) for city, id_ in zip(("Oslo", "Rome"), ids[:2], strict=True)]
        results = [Message.tool(ToolResult(id_, "weather", "sunny", seconds=len(id_))) for id_ in ids[2:]]
        return ModelRequest((Message.user("?"), Message.assistant(calls=calls), *results))

    model = CachedModel(ScriptedModel(["one", "two"]), MemoryStore())
    for request, answer in (
        (asked("a", "b", "a", "b"), "one"),
        (asked("call-1", "call-2", "call-1", "call-2"), "one"),
        (asked("a", "b", "b", "a"), "two"),
    ):
        assert (await model.respond(request)).message.text == answer


async def test_models_do_not_answer_for_each_other():
    """Name, server and parameters of the innermost model count, and those of all models of a fallback; wrappers do not."""

    def model(name="m", port=1, **parameters):
        return OpenAIModel(
            name, base_url=f"http://u:s3cret@127.0.0.1:{port}/v1?key=s3cret", api_key="s3cret", **parameters
        )

    different = [model(), model("n"), model(port=2), model(seed=1), FallbackModel(model(), model("n"))]
    shown = [json.dumps(model_json(each)) for each in different]
    assert len(set(shown)) == 5
    assert "s3cret" not in "".join(shown)
    assert model_json(model()) == model_json(RetryModel(PricedModel(model(), Prices(1, 1)), 2))


async def test_an_answer_is_stored_for_its_time(time, store):
    """After that the model is asked again, and its new answer takes the place of the old one."""
    inner = ScriptedModel(["one", "two"])
    model = CachedModel(inner, store, ttl=60)
    for seconds, answer in ((0, "one"), (59, "one"), (1, "two"), (59, "two")):
        time.now += seconds * 1000
        assert (await model.respond(HELLO)).message.text == answer
    assert len([item async for item in store.scan(("cache",))]) == 1


async def test_text_from_the_store_is_streamed(store):
    """A listener hears the same text; a run with tools is the same in events and result the second time."""
    model = CachedModel(ScriptedModel([CALL, "It is sunny."]), store)
    runs = []
    for _ in range(2):
        agent = Agent(single_run(), model=model, tools=[weather])
        runs.append("".join([text async for text in agent.stream("Oslo?").text()]))
    assert runs == ["It is sunny."] * 2


async def test_a_run_that_is_answered_from_the_store_spends_nothing(store):
    """Budgets of tokens and of money are not touched, and the ledger names the model that answered."""
    with openai_server([CALL, "It is sunny."]) as server:
        async with OpenAIModel("m", base_url=server.base_url) as inner:
            model = CachedModel(PricedModel(inner, Prices(1, 1)), store)
            agent = Agent(single_run(), model=model, tools=[weather], max_cost=1)
            first, second = await agent.run("Oslo?"), await agent.run("Oslo?")
    assert first.usage.cost > 0
    assert second.output == first.output == "It is sunny."
    assert second.usage == Usage()
    assert [each.model for each in second.ledger.charges] == [each.model for each in first.ledger.charges]
    assert len(server.requests) == 2


async def test_a_time_beyond_all_sense_is_for_ever():
    """It is a number like any other."""
    model = CachedModel(ScriptedModel(["one"]), MemoryStore(), ttl=1e300)
    assert [(await model.respond(HELLO)).message.text for _ in range(2)] == ["one", "one"]


@pytest.mark.parametrize("finish_reason", ["length", "content_filter"])
async def test_half_an_answer_is_not_stored(finish_reason):
    """It is asked for again."""
    half = ModelResponse(Message.assistant("The tram"), finish_reason=finish_reason)
    model = CachedModel(ScriptedModel([half, "The tram leaves."]), MemoryStore())
    await model.respond(HELLO)
    assert (await model.respond(HELLO)).message.text == "The tram leaves."


async def test_a_failure_is_not_stored():
    """What the model raises comes through, and the next request asks again."""
    model = CachedModel(ScriptedModel([ModelRequestError("no"), "yes"]), MemoryStore())
    with pytest.raises(ModelRequestError):
        await model.respond(HELLO)
    assert (await model.respond(HELLO)).message.text == "yes"


@pytest.mark.parametrize(
    "damage",
    [
        lambda value: b"",
        lambda value: b"\x07" + value[1:],
        lambda value: value[:-3],
        lambda value: value[:9] + b'{"model": 1}',
        lambda value: value[:9] + b'{"model":"m","parts":[{"other":1}],"finish_reason":"stop","usage":{}}',
        lambda value: value[:9] + b'{"model":"m","parts":["x"],"finish_reason":"stop","usage":{"input_tokens":"many"}}',
        lambda value: value[:9] + b"[" * 100_000,
        lambda value: (
            value[:9]
            + b'{"model":"m","parts":[{"type":"tool_call","name":"f","arguments":{"a":Infinity}}],"finish_reason":"stop","usage":{}}'
        ),
        lambda value: value[:9] + b"\xff\xfe",
    ],
)
async def test_an_entry_of_another_form_is_replaced(damage):
    """Nothing is lost by it: the model is asked, and the new answer is stored in its place."""
    store, inner = MemoryStore(), ScriptedModel(["one", "two"])
    model = CachedModel(inner, store)
    await model.respond(HELLO)
    [item] = [each async for each in store.scan(())]
    await store.commit(Put(item.key, damage(item.value)))
    assert [(await model.respond(HELLO)).message.text for _ in range(2)] == ["two", "two"]


@pytest.mark.every_loop
async def test_two_that_ask_at_once_are_both_answered(store):
    """Both may ask the model; both answers can be stored, and the last one stays."""
    model = CachedModel(ScriptedModel(["one", "two"]), store)
    answers = []

    async def ask():
        answers.append((await model.respond(HELLO)).message.text)

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        group.start_soon(ask)
    assert set(answers) <= {"one", "two"}
    assert (await model.respond(HELLO)).message.text in answers


async def test_what_is_stored_can_be_erased(time, store):
    """One answer, those of one owner, or those that have expired."""
    inner = ScriptedModel([str(number) for number in range(20)])
    ada, bob = (CachedModel(inner, store, owner=owner, ttl=ttl) for owner, ttl in (("ada", 60), ("bob", None)))
    other = replace(HELLO, parameters={"seed": 1})

    async def stored():
        return len([item async for item in store.scan(("cache",))])

    for model in (ada, bob):
        for request in (HELLO, other):
            await model.respond(request)
    assert await stored() == len(inner.requests) == 4
    await ada.forget(HELLO)
    await ada.forget(HELLO)
    assert await stored() == 3
    time.now += 60_000
    await bob.clear(expired=True)
    assert await stored() == 3
    await ada.clear(expired=True)
    assert await stored() == 2
    await bob.clear()
    assert await stored() == 0
    await bob.respond(HELLO)
    assert len(inner.requests) == 5


async def test_no_word_of_a_request_is_in_the_store(tmp_path):
    """Keys are hashes, and what is forgotten is gone from the file; in a sealed store, neither answers nor hashes can be read."""
    asked = ModelRequest((Message.user("the codeword is nightingale"),))
    path = tmp_path / "answers.db"
    async with SqliteStore(path) as store:
        model = CachedModel(ScriptedModel(["I like butterscotch."]), store)
        await model.respond(asked)
        assert b"butterscotch" in _bytes(tmp_path)
        assert b"nightingale" not in _bytes(tmp_path)
        await model.forget(asked)
    assert b"butterscotch" not in _bytes(tmp_path)
    sealed = tmp_path / "sealed"
    sealed.mkdir()
    async with EncryptedStore(SqliteStore(sealed / "answers.db"), new_key()) as store:
        model = CachedModel(ScriptedModel(["I like butterscotch."]), store)
        await model.respond(asked)
        assert model._name_of(asked).encode() not in _bytes(sealed)
    assert b"butterscotch" not in _bytes(sealed)


def _bytes(folder):
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())


async def test_a_store_that_fails_is_no_miss(tmp_path):
    """A file that cannot be read is an error, before the model is asked."""
    path = tmp_path / "answers.db"
    path.write_bytes(b"no database" * 1000)
    inner = ScriptedModel(["never"])
    with pytest.raises(StoreError):
        await CachedModel(inner, SqliteStore(path)).respond(HELLO)
    assert inner.requests == []


async def test_what_cannot_be_compared_is_refused():
    """A parameter that is no JSON names itself by its type; wrong arguments say what to write."""
    inner = ScriptedModel(["never"])
    with pytest.raises(SerializationError, match="of type object"):
        await CachedModel(inner, MemoryStore()).respond(replace(HELLO, parameters={"x": object()}))
    with pytest.raises(TypeError, match=r"takes a store, not a str; write CachedModel\(model, store, ttl=3600\)"):
        CachedModel(inner, "answers.db")
    with pytest.raises(TypeError, match="takes a model, not a MemoryStore"):
        CachedModel(MemoryStore(), inner)
    for ttl in (0, -1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="number of seconds above 0"):
            CachedModel(inner, MemoryStore(), ttl=ttl)
    with pytest.raises(TypeError, match="ttl is a number of seconds or None, not a str"):
        CachedModel(inner, MemoryStore(), ttl="1h")
    model = CachedModel(OpenAIModel("m", base_url="http://h/v1", api_key="s3cret"), MemoryStore())
    assert repr(model) == "<<OpenAIModel: model 'm' at h>, cached in MemoryStore()>"
    assert not model.tells_cost


TEXTS = st.text(st.characters(exclude_categories=[]), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXTS, JSON, max_size=3)
PROVIDERS = st.none() | st.builds(ProviderData, TEXTS, OBJECTS)
PARTS = (
    st.builds(Text, TEXTS, provider=PROVIDERS)
    | st.builds(Reasoning, TEXTS, provider=PROVIDERS)
    | st.builds(ToolCall, TEXTS, OBJECTS, TEXTS, TEXTS, provider=PROVIDERS)
    | st.builds(Image.restored, st.binary(max_size=9), TEXTS, TEXTS)
)
COUNTS = st.integers(0, 10**9)
RESPONSES = st.builds(
    ModelResponse,
    st.builds(Message, st.just("assistant"), st.lists(PARTS, max_size=4).map(tuple)),
    st.builds(Usage, COUNTS, COUNTS, COUNTS, COUNTS, st.decimals(0, 1000, places=9)),
    TEXTS,
    TEXTS,
)


@settings(max_examples=examples(300))
@given(RESPONSES)
def test_a_response_is_read_as_it_was(response):
    """Whatever a model may answer: half surrogates, large numbers, data of providers."""
    assert read_response(json.loads(dumps(response_json(response)))) == response


@settings(max_examples=examples(200))
@given(st.lists(PARTS, max_size=4).map(tuple))
def test_any_request_has_a_form(parts):
    """It is JSON, and the same each time."""
    request = ModelRequest((Message("user", parts),))
    assert dumps(request_json(request)) == dumps(request_json(request))
