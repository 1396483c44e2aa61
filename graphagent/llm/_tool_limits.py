"""The part of a tool's result that the model sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphagent.llm._messages import ToolResult

SHORTEST = 400
"""The least number of characters of a result that the model sees: fewer would be little more than the note."""


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
