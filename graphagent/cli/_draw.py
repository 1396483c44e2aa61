"""`graphagent draw`: where a picture goes."""

from __future__ import annotations

import sys
from pathlib import Path

from graphagent.errors import StoreError


def write(text: str, out: Path | None) -> None:
    """Write a picture to a file, or to standard output.

    Raises:
        StoreError: the file cannot be written.
    """
    if out is None:
        sys.stdout.write(text)
        return
    try:
        out.write_text(text, "utf-8")
    except OSError as error:
        raise StoreError(f"{str(out)!r} cannot be written: {error.strerror}") from None
