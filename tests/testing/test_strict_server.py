"""Servers that are as strict as real services, seen by the official client: what they refuse, and what they attach."""

from __future__ import annotations

import re

import pytest
from openai import BadRequestError, NotFoundError, UnprocessableEntityError

from graphagent.llm import Message, ModelResponse, Reasoning, Text, ToolCall, ToolCalls
from graphagent.testing import openai_server
from tests.testing.test_openai_server import HELLO, client
from tests.testing.test_responses_server import ADD

CALL = ToolCall("add", {"a": 1}, "c1")
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
STATELESS = {"model": "gpt-5.6-sol", "store": False, "include": ["reasoning.encrypted_content"]}
LOOSE = {"type": "object", "properties": {"a": {"type": "integer"}}}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "2"}
ANSWERED = {"role": "tool", "tool_call_id": "c1", "content": "2"}


def called(**more):
    """An assistant's message with one call."""
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    return {"role": "assistant", "content": None, "tool_calls": [call | more]}


def items(response):
    """The items of a response as a client returns them: the service refuses a status of reasoning."""
    said = [item.model_dump(exclude_none=True) for item in response.output]
    return [
        {name: value for name, value in each.items() if each["type"] != "reasoning" or name != "status"}
        for each in said
    ]


def refusal(openai, /, *, chat=False, status=BadRequestError, **asked):
    """What the server says about a request that it refuses: message, param and code."""
    with pytest.raises(status) as caught:
        (openai.chat.completions if chat else openai.responses).create(**asked)
    body = caught.value.body
    return (body["message"], body["param"], body["code"]) if isinstance(body, dict) else body


def test_a_service_that_is_unknown():
    """The error names those that are known."""
    with pytest.raises(
        ValueError, match="unknown service 'open' for strict=; choose one of 'openai', 'deepseek', 'google', 'mistral'"
    ):
        openai_server([], strict="open")


@pytest.mark.parametrize("effort", [{}, {"reasoning_effort": "low"}])
def test_openai_refuses_tools_with_an_effort_on_chat(effort):
    """The current models do, with the default effort too; without effort or without tools they answer."""
    asked = {"model": "gpt-5.6-sol", "messages": HELLO}
    with openai_server(["Hi."] * 3, strict="openai") as server, client(server) as openai:
        text, param, code = refusal(openai, chat=True, tools=[TOOL], **asked, **effort)
        openai.chat.completions.create(**asked, tools=[TOOL], reasoning_effort="none")
        openai.chat.completions.create(**asked, **effort)
    assert text == (
        "Function tools with reasoning_effort are not supported for gpt-5.6-sol in /v1/chat/completions. To use function tools, "
        "use /v1/responses or set reasoning_effort to 'none'."
    )
    assert (param, code) == ("reasoning_effort", None)


def test_openai_shows_no_reasoning_on_chat():
    """Reasoning of the script is left out, and calls without ids have some."""
    thought = ModelResponse(Message("assistant", (Reasoning("Hm."), Text("Hi."), ToolCall("add"))))
    with openai_server([thought], strict="openai") as server, client(server) as openai:
        message = openai.chat.completions.create(model="m", messages=HELLO).choices[0].message
    assert (message.content, "reasoning_content" in message.model_dump(), message.tool_calls[0].id) == (
        "Hi.",
        False,
        "call_00000100",
    )


