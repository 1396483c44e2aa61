"""What a run that is executed again asks for: the outcomes that were recorded, each looked up where it is about to be caused.

The visits of nodes of both runs are matched, frame by frame: those inside a node belong to the visit that matches its visit. An outcome is
found by its kind and key in the visit. Nothing else is compared but the names and arguments of tool calls: wording may differ.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from msgspec import structs

from graphagent.errors import DivergedError
from graphagent.llm import Approve, Deny, ModelResponse, ToolCalls, Usage
from graphagent.log._bytes import payloads_in
from graphagent.log._entries import EffectStarted, Spent, ToolsListed
from graphagent.log._visits import EFFECT_KINDS, UNDONE_BY_RETRY, UNSET, Charge, Effect, name_of_effect, spent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from graphagent.llm import ToolCall, ToolResult
    from graphagent.log._entries import EffectRecorded, Expired, Started
    from graphagent.log._log import Applied, Log
    from graphagent.log._visits import Frame, Visit
    from graphagent.memory.steps._types import Step
    from graphagent.run._config import RunConfig

_ASKED = frozenset(name for name, kind in EFFECT_KINDS.items() if kind.taken_by_rerun)
_JOIN, _NOT_JOINED = ("join", ""), Effect(0)
_Place = tuple[str, str]


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
    charges: tuple[Charge, ...] = ()
    turns: int = 0
    """How many model turns it was."""


class _Outcome(NamedTuple):
    number: int
    entry: EffectRecorded | Expired


@dataclass(slots=True, eq=False)
class _RecordedVisit:
    """A visit of the recorded run, with what of it was not taken yet."""

    visit: Visit
    outcomes: dict[_Place, _Outcome] = field(default_factory=dict[_Place, _Outcome])
    """Those that were not taken yet, by kind and key."""
    costs: dict[int, _Cost] = field(default_factory=dict[int, _Cost])
    """What was spent, by entries, as far as it was not counted yet."""
    within: dict[str, list[tuple[int, _Place]]] = field(default_factory=dict[str, list[tuple[int, _Place]]])
    """The entries of the effects inside a tool call, with their kinds and keys, by the beginning of their keys: that of the call, and a slash."""
    tools: dict[str, str] = field(default_factory=dict[str, str])
    """The names of tools by the keys of their calls that were begun, or whose results were kept."""
    inside: Mapping[str, list[Frame]] = field(default_factory=dict[str, "list[Frame]"])
    asked: dict[str, Mapping[str, Any]] | None = None
    """The arguments of the tool calls in its input, by the ids of the calls, once they are needed."""
    verdicts: dict[str, Any] = field(default_factory=dict[str, Any])
    """The answers of people by their keys: those about tool calls may have changed the arguments."""
    winner: int | None = None
    """The branch that won, if it was a race."""
    left: bool = False
    retried: bool = False
    """Whether it was tried again, itself or with the node around it."""
    passed: bool = False
    """Whether the visit that matches it has ended."""

    @property
    def node(self) -> str:
        """The node."""
        return self.visit.node or ""

    @property
    def counts(self) -> bool:
        """Whether another node may not do something in its place: it did something, or came to its end."""
        ended = self.visit.outcome not in ("", "retried")
        return ended or bool(self.outcomes or self.costs or self.tools) or self.winner is not None

    def note(self, number: int, entry: Any) -> None:
        """Note what it did with an entry."""
        kind, key = getattr(entry, "kind", ""), getattr(entry, "key", "")
        effect = self.visit.effects.get((kind, key))
        if effect is not None and effect.number == number and kind in _ASKED:
            self.outcomes[kind, key] = _Outcome(number, entry)
            if kind == "answer":
                self.verdicts[key] = effect.value
        elif getattr(entry, "tool", ""):
            self.tools[key] = entry.tool
        if getattr(entry, "charges", ()) or getattr(entry, "turns", 0):
            self.costs[number] = _Cost(entry.charges, entry.turns)
        for end in [place for place, character in enumerate(key, 1) if character == "/"]:
            self.within.setdefault(key[:end], []).append((number, (kind, key)))
        if self.visit.inside:
            self.inside = self.visit.inside
            self.winner = self.visit.effects.get(_JOIN, _NOT_JOINED).value

    def take(self, numbers: Iterable[int]) -> list[_Cost]:
        """Return what was spent with entries, and is counted from then on."""
        return [self.costs.pop(each) for each in [*numbers] if each in self.costs]


@dataclass(slots=True, eq=False)
class _Track:
    """The visits of the recorded run that a frame comes to again."""

    waiting: deque[_RecordedVisit]
    """Those that were not matched yet, in order."""
    since: int = 0
    """When the visit of the frame began that was matched last."""
    current: _RecordedVisit | None = None
    """The visit that matches it."""


class Recording:
    """What the nodes of a run did, up to one of its entries, to be taken in the same order by another run."""

    def __init__(self, config: RunConfig, run_id: str, *, live: bool) -> None:
        self.config = config
        self.origin: Log
        """The log of that run, which is set when it has been read."""
        self._run_id = run_id
        self._live = live
        """Whether the other run does live what comes after it."""
        self._visits: dict[Frame, list[_RecordedVisit]] = {}
        """The visits of the run, by their frames."""
        self._tracks: dict[Frame, _Track] = {}
        """The same for the frames of the other run."""
        self.earlier: list[Step] = []
        """The steps before the run."""
        self.start: Started

    # ---- what was recorded

    def watch(self, applied: Applied) -> None:
        """Note what a visit did with an entry, and whether that left it."""
        number, frame, visit = applied.number, applied.frame, applied.visit
        if number == 1:
            transcript, self.start = applied.state.root.transcript, cast("Started", applied.entry)
            self.earlier = transcript.steps[: transcript.begun - self.start.begun]
        if frame is None or visit is None or visit.node is None:
            return
        visits = self._visits.setdefault(frame, [])
        if not visits or visits[-1].visit is not visit:
            visits.append(_RecordedVisit(visit))
        found = visits[-1]
        found.note(number, applied.entry)
        if frame.visit is not visit:
            retried, began_again = visit.outcome == "retried", frame.visit.entered == number
            for each in visits if retried and began_again else (found,):  # all of the strategy, or the node
                self._leave(each, retried=retried)
        elif frame.activation is not None and frame.parent is not None and frame.activation.status != "running":
            found.left = True

    def _leave(self, found: _RecordedVisit, *, retried: bool) -> None:
        """Note that a visit and those inside it are over."""
        found.left, found.retried = True, found.retried or retried
        for each in self._inside(found):
            self._leave(each, retried=retried)

    def _inside(self, found: _RecordedVisit) -> Iterator[_RecordedVisit]:
        """Yield the visits right inside one."""
        for frames in found.inside.values():
            yield from self._in(frames)

    def _in(self, frames: Iterable[Frame]) -> Iterator[_RecordedVisit]:
        """Yield the visits of frames."""
        for frame in frames:
            yield from self._visits.get(frame, ())

    def _costs(self, visits: Iterable[_RecordedVisit]) -> list[_Cost]:
        """Return what visits and those inside them cost, as far as it was not counted yet."""
        return [cost for each in visits for cost in (*each.take(each.costs), *self._costs(self._inside(each)))]

    def _is_idle(self, found: _RecordedVisit) -> bool:
        """Return whether nothing of a visit, and inside it, is needed when it is executed again. A race is: only one branch is executed."""
        return not found.outcomes and found.winner is None and all(map(self._is_idle, self._inside(found)))

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
        found = self._take(frame, kind, key)
        if found is None:
            return None
        visit, outcome = found
        entry = cast("EffectRecorded", outcome.entry)
        cost = visit.costs.pop(outcome.number, _Cost())
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
        found = self._take(frame, "tool", key, call=call)
        if found is None:
            return None
        visit, entry = found[0], cast("EffectRecorded", found[1].entry)
        result, scope = cast("ToolResult", entry.held.value), f"{key}/"
        if key in visit.tools:
            log.append(EffectStarted(at=frame.path, kind="tool", key=key, tool=visit.tools[key]))
        within = visit.within.pop(scope, ())
        self._pay(log, frame, visit.take(number for number, _ in within))
        for _, name in within:
            visit.outcomes.pop(name, None)
        agents = [each for _, (_, name) in within for each in visit.inside.get(f"agent {name}", ())]
        costs = self._costs(self._in(agents))
        usage, turns = spent([each for cost in costs for each in cost.charges]), sum(cost.turns for cost in costs)
        if turns or usage != Usage():
            charge = Charge(frame.node_path, result.name, "", usage, result.run_id)
            log.append(Spent(at=frame.path, charges=(charge,), turns=turns))
        return entry

    def entry(self, log: Log, frame: Frame, kind: str, key: str) -> EffectRecorded | Expired | None:
        """Return the entry of another effect, and count what was spent for it."""
        found = self._take(frame, kind, key)
        if found is None:
            return None
        visit, outcome = found
        if kind in ("once", "cached"):  # what its work asked a model is not asked again
            self._pay(log, frame, visit.take(takewhile(lambda each: each <= outcome.number, visit.costs)))
        self._take_payloads(log, outcome.entry.value)
        return structs.replace(outcome.entry, at=frame.path)

    def knows(self, frame: Frame, kind: str, key: str) -> bool:
        """Return whether the node of a frame recorded an outcome, in this attempt or in a later one."""
        return any((kind, key) in each.outcomes for each in self._attempts(frame))

    def refuse(self, frame: Frame, what: str) -> None:
        """Check that something may be done that is never recorded."""
        if not self.is_after_all(frame):
            raise self._diverged(frame, f"{what}, which is not recorded")

    def is_after_all(self, frame: Frame) -> bool:
        """Return whether the current node of a frame comes after everything that was recorded, and does live what it does."""
        self._find(frame)
        each: Frame | None = frame if self._live else None
        while each is not None:
            track = self._track(each)
            current = track.current if track.since == each.visit.since else None
            if any(visit.counts for visit in track.waiting) or (current is not None and current.left):
                return False
            each = each.parent
        return self._live

    def left(self, frame: Frame, node: str) -> None:
        """Note that a node of a frame ended."""
        track = self._track(frame)
        found, waiting = track.current, track.waiting
        if found is not None and not found.passed:
            while found.retried and waiting and waiting[0].node == node:
                found = track.current = (
                    waiting.popleft()
                )  # an attempt that failed when it was recorded need not fail now
            found.passed = True
            return
        # It did nothing. What did nothing when it was recorded is passed with it.
        while waiting and self._is_idle(waiting[0]):
            if waiting.popleft().node == node:
                break

    def winner(self, log: Log, frame: Frame) -> int | None:
        """Return the branch that won the race that is about to begin. What the others spent is counted."""
        found = self._find(frame)
        if found is None or found.winner is None:
            return None
        lost = [each for each in found.inside["branches"] if each.place != found.winner]
        self._pay(log, frame, [*found.take(found.costs), *self._costs(self._in(lost))])
        return found.winner

    def ended(self, log: Log, frame: Frame) -> None:
        """Count what was spent and belongs to no outcome, such as failed requests."""
        for found in [each for visits in self._visits.values() for each in visits]:
            if found.left or not self._live:
                self._pay(log, frame, found.take(found.costs))

    def _take(
        self, frame: Frame, kind: str, key: str, *, call: ToolCall | None = None
    ) -> tuple[_RecordedVisit, _Outcome] | None:
        """Return a recorded outcome, once, with its visit; None if it may be caused live."""
        name = (kind, key)
        found = self._find(frame, name)
        shown = name_of_effect(kind, key if call is None else call.id)
        if found is not None and name in found.outcomes:
            if call is not None and not self._is_alike(call, found, key):
                raise self._diverged(frame, f"it does {shown!r} with something else")
            return found, found.outcomes.pop(name)
        if kind == "answer" or self.is_after_all(frame) or (call is not None and self._waits_for(call)):
            return None
        if found is not None and found.outcomes:
            recorded = name_of_effect(*next(iter(found.outcomes)))
            raise self._diverged(frame, f"it does {shown!r}, and {recorded!r} was recorded")
        following = next(iter(self._track(frame).waiting), None)
        if found is None and following is not None:
            raise self._diverged(frame, f"it does {shown!r}, where node {following.node!r} came next")
        raise self._diverged(frame, f"it does {shown!r}, and nothing more was recorded of it")

    def _track(self, frame: Frame) -> _Track:
        """Return the recorded visits for a frame: those inside the visit that matches the one around it, also of later attempts of that."""
        if frame not in self._tracks:
            frames = [self.origin.state.root]
            if frame.parent is not None:
                around = [each.inside.get(frame.key, ()) for each in self._attempts(frame.parent)]
                frames = [each for inside in around for each in inside if each.place == frame.place]
            self._tracks[frame] = _Track(deque(self._in(frames)))
        return self._tracks[frame]

    def _attempts(self, frame: Frame) -> list[_RecordedVisit]:
        """Return the recorded visit that matches the current one of a frame, with the attempts of the node that followed it."""
        found = self._find(frame)
        attempts = [] if found is None else [found]
        for each in self._track(frame).waiting if attempts else ():
            if not attempts[-1].retried:
                break
            if each.node == frame.visit.node:
                attempts.append(each)
        return attempts

    def _find(self, frame: Frame, name: _Place | None = None) -> _RecordedVisit | None:
        """Return the recorded visit that matches the current one of a frame."""
        track = self._track(frame)
        found = track.current
        if found is None or track.since != frame.visit.since:
            found = self._match(track, frame)
        while found is not None and found.retried and name is not None and name not in found.outcomes:
            # An attempt that failed when it was recorded need not fail now, and does what a later attempt did.
            kept = {key: each for key, each in found.outcomes.items() if key[0] not in UNDONE_BY_RETRY}
            later = self._match(track, frame)
            if later is None:
                break
            later.outcomes = {**kept, **later.outcomes}
            for around, names in found.within.items():
                later.within.setdefault(around, []).extend(names)
            found = later
        return found

    def _match(self, track: _Track, frame: Frame) -> _RecordedVisit | None:
        """Match the next recorded visit in a frame, if it is one of the same node."""
        before = track.current
        for number, visit in enumerate(track.waiting):
            if visit.node == frame.visit.node:
                for _ in range(number + 1):
                    track.waiting.popleft()
                track.current, track.since = visit, frame.visit.since
                return visit
            # Nodes without effects may come and go; others may be left out only if they were tried again.
            if not self._is_idle(visit) and not (before is not None and before.retried):
                break
        return None

    def _is_alike(self, call: ToolCall, found: _RecordedVisit, key: str) -> bool:
        """Return whether a tool call has the name and the arguments of the recorded one: those of the model, or of a person."""
        outcome, origin = cast("EffectRecorded", found.outcomes["tool", key].entry).held.value, self.origin
        if found.asked is None:
            found.asked = {}
            if found.visit.input is not UNSET:
                with suppress(ValueError):
                    given = origin.codec.take(found.visit.input, self.config.kind_of(*found.visit.source))
                    if isinstance(given, ToolCalls):
                        found.asked = {each.id: each.arguments for each in given}
        arguments = found.asked.get(call.id, call.arguments)
        verdict = origin.take(found.verdicts[key], Approve | Deny) if key in found.verdicts else None
        if isinstance(verdict, Approve) and verdict.arguments is not None:
            arguments = verdict.arguments
        return outcome.name == call.name and dict(arguments) == dict(call.arguments)

    def _waits_for(self, call: ToolCall) -> bool:
        """Return whether the recorded run waited for a person, or for a result from outside, before this call."""
        return any(each.id.rpartition("/")[2] == call.id for each in self.origin.state.questions.values())

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
