"""The HTTP below the test server: the standard library's, with a thread for each connection."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import orjson

from graphagent.testing._server import RawResponse, json_response

if TYPE_CHECKING:
    from graphagent.testing._server import OpenAIServer


_WITHOUT_REPLY = ("/v1/embeddings", "/v1/moderations", "/v1/rerank")
"""The paths whose responses are made of the request alone."""


class HttpServer(ThreadingHTTPServer):
    """Listens on a free port of 127.0.0.1 and asks an OpenAIServer for its answers."""

    daemon_threads = True

    def __init__(self, script: OpenAIServer) -> None:
        self.script = script
        self.connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def server_bind(self) -> None:
        """Bind a port, without the lookup of this machine's name in HTTPServer, which can take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.socket.getsockname()[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: in many tests a client disconnects in the middle."""

    def close(self) -> None:
        """Stop listening, and close the connections that clients keep open."""
        self.shutdown()
        self.server_close()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each small chunk of a stream waits for the acknowledgement of the last

    def setup(self) -> None:
        super().setup()
        self._http.connections.add(self.connection)

    def finish(self) -> None:
        self._http.connections.discard(self.connection)
        super().finish()

    @property
    def _http(self) -> HttpServer:
        return cast("HttpServer", self.server)

    def do_GET(self) -> None:
        if self.path != "/v1/models":
            return self._missing()
        models = [{"id": self._http.script.model, "object": "model", "created": 0, "owned_by": "graphagent"}]
        return self._send(json_response({"object": "list", "data": models}), None)

    def do_POST(self) -> None:
        headers = {str(name).lower(): str(value) for name, value in self.headers.items()}
        content = self.rfile.read(int(headers.get("content-length", 0)))
        path = urlsplit(self.path).path
        if path not in ("/v1/responses", "/v1/chat/completions", *_WITHOUT_REPLY):
            return self._missing()
        try:
            read = orjson.loads(content)
        except ValueError:
            read = None
        if not isinstance(read, dict):
            return self._send(json_response({"error": {"message": "the body is not a JSON object"}}, 400), None)
        body = cast("dict[str, Any]", read)
        if path in _WITHOUT_REPLY:
            return self._send(self._http.script.serve(path, body, headers), None)
        answer, after = self._http.script.answer(path, body, headers)
        return self._send(answer, after) if isinstance(answer, RawResponse) else self._stream(answer, after)

    def _missing(self) -> None:
        self._send(json_response({"error": {"message": f"unknown path {self.path}"}}, 404), None)

    def _send(self, answer: RawResponse, after: int | None) -> None:
        content = answer.body.encode() if isinstance(answer.body, str) else answer.body
        if after == 0:
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in {"content-length": str(len(content)), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content[:after])
        self.close_connection = self.close_connection or after is not None

    def _stream(self, events: Iterable[bytes], after: int | None) -> None:
        if after == 0:
            self.close_connection = True
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        left = after
        for event in events:
            sent = event if left is None else event[:left]
            self.wfile.write(f"{len(sent):x}\r\n".encode() + sent + b"\r\n")
            if left is not None:
                left -= len(sent)
                if left == 0:
                    self.close_connection = True
                    return
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: tests look at `.requests`."""
