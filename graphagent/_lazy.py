"""Names of a module that are imported when they are first asked for, and names that have moved."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import MappingProxyType

_NONE: Mapping[str, str] = MappingProxyType({})


def lazy(
    module: str, room: str = "", names: Iterable[str] = (), *, moved: Mapping[str, str] = _NONE
) -> Callable[[str], object]:
    """Return the `__getattr__` of a module (PEP 562).

    Args:
        module: The module, which is `__name__`.
        room: The module that defines `names`, imported when one of them is first asked for.
        names: What the module exports without having imported it.
        moved: Old names, which still work but warn, and the full path of each today, such as `graphagent.codec.encode`. If that
            path is private, the warning says that the name is not for users, and does not name the path.
    """
    late = frozenset(names)

    def find(name: str) -> object:
        if name in late:
            found = getattr(import_module(room), name)
            setattr(sys.modules[module], name, found)  # so that the next access does not come here
            return found
        if name not in moved:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        place, _, now = moved[name].rpartition(".")
        is_private = any(part.startswith("_") for part in moved[name].split("."))
        advice = "it is internal, and nothing replaces it" if is_private else f"use {moved[name]}"
        # 2: the frame that asks. In `from … import name` that is the import machinery, which warnings skips.
        warnings.warn(f"{module}.{name} is deprecated: {advice}", DeprecationWarning, stacklevel=2)
        return getattr(import_module(place), now)

    return find
