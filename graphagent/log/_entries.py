"""The entries of a log: a frozen value for each kind of thing that happens in a run, with its change of the state.

`apply` is the only code that changes a state. A value of a user's type is the object itself in a run without a store; in a run with
one it is `msgspec.Raw`, the bytes that it had when the entry was appended, so nobody can change it afterwards. The file is long because
each kind of entry has its fields and its change of the state side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Raw

from graphagent.codec._errors import DecodeError
from graphagent.errors import QuestionExpiredError
from graphagent.graph import Outline
from graphagent.llm import Message, ToolResult
from graphagent.llm._tools import BROKEN_OFF
from graphagent.log._state import OpenQuestion, QuestionKind
from graphagent.log._visits import PLACED, TASK, UNSET, Activation, Charge, Effect, Frame, Source, Visit, spent
from graphagent.memory._blocks import FORGOTTEN
from graphagent.memory.steps._types import ActionStep, MessageStep
from graphagent.memory.transcript._transcript import Edit, Item, Transcript

if TYPE_CHECKING:
    from graphagent.log._state import State

Stored: TypeAlias = Any
"""A value of a user's type: the object without a store, `msgspec.Raw` with one."""
StepValue: TypeAlias = Any
"""A Step; its data in an entry that was read and not yet revived. MessagePack cannot tell which class of steps to make."""
ObjectValue: TypeAlias = Any
"""A LibraryObject, or None; its data in an entry that was read and not yet revived."""
NO_VALUE = Raw(b"\xc0")
REMOVED_STEP = MessageStep(Message.user(FORGOTTEN))
"""Stands for a version of a step that is not there any more."""


@dataclass(slots=True, eq=False)
class LibraryObject:
    """Wraps an object of the library, such as a ToolResult, in an entry. The codec writes the object."""

    value: Any


class Entry(msgspec.Struct, frozen=True, tag=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True):
    """Something that happened in a run."""

    at: str = ""
    """The path of the frame in which it happened."""
    of_run: ClassVar[bool] = False
    """Whether it happened to the run, and not to a node."""

    def apply(self, state: State) -> None:
        """Change the state. It raises nothing for an entry that is appended, and anything for one that was read and does not fit."""
        raise NotImplementedError

    def takes_back(self, frame: Frame, visit: Visit) -> list[tuple[str, int]]:
        """Return the paths below which, and the entries since which, ends do not count any more.

        Args:
            frame: The frame in which it happened.
            visit: Its visit then.
        """
        return []

    @property
    def tag_name(self) -> str:
        """The name of its kind."""
        return str(self.__struct_config__.tag)


class Started(Entry, tag="started", frozen=True):
    """The run began. In a log with several runs, the transcript continues, and everything else begins anew."""

    of_run: ClassVar[bool] = True
    first: str
    """The first node."""
    value: Raw
    """The task."""
    steps: tuple[StepValue, ...] = ()
    """The steps that are in no earlier run of the log: the steps before the task, and the task."""
    begun: int = 0
    """How many of these were put before the task."""
    rules: str = ""
    """The system prompt."""
    trust: str = "trusted"
    """The least trust of content that flowed in other than in a step."""
    strategy: Outline | None = None
    """The outline of the strategy."""
    declared: dict[str, str] = {}
    """The names of the declarations of its nodes, by their paths in it: a name, and a hash of where and with which texts it is made."""
    ruled: tuple[tuple[str, str], ...] = ()
    """Not written: older logs say here which executions they note in entries `ruled`."""

    def apply(self, state: State) -> None:
        """Begin the run."""
        if state.number != 1:
            raise DecodeError("the run begins a second time")
        transcript = state.root.transcript
        _settle_calls(state.root, state.number)
        transcript.settle(state.number)
        if transcript.rules != self.rules:
            transcript.set_rules(state.number, self.rules)
        transcript.lower(self.trust)
        transcript.begun = transcript.inherited = len(transcript) + self.begun
        transcript.put(self.steps)
        transcript.forget_changes()
        if state.root.born:  # that of an earlier run
            state.begin(transcript)
        state.root.born = state.number
        state.run.task, state.run.strategy = self.value, self.strategy
        state.run.declared = self.declared
        state.status = "running"
        state.root.moved(self.first, self.value, TASK, state.number)


