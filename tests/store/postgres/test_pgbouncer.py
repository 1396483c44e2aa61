"""Poolers that give each transaction another connection may be between a store and its server."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from graphagent.errors import StoreUnavailableError
from graphagent.store import DeleteAll, Put
from graphagent.store.postgres import PostgresStore
from graphagent.testing import check_store
from tests import postgres

PGBOUNCER = shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))
CONFIG = """
[databases]
* = host={folder}/server user={user}
[pgbouncer]
listen_addr =
unix_socket_dir = {folder}
listen_port = 6432
auth_type = any
pool_mode = {mode}
default_pool_size = 5
max_client_conn = 200
query_wait_timeout = 0.5
server_login_retry = 0.2
logfile = {folder}/log
pidfile = {folder}/pid
"""


pytestmark = [pytest.mark.thorough, pytest.mark.skipif(PGBOUNCER is None, reason="PgBouncer is not installed")]


@contextmanager
def pgbouncer(dsn, mode="transaction"):
    """Yield the DSN of a database through PgBouncer, and the link by which that finds the server."""
    parts = urlsplit(dsn)
    how = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        config, link = Path(folder, "pgbouncer.ini"), Path(folder, "server")
        config.write_text(CONFIG.format(folder=folder, user=parts.username, mode=mode))
        link.symlink_to(postgres.place_of(dsn))
        if os.getuid() == 0:  # PgBouncer refuses to be root
            nobody = pwd.getpwnam("nobody")
            how |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        with subprocess.Popen([PGBOUNCER, config], **how) as process:
            while not Path(folder, ".s.PGSQL.6432").exists():
                assert process.poll() is None, Path(folder, "log").read_text()
                time.sleep(0.01)
            try:
                yield f"postgresql://{parts.username}@{parts.path}?host={folder}&port=6432", link
            finally:
                process.terminate()


async def test_a_store_keeps_its_promises_through_pgbouncer(postgres_dsn):
    """Nothing of a session is relied on; connections are cut on the side of the server, between PgBouncer and PostgreSQL."""
    with pgbouncer(postgres_dsn) as (through, _):
        async with PostgresStore(through) as store, PostgresStore(through) as other:
            await check_store(
                lambda: store, reopen=lambda _: other, disconnect=lambda _: postgres.disconnect(postgres_dsn)
            )
            assert await store.verify() == 0


async def test_a_server_that_is_away_behind_pgbouncer(postgres_dsn):
    """PgBouncer takes connections all the same; what is read or committed fails in time, and is done once the server is there."""
    with pgbouncer(postgres_dsn) as (through, link):
        async with PostgresStore(through, timeout=0.1) as store:
            await store.commit(Put(("a",), b"1"))
            link.unlink()
            postgres.disconnect(postgres_dsn)
            with pytest.raises(StoreUnavailableError):
                await store.get(("a",))
            with pytest.raises(StoreUnavailableError):
                await store.commit(Put(("a",), b"2"))
            link.symlink_to(postgres.place_of(postgres_dsn))
        async with PostgresStore(through, timeout=60) as store:
            await store.commit(Put(("a",), b"3", expected=1))
            assert (await store.get(("a",))).value == b"3"


async def test_pgbouncer_that_gives_each_statement_another_connection_is_refused(postgres_dsn):
    """The error says which mode it is to have."""
    with pgbouncer(postgres_dsn, "statement") as (through, _):
        async with PostgresStore(through, timeout=60) as store:
            for commit in (Put(("a",), b"1"), DeleteAll(("a",))):
                with pytest.raises(StoreUnavailableError, match="pool_mode = transaction"):
                    await store.commit(commit)
                async with PostgresStore(postgres_dsn) as direct:
                    await direct.commit(Put(("a",), b"1"))
