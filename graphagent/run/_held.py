"""Values that a journal has already: they are referred to, and not written again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import orjson

from graphagent.codec._internal import encode
from graphagent.errors import NodeFailedError, SerializationError
from graphagent.llm import Image, Message, ModelResponse, ToolCall, ToolCalls, ToolResult, ToolResults, Usage

if TYPE_CHECKING:
    from graphagent.codec._internal import Blobs, Json

_FIXED = frozenset(
    (str, bytes, Image, Message, ModelResponse, ToolCall, ToolCalls, ToolResult, ToolResults, Usage, NodeFailedError)
)
"""Classes whose objects stay as they are."""
_SMALL = frozenset((type(None), bool, int, float))
"""Classes whose objects are written again, since nobody can tell one from another that is equal."""


@final
class Held:
    """A value, and where a journal has it."""

    __slots__ = ("_data", "kind", "place", "value")

    def __init__(self, value: object, place: Json, kind: Any = Any, data: Json = None) -> None:
        self.value = value
        self.place = place
        """What stands for it: `{"$at": […]}`."""
        self.kind = kind
        """Its declared type."""
        self._data = data
        """As it was written, where it may be changed in place; None where it stays as it is."""

    @staticmethod
    def of(value: object, place: Json, blobs: Blobs, kind: Any = Any, *, data: Json = None) -> Held | None:
        """Take a value for held; None for one that is written again each time. `data` is how it was written, if that is known."""
        form = type(value)
        if form in _SMALL:
            return None
        if form in _FIXED or (form is tuple and all(type(each) in _FIXED for each in value)):  # type: ignore[attr-defined]
            return Held(value, place)
        if data is None:
            try:
                data = encode(value, blobs, kind)
            except SerializationError:  # what a `.map` made of what can be kept
                return Held(value, place)
        return Held(value, place, kind, data)

    def changed(self, blobs: Blobs) -> Json | None:
        """Give the value as it is to be written now, if it was changed in place since; None: it is as it was.

        Raises:
            SerializationError: it holds something now that cannot be kept.
        """
        if self._data is None:
            return None
        data = encode(self.value, blobs, self.kind)
        # As bytes: 1 and True are equal as objects.
        return None if orjson.dumps(data) == orjson.dumps(self._data) else data