class Carried(Entry, tag="carried", frozen=True):
    """The visible steps of earlier runs, in the place of their rows. It has the number 0."""

    steps: tuple[StepValue, ...]
    """The steps."""
    items: tuple[tuple[int, int], ...]
    """The ids and versions of the steps."""
    versions: int
    """How many versions of steps there were."""
    rules: str = ""
    """The system prompt."""
    trust: str = "trusted"
    """The trust of the transcript."""

    def apply(self, state: State) -> None:
        """Begin with this transcript: the numbers of steps and versions stay as they were."""
        if state.number:
            raise DecodeError("it is not the first")
        transcript = Transcript(self.rules, [REMOVED_STEP] * self.versions, self.trust)
        transcript.items = [Item(*each) for each in self.items]
        versions = transcript.versions
        versions.ids = [-1] * self.versions
        for item, step in zip(transcript.items, self.steps, strict=True):
            versions[item.version] = step
            versions.ids[item.id] = versions.ids[item.version] = item.id
        state.root.transcript = transcript


class NodeFinished(Entry, tag="finished", frozen=True):
    """A node ended, or its error was caught, and another one comes next."""

    to: str
    """The next node; empty for END."""
    value: Raw = NO_VALUE
    """The value that it passes on."""
    tap: bool = False
    """Whether it passes on its input, which is not repeated."""
    edge: int | None = None
    """The number of the edge that was taken, where there was a choice."""
    error: tuple[str, str] | None = None
    """The type and the text of the error that was caught."""
    mapped: bool = False
    """Whether the edge passes on something else than the output of the node."""
    nodes: int = 1
    """How many nodes it counts as: subgraphs and forks count as 0, since the nodes inside count."""

    def apply(self, state: State) -> None:
        """Put the frame before the next node."""
        frame = state.frames[self.at]
        visit = frame.visit
        if self.error is not None:  # the error may contain what the branches that it ended had read
            _lower_to(frame.transcript, frame)
            visit.outcome = "failed"
        elif not visit.outcome:
            visit.outcome = "ended"
        if self.tap:
            finish_node(state, frame, self.to, visit.input, visit.source, self.nodes)
        else:
            source = Source(frame.node_path, self.edge if self.mapped else None)
            finish_node(state, frame, self.to, self.value, source, self.nodes)


def finish_node(state: State, frame: Frame, to: str, value: Stored, source: Source, nodes: int) -> None:
    """Put a frame before the next node."""
    if frame.visit.inside or frame.visit.started or state.questions:
        _settle_calls(frame, state.number)
        state.drop(frame)
    frame.nodes += nodes
    if nodes and frame.activation is None:
        for around in frame.counted_around():
            around.nodes += nodes
    frame.moved(to, value, source, state.number)


class NodeRetried(Entry, tag="retried", frozen=True):
    """A node failed and is tried again: the changes of the attempt to the transcript are undone."""

    policy: str
    """Which of its policies tries again; `whole` for the strategy of the frame as a whole."""
    error: tuple[str, str]
    """The type and the text of the error."""
    wait: float = 0.0
    """For how many seconds it waits before."""
    first: str = ""
    """The node with which the whole strategy begins again."""
    nodes: int = 1
    """As in NodeFinished."""

    def apply(self, state: State) -> None:
        """Take back the changes of the attempt. The calls of a turn before it were made all the same."""
        frame = state.frames[self.at]
        calling, known = frame.transcript.calling, known_results(frame)
        state.drop(frame)
        frame.count(self.nodes)
        frame.visit.outcome = "retried"
        _lower_to(frame.transcript, frame)
        frame.retried(state.number, self.policy)
        again = frame.transcript.calling
        if calling is not None and again is not None and again[0].id == calling[0].id:
            frame.transcript.answer(state.number, known)
        if self.first:
            attempts = frame.visit.attempts
            frame.moved(self.first, frame.agent.task, TASK, state.number)
            frame.visit.attempts = attempts

    def takes_back(self, frame: Frame, visit: Visit) -> list[tuple[str, int]]:
        """Return the elements that the attempt executed."""
        return [(frame.path, frame.born) if self.first else (f"{frame.path}{visit.node}/", visit.since)]


