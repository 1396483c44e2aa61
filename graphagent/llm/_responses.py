"""OpenAI's Responses protocol: requests to JSON, JSON to responses.

The format is that of https://platform.openai.com/docs/api-reference/responses. Nothing is kept by the server: each request has the
whole conversation, and with it the reasoning of earlier answers, encrypted, which the model is to continue from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, cast

from graphagent._openai_http import safe_codes
from graphagent.errors import ModelRequestError
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
    read_arguments,
    schema_instruction,
)

if TYPE_CHECKING:
    from graphagent.llm._endpoint import WireRequest

_ENCRYPTED = "reasoning.encrypted_content"
_STATUSES = {"rate_limit_exceeded": 429, "server_error": 500}
"""The HTTP statuses of failures that are reported within an answer, so that retries recognise them."""
_REASONS = {"max_output_tokens": "length"}
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
        """Return the JSON of the request, without the parts in `left_out`."""
        body = to_body(
            self.asked.request,
            self.asked.model,
            family=self._family if left_out.isdisjoint(("reasoning", "this reasoning")) else "",
            schema_in_prompt=not left_out.isdisjoint(SCHEMA_REFUSALS),
            encrypted="include" not in left_out,
        )
        if self.asked.streaming:
            body["stream"] = True
        for given in (self.asked.parameters, self.asked.request.parameters):
            add_parameters(body, given)
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
    schema_in_prompt: bool = False,
    encrypted: bool = True,
) -> dict[str, Any]:
    """Return the JSON of a request.

    Args:
        request: What is asked.
        model: The name of the model.
        family: Return what servers of this family attached to earlier answers.
        schema_in_prompt: Put the output format into the prompt, and do not send it as a setting.
        encrypted: Ask for the reasoning, which models without any refuse.
    """
    items = input_items(request.messages, family)
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


def input_items(messages: Iterable[Message], family: str) -> list[dict[str, Any]]:
    """Return the JSON of messages, with what servers of the family attached to them."""
    items: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "assistant":
            items.extend(_answer_items(message, family))
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


def _answer_items(message: Message, family: str) -> list[dict[str, Any]]:
    """Return the items of an answer, verbatim if this family produced them.

    A server refuses reasoning without the item that came of it, and items by their id without their reasoning. So reasoning
    is sent only together with what follows it, and ids only after reasoning.
    """
    items: list[dict[str, Any]] = []
    reasoning: list[dict[str, Any]] = []
    reasoned = False
    for part in message.parts:
        data = attached(part, family)
        if isinstance(part, Reasoning):
            if data:
                reasoning.append(dict(data))
            continue
        reasoned = reasoned or bool(reasoning)
        if not reasoned:
            data = {name: value for name, value in data.items() if name != "id"}
        if isinstance(part, Text):
            item = _said(part.text, data)
        elif isinstance(part, ToolCall):
            item = {"type": "function_call", "call_id": part.id, "name": part.name, "arguments": arguments_text(part)}
            item |= data
        else:
            continue
        items += [*reasoning, item]
        reasoning = []
    return items


def _said(text: str, data: Mapping[str, Any]) -> dict[str, Any]:
    if "id" not in data:
        return {"role": "assistant", "content": text, **data}
    content: list[dict[str, Any]] = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "status": "completed", "content": content, **data}


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
        ModelRequestError: it is an error, or is not the protocol.
    """
    body = mapping(data)
    status, output = body.get("status"), body.get("output")
    if body.get("error") or status in ("failed", "cancelled"):
        raise _failure(mapping(body.get("error")), server)
    if not isinstance(output, list):
        raise ModelRequestError(
            f"{server} answered without an output; if it speaks Chat Completions only, use protocol='chat'"
        )
    parts: list[Part] = []
    refused = False
    for each in map(mapping, cast("list[object]", output)):
        part = _part(each, family)
        if part is not None:
            parts.append(part)
            refused = refused or _is_refusal(each)
    message = Message("assistant", tuple(parts))
    if status == "incomplete":
        reason = str(mapping(body.get("incomplete_details")).get("reason") or "length")
        reason = _REASONS.get(reason, reason)
    elif message.tool_calls:
        reason = "tool_calls"
    else:
        reason = "refusal" if refused else "stop"
    return ModelResponse(message, read_usage(body.get("usage")), reason, str(body.get("model") or ""))


