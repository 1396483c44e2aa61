"""What a run is given: the configuration of its agent with its budgets, and the options of its call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, TypedDict, final

from graphagent._article import kind_of
from graphagent._features import Features
from graphagent.llm import ToolCall
from graphagent.log._visits import PLACED
from graphagent.memory.steps._types import FinalAnswerStep
from graphagent.run._compiled import CompiledStrategy, stored_type

if TYPE_CHECKING:
    from graphagent._dispatch import Handlers
    from graphagent.graph import Strategy
    from graphagent.llm import ErrorText, ImageLike, Tool
    from graphagent.log._replay import KnownAs
    from graphagent.log._visits import Activation
    from graphagent.memory.steps._types import Step
    from graphagent.memory.transcript._memory import RunMemory
    from graphagent.protocols import Dispatcher, Feature, Model, Store, ToolServer
    from graphagent.run._callbacks import Callback, Check
    from graphagent.run._compiled import Call, CompiledNode
    from graphagent.run._migration import Migration
    from graphagent.run._ruled import Within


@dataclass(frozen=True, slots=True)
class Budgets:
    """The budgets of a run; None means no limit."""

    max_nodes: int | None = None
    max_turns: int | None = None
    max_tokens: int | None = None
    max_cost: Decimal | float | None = None
    max_seconds: float | None = None
    allow_unpriced: bool = False
    """Whether models may be asked whose answers do not say what they cost, though there is a `max_cost`."""


FinalCheck = Callable[..., Any]
"""`(answer)` or `(answer, run)`; False, or an exception, refuses the answer."""


class RunOptions(TypedDict, total=False):
    """What `agent.run`, `start`, `stream` and `run_sync` take besides the task."""

    owner: str
    """For whom it runs: a user, a tenant. Everything remembered belongs to an owner."""
    run_id: str | None
    """The id of the run; by default a new one."""
    steps: RunMemory | None
    """The transcript of an earlier run, which is put before the task as a copy. If the store has that run, and it has ended and is
    unchanged, it is stored as a reference."""
    thread: str | None
    """The name of a conversation of this owner. The run continues the transcript of the last run of that name that ended, and is
    the last one from then on. It needs a store."""
    if_busy: Literal["refuse", "end"]
    """What becomes of the last run of the thread if it has not ended: by default, `refuse`, one that is executed, waits or is paused has the
    run refused with a ThreadBusyError, and one that failed or was cancelled is left out. With `end` it is ended as by `agent.end`, whatever
    stopped it, and the run continues its transcript; only one that is being executed has the run refused."""
    images: Iterable[ImageLike]
    """Shown to the model with the task: anything that `graphagent.llm.Image` accepts, such as paths and images of Pillow."""
    deps: object
    """What nodes and tools find as `ctx.deps`, such as a client or a connection. It is never stored. Without it, `deps_factory` of the
    agent makes it, if there is one."""


class ResumeOptions(TypedDict, total=False):
    """What `agent.resume` and `resume_stream` take besides the run."""

    answer: object
    """The answer to its only open question."""
    answers: Mapping[str, object] | None
    """Answers to several, by their ids. `Deny(reason)` declines whatever is asked."""
    results: Mapping[str, object] | None
    """Results of deferred tool calls, by the ids of the calls; `ToolError(reason)` for one that failed."""
    owner: str
    """For whom it runs."""
    allow_changed: bool
    """Whether to continue although the strategy has changed, if the journal still fits it."""
    deps: object
    """What nodes and tools find as `ctx.deps`: it was not stored, so pass it again, unless `deps_factory` of the agent makes it."""


@final
class Plan:
    """What the features, the callbacks and the checks of an agent decide for all of its runs."""

    __slots__ = (
        "_busy", "_may_be_idle", "around_model", "around_node", "around_run", "around_tool", "callbacks", "checks", "checks_answer",
        "features", "guards", "step_callbacks",
    )  # fmt: skip

    def __init__(self, features: Features, callbacks: Sequence[Callback], checks: Sequence[Check]) -> None:
        self.features = features
        self.callbacks = tuple(callbacks)
        self.checks = tuple(checks)
        """The checks of the answer."""
        self.around_run = features.having("around_run")
        self.around_model = features.having("around_model")
        self.around_node = features.having("around_node")
        self.around_tool = features.having("around_tool")
        self._may_be_idle = features.having("is_idle")
        self._busy: dict[tuple[Feature, ...], Plan] = {}
        """The plans without the middleware of idle features."""
        self.guards = tuple(each for each in callbacks if ToolCall in each.kinds)
        """The callbacks for tool calls."""
        self.step_callbacks = tuple(each for each in callbacks if any(kind is not ToolCall for kind in each.kinds))
        self.checks_answer = bool(checks) or self.calls_back(FinalAnswerStep)
        """Whether somebody may refuse the answer: a final check, or a callback."""

    def calls_back(self, kind: type[Step]) -> bool:
        """Return whether callbacks see a step of a type before it is among the steps."""
        return any(issubclass(kind, each.kinds) for each in self.step_callbacks)

    def of_run(self) -> Plan:
        """Return the plan of a run that begins or continues: without the middleware of the features that are idle."""
        idle = tuple(each for each in self._may_be_idle if each.is_idle)
        if not idle:
            return self
        found = self._busy.get(idle)
        if found is None:
            found = self._busy[idle] = copy(self)
            for method in ("around_run", "around_model", "around_node", "around_tool"):
                setattr(found, method, tuple(each for each in getattr(self, method) if each not in idle))
        return found

    def within(self, around: Plan) -> Plan:
        """Return the plan of an agent whose runs are parts of others: the features of the agent that calls it hold for it too."""
        if not around.features:
            return self
        return Plan(Features({**around.features, **self.features}), self.callbacks, self.checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """The configuration that an agent gives each of its runs."""

    strategy: Strategy[Any, Any]
    compiled: CompiledStrategy
    call: Call
    """Executes the strategy, with its policies."""
    model: Model | None
    tools: tuple[Tool | ToolServer, ...]
    system_prompt: str
    budgets: Budgets
    plan: Plan
    """What the features, the callbacks and the checks decide for all of its runs."""
    handlers: Handlers
    store: Store | None
    name: str = ""
    """The name of the agent; empty if it has none."""
    errors: ErrorText = "message"
    """The text by which a model is told of an exception of a tool."""
    named_version: str = ""
    """The version that the agent names; empty if it names none."""
    migrations: tuple[Migration, ...] = ()
    """How runs of earlier versions continue."""
    retention: int = 0
    """For how many milliseconds a run that is over is kept; 0: until somebody removes it."""
    servers: tuple[ToolServer, ...] = ()
    """Those among its tools, and among the tools of the subgraphs of its strategy."""
    inherits_tools: bool = False
    """Whether its runs, as parts of others, inherit the tools of their callers."""
    takes_calls: bool = False
    """Whether its strategy executes tool calls, so that it may be offered the tools of the features of whoever calls it."""
    planning_interval: int | None = None
    compile: Callable[[Strategy[Any, Any], Sequence[Within]], tuple[CompiledStrategy, Call]]
    """Compiles the strategy anew, for a run that strategies with rules call."""
    has_rules: bool = False
    """Whether there are rules: of its strategy or a subgraph, or of an agent that it calls."""
    learns_later: bool = False
    """Whether a feature learns in the background."""
    learn_soon: Callable[[str], None] = lambda _: None
    """Is told the owner of a run that has ended, and from which something is to be learned in the background."""
    context: Callable[[Any], Any]
    """Makes the `Context` that users' functions get, of the effects of a node or of a part of it."""
    handle: Callable[[Any], Any]
    """Makes the `Run` that users get of a run as the engine executes it."""
    check_deps: Callable[[object, str], None]
    """Checks that all users of `deps` get what they expect, and raises TypeError with the call to write."""
    dispatcher: Dispatcher | None = None
    """Brings word of submitted runs to workers; None: the one that fits the store."""
    make_deps: Callable[[Any], Awaitable[Any]] | None = None
    """Makes the `deps` of a run that is passed none, of its handle."""
    deps: Any = None
    """The `deps` of one run; None in the configuration of all runs of an agent."""
    kinds: dict[tuple[str, int | None], Any] = field(default_factory=dict[tuple[str, "int | None"], Any])
    """The declared types of values by their origins, as far as they were asked for."""

    def check_given(self, deps: object, call: str) -> None:
        """Check the `deps` of a call, unless they are made where the run is executed. `call` is what to write.

        Raises:
            TypeError: they are missing, or not of the type that a node or a tool takes.
        """
        if deps is not None or self.make_deps is None:
            self.check_deps(deps, call)

    @property
    def version(self) -> str:
        """The version of the strategy: the one that the agent names, or the digest of the strategy."""
        return self.named_version or self.strategy.outline.digest

    @property
    def runs(self) -> Store:
        """The store in which the runs are, of an agent that has one."""
        assert self.store is not None
        return self.store

    @property
    def refers(self) -> frozenset[str]:
        """The kinds of what features look up, of which the log has references instead of texts: `fact`, `note`."""
        return frozenset(kind for feature in self.features.having("refers") for kind in feature.refers)

    @property
    def features(self) -> Features:
        """The features of the agent, with those of the agents that call it."""
        return self.plan.features

    def features_at(self, path: str) -> Features:
        """Return the features that hold in a frame, as the log of a run names its path: a sub-agent has its own besides."""
        inside, agent, rest = self._sub_agent(path)
        return Features({**self.features, **agent.features_at(rest)}) if inside and agent is not None else self.features

    def ruled_in(self, agent: Activation) -> KnownAs | None:
        """Return what rules name in the run of an agent: this one, or one that it calls. None if a node runs it by itself."""
        found = self._of(agent)
        return None if found is None else found.compiled.known_as or {}

    def declared_since(self, run: Activation) -> dict[str, str] | None:
        """Return the names of the declarations of the nodes; None if they are those that a run has."""
        declared = dict(self.strategy.declarations)
        return None if declared == run.declared else declared

    def _of(self, agent: Activation) -> RunConfig | None:
        if agent.parent is None:
            return self
        outer = self._of(agent.parent)
        return None if outer is None else outer.agent_at(agent.node[len(agent.parent.frame.path) :], agent.name)

    def find(self, path: str) -> CompiledNode | None:
        """Return the node at a path; None if the strategy has no such node."""
        try:
            return self.compiled.find(path)
        except LookupError:
            return None

    def kind_of(self, path: str, edge: int | None) -> Any:
        """Return the declared type of a value: of the output of the node at a path, or of what one of its edges passes on."""
        place = (path, edge)
        if place not in self.kinds:
            self.kinds[place] = self._kind_of(path, edge)
        return self.kinds[place]

    def _kind_of(self, path: str, edge: int | None) -> Any:
        if edge == PLACED:
            return self._kind_at(path)
        if not path:
            return self.strategy.input_type
        node = self.find(path)
        if node is None:
            return Any
        if edge is not None:
            found = next((each for each in (*node.edges, *node.error_edges) if each.number == edge), None)
            if found is not None and found.changes:
                return found.value_type
            if found is not None and found.errors:
                return found.errors[0]
        return node.output_type

    def _kind_at(self, path: str) -> Any:
        """Return the declared type before a node; after a slash, at the end of the strategy or branch at a path."""
        if path and not path.endswith("/"):
            node = self.find(path)
            return getattr(node.element, "input_type", Any) if node is not None else Any
        *around, name = path.split("/")[:-1] or [""]
        if name.isdecimal():
            inside = self.compiled.inside([*around, name])
            return inside.first.output_type if isinstance(inside, CompiledStrategy) else Any
        return self.kind_of_step("/".join([*around, name]), "output")

    def kind_of_step(self, path: str, what: str) -> Any:
        """Return the declared type of the input or output of the strategy, or of a node, as the log of a run names its path.

        A path that ends with a slash is that of a sub-agent: the node that called it, its name, and a number.
        """
        if not path:
            return self.strategy.input_type if what == "input" else stored_type(self.strategy)
        inside, agent, rest = self._sub_agent(path)
        if inside:
            return Any if agent is None else agent.kind_of_step(rest, what)
        node = self.find(path.removesuffix("/"))
        if node is None:
            return Any
        return node.output_type if what == "output" else getattr(node.element, "input_type", Any)

    def agent_at(self, path: str, name: str) -> RunConfig | None:
        """Return the configuration of an agent that the node at a path calls, by its name; None if it is not known."""
        from graphagent.run._sites import AgentNode, agent_tool

        node = self.find(path)
        if node is not None and isinstance(node.element, AgentNode):
            return node.element.config()
        try:
            place = self.strategy.outline.find(path)[0]
        except LookupError:
            place = ""
        found = agent_tool(self.strategy, self.tools, place, name)
        return None if found is None else found.config()

    def _sub_agent(self, path: str) -> tuple[bool, RunConfig | None, str]:
        """Return whether a path leads into a sub-agent, its configuration unless a node runs it by itself, and the rest of the path."""
        parts = path.split("/")
        for place in range(2, len(parts)):
            node, inside = "/".join(parts[: place - 1]), "/".join(parts[:place])
            if parts[place].isdecimal() and self.find(node) is not None and self.find(inside) is None:
                return True, self.agent_at(node, parts[place - 1]), "/".join(parts[place + 1 :])
        return False, None, ""


def checked_retention(retention: object, store: Store | None) -> int:
    """Return for how many milliseconds runs are kept that are over.

    Raises:
        TypeError: it is not a length of time.
        ValueError: the value is not positive, or the agent has no store.
    """
    if not isinstance(retention, timedelta):
        raise TypeError(f"retention= is a length of time, such as timedelta(days=30), not {kind_of(retention)}")
    if retention <= timedelta(0):
        raise ValueError(f"retention={retention} would keep nothing; give a time above 0, such as timedelta(days=30)")
    if store is None:
        raise ValueError(
            "retention= is how long a store keeps runs, and there is none; give Agent(…, store=SqliteStore('runs.db'))"
        )
    return max(retention // timedelta(milliseconds=1), 1)
