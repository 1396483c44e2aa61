"""Models over OpenAI's protocols: OpenAI itself by Responses, and every server that speaks Chat Completions (`base_url=`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import urlsplit

from graphagent._openai_http import Server, address_of_environment
from graphagent.llm import _responses, _wire
from graphagent.llm._endpoint import Endpoint, request_error
from graphagent.llm._families import ModelFamily, family_named, family_of
from graphagent.llm._openai_moderator import OpenAIModerator as OpenAIModerator  # noqa: PLC0414  a re-export

if TYPE_CHECKING:
    from graphagent.llm._messages import ModelRequest, ModelResponse

_SCHEMA_REFUSALS = {
    "this schema": "invalid schema",
    "schema": r"response_format|text\.format|json_schema|structured.?output",
}
"""A server that has formats, and refuses one schema, will take the next."""
_DATA = r"(reasoning(_content|_details)?|extra_content|thought_signature)\b"
_UNKNOWN = r"(extra_forbidden|not permitted|not allowed|not support|unsupported|unknown|unrecognized|unexpected)"
_UNKNOWN_DATA = rf"{_DATA}.*{_UNKNOWN}|{_UNKNOWN}.*{_DATA}"
_CALL_IDS = r"tool.?(call|use)[^ ]{0,20}\W+id\b.{0,120}(must be|too long|match pattern)"
"""Mistral: "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9." Others limit the length or the characters."""
_MISSING_DATA = r"(reasoning|signature).*(must be passed back|is missing)|missing.*(reasoning|signature)"


_NO_RESPONSES = (
    "check the model's name and base_url (most end in /v1); if it speaks Chat Completions only, use OpenAIChatModel"
)


class OpenAIModel:
    """A model of OpenAI, by the Responses protocol, or of any other server, by Chat Completions.

    Which of the two is decided by the address: Responses on OpenAI's own hosts, Chat Completions on any other, given here or in
    OPENAI_BASE_URL. OpenAIResponsesModel and OpenAIChatModel name one of them.

    One object serves any number of runs, and event loops of asyncio and trio alike. The HTTP client is made at the first
    request and closed with its event loop; `async with` or `aclose()` closes it earlier. Nothing that is sent is logged here;
    the `openai` client itself logs requests if its logger is set to DEBUG.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float | None = None,
        max_retries: int = 2,
        headers: Mapping[str, str] | None = None,
        family: str | ModelFamily | None = None,
        **parameters: Any,
    ) -> None:
        """Name a model and, where it is not OpenAI's, its server.

        Args:
            model: as the server calls it, such as `gpt-5-mini`.
            base_url: of the server, such as `http://localhost:11434/v1`. Without it, OPENAI_BASE_URL or OpenAI's own.
            api_key: without it OPENAI_API_KEY, but never for a `base_url` that is given here: such a server gets only a
                key that was meant for it.
            timeout: seconds for one attempt; 10 minutes without it.
            max_retries: how often the client tries again what may work the second time (429, 5xx, lost connections),
                waiting as long as the server's Retry-After says.
            headers: sent along with every request.
            family: of the data that the server attaches to its answers and wants back, by its name in MODEL_FAMILIES or one of
                your own. Without it, that of the host or of the model's name.
            parameters: sent along with every request, such as `temperature=0`; those of a request win over them. Responses
                takes those of Chat Completions too, such as `max_completion_tokens` and `reasoning_effort`.

        Raises:
            ValueError: `base_url` is no address, `max_retries` is below 0, or there is no such family.
        """
        self.name = model
        """What the server calls the model."""
        self.parameters = parameters
        """Sent along with every request."""
        self._base_url = base_url
        settings: dict[str, Any] = {
            "base_url": base_url,
            "api_key": api_key,
            "timeout": timeout,
            "max_retries": max_retries,
            "headers": headers,
            "family": family,
        }
        self._chat = OpenAIChatModel(model, **settings)
        self._responses = OpenAIResponsesModel(model, **settings)
        self._chat.parameters = self._responses.parameters = parameters

    @property
    def base_url(self) -> str:
        """The address of its server, without user, password and query."""
        return _address(self._base_url)

    @property
    def tells_cost(self) -> bool:
        """Whether its answers say what they cost, as those of OpenRouter do; a budget of money needs that, or a PricedModel."""
        return _tells_cost(self._base_url)

    def __repr__(self) -> str:
        return repr(self._chat).replace("OpenAIChatModel", type(self).__name__)

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        """Ask the model. An answer that was cut off at its limit of tokens, or withheld, is returned with that `finish_reason`.

        Raises:
            ModelRequestError: the server refused, answered with something other than the protocol, or cannot be reached. The text
                holds neither the key nor anything that was sent.
        """
        # The environment is read at the first request, as the client itself does it.
        own = _is_openai(_host(self._base_url))
        return await (self._responses if own else self._chat).respond(request, on_text)

    async def aclose(self) -> None:
        """Close the connections of this event loop as soon as pending requests are answered. A later request opens new ones."""
        await self._chat.aclose()
        await self._responses.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()


