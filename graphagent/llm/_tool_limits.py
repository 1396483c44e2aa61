"""Limits of tools: concurrent calls, and the part of a result that the model sees."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import RunVar

if TYPE_CHECKING:
    from graphagent.llm._messages import ToolResult

SHORTEST = 400
"""The least number of characters of a result that the model sees: fewer would be little more than the note."""


class Slots:
    """Lets so many tasks of an event loop in at once; the others wait, in their order."""

    def __init__(self, name: str, number: int) -> None:
        self._number = number
        self._here: RunVar[anyio.Semaphore | None] = RunVar(name, None)

    @asynccontextmanager
    async def one(self) -> AsyncGenerator[None]:
        """Wait for a slot, and occupy it within the block."""
        slots = self._here.get()
        if slots is None:
            slots = anyio.Semaphore(self._number)
            self._here.set(slots)
        async with slots:
            yield


def capped(result: ToolResult, most: int | None) -> ToolResult:
    """Return a result of which the model sees at most so many characters; the whole text is its `full`."""
    if most is None or len(result.content) <= most:
        return result
    return replace(result, content=shortened(result.content, most), full=result.full or result.content)


def _left_out(left: int, _: int) -> str:
    return f"\n[… {left:,} characters are left out here …]\n"


def shortened(text: str, most: int, note: Callable[[int, int], str] = _left_out) -> str:
    """Return a text of at most `most` characters: a longer one as its head and its tail with a note between.

    `note` is called with the number of characters that are left out, and the position of the first of them.
    """
    if len(text) <= most:
        return text
    room = max(most - len(note(len(text), len(text))), 0)
    tail = room // 3
    head = room - tail
    return f"{text[:head]}{note(len(text) - room, head)}{text[len(text) - tail :]}"
