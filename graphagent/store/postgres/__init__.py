"""A store in a PostgreSQL database, for programs on many machines. It needs the extra `postgres`."""

from __future__ import annotations

from graphagent.store.postgres._store import PostgresStore as PostgresStore
