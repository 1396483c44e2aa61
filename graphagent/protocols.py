"""All that can be replaced in graphagent, on one page, and what a replacement must do.

Nothing is imported here when the program runs, so that your own model, store or provider costs no import. The file is long because
most of it says what a replacement must do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime
    from types import TracebackType

    from graphagent._agent import Agent
    from graphagent.events import ModelOutput
    from graphagent.llm import ModelRequest, ModelResponse, Moderation, Tool, ToolCall, ToolResult
    from graphagent.memory import (
        Concept,
        Fact,
        FactVersion,
        KnownFact,
        KnownNote,
        Scope,
        Step,
        Subject,
        SummaryStep,
        Withdrawal,
    )
    from graphagent.memory.notes import Filter, NoteView, Record
    from graphagent.run import Context
    from graphagent.store import Change, Claimed, Item, Key, Receipt


class Model(Protocol):
    """A language model, or something that behaves like one.

    One whose answers say what they cost, as `usage.cost`, has an attribute `tells_cost = True`; a budget of money needs that.
    """

    @property
    def name(self) -> str:
        """How the model is called, such as `gpt-5-mini`."""
        ...

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        """Return the model's whole answer to a request.

        With `on_text` the answer is streamed: it is called with each piece of text as it arrives, and must not block. The
        returned response is the same with and without.

        Raises:
            ModelRequestError: the server refused, answered with something other than the protocol, or cannot be reached.
        """
        ...


class Moderator(Protocol):
    """Says whether a text may pass, for the node `moderate`."""

    async def moderate(self, text: str) -> Moderation:
        """Return the verdict about a text.

        Where there is none it raises, so that nothing passes unchecked.
        """
        ...


class Store(Protocol):
    """Bytes under keys. Keys are tuples of text and int segments, of which the first is the room (`facts`, `runs`, …).

    A store opens at its first use, needs no closing to be durable, and is bound to no event loop.
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
        number, or in the opposite order with `reverse`. `after` continues after a key that an earlier scan with the same prefix
        and direction returned.

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
    """A store that reads many items in one operation, as all stores of graphagent do. Other stores are asked for one after the other."""

    async def get_many(self, keys: Iterable[Key]) -> dict[Key, Item]:
        """Return the items under `keys`, in their order, without those that do not exist.

        Raises:
            StoreError: the store cannot be read.
        """
        ...


class ClaimingStore(Store, Protocol):
    """A store that says who has a run, so that processes on any number of machines can share it.

    For a store without claims, each process looks whether the other one lives, which it can do on one machine only.
    """

    @property
    def claims(self) -> Claims | None:
        """The claims, or None where it has none, as an EncryptedStore around a SqliteStore."""
        ...


class Claims(Protocol):
    """Who has what for a while, all of it by the clock of one store. Times and leases are in milliseconds.

    A process renews the claims of all its runs with one call, from a thread of its own with an event loop of asyncio.

    A claim ends when it is released, or when its time is over: it has **lapsed** then, also if nobody takes it, and its holder can
    neither renew it nor have it back. Claims are not items: a store need not make them durable before its next commit, and a copy
    or a backup of it has none.
    """

    @property
    def lease(self) -> int:
        """For how long a run is claimed at a time. A run whose process died is free after that: 15,000 in stores of graphagent."""
        ...

    @property
    def heartbeat(self) -> int:
        """How long after it was taken or renewed a claim is renewed, at most a third of the lease: 5,000 in stores of graphagent."""
        ...

    async def now(self) -> int:
        """Return the time of the store, in milliseconds UTC.

        Raises:
            StoreError: the store cannot be read.
        """
        ...

    async def take(self, key: Key, holder: str, lease: int, *, after: int = 0, note: bytes = b"") -> Claimed | None:
        """Claim a key, and return the claim; None if somebody else has it. Of several takers at the same time, one has it.

        Args:
            key: What is claimed.
            holder: Who claims it: a text that nobody else passes.
            lease: For how long, from now on, unless it is renewed.
            after: A number of a claim that is known to be over. A claim up to it is replaced even if its time is not over, and
                the new one has a higher number: one more than `after` or than the one before, whichever is higher.
            note: Bytes that `lapsed` returns with it, up to some thousand.

        Raises:
            StoreError: the store cannot be read or written. It is not known whether the claim was taken.
        """
        ...

    async def renew(self, claims: Iterable[Claimed], lease: int) -> list[Claimed]:
        """Have claims end one lease from now, all in one operation, and return those that were lost: lapsed, released, or taken.

        A claim is found by its key, its holder and its number.

        Raises:
            StoreError: the store cannot be read or written. It is not known which claims were renewed.
        """
        ...

    async def release(self, claims: Iterable[Claimed]) -> None:
        """End claims, so that others can take them at once, and keep nothing of them. Those that were lost are left alone.

        Raises:
            StoreError: the store cannot be read or written.
        """
        ...

    async def holders(self, keys: Iterable[Key]) -> dict[Key, Claimed]:
        """Return the claims of keys, in one operation. Claims that lapsed and were not taken since are among them.

        Raises:
            StoreError: the store cannot be read.
        """
        ...

    async def lapsed(self, room: str, limit: int) -> list[Claimed]:
        """Return claims that lapsed and that nobody has taken since, the earliest first.

        Args:
            room: The first segment of their keys.
            limit: At most so many.

        Raises:
            StoreError: the store cannot be read.
        """
        ...


