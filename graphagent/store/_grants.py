"""The store of grants of owners: tokens of servers that they let agents use."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphagent.store._items import Key


def grants_of(owner: str) -> Key:
    """Return the beginning of the keys of all grants of an owner, who is forgotten with them."""
    return ("grants", owner)
