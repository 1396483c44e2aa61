"""Chat Completions, the form that every compatible server speaks: requests to JSON, JSON to responses.

The format is that of https://platform.openai.com/docs/api-reference/chat, with what common servers do otherwise.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, cast

from graphagent.errors import ModelRequestError
from graphagent.llm._families import family_of
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
    from graphagent.llm._families import ModelFamily
    from graphagent.llm._output import OutputFormat

_DATA = r"(reasoning(_content|_details)?|extra_content|thought_signature)\b"
_UNKNOWN = r"(extra_forbidden|not permitted|not allowed|not support|unsupported|unknown|unrecognized|unexpected)"
_UNKNOWN_DATA = rf"{_DATA}.*{_UNKNOWN}|{_UNKNOWN}.*{_DATA}"
_CALL_IDS = r"tool.?(call|use)[^ ]{0,20}\W+id\b.{0,120}(must be|too long|match pattern)"
"""Mistral: "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9." Others limit the length or the characters."""
_MISSING_DATA = r"(reasoning|signature).*(must be passed back|is missing)|missing.*(reasoning|signature)"


class ChatExchange:
    """One request over Chat Completions.

    What a server may refuse of it: a format for the answer, which is then put into the prompt; a reasoning effort beside tools,
    then `none`; the ids of calls, then shorter ones; data that were returned to it, or are missing.
    """

    path = "/chat/completions"

    def __init__(self, asked: WireRequest) -> None:
        self.asked = asked
        family = asked.family or family_of(asked.host, asked.model)
        self._family = family if family is not None and family.returned != "never" else None
        self._given = {**asked.parameters, **asked.request.parameters}
        self._extra: Mapping[str, Any] = self._given.pop("extra_body", None) or {}

    @property
    def refusals(self) -> dict[str, str]:
        """The parts that can be left out, each with a regular expression for a refusal of it."""
        found = {"call ids": _CALL_IDS}
        if self.asked.streaming:
            found["stream_options"] = "stream_options"
        if self.asked.request.output is not None:
            found |= SCHEMA_REFUSALS
        if self.asked.request.tools and self._given.get("reasoning_effort") != "none":
            found["effort"] = r"tools?\b.*reasoning_effort|reasoning_effort.*\btools?\b"
        if self._family is not None:
            found |= {"missing data": _MISSING_DATA} if self._family.missing else {}
            found["data"] = _UNKNOWN_DATA
        return found

    def body(self, left_out: AbstractSet[str]) -> dict[str, Any]:
        """Return the JSON of the request, without the parts in `left_out`."""
        body = to_body(
            self.asked.request,
            self.asked.model,
            schema_in_prompt=not left_out.isdisjoint(SCHEMA_REFUSALS),
            family=None if "data" in left_out else self._family,
            fill="missing data" in left_out,
        )
        if "call ids" in left_out:
            shorten_ids(body["messages"])
        if self.asked.streaming:
            body["stream"] = True
            if "stream_options" not in left_out:
                body["stream_options"] = {"include_usage": True}
        body |= {**self._extra, **self._given}
        if "effort" in left_out and self.asked.request.tools:
            body["reasoning_effort"] = "none"
        return body

    def read(self, data: object, server: str) -> ModelResponse:
        """Read the JSON answer of a server.

        Raises:
            ModelRequestError: it is an error, or is not the protocol.
        """
        return from_body(data, server, self._family)

    def streamed(self) -> Chunks:
        """Return an empty answer, which collects the chunks of a streamed one."""
        return Chunks()


def to_body(
    request: ModelRequest,
    model: str,
    *,
    schema_in_prompt: bool = False,
    family: ModelFamily | None = None,
    fill: bool = False,
) -> dict[str, Any]:
    """Return the JSON of a request.

    Args:
        request: What is asked.
        model: The name of the model.
        schema_in_prompt: Put the output format into the prompt, and do not send it as a setting.
        family: Return what servers of this family attached to earlier answers.
        fill: Send what the family has for calls of other models.
    """
    messages = chat_messages(request.messages, family, fill=fill)
    body: dict[str, Any] = {"model": model, "messages": messages}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": each.name, "description": each.description, "parameters": dict(each.parameters)},
            }
            for each in request.tools
        ]
        if request.tool_choice in ("none", "required"):
            body["tool_choice"] = request.tool_choice
        elif request.tool_choice != "auto":
            body["tool_choice"] = {"type": "function", "function": {"name": request.tool_choice}}
    if request.output is not None and schema_in_prompt:
        _add_schema(messages, request.output)
    elif request.output is not None:
        output = request.output
        described = {"name": output.name, "schema": dict(output.schema), "strict": output.strict}
        body["response_format"] = {"type": "json_schema", "json_schema": described}
    return body


def _add_schema(messages: list[dict[str, Any]], output: OutputFormat[Any]) -> None:
    instruction = schema_instruction(output)
    # In the system message at the front: many servers refuse one elsewhere, and two messages of one role in a row.
    if messages and messages[0]["role"] == "system":
        messages[0] = {"role": "system", "content": f"{messages[0]['content']}\n\n{instruction}"}
    else:
        messages.insert(0, {"role": "system", "content": instruction})


def chat_messages(
    messages: Iterable[Message], family: ModelFamily | None = None, *, fill: bool = False
) -> list[dict[str, Any]]:
    """Return the JSON of messages. Images in tool results follow as a message of the user.

    Reasoning is left out, except what servers of the given family attached to it and want returned.
    """
    after = -1
    if family is not None and family.returned == "tool loop":
        messages = tuple(messages)
        after = max((place for place, message in enumerate(messages) if message.role == "user"), default=-1)
    sent: list[dict[str, Any]] = []
    shown: list[Part] = []
    for place, message in enumerate(messages):
        if message.role != "tool" and shown:
            sent.append({"role": "user", "content": _content(shown)})
            shown = []
        if message.role == "tool":
            for result in message.tool_results:
                sent.append({"role": "tool", "tool_call_id": result.call_id, "content": result.content})
                if result.images:
                    shown += [Text(f"Images that {result.name} gave (call {result.call_id}):"), *result.images]
        elif message.role == "assistant":
            sent.append(_assistant(message, family if place > after else None, fill=fill))
        else:
            sent.append({"role": message.role, "content": _content(message.parts)})
    return [*sent, {"role": "user", "content": _content(shown)}] if shown else sent


def _assistant(message: Message, family: ModelFamily | None, *, fill: bool) -> dict[str, Any]:
    """Return the JSON of an answer, with what servers of the family attached to its parts."""
    said: dict[str, Any] = {"role": "assistant", "content": message.text}
    calls: list[dict[str, Any]] = []
    signed = False
    for part in message.parts:
        place: dict[str, Any] = said
        if isinstance(part, ToolCall):
            place = {
                "type": "function",
                "id": part.id,
                "function": {"name": part.name, "arguments": arguments_text(part)},
            }
            calls.append(place)
        data = attached(part, "" if family is None else family.name)
        signed = signed or (bool(data) and not isinstance(part, Text))
        for name, value in data.items():
            # Reasoning text is not stored twice, see `_reasoning`.
            place[name] = part.text if value is None and isinstance(part, Reasoning) else value
    if calls:
        said |= {"content": message.text or None, "tool_calls": calls}
        if family is not None and fill and not signed:
            (calls[0] if family.signature else said).update(family.missing)
    return said


def shorten_ids(messages: Iterable[dict[str, Any]]) -> None:
    """Replace the ids of calls with nine letters or digits, which every server accepts; the same in each request."""
    for message in messages:
        for holder, name in [(message, "tool_call_id"), *((call, "id") for call in message.get("tool_calls", ()))]:
            identity = holder.get(name)
            if identity is not None and re.fullmatch("[a-zA-Z0-9]{9}", identity) is None:
                holder[name] = hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()[:9]


def _content(parts: Iterable[Part]) -> str | list[dict[str, Any]]:
    return content_of(parts, "text", _image)


def _image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def from_body(data: object, server: str, family: ModelFamily | None = None) -> ModelResponse:
    """Read a server's JSON answer; `server` says in errors who answered, `family` what it wants returned.

    Raises:
        ModelRequestError: it is an error, or is not the protocol.
    """
    body = mapping(data)
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        raise _without_choices(body, server)
    choice = mapping(cast("list[object]", choices)[0])
    said = mapping(choice.get("message"))
    if not isinstance(choice.get("message"), Mapping):
        raise ModelRequestError(
            f"{server} answered with a choice that has no message; is it an OpenAI-compatible server?"
        )
    message = _message(said, family)
    reason = str(choice.get("finish_reason") or "stop")
    if message.tool_calls and reason in ("stop", "function_call"):
        reason = "tool_calls"
    elif reason == "stop" and said.get("refusal") and not said.get("content"):
        reason = "refusal"
    return ModelResponse(message, read_usage(body.get("usage")), reason, str(body.get("model") or ""))


def _without_choices(body: Mapping[str, Any], server: str) -> ModelRequestError:
    if body.get("error"):
        error = mapping(body["error"])
        code = error.get("code")
        status = code if isinstance(code, int) and 400 <= code < 600 else None
        detail = str(error.get("message") or body["error"])[:2_000]
        return ModelRequestError(f"{server} answered with an error", status=status, detail=detail)
    return ModelRequestError(f"{server} answered without a choice; is it an OpenAI-compatible server?")


def _message(said: Mapping[str, Any], family: ModelFamily | None) -> Message:
    text, thought = _read_content(said.get("content") or said.get("refusal") or "")
    thought = str(said.get("reasoning_content") or said.get("reasoning") or "") + thought
    details = said.get("reasoning_details")
    if not thought and isinstance(details, list):
        thought = "".join(str(mapping(each).get("text") or "") for each in cast("list[object]", details))
    parts: list[Part] = []
    kept = None if family is None else _reasoning(said, thought, family)
    if thought or kept:
        parts.append(Reasoning(thought, provider=kept))
    if text:
        parts.append(Text(text, provider=_signature(said, family)))
    calls = said.get("tool_calls")
    if isinstance(calls, list):
        parts.extend(_call(mapping(each), family) for each in cast("list[object]", calls))
    return Message("assistant", tuple(parts))


def _reasoning(said: Mapping[str, Any], thought: str, family: ModelFamily) -> ProviderData | None:
    """Return the field with the reasoning. If it equals the text of the part, its value is None."""
    for name in family.reasoning:
        value = said.get(name)
        if value is not None:  # DeepSeek wants an empty one back, too: github.com/Oaklight/llm-rosetta/issues/356
            return ProviderData(family.name, {name: None if value == thought else value})
    return None


def _signature(said: Mapping[str, Any], family: ModelFamily | None) -> ProviderData | None:
    found = said.get(family.signature) if family is not None and family.signature else None
    return ProviderData(family.name, {family.signature: found}) if family is not None and found else None


def _read_content(content: object) -> tuple[str, str]:
    """Return text and reasoning; some servers send a list of chunks instead of a string."""
    if not isinstance(content, list):
        return str(content), ""
    text, thought = "", ""
    for each in map(mapping, cast("list[object]", content)):
        if each.get("type") == "thinking":
            thought += "".join(_read_content(each.get("thinking") or ""))
        else:
            text += str(each.get("text") or "")
    return text, thought


def _call(said: Mapping[str, Any], family: ModelFamily | None) -> ToolCall:
    function = mapping(said.get("function"))
    name, identity = str(function.get("name") or ""), str(said.get("id") or "")
    arguments, malformed = read_arguments(function.get("arguments"))
    return ToolCall(name, arguments, identity, malformed, provider=_signature(said, family))


def read_usage(said: object) -> Usage:
    """Read the tokens that a server counted; missing counts are 0.

    OpenRouter says under `cost` what they cost (https://openrouter.ai/docs/use-cases/usage-accounting).
    """
    usage = mapping(said)
    return Usage(
        number(usage.get("prompt_tokens")),
        number(usage.get("completion_tokens")),
        number(mapping(usage.get("prompt_tokens_details")).get("cached_tokens")),
        number(mapping(usage.get("completion_tokens_details")).get("reasoning_tokens")),
        money(usage.get("cost")),
    )


class Chunks:
    """A streamed answer: chunks go in as they come, and it becomes the JSON of a whole answer."""

    last = False
    """Always False: usage and the marker `[DONE]` follow the end of an answer."""

    def __init__(self) -> None:
        self.finished = False
        """Whether the server announced the end of the answer."""
        self._body: dict[str, Any] = {}
        self._finish_reason = ""
        self._texts: dict[str, list[str]] = {"content": [], "refusal": []}
        self._details: list[dict[str, Any]] = []
        self._extra: dict[str, Any] = {}
        self._calls: list[dict[str, Any]] = []
        self._arguments: list[list[str]] = []
        self._at_index: dict[str, int] = {}

    def add(self, chunk: object, server: str) -> str:
        """Accept one chunk, and return the text in it.

        Raises:
            ModelRequestError: it is an error.
        """
        data = mapping(chunk)
        if data.get("error"):
            raise _without_choices(data, server)
        self._body.update({key: data[key] for key in ("model", "usage") if data.get(key)})
        choices = data.get("choices")
        if not isinstance(choices, list) or not choices:
            return ""
        choice = mapping(cast("list[object]", choices)[0])
        if choice.get("finish_reason"):
            self.finished, self._finish_reason = True, str(choice["finish_reason"])
        delta = mapping(choice.get("delta"))
        text, thought = _read_content(delta.get("content") or "")
        refusal = str(delta.get("refusal") or "")
        self._texts["content"].append(text)
        self._texts["refusal"].append(refusal)
        for name in ("reasoning_content", "reasoning"):
            if isinstance(delta.get(name), str):
                self._texts.setdefault(name, []).append(delta[name])
        if thought:
            self._texts.setdefault("reasoning_content", []).append(thought)
        details = delta.get("reasoning_details")
        for each in cast("list[object]", details) if isinstance(details, list) else []:
            self._add_detail(mapping(each))
        if delta.get("extra_content"):  # Gemini signs text in a last chunk without text
            self._extra = {"extra_content": delta["extra_content"]}
        calls = delta.get("tool_calls")
        for each in cast("list[object]", calls) if isinstance(calls, list) else []:
            self._add_call(mapping(each))
        return text or refusal

    def _add_detail(self, said: Mapping[str, Any]) -> None:
        """Accept a piece of OpenRouter's and MiniMax's reasoning, which continues the last one if it has the same type and index."""
        known = self._details[-1] if self._details else {}
        if not known or any(known.get(name) != said.get(name) for name in ("type", "index")):
            self._details.append(dict(said))
            return
        for name, value in said.items():
            if name in ("text", "summary") and isinstance(value, str):
                known[name] = str(known.get(name) or "") + value
            elif value is not None:
                known[name] = value

    def _add_call(self, said: Mapping[str, Any]) -> None:
        function = mapping(said.get("function"))
        index, identity, name = str(said.get("index")), said.get("id"), function.get("name")
        at = self._at_index.get(index)
        # Some servers leave the index out, or use the same one for every call: then a new id with a name begins a call.
        known = self._calls[at]["id"] if at is not None else ""
        if at is None or (identity and name and identity != known):
            at = self._at_index[index] = len(self._calls)
            self._calls.append({"id": identity or "", "function": {"name": name or "", "arguments": ""}})
            self._arguments.append([])
        elif identity and not known:
            self._calls[at]["id"] = identity
        if said.get("extra_content"):
            self._calls[at]["extra_content"] = said["extra_content"]
        given = function.get("arguments")
        if isinstance(given, Mapping):
            given = json.dumps(given, ensure_ascii=False)
        self._arguments[at].append(str(given or ""))

    def body(self) -> dict[str, Any]:
        """Return the whole response, as if it had not been streamed."""
        message: dict[str, Any] = {key: paired("".join(pieces)) for key, pieces in self._texts.items()}
        for call, pieces in zip(self._calls, self._arguments, strict=True):
            call["function"]["arguments"] = paired("".join(pieces))
        message |= self._extra
        if self._details:
            message["reasoning_details"] = self._details
        message["tool_calls"] = self._calls
        return {**self._body, "choices": [{"message": message, "finish_reason": self._finish_reason}]}
