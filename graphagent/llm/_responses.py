"""OpenAI's Responses protocol: requests to JSON, JSON to responses.

The format is that of https://platform.openai.com/docs/api-reference/responses. Nothing is kept by the server: each request has the
whole conversation, and with it the reasoning of earlier answers, encrypted, which the model is to continue from.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from graphagent._openai_http import safe_codes
from graphagent.errors import ModelRequestError, OutputError, TruncatedError
from graphagent.llm._endpoint import request_error
from graphagent.llm._families import is_openai
from graphagent.llm._messages import (
    Message,
    ModelRequest,
    ModelResponse,
    Part,
    ProviderData,
    Reasoning,
    Text,
    ToolCall,
    Usage,
)
from graphagent.llm._wire import (
    SCHEMA_REFUSALS,
    arguments_text,
    attached,
    content_of,
    mapping,
    money,
    number,
    paired,
    read_arguments,
    schema_instruction,
)

if TYPE_CHECKING:
    from graphagent.llm._endpoint import WireRequest

_ENCRYPTED = "reasoning.encrypted_content"
_STATUSES = {"rate_limit_exceeded": 429, "server_error": 500}
"""The HTTP statuses of failures that are reported within an answer, so that retries recognise them."""
_REASONS = {"max_output_tokens": "length"}
_UNFINISHED = ("queued", "in_progress")
"""The states of a response that is still being made, which this client does not wait for."""
_REASONED = "reasoned"
"""Marks, in the data kept with a part, an item that came of reasoning."""
_LEFT = ("apply_patch_call", "computer_call", "custom_tool_call", "local_shell_call", "shell_call", "tool_search_call")
"""Items that a server may leave to its client to execute; they have a `call_id` then."""
_REFUSALS = {
    # Models without reasoning say: "Encrypted content is not supported with this model."
    "include": r"encrypted content is not supported|\binclude\)",
    # Models without reasoning, of a history with that of other models: "Reasoning input items can only be provided to a
    # reasoning or computer use model. Remove reasoning items from your input and try again."
    "reasoning": r"reasoning input items|remove reasoning items",
    # Of a history that was encrypted for another account.
    "this reasoning": r"invalid_encrypted_content|encrypted content .*could not be",
}


class ResponsesExchange:
    """One request over Responses.

    What a server may refuse of it: a format for the answer, which is then put into the prompt; encrypted reasoning, asked for or
    returned.
    """

    path = "/responses"

    def __init__(self, asked: WireRequest) -> None:
        self.asked = asked
        # What a server encrypted, the same host alone can read.
        named = "openai" if is_openai(asked.host) else f"responses:{asked.host}"
        self._family = asked.family.name if asked.family is not None else named

    @property
    def refusals(self) -> dict[str, str]:
        """The parts that can be left out, each with a regular expression for a refusal of it."""
        return _REFUSALS if self.asked.request.output is None else _REFUSALS | SCHEMA_REFUSALS

    def body(self, left_out: AbstractSet[str]) -> dict[str, Any]:
        """Return the JSON of the request, without the parts in `left_out`.

        Raises:
            ModelRequestError: a background response is asked for.
        """
        body = to_body(
            self.asked.request,
            self.asked.model,
            family=self._family,
            reasoning=left_out.isdisjoint(("reasoning", "this reasoning")),
            schema_in_prompt=not left_out.isdisjoint(SCHEMA_REFUSALS),
            encrypted="include" not in left_out,
        )
        if self.asked.streaming:
            body["stream"] = True
        for given in (self.asked.parameters, self.asked.request.parameters):
            add_parameters(body, given)
        if body.get("background"):
            raise ModelRequestError(
                "background=True asks for an answer to be fetched later, which a model does not do: leave it out, and give a long "
                "answer time by timeout="
            )
        return body

    def read(self, data: object, server: str) -> ModelResponse:
        """Read the JSON answer of a server.

        Raises:
            ModelRequestError: it is an error, or is not the protocol.
        """
        return from_body(data, server, self._family)

    def streamed(self) -> ResponseEvents:
        """Return an empty answer, which collects the events of a streamed one."""
        return ResponseEvents()


def to_body(
    request: ModelRequest,
    model: str,
    family: str,
    *,
    reasoning: bool = True,
    schema_in_prompt: bool = False,
    encrypted: bool = True,
) -> dict[str, Any]:
    """Return the JSON of a request.

    Args:
        request: What is asked.
        model: The name of the model.
        family: Return what servers of this family attached to earlier answers.
        reasoning: Return their reasoning too, which models without any refuse.
        schema_in_prompt: Put the output format into the prompt, and do not send it as a setting.
        encrypted: Ask for the reasoning, which models without any refuse.
    """
    items = input_items(request.messages, family, reasoning=reasoning)
    body: dict[str, Any] = {"model": model, "input": items, "store": False}
    if encrypted:
        body["include"] = [_ENCRYPTED]
    if request.tools:
        # Strict is the default of this protocol. It would make each optional parameter a required one, and refuse schemas
        # that cannot be enforced; arguments are checked before a tool is called anyway.
        body["tools"] = [
            {
                "type": "function",
                "name": each.name,
                "description": each.description,
                "parameters": dict(each.parameters),
                "strict": False,
            }
            for each in request.tools
        ]
        if request.tool_choice in ("none", "required"):
            body["tool_choice"] = request.tool_choice
        elif request.tool_choice != "auto":
            body["tool_choice"] = {"type": "function", "name": request.tool_choice}
    if request.output is not None and schema_in_prompt:
        items.insert(0, {"role": "system", "content": schema_instruction(request.output)})
    elif request.output is not None:
        output = request.output
        described = {"name": output.name, "schema": dict(output.schema), "strict": output.strict}
        body["text"] = {"format": {"type": "json_schema", **described}}
    return body


def input_items(messages: Iterable[Message], family: str, *, reasoning: bool = True) -> list[dict[str, Any]]:
    """Return the JSON of messages, with what servers of the family attached to them."""
    messages = tuple(messages)
    kept = (attached(part, family) for message in messages for part in message.parts)
    results = {data.get("call_id") for data in kept if str(data.get("type")).endswith("_output")}
    items: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "assistant":
            items.extend(_answer_items(message, family, results, reasoning=reasoning))
        elif message.role == "tool":
            items.extend(
                {
                    "type": "function_call_output",
                    "call_id": part.call_id,
                    "output": _content((Text(part.content), *part.images)),
                }
                for part in message.tool_results
            )
        else:
            items.append({"role": message.role, "content": _content(message.parts)})
    return items


def _answer_items(message: Message, family: str, results: AbstractSet[Any], *, reasoning: bool) -> list[dict[str, Any]]:
    """Return the items of an answer, verbatim if this family produced them.

    A server refuses reasoning without the item that came of it, items by their id without their reasoning, and calls without their
    result. So reasoning is sent only together with what follows it, ids of what came of reasoning only after reasoning, and calls
    that a server left to its client only if their result is in `results`.
    """
    items: list[dict[str, Any]] = []
    thoughts: list[dict[str, Any]] = []
    reasoned = False
    for part in message.parts:
        data = dict(attached(part, family))
        missing = data.pop(_REASONED, False) and not (reasoned or thoughts)
        if isinstance(part, Reasoning):
            of_reasoning = data.get("type") == "reasoning"
            if not data or missing or (not reasoning and (of_reasoning or data.get("encrypted_content"))):
                continue
            if of_reasoning:
                thoughts.append(data)
                continue
            if data.get("type") in _LEFT and data.get("call_id") is not None and data["call_id"] not in results:
                continue
            item = data
        elif isinstance(part, Text) and (part.text or data):
            item = _said(part.text, data, with_id=not missing)
        elif isinstance(part, ToolCall):
            if missing:
                data.pop("id", None)
            called = {"call_id": part.id, "name": part.name, "arguments": _arguments(part, data)}
            item = (data or {"type": "function_call"}) | called
        else:
            continue
        reasoned = reasoned or bool(thoughts)
        items += [*thoughts, item]
        thoughts = []
    return items


def _said(text: str, data: Mapping[str, Any], *, with_id: bool) -> dict[str, Any]:
    if not with_id:
        data = {name: value for name, value in data.items() if name not in ("id", "type", "role", "status", "content")}
    content = data.get("content", text)
    if isinstance(content, list):
        content = [
            {name: text if value is None and name in _TEXTS else value for name, value in piece.items()}
            for piece in map(mapping, cast("list[object]", content))
        ]
        if "".join(map(_text, content)) != text:  # made anew
            content = text
    item = dict(data) if "role" in data else {"role": "assistant", **data}
    return item | {"content": text if content is None else content}


def _arguments(call: ToolCall, data: Mapping[str, Any]) -> str:
    """Return the arguments of a call as the server wrote them, unless they were changed."""
    text = arguments_text(call)
    if "arguments" not in data:
        return text
    came = data["arguments"]
    if came is None:
        return _compact(call.arguments)
    arguments, _ = read_arguments(came)
    return came if json.dumps(arguments, ensure_ascii=False) == text else text


def _compact(arguments: Mapping[str, Any]) -> str:
    return json.dumps(dict(arguments), ensure_ascii=False, separators=(",", ":"))


def _content(parts: Iterable[Part]) -> str | list[dict[str, Any]]:
    return content_of(parts, "input_text", _image)


def _image(url: str) -> dict[str, Any]:
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def add_parameters(body: dict[str, Any], parameters: Mapping[str, Any]) -> None:
    """Add parameters to the JSON of a request. Those of Chat Completions are translated to this protocol."""
    for name, value in parameters.items():
        match name:
            case "max_completion_tokens" | "max_tokens":
                body["max_output_tokens"] = value
            case "reasoning_effort":
                body["reasoning"] = {**mapping(body.get("reasoning")), "effort": value}
            case "verbosity":
                body["text"] = {**mapping(body.get("text")), "verbosity": value}
            case "response_format":
                body["text"] = {**mapping(body.get("text")), "format": _format(value)}
            case "reasoning" | "text" if isinstance(value, Mapping):
                body[name] = {**mapping(body.get(name)), **cast("Mapping[str, Any]", value)}
            case "include" if isinstance(value, Iterable) and not isinstance(value, str):
                body[name] = [*dict.fromkeys([*body.get(name, ()), *cast("Iterable[object]", value)])]
            case "extra_body":
                body |= mapping(value)
            case _:
                body[name] = value


def _format(given: object) -> object:
    """Return a `response_format` of Chat Completions, whose schema is within another object, as this protocol has it."""
    schema = mapping(mapping(given).get("json_schema"))
    return {"type": "json_schema", **schema} if schema else given


def from_body(data: object, server: str, family: str) -> ModelResponse:
    """Read a server's JSON answer; `server` says in errors who answered, and `family` names the data that it wants back.

    Raises:
        ModelRequestError: it is an error, is not finished, was withheld, or is not the protocol.
        OutputError: nothing is said in it.
    """
    body = mapping(data)
    status, output = body.get("status"), body.get("output")
    if body.get("error") or status in ("failed", "cancelled"):
        raise _failure(mapping(body.get("error")), server, str(status or ""))
    if status in _UNFINISHED:
        raise ModelRequestError(
            f"the answer of {server} broke off before its end (status {status!r}), and one that is made in the background is not waited "
            f"for; try again"
        )
    if not isinstance(output, list):
        raise ModelRequestError(
            f"{server} answered without an output; if it speaks Chat Completions only, use protocol='chat'"
        )
    parts: list[Part] = []
    refused = reasoned = False
    for each in map(mapping, cast("list[object]", output)):
        parts.append(_part(each, family, reasoned=reasoned))
        refused = refused or _is_refusal(each)
        reasoned = reasoned or each.get("type") == "reasoning"
    # Reasoning of which nothing is shown or can be returned only says that there was some, where nothing else is said.
    said = Message("assistant", tuple(part for part in parts if part != Reasoning("")))
    is_said = bool(said.text) or any(isinstance(part, Reasoning | ToolCall) for part in said.parts)
    message = said if is_said else Message("assistant", tuple(parts))
    usage = read_usage(body.get("usage"))
    if status == "incomplete":
        reason = str(mapping(body.get("incomplete_details")).get("reason") or "length")
        reason = _REASONS.get(reason, reason)
    elif message.tool_calls:
        reason = "tool_calls"
    else:
        reason = "refusal" if refused else "stop"
    if reason == "content_filter":
        why = {"code": reason, "content_filters": body.get("content_filters")}
        raise request_error(f"{server} withheld its answer", detail=json.dumps(why, ensure_ascii=False))
    if not is_said and not reasoned:
        raise _nothing(server, str(status or "completed"), reason, usage)
    return ModelResponse(message, usage, reason, str(body.get("model") or ""))


def _part(item: Mapping[str, Any], family: str, *, reasoned: bool) -> Part:
    """Return the part for an item, with the item as it came; what the part holds itself is None in it."""
    kept = {**item, _REASONED: True} if reasoned else dict(item)
    match item.get("type"):
        case "message":
            text = "".join(map(_text, _pieces(item.get("content"))))
            kept["content"] = _without_text(item.get("content"), text)
            return Text(text, provider=ProviderData(family, kept))
        case "function_call":
            arguments, malformed = read_arguments(item.get("arguments"))
            name, identity = str(item.get("name") or ""), str(item.get("call_id") or item.get("id") or "")
            call = ToolCall(name, arguments, identity, malformed)
            came = item.get("arguments")
            sent = came if isinstance(came, str) and came.strip() and not malformed else arguments_text(call)
            kept |= {"name": None, "call_id": None, "arguments": None if sent == _compact(arguments) else sent}
            return replace(call, provider=ProviderData(family, kept))
        case "reasoning":
            text = "\n\n".join(filter(None, map(_text, [*_pieces(item.get("summary")), *_pieces(item.get("content"))])))
            # By its id alone the server would not find it, since it stores nothing. Its status is refused.
            returnable = item.get("encrypted_content") or item.get("content")
            data = {name: value for name, value in item.items() if name != "status"}
            return Reasoning(text, provider=ProviderData(family, data) if returnable else None)
        case _:
            # Calls of tools that the server executes itself, their results, and whatever else it is to be returned.
            return Reasoning("", provider=ProviderData(family, kept))


_TEXTS = ("text", "refusal")
"""The fields of a piece of a message that have its text."""


def _without_text(content: object, text: str) -> object:
    """Return the content of a message, without its text if that is all in one piece."""
    if content == text:
        return None
    pieces = _pieces(content)
    if len(pieces) != 1:
        return content
    return [{name: None if name in _TEXTS and value == text else value for name, value in mapping(pieces[0]).items()}]


def _pieces(content: object) -> list[object]:
    """Return the pieces of an item; some servers send a text instead."""
    if isinstance(content, str):
        return [{"text": content}]
    return cast("list[object]", content) if isinstance(content, list) else []


def _text(piece: object) -> str:
    said = mapping(piece)
    return str(said.get("text") or said.get("refusal") or "")


def _is_refusal(item: Mapping[str, Any]) -> bool:
    return item.get("type") == "message" and any(
        mapping(each).get("type") == "refusal" for each in _pieces(item.get("content"))
    )


def _failure(error: Mapping[str, Any], server: str, state: str = "failed") -> ModelRequestError:
    code = error.get("code")
    status = _STATUSES.get(code) if isinstance(code, str) else None
    what = "cancelled its answer" if state == "cancelled" else "failed while it answered"
    text = f"{server} {what}{safe_codes(code, error.get('type'))}"
    return request_error(text, status=status, detail=json.dumps(dict(error), ensure_ascii=False)[:2_000])


def _nothing(server: str, status: str, reason: str, usage: Usage) -> OutputError:
    """Return the error for an answer in which nothing is said."""
    if reason == "length":
        return TruncatedError(
            f"{server} stopped at its limit of tokens before it said anything (status {status!r}): allow it more, by "
            f"parameters={{'max_completion_tokens': …}}",
            output="",
            usage=usage,
        )
    return OutputError(
        f"{server} neither answered nor called a tool (status {status!r}, {reason}): say in the prompt what it is to do when it has "
        f"nothing to add, or ask again with .retry(attempts=2, errors=OutputError)",
        output="",
    )


def read_usage(said: object) -> Usage:
    """Read the tokens that a server counted; missing counts are 0.

    A total larger than its parts has what they leave out, such as reasoning, which is of the output.
    """
    usage = mapping(said)
    given = number(usage.get("input_tokens"))
    return Usage(
        given,
        max(number(usage.get("output_tokens")), number(usage.get("total_tokens")) - given),
        number(mapping(usage.get("input_tokens_details")).get("cached_tokens")),
        number(mapping(usage.get("output_tokens_details")).get("reasoning_tokens")),
        money(usage.get("cost")),
    )


class ResponseEvents:
    """A streamed answer: events go in as they come, and it becomes the JSON of a whole answer."""

    def __init__(self) -> None:
        self.finished = False
        """Whether there is an answer to read: one that has ended, or that says in which state it was left."""
        self.last = False
        """Whether the answer has ended, so that nothing relevant follows."""
        self._response: Mapping[str, Any] = {}
        self._items: dict[int, Mapping[str, Any]] = {}
        self._heard: list[str] = []

    def add(self, event: object, server: str) -> str:
        """Accept one event, and return the text in it. What follows the end of the answer is none of it.

        Raises:
            ModelRequestError: it is an error, or begins another answer in the middle of this one.
        """
        data = mapping(event)
        if self.last:
            return ""
        match data.get("type"):
            case "response.output_text.delta" | "response.refusal.delta":
                text = str(data.get("delta") or "")
                self._heard.append(text)
                return text
            case "response.output_item.done":
                item, place = mapping(data.get("item")), data.get("output_index")
                if not isinstance(place, int) or place in self._items:
                    place = max(self._items, default=-1) + 1
                self._items[place] = item
                return self._unheard([item])
            case "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled":
                done = list(self._items.values())
                self._response, self.finished, self.last = mapping(data.get("response")), True, True
                return self._unheard([item for item in self._output() if item not in done])
            case "response.created" | "response.queued" | "response.in_progress":
                begun = mapping(data.get("response"))
                if self._response.get("id") and begun.get("id") and self._response["id"] != begun["id"]:
                    raise ModelRequestError(f"{server} began another answer before the end of the first; try again")
                self._response, self.finished = begun, True
            case "error":
                raise _failure(mapping(data.get("error")) or {**data, "type": None}, server)
            case _ if data.get("error"):
                raise _failure(mapping(data["error"]), server)
            case _:  # progress of no consequence to the answer
                pass
        return ""

    def _unheard(self, items: list[Mapping[str, Any]]) -> str:
        """Return the rest of the text of messages that have ended, of which some servers stream only the beginning, or nothing."""
        messages = [item for item in items if item.get("type") == "message"]
        if not messages:
            return ""
        heard = paired("".join(self._heard))
        self._heard = []
        text = "".join(_text(piece) for item in messages for piece in _pieces(item.get("content")))
        return text[len(heard) :] if text.startswith(heard) else ""

    def _output(self) -> list[Mapping[str, Any]]:
        """Return the items as they were reported as done, and those that were not, such as what was cut off, as the end has them.

        The encrypted reasoning of those that were done is whole, and some servers leave them out at the end.
        """
        given = self._response.get("output")
        output = [mapping(each) for each in cast("list[object]", given)] if isinstance(given, list) else []
        if len(output) <= len(self._items):
            return [self._items[place] for place in sorted(self._items)]
        ids = {item.get("id") for item in output}
        named = {item.get("id"): item for item in self._items.values() if item.get("id")}
        unnamed = {place: item for place, item in self._items.items() if item.get("id") not in ids - {None}}
        return [named.get(item.get("id")) or unnamed.get(place, item) for place, item in enumerate(output)]

    def body(self) -> dict[str, Any]:
        """Return the whole response, as if it had not been streamed."""
        output, state = self._output(), self._response.get("status")
        if not self.last and state not in _UNFINISHED:
            state = "in_progress"
        return {**self._response, "status": state, "output": output or self._response.get("output")}
