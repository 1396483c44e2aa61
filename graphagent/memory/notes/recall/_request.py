"""A request of a recall: a question, and the notes that may answer it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from graphagent._article import kind_of
from graphagent._options import check_number
from graphagent.errors import NoteError
from graphagent.memory.notes._validation import one_of, whole

if TYPE_CHECKING:
    from graphagent.memory._note_values import Filter

Depth = Literal["shallow", "deep", "auto"]
"""How a recall searches: without a model, with one, or with one if it is needed."""
DEPTHS: tuple[Depth, ...] = ("shallow", "deep", "auto")
_LONGEST = 10_000
"""How many characters of a question count."""


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """A question, and which notes may answer it.

    Raises:
        ValueError: the depth is not known, the limit is below 0, or the score is not a number (NaN).
        TypeError: the limit is not a whole number, or the score not a number.
        NoteError: the text is not a text.
    """

    text: str
    fits: Filter
    limit: int
    depth: Depth | None
    min_score: float
    run_id: str

    def __post_init__(self) -> None:
        if self.depth is not None and self.depth not in DEPTHS:
            raise ValueError(f"depth={self.depth!r} is not known; use {one_of(DEPTHS)}")
        whole("limit", self.limit)
        check_number("min_score", self.min_score)
        if math.isnan(self.min_score):
            raise ValueError(f"min_score={self.min_score!r} is not a score; those are from 0 to 1")
        if not isinstance(self.text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise NoteError(f"a question is a text, not {kind_of(self.text)}")
        object.__setattr__(self, "text", self.text[:_LONGEST].encode("utf-8", "replace").decode())
