"""Poolers that give each transaction another connection may be between a store and its server."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from graphagent.store.postgres import PostgresStore
from graphagent.testing import check_store
from tests import postgres

PGBOUNCER = shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))
CONFIG = """
[databases]
* = host={server} user={user}
[pgbouncer]
listen_addr =
unix_socket_dir = {folder}
listen_port = 6432
auth_type = any
pool_mode = transaction
default_pool_size = 5
max_client_conn = 200
logfile = {folder}/log
pidfile = {folder}/pid
"""


@pytest.fixture
def through_pgbouncer(postgres_dsn):
    """The DSN of a database through PgBouncer in transaction mode."""
    if PGBOUNCER is None:
        pytest.skip("PgBouncer is not installed")
    parts = urlsplit(postgres_dsn)
    how = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        config = Path(folder, "pgbouncer.ini")
        config.write_text(CONFIG.format(server=parse_qs(parts.query)["host"][0], user=parts.username, folder=folder))
        if os.getuid() == 0:  # PgBouncer refuses to be root
            nobody = pwd.getpwnam("nobody")
            how |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        with subprocess.Popen([PGBOUNCER, config], **how) as process:
            while not Path(folder, ".s.PGSQL.6432").exists():
                assert process.poll() is None, Path(folder, "log").read_text()
                time.sleep(0.01)
            yield f"postgresql://{parts.username}@{parts.path}?host={folder}&port=6432"
            process.terminate()


@pytest.mark.thorough
async def test_a_store_keeps_its_promises_through_pgbouncer(through_pgbouncer, postgres_dsn):
    """Nothing of a session is relied on; connections are cut on the side of the server, between PgBouncer and PostgreSQL."""
    async with PostgresStore(through_pgbouncer) as store, PostgresStore(through_pgbouncer) as other:
        await check_store(lambda: store, reopen=lambda _: other, disconnect=lambda _: postgres.disconnect(postgres_dsn))
        assert await store.verify() == 0
