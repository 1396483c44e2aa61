#!/usr/bin/env bash
# A service that `uvicorn.run` serves, and that reports to OpenTelemetry, is stopped by SIGTERM, as containers and systemd do.
# Guess: uvicorn finishes what it does and returns, Python ends as usual, and the provider, which registered with atexit, exports its last spans.
# What happens: the lifespan of the application is ended in order, and then uvicorn sends the same signal again, with the handler of before, which
#   kills the process: status -15, no `finally` around `run`, no atexit, and the spans of the last seconds are lost. Ctrl-C, which one tries by
#   hand, does all of it, since the handler of Python for SIGINT raises KeyboardInterrupt.
# For users: each deployment loses the spans of its last seconds, and whatever else is flushed at exit, and no trial with Ctrl-C shows it. What
#   has to be done at the end belongs in the lifespan: `provider.shutdown()`.
# In graphagent: `graphagent inspect` and servers of memory leave signals to the command (graphagent/_web.py), and end by returning.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    uvicorn==0.54.0 h11==0.16.0 starlette==1.10.0 opentelemetry-sdk==1.45.2 opentelemetry-api==1.45.2
cd "$folder"

cat >service.py <<'PYTHON'
import atexit
from contextlib import asynccontextmanager
from functools import partial

import uvicorn
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

tell = partial(print, flush=True)
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter(formatter=lambda span: f"span {span.name}\n")))
tracer = provider.get_tracer("service")
atexit.register(tell, "atexit")


@asynccontextmanager
async def lifespan(app):
    tell("ready")
    yield
    tell("end of lifespan")


async def greet(request):
    with tracer.start_as_current_span("greet"):
        return PlainTextResponse("hello")


try:
    uvicorn.run(Starlette(routes=[Route("/", greet)], lifespan=lifespan), uds="socket", http="h11", log_level="critical")
except KeyboardInterrupt:
    pass
finally:
    tell("finally")
PYTHON

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


import os
import signal
import socket
import subprocess
import time

print(*(f"{name} {version(name)}" for name in ("uvicorn", "opentelemetry-sdk")))
print("guess: end of lifespan, finally, span greet, atexit; status 0; both times")


def stopped(sent):
    """Return what a service that has answered a request says after a signal, and its status."""
    with subprocess.Popen([sys.executable, "service.py"], stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout.readline() == "ready\n"
        while not os.path.exists("socket"):
            time.sleep(0.05)
        with socket.socket(socket.AF_UNIX) as client:
            while client.connect_ex("socket"):
                time.sleep(0.05)
            client.sendall(b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
            while client.recv(1000):
                pass
        service.send_signal(sent)
        said = service.stdout.read().split("\n")[:-1]
    return sorted(said), service.returncode


compare("SIGINT", stopped(signal.SIGINT), (["atexit", "end of lifespan", "finally", "span greet"], 0))
if os.path.exists("socket"):
    os.remove("socket")
compare("SIGTERM", stopped(signal.SIGTERM), (["end of lifespan"], -15))
PYTHON
venv/bin/python program.py
