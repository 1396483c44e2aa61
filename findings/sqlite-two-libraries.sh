#!/usr/bin/env bash
# Two SQLite libraries in one process: the one inside apsw, and the one of Python's sqlite3.
# Guess: locks are of connections. Looking into the file with sqlite3 changes nothing for the open transaction of apsw.
# What happens: the locks are of the process, as POSIX has it: when sqlite3 closes the file, the system drops those of apsw as well, whose
#   library knows nothing of the other one. Another process then gets the write lock in the middle of the transaction. With a journal of
#   either kind.
# For users: `sqlite3.connect(file)` to have a look, pandas or an ORM, in the process that has the store open, undo what keeps two writers
#   apart. From another process they do no harm.
# In graphagent: docs/durable.md and the docstring of SqliteStore say so.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check apsw==3.54.1.0
cd "$folder"

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


import sqlite3
import subprocess

import apsw

print("apsw", version("apsw"), "with SQLite", apsw.sqlite_lib_version(), "beside sqlite3 with SQLite", sqlite3.sqlite_version)
print("guess: the other process is refused before and after")
if apsw.sqlite_lib_version() == sqlite3.sqlite_version:
    print("the two have the same version, but are two libraries all the same")

OTHER = """
import sys, apsw
try:
    apsw.Connection(sys.argv[1]).execute("BEGIN IMMEDIATE")
    print("gets the write lock")
except apsw.BusyError:
    print("is refused")
"""


def other_process(path):
    return subprocess.run([sys.executable, "-c", OTHER, path], capture_output=True, text=True, check=True).stdout.strip()


for mode in ("DELETE", "WAL"):
    path = f"{mode}.db"
    connection = apsw.Connection(path)
    connection.execute(f"PRAGMA journal_mode={mode}").fetchall()
    connection.execute("CREATE TABLE t(a)")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO t VALUES (1)")
    compare(f"{mode}, the other process, during the transaction", other_process(path), "is refused")
    look = sqlite3.connect(path)
    look.execute("SELECT count(*) FROM t").fetchone()
    look.close()
    compare(f"{mode}, the other process, after a look", other_process(path), "gets the write lock")
PYTHON
venv/bin/python program.py