def _part(item: Mapping[str, Any], family: str) -> Part | None:
    """Return the part for an item, or None if it is empty."""
    match item.get("type"):
        case "message":
            text = "".join(map(_text, _pieces(item.get("content"))))
            return Text(text, provider=_kept(item, family, "content", "role", "type", "status")) if text else None
        case "function_call":
            arguments, malformed = read_arguments(item.get("arguments"))
            name, identity = str(item.get("name") or ""), str(item.get("call_id") or item.get("id") or "")
            kept = _kept(item, family, "name", "arguments", "call_id", "type", "status")
            return ToolCall(name, arguments, identity, malformed, provider=kept)
        case "reasoning":
            text = "\n\n".join(filter(None, map(_text, [*_pieces(item.get("summary")), *_pieces(item.get("content"))])))
            # By its id alone the server would not find it, since it stores nothing.
            returnable = item.get("encrypted_content") or item.get("content")
            kept = _kept(item, family, "status") if returnable else None
            return Reasoning(text, provider=kept) if text or kept else None
        case _:
            # Calls of tools that the server executes itself: they belong between the reasoning and its result.
            return Reasoning("", provider=_kept(item, family))


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


def _kept(item: Mapping[str, Any], family: str, *apart: str) -> ProviderData | None:
    """Return the data to be sent back with a part, apart from the fields of the part itself."""
    data = {name: value for name, value in item.items() if value is not None and name not in apart}
    return ProviderData(family, data) if data else None


def _failure(error: Mapping[str, Any], server: str) -> ModelRequestError:
    code = error.get("code")
    status = _STATUSES.get(code) if isinstance(code, str) else None
    detail = str(error.get("message") or dict(error))[:2_000]
    text = f"{server} failed while it answered{safe_codes(code, error.get('type'))}"
    return request_error(text, status=status, detail=detail)


def read_usage(said: object) -> Usage:
    """Read the tokens that a server counted; missing counts are 0."""
    usage = mapping(said)
    return Usage(
        number(usage.get("input_tokens")),
        number(usage.get("output_tokens")),
        number(mapping(usage.get("input_tokens_details")).get("cached_tokens")),
        number(mapping(usage.get("output_tokens_details")).get("reasoning_tokens")),
        money(usage.get("cost")),
    )


class ResponseEvents:
    """A streamed answer: events go in as they come, and it becomes the JSON of a whole answer."""

    def __init__(self) -> None:
        self.finished = False
        """Whether the server announced the end of the answer."""
        self._response: Mapping[str, Any] = {}
        self._items: list[Mapping[str, Any]] = []

    @property
    def last(self) -> bool:
        """Whether nothing relevant follows."""
        return self.finished

    def add(self, event: object, server: str) -> str:
        """Accept one event, and return the text in it.

        Raises:
            ModelRequestError: it is an error.
        """
        data = mapping(event)
        match data.get("type"):
            case "response.output_text.delta" | "response.refusal.delta":
                return str(data.get("delta") or "")
            case "response.output_item.done":
                self._items.append(mapping(data.get("item")))
            case "response.completed" | "response.incomplete" | "response.failed":
                self._response, self.finished = mapping(data.get("response")), True
            case "error":
                raise _failure(mapping(data.get("error")) or {**data, "type": None}, server)
            case _ if data.get("error"):
                raise _failure(mapping(data["error"]), server)
            case _:  # progress of no consequence to the answer
                pass
        return ""

    def body(self) -> dict[str, Any]:
        """Return the whole response, as if it had not been streamed.

        Its items are those that were reported as done: their encrypted reasoning is whole, and some servers leave them out at
        the end. What was cut off may be in the response only, and follows them.
        """
        output = self._response.get("output")
        cut_off = cast("list[object]", output)[len(self._items) :] if isinstance(output, list) else []
        return {**self._response, "output": [*self._items, *cut_off] or output}
