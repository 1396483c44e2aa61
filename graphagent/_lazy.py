"""Names of a module that are imported when they are first asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import ModuleType


def lazy(module: str, names: Mapping[str, Iterable[str]]) -> Callable[[str], object]:
    """Return the `__getattr__` of a module (PEP 562), and set its `__all__` to all that it exports.

    Args:
        module: The module, which is `__name__`.
        names: What the module exports without having imported it, by the modules that define it. Under the module itself: names of
            its submodules, which `import package` alone is to make available.
    """
    homes = {name: home for home, several in names.items() for name in several}
    here = sys.modules[module]
    own = {name for name, value in vars(here).items() if not name.startswith("_") and not isinstance(value, ModuleType)}
    here.__dict__["__all__"] = sorted({*homes, *own} - {"TYPE_CHECKING", "annotations"})

    def find(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home = homes[name]
        found = import_module(f"{home}.{name}") if home == module else getattr(import_module(home), name)
        setattr(here, name, found)  # so that the next access does not come here
        return found

    def listed() -> list[str]:
        return sorted({*vars(here), *homes})

    here.__dict__["__dir__"] = listed  # for completion in notebooks
    return find
