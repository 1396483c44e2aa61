"""Recorded outcomes of another run, in the place of live calls."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from graphagent.errors import DivergedError, StrategyChangedError
from graphagent.graph import Race
from graphagent.llm import ModelRequest, ModelResponse, ToolCall, ToolCalls, ToolResult
from graphagent.run.state._entries import BranchFailed, EffectDone, NodeEnded, Recovered, Resumed, Retried, RunEdited
from graphagent.run.state._ledger import Charge
from graphagent.run.state._questions import type_of_answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from graphagent.run.journal._reader import JournalReader
    from graphagent.run.state._entries import JournalEntry
    from graphagent.run.state._state import Frame


@dataclass(slots=True)
class _RecordedExecution:
    """What one execution of a node did."""

    node: str
    """The path of the node."""
    outcomes: dict[str, Any] = field(default_factory=dict[str, Any])
    """The outcomes of its effects that were not taken yet, by key."""
    ended: bool = False
    """Whether it ended."""
    retried: bool = False
    """Whether it, or something around it, was tried again after it."""
    left: bool = False
    """Whether the frame in which it was executed was left."""
    calls: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, "Mapping[str, Any]"])
    """The arguments of the tool calls that were its input, by their ids."""


_ExecutionsByFrame = dict[str, list[_RecordedExecution]]
"""The executions of nodes in each frame, by the path of the frame, in order."""


@dataclass(slots=True)
class _RaceRun:
    """One execution of a race."""

    winner: int
    executions: _ExecutionsByFrame
    """Those of its branches."""
    races: dict[str, list[_RaceRun]]
    """The races inside of them."""


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
        self._run_id = run_id
        self._charged = journal.charged
        self._live = live
        reader = _OutcomeReader(journal, until)
        self._executions, self._races = reader.executions, reader.races
        questions = journal.state.questions if until == journal.last else ()
        self._waiting = {
            (question["node"], f"call:{question['id']}")
            for question in questions
            if question["kind"] in ("approval", "result")
        }
        """The tool calls, with their nodes, that wait for a person or for a result from outside: they have no outcomes."""
        self._current: dict[str, _RecordedExecution] = {}
        """The executions that match those of the other run which have not ended, by the paths of their frames."""
        self._latest: dict[str, _RecordedExecution] = {}
        """The executions that were matched last."""

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
        if self._is_after_all(frame, found) or (frame.node_path, key) in self._waiting:
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
        if not self._is_after_all(frame, self._find(frame, "")):
            raise self._diverged(frame, f"{what}, which is not recorded")

    def has_outcome(self, frame: Frame, key: str) -> bool:
        """Return whether an outcome, such as a person's answer, is recorded under a key of the node."""
        found = self._find(frame, key)
        return found is not None and key in found.outcomes

    def take(self, frame: Frame, key: str) -> tuple[Any, list[Charge]]:
        """Return an outcome, once, and what it cost."""
        execution, node = self._current[frame.path], frame.node_path
        outcome = execution.outcomes.pop(key)
        charges: list[Charge] = []
        if isinstance(outcome, ModelResponse):
            charges.append(Charge(node, key, outcome.model, outcome.usage))
        elif isinstance(outcome, ToolResult):
            # The effects inside a call whose result is known do not happen again.
            for name in [name for name in execution.outcomes if name.startswith(f"{outcome.call_id}/")]:
                inside = execution.outcomes.pop(name)
                if isinstance(inside, ModelResponse):
                    charges.append(Charge(node, name, inside.model, inside.usage))
            if outcome.run_id:
                charges.append(Charge(node, outcome.name, "", self._charged(outcome.run_id), outcome.run_id))
        return outcome, charges

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

    def _is_after_all(self, frame: Frame, found: _RecordedExecution | None) -> bool:
        """Return whether a node is about to do something after everything that was recorded, and may do it live."""
        if not self._live or (found is not None and found.ended):
            return False
        parts = frame.path.split("/")
        paths = ("".join(f"{part}/" for part in parts[:depth]) for depth in range(len(parts)))
        return not any(self._executions.get(path) for path in paths)

    # ---- what ended

    def left(self, path: str, node: str) -> None:
        """Note that the execution of a node ended; of all nodes of a frame, if none is named."""
        ended = path + node
        inside = f"{ended}/" if node else path
        for each in [each for each in self._current if each.startswith(inside)]:
            del self._current[each]
        if self._current.pop(path, None) is None and node:
            executions = self._executions.get(path)
            while executions and not executions[0].outcomes:  # it had no effects, now or when it was recorded
                if executions.pop(0).node == ended:
                    break

    def winner(self, frame: Frame) -> tuple[int, list[tuple[Charge, bool]]] | None:
        """Return the branch that won a race that is about to begin; None if that was not recorded.

        The effects of the other branches do not happen. What they cost is returned too: each charge, and whether it is a model turn.
        """
        races = self._races.get(frame.node_path)
        if not races:
            return None
        race = races.pop(0)
        own = f"{frame.node_path}/{race.winner}/"
        charges: list[tuple[Charge, bool]] = []
        for path, executions in race.executions.items():
            if path.startswith(own):
                self._executions[path] = [*executions, *self._executions.get(path, ())]
                continue
            for execution in executions:
                charges += self._charges(execution)
        for path, inside in race.races.items():
            if path.startswith(own):
                self._races[path] = [*inside, *self._races.get(path, ())]
            else:
                for execution in (each for inner in inside for each in _all(inner)):
                    charges += self._charges(execution)
        return race.winner, charges

    def _charges(self, execution: _RecordedExecution) -> Iterator[tuple[Charge, bool]]:
        """Yield what the effects of an execution cost, and whether each is a model turn."""
        for key, outcome in execution.outcomes.items():
            if isinstance(outcome, ModelResponse):
                is_turn = key.rpartition("/")[2].startswith("model:")
                yield Charge(execution.node, key, outcome.model, outcome.usage), is_turn
            elif isinstance(outcome, ToolResult) and outcome.run_id:
                usage = self._charged(outcome.run_id)
                yield Charge(execution.node, outcome.name, "", usage, outcome.run_id), False

    def _diverged(self, frame: Frame, reason: str) -> DivergedError:
        error = DivergedError(frame.node_path, reason)
        error.run_id = self._run_id
        return error


