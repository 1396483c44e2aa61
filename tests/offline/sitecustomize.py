"""Keeps a Python process on this machine: any socket use that would leave it raises.

The tests load this themselves, and the programs that they start load it because its folder stands on PYTHONPATH.
"""

from __future__ import annotations

import ipaddress
import sys

HOST_AT = {"socket.connect": 1, "socket.bind": 1, "socket.sendto": 1, "socket.sendmsg": 1, "socket.getaddrinfo": 0,
           "socket.gethostbyname": 0, "socket.gethostbyaddr": 0}  # fmt: skip
"""Where each audited event names the host, or the address that begins with it."""


def is_local(host: object) -> bool:
    """Tell whether a host is this machine. None and text paths are: they name no host, or a Unix socket."""
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if host is None or host == "localhost" or not isinstance(host, str):
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def refuse_to_leave(event: str, arguments: tuple[object, ...]) -> None:
    """Raise where a socket would reach another machine, or be reached from one."""
    at = HOST_AT.get(event)
    if at is None:
        return
    place = arguments[at]
    if at == 1:
        if not isinstance(place, tuple):
            return
        place = place[0]
    if not is_local(place):
        raise PermissionError(f"tests stay on this machine, and {event} names {place!r}")


sys.addaudithook(refuse_to_leave)
