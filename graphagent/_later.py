"""Names of a door that are imported when someone asks for them, so that who does not need them does not wait for them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module


def later(door: str, room: str, *names: str) -> Callable[[str], object]:
    """Give the `__getattr__` of a door some of whose names stand in another room (PEP 562)."""

    def find(name: str) -> object:
        if name in names:
            return getattr(import_module(room), name)
        raise AttributeError(f"module {door!r} has no attribute {name!r}")

    return find
