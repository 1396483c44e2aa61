"""Recorded outcomes of another run, in the place of live calls."""

from __future__ import annotations

from bisect import bisect
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from graphagent.errors import DivergedError, StrategyChangedError
from graphagent.graph import Race
from graphagent.llm import ModelRequest, ModelResponse, ToolCall, ToolCalls, ToolResult
from graphagent.run.state._entries import NodeEntry, Resumed
from graphagent.run.state._ledger import Charge
from graphagent.run.state._state import RunState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from graphagent.run.journal._reader import JournalReader
    from graphagent.run.state._state import Effect, Frame


@dataclass(slots=True, eq=False)
class _RecordedExecution:
    """What one execution of a node did."""

    node: str
    """The path of the node."""
    number: int
    """The first entry that tells of it."""
    input: int = 0
    """The entry that has its input; 0: it is the input of the node around it."""
    effects: dict[str, Effect] = field(default_factory=dict[str, "Effect"])
    """Its effects: the same dictionary as in the frame, which is filled as further entries are applied."""
    outcomes: dict[str, Any] = field(default_factory=dict[str, Any])
    """Their outcomes that were not taken yet, by key."""
    calls: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, "Mapping[str, Any]"])
    """The arguments of the tool calls that were its input, by their ids."""
    ended: bool = True
    """Whether it ended."""
    retried: bool = False
    """Whether it, or something around it, was tried again after it."""
    winner: int | None = None
    """The branch that won, if it was a race."""
    lost: list[_RecordedExecution] = field(default_factory=list["_RecordedExecution"])
    """The executions in the other branches."""


