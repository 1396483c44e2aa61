"""Every error of graphagent, on one page.

```
GraphAgentError
├ StrategyError (ValueError)          a strategy is wrong; .problems lists everything that is
├ FeatureError                        a feature is missing, or installed wrongly or too late
├ RunError                            .run_id
│  ├ NodeFailedError                  .node, .reason; what the node raised is the __cause__
│  ├ NoPathError                      .node, .tried; no edge of a node takes its output
│  ├ HandlerError                     .event; a handler of events raised, which is the __cause__
│  ├ RuleError                        .rule, .node, .after, .path; a node that a rule forbids there was not begun
│  ├ BudgetError                      .budget, .limit, .result (what was done so far)
│  ├ VetoError                        .step, .reason; a callback refused a step
│  ├ CheckError                       .check; the answer did not pass a final check, and no node can be asked again
│  ├ RunNotFoundError (LookupError)   the store has no such run
│  ├ RunExistsError                   a run with this id exists already
│  ├ RunClaimedError                  .holder; another process, or another task, has the run
│  │  └ LeaseLostError                this process may not have the run any more, and did nothing more for it
│  ├ RunEndedError                    the run was ended before it came to END, and nothing continues it
│  ├ RunQueuedError                   .due; the run was submitted and has not begun, so that it has no entries
│  ├ TooManyDeathsError               .deaths; so many processes died while they executed the run that no worker takes it again
│  ├ SubmissionSizeError (ValueError) .size, .limit; what a submitted run begins with is too large for the store
│  ├ OwnerBusyError                   .owner, .run_ids; runs of an owner who is to be forgotten are being executed
│  ├ ThreadBusyError                  .thread, .status; the last run of the thread has not ended
│  ├ ThreadFullError                  .thread, .limit; as many submitted runs of a thread wait as may
│  ├ ThreadExistsError                .thread; a thread that is to begin with a conversation has begun already
│  ├ StrategyChangedError             .differences; the strategy is not the one that the run began with
│  │  └ MigrationError                .before, .after; a run of an earlier version could not be moved to a later one
│  ├ JournalError (StoreError)        an entry could not be kept, since the store failed, which is the __cause__
│  ├ AnswerError (ValueError)         .question; an answer fits no open question, or not its type
│  │  └ LateAnswerError               .deadline; a question was answered after it had expired
│  ├ UnknownOutcomeError              .node, .key; what `ctx.once` began was broken off, and is not to be repeated
│  └ DivergedError                    .node; what is executed again does something else than what was recorded
├ ModelError                          the model's side failed
│  ├ ModelRequestError                .status, .retry_after, .detail; the server refused, or cannot be reached
│  │  ├ PromptTooLongError            .tokens, .limit, .largest; a prompt does not fit into the window, and was not sent
│  │  ├ ContentFilterError            .categories; the server's content filter objected to the prompt or to the answer
│  │  └ AllModelsFailedError          .errors; every model of a FallbackModel failed
│  └ OutputError                      .output; the answer is not what was asked for, even when asked again
│     └ TruncatedError                .usage; the answer was cut off at its limit of tokens, where half of it is of no use
├ NodeTypeError (TypeError)           a node is given, or returns, a value of another type than it declares
├ NodeTimeoutError (TimeoutError)     .node, .seconds; a node took longer than its `.timeout`
├ UnpricedModelError (ValueError)     .model, .max_cost; a budget of money could not count what a model costs
├ AbandonedThreadsError               .functions; too many blocking functions still run that time limits have given up
├ LeakedCancellationError             .where; what a node, tool or branch awaited was cancelled, and nobody cancelled the run
├ QuestionError                       .node; a node asks two questions under the same id
├ CacheError                          .node; a node is cached that does more than compute its output
├ ToolServerError                     .server, .status; a server of tools cannot be reached, or its answer is not valid
├ ToolError                           raised in a tool, it is shown to the model and is not fatal
│  ├ ArgumentsError                   .tool, .problems; a call's arguments do not fit the tool
│  ├ ToolTimeoutError (TimeoutError)  .tool, .seconds; a call took longer than the tool allows
│  ├ DeclinedError                    .node, .question, .reason, .by; a person declined to answer a node or a tool
│  └ QuestionExpiredError (TimeoutError) .node, .question, .deadline; nobody answered a question of a node or a tool in time
├ Veto                                .reason; raised in a step callback, it refuses the step or the tool call
├ StoreError (OSError)                a store cannot be read or written
│  ├ ConflictError                    .key; an item is not at the expected version
│  ├ StoreNotFoundError (FileNotFoundError) .path; what only reads a store does not make one
│  ├ ReadOnlyStoreError (PermissionError) .path; this process may read the store, but not write it
│  ├ StoreUnavailableError (ConnectionError) .where, .in_doubt; the server of a store cannot be reached, or refuses
│  ├ StoreExistsError (FileExistsError) .path; there is something where a store was to be put
│  ├ StoreInUseError                  .path; a store that was to be replaced is open
│  ├ DamagedStoreError                .where; tampered with, cut off or corrupt
│  │  └ RolledBackError               .where; an older copy was put in the place of a store, or of a part of it
│  ├ AnchorError                      .anchor; an anchor is missing or damaged, or belongs to another store
│  ├ NotForgottenError                .receipt, .left; some of what was to be forgotten is left, in the places that it names
│  ├ NotErasedError                   .where; all is committed, but bytes of what it deletes may still be in the file
│  ├ KeySourceError                   .source; the variable, file, keyring entry or function that is to have the key has none
│  ├ WrongKeyError                    .where; sound, but sealed with another key
│  ├ RemovedKeyError                  .where, .name, .removed; the key opened the store once, and was removed
│  ├ DestroyedStoreError              .where, .destroyed; the keys of the store were destroyed, and nobody can read it again
│  ├ NewerFormatError                 .where; sound, but written by a newer graphagent
│  ├ SealedStoreError                 .where; sound, but sealed, and it was opened without its key
│  └ PlainStoreError                  .where; sound, but not sealed, and it was opened with a key
├ ValueNotFoundError (LookupError)    .keyword, .values; a value is to be withdrawn that is not known
├ NoteError                           a note cannot be kept, and why
│  ├ ScopeError (ValueError)          .scope; a scope is no path of one
│  ├ NotePermissionError (PermissionError) a view of notes may not do that
│  ├ NoteNotFoundError (LookupError)  .id; a view of notes has no such note
│  ├ AmbiguousNoteError (LookupError) .candidates; several notes have an id that begins or ends with a text
│  ├ EmbedderError                    an embedder failed, or gave something else than vectors
│  │  └ EmbedderChangedError          .stored; the vectors were made by another embedder
│  └ RerankerError                    a reranker failed, or returned something else than scores
├ SerializationError (TypeError)      a value is of a type that cannot be kept
├ UnsupportedError                    .provider, .ability; the provider lacks an optional ability
├ MissingExtraError (ImportError)     .extra; an optional dependency is not installed
└ ScriptError (AssertionError)        a test's model was asked for what its script or its recording does not have
```

The file is long because it is the one page of all errors. Messages say what is wrong, which, what exists and what to do. No secret and no fact value stands in them. All survive
pickling, except that what cannot be pickled of a result is the result's own concern.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from traceback import TracebackException
from typing import TYPE_CHECKING, Any

from graphagent._article import a, counted, kind_of
from graphagent._error_source import source_of

if TYPE_CHECKING:
    from datetime import datetime
    from decimal import Decimal

    from graphagent.graph import Problem
    from graphagent.llm import FailedRequest, Usage
    from graphagent.run import RunResult

_CANDIDATES = 4
"""How many ids or names a message has at most."""


class GraphAgentError(Exception):
    """The root of every error that graphagent raises itself."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Constructors take parts, not the finished text, so the default (class, args) would call them wrongly.
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
    """The run; empty where the error arose outside one."""


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
        """What the node raised, such as `ValueError: no such city`. An error that was stored has no `__cause__`."""
        # Foreign messages may carry values, so only ours are repeated.
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
        """The edges that were tried, in order, each as it is drawn."""
        tried = ", ".join(self.tried) or "none"
        super().__init__(
            f"node {node!r} gave {kind_of(output)} that none of its edges takes (tried: {tried}); "
            f"add a path for it, or .otherwise() for the rest"
        )


