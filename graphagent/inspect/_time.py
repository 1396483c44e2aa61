"""The places of moments of a run in a picture. Work is to scale, and long silences are shortened."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from graphagent import _clock

if TYPE_CHECKING:
    from graphagent.history import StoredRun
    from graphagent.inspect._spans import Attempt, Span

SILENCE = 60_000
"""Milliseconds of silence from which on it has a fixed width."""
_WIDTH = 8.0
_MOST = 40.0
"""The width of one silence, and of all together at most, in per cent."""
_TICKS = 5
"""About how many marks of time a picture has."""
_STEPS = (1, 2, 5)
_CLOCK = (10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400)
"""Seconds between two marks, where decimal ones would be odd."""


class Scale:
    """Places of moments, in per cent of the width."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.first = min((each.began for each in spans), default=0)
        self.last = max((each.ended for each in spans), default=0)
        gaps = list(_gaps(spans, self.first, self.last))
        self.waited = sum(end - begin for begin, end in gaps if end - begin >= 1000) / 1000
        """Seconds in which nothing was done."""
        self.silences = [each for each in gaps if each[1] - each[0] >= SILENCE]
        """The beginnings and ends of the silences that are shortened."""
        share = min(_WIDTH, _MOST / max(len(self.silences), 1))
        self.work = (self.last - self.first) - sum(end - begin for begin, end in self.silences)
        """The milliseconds that are to scale."""
        rest = 100 - share * len(self.silences)
        self._moments, self._places = [self.first], [0.0]
        for begin, end in self.silences:
            at = self._places[-1] + (begin - self._moments[-1]) / max(self.work, 1) * rest
            self._moments += [begin, end]
            self._places += [at, at + share]
        self._moments.append(self.last)
        self._places.append(100.0)

    def at(self, moment: int) -> float:
        """Return the place of a moment."""
        place = min(max(bisect_right(self._moments, moment) - 1, 0), len(self._moments) - 2)
        begin, end = self._moments[place], self._moments[place + 1]
        left, right = self._places[place], self._places[place + 1]
        share = (moment - begin) / (end - begin) if end > begin else 0.0
        return round(left + (right - left) * min(max(share, 0.0), 1.0), 3)

    def bar(self, part: Span | Attempt, least: float) -> tuple[float, float]:
        """Return the place and the width of a span or of an attempt; one that is too short to be seen has the least width."""
        begin, end = self.at(part.began), self.at(part.ended)
        width = max(end - begin, least)
        return round(min(begin, 100 - width), 3), round(width, 3)

    def ticks(self) -> Iterator[tuple[float, float]]:
        """Yield the places of round numbers of seconds of work, with these numbers."""
        step = _step(self.work / 1000 / _TICKS)
        worked, begin = 0.0, self.first
        done = 0
        for silent, goes_on in [*self.silences, (self.last, self.last)]:
            while done * step * 1000 <= worked + silent - begin and step:
                yield self.at(round(begin + done * step * 1000 - worked)), done * step
                done += 1
            worked, begin = worked + silent - begin, goes_on


def _step(wanted: float) -> float:
    """Return the next round number of seconds that is not below a wanted one."""
    if wanted > _CLOCK[0] / 2:
        return next((each for each in _CLOCK if each >= wanted), -(-wanted // _CLOCK[-1]) * _CLOCK[-1])
    power = 0.001
    while power * 10 < wanted:
        power *= 10
    return next((each * power for each in _STEPS if each * power >= wanted), power * 10) if wanted else 0.0


def _gaps(spans: Sequence[Span], first: int, last: int) -> Iterable[tuple[int, int]]:
    """Yield when nothing was done."""
    busy = sorted((part.began, part.ended) for each in spans if each.is_busy for part in each.attempts)
    reached = first
    for begin, end in [*busy, (last, last)]:
        if begin > reached:
            yield reached, begin
        reached = max(reached, end)


def now_of(stored: StoredRun) -> int:
    """Return until when what has not ended lasts: now, or the last entry of a run that nobody executes and nobody is asked in."""
    return _clock.now() if stored.head.status in ("running", "waiting", "sleeping") else stored.entries[-1].at
