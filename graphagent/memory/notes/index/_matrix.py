"""The vectors of an owner's notes in one matrix in memory, searched exactly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from graphagent.errors import DamagedStoreError, MissingExtraError
from graphagent.memory.notes.index._vector_bytes import counts_of_words, divided_words
from graphagent.memory.notes.index._vectors import LateScores, Nearest, RebuiltError, deviation, deviation_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from graphagent.memory._note_values import Filter
    from graphagent.memory.notes.index._tables import NoteTables
    from graphagent.memory.notes.index._vectors import VectorSearch

    Floats = NDArray[np.float32]
    Rows = NDArray[np.int64]
    Bits = NDArray[np.uint8]
    Array = TypeVar("Array", bound=NDArray[Any])

_ONE_THREAD = 200_000
"""Up to how many multiplications a product is computed at once: OpenBLAS divides one of 262,144 or more among threads."""
_AT_ONCE = 50_000
"""About how many words of notes are compared with a question at once, which takes up to 13 MB."""
_TOGETHER = 512
"""Words whose signs become numbers at once: so many fit into the cache of a core."""


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


class _Words(NamedTuple):
    """The signs of the vectors of the words of all texts, in the order of the texts. The arrays have room for more."""

    bits: Bits
    """A row for each word, a bit for each number of its vector: whether that is above 0."""
    firsts: Rows
    """For each text, where its words begin."""
    counts: NDArray[np.int32]
    """For each text, how many words it has; -1 if the vectors of its words were not made."""
    used: int
    """How many words there are."""


class _Held(NamedTuple):
    """All that a matrix contains. The arrays have room for more."""

    vectors: Floats
    rows: Rows
    """The row of each vector."""
    used: int
    """How many vectors there are."""
    words: _Words | None


class Matrix:
    """The vectors of many notes, in the order of their rows. The vectors of one note are consecutive.

    With `words`, also the vectors of the words of notes, of which the signs are enough.

    One thread may change it while others search it. A search sees the vectors as they were when it began.
    """

    def __init__(self, dimensions: int, made: bytes = b"", *, words: bool = False) -> None:
        np = numpy()
        self.dimensions = dimensions
        self.made = made
        """The stamp of the tables to which the rows belong."""
        no_words = _Words(
            np.empty((0, (dimensions + 7) // 8), np.uint8), np.empty(0, np.int64), np.empty(0, np.int32), 0
        )  # fmt: skip
        self._held = _Held(
            np.empty((0, dimensions), np.float32), np.empty(0, np.int64), 0, no_words if words else None
        )  # fmt: skip

    @classmethod
    def of_words(cls, dimensions: int, notes: Iterable[tuple[int, bytes]]) -> Matrix:
        """Return a matrix for `late` alone, of the rows of notes in their order, each with the bytes after the vectors of its texts.

        Raises:
            DamagedStoreError: these bytes are damaged.
        """
        np = numpy()
        rows, bits, counts = list[int](), list[bytes](), list[int]()
        for row, packed in notes:
            if (found := divided_words(packed, dimensions)) is None:
                remedy = "Make it anew: reindex()."
                raise DamagedStoreError(
                    "the index of the vectors of words", "they are not what was written", remedy=remedy
                )
            rows += [row] * len(found[1])
            bits.append(found[0])
            counts += found[1]
        matrix, of_texts = cls(dimensions), np.asarray(counts, np.int32)
        joined = np.frombuffer(b"".join(bits), np.uint8).reshape(-1, (dimensions + 7) // 8)
        words = _Words(joined, _firsts(of_texts), of_texts, len(joined))
        matrix._held = _Held(np.empty((len(rows), 0), np.float32), np.asarray(rows, np.int64), len(rows), words)
        return matrix

    def __len__(self) -> int:
        return self._held.used

    @property
    def size(self) -> int:
        """The size of the arrays in bytes, including the room for more vectors."""
        held = self._held
        of_words = held.words.bits.nbytes + held.words.firsts.nbytes + held.words.counts.nbytes if held.words else 0
        return held.vectors.nbytes + held.rows.nbytes + of_words

    @property
    def rows(self) -> Rows:
        """The row of each vector."""
        return self._now()[1]

    @property
    def notes(self) -> int:
        """The number of notes that have vectors here."""
        return _distinct(self.rows)

    @property
    def is_empty(self) -> bool:
        """Whether the matrix is empty."""
        return not self._held.used

    @property
    def has_words(self) -> bool:
        """Whether all notes have vectors of their words here, so that `late` can compare them."""
        held = self._held
        return held.words is not None and held.used > 0 and not (held.words.counts[: held.used] < 0).any()

    @property
    def notes_without_words(self) -> int:
        """The number of notes whose words have no vectors here."""
        held = self._held
        rows = held.rows[: held.used]
        return _distinct(rows if held.words is None else rows[held.words.counts[: held.used] < 0])

    def _now(self) -> tuple[Floats, Rows]:
        held = self._held
        return held.vectors[: held.used], held.rows[: held.used]

    def add(self, notes: Iterable[tuple[int, str, bytes]]) -> None:
        """Add the vectors of notes, each with its row, which is higher than all before, and its id.

        Raises:
            DamagedStoreError: their bytes are not vectors of the right length.
        """
        np = numpy()
        for row, id_, packed in notes:
            held, words = self._held, self._held.words
            word_counts = () if words is None else counts_of_words(packed, self.dimensions)
            of_texts = vectors_of_texts(id_, packed, self.dimensions, None if words is None else word_counts)
            count = len(of_texts)
            begin, end = held.used, held.used + count
            vectors, rows = _with_room(held.vectors, end), _with_room(held.rows, end)
            vectors[begin:end], rows[begin:end] = of_texts, row
            if words is not None:
                found = np.frombuffer(packed, np.uint8, offset=4 * count * self.dimensions)
                firsts, counts = _with_room(words.firsts, end), _with_room(words.counts, end)
                used = words.used
                for place, each in enumerate(word_counts, begin):
                    firsts[place], counts[place] = used, each
                    used += max(each, 0)
                bits = _with_room(words.bits, used)
                wide = bits.shape[1]
                bits[words.used : used] = found[: (used - words.used) * wide].reshape(-1, wide)
                words = _Words(bits, firsts, counts, used)
            self._held = _Held(vectors, rows, end, words)

    def remove(self, gone: Iterable[int]) -> None:
        """Remove the vectors of rows."""
        np = numpy()
        held = self._held
        vectors, rows = self._now()
        keep = ~np.isin(rows, np.fromiter(gone, dtype=np.int64))
        kept = int(keep.sum())
        if kept == len(rows):
            return
        words = held.words
        if words is not None:
            counts = words.counts[: held.used]
            bits = words.bits[: words.used][np.repeat(keep, np.maximum(counts, 0))]
            counts = counts[keep]
            words = _Words(bits, _firsts(counts), counts, len(bits))
        self._held = _Held(vectors[keep], rows[keep], kept, words)

    def over(self, tables: NoteTables) -> VectorSearch:
        """Return an object that searches the vectors together with the tables.

        Raises:
            RebuiltError: the tables are others than those of the vectors.
        """
        if tables.made() != self.made:
            raise RebuiltError
        return _MatrixSearch(self, tables)

    def search(
        self,
        vector: Floats | Sequence[float],
        most: int,
        *,
        among: Sequence[int] | None = None,
        without: Sequence[int] = (),
    ) -> Nearest:
        """Return the rows nearest to a vector.

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
        if among is not None:
            places = _places(rows, among)
            data, rows = data[places], rows[places]
        elif without:
            places = np.flatnonzero(~np.isin(rows, np.asarray(without, dtype=np.int64)))
            data, rows = data[places], rows[places]
        if not len(rows) or not length or not most:
            return Nearest({}, deviation(()))
        # Each row is multiplied on its own, since BLAS divides a larger product among threads, which takes longer on a busy machine.
        scores = np.vecdot(data, wanted / length)
        count = most
        while True:  # again with more texts, if several of the best ones are of one note
            best = np.argpartition(-scores, count - 1)[:count] if count < len(scores) else np.arange(len(scores))
            best = best[np.argsort(-scores[best], kind="stable")]
            found: dict[int, float] = {}
            for row, score in zip(rows[best].tolist(), scores[best].tolist(), strict=True):
                found.setdefault(row, score)
            if len(found) >= most or count >= len(scores):
                total, squares = (float(each.sum(dtype=np.float64)) for each in (scores, np.square(scores)))
                others = deviation_of(len(scores), total, squares, float(scores[best[0]]))
                return Nearest(dict(list(found.items())[:most]), others)
            count *= 2

    def cosines(self, vector: Floats | Sequence[float], among: Sequence[int]) -> dict[int, float]:
        """Return the cosines of rows, for each that of its nearest text."""
        return self.search(vector, len(among), among=among).cosines

    def late(self, words: Floats, among: Sequence[int]) -> LateScores:
        """Return how well the words of rows fit those of a question (MaxSim). Rows that have no words are left out.

        Args:
            words: The vectors of the question's words. The length of each is how much the word counts, 1 in the mean.
            among: The rows.
        """
        np = numpy()
        held = self._held
        places = _places(held.rows[: held.used], among) if held.words is not None and len(words) else np.empty(0, int)
        counts = np.zeros(0, int) if held.words is None else held.words.counts[places]
        places, counts = places[counts > 0], counts[counts > 0]
        if held.words is None or not len(places):
            return LateScores([], np.empty(0, np.float32), np.empty((0, len(words)), np.float32))
        # Long notes have more words than should be compared at once.
        ends = np.flatnonzero(np.diff(np.cumsum(counts) // _AT_ONCE)) + 1
        best = np.concatenate(
            [
                self._best(held.words, some, some_counts, words)
                for some, some_counts in zip(np.split(places, ends), np.split(counts, ends), strict=True)
            ]
        )
        rows = held.rows[places]
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        scores = np.maximum.reduceat(best.mean(axis=1), starts)
        return LateScores(rows[starts].tolist(), scores, np.maximum.reduceat(best, starts, axis=0))

    def _best(self, held: _Words, places: Rows, counts: NDArray[np.int32], words: Floats) -> Floats:
        """Return the best score of each word of a question in texts at some places, which have so many words."""
        np = numpy()
        firsts, total = _firsts(counts), int(counts.sum())
        chosen = np.repeat(held.firsts[places] - firsts, counts) + np.arange(total)
        # With one word, BLAS would multiply a matrix by a vector, which it divides among threads from another size on. The mean of
        # two equal words is the same.
        asked = np.asarray(words if len(words) > 1 else [words[0]] * 2, dtype=np.float32)
        dots = np.empty((total, len(asked)), np.float32)
        block = max(2, _ONE_THREAD // asked.size)
        part = block * max(1, _TOGETHER // block)
        for start in range(0, total, part):
            some = chosen[start : start + part]
            signs = np.zeros((-(-len(some) // block) * block, self.dimensions), np.float32)
            signs[: len(some)] = np.unpackbits(held.bits[some], axis=1, count=self.dimensions)
            product = signs.reshape(-1, block, self.dimensions) @ asked.T
            dots[start : start + part] = product.reshape(-1, len(asked))[: len(some)]
        # Of bits, which are 0 or 1; with 1 or -1 instead, a product is twice as large, less the sum of the numbers of the question.
        best: Floats = (2 * np.maximum.reduceat(dots, firsts, axis=0) - asked.sum(axis=1)) / self.dimensions**0.5
        found: Floats = best[:, : len(words)]
        return found


class _MatrixSearch(NamedTuple):
    """Searches a matrix for matching rows."""

    matrix: Matrix
    tables: NoteTables

    def nearest(self, vector: Floats, most: int, fits: Filter) -> Nearest:
        """Return the rows that fit nearest to a vector."""
        if fits.is_whole:
            return self.matrix.search(vector, most, without=self.tables.hidden(fits.owner, fits.asker))
        return self.matrix.search(vector, most, among=self.tables.fitting(fits))

    def cosines(self, vector: Floats, among: Sequence[int]) -> dict[int, float]:
        """Return the cosines of rows."""
        return self.matrix.cosines(vector, among)

    def late(self, words: Floats, among: Sequence[int]) -> LateScores:
        """Return how well the words of rows fit those of a question."""
        return self.matrix.late(words, among)


def vectors_of_texts(id_: str, packed: bytes, dimensions: int, words: Sequence[int] | None) -> Floats:
    """Return the vectors of a note's texts, a row for each text.

    Args:
        id_: The id of the note, for an error.
        packed: All that is stored of its vectors.
        dimensions: How many numbers a vector has.
        words: The result of `counts_of_words` for them; None in a generation without vectors of words.

    Raises:
        DamagedStoreError: the bytes are not vectors of this length.
    """
    count, rest = divmod(len(packed), 4 * dimensions) if words is None else (len(words), 0)
    if rest or not count:
        raise DamagedStoreError(f"the vectors of note {id_!r}", f"they are not of {dimensions} numbers each")
    found: Floats = numpy().frombuffer(packed, "<f4", count * dimensions).reshape(count, -1)
    return found


def _with_room(array: Array, count: int) -> Array:
    """Return an array with at least so many rows, if need be a longer copy."""
    if count <= len(array):
        return array
    wider: Array = numpy().empty((max(count, 64, len(array) + len(array) // 4), *array.shape[1:]), array.dtype)
    wider[: len(array)] = array
    return wider


def _firsts(counts: NDArray[np.int32]) -> Rows:
    """Return where the words of each text begin."""
    np = numpy()
    counts = np.maximum(counts, 0).astype(np.int64)
    firsts: Rows = np.cumsum(counts) - counts
    return firsts


def _distinct(rows: Rows) -> int:
    return int((rows[1:] != rows[:-1]).sum()) + 1 if len(rows) else 0


def _places(rows: Rows, among: Sequence[int]) -> Any:
    """Return the positions of the vectors of some rows."""
    np = numpy()
    wanted = np.unique(np.asarray(among, dtype=np.int64))
    first, behind = np.searchsorted(rows, wanted, "left"), np.searchsorted(rows, wanted, "right")
    counts = behind - first
    if not len(counts) or int(counts.max()) <= 1:
        return first[counts > 0]
    return np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum()))
