"""What a wrapper adds to a request to a model: CPU time, side by side with the bare model in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from benchmarks.measure import QUICK, Rounds, Work, alternate, figure, micro, table, times
from graphagent import tool
from graphagent.llm import (
    CachedModel,
    FallbackModel,
    LimitedModel,
    Message,
    ModelRequest,
    ModelResponse,
    PricedModel,
    Prices,
    RetryModel,
    Usage,
)
from graphagent.store import MemoryStore

if TYPE_CHECKING:
    from graphagent.protocols import Model

REQUESTS = 100
ANSWER = ModelResponse(Message.assistant("All is well."), Usage(120, 5, 100), model="gpt-5-mini")


@tool
async def look(room: int) -> str:
    """Look into a room."""
    return "the window is shut, the lamp is off"


REQUEST = ModelRequest(
    (Message.system("You are a guard."), Message.user("Look into every room.")), (look,), parameters={"temperature": 0}
)


class Answering:
    """A model that answers at once."""

    name = "gpt-5-mini"

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        return ANSWER


def report(*, quick: bool) -> str:
    """Measure all wrappers. Return the table."""
    return asyncio.run(_report(QUICK if quick else Rounds()))


async def _report(rounds: Rounds) -> str:
    bare = Answering()
    wrapped: dict[str, Model] = {
        "RetryModel": RetryModel(bare, 3),
        "FallbackModel": FallbackModel(bare, bare),
        "LimitedModel, concurrency": LimitedModel(bare, concurrency=8),
        "LimitedModel, requests and tokens per minute": LimitedModel(bare, per_minute=10**9, tokens_per_minute=10**12),
        "PricedModel, own prices": PricedModel(bare, Prices("0.25", 2, "0.025")),
        "PricedModel, published prices": PricedModel(bare),
        "CachedModel, an answer from memory": CachedModel(bare, MemoryStore()),
    }
    works: dict[str, Work] = {name: _asking(model) for name, model in wrapped.items()}
    took = await alternate({"bare": _asking(bare), **works}, rounds)
    rows: list[list[str]] = []
    for name in works:
        found = figure(took[name], took["bare"], units=REQUESTS)
        added = figure([mine - theirs for mine, theirs in zip(took[name], took["bare"], strict=True)], units=REQUESTS)
        rows.append([name, micro(found.bare), micro(found.seconds), micro(added.seconds), times(found.ratio)])
    return table(["a request through", "bare model", "with it", "it adds", "ratio"], rows)


def _asking(model: Model) -> Callable[[], Any]:
    async def ask() -> None:
        for _ in range(REQUESTS):
            await model.respond(REQUEST)

    return ask


if __name__ == "__main__":
    print(report(quick=False))
