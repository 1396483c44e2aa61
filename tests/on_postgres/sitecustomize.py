"""Puts PostgreSQL in the place of files: a Python process that has this folder on its path has a PostgresStore for each SqliteStore.

`GRAPHAGENT_TESTS_DSN` names the database, in which each path has a schema; with `GRAPHAGENT_TESTS_SEALED`, each store is sealed. At the
path itself lies a file of a few bytes. Who damages that file damages the rows of the store in the same way: so programs that
open, close, read and damage stores by their paths work unchanged.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import runpy
import sys
from pathlib import Path

import psycopg
from psycopg import sql

from graphagent.memory import FileMemoryProvider, StoreMemoryProvider
from graphagent.store import EncryptedStore, SqliteStore
from graphagent.store.postgres import PostgresStore

MARK = b"The rows are in a database. " * 20
DSN = os.environ["GRAPHAGENT_TESTS_DSN"]


def schema_of(path):
    """Return the schema of a store that has a path, whose rows are damaged if the file at the path was."""
    path = Path(path)
    schema = f"s{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:16]}"
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.read_bytes() != MARK:
        damage(schema)
    path.write_bytes(MARK)
    return schema


def damage(schema):
    """Change bytes of every value."""
    items = sql.Identifier(schema, "items")
    with psycopg.connect(DSN) as connection:
        for place, value in connection.execute(sql.SQL("SELECT place, value FROM {}").format(items)).fetchall():
            changed = bytearray(value)
            for at in range(len(changed) // 3, len(changed), 97):
                changed[at] ^= 0xFF
            connection.execute(sql.SQL("UPDATE {} SET value = %s WHERE place = %s").format(items), [changed, place])


def store_at(path):
    """Return a store in the schema of a path, sealed if stores are to be."""
    plain = PostgresStore(DSN, schema_of(path))
    return EncryptedStore(plain, bytes(range(32))) if os.environ.get("GRAPHAGENT_TESTS_SEALED") else plain


class Replacing(type):
    """Makes stores in databases; none of these is a SqliteStore to who asks for that, such as the index of notes."""

    def __call__(cls, path, **_):
        return store_at(path)

    def __instancecheck__(cls, value):
        return isinstance(value, SqliteStore)


class InPlaceOfSqlite(metaclass=Replacing):
    """What programs call to open a store."""


class InPlaceOfFiles(StoreMemoryProvider):
    """A provider of facts in the schema of a folder."""

    def __init__(self, root, **_):
        self._in_place = store_at(Path(root) / "facts")
        super().__init__(self._in_place)

    async def __aexit__(self, *error):
        await super().__aexit__(*error)
        await self._in_place.aclose()


def replace():
    """Put the classes in their places, wherever the library names them."""
    for name in ("graphagent", "graphagent.memory.facts._provider_encrypted", "graphagent.memory.notes"):
        importlib.import_module(name)
    for module in [module for name, module in sys.modules.items() if name.partition(".")[0] == "graphagent"]:
        for name, value in list(vars(module).items()):
            for there, instead in ((SqliteStore, InPlaceOfSqlite), (FileMemoryProvider, InPlaceOfFiles)):
                if value is there:
                    setattr(module, name, instead)


runpy.run_path(str(Path(__file__).parents[1] / "offline" / "sitecustomize.py"))
replace()
