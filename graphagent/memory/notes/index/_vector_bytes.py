"""The vectors of a note as bytes.

They are those of its texts, float32. In a generation with vectors of words, the signs of these follow: a row of bits for each word,
filled up to whole bytes; for each text how many words it has, or -1 if their vectors were not made; and the number of texts. All
numbers have 32 bits and are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]


class PackedVectors(NamedTuple):
    """The vectors of a note as bytes."""

    vectors: bytes
    """Those of its texts."""
    words: bytes
    """Those of the words of its texts, empty if they were not made."""
    texts: int
    """How many texts it has."""

    def joined(self, words: bool) -> bytes:
        """Return the vectors for a generation with or without those of words."""
        return self.vectors + (self.words or _tail([-1] * self.texts)) if words else self.vectors


def pack(counts: Sequence[int], vectors: Floats, words: Sequence[Floats]) -> list[PackedVectors]:
    """Return the vectors of notes, given how many texts each has, the vectors of all texts, and those of the words of each text.

    `words` is empty if they were not made.
    """
    import numpy as np

    vectors = vectors.astype("<f4", copy=False)
    bits = np.packbits(np.concatenate(words) > 0, axis=1) if words else None
    found: list[PackedVectors] = []
    start = first = 0
    for count in counts:
        end, packed = start + count, b""
        if bits is not None:
            of_texts = [len(each) for each in words[start:end]]
            last = first + sum(of_texts)
            packed = bits[first:last].tobytes() + _tail(of_texts)
            first = last
        found.append(PackedVectors(vectors[start:end].tobytes(), packed, count))
        start = end
    return found


def _tail(counts: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(counts)}iI", *counts, len(counts))


def divided_words(words: bytes, dimensions: int) -> tuple[bytes, tuple[int, ...]] | None:
    """Return the bits of the words of a note, and how many each text has, of what follows the vectors of its texts; None if it is not that."""
    texts = int.from_bytes(words[-4:], "little")
    start = len(words) - 4 - 4 * texts
    if start < 0:
        return None
    counts = struct.unpack_from(f"<{texts}i", words, start)
    return (words[:start], counts) if sum(max(each, 0) for each in counts) * ((dimensions + 7) // 8) == start else None


def counts_of_words(packed: bytes, dimensions: int) -> tuple[int, ...]:
    """Return the number of words of each text of a note, -1 without vectors of words; nothing if the bytes are not vectors."""
    texts = int.from_bytes(packed[-4:], "little")
    start = len(packed) - 4 - 4 * texts
    if start < 4 * texts * dimensions:
        return ()
    counts = struct.unpack_from(f"<{texts}i", packed, start)
    size = 4 * texts * dimensions + sum(max(each, 0) for each in counts) * ((dimensions + 7) // 8)
    return counts if size == start else ()


def without_words(packed: bytes, dimensions: int) -> bytes:
    """Return the vectors of a note's texts alone; nothing if the bytes are not vectors of a note."""
    return packed[: 4 * dimensions * len(counts_of_words(packed, dimensions))]
