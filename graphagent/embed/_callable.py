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

    An async function is awaited; any other is called in a worker thread, so it may block, and several threads may call it
    at once.
    """

    def __init__(self, function: Function, *, name: str | None = None) -> None:
        """Wrap a function.

        Args:
            function: takes a list of texts, returns a list of vectors (or a numpy array) in the same order.
            name: of its model, with the version: vectors of one name are compared with one another. Without it, the
                function's own name with its module; a lambda, or a function inside another one, has none that others cannot have.

        Raises:
            TypeError: `function` cannot be called.
            ValueError: it needs a name.
        """
        if not callable(function):
            raise TypeError(f"an embedder is made of a function of a list of texts, not of {type(function).__name__}")
        self.name = name or name_of(function)
        """What the vectors are stored under."""
        if not name and any(part in self.name for part in ("<lambda>", "<locals>")):
            raise ValueError(
                f"{self.name!r} may be the name of several functions, whose vectors must not be compared; say name= of the model "
                f"behind it, with its version, such as CallableEmbedder(function, name='my-model-1')"
            )
        self._function = function

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.name}>"

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return what the function returns, and raise what it raises. The result is checked by those who use `checked`.

        Raises:
            TypeError: `texts` are no texts.
        """
        given = check_texts(texts)
        if not given:
            return []
        vectors: Vectors = await call(self._function, given)
        return vectors
