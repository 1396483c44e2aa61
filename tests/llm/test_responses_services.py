"""Responses as services send them, byte by byte over HTTP: what is not understood is kept, and what is no answer is an error."""

from __future__ import annotations

import json
import re
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from graphagent.errors import ContentFilterError, ModelRequestError, OutputError, TruncatedError
from graphagent.llm import Message, ModelRequest, ToolResult, Usage
from graphagent.llm.openai import OpenAIModel
from graphagent.testing import RawResponse, openai_server

ASK = (Message.user("Hello?"),)
SIZES = pytest.mark.parametrize("size", [1, 701, 1_000_000])
BOTH = pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])


@asynccontextmanager
async def service(*bodies, size=701):
    """A server that sends these bodies, in chunks of a size; `requests` has the bytes that it was sent."""
    replies, requests = iter(bodies), []

    async def handle(stream):
        received = b""
        async with stream:
            while True:
                try:
                    while b"\r\n\r\n" not in received:
                        received += await stream.receive()
                    head, _, received = received.partition(b"\r\n\r\n")
                    length = next(
                        int(each[15:]) for each in head.lower().split(b"\r\n") if each.startswith(b"content-length:")
                    )
                    while len(received) < length:
                        received += await stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    return
                requests.append(received[:length])
                received = received[length:]
                body = next(replies)
                kind = b"text/event-stream; charset=utf-8" if body.startswith(b"event:") else b"application/json"
                status = 400 if body.startswith(b'{"error"') else 200
                sent = b"HTTP/1.1 %d OK\r\ncontent-type: %s\r\ntransfer-encoding: chunked\r\n\r\n" % (status, kind)
                pieces = (body[start : start + size] for start in range(0, len(body), size))
                await stream.send(
                    sent + b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in pieces) + b"0\r\n\r\n"
                )

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, handle)
        async with OpenAIModel(
            "m", protocol="responses", base_url=f"http://127.0.0.1:{port}/v1", api_key="k", max_retries=0
        ) as model:
            yield model, requests
        group.cancel_scope.cancel()


def response(
    *items, status="completed", usage="null", more='"error":null,"incomplete_details":null', identity="resp_1"
):
    return (
        f'{{"id":"{identity}","object":"response","created_at":1785442687,"status":"{status}","background":false,{more},'
        f'"model":"gpt-5.4-2026-03-05","output":[{",".join(items)}],"usage":{usage}}}'
    )


def event(kind, **fields):
    # A field that is text is JSON already.
    data = "".join(f',"{name}":{value}' for name, value in fields.items())
    return f'event: response.{kind}\ndata: {{"type":"response.{kind}","sequence_number":0{data}}}\n\n'


def stream(*items, end="completed", done=None, deltas=1.0, final=None, **fields):
    """The events of a response: items of `done` are reported as done, and so much of each text comes in pieces."""
    identity = fields.get("identity", "resp_1")
    begun = response(status="in_progress", identity=identity)
    events = [event("created", response=begun), event("in_progress", response=begun)]
    for index, item in enumerate(items):
        events.append(event("output_item.added", output_index=index, item='{"type":"x","status":"in_progress"}'))
        said = json.loads(item)
        for at, piece in enumerate(said.get("content") or () if said["type"] == "message" else ()):
            text = piece["text"][: int(len(piece["text"]) * deltas)]
            for start in range(0, len(text), 7):
                delta = json.dumps(text[start : start + 7], ensure_ascii=False)
                events.append(event("output_text.delta", output_index=index, content_index=at, delta=delta))
        if done is None or index in done:
            events.append(event("output_item.done", output_index=index, item=item))
    if end:
        whole = response(*(items if final is None else final), status=end, **fields)
        events.append(event(end, response=whole))
    return "".join(events)


def said(text, identity=1, annotations="[]"):
    text = json.dumps(text, ensure_ascii=False)
    piece = f'{{"type":"output_text","annotations":{annotations},"logprobs":[],"text":{text}}}'
    return (
        f'{{"id":"msg_{identity}","type":"message","status":"completed","content":[{piece}],"phase":"final_answer",'
        f'"role":"assistant"}}'
    )


