"""The database of a store: its schema, which is made and migrated at the first use, and the statements about it."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from graphagent.errors import NewerFormatError, StoreError
from graphagent.store.postgres._connection import TEXT, Connection, number_of
from graphagent.store.postgres._failures import Failure
from graphagent.store.postgres._migrations import MIGRATIONS, statements

if TYPE_CHECKING:
    from graphagent.store.postgres._dsn import Target

_OTHERS = b"SELECT tablename::text FROM pg_tables WHERE schemaname = $1 AND tablename IN ('items', 'pages', 'writers', 'claims') LIMIT 1"
_DUPLICATES = frozenset({"42P07", "42723", "42710"})


def quoted(name: str) -> str:
    """Return a name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


class Database:
    """The state that the connections of an open store share."""

    def __init__(self, target: Target, schema: str, seconds: float) -> None:
        self.target = target
        self.where = target.where
        self.seconds = seconds
        """How long a server is waited for."""
        self.pid = os.getpid()
        self.was_reached = False
        """Whether there was ever a connection: a server that was there is waited for, one that never was is not."""
        self.is_sealed = False
        """Whether the store is known to be sealed; a sealed store stays sealed."""
        self._schema, self._name = schema, quoted(schema)
        self._lock_keys = "hashtext('graphagent'), hashtext('{}')".format(schema.replace("'", "''"))
        self._prepared = False
        self._lock = threading.Lock()
        here = f"; SET LOCAL search_path = {self._name}, public; SET LOCAL idle_in_transaction_session_timeout = "
        self.begin = f"BEGIN ISOLATION LEVEL READ COMMITTED{here}'60s'".encode()
        self.begin_reading = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY{here}'1h'".encode()

    def sql(self, statement: str) -> bytes:
        """Return a statement in which `{s}` stands for the schema."""
        return statement.replace("{s}", self._name).encode()

    def is_ready(self, connection: Connection, *, new: bool) -> bool:
        """Return whether the schema exists, after creating or migrating it if permitted: a process that only reads creates nothing."""
        if self._prepared:
            return True
        with self._lock:
            number = self._number(connection)
            if number == 0:
                self._check_empty(connection)
                if not new:
                    return False
            if number > len(MIGRATIONS):
                raise NewerFormatError(self.where, f"with migration {number}, and this one knows {len(MIGRATIONS)}")
            if number < len(MIGRATIONS):
                self._migrate(connection)
            self._check_isolation(connection)
            [(sealed,)] = connection.run(self.sql("SELECT {s}.is_sealed()"))
            self.is_sealed = self.is_sealed or sealed == b"\x01"
            self._prepared = True
            return True

    def _number(self, connection: Connection) -> int:
        """Return the number of the last migration that was made; 0 without a store."""
        [(there,)] = connection.run(
            b"SELECT to_regclass($1) IS NOT NULL", [(TEXT, f"{self._name}.migrations".encode())]
        )
        if there != b"\x01":
            return 0
        [(number,)] = connection.run(self.sql("SELECT coalesce(max(number), 0)::bigint FROM {s}.migrations"))
        return number_of(number)

    def _check_empty(self, connection: Connection) -> None:
        """Check that the place of a new store is empty, and that other tables there do not pass for an empty store."""
        found = connection.run(_OTHERS, [(TEXT, self._schema.encode())])
        if found and self._number(connection) == 0:  # and no other process has made the store in between
            raise StoreError(
                f"{self.where} has a table {(found[0][0] or b'').decode()!r}, but nothing in a table 'migrations', which says of which version "
                f"a store is. It is of another program, and the store needs another schema=; or it was a store, to be restored from a backup"
            )

    def _migrate(self, connection: Connection) -> None:
        """Make the migrations that are missing. Of processes that begin together one makes them, while the others wait."""
        connection.script(
            f"BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock({self._lock_keys})".encode()
        )
        try:
            [(there,)] = connection.run(b"SELECT to_regnamespace($1) IS NOT NULL", [(TEXT, self._name.encode())])
            if there != b"\x01":  # IF NOT EXISTS asks for the right to make one even where there is one
                connection.script(self.sql("CREATE SCHEMA {s}"))
            for number in range(self._number(connection) + 1, len(MIGRATIONS) + 1):
                connection.script(statements(number, self._name, self._lock_keys).encode())
                connection.script(self.sql(f"INSERT INTO {{s}}.migrations VALUES ({number})"))  # noqa: S608 - of our own words
            connection.script(b"COMMIT")
        except Failure as failure:
            connection.roll_back()
            if failure.state in _DUPLICATES:
                raise StoreError(
                    f"{self.where} has something of another program: {failure}; nothing was made. Give another schema="
                ) from None
            raise

    def _check_isolation(self, connection: Connection) -> None:
        [(isolation,)] = connection.run(b"SELECT current_setting('default_transaction_isolation')")
        if isolation != b"read committed":
            level = (isolation or b"").decode()
            raise StoreError(
                f"{self.where} has default_transaction_isolation = {level!r}, with which a store cannot work: ALTER ROLE … SET "
                f"default_transaction_isolation = 'read committed'"
            )
