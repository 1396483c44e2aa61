"""Where moments of a run stand in a picture: work is to scale, and long silence is not."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from graphagent import _clock
from graphagent.inspect._spans import WAITS, Span

if TYPE_CHECKING:
    from graphagent.history import StoredRun

SILENCE = 60_000
"""Milliseconds from which on silence has a fixed width."""
_WIDTH = 8.0
_MOST = 40.0
"""How many per cent of the width one silence has, and all together."""


class Scale:
    """Places of moments, in per cent of the width."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.first = min((each.began for each in spans), default=0)
        self.last = max((each.ended for each in spans), default=0)
        self.silences = list(_silences(spans, self.first, self.last))
        """The beginnings and ends of what is shortened."""
        share = min(_WIDTH, _MOST / max(len(self.silences), 1))
        work = (self.last - self.first) - sum(end - begin for begin, end in self.silences)
        rest = 100 - share * len(self.silences)
        self._moments, self._places = [self.first], [0.0]
        for begin, end in self.silences:
            at = self._places[-1] + (begin - self._moments[-1]) / max(work, 1) * rest
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

    def bar(self, span: Span, least: float) -> tuple[float, float]:
        """Return the place and the width of a span; one that is too short to be seen has the least width."""
        begin, end = self.at(span.began), self.at(span.ended)
        width = max(end - begin, least)
        return round(min(begin, 100 - width), 3), round(width, 3)


def is_leaf(span: Span) -> bool:
    """Return whether nothing else is inside of a span."""
    return span.kind != "node" or not span.inside


def _silences(spans: Sequence[Span], first: int, last: int) -> Iterable[tuple[int, int]]:
    around = {each.path.rpartition("/")[0] for each in spans}
    busy = sorted(
        (each.began, each.ended)
        for each in spans
        if each.kind not in WAITS and is_leaf(each) and each.path not in around
    )
    reached = first
    for begin, end in [*busy, (last, last)]:
        if begin - reached >= SILENCE:
            yield reached, begin
        reached = max(reached, end)


def now_of(stored: StoredRun) -> int:
    """Return until when what has not ended lasts: now, or the last entry of a run that nobody executes and nobody is asked in."""
    return _clock.now() if stored.head.status in ("running", "waiting", "sleeping") else stored.entries[-1].at
