"""The writers in the anchor of a sealed store, by which an older copy is found.

`docs/format.md` specifies its bytes. Everything here is bytes in, bytes out.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from graphagent.store.sealed._anchor_file import MAGIC
from graphagent.store.sealed._format import Reader, UnreadableError

if TYPE_CHECKING:
    from graphagent.store.sealed._base import BaseState

FORMAT = 1
_KEY_LABEL = b"graphagent/1 anchor"


def anchor_key(sum_key: bytes) -> bytes:
    """Return the key that authenticates the anchor of a store."""
    return hmac.digest(sum_key, _KEY_LABEL, "sha256")


@dataclass(frozen=True, slots=True)
class AnchorState:
    """The state of a store in an anchor: the store has reached at least this state."""

    store_id: bytes
    line: bytes
    count: int
    """How many writers had begun and ended."""
    digest: bytes
    """The digest of these events."""
    keys: int
    """The version of the key row; 0: nothing is known yet, because the store is about to be anchored."""
    writers: Mapping[int, int] = field(default_factory=dict[int, int])
    """How many commits each writer had made."""

    @classmethod
    def of(cls, store_id: bytes, base: BaseState, keys: int, writers: Mapping[int, int]) -> AnchorState:
        """Return the state of a store with this base, version of the key row, and numbers of commits."""
        return cls(store_id, base.line, base.count, base.end, keys, dict(writers))

    @classmethod
    def empty(cls, store_id: bytes) -> AnchorState:
        """Return the state of a store that is about to be anchored: whatever it has is accepted."""
        return cls(store_id, bytes(32), 0, bytes(32), 0)

    def merged(self, base: BaseState, keys: int, writer: int, commits: int) -> AnchorState | None:
        """Return the state after a writer has made some commits, or None if this is an anchor of another line.

        `base` is as that writer has read it last, and may be older than the known one.
        """
        if not self.keys:
            return AnchorState.of(self.store_id, base, keys, {writer: commits} if writer else {})
        digest = base.digest(self.count)
        if base.line != self.line or (digest is not None and digest != self.digest):
            return None
        known = replace(self, keys=max(self.keys, keys))
        if base.count >= self.count:
            left = {each: number for each, number in self.writers.items() if each in base.writers}
            known = AnchorState.of(self.store_id, base, known.keys, left)
        if writer:
            most = max(commits, known.writers.get(writer, 0))
            known = replace(known, writers={**known.writers, writer: most})
        return known

    def exceeds(self, base: BaseState | None, commits: Mapping[int, int]) -> bool:
        """Return whether a store was further than a base and the numbers of commits of its writers say that it is."""
        if not self.keys:
            return False
        if base is None or base.line != self.line or base.count < self.count:
            return True
        digest = base.digest(self.count)
        if digest is not None and digest != self.digest:
            return True
        ended = {event.writer: event.commits for event in base.events if event.commits}
        for writer, number in self.writers.items():
            now = commits.get(writer, ended.get(writer))
            # A writer that is neither there nor among the last that ended has ended before those.
            if now is not None and now < number:
                return True
        return False

    def to_bytes(self, key: bytes) -> bytes:
        """Return its bytes, authenticated with the anchor key of the store."""
        head = MAGIC + bytes([FORMAT]) + self.store_id + self.line + self.count.to_bytes(8, "big") + self.digest
        head += self.keys.to_bytes(8, "big")
        rest = [each.to_bytes(8, "big") + number.to_bytes(8, "big") for each, number in sorted(self.writers.items())]
        signed = head + len(rest).to_bytes(2, "big") + b"".join(rest)
        return signed + hmac.digest(key, signed, "sha256")

    @classmethod
    def read(cls, data: bytes) -> AnchorState:
        """Parse the bytes of an anchor, without checking who has written them.

        Raises:
            UnreadableError: the bytes do not follow the format.
        """
        reader = Reader(data)
        if reader.take(len(MAGIC)) != MAGIC:
            raise UnreadableError("is not an anchor")
        if (number := reader.number(1)) != FORMAT:
            raise UnreadableError(f"has format {number}, and this graphagent reads format {FORMAT}")
        store_id, line, count, digest = reader.take(16), reader.take(32), reader.number(8), reader.take(32)
        keys = reader.number(8)
        writers = {reader.number(8): reader.number(8) for _ in range(reader.number(2))}
        reader.take(32)
        reader.end()
        return cls(store_id, line, count, digest, keys, writers)

    @classmethod
    def opened(cls, data: bytes, key: bytes) -> AnchorState:
        """Parse the bytes of an anchor that was written with the key of the store.

        Raises:
            UnreadableError: they were changed, or do not follow the format.
        """
        state = cls.read(data)
        if not hmac.compare_digest(hmac.digest(key, data[:-32], "sha256"), data[-32:]):
            raise UnreadableError("was changed")
        return state
