"""The vectors of an owner's notes in one matrix in memory, searched exactly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from graphagent.errors import DamagedStoreError, MissingExtraError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]
    Rows = NDArray[np.int64]


def numpy() -> Any:
    """Return the module numpy.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import numpy
    except ImportError:
        raise MissingExtraError("finding notes by vectors", "static") from None
    return numpy


class Matrix:
    """The vectors of many notes, in the order of their rows. The vectors of one note are consecutive.

    One thread may change it while others search it. A search sees the vectors as they were when it began.
    """

    def __init__(self, dimensions: int, made: bytes = b"") -> None:
        np = numpy()
        self.dimensions = dimensions
        self.made = made
        """The stamp of the tables to which the rows belong."""
        self._held: tuple[Floats, Rows, int] = (
            np.empty((0, dimensions), dtype=np.float32), np.empty(0, dtype=np.int64), 0
        )  # fmt: skip
        """The vectors, the row of each, and how many there are. The arrays have room for more."""

    def __len__(self) -> int:
        return self._held[2]

    @property
    def size(self) -> int:
        """The size of the arrays in bytes, including the room for more vectors."""
        data, rows, _ = self._held
        return data.nbytes + rows.nbytes

    @property
    def rows(self) -> Rows:
        """The row of each vector."""
        return self._now()[1]

    @property
    def notes(self) -> int:
        """The number of notes that have vectors here."""
        rows = self.rows
        return int((rows[1:] != rows[:-1]).sum()) + 1 if len(rows) else 0

    def _now(self) -> tuple[Floats, Rows]:
        data, rows, count = self._held
        return data[:count], rows[:count]

    def add(self, notes: Iterable[tuple[int, str, bytes]]) -> None:
        """Add the vectors of notes, each with its row, which is higher than all before, and its id.

        Raises:
            DamagedStoreError: their bytes are not vectors of the right length.
        """
        np = numpy()
        for row, id_, packed in notes:
            count, rest = divmod(len(packed), 4 * self.dimensions)
            if rest or not count:
                raise DamagedStoreError(
                    f"the vectors of note {id_!r}", f"they are not of {self.dimensions} numbers each"
                )
            data, rows, before = self._with_room(count)
            end = before + count
            data[before:end] = np.frombuffer(packed, dtype="<f4").reshape(count, self.dimensions)
            rows[before:end] = row
            self._held = data, rows, end

    def _with_room(self, count: int) -> tuple[Floats, Rows, int]:
        np = numpy()
        data, rows, before = self._held
        if before + count <= len(rows):
            return self._held
        room = max(before + count, 64, len(rows) + len(rows) // 4)
        wider, longer = np.empty((room, self.dimensions), dtype=np.float32), np.empty(room, dtype=np.int64)
        wider[:before], longer[:before] = data[:before], rows[:before]
        return wider, longer, before

    def remove(self, gone: Iterable[int]) -> None:
        """Remove the vectors of rows."""
        np = numpy()
        data, rows = self._now()
        keep = ~np.isin(rows, np.fromiter(gone, dtype=np.int64))
        kept = int(keep.sum())
        if kept < len(rows):
            self._held = data[keep], rows[keep], kept

    def search(
        self, vector: Sequence[float], most: int, *, among: Sequence[int] | None = None, without: Sequence[int] = ()
    ) -> dict[int, float]:
        """Return the rows nearest to a vector, the best first, each with the cosine of its nearest text.

        Args:
            vector: The vector to search for.
            most: How many rows at most.
            among: The rows to search; None: all.
            without: Rows to leave out, if all others are searched.
        """
        np = numpy()
        data, rows = self._now()
        wanted = np.asarray(vector, dtype=np.float32)
        length = float(np.linalg.norm(wanted))
        if not len(rows) or not length or not most:
            return {}
        if among is not None:
            places = _places(rows, among)
            data, rows = data[places], rows[places]
        elif without:
            places = np.flatnonzero(~np.isin(rows, np.asarray(without, dtype=np.int64)))
            data, rows = data[places], rows[places]
        scores = data @ (wanted / length)
        count = most
        while True:  # again with more texts, if several of the best ones are of one note
            best = np.argpartition(-scores, count - 1)[:count] if count < len(scores) else np.arange(len(scores))
            best = best[np.argsort(-scores[best], kind="stable")]
            found: dict[int, float] = {}
            for row, score in zip(rows[best].tolist(), scores[best].tolist(), strict=True):
                found.setdefault(row, score)
            if len(found) >= most or count >= len(scores):
                return dict(list(found.items())[:most])
            count *= 2

    def cosines(self, vector: Sequence[float], among: Sequence[int]) -> dict[int, float]:
        """Return the cosines of rows, for each that of its nearest text."""
        return self.search(vector, len(among), among=among)


def _places(rows: Rows, among: Sequence[int]) -> Any:
    """Return the positions of the vectors of some rows."""
    np = numpy()
    wanted = np.unique(np.asarray(among, dtype=np.int64))
    first, behind = np.searchsorted(rows, wanted, "left"), np.searchsorted(rows, wanted, "right")
    counts = behind - first
    if not len(counts) or int(counts.max()) <= 1:
        return first[counts > 0]
    return np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum()))
