"""What an embedder gave, checked before anybody compares it with anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from graphagent._article import counted
from graphagent._concurrency import turn
from graphagent.embed._texts import check_texts
from graphagent.errors import EmbedderError, MissingExtraError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from graphagent.protocols import Embedder, WordEmbedder


async def checked(embedder: Embedder, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return a row of length 1 for each text from an embedder, so that the dot product of two is their cosine.

    Raises:
        EmbedderError: the embedder failed, or what it gave is not one vector for each text, each of as many finite numbers as
            the others and not of zeros alone. The error names the text by its number.
        MissingExtraError: numpy is not installed.
        TypeError: `texts` are no texts.
        ValueError: a text is no Unicode text.
    """
    _check_numpy()
    import numpy as np

    given = check_texts(texts)
    if not given:
        return np.empty((0, 0), np.float32)
    return await _checked(embedder.name, await embedder.embed(given), len(given))


async def checked_words(
    embedder: WordEmbedder, texts: Sequence[str]
) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
    """Return the rows of `checked`, and for each text a row of length 1 for each of its words.

    Raises:
        EmbedderError: the embedder failed, or what it gave is not as `checked` says; or the vectors of a text's words are of another
            length than those of texts, of zeros alone, or not of finite numbers. The error names the text by its number.
        MissingExtraError: numpy is not installed.
        TypeError: `texts` are no texts.
        ValueError: a text is no Unicode text.
    """
    _check_numpy()
    import numpy as np

    given = check_texts(texts)
    if not given:
        return np.empty((0, 0), np.float32), []
    name = embedder.name
    both: object = await embedder.embed_words(given)
    if not isinstance(both, tuple) or len(cast("tuple[object, ...]", both)) != 2:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise EmbedderError(
            f"embedder {name!r} gave a {type(both).__name__} for words instead of two values: the vectors of the texts, and for "
            "each text those of its words"
        )
    vectors, words = cast("tuple[object, object]", both)
    matrix = await _checked(name, vectors, len(given))
    if isinstance(words, str | bytes) or not isinstance(words, Iterable):
        raise EmbedderError(
            f"embedder {name!r} gave a {type(words).__name__} instead of the vectors of each text's words"
        )
    of_texts: list[object] = [*words]
    if len(of_texts) != len(given):
        raise EmbedderError(
            f"embedder {name!r} gave vectors of words for {counted(len(of_texts), 'text')} of {len(given):,}; a text without words has none"
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
        raise EmbedderError(f"embedder {name!r} gave something else than vectors of one length for {of}") from None
    if rows.shape[:1] == (0,):
        return np.empty((0, dimensions), np.float32)
    if rows.ndim != 2 or rows.dtype.kind not in "fiu":
        raise EmbedderError(f"embedder {name!r} gave something else than vectors of one length for {of}")
    if rows.shape[1] != dimensions:
        raise EmbedderError(
            f"embedder {name!r} gave {counted(rows.shape[1], 'number')} for {of}, and {dimensions:,} for the texts; all its vectors must be "
            "of one length"
        )
    if rows.dtype == np.float32:
        squares = np.vecdot(rows, rows)
        if np.abs(squares - 1).max() < 1e-5:  # which is the rule; false if one is no number
            found: NDArray[np.float32] = rows
            return found
    return _unit_rows(
        rows.astype(np.float64), lambda found, place: f"embedder {name!r} gave {found} for word {place} of {of}"
    )


async def _checked(name: str, vectors: object, count: int) -> NDArray[np.float32]:
    matrix = await _matrix(name, vectors, count)
    return _unit_rows(matrix, lambda found, place: f"embedder {name!r} gave {found} for text {place} of {count}")


def _unit_rows(matrix: NDArray[np.float64], message: Callable[[str, int], str]) -> NDArray[np.float32]:
    """Return rows of length 1, or raise an error with a message about the first of them that has none."""
    import numpy as np

    largest: NDArray[np.float64] = np.abs(matrix).max(axis=1, keepdims=True)
    sound = (largest > 0) & np.isfinite(largest)  # what is no number is neither
    if not sound.all():
        place = int(sound.argmin())
        found = "nothing but zeros" if largest[place, 0] == 0 else "a number that is infinite or none (NaN)"
        raise EmbedderError(message(found, place + 1))
    matrix /= largest  # so that no square is too small or too large
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix.astype(np.float32)


async def _matrix(name: str, vectors: object, count: int) -> NDArray[np.float64]:
    import numpy as np

    if isinstance(vectors, str | bytes) or not isinstance(vectors, Iterable):
        raise EmbedderError(f"embedder {name!r} gave a {type(vectors).__name__} instead of a list of vectors")
    array = cast("NDArray[Any]", vectors) if isinstance(vectors, np.ndarray) else None
    if array is not None and array.ndim == 2 and len(array) == count and array.dtype.kind in "fiu" and array.size:
        return array.astype(np.float64)
    given: list[Any] = [*vectors]
    if len(given) != count:
        raise EmbedderError(
            f"embedder {name!r} gave {counted(len(given), 'vector')} for {counted(count, 'text')}; it must give one for each"
        )
    rows: list[NDArray[np.float64]] = []
    for place, vector in enumerate(given, start=1):
        await turn(place)
        rows.append(_row(name, vector, place, count))
    for place, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            found = f"{counted(len(row), 'number')} for text {place} of {count}, and {len(rows[0]):,} for the first"
            raise EmbedderError(f"embedder {name!r} gave {found}; all its vectors must be of one length")
    return np.stack(rows)


def _row(name: str, vector: object, place: int, count: int) -> NDArray[np.float64]:
    import numpy as np

    try:
        row = np.asarray(vector)
    except (TypeError, ValueError):
        row = None
    if row is None or row.ndim != 1 or row.dtype.kind not in "fiu" or not row.size:
        raise EmbedderError(
            f"embedder {name!r} gave something else than a list of numbers ({type(vector).__name__}) for text {place} of {count}"
        )
    return row.astype(np.float64)
