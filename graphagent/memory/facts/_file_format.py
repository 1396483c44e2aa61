"""The format of files of facts: a line with the owner, scope and subject, then a line of JSON per fact, in the order of saving.

Every line ends with its own CRC-32, and the line of a fact contains the CRC-32 of the line before it. So an edited, copied, moved
or removed line is detected. To edit a file by hand, remove the `crc` of the line, or of the line after a removed one.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import orjson

from graphagent._article import counted
from graphagent.errors import DamagedStoreError
from graphagent.memory.facts._json import Place, fact_record, has_fact_keys, place_record, read_fact, read_place
from graphagent.memory.facts._known import Known, Moment, known_at, size_of
from graphagent.store import _durable_files as durable_files

if TYPE_CHECKING:
    from graphagent.memory.facts._types import Fact, FactVersion

_AFTER = "after"
_CRC = b',"crc":"'
_CRC_END = b'"}'
_AFTER_MARK = b',"after":"'
_HEX = frozenset(b"0123456789abcdef")
_FORMAT = {"graphagent": "facts", "format": 1}
_TAIL = 256
_BY_HAND = 'Restore it from a backup; or, if the file was changed on purpose, remove "crc" from this line, which is then read as it is'


class Stamp(NamedTuple):
    """Identity, size and times of a file, which reveal whether the file was changed or replaced."""

    device: int
    inode: int
    size: int
    changed: int


class FactLines(NamedTuple):
    """Lines of a file that were read or will be written."""

    facts: list[FactVersion]
    data: bytes
    """The bytes of the lines, including the file's first line if they are read from its start."""
    crc: str | None
    """The checksum of the last line; None if the line was edited by hand and has no checksum."""
    torn: str = ""
    """The damage after the lines, a damaged last line or a lost block; empty without damage."""


def stamp_of(stat: os.stat_result) -> Stamp:
    """Return the stamp of a file."""
    return Stamp(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)


def new_file(place: Place, facts: Iterable[FactVersion]) -> FactLines:
    """Return all lines of a new file."""
    head, crc = _line({**_FORMAT, **place_record(place)})
    made = lines(facts, crc)
    return made._replace(data=head + made.data)


def lines(facts: Iterable[FactVersion], crc: str | None) -> FactLines:
    """Return the lines of saved facts, to follow a line with this checksum."""
    added, data = list(facts), list[bytes]()
    for fact in added:
        line, crc = _line({**fact_record(fact), _AFTER: crc or ""})
        data.append(line)
    return FactLines(added, b"".join(data), crc)


