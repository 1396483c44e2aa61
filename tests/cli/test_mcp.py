"""`graphagent mcp`: what it refuses before it serves. Servers that work are in tests/memory_server."""

from __future__ import annotations

import socket

import pytest


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--token env:TOKEN", "--token, --host and --origin are for --http"),
        ("--http here", "'here' is not an address; write a port, or a host and a port: 127.0.0.1:8765"),
        ("--http 99999", "'99999' is not an address"),
        ("--http 0.0.0.0:8765", "other machines can reach '0.0.0.0'; give a token"),
        ("--http 0 --token plum-quarry-ledger", "everybody on this machine can see the arguments"),
        ("--http 0 --token env:NOTHING", "'env:NOTHING' has no token"),
        ("--http 0 --token file:nothing", "the token cannot be read from 'nothing'"),
        ("--scope /a --scope /b", "one scope of notes can be served"),
        ("--scope agent:", "'agent:' is not a scope"),
        ("--scope /a//..", "scope '/a//..'"),
        ("--trust high", "trust='high' is not a level of trust"),
        ("--key env:NOTHING", "NOTHING"),
    ],
)
def test_a_wrong_option_is_named(run, words, said):
    """With what to write instead, and without the token."""
    ended = run("mcp", *words.split())
    assert ended.code in (1, 2)
    assert said in ended.said
    assert "quarry" not in ended.said
    assert ended.out == ""


def test_a_port_that_is_in_use_is_named(run):
    """Instead of a traceback."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = run("mcp", "--http", port)
    assert ended.code == 2
    assert f"127.0.0.1:{port} cannot be listened at: Address already in use; --http 0 takes a free port" in ended.said
