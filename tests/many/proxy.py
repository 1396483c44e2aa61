"""A proxy on loopback before the socket of a server, which cuts connections wherever they are."""

from __future__ import annotations

import asyncio
import contextlib


class Proxy:
    """Passes bytes on, and cuts some connections when it is told to: also in the middle of a message."""

    def __init__(self, socket):
        self._socket, self._open, self._ended = socket, {}, False
        self.port = 0

    @contextlib.asynccontextmanager
    async def serving(self):
        """Serve within the block."""
        async with await asyncio.start_server(self._pass_on, "127.0.0.1") as server:
            self.port = server.sockets[0].getsockname()[1]
            try:
                yield
            finally:
                server.close()
                self._ended = True
                for both in self._open.values():
                    _cut(both)
                while self._open:  # noqa: ASYNC110  they end by themselves
                    await asyncio.sleep(0.01)

    def cut(self, chance):
        """Cut some connections; return how many."""
        chosen = [each for each in self._open.values() if chance.random() < 0.5]
        for both in chosen:
            _cut(both)
        return len(chosen)

    async def _pass_on(self, reader, client):
        try:
            there, server = await asyncio.open_unix_connection(self._socket)
        except OSError:  # the server is down
            client.transport.abort()
            return
        if self._ended:  # it was accepted before, and nobody would cut it
            _cut((client, server))
            return
        self._open[client] = client, server
        try:
            await asyncio.gather(_copy(reader, server), _copy(there, client))
        except asyncio.CancelledError:
            pass  # the loop ends, and asyncio would print each connection
        finally:
            del self._open[client]


async def _copy(reader, writer):
    """Copy all that comes, and end the other direction, too."""
    with contextlib.suppress(OSError):
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


def _cut(both):
    for each in both:
        each.transport.abort()
