"""The rows that say which domains a sealed store has: the base row, and one of each session that writes.

Each session that adds or removes domains is a writer, and has a row of its own: the number of its commits, and the amounts that they added to the sums over the
domains. The base row says which writers there are, and has the sums of those that ended. So no row is put by all. In an anchored store
there is a sum over the versions of the rows of domains as well, so that every commit counts. `docs/format.md` specifies both rows. Everything here is
bytes in, bytes out.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from graphagent.store._items import encode
from graphagent.store.sealed._format import Reader, UnreadableError, depths_plain, read_depths, sum_with

if TYPE_CHECKING:
    from graphagent.store._items import Key

_MOST_EVENTS = 256
MOST_WRITERS, MOST_ANCHORED = 256, 32
"""How many writers the base row lists before one that begins ends the older half, which may have been killed."""
_NO_LINE = bytes(32)
_SUM = 2**256
_VERSIONS = 24
"""How many bits of the version of a domain's row count its changes. Those above are its generation."""
_MARK = "#"
"""The segment after the path of a domain in the key of its row."""


# The rows of domains


def domain_row(path: Key) -> Key:
    """Return the key of the row of a domain."""
    return ("d", *path, _MARK)


def first_version(generation: int) -> int:
    """Return the version with which the row of a domain begins, which no other domain at its path has had."""
    return generation << _VERSIONS


def new_generation() -> int:
    """Return the generation of a new domain."""
    return int.from_bytes(os.urandom(5), "big") >> 1 or 1


def is_former(row: Key) -> bool:
    """Return whether the key of a domain's row has its generation, as in formats 1 and 2, in place of its version."""
    return row[-1] != _MARK


def generation_of(row: Key, version: int) -> int:
    """Return the generation of a domain from the key and the version of its row.

    Raises:
        UnreadableError: no row of a domain is put under this key.
    """
    generation = row[-1]
    if generation == _MARK and len(row) > 2:
        return version >> _VERSIONS
    if len(row) < 4 or row[-2] != _MARK or not isinstance(generation, int):
        raise UnreadableError("is under a key where none is put")
    return generation


def path_of(row: Key) -> Key:
    """Return the path of a domain from the key of its row."""
    return row[1:-2] if is_former(row) else row[1:-1]


# The sums


class Sums(NamedTuple):
    """The sums over the domains, or the amounts that commits have added to them, each modulo 2**256."""

    listed: int = 0
    """The sum over the domains and the rooms that there are."""
    versions: int = 0
    """In an anchored store, the sum over the versions of the rows of domains."""

    def plus(self, *others: Sums) -> Sums:
        """Return these sums with others added."""
        every = (self, *others)
        return Sums(sum(each.listed for each in every) % _SUM, sum(each.versions for each in every) % _SUM)

    def plain(self) -> bytes:
        """Return their bytes."""
        return self.listed.to_bytes(32, "big") + self.versions.to_bytes(32, "big")

    @classmethod
    def read(cls, reader: Reader, *, former: bool) -> Sums:
        """Parse their bytes; with `former`, those of format 2, which has only the versions."""
        return cls(0 if former else reader.number(32), reader.number(32))


def _version_member(key: bytes, row: Key, version: int) -> bytes:
    return hmac.digest(key, b"\x03" + version.to_bytes(8, "big") + encode(row), "sha256")


def root_member(key: bytes, row: Key, version: int) -> int:
    """Return the member that the root row of an anchored store of format 1 or 2 adds to the sum over versions."""
    return int.from_bytes(_version_member(key, row, version), "big")


def rooms_sums(key: bytes, depths: Mapping[bytes, int]) -> Sums:
    """Return the members that rooms add to the sums, each with the number of segments of its domains."""
    total = 0
    for room, depth in depths.items():
        total = sum_with(total, hmac.digest(key, b"\x04" + depth.to_bytes(1, "big") + room, "sha256"))
    return Sums(total)


class Changed(NamedTuple):
    """The row of a domain before and after a commit."""

    row: Key
    before: int
    """Its version; 0 if it does not exist."""
    after: int

    def named(self, version: int) -> Key | None:
        """Return the key of the row with the generation that the domain has at a version; None if the domain does not exist."""
        return None if not version else self.row if is_former(self.row) else (*self.row, version >> _VERSIONS)


def difference(key: bytes, changed: Iterable[Changed], *, anchored: bool) -> Sums:
    """Return the amounts that changes of domains add to the sums. `key` is the sum key."""
    listed = versions = 0
    for each in changed:
        before, after = each.named(each.before), each.named(each.after)
        if before != after:
            listed = sum_with(listed, _member(key, after), without=_member(key, before))
        if anchored:
            versions = sum_with(
                versions,
                _version_member(key, each.row, each.after) if after else None,
                without=_version_member(key, each.row, each.before) if before else None,
            )
    return Sums(listed, versions)


def _member(key: bytes, named: Key | None) -> bytes | None:
    return None if named is None else hmac.digest(key, b"\x02" + encode(named), "sha256")


# The base row