class Dispatcher(Protocol):
    """Brings word of runs that are due to workers, sooner than these find them in the store.

    All that it brings are hints: one may be lost, come late, or come twice. A worker asks the store who has a run before it executes
    it, and looks into the store at intervals for runs that nobody brought word of. So a dispatcher need not be durable, and what it
    raises is logged and holds nothing up.

    Where only those with a key may know whose runs a store has, `owner` and `run_id` are empty: a worker looks into the store then.
    """

    async def tell(self, owner: str, run_id: str, *, queue: str, priority: int) -> None:
        """Bring word of a run to one worker that takes from its queue. Of runs that wait, those of a higher priority come first."""
        ...

    def listening(
        self, queues: Collection[str] | None
    ) -> AbstractAsyncContextManager[Callable[[], Awaitable[tuple[str, str]]]]:
        """Connect a worker for as long as an `async with` block is executed, and return the function by which it takes runs.

        The function waits for a run of one of these queues, of any for None, and returns its owner and its id. It is brought to nobody
        else. One task at a time calls it, and cancels it if the worker finds work elsewhere; no run is lost then.
        """
        ...


class Anchor(Protocol):
    """Where an encrypted store keeps its anchor, such as an entry of a service: up to a thousand bytes, which are no secret.

    Both methods may be async; others are called in a thread. Processes with one anchor should see what the others have written last.
    """

    def read(self) -> bytes | Awaitable[bytes | None] | None:
        """Return what was written last, or None if nothing was ever written. What it raises becomes the cause of an AnchorError."""
        ...

    def write(self, content: bytes, /) -> object:
        """Store some bytes; they are durable when this returns."""
        ...


@runtime_checkable
class ToolServer(Protocol):
    """A server that offers tools, such as an MCP server. Which tools these are is known only when it is asked."""

    @property
    def name(self) -> str:
        """Identifies it among the servers of an agent, and in the logs of its runs."""
        ...

    @property
    def required(self) -> bool:
        """Whether a run fails that cannot get its tools. Otherwise the run has none of them."""
        ...

    async def list_tools(self, ctx: Context[Any]) -> Sequence[Mapping[str, Any]]:
        """Return the descriptions of its tools, as JSON data. They are recorded, so that a run keeps the tools that it began with.

        Args:
            ctx: The run that has them listed, which may be asked to wait for a person.

        Raises:
            ToolServerError: it cannot be reached, or its answer is not valid.
        """
        ...

    def tools_from(self, listed: Sequence[Mapping[str, Any]]) -> Sequence[Tool]:
        """Return the tools of such descriptions. This asks nobody.

        Raises:
            ToolServerError: a description is not valid.
        """
        ...

    async def aclose(self) -> None:
        """Close its connection in this event loop, after the calls that are pending. It is opened again where it is needed."""
        ...


class Embedder(Protocol):
    """Makes vectors of texts, by which texts of similar meaning are found."""

    @property
    def name(self) -> str:
        """The name and version of the embedder. Vectors of embedders with different names are never compared."""
        ...

    async def embed(self, texts: Sequence[str]) -> Iterable[Iterable[float]]:
        """Return a vector for each text, in their order, all with the same number of dimensions: lists or a numpy array.

        The vectors need not be normalised.

        Raises:
            EmbedderError: they could not be made.
        """
        ...


