"""The names of the semantic conventions for generative AI: attributes of requests, answers and messages, and instruments of metrics.

The conventions are in development. Their package changes the names with each of its versions, so they are constants here.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from graphagent.llm import Reasoning, Text, ToolCall, ToolResult
from graphagent.llm._families import family_of
from graphagent.llm._messages import sendable
from graphagent.llm._wrappers import inner_models

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.metrics import Counter, Histogram, Meter

    from graphagent.llm import ModelRequest, ModelResponse
    from graphagent.protocols import Embedder, Model

CONVENTIONS: Final = "0.1.0"
"""The version of the semantic conventions for generative AI whose names are used."""
_CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The environment variable that asks for content where the program does not say whether it is wanted."""
OPERATION, PROVIDER, AGENT, CONVERSATION = (
    "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.agent.name", "gen_ai.conversation.id",
)  # fmt: skip
ERROR, MODEL, ANSWERED = "error.type", "gen_ai.request.model", "gen_ai.response.model"
INPUT, OUTPUT, TOOL = "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.tool.name"
SERVER, DIMENSIONS = "server.address", "gen_ai.embeddings.dimension.count"
NODE, OUTCOME, TEXTS = "graphagent.node", "graphagent.run.outcome", "graphagent.embeddings.texts"
_PARAMETERS = {
    "temperature": "gen_ai.request.temperature", "top_p": "gen_ai.request.top_p", "seed": "gen_ai.request.seed",
    "max_tokens": "gen_ai.request.max_tokens", "max_completion_tokens": "gen_ai.request.max_tokens",
    "max_output_tokens": "gen_ai.request.max_tokens", "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty", "reasoning_effort": "gen_ai.request.reasoning.level",
}  # fmt: skip
_PROVIDERS = {"google": "gcp.gemini", "mistral": "mistral_ai", "moonshot": "moonshot_ai", "xai": "x_ai"}
"""The names of families of servers in the conventions, if they differ."""
_MOST = 2**63 - 1
"""The largest number that the protocol of OpenTelemetry carries."""
_SECONDS = [0.01 * 2**number for number in range(14)]
_LONG = [0.1 * 2**number for number in range(13)]
_CALLS = [2**number for number in range(8)]


def is_content_wanted() -> bool:
    """Return whether the environment asks for content."""
    return os.environ.get(_CAPTURE, "").strip().lower() in ("true", "1", "span_only", "span_and_event")


def model_attributes(model: Model | None) -> dict[str, Any]:
    """Return the attributes of the conventions for a model that is asked."""
    if model is None:
        return {OPERATION: "chat"}
    return {OPERATION: "chat", MODEL: model.name} | _provider(inner_models(model)[0])


def embedder_attributes(embedder: Embedder) -> dict[str, Any]:
    """Return the attributes of the conventions for an embedder that is asked."""
    return {OPERATION: "embeddings", MODEL: getattr(embedder, "model", embedder.name)} | _provider(embedder)


def _provider(asked: Any) -> dict[str, Any]:
    """Return the server, or the class in this process, that answers the requests of a model or an embedder."""
    address = urlsplit(getattr(asked, "base_url", "") or "")
    host = address.hostname
    if host is None:
        return {PROVIDER: type(asked).__name__}
    family = family_of(host, "")
    name = host if family is None else family.name
    told: dict[str, Any] = {PROVIDER: _PROVIDERS.get(name, name), SERVER: host}
    with suppress(ValueError):  # a port that does not exist; the request says so
        told["server.port"] = address.port or (80 if address.scheme == "http" else 443)
    return told


def request_attributes(model: Model | None, request: ModelRequest) -> dict[str, Any]:
    """Return the attributes of the parameters of a request."""
    asked = getattr(inner_models(model)[0], "parameters", {}) if model is not None else {}
    given: dict[str, Any] = {**asked, **request.parameters}
    told = {
        attribute: given[name]
        for name, attribute in _PARAMETERS.items()
        if isinstance(given.get(name), int | float | str) and -_MOST <= _number(given[name]) <= _MOST
    }
    return told | {"gen_ai.output.type": "text" if request.output is None else "json"}


