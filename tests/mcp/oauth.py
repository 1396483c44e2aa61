"""An MCP server over streamable HTTP that wants a token, with the server of OAuth that gives it, in the words of the protocols.

What it knows is in its attributes, which tests read and change: tokens by what they are, and what was asked.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlencode, urlsplit

TOOLS = [
    {"name": "whoami", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
    {"name": "pay", "inputSchema": {"type": "object"}},
]


class Site(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.lifetime = 3600
        """Seconds for which a token is said to be valid."""
        self.clients, self.codes, self.tokens, self.refreshes = {}, {}, {}, {}
        """Registrations, codes, and the users of tokens and of refresh tokens, which may be used once."""
        self.asked = []
        """The paths that were asked for, and the grants that were."""
        self.methods = []
        """What was asked in the language of the protocol."""
        self.calls = []
        """Who called which tool."""
        self.seen = []
        """The headers in which a token was sent, by the paths."""
        self.fails = {}
        """What is answered in the place of an answer, by paths: status, headers and body."""
        self.gives = threading.Event()
        """Whether tokens are given; otherwise whoever asks for one waits."""
        self.gives.set()
        self.asks = ""
        """What a call of `pay` asks the user first: to `visit` a page, or a `form`, in the stream of the call."""
        self.answered = threading.Event()
        self.scope = ""
        """The scope without which a call of `pay` is refused."""
        self.is_modern = False
        """Whether `initialize` without a token is a request that it does not know."""
        self.lock = threading.Lock()

    def new_tokens(self, user, scope):
        access, refresh = f"access-{secrets.token_hex(8)}", f"refresh-{secrets.token_hex(8)}"
        self.tokens[access], self.refreshes[refresh] = (user, scope), (user, scope)
        return {
            "access_token": access, "token_type": "Bearer", "expires_in": self.lifetime, "refresh_token": refresh, "scope": scope,
        }  # fmt: skip

    @property
    def secrets(self):
        """All that nobody may be shown."""
        return [*self.tokens, *self.refreshes, *(each["client_secret"] for each in self.clients.values())]


class Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self):
        path, asked = self.begin()
        if path in self.server.fails:
            self.answer(*self.server.fails[path])
        elif path == "/.well-known/oauth-protected-resource/mcp":
            self.answer(200, {}, {"resource": f"{self.server.url}/mcp", "authorization_servers": [self.server.url]})
        elif path == "/.well-known/oauth-authorization-server":
            self.answer(200, {}, {
                "issuer": self.server.url, "authorization_endpoint": f"{self.server.url}/authorize",
                "token_endpoint": f"{self.server.url}/oauth/token", "registration_endpoint": f"{self.server.url}/register",
            })  # fmt: skip
        elif path == "/authorize":
            self.authorize(asked)
        else:
            self.answer(404 if path != "/mcp" else 405)

    def authorize(self, asked):
        """Grant what is asked at once, to the user whom the test has put into the address."""
        client = self.server.clients[asked["client_id"]]
        assert asked["redirect_uri"] in client["redirect_uris"]
        assert asked["code_challenge_method"] == "S256"
        assert asked["resource"] == f"{self.server.url}/mcp"
        if asked["user"] == "nobody":
            said = {"error": "access_denied", "state": asked["state"]}
        else:
            code = f"code-{secrets.token_hex(8)}"
            self.server.codes[code] = asked
            said = {"code": code, "state": asked["state"]}
        self.answer(302, {"Location": f"{asked['redirect_uri']}?{urlencode(said)}"})

    def do_POST(self):
        path, _ = self.begin()
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if path in self.server.fails:
            self.answer(*self.server.fails[path])
        elif path == "/register":
            client = {**json.loads(body), "client_id": f"client-{secrets.token_hex(4)}", "client_secret": f"secret-{secrets.token_hex(8)}", "token_endpoint_auth_method": "client_secret_post"}  # fmt: skip
            self.server.clients[client["client_id"]] = client
            self.answer(201, {}, client)
        elif path == "/oauth/token":
            with self.server.lock:
                self.token(dict(parse_qsl(body.decode())))
        elif path == "/mcp":
            self.mcp(json.loads(body))
        else:
            self.answer(404)

    def token(self, asked):
        self.server.asked.append(asked["grant_type"])
        given = base64.b64decode(self.headers.get("Authorization", "").removeprefix("Basic ")).decode()
        if given:
            asked["client_secret"] = given.partition(":")[2]
        client = self.server.clients.get(asked["client_id"])
        if client is None or asked.get("client_secret") != client["client_secret"]:
            self.answer(401, {}, {"error": "invalid_client", "error_description": str(asked)})
        elif asked["grant_type"] == "refresh_token":
            known = self.server.refreshes.pop(asked["refresh_token"], None)
            self.server.gives.wait()
            self.give(known, asked)
        else:
            known = self.server.codes.pop(asked["code"], None)
            digest = hashlib.sha256(asked["code_verifier"].encode()).digest()
            fits = (
                known is not None and base64.urlsafe_b64encode(digest).decode().rstrip("=") == known["code_challenge"]
            )
            self.give((known["user"], known.get("scope", "")) if fits else None, asked)

    def give(self, known, asked):
        if known is None:  # like a careless server, it repeats what it was sent
            self.answer(400, {}, {"error": "invalid_grant", "error_description": str(asked)})
        else:
            self.answer(200, {}, self.server.new_tokens(*known))

    def mcp(self, message):
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        user, scope = self.server.tokens.get(token, (None, ""))
        if user is None and message.get("method") == "initialize" and self.server.is_modern:
            self.answer(400)
            return
        if user is None:
            described = f"{self.server.url}/.well-known/oauth-protected-resource/mcp"
            self.answer(401, {"WWW-Authenticate": f'Bearer resource_metadata="{described}"'}, {"error": f"no: {token}"})
            return
        method, named = message.get("method", "answer"), message.get("params", {}).get("name")
        self.server.methods.append(method)
        if method == "tools/call" and named == "pay" and self.server.scope not in scope.split(" "):
            more = f'Bearer error="insufficient_scope", scope="{self.server.scope}"'
            self.answer(403, {"WWW-Authenticate": more})
            return
        if named == "pay" and self.server.asks == "visit":
            self.server.asks = ""
            page = {"mode": "url", "message": "First pay.", "url": "https://example.org/pay", "elicitationId": "e"}
            refusal = {"code": -32042, "message": "pay first", "data": {"elicitations": [page]}}
            self.answer(200, {}, {"jsonrpc": "2.0", "id": message["id"], "error": refusal})
            return
        if named == "pay" and self.server.asks == "form":
            asked = {"message": "Sure?", "requestedSchema": {"type": "object", "properties": {}}}
            self.answer(200, {"Content-Type": "text/event-stream", "Content-Length": "1000000"})
            self.event({"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": asked})
            self.server.answered.wait()
        if method == "answer":
            self.server.answered.set()
        results = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "site", "version": "1"}},
            "tools/list": {"tools": TOOLS},
            "tools/call": {"content": [{"type": "text", "text": f"{named} for {user}"}]},
        }  # fmt: skip
        if method == "tools/call":
            self.server.calls.append((named, user))
        if "id" not in message or method == "answer":
            self.answer(202)
        else:
            said = (
                {"result": results[method]} if method in results else {"error": {"code": -32601, "message": "unknown"}}
            )
            said = {"jsonrpc": "2.0", "id": message["id"], **said}
            if named == "pay" and self.server.asks == "form":
                self.event(said)
            else:
                self.answer(200, {}, said)

    def event(self, message):
        self.wfile.write(f"data: {json.dumps(message)}\n\n".encode())

    def do_DELETE(self):
        self.answer(200)

    def begin(self):
        parts = urlsplit(self.path)
        self.server.asked.append(parts.path)
        if "Authorization" in self.headers:
            self.server.seen.append(parts.path)
        return parts.path, dict(parse_qsl(parts.query))

    def answer(self, status, headers=(), body=None):
        sent = b"" if body is None else json.dumps(body).encode()
        if body == "large":
            sent = b" " * 2 * 1024 * 1024
        self.send_response(status)
        for name, each in {
            "Content-Type": "application/json",
            "Content-Length": str(len(sent)),
            **dict(headers),
        }.items():
            self.send_header(name, each)
        self.end_headers()
        with suppress(OSError):  # nobody reads it any more
            self.wfile.write(sent)
            while body in ("large", "slow"):  # which do not end
                time.sleep(0.05)
                self.wfile.write(b" ")

    def log_message(self, *_):
        pass


@contextmanager
def serving():
    """Run a site in a thread."""
    site = Site()
    thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield site
    finally:
        site.shutdown()
        thread.join()
        site.server_close()


def visit(address, user):
    """Do what a browser does, as a user who agrees. Return the address to which it is sent."""
    parts = urlsplit(address)
    browser = HTTPConnection(parts.hostname, parts.port)
    browser.request("GET", f"{parts.path}?{parts.query}&user={user}")
    found = browser.getresponse().getheader("Location")
    browser.close()
    return found
