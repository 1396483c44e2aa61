"""Embedders over the OpenAI protocol: OpenAI itself, and every server that has `/embeddings` (`base_url=`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, cast

from graphagent._article import counted
from graphagent._openai_http import Server
from graphagent.embed._texts import check_texts
from graphagent.errors import EmbedderError

_ADVICE = {
    400: "the request is invalid for this server; an empty text, one that is too long or too many at once (batch=) may be why",
    413: "the request is too large; give a smaller batch=",
    422: "the request is invalid for this server; a text that is too long or too many at once (batch=) may be why",
}
_NEUTRAL = ("user", "encoding_format")
"""Parameters on which vectors do not depend."""


class OpenAIEmbedder:
    """A model for embeddings over the OpenAI protocol. The texts are sent to its server.

    One object serves event loops of asyncio and trio alike. The HTTP client is made at the first request and closed with its
    event loop; `async with`, `aclose()` or the end of `Notes` closes it earlier. Nothing that is sent is logged here; the
    `openai` client itself logs requests if its logger is set to DEBUG.
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
            model: as the server calls it, such as `text-embedding-3-small`.
            base_url: of the server, such as `http://localhost:11434/v1`. Without it, OPENAI_BASE_URL or OpenAI's own.
            api_key: without it OPENAI_API_KEY, but never for a `base_url` that is given here: such a server gets only a
                key that was meant for it.
            dimensions: how many numbers a vector is to have, of models that leave the choice.
            batch: how many texts go into one request at most.
            timeout: seconds to wait for each piece of an answer; 10 minutes without it.
            max_retries: how often a request is repeated that may succeed later (429, 5xx, lost connections), after 0.5 seconds, 1, 2 …, or as
                long as the server's Retry-After says; after one of more than 60 seconds it is not repeated.
            headers: sent along with every request.
            query: Parameters added to the address of every request.
            parameters: sent along in the body of every request, such as `input_type="document"`. They belong to the name, since
                vectors that were made with others cannot be compared; only `user` and `encoding_format` do not.

        Raises:
            ValueError: `base_url` is no address, or a number is too small.
        """
        if batch < 1 or (dimensions is not None and dimensions < 1):
            raise ValueError("batch and dimensions are numbers of 1 or more")
        chosen = [f"{name}={value}" for name, value in sorted(parameters.items()) if name not in _NEUTRAL]
        self.name = "/".join([model, *([] if dimensions is None else [str(dimensions)]), *chosen])
        """The model, with its dimensions and parameters where they were chosen: `m/100/input_type=document`."""
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

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self._server}>"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the server's vector for each text.

        Raises:
            EmbedderError: the server refused, answered with something other than the protocol, or cannot be reached. It holds
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
        """Close the connections of this event loop as soon as pending requests are answered. A later request opens new ones."""
        await self._server.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()

    async def _ask(self, texts: list[str]) -> list[list[float]]:
        # Not the client's own method, which asks for base64: many servers do not have that.
        answer = await self._server.post("/embeddings", self._body | {"input": texts})
        vectors = _vectors(answer)
        if vectors is None:
            raise EmbedderError(
                f"{self._server} answered with something else than vectors; check base_url (most end in /v1), and that the "
                f"model is one for embeddings"
            )
        if len(vectors) != len(texts):
            raise EmbedderError(
                f"{self._server} answered with {counted(len(vectors), 'vector')} for {counted(len(texts), 'text')}"
            )
        found = next((len(each) for each in vectors if len(each) != (self._dimensions or len(each))), None)
        if found is not None:
            raise EmbedderError(
                f"{self._server} answered with vectors of {counted(found, 'number')}, and dimensions={self._dimensions} were asked for: the "
                f"model does not leave the choice; leave dimensions= out"
            )
        return vectors


def _vectors(answer: object) -> list[list[float]] | None:
    """Return the vectors of a response in the order of the texts, or None if it does not follow the protocol."""
    try:
        data = cast("list[dict[str, Any]]", cast("dict[str, Any]", answer)["data"])
        # The order is in the numbers, as the protocol has it; a server that gives none keeps it.
        data = sorted(data, key=lambda each: cast(int, each.get("index") or 0))
        vectors: list[Any] = [each["embedding"] for each in data]
    except (KeyError, TypeError, AttributeError):
        return None
    return vectors if all(isinstance(each, list) for each in vectors) else None


def _error(text: str, **_: object) -> EmbedderError:
    # What the server said is left out: it may repeat a text or the key.
    return EmbedderError(text)