class Page:
    """The contents of one file: enough to load and to save facts without reading the file again."""

    __slots__ = ("_histories", "_known", "_lock", "_tail", "crc", "end", "facts", "size", "stamp", "torn", "unended")

    def __init__(self) -> None:
        self.facts = 0
        """The number of facts in the file, all versions counted."""
        self.end = 0
        """The position after the last undamaged line; bytes after it are the rest of a line that a crash left."""
        self.unended = False
        """Whether the last line lacks only its line break, as some editors leave it."""
        self.torn = ""
        """The damage after the lines, unless it is only the beginning of a line."""
        self.crc: str | None = None
        """The checksum of the last line, if any."""
        self.size = 0
        """The approximate bytes of memory of the facts."""
        self.stamp: Stamp | None = None
        self._tail = b""
        self._known: dict[str, Known] = {}
        self._histories: dict[str, list[FactVersion]] = {}
        # Held only briefly, because the event loop reads data that a worker thread changes.
        self._lock = threading.Lock()

    def facts_of(self, keyword: str, moment: Moment | None) -> list[Fact] | None:
        """Return the facts about a concept that hold at a moment, or now; None if that needs a history that is not loaded."""
        with self._lock:
            known = self._known.get(keyword)
            found = () if known is None else self._at(keyword, known, moment)
            return None if found is None else list(found)

    def all(self, moment: Moment | None) -> list[Fact] | None:
        """Return the facts about all concepts that hold at a moment, or now, in the order in which the concepts were first saved.

        The result is None if it needs histories that are not loaded.
        """
        found: list[Fact] = []
        with self._lock:
            if moment is None:
                return [fact for known in self._known.values() for fact in known.facts()]
            for keyword, known in self._known.items():
                facts = self._at(keyword, known, moment)
                if facts is None:
                    return None
                found += facts
        return found

    def without_history(self, keyword: str | None, moment: Moment) -> set[str]:
        """Return the keywords, all or the given one, whose facts at a moment need a history that is not loaded."""
        with self._lock:
            return {
                name
                for name, known in self._known.items()
                if keyword in (None, name) and name not in self._histories and not moment.has(known.last)
            }

    def history(self, keyword: str) -> list[FactVersion] | None:
        """Return every version of the facts about a concept, in the order of saving; None if the history is not loaded."""
        with self._lock:
            return (
                list(self._histories.get(keyword, ()))
                if keyword in self._histories or keyword not in self._known
                else None
            )

    def keep(self, histories: Mapping[str, list[FactVersion]]) -> None:
        """Store histories of concepts, so that they need not be read again."""
        with self._lock:
            for keyword, versions in histories.items():
                self._histories[keyword] = versions
                self.size += sum(map(size_of, versions))

    def _at(self, keyword: str, known: Known, moment: Moment | None) -> Sequence[Fact] | None:
        if moment is None or moment.has(known.last):
            return known.facts(moment)
        history = self._histories.get(keyword)
        return None if history is None else known_at(reversed(history), moment)[0]

    def version(self, keyword: str) -> int:
        """Return the last version of a concept; 0 without a version."""
        known = self._known.get(keyword)
        return known.last.version if known else 0

    def add(self, added: FactLines, stamp: Stamp) -> None:
        """Add lines that were written to the end of the file."""
        with self._lock:
            for fact in added.facts:
                known = self._known.get(fact.concept.keyword)
                if known is None:
                    known = self._known[fact.concept.keyword] = Known(fact)
                else:
                    self.size -= known.size
                    known.add(fact)
                self.size += known.size
                self.facts += 1
                if (history := self._histories.get(fact.concept.keyword)) is not None:
                    history.append(fact)
                    self.size += size_of(fact)
        self.end += len(added.data)
        self.unended = bool(added.data) and not added.data.endswith(b"\n")
        self.torn = added.torn
        self.crc = added.crc
        self._tail = (self._tail + added.data[-_TAIL:])[-_TAIL:]
        self.stamp = stamp

    def is_of(self, stamp: Stamp) -> bool:
        """Return whether a file is the same file that was read, changed or not."""
        return self.stamp is not None and self.stamp[:2] == stamp[:2]

    def continues(self, file: int, stamp: Stamp) -> bool:
        """Return whether a file is the same file that was read, with lines added since."""
        return (
            self.stamp is not None
            and self.is_of(stamp)
            and stamp.size > self.stamp.size
            and not self.unended
            and os.pread(file, len(self._tail), self.end - len(self._tail)) == self._tail
        )


def read_place_of(file: int, path: str) -> Place:
    """Return the owner, scope and subject of a file."""
    first, newline, _ = os.pread(file, 1 << 16, 0).partition(b"\n")
    if not newline:
        raise DamagedStoreError(f"{path}, line 1", "it does not say whose facts these are")
    return _place(first, path)[0]


