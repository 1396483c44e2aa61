"""Times and durations that users pass, and the deadlines of questions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from graphagent._article import kind_of
from graphagent._options import check_number, check_zone
from graphagent.graph._types import is_a, show
from graphagent.llm import Deny

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST = 1000 * 366 * 86_400
"""The seconds of the longest sleep."""
_LAST = 253_402_128_000_000
"""The last time that is stored, a day and more before the last one that a datetime has, so that clocks of all zones can show it."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """Until when a question can be answered, and what the answer is then: the `deadline` and the `default` of `Context.ask`, for nodes that take them."""

    when: timedelta | datetime | None = None
    """How long after it was asked, or the time; None: for as long as it takes."""
    default: Any = ...
    """The answer where nobody gives one; `...` is none."""

    @property
    def has_default(self) -> bool:
        """Whether there is an answer then; otherwise there is an error."""
        return self.default is not ...

    def check(self, where: str, kind: Literal["question", "approval", "result", "in_flight"], type_: Any) -> None:
        """Check both, as far as that is possible before the question is asked.

        Args:
            where: Who asks, as errors name it.
            kind: The kind of the question.
            type_: The type of the answer.

        Raises:
            TypeError: the deadline is none, there is a default without one, or it is not of the type of the answer.
            ValueError: the deadline has no time zone, or is not after the question.
        """
        when = self.when
        if isinstance(when, datetime):
            check_zone(f"{where}: deadline", when)
        elif isinstance(when, timedelta):
            check_duration(f"{where}: deadline", when)
            if not when:
                raise ValueError(f"{where}: deadline={when!r} leaves no time to answer; give more")
        elif when is not None:
            raise TypeError(
                f"{where}: deadline= is {kind_of(when)}; give a timedelta, such as timedelta(days=1), or a datetime with a time zone"
            )
        if not self.has_default:
            return
        if when is None:
            raise TypeError(f"{where}: default= is the answer after a deadline, and there is none; give deadline= too")
        if kind != "question":
            raise TypeError(
                f"{where}: default= is for questions, and nobody has said yes or no; catch QuestionExpiredError, or add an edge with "
                f".on_error(QuestionExpiredError)"
            )
        if isinstance(self.default, Deny) or not is_a(self.default, type_):
            raise TypeError(f"{where}: default= is {kind_of(self.default)}, and the answer is of type {show(type_)}")

    def time(self, node: str, asked: int) -> int:
        """Return the deadline of a question that is asked at a time, both in milliseconds UTC; 0 if there is none.

        Raises:
            ValueError: it is past.
        """
        if self.when is None:
            return 0
        found = milliseconds_of(self.when, asked)
        if found <= asked:
            raise ValueError(
                f"node {node!r} asks with deadline={moment_of(found).isoformat(' ', 'seconds')}, which is past; give a later one, or a "
                f"timedelta after the question"
            )
        return found


def milliseconds_of(wanted: float | timedelta | datetime, since: int) -> int:
    """Return a time, or that after a time in milliseconds UTC, in these: never earlier than it is said, but for what never comes."""
    if isinstance(wanted, datetime):
        return min(-((_EPOCH - wanted) // timedelta(milliseconds=1)), _LAST)
    span = wanted if isinstance(wanted, timedelta) else timedelta(seconds=wanted)
    return since - (-span // timedelta(milliseconds=1))


def moment_of(time: int) -> datetime:
    """Return a time in milliseconds UTC."""
    return _EPOCH + timedelta(milliseconds=time)


def check_duration(what: str, seconds: object) -> None:
    """Check that something is a number of seconds, or a timedelta, which a clock can show.

    Raises:
        TypeError: it is not.
        ValueError: it is not finite, or negative.
    """
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    check_number(what, seconds)
    assert isinstance(seconds, int | float)
    if not 0 <= seconds <= _MOST:
        raise ValueError(f"{what}: {seconds!r} seconds are not between 0 and {_MOST:,}, a thousand years")
