"""Shows what a room re-exports (`from … import X as X`) on the room's page of the reference, without what only other rooms use."""

from __future__ import annotations

from typing import Any

import griffe

MACHINERY = {
    "graphagent.graph": "TapOf",
    "graphagent.memory.RunMemory": "adopt change detach edited editor expect handle known take transcript",
    "graphagent.run.Callback": "kinds of takes",
    "graphagent.run.Charge": "read row",
    "graphagent.run.Console": "begin bind install",
    "graphagent.run.Run": "speakers",
    "graphagent.run.RunHeader": "check_free claim judged pack renewed state unpack",
    "graphagent.run.Question": "check",
    "graphagent.memory.AgentMemory": "begin bind install look_up refers",
    "graphagent.memory.ContextWindow": "before_request begin bind check_request install make_room shown tools",
    "graphagent.memory.NoteMemory": """asks before_request begin bind ended install learn_from_history look_up make_room
        refers shown tools""",
    "graphagent.memory.KnownFact": "kept parts",
    "graphagent.memory.KnownNote": "kept",
    "graphagent.graph.Node": "asks_model context function needs policies tool_outputs",
    "graphagent.graph.StrategyTool": "as_tool limits made parameters run",
    "graphagent.work.Schedule": "begin_due",
    "graphagent.graph.Strategy": "edges elements_by_name setting walk without_tools",
}
"""Names that are public only because other rooms use them. Whoever calls the library does not need them."""


UNSEEN = {"msgspec.Struct", "Struct"}
"""Base classes that say how a class is made, and nothing about what it does."""
DOORS = {"graphagent.history"}
"""Plain files that re-export names of their room, since they are slow to import."""


class Doors(griffe.Extension):
    """Marks the names that a room takes from its own private files as public, since griffe takes no import for one."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Walk the doors of a loaded package: its rooms, and their files that are imported by their own path."""
        self._show(pkg, pkg.path)
        for room in pkg.modules.values():
            for door in (room, *room.modules.values()):
                if door.is_init_module or door.path in DOORS:
                    self._show(door, room.path)
        for path, names in MACHINERY.items():
            self._hide(pkg, path, set(names.split()))

    def _show(self, door: griffe.Module, room: str) -> None:
        for member in door.members.values():
            if isinstance(member, griffe.Alias) and _belongs(member.target_path, room):
                member.public = True

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Leave out the base classes that users have nothing to do with."""
        cls.bases = [base for base in cls.bases if str(base) not in UNSEEN]

    def _hide(self, pkg: griffe.Module, path: str, names: set[str]) -> None:
        package, _, inside = path.partition(".")
        if package != pkg.name:
            return
        try:
            shown = pkg[inside]
        except KeyError:  # moved or renamed; then there is nothing to hide
            return
        if isinstance(shown, griffe.Alias):  # of a class; marks on its members do not reach the alias
            members = shown.final_target.members
            for name in names & set(members):
                del members[name]
        else:
            for name in names & set(shown.members):
                shown.members[name].public = False


def _belongs(target: str, room: str) -> bool:
    """Return whether a name is shown with a room: it is from there, or from a private file of another one, which has no page."""
    package, *parts = target.split(".")[:-1]
    private = any(part.startswith("_") for part in parts)
    return target.startswith(f"{room}.") or (private and package == room.partition(".")[0])
