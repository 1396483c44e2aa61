"""Rerankers over HTTP: every server that has `/rerank` in the form of Jina and Cohere, or of text-embeddings-inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, cast

from graphagent._article import counted
from graphagent._openai_http import Server, address_of_environment
from graphagent.errors import RerankerError
from graphagent.rerank._scores import check_scores

_ADVICE = {
    400: "the request is invalid for this server; a text that is too long, or too many at once (batch=), may be why",
    404: "check the model's name and base_url, to which /rerank is added",
    413: "the request is too large; give a smaller batch=, or have long texts cut off if the server offers that (truncate=True)",
    422: 'the request is invalid for this server; too many texts at once (batch=), or another name for them (field="texts"), may '
    "be why",
}


class OpenAIReranker:
    """A model for reranking on a server that has `/rerank` besides the OpenAI protocol. The question and the texts are sent to it.

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
            model: As the server names it, such as `BAAI/bge-reranker-v2-m3`.
            base_url: The address to which `/rerank` is added, such as `http://localhost:8000/v1`. Without it, OPENAI_BASE_URL;
                OpenAI itself has no reranker, and is never asked.
            api_key: Without it OPENAI_API_KEY, but never for a `base_url` that is passed here: such a server gets only a key that
                was meant for it.
            batch: How many texts go into one request at most. Models that compare the texts of a request with one another want all of
                them in one.
            field: The name of the texts in a request: `documents`, and for text-embeddings-inference `texts`.
            timeout: Seconds to wait for each piece of an answer; 10 minutes without it.
            max_retries: How often a request is repeated that may succeed later (429, 5xx, lost connections), after 0.5 seconds, 1, 2 …, or as
                long as the server's Retry-After says; after one of more than 60 seconds it is not repeated.
            headers: Sent with every request.
            query: Parameters added to the address of every request.
            parameters: Sent along in the body of every request, such as `return_documents=False`.

        Raises:
            ValueError: `base_url` is no address, or a number is too small.
        """
        if batch < 1:
            raise ValueError("batch is a number of 1 or more")
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
        """Return the server's score for each text, in their order, as it is: some are from 0 to 1, others have no bounds.

        Raises:
            RerankerError: there is no server to ask, or it refused, answered with something other than a finite number for each
                text, or cannot be reached. It holds neither the key nor a text.
            TypeError: `texts` is one text instead of several.
        """
        if isinstance(texts, str):
            raise TypeError("a reranker takes a list of texts; for one text write rerank(query, [text])")
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
                f"{self._server} answered with something else than scores; check base_url, and that the model is a reranker"
            )
        scores = dict(entries)
        if len(entries) != len(texts) or scores.keys() != set(range(len(texts))):
            there = len(scores.keys() & set(range(len(texts))))
            raise RerankerError(
                f"{self._server} answered with {counted(len(entries), 'score')}, for {there:,} of {counted(len(texts), 'text')}; it must return one "
                f"for each, so leave out what limits them, such as top_n"
            )
        return check_scores(str(self._server), [scores[place] for place in range(len(texts))], len(texts))


def _entries(answer: object) -> list[tuple[int, object]] | None:
    """Return the number of each text and its score, in the order of a response; None if it does not follow the protocol.

    The entries are in `results`; Voyage has them in `data`, and text-embeddings-inference has nothing but their list, and calls the
    score `score`. They are in the order of the scores, so one without the number of its text says nothing.
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
    # What the server said is left out: it may repeat a text or the key.
    return RerankerError(text)
