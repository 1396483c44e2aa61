"""How long something that was computed is kept in the store of a run: the output of a node, or the result of a tool."""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphagent._article import kind_of


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """Use what an earlier execution with the same input returned, for as long as it is kept.

    Raises:
        TypeError: `ttl` is no number, `key` no text, or `version` neither text nor a whole number.
        ValueError: `ttl` is not above 0.
    """

    ttl: float | None = None
    """Seconds for which a value is kept; None for as long as the store."""
    key: str = ""
    """The name under which values are kept. By default they belong to one node of one strategy, or to one tool."""
    version: str | int = ""
    """Values that were kept under another version are not used. Change it when the code computes something else."""

    def __post_init__(self) -> None:
        if self.ttl is not None:
            if isinstance(self.ttl, bool) or not isinstance(self.ttl, float | int):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"ttl is a number of seconds, or None to keep values for ever, not {kind_of(self.ttl)}")
            if not 0 < self.ttl < math.inf:
                raise ValueError(f"ttl={self.ttl} is not how long a value is kept; give seconds above 0, or None")
        if not isinstance(self.key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"key is the name under which values are kept, not {kind_of(self.key)}")
        if isinstance(self.version, bool) or not isinstance(self.version, str | int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"version is text or a whole number, not {kind_of(self.version)}")


def cache_policy(given: CachePolicy | float | None) -> CachePolicy | None:
    """Return a policy, that of a number of seconds, or None.

    Raises:
        TypeError, ValueError: as CachePolicy.
    """
    return given if given is None or isinstance(given, CachePolicy) else CachePolicy(given)
