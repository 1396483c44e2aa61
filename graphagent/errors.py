"""Every error of graphagent, on one page.

```
GraphAgentError
├ StrategyError (ValueError)          a strategy is wrong; .problems lists everything that is wrong with it
├ FeatureError                        a feature is missing, or installed wrongly or too late
├ RunError                            .run_id
│  ├ NodeFailedError                  .node, .reason; what the node raised is the __cause__
│  ├ NoPathError                      .node, .tried; no edge of a node takes its output
│  ├ HandlerError                     .event; a handler of events raised an error, which is the __cause__
│  ├ RuleError                        .rule, .node, .after, .path; a node that a rule forbids there was not begun
│  ├ BudgetError                      .budget, .limit, .result (the work done so far)
│  ├ VetoError                        .step, .reason; a callback refused a step
│  ├ CheckError                       .check; the answer did not pass a final check, and no node can ask a model again
│  ├ RunNotFoundError (LookupError)   the store has no such run
│  ├ RunExistsError                   a run with this id exists already
│  ├ RunClaimedError                  .holder; another process, or another task, executes the run
│  │  └ LeaseLostError                this process may have lost the run, and did nothing more for it
│  ├ RunEndedError                    the run was ended before it came to END, and nothing continues it
│  ├ RunQueuedError                   .due; the run was submitted and has not begun, so it has no entries
│  ├ TooManyDeathsError               .deaths; too many processes died while they executed the run, and no worker takes it again
│  ├ SubmissionSizeError (ValueError) .size, .limit; the input of a submitted run is too large for the store
│  ├ OwnerBusyError                   .owner, .run_ids; an owner cannot be forgotten while their runs are being executed
│  ├ ThreadBusyError                  .thread, .status; the last run of the thread has not ended
│  ├ ThreadFullError                  .thread, .limit; the maximum number of submitted runs of a thread is waiting
│  ├ ThreadExistsError                .thread; a conversation cannot begin a thread that has begun already
│  ├ StrategyChangedError             .differences; the strategy has changed since the run began
│  │  └ MigrationError                .before, .after; a run of an earlier version could not be moved to a later one
│  ├ JournalError (StoreError)        an entry could not be stored; the error of the store is the __cause__
│  ├ AnswerError (ValueError)         .question; an answer does not fit an open question, or its type
│  │  └ LateAnswerError               .deadline; a question was answered after it had expired
│  ├ UnknownOutcomeError              .node, .key; a call of `ctx.once` was broken off, and must not be repeated
│  └ DivergedError                    .node; a node that is executed again does something other than was recorded
├ ModelError                          the model's side failed
│  ├ ModelRequestError                .status, .retry_after, .detail; the server refused or cannot be reached
│  │  ├ PromptTooLongError            .tokens, .limit, .largest; a prompt does not fit into the window, and was not sent
│  │  ├ ContentFilterError            .categories; the server's content filter objected to the prompt or to the answer
│  │  └ AllModelsFailedError          .errors; every model of a FallbackModel failed
│  └ OutputError                      .output; the answer does not fit the request, even after asking again
│     └ TruncatedError                .usage; the answer was cut off at its limit of tokens, and half of it is of no use
├ NodeTypeError (TypeError)           a node gets or returns a value of another type than it declares
├ NodeTimeoutError (TimeoutError)     .node, .seconds; a node took longer than its `.timeout`
├ UnpricedModelError (ValueError)     .model, .max_cost; a budget of money cannot count the costs of a model
├ AbandonedThreadsError               .functions; too many blocking functions still run after a time limit or a cancellation
├ LeakedCancellationError             .where; a node, tool or branch awaited a cancelled task, and nobody cancelled the run
├ QuestionError                       .node; a node asks two questions under the same id
├ CacheError                          .node; a cached node does more than compute its output
├ ToolServerError                     .server, .status; a server of tools cannot be reached, or its answer is not valid
├ ToolError                           raised in a tool, is shown to the model; the run continues
│  ├ ArgumentsError                   .tool, .problems; a call's arguments do not fit the tool
│  ├ ToolTimeoutError (TimeoutError)  .tool, .seconds; a call took longer than the tool allows
│  ├ DeclinedError                    .node, .question, .reason, .by; a person declined to answer a node or a tool
│  └ QuestionExpiredError (TimeoutError) .node, .question, .deadline; nobody answered a question of a node or a tool in time
├ Veto                                .reason; raised in a step callback, refuses the step or the tool call
├ StoreError (OSError)                a store cannot be read or written
│  ├ ConflictError                    .key; an item is not at the expected version
│  ├ StoreNotFoundError (FileNotFoundError) .path; the store does not exist, and reading does not create it
│  ├ ReadOnlyStoreError (PermissionError) .path; this process may read the store, but not write it
│  ├ StoreUnavailableError (ConnectionError) .where, .in_doubt; the server of a store cannot be reached, or refuses
│  ├ StoreExistsError (FileExistsError) .path; the path for a new store exists already
│  ├ StoreInUseError                  .path; a store cannot be replaced while it is open
│  ├ DamagedStoreError                .where; tampered with, cut off or corrupt
│  │  └ RolledBackError               .where; an older copy was put in the place of a store, or of a part of it
│  ├ AnchorError                      .anchor; an anchor is missing or damaged, or belongs to another store
│  ├ NotForgottenError                .receipt, .left; some data that should be forgotten are left, in the named places
│  ├ NotErasedError                   .where; the commit is made, but bytes that it deletes may still be in the file
│  ├ KeySourceError                   .source; the variable, file, keyring entry or function for the key has no key
│  ├ WrongKeyError                    .where; sound, but sealed with another key
│  ├ RemovedKeyError                  .where, .name, .removed; the key opened the store once, and was removed
│  ├ DestroyedStoreError              .where, .destroyed; the keys of the store were destroyed, and nobody can read it again
│  ├ NewerFormatError                 .where; sound, but written by a newer graphagent
│  ├ SealedStoreError                 .where; sound, but sealed, and it was opened without its key
│  └ PlainStoreError                  .where; sound, but not sealed, and it was opened with a key
├ ValueNotFoundError (LookupError)    .keyword, .values; a value cannot be withdrawn, since it is not known
├ NoteError                           a note cannot be kept, and why
│  ├ ScopeError (ValueError)          .scope; a scope is not a valid path
│  ├ NotePermissionError (PermissionError) a view of notes does not permit the operation
│  ├ NoteNotFoundError (LookupError)  .id; a view of notes has no such note
│  ├ AmbiguousNoteError (LookupError) .candidates; several notes have an id that begins or ends with a text
│  ├ EmbedderError                    an embedder failed, or returned something other than vectors
│  │  └ EmbedderChangedError          .stored; the vectors were made by another embedder
│  └ RerankerError                    a reranker failed, or returned something other than scores
├ SerializationError (TypeError)      a value is of a type that cannot be kept
├ UnsupportedError                    .provider, .ability; the provider lacks an optional ability
├ MissingExtraError (ImportError)     .extra; an optional dependency is not installed
└ ScriptError (AssertionError)        a test's model was asked for more than its script or recording has
```

The file is long because it is the one page of all errors. Messages name the fault, its object, the possible values and the remedy. They
never contain a secret or the value of a fact. All errors can be pickled, if the result that they carry, if any, can be.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from traceback import TracebackException
from typing import TYPE_CHECKING, Any

from graphagent._article import a, counted, kind_of
from graphagent._error_source import source_of

if TYPE_CHECKING:
    from datetime import datetime
    from decimal import Decimal

    from graphagent._details import FailedRequest, Problem, Usage
    from graphagent.run import RunResult

_CANDIDATES = 4
"""How many ids or names a message has at most."""


class GraphAgentError(Exception):
    """The base class of all errors that graphagent raises itself."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Constructors take parts, not the finished text, so unpickling by the default (class, args) would call them wrongly.
        return _restore, (type(self), self.args, dict(self.__dict__), self.__cause__)


