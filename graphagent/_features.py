"""The features that hold in a place, and which of the optional methods of `protocols.Feature` they have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, final

from graphagent.protocols import Feature

# A class that does not inherit from Feature may have an attribute `tools` or `shown` for reasons of its own, so it counts only if
# it has all methods of the group.
_PROMPT = ("tools", "shown", "before_request", "make_room")
_GROUPS = {**dict.fromkeys(_PROMPT, _PROMPT), "look_up": ("refers", "look_up"), "refers": ("refers", "look_up")}


@final
class Features(dict[type[Any], Feature]):
    """The features that hold in a place, by their types, in the order of their installation. It never changes."""

    __slots__ = ("_having",)

    def __init__(self, features: Mapping[type[Any], Feature] | None = None) -> None:
        super().__init__(features or {})
        self._having: dict[str, tuple[Feature, ...]] = {}

    def having(self, method: str) -> tuple[Feature, ...]:
        """Return the features that define an optional method themselves. They are looked for once."""
        found = self._having.get(method)
        if found is None:
            found = self._having[method] = tuple(each for each in self.values() if _implements(each, method))
        return found


def _implements(feature: Any, method: str) -> bool:
    kind = cast("type[object]", type(feature))
    if Feature in kind.__mro__:
        return getattr(kind, method) is not getattr(Feature, method)
    return all(hasattr(feature, name) for name in _GROUPS.get(method, (method,)))