class RuleError(RunError):
    """A run came to something that a rule of its strategy forbids there. It was not begun."""

    def __init__(self, rule: str, node: str, after: str, path: Sequence[str], reason: str) -> None:
        self.rule = rule
        """The rule, as it was written."""
        self.node = node
        """The path of the node that was not begun; for a tool call that of the node, and the tool."""
        self.after = after
        """The path of the node, and the tool for a tool call, after which the rule forbids it; empty where another one had to come before it."""
        self.path = ("START", *path)
        """The nodes to which the run came, in their order, each once."""
        super().__init__(f"{node!r} was not begun, by the rule {rule}: {reason}; the path: {' -> '.join(self.path)}")


class HandlerError(RunError):
    """A handler of events raised, which ends the run: no error path, retry or fork takes it. The `__cause__` is what it raised.

    So does a step callback that raises, or that writes a value of a wrong type into a step, which keeps what it had then. Outside of a run, what was being done with notes raises it.
    """

    def __init__(self, handler: str, event: str, cause: BaseException, *, wrong: str = "") -> None:
        self.event = event
        """The type of the event."""
        how = (
            f"wrote a wrong value: {wrong}"
            if wrong
            else f"failed with {type(cause).__name__}; a handler has to catch its own errors, for nothing else does"
        )
        super().__init__(f"the handler {handler!r} of {event} {how}")


