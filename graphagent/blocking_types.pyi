"""What `blocking` returns, for annotations such as `def summary(notes: BlockingNotes) -> str: …`.

Written by `python -m scripts.blocking_types` from the async classes; change those instead. What these are made of inside is left
out. What is blocking only where it is one of ours, such as the store of an agent, is Any.
"""

from collections.abc import AsyncIterable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Never, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

from graphagent.events import Event
from graphagent.graph import CachePolicy, Node, Retry, Strategy
from graphagent.history import Diff, Entry, PendingQuestion, Place, Snapshot
from graphagent.llm import ErrorText, InFlight, Tool, ToolCall, ToolResult
from graphagent.memory import (
    Concept,
    Fact,
    FactVersion,
    FormerNote,
    Match,
    Note,
    Record,
    RunMemory,
    Scope,
    ScopeInfo,
    ScopeTree,
    Step,
    Subject,
    Turn,
    Withdrawal,
)
from graphagent.memory.notes import Depth, Infer
from graphagent.protocols import Feature, ToolServer
from graphagent.run import Budgets, Callback, Question, ResumeOptions, RunOptions, RunResult, Status
from graphagent.store import Change, Item, Key, Receipt
from graphagent.work import SubmitOptions

E = TypeVar("E", bound=Event)
I = TypeVar("I", contravariant=True)
O = TypeVar("O", covariant=True)
P = ParamSpec("P")
F = TypeVar("F")
Answer = TypeVar("Answer")
T = TypeVar("T")

