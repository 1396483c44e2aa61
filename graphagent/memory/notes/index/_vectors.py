"""The vectors of an owner's notes, wherever they are: in a matrix in memory, or in a table of PostgreSQL with pgvector."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from graphagent.memory._note_values import Filter
    from graphagent.memory.notes.index._tables import NoteTables

    Floats = NDArray[np.float32]

_USUAL, _SUPPOSED = 0.1, 4
"""A usual deviation of cosines, and how many cosines with it are supposed beside those of the notes, of which there may be few."""


class RebuiltError(Exception):
    """The tables were built again since the vectors were read, and rows have other numbers, or the vectors were replaced."""


class Nearest(NamedTuple):
    """The rows nearest to a vector, and how much cosines differ."""

    cosines: dict[int, float]
    """The cosine of the nearest text of each, the best first."""
    deviation: float
    """The standard deviation of the cosines of all texts that were searched but the nearest one; of few, it is drawn to a usual one."""


class LateScores(NamedTuple):
    """How well the words of rows fit those of a question.

    The score of two words is the dot product of the one's vector with the signs of the other's, divided by the square root of the
    dimensions: from -1 to 1 for a vector of length 1.
    """

    rows: list[int]
    scores: Floats
    """For each row, the score of its best text: the mean of the best scores of the question's words in that text."""
    best: Floats
    """For each row and each word of the question, the best score in any text of the row."""


class NoteVectors(Protocol):
    """The vectors of an owner's notes."""

    @property
    def dimensions(self) -> int:
        """How many numbers each has."""
        ...

    @property
    def made(self) -> bytes:
        """The stamp of the tables to which the rows belong."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        ...

    @property
    def has_words(self) -> bool:
        """Whether all notes have vectors of their words, so that `late` can compare them."""
        ...

    @property
    def notes(self) -> int:
        """The number of notes that have vectors."""
        ...

    @property
    def notes_without_words(self) -> int:
        """The number of these whose words have no vectors."""
        ...

    @property
    def size(self) -> int:
        """How many bytes of memory they take."""
        ...

    def over(self, tables: NoteTables) -> VectorSearch:
        """Return an object that searches the vectors together with the tables.

        Raises:
            RebuiltError: the tables are others than those of the vectors.
        """
        ...


class VectorSearch(Protocol):
    """Searches the vectors of an owner's notes, over a connection to the tables."""

    def nearest(self, vector: Floats, most: int, fits: Filter) -> Nearest:
        """Return the rows that fit nearest to a vector: at most `most`."""
        ...

    def cosines(self, vector: Floats, among: Sequence[int]) -> dict[int, float]:
        """Return the cosines of rows, for each that of its nearest text."""
        ...

    def late(self, words: Floats, among: Sequence[int]) -> LateScores:
        """Return how well the words of rows fit those of a question (MaxSim). Rows that have no words are left out.

        Args:
            words: The vectors of the question's words. The length of each is how much the word counts, 1 in the mean.
            among: The rows.
        """
        ...


class VectorTable(Protocol):
    """A table of the vectors of notes, over a connection, within a transaction."""

    def put(
        self, owner: str, generation: int, dimensions: int, notes: Sequence[tuple[str, bytes]], *, words: bool
    ) -> None:
        """Store the vectors of notes in place of their earlier ones.

        Args:
            owner: The owner.
            generation: The generation of the vectors.
            dimensions: How many numbers each of them has.
            notes: The ids of the notes, each with the value of the item of its vectors.
            words: Whether the generation has vectors of words.
        """
        ...

    def of(
        self, owner: str, generation: int, dimensions: int, *, words: bool, known: NoteVectors | None
    ) -> NoteVectors | None:
        """Return the vectors of a generation; None if the table has no place for so many dimensions.

        With `words`, those of words are used. The notes of vectors that are known already are not counted again.
        """
        ...

    def whole(self, owner: str, generation: int) -> dict[str, list[bytes]]:
        """Return the contents of the table for each note of a generation, in the form of `expected`."""
        ...

    def expected(self, id_: str, packed: bytes, dimensions: int, *, words: bool) -> list[bytes]:
        """Return the expected contents of the table for a note; none if it has no place for its vectors."""
        ...


def deviation(cosines: Collection[float]) -> float:
    """Return the standard deviation of all cosines but the highest; that of few is drawn to a usual one."""
    if not cosines:
        return _USUAL
    return deviation_of(len(cosines), math.fsum(cosines), math.fsum(each * each for each in cosines), max(cosines))


def deviation_of(count: int, total: float, squares: float, highest: float) -> float:
    """Return the same, given how many cosines there are, their sum, that of their squares, and the highest."""
    others = count - 1
    around = max(0.0, squares - highest**2 - (total - highest) ** 2 / max(others, 1))
    return math.sqrt((around + _SUPPOSED * _USUAL**2) / (others + _SUPPOSED))