class BudgetError(RunError):
    """A run came to the end of one of its budgets."""

    def __init__(self, budget: str, limit: Decimal | float, result: RunResult[Any], *, where: str = "") -> None:
        self.budget = budget
        """Which: `nodes`, `turns`, `tokens`, `cost` or `seconds`."""
        self.limit = limit
        """How much was allowed."""
        self.result = result
        """What was done so far, in the whole run; its `output` raises."""
        self.where = where
        """The path of the strategy whose own budget it was; empty for that of the agent."""
        whose, more = (
            (f" of strategy {where!r}", f".using(max_{budget}=…)") if where else ("", f"Agent(max_{budget}=…)")
        )
        amount = f"{limit:,} cost" if budget == "cost" else counted(limit, budget.removesuffix("s"))
        super().__init__(f"the budget{whose} of {amount} is used up; give it more with {more} to go further")


class VetoError(RunError):
    """A callback refused a step, and the run does not continue. It can be resumed; a refused task is then shown to it again."""

    def __init__(self, step: str, reason: str) -> None:
        self.step = step
        """The type of the step."""
        self.reason = reason
        """The reason that the callback gave. It may repeat content of the step: never log it unasked."""
        super().__init__(f"a callback refused {a(step)}; .reason says why")


class CheckError(RunError):
    """The answer of a run did not pass one of its final checks, and there is no node to be asked again."""

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
            said = "of this owner in the store; `graphagent runs list --owner NAME` shows what is there"
        else:
            said = "in the store; `graphagent runs list` shows what is there. What began with an owner= is found with the same owner="
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
    """Another process, or another task of this one, has the run. Nothing was written."""

    def __init__(self, run_id: str, holder: str) -> None:
        self.run_id = run_id
        self.holder = holder
        """Who: the host and the process."""
        super().__init__(
            f"run {run_id!r} is being executed by {holder}; wait until it ends or is suspended. What a process of this "
            f"machine had is free when it is dead; of another machine, some minutes after its last step; in a store for several "
            f"machines, at the end of its lease"
        )


