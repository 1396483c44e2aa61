#!/usr/bin/env bash
# Words of Hindi and Tamil in FTS5 with `unicode61`.
# Guess: a word is a run of letters as Unicode has them, so a word finds itself and no other.
# What happens: combining marks end a word unless they are the accents of other scripts, and vowel signs are combining marks: a word falls
#   into its consonants. "दीन" (poor) finds "दान" (gift), since of both only two consonants are left. `categories 'L* N* Co M*'` keeps words whole.
# For users: full-text search in a language of India returns words with the same consonants, and its frequencies are those of letters.
# In graphagent: notes are searched with this tokenizer (TOKENIZER in graphagent/memory/notes/index/_fts.py), so in these scripts they are
#   found by parts of words; vectors help (docs/embedders.md).
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
print("guess: [] for another word")


def finds(text, question, options=""):
    connection = apsw.Connection(":memory:")
    connection.execute(f"CREATE VIRTUAL TABLE notes USING fts5(text, tokenize=\"unicode61{options}\")")
    connection.execute("INSERT INTO notes VALUES (?)", (text,))
    return [found for (found,) in connection.execute("SELECT text FROM notes WHERE notes MATCH ?", (f'"{question}"',))]


WHOLE = " categories 'L* N* Co M*'"
compare("a Hindi note about a gift, asked for the poor", finds("दान", "दीन"), ["दान"])
compare("a Tamil note about art, asked for a stone", finds("கலை", "கல்"), ["கலை"])
compare("the first again, with marks in words", finds("दान", "दीन", WHOLE), [])
compare("… and asked for the gift", finds("दान", "दान", WHOLE), ["दान"])
PYTHON
venv/bin/python program.py
