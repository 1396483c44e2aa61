#!/usr/bin/env bash
# The name of a special token in a text, such as the note "BERT puts [SEP] between sentences".
# Guess: it is text. Special tokens are what `add_special_tokens=True` adds, and with False there are none.
# What happens: the name is the token, with True and with False: the model is told that a sentence ends, or that a word is unknown.
#   `encode_special_tokens = True`, which is a property of the tokenizer and not of the call, makes it text.
# For users: vectors of texts about models, markup (<s> is struck-out text in HTML) or templates mean something else; an `<unk>` in a text is
#   counted as unknown.
# In graphagent: both embedders set it (graphagent/embed/local.py, static.py; tests/embed/test_words.py).
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check tokenizers==0.23.3
cd "$folder"

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


from tokenizers import Tokenizer, models, pre_tokenizers

print("tokenizers", version("tokenizers"))
print("guess: ['puts', '[', 'sep', ']', 'between']")

pieces = {piece: number for number, piece in enumerate(["[UNK]", "[SEP]", "[", "]", "sep", "puts", "between"])}
tokenizer = Tokenizer(models.WordPiece(pieces, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
tokenizer.add_special_tokens(["[SEP]", "[UNK]"])
TEXT = "puts [SEP] between"
compare("add_special_tokens=False", tokenizer.encode(TEXT, add_special_tokens=False).tokens, ["puts", "[SEP]", "between"])
tokenizer.encode_special_tokens = True
compare(
    "with encode_special_tokens", tokenizer.encode(TEXT.lower(), add_special_tokens=False).tokens, ["puts", "[", "sep", "]", "between"]
)
PYTHON
venv/bin/python program.py
