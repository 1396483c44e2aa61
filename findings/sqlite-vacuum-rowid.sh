#!/usr/bin/env bash
# The rowids of a table without INTEGER PRIMARY KEY, and a full-text index (external content) that finds its rows by them.
# Guess: VACUUM and VACUUM INTO do the same to rowids: they stay, since nothing but free space is removed. Or, for readers of the documentation,
#   both may change those of every such table.
# What happens: VACUUM numbers the rows again if the table has no index at all, and VACUUM INTO never does. With any index, or a primary key of
#   text, the rowids stay. So the index finds other rows in the file that was vacuumed, and the right ones in the copy.
# For users: a test with a copy, or with a table that has an index, shows nothing. Dropping the last index makes the next VACUUM harmful.
# In graphagent: what is found by its number has an INTEGER PRIMARY KEY, since forgetting runs VACUUM (SCHEMA in graphagent/memory/notes/index/_fts.py
#   and in graphagent/store/sqlite/_file.py).
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
print("guess: the note about tea, each time")

TABLES = {
    "no index": "CREATE TABLE notes(text)",
    "an index": "CREATE TABLE notes(text); CREATE INDEX by_text ON notes(text)",
    "a primary key of text": "CREATE TABLE notes(text TEXT PRIMARY KEY)",
}
RECORDED = {
    ("no index", "VACUUM"): ["Cleo likes cocoa"],
    ("no index", "VACUUM INTO"): ["Bob likes tea"],
    ("an index", "VACUUM"): ["Bob likes tea"],
    ("an index", "VACUUM INTO"): ["Bob likes tea"],
    ("a primary key of text", "VACUUM"): ["Bob likes tea"],
    ("a primary key of text", "VACUUM INTO"): ["Bob likes tea"],
}
for number, ((table, way), recorded) in enumerate(RECORDED.items()):
    connection = apsw.Connection(f"{number}.db")
    connection.execute(TABLES[table])
    connection.execute("CREATE VIRTUAL TABLE words USING fts5(text, content='notes')")
    texts = [("Ada likes rum",), ("Bob likes tea",), ("Cleo likes cocoa",)]
    connection.executemany("INSERT INTO notes VALUES (?)", texts)
    connection.execute("INSERT INTO words(words) VALUES ('rebuild')")
    connection.execute("INSERT INTO words(words, rowid, text) VALUES ('delete', 1, 'Ada likes rum')")
    connection.execute("DELETE FROM notes WHERE rowid=1")
    if way == "VACUUM":
        connection.execute("VACUUM")
    else:
        connection.execute("VACUUM INTO ?", (f"copy {number}.db",))
        connection = apsw.Connection(f"copy {number}.db")
    found = [text for (text,) in connection.execute("SELECT text FROM words WHERE words MATCH 'tea'")]
    compare(f"{table}, {way}, looking for tea", found, recorded)
PYTHON
venv/bin/python program.py
