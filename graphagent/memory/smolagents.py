"""Deprecated: it is `graphagent.migrate.smolagents` now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent._lazy import lazy as _lazy

if TYPE_CHECKING:
    from graphagent.migrate.smolagents import load_steps as load_steps
else:
    __getattr__ = _lazy(__name__, moved={"load_steps": "graphagent.migrate.smolagents.load_steps"})