REASONING = '{"id":"rs_1","type":"reasoning","encrypted_content":"gAAAAAB_1-x","summary":[]}'
CALL = (
    '{"id":"fc_1","type":"function_call","status":"completed","arguments":"{\\"city\\":\\"Tromsø\\"}","call_id":"call_1",'
    '"name":"weather","namespace":"weather"}'
)
SHELL = (
    '{"id":"sh_1","type":"shell_call","status":"completed","action":{"commands":["uname -a"],"max_output_length":null},'
    '"call_id":"call_s","environment":{"type":"container_reference","container_id":"cntr_1"}}'
)
ANSWERS = {
    "code": (
        REASONING,
        said("First I compute.", 1),
        ('{"id":"ci_1","type":"code_interpreter_call","status":"completed","code":"print(1)\\r\\n","container_id":"cntr_1",'
        '"outputs":[{"type":"logs","logs":"-428330955.97745"},{"type":"image","url":"data:image/png;base64,iVBORw0="}]}'),
        said("Then I say “1”.\n", 2, '[{"type":"container_file_citation","file_id":"cfile_1","start_index":0}]'),
    ),
    "mcp": (
        ('{"id":"mcpl_1","type":"mcp_list_tools","server_label":"deepwiki","tools":[{"annotations":{"read_only":false},'
        '"description":"Ask","input_schema":{"type":"object","required":["a"]},"name":"ask"}]}'),
        REASONING,
        ('{"id":"mcp_1","type":"mcp_call","status":"completed","approval_request_id":null,"arguments":"{\\"a\\": 1}",'
        '"error":null,"name":"ask","output":"An answer.","server_label":"deepwiki"}'),
        said("As the wiki says: é."),
    ),
    "web search": (
        said("I look it up."),
        ('{"id":"ws_1","type":"web_search_call","status":"completed","action":{"type":"search","query":"weather: Oslo",'
        '"sources":[{"type":"api","name":"oai-weather"}]}}'),
        said("Rain.", 2),
    ),
    "tool search": (
        ('{"id":"tsc_1","type":"tool_search_call","status":"completed","arguments":{"paths":["weather"]},"call_id":null,'
        '"execution":"server"}'),
        ('{"id":"tso_1","type":"tool_search_output","status":"completed","call_id":null,"execution":"server","tools":[{"type":'
        '"function","defer_loading":true,"name":"weather","output_schema":null,"parameters":{"type":"object"},"strict":true}]}'),
        '{"id":"at_1","type":"additional_tools","role":"developer","tools":[{"type":"function","name":"later"}]}',
        CALL,
    ),
    "shell": (
        SHELL,
        ('{"id":"sho_1","type":"shell_call_output","status":"completed","call_id":"call_s","output":[{"outcome":{"type":"exit",'
        '"exit_code":0},"stderr":"","stdout":"Linux\\n"}]}'),
        said("It is Linux."),
    ),
    "last": (said("A picture:"), '{"id":"ig_1","type":"image_generation_call","status":"completed","result":"iVBORw0="}'),
    "unknown": (REASONING, '{"id":"q_1","type":"quantum_call","state":[0.5,null,{"deep":[1e3]}],"é":"ß"}', said("So.")),
    "pieces": (
        ('{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"One '
        '","annotations":[]},{"type":"output_text","text":"two.","annotations":[{"type":"url_citation","url":"https://a.b"}]}]}'),
    ),
    "spaced arguments": (CALL.replace('{\\"city\\":', '{ \\"city\\" : '),),
}  # fmt: skip


@BOTH
@pytest.mark.parametrize("server", ["litellm", "llamacpp", "transformers"])
async def test_what_local_servers_send_is_read_as_it_was(server, streaming):
    """Events without numbers, an item that took the number of another, a stream with a last word or without one."""
    path = Path(__file__).parent / "services" / "responses" / f"{server}.txt"
    found = re.findall(r"^=== (\S+) 200 (.+)\n((?:(?!=== ).*\n)*)", path.read_text("utf-8"), re.MULTILINE)
    recorded = {name: (kind, body) for name, kind, body in found}
    kind, body = recorded["streamed" if streaming else "whole"]
    heard: list[str] = []
    async with (
        openai_server([RawResponse(200, {"content-type": kind}, body.encode())]) as local,
        OpenAIModel("m", protocol="responses", base_url=local.base_url) as model,
    ):
        answer = await model.respond(ModelRequest(ASK), heard.append if streaming else None)
    assert answer.message.text == "The tram leaves."
    assert not streaming or "".join(heard) == answer.message.text
    [call] = answer.message.tool_calls
    assert (call.name, call.arguments, call.id) == ("weather", {"city": "Oslo"}, "call_1")
    assert (answer.usage, answer.finish_reason) == (Usage(14, 7, 13), "tool_calls")


