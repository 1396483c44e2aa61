"""The node that compresses what was said so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graphagent.errors import OutputError
from graphagent.events import CompressionFailed
from graphagent.graph import Tap
from graphagent.memory import (
    AgentMemory,
    ChunkedHistory,
    FoundFacts,
    Scope,
    ScopeKind,
    StoredFacts,
    Subject,
    WholeHistory,
    compress,
)

if TYPE_CHECKING:
    from graphagent.protocols import Compression
    from graphagent.run import Context


_ALL = WholeHistory()


@dataclass(frozen=True, slots=True)
class _CompressHistory:
    compression: Compression

    @property
    def subjects(self) -> tuple[Subject, ...] | None:
        return self.compression.subjects if isinstance(self.compression, StoredFacts) else None

    @property
    def scopes(self) -> tuple[ScopeKind | Scope, ...] | None:
        return self.compression.scopes if isinstance(self.compression, StoredFacts) else None

    async def __call__(self, ctx: Context, _: Any) -> None:
        try:
            await compress(ctx, self.compression)
        except OutputError as error:
            ctx.emit(CompressionFailed(ctx.run_id, ctx.node, str(error)))


def compress_history(compression: Compression = _ALL, *, name: str = "compress_history") -> Tap:
    """Make a tap that puts something brief in the place of what was said so far, where a model is asked from now on.

    That is everything up to the last model turn; before the first one, all messages so far. All steps stay in the transcript. The
    rules and the task are sent all the same. What the model is asked for it counts in tokens
    and money, not in turns. Where nothing comes of it, all stays as it was, and an event says why: CompressionFailed.

    Args:
        compression: How: `WholeHistory(keep=…)`, `ChunkedHistory(turns=…)`, `FoundFacts(concept, …)`, `StoredFacts(concept, …)`, or a
            object with the same methods. With `keep`, so many model turns at the end stay as they are.
        name: How the tap is called.
    """
    if isinstance(compression, type) or not callable(getattr(compression, "compress", None)):
        raise TypeError(f"{name!r} takes a way to compress, such as WholeHistory(keep=3), not {compression!r}")
    needs = (AgentMemory,) if isinstance(compression, StoredFacts) else ()
    asks = isinstance(compression, WholeHistory | ChunkedHistory | FoundFacts)
    return Tap(_CompressHistory(compression), name=name, needs=needs, asks_model=asks)