class NodeFailed(Entry, tag="failed", frozen=True):
    """A node raised, or was cancelled, and no edge takes the error. Failed effects are forgotten, so they are tried again if the run is resumed."""

    error: tuple[str, str]
    """The type and the text of the error."""
    nodes: int = 1
    """As in NodeFinished."""
    cancelled: bool = False
    """Whether it was cancelled: the attempts that it had still count."""

    def apply(self, state: State) -> None:
        """Forget the outcomes that are errors."""
        frame = state.frames.get(self.at)
        if frame is None:
            return
        _settle_calls(frame, state.number)
        frame.count(self.nodes)
        frame.visit.forget_errors()
        frame.visit.outcome = ""
        if not self.cancelled:
            frame.visit.attempts = {}


class BranchFailed(Entry, tag="branch failed", frozen=True):
    """A branch failed, and its error is its result."""

    value: Raw
    """The error."""

    def apply(self, state: State) -> None:
        """End the branch."""
        frame = state.frames[self.at]
        _settle_calls(frame, state.number)
        state.drop(frame)
        frame.moved("", self.value, Source(frame.node_path), state.number)


class BranchesStarted(Entry, tag="branches started", frozen=True):
    """Strategies began inside a node: the branches of a fork, or a subgraph."""

    firsts: tuple[str, ...]
    """The first node of each."""
    own: bool = False
    """Whether each is a branch with a transcript of its own; a subgraph shares that of the node."""
    ran: int = 0
    """For how many milliseconds the run had been executed, for a subgraph with a budget of time."""

    def apply(self, state: State) -> None:
        """Put a frame before each first node."""
        frame = state.frames[self.at]
        if not self.firsts:  # a fork without branches counts as a node, since there are none inside that count
            frame.visit.add_inside("branches")
            frame.count(1)
        for place, first in enumerate(self.firsts, len(frame.visit.inside.get("branches", ()))):
            path = f"{frame.node_path}/{place}/" if self.own else f"{frame.node_path}/"
            transcript = frame.transcript.branch() if self.own else frame.transcript
            inside = Frame(path, frame, transcript, state.number)
            inside.ran = self.ran
            inside.moved(first, UNSET, frame.visit.source, state.number)
            state.add_frame(inside, "branches")
        frame.visit.latest = state.number


class BranchesJoined(Entry, tag="joined", frozen=True):
    """The branches of a fork ended, as far as they count."""

    winner: int | None = None
    """The branch whose result counts, where only one does."""
    merged: bool = False
    """Whether the steps of the branches come at the end of the transcript."""

    def apply(self, state: State) -> None:
        """Merge the transcripts."""
        frame = state.frames[self.at]
        branches = frame.visit.inside.get("branches", [])
        transcript = frame.transcript
        _settle_calls(frame, state.number)
        for place, branch in enumerate(branches):
            if self.winner is not None and place != self.winner:
                state.drop(branch, itself=True)
                continue
            if self.merged:
                transcript.joined_by(state.number, branch.transcript)
            _lower_to(transcript, branch)
        frame.visit.record("join", "", Effect(state.number, self.winner))

    def takes_back(self, frame: Frame, visit: Visit) -> list[tuple[str, int]]:
        """Return the branches that lost."""
        branches = enumerate(visit.inside.get("branches", ()))
        return [(each.path, each.born) for place, each in branches if self.winner not in (None, place)]


