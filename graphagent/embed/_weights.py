"""Reads and checks the files of weights in other packages."""

from __future__ import annotations

from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from graphagent.errors import EmbedderError


def package_folder(package: str) -> Path | None:
    """Return the folder of an installed package without importing it, or None."""
    spec = find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def read_weights(path: Path, checksum: str, remedy: str) -> bytes:
    """Return the bytes of a file of weights after comparing their checksum with the expected one.

    Raises:
        EmbedderError: The file has another checksum, or cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise EmbedderError(f"{path} cannot be read ({error.strerror or type(error).__name__}); {remedy}") from None
    found = sha256(content).hexdigest()
    if found != checksum:
        raise EmbedderError(
            f"{path} is not the expected file: its sha256 is {found}, not {checksum}. Vectors from other weights cannot be "
            f"compared with the stored ones; {remedy}"
        )
    return content