def _restore(
    kind: type[GraphAgentError], args: tuple[Any, ...], state: dict[str, Any], cause: BaseException | None
) -> GraphAgentError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    error.__cause__ = cause
    return error


class StrategyError(GraphAgentError, ValueError):
    """A strategy is wrong and was not made."""

    def __init__(self, strategy: str, problems: Sequence[Problem]) -> None:
        self.strategy = strategy
        """The name of the strategy."""
        self.problems = tuple(problems)
        """Everything that is wrong with it, in the order of its paths."""
        found = counted(len(self.problems), "problem")
        super().__init__("\n".join([f"strategy {strategy!r} has {found}:", *(f"  {each}" for each in self.problems)]))


class FeatureError(GraphAgentError):
    """A feature is missing, was installed wrongly, or too late."""


class RunError(GraphAgentError):
    """A run cannot continue."""

    run_id: str = ""
    """The id of the run; empty if the error was raised outside a run."""


def _shown(error: BaseException) -> str:
    """Return an error as Python shows it, without the module of its type."""
    kind = type(error)
    shown = "".join(TracebackException(kind, error, None).format_exception_only()).strip()
    return kind.__name__ + shown.removeprefix(f"{kind.__module__}.").removeprefix(kind.__qualname__)


class NodeFailedError(RunError):
    """A node raised; the original exception is the `__cause__`."""

    def __init__(self, node: str, cause: BaseException) -> None:
        self.node = node
        """The path of the node, such as `draft` or `count/words`."""
        inner = next((each for each in (cause, cause.__cause__) if isinstance(each, NodeFailedError)), None)
        self.reason: str = _shown(cause) if inner is None else inner.reason
        """The error of the node as text, such as `ValueError: no such city`. An error that was stored has no `__cause__`."""
        # Foreign messages may contain values, so only our own are repeated.
        said = f": {cause}" if isinstance(cause, GraphAgentError) else ""
        source = source_of(cause)
        where = f" in {source}" if source else ""
        super().__init__(f"node {node!r} failed with {type(cause).__name__}{where}{said}")


class NoPathError(RunError):
    """No edge of a node takes its output."""

    def __init__(self, node: str, output: object, tried: Sequence[str]) -> None:
        self.node = node
        """The path of the node."""
        self.tried = tuple(tried)
        """The edges that were tried, in order, as they are drawn."""
        tried = ", ".join(self.tried) or "none"
        super().__init__(
            f"node {node!r} gave {kind_of(output)} that none of its edges takes (tried: {tried}); "
            f"add a path for it, or .otherwise() for the rest"
        )


class RuleError(RunError):
    """A run came to a node or a tool call that a rule of its strategy forbids there. The node or call was not begun."""

    def __init__(self, rule: str, node: str, after: str, path: Sequence[str], reason: str) -> None:
        self.rule = rule
        """The rule, as it was written."""
        self.node = node
        """The path of the node that was not begun; for a tool call, the path of the node and the tool."""
        self.after = after
        """The path of the node, with the tool for a tool call, after which the rule forbids it; empty if something is required before it."""
        self.path = ("START", *path)
        """The nodes to which the run came, in their order, each once."""
        super().__init__(f"{node!r} was not begun, by the rule {rule}: {reason}; the path: {' -> '.join(self.path)}")


