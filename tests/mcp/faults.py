"""A server that does what each call asks it to do wrong: `python faults.py stdio [BEGIN]` or `python faults.py http PORT`.

`BEGIN` is what it does wrong before it is called; with `two`, it answers nothing before two servers have started.
A call of `wait` is answered when `go` is called.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

LARGE = b" " * 65 * 1024 * 1024
TOOL = {"name": "tool", "inputSchema": {"type": "object"}}
SESSION = f"session-{os.getpid()}"
BEGIN = sys.argv[2]
GO = threading.Event()
IDS = {}
"""The ids of calls by their faults."""


def text(said):
    return {"content": [{"type": "text", "text": said}]}


def quota(code):
    return {"code": int(code), "message": "quota exceeded, try tomorrow"}


def result(message):
    """Return the result of a request in which nothing is wrong; None for what is unknown."""
    match message["method"]:
        case "initialize":
            info = {"name": "faults", "version": "1"}
            return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            return text(str(os.getpid()))
    return None


def said(number, found):
    """Return a result, or an error, as the bytes of a message."""
    key = "error" if found is None or "code" in found else "result"
    found = found or {"code": -32601, "message": "unknown"}
    return json.dumps({"jsonrpc": "2.0", "id": number, key: found}).encode()


def started():
    with open(os.environ.get("LOG", os.devnull), "a") as log:
        log.write("started\n")


def write(data):
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


LOG_LINE = json.dumps(
    {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 100}}
)
BEFORE = {
    "unended": lambda number: b"\x1b[2KWorking ...",
    "strangers": lambda number: b"".join(said(each, text("wrong")) + b"\n" for each in (None, 99_999, "x", number + 1)),
    "flood": lambda number: (LOG_LINE.encode() + b"\nrubbish\n\n") * 5_000,
    "asks": lambda number: b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n' * 5_000,
    "large other": lambda number: b'{"jsonrpc": "2.0", "method": "notifications/message", "params": ' + LARGE + b"\n",
}
"""What is written before the answer to a call, over stdio."""
INSTEAD = {
    "twice": lambda right, number: right + b"\n" + said(number, text("wrong")),
    "large first": lambda right, number: right.replace(b"[", b"[" + LARGE),
    "large last": lambda right, number: (
        b'{"result": {"content": []' + LARGE + b'}, "id": %d, "jsonrpc": "2.0"}' % number
    ),
    "waits": lambda right, number: said(number, text(str("wait" in IDS))),
}
"""What is written in the place of the answer to a call, over stdio."""


def call(number, arguments):
    """Answer a call over stdio, or do not."""
    fault = arguments.get("fault", "")
    kind, _, detail = fault.partition(" ")
    if kind == "go":
        write(said(IDS.pop("wait"), text("waited")) + b"\n")
    IDS[kind] = number
    if kind == "orphan":
        subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"])
        os._exit(1)
    if kind == "deaf":
        time.sleep(1000)
    if kind in ("wait", "silent"):
        return
    if kind == "rubbish":
        write("Grüße, 日本\n".encode(detail, errors="replace") * 3)
    write(BEFORE.get(fault, lambda number: b"")(number))
    right = said(number, quota(detail) if kind == "code" else text(str(os.getpid())))
    write(INSTEAD.get(fault, lambda right, number: right)(right, number) + b"\n")


def stdio():
    started()
    for number, line in enumerate(sys.stdin):
        message = json.loads(line)
        if BEGIN == "initialize" and number == 0 and message["method"] != "initialize":
            sys.exit(1)
        if "id" not in message or "method" not in message:
            continue
        while BEGIN == "two" and Path(os.environ["LOG"]).read_text().count("started") < 2:
            time.sleep(0.01)
        if BEGIN == "list" and message["method"] == "tools/list":
            write(said(message["id"], {"tools": [{**TOOL, "description": LARGE.decode()}]}) + b"\n")
        elif message["method"] == "tools/call":
            call(message["id"], message["params"]["arguments"])
        else:
            write(said(message["id"], result(message)) + b"\n")


EVENTS = {"kind": "text/event-stream"}
WRONG = {
    "status": lambda right, number, detail: (int(detail[:3]), detail[4:].encode(), {}),
    "refused": lambda right, number, detail: (
        int(detail),
        said(number, {"code": -32602, "message": "Unknown document 17"}),
        {},
    ),
    "other": lambda right, number, detail: (200, right.replace(b'"id": %d' % number, b'"id": %d' % IDS["wait"]), {}),
    "none": lambda right, number, detail: (200, said(None, {"code": -32602, "message": "no id"}), {}),
    "half": lambda right, number, detail: (200, right.replace(b'"text": "', b'"text": "\\ud83c'), {}),
    "shorter": lambda right, number, detail: (200, right, {"length": len(right) + 10}),
    "longer": lambda right, number, detail: (200, right, {"length": len(right) - 10}),
    "ended": lambda right, number, detail: (200, b'data: {"jsonrpc": "2.0", "method": "x"}\n\n', EVENTS),
    "json": lambda right, number, detail: (200, right.replace(b"[", b"[" + LARGE), {}),
    "zipped": lambda right, number, detail: (200, gzip.compress(LARGE), {"coding": "gzip"}),
    "event": lambda right, number, detail: (200, b"data: " + LARGE, EVENTS),
    "refusal": lambda right, number, detail: (400, LARGE, {}),
    "redirect": lambda right, number, detail: (307, LARGE, {"location": "http://localhost:1/mcp"}),
}
"""The status, the body and the headers of the response to a call."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        number, method = message.get("id"), message["method"]
        if method == "notifications/cancelled":
            time.sleep(1000)
        elif number is None:
            self.answer(202, b"")
        elif method in ("tools/list", "tools/call") and self.headers["Mcp-Session-Id"] != SESSION:
            self.answer(400, b'{"jsonrpc": "2.0", "error": {"code": -32000, "message": "No valid session ID"}}')
        elif method == "tools/call":
            self.call(number, message["params"]["arguments"])
        else:
            self.answer(200, said(number, result(message)))

    def call(self, number, arguments):
        """Answer a call over HTTP, or do not."""
        fault, right = arguments.get("fault", ""), text(str(os.getpid()))
        kind, _, detail = fault.partition(" ")
        IDS[kind] = number
        if kind == "wait":
            GO.wait()
            right = text("waited")
        elif kind == "waits":
            right = text(str((detail or "wait") in IDS))
        elif kind == "go":
            del IDS["wait"]
            GO.set()
            GO.clear()
        elif kind == "code":
            right = quota(detail)
        elif kind == "silent":
            time.sleep(1000)
        elif kind == "endless":
            self.flood()
        elif kind == "nothing":
            self.close_connection = True
        elif kind == "garbage":
            self.wfile.write(b"\x00\x01\x02 hello\r\n\r\n")
        if kind not in ("endless", "nothing", "garbage"):
            status, body, options = WRONG.get(kind, lambda right, number, detail: (200, right, {}))(
                said(number, right), number, detail
            )
            self.answer(status, body, **options)

    def flood(self):
        """Send events without an end, and note when nobody reads them any more."""
        self.answer(200, b"", length="", **EVENTS)
        try:
            while True:
                self.wfile.write(b"id: 1\nretry: 0\ndata: " + LOG_LINE.encode() + b"\n\n")
        except OSError:
            IDS["over"] = 0

    def do_GET(self):
        self.answer(405, b"")

    def do_DELETE(self):
        self.answer(200, b"")

    def answer(self, status, body, kind="application/json", length=None, coding="", location=""):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if length != "":
            self.send_header("Content-Length", str(len(body) if length is None else length))
        self.send_header("Mcp-Session-Id", SESSION)
        for name, value in (("Content-Encoding", coding), ("Location", location)):
            if value:
                self.send_header(name, value)
        self.end_headers()
        self.close_connection = length is not None
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    def handle_error(self, *_):  # a client that does not read all of it
        pass


if sys.argv[1] == "stdio":
    stdio()
else:
    Server(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
