"""What a run has come to, and the run as text, with the runs of the agents that were called as tools in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from graphagent._article import counted
from graphagent.errors import RunError
from graphagent.log._header import OVER
from graphagent.log._visits import Charge, Ledger
from graphagent.memory.steps._types import ActionStep

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from typing import Any

    from graphagent.llm import Usage
    from graphagent.log._header import Status
    from graphagent.memory.transcript._memory import RunMemory
    from graphagent.run._questions import Question


O = TypeVar("O", covariant=True)


class ChildRun(Protocol):
    """A run of an agent that was called as a tool: a `Run`."""

    @property
    def run_id(self) -> str:
        """The id of the run."""
        ...

    @property
    def memory(self) -> RunMemory:
        """The transcript."""
        ...

    @property
    def result(self) -> RunResult[Any]:
        """The result of the run, as far as it has come."""
        ...


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class RunResult(Generic[O]):
    """What a run gave, and what it took."""

    run_id: str
    """Which run it was."""
    status: Status
    """Where it is."""
    memory: RunMemory
    """The transcript."""
    questions: tuple[Question, ...]
    """What it waits for, in the order of asking."""
    due: datetime | None
    """When it can be resumed without an answer: the end of a sleep, or the deadline of a question, whichever is earlier; None where there is neither."""
    nodes: int
    """How many nodes were executed, each attempt counted."""
    turns: int
    """How many model turns there were."""
    usage: Usage
    """The tokens and the money of all model requests, extraction and sub-agents included."""
    seconds: float
    """Wall time while it was executed."""
    finish_reason: str | None
    """Why the model stopped in its last turn: `stop`, or `length` where its answer was cut off at its limit of tokens, or what
    else its server said. None where no model was asked for an answer."""
    children: tuple[ChildRun, ...]
    """The runs of agents that were called as tools, in the order of their beginnings. Of a run from the store: all with
    `agent.read`; with `agent.resume` those that had not ended, and those begun since."""
    _output: O | None
    _unfinished: str
    _error: tuple[str, str] | None
    _charges: Sequence[Charge]

    def __getstate__(self) -> dict[str, Any]:
        # Runs are bound to this process; what they spent stands in the ledger.
        kept = {name: getattr(self, name) for name in self.__slots__}
        return {**kept, "children": ()}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        for name, value in kept.items():
            setattr(self, name, value)

    @property
    def done(self) -> bool:
        """Whether the run came to END."""
        return self.status == "done"

    @property
    def pending(self) -> Question | None:
        """The first open question."""
        return self.questions[0] if self.questions else None

    @property
    def output(self) -> O:
        """What arrived at END; None where the run was ended before.

        Raises:
            RunError: the run did not come to END.
        """
        if self.status not in OVER:
            error = RunError(f"run {self.run_id!r} has no output: {self._why_unfinished}")
            error.run_id = self.run_id
            raise error
        return self._output  # type: ignore[return-value]

    @property
    def _why_unfinished(self) -> str:
        if self.status != "sleeping" or self.due is None:
            return self._unfinished
        return f"it sleeps until {self.due.isoformat(' ', 'seconds')}, and can be resumed then"

    @property
    def ledger(self) -> Ledger:
        """What was spent, row by row: `print(result.ledger.to_text())`."""
        return Ledger.of(self._charges)

    def replay(self, *, detailed: bool = False) -> None:
        """Print what happened, step by step, and why the run did not end; `detailed` adds what the model was sent."""
        from graphagent.memory.steps._render import stopped_text

        text = replayed(self.memory, self.children, detailed=detailed)
        if self._unfinished and self.status not in ("new", "running"):
            text += f"\n\n{stopped_text(self.status, self._why_unfinished, self._error)}"
        print(text)  # noqa: T201  it is there to print

    def _repr_html_(self) -> str:
        from graphagent.memory.steps._render import spent
        from graphagent.run._cards import run_card, stopped

        return run_card(
            self.run_id, self.status, output=self._output if self.done else None, questions=self.questions,
            about=(counted(self.nodes, "node"), counted(self.turns, "turn"), *spent(self.seconds, self.usage)),
            why=stopped(self.status, self._error, self._why_unfinished), transcript=replayed(self.memory, self.children),
        )  # fmt: skip

    def __repr__(self) -> str:
        done = "done" if self.done else self._why_unfinished
        return f"<run {self.run_id!r}: {done}, {counted(self.nodes, 'node')}, {counted(self.turns, 'turn')}>"


def replayed(memory: RunMemory, children: Sequence[ChildRun], *, detailed: bool = False) -> str:
    """Return what happened, step by step. The steps of a sub-agent are below the call that it was for.

    The runs of those whose calls have no result yet, or do not stand in the transcript, come at the end.
    """
    inside = [
        (child.run_id, child.result.status, replayed(child.memory, child.result.children, detailed=detailed))
        for child in children
    ]
    return with_runs(memory, inside, detailed=detailed)


def with_runs(memory: RunMemory, runs: Sequence[tuple[str, str, str]], *, detailed: bool = False) -> str:
    """Return a transcript as text, with the runs of sub-agents: the id, the status and the text of each."""
    turns = [step for step in (*memory.steps, memory.open) if isinstance(step, ActionStep)]
    shown = {result.run_id for turn in turns for result in turn.results}
    blocks = [memory.to_text(detailed=detailed, inside={run_id: text for run_id, _, text in runs})]
    for run_id, status, text in runs:
        if run_id not in shown:
            told = "\n".join(f"    {line}" if line else line for line in text.split("\n"))
            blocks.append(f"Run {run_id} ({status}):\n{told}")
    return "\n\n".join(blocks)
