"""The header of a run: what a store says of a run without its entries."""

from __future__ import annotations

from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Literal

from graphagent import _clock
from graphagent.errors import DamagedStoreError
from graphagent.run.journal._claim import LEASE, Claim
from graphagent.run.journal._keys import pack, unpack

if TYPE_CHECKING:
    from graphagent.run.state._status import Status

FORMAT = 1


# Without slots, so that a record becomes a header as it is: 10,000 headers are listed at once.
@dataclass(frozen=True)
class RunHeader:
    """A run in a store, without its entries: its status, its title, its totals, and the process that executes it."""

    run_id: str
    owner: str = field(repr=False)
    strategy: str
    """The name of its strategy."""
    strategy_digest: str
    """The digest of its outline, which identifies the nodes, edges and declared types."""
    started: int
    """When it was started, in milliseconds UTC."""
    updated: int
    """When the header was written last, in milliseconds UTC."""
    last: int = 0
    """The number of the last entry when the header was written."""
    status: Status = "running"
    """The status when the header was written."""
    reason: str = field(default="", repr=False)
    """Why it stopped, if it did."""
    title: str = field(default="", repr=False)
    """The beginning of its task."""
    turns: int = 0
    tokens: int = 0
    cost: str = "0"
    seconds: float = 0.0
    """For how long it was executed."""
    origin: tuple[str, int] | None = None
    """The run whose entries come before its own, and the last of them: it was forked from that run, or continues its transcript."""
    first: int = 1
    """The number of the entry with which it begins; those before are of the runs whose transcript it continues."""
    thread: str = field(default="", repr=False)
    """The thread to which it belongs."""
    parent: str = ""
    """The run of which it is a part, if its agent was called as a tool."""
    unlearned: tuple[str, ...] = ()
    """The paths of the taps that failed to learn. They try again when the run is resumed."""
    claim: Claim | None = field(default=None, repr=False)
    """The process that executes it."""
    damaged: str = field(default="", repr=False)
    """The damage, if the header cannot be read; then only owner and id are known."""

    @property
    def running(self) -> bool:
        """Whether a process executes it; a process that died does not."""
        return self.claim is not None and self.claim.holds()

    @property
    def forked(self) -> bool:
        """Whether it is a fork of its origin, and does not only continue its transcript."""
        return self.origin is not None and self.origin[1] >= self.first

    @property
    def state(self) -> Status | Literal["interrupted", "damaged"]:
        """The status: `interrupted` if the process that executed it died, `damaged` if the header cannot be read."""
        if self.damaged:
            return "damaged"
        return "interrupted" if self.status == "running" and not self.running else self.status

    def renewed(self, last: int) -> RunHeader:
        """Return the header as it is written now, with a claim that is valid for another lease."""
        now = _clock.now()
        claim = replace(self.claim, until=now + LEASE) if self.claim is not None else None
        return replace(self, last=last, updated=now, claim=claim)

    def pack(self) -> bytes:
        """Return the header as bytes."""
        record = {name: value for name, value in asdict(self).items() if value != _DEFAULTS[name]}
        for name in (
            "title",
            "reason",
        ):  # a text may have been cut in the middle of a surrogate pair, which JSON refuses
            if not record.get(name, "").isascii():
                record[name] = record[name].encode("utf-8", "replace").decode()
        return pack({"format": FORMAT, **record}, f"the head of run {self.run_id!r}")

    @staticmethod
    def unpack(value: bytes, run_id: str | int) -> RunHeader:
        """Return the header in bytes that are stored as that of a run.

        Raises:
            DamagedStoreError: they are no header, or that of another run.
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
        # The constructor would cost more than all the rest.
        header = object.__new__(RunHeader)
        object.__setattr__(header, "__dict__", record)
        return header


def _damaged(run_id: str | int, reason: str) -> DamagedStoreError:
    return DamagedStoreError(f"the head of run {run_id!r}", reason)


_DEFAULTS = {each.name: each.default for each in fields(RunHeader)}
_NEEDED = frozenset(name for name, default in _DEFAULTS.items() if default is MISSING)
