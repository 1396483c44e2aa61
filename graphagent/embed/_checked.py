"""Checks of the vectors that an embedder returns, before they are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from graphagent._article import counted
from graphagent._concurrency import turn
from graphagent.embed._observed import observed
from graphagent.embed._texts import check_texts
from graphagent.errors import EmbedderError, MissingExtraError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from graphagent.protocols import Embedder, WordEmbedder


async def checked(embedder: Embedder, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return a vector of length 1 for each text, as a row, so that the dot product of two rows is their cosine.

    Raises:
        EmbedderError: The embedder failed, or did not return one vector for each text, all with the same number of finite
            numbers and none of only zeros. The error names the text by its number.
        MissingExtraError: numpy is not installed.
        TypeError: `texts` is not a list of texts.
        ValueError: A text is not valid Unicode.
    """
    _check_numpy()
    import numpy as np

    given = check_texts(texts)
    if not given:
        return np.empty((0, 0), np.float32)
    with observed(embedder, len(given)) as tell:
        matrix = await _checked(embedder.name, await embedder.embed(given), len(given))
        tell(matrix.shape[1])
    return matrix


async def checked_words(
    embedder: WordEmbedder, texts: Sequence[str]
) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
    """Return the rows of `checked`, and for each text a vector of length 1 for each of its words, as a row.

    Raises:
        EmbedderError: The embedder failed, or its vectors of texts do not pass `checked`; or a vector of a word has another length
            than those of the texts, only zeros, or a number that is not finite. The error names the text by its number.
        MissingExtraError: numpy is not installed.
        TypeError: `texts` is not a list of texts.
        ValueError: A text is not valid Unicode.
    """
    _check_numpy()
    import numpy as np

    given = check_texts(texts)
    if not given:
        return np.empty((0, 0), np.float32), []
    with observed(embedder, len(given)) as tell:
        matrix, of_words = await _with_words(embedder, given)
        tell(matrix.shape[1])
    return matrix, of_words


async def _with_words(
    embedder: WordEmbedder, given: list[str]
) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
    name = embedder.name
    both: object = await embedder.embed_words(given)
    if not isinstance(both, tuple) or len(cast("tuple[object, ...]", both)) != 2:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise EmbedderError(
            f"embedder {name!r} returned a {type(both).__name__} from embed_words() instead of two values: the vectors of the texts, "
            "and for each text the vectors of its words"
        )
    vectors, words = cast("tuple[object, object]", both)
    matrix = await _checked(name, vectors, len(given))
    if isinstance(words, str | bytes) or not isinstance(words, Iterable):
        raise EmbedderError(
            f"embedder {name!r} returned a {type(words).__name__} instead of a list with the word vectors of each text"
        )
    of_texts: list[object] = [*words]
    if len(of_texts) != len(given):
        raise EmbedderError(
            f"embedder {name!r} returned word vectors for {counted(len(of_texts), 'text')} of {len(given):,}; it must return an "
            "empty list for a text without words"
        )
    found: list[NDArray[np.float32]] = []
    for place, each in enumerate(of_texts, start=1):
        await turn(place)
        found.append(_words(name, each, matrix.shape[1], f"the words of text {place} of {len(given)}"))
    return matrix, found


def _check_numpy() -> None:
    if find_spec("numpy") is None:
        raise MissingExtraError("comparing vectors", "static")


def _words(name: str, vectors: object, dimensions: int, of: str) -> NDArray[np.float32]:
    import numpy as np

    if isinstance(vectors, Iterable) and not isinstance(vectors, np.ndarray | str | bytes):
        vectors = [*cast("Iterable[object]", vectors)]
    try:
        rows = np.asarray(vectors)
    except (TypeError, ValueError):
        raise EmbedderError(f"embedder {name!r} returned something other than vectors of one length for {of}") from None
    if rows.shape[:1] == (0,):
        return np.empty((0, dimensions), np.float32)
    if rows.ndim != 2 or rows.dtype.kind not in "fiu":
        raise EmbedderError(f"embedder {name!r} returned something other than vectors of one length for {of}")
    if rows.shape[1] != dimensions:
        raise EmbedderError(
            f"embedder {name!r} returned vectors of {counted(rows.shape[1], 'number')} for {of}, and of {dimensions:,} for the texts; "
            "all vectors must have the same length"
        )
    if rows.dtype == np.float32:
        squares = np.vecdot(rows, rows)
        if np.abs(squares - 1).max() < 1e-5:  # the usual case; false if a number is NaN
            found: NDArray[np.float32] = rows
            return found
    return _unit_rows(
        rows.astype(np.float64), lambda found, place: f"embedder {name!r} returned {found} for word {place} of {of}"
    )


async def _checked(name: str, vectors: object, count: int) -> NDArray[np.float32]:
    matrix = await _matrix(name, vectors, count)
    return _unit_rows(matrix, lambda found, place: f"embedder {name!r} returned {found} for text {place} of {count}")


def _unit_rows(matrix: NDArray[np.float64], message: Callable[[str, int], str]) -> NDArray[np.float32]:
    """Scale rows to length 1. Raises an error with a message about the first row that has no direction."""
    import numpy as np

    largest: NDArray[np.float64] = np.abs(matrix).max(axis=1, keepdims=True)
    sound = (largest > 0) & np.isfinite(largest)  # False for NaN, too
    if not sound.all():
        place = int(sound.argmin())
        found = "only zeros" if largest[place, 0] == 0 else "an infinite number or NaN"
        raise EmbedderError(message(found, place + 1))
    matrix /= largest  # otherwise squares may underflow or overflow
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix.astype(np.float32)


async def _matrix(name: str, vectors: object, count: int) -> NDArray[np.float64]:
    import numpy as np

    if isinstance(vectors, str | bytes) or not isinstance(vectors, Iterable):
        raise EmbedderError(f"embedder {name!r} returned a {type(vectors).__name__} instead of a list of vectors")
    array = cast("NDArray[Any]", vectors) if isinstance(vectors, np.ndarray) else None
    if array is not None and array.ndim == 2 and len(array) == count and array.dtype.kind in "fiu" and array.size:
        return array.astype(np.float64)
    given: list[Any] = [*vectors]
    if len(given) != count:
        raise EmbedderError(
            f"embedder {name!r} returned {counted(len(given), 'vector')} for {counted(count, 'text')}; it must return one for each"
        )
    rows: list[NDArray[np.float64]] = []
    for place, vector in enumerate(given, start=1):
        await turn(place)
        rows.append(_row(name, vector, place, count))
    for place, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            found = f"a vector of {counted(len(row), 'number')} for text {place} of {count}, and of {len(rows[0]):,} for the first"
            raise EmbedderError(f"embedder {name!r} returned {found}; all vectors must have the same length")
    return np.stack(rows)


def _row(name: str, vector: object, place: int, count: int) -> NDArray[np.float64]:
    import numpy as np

    try:
        row = np.asarray(vector)
    except (TypeError, ValueError):
        row = None
    if row is None or row.ndim != 1 or row.dtype.kind not in "fiu" or not row.size:
        raise EmbedderError(
            f"embedder {name!r} returned something other than a list of numbers ({type(vector).__name__}) for text {place} of {count}"
        )
    return row.astype(np.float64)
