"""Embedders behind the OpenAI protocol: OpenAI itself, and every server that has `/embeddings` (`base_url=`)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from anyio.lowlevel import RunVar
from openai import (
    APIConnectionError,
    APIError,
    APIStatusError,
    APITimeoutError,
    AsyncOpenAI,
    DefaultAsyncHttpxClient,
    Omit,
    OpenAIError,
)

from graphagent.embed._texts import check_texts
from graphagent.errors import EmbedderError

if TYPE_CHECKING:
    from openai._types import RequestOptions

# An HTTP client belongs to the event loop that it was first used in. Both ends are weak: an embedder that is gone and a
# loop that is gone take their clients with them.
_clients: RunVar[WeakKeyDictionary[Any, AsyncOpenAI]] = RunVar("graphagent_embedding_clients")

_ADVICE = {
    400: "it does not take the request as it is; an empty text, one that is too long or too many at once (batch=) may be why",
    401: "check the key: give api_key=, or set OPENAI_API_KEY",
    403: "the key may not use this model",
    404: "check the model's name and base_url (most end in /v1)",
    413: "the request is too large; give a smaller batch=",
    422: "it does not take the request as it is; a text that is too long or too many at once (batch=) may be why",
    429: "too many requests, or nothing left of the quota",
}


class OpenAIEmbedder:
    """A model for embeddings behind the OpenAI protocol. The texts go to that server.

    One object serves event loops of asyncio and trio alike. The HTTP client is made at the first request; closing it, with
    `async with` or `aclose()`, frees its connections early and is not needed otherwise. Nothing that is sent is logged here;
    the `openai` client itself logs requests if its logger is set to DEBUG.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        dimensions: int | None = None,
        batch: int = 96,
        timeout: float | None = None,
        max_retries: int = 2,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        **parameters: Any,
    ) -> None:
        """Name a model and, where it is not OpenAI's, its server.

        Args:
            model: as the server calls it, such as `text-embedding-3-small`.
            base_url: of the server, such as `http://localhost:11434/v1`. Without it, OPENAI_BASE_URL or OpenAI's own.
            api_key: without it OPENAI_API_KEY, but never for a `base_url` that is given here: such a server gets only a
                key that was meant for it.
            dimensions: how many numbers a vector is to have, of models that leave the choice.
            batch: how many texts go into one request at most.
            timeout: seconds for one attempt; 10 minutes without it.
            max_retries: how often the client tries again what may work the second time (429, 5xx, lost connections),
                waiting as long as the server's Retry-After says.
            headers: sent along with every request.
            query: put behind the address of every request.
            parameters: sent along in the body of every request, such as `input_type="document"`.

        Raises:
            ValueError: `base_url` is no address, or a number is below 1.
        """
        if batch < 1 or (dimensions is not None and dimensions < 1):
            raise ValueError("batch and dimensions are numbers of 1 or more")
        self.name = model if dimensions is None else f"{model}/{dimensions}"
        """The model, with its dimensions where they were chosen."""
        self._server = f"embedder {self.name!r}" + (f" at {_place(base_url)}" if base_url else "")
        self._body = parameters | {"model": model} | ({} if dimensions is None else {"dimensions": dimensions})
        self._batch = batch
        self._base_url = base_url
        self._api_key = api_key
        self._settings: dict[str, Any] = {
            "max_retries": max_retries,
            "default_headers": dict(headers or {}),
            "default_query": dict(query or {}),
        }
        has_key = api_key is not None or base_url is None or "authorization" in map(str.lower, headers or {})
        self._options: RequestOptions = {} if has_key else {"headers": {"Authorization": Omit()}}
        if timeout is not None:
            self._settings["timeout"] = timeout

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._server}>"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Give the server's vector for each text.

        Raises:
            EmbedderError: the server refused, answered with something else than the protocol, or cannot be reached. It holds
                neither the key nor a text.
            TypeError: `texts` are no texts.
            ValueError: a text is no Unicode text.
        """
        given = check_texts(texts)
        vectors: list[list[float]] = []
        for start in range(0, len(given), self._batch):
            vectors += await self._ask(given[start : start + self._batch])
        return vectors

    async def aclose(self) -> None:
        """Close this event loop's connections. The embedder can be used again afterwards."""
        clients = _clients.get(None)
        client = None if clients is None else clients.pop(self, None)
        if client is not None:
            await client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()

    async def _ask(self, texts: list[str]) -> list[list[float]]:
        client = self._client()
        try:
            # The client's own method asks for base64, which many servers do not have.
            answer = await client.post(
                "/embeddings", body=self._body | {"input": texts}, cast_to=object, options=self._options
            )
        except Exception as error:
            failure = self._failure(error)
            if failure is None:
                raise
            raise failure from None
        try:
            data = cast("list[dict[str, Any]]", cast("dict[str, Any]", answer)["data"])
            # The order is in the numbers, as the protocol has it; a server that gives none keeps it.
            data = sorted(data, key=lambda each: cast(int, each.get("index", 0)))
            vectors = [cast("list[float]", each["embedding"]) for each in data]
        except (KeyError, TypeError, AttributeError):
            raise EmbedderError(
                f"{self._server} answered with something else than vectors; check base_url (most end in /v1), and that the "
                f"model is one for embeddings"
            ) from None
        if len(vectors) != len(texts):
            raise EmbedderError(f"{self._server} answered with {len(vectors):,} vectors for {len(texts):,} texts")
        return vectors

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
        key = self._api_key
        if key is None and self._base_url is not None:
            key = "none"  # the client refuses to be made without; requests leave it out
        try:
            # The client that openai makes for itself starts a task when it is collected, in whatever loop runs by then.
            return AsyncOpenAI(
                api_key=key, base_url=self._base_url, http_client=DefaultAsyncHttpxClient(), **self._settings
            )
        except OpenAIError:
            raise EmbedderError(
                f"{self._server} needs a key: set OPENAI_API_KEY, give api_key=, or base_url= for a server without keys"
            ) from None

    def _failure(self, error: Exception) -> EmbedderError | None:
        """Say what went wrong without repeating what was sent; None for what is no failure of the server."""
        server = self._server
        if isinstance(error, APIStatusError):
            said = (error.code, error.type, error.param)  # never its message, which may repeat what was sent
            codes = [each for each in said if isinstance(each, str) and re.fullmatch(r"[\w.\[\]-]{1,64}", each)]
            advice = _ADVICE.get(error.status_code, "the trouble is on its side" if error.status_code >= 500 else "")
            return EmbedderError(
                f"{server} answered {error.status_code}"
                + (f" ({', '.join(codes)})" if codes else "")
                + (f": {advice}" if advice else ""),
            )
        if isinstance(error, APITimeoutError):
            return EmbedderError(f"{server} did not answer in time; try again, or give it a larger timeout=")
        if isinstance(error, APIConnectionError):
            cause = type(error.__cause__ or error).__name__
            return EmbedderError(
                f"{server} cannot be reached ({cause}); check base_url, and that the server is running"
            )
        if isinstance(error, APIError | json.JSONDecodeError | RecursionError):
            return EmbedderError(f"{server} answered with something else than JSON; check base_url (most end in /v1)")
        if isinstance(error, UnicodeEncodeError):
            return EmbedderError(f"the key or a header for {server} holds a character that HTTP has no place for")
        if isinstance(error, OSError) or type(error).__module__.partition(".")[0] in ("httpx", "httpx2"):
            return EmbedderError(
                f"the connection to {server} broke before the answer's end ({type(error).__name__}); try again"
            )
        return None


def _place(base_url: str) -> str:
    """Give host and port, without the user and password that an address may hold."""
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("base_url is no address such as 'http://localhost:11434/v1'")
    return parts.hostname + (f":{parts.port}" if parts.port else "")
