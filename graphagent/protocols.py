"""The protocols of all replaceable parts of graphagent, on one page, with the requirements for a replacement.

At run time this module imports no other room, so your own model, store or provider costs no import. The file is long because
most of it describes the requirements for a replacement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime
    from types import TracebackType

    from graphagent._agent import Agent
    from graphagent.llm._messages import ModelRequest, ModelResponse, ToolCall, ToolResult
    from graphagent.llm._moderation import Moderation
    from graphagent.llm._tools import Tool
    from graphagent.memory._blocks import KnownFact, KnownNote
    from graphagent.memory._note_values import Filter, Record
    from graphagent.memory.facts._types import Concept, Fact, FactVersion, Scope, Subject, Withdrawal
    from graphagent.memory.steps._types import Step, SummaryStep
    from graphagent.run import Context
    from graphagent.store import Change, Claimed, Item, Key, Receipt

ModelOutput = Literal["answer", "draft", "plan", "summary", "extraction", "decision", "tool"]
"""The purpose of a request to a model: `answer` for turns, `draft` for turns before the answer (thoughts, results of steps, texts that may be
refused), `plan` when an agent or a strategy plans, `summary` when the history is compressed, `extraction` when facts and notes are looked for
in the conversation, `decision` when the model judges, criticises, moderates or chooses, or writes several answers of which one is chosen,
`tool` when a tool asks the model."""


class Model(Protocol):
    """A language model, or an object that behaves like one.

    A model whose answers have their cost in `usage.cost` has an attribute `tells_cost = True`; a budget of money requires it.
    """

    @property
    def name(self) -> str:
        """The name of the model, such as `gpt-5-mini`."""
        ...

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        """Return the model's whole answer to a request.

        With `on_text` the answer is streamed: the function is called with each piece of text as it arrives, and must not block.
        The returned response is the same with and without it.

        Raises:
            ModelRequestError: the server refused, answered with something other than the protocol, or cannot be reached.
        """
        ...


class Moderator(Protocol):
    """Decides whether a text may pass, for the node `moderate`."""

    async def moderate(self, text: str) -> Moderation:
        """Return the verdict about a text.

        It raises if no verdict can be reached, so that no text passes unchecked.
        """
        ...


class Store(Protocol):
    """Bytes under keys. Keys are tuples of text and int segments, of which the first is the room (`facts`, `runs`, …).

    A store opens at its first use, is durable without being closed, and is not bound to an event loop.
    """

    async def get(self, key: Key) -> Item | None:
        """Return the item under a key, or None.

        Raises:
            StoreError: the store cannot be read; DamagedStoreError and WrongKeyError say why.
        """
        ...

    def scan(
        self, prefix: Key, *, after: Key | None = None, limit: int | None = None, reverse: bool = False
    ) -> AsyncIterator[Item]:
        """Return the items whose keys begin with the segments of `prefix`.

        Only the order of int segments is promised: keys that are equal up to an int segment come in the order of that
        number. Keys that begin with the same segments come one after the other, and the order of two keys is the same in each scan, and
        the opposite one with `reverse`. `after` continues after a key that an earlier scan returned, in any direction and with
        any prefix that has it.

        Raises:
            StoreError: the store cannot be read.
        """
        ...

    async def commit(self, *changes: Change) -> None:
        """Make all changes or none. They are durable when this returns.

        Raises:
            ConflictError: an item does not have the version that a change expects, or does not exist.
            NotErasedError: all changes are made, but bytes of what DeleteAll removed may still be on the disk.
            StoreError: the store cannot be written.
        """
        ...


class BatchStore(Store, Protocol):
    """A store that reads many items in one operation, as all stores of graphagent do. Other stores are asked for one item after the other."""

    async def get_many(self, keys: Iterable[Key]) -> dict[Key, Item]:
        """Return the items under `keys`, in their order, without those that do not exist.

        Raises:
            StoreError: the store cannot be read.
        """
        ...


class ClaimingStore(Store, Protocol):
    """A store that records who executes a run, so that processes on any number of machines can share the store.

    With a store without claims, each process checks whether the other process is alive, which works only on one machine.
    """

    @property
    def claims(self) -> Claims | None:
        """The claims, or None if the store has none, such as an EncryptedStore around a SqliteStore."""
        ...


class Claims(Protocol):
    """Claims of keys for a limited time, by the clock of one store. Times and leases are in milliseconds.

    A process renews the claims of all its runs with one call, from a thread of its own with an event loop of asyncio.

    A claim ends when it is released, or when its time is over: it has then **lapsed**, even if nobody takes it, and its holder
    can neither renew nor regain it. Claims are not items: a store need not make them durable before its next commit, and copies
    and backups of the store do not contain them.
    """

    @property
    def lease(self) -> int:
        """The time for which a run is claimed at a time. A run whose process died is free after it: 15,000 in stores of graphagent."""
        ...

    @property
    def heartbeat(self) -> int:
        """The time after which a claim is renewed again, at most a third of the lease: 5,000 in stores of graphagent."""
        ...

    async def now(self) -> int:
        """Return the time of the store, in milliseconds UTC.

        Raises:
            StoreError: the store cannot be read.
        """
        ...

    async def take(self, key: Key, holder: str, lease: int, *, after: int = 0, note: bytes = b"") -> Claimed | None:
        """Claim a key, and return the claim; None if another holder has it. Of several takers at the same time, one gets it.

        Args:
            key: The key to claim.
            holder: The holder of the claim: a text that no other holder uses.
            lease: The duration of the claim from now on, unless it is renewed.
            after: The number of a claim that is known to be over. A claim up to this number is replaced even if its time is not
                over, and the new claim has a higher number: one more than `after` or than the previous claim, whichever is
                higher.
            note: Bytes that `lapsed` returns with the claim, up to some thousand.

        Raises:
            StoreError: the store cannot be read or written. It is not known whether the claim was taken.
        """
        ...

    async def renew(self, claims: Iterable[Claimed], lease: int) -> list[Claimed]:
        """Extend claims to one lease from now, all in one operation, and return those that were lost: lapsed, released, or taken.

        A claim is found by its key, its holder and its number.

        Raises:
            StoreError: the store cannot be read or written. It is not known which claims were renewed.
        """
        ...

    async def release(self, claims: Iterable[Claimed]) -> None:
        """End claims, so that others can take them at once, and delete them. Claims that were lost are not changed.

        Raises:
            StoreError: the store cannot be read or written.
        """
        ...

    async def holders(self, keys: Iterable[Key]) -> dict[Key, Claimed]:
        """Return the claims of keys, in one operation, including claims that lapsed and were not taken since.

        Raises:
            StoreError: the store cannot be read.
        """
        ...

    async def lapsed(self, room: str, limit: int) -> list[Claimed]:
        """Return claims that lapsed and that nobody has taken since, the earliest first.

        Args:
            room: The first segment of their keys.
            limit: The maximum number of claims.

        Raises:
            StoreError: the store cannot be read.
        """
        ...


class Dispatcher(Protocol):
    """Notifies workers of runs that are due, sooner than the workers find them in the store.

    Its notifications are hints: one may be lost, come late, or come twice. A worker claims a run in the store before it
    executes the run, and looks into the store at intervals for runs without a notification. So a dispatcher need not be
    durable, and its errors are logged and delay nothing.

    If only holders of a key may know whose runs a store has, `owner` and `run_id` are empty, and a worker looks into the store.
    """

    async def tell(self, owner: str, run_id: str, *, queue: str, priority: int) -> None:
        """Notify one worker that takes from the queue of a run. Of the waiting runs, those of a higher priority come first."""
        ...

    def listening(
        self, queues: Collection[str] | None
    ) -> AbstractAsyncContextManager[Callable[[], Awaitable[tuple[str, str]]]]:
        """Connect a worker for the duration of an `async with` block, which yields the function by which the worker takes runs.

        The function waits for a run of one of these queues, or of any queue for None, and returns its owner and its id. No
        other worker is notified of that run. One task at a time calls the function, and cancels it if the worker finds work
        elsewhere; no run is lost then.
        """
        ...


class Anchor(Protocol):
    """Where an encrypted store keeps its anchor, such as an entry of a service: up to a thousand bytes, which are not secret.

    Both methods may be async; plain methods are called in a thread. Processes that share an anchor should see the last write of
    the others.
    """

    def read(self) -> bytes | Awaitable[bytes | None] | None:
        """Return the bytes that were written last, or None if there are none. Its exceptions become the cause of an AnchorError."""
        ...

    def write(self, content: bytes, /) -> object:
        """Store the bytes. They are durable when this method returns."""
        ...


@runtime_checkable
class ToolServer(Protocol):
    """A server that offers tools, such as an MCP server. The tools are known only when the server is asked."""

    @property
    def name(self) -> str:
        """Identifies the server among the servers of an agent, and in the logs of runs."""
        ...

    @property
    def required(self) -> bool:
        """Whether a run fails if it cannot get the tools of the server. Otherwise it continues without them."""
        ...

    async def list_tools(self, ctx: Context[Any]) -> Sequence[Mapping[str, Any]]:
        """Return the descriptions of the tools, as JSON data. They are recorded, so that a run keeps the tools that it began with.

        Args:
            ctx: The context of the run that lists the tools, which may be asked to wait for a person.

        Raises:
            ToolServerError: the server cannot be reached, or its answer is not valid.
        """
        ...

    def tools_from(self, listed: Sequence[Mapping[str, Any]]) -> Sequence[Tool]:
        """Return the tools of such descriptions, without asking the server.

        Raises:
            ToolServerError: a description is not valid.
        """
        ...

    async def aclose(self) -> None:
        """Close the connection of this event loop, after the pending calls. It is opened again when it is needed."""
        ...


class Embedder(Protocol):
    """Turns texts into vectors, by which texts of similar meaning are found."""

    @property
    def name(self) -> str:
        """The name and version of the embedder. Vectors of embedders with different names are never compared."""
        ...

    async def embed(self, texts: Sequence[str]) -> Iterable[Iterable[float]]:
        """Return a vector for each text, in their order, all with the same number of dimensions: lists or a numpy array.

        The vectors need not be normalised.

        Raises:
            EmbedderError: the vectors could not be made.
        """
        ...


@runtime_checkable
class WordEmbedder(Embedder, Protocol):
    """An embedder that also makes a vector of each word of a text, from the same computation.

    Notes use them to compare every word of a question with the nearest word of a note (late interaction). If the vector of a
    word does not depend on the words around it, set an attribute `contextual = False`: notes then rank with weights for such
    vectors.
    """

    async def embed_words(
        self, texts: Sequence[str]
    ) -> tuple[Iterable[Iterable[float]], Iterable[Iterable[Iterable[float]]]]:
        """Return the vectors of the texts as `embed` does, and for each text the vectors of its words, in their order.

        Vectors of words have as many dimensions as those of texts: lists, or for each text a numpy array with a row for each
        word. A text may have none. The embedder decides which parts of a text are words. If a question has as many vectors as
        it has sequences of letters and digits, where each Chinese, Japanese or Korean character is a sequence, the words are
        weighted by how rare they are in the notes; otherwise all words have the same weight.

        Raises:
            EmbedderError: the vectors could not be made.
        """
        ...


class Reranker(Protocol):
    """Scores texts by how well they answer a question, reading both together. This ranks notes better than searching, and costs more."""

    @property
    def name(self) -> str:
        """The name of the reranker in errors."""
        ...

    async def rerank(self, query: str, texts: Sequence[str]) -> Iterable[float]:
        """Return a score for each text, in their order, the higher the better: a list or a numpy array of finite numbers.

        Scores are only compared with those of the same call.

        Raises:
            RerankerError: the scores could not be made.
        """
        ...


class NoteIndex(Protocol):
    """A search engine for notes, besides their store. The notes rank its results."""

    async def add(self, records: Sequence[Record]) -> None:
        """Add records that were committed; they replace records with the same ids."""
        ...

    async def remove(self, owner: str, ids: Sequence[str]) -> None:
        """Erase records of an owner."""
        ...

    async def search(self, query: str, fits: Filter, limit: int) -> Mapping[str, Mapping[str, float]]:
        """Return, for each kind of score (`lexical`, `semantic`), the scores of the matching records, by their ids.

        Only records for which `fits.matches(record)` holds should be found, because they alone count towards the limit. `semantic`
        are cosines, which count as relevance; `lexical` may have any scale above 0, because they are only compared with each other.
        """
        ...


@runtime_checkable
class FactProvider(Protocol):
    """Stores facts. It has four methods, whose parameters are passed by position or by keyword."""

    async def save(self, fact: Fact, subject: Subject, scope: Scope) -> None:
        """Store a fact. It is durable when this method returns; earlier versions stay in the history of providers that have one.

        A fact that has an id and no version keeps that id, by which a node that is executed again finds the fact that it saved.

        Raises:
            StoreError: the fact could not be stored; nothing is half-written.
        """
        ...

    async def load(self, concept: Concept, subject: Subject, scope: Scope) -> list[Fact]:
        """Return the facts of a concept, found by its keyword: the last SingleFact; or MultipleFacts, oldest first.

        A KeepingProvider returns the values of MultipleFacts as one fact, each value once.

        Raises:
            StoreError: the facts could not be read.
        """
        ...

    async def load_all(self, subject: Subject, scope: Scope) -> list[Fact]:
        """Return the facts of every concept, as `load` does for one.

        Raises:
            StoreError: the facts could not be read.
        """
        ...

    async def load_by_description(self, description: str, subject: Subject, scope: Scope) -> list[Fact]:
        """Return the facts whose concept's description contains `description`, ignoring case.

        Raises:
            StoreError: the facts could not be read.
        """
        ...


@runtime_checkable
class KeepingProvider(FactProvider, Protocol):
    """A fact provider with owners, history, time, forgetting, export and checking. Every provider of graphagent is one.

    Each owner (a user, a tenant) has scopes of its own. `owner=""` is the owner of everything that was saved without one.

    The known values follow from the versions of a concept in the order of saving, whatever the clock said:

    - A SingleFact holds from `valid_from`, or else from when it was recorded (its timestamp, or that of a later version if that
      is earlier), until `valid_to`. A fact that has ended also ends earlier facts with its value, unless it is trusted less. Of
      the facts that hold at a moment, the one saved last is known. If it is untrusted, the last fact that is not untrusted is
      known too, and comes first.
    - Of MultipleFacts, the known values are those that were added by that moment and not withdrawn by then. An untrusted
      Withdrawal takes back only untrusted values.

    `as_of` and `at` are datetimes with a time zone; a datetime without one raises ValueError.
    """

    async def save(self, fact: Fact, subject: Subject, scope: Scope, *, owner: str = "") -> None:
        """As in FactProvider, for one owner."""
        ...

    async def withdraw(self, withdrawal: Withdrawal, subject: Subject, scope: Scope, *, owner: str = "") -> None:
        """Take back values of a concept with several, as its next version: from then on they are not known, but stay in the history.

        Raises:
            ValueNotFoundError: a value is not known; nothing is withdrawn.
            ValueError: the concept has one value.
            StoreError: the withdrawal could not be stored.
        """
        ...

    async def load(
        self, concept: Concept, subject: Subject, scope: Scope, *, owner: str = "", as_of: datetime | None = None
    ) -> list[Fact]:
        """As in FactProvider, of one owner and as of a moment: the facts that hold then, as known now. By default, those that hold now."""
        ...

    async def load_all(
        self, subject: Subject, scope: Scope, *, owner: str = "", as_of: datetime | None = None
    ) -> list[Fact]:
        """As in FactProvider, of one owner and as of a moment."""
        ...

    async def load_by_description(
        self, description: str, subject: Subject, scope: Scope, *, owner: str = "", as_of: datetime | None = None
    ) -> list[Fact]:
        """As in FactProvider, of one owner and as of a moment."""
        ...

    async def history(
        self, concept: Concept, subject: Subject, scope: Scope, *, owner: str = "", at: datetime | None = None
    ) -> list[FactVersion]:
        """Return every version of a concept's facts as it was saved, withdrawals among them, the newest first.

        With `at`, only versions that had been recorded at that moment.
        """
        ...

    async def forget(
        self,
        *,
        concept: Concept | None = None,
        subject: Subject | None = None,
        scope: Scope | None = None,
        value: str | None = None,
        owner: str = "",
        everything: bool = False,
    ) -> Receipt:
        """Remove every version of all facts of an owner that match the arguments, from memory and from the disk.

        With `everything`, and nothing else but the owner, all data of this owner are removed. With a concept with several
        values and `value`, that value is removed from every version, and a Withdrawal without values is added. A version
        without another value becomes such a Withdrawal too.

        Raises:
            ValueError: neither a concept, a subject, a scope nor `everything` is passed, so that a variable that is None by
                accident removes nothing; one of them together with `everything`; or a value without its concept, or of a concept that
                has one value.
        """
        ...

    def export(self, *, owner: str | None = None) -> AsyncIterator[dict[str, object]]:
        """Yield every version of every fact (of one owner, or of all) as plain JSON data, oldest first."""
        ...

    async def import_(self, records: Sequence[dict[str, object]]) -> int:
        """Store the records that `export` returned, without loss, except facts that exist already (same id). Return the number of new facts.

        Raises:
            ValueError: a record does not come from an export; nothing is stored.
        """
        ...

    async def verify(self) -> int:
        """Read and check everything. Return the number of facts, counting all versions.

        Raises:
            DamagedStoreError: stored bytes were tampered with, cut off or are corrupt.
        """
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class Feature(Protocol):
    """An extension that is installed into an agent: `agent.install(MyFeature, setting=…)` calls `MyFeature(setting=…)`.

    A class that inherits from Feature defines only the methods that it needs; the default of each method changes nothing. A
    class that does not inherit from it must have `install`, `begin` and `bind`, all of `tools`, `shown`, `before_request` and
    `make_room` if it has one of these, and both or none of `refers` and `look_up`.
    """

    changes_answers: bool = True
    """Whether `around_model` may return another answer than the model's. If so, listeners hear the whole text when it has returned;
    middleware that only observes returns False, and text is streamed through it."""

    def install(self, agent: Agent[Any, Any]) -> None:
        """Called once with the agent, before its first run: to check its strategy, to add event handlers.

        Raises:
            FeatureError: the agent or its strategy does not fit; the feature is not installed.
        """

    async def begin(self, ctx: Context[Any]) -> None:
        """Called with a run before its first node, and again whenever the run is resumed.

        Raises:
            GraphAgentError: the run is refused.
        """

    def bind(self, ctx: Context[Any]) -> Self:
        """Return the result of `ctx.feature(MyFeature)`: this feature, acting for one run. By default the feature itself."""
        return self

    async def ended(self, ctx: Context[Any], output: Any) -> None:
        """Called with a run that has ended. Its output is stored if there is a store, even if this method raises.

        The output is None if the run was ended before it came to END.

        Called again when a run that has ended is resumed, since its process may have died here. If runs of sub-agents have the
        same feature, the method is called only for the outermost run. In a rerun on recorded results it is not called.
        """

    @property
    def background(self) -> bool:
        """Whether the feature learns in the background: its `ended`, and the taps that need it and only learn, wait until the run has ended.

        Their work is committed with the answer, and done in any process, by `agent.settle()` for example. A model or memory
        that fails then is reported by ExtractionFailed, and tried again. False by default. Learning in the background requires
        a store.
        """
        return False

    @property
    def learns(self) -> bool:
        """Whether `ended` learns from the run, as it does in the background.

        If so, and with a store, the request to learn is committed with the answer, and `ended` is called until it has
        succeeded, and not again. A model or memory that fails is reported by ExtractionFailed.
        """
        return self.background

    def learns_for(self, feature: Feature) -> bool:
        """Return whether `ended` of this feature replaces that of another feature, which a sub-agent has. False by default."""
        return False

    @property
    def tools(self) -> Sequence[Tool]:
        """Tools offered to the model in addition to the agent's own, in every request that offers some. None by default."""
        return ()

    def shown(self, result: ToolResult) -> ToolResult:
        """Return the result of a tool call in the form that is recorded, passed on and shown to the model. By default unchanged."""
        return result

    async def before_request(self, ctx: Context[Any], tools: Sequence[Tool]) -> None:
        """Change the steps from which a prompt is about to be derived, by `ctx.add` or by assignment to a step in `ctx.memory.steps`.

        Called by `ctx.build_prompt`, which a node may call several times before a turn.

        Raises:
            RunError: the run cannot continue, for example because a budget is used up.
        """

    async def make_room(self, ctx: Context[Any], tools: Sequence[Tool]) -> bool:
        """Change the steps after a prompt was refused as too long. Return False, as by default, if nothing was changed.

        Called by `ctx.compact`.

        Raises:
            RunError: the run cannot continue.
        """
        return False

    async def around_model(
        self, ctx: Context[Any], request: ModelRequest, proceed: Callable[[ModelRequest], Awaitable[ModelResponse]]
    ) -> ModelResponse:
        """Return the answer to a request: `return await proceed(request)` asks the model.

        The method may pass on another request, return another answer, answer without asking, or ask several times; each request
        counts in the budgets of tokens and money, and as a turn. The run records the returned answer, so the method is not
        called again for a recorded answer. Its own requests by `ctx.request` do not pass through middleware. Of several
        features, the one installed first is the outermost.

        Raises:
            ModelError: as raised by `proceed`, or for a request that must not be sent.
        """
        return await proceed(request)

    async def around_tool(
        self, ctx: Context[Any], call: ToolCall, proceed: Callable[[ToolCall], Awaitable[ToolResult]]
    ) -> ToolResult:
        """Return the result of a tool call: `return await proceed(call)` calls the tool.

        The method sees calls that are about to be made: people have approved them, and the tool exists. An error of the tool is
        a result with `is_error`. The method may pass on another call, return another result, or call the tool again. The run
        records the returned result.

        Raises:
            ToolError: the call is refused; the model sees the text.
        """
        return await proceed(call)

    @property
    def is_idle(self) -> bool:
        """Whether the middleware of the feature only passes on, so that a run that begins or continues leaves it out. False by default."""
        return False

    async def around_run(self, ctx: Context[Any], proceed: Callable[[], Awaitable[None]]) -> None:
        """Execute a run: `await proceed()` executes it until it ends, waits, sleeps, is paused or fails.

        Context variables that the method sets are seen by the nodes, the tools and their threads. The method is called once for
        each beginning and each resumption, also of the run of a sub-agent, and with `run.step()` for each step. It must let
        pass what `proceed` raises: a run that stops before its end does so by an exception that is not an `Exception`.

        Raises:
            Exception: as raised by `proceed`, or an exception of its own, which ends the run.
        """
        await proceed()

    async def around_node(self, ctx: Context[Any], value: Any, proceed: Callable[[Any], Awaitable[Any]]) -> Any:
        """Return the output of a node for its input: `return await proceed(value)` executes the node, with its retries and timeouts.

        Taps, forks and strategies that are used as nodes are nodes, too; the value returned for a tap is not used. `ctx.node`
        is the path of the node. The method may call `proceed` at most once. A node that is executed again after an interruption
        is wrapped again.

        Raises:
            Exception: as raised by `proceed`, or an exception of its own: edges for errors take both.
        """
        return await proceed(value)

    def check_request(self, ctx: Context[Any], request: ModelRequest, output: ModelOutput) -> None:
        """Check a request and its purpose just before it is sent.

        Raises:
            ModelRequestError: the request must not be sent.
        """

    @property
    def refers(self) -> Collection[Literal["fact", "note"]]:
        """The kinds to which the logs of runs refer instead of containing them, because `look_up` finds them again. None by default."""
        return ()

    async def look_up(self, known: Sequence[Any], *, owner: str) -> Sequence[KnownFact | KnownNote]:
        """Return facts or notes, in their order, as they were when a model was shown them; those forgotten since are marked as forgotten.

        Called, once for each kind in `refers`, for the facts (KnownFact) or the notes (KnownNote) to which the log of a run refers,
        whenever it is read, and when the run begins with them or continues. Of several features that refer to a kind, the one
        installed first is asked.

        Raises:
            StoreError: the store could not be read.
        """
        return known

    @property
    def places(self) -> Sequence[object]:
        """The places where the feature keeps data of owners, for `agent.places`: stores, providers of facts, and notes. By default none.

        Anything else must have the methods `forget` and `export` of a KeepingProvider.
        """
        return ()


class Compression(Protocol):
    """A way to summarise steps."""

    @property
    def keep(self) -> int:
        """The number of model turns at the end that are not summarised."""
        ...

    async def compress(self, ctx: Context[Any], steps: Sequence[Step]) -> SummaryStep | None:
        """Return the step that replaces the given steps in prompts; None to leave them unchanged.

        The caller sets which steps the new step covers.

        Raises:
            ModelError: a model was asked, and failed or returned no usable answer.
        """
        ...
