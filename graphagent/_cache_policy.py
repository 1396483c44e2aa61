"""How long a computed value is kept in the store of a run: the output of a node, or the result of a tool."""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphagent._article import kind_of


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """Use the value that an earlier execution with the same input returned, for as long as that value is kept.

    Raises:
        TypeError: `ttl` is not a number, `key` is not text, or `version` is neither text nor a whole number.
        ValueError: `ttl` is not above 0.
    """

    ttl: float | None = None
    """Seconds for which a value is kept; None keeps it as long as the store."""
    key: str = ""
    """The name under which values are kept. By default they belong to one node of one strategy, or to one tool."""
    version: str | int = ""
    """Values that were kept under another version are not used. Change the version when the code computes something else."""

    def __post_init__(self) -> None:
        if self.ttl is not None:
            if isinstance(self.ttl, bool) or not isinstance(self.ttl, float | int):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"ttl is a number of seconds, or None to keep values for ever, not {kind_of(self.ttl)}")
            if not 0 < self.ttl < math.inf:
                raise ValueError(f"ttl={self.ttl} must be more than 0 seconds, or None to keep values for ever")
        if not isinstance(self.key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"key is the name under which values are kept, not {kind_of(self.key)}")
        if isinstance(self.version, bool) or not isinstance(self.version, str | int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"version is text or a whole number, not {kind_of(self.version)}")


def cache_policy(given: CachePolicy | float | None) -> CachePolicy | None:
    """Return a policy as it is, a number of seconds as a policy, or None.

    Raises:
        TypeError, ValueError: as CachePolicy.
    """
    return given if given is None or isinstance(given, CachePolicy) else CachePolicy(given)
