"""Which of the optional methods of `protocols.Feature` a feature has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from graphagent.protocols import Feature

# A class that does not inherit from Feature may have an attribute `tools` or `shown` for reasons of its own, so it counts only if
# it has all methods of the group.
_PROMPT = ("tools", "shown", "before_request", "make_room")
_GROUPS = {**dict.fromkeys(_PROMPT, _PROMPT), "look_up": ("refers", "look_up"), "refers": ("refers", "look_up")}


def misspelt(feature: Any) -> tuple[str, str] | None:
    """Return a method of a feature that looks like one of `Feature` and would never be called, and the one that it looks like."""
    from difflib import get_close_matches

    names = [name for name in vars(Feature) if not name.startswith("_")]
    kind = cast("type[object]", type(feature))
    own = [name for each in kind.__mro__ if each not in (Feature, object) for name in vars(each)]
    for name in own:
        if name.startswith("_") or name in names or not callable(getattr(kind, name, None)):
            continue
        near = get_close_matches(name, [each for each in names if each not in own], 1, 0.85)
        if near or name.startswith("around_"):
            return name, near[0] if near else "around_model, around_tool or around_node"
    return None


def implementing(features: Mapping[type[Any], Feature], method: str) -> list[Feature]:
    """Return the features that define an optional method themselves, in the order of their installation."""
    return [feature for feature in features.values() if _implements(feature, method)]


def _implements(feature: Any, method: str) -> bool:
    kind = cast("type[object]", type(feature))
    if Feature in kind.__mro__:
        return getattr(kind, method) is not getattr(Feature, method)
    return all(hasattr(feature, name) for name in _GROUPS.get(method, (method,)))
