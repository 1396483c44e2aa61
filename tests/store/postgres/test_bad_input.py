"""Servers and databases that cannot have a store, and DSNs that are none: errors that say what to do, and no password."""

from __future__ import annotations

import re
import traceback

import psycopg
import pytest

from graphagent.errors import DamagedStoreError, ReadOnlyStoreError, StoreError, StoreUnavailableError
from graphagent.store import Put
from graphagent.store.postgres import PostgresStore
from graphagent.store.postgres._failures import Failure, error_of

PASSWORD = "sesame-open"


async def refused(store, kind, words):
    """Check that reading or else committing is refused; return all that the error shows."""
    with pytest.raises(kind, match=words) as caught:
        await store.get(("a",))
        await store.commit(Put(("a",), b"1"))
    shown = "".join(traceback.format_exception(caught.value))
    await store.aclose()
    assert PASSWORD not in f"{shown} {store!r}"


@pytest.mark.parametrize(
    ("dsn", "kind", "words"),
    [
        ("postgresql//nonsense", StoreError, "not the DSN"),
        (f"postgresql://ada:{PASSWORD}:x@[/none", StoreError, "not the DSN"),
        ("env:GRAPHAGENT_TEST_NO_DSN", StoreError, "variable 'GRAPHAGENT_TEST_NO_DSN'"),
        (
            f"postgresql://ada:{PASSWORD}@127.0.0.1:1/none",
            StoreUnavailableError,
            "'none' at 127.*refused.*Nothing was written",
        ),
        (f"postgresql://ada:{PASSWORD}@x@127.0.0.1:1/none", StoreUnavailableError, "cannot be reached"),
        (f"host=127.0.0.1 port=1 password={PASSWORD}", StoreUnavailableError, "refused"),
        (f"postgresql://ada:{PASSWORD}@/none?host=/nowhere", StoreUnavailableError, "/nowhere"),
        (f"postgresql://ada:x/{PASSWORD}@127.0.0.1:1/none", StoreUnavailableError, "cannot be reached"),
        (f"postgresql://127.0.0.1:{PASSWORD}/none", StoreUnavailableError, "'none' at 127"),
        (f"env:postgresql://ada:{PASSWORD}@127.0.0.1:1/none", StoreError, "not the DSN"),
        (f" postgresql://ada:{PASSWORD}@127.0.0.1:1/none", StoreUnavailableError, "refused"),
        (f"postgresql://ada:\ud800{PASSWORD}@127.0.0.1:1/none", StoreError, "not the DSN"),
    ],
    ids=[
        "nonsense",
        "bracket",
        "unset",
        "refused",
        "two-at",
        "words",
        "socket",
        "slash",
        "no-user",
        "variable",
        "blank",
        "surrogate",
    ],
)
async def test_a_dsn_that_leads_nowhere(dsn, kind, words):
    """What is wrong and where it was tried is said, and the password is in no part of it, even where it was taken for a host."""
    await refused(PostgresStore(dsn), kind, words)


async def test_the_variable_is_read_when_the_store_opens(postgres_dsn, monkeypatch):
    """It need not be set when the object is made, and its value is in no repr."""
    store = PostgresStore("env:GRAPHAGENT_TEST_DSN")
    monkeypatch.setenv("GRAPHAGENT_TEST_DSN", postgres_dsn)
    await store.commit(Put(("a",), b"1"))
    assert repr(store) == "PostgresStore('env:GRAPHAGENT_TEST_DSN', schema='graphagent')"
    assert repr(PostgresStore(postgres_dsn)) == "PostgresStore('…', schema='graphagent')"
    await store.aclose()


DATABASES = {
    "read-only": ("ALTER DATABASE {} SET default_transaction_read_only = on", ReadOnlyStoreError, "primary"),
    "isolation": ("ALTER DATABASE {} SET default_transaction_isolation = 'serializable'", StoreError, "read committed"),
    "closed": ("ALTER DATABASE {} ALLOW_CONNECTIONS false", StoreUnavailableError, "not currently accepting"),
    "gone": ("ALTER DATABASE {} RENAME TO {}_gone", StoreUnavailableError, "does not exist"),
}


@pytest.mark.parametrize("case", DATABASES)
async def test_a_database_that_cannot_have_a_store(postgres_dsn, case):
    """It is not waited for, and the error says what to change."""
    statement, kind, words = DATABASES[case]
    name = psycopg.conninfo.conninfo_to_dict(postgres_dsn)["dbname"]
    server = psycopg.conninfo.make_conninfo(postgres_dsn, dbname="postgres")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(statement.format(name, name))
        await refused(PostgresStore(postgres_dsn, timeout=60), kind, words)
        connection.execute(f"DROP DATABASE IF EXISTS {name}_gone")