class HandlerError(RunError):
    """A handler of events raised an error, the `__cause__`. It ends the run: no error path, retry or fork takes it.

    A step callback that raises, or that writes a value of a wrong type into a step, also causes this error; the step keeps its
    old value. Outside a run, the operation on notes raises it.
    """

    def __init__(self, handler: str, event: str, cause: BaseException, *, wrong: str = "") -> None:
        self.event = event
        """The type of the event."""
        how = (
            f"wrote a wrong value: {wrong}"
            if wrong
            else f"failed with {type(cause).__name__}; a handler has to catch its own errors, since nothing else does"
        )
        super().__init__(f"the handler {handler!r} of {event} {how}")


class BudgetError(RunError):
    """A run has used up one of its budgets."""

    def __init__(self, budget: str, limit: Decimal | float, result: RunResult[Any], *, where: str = "") -> None:
        self.budget = budget
        """The budget: `nodes`, `turns`, `tokens`, `cost` or `seconds`."""
        self.limit = limit
        """The limit of the budget."""
        self._result = result
        self.where = where
        """The path of the strategy that has the budget; empty for a budget of the agent."""
        whose, more = (
            (f" of strategy {where!r}", f".using(max_{budget}=…)") if where else ("", f"Agent(max_{budget}=…)")
        )
        amount = f"{limit:,} cost" if budget == "cost" else counted(limit, budget.removesuffix("s"))
        super().__init__(f"the budget{whose} of {amount} is used up; give it more with {more} to go further")

    @property
    def result(self) -> RunResult[Any]:
        """The result of the whole run so far; its `output` raises.

        Raises:
            AttributeError: the error is the input of a node of a stored run, since the store keeps only attributes of plain data.
        """
        found: RunResult[Any] | None = vars(self).get("_result")
        if found is None:
            raise AttributeError(
                "a BudgetError that a stored run gives to a node has no result; ctx.memory of the node has the steps so far"
            )
        return found


class VetoError(RunError):
    """A callback refused a step, and the run does not continue. It can be resumed; a refused task is then shown to it again."""

    def __init__(self, step: str, reason: str) -> None:
        self.step = step
        """The type of the step."""
        self.reason = reason
        """The reason that the callback gave. It may repeat content of the step: do not log it by default."""
        super().__init__(f"a callback refused {a(step)}; .reason says why")


class CheckError(RunError):
    """The answer of a run did not pass one of its final checks, and no node can ask a model again."""

    def __init__(self, check: str) -> None:
        self.check = check
        """The name of the check."""
        super().__init__(
            f"the final answer did not pass {check!r}, and no node of the strategy asked a model that could be asked again; "
            f"answer with llm_request(), or check in a node of your own"
        )


class RunNotFoundError(RunError, LookupError):
    """The store has no such run."""

    def __init__(self, run_id: str, owner: str) -> None:
        self.run_id = run_id
        if owner:
            said = "of this owner in the store; `graphagent runs list --owner NAME` lists the runs"
        else:
            said = "in the store; `graphagent runs list` lists the runs. A run that began with an owner= is found with the same owner="
        super().__init__(f"there is no run {run_id!r} {said}")


class RunExistsError(RunError):
    """A run with this id exists already; nothing was written."""

    def __init__(self, run_id: str, owner: str = "") -> None:
        self.run_id = run_id
        whose = f", owner={owner!r}" if owner else ""
        super().__init__(
            f"there is a run {run_id!r} already; continue it with agent.resume({run_id!r}{whose}), or give another run_id="
        )


class RunClaimedError(RunError):
    """Another process, or another task of this process, executes the run. Nothing was written."""

    def __init__(self, run_id: str, holder: str) -> None:
        self.run_id = run_id
        self.holder = holder
        """The holder of the claim: the host and the process."""
        super().__init__(
            f"run {run_id!r} is being executed by {holder}; wait until it ends or is suspended. The runs of a process of this "
            f"machine are free when the process is dead; of another machine, some minutes after the last step; in a store for several "
            f"machines, at the end of its lease"
        )


