"""Items that come in chunks, one after another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Self

from graphagent._concurrency import turn

if TYPE_CHECKING:
    from graphagent.store._items import Item


class Scan:
    """An async iterator over chunks. It is no generator, so that it may be left in the middle without being closed."""

    def __init__(self, more: Callable[[], Awaitable[list[Item]]]) -> None:
        self._more = more
        self._chunk: list[Item] = []

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        if not self._chunk:
            self._chunk = (await self._more())[::-1]
        if not self._chunk:
            raise StopAsyncIteration
        await turn(len(self._chunk))
        return self._chunk.pop()
