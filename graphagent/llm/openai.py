"""Models over OpenAI's protocols: OpenAI itself by Responses, and every server that speaks Chat Completions (`base_url=`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import urlsplit

from graphagent._article import kind_of
from graphagent._openai_http import Server, address_of_environment, address_without_login
from graphagent._options import check_options, check_text, check_word
from graphagent._policies import Retry, is_repeated
from graphagent.llm._attempts import answered
from graphagent.llm._chat import ChatExchange
from graphagent.llm._endpoint import Endpoint, Exchange, WireRequest, request_error
from graphagent.llm._families import ModelFamily, family_named, is_openai
from graphagent.llm._openai_moderator import OpenAIModerator as OpenAIModerator  # noqa: PLC0414  a re-export
from graphagent.llm._responses import ResponsesExchange
from graphagent.llm._whole import check_said

if TYPE_CHECKING:
    from graphagent.llm._messages import ModelRequest, ModelResponse

_PROTOCOLS: dict[str, Callable[[WireRequest], Exchange]] = {"chat": ChatExchange, "responses": ResponsesExchange}
_ADVICE = {404: "check the model's name, base_url (most end in /v1) and protocol ('chat' or 'responses')"}


def _known_parameters() -> set[str]:
    """Return the names of the parameters of both protocols, as the client knows them, without the parts of a request itself."""
    from openai.types.chat.completion_create_params import CompletionCreateParamsBase
    from openai.types.responses.response_create_params import ResponseCreateParamsBase

    known = {*CompletionCreateParamsBase.__annotations__, *ResponseCreateParamsBase.__annotations__, "extra_body"}
    return known - {"model", "messages", "input"}


class OpenAIModel:
    """A model of OpenAI, or of any other server that speaks one of its protocols: Responses or Chat Completions.

    A part that a server refuses is left out of one more request, and of all later ones of this object: a format for the answer, which is
    then put into the prompt; over Chat Completions a reasoning effort beside tools, then `none`; reasoning and other data that
    were returned to it. `ModelResponse.failed` names the requests that were refused.

    Over Responses the server keeps nothing (`store=False`): the reasoning of earlier answers is sent back to it, encrypted, in a
    tool loop and across turns.

    One object serves any number of runs, and event loops of asyncio and trio alike. The HTTP client is made at the first
    request and closed with its event loop; `async with` or `aclose()` closes it earlier. Nothing that is sent is logged here;
    the `openai` client itself logs requests if its logger is set to DEBUG.
    """

    def __init__(
        self,
        model: str,
        *,
        protocol: Literal["chat", "responses"] | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float | None = None,
        max_retries: int = 2,
        headers: Mapping[str, str] | None = None,
        family: str | ModelFamily | None = None,
        **parameters: Any,
    ) -> None:
        """Name a model and, if it is not OpenAI's, its server.

        Args:
            model: The name by which the server knows the model, such as `gpt-5-mini`.
            protocol: `responses`, or `chat` for Chat Completions. By default the address decides at each request: Responses for
                OpenAI's own hosts, Chat Completions for all others.
            base_url: The address of the server, such as `http://localhost:11434/v1`. By default OPENAI_BASE_URL or OpenAI's own.
            api_key: The key; by default OPENAI_API_KEY, but never for a `base_url` that is given here: such a server gets only a
                key that was meant for it.
            timeout: Seconds to wait for each piece of an answer, by default 10 minutes. The whole may take longer.
            max_retries: How often a request is repeated that may succeed later (429, 5xx, lost connections), as by a RetryModel with
                `Retry(max_retries + 1, wait=0.5)`: after a longer Retry-After of the server it waits as long, up to 60 seconds. A
                RetryModel around the model is asked instead.
            headers: Sent with every request.
            family: The family of the data that the server attaches to its answers and wants back: its name in MODEL_FAMILIES, or
                one of your own. By default the family of the host, of the server's earlier answers, or of the model's name.
            parameters: Parameters of the protocols, sent with every request, such as `temperature=0`; those of a request take
                precedence. Responses accepts those of Chat Completions too, such as `max_completion_tokens` and
                `reasoning_effort`. Parameters that only your server knows go into `extra_body={"top_k": 5}`.

        Raises:
            TypeError: an argument is not of its type, or neither protocol has such a parameter.
            ValueError: `protocol`, `base_url`, `max_retries`, `timeout` or `family` is invalid.
        """
        check_text("model=", model)
        if not model:
            raise ValueError("model= is the name by which the server knows the model, such as 'gpt-5-mini', not ''")
        if protocol is not None:
            check_word("protocol", protocol, _PROTOCOLS)
        if family is not None and not isinstance(family, str | ModelFamily):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"family= is the name of a family or a ModelFamily, not {kind_of(family)}")
        if parameters:  # a mistyped base_url= would send the prompts to another server
            own = ("protocol", "base_url", "api_key", "timeout", "max_retries", "headers", "family")
            other = "extra_body={{{name!r}: …}}, for parameters that only your server knows"
            check_options("OpenAIModel", parameters, _known_parameters(), *own, other=other)
        self.name = model
        """The name by which the server knows the model."""
        self.parameters = parameters
        """Sent with every request."""
        self._protocol = protocol
        self._family = family_named(family) if isinstance(family, str) else family
        self._base_url = base_url
        server = Server(
            f"model {model!r}",
            error=request_error,
            base_url=base_url,
            api_key=api_key,
            timeout=timeout,
            max_retries=max_retries,
            headers=headers,
            advice=_ADVICE,
        )
        self._endpoint, self._retry = Endpoint(server), server.retry

    @property
    def base_url(self) -> str:
        """The address of its server, without user, password and query."""
        return address_without_login(self._base_url)

    @property
    def tells_cost(self) -> bool:
        """Whether its answers say what they cost, as those of OpenRouter and xAI do; a budget of money needs that, or a PricedModel."""
        host = self._host()
        return any(host == each or host.endswith(f".{each}") for each in ("openrouter.ai", "x.ai"))

    def _host(self) -> str:
        """Return the host that is asked; empty for OpenAI's own, if none is named, and for an invalid address."""
        # The environment is read at each request, as the client itself does it at the first.
        try:
            return urlsplit(self._base_url or address_of_environment()).hostname or ""
        except ValueError:
            return ""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._endpoint}>"

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        """Ask the model. An answer that was cut off at its limit of tokens is returned with that `finish_reason`.

        Raises:
            ContentFilterError: the server's content filter objected to the prompt or to the answer.
            OutputError: the answer has no part.
            ModelRequestError: the server refused, answered with something other than the protocol, or cannot be reached. The text
                holds neither the key nor anything that was sent.
        """
        host = self._host()
        exchange = _PROTOCOLS[self._protocol or ("responses" if is_openai(host) else "chat")]
        address = urlsplit(self.base_url).netloc
        asked = WireRequest(request, self.name, host, self.parameters, self._family, on_text is not None, address)
        retry = Retry(1) if is_repeated.get() else self._retry
        response = await answered(self, retry, lambda relay: self._endpoint.ask(exchange(asked), relay), on_text)
        check_said(response)
        return response

    async def aclose(self) -> None:
        """Close the connections of this event loop as soon as pending requests are answered. A later request opens new ones."""
        await self._endpoint.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()