class LeaseLostError(RunClaimedError):
    """The claim of a run was not renewed in time, so another process may have the run. This process did nothing more for it.

    Only stores with claims of their own have leases, such as a PostgresStore. Nothing in a strategy takes this error.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.holder = "another process, or nobody"
        RunError.__init__(
            self,
            f"run {run_id!r} was given up here: its claim was not renewed in time, because this process was stopped or the store "
            f"did not answer, and another process may have the run. If none has, agent.resume({run_id!r}) continues it, and repeats nothing "
            f"that was recorded",
        )


class RunEndedError(RunError):
    """A run was ended before it came to END, by `agent.end` or by the next message of its thread, and nothing continues it."""

    def __init__(self, run_id: str, reason: str) -> None:
        self.run_id = run_id
        super().__init__(
            f"run {run_id!r} is not continued, since {reason}; begin another run, which continues its transcript in the same "
            f"thread=, or fork it with agent.fork({run_id!r}, before=…)"
        )


class RunQueuedError(RunError):
    """A run was submitted and has not begun, so only its header can be read."""

    def __init__(self, run_id: str, due: int) -> None:
        self.run_id = run_id
        self.due = due
        """The time from which a worker may begin the run, in milliseconds UTC."""
        super().__init__(
            f"run {run_id!r} is queued and has not begun, so it has no entries yet; a worker begins it, or agent.resume({run_id!r})"
        )


class TooManyDeathsError(RunError):
    """Processes died repeatedly while they executed a run, so no worker takes it again."""

    def __init__(self, run_id: str, deaths: int) -> None:
        self.run_id = run_id
        self.deaths = deaths
        """The number of deaths, one after the other."""
        super().__init__(
            f"{deaths} processes died while they executed run {run_id!r}, one after the other; look for what ends them, such as memory, and "
            f"then go on with agent.resume({run_id!r})"
        )


class SubmissionSizeError(RunError, ValueError):
    """The input of a submitted run is too large. Nothing was written."""

    def __init__(self, run_id: str, size: int, limit: int) -> None:
        self.run_id = run_id
        self.size = size
        """The number of bytes of the task, its images and the steps before it."""
        self.limit = limit
        """The maximum number of bytes."""
        super().__init__(
            f"the task of run {run_id!r}, with its images and steps, has {size:,} bytes, and a submitted run may begin with at most "
            f"{limit:,}; keep large data elsewhere, and submit its name"
        )


class OwnerBusyError(RunError):
    """Runs that would store more data of an owner are being executed, so the owner cannot be forgotten. Nothing was removed."""

    def __init__(self, owner: str, run_ids: Sequence[str]) -> None:
        self.owner = owner
        self.run_ids = tuple(run_ids)
        """The runs that are being executed."""
        self.run_id = self.run_ids[0]
        named = ", ".join(map(repr, self.run_ids[:_CANDIDATES])) + (" …" if len(self.run_ids) > _CANDIDATES else "")
        whose = f"of owner {owner!r}" if owner else "without an owner"
        super().__init__(
            f"{counted(len(self.run_ids), 'run')} {whose} being executed: {named}; wait until they end, or break off all runs with "
            f"forget_runs(store, owner={owner!r})"
        )


class ThreadBusyError(RunError):
    """The last run of a thread has not ended. Nothing was written."""

    def __init__(self, thread: str, run_id: str, status: str, owner: str = "") -> None:
        self.thread = thread
        self.run_id = run_id
        """The run that has not ended."""
        self.status = status
        """`running`, `waiting`, `sleeping` or `paused`."""
        whose = f", owner={owner!r}" if owner else ""
        end = f"or end it as it is with agent.end({run_id!r}, reason{whose}), or with if_busy='end' of the next run"
        remedy = {
            "running": "wait until it ends",
            "waiting": f"answer it with agent.resume({run_id!r}, answer=…{whose}), {end}",
        }.get(status, f"resume it with agent.resume({run_id!r}{whose}), {end}")
        super().__init__(
            f"run {run_id!r} of thread {thread!r} is {status}, and the next one continues after it; {remedy}"
        )


class ThreadFullError(RunError):
    """The maximum number of submitted runs of a thread is waiting. Nothing was written."""

    def __init__(self, thread: str, limit: int) -> None:
        self.thread = thread
        self.limit = limit
        """The maximum number of waiting runs."""
        super().__init__(
            f"{counted(limit, 'submitted run')} of thread {thread!r} wait already, the maximum; submit the next one when one has begun, or with a "
            f"higher max_queued="
        )


class ThreadExistsError(RunError):
    """A conversation cannot be the beginning of a thread that has begun already. Nothing was written."""

    def __init__(self, thread: str, run_id: str) -> None:
        self.thread = thread
        self.run_id = run_id
        """The last run of the thread."""
        super().__init__(
            f"thread {thread!r} has begun already, its last run is {run_id!r}; give the conversation another thread, or remove this one "
            f"with forget_thread first"
        )


class StrategyChangedError(RunError):
    """The strategy has changed since the run began. Nothing was executed."""

    def __init__(self, run_id: str, differences: Sequence[str], *, fits: bool = False) -> None:
        self.run_id = run_id
        self.differences = tuple(differences)
        """The removed (`- …`) and the new lines (`+ …`)."""
        remedy = (
            "resume it with the code that it began with, or, since its journal still fits, with allow_changed=True"
            if fits
            else "its journal does not fit this code, so allow_changed=True does not help; resume it with the code that it began with, "
            "restore the missing parts, or say by a Migration where it continues"
        )
        super().__init__(
            "\n".join(
                [
                    f"the strategy has changed since run {run_id!r} began:",
                    *(f"  {each}" for each in self.differences),
                    remedy,
                ]
            )
        )


class MigrationError(StrategyChangedError):
    """A run of an earlier version could not be moved to a later one. Nothing was executed or written."""

    def __init__(self, run_id: str, before: str, after: str, reason: str) -> None:
        self.run_id = run_id
        self.differences = ()
        self.before = before
        """The version before the migration."""
        self.after = after
        """The version after the migration."""
        RunError.__init__(
            self,
            f"run {run_id!r} could not be moved from version {before!r} to {after!r}: {reason}; correct the Migration, and resume the run",
        )


class AnswerError(RunError, ValueError):
    """An answer does not fit an open question, or is not of the type that was asked for. Nothing was written."""

    def __init__(self, question: str, reason: str, problems: Sequence[str] = ()) -> None:
        self.question = question
        """The id of the question; empty if there is none."""
        self.problems = tuple(problems)
        """The part of the answer that does not fit its type, and why, such as `count: must be a valid integer`."""
        super().__init__(reason)


class LateAnswerError(AnswerError):
    """A question was answered after the run had recorded that it had expired. Nothing was written."""

    def __init__(self, question: str, deadline: datetime) -> None:
        self.deadline = deadline
        """The deadline, in UTC."""
        shown = deadline.isoformat(" ", "seconds")
        super().__init__(
            question,
            f"question {question!r} has expired: its deadline was {shown}, and the run went on without an answer",
        )


class UnknownOutcomeError(RunError):
    """A call of `ctx.once` was broken off, its outcome is unknown, and it must not be repeated."""

    def __init__(self, node: str, key: str) -> None:
        self.node = node
        """The path of the node."""
        self.key = key
        """The key that `ctx.once` was given."""
        super().__init__(
            f"node {node!r} was broken off during {key!r}, whose outcome is unknown; find out, and catch this "
            "error in the node, or resume the run with in_flight='ask'"
        )


class DivergedError(RunError):
    """A node that is executed again on recorded results does something other than was recorded. Nothing live was called."""

    def __init__(self, node: str, reason: str) -> None:
        self.node = node
        """The path of the node."""
        super().__init__(f"node {node!r} does something other than was recorded: {reason}")


class ModelError(GraphAgentError):
    """The model's side failed."""

    usage: Usage | None = None
    """The tokens that the failed request used, if the server counted them; they count in the run."""
    failed: tuple[FailedRequest, ...] = ()
    """All requests that failed, including the last, if a request was repeated or another model was asked."""


