"""A server that asks questions during calls: `python asks.py [KIND | http PORT]`, in the language of the protocol.

KIND is `form`, `url`, `visit` (an error names the address), `sampling` (a model is to answer), `rounds` (the version of 2026: the result of
the call has the question) or `endless` (so has each one after it).
Calls are written to the file `$LOG`. The tool `tool` may be repeated, the tool `once` may not. Both return what was answered.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KIND = sys.argv[1] if __name__ == "__main__" else ""
ROUNDS = ("rounds", "endless")
SURE = {
    "type": "object",
    "properties": {"sure": {"type": "boolean"}, "note": {"type": "string", "default": "-", "maxLength": 5}},
}
SCHEMA = {**SURE, "required": ["sure"]}
OBJECT = {"type": "object"}
TOOLS = [
    {"name": "tool", "inputSchema": OBJECT, "annotations": {"idempotentHint": True}},
    {"name": "once", "inputSchema": OBJECT},
]
ASKS = {
    "form": {"mode": "form", "requestedSchema": SCHEMA},
    "url": {"mode": "url", "url": "https://example.org/pay", "elicitationId": "e"},
}
HELLO = {"capabilities": {"tools": {}}, "serverInfo": {"name": "asks", "version": "1"}}
CACHED = {"ttlMs": 0, "cacheScope": "public"}


def log(what):
    """Write it, and return how often it is there."""
    with open(os.environ.get("LOG", os.devnull), "a+") as file:
        file.write(f"{what}\n")
        file.seek(0)
        return file.read().splitlines().count(what)


def question(params, kind):
    """Return the parameters of the question of a call, whose arguments may say the message; `{}` in it is the number of the call."""
    calls = log(json.dumps(params["arguments"]))
    return {"message": params["arguments"].get("message", "Sure?").format(calls), **ASKS[kind]}


def text(said):
    return {"content": [{"type": "text", "text": said if isinstance(said, str) else json.dumps(said)}]}


def answer(method, params, ask):
    """Return the result of a request, or an error; `ask` asks the client."""
    if method == "initialize" and KIND not in ROUNDS:
        return {"protocolVersion": "2025-11-25", **HELLO}
    if method == "server/discover" and KIND in ROUNDS:
        return {"resultType": "complete", "supportedVersions": ["2026-07-28"], **HELLO, **CACHED}
    if method == "tools/list":
        return {"tools": TOOLS, **({"resultType": "complete", **CACHED} if KIND in ROUNDS else {})}
    if method != "tools/call":
        return {"code": -32601, "message": "unknown"}
    if KIND == "visit":
        if log("call") == 1:
            pages = [{"message": "First pay.", **ASKS["url"]}]
            return {"code": -32042, "message": "pay first", "data": {"elicitations": pages}}
        return text("paid")
    if KIND in ROUNDS:
        given = params.get("inputResponses")
        if given is None or KIND == "endless":
            sure = {"method": "elicitation/create", "params": question(params, "form")}
            return {"resultType": "input_required", "inputRequests": {"sure": sure}, "requestState": "state"}
        return {"resultType": "complete", **text([given["sure"], params["requestState"]])}
    asked = (
        {"messages": [], "maxTokens": 9} if KIND == "sampling" else question(params, "url" if KIND == "url" else "form")
    )
    return text([ask(asked) for _ in range(params["arguments"].get("times", 1))])


class CancelledCall(Exception):
    """The client has cancelled the call: it is not answered."""


def said_of(message, ask):
    found = answer(message["method"], message.get("params", {}), ask)
    return {"jsonrpc": "2.0", "id": message["id"], "error" if "code" in found else "result": found}


def stdio():
    numbers = iter(range(1000))

    def send(message):
        print(json.dumps(message), flush=True)

    def ask(params):
        number = f"q{next(numbers)}"
        method = "sampling/createMessage" if KIND == "sampling" else "elicitation/create"
        send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        for line in sys.stdin:
            message = json.loads(line)
            if message.get("id") == number:
                return message.get("result") or message["error"]["message"]
            log(message.get("method", "an answer"))
            if message.get("method") == "notifications/cancelled":
                raise CancelledCall
        return "nothing"

    for line in sys.stdin:
        messages = [json.loads(line)]
        if messages[0].get("params", {}).get("arguments", {}).get("with_next"):
            messages.append(json.loads(sys.stdin.readline()))
        for message in messages:
            if "method" in message and "id" in message:
                with suppress(CancelledCall):
                    send(said_of(message, ask))


class Handler(BaseHTTPRequestHandler):
    """Over HTTP, a question comes on the stream of its call."""

    answers: dict[str, object] = {}  # noqa: RUF012
    answered = threading.Condition()

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "method" not in message:
            with self.answered:
                self.answers[message["id"]] = message.get("result") or message["error"]["message"]
                self.answered.notify_all()
        if "method" not in message or "id" not in message:
            self.send_response(202)
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Mcp-Session-Id", "s")
        self.end_headers()
        self.send(said_of(message, self.ask))

    def send(self, message):
        self.wfile.write(f"event: message\ndata: {json.dumps(message)}\n\n".encode())
        self.wfile.flush()

    def ask(self, params):
        number = f"q{threading.get_ident()}"
        self.send({"jsonrpc": "2.0", "id": number, "method": "elicitation/create", "params": params})
        with self.answered:
            self.answered.wait_for(lambda: number in self.answers)
            return self.answers.pop(number)

    def do_GET(self):
        self.send_response(405)
        self.end_headers()

    def do_DELETE(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    if KIND == "http":
        ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
    else:
        stdio()
