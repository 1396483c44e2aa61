"""Forgetting notes: matching notes are found, also among notes that were consolidated into others, and erased."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from graphagent import _clock
from graphagent._concurrency import turn
from graphagent.memory.notes import _validation
from graphagent.memory.notes._validation import moment
from graphagent.memory.notes._visibility import Visibility
from graphagent.memory.notes.index._duplicates import normal
from graphagent.store import Receipt

if TYPE_CHECKING:
    from graphagent.memory._note_values import Filter, Record
    from graphagent.memory.notes._service import NoteService
    from graphagent.memory.notes.index._repository import NoteRepository

_TICK = timedelta(milliseconds=1)
"""The resolution of the clock of notes."""


async def forget(
    repository: NoteRepository,
    fits: Filter,
    *,
    ids: Iterable[str] | None = None,
    before: datetime | None = None,
    run_id: str | None = None,
) -> Receipt:
    """Erase the notes that fit: only those with these ids, saved before this time, and by this run, as far as these are given."""
    doomed: list[Record] = []
    for number, record in enumerate(await _found(repository, fits, ids), 1):
        await turn(number)
        is_old = before is None or record.created_at < before
        if fits.matches(record) and is_old and (run_id is None or record.run_id == run_id):
            doomed.append(record)
    if not doomed:
        await repository.store.commit()  # raises if notes may come back whose saving failed
        return Receipt()
    await repository.forget(fits.owner, [record.id for record in doomed])
    return Receipt(notes=len(doomed), bytes=sum(len(record.content.encode()) for record in doomed))


async def sweep(service: NoteService, visibility: Visibility) -> None:
    """Erase the notes of an owner that have expired, if they have not been looked for in the last hour."""
    if visibility.expiry is not None:
        everything = Visibility(owner=visibility.owner).filter(all_private=True)

        async def erase(before: int) -> None:
            await forget(service.repository, everything, before=moment(before))

        await visibility.expiry.sweep(visibility.owner, erase)


async def _found(repository: NoteRepository, fits: Filter, ids: Iterable[str] | None) -> Iterable[Record]:
    """Return notes that may fit, each once, with notes that were consolidated into others."""
    if not fits.scopes:
        return []
    retired = await repository.retired(fits.owner)
    if ids is None:
        return {record.id: record for record in [*await repository.newest(fits), *retired]}.values()
    given = [ids] if isinstance(ids, str) or not isinstance(ids, Iterable) else ids  # pyright: ignore[reportUnnecessaryIsInstance]
    wanted = dict.fromkeys(map(_validation.note_id, given))
    found = await repository.get_many(fits.owner, wanted)
    for record in retired:
        if record.id in wanted:
            found[record.id] = record
            now = await repository.replacement(record.owner, record.id)
            # The words of a forgotten note must not be found in the note into which it was consolidated.
            if now is not None and normal(now.content) == normal(record.content):
                found[now.id] = now
    return found.values()


def check_not_empty(conditions: Mapping[str, object]) -> None:
    """Check that no condition is empty: a condition that is empty by accident would fit every note.

    Raises:
        ValueError: a condition is empty or blank.
    """
    for name, given in conditions.items():
        if given is not None and not (given.strip() if isinstance(given, str) else given):
            root = " (everything: '/')" if name == "scope" else ""
            raise ValueError(
                f"{name}={given!r} says nothing of which notes to forget; leave it out, or say which{root}"
            )


def time_before(older_than: timedelta | datetime) -> datetime:
    """Return the time before which notes were saved that are older than an age or a time.

    Raises:
        ValueError: the age is below zero, or the time has no zone or is in the future: everything would be older.
    """
    now = moment(_clock.now())
    if isinstance(older_than, datetime):
        time = _validation.time(older_than, "older_than")
        if time > now + _TICK:
            raise ValueError(
                f"older_than={older_than.isoformat()} has not come yet, so every note is older. "
                f"To forget everything, use reset()"
            )
        return time
    if not isinstance(older_than, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            f"older_than={older_than!r} is neither an age nor a time: an age is a timedelta, such as timedelta(days=30), "
            f"and a time is a datetime"
        )
    if older_than < timedelta(0):
        raise ValueError(
            f"older_than={older_than!r} is below zero, so every note is older; an age is a timedelta such as "
            f"timedelta(days=30). To forget everything, use reset()"
        )
    try:
        return now - older_than
    except OverflowError:  # before the year 1
        return datetime.min.replace(tzinfo=UTC)
