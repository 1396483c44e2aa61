"""Which of the optional methods of `protocols.Feature` a feature has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from graphagent.protocols import Feature

# A class that does not inherit from Feature may have an attribute `tools` or `shown` for reasons of its own, so it counts only if
# it has all methods of the group.
_PROMPT = ("tools", "shown", "before_request", "make_room")
_GROUPS = {**dict.fromkeys(_PROMPT, _PROMPT), "look_up": ("refers", "look_up"), "refers": ("refers", "look_up")}


def implementing(features: Mapping[type[Any], Feature], method: str) -> list[Feature]:
    """Return the features that define an optional method themselves, in the order of their installation."""
    return [feature for feature in features.values() if _implements(feature, method)]


def _implements(feature: Any, method: str) -> bool:
    kind = cast("type[object]", type(feature))
    if Feature in kind.__mro__:
        return getattr(kind, method) is not getattr(Feature, method)
    return all(hasattr(feature, name) for name in _GROUPS.get(method, (method,)))