def read_lines(file: int, place: Place, path: str, page: Page | None = None) -> FactLines:
    """Read all lines of a file, or the lines added to a page.

    An incomplete last line, left by a crash, is ignored.
    """
    page = page or Page()
    data = durable_files.read_from(file, page.end)
    *whole, rest = data.split(b"\n")
    number, crc = page.facts + 1, page.crc
    if not page.end:
        if not whole:
            raise DamagedStoreError(f"{path}, line 1", "it does not say whose facts these are")
        found, crc = _place(whole.pop(0), path)
        if found != place:
            raise DamagedStoreError(f"{path}, line 1", "these are the facts of another owner, scope or subject")
    facts: list[FactVersion] = []
    versions: dict[str, int] = {}
    for count, line in enumerate([*whole, rest] if rest else whole):
        number += 1
        read = _read(line)
        if isinstance(read, str):
            if _is_by_hand(line):
                raise DamagedStoreError(f"{path}, line {number}", read, remedy="Correct this line")
            left = [*whole[count:], rest]
            if not _is_last(left):
                raise DamagedStoreError(f"{path}, line {number}", read, remedy=_BY_HAND)
            left_over = b"\n".join(left)
            sound = data[: len(data) - len(left_over)]
            torn = "" if _is_cut(left_over) else _damage(left_over, page.end + len(sound), page.facts + len(facts))
            return FactLines(facts, sound, crc, torn)
        keyword = read.fact.concept.keyword
        if reason := _misplaced(read, crc, versions.get(keyword) or page.version(keyword)):
            raise DamagedStoreError(f"{path}, line {number}", reason, remedy=_BY_HAND)
        versions[keyword] = read.fact.version
        crc = read.crc
        facts.append(read.fact)
    return FactLines(facts, data, crc)


def histories_of(file: int, page: Page, keywords: AbstractSet[str], path: str) -> dict[str, list[FactVersion]]:
    """Return every version of the facts about some concepts, in the order of saving, from a file whose page was just read."""
    found: dict[str, list[FactVersion]] = {keyword: [] for keyword in keywords}
    name = orjson.dumps(next(iter(keywords))) if len(keywords) == 1 else b""
    for number, line in enumerate(durable_files.read_from(file, 0)[: page.end].split(b"\n")[1:], 2):
        # The page has checked all lines. JSON has the keyword literally, or with a backslash in the place of a character.
        if line and (name in line or b"\\" in line):
            read = _read(line)
            if isinstance(read, str):
                raise DamagedStoreError(f"{path}, line {number}", read, remedy=_BY_HAND)
            if read.fact.concept.keyword in keywords:
                found[read.fact.concept.keyword].append(read.fact)
    return found


def count(file: int) -> int:
    """Return the number of facts in a file without checking them, so that a damaged file can be erased too."""
    *facts, rest = durable_files.read_from(file, 0).split(b"\n")[1:] or (b"",)
    return len(facts) + isinstance(_read(rest), _ParsedLine)


class _ParsedLine(NamedTuple):
    """The contents of one line."""

    fact: FactVersion
    crc: str | None
    """Its checksum; None if somebody edited the line."""
    after: str | None
    """The checksum of the line before it, "" if that had none."""


def _misplaced(line: _ParsedLine, before: str | None, version: int) -> str:
    """Return why a line cannot follow a line with the checksum `before` and the last version of its concept; "" if it can."""
    if line.crc is None:
        return ""
    if line.after is None or before not in (None, line.after):
        return "it does not follow the line before it: a line was removed here, or this one was copied or moved"
    if version and line.fact.version != version + 1:
        return "its version does not follow that of its concept: a line was removed before it, or this one was copied or moved"
    return ""


def _line(record: dict[str, object]) -> tuple[bytes, str]:
    """Return a line and its checksum."""
    body = orjson.dumps(record)[:-1]
    crc = f"{zlib.crc32(body):08x}"
    return b"%b%b%b%b\n" % (body, _CRC, crc.encode(), _CRC_END), crc


def _record(line: bytes) -> tuple[Any, str | None]:
    """Return the data of a line, and its checksum or None."""
    body, mark, crc = line.rpartition(_CRC)
    if not mark:
        return orjson.loads(line), None
    expected = f"{zlib.crc32(body):08x}"
    if crc != expected.encode() + _CRC_END:
        raise ValueError("its bytes do not match its crc")
    return orjson.loads(body + b"}"), expected