class BlockingNoteView(Protocol):
    """`NoteView` where nothing is async."""

    @property
    def owner(self) -> str:
        """Whose notes these are."""

    @property
    def scopes(self) -> tuple[str, ...]:
        """The visible scopes. Those below them are visible too."""

    @property
    def read_only(self) -> bool:
        """Whether notes cannot be saved, changed or forgotten here."""

    def scope(self, path: str) -> BlockingNoteView:
        """Return a view of one scope. Paths in it are relative to it, or begin with its whole path."""

    def subscope(self, name: str) -> BlockingNoteView:
        """Return a view of a scope below this one, as `scope` does."""

    def slice(
        self, scopes: Iterable[str], categories: Iterable[str] | None = None, *, read_only: bool = True
    ) -> BlockingNoteView:
        """Return a view of several scopes; with categories, only of notes with one of them. Paths in it are absolute."""

    def of(self, source: str) -> BlockingNoteView:
        """Return this view as one source sees it, with its private notes. Notes saved there have this source."""

    def remember(
        self,
        content: str,
        scope: str | None = None,
        categories: Sequence[str] | None = None,
        *,
        importance: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        source: str | None = None,
        private: bool = False,
        at: datetime | None = None,
        trust: str = "",
        run_id: str = "",
        infer: Infer = "later",
    ) -> Record:
        """Save a text as a note. It is on the disk when this method returns."""

    def remember_many(
        self,
        notes: Iterable[str | Note],
        scope: str | None = None,
        categories: Sequence[str] | None = None,
        *,
        importance: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        source: str | None = None,
        private: bool = False,
        at: datetime | None = None,
        trust: str = "",
        run_id: str = "",
        infer: Infer = "later",
    ) -> list[Record]:
        """Save several texts, all or none. The options are those of `remember`; a Note's own values take precedence."""

    def remember_conversation(
        self,
        turns: Iterable[Turn | Mapping[str, Any]],
        session: str,
        *,
        scope: str | None = None,
        categories: Sequence[str] | None = None,
        trust: str = "",
        run_id: str = "",
    ) -> list[Record]:
        """Save the turns of a conversation, each as a note with its speaker, its time and its place."""

    def recall(
        self,
        query: str,
        scope: str | None = None,
        categories: Sequence[str] | None = None,
        limit: int = 10,
        *,
        depth: Depth | None = None,
        source: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        metadata_filter: Mapping[str, Any] | None = None,
        min_score: float = 0.0,
        run_id: str = "",
    ) -> list[Match]:
        """Return the notes that fit a question best, the best first. Nothing is written."""

    def get(self, id_: str) -> Record | None:
        """Return the note with an id; None if this view has none."""

    def resolve(self, text: str) -> str:
        """Return the whole id of the note whose id begins or ends with a text, as people abbreviate ids."""

    def update(
        self,
        id_: str,
        content: str | None = None,
        *,
        scope: str | None = None,
        categories: Sequence[str] | None = None,
        importance: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        version: int | None = None,
    ) -> Record:
        """Change a note. Fields that are left out stay, as do its owner, source and privacy. The former note is in its history."""

    def history(self, id_: str) -> list[FormerNote]:
        """Return a note before each change, the last change first, each with the kind and the time of the change."""

    def undo(self, id_: str) -> Record:
        """Restore a note as it was before its last change, or before it was consolidated into another one."""

    def forget(
        self,
        *others: Never,
        ids: Iterable[str] | None = None,
        scope: str | None = None,
        categories: Sequence[str] | None = None,
        older_than: timedelta | datetime | None = None,
        source: str | None = None,
        metadata_filter: Mapping[str, Any] | None = None,
        run_id: str | None = None,
    ) -> Receipt:
        """Erase the notes that fit all conditions: their text, words, vectors and history leave the disk."""

    def purge(self, *others: Never, source: str | None = None, run_id: str | None = None) -> Receipt:
        """Erase all notes of a source or of a run, and raise errors, as `forget` does."""

    def reset(self, scope: str | None = None) -> Receipt:
        """Erase everything in the view, or in one scope of it."""

    def list_records(
        self,
        scope: str | None = None,
        limit: int = 200,
        offset: int = 0,
        *,
        categories: Sequence[str] | None = None,
        source: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        metadata_filter: Mapping[str, Any] | None = None,
    ) -> list[Record]:
        """Return the notes of a scope and those below, the newest first."""

    def list_categories(self, scope: str | None = None) -> dict[str, int]:
        """Return the number of notes with each category, in alphabetical order."""

    def list_scopes(self, path: str | None = None) -> list[str]:
        """Return the whole paths of the scopes directly below one; without a path, in a slice, the scopes of the slice."""

    def info(self, path: str | None = None) -> ScopeInfo:
        """Return a summary of a scope, including those below it; by default of the whole view."""

    def tree(self, path: str | None = None, max_depth: int | None = None) -> ScopeTree:
        """Return a scope with those below it, down to a depth: 0 is the scope alone. `str()` of it has a line for each."""

    def extract_memories(self, text: str) -> list[str]:
        """Return the statements in a text, each of which can be understood alone. Nothing is saved. Without a model: the whole text."""

    def settle(self) -> int:
        """Wait until all pending inference is done. Return the number of notes that still lack inferred values."""

    def export(self) -> Generator[dict[str, Any]]:
        """Yield all notes of the view, with their history, as plain JSON data, the oldest first."""

    def import_(
        self,
        records: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]],
        *,
        on_progress: Callable[[int, int], object] | None = None,
    ) -> int:
        """Save exported notes, with their history, all or none, in one commit. Return how many were new."""

    def verify(self) -> int:
        """Read every note of the owner, and check that it can be found. Return their number."""

    def reindex(self) -> int:
        """Build the search index again from the notes, and add all notes of the owner to a search engine of your own."""

    def reembed(self, on_progress: Callable[[int, int], object] | None = None) -> int:
        """Make the vectors of all notes of the owner again, with the current embedder. Until that is done, the old ones are used."""

    def on(self, event: type[E], handler: Callable[[E], object]) -> Self:
        """Call a function with each event of a type that happens to these notes, in any view of them."""

    def tell(self, event: Event) -> None:
        """Emit an event to those who listen to these notes."""

