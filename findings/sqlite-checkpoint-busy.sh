#!/usr/bin/env bash
# PRAGMA wal_checkpoint(TRUNCATE), with a reader in the way.
# Guess: it waits as long as the busy timeout says, and is then an error, SQLITE_BUSY.
# What happens: it waits, and is then a row: (1, pages in the log, pages moved). The log keeps what was deleted, and nothing is raised.
# For users: a program that deletes, checkpoints and does not read the row believes that the deleted text has left the disk.
# In graphagent: the row is read, and what could not be emptied is tried again and is a NotErasedError
#   (graphagent/store/sqlite/_erasure.py, tests/store/sqlite/test_forgetting.py).
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


from pathlib import Path

import apsw

print("apsw", version("apsw"), "with SQLite", apsw.sqlite_lib_version())
print("guess: apsw.BusyError")

writer = apsw.Connection("t.db")
writer.set_busy_timeout(200)
writer.execute("PRAGMA journal_mode=WAL").fetchall()
writer.execute("PRAGMA secure_delete=ON").fetchall()
writer.execute("CREATE TABLE t(a); INSERT INTO t VALUES ('the secret of Ada')")
reader = apsw.Connection("t.db")
reader.execute("BEGIN")
reader.execute("SELECT a FROM t").fetchall()
writer.execute("DELETE FROM t")
try:
    [(busy, pages, moved)] = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    found = f"a row, busy={busy}, and {'some' if moved < pages else 'no'} pages left in the log"
except apsw.BusyError:
    found = "BusyError"
compare("the checkpoint", found, "a row, busy=1, and some pages left in the log")
there = any(b"the secret of Ada" in path.read_bytes() for path in Path().glob("t.db*"))
compare("the deleted text is on the disk", there, True)
PYTHON
venv/bin/python program.py