class LeaseLostError(RunClaimedError):
    """The claim of a run was not renewed in its time, so another process may have the run. This one did nothing more for it.

    Only stores that say themselves who has a run have leases, such as a PostgresStore. Nothing in a strategy takes this error.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.holder = "another process, or nobody"
        RunError.__init__(
            self,
            f"run {run_id!r} was given up here: its claim was not renewed in its time, because this process was stopped or the store "
            f"did not answer, and another process may have it. If none does, agent.resume({run_id!r}) continues it, and repeats nothing "
            f"that was recorded",
        )


class RunEndedError(RunError):
    """A run was ended before it came to END, with `agent.end` or by the next message of its thread, and nothing continues it."""

    def __init__(self, run_id: str, reason: str) -> None:
        self.run_id = run_id
        super().__init__(
            f"run {run_id!r} is not continued, since {reason}; begin another one, which continues its transcript in the same "
            f"thread=, or fork it with agent.fork({run_id!r}, before=…)"
        )


class RunQueuedError(RunError):
    """A run was submitted and has not begun, so that there is nothing to read of it but its header."""

    def __init__(self, run_id: str, due: int) -> None:
        self.run_id = run_id
        self.due = due
        """From when on a worker may begin it, in milliseconds UTC."""
        super().__init__(
            f"run {run_id!r} is queued and has not begun, so that it has no entries yet; a worker begins it, or agent.resume({run_id!r})"
        )


class TooManyDeathsError(RunError):
    """Processes died again and again while they executed a run, so no worker takes it any more."""

    def __init__(self, run_id: str, deaths: int) -> None:
        self.run_id = run_id
        self.deaths = deaths
        """How many, one after the other."""
        super().__init__(
            f"{deaths} processes died while they executed run {run_id!r}, one after the other; look for what ends them, such as memory, and "
            f"then go on with agent.resume({run_id!r})"
        )


class SubmissionSizeError(RunError, ValueError):
    """What a submitted run begins with is too large. Nothing was written."""

    def __init__(self, run_id: str, size: int, limit: int) -> None:
        self.run_id = run_id
        self.size = size
        """The number of bytes of the task, its images and the steps before it."""
        self.limit = limit
        """At most so many."""
        super().__init__(
            f"the task of run {run_id!r}, with its images and steps, has {size:,} bytes, and a run that is submitted begins with at most "
            f"{limit:,}; keep large data elsewhere, and submit its name"
        )


class OwnerBusyError(RunError):
    """Runs are being executed that would keep more of an owner who is to be forgotten. Nothing was removed."""

    def __init__(self, owner: str, run_ids: Sequence[str]) -> None:
        self.owner = owner
        self.run_ids = tuple(run_ids)
        """The runs that are being executed."""
        self.run_id = self.run_ids[0]
        named = ", ".join(map(repr, self.run_ids[:_CANDIDATES])) + (" …" if len(self.run_ids) > _CANDIDATES else "")
        whose = f"of owner {owner!r}" if owner else "without an owner"
        super().__init__(
            f"{counted(len(self.run_ids), 'run')} {whose} being executed: {named}; wait until the end, or break off all runs with "
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
    """As many submitted runs of a thread wait as may. Nothing was written."""

    def __init__(self, thread: str, limit: int) -> None:
        self.thread = thread
        self.limit = limit
        """How many may wait."""
        super().__init__(
            f"{counted(limit, 'submitted run')} of thread {thread!r} wait already, as many as may; submit the next one when one has begun, or with a "
            f"higher max_queued="
        )


class ThreadExistsError(RunError):
    """A conversation was to be the beginning of a thread that has begun already. Nothing was written."""

    def __init__(self, thread: str, run_id: str) -> None:
        self.thread = thread
        self.run_id = run_id
        """The last run of the thread."""
        super().__init__(
            f"thread {thread!r} has begun already, its last run is {run_id!r}; give the conversation another thread, or remove this one "
            f"with forget_thread first"
        )


class StrategyChangedError(RunError):
    """The strategy is not the one that the run began with. Nothing was executed."""

    def __init__(self, run_id: str, differences: Sequence[str], *, fits: bool = False) -> None:
        self.run_id = run_id
        self.differences = tuple(differences)
        """The removed (`- …`) and the new lines (`+ …`)."""
        remedy = (
            "resume it with the code that it began with, or, since its journal still fits, with allow_changed=True"
            if fits
            else "its journal does not fit this code, so allow_changed=True does not help; resume it with the code that it began with, "
            "put back what is missing, or say by a Migration where it continues"
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
        """The version from which a migration leads."""
        self.after = after
        """The version to which it leads."""
        RunError.__init__(
            self,
            f"run {run_id!r} could not be moved from version {before!r} to {after!r}: {reason}; mend the Migration, and resume the run",
        )


class AnswerError(RunError, ValueError):
    """An answer fits no open question, or is not of the type that was asked for. Nothing was written."""

    def __init__(self, question: str, reason: str, problems: Sequence[str] = ()) -> None:
        self.question = question
        """The id of the question; empty where there is none."""
        self.problems = tuple(problems)
        """Which part of the answer does not fit its type and why, such as `count: must be a valid integer`."""
        super().__init__(reason)


class LateAnswerError(AnswerError):
    """A question was answered after the run had recorded that nobody did before the deadline. Nothing was written."""

    def __init__(self, question: str, deadline: datetime) -> None:
        self.deadline = deadline
        """The deadline, in UTC."""
        shown = deadline.isoformat(" ", "seconds")
        super().__init__(
            question,
            f"question {question!r} has expired: its deadline was {shown}, and the run went on without an answer",
        )


class UnknownOutcomeError(RunError):
    """What `ctx.once` began was broken off, nobody knows whether it was done, and it is not to be repeated."""

    def __init__(self, node: str, key: str) -> None:
        self.node = node
        """The path of the node."""
        self.key = key
        """The key that `ctx.once` was given."""
        super().__init__(
            f"node {node!r} was broken off during {key!r}, and nobody knows whether that was done; find out, and catch this "
            "error in the node, or resume the run with in_flight='ask'"
        )


class DivergedError(RunError):
    """What is executed again on recorded results does something else than what was recorded. Nothing live was called."""

    def __init__(self, node: str, reason: str) -> None:
        self.node = node
        """The path of the node."""
        super().__init__(f"node {node!r} does not do what was recorded: {reason}")


class ModelError(GraphAgentError):
    """The model's side failed."""

    usage: Usage | None = None
    """The tokens that it took nevertheless, where the server counted them; they count in the run."""
    failed: tuple[FailedRequest, ...] = ()
    """All requests that failed, the last one included, where a request was repeated or another model asked."""


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
        """The HTTP status, where there was an answer."""
        self.retry_after = retry_after
        """Seconds that the server asked to wait."""
        self.detail = detail
        """What the server said. It may repeat what was sent: never log it unasked."""
        self.sent = sent
        """Whether anything was sent: nothing was without a key, or if no connection could be made. Then it is not a turn."""
        self.is_final = is_final
        """Whether the same request would fail again, whatever the status is."""
        super().__init__(message)


