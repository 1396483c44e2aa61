"""A server in a process of its own: each message is a line of JSON on its standard input or output."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import anyio
from anyio.lowlevel import checkpoint
from mcp import MCPError
from mcp.client.stdio import get_default_environment
from mcp.os.posix.utilities import terminate_posix_process_tree
from mcp.os.win32.utilities import (
    close_process_job,
    create_windows_process,
    get_windows_executable_command,
    terminate_windows_process_tree,
)
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, JSONRPCRequest, jsonrpc_message_adapter

from graphagent.mcp._answers import Fault, failed
from graphagent.mcp._transports import LARGEST, Streams

if TYPE_CHECKING:
    from anyio.abc import ByteSendStream, ObjectSendStream
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

_GRACE = 2
"""Seconds that a process has to end by itself when its input is closed, and again when it is told to."""
_GLANCE = 1
"""Seconds between two checks whether a process is alive, and for reading its last output after its end."""
_FLUSH = 0.5
"""Seconds that a process has to read its messages before its input is closed."""
_MOST_WAITING = 1_000
"""Messages that a process has not read, at which it is not answered any more."""
_EDGE = 1_000
"""Bytes that are kept of both ends of a line that is too long."""
_AROUND = b"\0\xef\xbb\xbf \t\r"
"""Bytes around a line that come from UTF-16, byte order marks and other systems."""
_ID = rb'"id"\s*:\s*(\d+|"[^"\\]*")\s*'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"\s*'
_IDS = re.compile(rb"\A\s*\{\s*(?:%b,\s*)?%b,|%b(?:,\s*%b)?\}\s*\Z" % (_VERSION, _ID, _ID, _VERSION))
"""The id of an answer at either end of its line."""


class Stdio:
    """A server in a process of its own, which is spoken to over its standard input and output."""

    def __init__(
        self, command: str, arguments: tuple[str, ...], env: Mapping[str, str], cwd: Path | str | None
    ) -> None:
        self.command = command
        if not all(isinstance(each, str) for each in (command, *arguments, *env, *env.values())):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                "a command, its arguments and the variables of env= are texts; write str(…)"
            )  # they may be secret
        self._arguments, self._env, self._cwd = list(arguments), dict(env), cwd
        self.is_legacy = False

    @asynccontextmanager
    async def open(self, access: object = None) -> AsyncGenerator[Streams]:
        """Start the process, which has ended when the block has."""
        process = await self._start()
        heard, received = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        # A process that does not read must not keep a call from being given up in time.
        sent, waiting = anyio.create_memory_object_stream[SessionMessage](_MOST_WAITING)
        flushed = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(_hear, process.stdout, heard, sent)
            group.start_soon(_tell, process.stdin, waiting, heard, flushed)
            group.start_soon(_outlive, process, heard)
            try:
                yield received, sent
            finally:
                with anyio.CancelScope(shield=True):
                    received.close()  # its further output is ignored, so that it does not wait for a reader
                    sent.close()
                    with anyio.move_on_after(_FLUSH):
                        await flushed.wait()
                    await _stop(process)
                group.cancel_scope.cancel()

    def failure(self, error: BaseException | None, status: int) -> str:
        """Return why the process could not be started, or ended."""
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            apart = " (pass each argument by itself, as in stdio('npx', 'server'))" if " " in self.command else ""
            return f"cannot be started: there is no program {self.command!r}{apart}, or cwd= is not a folder"
        if isinstance(error, OSError | ValueError):
            return f"cannot be started ({type(error).__name__}); check the command {self.command!r}, env= and cwd="
        if isinstance(error, MCPError) and error.code != CONNECTION_CLOSED:
            return f"refused the connection (code {error.code}); check that {self.command!r} starts an MCP server"
        return f"ended before it answered; start {self.command!r} by hand to see why (it prints to stderr)"

    async def _start(self) -> Any:
        env = get_default_environment() | self._env
        if sys.platform == "win32":
            command = await anyio.to_thread.run_sync(get_windows_executable_command, self.command)
            return await create_windows_process(command, self._arguments, env, _stderr(), self._cwd)
        # In a session of its own, it is ended with all that it has started.
        return await anyio.open_process(
            [self.command, *self._arguments], env=env, cwd=self._cwd, stderr=_stderr(), start_new_session=True
        )


async def _hear(
    stdout: Any, heard: ObjectSendStream[SessionMessage | Exception], sent: MemoryObjectSendStream[SessionMessage]
) -> None:
    """Pass on the messages of a process, without its requests while it does not read the answers."""
    gone = (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)
    try:
        async with heard, aclosing(_messages(stdout)) as messages:
            with suppress(*gone):
                async for item in messages:
                    is_asked = isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCRequest)
                    if not is_asked or sent.statistics().current_buffer_used < _MOST_WAITING:
                        await heard.send(item)
    finally:
        with anyio.CancelScope(shield=True), suppress(*gone):
            while True:  # a process that waits for its output to be read does not end
                await stdout.receive()


async def _messages(stdout: AsyncIterable[bytes]) -> AsyncGenerator[SessionMessage | Exception]:
    """Yield the messages in the lines of a stream, and errors for invalid lines. Of lines that are too long, only the ends are kept."""
    parts: list[bytes] = []
    size = 0
    async for chunk in stdout:
        await checkpoint()  # a process may say so much that reading never waits
        for number, piece in enumerate(chunk.split(b"\n")):
            if number:
                line = b"".join(parts)
                item = _message(line) if size <= LARGEST else _too_large(line)
                if item is not None:
                    yield item
                parts, size = [], 0
            parts.append(piece)
            size += len(piece)
            if size > LARGEST:
                ends = b"".join(parts)
                parts = [ends[:_EDGE], ends[_EDGE:][-_EDGE:]]


def _message(line: bytes) -> SessionMessage | Exception | None:
    """Return the message in a line; an error if there is none in it, None if it is empty."""
    line = line.strip(_AROUND)
    if not line:
        return None
    found: SessionMessage | Exception | None = None
    # A server may print something without a line break before it answers.
    for start in sorted({0, max(line.find(b"{"), 0)}):
        # A byte that is not UTF-8 must not be the end of all that follows.
        text = line[start:].decode(errors="replace")
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
        except ValueError as error:
            found = error
    return found


def _too_large(ends: bytes) -> SessionMessage | None:
    """Return an error for the request whose answer begins and ends like this; None if the message is not an answer, or has no id."""
    found = _IDS.search(ends)
    if found is None or b'"method"' in ends[: _EDGE // 10]:
        return None
    return failed(json.loads(found[1] or found[2]), Fault.TOO_LARGE)


async def _tell(
    stdin: ByteSendStream,
    waiting: MemoryObjectReceiveStream[SessionMessage],
    heard: ObjectSendStream[SessionMessage | Exception],
    flushed: anyio.Event,
) -> None:
    try:
        async with waiting:
            async for each in waiting:
                await stdin.send(each.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
    except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        await heard.aclose()  # it does not listen any more, though it may be alive: this is the end of the connection
    finally:
        flushed.set()


async def _outlive(process: Any, heard: ObjectSendStream[SessionMessage | Exception]) -> None:
    """End the connection when its process has ended, although child processes keep its output open."""
    while process.returncode is None:  # noqa: ASYNC110  nothing else tells
        await anyio.sleep(_GLANCE)
    await anyio.sleep(_GLANCE)
    await heard.aclose()


async def _stop(process: Any) -> None:
    """Close the input of a process, and end it and all that it has started if it does not end by itself."""
    await _close(process.stdin)
    if not await _has_ended(process):
        if sys.platform == "win32":
            await terminate_windows_process_tree(process)
        else:
            await terminate_posix_process_tree(process, _GRACE)
        await _has_ended(process)
    close_process_job(process)
    await _close(process.stdout)
    # On asyncio, child processes keep the pipes, and with them this, open.
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:
        with suppress(PermissionError):  # of a program that runs as another user
            transport.close()


async def _close(stream: Any) -> None:
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        await stream.aclose()


async def _has_ended(process: Any) -> bool:
    """Wait until a process has ended, but not for long. `wait` does not tell: on asyncio, it waits for all that has its pipes, too."""
    with anyio.move_on_after(_GRACE):
        while process.returncode is None:  # noqa: ASYNC110  nothing else tells
            await anyio.sleep(0.01)
    return process.returncode is not None


def _stderr() -> TextIO:
    """Return the stderr of this process, for use by a server. In a notebook or a test, stderr is not a file."""
    return sys.__stderr__ or sys.stderr
