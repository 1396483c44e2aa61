"""What a sealed store remembers of its writers, and what its anchor knows of that, by which an older copy is found.

Each session that writes to an anchored store is a writer, and has a row of its own: how many commits it made, and what they added to the sum over
the rows of the root and the domains with their versions. The base row says which writers there are, and has the sums of those that
ended. `docs/format.md` specifies both, and the anchor. Everything here is bytes in, bytes out.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from graphagent.store.sealed._anchor_file import MAGIC
from graphagent.store.sealed._format import Reader, UnreadableError, sum_with

FORMAT = 1
_MOST_EVENTS = 256
MOST_WRITERS = 32
"""How many writers the base row lists before one that begins ends the oldest ones, which may have been killed."""
_ENDED_TOGETHER = 16
_KEY_LABEL = b"graphagent/1 anchor"


class Event(NamedTuple):
    """The beginning of a writer, or its end."""

    writer: int
    commits: int
    """How many it had made at its end, or 0: it began."""


@dataclass(frozen=True, slots=True)
class BaseState:
    """The plaintext of the base row."""

    line: bytes
    """32 random bytes, which differ after an older copy was accepted, so that what was there before cannot come back."""
    total: int = field(repr=False)
    """The sum of the rows when the store was anchored, and what writers that ended have added to it."""
    writers: tuple[int, ...] = ()
    """Those that have a row, in the order in which they began."""
    count: int = 0
    """How many events there were."""
    start: bytes = b""
    """The digest of all events before the last ones."""
    events: tuple[Event, ...] = ()
    """The last ones."""
    end: bytes = b""
    """The digest of all events."""

    @classmethod
    def fresh(cls, total: int) -> BaseState:
        """Return the base of a store that is anchored anew, whose rows add up to `total`."""
        line = os.urandom(32)
        return cls(line, total, start=line, end=line)

    def begun(self, writer: int) -> BaseState:
        """Return the base after a writer began."""
        return self._after(Event(writer, 0), (*self.writers, writer), self.total)

    def ended(self, writer: int, commits: int, difference: int) -> BaseState:
        """Return the base after a writer ended that had made some commits, which added `difference` to the sum."""
        left = tuple(each for each in self.writers if each != writer)
        return self._after(Event(writer, commits), left, (self.total + difference) % 2**256)

    def due(self) -> tuple[int, ...]:
        """Return the writers that are to be ended because there are too many."""
        return self.writers[:_ENDED_TOGETHER] if len(self.writers) >= MOST_WRITERS else ()

    def digest(self, count: int) -> bytes | None:
        """Return the digest of the first `count` events; None if that is not known any more, or not yet."""
        if count == self.count:
            return self.end
        digest, left = self.start, count - (self.count - len(self.events))
        if not 0 <= left <= len(self.events):
            return None
        for event in self.events[:left]:
            digest = _chained(digest, event)
        return digest

    def _after(self, event: Event, writers: tuple[int, ...], total: int) -> BaseState:
        events, start = (*self.events, event), self.start
        while len(events) > _MOST_EVENTS:
            start, events = _chained(start, events[0]), events[1:]
        end = _chained(self.end, event)
        return BaseState(self.line, total, writers, self.count + 1, start, events, end)

    def plain(self) -> bytes:
        """Return its bytes."""
        numbers = [self.total.to_bytes(32, "big"), self.count.to_bytes(8, "big"), self.start]
        numbers += [len(self.writers).to_bytes(2, "big"), *(each.to_bytes(8, "big") for each in self.writers)]
        numbers += [len(self.events).to_bytes(2, "big"), *(_event_plain(each) for each in self.events)]
        return self.line + b"".join(numbers)

    @classmethod
    def read(cls, plain: bytes) -> BaseState:
        """Parse its bytes.

        Raises:
            UnreadableError: the bytes do not follow the format.
        """
        reader = Reader(plain)
        line, total, count, start = reader.take(32), reader.number(32), reader.number(8), reader.take(32)
        writers = tuple(reader.number(8) for _ in range(reader.number(2)))
        events = tuple(Event(reader.number(8), reader.number(8)) for _ in range(reader.number(2)))
        reader.end()
        if len(events) > count:
            raise UnreadableError("has more events than it counts")
        end = start
        for event in events:
            end = _chained(end, event)
        return cls(line, total, writers, count, start, events, end)


def _event_plain(event: Event) -> bytes:
    return event.writer.to_bytes(8, "big") + event.commits.to_bytes(8, "big")


def _chained(digest: bytes, event: Event) -> bytes:
    return hashlib.sha256(digest + _event_plain(event)).digest()


def writer_plain(difference: int) -> bytes:
    """Return the plaintext of the row of a writer, whose version is how many commits it has made."""
    return difference.to_bytes(32, "big")


def read_writer(plain: bytes) -> int:
    """Return what the commits of a writer have added to the sum.

    Raises:
        UnreadableError: this is not the plaintext of the row of a writer.
    """
    reader = Reader(plain)
    difference = reader.number(32)
    reader.end()
    return difference


def new_writer() -> int:
    """Return the number of a new writer."""
    return int.from_bytes(os.urandom(8), "big") >> 1 or 1


def state_digest(key: bytes, place: bytes, version: int) -> bytes:
    """Return what the row of a domain or of the root adds to the sum; `place` is its encoded key, `key` the sum key."""
    return hmac.digest(key, b"\x03" + version.to_bytes(8, "big") + place, "sha256")


def difference(key: bytes, versions: Iterable[tuple[bytes, int, int]]) -> int:
    """Return what changes of rows add to the sum: of each its encoded key, its version before and after; 0 where it does not exist."""
    total = 0
    for place, before, after in versions:
        total = sum_with(
            total,
            state_digest(key, place, after) if after else None,
            without=state_digest(key, place, before) if before else None,
        )
    return total


def anchor_key(sum_key: bytes) -> bytes:
    """Return the key that authenticates the anchor of a store."""
    return hmac.digest(sum_key, _KEY_LABEL, "sha256")


@dataclass(frozen=True, slots=True)
class AnchorState:
    """What an anchor knows of a store: it was at least so far."""

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
        """Return what is to be known of a store with this base, version of the key row, and numbers of commits."""
        return cls(store_id, base.line, base.count, base.end, keys, dict(writers))

    @classmethod
    def empty(cls, store_id: bytes) -> AnchorState:
        """Return what is known of a store that is about to be anchored: whatever it has is accepted."""
        return cls(store_id, bytes(32), 0, bytes(32), 0)

    def merged(self, base: BaseState, keys: int, writer: int, commits: int) -> AnchorState | None:
        """Return what is known after a writer has made some commits, or None if this is an anchor of another line.

        `base` is as that writer has read it last, and may be older than what is known.
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
