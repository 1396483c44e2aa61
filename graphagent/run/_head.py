"""What can be said of a run at a glance: its head."""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Literal

from graphagent import _clock
from graphagent.errors import DamagedStoreError
from graphagent.run._claim import LEASE, Claim
from graphagent.run._keys import pack, unpack

if TYPE_CHECKING:
    from graphagent.run._result import Status

FORMAT = 1


@dataclass(frozen=True)  # without slots, so that a record can be taken over as it is: 10,000 heads are listed at once
class Head:
    """What a store says of a run at a glance."""

    run_id: str
    owner: str = field(repr=False)
    strategy: str
    """The name of its strategy."""
    fingerprint: str
    """Names the strategy as it was: its nodes, edges and declared types."""
    started: int
    """When it was started, in milliseconds UTC."""
    updated: int
    """When the head was written last."""
    last: int = 0
    """The number of the last entry, when the head was written."""
    status: Status = "running"
    """Where it was then."""
    reason: str = field(default="", repr=False)
    """Why it stopped, where it did."""
    title: str = field(default="", repr=False)
    """The beginning of its task."""
    turns: int = 0
    tokens: int = 0
    cost: str = "0"
    seconds: float = 0.0
    """For how long it was executed."""
    origin: tuple[str, int] | None = None
    """The run that it was forked from, and behind which of its entries."""
    parent: str = ""
    """The run that it is a part of: its agent was called as a tool there."""
    unlearned: tuple[str, ...] = ()
    """The paths of the taps that failed to learn, and do so when the run is resumed."""
    claim: Claim | None = field(default=None, repr=False)
    """Who executes it."""
    damaged: str = field(default="", repr=False)
    """What is wrong with it, where it cannot be read: then nothing else is known but whose it is, and its id."""

    @property
    def running(self) -> bool:
        """Whether a process executes it; one that died does not."""
        return self.claim is not None and self.claim.holds()

    @property
    def state(self) -> Status | Literal["interrupted", "damaged"]:
        """Where it is: `interrupted` where the process that executed it died, `damaged` where that cannot be read."""
        if self.damaged:
            return "damaged"
        return "interrupted" if self.status == "running" and not self.running else self.status

    def renewed(self, last: int) -> Head:
        """Give it as it is to be written now."""
        now = _clock.now()
        claim = replace(self.claim, until=now + LEASE) if self.claim is not None else None
        return replace(self, last=last, updated=now, claim=claim)

    def pack(self) -> bytes:
        """Give it as bytes."""
        record = {name: value for name, value in asdict(self).items() if value != _DEFAULTS[name]}
        for name in ("title", "reason"):  # half a letter, as of a text that was cut, is no text that JSON takes
            if not record.get(name, "").isascii():
                record[name] = record[name].encode("utf-8", "replace").decode()
        return pack({"format": FORMAT, **record}, f"the head of run {self.run_id!r}")

    @staticmethod
    def unpack(value: bytes, run_id: str | int) -> Head:
        """Give the head of these bytes, which are kept as that of a run.

        Raises:
            DamagedStoreError: they are none.
        """
        record = unpack(value)
        if record is None:
            raise _damaged(run_id, "it is not what was written")
        if record.pop("format", None) != FORMAT:
            raise _damaged(run_id, "it is of a format that is not known here")
        if not _NEEDED.issubset(record) or record["run_id"] != run_id:
            raise _damaged(run_id, "it lacks something, or is that of another run")
        try:
            if "claim" in record:
                record["claim"] = Claim(**record["claim"])
            if "unlearned" in record:
                record["unlearned"] = tuple(map(str, record["unlearned"]))
            if "origin" in record:
                origin, number = record["origin"]
                record["origin"] = origin, number
        except (TypeError, ValueError):
            raise _damaged(run_id, "it lacks something") from None
        head = object.__new__(Head)
        object.__setattr__(head, "__dict__", record)
        return head


def _damaged(run_id: str | int, reason: str) -> DamagedStoreError:
    return DamagedStoreError(f"the head of run {run_id!r}", reason)


_DEFAULTS = {each.name: each.default for each in fields(Head)}
_NEEDED = frozenset(name for name, default in _DEFAULTS.items() if default is MISSING)
