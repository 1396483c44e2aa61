"""OpenAI's Responses protocol: requests to JSON.

The format is that of https://platform.openai.com/docs/api-reference/responses. Nothing is kept by the server: each request has the
whole conversation, and with it the reasoning of earlier answers, encrypted, which the model is to continue from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, cast

from graphagent.errors import ModelRequestError
from graphagent.llm._families import is_openai
from graphagent.llm._responses_answer import ResponseEvents, from_body
from graphagent.llm._responses_items import input_items
from graphagent.llm._wire import SCHEMA_REFUSALS, mapping, offered, schema_instruction, tool_refusals

if TYPE_CHECKING:
    from graphagent.llm._endpoint import WireRequest
    from graphagent.llm._messages import ModelRequest, ModelResponse

_ENCRYPTED = "reasoning.encrypted_content"
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

    A server may refuse parts of it: a format for the answer, which is then put into the prompt; a tool choice, or to keep to the
    schema of a tool that must be called; encrypted reasoning, asked for or
    returned.
    """

    path = "/responses"

    def __init__(self, asked: WireRequest) -> None:
        self.asked = asked
        # Only the host that encrypted reasoning can read it.
        named = "openai" if is_openai(asked.host) else f"responses:{asked.host}"
        self._family = asked.family.name if asked.family is not None else named

    @property
    def refusals(self) -> dict[str, str]:
        """The parts that can be left out, each with a regular expression for a refusal of it."""
        found = _REFUSALS | tool_refusals(self.asked)
        return found if self.asked.request.output is None else found | SCHEMA_REFUSALS

    def body(self, left_out: AbstractSet[str]) -> dict[str, Any]:
        """Return the JSON of the request, without the parts in `left_out`.

        Raises:
            ModelRequestError: a background response is asked for.
        """
        body = to_body(
            offered(self.asked, left_out),
            self.asked.model,
            family=self._family,
            strict="strict" in tool_refusals(self.asked).keys() - left_out,
            reasoning=left_out.isdisjoint(("reasoning", "this reasoning")),
            schema_in_prompt=not left_out.isdisjoint(SCHEMA_REFUSALS),
            encrypted="include" not in left_out,
        )
        body["stream"] = self.asked.streaming  # `transformers serve` streams where it is left out
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
        limits: dict[str, Any] = {}
        if not is_openai(self.asked.host):  # which says itself that an answer was cut off
            for given in (self.asked.parameters, self.asked.request.parameters):
                add_parameters(limits, given)
        return from_body(data, server, self._family, limits.get("max_output_tokens"))

    def streamed(self) -> ResponseEvents:
        """Return an empty answer, which collects the events of a streamed one."""
        return ResponseEvents()


def to_body(
    request: ModelRequest,
    model: str,
    family: str,
    *,
    strict: bool = False,
    reasoning: bool = True,
    schema_in_prompt: bool = False,
    encrypted: bool = True,
) -> dict[str, Any]:
    """Return the JSON of a request.

    Args:
        request: The request.
        model: The name of the model.
        family: Return data that servers of this family attached to earlier answers.
        strict: Have the server keep to the schemas of tools.
        reasoning: Return their reasoning too, which models without any refuse.
        schema_in_prompt: Put the output format into the prompt, and do not send it as a setting.
        encrypted: Ask for the reasoning, which models without any refuse.
    """
    items = input_items(request.messages, family, reasoning=reasoning)
    body: dict[str, Any] = {"model": model, "input": items, "store": False}
    if encrypted:
        body["include"] = [_ENCRYPTED]
    if request.tools:
        # Strict is the default of this protocol. Of OpenAI, it would make each optional parameter a required one, and refuse schemas
        # that cannot be enforced; arguments are checked before a tool is called anyway.
        body["tools"] = [
            {
                "type": "function",
                "name": each.name,
                "description": each.description,
                "parameters": dict(each.parameters),
                "strict": strict,
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
