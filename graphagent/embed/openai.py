"""Embedders over the OpenAI protocol: OpenAI itself, and every server with `/embeddings` (`base_url=`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, cast

from graphagent._article import counted
from graphagent._openai_http import Server, address_without_login
from graphagent.embed._texts import check_texts
from graphagent.errors import EmbedderError

_ADVICE = {
    400: "the request is invalid for this server; possible reasons: a text is empty or too long, or there are too many at once (batch=)",
    413: "the request is too large; pass a smaller batch=",
    422: "the request is invalid for this server; possible reasons: a text is too long, or there are too many at once (batch=)",
}
_NEUTRAL = ("user", "encoding_format")
"""Parameters that do not affect the vectors."""


class OpenAIEmbedder:
    """An embedding model on a server that speaks the OpenAI protocol. The texts are sent to that server.

    One object works in several event loops, of asyncio and trio alike. The HTTP client is created at the first request and
    closed with its event loop; `async with`, `aclose()` or closing the `Notes` closes it earlier. Requests are not logged
    here; the `openai` client itself logs them if its logger is set to DEBUG.
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
        """Name a model and, if it is not OpenAI's, its server.

        Args:
            model: The name of the model on the server, such as `text-embedding-3-small`.
            base_url: The address of the server, such as `http://localhost:11434/v1`. By default OPENAI_BASE_URL, or OpenAI's own.
            api_key: By default OPENAI_API_KEY, but never together with a `base_url` passed here: such a server gets
                only a key meant for it.
            dimensions: The length of the vectors, for models that support a choice.
            batch: The largest number of texts in a request.
            timeout: Seconds to wait for each piece of a response; by default 10 minutes.
            max_retries: How often a request that may succeed later (429, 5xx, lost connections) is repeated, after 0.5 seconds, 1, 2 …, or as
                long as the server's Retry-After says; a request with a Retry-After of more than 60 seconds is not repeated.
            headers: Headers sent with every request.
            query: Parameters added to the address of every request.
            parameters: Parameters sent in the body of every request, such as `input_type="document"`. They are part of the
                name, since vectors made with other parameters cannot be compared; except `user` and `encoding_format`.

        Raises:
            ValueError: `base_url` is not an address, or a number is too small.
        """
        if batch < 1 or (dimensions is not None and dimensions < 1):
            raise ValueError("batch and dimensions must be at least 1")
        chosen = [f"{name}={value}" for name, value in sorted(parameters.items()) if name not in _NEUTRAL]
        self.name = "/".join([model, *([] if dimensions is None else [str(dimensions)]), *chosen])
        """The model, with its dimensions and parameters if given: `m/100/input_type=document`."""
        self.model = model
        """The name by which the server knows the model."""
        self._base_url = base_url
        self._dimensions = dimensions
        self._body = parameters | {"model": model} | ({} if dimensions is None else {"dimensions": dimensions})
        self._batch = batch
        self._server = Server(
            f"embedder {self.name!r}",
            error=_error,
            base_url=base_url,
            api_key=api_key,
            timeout=timeout,
            max_retries=max_retries,
            headers=headers,
            query=query,
            advice=_ADVICE,
        )

    @property
    def base_url(self) -> str:
        """The address of its server, without user, password and query."""
        return address_without_login(self._base_url)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._server}>"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the server's vector for each text.

        Raises:
            EmbedderError: The server refused the request, did not follow the protocol, or cannot be reached. The error
                contains neither the key nor a text.
            TypeError: `texts` is not a list of texts.
            ValueError: A text is not valid Unicode.
        """
        given = check_texts(texts)
        vectors: list[list[float]] = []
        for start in range(0, len(given), self._batch):
            vectors += await self._ask(given[start : start + self._batch])
        return vectors

    async def aclose(self) -> None:
        """Close the connections of this event loop as soon as pending requests are answered. A later request opens new ones."""
        await self._server.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()

    async def _ask(self, texts: list[str]) -> list[list[float]]:
        # Not the client's own method, which asks for base64: many servers do not support that.
        answer = await self._server.post("/embeddings", self._body | {"input": texts})
        vectors = _vectors(answer)
        if vectors is None:
            raise EmbedderError(
                f"{self._server} answered with something other than vectors; check base_url (most end in /v1), and that the "
                f"model is an embedding model"
            )
        if len(vectors) != len(texts):
            raise EmbedderError(
                f"{self._server} answered with {counted(len(vectors), 'vector')} for {counted(len(texts), 'text')}"
            )
        found = next((len(each) for each in vectors if len(each) != (self._dimensions or len(each))), None)
        if found is not None:
            raise EmbedderError(
                f"{self._server} answered with vectors of {counted(found, 'number')} instead of dimensions={self._dimensions}: the "
                f"model does not support a choice; leave out dimensions="
            )
        return vectors


def _vectors(answer: object) -> list[list[float]] | None:
    """Return the vectors of a response in the order of the texts, or None if it does not follow the protocol."""
    try:
        data = cast("list[dict[str, Any]]", cast("dict[str, Any]", answer)["data"])
        # By the protocol, the order is given by the index; servers without an index keep the order of the texts.
        data = sorted(data, key=lambda each: cast(int, each.get("index") or 0))
        vectors: list[Any] = [each["embedding"] for each in data]
    except (KeyError, TypeError, AttributeError):
        return None
    return vectors if all(isinstance(each, list) for each in vectors) else None


def _error(text: str, **_: object) -> EmbedderError:
    # The response of the server is left out, since it may repeat a text or the key.
    return EmbedderError(text)
