"""The choice of runs that a list shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphagent.run import RunHeader


@dataclass(frozen=True, slots=True)
class Chosen:
    """The choice of runs of a page, all of which is in its address."""

    status: str = ""
    owner: str | None = None
    """None: of all owners."""
    thread: str = ""
    strategy: str = ""
    q: str = ""
    """Words in the title, the id, the strategy, the thread or the reason of a run."""
    before: str = ""
    """The run after which an older page begins: the time of its start, and its id."""

    @staticmethod
    def of(query: Mapping[str, str]) -> Chosen:
        """Return the choice in an address."""
        given = {name: query.get(name, "") for name in ("status", "thread", "strategy", "q", "before")}
        return Chosen(**given, owner=query.get("owner"))

    def query(self) -> dict[str, str]:
        """Return the choice as it stands in an address."""
        own = {
            "status": self.status,
            "thread": self.thread,
            "strategy": self.strategy,
            "q": self.q,
            "before": self.before,
        }
        return own if self.owner is None else {**own, "owner": self.owner}

    def fits(self, head: RunHeader) -> bool:
        """Return whether a run is chosen, apart from its status."""
        if self.owner not in (None, head.owner):
            return False
        if (self.thread and head.thread != self.thread) or (self.strategy and head.strategy != self.strategy):
            return False
        text = f"{head.title}\n{head.run_id}\n{head.strategy}\n{head.thread}\n{head.owner}\n{head.reason}".casefold()
        return all(word in text for word in self.q.casefold().split())
