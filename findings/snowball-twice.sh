#!/usr/bin/env bash
# Stemming what was stemmed.
# Guess: the stem of a stem is that stem, so a stage that stems again, such as a tokenizer of a search index, does no harm.
# What happens: often it is a shorter one, and another word's: in Russian "акрилом", "акрил", "акр"; in French "bière", "bier", "bi";
#   in English "database", "databas", "databa".
# For users: an index whose texts were stemmed before they came, asked with words that are stemmed once, finds nothing for these.
# In graphagent: texts and questions pass the same stages, the stemmer of their language and then the tokenizer of the index, once each
#   (graphagent/memory/notes/index/_stems.py).
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check snowballstemmer==3.1.1
cd "$folder"

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version

import snowballstemmer

print("snowballstemmer", version("snowballstemmer"))
print("guess: the second stem is the first one")
seen = []
for language, word in (("russian", "акрилом"), ("french", "bière"), ("english", "database"), ("german", "Bodensee".lower())):
    stem = snowballstemmer.stemmer(language).stemWord
    seen.append((stem(word), stem(stem(word))))
print("seen:", seen)
if seen != [("акрил", "акр"), ("bier", "bi"), ("databas", "databa"), ("bodense", "bodens")]:
    sys.exit("CHANGED: it was ('акрил', 'акр'), ('bier', 'bi'), ('databas', 'databa'), ('bodense', 'bodens')")
PYTHON
venv/bin/python program.py