class BlockingNotes(BlockingNoteView, Protocol):
    """`Notes` where nothing is async."""

    def owners(self) -> list[str]:
        """Return all owners that have notes in the store, in alphabetical order, `""` for notes without an owner."""

    @property
    def embedder_name(self) -> str | None:
        """The name of the embedder that makes vectors of new notes and of questions; None without one."""

    def stored_embedder(self) -> str | None:
        """Return the name of the embedder that made the vectors of the owner's notes; None without vectors."""

    def aclose(self) -> None:
        """Close the file, and the connections of an embedder and of a reranker that can be closed."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

class BlockingAgent(Protocol[I, O]):
    """`Agent` where nothing is async."""

    @property
    def strategy(self) -> Strategy[I, O]:
        """The strategy that the agent runs."""

    @property
    def model(self) -> Any:
        """The model that the nodes of the strategy use."""

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that the model may call, without those of servers."""

    @property
    def tool_servers(self) -> tuple[ToolServer, ...]:
        """The servers whose tools the model may also call."""

    @property
    def system_prompt(self) -> str:
        """The rules for the model."""

    @property
    def store(self) -> Any:
        """Where runs are kept."""

    @property
    def dispatcher(self) -> Any:
        """The dispatcher that notifies workers of submitted runs; None means the default for the store."""

    @property
    def name(self) -> str:
        """The name by which the model of another agent calls this agent."""

    @property
    def description(self) -> str:
        """The purpose of this agent, for that model."""

    @property
    def version(self) -> str:
        """The version of the strategy; empty if its digest serves as the version."""

    @property
    def callbacks(self) -> list[Callback]:
        """The callbacks that see each step, in order. Features add theirs when they are installed."""

    @property
    def budgets(self) -> Budgets:
        """The budgets of a run."""

    @property
    def levels(self) -> int:
        """How deeply strategies, forks and agents are nested in this agent; each agent counts as three levels."""

    def install(self, feature: Callable[P, F], /, *args: P.args, **settings: P.kwargs) -> Any:
        """Install a feature: `agent.install(AgentMemory, provider=…)`. The feature is created with these settings."""

    def offer(self, tools: Sequence[Tool]) -> bool:
        """Add tools to the agent, as a feature does in its `install`. Tools whose names are taken are left out."""

    def on(self, event: type[E], handler: Callable[[E], None], /, *, all_text: bool = False) -> None:
        """Call a handler for each event of a type and of the types derived from it; `Event` itself means all."""

    @overload
    def run(self: BlockingAgent[None, Answer], **options: Unpack[RunOptions]) -> RunResult[Answer]: ...
    @overload
    def run(self, task: I, **options: Unpack[RunOptions]) -> RunResult[O]: ...
    @overload
    def start(self: BlockingAgent[None, Answer], **options: Unpack[RunOptions]) -> BlockingRun[Answer]: ...
    @overload
    def start(self, task: I, **options: Unpack[RunOptions]) -> BlockingRun[O]: ...
    @overload
    def stream(
        self: BlockingAgent[None, Answer], *, all_text: bool = False, **options: Unpack[RunOptions]
    ) -> BlockingRunStream[Answer]: ...
    @overload
    def stream(self, task: I, *, all_text: bool = False, **options: Unpack[RunOptions]) -> BlockingRunStream[O]: ...
    @overload
    def submit(self: BlockingAgent[None, Answer], **options: Unpack[SubmitOptions]) -> BlockingRunHandle[Answer]: ...
    @overload
    def submit(self, task: I, **options: Unpack[SubmitOptions]) -> BlockingRunHandle[O]: ...
    def handle(self, run_id: str, *, owner: str = "") -> BlockingRunHandle[O]:
        """Return the handle of a run in the store, as `submit` does. Nothing is read before one of its methods is called."""

    def read(self, run_id: str, *, owner: str = "", allow_changed: bool = False, deps: object = None) -> BlockingRun[O]:
        """Return a run from the store: to inspect it, to replay it, or to continue it with `step` or `finish`."""

    def resume(self, run_id: str, **options: Unpack[ResumeOptions]) -> RunResult[O]:
        """Continue a run that was stopped: by an error, by the death of its process, by a question, by a pause."""

    def resume_stream(
        self, run_id: str, *, all_text: bool = False, **options: Unpack[ResumeOptions]
    ) -> BlockingRunStream[O]:
        """Continue a run as `resume` does, and return its events, as `stream` does: `async for event in agent.resume_stream(…): …`."""

    def end(self, run_id: str, reason: str = "", *, owner: str = "", deps: object = None) -> RunResult[O]:
        """End a stopped run where it is, whether a question, an error, a pause or a cancellation stopped it. Nothing is executed."""

    def questions(self, *, owner: str | None = None) -> list[PendingQuestion]:
        """Return the open questions of the runs in the store, the oldest first."""

    def history(self, run_id: str, *, owner: str = "") -> list[Entry]:
        """Return the entries of a run in their order. `entry.node` is the path of a node that ended, and None for others."""

    def state_at(self, run_id: str, number: int, *, owner: str = "") -> Snapshot:
        """Return the state of a run after one of its entries: its transcript, its position and its totals."""

    def fork(
        self,
        origin: str,
        /,
        *,
        at: int | None = None,
        before: str | None = None,
        after: str | None = None,
        edit: Callable[[Snapshot], None] | None = None,
        run_id: str | None = None,
        owner: str = "",
        allow_changed: bool = False,
        deps: object = None,
    ) -> RunResult[O]:
        """Make a new run that begins like an existing one, and continue it until it ends or is suspended. The original does not change."""

    def diff(self, a: str, b: str, /, *, owner: str = "") -> Diff:
        """Compare two runs: their common beginning, and the actions of each run after it."""

    def rerun(
        self,
        run_id: str,
        *,
        until: int | str | None = None,
        new_id: str | None = None,
        owner: str = "",
        deps: object = None,
    ) -> RunResult[O]:
        """Execute a run again, as a new run, with the recorded results in place of model turns and tool calls."""

    @property
    def features(self) -> Mapping[type[Any], Feature]:
        """The installed features, by their types."""

    @property
    def places(self) -> tuple[Place, ...]:
        """The places where this agent and its sub-agents keep data of owners: its store, those of features, and those of cached models."""

    @property
    def last(self) -> BlockingRun[O] | None:
        """The run that this agent started, or continued, last."""

    def replay(self, *, detailed: bool = False) -> None:
        """Print the run that this agent started last, step by step; `detailed` adds the messages that the model was sent."""

    @overload
    def run_sync(self: BlockingAgent[None, Answer], **options: Unpack[RunOptions]) -> RunResult[Answer]: ...
    @overload
    def run_sync(self, task: I, **options: Unpack[RunOptions]) -> RunResult[O]: ...
    def as_tool(
        self,
        *,
        approve: bool = False,
        timeout: float | None = None,
        retry: Retry | int | None = None,
        concurrency: int | None = None,
        max_size: int | None = None,
    ) -> BlockingTool:
        """Return the agent as a tool of another agent, as `tools=[agent]` does. The tool takes the agent's task, and returns its answer."""

    def as_node(self) -> Node[I, O]:
        """Return the agent as a node of another strategy. The node takes the agent's task, and returns its answer."""

    def settle(self, *, owner: str | None = None, deps: object = None) -> int:
        """Finish the learning of earlier runs, which was left for the background or failed. Return how many runs are settled."""

    def aclose(self) -> None:
        """Close the connections to tool servers in this event loop, also those of agents that are tools."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class BlockingRun(Protocol[O]):
    """`Run` where nothing is async."""

    @property
    def run_id(self) -> str:
        """The id of the run."""

    @property
    def owner(self) -> str:
        """The user or tenant of the run, or an empty string."""

    @property
    def memory(self) -> RunMemory:
        """The transcript; in a callback for a step of a branch, that of the branch. Edit it between steps, or in a step callback."""

    @property
    def speakers(self) -> Mapping[str, str]:
        """The ids of the runs whose text is a part of the answer: its own, and those of agents as nodes, with their paths."""

    @property
    def result(self) -> RunResult[O]:
        """The output, usage and ledger of the run, so far."""

    @property
    def status(self) -> Status:
        """The status of the run."""

    @property
    def done(self) -> bool:
        """Whether the run reached END."""

    @property
    def output(self) -> O:
        """The output of the run; None where it was ended before it reached END."""

    @property
    def questions(self) -> tuple[Question, ...]:
        """The open questions."""

    def replay(self, *, detailed: bool = False) -> None:
        """Print what happened, step by step; `detailed` adds what the model was sent."""

    def step(self) -> Step | None:
        """Execute the run until its next step, and return the step. Return None if the run ended, waits, sleeps or is paused."""

    def finish(self) -> RunResult[O]:
        """Execute the run until it ends, waits, sleeps or is paused, and return its result."""

    def pause(self, reason: str = "") -> None:
        """Stop the run before its next effect or node, or while it sleeps; it can be continued. Callbacks may call it too."""

    def set_budgets(
        self,
        *,
        max_nodes: int | None = None,
        max_turns: int | None = None,
        max_tokens: int | None = None,
        max_cost: Decimal | str | float | None = None,
        max_seconds: float | None = None,
    ) -> None:
        """Replace the budgets that are not None."""

    def on(self, event: type[E], handler: Callable[[E], None], /, *, all_text: bool = False) -> None:
        """Call a handler for each event of a type in this run alone; otherwise as `agent.on`."""

    def answer(
        self,
        answer: object = ...,
        /,
        *,
        answers: Mapping[str, object] | None = None,
        results: Mapping[str, object] | None = None,
    ) -> None:
        """Answer the open question, or several questions by id. The run continues with `finish` or `step`."""

    def aclose(self) -> None:
        """Release the run, so that another process can continue it. A run that ended, waits, sleeps or is paused has been released."""

    def __enter__(self) -> BlockingRun[O]: ...
    def __exit__(self, *_: object) -> None: ...

class BlockingRunStream(Protocol[O]):
    """`RunStream` where nothing is async."""

    @property
    def run(self) -> BlockingRun[O]:
        """The run. After it was cancelled, it can be continued."""

    @property
    def result(self) -> RunResult[O]:
        """The result of the run, as far as it has come."""

    def text(self) -> Iterator[str]:
        """Return the text of the answer, piece by piece: `async for text in agent.stream(…).text(): …`."""

    def aclose(self) -> None:
        """Cancel the run, if it has not ended, and wait until it has stopped."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def __iter__(self) -> Iterator[Event]: ...

