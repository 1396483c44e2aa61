"""The effects of a visit of a node: found where they are recorded, and recorded where they are not.

An effect is found by its kind and key among what this visit has done. A node that is executed again after its
process died passes its recorded effects first. Meanwhile it reads the transcript as it was after the last effect that it has
passed, so it decides again as it decided the first time.

A step that is added is recorded, then callbacks see it, and then it is among the steps.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, cast, final

from graphagent.errors import DivergedError, RunError, VetoError
from graphagent.llm import ToolResults
from graphagent.log._entries import (
    EffectRecorded,
    EffectStarted,
    LibraryObject,
    ResultsAdded,
    StepFinished,
    TranscriptEdited,
)
from graphagent.log._visits import EFFECT_KINDS
from graphagent.memory.steps._types import ActionStep, PlanningStep, StepFailure
from graphagent.memory.transcript._fields import check_step
from graphagent.memory.transcript._memory import RunMemory
from graphagent.memory.transcript._transcript import Item
from graphagent.run._callbacks import call_all

if TYPE_CHECKING:
    from graphagent.llm import ToolCall
    from graphagent.log._entries import Entry
    from graphagent.log._log import Log
    from graphagent.log._visits import Effect, Frame, Visit
    from graphagent.memory.steps._types import Step
    from graphagent.memory.transcript._transcript import Edit, Transcript
    from graphagent.protocols import Model, ModelOutput
    from graphagent.run._agent_run import AgentRun
    from graphagent.run._walk import Walk


class EndedError(RunError):
    """A visit of a node has ended, and a task that it left behind tries to record something."""


@final
class Effects:
    """The effects of a visit of a node, or of a part of it such as a tool call, and its position in the log, as of which it sees the transcript."""

    __slots__ = (
        "_known",
        "_memory",
        "_numbers",
        "asked",
        "call",
        "model",
        "position",
        "purpose",
        "scope",
        "visit",
        "walk",
    )

    def __init__(
        self, walk: Walk, visit: Visit | None = None, scope: str = "", position: int = 0, call: ToolCall | None = None,
        known: int | None = None,
    ) -> None:  # fmt: skip
        visit = walk.frame.visit if visit is None else visit
        self.walk = walk
        self.visit = visit
        """The visit. A task that it leaves behind must not record anything in a later one."""
        self.scope = scope
        """The beginning of the keys of its effects. Tools, middleware and tasks of a node have keys of their own."""
        self.position = position or visit.since
        """The last entry that it has recorded or passed."""
        self.call = call
        """The tool call that is being executed, or None outside of a tool."""
        self.model: Model | None = None
        """The model that is asked, in the middleware around a request to another model than that of the walk."""
        self.purpose: ModelOutput | None = None
        """The purpose of the answer, in the middleware around a request to a model."""
        self._known = visit.latest if known is None else known
        """The last entry that there was when this process began to execute the node: up to it, recorded effects are found again."""
        self._numbers: dict[str, int] | None = None
        self._memory: RunMemory | None = None
        self.asked: dict[str, str] = {}
        """The questions of this visit, by their keys."""

    # ---- where it is

    @property
    def run(self) -> AgentRun:
        """The run."""
        return self.walk.run

    @property
    def frame(self) -> Frame:
        """The frame whose node is executed."""
        return self.walk.frame

    @property
    def log(self) -> Log:
        """The log of the run."""
        return self.walk.run.log

    @property
    def node(self) -> str:
        """The path of the node within the run."""
        return self.walk.run.node_of(self.walk.frame)

    @property
    def transcript(self) -> Transcript:
        """The transcript as the node sees it."""
        frame = self.walk.frame
        transcript = frame.transcript
        return transcript if self.position >= frame.visit.latest else transcript.as_of(self.position)

    @property
    def memory(self) -> RunMemory:
        """The transcript as the node sees it, for users. Each change of it is recorded."""
        if self._memory is None:
            self._memory = RunMemory(editor=NodeEditor(self))
        return self._memory

    @property
    def is_in_middleware(self) -> bool:
        """Whether it is that of middleware around a request."""
        return self.scope.endswith(":around/")

    def within(self, scope: str, call: ToolCall | None = None) -> Effects:
        """Return effects with keys of their own: those of a tool, or of middleware."""
        return Effects(self.walk, self.visit, f"{self.scope}{scope}/", self.position, call or self.call, self._known)

    def of_callbacks(self, name: str) -> Effects:
        """Return the effects of the callbacks that see a step."""
        return Effects(self.walk, self.visit, f"{self.scope}{name}@", self.position, self.call, self._known)

    @property
    def is_live(self) -> bool:
        """Whether it has passed all that was recorded before this process executed the node."""
        return self.position >= self._known

    def context(self) -> Any:
        """Return the `Context` that users' functions get."""
        return self.walk.run.config.context(self)

    # ---- keys

    def count(self, name: str) -> int:
        """Return 1, then 2, and so on."""
        if self._numbers is None:
            self._numbers = {}
        self._numbers[name] = number = self._numbers.get(name, 0) + 1
        return number

    def next(self, kind: str) -> str:
        """Return the key of the next effect of a kind that has numbers."""
        return f"{self.scope}{self.count(kind)}"

    # ---- finding

    def find(self, kind: str, key: str) -> Effect | None:
        """Return the recorded outcome of an effect, and note that the node has come to it."""
        visit = self.visit
        if visit is not self.walk.frame.visit:
            raise self._ended()
        found = visit.effects.get((kind, key))
        if found is None:
            assert kind in EFFECT_KINDS, (
                f"{kind!r} is not in EFFECT_KINDS, so neither retries nor reruns know what to do"
            )
        elif found.number > self.position:
            self.position = found.number
        return found

    def find_or_copy(self, kind: str, key: str) -> Effect | None:
        """Return the recorded outcome of an effect: of this run, or of the one that it does again; then it is recorded here too."""
        found, run = self.find(kind, key), self.walk.run
        recorded = run.session.recorded
        if found is not None or recorded is None:
            return found
        entry = recorded.entry(run.log, self.frame, kind, key)
        if entry is None:
            return None
        self.record(entry)
        return self.visit.effects[kind, key]

    def times_started(self, kind: str, key: str) -> int:
        """Return how often something was begun that has no outcome."""
        return self.visit.started.get((kind, key), 0)

    # ---- recording

    def record(self, entry: Entry) -> None:
        """Append an entry of the node.

        Raises:
            SerializationError: a value in it cannot be stored; nothing has changed.
        """
        log = self.walk.run.log
        if self.visit is not self.walk.frame.visit:
            raise self._ended()
        log.append(entry)
        self.position = log.state.number

    async def record_object(self, kind: str, key: str, value: Any, *, ended: bool | None = None) -> None:
        """Record the outcome of an effect that is an object of the library, and commit it. `ended` is that of the entry."""
        held = None if value is None else LibraryObject(value)
        self.record(EffectRecorded(at=self.frame.path, kind=kind, key=key, held=held, ended=ended))
        await self.log.commit()

    async def start(self, kind: str, key: str, *, durable: bool, tool: str = "", ruled: tuple[str, ...] = ()) -> None:
        """Record that something is about to be done, which must not be done twice."""
        self.record(EffectStarted(at=self.frame.path, kind=kind, key=key, tool=tool, ruled=ruled))
        if durable:
            await self.log.commit()

    def stop_if_due(self) -> None:
        """Stop here, before something live is done, if the run is to stop, or another process may have it.

        Raises:
            Suspend: it is to pause.
            RunError: a callback refused a step, or raised, or the claim is over.
        """
        run = self.walk.run
        if run.log.lease is not None:
            run.log.check_claim()
        if run.session.attention:
            run.session.stop_if_due()

    async def before_live(self) -> None:
        """Stop here, before something live is done, if the run is to stop or its time is up.

        Raises:
            Suspend: it is to pause.
            RunError: a callback refused a step, or raised.
        """
        self.stop_if_due()
        if self.walk.deadline is not None:
            await self.walk.stop_if_late(self.walk.deadline)

    def _ended(self) -> RunError:
        text = f"this visit of node {self.node!r} has ended, and can record nothing more"
        return self.run.of_run(EndedError(text))