CHAT_REFUSALS = {
    "openai: an unknown parameter": (
        {"extra_body": {"thinking": {"type": "enabled"}}},
        ("Unknown parameter: 'thinking'.", "thinking", "unknown_parameter"),
    ),
    "openai: a field of a message": (
        {"messages": [*HELLO, {"role": "assistant", "content": "Hi.", "reasoning_content": "Hm."}, *HELLO]},
        ("Unknown parameter: 'messages[1].reasoning_content'.", "messages[1].reasoning_content", "unknown_parameter"),
    ),
    "openai: a field of a call": (
        {"messages": [*HELLO, called(extra_content={}), ANSWERED]},
        (
            "Unknown parameter: 'messages[1].tool_calls[0].extra_content'.",
            "messages[1].tool_calls[0].extra_content",
            "unknown_parameter",
        ),
    ),
    "openai: a temperature": (
        {"temperature": 0},
        (
            "Unsupported parameter: 'temperature' is not supported with this model.",
            "temperature",
            "unsupported_parameter",
        ),
    ),
    "openai: max_tokens": (
        {"max_tokens": 5},
        (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            "max_tokens",
            "unsupported_parameter",
        ),
    ),
    "openai: a call without a result": (
        {"messages": [*HELLO, called(), *HELLO]},
        (
            (
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The "
                "following tool_call_ids did not have response messages: c1"
            ),
            "messages.[2].role",
            None,
        ),
    ),
    "openai: a result without a call": (
        {"messages": [*HELLO, ANSWERED]},
        (
            "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
            "messages.[1].role",
            None,
        ),
    ),
    "openai: a schema that is not strict": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": LOOSE, "strict": True}}},
        (
            (
                "Invalid schema for response_format 'n': In context=(), 'additionalProperties' is required to be supplied and to be "
                "false."
            ),
            "response_format",
            None,
        ),
    ),
    "deepseek: a JSON schema": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": LOOSE}}},
        ("This response_format type is unavailable now", None, "invalid_request_error"),
    ),
    "deepseek: a call without its reasoning": (
        {"messages": [*HELLO, called(), ANSWERED]},
        ("The `reasoning_content` in the thinking mode must be passed back to the API.", None, "invalid_request_error"),
    ),
    "deepseek: a call without a result": (
        {"messages": [*HELLO, called()]},
        (
            (
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
                "(insufficient tool messages following tool_calls message)"
            ),
            None,
            "invalid_request_error",
        ),
    ),
    "deepseek: a result without a call": (
        {"messages": [*HELLO, ANSWERED]},
        (
            "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
            None,
            "invalid_request_error",
        ),
    ),
    "mistral: a call without a result": (
        {"messages": [*HELLO, called(id="AbCdEf012"), *HELLO]},
        ("Not the same number of function calls and responses", None, "3230"),
    ),
    "mistral: the id of another server's call": (
        {"messages": [*HELLO, called(), *HELLO]},
        ("Tool call id was c1 but must be a-z, A-Z, 0-9, with a length of 9.", None, "3280"),
    ),
}


@pytest.mark.parametrize("case", CHAT_REFUSALS)
def test_what_is_refused_on_chat(case):
    """Each refusal has the service's words, parameter and code; the next request is answered."""
    asked, expected = CHAT_REFUSALS[case]
    with openai_server(["Hi."] * 2, strict=case.partition(":")[0]) as server, client(server) as openai:
        assert refusal(openai, chat=True, **({"model": "m", "messages": HELLO} | asked)) == expected
        openai.chat.completions.create(model="m", messages=HELLO)


@pytest.mark.parametrize("stream", [False, True])
def test_deepseek_wants_its_reasoning_returned(stream):
    """It attaches reasoning to each answer, also where the script has none, and refuses a call that comes back without it."""
    thought = ModelResponse(Message("assistant", (Reasoning("Hm."), CALL)))
    with openai_server([CALL, thought, "Two.", "Two."], strict="deepseek") as server, client(server) as openai:
        given = []
        for _ in range(2):
            answer = openai.chat.completions.create(model="m", messages=HELLO, tools=[TOOL], stream=stream)
            if stream:
                deltas = [chunk.choices[0].delta.model_dump().get("reasoning_content") or "" for chunk in answer]
                given.append("".join(deltas))
            else:
                given.append(answer.choices[0].message.reasoning_content)
        assert given == ["Let me think.", "Hm."]
        for reasoning in ("Hm.", ""):
            messages = [*HELLO, called() | {"reasoning_content": reasoning}, ANSWERED]
            openai.chat.completions.create(model="m", messages=messages)