class PromptTooLongError(ModelRequestError):
    """A prompt is longer than the ContextWindow allows, whatever is compressed, and was not sent; or its model refused it as too long."""

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
        """About how many tokens the prompt has; 0 if its model refused it."""
        self.limit = limit
        """How many it may have; 0 if its model refused it."""
        self.largest = largest
        """What takes the most of it, such as `the task`; empty if its model refused it."""
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
        """To what it objected, as the server names it, such as `violence`; empty if the server does not say."""
        super().__init__(message, status=status, detail=detail)
        self.usage = usage


class AllModelsFailedError(ModelRequestError):
    """Every model of a FallbackModel failed. The text names each model with its reason."""

    def __init__(self, reasons: Sequence[tuple[str, str]], errors: Sequence[Exception]) -> None:
        self.errors = tuple(errors)
        """What each model raised, in the order in which they were asked."""
        asked = [each for each in self.errors if isinstance(each, ModelRequestError)]
        waits = [each.retry_after for each in asked if each.retry_after is not None]
        # The status is that of the first error, for callers that look at nothing else.
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
    """The model's answer is not what was asked for, even when it was asked again."""

    def __init__(self, message: str, *, output: str, usage: Usage | None = None) -> None:
        self.output = output
        """The last answer, as it came. It may hold what the user said: never log it unasked."""
        super().__init__(message)
        self.usage = usage


class TruncatedError(OutputError):
    """The model stopped at its limit of tokens (`finish_reason` is `length`), and half of what was asked for is of no use.

    It is raised for JSON, tool calls and summaries, and where there is no text at all. The model is not asked again, since it would
    stop at the same place.
    """


