"""The vector of a text of which a model knows nothing."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def vector_of_its_own(text: str, width: int) -> NDArray[np.float32]:
    """Return a vector that resembles no other, made of a checksum of a text. The model would give all such texts the same one."""
    seed = np.frombuffer(sha256(text.encode("utf-8", "surrogatepass")).digest(), np.uint64)
    numbers = np.random.Generator(np.random.PCG64(seed)).standard_normal(width)
    return (numbers / np.linalg.norm(numbers)).astype(np.float32)