class AgentStarted(Entry, tag="agent started", frozen=True):
    """A sub-agent began, as a part of the run."""

    key: str
    """Identifies it among the effects of the node: the id of the tool call that began it, and a number."""
    name: str
    """The name of the agent."""
    first: str
    """The first node of its strategy."""
    value: Raw
    """Its task."""
    task: StepValue
    """The step of its task."""
    rules: str = ""
    """Its system prompt."""
    strategy: Outline | None = None
    """The outline of its strategy."""
    declared: dict[str, str] = {}
    """As in Started, and that of its strategy under an empty path."""
    ruled: tuple[tuple[str, str], ...] = ()
    """The elements that its rules name: the path of the strategy that has the rules, and a name."""
    began: int = 0
    """When it began, in milliseconds UTC."""

    def apply(self, state: State) -> None:
        """Put a frame before its first node."""
        frame = state.frames[self.at]
        transcript = Transcript(self.rules, floor=frame.transcript.trust)
        transcript.task_trust = transcript.floor
        transcript.add(state.number, self.task)
        transcript.forget_changes()
        inside = Frame(f"{frame.node_path}/{self.name}/{state.number}/", frame, transcript, state.number)
        activation = inside.activation = Activation(inside, self.value, frame.agent)
        activation.name, activation.node, activation.strategy = self.name, frame.node_path, self.strategy
        activation.declared, activation.ruled, activation.began = self.declared, self.ruled, self.began
        frame.agent.children.append(activation)
        inside.moved(self.first, self.value, TASK, state.number)
        state.add_frame(inside, f"agent {self.key}")
        frame.visit.latest = state.number


class AgentStopped(Entry, tag="agent stopped", frozen=True):
    """A sub-agent ended, or failed."""

    status: Literal["done", "failed"]
    """How it ended."""
    step: StepValue | None = None
    """The step of its answer."""

    def apply(self, state: State) -> None:
        """Note its end. Its caller trusts the result no more than the content that the agent had read."""
        frame = state.frames[self.at]
        activation = frame.agent
        activation.status, activation.output = self.status, frame.visit.input
        if self.step is not None:
            frame.transcript.settle(state.number)
            frame.transcript.add(state.number, self.step)
        if frame.parent is not None:
            _lower_to(frame.parent.transcript, frame)


class EffectStarted(Entry, tag="effect started", frozen=True):
    """Something is about to be done."""

    kind: str
    """The kind of the effect."""
    key: str
    """The key of the effect."""
    tool: str = ""
    """The name of the tool, if it is a call of one that there is."""
    ruled: tuple[str, ...] = ()
    """The names by which rules know the tool, besides its own."""

    def apply(self, state: State) -> None:
        """Note that it was begun."""
        frame = state.frames[self.at]
        frame.visit.start(self.kind, self.key, state.number)


class EffectRecorded(Entry, tag="effect", frozen=True):
    """A node did something that must not be done twice: a model turn, a tool call, an answer. A step joins the transcript with it."""

    kind: str
    """The kind of the effect."""
    key: str
    """Identifies it among the effects of its kind in this visit of the node."""
    value: Raw = NO_VALUE
    """The outcome, where it is a value of a user's type."""
    held: ObjectValue = None
    """The outcome, where it is an object of the library."""
    step: StepValue | None = None
    """The step that joins the transcript."""
    open: bool = False
    """Whether the step is not among the steps yet: callbacks see it first, or its tool calls have no results."""
    lasting: bool = False
    """Whether a retry does not take the step back: a request that failed."""
    error: tuple[str, str] | None = None
    """The type and the text of the error that is the outcome."""
    turns: int = 0
    """Whether it counts as a model turn in the budget: 1 or 0."""
    charges: tuple[Charge, ...] = ()
    """Its costs, as rows of the ledger."""
    finish: str | None = None
    """Why the model stopped, where it was asked for an answer."""
    ended: bool | None = None
    """Whether a tool call came to its end, where middleware made something else of it than the tool."""

    @property
    def is_ended(self) -> bool:
        """Whether a tool call came to its end."""
        return not self.held.value.is_error if self.ended is None else self.ended

    def apply(self, state: State) -> None:
        """Note the outcome."""
        frame, number = state.frames[self.at], state.number
        transcript = frame.transcript
        outcome = self.held.value if self.held is not None else self.value
        if self.step is not None:
            transcript.settle(number)
            outcome = len(transcript.versions)
            if self.open:
                transcript.put_open(number, self.step)
            else:
                transcript.add(number, self.step, lasting=self.lasting)
        elif self.kind == "tool" and isinstance(outcome, ToolResult):
            transcript.answer(number, (outcome,))
        elif self.kind == "answer":
            state.questions = {
                id_: each for id_, each in state.questions.items() if (each.at, each.key) != (self.at, self.key)
            }
        frame.visit.record(self.kind, self.key, Effect(number, outcome, self.error), lasting=self.lasting)
        if self.charges or self.turns:
            frame.count(turns=self.turns, usage=spent(self.charges))
            frame.agent.charges += self.charges
        if self.kind in ("turn", "decision"):
            transcript.lower("inferred")
        if self.finish is not None:
            agent = frame.agent
            agent.finish_reason, agent.last_model_node = self.finish, agent.frame.visit.node or ""