def test_deepseek_that_does_not_think():
    """Without thinking there is no reasoning, and none is wanted."""
    off = {"extra_body": {"thinking": {"type": "disabled"}}}
    with openai_server(["Two."], strict="deepseek") as server, client(server) as openai:
        answer = openai.chat.completions.create(model="m", messages=[*HELLO, called(), ANSWERED], **off)
    assert "reasoning_content" not in answer.choices[0].message.model_dump()


@pytest.mark.parametrize("stream", [False, True])
def test_google_wants_its_signatures_returned(stream):
    """The first call of an answer is signed; during the turn it is refused without the signature, or with another one."""
    calls = [CALL, ToolCall("add", {"a": 2}, "c2")]
    with (
        openai_server([calls, *["Hi."] * 6], strict="google", model="gemini-3-pro") as server,
        client(server) as openai,
    ):
        answer = openai.chat.completions.create(model="m", messages=HELLO, tools=[TOOL], stream=stream)
        if stream:
            deltas = [call for chunk in answer for call in chunk.choices[0].delta.tool_calls or ()]
            first, second = (next(call for call in deltas if call.index == index) for index in (0, 1))
        else:
            first, second = answer.choices[0].message.tool_calls
        signature = first.extra_content["google"]["thought_signature"]
        assert "extra_content" not in second.model_dump(exclude_none=True)

        def again(content, *after):
            system = {"role": "system", "content": "Be brief."}
            return [system, *HELLO, called(**({"extra_content": content} if content else {})), ANSWERED, *after]

        [error] = refusal(openai, chat=True, model="m", messages=again(None))
        assert error["error"]["status"] == "INVALID_ARGUMENT"
        assert re.fullmatch(
            "Function call is missing a thought_signature in functionCall parts. This is required .* function call "
            "`default_api:add` , position 2. Please refer to .* for more details.",
            error["error"]["message"],
        )
        [error] = refusal(openai, chat=True, model="m", messages=again({"google": {"thought_signature": "x"}}))
        assert error["error"]["message"] == "Invalid thought signature."
        for each in (signature, "skip_thought_signature_validator"):
            openai.chat.completions.create(model="m", messages=again({"google": {"thought_signature": each}}))
        openai.chat.completions.create(model="m", messages=again(None, *HELLO))


def test_google_refuses_unknown_parameters_and_calls_without_results():
    """Both with errors of its own form."""
    with openai_server(["Hi."] * 2, strict="google") as server, client(server) as openai:
        [error] = refusal(openai, chat=True, model="m", messages=HELLO, extra_body={"reasoning": {}})
        assert (
            error["error"]["message"] == 'Invalid JSON payload received. Unknown name "reasoning": Cannot find field.'
        )
        assert error["error"]["details"][0]["fieldViolations"][0]["description"] == error["error"]["message"]
        [error] = refusal(openai, chat=True, model="m", messages=[*HELLO, called(), *HELLO])
        assert "number of function response parts is equal" in error["error"]["message"]


def test_mistral_refuses_what_it_does_not_know():
    """Parameters and fields of messages, all at once, with 422."""
    messages = [*HELLO, {"role": "assistant", "content": "Hi.", "reasoning_content": "Hm."}, *HELLO]
    with openai_server(["Hi."], strict="mistral") as server, client(server) as openai:
        body = refusal(openai, chat=True, status=UnprocessableEntityError, model="m", messages=messages, seed=1)
    detail = body[0]["detail"] if isinstance(body, tuple) else body
    assert [each["loc"] for each in detail] == [
        ["body", "seed"],
        ["body", "messages", 1, "assistant", "reasoning_content"],
    ]
    assert {each["type"] for each in detail} == {"extra_forbidden"}