def response_attributes(response: ModelResponse) -> dict[str, Any]:
    """Return the attributes of an answer and its tokens."""
    usage = response.usage
    told: dict[str, Any] = {
        "gen_ai.response.finish_reasons": (response.finish_reason,),
        "gen_ai.usage.input_tokens": _whole(usage.input_tokens),
        "gen_ai.usage.output_tokens": _whole(usage.output_tokens),
    }
    if usage.cached_tokens:
        told["gen_ai.usage.cache_read.input_tokens"] = _whole(usage.cached_tokens)
    if usage.reasoning_tokens:
        told["gen_ai.usage.reasoning.output_tokens"] = _whole(usage.reasoning_tokens)
    if usage.cost:
        told["graphagent.usage.cost"] = float(usage.cost)
    if response.failed:
        told["graphagent.requests.failed"] = len(response.failed)
    return told


def message_part(part: object, left: int) -> tuple[dict[str, Any], int]:
    """Return a part of a message as the conventions have it, and the number of characters that it takes."""
    if isinstance(part, ToolCall):
        text = sendable(part.malformed or json_text(part.arguments))
        told: dict[str, Any] = {"type": "tool_call", "id": part.id, "name": part.name, "arguments": text[:left]}
    elif isinstance(part, ToolResult):
        text = sendable(part.content)
        told = {"type": "tool_call_response", "id": part.call_id, "response": text[:left]}
    elif isinstance(part, Text | Reasoning):
        text = sendable(part.text)
        told = {"type": "text" if isinstance(part, Text) else "reasoning", "content": text[:left]}
    else:
        text, told = "", {"type": "image"}
    return told, min(len(text), left)


def json_text(value: Any) -> str:
    """Return a value as JSON, which names the types of values that JSON does not have."""
    from pydantic_core import to_json

    return to_json(value, fallback=lambda other: f"<{type(other).__name__}>", inf_nan_mode="strings").decode()


def _whole(number: int) -> int:
    """Return a number of tokens, or the largest number that can be carried."""
    return min(number, _MOST)


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else 0


class Instruments:
    """The instruments of the metrics.

    Args:
        meter: The meter that makes them.
    """

    def __init__(self, meter: Meter) -> None:
        def durations(name: str, of: str, bounds: list[float]) -> Histogram:
            return meter.create_histogram(
                name, "s", f"The duration of {of}.", explicit_bucket_boundaries_advisory=bounds
            )

        def numbers(name: str, unit: str, of: str) -> Histogram:
            return meter.create_histogram(
                name, unit, f"The number of {of} of a run of an agent.", explicit_bucket_boundaries_advisory=_CALLS
            )

        def tokens(name: str, of: str) -> Counter:
            return meter.create_counter(
                f"gen_ai.client.inference.usage.{name}", "{token}", f"The number of {of} tokens."
            )

        self.inference = durations("gen_ai.client.inference.duration", "requests to models", _SECONDS)
        self.embeddings = durations("gen_ai.client.embeddings.duration", "requests to embedders", _SECONDS)
        self.tool = durations("gen_ai.execute_tool.duration", "tool calls", _SECONDS)
        self._run = durations("gen_ai.invoke_agent.duration", "runs of agents", _LONG)
        self._inference_calls = numbers("gen_ai.invoke_agent.inference_calls", "{inference_call}", "requests to models")
        self._tool_calls = numbers("gen_ai.invoke_agent.tool_calls", "{tool_call}", "tool calls")
        self._tokens = {
            "input_tokens": tokens("input_tokens", "input"),
            "output_tokens": tokens("output_tokens", "output"),
            "cached_tokens": tokens("cache_read.input_tokens", "cached input"),
            "reasoning_tokens": tokens("reasoning.output_tokens", "reasoning"),
        }

    def count_run(self, seconds: float, told: Mapping[str, Any], inference_calls: int, tool_calls: int) -> None:
        """Count a run of an agent, given the attributes of its span."""
        self._run.record(seconds, {name: value for name, value in told.items() if name != CONVERSATION})
        self._inference_calls.record(inference_calls, {AGENT: told[AGENT]})
        self._tool_calls.record(tool_calls, {AGENT: told[AGENT]})

    def count_tokens(self, response: ModelResponse, told: Mapping[str, Any]) -> None:
        """Count the tokens of an answer."""
        for name, counter in self._tokens.items():
            number = getattr(response.usage, name)
            if number > 0:
                counter.add(_whole(number), told)
