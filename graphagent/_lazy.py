"""Names of a module that are imported when they are first asked for, and names that have moved."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

_NONE: Mapping[str, Any] = MappingProxyType({})


def lazy(
    module: str, names: Mapping[str, Iterable[str]] = _NONE, *, moved: Mapping[str, str] = _NONE
) -> Callable[[str], object]:
    """Return the `__getattr__` of a module (PEP 562).

    Args:
        module: The module, which is `__name__`.
        names: What the module exports without having imported it, by the modules that define it. Under the module itself: names of
            its submodules, which `import package` alone is to make available.
        moved: Old names, which still work but warn, and the full path of each today, such as `graphagent.codec.encode`. If that
            path is private, the warning says that the name is not for users, and does not name the path.
    """
    homes = {name: home for home, several in names.items() for name in several}
    here = sys.modules[module]

    def find(name: str) -> object:
        if name in homes:
            home = homes[name]
            found = import_module(f"{home}.{name}") if home == module else getattr(import_module(home), name)
            setattr(here, name, found)  # so that the next access does not come here
            return found
        if name not in moved:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        place, _, now = moved[name].rpartition(".")
        is_private = any(part.startswith("_") for part in moved[name].split("."))
        advice = "it is internal, and nothing replaces it" if is_private else f"use {moved[name]}"
        # 2: the frame that asks. In `from … import name` that is the import machinery, which warnings skips.
        warnings.warn(f"{module}.{name} is deprecated: {advice}", DeprecationWarning, stacklevel=2)
        return getattr(import_module(place), now)

    def listed() -> list[str]:
        return sorted({*vars(here), *homes})

    here.__dict__["__dir__"] = listed  # for completion in notebooks
    return find
