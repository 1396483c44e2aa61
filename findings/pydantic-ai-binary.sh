#!/usr/bin/env bash
# How a picture is written in a stored conversation of pydantic-ai.
# Guess: `ModelMessagesTypeAdapter.dump_json` writes bytes in the base64 of data URLs, since the same object has `data_uri`, which does.
# What happens: it writes the alphabet for URLs, with - and _, in which strict readers of base64 see characters that do not belong there,
#   and lenient ones leave these out and return fewer bytes, if the length happens to fit.
# For users: a conversation that is read by another program loses its pictures, with an error or without one.
# In graphagent: the reader takes both alphabets (graphagent/migrate/pydantic_ai.py, tests/migrate/test_messages.py).
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pydantic-ai-slim==2.68.0
cd "$folder"

cat >program.py <<'PYTHON'
import base64
import json
import sys
from importlib.metadata import version

from pydantic_ai.messages import BinaryContent, ModelMessagesTypeAdapter, ModelRequest, UserPromptPart

print("pydantic-ai", version("pydantic-ai-slim"))
print("guess: the text of the dump is the base64 of the data URL")
data = b"\xff\xff\xff" + b"abc"
part = BinaryContent(data, media_type="image/png")
dumped = json.loads(ModelMessagesTypeAdapter.dump_json([ModelRequest([UserPromptPart([part])])]))
written = dumped[0]["parts"][0]["content"][0]["data"]
seen = {
    "in the data URL": part.data_uri.endswith("," + base64.b64encode(data).decode()),
    "in the dump": written == base64.b64encode(data).decode(),
    "for URLs in the dump": written == base64.urlsafe_b64encode(data).decode(),
    "what a lenient reader gets": base64.b64decode(written),
}
print("seen:", seen)
if list(seen.values()) != [True, False, True, b"abc"]:
    sys.exit("CHANGED: the dump had the alphabet for URLs")
PYTHON
venv/bin/python program.py
