"""Items that are read page by page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Self

from anyio.lowlevel import checkpoint

if TYPE_CHECKING:
    from graphagent.store._items import Item

_TURN = 16
"""After how many items other tasks have their turn, for whoever reads them does something with each."""


class Scan:
    """An async iterator over the items of pages.

    It is not an async generator, so that it may be abandoned in the middle without being closed.

    Args:
        more: Returns the next page, which is empty only at the end.
    """

    def __init__(self, more: Callable[[], Awaitable[list[Item]]]) -> None:
        self._more = more
        self._left: list[Item] = []
        """The items of the page that are still to come, the next one last, where a list is cheap to shorten."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        left = self._left
        if not left:
            self._left = left = (await self._more())[::-1]
            if not left:
                raise StopAsyncIteration
        if len(left) % _TURN == 0:
            await checkpoint()
        return left.pop()

    async def rest(self) -> list[Item]:
        """Return all items that were not read yet."""
        found, self._left = self._left[::-1], []
        while page := await self._more():
            found += page
            await checkpoint()  # a store in memory waits for nothing
        return found