class ModelRequestError(ModelError):
    """The server refused a request, answered with something other than the protocol, or cannot be reached."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        detail: str = "",
        sent: bool = True,
        is_final: bool = False,
    ) -> None:
        self.status = status
        """The HTTP status, if there was an answer."""
        self.retry_after = retry_after
        """The seconds that the server asked to wait."""
        self.detail = detail
        """The text of the server. It may repeat data that was sent: do not log it by default."""
        self.sent = sent
        """Whether anything was sent: without a key or a connection, nothing is. Such a request does not count as a turn."""
        self.is_final = is_final
        """Whether the same request would fail again, whatever the status."""
        super().__init__(message)


class PromptTooLongError(ModelRequestError):
    """A prompt is longer than the ContextWindow allows even after compression, and was not sent; or its model refused it as too long."""

    def __init__(
        self,
        message: str,
        *,
        tokens: int = 0,
        limit: int = 0,
        largest: str = "",
        status: int | None = None,
        detail: str = "",
    ) -> None:
        self.tokens = tokens
        """The approximate number of tokens of the prompt; 0 if its model refused it."""
        self.limit = limit
        """The maximum number of tokens; 0 if its model refused the prompt."""
        self.largest = largest
        """The largest part of the prompt, such as `the task`; empty if its model refused it."""
        super().__init__(message, status=status, detail=detail)


class ContentFilterError(ModelRequestError):
    """The server's content filter objected: to the prompt, which was refused, or to the answer, which was withheld."""

    def __init__(
        self,
        message: str,
        *,
        categories: Sequence[str] = (),
        status: int | None = None,
        detail: str = "",
        usage: Usage | None = None,
    ) -> None:
        self.categories = tuple(categories)
        """The categories to which the filter objected, as the server names them, such as `violence`; empty if the server does not say."""
        super().__init__(message, status=status, detail=detail)
        self.usage = usage


class AllModelsFailedError(ModelRequestError):
    """Every model of a FallbackModel failed. The text names each model with its reason."""

    def __init__(self, reasons: Sequence[tuple[str, str]], errors: Sequence[Exception]) -> None:
        self.errors = tuple(errors)
        """The error of each model, in the order in which the models were asked."""
        asked = [each for each in self.errors if isinstance(each, ModelRequestError)]
        waits = [each.retry_after for each in asked if each.retry_after is not None]
        # The status is that of the first error, for callers that look only at the status.
        super().__init__(
            f"all {len(reasons)} models failed: "
            + "; ".join(f"{model!r}: {reason}" for model, reason in reasons)
            + ". Try again later, or add a model that can answer to the FallbackModel",
            status=asked[0].status if asked else None,
            retry_after=min(waits, default=None),
            detail="\n".join(each.detail for each in asked if each.detail),
            sent=any(getattr(each, "sent", True) for each in self.errors),
        )


class OutputError(ModelError):
    """The answer of the model does not fit the request, even after the model was asked again."""

    def __init__(self, message: str, *, output: str, usage: Usage | None = None) -> None:
        self.output = output
        """The last answer, unchanged. It may contain words of the user: do not log it by default."""
        super().__init__(message)
        self.usage = usage


class TruncatedError(OutputError):
    """The model stopped at its limit of tokens (`finish_reason` is `length`), and half of the requested answer is of no use.

    Raised for JSON, tool calls and summaries, and for an answer without text. The model is not asked again, since it would stop
    at the same place.
    """


class NodeTypeError(GraphAgentError, TypeError):
    """A node gets or returns a value of another type than it declares. This error is the cause of a NodeFailedError."""


class NodeTimeoutError(GraphAgentError, TimeoutError):
    """A node took longer than its `.timeout`, and was cancelled unless it blocked. This error is the cause of a NodeFailedError."""

    def __init__(self, node: str, seconds: float) -> None:
        self.node = node
        """The name of the node, tap, fork or subgraph."""
        self.seconds = seconds
        """The time limit in seconds."""
        super().__init__(f"{node!r} took longer than {counted(seconds, 'second')}, its .timeout")


class UnpricedModelError(GraphAgentError, ValueError):
    """A run has a budget of money, but the answers of a model do not say what they cost. The model was not asked."""

    def __init__(self, model: str, max_cost: object) -> None:
        self.model = model
        """The name of the model."""
        self.max_cost = max_cost
        """The budget of money."""
        super().__init__(
            f"max_cost={max_cost} would never be used up: the model {model!r} does not say what its answers cost; write "
            f"PricedModel(model, Prices(input=…, output=…)), of graphagent.llm, or Agent(…, allow_unpriced=True) to count the others alone"
        )


class AbandonedThreadsError(GraphAgentError):
    """A blocking function was not called, since too many are still running in abandoned threads.

    A time limit, a lost race or another cancellation abandons the thread of a blocking function, which cannot be stopped.
    """

    def __init__(self, functions: Mapping[str, int]) -> None:
        self.functions = dict(functions)
        """The number of abandoned threads still running, by the names of their tools and functions."""
        names = ", ".join(f"{name!r} ({number})" for name, number in sorted(self.functions.items()))
        super().__init__(
            f"{sum(self.functions.values())} threads are still running that were abandoned after a time limit or a cancellation: {names}; "
            f"give their functions time limits of their own, as in httpx.get(url, timeout=10), or make them async"
        )


