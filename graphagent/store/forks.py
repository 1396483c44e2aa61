"""Preventing forks while a connection is in use, for those who have SQLite connections of their own."""

from __future__ import annotations

from graphagent.store._fork_safety import in_use as in_use
