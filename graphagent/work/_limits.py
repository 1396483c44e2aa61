"""How many runs of a queue, or of an owner, are executed at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping


class Limits:
    """Counts the runs of a worker."""

    def __init__(self, queues: Mapping[str, int], each_owner: int | None) -> None:
        self._queues, self._each_owner = queues, each_owner
        self._running: Counter[tuple[str, str]] = Counter()

    def are_full(self, queue: str, owner: str) -> bool:
        """Return whether as many runs are executed as may."""
        return any(self._running[name] >= most for name, most in self._of(queue, owner))

    def begin(self, queue: str, owner: str) -> None:
        """Count a run that is executed."""
        self._running.update(name for name, _ in self._of(queue, owner))

    def end(self, queue: str, owner: str) -> None:
        """Count it no more."""
        self._running.subtract(name for name, _ in self._of(queue, owner))

    def _of(self, queue: str, owner: str) -> list[tuple[tuple[str, str], int]]:
        found = [(("queue", queue), self._queues[queue])] if queue in self._queues else []
        return found if self._each_owner is None else [*found, (("owner", owner), self._each_owner)]
