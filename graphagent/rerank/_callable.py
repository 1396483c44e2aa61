"""A reranker made of a function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

from graphagent._functions import call, name_of

Function: TypeAlias = (
    Callable[[str, list[str]], Iterable[float]] | Callable[[str, list[str]], Awaitable[Iterable[float]]]
)


class CallableReranker:
    """Any function that returns a score for each text, as a reranker.

    An async function is awaited; any other function is called in a worker thread, so it may block, and several threads may call
    it at once.
    """

    def __init__(self, function: Function, *, name: str | None = None) -> None:
        """Wrap a function.

        Args:
            function: Takes a question and a list of texts, and returns a score for each text, in their order, the higher the better:
                a list or a numpy array.
            name: The name in error messages; by default the module and name of the function.

        Raises:
            TypeError: `function` is not callable.
        """
        if not callable(function):
            raise TypeError(
                f"CallableReranker takes a function of a question and a list of texts, not {type(function).__name__}"
            )
        self.name = name or name_of(function)
        """The name in error messages."""
        self._function = function

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.name}>"

    async def rerank(self, query: str, texts: Sequence[str]) -> Iterable[float]:
        """Call the function and return its result unchecked; exceptions pass through. Notes check the scores before they use them."""
        scores: Iterable[float] = await call(self._function, query, list(texts))
        return scores
