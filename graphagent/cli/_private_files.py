"""Files that only their owner can read."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from graphagent.errors import StoreError


@contextmanager
def private_file(path: Path) -> Generator[BinaryIO, None, None]:
    """Create a file that only its owner can read, and yield it for writing. If that fails, the file is removed.

    Raises:
        StoreError: the file exists, or cannot be written.
    """
    try:
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
    except FileExistsError:
        raise StoreError(f"{str(path)!r} exists already and is not overwritten; name another file") from None
    except OSError as error:
        raise StoreError(f"{str(path)!r} cannot be written: {error.strerror}") from None
    try:
        with file:
            yield file
    except BaseException as error:
        path.unlink()
        if isinstance(error, OSError) and not isinstance(error, StoreError):
            raise StoreError(f"{str(path)!r} cannot be written: {error.strerror}") from None
        raise
