"""A server over streamable HTTP of an earlier version of the protocol, which has sessions: `python sessions.py http PORT`.

It does not answer requests with the method `$HANGS`, nor, if there is one, the end of a session.
"""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SESSION = f"session-{os.getpid()}"
RESULTS = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "sessions", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "tool", "inputSchema": {"type": "object"}}]},
    "tools/call": {"content": [{"type": "text", "text": SESSION}]},
}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method = message["method"]
        if method == os.environ.get("HANGS"):
            time.sleep(1000)
        elif method in ("tools/list", "tools/call") and self.headers["Mcp-Session-Id"] != SESSION:
            self.answer(404, b"")
        elif "id" not in message:
            self.answer(202, b"")
        else:
            found = RESULTS.get(method)
            said = {"result": found} if found else {"error": {"code": -32601, "message": "unknown"}}
            self.answer(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}).encode())

    def do_GET(self):
        self.answer(405, b"")

    def do_DELETE(self):
        if os.environ.get("HANGS"):
            time.sleep(1000)
        self.answer(200, b"")

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Mcp-Session-Id", SESSION)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
