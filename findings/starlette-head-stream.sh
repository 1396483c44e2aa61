#!/usr/bin/env bash
# A HEAD request for a path whose function returns a StreamingResponse. Starlette adds HEAD to every route for GET.
# Guess: the headers are sent, and the body, which HEAD does not have, is not made.
# What happens: the headers are sent at once, and then the whole body is made and dropped, piece by piece, as if somebody read it. Another
#   request over the same connection waits until it is over.
# For users: a link checker, a browser extension or a health check that sends HEAD, so as to cost nothing, has the whole answer of a model
#   generated, or follows the events of a run to their end. A function that begins with `if request.method == "HEAD"` helps.
# In graphagent: docs/recipes/chat-service.md streams in answer to a POST; the streams of examples/service follow runs that workers execute.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check starlette==1.10.0 uvicorn==0.54.0 h11==0.16.0 anyio==4.16.0
cd "$folder"

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


import asyncio
import socket

import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

print("starlette", version("starlette"), "uvicorn", version("uvicorn"))
print("guess: no piece is made, and the next request is answered at once")
made = []


async def pieces():
    for number in range(30):
        made.append(number)
        yield b'{"piece": %d}\n' % number
        await asyncio.sleep(0.05)
    made.append("end")


async def stream(request):
    return StreamingResponse(pieces(), media_type="application/x-ndjson")


async def short(request):
    return PlainTextResponse("short")


async def main():
    listener = socket.create_server(("127.0.0.1", 0))
    app = Starlette(routes=[Route("/stream", stream), Route("/short", short)])
    server = uvicorn.Server(uvicorn.Config(app, http="h11", lifespan="off", log_level="critical"))
    serving = asyncio.create_task(server.serve([listener]))
    while not server.started:
        await asyncio.sleep(0.01)
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    writer.write(b"HEAD /stream HTTP/1.1\r\nHost: here\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    print("pieces when the headers are there:", len(made))
    writer.write(b"GET /short HTTP/1.1\r\nHost: here\r\n\r\n")
    between = await reader.readuntil(b"HTTP/1.1 200 OK\r\n")
    await reader.readuntil(b"short")
    writer.close()
    server.should_exit = True
    await serving
    return between, made[-1]


between, last = asyncio.run(main())
compare("bytes of a body after the headers", between.removesuffix(b"HTTP/1.1 200 OK\r\n"), b"")
compare("what was made before the next request was answered", f"30 pieces, {last}", "30 pieces, end")
PYTHON
venv/bin/python program.py
