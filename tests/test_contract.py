"""Programs that are promised to run as written, where they lie beside the repository."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests import forkserver
from tests.thorough import some

HERE = Path(__file__).parent
PROGRAMS = HERE.parents[1] / "shared" / "contract"


beside = pytest.mark.skipif(not PROGRAMS.is_dir(), reason="the promised programs are not beside this repository")
NAMES = ["01_remember", "02_facts", "03_steps", "04_durable", "05_notes", "06_graph", "07_fact_nodes"]


@beside
@pytest.mark.parametrize("name", NAMES)
def test_a_promised_program_runs_unchanged(name, tmp_path):
    """It ends well and prints ok at its end; only the one that replays a run prints more."""
    ends_well(name, tmp_path, forkserver.run)


@beside
@pytest.mark.parametrize(
    ("name", "sealed"),
    some(itertools.product([name for name in NAMES if name not in ("03_steps", "06_graph")], ["", "sealed"]), 2),
)
def test_a_promised_program_runs_over_postgresql(name, sealed, tmp_path, postgres_dsn):
    """It needs no change where its files are schemas of a database, plain or sealed; nothing readable is in those that it seals."""
    path = os.pathsep.join([str(HERE / "on_postgres"), os.environ["PYTHONPATH"], str(HERE.parent)])
    environment = {"GRAPHAGENT_TESTS_DSN": postgres_dsn, "GRAPHAGENT_TESTS_SEALED": sealed, "PYTHONPATH": path}
    ends_well(name, tmp_path, partial(subprocess.run, env=os.environ | environment))
    with psycopg.connect(postgres_dsn) as connection:
        schemas = connection.execute("SELECT schemaname FROM pg_tables WHERE tablename = 'items'").fetchall()
        assert schemas
        for (schema,) in schemas if sealed or name == "01_remember" else ():
            rows = connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, "items"))).fetchall()
            assert rows
            for secret in (b"Kotlin", b"my-app", b"Oslo", b"PostgreSQL", b"Send it?"):
                assert not [row for row in rows if secret in b"".join(each for each in row if isinstance(each, bytes))]


def ends_well(name, folder, run):
    """Run a program in a folder; it has to end as promised."""
    command = [sys.executable, "-W", "error", str(PROGRAMS / f"{name}.py")]
    ended = run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    *said, last = ended.stdout.splitlines() or [""]
    assert (last, ended.returncode) == ("ok", 0), ended.stderr
    assert not said or name == "03_steps"