class LeakedCancellationError(GraphAgentError):
    """A cancellation that nobody requested for the run: something else was cancelled, such as a task that a node awaited.

    The `__cause__` is the cancellation. A run that is cancelled, a time limit and a race do not raise this error.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        """The code that raised the cancellation, such as `node 'search'` or `tool 'fetch'`."""
        super().__init__(
            f"{where} raised a cancellation, and nobody cancelled it: a task or future that it awaited was cancelled; wait for one "
            f"that is shared through asyncio.shield(), or catch the cancellation and raise an error"
        )


class QuestionError(GraphAgentError):
    """A node asks two questions under the same id."""

    def __init__(self, node: str, first: str, second: str) -> None:
        self.node = node
        """The path of the node."""
        super().__init__(
            f"node {node!r} asks {second!r}, and asked {first!r} under the same id; give each question an id of its own, and "
            f"make its text from recorded values"
        )


class CacheError(GraphAgentError):
    """A cached node does more than compute its output, which a run that finds the output in the store would skip."""

    def __init__(self, node: str, what: str) -> None:
        self.node = node
        """The path of the node."""
        super().__init__(
            f"node {node!r} is cached and {what}, which a run that finds its output would not do; leave out .cached(…)"
        )


class ToolServerError(GraphAgentError):
    """A server of tools, such as an MCP server, cannot be reached, ended during a call, or its answer is not valid.

    Raised when a run begins, it ends the run, which can be resumed; raised by a call, it is shown to the model.
    """

    def __init__(self, server: str, reason: str, *, status: int = 0) -> None:
        self.server = server
        """The name of the server."""
        self.status = status
        """The last HTTP status of the server, such as 401; 0 if there is none."""
        super().__init__(f"the tool server {server!r} {reason}")


class ToolError(GraphAgentError):
    """Raise this error in a tool to show a message to the model; the run continues."""


class ArgumentsError(ToolError):
    """The arguments of a tool call do not fit the tool's parameters; the model sees which ones, and why."""

    def __init__(self, tool: str, problems: Sequence[str]) -> None:
        self.tool = tool
        """The name of the tool."""
        self.problems = tuple(problems)
        """Each place with its reason, without the values."""
        super().__init__(f"the arguments of {tool!r} do not fit: {'; '.join(self.problems)}")


class ToolTimeoutError(ToolError, TimeoutError):
    """A tool call took longer than the tool's `timeout`; the model sees the error."""

    def __init__(self, tool: str, seconds: float) -> None:
        self.tool = tool
        """The name of the tool."""
        self.seconds = seconds
        """The time limit of an attempt in seconds."""
        super().__init__(f"{tool!r} did not return within {counted(seconds, 'second')}")


class DeclinedError(ToolError):
    """A person declined to answer a question of a node or a tool, with `Deny(reason)`. In a tool, the model sees the error."""

    def __init__(self, node: str, question: str, reason: str = "", by: str = "") -> None:
        self.node = node
        """The path of the node."""
        self.question = question
        """The id of the question."""
        self.reason = reason
        """The reason that the person gave."""
        self.by = by
        """Who declined, if the answer said so."""
        why = f": {reason}" if reason else ""
        super().__init__(f"a person declined to answer question {question!r} of node {node!r}{why}")


class QuestionExpiredError(ToolError, TimeoutError):
    """Nobody answered a question of a node or a tool before its deadline, and it had no default. In a tool, the model sees the error."""

    def __init__(self, node: str, question: str, deadline: datetime) -> None:
        self.node = node
        """The path of the node."""
        self.question = question
        """The id of the question."""
        self.deadline = deadline
        """The time until which the question could be answered, in UTC."""
        shown = deadline.isoformat(" ", "seconds")
        super().__init__(f"nobody answered question {question!r} of node {node!r} until its deadline, {shown}")