class BlockingRunHandle(Protocol[O]):
    """`RunHandle` where nothing is async."""

    @property
    def run_id(self) -> str:
        """The id of the run."""

    @property
    def owner(self) -> str:
        """The user or tenant of the run, or an empty string."""

    def status(self) -> Status:
        """Return where the run is: `queued` until a worker takes it."""

    def result(self) -> RunResult[O]:
        """Return the result of the run, as far as it has come."""

    def wait(self, timeout: float | None = None) -> RunResult[O]:
        """Return the result of the run once it has ended, failed, waits for a person or is paused."""

    def events(self, *, after: int = 0) -> Iterator[Entry]:
        """Return the entries of the run, each when it is committed, until the run ends, waits or is paused."""

    def answer(
        self,
        answer: object = ...,
        /,
        *,
        answers: Mapping[str, object] | None = None,
        results: Mapping[str, object] | None = None,
    ) -> None:
        """Answer the open question, or several by id, and have a worker continue the run."""

    def resume(self) -> None:
        """Have a worker continue the run, which was paused, failed, was cancelled, or whose process died. Nothing is done twice."""

    def fork(
        self,
        *,
        at: int | None = None,
        before: str | None = None,
        after: str | None = None,
        edit: Callable[[Snapshot], None] | None = None,
        run_id: str | None = None,
        allow_changed: bool = False,
    ) -> BlockingRunHandle[O]:
        """Make a new run that begins like this one, as `agent.fork` does, and have a worker continue it. Return its handle."""

    def end(self, reason: str = "") -> RunResult[O]:
        """End the run where it is, as `agent.end` does, also one that was not begun, or that a worker executes. Return its result."""

    def pause(self, reason: str = "") -> RunResult[O]:
        """Have a worker stop the run before its next effect or node, and return the result. `resume` continues it."""

