"""Holding off forks, for whoever has connections to SQLite of their own."""

from __future__ import annotations

from graphagent.store._fork_safety import in_use as in_use
