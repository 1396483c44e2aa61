"""Where the key of an encrypted store comes from."""

from __future__ import annotations

import base64
import binascii
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NoReturn, TypeGuard

import anyio.to_thread

from graphagent._functions import call
from graphagent.errors import StoreError

KeySource = bytes | str | Callable[[], bytes | Awaitable[bytes]]
"""A key, or where to find it: 32 bytes, base64 text of 32 bytes, `env:NAME`, `file:PATH`, or a function that returns 32 bytes.

The variable or the file holds base64 text of 32 bytes; the file belongs to this user, and nobody else may read it. The
function may be async; it is called at the first use.
"""

KEY_BYTES = 32
_FORMS = (
    "a key is 32 bytes, base64 text of 32 bytes (new_key() makes one), 'env:NAME' or 'file:PATH' of such text, "
    "or a function that returns 32 bytes"
)


def new_key() -> str:
    """Return a new key, as base64 text of 32 random bytes. Store it safely: what is sealed with it cannot be read without it."""
    return base64.b64encode(os.urandom(KEY_BYTES)).decode("ascii")


class HeldKey:
    """A checked key source. Its repr shows no key, and it cannot be pickled.

    Raises:
        ValueError: it is no key source. The message says what is, and does not show what was given.
    """

    __slots__ = ("_source",)

    def __init__(self, source: KeySource) -> None:
        self._source = source
        if callable(source):
            return
        if isinstance(source, str) and source.startswith(("env:", "file:")):
            if not source.partition(":")[2]:
                raise ValueError(f"there is no name after the colon; {_FORMS}")
        elif isinstance(source, str):
            self._source = _decoded(source) or _refuse("this text is not a key")
        elif not _is_key(source):
            _refuse(f"this value of type {type(source).__name__} is not a key")

    def __repr__(self) -> str:
        return "HeldKey(…)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key cannot be pickled")

    async def read(self) -> bytes:
        """Return the 32 bytes.

        Raises:
            StoreError: the variable, the file or the function has none. What a function raises comes through.
        """
        source = self._source
        if isinstance(source, str):
            return await anyio.to_thread.run_sync(_from_place, source)
        if isinstance(source, bytes):
            return source
        given: object = await call(source)
        if not _is_key(given):
            raise StoreError("the function that was passed as key did not return 32 bytes")
        return given


def _refuse(what: str) -> NoReturn:
    raise ValueError(f"{what}: {_FORMS}")


def _is_key(given: object) -> TypeGuard[bytes]:
    return isinstance(given, bytes) and len(given) == KEY_BYTES


def _decoded(text: str) -> bytes | None:
    try:
        key = base64.b64decode(text.strip().encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        return None
    return key if _is_key(key) else None


def _from_place(source: str) -> bytes:
    kind, _, name = source.partition(":")
    if kind == "env":
        what, text = f"the environment variable {name!r}", os.environ.get(name)
        if text is None:
            raise StoreError(f"{what} is to hold the key, but is not set; set it to base64 text of 32 bytes")
    else:
        what, text = f"the key file {name!r}", _read_private(Path(name).expanduser())
    key = _decoded(text)
    if key is None:
        raise StoreError(f"{what} does not hold base64 text of 32 bytes, so it is no key; new_key() makes one")
    return key


def _read_private(path: Path) -> str:
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if os.name != "nt" and (status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077):
                raise StoreError(f"the key file {str(path)!r} may be read by others; make it yours alone: chmod 600")
            return file.read(1024).decode("ascii", "replace")
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"the key file {str(path)!r} cannot be read: {error.strerror}") from None
