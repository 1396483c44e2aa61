"""An embedder made of a function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

from graphagent._functions import call, name_of
from graphagent.embed._texts import check_texts

Vectors: TypeAlias = Iterable[Iterable[float]]
Function: TypeAlias = Callable[[list[str]], Vectors] | Callable[[list[str]], Awaitable[Vectors]]


class CallableEmbedder:
    """Any function that returns a vector for each text, as an embedder.

    An async function is awaited; any other function is called in a worker thread, so it may block, and several threads
    may call it at once.
    """

    def __init__(self, function: Function, *, name: str | None = None) -> None:
        """Wrap a function.

        Args:
            function: Takes a list of texts and returns a list of vectors (or a numpy array) in the same order.
            name: The name of the model, with its version. Only vectors stored under the same name are compared. By default the
                module and name of the function; lambdas and nested functions need an explicit name, since theirs is not unique.

        Raises:
            TypeError: `function` is not callable.
            ValueError: The function is a lambda or nested, and `name` is missing.
        """
        if not callable(function):
            raise TypeError(f"CallableEmbedder takes a function of a list of texts, not {type(function).__name__}")
        self.name = name or name_of(function)
        """The name under which the vectors are stored."""
        if not name and any(part in self.name for part in ("<lambda>", "<locals>")):
            raise ValueError(
                f"{self.name!r} is not a unique name, and vectors of different functions must not be compared; pass name=, the model "
                f"and its version, as in CallableEmbedder(function, name='my-model-1')"
            )
        self._function = function

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.name}>"

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Call the function and return its result unchecked; exceptions pass through. `checked` validates the vectors.

        Raises:
            TypeError: `texts` is not a list of texts.
        """
        given = check_texts(texts)
        if not given:
            return []
        vectors: Vectors = await call(self._function, given)
        return vectors
