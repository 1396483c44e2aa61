#!/usr/bin/env bash
# `timeout=1` of the client openai.
# Guess: a call is over after a second or so, with an answer or an error.
# What happens: the limit is for each wait for a piece. An answer that comes in pieces of a third of a second takes as long as it likes. And
#   a server that is busy and says `Retry-After: 2` is asked three times, with the client asleep for two seconds in between, twice.
# For users: neither a deadline nor the number of requests is in the hands of who calls; budgets and rate limits around it do not see them.
# In graphagent: `timeout=` of a node, `max_seconds=` of an agent and `@tool(timeout=)` are for the whole; docs/models.md says what `timeout=`
#   and `max_retries=` of a model mean.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check openai==3.57.0
cd "$folder"

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import openai

print("openai", version("openai"))
print("guess: about a second, one request")

ANSWER = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello."}}],
}


class Server(BaseHTTPRequestHandler):
    requests = 0

    def do_POST(self):
        Server.requests += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps(ANSWER).encode()
        if self.path.startswith("/busy"):
            self.send_response(429)
            self.send_header("Retry-After", "2")
            body = b"{}"
        else:
            self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        size = len(body) // 9 + 1
        for at in range(0, len(body), size):
            self.wfile.write(body[at : at + size])
            self.wfile.flush()
            time.sleep(1 / 3)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()


def ask(path):
    Server.requests, began = 0, time.monotonic()
    client = openai.OpenAI(api_key="none", base_url=f"http://127.0.0.1:{server.server_port}/{path}", timeout=1)
    try:
        said = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hello?"}]).choices[0].message.content
    except openai.OpenAIError as error:
        said = type(error).__name__
    took = time.monotonic() - began
    print(f"      {path}: {took:.1f} s")
    return said, Server.requests, took > 2


compare("in pieces: answer, requests, longer than 2 s", ask("pieces"), ("Hello.", 1, True))
compare("busy: answer, requests, longer than 2 s", ask("busy"), ("RateLimitError", 3, True))
server.shutdown()
PYTHON
venv/bin/python program.py