class RuledExecution(Entry, tag="ruled", frozen=True):
    """Something that a rule names began, or came to its end. Older logs have it, and nothing follows from it."""

    of: tuple[tuple[str, str], ...]
    """The name of its declaration, or its path, for each strategy whose rules name it: with the path of the frame of that."""
    call: str = ""
    """The key of the tool call that it is; empty for the node."""
    ended: bool = False
    """Whether it came to its end."""
    agent: bool = False
    """Whether it is the run of a sub-agent, in whose frame it happened."""

    def apply(self, state: State) -> None:
        """Nothing follows from it."""


class NodeSkipped(Entry, tag="skipped", frozen=True):
    """Middleware ended the node without executing it, or although it had failed."""

    failed: bool = False
    """Whether it was executed, and failed."""

    def apply(self, state: State) -> None:
        """Note it. The node ends with the next entry of its frame."""
        state.frames[self.at].visit.outcome = "failed" if self.failed else "skipped"


class ResultsAdded(Entry, tag="results", frozen=True):
    """The tool calls of a model turn have their results."""

    key: str
    """The number of the effect."""
    turn: int
    """The id of the step of the turn."""
    results: ObjectValue = None
    """The results, if they differ from those of the calls of the turn."""
    open: bool = False
    """Whether callbacks see the turn before it is among the steps."""

    def apply(self, state: State) -> None:
        """Put the results into the turn, and the turn among the steps."""
        frame, number = state.frames[self.at], state.number
        transcript = frame.transcript
        if self.results is not None and (found := transcript.find(self.turn)) is not None:
            place, item = found
            turn = transcript.versions[item.version]
            if isinstance(turn, ActionStep):
                transcript.edit(number, Edit(place, place + 1, (turn.with_results(self.results.value),)))
        if not self.open and transcript.open is not None and transcript.open.id == self.turn:
            transcript.settle(number)
        frame.visit.record("results", self.key, Effect(number, self.turn))


class StepFinished(Entry, tag="step", frozen=True):
    """The callbacks have seen the open step, and it is among the steps."""

    key: str
    """The effect that made the step: its kind and its key."""
    lasting: bool = False
    """Whether a retry does not take the step back: a request that failed."""

    def apply(self, state: State) -> None:
        """Put the open step among the steps."""
        frame = state.frames[self.at]
        frame.transcript.settle(state.number, lasting=self.lasting)
        frame.visit.record("settle", self.key, Effect(state.number), lasting=self.lasting)