@final
class NodeEditor:
    """Records the changes that a node makes in its transcript."""

    __slots__ = ("_effects",)

    def __init__(self, effects: Effects) -> None:
        self._effects = effects

    @property
    def transcript(self) -> Transcript:
        """The transcript as the node sees it."""
        return self._effects.transcript

    def edit(self, edit: Edit) -> None:
        """Make a change, and record it."""
        effects = self._effects
        # Trust does not rise when a node is executed again, so its edits are not counted together with this.
        key = effects.next("edit") if edit.trust == "trusted" else f"{effects.scope}trust:{edit.trust}"
        if effects.find("edit", key) is None:
            steps = len(effects.frame.transcript)
            if edit.end > steps:  # it was seen as it had been when the node read it for the first time
                reason = f"it edits step {edit.end - 1} of a transcript that has {steps} by now"
                raise effects.run.of_run(DivergedError(effects.node, reason))
            effects.record(TranscriptEdited(at=effects.frame.path, key=key, **edit._asdict()))


@final
class RunEditor:
    """Records the changes that are made in the transcript of a run, or of a frame in it, from outside of its nodes."""

    __slots__ = ("_frame", "run")

    def __init__(self, run: AgentRun, frame: Frame | None = None) -> None:
        self.run = run
        self._frame = frame

    @property
    def transcript(self) -> Transcript:
        """The transcript."""
        return (self._frame or self.run.frame).transcript

    def edit(self, edit: Edit) -> None:
        """Make a change, and record it."""
        run = self.run
        if run.over:
            # The run has ended: an edit changes this object alone.
            run.memory.detach().edit(edit)
        elif run.editing is not None:
            NodeEditor(run.editing).edit(edit)
        else:
            run.log.append(TranscriptEdited(at=(self._frame or run.frame).path, **edit._asdict()))


