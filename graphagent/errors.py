"""Every error of graphagent, on one page.

```
GraphAgentError
├ StrategyError (ValueError)          a strategy is wrong; .problems lists everything that is
├ FeatureError                        a feature is missing, or installed wrongly or too late
├ RunError                            .run_id
│  ├ NodeFailedError                  .node; what the node raised is the __cause__
│  ├ NoPathError                      .node, .tried; no way out of a node takes its output
│  ├ HandlerError                     .event; a handler of events raised, which is the __cause__
│  └ BudgetError                      .budget, .limit, .result (what was done so far)
├ ModelError                          the model's side failed
│  ├ ModelRequestError                .status, .retry_after, .detail; the server refused, or cannot be reached
│  └ OutputError                      .output; the answer is not what was asked for, even when asked again
├ ToolError                           raised in a tool, it is shown to the model and is not fatal
│  └ ArgumentsError                   .tool, .problems; a call's arguments do not fit the tool
├ StoreError (OSError)                a store cannot be read or written
│  ├ ConflictError                    .key; an item is not at the expected version
│  ├ DamagedStoreError                .where; tampered with, cut off or corrupt
│  └ WrongKeyError                    sound, but sealed with another key
├ UnsupportedError                    .provider, .ability; the provider lacks an optional ability
├ MissingExtraError (ImportError)     .extra; an optional dependency is not installed
└ ScriptError (AssertionError)        a test's scripted model was asked more than its script says
```

Messages say what is wrong, which, what exists and what to do. No secret and no fact value stands in them. All survive
pickling, except that what cannot be pickled of a result is the result's own concern.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphagent.graph import Problem
    from graphagent.run import RunResult


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
        found = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        super().__init__("\n".join([f"strategy {strategy!r} has {found}:", *(f"  {each}" for each in self.problems)]))


class FeatureError(GraphAgentError):
    """A feature is missing, was installed wrongly, or too late."""


class RunError(GraphAgentError):
    """A run could not go on."""

    run_id: str = ""
    """The run; empty where the error arose outside one."""


class NodeFailedError(RunError):
    """A node raised; the original exception is the `__cause__`."""

    def __init__(self, node: str, cause: BaseException) -> None:
        self.node = node
        """The path of the node, such as `draft` or `count/words`."""
        # Foreign messages may carry values, so only ours are repeated.
        said = f": {cause}" if isinstance(cause, GraphAgentError) else ""
        super().__init__(f"node {node!r} failed with {type(cause).__name__}{said}")


class NoPathError(RunError):
    """A node's output fits none of its ways out."""

    def __init__(self, node: str, output: object, tried: Sequence[str]) -> None:
        self.node = node
        """The path of the node."""
        self.tried = tuple(tried)
        """The ways out that were tried, in order, each as it is drawn."""
        ways = ", ".join(self.tried) or "none"
        super().__init__(
            f"node {node!r} gave a {type(output).__name__} that none of its ways out takes (tried: {ways}); "
            f"add a path for it, or .otherwise() for the rest"
        )


class HandlerError(RunError):
    """A handler of events raised, which ends the run: no error path, retry or fork takes it. The `__cause__` is what it raised."""

    def __init__(self, handler: str, event: str, cause: BaseException) -> None:
        self.event = event
        """The type of the event."""
        super().__init__(f"the handler {handler!r} of {event} failed with {type(cause).__name__}, which ended the run")


class BudgetError(RunError):
    """A run came to the end of one of its budgets."""

    def __init__(self, budget: str, limit: float, result: RunResult[Any], *, where: str = "") -> None:
        self.budget = budget
        """Which: `nodes`, `turns`, `tokens` or `seconds`."""
        self.limit = limit
        """How much was allowed."""
        self.result = result
        """What was done so far, in the whole run; its `output` raises."""
        self.where = where
        """The path of the strategy whose own budget it was; empty for that of the agent."""
        whose, more = (
            (f" of strategy {where!r}", f".using(max_{budget}=…)") if where else ("", f"Agent(max_{budget}=…)")
        )
        super().__init__(f"the budget{whose} of {limit:,} {budget} is used up; give it more with {more} to go further")


class ModelError(GraphAgentError):
    """The model's side failed."""


class ModelRequestError(ModelError):
    """The server refused a request, answered with something else than the protocol, or cannot be reached."""

    def __init__(
        self, message: str, *, status: int | None = None, retry_after: float | None = None, detail: str = ""
    ) -> None:
        self.status = status
        """The HTTP status, where there was an answer."""
        self.retry_after = retry_after
        """Seconds that the server asked to wait."""
        self.detail = detail
        """What the server said. It may repeat what was sent: never log it unasked."""
        super().__init__(message)


class OutputError(ModelError):
    """The model's answer is not what was asked for, even when it was asked again."""

    def __init__(self, message: str, *, output: str) -> None:
        self.output = output
        """The last answer, as it came. It may hold what the user said: never log it unasked."""
        super().__init__(message)


class ToolError(GraphAgentError):
    """Raise it in a tool to tell the model what went wrong; the run goes on."""


class ArgumentsError(ToolError):
    """The arguments of a tool call do not fit the tool's parameters; the model sees which, and why."""

    def __init__(self, tool: str, problems: Sequence[str]) -> None:
        self.tool = tool
        """The name of the tool."""
        self.problems = tuple(problems)
        """Each place with its reason, without the values that were given."""
        super().__init__(f"the arguments of {tool!r} do not fit: {'; '.join(self.problems)}")


class StoreError(GraphAgentError, OSError):
    """A store cannot be read or written."""


class ConflictError(StoreError):
    """An item is not at the version that a change expected; nothing of the commit was kept."""

    def __init__(self, key: Iterable[object], expected: int, found: int) -> None:
        self.key = tuple(key)
        """The key of the item. It may name people: never log it unasked."""
        self.expected, self.found = expected, found
        super().__init__(
            f"an item of room {self.key[0]!r} is at version {found}, not at {expected}; read it again and retry"
        )


class DamagedStoreError(StoreError):
    """A store was tampered with, cut off or is corrupt. Nothing was deleted."""

    def __init__(self, where: str, reason: str) -> None:
        self.where = where
        """The file, table or line."""
        super().__init__(f"{where} is damaged: {reason}; nothing was written. Restore it from a backup")


class WrongKeyError(StoreError):
    """A store is sound, but was sealed with another key."""

    def __init__(self, where: str) -> None:
        self.where = where
        """The file."""
        super().__init__(f"{where} was sealed with another key; open it with the key that it was made with")


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
        super().__init__(f"{what} needs an extra: pip install 'graphagent[{extra}]'")


class ScriptError(GraphAgentError, AssertionError):
    """A test's scripted model was asked more often than its script has replies."""
