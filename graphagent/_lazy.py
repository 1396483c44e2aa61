"""Names of a module that are imported at their first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from types import ModuleType


def lazy(module: str, names: Mapping[str, Iterable[str]]) -> Callable[[str], object]:
    """Return the `__getattr__` of a module (PEP 562), and set the module's `__all__` to everything that it exports.

    Args:
        module: The module, which is `__name__`.
        names: The names that the module exports without having imported them, by the modules that define them. Under the module
            itself: names of its submodules that `import package` alone makes available.
    """
    homes = {name: home for home, several in names.items() for name in several}
    here = sys.modules[module]
    own = {name for name, value in vars(here).items() if not name.startswith("_") and not isinstance(value, ModuleType)}
    here.__dict__["__all__"] = sorted({*homes, *own} - {"TYPE_CHECKING", "annotations"})

    def find(name: str) -> object:
        if name not in homes:
            raise _not_here(module, name)
        home = homes[name]
        found = import_module(f"{home}.{name}") if home == module else getattr(import_module(home), name)
        setattr(here, name, found)  # so that the next access does not call this function
        return found

    def listed() -> list[str]:
        return sorted({*vars(here), *homes})

    here.__dict__["__dir__"] = listed  # for completion in notebooks
    return find


def _not_here(module: str, name: str) -> AttributeError | ImportError:
    """Return the error for a name that a module does not have; for `from … import …` it says which import provides the name."""
    from importlib.util import find_spec

    # `from … import …` replaces an AttributeError by an error without its text. All other callers, such as `hasattr`, need an
    # AttributeError.
    importing = sys._getframe(2).f_code.co_name == "_handle_fromlist"  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  nothing else tells the caller
    if importing and find_spec(f"{module}.{name}") is None and (imports := _imports_of(name)):
        return ImportError(f"cannot import name {name!r} from {module!r}; write: {' or: '.join(imports)}", name=module)
    return AttributeError(f"module {module!r} has no attribute {name!r}")


def _imports_of(name: str) -> list[str]:
    """Return the imports that provide a public name. The files are read, not imported, since some need an extra."""
    import re
    from importlib.util import find_spec
    from pathlib import Path

    has = re.compile(rf"^(?: *from \S+ import {name} as {name}|(?:class|(?:async )?def) {name}\b)", re.MULTILINE)
    found = list[str]()
    for package in ("graphagent", "graphagent_strategies"):
        spec = find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            for file in sorted(Path(folder).rglob("*.py")):
                parts = [package, *file.relative_to(folder).with_suffix("").parts]
                parts = parts[:-1] if parts[-1] == "__init__" else parts
                if not any(part.startswith("_") or part == "cli" for part in parts) and has.search(
                    file.read_text("utf-8")
                ):
                    found.append(f"from {'.'.join(parts)} import {name}")
    return found
