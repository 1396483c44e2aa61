"""What other rooms need of stores in PostgreSQL."""

from __future__ import annotations

from graphagent.store.postgres._dsn import read_dsn as read_dsn
