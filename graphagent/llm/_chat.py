"""Chat Completions, the form that every compatible server speaks: one request, and the parts of it that a server may refuse.

The format is that of https://platform.openai.com/docs/api-reference/chat, with the deviations of common servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from graphagent.llm._chat_answer import Chunks, from_body
from graphagent.llm._chat_messages import chat_messages, shorten_ids
from graphagent.llm._families import family_before, family_of, family_said
from graphagent.llm._wire import SCHEMA_REFUSALS, mapping, offered, schema_instruction, tool_refusals

if TYPE_CHECKING:
    from graphagent.llm._endpoint import WireRequest
    from graphagent.llm._families import ModelFamily
    from graphagent.llm._messages import ModelRequest, ModelResponse
    from graphagent.llm._output import OutputFormat

_DATA = r"(reasoning(_content|_details)?|extra_content|thought_signature)\b"
_UNKNOWN = r"(extra_forbidden|not permitted|not allowed|not support|unsupported|unknown|unrecognized|unexpected)"
_UNKNOWN_DATA = rf"{_DATA}.*{_UNKNOWN}|{_UNKNOWN}.*{_DATA}"
_CALL_IDS = r"tool.?(call|use)[^ ]{0,20}\W+id\b.{0,120}(must be|too long|match pattern)"
"""Mistral: "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9." Others limit the length or the characters."""
_MISSING_DATA = r"(reasoning|signature).*(must be passed back|is missing)|missing.*(reasoning|signature)"


class ChatExchange:
    """One request over Chat Completions.

    A server may refuse parts of it: a format for the answer, which is then put into the prompt; a tool choice, or to keep to the
    schema of a tool that must be called; a reasoning effort beside tools, then `none`; the ids of calls, then shorter ones; data that were returned to it, or are missing.
    """

    path = "/chat/completions"

    def __init__(self, asked: WireRequest) -> None:
        self.asked = asked
        self._known = asked.family or family_of(asked.host, "")
        family = self._known or family_before(asked.request.messages, asked.address) or family_of("", asked.model)
        self._family = family if family is not None and family.returned != "never" else None
        self._given = {**asked.parameters, **asked.request.parameters}
        self._extra: Mapping[str, Any] = self._given.pop("extra_body", None) or {}

    @property
    def refusals(self) -> dict[str, str]:
        """The parts that can be left out, each with a regular expression for a refusal of it."""
        found = {"call ids": _CALL_IDS} | tool_refusals(self.asked)
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
            offered(self.asked, left_out),
            self.asked.model,
            strict="strict" in tool_refusals(self.asked).keys() - left_out,
            schema_in_prompt=not left_out.isdisjoint(SCHEMA_REFUSALS),
            family=None if "data" in left_out else self._family,
            fill="missing data" in left_out,
        )
        if "call ids" in left_out:
            shorten_ids(body["messages"])
        body["stream"] = self.asked.streaming
        if self.asked.streaming and "stream_options" not in left_out:
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
        said = None if self._known else family_said(mapping(data), self.asked.address)
        return from_body(data, server, said or self._family)

    def streamed(self) -> Chunks:
        """Return an empty answer, which collects the chunks of a streamed one."""
        return Chunks(self._family)


def to_body(
    request: ModelRequest,
    model: str,
    *,
    strict: bool = False,
    schema_in_prompt: bool = False,
    family: ModelFamily | None = None,
    fill: bool = False,
) -> dict[str, Any]:
    """Return the JSON of a request.

    Args:
        request: The request.
        model: The name of the model.
        strict: Have the server keep to the schemas of tools.
        schema_in_prompt: Put the output format into the prompt, and do not send it as a setting.
        family: Return data that servers of this family attached to earlier answers.
        fill: Send the placeholder of the family for calls of other models.
    """
    messages = chat_messages(request.messages, family, fill=fill)
    body: dict[str, Any] = {"model": model, "messages": messages}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": each.name,
                    "description": each.description,
                    "parameters": dict(each.parameters),
                    **({"strict": True} if strict else {}),
                },
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
    # In the system message at the front: many servers refuse system messages elsewhere, and two messages of one role in a row.
    if messages and messages[0]["role"] == "system":
        messages[0] = {"role": "system", "content": f"{messages[0]['content']}\n\n{instruction}"}
    else:
        messages.insert(0, {"role": "system", "content": instruction})
