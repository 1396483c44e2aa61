#!/usr/bin/env bash
# The words of deleted rows in a full-text index.
# Guess: `secure_delete=ON`, DELETE and VACUUM leave nothing of a row in the file.
# What happens: the table is empty and the words are in the file. FTS5 notes a deletion beside the old words, in its own tables, which VACUUM
#   copies as they are. 'optimize' drops them, or the table's own option 'secure-delete'.
# For users: "forget this" that deletes rows and rewrites the file keeps the vocabulary of what was forgotten.
# In graphagent: `purge` (graphagent/memory/notes/index/_fts.py); tests/memory/notes/write/test_forget.py reads the bytes of the file.
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
print("guess: no, no")


def file_has_the_word(*more):
    path = Path(f"{len(more)}.db")
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA secure_delete=ON").fetchall()
    connection.execute("CREATE VIRTUAL TABLE notes USING fts5(text)")
    for number in range(50):
        connection.execute("INSERT INTO notes VALUES (?)", (f"note {number} about the weather",))
    connection.execute("INSERT INTO notes VALUES ('she moved to zanzibar')")
    connection.execute("DELETE FROM notes WHERE rowid = ?", (connection.last_insert_rowid(),))
    for statement in more:
        connection.execute(statement)
    connection.execute("VACUUM")
    connection.close()
    return b"zanzibar" in path.read_bytes()


compare("the word after DELETE and VACUUM", file_has_the_word(), True)
compare("… with 'optimize' in between", file_has_the_word("INSERT INTO notes(notes) VALUES ('optimize')"), False)
PYTHON
venv/bin/python program.py
