"""References to values that a journal has: they are written in the place of the values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import orjson

from graphagent.codec._internal import encode
from graphagent.errors import NodeFailedError, SerializationError
from graphagent.llm import Image, Message, ModelResponse, ToolCall, ToolCalls, ToolResult, ToolResults, Usage

if TYPE_CHECKING:
    from graphagent.codec._internal import Blobs, Json

_IMMUTABLE = frozenset(
    (str, bytes, Image, Message, ModelResponse, ToolCall, ToolCalls, ToolResult, ToolResults, Usage, NodeFailedError)
)
_SMALL = frozenset((type(None), bool, int, float))
"""Types whose values are written again: equal ones may be the same object."""


@final
class StoredRef:
    """A value, and where a journal has it."""

    __slots__ = ("_data", "kind", "place", "value")

    def __init__(self, value: object, place: Json, kind: Any = Any, data: Json = None) -> None:
        self.value = value
        self.place = place
        """The JSON that is written in the place of the value: `{"$at": […]}`."""
        self.kind = kind
        """The declared type of the value."""
        self._data = data
        """The value as it was written, if it may be changed in place; None if it is immutable."""

    @staticmethod
    def of(value: object, place: Json, blobs: Blobs, kind: Any = Any, *, data: Json = None) -> StoredRef | None:
        """Return a reference to a value, or None for one that is written again each time.

        `data` is the value as it was written, if that is known.
        """
        form = type(value)
        if form in _SMALL:
            return None
        if form in _IMMUTABLE or (form is tuple and all(type(each) in _IMMUTABLE for each in value)):  # type: ignore[attr-defined]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownArgumentType, reportUnknownVariableType]
            return StoredRef(value, place)
        if data is None:
            try:
                data = encode(value, blobs, kind)
            except SerializationError:  # a `.map` made it of a value that can be stored
                return StoredRef(value, place)
        return StoredRef(value, place, kind, data)

    def changed(self, blobs: Blobs) -> Json | None:
        """Return the value as it is written now, if it was changed in place since; None if it is unchanged.

        Raises:
            SerializationError: it contains something now that cannot be stored.
        """
        if self._data is None:
            return None
        data = encode(self.value, blobs, self.kind)
        # Compared as bytes, since 1 and True are equal as objects.
        return None if orjson.dumps(data) == orjson.dumps(self._data) else data
