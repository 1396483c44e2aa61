"""Requests to embedders in a run, as a feature such as telemetry observes them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from graphagent.protocols import Embedder

Observer: TypeAlias = Callable[["Embedder", int], AbstractContextManager[Callable[[int], None]]]
"""Returns the block around a request for the vectors of a number of texts. The block yields a function to call with the length of a vector."""

observer: ContextVar[Observer | None] = ContextVar("graphagent_embedding", default=None)


def observed(embedder: Embedder, texts: int) -> AbstractContextManager[Callable[[int], None]]:
    """Return the block around a request for the vectors of a number of texts; without an observer, it does nothing."""
    around = observer.get()
    return nullcontext(_ignore) if around is None else around(embedder, texts)


def _ignore(dimensions: int) -> None:
    pass
