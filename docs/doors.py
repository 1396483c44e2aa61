"""Shows what a room re-exports (`from … import X as X`) on the room's own page of the reference."""

from __future__ import annotations

from typing import Any

import griffe


class Doors(griffe.Extension):
    """Marks the names that a room takes from its own private files as public, since griffe takes no import for one."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Walk the doors of a loaded package."""
        for door in (pkg, *(module for module in pkg.modules.values() if module.is_init_module)):
            for member in door.members.values():
                if isinstance(member, griffe.Alias) and member.target_path.startswith(f"{door.path}."):
                    member.public = True