class OpenAIChatModel:
    """A model by Chat Completions, which nearly every server speaks.

    What a server refuses is left out of one more request, and of all later ones of this object: a format for the answer, then
    put into the prompt; a reasoning effort beside tools, then `none`; data that were returned to it. `ModelResponse.failed` names
    the requests that were refused.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float | None = None,
        max_retries: int = 2,
        headers: Mapping[str, str] | None = None,
        family: str | ModelFamily | None = None,
        **parameters: Any,
    ) -> None:
        """Name a model and, where it is not OpenAI's, its server; the arguments are those of OpenAIModel.

        Raises:
            ValueError: `base_url` is no address, `max_retries` is below 0, or there is no such family.
        """
        self.name = model
        """What the server calls the model."""
        self.parameters = parameters
        """Sent along with every request."""
        self._family = family_named(family) if isinstance(family, str) else family
        self._base_url = base_url
        server = _server(model, base_url, api_key, timeout, max_retries, headers)
        self._endpoint = Endpoint(server, "/chat/completions", model, _wire.Chunks)

    @property
    def base_url(self) -> str:
        """The address of its server, without user, password and query."""
        return _address(self._base_url)

    @property
    def tells_cost(self) -> bool:
        """Whether its answers say what they cost, as those of OpenRouter do; a budget of money needs that, or a PricedModel."""
        return _tells_cost(self._base_url)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._endpoint}>"

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        """Ask the model. An answer that was cut off at its limit of tokens, or withheld, is returned with that `finish_reason`.

        Raises:
            ModelRequestError: the server refused, answered with something other than the protocol, or cannot be reached. The text
                holds neither the key nor anything that was sent.
        """
        family = self._family or family_of(_host(self._base_url), self.name)
        if family is not None and family.returned == "never":
            family = None
        given = {**self.parameters, **request.parameters}
        extra = cast("dict[str, Any]", given.pop("extra_body", None) or {})
        refusals = {"call ids": _CALL_IDS}
        if on_text is not None:
            refusals["stream_options"] = "stream_options"
        if request.output is not None:
            refusals |= _SCHEMA_REFUSALS
        if request.tools and given.get("reasoning_effort") != "none":
            refusals["effort"] = r"tools?\b.*reasoning_effort|reasoning_effort.*\btools?\b"
        if family is not None:
            refusals |= {"missing data": _MISSING_DATA} if family.missing else {}
            refusals["data"] = _UNKNOWN_DATA

        def body_without(left_out: AbstractSet[str]) -> dict[str, Any]:
            body = _wire.to_body(
                request,
                self.name,
                schema_in_prompt=not left_out.isdisjoint(_SCHEMA_REFUSALS),
                family=None if "data" in left_out else family,
                fill="missing data" in left_out,
            )
            if "call ids" in left_out:
                _wire.shorten_ids(body["messages"])
            if on_text is not None:
                body["stream"] = True
                if "stream_options" not in left_out:
                    body["stream_options"] = {"include_usage": True}
            body |= extra | given
            if "effort" in left_out and request.tools:
                body["reasoning_effort"] = "none"
            return body

        read = partial(_wire.from_body, family=family)
        return await self._endpoint.ask(body_without, on_text, read=read, refusals=refusals, given=given)

    async def aclose(self) -> None:
        """Close the connections of this event loop as soon as pending requests are answered. A later request opens new ones."""
        await self._endpoint.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()


class OpenAIResponsesModel:
    """A model by OpenAI's Responses protocol, which its current models need to reason and call tools.

    The server keeps nothing (`store=False`): the reasoning of earlier answers is sent back to it, encrypted, in a tool loop and across
    turns. Parameters of Chat Completions become what this protocol has for them: `max_completion_tokens` and `max_tokens` become
    `max_output_tokens`, `reasoning_effort` becomes `reasoning.effort`, `verbosity` and `response_format` become settings of `text`.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float | None = None,
        max_retries: int = 2,
        headers: Mapping[str, str] | None = None,
        family: str | ModelFamily | None = None,
        **parameters: Any,
    ) -> None:
        """Name a model and, where it is not OpenAI's, its server; the arguments are those of OpenAIModel.

        Raises:
            ValueError: `base_url` is no address, `max_retries` is below 0, or there is no such family.
        """
        self.name = model
        """What the server calls the model."""
        self.parameters = parameters
        """Sent along with every request."""
        self._family = family_named(family) if isinstance(family, str) else family
        self._base_url = base_url
        server = _server(model, base_url, api_key, timeout, max_retries, headers, {404: _NO_RESPONSES})
        self._endpoint = Endpoint(server, "/responses", model, _responses.ResponseEvents)

    @property
    def base_url(self) -> str:
        """The address of its server, without user, password and query."""
        return _address(self._base_url)

    @property
    def tells_cost(self) -> bool:
        """Whether its answers say what they cost, as those of OpenRouter do; a budget of money needs that, or a PricedModel."""
        return _tells_cost(self._base_url)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._endpoint}>"

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        """Ask the model. An answer that was cut off at its limit of tokens, or withheld, is returned with that `finish_reason`.

        Raises:
            ModelRequestError: the server refused, answered with something other than the protocol, or cannot be reached. The text
                holds neither the key nor anything that was sent.
        """
        family = self._data_family()
        refusals = {
            # Models without reasoning say: "Encrypted content is not supported with this model."
            "include": r"encrypted content is not supported|\binclude\)",
            # Models without reasoning, of a history with that of other models: "Reasoning input items can only be provided to a
            # reasoning or computer use model. Remove reasoning items from your input and try again."
            "reasoning": r"reasoning input items|remove reasoning items",
            # Of a history that was encrypted for another account.
            "this reasoning": r"invalid_encrypted_content|encrypted content .*could not be",
        }
        if request.output is not None:
            refusals |= _SCHEMA_REFUSALS

        def body_without(left_out: AbstractSet[str]) -> dict[str, Any]:
            body = _responses.to_body(
                request,
                self.name,
                family=family if left_out.isdisjoint(("reasoning", "this reasoning")) else "",
                schema_in_prompt=not left_out.isdisjoint(_SCHEMA_REFUSALS),
                encrypted="include" not in left_out,
            )
            if on_text is not None:
                body["stream"] = True
            for given in (self.parameters, request.parameters):
                _responses.add_parameters(body, given)
            return body

        read = partial(_responses.from_body, family=family)
        given = self.parameters.keys() | request.parameters.keys()
        return await self._endpoint.ask(body_without, on_text, read=read, refusals=refusals, given=given)

    def _data_family(self) -> str:
        """Return the family of what this server attaches to answers: encrypted, it can be read by the same host alone."""
        if self._family is not None:
            return self._family.name
        host = _host(self._base_url)
        return "openai" if _is_openai(host) else f"responses:{host}"

    async def aclose(self) -> None:
        """Close the connections of this event loop as soon as pending requests are answered. A later request opens new ones."""
        await self._endpoint.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()


def _server(
    model: str,
    base_url: str | None,
    api_key: str | None,
    timeout: float | None,
    max_retries: int,
    headers: Mapping[str, str] | None,
    advice: Mapping[int, str] | None = None,
) -> Server:
    return Server(
        f"model {model!r}",
        error=request_error,
        base_url=base_url,
        api_key=api_key,
        timeout=timeout,
        max_retries=max_retries,
        headers=headers,
        advice=advice,
    )


def _host(base_url: str | None) -> str:
    """Return the host that is asked; empty for OpenAI's own, where none is named, and for an address that is none."""
    try:
        return urlsplit(base_url or address_of_environment()).hostname or ""
    except ValueError:
        return ""


def _address(base_url: str | None) -> str:
    try:
        parts = urlsplit(base_url or address_of_environment() or "https://api.openai.com/v1")
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _is_openai(host: str) -> bool:
    return host in ("", "api.openai.com") or host.endswith(".api.openai.com")


def _tells_cost(base_url: str | None) -> bool:
    host = _host(base_url)
    return host == "openrouter.ai" or host.endswith(".openrouter.ai")