def test_a_tool_loop_on_responses():
    """OpenAI thinks before each answer; a loop that returns all items is answered, stateless and stored."""
    calls = ToolCalls([CALL, ToolCall("add", {"a": 2})], "Well.")
    with openai_server([calls, "Three.", calls, "Three."], strict="openai") as server, client(server) as openai:
        first = openai.responses.create(input="1 and 2?", tools=[ADD], **STATELESS)
        assert [item.type for item in first.output] == ["reasoning", "message", "function_call", "function_call"]
        assert first.output[0].encrypted_content
        results = [{**RESULT, "call_id": item.call_id} for item in first.output[2:]]
        given = [{"role": "user", "content": "1 and 2?"}, *items(first), *results]
        assert openai.responses.create(input=given, tools=[ADD], **STATELESS).output_text == "Three."

        first = openai.responses.create(input="1 and 2?", tools=[ADD], model="m")
        results = [{**RESULT, "call_id": item.call_id} for item in first.output[2:]]
        last = openai.responses.create(input=results, tools=[ADD], model="m", previous_response_id=first.id)
        assert last.output_text == "Three."


def test_the_reasoning_of_responses():
    """A summary comes if it is asked for, and there is no reasoning without effort."""
    thought = ModelResponse(Message("assistant", (Reasoning("Hm."), Text("Hi."))))
    with openai_server([thought] * 3, strict="openai") as server, client(server) as openai:
        plain = openai.responses.create(model="m", input="Hello")
        told = openai.responses.create(model="m", input="Hello", reasoning={"summary": "auto"})
        none = openai.responses.create(model="m", input="Hello", reasoning={"effort": "none", "summary": "auto"})
    assert plain.output[0].summary == []
    assert told.output[0].summary[0].text == "Hm."
    assert [item.type for item in none.output] == ["message"]


NEEDED = "of type 'function_call' was provided without its required 'reasoning' item: 'rs_00000100'."
DROPPED = {
    "reasoning": (lambda thought, call: [call, RESULT], f"Item 'fc_00000101' {NEEDED}", "input", None),
    "reasoning and ids": (
        lambda thought, call: [{name: call[name] for name in ("type", "call_id", "name", "arguments")}, RESULT],
        f"Item 'c1' {NEEDED}",
        "input",
        None,
    ),
    "what follows reasoning": (
        lambda thought, call: [thought, {"role": "user", "content": "So?"}],
        "Item 'rs_00000100' of type 'reasoning' was provided without its required following item.",
        "input",
        None,
    ),
    "the call": (
        lambda thought, call: [RESULT],
        "No tool call found for function call output with call_id c1.",
        "input",
        None,
    ),
    "the result": (lambda thought, call: [thought, call], "No tool output found for function call c1.", "input", None),
    "nothing, but a status is added": (
        lambda thought, call: [{**thought, "status": "completed"}, call, RESULT],
        "Unknown parameter: 'input[1].status'.",
        "input[1].status",
        "unknown_parameter",
    ),
    "nothing, but the content is another": (
        lambda thought, call: [{**thought, "encrypted_content": "gAAAAABo"}, call, RESULT],
        (
            "The encrypted content for item rs_00000100 could not be verified. Reason: Encrypted content could not be decrypted or "
            "parsed."
        ),
        None,
        "invalid_encrypted_content",
    ),
    "nothing, but the id is another": (
        lambda thought, call: [{**thought, "id": "rs_2"}, call, RESULT],
        (
            "The encrypted content for item rs_2 could not be verified. Reason: Encrypted content item_id did not match the target "
            "item id."
        ),
        None,
        "invalid_encrypted_content",
    ),
    "nothing, but it is there twice": (
        lambda thought, call: [thought, call, call, RESULT],
        "Duplicate item found with id fc_00000101. Remove duplicate items from your input and try again.",
        "input",
        None,
    ),
    "the id, for one of its own": (
        lambda thought, call: [thought, {**call, "id": "c1"}, RESULT],
        "Invalid 'input[2].id': 'c1'. Expected an ID that begins with 'fc'.",
        "input[2].id",
        "invalid_value",
    ),
    "the type of what an assistant says": (
        lambda thought, call: [{"role": "assistant", "content": [{"type": "input_text", "text": "Hi."}]}],
        "Invalid value: 'input_text'. Supported values are: 'output_text' and 'refusal'.",
        "input[1].content[0]",
        "invalid_value",
    ),
}


