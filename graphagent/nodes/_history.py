"""The node that compresses the transcript so far."""

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
    """Make a tap that replaces the transcript so far with something brief in all later requests to a model.

    This covers everything up to the last model turn; before the first turn, all messages so far. All steps stay in the
    transcript, and the rules and the task are still sent. The requests for the compression count in tokens and money, not in
    turns. If the compression fails, nothing is changed, and the event CompressionFailed says why.

    Args:
        compression: How: `WholeHistory(keep=…)`, `ChunkedHistory(turns=…)`, `FoundFacts(concept, …)`, `StoredFacts(concept, …)`, or a
            object with the same methods. With `keep`, so many model turns at the end stay as they are.
        name: The name of the tap.
    """
    if isinstance(compression, type) or not callable(getattr(compression, "compress", None)):
        raise TypeError(f"{name!r} takes a way to compress, such as WholeHistory(keep=3), not {compression!r}")
    needs = (AgentMemory,) if isinstance(compression, StoredFacts) else ()
    asks = isinstance(compression, WholeHistory | ChunkedHistory | FoundFacts)
    return Tap(_CompressHistory(compression), name=name, needs=needs, asks_model=asks)
