"""Rerankers over HTTP: every server whose `/rerank` has the form of Jina and Cohere, or of text-embeddings-inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, cast

from graphagent._article import counted
from graphagent._openai_http import Server, address_of_environment
from graphagent.errors import RerankerError
from graphagent.rerank._scores import check_scores

_ADVICE = {
    400: "the request is invalid for this server; possible reasons: a text is too long, or there are too many at once (batch=)",
    404: "check the name of the model, and base_url, to which /rerank is added",
    413: "the request is too large; pass a smaller batch=, or truncate=True if the server can cut off long texts",
    422: 'the request is invalid for this server; too many texts at once (batch=), or another name for them (field="texts"), may '
    "be why",
}


class OpenAIReranker:
    """A reranking model on a server that has `/rerank` besides the OpenAI protocol. The question and the texts are sent to that server.

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
        batch: int = 1_000,
        field: str = "documents",
        timeout: float | None = None,
        max_retries: int = 2,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        **parameters: Any,
    ) -> None:
        """Name a model and its server.

        Args:
            model: The name of the model on the server, such as `BAAI/bge-reranker-v2-m3`.
            base_url: The address to which `/rerank` is added, such as `http://localhost:8000/v1`. By default OPENAI_BASE_URL.
                OpenAI itself has no reranker and is never asked.
            api_key: By default OPENAI_API_KEY, but never together with a `base_url` passed here: such a server gets only a key
                meant for it.
            batch: The largest number of texts in a request. Models that compare the texts of a request with one another need all of
                them in one request.
            field: The name of the texts in a request: `documents`, or `texts` for text-embeddings-inference.
            timeout: Seconds to wait for each piece of a response; by default 10 minutes.
            max_retries: How often a request that may succeed later (429, 5xx, lost connections) is repeated, after 0.5 seconds, 1, 2 …, or as
                long as the server's Retry-After says; a request with a Retry-After of more than 60 seconds is not repeated.
            headers: Headers sent with every request.
            query: Parameters added to the address of every request.
            parameters: Parameters sent in the body of every request, such as `return_documents=False`.

        Raises:
            ValueError: `base_url` is not an address, or a number is too small.
        """
        if batch < 1:
            raise ValueError("batch must be at least 1")
        self.name = model
        """The model."""
        self._body = parameters | {"model": model}
        self._batch = batch
        self._field = field
        self._is_named = bool(base_url)
        self._server = Server(
            f"reranker {model!r}",
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

    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the server's score for each text, in the order of the texts.

        The scores are those of the server: some return numbers from 0 to 1, others any number.

        Raises:
            RerankerError: No server is configured, or it refused the request, did not answer with one finite number for each
                text, or cannot be reached. The error contains neither the key nor a text.
            TypeError: `texts` is a single text instead of a list.
        """
        if isinstance(texts, str):
            raise TypeError("rerank() takes a list of texts; for one text write rerank(query, [text])")
        if not self._is_named and not address_of_environment():
            raise RerankerError(
                f"{self._server} needs base_url=, such as 'http://localhost:8000/v1', or OPENAI_BASE_URL; OpenAI itself has no "
                f"reranker"
            )
        given = list(texts)
        scores: list[float] = []
        for start in range(0, len(given), self._batch):
            scores += await self._ask(query, given[start : start + self._batch])
        return scores

    async def aclose(self) -> None:
        """Close the connections of this event loop as soon as pending requests are answered. A later request opens new ones."""
        await self._server.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()

    async def _ask(self, query: str, texts: list[str]) -> list[float]:
        answer = await self._server.post("/rerank", self._body | {"query": query, self._field: texts})
        entries = _entries(answer)
        if entries is None:
            raise RerankerError(
                f"{self._server} answered with something other than scores; check base_url, and that the model is a reranker"
            )
        scores = dict(entries)
        if len(entries) != len(texts) or scores.keys() != set(range(len(texts))):
            there = len(scores.keys() & set(range(len(texts))))
            raise RerankerError(
                f"{self._server} answered with {counted(len(entries), 'score')}, for {there:,} of {counted(len(texts), 'text')}; it must return one "
                f"for each, so leave out parameters that limit them, such as top_n"
            )
        return check_scores(str(self._server), [scores[place] for place in range(len(texts))], len(texts))


def _entries(answer: object) -> list[tuple[int, object]] | None:
    """Return the index of each text with its score, in the order of the response, or None if the response does not follow the protocol.

    The entries are in `results`. Voyage has them in `data`, and text-embeddings-inference answers with the list alone and calls the
    score `score`. Entries are ordered by score, so an entry without the index of its text is useless.
    """
    try:
        data = cast("Any", answer)
        if isinstance(answer, dict):
            data = data["results" if "results" in answer else "data"]
        entries: list[tuple[object, object]] = [
            (each["index"], each["relevance_score" if "relevance_score" in each else "score"]) for each in data
        ]
    except (KeyError, TypeError):
        return None
    return cast("list[tuple[int, object]]", entries) if all(type(index) is int for index, _ in entries) else None


def _error(text: str, **_: object) -> RerankerError:
    # The response of the server is left out, since it may repeat a text or the key.
    return RerankerError(text)