@SIZES
@BOTH
@pytest.mark.parametrize("case", ANSWERS)
async def test_the_items_of_an_answer_go_back_as_they_came(case, streaming, size):
    """Text in the middle keeps its order and its length; all that is attached goes back byte for byte."""
    items, heard = ANSWERS[case], []
    reply = (stream(*items) if streaming else response(*items)).encode()
    async with service(reply, response(said("Fine.")).encode(), size=size) as (model, requests):
        answer = await model.respond(ModelRequest(ASK), heard.append if streaming else None)
        results = [Message.tool(ToolResult(call.id, call.name, "Sun")) for call in answer.message.tool_calls]
        await model.respond(ModelRequest((*ASK, answer.message, *(results or ASK))))
    texts = [piece["text"] for each in map(json.loads, items) if each["type"] == "message" for piece in each["content"]]
    assert answer.message.text == "".join(texts)
    assert not streaming or "".join(heard) == answer.message.text
    sent = requests[1].decode()
    assert ",".join(items).replace("1e3", "1000.0") in sent
    calls = [(call.name, call.arguments, call.id) for call in answer.message.tool_calls]
    assert calls == [("weather", {"city": "Tromsø"}, "call_1")] * sent.count('"type":"function_call"')


REFUSAL = (
    '{"error":{"message":"Reasoning input items can only be provided to a reasoning or computer use model. Remove reasoning items '
    'from your input and try again.","type":"invalid_request_error","param":"input","code":null}}'
)


@pytest.mark.parametrize("refused", [True, False])
async def test_without_reasoning_the_other_items_go_back(refused):
    """Calls with their namespace and what is not of reasoning, to a model that refuses reasoning and where a program removed it."""
    items = (said("Before."), REASONING, ANSWERS["web search"][1], said("After.", 2), CALL)
    replies = [response(*items), *([REFUSAL] if refused else []), response(said("Fine."))]
    async with service(*(each.encode() for each in replies), size=701) as (model, requests):
        parts = (await model.respond(ModelRequest(ASK))).message.parts
        if not refused:
            parts = tuple(part for part in parts if part.provider.data["type"] != "reasoning")
        result = Message.tool(ToolResult("call_1", "weather", "Sun"))
        await model.respond(ModelRequest((*ASK, Message("assistant", parts), result)))
    _, before, after, call, _ = json.loads(requests[-1])["input"]
    assert before == json.loads(items[0])
    assert after == {"type": "message", "role": "assistant", "content": "After.", "phase": "final_answer"}
    assert call == {name: value for name, value in json.loads(CALL).items() if name != "id"}


async def test_what_was_changed_goes_back_as_it_is():
    """Arguments that a person corrected and ids that were replaced are sent, in place of those of the server."""
    async with service(response(CALL).encode(), response(said("Fine.")).encode()) as (model, requests):
        [call] = (await model.respond(ModelRequest(ASK))).message.parts
        changed = replace(call, id="mine", arguments={"city": "Oslo"})
        result = Message.tool(ToolResult("mine", "weather", "Sun"))
        await model.respond(ModelRequest((*ASK, Message("assistant", (changed,)), result)))
    sent = json.loads(requests[1])["input"][1]
    assert (sent["call_id"], json.loads(sent["arguments"]), sent["namespace"]) == ("mine", {"city": "Oslo"}, "weather")


@BOTH
async def test_a_call_that_was_left_to_the_client_goes_back_with_its_result_only(streaming):
    """A server refuses it without: here the client executes nothing but functions."""
    items = (REASONING, SHELL, said("Done."))
    reply = (stream(*items) if streaming else response(*items)).encode()
    async with service(reply, response(said("Fine.")).encode()) as (model, requests):
        answer = await model.respond(ModelRequest(ASK), [].append if streaming else None)
        await model.respond(ModelRequest((*ASK, answer.message, *ASK)))
    assert [each.get("id") for each in json.loads(requests[1])["input"][1:-1]] == ["rs_1", "msg_1"]


# Answers that are none


