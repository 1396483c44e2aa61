"""JSON lines: what is taken along, to a file or to standard output, and read again from there."""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, cast

import orjson
from anyio.lowlevel import checkpoint

from graphagent.cli import _output
from graphagent.cli._private_files import private_file
from graphagent.errors import StoreError


class Lines:
    """Where records go, a line for each."""

    def __init__(self, target: BinaryIO, out: Path | None) -> None:
        self._target = target
        self._out = out
        self._seen = out is None and sys.stdout.isatty()
        self._size = 0

    async def put(self, record: Mapping[str, Any]) -> None:
        """Write a record; on a terminal so that no character acts on it. Between two the command can be broken off."""
        await checkpoint()
        line = orjson.dumps(record)
        if self._seen:
            line = _output.harmless(line.decode()).encode()
        self._target.write(line + b"\n")
        self._size += len(line) + 1

    def tell(self, what: str) -> None:
        """Say what was written where, if that is a file."""
        if self._out is not None:
            _output.aside(
                f"{what}, {self._size:,} bytes, written to {self._out}, readable for you alone, but not sealed."
            )


@contextmanager
def lines_to(out: Path | None) -> Generator[Lines]:
    """Write records to a new file that only its owner can read, or without one to standard output. Broken off, no file is there.

    Raises:
        StoreError: the file is there already, or cannot be written.
    """
    with private_file(out) if out is not None else nullcontext(sys.stdout.buffer) as target:
        yield Lines(target, out)
        target.flush()


def read_whole(source: Path) -> bytes:
    """Give what stands in a file, or for `-` on standard input.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        return sys.stdin.buffer.read() if str(source) == "-" else source.read_bytes()
    except OSError as error:
        raise StoreError(f"{str(source)!r} cannot be read: {error.strerror}") from None


def read_lines(source: Path) -> list[dict[str, Any]]:
    """Give the records that stand in a file, or for `-` on standard input, a line for each.

    Raises:
        StoreError: it cannot be read, or a line is no JSON object.
    """
    records: list[dict[str, Any]] = []
    for number, line in enumerate(read_whole(source).split(b"\n"), start=1):
        if line.strip():
            try:
                record: Any = orjson.loads(line)
            except orjson.JSONDecodeError:
                record = None
            if not isinstance(record, dict):
                raise StoreError(f"{str(source)!r}, line {number}, is no JSON object; nothing was imported")
            records.append(cast("dict[str, Any]", record))
    return records
