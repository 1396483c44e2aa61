"""Where the anchor of an encrypted store is: in a file, in a keyring, or wherever an object keeps it."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, cast

from graphagent._concurrency import Worker
from graphagent._functions import call
from graphagent._options import check_can, check_path
from graphagent.errors import AnchorError, MissingExtraError
from graphagent.store.sealed._anchor_file import AnchorFile

if TYPE_CHECKING:
    from graphagent.protocols import Anchor

Change = Callable[[bytes | None], bytes | None]
"""Returns the new contents, given the last ones; None to write nothing."""
_KEYRING = "keyring:"


def checked_interval(anchor: object, seconds: float) -> float:
    """Return how many seconds an anchor may be behind.

    Raises:
        ValueError: the value is not a number of seconds, or the store has no anchor.
    """
    if type(seconds) not in (int, float) or not 0 <= seconds < inf:
        raise ValueError(f"anchor_every={seconds!r} is not a number of seconds; it is 0 or more")
    if seconds and anchor is None:
        raise ValueError(f"anchor_every={seconds!r} without an anchor; give anchor= too")
    return seconds


class HeldAnchor:
    """A checked place of an anchor.

    Raises:
        TypeError: it is neither a path nor an object that reads and writes.
        ValueError: the value is not the path of a file, or does not name an entry of a keyring.
        MissingExtraError: it is in a keyring, and the extra `keyring` is not installed.
    """

    def __init__(self, source: str | os.PathLike[str] | Anchor) -> None:
        self._file: AnchorFile | None = None
        self._object: Anchor | None = None
        self._worker = Worker()
        if isinstance(source, str) and source.startswith(_KEYRING):
            self._object = _KeyringAnchor(source)
        elif isinstance(source, str | os.PathLike):
            check_path("anchor=", source, "'/media/stick/facts.anchor'")
            self._file = AnchorFile(Path(source).expanduser().absolute())
        else:
            for method in ("read", "write"):
                check_can(method, source, "anchor= is a path, 'keyring:SERVICE/NAME', or an object with read and write")
            self._object = source

    def __repr__(self) -> str:
        return repr(self._file or self._object)

    async def read(self) -> bytes | None:
        """Return the last contents, or None if the anchor does not exist.

        Raises:
            AnchorError: it cannot be read.
        """
        if self._file is not None:
            return await self._worker.run(self._file.read)
        return await self._called(cast("Anchor", self._object).read)

    async def update(self, change: Change, *, make: bool = False) -> None:
        """Replace the last contents.

        Raises:
            AnchorError: it cannot be read or written; or there is nothing yet, and it is not to be made.
        """
        if self._file is not None:
            # Writing to the system's cache takes less time than asking a thread.
            if make or not self._file.update(change, waits=False):
                await self._worker.run(partial(self._file.update, change, make=make))
            return
        there = await self.read()
        if there is None and not make:
            raise AnchorError(repr(self), "it is missing")
        wanted = change(there)
        if wanted not in (None, there):
            await self._called(cast("Anchor", self._object).write, wanted)

    async def _called(self, function: Callable[..., object], *arguments: object) -> bytes | None:
        try:
            given: object = await call(function, *arguments)
        except AnchorError:
            raise
        except Exception as error:  # an object of users raises anything
            raise AnchorError(repr(self), f"it cannot be read or written: {type(error).__name__}") from error
        if arguments or given is None or isinstance(given, bytes):
            return None if arguments else cast("bytes | None", given)
        raise AnchorError(repr(self), f"read() returned {type(given).__name__}, not bytes or None")


class _KeyringAnchor:
    """An anchor in an entry of the system's keyring."""

    def __init__(self, source: str) -> None:
        self._service, _, self._name = source.removeprefix(_KEYRING).rpartition("/")
        if not (self._service and self._name):
            raise ValueError(f"anchor={source!r} names no entry of a keyring; write 'keyring:SERVICE/NAME'")
        if find_spec("keyring") is None:
            raise MissingExtraError("an anchor in the keyring", "keyring")

    def __repr__(self) -> str:
        return repr(f"{_KEYRING}{self._service}/{self._name}")

    def read(self) -> bytes | None:
        import keyring

        text = keyring.get_password(self._service, self._name)
        try:
            return None if text is None else base64.b64decode(text, validate=True)
        except binascii.Error:
            raise AnchorError(repr(self), "it is damaged, or is not an anchor") from None

    def write(self, content: bytes) -> None:
        import keyring

        keyring.set_password(self._service, self._name, base64.b64encode(content).decode("ascii"))