def _all(race: _RaceRun) -> Iterator[_RecordedExecution]:
    for executions in race.executions.values():
        yield from executions
    for inside in race.races.values():
        for each in inside:
            yield from _all(each)


class _OutcomeReader:
    """Sorts the outcomes in a journal by the executions of nodes."""

    def __init__(self, journal: JournalReader, until: int) -> None:
        self._journal = journal
        self.executions: _ExecutionsByFrame = {}
        self.races: dict[str, list[_RaceRun]] = {}
        self._inputs: dict[str, int] = {"": journal.first}
        """The entries that have the current inputs, by the paths of the frames."""
        self._first: dict[str, int] = {}
        """The branch of each race that ended first."""
        for number in range(journal.first, until + 1):
            self._read(number, journal.entry(number))

    def _read(self, number: int, entry: JournalEntry) -> None:
        match entry:
            case EffectDone():
                execution = self._execution(entry.path, entry.path + entry.node)
                execution.outcomes[entry.key] = self._journal.value(number)
            case Resumed():
                for place, answer in enumerate(entry.answers):
                    path = answer.get("in", "")
                    node = path + answer["node"]
                    found = self._journal.node(node)
                    kind = type_of_answer(answer["key"], found.element if found is not None else None)
                    outcome = self._journal.effect(number, place, kind)
                    self._execution(path, node).outcomes[answer["key"]] = outcome
            case NodeEnded() | Recovered():
                self._ended(entry.path, entry.path + entry.node, retried=False)
                self._inputs[entry.path] = number
                if not entry.following:
                    race, _, branch = entry.path[:-1].rpartition("/")
                    if branch.isdecimal():
                        self._first.setdefault(race, int(branch))
                if isinstance(entry, NodeEnded):
                    self._race_ended(entry.path + entry.node)
                self._first.pop(entry.path + entry.node, None)
            case BranchFailed():
                self._ended(entry.path, entry.path + entry.node, retried=False)
                self._first.pop(entry.path + entry.node, None)
            case Retried():
                if not entry.node:
                    self._leave(entry.path, retried=True)
                    return
                self._ended(entry.path, entry.path + entry.node, retried=True)
                self._first.pop(entry.path + entry.node, None)
            case RunEdited() if entry.following is not None:
                self._leave(entry.path, retried=False)
                self._inputs[entry.path] = number
            case _:
                pass

    def _ended(self, path: str, node: str, *, retried: bool) -> None:
        if not retried or node in (each.node for each in self.executions.get(path, ())[-1:]):
            execution = self._execution(path, node)
            execution.ended, execution.retried = True, retried
        self._leave(f"{node}/", retried=retried)

    def _race_ended(self, path: str) -> None:
        """Set the executions of the branches of a race apart."""
        node = None
        with suppress(StrategyChangedError):  # a node without effects may be gone
            node = self._journal.node(path)
        if node is None or not isinstance(node.element, Race) or path not in self._first:
            return
        inside = f"{path}/"
        executions = {each: self.executions.pop(each) for each in [*self.executions] if each.startswith(inside)}
        races = {race: self.races.pop(race) for race in [*self.races] if race.startswith(inside)}
        self.races.setdefault(path, []).append(_RaceRun(self._first[path], executions, races))

    def _leave(self, inside: str, *, retried: bool) -> None:
        """Note that the frames whose paths begin so were left."""
        for path, executions in self.executions.items():
            if path.startswith(inside):
                for execution in reversed(executions):
                    if execution.left:
                        break
                    execution.retried = execution.retried or retried
                    execution.ended = execution.left = True
        for path in [path for path in self._inputs if path.startswith(inside) and path]:
            del self._inputs[path]

    def _execution(self, path: str, node: str) -> _RecordedExecution:
        executions = self.executions.setdefault(path, [])
        if not executions or executions[-1].ended or executions[-1].node != node:
            executions.append(_RecordedExecution(node, calls=self._calls(path)))
        return executions[-1]

    def _calls(self, path: str) -> dict[str, Mapping[str, Any]]:
        """Return the arguments of the tool calls that are the input of the current node of a frame, by their ids."""
        number = self._inputs.get(path)
        with suppress(StrategyChangedError):
            if number is not None and isinstance(self._journal.value(number), ToolCalls):
                calls = self._journal.passed(number)
                return {call.id: call.arguments for call in calls} if isinstance(calls, ToolCalls) else {}
        return {}


def _is_alike(like: object, outcome: object, execution: _RecordedExecution) -> bool:
    if isinstance(like, ModelRequest):
        return isinstance(outcome, ModelResponse)
    if isinstance(like, ToolCall):
        known = execution.calls.get(like.id, like.arguments)
        return isinstance(outcome, ToolResult) and outcome.name == like.name and dict(known) == dict(like.arguments)
    return True
