"""Commits: their changes as rows, and sending them, several small ones at once or one of any size by itself."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from graphagent.errors import ConflictError, PlainStoreError, SealedStoreError, StoreError
from graphagent.store._items import Change, Delete, DeleteAll, Exists, Put, encode
from graphagent.store._sealed_detection import KEYS, MAGIC, is_plain
from graphagent.store.postgres._connection import BYTEA, INT2, INT4, INT8, UUID, Connection, Parameter, array
from graphagent.store.postgres._failures import Failure, Lost, error_of
from graphagent.store.postgres._link import Link, SealedMeanwhile
from graphagent.store.postgres._migrations import (
    ADD,
    CONFLICT,
    DELETE,
    DELETE_ALL,
    EXISTS,
    NOT_EMPTY,
    PUT,
    REMOVE,
    REPLACE,
)
from graphagent.store.postgres._places import place_of

if TYPE_CHECKING:
    from graphagent._concurrency import Reply

PAGE_BYTES = 2**20
"""The longest value that is in one row; a longer one is in pages of this size."""
QUICK_CHANGES, QUICK_BYTES = 1000, 2**20
"""The most changes, and bytes of values, of a commit that is made together with others."""
TOGETHER_BYTES = 2**23
"""About how many bytes of values are sent in one message."""


class Row(NamedTuple):
    """A change, as the functions of the database take it."""

    place: bytes
    kind: int
    expected: int | None = None
    version: int | None = None
    value: bytes | None = None
    key: bytes | None = None
    paged: bytes | None = None
    digest: bytes | None = None


@dataclass(eq=False, slots=True)
class Job:
    """A commit."""

    changes: Sequence[Change]
    along: Callable[[Any], object] | None = None
    """Changes other tables in the same transaction."""
    plain: bool = False
    """Whether a change is one of a plain item, which a sealed store refuses."""
    seals: bool = False
    """Whether a change puts the key row, by which a store is sealed."""
    size: int = 0
    """How many bytes of values it has."""
    new: bool = True
    """Whether the store is made for it if there is none."""
    rows: list[Row] = field(default_factory=list[Row])
    """The message of a quick commit."""
    reply: Reply | None = None
    abandoned: bool = False
    """No task waits for the commit any more, so it need not be begun."""

    def answer(self, error: BaseException | None = None) -> None:
        """Wake the task that waits for the commit."""
        if self.reply is not None:
            self.reply.send(error)

    def is_quick(self) -> bool:
        """Return whether it is made together with others: it is small, and deletes no range of unknown size."""
        return (
            self.along is None
            and not self.seals
            and len(self.changes) <= QUICK_CHANGES
            and self.size <= QUICK_BYTES
            and not any(isinstance(each, DeleteAll) for each in self.changes)
        )


def job_of(changes: Sequence[Change], along: Callable[[Any], object] | None) -> Job:
    """Return the commit of changes that were checked."""
    job = Job(changes, along)
    for each in changes:
        if isinstance(each, Put):
            job.size += len(each.value) + len(each.before or b"")
            job.seals = job.seals or (each.key == KEYS and each.value.startswith(MAGIC))
        job.plain = job.plain or is_plain(each.prefix if isinstance(each, DeleteAll) else each.key)
    if job.is_quick():
        job.rows = [row_of(each) for each in changes]
    return job


def row_of(change: Change, paged: uuid.UUID | None = None) -> Row:
    """Return a change as a row. Of a value that is `paged`, the row has the digest, as it has of the bytes that a put expects."""
    if isinstance(change, DeleteAll):
        return Row(place_of(change.prefix), DELETE_ALL)
    place = place_of(change.key)
    if isinstance(change, Exists):
        return Row(place, EXISTS, change.version)
    if isinstance(change, Delete):
        return Row(place, DELETE if change.expected is None else REMOVE, change.expected)
    whole = encode(change.key)
    return Row(
        place,
        PUT if change.expected is None else REPLACE if change.expected else ADD,
        change.expected,
        change.version,
        change.value if paged is None else hashlib.sha256(change.value).digest(),
        None if whole == place else whole,
        None if paged is None else paged.bytes,
        None if change.before is None else hashlib.sha256(change.before).digest(),
    )


def _arrays(rows: Iterable[Row]) -> list[Parameter]:
    places, kinds, expected, versions, values, keys, paged, digests = zip(*rows, strict=True)
    return [
        array(INT2, kinds),
        array(BYTEA, places),
        array(INT8, expected),
        array(INT8, versions),
        array(BYTEA, values),
        array(BYTEA, keys),
        array(UUID, paged),
        array(BYTEA, digests),
    ]


def make(link: Link, jobs: Sequence[Job]) -> None:
    """Make commits, as many as possible in one transaction, and answer each."""
    sealed = link.database.is_sealed
    for job in jobs:
        if sealed and (job.plain or job.along is not None):
            job.answer(SealedStoreError(link.database.where))
    left = [job for job in jobs if not (job.abandoned or (sealed and (job.plain or job.along is not None)))]
    if not left:
        return
    try:
        if not all(job.is_quick() for job in left) or not _made_at_once(link, left, sealed=sealed):
            conflicts = _make_each(link, left, sealed=sealed)
        else:
            conflicts = {}
    except SealedMeanwhile:
        make(link, left)
    except Exception as error:  # noqa: BLE001 - every waiting task raises it
        for job in left:
            job.answer(_raised(error, job, link))
    else:
        for job in left:
            job.answer(conflicts.get(job))


def _raised(error: Exception, job: Job, link: Link) -> Exception:
    where = link.database.where
    if isinstance(error, Failure) and error.state == NOT_EMPTY:
        return PlainStoreError(where)
    if isinstance(error, Failure | Lost):
        return error_of(error, where)
    return error


def _made_at_once(link: Link, jobs: Sequence[Job], *, sealed: bool) -> bool:
    """Make all commits in one statement, which is a transaction, or none; return False if one of them conflicts."""
    # In the order of keys, so that two transactions do not wait for each other. Changes of one key stay in their order.
    arrays = _arrays(sorted((row for job in jobs for row in job.rows), key=lambda row: row.place))
    call = link.database.sql("SELECT {s}.commit_here($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)")
    new = any(job.new for job in jobs)
    try:
        link.write(lambda connection, enter: _run(connection, call, [*enter, *arrays]), new=new, sealed=sealed)
    except Failure as failure:
        if failure.state == CONFLICT:
            return False
        raise
    return True


def _run(connection: Connection, call: bytes, parameters: list[Parameter]) -> None:
    connection.run(call, parameters)


def _make_each(link: Link, jobs: Sequence[Job], *, sealed: bool) -> dict[Job, ConflictError]:
    """Make the commits that can be made in one transaction; return the conflicts of the others."""
    conflicts: dict[Job, ConflictError] = {}

    def attempt(connection: Connection, enter: list[Parameter]) -> None:
        conflicts.clear()
        connection.script(link.database.begin)
        if any(job.seals for job in jobs) and not sealed:
            connection.run(link.database.sql("SELECT {s}.begin_sealing($1)"), enter[:1])
        connection.run(link.database.sql("SELECT {s}.enter($1, $2, $3)"), enter)
        _send(connection, link, jobs, conflicts)
        if len(conflicts) == len(jobs):
            connection.script(b"ROLLBACK")
            return
        for job in jobs:
            if job.along is not None:
                _call_along(connection, job.along)
        connection.script(b"COMMIT")

    link.write(attempt, new=any(job.new for job in jobs), sealed=sealed)
    if any(job.seals for job in jobs if job not in conflicts):
        link.database.is_sealed = True
    return conflicts


def _send(connection: Connection, link: Link, jobs: Sequence[Job], conflicts: dict[Job, ConflictError]) -> None:
    places = [
        (change, place_of(change.prefix if isinstance(change, DeleteAll) else change.key))
        for job in jobs
        for change in job.changes
    ]
    kinds = [
        row_of(change).kind if not isinstance(change, Put) else ADD if change.expected == 0 else PUT
        for change, _ in places
    ]
    if places:
        lock = link.database.sql("SELECT {s}.lock_all($1, $2)")
        connection.run(lock, [array(INT2, kinds), array(BYTEA, [place for _, place in places])])
    call = link.database.sql("SELECT {s}.commit_each($1, $2, $3, $4, $5, $6, $7, $8, $9)")
    if len(jobs) > 1:  # all of them are quick
        starts, rows = list[int](), list[Row]()
        for job in jobs:
            starts.append(len(rows) + 1)
            rows += job.rows
        [(found,)] = connection.run(call, [array(INT4, starts), *_arrays(rows)])
        for number, change, version in _conflicts_in(found):
            conflicts[jobs[number - 1]] = _conflict(jobs[number - 1], change, version)
        return
    [job] = jobs
    done = 0
    for rows in _messages(connection, link, job):
        [(found,)] = connection.run(call, [array(INT4, [1]), *_arrays(rows)])
        for _, change, version in _conflicts_in(found):
            conflicts[job] = _conflict(job, done + change, version)
            return
        done += len(rows)


def _messages(connection: Connection, link: Link, job: Job) -> Iterable[list[Row]]:
    """Yield the rows of a commit in parts of bounded size. The pages of long values are sent before."""
    rows, size = list[Row](), 0
    put = link.database.sql("INSERT INTO {s}.pages VALUES ($1, $2, $3)")
    for change in job.changes:
        paged = None
        if isinstance(change, Put) and len(change.value) > PAGE_BYTES:
            paged = uuid.uuid4()
            for number, start in enumerate(range(0, len(change.value), PAGE_BYTES)):
                page = change.value[start : start + PAGE_BYTES]
                connection.run(put, [(UUID, paged.bytes), (INT4, number.to_bytes(4, "big")), (BYTEA, page)])
        row = row_of(change, paged)
        if rows and size + len(row.value or b"") > TOGETHER_BYTES:
            yield rows
            rows, size = [], 0
        rows.append(row)
        size += len(row.value or b"") + len(row.place)
    if rows:
        yield rows


def _conflicts_in(found: bytes | None) -> Iterable[tuple[int, int, int]]:
    for each in (found or b"").decode().split(","):
        if each:
            number, change, version = each.split()
            yield int(number), int(change), int(version)


def _conflict(job: Job, number: int, version: int) -> ConflictError:
    change = job.changes[number - 1]
    assert not isinstance(change, DeleteAll)
    expected = (change.version or version or 1) if isinstance(change, Exists) else change.expected
    return ConflictError(change.key, expected or 0, version)


def _call_along(connection: Connection, along: Callable[[Any], object]) -> None:
    import psycopg

    try:
        along(connection.psycopg)
    except psycopg.Error as error:
        raise connection.failure_of(error) from None
    if not connection.in_transaction:
        raise StoreError(
            "a function that was passed as along= has ended the transaction; it must neither commit nor roll back"
        )
