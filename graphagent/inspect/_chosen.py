"""The choice of runs that a list shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphagent.run import RunHeader


AMOUNTS: dict[str, Callable[[RunHeader], float | str]] = {
    "worked": lambda head: head.seconds,
    "turns": lambda head: head.turns,
    "tokens": lambda head: head.tokens,
    "cost": lambda head: head.cost,
}
"""The numbers of runs by which a list can be sorted, by the names of their columns."""


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
    sort: str = ""
    """The number by which runs are sorted, the largest first: a key of `AMOUNTS`; empty: the newest first."""
    before: str = ""
    """The run after which an older page begins: its number where runs are sorted by one, the time of its start, and its id."""

    @staticmethod
    def of(query: Mapping[str, str]) -> Chosen:
        """Return the choice in an address."""
        given = {name: query.get(name, "") for name in ("status", "thread", "strategy", "q", "before")}
        sort = query.get("sort", "")
        return Chosen(**given, sort=sort if sort in AMOUNTS else "", owner=query.get("owner"))

    def query(self) -> dict[str, str]:
        """Return the choice as it stands in an address."""
        own = {
            "status": self.status,
            "thread": self.thread,
            "strategy": self.strategy,
            "q": self.q,
            "sort": self.sort,
            "before": self.before,
        }
        return own if self.owner is None else {**own, "owner": self.owner}

    def order(self, head: RunHeader) -> tuple[float, int, str]:
        """Return the value by which runs are sorted, the largest first."""
        amount = AMOUNTS.get(self.sort)
        return 0.0 if amount is None else float(amount(head)), head.started, head.run_id

    def after(self, head: RunHeader) -> Chosen:
        """Return the choice of the runs that come after one."""
        value, started, run_id = self.order(head)
        return replace(self, before=f"{f'{value}:' if self.sort else ''}{started}:{run_id}")

    def follows(self, head: RunHeader) -> bool:
        """Return whether a run comes after the run at which the page before ended."""
        if not self.before:
            return True
        value, _, rest = self.before.partition(":") if self.sort else ("0", "", self.before)
        started, _, run_id = rest.partition(":")
        with suppress(ValueError):  # an address that somebody typed shows no run, as one after the last run does
            return self.order(head) < (float(value), int(started), run_id)
        return False

    def fits(self, head: RunHeader) -> bool:
        """Return whether a run is chosen, apart from its status."""
        if self.owner not in (None, head.owner):
            return False
        if (self.thread and head.thread != self.thread) or (self.strategy and head.strategy != self.strategy):
            return False
        text = f"{head.title}\n{head.run_id}\n{head.strategy}\n{head.thread}\n{head.owner}\n{head.reason}".casefold()
        return all(word in text for word in self.q.casefold().split())