class NodeTypeError(GraphAgentError, TypeError):
    """A node is given, or returns, a value of another type than it declares. It is the cause of a NodeFailedError."""


class NodeTimeoutError(GraphAgentError, TimeoutError):
    """A node took longer than its `.timeout`, and was cancelled unless it blocked. It is the cause of a NodeFailedError."""

    def __init__(self, node: str, seconds: float) -> None:
        self.node = node
        """The name of the node, tap, fork or subgraph."""
        self.seconds = seconds
        """How long it may take."""
        super().__init__(f"{node!r} took longer than {counted(seconds, 'second')}, its .timeout")


class UnpricedModelError(GraphAgentError, ValueError):
    """There is a budget of money, and the answers of a model do not say what they cost. The model was not asked."""

    def __init__(self, model: str, max_cost: object) -> None:
        self.model = model
        """The name of the model."""
        self.max_cost = max_cost
        """The budget."""
        super().__init__(
            f"max_cost={max_cost} would never be used up: the model {model!r} does not say what its answers cost; write "
            f"PricedModel(model, Prices(input=…, output=…)), of graphagent.llm, or Agent(…, allow_unpriced=True) to count the others alone"
        )


class AbandonedThreadsError(GraphAgentError):
    """A blocking function was not called, since too many are still running in threads that were abandoned.

    A time limit, a lost race or another cancellation abandons the thread of a blocking function, which cannot be stopped.
    """

    def __init__(self, functions: Mapping[str, int]) -> None:
        self.functions = dict(functions)
        """How many such threads are running, by the names of their tools and functions."""
        names = ", ".join(f"{name!r} ({number})" for name, number in sorted(self.functions.items()))
        super().__init__(
            f"{sum(self.functions.values())} threads are still running that were abandoned after a time limit or a cancellation: {names}; "
            f"give their functions time limits of their own, as in httpx.get(url, timeout=10), or make them async"
        )


class LeakedCancellationError(GraphAgentError):
    """A cancellation that nobody asked for: something else was cancelled, such as a task for which a node waited.

    The `__cause__` is the cancellation. A run that is cancelled, a time limit and a race do not raise this error.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        """Which code raised the cancellation, such as `node 'search'` or `tool 'fetch'`."""
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
            f"make its text of what is recorded"
        )


class CacheError(GraphAgentError):
    """A node is cached that does more than compute its output, which a run that finds the output in the store would not do."""

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
        """The status of HTTP that it answered last, such as 401; 0 if there is none."""
        super().__init__(f"the tool server {server!r} {reason}")


class ToolError(GraphAgentError):
    """Raise it in a tool to show an error to the model; the run continues."""


class ArgumentsError(ToolError):
    """The arguments of a tool call do not fit the tool's parameters; the model sees which, and why."""

    def __init__(self, tool: str, problems: Sequence[str]) -> None:
        self.tool = tool
        """The name of the tool."""
        self.problems = tuple(problems)
        """Each place with its reason, without the values."""
        super().__init__(f"the arguments of {tool!r} do not fit: {'; '.join(self.problems)}")


class ToolTimeoutError(ToolError, TimeoutError):
    """A tool call took longer than the tool's `timeout`; the model sees it."""

    def __init__(self, tool: str, seconds: float) -> None:
        self.tool = tool
        """The name of the tool."""
        self.seconds = seconds
        """How long an attempt may take."""
        super().__init__(f"{tool!r} did not return within {counted(seconds, 'second')}")


class DeclinedError(ToolError):
    """A person declined to answer a question of a node or a tool, with `Deny(reason)`; raised in a tool, the model sees it."""

    def __init__(self, node: str, question: str, reason: str = "", by: str = "") -> None:
        self.node = node
        """The path of the node."""
        self.question = question
        """The id of the question."""
        self.reason = reason
        """Why, as the person said."""
        self.by = by
        """Who declined, if the answer said so."""
        why = f": {reason}" if reason else ""
        super().__init__(f"a person declined to answer question {question!r} of node {node!r}{why}")


