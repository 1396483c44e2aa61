"""Models behind the OpenAI protocol: OpenAI itself, and every server that speaks Chat Completions (`base_url=`)."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from os import environ
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from anyio import CancelScope, EndOfStream, current_time
from anyio.lowlevel import RunVar
from openai import (
    APIConnectionError,
    APIError,
    APIStatusError,
    APITimeoutError,
    AsyncOpenAI,
    AsyncStream,
    DefaultAsyncHttpxClient,
    OpenAIError,
)

from graphagent._clock import now
from graphagent.errors import ModelRequestError
from graphagent.llm._output import read_json
from graphagent.llm._wire import Chunks, Events, check_whole, from_body, to_body

if TYPE_CHECKING:
    from graphagent.llm._messages import ModelRequest, ModelResponse

_LONGEST_DETAIL = 2_000
_LAST_WORDS = 1.0
"""Seconds that a server has to end a stream of which it said that it is done."""

# An HTTP client belongs to the event loop that it was first used in. Both ends are weak: a model that is gone and a
# loop that is gone take their clients with them.
_clients: RunVar[WeakKeyDictionary[Any, AsyncOpenAI]] = RunVar("graphagent_openai_clients")

_ADVICE = {
    400: "it does not take the request as it is",
    401: "check the key: give api_key=, or set OPENAI_API_KEY",
    403: "the key may not use this model",
    404: "check the model's name and base_url (most end in /v1)",
    408: "it took too long",
    413: "the request is too large",
    422: "it does not take the request as it is",
    429: "too many requests, or nothing left of the quota",
}


class OpenAIModel:
    """A model behind the OpenAI protocol, asked over Chat Completions.

    One object serves any number of runs, and event loops of asyncio and trio alike. The HTTP client is made at the first
    request; closing it, with `async with` or `aclose()`, frees its connections early and is not needed otherwise.
    Nothing that is sent is logged here; the `openai` client itself logs requests if its logger is set to DEBUG.
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
            ValueError: `base_url` is no address.
        """
        self.name = model
        """What the server calls the model."""
        self.parameters = parameters
        """Sent along with every request."""
        self._server = f"model {model!r}" + (f" at {_place(base_url)}" if base_url else "")
        self._base_url = base_url
        self._api_key = api_key
        self._timeout = timeout
        self._max_retries = max_retries
        self._headers = dict(headers or {})
        self._takes_schema = True
        self._takes_stream_options = True

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._server}>"

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        """Ask the model. An answer that was cut off at its limit of tokens is given if it is plain text.

        Raises:
            ModelRequestError: the server refused, withheld its answer or cut it off, answered with something else than the
                protocol, or cannot be reached. The text holds neither the key nor anything that was sent.
        """
        client = self._client()
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
            check_whole(response, request, self._server)
            return response

    async def aclose(self) -> None:
        """Close the connections of this event loop. A later request opens new ones."""
        clients = _clients.get(None)
        client = clients.pop(self, None) if clients is not None else None
        if client is not None:
            await client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()

    async def _ask(self, client: AsyncOpenAI, body: dict[str, Any]) -> ModelResponse:
        with self._failures():
            data = await client.post("/chat/completions", body=body, cast_to=object)
        if isinstance(data, str):  # what the client makes of other kinds of content
            raise self._no_json(data)
        return from_body(data, self._server)

    async def _ask_streaming(
        self, client: AsyncOpenAI, body: dict[str, Any], on_text: Callable[[str], None]
    ) -> ModelResponse:
        with self._failures():
            stream = await client.post(
                "/chat/completions", body=body, cast_to=object, stream=True, stream_cls=AsyncStream[object]
            )
        # The client's own reader of streams leaves generators open, which trio warns of; so only its response is used.
        response = stream.response
        try:
            if "event-stream" not in response.headers.get("content-type", "event-stream"):
                with self._failures():
                    content = await response.aread()
                return self._read_unstreamed(content.decode("utf-8", "replace"), on_text)
            pieces = response.aiter_bytes()
            try:
                return await self._read_events(pieces, on_text)
            finally:
                # Nested generators that are left in the middle stay open; cancelled where they wait, all of them end.
                with CancelScope() as scope, self._failures():
                    scope.cancel()
                    async for _ in pieces:
                        pass
        finally:
            await response.aclose()

    async def _read_events(self, pieces: AsyncIterator[bytes], on_text: Callable[[str], None]) -> ModelResponse:
        events, chunks = Events(), Chunks()
        with CancelScope() as scope:
            while True:
                with self._failures():
                    piece = await anext(pieces, None)
                for event in events.add(piece):
                    if event == b"[DONE]":
                        # To read on to the end keeps the connection for the next request, if the end comes soon.
                        scope.deadline = current_time() + _LAST_WORDS
                        continue
                    text = chunks.add(self._read_json(event.decode("utf-8", "replace")), self._server)
                    if text:
                        on_text(text)
                if piece is None:
                    break
        if not chunks.finished:
            raise ModelRequestError(f"the answer of {self._server} broke off before its end; try again")
        return from_body(chunks.body(), self._server)

    def _read_unstreamed(self, content: str, on_text: Callable[[str], None]) -> ModelResponse:
        """Read the answer of a server that does not stream."""
        response = from_body(self._read_json(content), self._server)
        if response.message.text:
            on_text(response.message.text)
        return response

    def _read_json(self, content: str) -> object:
        try:
            return read_json(content)
        except ValueError:
            raise self._no_json(content) from None

    def _no_json(self, content: str) -> ModelRequestError:
        return ModelRequestError(
            f"{self._server} answered with something else than JSON; check base_url (most end in /v1)",
            detail=content[:_LONGEST_DETAIL],
        )

    def _client(self) -> AsyncOpenAI:
        clients = _clients.get(None)
        if clients is None:
            clients = WeakKeyDictionary[Any, AsyncOpenAI]()
            _clients.set(clients)
        client = clients.get(self)
        if client is None:
            client = clients[self] = self._make_client()
        return client

    def _make_client(self) -> AsyncOpenAI:
        settings: dict[str, Any] = {"max_retries": self._max_retries, "default_headers": self._headers}
        if self._timeout is not None:
            settings["timeout"] = self._timeout
        key = self._api_key
        if key is None and (self._base_url or ("OPENAI_BASE_URL" in environ and "OPENAI_API_KEY" not in environ)):
            key = "none"
        try:
            # The client that openai makes for itself starts a task when it is collected, in whatever loop runs by then.
            return AsyncOpenAI(api_key=key, base_url=self._base_url, http_client=DefaultAsyncHttpxClient(), **settings)
        except OpenAIError:
            raise ModelRequestError(
                f"{self._server} needs a key: set OPENAI_API_KEY, give api_key=, or base_url= for a server without keys"
            ) from None

    @contextmanager
    def _failures(self) -> Generator[None]:
        """Turn the errors of the client into ours."""
        try:
            yield
        except Exception as error:
            failure = self._failure(error)
            if failure is None:
                raise
            raise failure from None

    def _failure(self, error: Exception) -> ModelRequestError | None:
        """Say what went wrong without repeating what was sent; None for what is no failure of the server."""
        server = self._server
        if isinstance(error, APIStatusError):
            codes = ", ".join(_codes(error))
            advice = _ADVICE.get(error.status_code, "the trouble is on its side" if error.status_code >= 500 else "")
            return ModelRequestError(
                f"{server} answered {error.status_code}"
                + (f" ({codes})" if codes else "")
                + (f": {advice}" if advice else ""),
                status=error.status_code,
                retry_after=_retry_after(error.response.headers),
                detail=(error.response.text or error.message)[:_LONGEST_DETAIL],
            )
        if isinstance(error, APITimeoutError):
            return ModelRequestError(f"{server} did not answer in time; try again, or give it a larger timeout=")
        if isinstance(error, APIConnectionError):
            cause = type(error.__cause__ or error).__name__
            return ModelRequestError(
                f"{server} cannot be reached ({cause}); check base_url, and that the server is running",
                detail=str(error.__cause__ or error)[:_LONGEST_DETAIL],
            )
        if isinstance(error, APIError):
            codes = ", ".join(_codes(error))
            return ModelRequestError(
                f"{server} failed while it answered" + (f" ({codes})" if codes else ""),
                detail=error.message[:_LONGEST_DETAIL],
            )
        if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
            return ModelRequestError(
                f"a message for {server} holds half a surrogate pair, which UTF-8 cannot say; "
                f"clean the text with .encode('utf-8', 'replace').decode()"
            )
        if isinstance(error, UnicodeEncodeError):
            return ModelRequestError(f"the key or a header for {server} holds a character that HTTP has no place for")
        if isinstance(error, json.JSONDecodeError | RecursionError):
            return self._no_json("")
        # While a stream is read, errors come from the HTTP library, httpx or httpx2, as the client's version has it.
        name = type(error).__name__
        if isinstance(error, OSError | EndOfStream) or type(error).__module__.partition(".")[0] in ("httpx", "httpx2"):
            return ModelRequestError(f"the connection to {server} broke before the answer's end ({name}); try again")
        return None


def _place(base_url: str) -> str:
    """Give host and port, without the user and password that an address may hold."""
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("base_url is no address such as 'http://localhost:11434/v1'")
    return parts.hostname + (f":{parts.port}" if parts.port else "")


def _codes(error: APIError) -> list[str]:
    """Give the server's short codes. Its message is not among them: it may repeat what was sent."""
    said = (error.code, error.type, error.param)
    return [each for each in dict.fromkeys(said) if isinstance(each, str) and re.fullmatch(r"[\w.\[\]-]{1,64}", each)]


def _retry_after(headers: Mapping[str, str]) -> float | None:
    milliseconds, wait = headers.get("retry-after-ms", ""), headers.get("retry-after", "")
    try:
        if milliseconds:
            return float(milliseconds) / 1_000
        return float(wait) if wait else None
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(wait).timestamp() - now() / 1_000)
    except ValueError:
        return None


def _refuses(error: ModelRequestError, part: str) -> bool:
    """Say whether the server does not know that part of a request."""
    return error.status in (400, 404, 415, 422, 501) and re.search(part, f"{error} {error.detail}".lower()) is not None
