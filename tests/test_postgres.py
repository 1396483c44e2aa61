"""The PostgreSQL that tests are given."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from tests import postgres

HOME = Path(__file__).parents[1]


def test_each_test_has_a_database_of_its_own_on_one_server(postgres_dsn):
    """A database is new, has UTF-8 and pgvector, can only be reached through a socket of this machine, and is dropped."""
    with postgres.database() as other, psycopg.connect(other) as there, psycopg.connect(postgres_dsn) as here:
        same = [each.execute("SELECT pg_postmaster_start_time()").fetchone() for each in (here, there)]
        assert same[0] == same[1]
        there.execute("CREATE TABLE one (id int)")
        there.commit()
        assert here.execute("SELECT to_regclass('one')").fetchone() == (None,)
        assert here.execute("SHOW server_encoding").fetchone() == ("UTF8",)
        assert here.execute("SHOW listen_addresses").fetchone() == ("",)
        here.execute("CREATE EXTENSION vector")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(other)


@pytest.mark.thorough
@pytest.mark.parametrize("died", [None, signal.SIGKILL])
def test_the_server_ends_with_the_process_that_began_the_tests(died):
    """Neither it nor its folder is left, also where the process was killed."""
    environment = {name: value for name, value in os.environ.items() if name != postgres.PLACE}
    program = f"""
import os, signal, sys
from types import SimpleNamespace
import psycopg
from tests import postgres
ends = []
postgres.offer(SimpleNamespace(add_cleanup=ends.append))
with postgres.database() as dsn, psycopg.connect(dsn) as connection:
    print(connection.execute("SELECT setting FROM pg_settings WHERE name = 'data_directory'").fetchone()[0], flush=True)
    {"os.kill(os.getpid(), signal.SIGKILL)" if died else ""}
[end() for end in ends]
"""
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, cwd=HOME, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == (-died if died else 0), ended.stderr
    place = Path(ended.stdout.strip()).parent
    while place.exists():
        time.sleep(0.05)