class BlockingTool(Protocol):
    """`Tool` where nothing is async."""

    @property
    def name(self) -> str:
        """The name under which the model calls it: 1 to 64 letters, digits, `_` and `-`."""

    @property
    def description(self) -> str:
        """A description for the model: what it does and when to use it."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The JSON schema of its arguments, an object."""

    @property
    def run(self) -> Callable[[Mapping[str, Any], Any], Any]:
        """Called with the arguments and the run's Context (None outside a run). A ToolResult is shown to the model unchanged."""

    @property
    def approve(self) -> bool:
        """Whether a person is asked before each call."""

    @property
    def deferred(self) -> bool:
        """Whether the result comes from outside, when the run is resumed with it; `run` is never called then."""

    @property
    def in_flight(self) -> InFlight:
        """How a call is handled during which the process died: it is repeated, a person is asked, or the model gets an error."""

    @property
    def context(self) -> Any:
        """The type of its context, such as `Context[Db]`: a run must be passed `deps=` of that type."""

    @property
    def timeout(self) -> float | None:
        """Seconds that an attempt may take before it is cancelled with a ToolTimeoutError; None for any time."""

    @property
    def retry(self) -> Retry | None:
        """How a call that raises is retried; None for no retries."""

    @property
    def concurrency(self) -> int | None:
        """The maximum number of concurrent calls, over all runs of one event loop; None for no limit."""

    @property
    def max_size(self) -> int | None:
        """The maximum number of characters of a result that the model sees; None for no limit. `ToolResult.full` has all of it."""

    @property
    def errors(self) -> ErrorText | None:
        """The text by which the model is told of an exception other than a ToolError; None for that of the agent."""

    @property
    def cached(self) -> CachePolicy | None:
        """How long a result is reused for calls with the same arguments; None for never."""

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Check arguments, as far as that is possible without a call."""

    def is_held(self, context: Any) -> bool:
        """Return whether the call of this context, whose run has stopped, still waits in this process, to be continued."""

    def result_of(self, call: ToolCall, value: Any) -> ToolResult:
        """Return the result of a call that was answered from outside, or denied, as the model sees it."""

    def call(self, arguments: Mapping[str, Any], context: Any = None) -> Any:
        """Check the arguments, run the tool, again if `retry` says so, and return its result."""

class BlockingKeepingProvider(Protocol):
    """`KeepingProvider` where nothing is async."""

    def save(self, fact: Fact, subject: Subject, scope: Scope, *, owner: str = "") -> None:
        """As in FactProvider, for one owner."""

    def withdraw(self, withdrawal: Withdrawal, subject: Subject, scope: Scope, *, owner: str = "") -> None:
        """Take back values of a concept with several, as its next version: from then on they are not known, but stay in the history."""

    def load(
        self, concept: Concept, subject: Subject, scope: Scope, *, owner: str = "", as_of: datetime | None = None
    ) -> list[Fact]:
        """As in FactProvider, of one owner and as of a moment: the facts that hold then, as known now. By default, those that hold now."""

    def load_all(self, subject: Subject, scope: Scope, *, owner: str = "", as_of: datetime | None = None) -> list[Fact]:
        """As in FactProvider, of one owner and as of a moment."""

    def load_by_description(
        self, description: str, subject: Subject, scope: Scope, *, owner: str = "", as_of: datetime | None = None
    ) -> list[Fact]:
        """As in FactProvider, of one owner and as of a moment."""

    def history(
        self, concept: Concept, subject: Subject, scope: Scope, *, owner: str = "", at: datetime | None = None
    ) -> list[FactVersion]:
        """Return every version of a concept's facts as it was saved, withdrawals among them, the newest first."""

    def forget(
        self,
        *,
        concept: Concept | None = None,
        subject: Subject | None = None,
        scope: Scope | None = None,
        value: str | None = None,
        owner: str = "",
        everything: bool = False,
    ) -> Receipt:
        """Remove every version of all facts of an owner that match the arguments, from memory and from the disk."""

    def export(self, *, owner: str | None = None) -> Iterator[dict[str, object]]:
        """Yield every version of every fact (of one owner, or of all) as plain JSON data, oldest first."""

    def import_(self, records: Sequence[dict[str, object]]) -> int:
        """Store the records that `export` returned, without loss, except facts that exist already (same id). Return the number of new facts."""

    def verify(self) -> int:
        """Read and check everything. Return the number of facts, counting all versions."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

class BlockingSqliteStore(Protocol):
    """`SqliteStore` where nothing is async."""

    @property
    def path(self) -> Path:
        """The file. While it is open, there are two more, which belong to it: their names end with `-wal` and `-shm`."""

    def get(self, key: Key) -> Item | None:
        """Return the item under a key, or None."""

    def get_many(self, keys: Iterable[Key]) -> dict[Key, Item]:
        """Return the items under `keys` as of one moment, in their order, without those that do not exist."""

    def scan(
        self, prefix: Key, *, after: Key | None = None, limit: int | None = None, reverse: bool = False
    ) -> Iterator[Item]:
        """Return the items whose keys begin with `prefix`, in order. Changes made meanwhile after the last item are seen."""

    def commit(self, *changes: Change, along: Callable[[Any], object] | None = None) -> None:
        """Make all changes or none; they are durable when this returns. If it is cancelled, it has made all or none."""

    def sync(self) -> None:
        """Make everything durable that was committed, which takes one wait for the disk with `synchronous="NORMAL"`."""

    def read(self, function: Callable[[Any], T]) -> T:
        """Return the result of a function, which is called in a worker thread with a connection of apsw that no other thread uses meanwhile."""

    def verify(self) -> int:
        """Read and check everything, as far as SQLite can check it. Return the number of items."""

    def aclose(self) -> None:
        """Close the file and end its thread, after all commits and erasures that were begun."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

