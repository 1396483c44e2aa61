"""A store in one SQLite file."""

from __future__ import annotations

from graphagent.store.sqlite._store import SqliteStore as SqliteStore
