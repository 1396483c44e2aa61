"""How well a question was answered: the ranks of the notes that answer it, and the figures that follow from them.

`recall` at a depth is the share of these notes among so many that were found first. `hit` at a depth is 1 if at least one of them is
there, and the reciprocal rank is 1 divided by the rank of the first of them; its mean is the MRR.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True, slots=True)
class Outcome:
    """How well a question was answered."""

    kind: str
    """The kind of question."""
    ranks: tuple[int, ...]
    """The ranks of the notes that answer it, as far as they were found, from 1, in ascending order."""
    wanted: int
    """How many notes answer it, found or not."""
    seconds: float = math.nan
    """How long the search took."""

    def recall(self, depth: int) -> float:
        """Return the share of the notes that answer it among the first ones."""
        return sum(rank <= depth for rank in self.ranks) / self.wanted

    def hit(self, depth: int) -> float:
        """Return 1 if a note that answers it is among the first ones, otherwise 0."""
        return float(bool(self.ranks) and self.ranks[0] <= depth)

    def reciprocal(self) -> float:
        """Return the reciprocal rank: 1 if the first note answers it, 1/2 if the second one does, and 0 if none was found."""
        return 1 / self.ranks[0] if self.ranks else 0.0


def outcome(kind: str, wanted: Collection[str], found: Sequence[str | None], seconds: float = math.nan) -> Outcome:
    """Return how well a question was answered by the notes that were found, the best first."""
    return Outcome(kind, tuple(rank for rank, id_ in enumerate(found, 1) if id_ in wanted), len(wanted), seconds)


def recall_cells(outcomes: Sequence[Outcome], depths: Sequence[int], kinds: Iterable[str]) -> list[str]:
    """Return the cells of a row: mean recall at depths in percent, MRR, and mean recall@10 for each kind of question in percent."""
    return [
        *[f"{100 * fmean(each.recall(depth) for each in outcomes):.1f}" for depth in depths],
        f"{fmean(each.reciprocal() for each in outcomes):.3f}".lstrip("0"),
        *[_percent([each.recall(10) for each in outcomes if each.kind == kind]) for kind in kinds],
    ]


def hit_cell(outcomes: Sequence[Outcome]) -> str:
    """Return a cell with the mean of hit@1 and of hit@5, in percent."""
    return (
        " / ".join(f"{100 * fmean(each.hit(depth) for each in outcomes):.0f}" for depth in (1, 5)) if outcomes else ""
    )


def _percent(shares: Sequence[float]) -> str:
    return f"{100 * fmean(shares):.1f}" if shares else ""
