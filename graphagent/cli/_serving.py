"""Commands that serve over HTTP: their address, their token, and their end."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import typer
from anyio.abc import TaskStatus

from graphagent._raised import ungrouped
from graphagent.cli._options import value_of


def address_of(text: str, option: str) -> tuple[str, int]:
    """Return the host and the port that a text such as `127.0.0.1:8765` names; by default this machine alone."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535:
        raise typer.BadParameter(
            f"{text!r} is not an address; write a port, or a host and a port: 127.0.0.1:8765", param_hint=option
        )
    return host.strip("[]") or "127.0.0.1", int(port)


def token_at(place: str | None) -> str | None:
    """Return the token at a place.

    Raises:
        BadParameter: nothing is there, or it is not a place. The message does not contain the value, which may be a token.
    """
    if place is None:
        return None
    kind, _, where = place.partition(":")
    found = ""
    if kind == "env":
        found = os.environ.get(where, "")
    elif kind == "file":
        try:
            found = Path(where).expanduser().read_text("utf-8", "replace")
        except OSError as error:
            raise typer.BadParameter(
                f"the token cannot be read from {where!r}: {os.strerror(error.errno or 0)}", param_hint="--token"
            ) from None
    else:
        raise typer.BadParameter(
            "everybody on this machine can see the arguments of a command; write where the token is: env:NAME or file:PATH",
            param_hint="--token",
        )
    if not found.strip():
        raise typer.BadParameter(f"{place!r} has no token", param_hint="--token")
    return found.strip()


async def serve_until_stopped(serve: Callable[[], Awaitable[None]], address: tuple[str, int], option: str) -> None:
    """Serve at an address until a signal ends the process.

    Raises:
        BadParameter: the address cannot be listened at, or not without further options.
    """
    with ungrouped():
        async with anyio.create_task_group() as group:

            async def listen(*, task_status: TaskStatus[None]) -> None:
                with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                    task_status.started()
                    async for _ in signals:
                        group.cancel_scope.cancel()

            await group.start(listen)
            try:
                with value_of(option):
                    await serve()
            except OSError as error:
                reason = os.strerror(error.errno) if error.errno else str(error)
                advice = f"; {option} 0 takes a free port" if error.errno == errno.EADDRINUSE else ""
                raise typer.BadParameter(
                    f"{address[0]}:{address[1]} cannot be listened at: {reason}{advice}", param_hint=option
                ) from None
            group.cancel_scope.cancel()
