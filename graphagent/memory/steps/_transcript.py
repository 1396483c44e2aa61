"""The transcript of a run: its steps, and the messages that a model is sent, which are derived from them alone."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from graphagent._article import a
from graphagent.llm import Image, Message, ToolCall, ToolResult, ToolResults
from graphagent.memory.steps._list import Steps
from graphagent.memory.steps._projection import own_steps, seen, tell
from graphagent.memory.steps._trust import is_less, level_of, trust_of
from graphagent.memory.steps._types import (
    ActionStep,
    MessageStep,
    PlanningStep,
    Step,
    SummaryStep,
    SystemPromptStep,
    TaskStep,
)
from graphagent.memory.steps._validation import check_parts

if TYPE_CHECKING:
    from graphagent.memory.steps._prompt_delta import SentPrompt

_NOTHING = object()


@dataclass(frozen=True, slots=True)
class Added:
    """A step came at the end."""

    step: Step


@dataclass(frozen=True, slots=True)
class Edited:
    """Fields of a step were assigned; `place` is None for the open turn."""

    place: int | None
    step: Step
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Replaced:
    """In the place of some steps stand others."""

    place: int
    count: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Opened:
    """A model turn began to wait for its tool calls; None: none waits any more."""

    step: ActionStep | None


@dataclass(frozen=True, slots=True)
class Shut:
    """The open turn came at the end."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """Something flowed in that is no step, or no longer one, and can be trusted no further than this."""

    trust: str


Change = Added | Edited | Replaced | Opened | Shut | Lowered


@dataclass(slots=True)
class Mark:
    """How a transcript was when a node began to add to it, and what the node added since."""

    open: ActionStep | None
    asked: Any
    awaited: Any
    prompt: SentPrompt | None
    added: list[Step] = field(default_factory=list[Step])
    """What the node added. It stays there when the node is broken off and executed again, which adds it again."""
    refused: dict[int, Any] = field(default_factory=dict[int, Any])
    """What callbacks refused of it, under the places there, with the errors that say why."""
    place: int = 0
    """How much of it the node has come to, since it was begun the last time."""
    requests: int = 0
    """How much of what the node did since then is named by its number."""
    called: set[str] = field(default_factory=set[str])
    """The ids of the tool calls that the node has begun, whether they ended or not."""


class RunMemory:
    """The transcript of a run: the system prompt, and the steps in the order in which they happened."""

    # What most transcripts never have stands here: one is made for every run, and for every branch.
    arrived: Iterable[ToolResult] = ()
    """Results of calls whose turn is still open, since others have none yet; for people, the model sees all at once."""
    begun = 0
    """How many steps stood here before the run began."""
    inherited = 0
    """How many steps stood here before the run, or the branch, began."""
    stored: Any = None
    """Where the store has it, if its run has ended; set and read by the engine alone."""
    retold = False
    """Whether steps of which nobody took note yet were changed again, so that what they said before is nowhere."""
    written: SentPrompt | None = None
    """The prompt that was written down last."""
    written_heard: tuple[bool, bool] = (True, False)
    """What `heard` gave when it was written down."""
    _source: Callable[[RunMemory], None] | None = None
    _inherits = False
    _steps: Steps | None = None
    _prompt: SentPrompt | None = None
    _open: ActionStep | None = None
    _awaited: Any = _NOTHING
    _asked: Any = _NOTHING
    _known_open: ActionStep | None = None
    _known_floor = "trusted"
    _settled = 0
    _version = 0

    def __init__(self, system_prompt: str = "", steps: Iterable[Step] | None = ()) -> None:
        self._rules: SystemPromptStep | str = system_prompt
        if steps is not None:  # else they come later
            there = self._begin(steps)
            if there:
                self.begun = self.inherited = len(there)
                self._prompt = next(filter(None, map(_prompt_of, reversed(there))), None)

    def _begin(self, steps: Iterable[Step]) -> Steps:
        self._known: list[Step] = []
        self._pending: list[Change] = []
        self._told: list[Message] = []
        self._steps = Steps(steps)
        return self._steps

    @property
    def system_prompt(self) -> SystemPromptStep:
        """The rules that the model is given."""
        if isinstance(self._rules, str):
            self._rules = SystemPromptStep(self._rules)
        return self._rules

    @system_prompt.setter
    def system_prompt(self, step: SystemPromptStep) -> None:
        if not isinstance(step, SystemPromptStep):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"the system prompt of a transcript is a SystemPromptStep(text), not {a(type(step).__name__)}"
            )
        check_parts(step)
        self._rules = step

    @property
    def steps(self) -> Steps:
        """What happened. Change it like any list: append, assign, delete."""
        if self._steps is None:
            self._read()
        return self._steps  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

    @steps.setter
    def steps(self, steps: Iterable[Step]) -> None:
        self.steps[:] = steps

    @property
    def trust(self) -> str:
        """How far what is made of it can be trusted, one of TRUST_LEVELS: the least of everything that flowed in.

        The task is trusted, in a sub-agent only as far as the run that called it. What a tool returned is untrusted. What a
        model said is inferred at most. Facts and notes keep their own trust. What is removed still counts.
        """
        steps = self.steps
        return trust_of(steps if self._open is None else (*steps, self._open), steps.floor)

    @property
    def floor(self) -> str:
        """The trust of what flowed in without being a step, where that is less than the steps say; else `trusted`."""
        steps = self.steps
        floor = steps.floor
        last = () if self._open is None else (self._open,)
        told = any(not is_less(floor, level_of(step)) for step in chain(last, reversed(steps)))
        return "trusted" if told else floor

    def lower(self, trust: str) -> None:
        """Take note that something flowed in that is no step, such as a fact that a node loaded, and how far it can be trusted."""
        if trust != "trusted":
            self.steps.lower(trust)

    @property
    def open(self) -> ActionStep | None:
        """The model turn whose tool calls are being executed; it joins the steps when all have their results."""
        if self._source is not None:
            self._read()
        return self._open

    @open.setter
    def open(self, turn: ActionStep | None) -> None:
        self._open = None if turn is None else cast("ActionStep", self.steps.watch(turn))

    @property
    def waiting(self) -> ActionStep | None:
        """The turn that is open, as people see it: with the results that are there."""
        if self.open is None or not self.arrived:
            return self.open
        shown = copy.copy(self.open)
        shown.take(self.arrived)
        return shown

    @property
    def last_prompt(self) -> SentPrompt | None:
        """What a model was sent last."""
        if self._source is not None:
            self._read()
        return self._prompt

    def begin(self, task: Any, images: Iterable[Image] = ()) -> TaskStep:
        """Begin a run with what it was given."""
        step = TaskStep(task, images)
        self.steps.append(step)
        self._awaited = task
        return step

    def follow(self, earlier: RunMemory, *, known: bool) -> None:
        """Put copies of the steps of an earlier run before its own.

        Args:
            earlier: The transcript of the earlier run.
            known: Whether the journal refers to that run, so that its steps are not written again.
        """
        steps = self.steps
        given = [*filter(None, (*earlier.steps, earlier.waiting))]
        steps.precede(given, self.begun)  # those that are there were put there by an attempt to begin that failed
        steps.lower(earlier.floor)
        self.detach()
        self.begun = self.inherited = len(given)
        self._prompt = earlier.last_prompt
        if known:
            self._known, self.written, self._known_floor = steps[: len(given)], earlier.written, earlier.floor
            for step, copied in zip(given, self._known, strict=True):
                if step.recorded is not None:
                    copied.record(*step.recorded)
            if earlier._version == earlier.steps.version:
                # The same messages, so that what was sent last is compared by identity.
                self._told, self._settled, self._version = [*earlier._told], earlier._settled, steps.version

    def detach(self) -> None:
        """Take all steps for new ones, which are written in full."""
        self._known, self._pending, self.written, self._known_floor = [], [], None, "trusted"
        for step in self.steps[self.begun :]:
            step.record(None, None)

    def hear(self, said: str | Message | ToolResults) -> list[Step]:
        """Take up what reaches the model, and give the steps that it makes, which are to be added.

        The task is there already while it arrives as the same object, once; so is what was taken up before, and got no
        answer. Results of tool calls are what the model sees of those calls, whoever made them.
        """
        if said is self._asked:
            return self.shut()
        if isinstance(said, ToolResults):
            return self.observe(self.open or self.last_action, said)
        found = self.shut()
        self._asked = said
        if said is self._awaited:
            self._awaited = _NOTHING
        else:
            found.append(MessageStep(said if isinstance(said, Message) else Message.user(said)))
        return found

    @property
    def pending(self) -> int | None:
        """The place of the message that is to be answered next; None where that is the task, or nothing."""
        said = self._asked
        if not isinstance(said, str | Message):
            return None
        message = said if isinstance(said, Message) else Message.user(said)
        steps = self.steps
        places = range(len(steps) - 1, -1, -1)
        return next((n for n in places if isinstance(step := steps[n], MessageStep) and step.message == message), None)

    def observe(self, turn: ActionStep | None, results: ToolResults) -> list[Step]:
        """Take up the results of a turn's tool calls, and give the turn that is complete now, which is to be added."""
        if turn is not None:
            turn.take(results)
        self._asked = results
        return self.shut()

    def answer(self, turn: ActionStep) -> list[Step]:
        """Take up a model turn, and give what is to be added. One with tool calls stays open until they have results."""
        found = self.shut()
        self._asked = _NOTHING
        self.sent(turn.prompt)
        if turn.tool_calls:
            self.open = turn
            return found
        return [*found, turn]

    def refused(self, said: str | Message | ToolResults) -> None:
        """Take note that the answer to what reached the model does not count: it is still to be answered."""
        self._asked = said

    def sent(self, prompt: SentPrompt | None) -> None:
        """Take note of what a model was sent."""
        self._prompt = prompt or self.last_prompt

    def shut(self) -> list[Step]:
        """Return the open model turn, which is to be added. The model is shown calls without a result as not executed."""
        turn = self.open
        self._open = None
        return [] if turn is None else [turn]

    def turn_of(self, calls: Iterable[ToolCall]) -> ActionStep | None:
        """Return the last model turn, if it made these calls."""
        turn = self.open or self.last_action
        made = {call.id for call in turn.tool_calls} if turn is not None else set[str]()
        return turn if made.issuperset(call.id for call in calls) else None

    def to_messages(self) -> list[Message]:
        """Derive what a model is sent. Facts that were loaded before the first model turn stand before the task.

        A turn whose tool calls are being executed stands at the end.
        """
        steps = self.steps
        if self._version != steps.version:
            self._settled, self._told, self._version = 0, [], steps.version
        tail: list[Step] = steps[self._settled :]
        last = next((step for step in reversed(tail) if isinstance(step, ActionStep | SummaryStep)), None)
        if any(isinstance(step, SummaryStep) for step in tail):
            # What is derived already may be what the summary stands in for.
            self._settled, self._told = 0, []
            tail = [steps[place] for place in seen(steps)]
        if isinstance(last, ActionStep):
            # What stands before the last model turn stays as it is, whatever comes, so it is derived once.
            behind = next(place for place in range(len(tail), 0, -1) if tail[place - 1] is last)
            tell(tail[:behind], self._told)
            tail = tail[behind:]
            self._settled = len(steps) - len(tail)
        rest = list(self._told) if tail else self._told
        tell(tail, rest)
        return [*self.system_prompt.to_messages(), *rest, *(self._open.to_messages() if self._open is not None else ())]

    def to_text(self, *, detailed: bool = False, inside: Mapping[str, str] | None = None) -> str:
        """Return the transcript as text for people, and for other agents.

        Args:
            detailed: Whether it has what the model was sent.
            inside: The texts of runs of sub-agents, under their ids, which stand below the calls that they were for.
        """
        from graphagent.memory.steps._render import to_text

        return to_text(self.system_prompt, self.steps, self.waiting, detailed=detailed, inside=inside or {})

    def full_steps(self) -> list[dict[str, Any]]:
        """Return the steps as plain JSON data, with everything that the model was sent."""
        from graphagent.memory.steps._dump import plain_steps

        return plain_steps(self.steps, self.open)

    def succinct_steps(self) -> list[dict[str, Any]]:
        """Return the steps as plain JSON data, without what the model was sent."""
        from graphagent.memory.steps._dump import plain_steps

        return plain_steps(self.steps, self.open, without="model_input_messages")

    def to_json(self) -> str:
        """Save the transcript without loss.

        Raises:
            SerializationError: something in it is of a type that cannot be saved; it names the step.
        """
        from graphagent.memory.steps._save import to_json

        return to_json(self)

    @staticmethod
    def from_json(text: str | bytes) -> RunMemory:
        """Load what `to_json` saved.

        Raises:
            ValueError: it is not that.
        """
        from graphagent.memory.steps._save import from_json

        return from_json(text)

    @staticmethod
    def deferred(system_prompt: str, begun: int, inherited: int, source: Callable[[RunMemory], None]) -> RunMemory:
        """Return a transcript whose steps `source` sets when they are first accessed."""
        memory = RunMemory(system_prompt, None)
        memory.begun, memory.inherited, memory._source = begun, inherited, source
        return memory

    def fork(self) -> RunMemory:
        """Return a transcript that begins with the same steps and then changes by itself."""
        turn, steps = self.open, self.steps
        inherited = len(steps) + (turn is not None)
        # Not before someone looks: most branches never do.
        source = partial(self._bequeath, turn, len(steps), steps[-1] if steps else None)
        branch = RunMemory.deferred("", self.begun, inherited, source)
        branch._inherits = True  # noqa: SLF001  of this class
        return branch

    def _bequeath(self, turn: ActionStep | None, count: int, last: Step | None, branch: RunMemory) -> None:
        """Copy the steps to a branch, up to the one that was the last when it began, and the turn that was open then."""
        # Someone may have inserted or removed steps since then, while the run was stopped.
        end = next((place for place, step in enumerate(self.steps, 1) if step is last), count)
        steps = self.steps[:end]
        branch.steps.extend(steps if turn is None else [*steps, turn])
        branch.steps.lower(self.steps.floor)
        branch.inherited = len(branch.steps)
        branch.system_prompt = SystemPromptStep(self.system_prompt.system_prompt)
        branch.restore(asked=self._asked, awaited=self._awaited, prompt=self._prompt)
        branch.written_heard = self.written_heard

    def _read(self) -> None:
        source, self._source = self._source, None
        self._begin(())
        if source is not None:
            source(self)

    def join(self, branch: RunMemory) -> None:
        """Take over what happened in a transcript that forked from this one."""
        if not branch.quiet:
            self.steps.extend(own_steps(branch.steps, branch.inherited))
            branch.inherited = len(branch.steps)

    @property
    def last_action(self) -> ActionStep | None:
        """The last model turn, or a step in the place of one."""
        return next((step for step in reversed(self.steps) if isinstance(step, ActionStep)), None)

    @property
    def turns(self) -> int:
        """The number of the last model turn; 0 where there was none."""
        return next(
            (step.step_number for step in reversed(self.steps) if isinstance(step, ActionStep) and step.step_number), 0
        )

    @property
    def loaded(self) -> bool:
        """Whether someone has looked at the steps; else nothing can have happened to them."""
        return self._source is None

    @property
    def is_stored(self) -> bool:
        """Whether it is as the store has it, after the end of its run."""
        return self.stored is not None and self.open is None and not self.changes()

    @property
    def quiet(self) -> bool:
        """Whether it is as it was when it forked from another one, since nobody has looked at it."""
        return self._inherits and self._source is not None

    def kept(self, prompt: SentPrompt | None) -> None:
        """Take note that the changes were written down, and which prompt last."""
        self._pending, self.written, self.retold = [], prompt, False

    def mark(self) -> Mark:
        """Return a savepoint to which `rewind` goes back."""
        return Mark(self.open, self._asked, self._awaited, self._prompt)

    def rewind(self, mark: Mark) -> None:
        """Go back to where a node began, which is to be executed again. What it added stays, with what became of it since."""
        self._open, self._asked, self._awaited, self._prompt = mark.open, mark.asked, mark.awaited, mark.prompt
        mark.place = mark.requests = 0

    def changes(self) -> list[Change]:
        """Return the changes of the steps since they were last written."""
        self._pending += self._happened()
        return self._pending

    def _happened(self) -> list[Change]:
        steps = self._steps
        if steps is None:
            return []
        found: list[Change] = []
        known, was_open = self._known, self._known_open
        joined = False
        if steps.reordered:
            start, end = _common(known, steps)
            put = tuple(steps[start : len(steps) - end])
            found.append(Replaced(start, len(known) - start - end, put))
            fresh = set(map(id, put))
            self._known = list(steps)
        else:
            new = steps[len(known) :]
            joined = any(step is was_open for step in new)
            found += [Shut() if step is was_open else Added(step) for step in new]
            fresh = {id(step) for step in new if step is not was_open}
            known += new
        for step, names in steps.edits.values():
            if step is self._open:
                if step is was_open:
                    found.append(Edited(None, step, frozenset(names)))
            elif id(step) in fresh:
                self.retold = True
            else:
                place = next((n for n in range(len(steps) - 1, -1, -1) if steps[n] is step), None)
                if place is not None:
                    found.append(Edited(place, step, frozenset(names)))
        if self._open is not was_open and not (joined and self._open is None):
            found.append(Opened(self._open))
        self._known_open = self._open
        if steps.floor != self._known_floor:
            floor = self.floor
            if floor != "trusted":
                found.append(Lowered(floor))
                self._known_floor = floor
        steps.edits, steps.reordered = {}, False
        return found

    def heard(self, value: object) -> tuple[bool, bool]:
        """Tell whether the task has yet to arrive at a model, and whether a value was taken up and got no answer yet."""
        return self._awaited is not _NOTHING, self._asked is not _NOTHING and self._asked is value

    def restore(
        self,
        *,
        asked: Any = _NOTHING,
        awaited: Any = _NOTHING,
        turn: ActionStep | None = None,
        prompt: SentPrompt | None = None,
    ) -> None:
        """Set what stands beside the steps, and take everything for known."""
        self._asked, self._awaited, self._prompt = asked, awaited, prompt
        self.open = turn
        self._known, self._known_open, self._known_floor = list(self.steps), turn, self.steps.floor
        self.written = prompt
        self.steps.edits, self.steps.reordered = {}, False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RunMemory):
            return NotImplemented
        return (self.system_prompt, self.steps, self.open) == (other.system_prompt, other.steps, other.open)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.system_prompt.system_prompt, list(self.steps), self.open, self.floor)

    def __repr__(self) -> str:
        return f"<transcript of {len(self.steps)} steps>"


def _restored(system_prompt: str, steps: list[Step], turn: ActionStep | None, floor: str) -> RunMemory:
    memory = RunMemory(system_prompt, steps)
    memory.lower(floor)
    if turn is not None:
        memory.open = turn
        memory.sent(turn.prompt)
    return memory


def _prompt_of(step: Step) -> SentPrompt | None:
    return step.prompt if isinstance(step, ActionStep | PlanningStep) else None


def _common(old: list[Step], new: list[Step]) -> tuple[int, int]:
    """Return how many steps at the beginning, and at the end, are the same objects."""
    most = min(len(old), len(new))
    start = next((n for n in range(most) if old[n] is not new[n]), most)
    end = next((n for n in range(most - start) if old[-1 - n] is not new[-1 - n]), most - start)
    return start, end
