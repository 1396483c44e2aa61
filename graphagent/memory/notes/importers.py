"""Deprecated: it is `graphagent.migrate.notes` now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent._lazy import lazy as _lazy

if TYPE_CHECKING:
    from graphagent.migrate.notes import READERS as READERS
    from graphagent.migrate.notes import Data as Data
    from graphagent.migrate.notes import by_owner as by_owner
    from graphagent.migrate.notes import from_crewai as from_crewai
    from graphagent.migrate.notes import from_export as from_export
    from graphagent.migrate.notes import from_mcp as from_mcp
    from graphagent.migrate.notes import from_mem0 as from_mem0
    from graphagent.migrate.notes import origin_of as origin_of
else:
    __getattr__ = _lazy(
        __name__,
        moved={
            "Data": "graphagent.migrate.notes.Data",
            "READERS": "graphagent.migrate.notes.READERS",
            "by_owner": "graphagent.migrate.notes.by_owner",
            "from_crewai": "graphagent.migrate.notes.from_crewai",
            "from_export": "graphagent.migrate.notes.from_export",
            "from_mcp": "graphagent.migrate.notes.from_mcp",
            "from_mem0": "graphagent.migrate.notes.from_mem0",
            "origin_of": "graphagent.migrate.notes.origin_of",
        },
    )
