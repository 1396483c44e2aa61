"""The secret that opens a slot of a sealed store: a key, a pass phrase or a recovery key, from its source."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from graphagent.store._fork_safety import OwnLock


class SlotKind(IntEnum):
    """The secret that opens a slot."""

    KEY = 1
    """32 random bytes."""
    PASSPHRASE = 2
    RECOVERY = 3
    """A recovery key: random, and written in letters for people."""


class Secret:
    """The bytes of a key, a pass phrase or a recovery key. Its repr does not show them."""

    __slots__ = ("_lock", "_stretched", "kind", "material")

    def __init__(self, kind: SlotKind, material: bytes) -> None:
        self.kind = kind
        self.material = material
        self._stretched: dict[tuple[bytes, bytes], bytes] = {}
        self._lock = OwnLock()

    def __repr__(self) -> str:
        return f"Secret({self.kind.name})"

    @property
    def slow(self) -> bool:
        """Whether it is a pass phrase, whose keys take up to 0.3 seconds to derive, which a worker thread is for."""
        return self.kind is SlotKind.PASSPHRASE

    def stretched(self, salt: bytes, parameters: bytes, stretch: Callable[[], bytes]) -> bytes:
        """Return the result of `stretch`, which is called once for each salt and parameters.

        One at a time: several stores that open with one pass phrase would otherwise take the memory for it several times.
        """
        with self._lock:
            if (salt, parameters) not in self._stretched:
                self._stretched[salt, parameters] = stretch()
            return self._stretched[salt, parameters]