class RecordedOutcomes:
    """What the nodes of a run did, up to one of its entries, to be taken in the same order by another run."""

    def __init__(self, journal: JournalReader, until: int, run_id: str, *, live: bool) -> None:
        """Read the entries of a run.

        Args:
            journal: The run.
            until: The last entry that counts.
            run_id: The other run.
            live: Whether the other run does live what comes after it.
        """
        self._journal = journal
        self._run_id = run_id
        self._live = live
        self._executions: dict[str, list[_RecordedExecution]] = {}
        """The executions that were not matched yet, in order, by the paths of their frames."""
        self._current: dict[str, _RecordedExecution] = {}
        """The executions that match those of the other run which have not ended, by the paths of their frames."""
        self._latest: dict[str, _RecordedExecution] = {}
        """The executions that were matched last."""
        self._restarted = 0
        """The entry with which the strategy was last tried again as a whole."""
        state = RunState(before=journal.first - 1)
        for number in range(journal.first, until + 1):
            self._apply(state, number)
        self._decode(state)
        self._waiting = {
            (question["node"], f"call:{question['id']}")
            for question in state.questions
            if question["kind"] in ("approval", "result")
        }
        """The tool calls, with their nodes, that wait for a person or for a result from outside: they have no outcomes."""

    # ---- what was recorded

    def _apply(self, state: RunState, number: int) -> None:
        """Apply an entry, and note what that changes in the frame to which it belongs."""
        entry = self._journal.entry(number)
        if not isinstance(entry, NodeEntry):
            with self._journal.reading(number):
                state.apply(entry)
            for answer in entry.answers if isinstance(entry, Resumed) else ():
                self._did(state.frame(answer.get("in", "")), answer["node"], number)
            return
        frame, node = state.frame(entry.path), entry.path + entry.node
        executed, fork = frame.effects is not None, (frame.inside or {}).get(entry.node)
        around = (state.frame(path).since for path in _enclosing(entry.path)[:-1])
        # The entry after which the node was first begun, whatever the attempt; the number of a frame that has not moved is 0.
        begun = max(self._restarted, frame.number, *around)
        with self._journal.reading(number):
            state.apply(entry)
        if frame.since < number:  # the node is still executed
            self._did(frame, entry.node, number)
            return
        executions = self._executions.setdefault(entry.path, [])
        if frame.number == number:  # it ended
            if not executed:
                executions.append(_RecordedExecution(node, number))
            if fork is not None:
                self._race_ended(executions[-1], fork, begun)
        elif entry.node:  # it is tried again
            if executed:
                executions[-1].retried = True
            self._retried(f"{node}/", begun)
        else:  # the whole strategy is
            self._retried("", 0)
            self._restarted = number

    def _did(self, frame: Frame, node: str, number: int) -> None:
        """Note the execution of a node when it has its first effect: a frame has new ones for each."""
        executions = self._executions.setdefault(frame.path, [])
        if frame.effects is not None and not (executions and executions[-1].effects is frame.effects):
            executions.append(_RecordedExecution(frame.path + node, number, frame.number, frame.effects))

    def _race_ended(self, race: _RecordedExecution, fork: Frame, begun: int) -> None:
        """Set the executions in the branches that did not win a race apart, if it is one and was won."""
        node = None
        with suppress(StrategyChangedError):  # a node without effects may be gone
            node = self._journal.node(race.node)
        won = [frame for frame in (fork.inside or {}).values() if frame.node == ""]
        if node is None or not isinstance(node.element, Race) or not won:
            return
        winner = min(won, key=attrgetter("number")).path  # if several ended, the first entry decides
        race.winner = int(winner.split("/")[-2])
        for path, executions, place in self._inside(fork.path, begun):
            if not path.startswith(winner):
                race.lost += [lost for each in executions[place:] for lost in (each, *each.lost)]
                del executions[place:]

    def _retried(self, prefix: str, begun: int) -> None:
        """Note that what was executed after an entry, in the frames whose paths begin so, is tried again."""
        for _, executions, place in self._inside(prefix, begun):
            for each in executions[place:]:
                each.retried = True

    def _inside(self, prefix: str, begun: int) -> Iterator[tuple[str, list[_RecordedExecution], int]]:
        """Yield the executions in each frame whose path begins so, with the place of the first one after an entry."""
        for path, executions in self._executions.items():
            if path.startswith(prefix):
                yield path, executions, bisect(executions, begun, key=attrgetter("number"))

    def _decode(self, state: RunState) -> None:
        """Read the outcomes of all executions, and note those that had not ended in the last state."""
        journal, current = self._journal, {id(frame.effects) for frame in state.root.frames()}
        found = (each for executions in self._executions.values() for each in executions)
        for execution in (each for one in found for each in (one, *one.lost)):
            execution.ended = id(execution.effects) not in current
            for key, effect in execution.effects.items():
                execution.outcomes[key] = journal.effect(effect.number, effect.answer)
            with suppress(StrategyChangedError):
                if execution.input and isinstance(journal.value(execution.input), ToolCalls):
                    calls = journal.passed(execution.input)
                    if isinstance(calls, ToolCalls):
                        execution.calls = {call.id: call.arguments for call in calls}

    # ---- what a node is about to do

    def is_next(self, frame: Frame, key: str, like: object) -> bool:
        """Return whether there is an outcome for what a node is about to do; after the recorded ones it may be done live.

        Raises:
            DivergedError: it is something else than what was recorded.
        """
        found = self._find(frame, key)
        if found is not None and key in found.outcomes:
            if not _is_alike(like, found.outcomes[key], found):
                raise self._diverged(frame, f"it does {key!r} with something else")
            return True
        if self._is_after_all(frame) or (frame.node_path, key) in self._waiting:
            return False
        other = next(iter(found.outcomes), None) if found is not None else None
        following = next(iter(self._executions.get(frame.path, ())), None)
        if other is not None:
            raise self._diverged(frame, f"it does {key!r}, and {other!r} was recorded")
        if found is None and following is not None:
            raise self._diverged(frame, f"it does {key!r}, where node {following.node!r} came next")
        raise self._diverged(frame, f"it does {key!r}, and nothing more was recorded of it")

    def refuse(self, frame: Frame, what: str) -> None:
        """Check that something that is never recorded may be done.

        Raises:
            DivergedError: it may not, since not all recorded outcomes were taken.
        """
        self._find(frame, "")
        if not self._is_after_all(frame):
            raise self._diverged(frame, f"{what}, which is not recorded")

    def has_outcome(self, frame: Frame, key: str) -> bool:
        """Return whether an outcome, such as a person's answer, is recorded under a key of the node."""
        found = self._find(frame, key)
        return found is not None and key in found.outcomes

    def take(self, frame: Frame, key: str) -> tuple[Any, list[Charge]]:
        """Return an outcome, once, and what it cost."""
        execution = self._current[frame.path]
        outcome = execution.outcomes.pop(key)
        charges: list[Charge] = []
        if isinstance(outcome, ToolResult):
            # The effects inside a call whose result is known do not happen again.
            for name in [name for name in execution.outcomes if name.startswith(f"{outcome.call_id}/")]:
                charges += self._charges(execution.node, name, execution.outcomes.pop(name))
        return outcome, [*charges, *self._charges(execution.node, key, outcome)]

    def _charges(self, node: str, key: str, outcome: object) -> Iterator[Charge]:
        """Yield what an outcome cost, if it cost anything."""
        if isinstance(outcome, ModelResponse):
            yield Charge(node, key, outcome.model, outcome.usage)
        elif isinstance(outcome, ToolResult) and outcome.run_id:
            yield Charge(node, outcome.name, "", self._journal.charged(outcome.run_id), outcome.run_id)

    def _find(self, frame: Frame, key: str) -> _RecordedExecution | None:
        """Return the recorded execution that matches that of the node."""
        path = frame.path
        found = self._current.get(path) or self._match(path, frame.node_path)
        while found is not None and found.retried and key and key not in found.outcomes:
            # An attempt that failed when it was recorded may not fail now, and does what a later attempt did.
            later = self._match(path, frame.node_path)
            if later is None:
                break
            found = later
        return found

    def _match(self, path: str, node: str) -> _RecordedExecution | None:
        """Match the next recorded execution in a frame, if it is that of the node."""
        executions, latest = self._executions.get(path, []), self._latest.get(path)
        for place, execution in enumerate(executions):
            if execution.node == node:
                del executions[: place + 1]
                self._current[path] = self._latest[path] = execution
                return execution
            # Nodes without effects may come and go; others may be left out only if they were tried again.
            if execution.outcomes and not (latest is not None and latest.retried):
                return None
        return None

    def _is_after_all(self, frame: Frame) -> bool:
        """Return whether a node is about to do something after everything that was recorded, and may do it live."""
        paths = _enclosing(frame.path)
        ended = (each.ended for each in map(self._current.get, paths) if each is not None)
        return self._live and not any(ended) and not any(map(self._executions.get, paths))

    # ---- what ended

    def left(self, path: str, node: str) -> None:
        """Note that the execution of a node ended; of all nodes of a frame, if none is named."""
        ended = path + node
        inside = f"{ended}/" if node else path
        for each in [each for each in self._current if each.startswith(inside)]:
            del self._current[each]
        if self._current.pop(path, None) is None and node:
            executions = self._executions.get(path)
            # It had no effects, now or when it was recorded. A race has none either, and is needed when it is executed.
            while executions and not executions[0].outcomes and executions[0].winner is None:
                if executions.pop(0).node == ended:
                    break

    def winner(self, frame: Frame) -> tuple[int, list[tuple[Charge, bool]]] | None:
        """Return the branch that won a race that is about to begin; None if that was not recorded.

        The effects of the other branches do not happen. What they cost is returned too: each charge, and whether it is a model turn.
        """
        race = self._find(frame, "")
        if race is None or race.winner is None:
            return None
        return race.winner, [
            (charge, isinstance(outcome, ModelResponse) and key.rpartition("/")[2].startswith("model:"))
            for execution in race.lost
            for key, outcome in execution.outcomes.items()
            for charge in self._charges(execution.node, key, outcome)
        ]

    def _diverged(self, frame: Frame, reason: str) -> DivergedError:
        error = DivergedError(frame.node_path, reason)
        error.run_id = self._run_id
        return error


def _enclosing(path: str) -> list[str]:
    """Return the paths of the frames around a frame, the outermost first, and its own."""
    parts = path.split("/")
    return ["".join(f"{part}/" for part in parts[:depth]) for depth in range(len(parts))]


def _is_alike(like: object, outcome: object, execution: _RecordedExecution) -> bool:
    if isinstance(like, ModelRequest):
        return isinstance(outcome, ModelResponse)
    if isinstance(like, ToolCall):
        known = execution.calls.get(like.id, like.arguments)
        return isinstance(outcome, ToolResult) and outcome.name == like.name and dict(known) == dict(like.arguments)
    return True
