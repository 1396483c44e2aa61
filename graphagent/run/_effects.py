"""The effects of a visit of a node: found where they are recorded, and recorded where they are not.

An effect is found by its kind and key among what this visit has done. A node that is executed again after its
process died passes its recorded effects first. Meanwhile it reads the transcript as it was after the last effect that it has
passed, so it decides again as it decided the first time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from graphagent.errors import DivergedError, RunError
from graphagent.log._entries import EffectRecorded, EffectStarted, LibraryObject, TranscriptEdited
from graphagent.memory.transcript._memory import RunMemory

if TYPE_CHECKING:
    from graphagent.llm import ToolCall
    from graphagent.log._entries import Entry
    from graphagent.log._log import Log
    from graphagent.log._visits import Effect, Frame, Visit
    from graphagent.memory.transcript._transcript import Edit, Transcript
    from graphagent.protocols import Model
    from graphagent.run._agent_run import AgentRun
    from graphagent.run._walk import Walk


class EndedError(RunError):
    """A visit of a node has ended, and a task that it left behind tries to record something."""


@final
class Effects:
    """The effects of a visit of a node, or of a part of it such as a tool call, and its position in the log, as of which it sees the transcript."""

    __slots__ = ("_known", "_memory", "_numbers", "asked", "call", "model", "position", "scope", "visit", "walk")

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
        if found is not None and found.number > self.position:
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