@runtime_checkable
class WordEmbedder(Embedder, Protocol):
    """An embedder that also makes a vector of each word of a text, from the same computation.

    With these, notes compare every word of a question with the nearest word of a note (late interaction). If the vector of a word
    does not depend on the words around it, an attribute `contextual = False` says so: notes then rank with weights for such vectors.
    """

    async def embed_words(
        self, texts: Sequence[str]
    ) -> tuple[Iterable[Iterable[float]], Iterable[Iterable[Iterable[float]]]]:
        """Return the vectors that `embed` returns, and for each text the vectors of its words, in the order of the words.

        Vectors of words have as many dimensions as those of texts: lists, or for each text a numpy array with a row for each
        word. A text may have none. Which parts of a text are words is up to the embedder. If a question has as many as it has runs
        of letters and digits, of which each Chinese, Japanese or Korean character is one, they count by how rare they are in the
        notes, otherwise all the same.

        Raises:
            EmbedderError: they could not be made.
        """
        ...


class Reranker(Protocol):
    """Scores texts by how well they answer a question, having read both. This orders notes better than searching, and costs more."""

    @property
    def name(self) -> str:
        """How errors name it."""
        ...

    async def rerank(self, query: str, texts: Sequence[str]) -> Iterable[float]:
        """Return a score for each text, in their order, the higher the better: a list or a numpy array of finite numbers.

        Scores are only compared with those of the same call.

        Raises:
            RerankerError: they could not be made.
        """
        ...


class NoteIndex(Protocol):
    """A search engine for notes, besides their store. What it finds is ranked by the notes."""

    async def add(self, records: Sequence[Record]) -> None:
        """Add records that were committed; they replace those with the same ids."""
        ...

    async def remove(self, owner: str, ids: Sequence[str]) -> None:
        """Erase records of an owner."""
        ...

    async def search(self, query: str, fits: Filter, limit: int) -> Mapping[str, Mapping[str, float]]:
        """Return, for each kind of score (`lexical`, `semantic`), the scores of the records that it finds, by their ids.

        Only records for which `fits.matches(record)` holds should be found, because they alone count towards the limit. `semantic`
        are cosines, which count as relevance; `lexical` may have any scale above 0, because they are only compared with each other.
        """
        ...


@runtime_checkable
class FactProvider(Protocol):
    """Stores facts: four methods, their parameters by position or by keyword."""

    async def save(self, fact: Fact, subject: Subject, scope: Scope) -> None:
        """Store a fact. It is durable when this returns; earlier versions stay in the history of providers that have one.

        A fact that has an id and no version keeps that id, by which a node that is executed again finds what it saved.

        Raises:
            StoreError: it could not be stored; nothing is half-written.
        """
        ...

    async def load(self, concept: Concept, subject: Subject, scope: Scope) -> list[Fact]:
        """Return the facts of a concept, found by its keyword: the last SingleFact; or MultipleFacts, oldest first.

        A KeepingProvider returns the values of MultipleFacts as one fact, each value once.

        Raises:
            StoreError: it could not be read.
        """
        ...

    async def load_all(self, subject: Subject, scope: Scope) -> list[Fact]:
        """Return the facts of every concept, as `load` does for one.

        Raises:
            StoreError: it could not be read.
        """
        ...

    async def load_by_description(self, description: str, subject: Subject, scope: Scope) -> list[Fact]:
        """Return the facts whose concept's description contains `description`, ignoring case.

        Raises:
            StoreError: it could not be read.
        """
        ...


