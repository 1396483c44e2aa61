"""Texts that a model cannot read, and their vectors."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def is_unknown(pieces: Iterable[tuple[str, bool]]) -> bool:
    """Return whether a model knows at most half of the letters of a text, given its pieces, each with whether it is known.

    The rest, such as a full stop and a few letters, is alike in all texts of a script. A text without letters is unknown if no piece of it
    is known. Unknown ASCII letters do not count: they are of one very long word, such as a key, between words that say more.
    """
    letters = {True: 0, False: 0}
    there: set[bool] = set()
    for text, is_known in pieces:
        there.add(is_known)
        letters[is_known] += sum(letter.isalpha() and (is_known or not letter.isascii()) for letter in text)
    return letters[False] >= letters[True] if any(letters.values()) else there == {False}


def vector_of_its_own(text: str, width: int) -> NDArray[np.float32]:
    """Return a vector that resembles no other, made of a checksum of a text. The model would give all such texts the same one."""
    seed = np.frombuffer(sha256(text.encode("utf-8", "surrogatepass")).digest(), np.uint64)
    numbers = np.random.Generator(np.random.PCG64(seed)).standard_normal(width)
    return (numbers / np.linalg.norm(numbers)).astype(np.float32)
