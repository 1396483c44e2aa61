"""The files of facts: one line that says whose facts they are, then one line of JSON for each fact, in the order of saving.

Every line ends with a CRC-32 of itself, so that rotten bytes are noticed. Whoever edits a line by hand takes the `crc` out of it.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from graphagent.errors import DamagedStoreError
from graphagent.memory._files import read_from
from graphagent.memory._records import Place, fact_record, place_record, read_fact, read_place
from graphagent.memory._resolve import Known

if TYPE_CHECKING:
    from graphagent.memory._facts import Fact

_CRC = b',"crc":"'
_CRC_END = b'"}'
_FORMAT = {"graphagent": "facts", "format": 1}
_TAIL = 256


class Stamp(NamedTuple):
    """What shows that a file was written since, or that it is another one."""

    device: int
    inode: int
    size: int
    changed: int


def stamp_of(stat: os.stat_result) -> Stamp:
    """Give the stamp of a file."""
    return Stamp(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)


def header(place: Place) -> bytes:
    """Give the first line of a file."""
    return _line({**_FORMAT, **place_record(place)})


def lines(facts: Iterable[Fact]) -> bytes:
    """Give the lines of saved facts."""
    return b"".join(_line(fact_record(fact)) for fact in facts)


class Page:
    """What one file says, as far as it was read: enough to load and to save without reading it again."""

    __slots__ = ("_known", "_lock", "_tail", "end", "facts", "stamp", "unended")

    def __init__(self) -> None:
        self.facts = 0
        """How many facts were read, all versions counted."""
        self.end = 0
        """Where the last complete line ends; what stands behind it is what a crash left of a line."""
        self.unended = False
        """Whether the last line is complete but for its line break, as editors may leave it."""
        self.stamp: Stamp | None = None
        self._tail = b""
        self._known: dict[str, Known] = {}
        # Held for moments only: the event loop reads what a worker thread changes.
        self._lock = threading.Lock()

    def fact(self, keyword: str) -> Fact | None:
        """Give what is known of a concept."""
        with self._lock:
            known = self._known.get(keyword)
            return known.fact() if known else None

    def all(self) -> list[Fact]:
        """Give what is known of every concept, in the order in which they were first saved."""
        with self._lock:
            return [known.fact() for known in self._known.values()]

    def version(self, keyword: str) -> int:
        """Give the last version of a concept, 0 where there is none."""
        known = self._known.get(keyword)
        return known.last.version if known else 0

    def add(self, facts: Iterable[Fact], written: bytes, stamp: Stamp) -> None:
        """Take in facts that now stand at the end of the file, as the bytes `written`."""
        with self._lock:
            for fact in facts:
                known = self._known.get(fact.concept.keyword)
                if known is None:
                    self._known[fact.concept.keyword] = Known(fact)
                else:
                    known.add(fact)
                self.facts += 1
        self.end += len(written)
        self.unended = bool(written) and not written.endswith(b"\n")
        self._tail = (self._tail + written[-_TAIL:])[-_TAIL:]
        self.stamp = stamp

    def is_of(self, stamp: Stamp) -> bool:
        """Say whether a file is the one that was read, whatever became of it since."""
        return self.stamp is not None and self.stamp[:2] == stamp[:2]

    def continues(self, file: int, stamp: Stamp) -> bool:
        """Say whether a file is the one that was read, with lines added since."""
        return (
            self.stamp is not None
            and self.is_of(stamp)
            and stamp.size > self.stamp.size
            and not self.unended
            and os.pread(file, len(self._tail), self.end - len(self._tail)) == self._tail
        )


def read_place_of(file: int, path: str) -> Place:
    """Give whose facts a file has.

    Raises:
        DamagedStoreError: its first line is not sound.
    """
    first, newline, _ = os.pread(file, 1 << 16, 0).partition(b"\n")
    if not newline:
        raise DamagedStoreError(f"{path}, line 1", "it does not say whose facts these are")
    return _place(first, path)


def read_lines(file: int, place: Place, path: str, *, start: int = 0, before: int = 0) -> tuple[list[Fact], bytes]:
    """Give the facts of a file from a line's start on, and the bytes of their lines, with the header where `start` is 0.

    What a crash left of a last line is passed over; it was never acknowledged. `before` is the number of facts before `start`.

    Raises:
        DamagedStoreError: a line is not sound, or the file is another place's.
    """
    data = read_from(file, start)
    *whole, rest = data.split(b"\n")
    if not start:
        if not whole:
            raise DamagedStoreError(f"{path}, line 1", "it does not say whose facts these are")
        if _place(whole.pop(0), path) != place:
            raise DamagedStoreError(f"{path}, line 1", "these are the facts of another owner, scope or subject")
    facts = [_fact(line, path, number) for number, line in enumerate(whole, before + 2)]
    if not rest:
        return facts, data
    last = before + 2 + len(whole)
    if _is_sound(rest):
        return [*facts, _fact(rest, path, last)], data
    if _goes_on(rest):
        raise DamagedStoreError(f"{path}, line {last}", "something else stands where the line should end")
    return facts, data[: -len(rest)]


def count(file: int) -> int:
    """Give the number of facts in a file without checking them, so that a damaged file can be forgotten too."""
    _, *facts, rest = read_from(file, 0).split(b"\n")
    return len(facts) + _is_sound(rest)


def _line(record: dict[str, object]) -> bytes:
    body = orjson.dumps(record)[:-1]
    return b"%b%b%08x%b\n" % (body, _CRC, zlib.crc32(body), _CRC_END)


def _record(line: bytes) -> Any:
    body, mark, crc = line.rpartition(_CRC)
    if not mark:
        return orjson.loads(line)
    if crc != b"%08x%b" % (zlib.crc32(body), _CRC_END):
        raise ValueError("its bytes do not fit its crc")
    return orjson.loads(body + b"}")


def _goes_on(rest: bytes) -> bool:
    """Say whether bytes without a line break hold more than the beginning of one line, so that no crash left them."""
    end = rest.find(_CRC)  # cannot stand inside a value, where quotes are escaped
    return end >= 0 and len(rest) > end + len(_CRC) + 8 + len(_CRC_END)


def _is_sound(line: bytes) -> bool:
    try:
        read_fact(_record(line))
    except (ValueError, TypeError):
        return False
    return True


def _fact(line: bytes, path: str, number: int) -> Fact:
    try:
        return read_fact(_record(line))
    except (ValueError, TypeError) as error:
        reason = "it is not JSON" if isinstance(error, orjson.JSONDecodeError) else str(error)
    # Outside the except clause, so that the text of the line, which the JSON error holds, is not kept with the error.
    raise DamagedStoreError(f"{path}, line {number}", reason)


def _place(line: bytes, path: str) -> Place:
    try:
        record: dict[str, object] = _record(line)
        if {key: record.pop(key, None) for key in _FORMAT} != _FORMAT:
            raise ValueError("it does not say whose facts these are")
        return read_place(record)
    except (ValueError, TypeError, AttributeError) as error:
        reason = str(error) if type(error) is ValueError else "it does not say whose facts these are"
    raise DamagedStoreError(f"{path}, line 1", reason)