async def test_another_encoding_is_refused(postgres_dsn):
    """A store needs UTF8, and the error says how to make such a database."""
    name = psycopg.conninfo.conninfo_to_dict(postgres_dsn)["dbname"] + "_ascii"
    with psycopg.connect(
        psycopg.conninfo.make_conninfo(postgres_dsn, dbname="postgres"), autocommit=True
    ) as connection:
        connection.execute(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0 LOCALE 'C'")
        await refused(
            PostgresStore(psycopg.conninfo.make_conninfo(postgres_dsn, dbname=name)),
            StoreError,
            "SQL_ASCII.*ENCODING 'UTF8'",
        )
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def test_a_user_without_rights_or_connections_is_told(postgres_dsn):
    """Who may not make the schema, read it or write it learns which right is missing; where no connection is left, it is waited for."""
    name = psycopg.conninfo.conninfo_to_dict(postgres_dsn)["dbname"]
    role = f"r_{name}"
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
        dsn = psycopg.conninfo.make_conninfo(postgres_dsn, user=role)
        try:
            await refused(PostgresStore(dsn), ReadOnlyStoreError, "permission denied for database")
            async with PostgresStore(postgres_dsn) as store:
                await store.commit(Put(("a",), b"1"))
            await refused(PostgresStore(dsn), ReadOnlyStoreError, "permission denied for schema")
            connection.execute(f"GRANT USAGE ON SCHEMA graphagent TO {role}")
            connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA graphagent TO {role}")
            async with PostgresStore(dsn) as store:
                assert (await store.get(("a",))).value == b"1"
            await refused(PostgresStore(dsn), StoreError, "permission denied for table")
            connection.execute(f"ALTER ROLE {role} CONNECTION LIMIT 0")
            await refused(
                PostgresStore(dsn, timeout=0.1), StoreUnavailableError, "too many connections.*smaller connections="
            )
        finally:
            connection.execute(f"DROP OWNED BY {role}")
            connection.execute(f"DROP ROLE {role}")


async def test_a_schema_of_another_program_is_left_alone(postgres_dsn):
    """Nothing is made beside its tables."""
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE public.items (id int)")
        await refused(PostgresStore(postgres_dsn, "public"), StoreError, "another program")
        assert connection.execute("SELECT to_regclass('public.migrations')").fetchone() == (None,)


@pytest.mark.parametrize("lost", ["DROP TABLE graphagent.migrations", "DELETE FROM graphagent.migrations"])
async def test_a_schema_that_lost_its_migrations_is_not_an_empty_store(postgres_dsn, lost):
    """Reading, verifying and writing say what is missing, and change nothing."""
    async with PostgresStore(postgres_dsn) as store:
        await store.commit(Put(("a",), b"1"))
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(lost)
        async with PostgresStore(postgres_dsn) as store:
            for access in (
                store.get(("a",)),
                store.commit(Put(("a",), b"2")),
                store.verify(),
                store.claims.lapsed("runs", 1),
            ):
                with pytest.raises(StoreError, match=r"nothing in a table 'migrations'.*restored from a backup"):
                    await access
        assert connection.execute("SELECT value FROM graphagent.items").fetchall() == [(b"1",)]


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"dsn": None}, TypeError, "dsn="),
        ({"schema": ""}, ValueError, "schema=''"),
        ({"schema": "pg_mine"}, ValueError, "pg_"),
        ({"dsn": "env:DATABASE_URL?schema=mine"}, ValueError, "leave out .schema="),
        ({"schema": "é" * 32}, ValueError, "63 bytes"),
        ({"connections": 1}, ValueError, "connections=1"),
        ({"timeout": -1}, ValueError, "timeout=-1"),
        ({"lease": 10}, ValueError, "heartbeat=5"),
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(arguments, kind, words):
    """They are refused where the object is made."""
    with pytest.raises(kind, match=words):
        PostgresStore(**({"dsn": "env:NAME"} | arguments))


@pytest.mark.parametrize(
    ("state", "kind", "words"),
    [
        ("53100", StoreError, "no disk left.*nothing of the commit was kept"),
        ("55P03", StoreError, "locked for a minute"),
        ("25006", ReadOnlyStoreError, "primary"),
        ("XX001", DamagedStoreError, "is damaged"),
        ("57014", StoreError, "refused: said so .57014.; nothing"),
    ],
)
def test_what_a_server_refuses_is_said_with_what_to_do(state, kind, words):
    """The state of the error decides which it is; details, which may quote values, are left out."""
    error = error_of(Failure(state, "said so", "Key (place)=(secret)"), "schema 'x'")
    assert type(error) is kind
    assert re.search(words, str(error))
    assert "secret" not in str(error)