class QuestionExpiredError(ToolError, TimeoutError):
    """Nobody answered a question of a node or a tool before its deadline, and it had no default; raised in a tool, the model sees it."""

    def __init__(self, node: str, question: str, deadline: datetime) -> None:
        self.node = node
        """The path of the node."""
        self.question = question
        """The id of the question."""
        self.deadline = deadline
        """Until when it could be answered at least, in UTC."""
        shown = deadline.isoformat(" ", "seconds")
        super().__init__(f"nobody answered question {question!r} of node {node!r} until its deadline, {shown}")


class Veto(GraphAgentError):
    """Raise it in a step callback to refuse a step.

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
    """An entry of a run could not be stored, since the store failed, which is the `__cause__`; the run did not continue."""

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
        """The key of the item. It may name people: never log it unasked."""
        self.expected, self.found = expected, found
        changed = (
            f"is at version {found}, not at {expected}" if found != expected else f"was rewritten at version {found}"
        )
        super().__init__(f"an item of room {self.key[0]!r} {changed}; read it again and retry")


class StoreNotFoundError(StoreError, FileNotFoundError):
    """There is no store, or no file to read, at a path. What only reads does not make one."""

    def __init__(self, what: str, path: str, remedy: str, *, where: str = "") -> None:
        self.path = path
        """The file or folder that does not exist; of a store in a database, its schema."""
        super().__init__(f"there is no {what} {path!r}{where or f'; {_beside(Path(path))}'}; {remedy}")


def _beside(path: Path) -> str:
    """Return what exists in the folder of a path, the names like the missing one first."""
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
        """The file or folder; of a store in a database, where that is."""
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
        """Whether a commit was sent that may have been made all the same."""
        done = (
            "It is not known whether the commit was made; read the items to see" if in_doubt else "Nothing was written"
        )
        super().__init__(f"{where} cannot be reached: {reason}. {done}. {remedy}")


class StoreExistsError(StoreError, FileExistsError):
    """There is something at the path where a store was to be put. Nothing was written."""

    def __init__(self, path: str, remedy: str) -> None:
        self.path = path
        """The file or folder."""
        super().__init__(f"{path} is there already, and nothing was written; {remedy}")


class StoreInUseError(StoreError):
    """A store that was to be replaced is open, in another process or in this one. Nothing was written."""

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
    """A store, or a part of it, is older than it was: an older copy was put in its place. Nothing was deleted."""

    finding = "was rolled back"

    def __init__(
        self,
        where: str,
        reason: str,
        *,
        remedy: str = "Restore the newer one; or accept the older one, without what was stored since: graphagent anchor reset",
    ) -> None:
        super().__init__(where, reason, remedy=remedy)


class AnchorError(StoreError):
    """An anchor is missing or damaged, belongs to another store, or cannot be read. Nothing of the store was read."""

    def __init__(self, anchor: str, reason: str) -> None:
        self.anchor = anchor
        """The anchor, such as its file."""
        super().__init__(f"the anchor {anchor}: {reason}")


class NotForgottenError(StoreError):
    """Some of what was to be forgotten is left. The same call goes on with that; the first error is the `__cause__`."""

    def __init__(self, receipt: Any, left: Mapping[str, str]) -> None:
        self.receipt = receipt
        """What was removed: a Receipt."""
        self.left = dict(left)
        """The places in which something is left, by their `repr`, and why."""
        why = "; ".join(f"{place}: {reason}" for place, reason in self.left.items())
        super().__init__(
            f"in {counted(len(self.left), 'place')} something is left of what was to be forgotten; make the same call again when "
            f"the reason is gone. Removed so far: {receipt!r}. Left in {why}"
        )


class NotErasedError(StoreError):
    """A commit is made and what it deletes is not found any more, but bytes of that may still be in the file.

    Nothing is to be repeated: the store tries again from time to time and when it is closed, and so does whoever opens the file.
    """

    def __init__(self, where: str, reason: str) -> None:
        self.where = where
        """The file."""
        super().__init__(
            f"the commit is made and what it deletes is not found any more, but bytes of that may still be in {where}. This store, "
            f"or the next that opens the file, removes them as soon as it can. What was in the way: {reason}"
        )


class KeySourceError(StoreError):
    """The key of a store is not where it is looked for: in a variable, a file or a keyring, or what a function returns."""

    def __init__(self, source: str, problem: str) -> None:
        self.source = source
        """Where the key is looked for, such as `env:NAME`; never the key."""
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
        """The name that the key had."""
        self.removed = removed
        """When it was removed, in UTC."""
        super().__init__(
            f"this key opened {where} once, as {name!r}, and was removed on {removed:%Y-%m-%d at %H:%M} UTC; give this process the key "
            f"that replaced it"
        )


class DestroyedStoreError(StoreError):
    """The keys of a store were destroyed, so nobody can read again what it contained."""

    def __init__(self, where: str, destroyed: datetime) -> None:
        self.where = where
        """The file."""
        self.destroyed = destroyed
        """When, in UTC."""
        super().__init__(
            f"the keys of {where} were destroyed on {destroyed:%Y-%m-%d at %H:%M} UTC, so nobody can read again what it "
            f"contained; remove it and begin a new one, or restore a backup that may still be kept"
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
            f"EncryptedStore({inner}, key) where the store or its path was given"
        )


class PlainStoreError(StoreError):
    """A store is sound, but not sealed, and it was opened with a key. Nothing was written."""

    def __init__(self, where: str) -> None:
        self.where = where
        """The file."""
        super().__init__(
            f"{where} is not sealed: what it holds was put there without a key; nothing was written. Open it without one, or "
            f"export what it holds and import it into a sealed store of its own"
        )


class ValueNotFoundError(GraphAgentError, LookupError):
    """A value is to be withdrawn that is not known, so nothing was withdrawn. The message contains no value."""

    def __init__(self, keyword: str, values: int) -> None:
        self.keyword = keyword
        """The keyword of the concept."""
        self.values = values
        """How many values of the concept are known."""
        known = f"{counted(values, 'value')} of it {'is' if values == 1 else 'are'} known, and not this one"
        super().__init__(
            f"a value that is to be withdrawn from {keyword!r} is not there: {known if values else 'no value of it is known'}; "
            f"load the concept, and withdraw a value exactly as it stands there"
        )


class NoteError(GraphAgentError):
    """A note cannot be kept, or notes cannot be searched."""


class ScopeError(NoteError, ValueError):
    """A scope is none."""

    def __init__(self, scope: object, reason: str) -> None:
        self.scope = scope
        super().__init__(reason if scope is None else f"scope {scope!r}: {reason}")


class NotePermissionError(NoteError, PermissionError):
    """A view of notes may not do that."""


class NoteNotFoundError(NoteError, LookupError):
    """A view of notes has no such note."""

    def __init__(self, id_: str) -> None:
        self.id = id_
        super().__init__(f"there is no note {id_!r} here; list_records() gives those that there are")


class AmbiguousNoteError(NoteError, LookupError):
    """Several notes have an id that begins or ends with a text."""

    def __init__(self, text: str, candidates: Sequence[str]) -> None:
        self.candidates = tuple(candidates)
        """The ids of these notes, in their order."""
        more = ", …" if len(candidates) > _CANDIDATES else ""
        super().__init__(
            f"{text!r} names {len(candidates)} notes: {', '.join(candidates[:_CANDIDATES])}{more}; give more of the id"
        )


class EmbedderError(NoteError):
    """An embedder failed, or gave something else than a vector for each text."""


class EmbedderChangedError(EmbedderError):
    """The vectors of the notes were made by another embedder."""

    def __init__(self, name: str, stored: str, dimensions: int) -> None:
        self.stored = stored
        """Who made them."""
        super().__init__(
            f"the vectors of these notes were made by {stored!r}, with {counted(dimensions, 'number')} each, and not by {name!r}; "
            "open them with that, or make the vectors anew: reembed()"
        )


class RerankerError(NoteError):
    """A reranker failed, or returned something else than a score for each text."""


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
    """A test's model was asked more often than its script has replies, or for what was not recorded."""