class TranscriptEdited(Entry, tag="edited", frozen=True):
    """Steps were replaced, added or removed: by a node, under a number, or from outside."""

    key: str = ""
    """The number of the edit among the edits of the node; empty if no node made it."""
    start: int = 0
    """The first of the steps that were replaced; -1 stands for the open one."""
    end: int = 0
    """The one after the last of them."""
    steps: tuple[StepValue, ...] = ()
    """The steps in their place."""
    rules: str | None = None
    """The system prompt, where that was changed."""
    trust: str = "trusted"
    """The trust of content that flowed in other than in a step."""

    def apply(self, state: State) -> None:
        """Change the transcript."""
        frame, number, lasting = state.frames[self.at], state.number, not self.key
        transcript = frame.transcript
        if not self.start <= self.end <= len(transcript):
            raise DecodeError("it replaces steps that do not exist")
        transcript.edit(number, Edit(self.start, self.end, self.steps, self.rules, self.trust), lasting=lasting)
        if self.key:
            frame.visit.record("edit", self.key, Effect(number))
        elif lasting and frame.visit.latest == frame.visit.entered == frame.visit.since and frame.owns:
            transcript.forget_changes()


class Spent(Entry, tag="spent", frozen=True):
    """A node spent something that is recorded with no outcome."""

    charges: tuple[Charge, ...] = ()
    """Its costs, as rows of the ledger."""
    turns: int = 0
    """How many model turns it counts as."""

    def apply(self, state: State) -> None:
        """Count it."""
        frame = state.frames[self.at]
        frame.count(turns=self.turns, usage=spent(self.charges))
        frame.agent.charges += self.charges


class Asked(Entry, tag="asked", frozen=True):
    """A node asked a person, and waits for the answer."""

    id: str
    """Identifies it among the open questions of the run."""
    key: str
    """The key of the answer among the effects of the node."""
    text: str
    """The text of the question."""
    kind: QuestionKind = "question"
    """`question`, `approval`, `result` or `in_flight`."""
    about: Raw = NO_VALUE
    """The subject of the question, for the person who answers."""
    schema: Raw = NO_VALUE
    """The JSON schema of the answer."""
    asked: int = 0
    """When it was asked, in milliseconds UTC."""
    deadline: int = 0
    """When it expires, in milliseconds UTC; 0: never."""

    def apply(self, state: State) -> None:
        """Open the question."""
        frame = state.frames[self.at]
        state.expired.pop(self.id, None)
        state.questions[self.id] = OpenQuestion(
            self.id, self.at, self.key, frame.node_path, self.text, self.kind, self.about, self.schema, self.asked,
            self.deadline,
        )  # fmt: skip


class Expired(Entry, tag="expired", frozen=True):
    """The deadline of a question had passed, and it was closed without an answer of a person."""

    id: str
    """The id of the question."""
    key: str
    """As in Asked."""
    deadline: int
    """The deadline, in milliseconds UTC."""
    value: Raw = NO_VALUE
    """The default, which is the answer."""
    has_default: bool = False
    """Whether there was a default; otherwise the node that asked raises QuestionExpiredError."""
    kind: ClassVar[str] = "answer"
    """The effect that it is the outcome of, which costs nothing."""
    charges: ClassVar[tuple[Charge, ...]] = ()
    turns: ClassVar[int] = 0

    def apply(self, state: State) -> None:
        """Close the question."""
        frame = state.frames[self.at]
        state.questions = {id_: each for id_, each in state.questions.items() if id_ != self.id}
        state.expired[self.id] = self.deadline
        error = None if self.has_default else (QuestionExpiredError.__name__, "")
        outcome = self.value if self.has_default else self.deadline
        frame.visit.record("answer", self.key, Effect(state.number, outcome, error))


class ToolsListed(Entry, tag="tools", frozen=True):
    """A server of tools was asked which tools it has. The run keeps these, also when it is resumed."""

    server: str
    """The name of the server."""
    value: Raw
    """The descriptions of the tools."""

    def apply(self, state: State) -> None:
        """Keep the list."""
        state.frames[self.at].agent.listed[self.server] = self.value


class ValueKept(Entry, tag="kept", frozen=True):
    """A feature keeps a value with the run of an agent, for the time when the run is resumed."""

    key: str
    """The name of the value."""
    value: Raw
    """The value."""

    def apply(self, state: State) -> None:
        """Keep the value, in the place of an earlier one."""
        state.frames[self.at].agent.kept[self.key] = self.value