UNFINISHED = {
    "queued": (response(status="queued"), event("queued", response=response(status="queued")), "queued"),
    "in progress": (response(status="in_progress"), stream(said("Half."), end=""), "in_progress"),
    "begun": (response(said("Half."), status="in_progress"), stream(end=""), "in_progress"),
    "cancelled": (response(status="cancelled"), stream(end="cancelled"), "cancelled"),
    "failed": (
        response(status="failed", more='"error":{"code":"server_error","message":"topsecret"}'),
        stream(end="failed", more='"error":{"code":"server_error","message":"topsecret"}'),
        r"failed while it answered \(server_error\)",
    ),
    "withheld": (
        response(status="incomplete", more='"error":null,"incomplete_details":{"reason":"content_filter"}'),
        stream(said("Half."), end="incomplete", more='"incomplete_details":{"reason":"content_filter"}'),
        "withheld its answer",
    ),
    "another begun": (
        response(status="queued"),
        stream(said("Half."), end="") + stream(said("Whole."), identity="resp_2"),
        "queued|began another answer before the end of the first",
    ),
}  # fmt: skip


@SIZES
@BOTH
@pytest.mark.parametrize("case", UNFINISHED)
async def test_an_answer_that_is_not_finished_is_an_error(case, streaming, size):
    """It says in which state the answer is, and nothing of what was sent."""
    whole, streamed, text = UNFINISHED[case]
    async with service((streamed if streaming else whole).encode(), size=size) as (model, _):
        with pytest.raises(ModelRequestError, match=text) as caught:
            await model.respond(ModelRequest(ASK), [].append if streaming else None)
    assert "topsecret" not in str(caught.value)


TOOK = '{"input_tokens":3,"output_tokens":500,"output_tokens_details":{"reasoning_tokens":500},"total_tokens":503}'
EMPTY = {
    "nothing": ((), "completed", OutputError),
    "no text": ((said(""),), "completed", OutputError),
    "no piece": (('{"id":"msg_1","type":"message","role":"assistant","content":[]}',), "completed", OutputError),
    "hidden reasoning": (('{"id":"rs_1","type":"reasoning","summary":[]}',), "completed", OutputError),
    "cut off": ((), "incomplete", TruncatedError),
    "cut off while reasoning": (('{"id":"rs_1","type":"reasoning","summary":[]}',), "incomplete", TruncatedError),
}  # fmt: skip


@SIZES
@BOTH
@pytest.mark.parametrize("case", EMPTY)
async def test_an_answer_without_parts_is_none(case, streaming, size):
    """The error has what it took."""
    items, status, kind = EMPTY[case]
    body = stream(*items, end=status, usage=TOOK) if streaming else response(*items, status=status, usage=TOOK)
    async with service(body.encode(), size=size) as (model, _):
        with pytest.raises(OutputError, match=r"neither answered nor called a tool|before it said anything") as caught:
            await model.respond(ModelRequest(ASK), [].append if streaming else None)
    assert (type(caught.value), caught.value.usage) == (kind, Usage(3, 500, 0, 500))


HATE = '"content_filter_results":{"hate":{"filtered":true,"severity":"high"},"violence":{"filtered":false,"severity":"safe"}}'
WITHHELD = (
    f'"error":null,"incomplete_details":{{"reason":"content_filter"}},"content_filters":[{{"blocked":true,"source_type":"completion",'
    f"{HATE}}}]"
)
FAILED = '"error":{"code":"content_filter","message":"topsecret"}'
FILTERED = {
    "withheld": (response(said("Half."), status="incomplete", more=WITHHELD), ("hate",)),
    "withheld, streamed": (stream(said("Half."), end="incomplete", more=WITHHELD), ("hate",)),
    "failed, streamed": (stream(end="failed", more=FAILED), ()),
    "refused": (
        (f'{{"error":{{"message":"topsecret","type":null,"param":"prompt","code":"content_filter","status":400,"innererror":{{"code":'
        f'"ResponsibleAIPolicyViolation",{HATE.replace("content_filter_results", "content_filter_result")}}}}}}}'),
        ("hate",),
    ),
}  # fmt: skip


@SIZES
@pytest.mark.parametrize("case", FILTERED)
async def test_a_content_filter_is_a_refusal_that_names_what_it_objects_to(case, size):
    """As Azure says it; the error repeats nothing that was sent."""
    body, categories = FILTERED[case]
    async with service(body.encode(), size=size) as (model, _):
        with pytest.raises(ContentFilterError, match="content filter objected") as caught:
            await model.respond(ModelRequest(ASK), [].append if "streamed" in case else None)
    assert caught.value.categories == categories
    assert "topsecret" not in str(caught.value)