async def add(effects: Effects, step: Step) -> Step:
    """Add a step, and return it as recorded."""
    key = effects.next("add")
    fresh = effects.find("add", key) is None
    if fresh:
        check_step(step)
        await close_open(effects)
        is_open = effects.run.plan.calls_back(type(step))
        effects.record(EffectRecorded(at=effects.frame.path, kind="add", key=key, step=copy.copy(step), open=is_open))
    return cast("Step", await finish_step(effects, "add", key, fresh=fresh))


async def add_results(effects: Effects, results: ToolResults) -> ActionStep | None:
    """Record the results of the tool calls of the last turn, and return the completed turn; None without a turn."""
    key, transcript = effects.next("results"), effects.transcript
    found = transcript.last_turn
    if found is None:
        return None
    item, turn = found
    fresh = effects.find("results", key) is None
    if fresh:
        given = tuple(result for result in results if result.call_id in turn.call_ids)
        is_open = transcript.open is not None and transcript.open.id == item.id
        if not is_open and (given == turn.results or given in transcript.results_of(item.id)):
            # They were recorded, and may have been edited since.
            return cast("ActionStep", effects.memory.handle(item, transcript))
        own = {result.call_id: result for result in turn.results}
        same = len(own) == len(turn.tool_calls) and own == {result.call_id: result for result in given}
        effects.record(
            ResultsAdded(
                at=effects.frame.path, key=key, turn=item.id, results=None if same else LibraryObject(ToolResults(given)),
                open=is_open and effects.run.plan.calls_back(type(turn)),
            )
        )  # fmt: skip
    return cast("ActionStep", await finish_step(effects, "results", key, fresh=fresh))


async def close_open(effects: Effects) -> None:
    """Let the callbacks see the turn whose tool calls have no results, and put it among the steps."""
    step = effects.transcript.open_step
    if step is None:
        return
    name = f"close:{effects.next('close')}"
    if effects.find("settle", name) is None:
        veto = await _call_back(effects, name) if effects.run.plan.calls_back(type(step)) else None
        effects.record(StepFinished(at=effects.frame.path, key=name))
        effects.run.added_step(effects, effects.transcript.items[-1])
        if veto is not None:
            effects.run.session.fail(veto)


async def finish_step(effects: Effects, kind: str, key: str, *, fresh: bool = False) -> Any:
    """Let the callbacks see a step that was recorded, put it among the steps, and return it."""
    run, frame = effects.run, effects.frame
    id_ = cast("int", frame.visit.effects[kind, key].value)
    transcript = frame.transcript
    name = f"{kind}:{key}"
    step = transcript.open_step if transcript.open is not None and transcript.open.id == id_ else None
    waits = isinstance(step, ActionStep) and bool(step.tool_calls) and kind == "turn"
    if step is not None and not waits:
        stores_veto = kind == "turn" and isinstance(step, ActionStep)
        veto = await _call_back(effects, name, stores_veto=stores_veto)
        effects.record(StepFinished(at=frame.path, key=name, lasting=kind == "failed"))
        run.added_step(effects, frame.transcript.items[-1])
        await run.log.commit()
        if veto is not None and not stores_veto:
            run.session.fail(veto)
    elif step is None and effects.find("settle", name) is None and fresh:
        run.added_step(effects, transcript.items[-1])
    seen = effects.transcript
    there = seen.find(id_)
    if there is None:
        return run.memory.handle(Item(id_, id_), seen) if seen.items else None
    found = effects.memory.handle(there[1], seen)
    error = getattr(found, "error", None) if kind == "turn" and isinstance(found, ActionStep | PlanningStep) else None
    if error is not None and error.type == "Veto":
        raise run.of_run(VetoError(type(found).__name__, error.message))
    return found


async def _call_back(effects: Effects, name: str, *, stores_veto: bool = False) -> VetoError | None:
    """Let the callbacks see the open step. Return the refusal of one. With `stores_veto`, it is saved as the error of the step, too.

    An error of one ends the run where nothing is lost.
    """
    run, transcript = effects.run, effects.frame.transcript
    assert transcript.open is not None
    own = effects.of_callbacks(name)
    with run.calling_back(own):
        step = run.transcript_of(own).handle(transcript.open, transcript)
        veto, failure = await call_all(run.plan.step_callbacks, step, run.handle)
        if veto is not None and stores_veto and isinstance(step, ActionStep):
            step.error = StepFailure("Veto", veto.reason)
    if failure is not None:
        run.session.fail(failure)
    effects.position = max(effects.position, own.position)
    return veto