class Placed(Entry, tag="placed", frozen=True):
    """A frame was put before a node with another value: its answer was refused, or the run was edited."""

    to: str
    """The node; empty for END."""
    value: Raw
    """Its input."""
    text: bool = False
    """Whether the value is text that the engine made; otherwise it has the declared type of its place."""

    @property
    def source(self) -> Source:
        """The origin of the value."""
        return Source("\0text") if self.text else Source(self.at + self.to, PLACED)

    def apply(self, state: State) -> None:
        """Put the frame before the node."""
        frame = state.frames[self.at]
        _settle_calls(frame, state.number)
        state.drop(frame)
        frame.moved(self.to, self.value, self.source, state.number)
        if self.to:
            frame.ended = 0


class Migrated(Entry, tag="migrated", frozen=True):
    """A frame is at a node that has another name, or takes another input, in a later version of the strategy. Its recorded effects stay."""

    to: str
    """The name of the node."""
    source: str = ""
    """The path of the node from which its input came."""
    value: Raw = NO_VALUE
    """Its input, if that was converted."""
    converted: bool = False
    """Whether it was."""

    def apply(self, state: State) -> None:
        """Have the frame be at the node."""
        frame, was = state.frames[self.at], state.frames[self.at].node_path
        visit = frame.visit
        if visit.node and visit.node != self.to:
            frame.visits[self.to] = frame.visits.pop(visit.node, 0)
            visit.node = self.to
            for name, asked in state.questions.items():
                if asked.at == self.at and asked.node == was:
                    state.questions[name] = asked._replace(node=frame.node_path)
        if self.converted:
            visit.input, visit.source = self.value, Source(frame.node_path, PLACED)
        else:
            visit.source = Source(self.source, visit.source.edge)


class TaskShown(Entry, tag="shown", frozen=True):
    """The callbacks have seen the task, before the first node: that node and each retry of it begin with their changes."""

    def apply(self, state: State) -> None:
        """Put the beginning of the first node after the changes of the callbacks."""
        frame = state.frames[self.at]
        frame.visit = frame.visit.begun_again(state.number)
        frame.transcript.forget_changes()


class LearningDue(Entry, tag="learning due", frozen=True):
    """Something is to be learned from the run after its end: by a tap that failed, or in the background."""

    node: str
    """The path of the tap; after a slash, the name of a feature."""

    def apply(self, state: State) -> None:
        """Note who is to learn."""
        state.unlearned = tuple(dict.fromkeys((*state.unlearned, self.node)))


class Learned(Entry, tag="learned", frozen=True):
    """It was learned."""

    node: str
    """As in the entry that says that it is due."""

    def apply(self, state: State) -> None:
        """Note that nothing is left of it."""
        state.unlearned = tuple(each for each in state.unlearned if each != self.node)


class Resumed(Entry, tag="resumed", frozen=True):
    """A process continues the run."""

    of_run: ClassVar[bool] = True
    forked: bool = False
    """Whether it continues as another run: then its questions are asked anew."""
    strategy: Outline | None = None
    """The outline of the strategy, if it was changed."""
    declared: dict[str, str] | None = None
    """The names of the declarations of its nodes, if they were changed."""
    ruled: tuple[tuple[str, str], ...] | None = None
    """Not written: as in Started."""
    executed: Any = None
    """Not written any more: older logs have here the executed elements that rules did not name before."""

    def apply(self, state: State) -> None:
        """Continue the run."""
        state.status, state.reason, state.failure, state.due = "running", "", None, 0
        if self.strategy is not None:
            state.run.strategy = self.strategy
        if self.declared is not None:
            state.run.declared = self.declared
        if self.forked:
            state.questions = {}


