"""Sign-ins with the browser that a run waits for, at a terminal."""

from __future__ import annotations

import sys
from http.client import HTTPConnection
from urllib.parse import quote

import pexpect
import pytest

from tests import forkserver
from tests.mcp.test_http import free_port

PROGRAM = """
import sys
from typing import Annotated
from pydantic import AfterValidator
from graphagent.cli._sign_in import place_of, redirect_of
from graphagent.run import Question

def checked(text):
    if "state=s" not in text:
        raise ValueError("its state is another one")
    return text

address = sys.argv[1]
question = Question("q", f"Visit {address}", "n", about=address, type=Annotated[str, AfterValidator(checked)])
print("found:", redirect_of(question, place_of(question)))
"""


@pytest.fixture
def waiting():
    """Return what starts a command that waits for a sign-in, and the port at which it listens."""
    children = []

    def start():
        port = free_port()
        address = f"https://example.org/authorize?redirect_uri={quote(f'http://127.0.0.1:{port}/callback', '')}"
        child = forkserver.terminal(
            sys.executable, ["-c", PROGRAM, address], encoding="utf-8", timeout=60, dimensions=(24, 300)
        )
        children.append(child)
        child.expect_exact(f"Visit {address}")
        return child, port

    yield start
    for child in children:
        child.close(force=True)


def get(port, path):
    browser = HTTPConnection("127.0.0.1", port, timeout=60)
    browser.request("GET", path)
    answered = browser.getresponse()
    found = answered.status, answered.read()
    browser.close()
    return found


def test_the_redirect_arrives_at_this_machine(waiting):
    """Other pages that a browser asks for, and the redirect of another sign-in, are not answers."""
    child, port = waiting()
    assert get(port, "/favicon.ico")[0] == 404
    assert get(port, "/callback?code=c&state=other")[0] == 200
    child.expect_exact("its state is another one")
    assert get(port, "/callback?code=c&state=s") == (200, b"You can close this page.\n")
    child.expect_exact(f"found: http://127.0.0.1:{port}/callback?code=c&state=s")
    child.expect(pexpect.EOF)


def test_the_redirect_is_pasted(waiting):
    """As from a browser on another machine; what is no answer is said, and Ctrl-D leaves."""
    child, _ = waiting()
    child.sendline("yes")
    child.expect_exact("its state is another one")
    child.sendline("  https://x/?code=c&state=s ")
    child.expect_exact("found: https://x/?code=c&state=s")
    child, _ = waiting()
    child.sendeof()
    child.expect_exact("found: None")
