"""Observing that vectors are made: in the context of a run, by a feature that reports it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from graphagent.protocols import Embedder

Observer: TypeAlias = Callable[["Embedder", int], AbstractContextManager[Callable[[int], None]]]
"""Returns a block around a request to an embedder for the vectors of so many texts. The block is told how many numbers each vector has."""

observer: ContextVar[Observer | None] = ContextVar("graphagent_embedding", default=None)


def observed(embedder: Embedder, texts: int) -> AbstractContextManager[Callable[[int], None]]:
    """Return the block in which the vectors of so many texts are made."""
    around = observer.get()
    return nullcontext(_ignore) if around is None else around(embedder, texts)


def _ignore(dimensions: int) -> None:
    pass