def _is_by_hand(line: bytes) -> bool:
    """Return whether a line was written by hand: a line that a crash left is cut off, or has a crc."""
    try:
        record, crc = _record(line)
    except ValueError:
        return False
    if crc is None and isinstance(record, dict):
        record.pop(_AFTER, None)  # pyright: ignore[reportUnknownMemberType]
    return crc is None and has_fact_keys(cast("object", record))


def _is_last(left: list[bytes]) -> bool:
    """Return whether lines, the first of them damaged, can be the rest of one line: only the last line may be damaged."""
    size = sum(map(len, left)) + len(left) - 1
    return size <= _length(b"\n".join(left)) + 1 and all(isinstance(_read(line), str) for line in left[1:])


def _damage(left: bytes, sound: int, facts: int) -> str:
    """Return a text about the damage at the end of a file, after the intact bytes of some facts, and about how many facts are lost."""
    many = round(len(left) * facts / sound) if facts else 0
    if many <= 1 and facts:
        return "the last line is torn, as a power loss or a bad sector leaves it"
    zeros = len(left) - len(left.rstrip(b"\0\n"))
    what = f"{counted(zeros, 'byte')} of zeros" if zeros > len(left) // 2 else f"{len(left):,} damaged bytes"
    hidden = f"about {counted(many, 'fact')}" if facts else "every fact of this file"
    return f"its end is lost: there are {what}, as a bad sector or a lost block leaves them, where {hidden} were"


def _is_cut(left: bytes) -> bool:
    """Return whether bytes are the beginning of a line that was never completed, and not of an overwritten line."""
    if min(left) < ord(" ") or len(left) >= _length(left):
        return False
    body, mark, rest = left.rpartition(_AFTER_MARK)
    if not mark:
        return _begins_json(left)
    before, quote, end = rest.partition(b'"')
    if quote:
        crc = b"%08x" % zlib.crc32(body + mark + before + quote)
        return (_CRC + crc + _CRC_END).startswith(end)
    return len(before) <= 8 and _HEX.issuperset(before)


def _begins_json(data: bytes) -> bool:
    from pydantic_core import from_json

    text = data.decode(errors="ignore")  # the data may end within a character
    if len(data) - len(text.encode()) > 3 or not text.startswith("{"):
        return data == b"{"[: len(data)]
    try:
        from_json(text, allow_partial="trailing-strings")
    except ValueError:
        return False
    return True


def _length(line: bytes) -> float:
    """Return the length of a line without its line break, from the position of its crc. No value contains a crc: quotes are escaped."""
    mark = line.find(_CRC)
    return inf if mark < 0 else mark + len(_CRC) + 8 + len(_CRC_END)


def _read(line: bytes) -> _ParsedLine | str:
    """Return the contents of a line, or the reason why it is invalid; a JSON error itself would contain the line."""
    try:
        record, crc = _record(line)
        if not isinstance(record, dict):
            raise TypeError("a fact must be an object")
        fields = cast("dict[str, Any]", record)
        after = fields.pop(_AFTER, None)
        return _ParsedLine(read_fact(fields), crc, after)
    except (ValueError, TypeError) as error:
        return "it is not JSON" if isinstance(error, orjson.JSONDecodeError) else str(error)


def _place(line: bytes, path: str) -> tuple[Place, str | None]:
    try:
        record, crc = _record(line)
        if {key: record.pop(key, None) for key in _FORMAT} != _FORMAT:
            raise ValueError("it does not say whose facts these are")
        return read_place(record), crc
    except (ValueError, TypeError, AttributeError) as error:
        reason = str(error) if type(error) is ValueError else "it does not say whose facts these are"
    raise DamagedStoreError(f"{path}, line 1", reason)