@runtime_checkable
class KeepingProvider(FactProvider, Protocol):
    """A fact provider with owners, history, time, forgetting, export and checking. Every provider of graphagent is one.

    Each owner (a user, a tenant) has scopes of its own. `owner=""` is the owner of everything that was saved without one.

    What is known follows from the versions of a concept in the order of saving, whatever the clock said:

    - A SingleFact holds from `valid_from`, or else from when it was recorded (its timestamp, or that of a later version if that is
      earlier), until `valid_to`. One that has ended ends earlier ones with its value, unless it is trusted less. Of those that hold at
      a moment, the one that was saved last is known. If it is untrusted, the last one that is not is known too, and comes first.
    - Of MultipleFacts, the values are known that were added by that moment and not withdrawn by then. An untrusted Withdrawal takes back
      untrusted values alone.

    `as_of` and `at` are datetimes with a time zone; one without raises ValueError.
    """

    async def save(self, fact: Fact, subject: Subject, scope: Scope, *, owner: str = "") -> None:
        """As in FactProvider, for one owner."""
        ...

    async def withdraw(self, withdrawal: Withdrawal, subject: Subject, scope: Scope, *, owner: str = "") -> None:
        """Take back values of a concept with several, as its next version: from then on they are not known, and the history has them.

        Raises:
            ValueNotFoundError: a value is not known; nothing is withdrawn.
            ValueError: the concept has one value.
            StoreError: it could not be stored.
        """
        ...

    async def load(
        self, concept: Concept, subject: Subject, scope: Scope, *, owner: str = "", as_of: datetime | None = None
    ) -> list[Fact]:
        """As in FactProvider, of one owner, and as of a moment: what holds then, as is known now. By default, what holds now."""
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

        With `at`, only those that had been recorded at that moment.
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

        With `everything`, and nothing else but the owner, all that this owner has is removed. With a concept with several values and
        `value`, that value is removed from every version, and a Withdrawal without values is added. A version without another value
        becomes such a Withdrawal, too.

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
        """Store the records that `export` returned, without loss, except facts that exist already (same id). Return how many were new.

        Raises:
            ValueError: a record is not one of an export; nothing is stored.
        """
        ...

    async def verify(self) -> int:
        """Read and check everything. Return the number of facts, counting all versions.

        Raises:
            DamagedStoreError: something was tampered with, cut off or is corrupt.
        """
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


