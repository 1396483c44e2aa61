"""Models over the OpenAI protocol: OpenAI itself, and every server that speaks Chat Completions (`base_url=`)."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import urlsplit

from anyio import CancelScope, current_time
from openai import AsyncOpenAI, AsyncStream

from graphagent._openai_http import Server
from graphagent.errors import ModelRequestError
from graphagent.llm._context_overflow import is_overflow
from graphagent.llm._output import read_json
from graphagent.llm._wire import Chunks, Events, from_body, to_body

if TYPE_CHECKING:
    from graphagent.llm._messages import ModelRequest, ModelResponse

_LAST_WORDS = 1.0
"""Seconds that a server has to end a stream of which it said that it is done."""


class OpenAIModel:
    """A model over the OpenAI protocol, Chat Completions.

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
            parameters: sent along with every request, such as `temperature=0`; those of a request win over them.

        Raises:
            ValueError: `base_url` is no address, or `max_retries` is below 0.
        """
        self.name = model
        """What the server calls the model."""
        self.parameters = parameters
        """Sent along with every request."""
        self._base_url = base_url
        self._server = Server(
            f"model {model!r}",
            error=_request_error,
            base_url=base_url,
            api_key=api_key,
            timeout=timeout,
            max_retries=max_retries,
            headers=headers,
        )
        self._takes_schema = True
        self._takes_stream_options = True

    @property
    def tells_cost(self) -> bool:
        """Whether its answers say what they cost, as those of OpenRouter do; a budget of money needs that, or a PricedModel."""
        host = urlsplit(self._base_url or os.environ.get("OPENAI_BASE_URL", "")).hostname or ""
        return host == "openrouter.ai" or host.endswith(".openrouter.ai")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._server}>"

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        """Ask the model. An answer that was cut off at its limit of tokens, or withheld, is returned with that `finish_reason`.

        Raises:
            ModelRequestError: the server refused, answered with something other than the protocol, or cannot be reached. The text
                holds neither the key nor anything that was sent.
        """
        options: dict[str, Any] = {}
        if on_text is not None:
            options["stream"] = True
            if self._takes_stream_options:
                options["stream_options"] = {"include_usage": True}
        with_schema = self._takes_schema
        given = {**self.parameters, **request.parameters}
        extra = cast("dict[str, Any]", given.pop("extra_body", None) or {})
        while True:
            body = to_body(request, self.name, schema_in_prompt=not with_schema) | options | extra | given
            try:
                async with self._server.client() as client:
                    if on_text is None:
                        response = await self._ask(client, body)
                    else:
                        response = await self._ask_streaming(client, body, on_text)
            except ModelRequestError as error:
                if "stream_options" in options and _refuses(error, "stream_options"):
                    del options["stream_options"]
                    self._takes_stream_options = False
                elif (
                    request.output
                    and with_schema
                    and _refuses(error, r"response_format|json_schema|structured.?output")
                ):
                    with_schema = False
                    # A server that has the format but not this schema will take the next one.
                    self._takes_schema = "invalid schema" in error.detail.lower()
                else:
                    raise
                continue
            return response

    async def aclose(self) -> None:
        """Close the connections of this event loop as soon as pending requests are answered. A later request opens new ones."""
        await self._server.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()

    async def _ask(self, client: AsyncOpenAI, body: dict[str, Any]) -> ModelResponse:
        with self._server.failures():
            data = await client.post("/chat/completions", body=body, cast_to=object)
        if isinstance(data, str):  # what the client makes of other kinds of content
            raise self._server.no_json(data)
        return from_body(data, str(self._server))

    async def _ask_streaming(
        self, client: AsyncOpenAI, body: dict[str, Any], on_text: Callable[[str], None]
    ) -> ModelResponse:
        with self._server.failures():
            stream = await client.post(
                "/chat/completions", body=body, cast_to=object, stream=True, stream_cls=AsyncStream[object]
            )
        # The client's own reader of streams leaves generators open, which trio warns of; so only its response is used.
        response = stream.response
        try:
            if "event-stream" not in response.headers.get("content-type", "event-stream"):
                with self._server.failures():
                    content = await response.aread()
                return self._read_unstreamed(content.decode("utf-8", "replace"), on_text)
            pieces = response.aiter_bytes()
            try:
                return await self._read_events(pieces, on_text)
            finally:
                # Nested generators that are left in the middle stay open; cancelled where they wait, all of them end.
                with CancelScope() as scope, self._server.failures():
                    scope.cancel()
                    async for _ in pieces:
                        pass
        finally:
            await response.aclose()

    async def _read_events(self, pieces: AsyncIterator[bytes], on_text: Callable[[str], None]) -> ModelResponse:
        events, chunks = Events(), Chunks()
        with CancelScope() as scope:
            while True:
                with self._server.failures():
                    piece = await anext(pieces, None)
                for event in events.add(piece):
                    if event == b"[DONE]":
                        # To read on to the end keeps the connection for the next request, if the end comes soon.
                        scope.deadline = current_time() + _LAST_WORDS
                        continue
                    text = chunks.add(self._read_json(event.decode("utf-8", "replace")), str(self._server))
                    if text:
                        on_text(text)
                if piece is None:
                    break
        if not chunks.finished:
            raise ModelRequestError(f"the answer of {self._server} broke off before its end; try again")
        return from_body(chunks.body(), str(self._server))

    def _read_unstreamed(self, content: str, on_text: Callable[[str], None]) -> ModelResponse:
        """Read the answer of a server that does not stream."""
        response = from_body(self._read_json(content), str(self._server))
        if response.message.text:
            on_text(response.message.text)
        return response

    def _read_json(self, content: str) -> object:
        try:
            return read_json(content)
        except ValueError:
            raise self._server.no_json(content) from None


def _request_error(
    text: str, /, *, status: int | None = None, retry_after: float | None = None, detail: str = ""
) -> ModelRequestError:
    """Make an error of the server, which says so if a prompt was too long."""
    error = ModelRequestError(text, status=status, retry_after=retry_after, detail=detail)
    if not is_overflow(error):
        return error
    text += (
        "; the prompt is too long for it: shorten it, or keep prompts short with agent.install(ContextWindow, tokens=…)"
    )
    return ModelRequestError(text, status=status, retry_after=retry_after, detail=detail)


def _refuses(error: ModelRequestError, part: str) -> bool:
    """Return whether the server does not know that part of a request."""
    return error.status in (400, 404, 415, 422, 501) and re.search(part, f"{error} {error.detail}".lower()) is not None
