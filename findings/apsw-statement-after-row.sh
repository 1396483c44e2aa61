#!/usr/bin/env bash
# Two statements in one call of apsw, the first of which returns a row: `execute("PRAGMA secure_delete=ON; DELETE FROM t")`.
# Guess: both are executed, as in C with sqlite3_exec; what is not read of the rows is lost, and nothing else. `executemany` is executed for
#   every item.
# What happens: statements are executed as their rows are read. If nobody reads the row of the PRAGMA, the DELETE is never executed, without an
#   error, also when the cursor is dropped. `fetchone` reads one row and stops there too. And `executemany` of an INSERT with RETURNING inserts
#   the first item alone. With `fetchall` everything is executed.
# For users: a PRAGMA that is put before other statements, or RETURNING that is added to one, silently takes away what comes behind it.
# In graphagent: calls with statements that return rows end with `.fetchall()`, also where nobody needs the rows (graphagent/store/sqlite/).
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


import gc

import apsw

print("apsw", version("apsw"), "with SQLite", apsw.sqlite_lib_version())
print("guess: 0 rows are left each time, and 3 are inserted")


def left(statements, read):
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE t(a); INSERT INTO t VALUES (1), (2)")
    read(connection.execute(statements))
    gc.collect()
    return connection.execute("SELECT count(*) FROM t").fetchall()[0][0]


def nothing(cursor):
    return None


compare("left, the first returns nothing", left("CREATE TABLE u(a); DELETE FROM t", nothing), 0)
compare("left, a PRAGMA, not read", left("PRAGMA secure_delete=ON; DELETE FROM t", nothing), 2)
compare("left, a PRAGMA, fetchone", left("PRAGMA secure_delete=ON; DELETE FROM t", lambda cursor: cursor.fetchone()), 2)
compare("left, a PRAGMA, fetchall", left("PRAGMA secure_delete=ON; DELETE FROM t", lambda cursor: cursor.fetchall()), 0)


def inserted(statement):
    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE t(a)")
    connection.executemany(statement, [(1,), (2,), (3,)])
    gc.collect()
    return connection.execute("SELECT count(*) FROM t").fetchall()[0][0]


compare("inserted by executemany", inserted("INSERT INTO t VALUES (?)"), 3)
compare("inserted by executemany with RETURNING, not read", inserted("INSERT INTO t VALUES (?) RETURNING a"), 1)
PYTHON
venv/bin/python program.py