class Stopped(Entry, tag="stopped", frozen=True):
    """The run ended, waits, sleeps, is paused or failed, and no process executes it."""

    of_run: ClassVar[bool] = True
    status: Literal["done", "waiting", "paused", "failed", "cancelled", "sleeping"]
    """How it stopped."""
    reason: str = ""
    """Why, for people."""
    failure: tuple[str, str, str] | None = None
    """The type, the text and the traceback of the error."""
    step: StepValue | None = None
    """The step of the answer."""
    due: int = 0
    """When it continues by itself, in milliseconds UTC: at the end of a sleep, or at the deadline of a question. 0: never."""

    def apply(self, state: State) -> None:
        """Stop the run."""
        state.status, state.reason, state.failure, state.due = self.status, self.reason, self.failure, self.due
        if self.status == "failed":  # it waits for nobody, and asks again when it continues
            state.questions = {}
        elif self.status == "done":
            state.run.status, state.run.output, state.questions = "done", state.root.visit.input, {}
            transcript = state.root.transcript
            transcript.settle(state.number)
            if self.step is not None:
                transcript.put([self.step])
            transcript.forget_changes()


class Ended(Entry, tag="ended", frozen=True):
    """The run was ended where it was. Its transcript continues its thread, and the run cannot be resumed."""

    of_run: ClassVar[bool] = True
    reason: str = ""
    """Why, for people."""

    def apply(self, state: State) -> None:
        """End the run and those of its sub-agents. Calls that have no result were broken off, and open questions are withdrawn."""
        root = state.root
        for agent in state.activations():
            if agent.status == "running":
                agent.status = "ended"
                _leave(agent.frame, state.number)
        _lower_to(root.transcript, root)
        state.drop(root)
        root.visit.leave_inside()
        state.status, state.failure, state.questions, state.due = "ended", None, {}, 0
        state.reason = f"it was ended: {self.reason}" if self.reason else "it was ended"


AnyEntry = (
    Started | Carried | NodeFinished | NodeRetried | NodeFailed | BranchFailed | BranchesStarted | BranchesJoined | AgentStarted
    | AgentStopped | RuledExecution | NodeSkipped | EffectStarted | EffectRecorded | ResultsAdded | StepFinished | TranscriptEdited | Spent | Asked
    | Expired | ToolsListed | ValueKept | TaskShown | Placed | Migrated | LearningDue | Learned | Resumed | Stopped | Ended
)  # fmt: skip


def known_results(frame: Frame) -> list[ToolResult]:
    """Return the results of the calls of the last model turn, as far as a frame and the branches inside it know them.

    A call that was begun and has no result was broken off, and its result says so.
    """
    calling = frame.transcript.calling
    if calling is None:
        return []
    item, turn = calling
    own = {result.call_id: result for result in turn.results}
    found, begun = dict(own), set[str]()
    for each in frame.of_agent():
        there = each.transcript.calling
        if there is None or there[0].id != item.id:
            continue  # a branch whose model has been asked since
        found.update((result.call_id, result) for result in there[1].results if result is not own.get(result.call_id))
        begun.update(key for kind, key in each.visit.started if kind == "tool")
    for call in turn.tool_calls:
        known = found.get(call.id)
        if (known is None or known.is_error) and any(f"/{key}".endswith(f"/{call.id}") for key in begun):
            found[call.id] = ToolResult.error(call, BROKEN_OFF)
    return list(found.values())


def _settle_calls(frame: Frame, number: int) -> None:
    """Put the known results of the calls of the last model turn into that turn: the node that made the calls may end without them."""
    if frame.visit.inside or frame.visit.started:
        frame.transcript.answer(number, known_results(frame))


def _leave(frame: Frame, number: int) -> None:
    """Keep in the transcript of a frame its steps and those of the unfinished branches inside it.

    The steps of branches come at its end in any case, or nobody would know what they did.
    """
    transcript = frame.transcript
    if frame.owns:
        _settle_calls(frame, number)
        transcript.settle(number)
    for each in [each for frames in frame.visit.inside.values() for each in frames if each.activation is None]:
        _leave(each, number)
        if each.owns:
            transcript.joined_by(number, each.transcript)
    transcript.forget_changes()


def _lower_to(transcript: Transcript, frame: Frame) -> None:
    """Trust a transcript no more than the content that a frame and the frames inside it had read."""
    for each in frame.frames():
        if each.transcript is not transcript:
            transcript.lower(each.transcript.trust)
