"""Texts that a model cannot read, and their vectors."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def is_unknown(pieces: Iterable[tuple[str, bool]]) -> bool:
    """Return whether a model knows at most half of the letters of a text. Each piece comes with whether the model knows it.

    The known rest, such as a full stop and a few letters, is much the same in all texts of a script. A text without letters is unknown if
    none of its pieces is known. Unknown ASCII letters do not count: they come from a very long word, such as a key, among words that mean
    more.
    """
    letters = {True: 0, False: 0}
    there: set[bool] = set()
    for text, is_known in pieces:
        there.add(is_known)
        letters[is_known] += sum(letter.isalpha() and (is_known or not letter.isascii()) for letter in text)
    return letters[False] >= letters[True] if any(letters.values()) else there == {False}


def vector_of_its_own(text: str, width: int) -> NDArray[np.float32]:
    """Return a vector derived from a checksum of the text, close to no other. The model would return the same vector for all such texts."""
    seed = np.frombuffer(sha256(text.encode("utf-8", "surrogatepass")).digest(), np.uint64)
    numbers = np.random.Generator(np.random.PCG64(seed)).standard_normal(width)
    return (numbers / np.linalg.norm(numbers)).astype(np.float32)
