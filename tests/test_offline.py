"""No test can reach another machine."""

from __future__ import annotations

import socket
import subprocess
import sys

import anyio
import pytest

ELSEWHERE = "192.0.2.1"  # kept free for documentation (RFC 5737)


async def test_a_connection_to_another_machine_fails_at_once():
    """A connection by address raises before anything is sent."""
    with anyio.fail_after(600), pytest.raises(OSError, match="connection attempts failed") as caught:
        await anyio.connect_tcp(ELSEWHERE, 443)
    assert "tests stay on this machine" in str(caught.value.__cause__)


@pytest.mark.parametrize("name", ["example.org", b"example.org", "2001:db8::1", ""])
def test_names_of_other_machines_are_not_looked_up(name):
    """A name is refused before a name server is asked."""
    with pytest.raises(PermissionError, match="getaddrinfo"):
        socket.getaddrinfo(name, 443)


def test_nothing_listens_to_other_machines():
    """A server binds to loopback or not at all."""
    with socket.socket() as server, pytest.raises(PermissionError, match=r"socket\.bind"):
        server.bind(("0.0.0.0", 0))


def test_programs_that_a_test_starts_stay_here_too():
    """The guard is inherited by Python processes."""
    program = f"import socket; socket.create_connection(({ELSEWHERE!r}, 443))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert "tests stay on this machine" in ended.stderr


async def test_this_machine_can_be_reached():
    """Loopback works, by name and by number."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        for name in ("127.0.0.1", "localhost"):
            async with await anyio.connect_tcp(name, port):
                pass