async def test_a_failed_answer_has_what_it_took():
    """Its tokens count in the run."""
    more = '"error":{"code":"server_error","message":"x"}'
    async with service(response(status="failed", more=more, usage=TOOK).encode()) as (model, _):
        with pytest.raises(ModelRequestError) as caught:
            await model.respond(ModelRequest(ASK))
    assert caught.value.usage == Usage(3, 500, 0, 500)


@pytest.mark.parametrize("given", [{"background": True}, {"extra_body": {"background": True}}])
async def test_background_is_refused_before_it_is_sent(given):
    """As a parameter of the model, of the request, and within extra_body; false is no background."""
    async with service(response(said("Hi.")).encode()) as (model, requests):
        with pytest.raises(ModelRequestError, match="leave it out"):
            await model.respond(ModelRequest(ASK, parameters=given))
        assert requests == []
        await model.respond(ModelRequest(ASK, parameters={"background": False}))
    with pytest.raises(ModelRequestError, match="leave it out"):
        await OpenAIModel("m", protocol="responses", base_url="http://127.0.0.1:1/v1", **given).respond(
            ModelRequest(ASK)
        )


# Streams


MCP, SEARCH = ANSWERS["mcp"], ANSWERS["web search"]
STREAMS = {
    "several responses": (
        stream(REASONING, CALL) + stream(said("It is 570."), identity="resp_2") + "data: [DONE]\n\n", (REASONING, CALL),
    ),
    "an error after the end": (stream(*SEARCH) + event("x", error='{"code":"server_error"}'), SEARCH),
    "items that were not done": (stream(*MCP, done=(1, 3)), MCP),
    "none that was done": (stream(*SEARCH, done=()), SEARCH),
    "none at the end": (stream(*SEARCH, final=()), SEARCH),
    "text that was not streamed": (stream(*SEARCH, deltas=0), SEARCH),
    "half a text that was streamed": (stream(*SEARCH, deltas=0.5), SEARCH),
    "text at the end only": (stream(*SEARCH, deltas=0, done=()), SEARCH),
}  # fmt: skip


@SIZES
@pytest.mark.parametrize("case", STREAMS)
async def test_a_stream_is_one_answer_and_its_whole_text_is_heard(case, size):
    """The first one of several, with each item once, in its order; what was not streamed is heard when it is done."""
    body, items = STREAMS[case]
    heard = []
    async with service(body.encode(), response(said("Fine.")).encode(), size=size) as (model, requests):
        answer = await model.respond(ModelRequest(ASK), heard.append)
        results = [Message.tool(ToolResult(call.id, call.name, "Sun")) for call in answer.message.tool_calls]
        await model.respond(ModelRequest((*ASK, answer.message, *(results or ASK))))
    assert f"{','.join(items)}," in requests[1].decode()
    assert json.loads(requests[1])["input"][1:-1] == list(map(json.loads, items))
    assert "".join(heard) == answer.message.text


# Usage


USAGES = {
    "cached and reasoning": (
        ('{"input_tokens":4614,"input_tokens_details":{"cache_write_tokens":9,"cached_tokens":1792},"output_tokens":1844,'
        '"output_tokens_details":{"reasoning_tokens":1024},"total_tokens":6458}'),
        Usage(4614, 1844, 1792, 1024),
    ),
    "reasoning outside of the output": (
        '{"input_tokens":10,"output_tokens":4,"output_tokens_details":{"reasoning_tokens":30},"total_tokens":44}',
        Usage(10, 34, 0, 30),
    ),
    "audio": (
        ('{"input_tokens":60,"input_tokens_details":{"text_tokens":10,"audio_tokens":50,"cached_tokens":8},"output_tokens":70,'
        '"output_tokens_details":{"text_tokens":20,"audio_tokens":50},"total_tokens":130}'),
        Usage(60, 70, 8),
    ),
    "none": ("null", Usage()),
    "rubbish": ('{"input_tokens":"x","output_tokens":-1,"total_tokens":1e400}', Usage()),
}  # fmt: skip


@SIZES
@BOTH
@pytest.mark.parametrize("case", USAGES)
async def test_usage_is_what_was_billed(case, streaming, size):
    """In each of the forms in which services count."""
    said_usage, expected = USAGES[case]
    body = stream(said("Hi."), usage=said_usage) if streaming else response(said("Hi."), usage=said_usage)
    async with service(body.encode(), size=size) as (model, _):
        answer = await model.respond(ModelRequest(ASK), [].append if streaming else None)
    assert answer.usage == expected
