#!/usr/bin/env bash
# A client goes away in the middle of a StreamingResponse whose body is a generator, which has to end something in `finally`.
# Guess: the generator is closed, whether it is written with `async def` or `def`; Starlette iterates both.
# What happens: an `async def` one is cancelled at once. One with `def` is left as it is, suspended and not closed. It is part of a cycle, so not
#   even its last reference closes it, only the next full garbage collection. A background task of the response is executed before that.
# For users: database cursors, locks and running jobs of clients that left are held for minutes, by an amount that nobody sees in a test.
# In graphagent: docs/recipes/chat-service.md and examples/service/web.py stream from asynchronous generators.
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
import gc
import socket
import time

import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.responses import StreamingResponse
from starlette.routing import Route

print("starlette", version("starlette"), "uvicorn", version("uvicorn"), "anyio", version("anyio"))
print("guess: closed, then the background task, both times")
happened = []


async def asynchronous():
    try:
        while True:
            yield b"."
            await asyncio.sleep(0.05)
    finally:
        happened.append("closed")


def synchronous():
    try:
        while True:
            yield b"."
            time.sleep(0.05)
    finally:
        happened.append("closed")


async def afterwards():
    happened.append("background task")


def streams(generator):
    async def endpoint(request):
        return StreamingResponse(generator(), background=BackgroundTask(afterwards))

    return endpoint


async def main():
    listener = socket.create_server(("127.0.0.1", 0))
    routes = [Route(f"/{each.__name__}", streams(each)) for each in (asynchronous, synchronous)]
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), http="h11", lifespan="off", log_level="critical"))
    serving = asyncio.create_task(server.serve([listener]))
    while not server.started:
        await asyncio.sleep(0.01)
    gc.disable()  # otherwise it would begin by itself at some time
    seen = []
    for each in (asynchronous, synchronous):
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(f"GET /{each.__name__} HTTP/1.1\r\nHost: here\r\n\r\n".encode())
        await reader.readuntil(b".")
        writer.close()
        while "background task" not in happened:
            await asyncio.sleep(0.05)
        await asyncio.sleep(2)
        seen.append(", ".join(happened))
        gc.collect()
        await asyncio.sleep(0.5)
        seen.append(", ".join(happened))
        happened.clear()
    server.should_exit = True
    await serving
    return seen


seen = asyncio.run(main())
compare("async def, 2 s after the client went", seen[0], "closed, background task")
compare("def, 2 s after the client went", seen[2], "background task")
compare("… after a garbage collection", seen[3], "background task, closed")
PYTHON
venv/bin/python program.py