class BlockingMemoryStore(Protocol):
    """`MemoryStore` where nothing is async."""

    def get(self, key: Key) -> Item | None:
        """Return the item under a key, or None."""

    def get_many(self, keys: Iterable[Key]) -> dict[Key, Item]:
        """Return the items under `keys`, in their order, without those that do not exist."""

    def scan(
        self, prefix: Key, *, after: Key | None = None, limit: int | None = None, reverse: bool = False
    ) -> Iterator[Item]:
        """Return the items whose keys begin with `prefix`, in order. Changes made meanwhile after the last item are seen."""

    def commit(self, *changes: Change) -> None:
        """Make all changes or none."""

    def verify(self) -> int:
        """Return the number of items; nothing in memory could be damaged."""

    def aclose(self) -> None:
        """Do nothing; the items stay."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

class BlockingEncryptedStore(Protocol):
    """`EncryptedStore` where nothing is async."""

    @property
    def inner(self) -> Any:
        """The store that has the sealed rows."""

    @property
    def keys(self) -> Any:
        """The keys that open the store: list, add, remove, rotate and destroy them."""

    @property
    def claims(self) -> Any:
        """The claims of the inner store, with blinded keys and sealed notes; None if it has none."""

    def get(self, key: Key) -> Item | None:
        """Return the item under a key, or None."""

    def get_many(self, keys: Iterable[Key]) -> dict[Key, Item]:
        """Return the items under `keys`, in their order, without those that do not exist."""

    def scan(
        self, prefix: Key, *, after: Key | None = None, limit: int | None = None, reverse: bool = False
    ) -> Iterator[Item]:
        """Return the items whose keys begin with `prefix`; keys that are equal up to an int come in the order of that int."""

    def commit(self, *changes: Change) -> None:
        """Make all changes or none; when this returns, they are as durable as the inner store makes them."""

    def verify(self) -> int:
        """Read and check everything, also in the inner store. Return the number of items."""

    def is_anchored(self) -> bool:
        """Return whether older copies of the store are found, after comparing it with its anchor if it has one."""

    def reset_anchor(self) -> None:
        """Accept the store as it is, even if it is older than its anchor, and write the anchor anew."""

    def aclose(self) -> None:
        """Close the inner store, if it can be closed, and drop its cache. The anchor knows of all commits then."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
