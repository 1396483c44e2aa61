#!/usr/bin/env bash
# A list of values, an index that finds them, and ORDER BY a column of another index.
# Guess: SQLite finds the two rows by the index on (owner, hash) and sorts them.
# What happens: it reads all rows of the owner, in the order of the index on (owner, id), to save sorting two rows: without ANALYZE it does not
#   know that the owner has 20,000. Without the ORDER BY, or after ANALYZE, it takes the other index.
# For users: a look-up of one hash takes time in proportion to the table. Tests with small tables do not show it.
# In graphagent: INDEXED BY in `same` (graphagent/memory/notes/index/_fts.py), and tests/memory/notes/index/test_many.py counts the work.
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


import apsw

print("apsw", version("apsw"), "with SQLite", apsw.sqlite_lib_version())
print("guess: both use the index on (owner, hash)")

connection = apsw.Connection(":memory:")
connection.execute("CREATE TABLE notes(row INTEGER PRIMARY KEY, owner TEXT, id TEXT, hash INTEGER)")
connection.execute("CREATE UNIQUE INDEX by_id ON notes(owner, id)")
connection.execute("CREATE INDEX by_hash ON notes(owner, hash)")
connection.executemany("INSERT INTO notes VALUES (?, 'ada', ?, ?)", ((n, f"{n:09}", n * 7919) for n in range(20_000)))
FIND = "SELECT id FROM notes WHERE owner = 'ada' AND hash IN (7919, 15838)"


def plan(statement):
    steps = [detail for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
    return next(step for step in steps if "notes" in step).partition("USING ")[2]


compare("without an order", plan(FIND), "INDEX by_hash (owner=? AND hash=?)")
compare("with ORDER BY id", plan(f"{FIND} ORDER BY id"), "INDEX by_id (owner=?)")
connection.execute("ANALYZE")
compare("… after ANALYZE", plan(f"{FIND} ORDER BY id"), "INDEX by_hash (owner=? AND hash=?)")
PYTHON
venv/bin/python program.py
