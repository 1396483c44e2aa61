"""Sign-ins with the browser that a run waits for: the redirect arrives at this machine, or is pasted."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler
from select import select
from socketserver import TCPServer
from typing import TYPE_CHECKING, cast
from urllib.parse import SplitResult, parse_qs, urlsplit

from graphagent.cli._output import complain, say
from graphagent.cli._prompts import interruptible
from graphagent.errors import AnswerError

if TYPE_CHECKING:
    from graphagent.run import Question


def place_of(question: Question) -> SplitResult | None:
    """Return where the browser is sent after the sign-in that a question asks for, if that is this machine."""
    if question.kind != "question" or not isinstance(question.about, str):
        return None
    [place] = parse_qs(urlsplit(question.about).query).get("redirect_uri", [""])
    found = urlsplit(place)
    return found if found.scheme == "http" and found.hostname in ("127.0.0.1", "localhost") else None


def redirect_of(question: Question, place: SplitResult) -> str | None:
    """Return the address to which the browser is sent, as it arrives or as the person pastes it; None if they leave.

    Raises:
        Exit: The person pressed Ctrl-C.
    """
    try:
        server = _Server(place)
    except OSError:  # something else listens there
        server = None
    say(question.question)
    try:
        with interruptible():
            while True:
                found = _next(server)
                try:
                    return found and str(question.check(found))
                except AnswerError as error:
                    complain(str(error))
    finally:
        if server is not None:
            server.server_close()


def _next(server: _Server | None) -> str | None:
    """Return the next address that arrives, or the next line that a person types; None at the end of the input."""
    while True:
        # On Windows, only sockets can be waited for like this.
        typed = [] if sys.platform == "win32" and server is not None else [sys.stdin]
        ready = select([*typed, *([] if server is None else [server])], [], [])[0]
        if server is not None and server in ready:
            server.handle_request()
            if server.found:
                found, server.found = server.found, ""
                return found
        elif line := sys.stdin.readline():
            if line.strip():
                return line.strip()
        else:
            return None


class _Server(TCPServer):
    allow_reuse_address = True

    def __init__(self, place: SplitResult) -> None:
        super().__init__((place.hostname or "", place.port or 80), _Handler)
        self.place = place
        self.found = ""


class _Handler(BaseHTTPRequestHandler):
    timeout = 5  # seconds for which a browser may connect without asking for anything

    def do_GET(self) -> None:  # the name that http.server calls
        server, asked = cast("_Server", self.server), urlsplit(self.path)
        place = server.place
        is_it = (asked.path or "/") == (place.path or "/")
        if is_it:
            server.found = place._replace(query=asked.query).geturl()
        said = b"You can close this page.\n" if is_it else b"There is nothing here.\n"
        self.send_response(200 if is_it else 404)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: object) -> None:
        pass