class Feature(Protocol):
    """Something that is installed into an agent: `agent.install(MyFeature, setting=…)` calls `MyFeature(setting=…)`.

    A class that inherits from Feature defines only the methods that it needs: each has a default, which changes nothing. A class
    that does not inherit from it must have `install`, `begin` and `bind`, and all of `tools`, `shown`, `before_request` and
    `make_room` if it has one of these, and both of `refers` and `look_up`.
    """

    changes_answers: bool = True
    """Whether its `around_model` may return another answer than the model gave. If so, listeners hear text when it has returned, as a
    whole; middleware that only watches says False, and text is streamed through it."""

    def install(self, agent: Agent[Any, Any]) -> None:
        """Look at the agent once, before its first run: check its strategy, add event handlers.

        Raises:
            FeatureError: the agent or its strategy does not fit; the feature is not installed.
        """

    async def begin(self, ctx: Context[Any]) -> None:
        """Look at a run before its first node, and again whenever it is resumed.

        Raises:
            GraphAgentError: the run is refused.
        """

    def bind(self, ctx: Context[Any]) -> Self:
        """Return what `ctx.feature(MyFeature)` returns: this feature, acting for one run. By default it is the feature itself."""
        return self

    async def ended(self, ctx: Context[Any], output: Any) -> None:
        """Look at a run that has ended. Its output is stored if there is a store, and nothing that this raises changes that.

        The output is None where somebody ended the run before it came to END.

        Called again when a run that has ended is resumed, since its process may have died here. If runs of sub-agents have the
        same feature, it is called for the outermost run alone, and not at all in a rerun on recorded results.
        """

    @property
    def background(self) -> bool:
        """Whether it learns in the background: its `ended`, and the taps that need it and only learn, wait until the run has ended.

        What they are to do is committed with the answer, and done in any process, by `agent.settle()` for example. A model or memory that
        fails then is reported by ExtractionFailed, and tried again. False by default. It needs a store.
        """
        return False

    @property
    def learns(self) -> bool:
        """Whether its `ended` learns from the run, as it does in the background.

        If so, and with a store, that it is to learn is committed with the answer, and `ended` is called until it has succeeded, and then no
        more. A model or memory that fails is reported by ExtractionFailed.
        """
        return self.background

    def learns_for(self, feature: Feature) -> bool:
        """Return whether `ended` of this feature stands in for that of another one, which a sub-agent has. By default it does not."""
        return False

    @property
    def tools(self) -> Sequence[Tool]:
        """Tools offered to the model in addition to the agent's own, in every request that offers some. None by default."""
        return ()

    def shown(self, result: ToolResult) -> ToolResult:
        """Return the result of a tool call as it is recorded, passed on and shown to the model. Unchanged by default."""
        return result

    async def before_request(self, ctx: Context[Any], tools: Sequence[Tool]) -> None:
        """Change the steps from which a prompt is about to be derived: `ctx.add`, or an assignment to a step in `ctx.memory.steps`.

        Called by `ctx.build_prompt`, which a node may call several times before a turn.

        Raises:
            RunError: the run cannot continue, for example because a budget is used up.
        """

    async def make_room(self, ctx: Context[Any], tools: Sequence[Tool]) -> bool:
        """Change the steps after a prompt was refused as too long. Return False, the default, if nothing was changed.

        Called by `ctx.compact`.

        Raises:
            RunError: the run cannot continue.
        """
        return False

    async def around_model(
        self, ctx: Context[Any], request: ModelRequest, proceed: Callable[[ModelRequest], Awaitable[ModelResponse]]
    ) -> ModelResponse:
        """Return the answer to a request: `return await proceed(request)` asks the model.

        It may pass on another request, return another answer, answer without asking, or ask several times; each time counts in the
        budgets of tokens and money, and as a turn. The run records what it returns, so it is not called again for an answer that is
        recorded. What it asks a model itself, by `ctx.request`, does not pass through middleware. Of several features, the one that
        was installed first is the outermost.

        Raises:
            ModelError: as `proceed` raises it, or for a request that must not be sent.
        """
        return await proceed(request)

    async def around_tool(
        self, ctx: Context[Any], call: ToolCall, proceed: Callable[[ToolCall], Awaitable[ToolResult]]
    ) -> ToolResult:
        """Return the result of a tool call: `return await proceed(call)` calls the tool.

        It sees calls that are about to be made: people have approved them, and the tool exists. What the tool raises is a result with
        `is_error`. It may pass on another call, return another result, or call the tool again. The run records what it returns.

        Raises:
            ToolError: the call is refused; the model sees the text.
        """
        return await proceed(call)

    async def around_node(self, ctx: Context[Any], value: Any, proceed: Callable[[Any], Awaitable[Any]]) -> Any:
        """Return the output of a node for its input: `return await proceed(value)` executes the node, with its retries and timeouts.

        Taps, forks and strategies that are used as nodes are nodes, too; what it returns for a tap is not used. `ctx.node` is the path of
        the node. It proceeds at most once. A node that is executed again after an interruption is wrapped again.

        Raises:
            Exception: as `proceed` raises it, or its own: edges for errors take both.
        """
        return await proceed(value)

    def check_request(self, ctx: Context[Any], request: ModelRequest, output: ModelOutput) -> None:
        """Check a request, and what it is for, just before it is sent.

        Raises:
            ModelRequestError: it must not be sent.
        """

    @property
    def refers(self) -> bool:
        """Whether the logs of runs may refer to facts instead of containing them, because `look_up` finds them again."""
        return False

    async def look_up(self, facts: Sequence[KnownFact], *, owner: str) -> list[KnownFact]:
        """Return facts, in their order, as they were when a model was shown them; those forgotten since say so.

        Called for the facts to which the log of a run refers, whenever it is read, and when the run begins with them or continues.

        Raises:
            StoreError: they could not be read.
        """
        return list(facts)

    async def look_up_notes(self, notes: Sequence[KnownNote], *, owner: str) -> list[KnownNote]:
        """Return notes, whole, as they were when a model was shown them; those forgotten since say so.

        Called for the notes to which the log of a run refers, whenever it is read, and when the run begins with them or continues.
        If no feature defines it, logs contain the notes themselves.

        Raises:
            StoreError: they could not be read.
        """
        return list(notes)

    @property
    def places(self) -> Sequence[Store | FactProvider | NoteView]:
        """Where it keeps what belongs to owners, for `agent.places`. Nowhere by default.

        What is no store, no notes and no provider has the `forget` and the `export` of a KeepingProvider to be one of them.
        """
        return ()


class Compression(Protocol):
    """A way to summarise steps."""

    @property
    def keep(self) -> int:
        """The number of model turns at the end that are not summarised."""
        ...

    async def compress(self, ctx: Context[Any], steps: Sequence[Step]) -> SummaryStep | None:
        """Return the step that replaces others in prompts; None if they shall stay as they are.

        The caller sets which steps it covers.

        Raises:
            ModelError: a model was asked, and failed or returned nothing of use.
        """
        ...