class WriterEvent(NamedTuple):
    """The beginning of a writer, or its end."""

    writer: int
    commits: int
    """How many it had made at its end, or 0: it began."""


@dataclass(frozen=True, slots=True)
class BaseState:
    """The plaintext of the base row."""

    line: bytes
    """In an anchored store 32 random bytes, which differ after an older copy was accepted, so that an earlier state cannot come back."""
    sums: Sums = field(repr=False)
    """The sums when the store was created or anchored, with the amounts that ended writers have added."""
    depths: Mapping[bytes, int] = field(repr=False)
    """The number of segments that make a domain, for each encoded room."""
    writers: tuple[int, ...] = ()
    """Those that have a row, in the order in which they began."""
    count: int = 0
    """How many events there were."""
    start: bytes = b""
    """The digest of all events before the last ones."""
    events: tuple[WriterEvent, ...] = ()
    """The last ones."""
    end: bytes = b""
    """The digest of all events."""

    @classmethod
    def fresh(cls, sums: Sums, depths: Mapping[bytes, int], *, anchored: bool) -> BaseState:
        """Return the base of a store without writers, whose domains and rooms add up to `sums`."""
        line = os.urandom(32) if anchored else _NO_LINE
        return cls(line, sums, depths, start=line, end=line)

    @property
    def anchored(self) -> bool:
        """Whether every commit counts in the row of its session."""
        return self.line != _NO_LINE

    def with_rooms(self, depths: Mapping[bytes, int]) -> BaseState:
        """Return the base of a store that has these rooms as well."""
        return replace(self, depths={**self.depths, **depths})

    def begun(self, writer: int) -> BaseState:
        """Return the base after a writer began."""
        return self._after(WriterEvent(writer, 0), (*self.writers, writer), self.sums)

    def ended(self, writer: int, commits: int, added: Sums) -> BaseState:
        """Return the base after a writer ended that had made some commits, which added to the sums."""
        left = tuple(each for each in self.writers if each != writer)
        return self._after(WriterEvent(writer, commits), left, self.sums.plus(added))

    def due(self) -> tuple[int, ...]:
        """Return the writers that are to be ended because there are too many."""
        most = MOST_ANCHORED if self.anchored else MOST_WRITERS
        return self.writers[: most // 2] if len(self.writers) >= most else ()

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

    def _after(self, event: WriterEvent, writers: tuple[int, ...], sums: Sums) -> BaseState:
        if not self.anchored:  # no anchor could know of the event
            return replace(self, sums=sums, writers=writers)
        events, start = (*self.events, event), self.start
        while len(events) > _MOST_EVENTS:
            start, events = _chained(start, events[0]), events[1:]
        end = _chained(self.end, event)
        return replace(self, sums=sums, writers=writers, count=self.count + 1, start=start, events=events, end=end)

    def plain(self) -> bytes:
        """Return its bytes."""
        numbers = [self.sums.plain(), self.count.to_bytes(8, "big"), self.start]
        numbers += [len(self.writers).to_bytes(2, "big"), *(each.to_bytes(8, "big") for each in self.writers)]
        numbers += [len(self.events).to_bytes(2, "big"), *(_event_plain(each) for each in self.events)]
        return self.line + b"".join(numbers) + depths_plain(self.depths)

    @classmethod
    def read(cls, plain: bytes, *, former: bool = False) -> BaseState:
        """Parse its bytes; with `former`, those of format 2, which has the rooms in its root.

        Raises:
            UnreadableError: the bytes do not follow the format.
        """
        reader = Reader(plain)
        line, sums = reader.take(32), Sums.read(reader, former=former)
        count, start = reader.number(8), reader.take(32)
        writers = tuple(reader.number(8) for _ in range(reader.number(2)))
        events = tuple(WriterEvent(reader.number(8), reader.number(8)) for _ in range(reader.number(2)))
        depths = {} if former else read_depths(reader)
        reader.end()
        if len(events) > count:
            raise UnreadableError("has more events than it counts")
        if len(set(writers)) != len(writers):
            raise UnreadableError("has a writer twice")
        if line == _NO_LINE and (sums.versions or count or start != _NO_LINE):
            raise UnreadableError("has fields that only an anchored store has")
        end = start
        for event in events:
            end = _chained(end, event)
        return cls(line, sums, depths, writers, count, start, events, end)


def _event_plain(event: WriterEvent) -> bytes:
    return event.writer.to_bytes(8, "big") + event.commits.to_bytes(8, "big")


def _chained(digest: bytes, event: WriterEvent) -> bytes:
    return hashlib.sha256(digest + _event_plain(event)).digest()


def read_writer(plain: bytes, *, former: bool) -> Sums:
    """Return the amounts that the commits of a writer have added to the sums, from the plaintext of its row, whose version is their number.

    Raises:
        UnreadableError: this is not the plaintext of the row of a writer.
    """
    reader = Reader(plain)
    added = Sums.read(reader, former=former)
    reader.end()
    return added


def new_writer() -> int:
    """Return the number of a new writer."""
    return int.from_bytes(os.urandom(8), "big") >> 1 or 1
