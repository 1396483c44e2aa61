"""What a run that is executed again asks for: the outcomes that were recorded, each looked up where it is about to be caused.

An outcome is found by its frame, by the visit of a node in that frame to which it belongs, and by its kind and key. Nothing else is
compared but the names and arguments of tool calls: wording may differ. The file is long because each kind of effect is looked up in its own way.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from msgspec import structs

from graphagent.errors import DivergedError
from graphagent.llm import Approve, Deny, ModelResponse, ToolCalls, Usage
from graphagent.log._bytes import payloads_in
from graphagent.log._entries import (
    AgentStopped,
    Asked,
    BranchesJoined,
    BranchFailed,
    EffectRecorded,
    EffectStarted,
    Expired,
    NodeFinished,
    NodeRetried,
    Placed,
    Spent,
    Started,
    ToolsListed,
)
from graphagent.log._ledger import Charge, spent
from graphagent.log._visits import UNDONE_BY_RETRY, UNSET, name_of_effect

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from graphagent.llm import ToolCall, ToolResult
    from graphagent.log._entries import Entry
    from graphagent.log._log import Applied, Log
    from graphagent.log._visits import Frame, Visit
    from graphagent.memory.steps._types import Step
    from graphagent.run._config import RunConfig

_ASKED = frozenset(("turn", "decision", "once", "tool", "sleep", "answer", "cached"))
"""The kinds of effects whose outcomes are taken. What follows from them, such as steps, comes about anew."""
_Place = tuple[str, str]
_Outcome = EffectRecorded | Expired


class RecordedAnswer(NamedTuple):
    """What became of a request."""

    response: ModelResponse | None
    """The answer; None if the prompt was too long."""
    error: str
    """What the server said then."""
    charges: tuple[Charge, ...]
    """What it cost."""
    turns: int
    """How many model turns it was."""


class _Cost(NamedTuple):
    number: int
    """The entry."""
    charges: tuple[Charge, ...] = ()
    turns: int = 0
    """How many model turns it was."""


@dataclass(slots=True, eq=False)
class _RecordedVisit:
    """What a visit of a node did in the recorded run."""

    node: str
    born: int
    """The entry with which its frame began."""
    outcomes: dict[_Place, _Outcome] = field(default_factory=dict[_Place, "_Outcome"])
    """Those that were not taken yet, by kind and key."""
    costs: OrderedDict[_Place, _Cost] = field(default_factory=OrderedDict[_Place, "_Cost"])
    """What they cost, as far as it was not counted yet, in the order of the entries."""
    owed: list[_Cost] = field(default_factory=list["_Cost"])
    """What the visits before it in the frame cost, as far as it was not counted yet."""
    within: dict[str, list[_Place]] = field(default_factory=dict[str, list[_Place]])
    """The outcomes and costs that were taken note of inside a tool call, by the beginning of their keys: that of the call, and a slash."""
    input: tuple[Any, Any] | None = None
    """The input of a node that calls tools, with its origin."""
    asked: dict[str, Mapping[str, Any]] | None = None
    """The arguments of the tool calls in that input, by the ids of the calls, once they are needed."""
    verdicts: dict[str, Any] = field(default_factory=dict[str, Any])
    """What people said of tool calls, by the keys of the calls: they may have changed the arguments."""
    started: dict[str, str] = field(default_factory=dict[str, str])
    """The names of tools by the keys of their calls that were begun, or whose results were kept."""
    ended: bool = False
    retried: bool = False
    passed: bool = False
    """Whether the visit that matches it has ended."""
    winner: int | None = None
    """The branch that won, if it was a race."""

    def did(self, name: _Place, cost: _Cost) -> None:
        """Take note of something under a kind and a key."""
        self.costs[name] = cost
        for around in _beginnings(name[1]):
            self.within.setdefault(around, []).append(name)

    def take(self, names: Iterable[_Place]) -> list[_Cost]:
        """Return what something cost that is counted from then on."""
        return [self.costs.pop(name) for name in names]

    def take_owed(self) -> list[_Cost]:
        """Return the same of the visits before it."""
        found, self.owed = self.owed, []
        return found


class Recording:
    """What the nodes of a run did, up to one of its entries, to be taken in the same order by another run."""

    def __init__(self, config: RunConfig, run_id: str, *, live: bool) -> None:
        self.config = config
        self.origin: Log
        """The log of that run, which is set when it has been read."""
        self._run_id = run_id
        self._live = live
        """Whether the other run does live what comes after it."""
        self._visits: dict[str, deque[_RecordedVisit]] = {}
        """The visits that were not matched yet, in order, by the places of their frames."""
        self._inside: dict[str, list[str]] = {"": []}
        """The places of frames by the places around them, these included."""
        self._recording: dict[Frame, _RecordedVisit] = {}
        """The visits that are being read."""
        self._current: dict[str, tuple[int, _RecordedVisit]] = {}
        """The visits that match those of the other run, with the entries with which these began, by place."""
        self._asked: dict[tuple[str, str], str] = {}
        """The kinds of questions, by the frames that asked and the keys of the answers."""
        self.earlier: list[Step] = []
        """The steps before the run."""
        self.start: Started

    # ---- what was recorded

    def watch(self, applied: Applied) -> None:  # noqa: C901  one branch for each kind of entry
        """Note what an entry says."""
        entry, number, state, frame, visit = applied[:5]
        if isinstance(entry, Started):
            transcript = state.root.transcript
            self.start, self.earlier = entry, transcript.steps[: transcript.begun - entry.begun]
        if frame is None or visit is None:
            return
        if isinstance(entry, Asked):
            self._asked[entry.at, entry.key] = entry.kind
        elif isinstance(entry, _Outcome) and entry.kind in _ASKED:
            found, name = self._did(frame, visit), (entry.kind, entry.key)
            found.outcomes[name] = entry
            found.did(name, _Cost(number, entry.charges, entry.turns))
            if entry.kind == "tool" and visit.input is not UNSET:
                found.input = visit.input, visit.source
            if entry.kind == "answer" and self._asked.get((entry.at, entry.key)) == "approval":
                found.verdicts[entry.key] = entry.value
        elif isinstance(entry, EffectStarted) and entry.kind in ("tool", "cached"):
            self._did(frame, visit).started[entry.key] = entry.tool
        elif isinstance(entry, EffectRecorded | Spent) and entry.charges:
            self._did(frame, visit).did(("spent", str(number)), _Cost(number, entry.charges, entry.turns))
        elif isinstance(entry, BranchesJoined) and entry.winner is not None:
            found = self._did(frame, visit)
            found.winner = entry.winner
            for branch, each in enumerate(visit.inside.get("branches", ())):
                if branch != entry.winner:
                    self._lose(found, _place(each), visit.entered)
        elif isinstance(entry, NodeFinished | Placed | BranchFailed | AgentStopped | NodeRetried):
            if isinstance(entry, NodeFinished):
                self._did(
                    frame, visit
                )  # it counts even if it did nothing: another node may not do something in its place
            self._end_inside(frame, visit, entry)
            ended = self._recording.pop(frame, None)
            if ended is not None:
                ended.retried = isinstance(entry, NodeRetried)
                ended.ended = True

    def _did(self, frame: Frame, visit: Visit) -> _RecordedVisit:
        found = self._recording.get(frame)
        if found is None:
            found = self._recording[frame] = _RecordedVisit(visit.node or "", frame.born)
            place = _place(frame)
            if place not in self._visits:
                self._visits[place] = deque()
                for around in ("", *_beginnings(place)):
                    self._inside.setdefault(around, []).append(place)
            self._visits[place].append(found)
        return found

    def _end_inside(self, frame: Frame, visit: Visit, entry: Entry) -> None:
        """Note that what was executed inside a node has ended; if it is tried again, so is all of that."""
        retried, whole = isinstance(entry, NodeRetried), isinstance(entry, NodeRetried) and bool(entry.first)
        if not (visit.inside or whole):
            return
        place, begun = (_place(frame), frame.born) if whole else (f"{_place(frame)}{visit.node}/", visit.entered)
        for name in self._inside.get(place, ()):
            for each in takewhile(lambda each: each.born >= begun, reversed(self._visits[name])):
                each.ended, each.retried = True, each.retried or retried

    def _lose(self, race: _RecordedVisit, place: str, begun: int) -> None:
        """Move the costs of what was done in a branch of a race since that began to the race itself."""
        for name in self._inside.get(place, ()):
            visits = self._visits[name]
            while visits and visits[-1].born >= begun:
                lost = visits.pop()
                for key, cost in lost.costs.items():
                    race.costs[f"{name}{len(visits)}", "/".join(key)] = cost

    # ---- what a node is about to do

    def begin(self, log: Log) -> None:
        """Prepare the log of the new run: payloads keep their numbers."""
        log.codec.blobs.last = self.origin.codec.blobs.last

    def begun(self, log: Log) -> None:
        """Append the tools of servers, which are not asked again."""
        for server, listed in self.origin.state.run.listed.items():
            self._take_payloads(log, listed)
            log.append(ToolsListed(server=server, value=listed))

    def answer(self, frame: Frame, kind: str, key: str) -> RecordedAnswer | None:
        """Return the answer to a request, with what it cost."""
        entry: EffectRecorded | None = self._take(frame, kind, key)
        if entry is None:
            return None
        cost = self._current[_place(frame)][1].costs.pop((kind, key), _Cost(0))
        if entry.error is not None:
            return RecordedAnswer(None, entry.error[1], cost.charges, cost.turns)
        response = None if entry.held is None else entry.held.value
        if response is None:
            message, charges = cast("Any", entry.step).model_output_message, entry.charges
            response = ModelResponse(
                message, spent(charges), entry.finish or "stop", charges[-1].model if charges else ""
            )
        return RecordedAnswer(response, "", cost.charges, cost.turns)

    def result(self, log: Log, frame: Frame, key: str, call: ToolCall) -> EffectRecorded | None:
        """Return the entry with the result of a tool call, and count what was spent in it."""
        entry: EffectRecorded | None = self._take(frame, "tool", key, call=call)
        if entry is None:
            return None
        result = cast("ToolResult", entry.held.value)
        tool = self._current[_place(frame)][1].started.get(key)
        if tool is not None:
            log.append(EffectStarted(at=frame.path, kind="tool", key=key, tool=tool))
        self._pay_inside(log, frame, key, result)
        return entry

    def entry(self, log: Log, frame: Frame, kind: str, key: str) -> _Outcome | None:
        """Return the entry of another effect, and count what was spent for it."""
        entry: _Outcome | None = self._take(frame, kind, key)
        if entry is None:
            return None
        if kind in ("once", "cached"):
            # What its work asked a model is not asked again.
            visit = self._current[_place(frame)][1]
            number = visit.costs[kind, key].number
            earlier = takewhile(lambda each: each[1].number <= number, visit.costs.items())
            self._pay(log, frame, [*visit.take_owed(), *visit.take(name for name, _ in [*earlier])])
        self._take_payloads(log, entry.value)
        return structs.replace(entry, at=frame.path)

    def knows(self, frame: Frame, kind: str, key: str) -> bool:
        """Return whether the node of a frame recorded an outcome, in this attempt or in a later one."""
        found, later = self._find(frame), iter(self._visits.get(_place(frame), ()))
        while found is not None and found.retried and (kind, key) not in found.outcomes:
            found = next((each for each in later if each.node == frame.visit.node), None)
        return found is not None and (kind, key) in found.outcomes

    def refuse(self, frame: Frame, what: str) -> None:
        """Check that something may be done that is never recorded."""
        if not self.is_after_all(frame):
            raise self._diverged(frame, f"{what}, which is not recorded")

    def is_after_all(self, frame: Frame) -> bool:
        """Return whether the current node of a frame comes after everything that was recorded, and does live what it does."""
        self._find(frame)
        return self._is_after_all(frame)

    def left(self, frame: Frame, node: str) -> None:
        """Note that a node of a frame ended."""
        place = _place(frame)
        since, found = self._current.get(place, (0, None))
        if found is not None and not found.passed and since >= frame.born:
            found.passed = True
            return
        visits = self._visits.get(place)
        # It did nothing. What did nothing when it was recorded is passed with it; a race is needed when it is executed.
        while visits and not visits[0].outcomes and visits[0].winner is None:
            if visits.popleft().node == node:
                break

    def winner(self, log: Log, frame: Frame) -> int | None:
        """Return the branch that won the race that is about to begin. What the others spent is counted."""
        found = self._find(frame)
        if found is None or found.winner is None:
            return None
        self._pay(log, frame, [*found.take_owed(), *found.take([*found.costs])])
        return found.winner

    def ended(self, log: Log, frame: Frame) -> None:
        """Count what was spent and belongs to no outcome, such as failed requests."""
        found = [visit for _, visit in self._current.values()]
        found += [each for visits in self._visits.values() for each in visits]
        for visit in found:
            if visit.ended or not self._live:
                self._pay(log, frame, [*visit.take_owed(), *visit.take([*visit.costs])])

    def _take(self, frame: Frame, kind: str, key: str, *, call: ToolCall | None = None) -> Any:
        """Return a recorded outcome, once; None if it may be caused live."""
        name = (kind, key)
        found = self._find(frame, name)
        shown = name_of_effect(kind, key if call is None else call.id)
        if found is not None and name in found.outcomes:
            if call is not None and not self._is_alike(call, found, name):
                raise self._diverged(frame, f"it does {shown!r} with something else")
            return found.outcomes.pop(name)
        if kind == "answer" or self._is_after_all(frame) or (call is not None and self._waits_for(call)):
            return None
        if found is not None and found.outcomes:
            recorded = name_of_effect(*next(iter(found.outcomes)))
            raise self._diverged(frame, f"it does {shown!r}, and {recorded!r} was recorded")
        following = next(iter(self._visits.get(_place(frame), ())), None)
        if found is None and following is not None:
            raise self._diverged(frame, f"it does {shown!r}, where node {following.node!r} came next")
        raise self._diverged(frame, f"it does {shown!r}, and nothing more was recorded of it")

    def _find(self, frame: Frame, name: _Place | None = None) -> _RecordedVisit | None:
        """Return the recorded visit that matches the current one of a frame."""
        place = _place(frame)
        since, found = self._current.get(place, (0, None))
        if found is None or since != frame.visit.since:
            found = self._match(place, frame, found)
        while found is not None and found.retried and name is not None and name not in found.outcomes:
            # An attempt that failed when it was recorded need not fail now, and does what a later attempt did.
            kept = {key: each for key, each in found.outcomes.items() if key[0] not in UNDONE_BY_RETRY}
            later = self._match(place, frame, found)
            if later is None:
                break
            later.outcomes = {**kept, **later.outcomes}
            for around, names in found.within.items():
                later.within.setdefault(around, []).extend(names)
            found = later
        return found

    def _match(self, place: str, frame: Frame, before: _RecordedVisit | None) -> _RecordedVisit | None:
        """Match the next recorded visit in a frame, if it is one of the same node."""
        visits = self._visits.get(place, deque[_RecordedVisit]())
        for number, visit in enumerate(visits):
            if visit.node == frame.visit.node:
                skipped = [] if before is None else [before]
                skipped += [visits.popleft() for _ in range(number)]
                visits.popleft()
                if skipped:
                    visit.owed = skipped[0].take_owed()
                    costs = (cost for each in skipped for cost in each.costs.values())
                    visit.owed += [cost for cost in costs if cost.charges or cost.turns]
                self._current[place] = frame.visit.since, visit
                return visit
            # Nodes without effects may come and go; others may be left out only if they were tried again.
            if visit.outcomes and not (before is not None and before.retried):
                break
        return None

    def _is_after_all(self, frame: Frame) -> bool:
        """Return whether a node is about to do something after everything that was recorded, and may do it live."""
        if not self._live:
            return False
        each: Frame | None = frame
        while each is not None:
            place = _place(each)
            since, current = self._current.get(place, (0, None))
            if self._visits.get(place) or (current is not None and since == each.visit.since and current.ended):
                return False
            each = each.parent
        return True

    def _is_alike(self, call: ToolCall, found: _RecordedVisit, name: _Place) -> bool:
        """Return whether a tool call has the name and the arguments of the recorded one: those of the model, or of a person."""
        outcome, origin = cast("EffectRecorded", found.outcomes[name]).held.value, self.origin
        if found.asked is None:
            found.asked = {}
            if found.input is not None:
                with suppress(ValueError):
                    given = origin.codec.take(found.input[0], self.config.kind_of(*found.input[1]))
                    if isinstance(given, ToolCalls):
                        found.asked = {each.id: each.arguments for each in given}
        arguments = found.asked.get(call.id, call.arguments)
        verdict = origin.take(found.verdicts[name[1]], Approve | Deny) if name[1] in found.verdicts else None
        if isinstance(verdict, Approve) and verdict.arguments is not None:
            arguments = verdict.arguments
        return outcome.name == call.name and dict(arguments) == dict(call.arguments)

    def _waits_for(self, call: ToolCall) -> bool:
        """Return whether the recorded run waited for a person, or for a result from outside, before this call."""
        return any(each.id.rpartition("/")[2] == call.id for each in self.origin.state.questions.values())

    # ---- what it cost

    def _pay_inside(self, log: Log, frame: Frame, key: str, result: ToolResult) -> None:
        """Count what was spent inside a tool call that is not made."""
        place, scope = _place(frame), f"{key}/"
        visit = self._current[place][1]
        names = dict.fromkeys(visit.within.pop(scope, ()))
        self._pay(log, frame, visit.take(name for name in names if name in visit.costs))
        for name in names:
            visit.outcomes.pop(name, None)
        usage, turns = Usage(), 0
        for below in self._inside.get(f"{place}{frame.visit.node}/agent {scope}", ()):
            for each in self._visits.pop(below, ()):
                for _, charges, count in each.costs.values():
                    usage, turns = sum((charge.usage for charge in charges), usage), turns + count
        if turns or usage != Usage():
            node = frame.node_path
            log.append(
                Spent(at=frame.path, charges=(Charge(node, result.name, "", usage, result.run_id),), turns=turns)
            )

    @staticmethod
    def _pay(log: Log, frame: Frame, costs: list[_Cost]) -> None:
        charges, turns = tuple(charge for cost in costs for charge in cost.charges), sum(cost.turns for cost in costs)
        if charges or turns:
            log.append(Spent(at=frame.path, charges=charges, turns=turns))

    def _take_payloads(self, log: Log, value: Any) -> None:
        """Take over the payloads to which a value refers."""
        stored = self.origin.codec.blobs.stored
        for number in payloads_in(log.codec.take_data(value)):
            if number in stored:
                log.codec.blobs.new[number] = stored[number]

    def _diverged(self, frame: Frame, reason: str) -> DivergedError:
        error = DivergedError(frame.node_path, reason)
        error.run_id = self._run_id
        return error


def _beginnings(path: str) -> Iterator[str]:
    """Yield each part of a path that begins with it and ends with a slash."""
    end = path.find("/")
    while end >= 0:
        yield path[: end + 1]
        end = path.find("/", end + 1)


def _place(frame: Frame) -> str:
    """Return the place of a frame in its run, which is the same when the run is executed again."""
    parent = frame.parent
    if parent is None:
        return ""
    if frame.activation is None:
        return _place(parent) + frame.path[len(parent.path) :]
    return f"{_place(parent)}{parent.visit.node}/{frame.key}/"
