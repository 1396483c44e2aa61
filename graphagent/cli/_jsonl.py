"""Records as JSON lines: exported to a file or to standard output, and read from there."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, cast

import orjson
from anyio.lowlevel import checkpoint

from graphagent._article import counted
from graphagent.cli import _output
from graphagent.cli._private_files import private_file
from graphagent.errors import StoreError, StoreNotFoundError


class Lines:
    """Writes records, one a line."""

    def __init__(self, target: BinaryIO, out: Path | None) -> None:
        self._target = target
        self._out = out
        self._on_terminal = out is None and sys.stdout.isatty()
        self._size = 0

    async def put(self, record: Mapping[str, Any]) -> None:
        """Write a record; for a terminal, without characters that act on it. The command can be interrupted before each record."""
        await checkpoint()
        line = orjson.dumps(record)
        if self._on_terminal:
            line = _output.harmless(line.decode()).encode()
        self._target.write(line + b"\n")
        self._size += len(line) + 1

    def report(self, what: str) -> None:
        """Print a report about a written file on standard error; none for standard output."""
        if self._out is not None:
            _output.aside(
                f"{what}, {counted(self._size, 'byte')}, written to {self._out}, readable by you alone, but not sealed."
            )


@contextmanager
def lines_to(out: Path | None) -> Generator[Lines]:
    """Open a new file that only its owner can read, or standard output without one. An interrupted file is removed.

    Raises:
        StoreError: the file exists, or cannot be written.
    """
    with private_file(out) if out is not None else nullcontext(sys.stdout.buffer) as target:
        yield Lines(target, out)
        target.flush()


def read_whole(source: Path) -> bytes:
    """Return the content of a file; `-` is standard input.

    Raises:
        StoreError: the file cannot be read.
    """
    try:
        return sys.stdin.buffer.read() if str(source) == "-" else source.read_bytes()
    except FileNotFoundError:
        raise StoreNotFoundError("file", str(source), "name the file to read, or - for standard input") from None
    except OSError as error:
        raise StoreError(f"{str(source)!r} cannot be read: {error.strerror}") from None


def read_lines(source: Path) -> list[dict[str, Any]]:
    """Return the records of a file of JSON lines; `-` is standard input.

    Raises:
        StoreError: the file cannot be read, or a line is not a JSON object.
    """
    records: list[dict[str, Any]] = []
    for number, line in enumerate(read_whole(source).split(b"\n"), start=1):
        if line.strip():
            try:
                record: Any = orjson.loads(line)
            except orjson.JSONDecodeError:
                record = None
            if not isinstance(record, dict):
                raise StoreError(f"{str(source)!r}, line {number}, is not a JSON object; nothing was imported")
            records.append(cast("dict[str, Any]", record))
    return records
