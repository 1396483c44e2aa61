"""The partial value of a JSON answer that is still being streamed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from graphagent.llm._json_text import read_answer

if TYPE_CHECKING:
    from graphagent.llm._output import OutputFormat

_NOTHING: Any = object()
_NUMBER = re.compile(r"-?[0-9][-+0-9.eE]*\Z")
"""A number at the end, which may go on: of 1871 the value so far is not 18."""
_SHARE = 32
"""The text is read again when it has grown by this part of it, so that all of the reading together takes linear time."""


class PartialOutput:
    """Collects the pieces of an answer and reads them as incomplete JSON."""

    __slots__ = ("_last", "_length", "_next", "_pieces", "_wrapped")

    def __init__(self, output: OutputFormat[Any]) -> None:
        self._wrapped = output.wrapped
        self._pieces: list[str] = []
        self._length = self._next = 0
        self._last: Any = _NOTHING

    def add(self, piece: str) -> tuple[Any] | None:
        """Add a piece, and return the value so far, if it is another one; None if not, or if there is too little new text."""
        self._pieces.append(piece)
        self._length += len(piece)
        if self._length < self._next:
            return None
        self._next = self._length + max(1, self._length // _SHARE)
        text = "".join(self._pieces)
        self._pieces = [text]
        return self._changed(_NUMBER.sub("", text))

    def end(self, text: str) -> tuple[Any] | None:
        """Return the value of the whole answer, if it is another one than the last value."""
        return self._changed(text)

    def _changed(self, text: str) -> tuple[Any] | None:
        value = self._read(text)
        if value is _NOTHING or value == self._last:
            return None
        self._last = value
        return (value,)

    def _read(self, text: str) -> Any:
        thought = text.rfind("</think>")
        if thought < 0 and text.lstrip().startswith("<think>"):
            return _NOTHING
        # Prose and fences may come before the JSON, which is an object, since schemas of answers are.
        start = text.find("{", max(thought, 0))
        if start < 0:
            return _NOTHING
        try:
            value: object = read_answer(text[start:], allow_partial="trailing-strings")
        except ValueError:
            return _NOTHING
        return cast("dict[str, Any]", value).get("value", _NOTHING) if self._wrapped else value
