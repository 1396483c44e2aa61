"""What an embedder gave, checked before anybody compares it with anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from graphagent._concurrency import turn
from graphagent.embed._texts import check_texts
from graphagent.errors import EmbedderError, MissingExtraError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from graphagent.protocols import Embedder


async def checked(embedder: Embedder, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return a row of length 1 for each text from an embedder, so that the dot product of two is their cosine.

    Raises:
        EmbedderError: the embedder failed, or what it gave is not one vector for each text, each of as many finite numbers as
            the others and not of zeros alone. The error names the text by its number.
        MissingExtraError: numpy is not installed.
        TypeError: `texts` are no texts.
        ValueError: a text is no Unicode text.
    """
    try:
        import numpy as np
    except ModuleNotFoundError:
        raise MissingExtraError("comparing vectors", "static") from None
    given = check_texts(texts)
    if not given:
        return np.empty((0, 0), np.float32)
    matrix = await _matrix(embedder.name, await embedder.embed(given), len(given))
    largest: NDArray[np.float64] = np.abs(matrix).max(axis=1, keepdims=True)
    sound = (largest > 0) & np.isfinite(largest)  # what is no number is neither
    if not sound.all():
        place = int(sound.argmin())
        found = "nothing but zeros" if largest[place, 0] == 0 else "a number that is infinite or none (NaN)"
        raise EmbedderError(f"embedder {embedder.name!r} gave {found} for text {place + 1} of {len(given)}")
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
            f"embedder {name!r} gave {len(given):,} vectors for {count:,} texts; it must give one for each"
        )
    rows: list[NDArray[np.float64]] = []
    for place, vector in enumerate(given, start=1):
        await turn(place)
        rows.append(_row(name, vector, place, count))
    for place, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            found = f"{len(row):,} numbers for text {place} of {count}, and {len(rows[0]):,} for the first"
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