class Veto(GraphAgentError):
    """Raise this in a step callback to refuse a step.

    A tool call is not executed, and the model sees the reason; an answer of the model is asked for again, with the reason; after
    any other step the run does not continue.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        """Why."""
        super().__init__(reason)


class StoreError(GraphAgentError, OSError):
    """A store cannot be read or written."""


class JournalError(RunError, StoreError):
    """An entry of a run could not be stored; the error of the store is the `__cause__`. The run did not continue."""

    def __init__(
        self, run_id: str, cause: StoreError, owner: str = "", *, begun: bool = True, queued: bool = False
    ) -> None:
        self.run_id = run_id
        whose = f", owner={owner!r}" if owner else ""
        failed, remedy = "be kept", f"Nothing that was kept is lost; go on with agent.resume({run_id!r}{whose})"
        if queued and begun:
            failed, remedy = "be queued again", "Nothing that was kept is lost; look at its questions, and answer again"
        elif queued:
            failed, done = "be submitted", "It was not"
            if isinstance(cause, StoreUnavailableError) and cause.in_doubt:
                done = "It is not known whether it was"
            remedy = f"{done}; submit the same task with run_id={run_id!r}{whose}, which makes one run in both cases,"
        elif not begun:
            remedy = "It had not begun; run the task again"
        super().__init__(f"run {run_id!r} cannot {failed}: {cause}. {remedy} when the store works again")


class ConflictError(StoreError):
    """An item is not at the version that a change expected, or was rewritten; nothing of the commit was kept."""

    def __init__(self, key: Iterable[object], expected: int, found: int) -> None:
        self.key = tuple(key)
        """The key of the item. It may name people: do not log it by default."""
        self.expected, self.found = expected, found
        changed = (
            f"is at version {found}, not at {expected}" if found != expected else f"was rewritten at version {found}"
        )
        super().__init__(f"an item of room {self.key[0]!r} {changed}; read it again and retry")


class StoreNotFoundError(StoreError, FileNotFoundError):
    """A store, or a file to read, does not exist. Operations that only read do not create it."""

    def __init__(self, what: str, path: str, remedy: str, *, where: str = "") -> None:
        self.path = path
        """The file or folder that does not exist; for a store in a database, its schema."""
        super().__init__(f"there is no {what} {path!r}{where or f'; {_beside(Path(path))}'}; {remedy}")


def _beside(path: Path) -> str:
    """Return the contents of the folder of a path as text, names similar to the missing one first."""
    from difflib import get_close_matches

    try:
        names = [each.name + ("/" if each.is_dir() else "") for each in path.absolute().parent.iterdir()]
    except OSError:
        return f"there is no folder {os.fspath(path.parent)!r} either"
    there = sorted(name for name in names if not name.startswith("."))
    near = get_close_matches(path.name, there, n=_CANDIDATES)
    named = [*near, *(name for name in there if name not in near)]
    more = f" and {len(named) - _CANDIDATES} more" if len(named) > _CANDIDATES else ""
    return f"its folder has {', '.join(map(repr, named[:_CANDIDATES]))}{more}" if named else "its folder is empty"


class ReadOnlyStoreError(StoreError, PermissionError):
    """A store can be read, but this process may not write it. Nothing was written."""

    def __init__(
        self,
        path: str,
        remedy: str = "Allow it to write the file and its folder, or restore a copy elsewhere: graphagent restore",
    ) -> None:
        self.path = path
        """The file or folder; for a store in a database, the location of the database."""
        super().__init__(f"{path} is read-only for this process; nothing was written. {remedy}")


class StoreUnavailableError(StoreError, ConnectionError):
    """The server of a store cannot be reached, refuses the connection, or broke it off and did not come back in time."""

    def __init__(
        self,
        where: str,
        reason: str,
        remedy: str = "See whether the server runs, and whether the DSN, the user and the password are right, and try again",
        *,
        in_doubt: bool = False,
    ) -> None:
        self.where = where
        """The database and its server, without a password."""
        self.in_doubt = in_doubt
        """Whether a commit was sent that may have been made nevertheless."""
        done = (
            "It is not known whether the commit was made; read the items to see" if in_doubt else "Nothing was written"
        )
        super().__init__(f"{where} cannot be reached: {reason}. {done}. {remedy}")


class StoreExistsError(StoreError, FileExistsError):
    """The path for a new store exists already. Nothing was written."""

    def __init__(self, path: str, remedy: str) -> None:
        self.path = path
        """The file or folder."""
        super().__init__(f"{path} exists already, and nothing was written; {remedy}")


class StoreInUseError(StoreError):
    """A store cannot be replaced while it is open, in another process or in this one. Nothing was written."""

    def __init__(self, path: str) -> None:
        self.path = path
        """The file or folder."""
        super().__init__(
            f"{path} is in use, and nothing was written; end the programs that have it open, and try again"
        )


class DamagedStoreError(StoreError):
    """A store was tampered with, cut off or is corrupt. Nothing was deleted."""

    finding = "is damaged"
    """The beginning of the message, after the place."""

    def __init__(self, where: str, reason: str, *, remedy: str = "Restore it from a backup") -> None:
        self.where = where
        """The file, table or line."""
        super().__init__(f"{where} {self.finding}: {reason}; nothing was written. {remedy}")


class RolledBackError(DamagedStoreError):
    """A store, or a part of it, was replaced by an older copy. Nothing was deleted."""

    finding = "was rolled back"

    def __init__(
        self,
        where: str,
        reason: str,
        *,
        remedy: str = "Restore the newer copy; or accept the older one, without the data stored since: graphagent anchor reset",
    ) -> None:
        super().__init__(where, reason, remedy=remedy)


class AnchorError(StoreError):
    """An anchor is missing or damaged, belongs to another store, or cannot be read. Nothing of the store was read."""

    def __init__(self, anchor: str, reason: str) -> None:
        self.anchor = anchor
        """The anchor, such as its file."""
        super().__init__(f"the anchor {anchor}: {reason}")


class NotForgottenError(StoreError):
    """Some of the data that should be forgotten are left. Repeating the call continues with them; the first error is the `__cause__`."""

    def __init__(self, receipt: Any, left: Mapping[str, str]) -> None:
        self.receipt = receipt
        """The counts of removed data: a Receipt."""
        self.left = dict(left)
        """The places in which data are left, by their `repr`, and why."""
        why = "; ".join(f"{place}: {reason}" for place, reason in self.left.items())
        super().__init__(
            f"in {counted(len(self.left), 'place')} data that should be forgotten are left; repeat the call when "
            f"the reason is gone. Removed so far: {receipt!r}. Left in {why}"
        )


class NotErasedError(StoreError):
    """A commit is made and its deleted data cannot be found any more, but bytes of them may still be in the file.

    Nothing needs to be repeated: the store tries again from time to time and when it is closed, and so does every store that
    opens the file.
    """

    def __init__(self, where: str, reason: str) -> None:
        self.where = where
        """The file."""
        super().__init__(
            f"the commit is made and its deleted data cannot be found any more, but bytes of them may still be in {where}. This store, "
            f"or the next that opens the file, removes them as soon as it can. The reason: {reason}"
        )


class KeySourceError(StoreError):
    """The key of a store was not found in its source: a variable, a file, a keyring or the result of a function."""

    def __init__(self, source: str, problem: str) -> None:
        self.source = source
        """The source of the key, such as `env:NAME`; never the key."""
        super().__init__(problem)


class WrongKeyError(StoreError):
    """A store is sound, but was sealed with another key."""

    def __init__(self, where: str) -> None:
        self.where = where
        """The file."""
        super().__init__(
            f"{where} was sealed with another key; open it with a key that was added to it, or with its recovery key"
        )


class RemovedKeyError(StoreError):
    """A key that opened a store once was removed from it, for example because it was rotated."""

    def __init__(self, where: str, name: str, removed: datetime) -> None:
        self.where = where
        """The file."""
        self.name = name
        """The name of the key."""
        self.removed = removed
        """The time of the removal, in UTC."""
        super().__init__(
            f"this key opened {where} once, as {name!r}, and was removed on {removed:%Y-%m-%d at %H:%M} UTC; give this process the key "
            f"that replaced it"
        )


class DestroyedStoreError(StoreError):
    """The keys of a store were destroyed, so nobody can read its contents again."""

    def __init__(self, where: str, destroyed: datetime) -> None:
        self.where = where
        """The file."""
        self.destroyed = destroyed
        """The time of the destruction, in UTC."""
        super().__init__(
            f"the keys of {where} were destroyed on {destroyed:%Y-%m-%d at %H:%M} UTC, so nobody can read its "
            f"contents again; remove it and begin a new one, or restore a backup that may still be kept"
        )


class NewerFormatError(StoreError):
    """A store is sound, but was written by a newer graphagent. Nothing was written."""

    def __init__(self, where: str, what: str) -> None:
        self.where = where
        """The file, or the schema of a database."""
        super().__init__(f"{where} was written by a newer graphagent, {what}; nothing was written. Upgrade graphagent")


class SealedStoreError(StoreError):
    """A store is sound, but sealed, and it was opened without its key. Nothing was read or written."""

    def __init__(self, where: str) -> None:
        self.where = where
        """The file."""
        inner = "PostgresStore(dsn)" if where.startswith("schema ") else "SqliteStore(path)"
        super().__init__(
            f"{where} is sealed and was opened without its key; nothing was read or written. Give "
            f"EncryptedStore({inner}, key) in place of the store or its path"
        )


class PlainStoreError(StoreError):
    """A store is sound, but not sealed, and it was opened with a key. Nothing was written."""

    def __init__(self, where: str) -> None:
        self.where = where
        """The file."""
        super().__init__(
            f"{where} is not sealed: its contents were written without a key; nothing was written. Open it without a key, or "
            f"export its contents and import them into a new sealed store"
        )


class ValueNotFoundError(GraphAgentError, LookupError):
    """A value cannot be withdrawn, since it is not known. Nothing was withdrawn. The message contains no value."""

    def __init__(self, keyword: str, values: int) -> None:
        self.keyword = keyword
        """The keyword of the concept."""
        self.values = values
        """The number of known values of the concept."""
        known = f"{counted(values, 'value')} of it {'is' if values == 1 else 'are'} known, and not this one"
        super().__init__(
            f"a value to withdraw from {keyword!r} does not exist: {known if values else 'no value of it is known'}; "
            f"load the concept, and withdraw a value exactly as it is there"
        )


class NoteError(GraphAgentError):
    """A note cannot be kept, or notes cannot be searched."""


class ScopeError(NoteError, ValueError):
    """A scope is not valid."""

    def __init__(self, scope: object, reason: str) -> None:
        self.scope = scope
        super().__init__(reason if scope is None else f"scope {scope!r}: {reason}")


class NotePermissionError(NoteError, PermissionError):
    """A view of notes does not permit the operation."""


class NoteNotFoundError(NoteError, LookupError):
    """A view of notes has no such note."""

    def __init__(self, id_: str) -> None:
        self.id = id_
        super().__init__(f"there is no note {id_!r} here; list_records() lists the notes")


class AmbiguousNoteError(NoteError, LookupError):
    """Several notes have an id that begins or ends with the given text."""

    def __init__(self, text: str, candidates: Sequence[str]) -> None:
        self.candidates = tuple(candidates)
        """The ids of these notes, in their order."""
        more = ", …" if len(candidates) > _CANDIDATES else ""
        super().__init__(
            f"{text!r} names {len(candidates)} notes: {', '.join(candidates[:_CANDIDATES])}{more}; give more of the id"
        )


class EmbedderError(NoteError):
    """An embedder failed, or returned something other than a vector for each text."""


class EmbedderChangedError(EmbedderError):
    """The vectors of the notes were made by another embedder."""

    def __init__(self, name: str, stored: str, dimensions: int) -> None:
        self.stored = stored
        """The name of that embedder."""
        super().__init__(
            f"the vectors of these notes were made by {stored!r}, with {counted(dimensions, 'number')} each, and not by {name!r}; "
            "open the notes with that embedder, or make new vectors: reembed()"
        )


class RerankerError(NoteError):
    """A reranker failed, or returned something other than a score for each text."""


class SerializationError(GraphAgentError, TypeError):
    """A value is of a type that cannot be kept."""


class UnsupportedError(GraphAgentError):
    """A provider lacks an optional ability."""

    def __init__(self, provider: object, ability: str) -> None:
        self.provider = type(provider).__name__
        self.ability = ability
        super().__init__(
            f"{self.provider} has no {ability}; use a KeepingProvider, such as FileMemoryProvider, "
            f"StoreMemoryProvider or EncryptedMemoryProvider"
        )


class MissingExtraError(GraphAgentError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        self.extra = extra
        """The extra to install."""
        super().__init__(f"{what} needs an extra: pip install 'graphagent-ai[{extra}]'")


class ScriptError(GraphAgentError, AssertionError):
    """A test's model was asked more often than its script has replies, or for something that was not recorded."""
