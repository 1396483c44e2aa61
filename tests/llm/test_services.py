"""What services send over Chat Completions, byte by byte (`services/`): read as it was, whole and in pieces, and sent back where it is wanted."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from graphagent import END, START, Agent, Strategy
from graphagent.errors import (
    AllModelsFailedError,
    ContentFilterError,
    ModelError,
    ModelRequestError,
    NodeFailedError,
    OutputError,
)
from graphagent.llm import (
    FallbackModel,
    LimitedModel,
    Message,
    ModelRequest,
    PricedModel,
    Prices,
    Reasoning,
    RetryModel,
    Text,
    ToolCall,
    Usage,
)
from graphagent.llm._families import family_of
from graphagent.llm.openai import OpenAIModel
from graphagent.nodes import llm_request
from graphagent.store import MemoryStore
from graphagent.testing import RawResponse, ScriptedModel, openai_server
from graphagent_strategies import single_run

ASK = ModelRequest((Message.user("Well?"),))
RECORDED = {
    (path.stem, name): (int(status), kind, body)
    for path in sorted(Path(__file__).parent.joinpath("services").glob("*.txt"))
    for name, status, kind, body in re.findall(
        r"^=== (\S+) (\d+) (.+)\n((?:(?!=== ).*\n)*)", path.read_text("utf-8"), re.MULTILINE
    )
}


def answer(*parts, usage=Usage(), reason="stop"):  # noqa: B008  Usage is a value
    return tuple(Text(part) if isinstance(part, str) else part for part in parts), usage, reason


def withheld(*categories, **more):
    return ContentFilterError, {"categories": categories, **more}


def broken(status=None, **more):
    return ModelRequestError, {"status": status, **more}


def empty(usage):
    return OutputError, {"usage": usage}


LOOK = Reasoning("**Look**")
READ = {
    ("azure", "streamed"): withheld("self_harm", "violence", usage=Usage(17, 4)),
    ("azure", "streamed-late"): withheld("protected_material_text", usage=Usage()),
    ("azure", "streamed-passed"): answer("Hi.", usage=Usage(9, 2)),
    ("azure", "whole"): withheld("hate", "custom_blocklists", usage=Usage(13, 21)),
    ("azure", "failing"): withheld("jailbreak", status=400, usage=None),
    ("groq", "streamed"): answer(Reasoning("Look it up.\n"), "It snows.", usage=Usage(503, 39)),
    ("groq", "whole"): answer("Hi.", usage=Usage(38, 3)),
    ("groq", "failing"): broken(400),
    ("xai", "streamed"): answer(Reasoning("One word."), "Tram", usage=Usage(12, 291, 11, 290, Decimal("0.000146625"))),
    ("xai", "whole"): answer(
        Reasoning("Look it up."), ToolCall("weather", {"city": "Oslo"}, "call_1"), reason="tool_calls",
        usage=Usage(291, 215, 244, 189, Decimal("0.0001399")),
    ),
    ("xai", "failing"): withheld("SAFETY_CHECK_TYPE_BIO", status=403),
    ("gemini", "streamed"): answer(
        ToolCall("now", {}, "function-call-1"), usage=Usage(35, 74, 0, 62), reason="tool_calls"
    ),
    ("gemini", "whole"): answer("Noon.", usage=Usage(66, 34, 0, 28)),
    ("gemini", "withheld"): withheld("PROHIBITED_CONTENT", usage=Usage(8)),
    ("gemini", "failing"): broken(400),
    ("moonshot", "streamed"): answer(Reasoning("Count."), "Three.", usage=Usage(19, 13, 10)),
    ("moonshot", "whole"): answer(Reasoning("Count."), "Three.", usage=Usage(20, 30, 10, 22)),
    ("moonshot", "failing"): withheld(status=400),
    ("mistral", "streamed"): answer("A tram.", usage=Usage(384, 3)),
    ("mistral", "whole"): answer("A tram.", usage=Usage(384, 248), reason="length"),
    ("mistral", "failing"): broken(422),
    ("openai", "streamed"): answer("Oslo", usage=Usage(79, 42)),
    ("openai", "whole"): answer("Oslo", usage=Usage(79, 42, 64)),
    ("openai", "failing"): broken(),
    ("continued", "streamed"): answer("First.", usage=Usage(5, 2)),
    ("continued", "streamed-done"): answer("First.", usage=Usage(5, 2)),
    ("continued", "whole"): answer("First.", usage=Usage(5, 2)),
    ("continued", "failing"): broken(),
    ("snowflake", "streamed"): answer(Reasoning("15 * 27"), "405", usage=Usage(45, 73)),
    ("snowflake", "streamed-reason"): answer("4", usage=Usage(22, 5)),
    ("snowflake", "whole"): answer("It is sunny.", usage=Usage(651, 20)),
    ("snowflake", "failing"): broken(),
    ("functions", "streamed"): answer(ToolCall("joke", {"setup": "Why?"}), reason="tool_calls"),
    ("functions", "whole"): answer(ToolCall("joke", {"setup": "Why?"}), reason="tool_calls", usage=Usage(76, 33)),
    ("functions", "failing"): empty(Usage(76, 1)),
    ("together", "streamed"): answer("Two trams.", usage=Usage(18, 4)),
    ("together", "whole"): answer(" Two trams.", usage=Usage(18, 35)),
    ("together", "failing"): broken(503),
    ("openrouter", "streamed"): answer(LOOK, "4.0.6", usage=Usage(164, 85, 0, 49, Decimal("0.066407"))),
    ("openrouter", "streamed-failing"): broken(502),
    ("openrouter", "whole"): answer(
        Reasoning("**Look**\n\n**Cite**"), "4.0.6", usage=Usage(164, 85, 0, 49, Decimal("0.066407"))
    ),
    ("openrouter", "empty"): empty(Usage(633, 9, cost=Decimal("0.000678"))),
    ("openrouter", "failing"): broken(429),
    ("openrouter", "failing-at-the-top"): broken(503),
    ("openrouter", "moderated"): withheld("violence", "self-harm", status=403),
    ("deepseek", "streamed"): answer(Reasoning("Add."), "Three.", usage=Usage(10, 6, 8, 3)),
    ("deepseek", "whole"): answer(Reasoning("Add."), "Three.", usage=Usage(10, 6, 8, 3)),
    ("deepseek", "failing"): broken(usage=Usage(10, 2)),
    ("cerebras", "streamed"): answer(Reasoning("Add."), "Three.", usage=Usage(80, 40, 0, 27)),
    ("cerebras", "whole"): answer(Reasoning("Add."), "Three.", usage=Usage(80, 40, 0, 27)),
    ("cerebras", "failing"): broken(422),
    ("ollama", "streamed"): answer(
        Reasoning("Add."), ToolCall("add", {"a": 1}, "call_1"), usage=Usage(30, 12), reason="tool_calls"
    ),
    ("ollama", "whole"): answer(
        Reasoning("Add."), ToolCall("add", {"a": 1}, "call_1"), usage=Usage(30, 12), reason="tool_calls"
    ),
    ("ollama", "failing"): broken(404),
    ("gpustack", "streamed"): answer(Reasoning("Add."), "\n\nThree.", usage=Usage(18, 9, 16, 5)),
    ("gpustack", "whole"): answer(Reasoning("Add."), "\n\nThree.", usage=Usage(18, 9, 16, 5)),
    ("gpustack", "failing"): broken(503),
    ("qwen", "streamed"): answer(Reasoning("Add."), "Three.", usage=Usage(14, 9, 0, 4)),
    ("qwen", "whole"): answer(Reasoning("Add."), "Three.", usage=Usage(14, 9, 0, 4)),
    ("qwen", "failing"): withheld(status=400),
    ("anthropic", "streamed"): answer("Three.", usage=Usage(16, 5)),
    ("anthropic", "whole"): answer("Three.", usage=Usage(16, 5)),
    ("anthropic", "failing"): broken(529),
    ("zai", "streamed"): answer(Reasoning("Add."), "Three.", usage=Usage(12, 7, 2)),
    ("zai", "whole"): answer(Reasoning("Add."), "Three.", usage=Usage(12, 7, 2)),
    ("zai", "failing"): broken(429),
    ("minimax", "streamed"): answer(Reasoning("Add."), "Three.", usage=Usage(20, 10, 0, 6)),
    ("minimax", "whole"): answer(Reasoning("Add."), "Three.", usage=Usage(20, 10, 0, 6)),
    ("minimax", "failing"): broken(),
    ("vllm", "streamed"): answer(Reasoning("Add."), "Three.", usage=Usage(70, 20)),
    ("vllm", "whole"): answer(Reasoning("Add."), "Three.", usage=Usage(70, 20)),
    ("vllm", "failing"): broken(400),
    ("llamacpp", "streamed"): answer("The tram leaves.", usage=Usage(14, 7, 13)),
    ("llamacpp", "streamed-call"): answer(
        ToolCall("weather", {"city": "Oslo"}, "AnVA"), usage=Usage(257, 4, 1), reason="tool_calls"
    ),
    ("llamacpp", "whole"): answer(" one two three four five", usage=Usage(16, 5, 1), reason="length"),
    ("llamacpp", "failing"): broken(400),
    ("litellm", "streamed"): answer("The tram leaves.", usage=Usage(14, 7, 13)),
    ("litellm", "whole"): answer("The tram leaves.", usage=Usage(14, 7)),
    ("litellm", "failing"): broken(400),
    ("transformers", "streamed"): answer(
        ToolCall("weather", {"city": "Oslo"}, "t1_tool_call_0"), usage=Usage(256, 4), reason="tool_calls"
    ),
    ("transformers", "whole"): answer("one two three four five", usage=Usage(15, 5), reason="length"),
    ("transformers", "failing"): broken(500),
}  # fmt: skip


def recorded(service, name, size=None):
    """What the service sent, in pieces of that many bytes, each of which the client reads by itself."""
    status, kind, body = RECORDED[service, name]
    content = body.encode()
    size = size or len(content)
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    chunked = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    return RawResponse(status, {"content-type": kind, "transfer-encoding": "chunked"}, chunked)


def streams(service, name):
    return RECORDED[service, name][1].startswith("text/event-stream")


async def respond(model, request=ASK, *, streaming=False):
    """The outcome of a request: parts, usage and reason, or an error; what was heard is what was said."""
    heard = []
    try:
        response = await model.respond(request, heard.append if streaming else None)
    except ModelError as error:
        return error
    assert not streaming or "".join(heard) == response.message.text
    return response.message.parts, response.usage, response.finish_reason


def test_each_service_is_read_streamed_whole_and_failing():
    """No recording is without a line above, nor a line without a recording."""
    assert RECORDED.keys() == READ.keys()
    for service in {service for service, _ in RECORDED}:
        assert {"streamed", "whole", "failing"} <= {name for each, name in RECORDED if each == service}


@pytest.mark.parametrize(("service", "name"), READ)
async def test_what_services_send_is_read_as_it_was(service, name):
    """Text, reasoning, calls, reasons and tokens, or an error of its kind, the same however the bytes are cut."""
    expected = READ[service, name]
    async with (
        openai_server([recorded(service, name, size) for size in (1, 701, None)]) as server,
        OpenAIModel("m", base_url=server.base_url, max_retries=0) as model,
    ):
        for number in range(3):  # the last time, a stream is asked for also of what is none
            found = await respond(model, streaming=streams(service, name) or number == 2)
            if isinstance(found, ModelError):
                kind, attributes = expected
                assert type(found) is kind, found
                assert {each: getattr(found, each) for each in attributes} == attributes
                assert "secret" not in str(found)
                assert not re.search("OpenAI-compatible", str(found))
            else:
                parts, *rest = found
                assert (tuple(replace(part, provider=None) for part in parts), *rest) == expected


# What goes back

DETAILS = [
    {"type": "reasoning.summary", "summary": "**Look**", "format": "openai-responses-v1", "index": 0},
    {"type": "reasoning.encrypted", "data": "gAAA", "format": "openai-responses-v1", "id": "rs_1", "index": 1},
]
BACK = {
    "cerebras": ("cerebras", {"reasoning": "Add."}),
    "deepseek": ("deepseek", {"reasoning_content": "Add."}),
    "gpustack": ("gpustack", {"reasoning_content": "Add.", "reasoning": "Add."}),
    "moonshot": ("moonshot", {"reasoning_content": "Count."}),
    "ollama": ("ollama", {"reasoning": "Add."}),
    "gemini": ("google", {}),
    "mistral": ("mistral", {}),
    "xai": ("xai", {}),
}


@pytest.mark.parametrize("name", ["streamed", "whole"])
@pytest.mark.parametrize("service", BACK)
async def test_reasoning_goes_back_where_it_is_wanted(service, name):
    """In the field that the server takes, in each later request; where none is wanted, none is sent."""
    family, fields = BACK[service]
    async with (
        openai_server([recorded(service, name), "Yes."]) as server,
        OpenAIModel("m", base_url=server.base_url, family=family) as model,
    ):
        parts, *_ = await respond(model, streaming=streams(service, name))
        said = Message("assistant", parts)
        await model.respond(ModelRequest((*ASK.messages, said, Message.user("Sure?"))))
    [sent] = [each for each in server.requests[1]["messages"] if each["role"] == "assistant"]
    assert {each: value for each, value in sent.items() if each.startswith("reasoning")} == fields


@pytest.mark.parametrize("name", ["streamed", "whole"])
@pytest.mark.parametrize("service", ["gpustack", "ollama"])
async def test_a_server_on_any_host_is_known_by_its_answers(service, name):
    """Whatever its model is called; its reasoning returns to it, also from another process, and to no other server."""
    async with openai_server([recorded(service, name), "Yes."]) as server, openai_server(["Yes."]) as other:
        async with OpenAIModel("qwen3", base_url=server.base_url) as model:
            parts, *_ = await respond(model, streaming=streams(service, name))
        request = ModelRequest((*ASK.messages, Message("assistant", parts), Message.user("Sure?")))
        for each in (server, other):
            async with OpenAIModel("qwen3", base_url=each.base_url) as model:
                await model.respond(request)
    sent, elsewhere = (each.requests[-1]["messages"][1] for each in (server, other))
    assert {each: value for each, value in sent.items() if each.startswith("reasoning")} == BACK[service][1]
    assert not any(each.startswith("reasoning") for each in elsewhere)


@pytest.mark.parametrize("name", ["streamed", "whole"])
async def test_what_is_not_understood_goes_back_as_it_came(name):
    """Encrypted details and annotations return to OpenRouter unmodified, a signature to Gemini, and to other servers nothing of it."""
    async with openai_server([recorded("openrouter", name), "Yes.", "Yes."]) as server:
        async with OpenAIModel("m", base_url=server.base_url, family="openrouter") as model:
            parts, *_ = await respond(model, streaming=streams("openrouter", name))
            request = ModelRequest((*ASK.messages, Message("assistant", parts), Message.user("Sure?")))
            await model.respond(request)
        async with OpenAIModel("m", base_url=server.base_url, family="ollama") as model:
            await model.respond(request)
    _, sent, elsewhere = (each["messages"][1] if len(each["messages"]) > 1 else {} for each in server.requests)
    assert sent["reasoning_details"][:2] == DETAILS
    if name == "whole":
        content = [{"type": "text", "text": "A"}]
        assert sent["annotations"] == [{"type": "file", "file": {"hash": "h", "name": "a.pdf", "content": content}}]
    else:
        assert [each["url_citation"]["url"][-1] for each in sent["annotations"]] == ["a", "b"]
    assert elsewhere == {"role": "assistant", "content": "4.0.6"}


@pytest.mark.parametrize(
    ("host", "family"),
    [
        ("api.cerebras.ai", "cerebras"), ("ollama.com", "ollama"), ("api.x.ai", "xai"),
        ("org-account.snowflakecomputing.com", "snowflake"), ("openrouter.ai", "openrouter"), ("api.moonshot.ai", "moonshot"),
    ],
)  # fmt: skip
def test_a_service_is_known_by_its_host(host, family):
    """Whatever the model is called."""
    found = family_of(host, "gpt-oss-120b")
    assert found is not None
    assert found.name == family


# What a filter and an error lead to


async def test_another_model_answers_what_a_filter_refuses():
    """`on=` chooses by the error; the tokens of the answer that was withheld count, at the price of its model."""
    prices = {"m": Prices(input=1, output=1), "small": Prices(input=10, output=10)}
    async with (
        openai_server([recorded("azure", "whole")]) as server,
        OpenAIModel("m", base_url=server.base_url) as model,
    ):
        models = FallbackModel(model, ScriptedModel(["Here."], name="small"), on=ContentFilterError)
        result = await Agent(single_run(), model=PricedModel(models, prices)).run("Well?")
    assert result.output == "Here."
    first, second = result.ledger.charges
    assert (first.model, first.usage) == ("m", Usage(13, 21, cost=Decimal("0.000034")))
    assert second.model == "small"
    assert result.usage == first.usage + second.usage


@pytest.mark.parametrize("service", ["moonshot", "azure"])
async def test_what_a_filter_refuses_is_not_asked_again_unasked(service):
    """A RetryModel raises it at once, whatever its status; a node that names it asks again."""
    name = "failing" if service == "moonshot" else "whole"
    async with (
        openai_server([recorded(service, name), recorded(service, name), "Here."]) as server,
        OpenAIModel("m", base_url=server.base_url) as model,
    ):
        with pytest.raises(ContentFilterError):
            await RetryModel(model, 3).respond(ASK)
        assert len(server.requests) == 1
        ask = llm_request(tools=False).retry(attempts=2, wait=0, errors=ContentFilterError)
        result = await Agent(Strategy("again", START >> ask >> END), model=model).run("Well?")
    assert result.output == "Here."


@pytest.mark.parametrize(
    ("service", "name", "kind", "usage"),
    [
        ("azure", "whole", ContentFilterError, Usage(13, 21)),
        ("openrouter", "empty", OutputError, Usage(1266, 18, cost=Decimal("0.001356"))),
        ("deepseek", "failing", ModelRequestError, Usage(10, 2)),
    ],
)
async def test_what_no_answer_came_of_counts_all_the_same(service, name, kind, usage):
    """In the run, which can be resumed, and in the limits of a model. Nothing at all is asked for once more."""
    store, more = MemoryStore(), [recorded(service, name)] if kind is OutputError else []
    async with (
        openai_server([recorded(service, name), *more, "Here."]) as server,
        OpenAIModel("m", base_url=server.base_url, max_retries=0) as model,
    ):
        limited = LimitedModel(model, tokens_per_minute=1_000_000)
        run = Agent(single_run(), model=limited, store=store).start("Well?", run_id="r")
        with pytest.raises(NodeFailedError) as caught:
            await run.finish()
        assert isinstance(caught.value.__cause__, kind)
        assert run.result.usage == usage
        resumed = await Agent(single_run(), model=limited, store=store).resume("r")
    assert resumed.output == "Here."
    assert resumed.usage.total_tokens > usage.total_tokens


@pytest.mark.parametrize("wrapped", [lambda model: FallbackModel(model, model), lambda model: RetryModel(model, 2),
                                     lambda model: FallbackModel(model, model, on=lambda error: "broke off" in str(error))])  # fmt: skip
async def test_the_last_error_says_what_all_requests_took(wrapped):
    """The error of a fallback and of a retry has those before with their tokens, also if it is raised as it is."""
    replies = [recorded("deepseek", "failing"), recorded("azure", "whole")]
    async with (
        openai_server(replies) as server,
        OpenAIModel("m", base_url=server.base_url, max_retries=0) as model,
    ):
        with pytest.raises((AllModelsFailedError, ContentFilterError)) as caught:
            await wrapped(model).respond(ASK)
    assert sum((each.usage for each in caught.value.failed), Usage()) == Usage(23, 23)


@pytest.mark.parametrize(("host", "tells"), [("api.x.ai", True), ("openrouter.ai", True), ("api.ax.ai", False)])
def test_a_budget_of_money_can_rely_on_servers_that_say_what_they_take(host, tells):
    """By their hosts."""
    assert OpenAIModel("m", base_url=f"https://{host}/v1").tells_cost == tells


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_script_of_the_local_server_can_object(streaming):
    """A ContentFilterError among its replies arrives as one."""
    objection = ContentFilterError("no", categories=("violence",), status=400)
    async with openai_server([objection]) as server, OpenAIModel("m", base_url=server.base_url) as model:
        found = await respond(model, streaming=streaming)
    assert isinstance(found, ContentFilterError)
    assert (found.categories, found.status) == (("violence",), 400)
