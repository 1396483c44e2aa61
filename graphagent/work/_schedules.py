"""Runs that begin at times: lines of cron in a time zone, and since when the store knows of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast
from zoneinfo import ZoneInfo

from msgspec import MsgspecError, Struct
from msgspec.msgpack import Decoder, Encoder

from graphagent._article import kind_of
from graphagent._options import check_options, check_text, check_zone
from graphagent.errors import ConflictError, DamagedStoreError, MissingExtraError, RunExistsError, StoreError
from graphagent.store import Put
from graphagent.store._items import checked, is_intact
from graphagent.work._submit import SubmitOptions, check_submission

if TYPE_CHECKING:
    from graphagent._agent import Agent
    from graphagent.protocols import Store

_ROOM = "schedules"
"""A room with an item for each schedule."""
_FIELDS = 5
_BETWEEN_TRIES = timedelta(minutes=1)
"""How long one is left alone whose run could not be begun."""
_BEGINNING = datetime.min.replace(tzinfo=UTC)
_REFUSED = {"run_id": "it is made of the name and the time", "at": "the line says when"}


class Schedule:
    """Has workers begin a run of an agent at each time of a cron line: one run, however many workers there are.

    The line is about the clock on the wall. A time that occurs twice, when clocks are set back, counts once; one that is left out, when
    they are set forward, counts as the end of the time that is left out. Only lines whose minute or hour begins with `*` are about the hours
    that pass, as in cron. A day of the month and a day of the week are alternatives, as in `0 9 13 * 5`, unless one of the two fields
    begins with `*`, as in `0 9 */2 * 1`: then both must fit. Times that passed while no worker was there begin one run together, that
    of the last of them. A schedule counts from when a worker first has it, and anew once its line or its zone is another.

    Its runs are submitted ones. Their ids are the name, `@` and the time in UTC: `report@20260330T0700Z`.

    Args:
        cron: Five fields, such as `0 9 * * 1-5`: minute, hour, day of the month, month, day of the week.
        agent: Whose runs these are.
        task: The input of the agent, or a function that returns it for a time, which it is passed in the zone.
        zone: The time zone, such as `Europe/Oslo`.
        name: Identifies the schedule in its store. By default it is made of the strategy, the line and the zone.
        **options: As in `agent.submit`, such as `owner`, `thread` and `queue`.

    Raises:
        ValueError: the line never comes, or is none; the zone is not known; or the name has a slash.
        TypeError: an option is not an option of a submitted run, or is decided by the schedule.
        MissingExtraError: the extra `workers` is not installed.
    """

    def __init__(
        self, cron: str, agent: Agent[Any, Any], task: Any = None, *, zone: str = "UTC", name: str = "", **options: Any
    ) -> None:
        for named, given in (("cron", cron), ("zone=", zone), ("name=", name)):
            check_text(named, given)
        if "/" in name:
            raise ValueError(f"name={name!r} has a slash, which separates runs from those inside of them")
        for option in options:
            if option in _REFUSED:
                raise TypeError(f"a schedule takes no {option}=: {_REFUSED[option]}")
        if not hasattr(agent, "strategy"):
            raise TypeError(f"a schedule begins runs of an agent, not of {kind_of(agent)}")
        check_options("a schedule", options, SubmitOptions.__annotations__)
        check_submission(cast("SubmitOptions", options))
        self.cron, self.zone = cron, zone
        self.agent: Agent[Any, Any] = agent
        """Whose runs it begins."""
        self.options = options
        """The options with which its runs are submitted."""
        made = hashlib.blake2b(f"{cron} {zone}".encode(), digest_size=4).hexdigest()
        self.name = name or f"{agent.name or agent.strategy.name}-{made}"
        """Identifies it in its store."""
        self._task = task
        try:
            self._zone = ZoneInfo(zone)
        except (KeyError, ValueError, OSError):
            raise ValueError(f"zone={zone!r} is not a time zone; write one such as 'Europe/Oslo', or 'UTC'") from None
        self.after(datetime.now(UTC))
        self._next = _BEGINNING

    def after(self, moment: datetime) -> datetime:
        """Return the first time after a moment, in UTC.

        Raises:
            ValueError: there is none, or the moment has no time zone.
        """
        check_zone("moment", moment)
        found = next(self._times(moment, back=False), None)
        if found is None:
            raise ValueError(f"the cron line {self.cron!r} never comes")
        first = found.astimezone(UTC)
        # On days when clocks are set by half an hour, cronsim finds some times in one direction only.
        for each in self._times(first, back=True):
            if each.astimezone(UTC) <= moment:
                break
            first = each.astimezone(UTC)
        return first

    def until(self, moment: datetime) -> datetime | None:
        """Return the last time up to a moment, in UTC; None if there was none.

        Raises:
            ValueError: the moment has no time zone.
        """
        check_zone("moment", moment)
        ahead = moment.astimezone(UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        # Times of one zone are compared by local time, which may be the same for two of them.
        found = (each.astimezone(UTC) for each in self._times(ahead, back=True))
        last = next((each for each in found if each <= moment.astimezone(UTC)), None)
        if last is not None:
            for each in self._times(last, back=False):  # some are found ahead only, as above
                if each.astimezone(UTC) > moment:
                    break
                last = each.astimezone(UTC)
        return last

    def task(self, time: datetime) -> Any:
        """Return the task of the run that begins at a time.

        Raises:
            ValueError: the time has no zone.
        """
        check_zone("time", time)
        return self._task(time.astimezone(self._zone)) if callable(self._task) else self._task

    def run_id(self, time: datetime) -> str:
        """Return the id of the run that begins at a time.

        Raises:
            ValueError: the time has no zone.
        """
        check_zone("time", time)
        return f"{self.name}@{time.astimezone(UTC):%Y%m%dT%H%MZ}"

    async def begin_due(self, store: Store, now: datetime, begin: Callable[..., Any]) -> None:
        """Begin the run of the last time that has come and whose run has not begun, by `begin(schedule, time)`.

        A failure other than one of the store is tried again a minute later, until the next time has come.

        Raises:
            DamagedStoreError: the stored state of the schedule is damaged.
            StoreError: it cannot be read or written.
        """
        if now < self._next:
            return
        key, item = (_ROOM, self.name), await store.get((_ROOM, self.name))
        known = None if item is None else _unpack(item.value, self.name)
        if known is None or (known.cron, known.zone) != (self.cron, self.zone):
            seen: datetime | None = now
        else:
            seen = self.until(now)
            if seen is not None and seen.timestamp() * 1000 <= known.until:
                seen = None
            if seen is not None:
                self._next = now + _BETWEEN_TRIES
                try:
                    await begin(self, seen)
                except RunExistsError:
                    pass  # another worker has begun it, with a task that was another one there
                except StoreError:
                    self._next = now
                    raise
        if seen is not None:
            kept = _Known(self.cron, self.zone, round(seen.timestamp() * 1000))
            try:
                await store.commit(Put(key, kept.pack(), expected=0 if item is None else item.version))
            except ConflictError:
                return  # another worker was faster: the next look sees the runs that it has begun
        self._next = self.after(now)

    def _times(self, moment: datetime, *, back: bool) -> Iterator[datetime]:
        """Return the times before or after a moment.

        Raises:
            ValueError: the line is none.
        """
        try:
            from cronsim import CronSim, CronSimError
        except ImportError:
            raise MissingExtraError("a schedule", "workers") from None
        try:
            if len(self.cron.split()) != _FIELDS:
                raise CronSimError(f"it has {len(self.cron.split())} fields")
            return CronSim(self.cron, moment.astimezone(self._zone), reverse=back)
        except CronSimError as error:
            raise ValueError(
                f"{self.cron!r} is not a cron line: {error}; write minute, hour, day of the month, month and day of the week, "
                "such as '0 9 * * 1-5'"
            ) from None

    def __repr__(self) -> str:
        return f"<schedule {self.name!r}: {self.cron!r} in {self.zone}>"


class _Known(Struct, frozen=True, array_like=True):
    """The stored state of a schedule."""

    cron: str
    zone: str
    until: int
    """Milliseconds UTC: the runs of all times up to then have begun."""

    def pack(self) -> bytes:
        """Return it as bytes."""
        return checked(_encoder.encode(self))


def _unpack(value: bytes, name: str) -> _Known:
    try:
        if is_intact(value):
            return _decoder.decode(memoryview(value)[4:])
    except MsgspecError:
        pass
    raise DamagedStoreError(f"the item of schedule {name!r}", "checksum mismatch")


_encoder, _decoder = Encoder(), Decoder(_Known)