@pytest.mark.parametrize("case", DROPPED)
def test_what_a_client_drops_on_responses(case):
    """An item that was dropped or changed is refused, in the words of the service."""
    change, text, param, code = DROPPED[case]
    with openai_server([CALL, "Two."], strict="openai") as server, client(server) as openai:
        user = {"role": "user", "content": "Hello"}
        thought, call = items(openai.responses.create(input=[user], tools=[ADD], **STATELESS))
        assert refusal(openai, input=[user, *change(thought, call)], **STATELESS) == (text, param, code)


def test_a_call_without_an_id_needs_no_reasoning_in_a_later_turn():
    """As the service, it knows an item by its id alone; in an earlier turn reasoning may be dropped with the ids."""
    with openai_server([CALL, "Two."], strict="openai") as server, client(server) as openai:
        openai.responses.create(input="Hello", tools=[ADD], **STATELESS)
        call = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"}
        given = [{"role": "user", "content": "Hello"}, call, RESULT, {"role": "user", "content": "So?"}]
        assert openai.responses.create(input=given, **STATELESS).output_text == "Two."


def test_reasoning_that_is_not_stored_needs_its_content():
    """With `store=False` an item of reasoning is not found by its id."""
    with openai_server(["Hi."] * 2, strict="openai") as server, client(server) as openai:
        thought, said = items(openai.responses.create(model="m", input="Hello", store=False))
        text, param, _ = refusal(openai, status=NotFoundError, model="m", input=[thought, said])
    assert text.startswith(
        "Item with id 'rs_00000100' not found. Items are not persisted when `store` is set to false."
    )
    assert param == "input"


def test_encrypted_reasoning_is_for_one_key():
    """Reasoning that was made for another key cannot be verified; for its own it can, by another server too."""
    with openai_server(["Hi."] * 3, strict="openai") as server:
        with client(server) as openai:
            given = items(openai.responses.create(input="Hello", **STATELESS))
        with client(server).with_options(api_key="other") as openai:
            assert refusal(openai, input=given, **STATELESS)[2] == "invalid_encrypted_content"
    with openai_server(["Hi."], strict="openai") as server, client(server) as openai:
        openai.responses.create(input=given, **STATELESS)


@pytest.mark.parametrize(
    ("asked", "text", "param"),
    [
        ({"extra_body": {"reasoning_effort": "low"}}, "Unknown parameter: 'reasoning_effort'.", "reasoning_effort"),
        ({"top_p": 0.5}, "Unsupported parameter: 'top_p' is not supported with this model.", "top_p"),
        (
            {"tools": [{**ADD, "parameters": LOOSE}]},
            "Invalid schema for function 'add': In context=(), 'additionalProperties' is required to be supplied and to be false.",
            "tools[0].parameters",
        ),
        (
            {"tools": [{**ADD, "parameters": {"anyOf": [{**LOOSE, "additionalProperties": False}]}}]},
            (
                "Invalid schema for function 'add': In context=(), 'required' is required to be supplied and to be an array including "
                "every key in properties. Missing 'a'."
            ),
            "tools[0].parameters",
        ),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": LOOSE, "strict": True}}},
            (
                "Invalid schema for response_format 'n': In context=(), 'additionalProperties' is required to be supplied and to be "
                "false."
            ),
            "text.format.schema",
        ),
    ],
)
def test_what_is_refused_on_responses(asked, text, param):
    """Parameters that it does not know, or does not take, and schemas that claim to be strict."""
    with openai_server(["Hi."] * 2, strict="openai") as server, client(server) as openai:
        assert refusal(openai, model="m", input="Hello", **asked)[:2] == (text, param)
        strict = {**LOOSE, "required": ["a"], "additionalProperties": False}
        openai.responses.create(
            model="m", input="Hello", temperature=0, reasoning={"effort": "none"}, tools=[{**ADD, "parameters": strict}]
        )
