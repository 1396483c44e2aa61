"""An agent: a strategy with a model, tools, features and budgets, which serves any number of runs and keeps no state of them.

The file is long because it describes every option and operation for users. The work is done in `run/` and `history/`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from functools import partial, wraps
from itertools import starmap
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Never, ParamSpec, Self, TypeVar, Unpack, cast, get_origin, overload

import anyio

from graphagent._article import a, kind_of
from graphagent._concurrency import OwnTask
from graphagent._dispatch import Handlers, Listener, by_type, listener
from graphagent._features import Features
from graphagent._options import (
    check_budgets,
    check_dispatcher,
    check_flag,
    check_methods,
    check_model,
    check_name,
    check_names,
    check_options,
    check_settings,
    check_store,
    check_text,
    check_whole,
    check_word,
    cost_limit,
)
from graphagent._policies import Retry
from graphagent.errors import FeatureError, RunError
from graphagent.events import Event
from graphagent.graph import Strategy, StrategyTool
from graphagent.graph._types import fits, is_a, show
from graphagent.llm import Tool
from graphagent.llm._images import images_of, load_images
from graphagent.llm._tool_errors import check_error_text
from graphagent.llm._wrappers import stores_of
from graphagent.memory.transcript._memory import RunMemory
from graphagent.protocols import Feature, ToolServer
from graphagent.run import Budgets, Callback, Migration, ResumeOptions, Run, RunOptions, RunResult, RunStream
from graphagent.run._after import settle, settle_quietly
from graphagent.run._agent_tool import node_of, tool_of, tool_with_fields
from graphagent.run._assembly import (
    check_features,
    check_levels,
    check_models,
    check_nothing_cached,
    check_offers,
    check_path_rules,
    check_plans,
    check_ruled_tools,
    check_storable,
    check_tool_edges,
    checked_tools,
    takes_calls,
)
from graphagent.run._beginning import begin
from graphagent.run._building import compile_root
from graphagent.run._callbacks import callbacks_with_types, final_checks
from graphagent.run._config import Plan, RunConfig, checked_retention
from graphagent.run._context import context_of
from graphagent.run._deps import check_deps, deps_maker, deps_users, tool_servers
from graphagent.run._ending import end_here
from graphagent.run._migration import checked_migrations
from graphagent.run._sites import check_prices, sites, with_sub_agents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta
    from types import TracebackType

    from graphagent.graph import Node
    from graphagent.history import Diff, Entry, PendingQuestion, Place, Snapshot
    from graphagent.llm import ErrorText
    from graphagent.protocols import Dispatcher, Model, Store
    from graphagent.run._agent_run import AgentRun
    from graphagent.run._callbacks import StepCallbacks
    from graphagent.run._config import FinalCheck
    from graphagent.run._sites import Site
    from graphagent.work._handle import RunHandle
    from graphagent.work._submit import SubmitOptions

I = TypeVar("I", contravariant=True)
O = TypeVar("O", covariant=True)
Answer = TypeVar("Answer")
E = TypeVar("E", bound=Event)
F = TypeVar("F")
P = ParamSpec("P")
_NO_TASK: Any = object()


_INSTEAD = {
    **dict.fromkeys(("instructions", "prompt", "system_message", "backstory"), "Agent(…, system_prompt='…')"),
    **dict.fromkeys(
        ("output_type", "result_type", "response_format", "response_model"),
        "a node that returns it: llm_request(output=…) or task(output=…)",
    ),
    **dict.fromkeys(("llm", "chat_model"), "Agent(…, model=OpenAIModel('gpt-5-mini'))"),
    **dict.fromkeys(
        ("checkpointer", "session", "db"), "Agent(…, store=SqliteStore('runs.db')), and agent.run(message, thread='…')"
    ),
    **dict.fromkeys(("max_steps", "max_iterations", "max_iter", "recursion_limit"), "Agent(…, max_turns={value})"),
    **dict.fromkeys(
        ("deps_type", "context_type"), "Context[Deps] in your nodes and tools, and agent.run(task, deps=…)"
    ),
    **dict.fromkeys(
        ("memory", "memory_manager"), "agent.install(AgentMemory, provider=…) or agent.install(NoteMemory, notes=…)"
    ),
    **dict.fromkeys(
        ("features", "middleware", "hooks", "callbacks"),
        "agent.install(Feature, …), agent.on(Event, function) or step_callbacks=[function]",
    ),
    "handoffs": "Agent(…, tools=[other_agent]), or other_agent.as_node() in the strategy",
    "output_key": "the value that the last node returns: result.output",
    "retries": ".retry(attempts={value}) on a node",
    "temperature": "OpenAIModel(…, temperature={value})",
}
"""The equivalents of arguments that agents of other libraries have."""
_INSTEAD_IN_RUNS = {
    **dict.fromkeys(("user", "user_id"), "agent.run(task, owner='…')"),
    **dict.fromkeys(("session", "session_id", "conversation", "config"), "agent.run(task, thread='…')"),
    **dict.fromkeys(
        ("message_history", "history", "messages"),
        "agent.run(task, thread='…') or agent.run(task, steps=result.memory)",
    ),
    **dict.fromkeys(("context", "dependencies"), "agent.run(task, deps=…)"),
    **dict.fromkeys(("instructions", "system_prompt"), "Agent(…, system_prompt='…')"),
    **dict.fromkeys(
        ("usage_limits", "max_turns", "max_tokens", "max_cost", "max_seconds"),
        "a budget of the agent: Agent(…, max_turns=20)",
    ),
    "model": "Agent(…, model=…)",
    "tools": "Agent(…, tools=[…])",
}
"""The equivalents of arguments that runs of other libraries have."""


def _with_strategy(init: Callable[P, None]) -> Callable[P, None]:
    """Make the error for a missing strategy say what to write. A default would do so too, but hide it from type checkers."""

    @wraps(init)
    def checked(*args: P.args, **options: P.kwargs) -> None:
        if len(args) < 2 and "strategy" not in options:
            raise TypeError(
                "an agent needs a Strategy, and none was passed; write Agent(single_run(), model=…), with single_run of "
                "graphagent_strategies, or a strategy of your own"
            )
        init(*args, **options)

    return checked


class Agent(Generic[I, O]):
    """Runs a strategy.

    Args:
        strategy: The strategy that the agent runs.
        model: The model that its nodes use.
        tools: The tools that the model may call: functions with `@tool`, agents that have a name and a description, strategies
            (`strategy.as_tool(…)`), and servers of tools.
        system_prompt: The rules for the model, sent before everything else.
        store: Where runs are kept, so that they survive the process; without a store they end with the process.
        deps_factory: Returns the `deps` of a run that was started without any. It is called in the process that
            executes the run, with no argument or with the run, and may be async.
        dispatcher: Notifies workers of submitted runs. The default depends on the store: a dispatcher within the
            process, or Procrastinate for a PostgresStore if the extra `workers` is installed.
        name: The name by which a model calls this agent when it is a tool of another agent.
        description: The purpose of this agent, for that model.
        step_callbacks: Called with each step, or with the step and the run, before the step joins the transcript. The
            annotation of the first parameter selects the types of steps, or the keys of a dictionary do, such as
            `{ActionStep: save}`. They may be async.
        final_answer_checks: Called with the answer, or with the answer and the run. If one returns False or raises, the
            model is asked again.
        version: The version of the strategy, such as `"2"`, which is stored with each run; by default the digest of the
            strategy.
        migrations: Move runs of earlier versions to this one.
        retention: How long a run stays in the store after it is done, ended, cancelled or failed; workers then remove
            it. By default it stays until it is removed explicitly.
        planning_interval: The number of model turns after which the model makes a new plan, in nodes such as
            `llm_request` and `task`.
        errors: The text by which a model is told of an exception of a tool, other than a ToolError: `message`, its type and
            its message without the passwords, keys and tokens of URLs and connection strings; `type`, its type alone; or a
            function of the exception that returns the text. A tool may have an option of its own.
        max_nodes: Node executions a run may take; each attempt counts.
        max_turns: Model turns a run may take.
        max_tokens: Tokens a run may spend, extraction included; None means no limit.
        max_cost: Money a run may spend, in the currency of the model's prices, such as `"0.03"`; None means no limit.
        max_seconds: Wall time a run may take while it is being executed; None means no limit.
        allow_unpriced: Whether an agent with a `max_cost` may ask models whose answers do not include their cost, also
            in subgraphs and sub-agents. Such answers count as free.

    Raises:
        StrategyError: there are tools, but no edge of the strategy takes tool calls; there is a `planning_interval`,
            but no node makes plans; a run may break a rule of the strategy when its answer is refused; or agents among
            the tools have too many levels inside.
        SerializationError: there is a store, and a node returns a value that cannot be stored.
        UnpricedModelError: `max_cost` is set, but the answers of a model do not include their cost.
        ValueError: a budget is not valid.
        TypeError: an argument is not of its type, a callback cannot be called with a step, or a final check with an answer.
    """

    _inherits_tools = False
    """Whether runs of this agent that are parts of other runs inherit the tools of their callers."""

    @_with_strategy
    def __init__(
        self,
        strategy: Strategy[I, O],
        *,
        model: Model | None = None,
        tools: Sequence[Tool | Agent[Any, Any] | StrategyTool | ToolServer] = (),
        system_prompt: str = "",
        store: Store | None = None,
        deps_factory: Callable[..., Any] | None = None,
        dispatcher: Dispatcher | None = None,
        name: str = "",
        description: str = "",
        step_callbacks: StepCallbacks = (),
        final_answer_checks: Iterable[FinalCheck] = (),
        version: str = "",
        migrations: Iterable[Migration] = (),
        retention: timedelta | None = None,
        planning_interval: int | None = None,
        errors: ErrorText = "message",
        max_nodes: int | None = 1000,
        max_turns: int | None = 20,
        max_tokens: int | None = None,
        max_cost: Decimal | str | float | None = None,
        max_seconds: float | None = None,
        allow_unpriced: bool = False,
        **others: Never,
    ) -> None:  # long because each option is checked and explained where it is set
        if others:
            check_names("Agent", others, _INSTEAD, cast("Any", Agent).__init__.__wrapped__.__kwdefaults__)
        if isinstance(strategy, str):
            raise TypeError(
                f"an agent runs a Strategy, not a text; write Agent(single_run(), model=OpenAIModel({strategy.rpartition(':')[2]!r})), "
                "with single_run of graphagent_strategies and OpenAIModel of graphagent.llm.openai"
            )
        if not isinstance(strategy, Strategy):  # pyright: ignore[reportUnnecessaryIsInstance]
            named = getattr(strategy, "__name__", "")
            called = f"{named}(), if {named} makes one, or " if named and not isinstance(strategy, type) else ""
            raise TypeError(
                f"an agent runs a Strategy, not {kind_of(strategy)}; write {called}Strategy(name, START >> … >> END)"
            )
        if model is not None:
            check_model(model)
        if store is not None:
            check_store(store)
        for option, text in (
            ("system_prompt", system_prompt),
            ("name", name),
            ("description", description),
            ("version", version),
        ):
            check_text(f"{option}=", text)
        check_dispatcher(dispatcher)
        self._make_deps = None if deps_factory is None else deps_maker(deps_factory)
        if planning_interval is not None:
            check_whole("planning_interval", planning_interval)
        if planning_interval is not None and planning_interval < 1:
            raise ValueError(f"planning_interval={planning_interval} would never plan; give 1 or more, or None")
        if callable(final_answer_checks):
            raise TypeError("final_answer_checks= is a list of functions, such as [is_polite]")
        self.strategy = strategy
        """The strategy that the agent runs."""
        self.model = model
        """The model that the nodes of the strategy use."""
        self._make_tools(tools)
        given = checked_tools(tools)
        self.tools: tuple[Tool, ...] = tuple(each for each in given if isinstance(each, Tool))
        """The tools that the model may call, without those of servers."""
        self.tool_servers: tuple[ToolServer, ...] = tuple(each for each in given if not isinstance(each, Tool))
        """The servers whose tools the model may also call."""
        self.system_prompt = system_prompt
        """The rules for the model."""
        self.store = store
        """Where runs are kept."""
        self.dispatcher = dispatcher
        """The dispatcher that notifies workers of submitted runs; None means the default for the store."""
        self.name = name
        """The name by which the model of another agent calls this agent."""
        self.description = description
        """The purpose of this agent, for that model."""
        self.version = version
        """The version of the strategy; empty if its digest serves as the version."""
        self._retention = 0 if retention is None else checked_retention(retention, store)
        self._migrations = checked_migrations(migrations, version or strategy.outline.digest, strategy.outline)
        self.callbacks: list[Callback] = list(starmap(Callback.of, callbacks_with_types(step_callbacks)))
        """The callbacks that see each step, in order. Features add theirs when they are installed."""
        self._checks = final_checks(final_answer_checks)
        self._planning_interval = planning_interval
        max_cost = cost_limit(max_cost)
        check_budgets(
            max_nodes=max_nodes, max_turns=max_turns, max_tokens=max_tokens, max_cost=max_cost, max_seconds=max_seconds
        )
        check_flag("allow_unpriced=", allow_unpriced)
        check_error_text("errors=", errors)
        self._errors: ErrorText = errors
        self.budgets: Budgets = Budgets(max_nodes, max_turns, max_tokens, max_cost, max_seconds, allow_unpriced)
        """The budgets of a run."""
        self._features = Features()
        own = list(self._sites())
        for site in own:
            if site.has_own_tools:
                self._make_tools(site.tools)
        check_tool_edges(own)
        if planning_interval is not None:
            check_plans(own)
        self.levels: int = check_levels(own)
        """How deeply strategies, forks and agents are nested in this agent; each agent counts as three levels."""
        self._servers = tool_servers(own)
        check_path_rules(own, self._checks, self.callbacks)
        every = list(with_sub_agents(own))
        check_prices(every)
        if store is not None:
            check_storable(every)
        self._listeners: list[Listener] = []
        self._handlers: Handlers = {}
        self._cached_config: RunConfig | None = None
        self._is_complete = False
        self._tool: Tool | None = None
        self._node: Node[I, O] | None = None
        self._last: Run[Any] | None = None
        self._open = 0
        """How many `async with` blocks of this agent are open."""
        self._learning: set[OwnTask] = set()

    def install(self, feature: Callable[P, F], /, *args: P.args, **settings: P.kwargs) -> F:
        """Install a feature: `agent.install(AgentMemory, provider=…)`. The feature is created with these settings.

        Raises:
            FeatureError: the agent has run already, has this feature, or does not fit it.
            TypeError: the feature does not have such a setting.
        """
        if not isinstance(feature, type) and callable(getattr(feature, "install", None)):
            name = type(feature).__name__
            raise TypeError(
                f"install() creates the feature for this agent; write agent.install({name}, …) with its settings"
            )
        if not callable(feature):
            raise TypeError(
                f"install() takes a feature and its settings, such as agent.install(AgentMemory, provider=…), not {kind_of(feature)}"
            )
        named = getattr(feature, "__name__", repr(feature))
        if self._cached_config is not None:
            raise FeatureError(f"{named} must be installed before the agent's first run; make a new agent for it")
        check_settings(named, feature, args, settings)
        made = feature(*args, **settings)
        if not callable(getattr(made, "install", None)):
            raise TypeError(
                f"{named} is not a feature: it has no method install(agent); let it inherit from protocols.Feature. "
                "Facts are installed by install(AgentMemory, provider=…), notes by install(NoteMemory, notes=…)"
            )
        installed = cast("Feature", made)
        check_methods(named, made, Feature)
        if type(made) in self._features:
            raise FeatureError(f"{named} is installed already; install it once, with all its settings")
        if self.store is None and getattr(made, "background", False):
            raise FeatureError(
                f"{named} learns in the background, and learning that is still due is kept in a store; "
                "give the agent one: Agent(…, store=SqliteStore('runs.db')), or let it learn at its place: learn=True"
            )
        installed.install(self)
        self._features = Features({**self._features, type(made): installed})
        return made

    def offer(self, tools: Sequence[Tool]) -> bool:
        """Add tools to the agent, as a feature does in its `install`. Tools whose names are taken are left out.

        Return False, and do nothing, if no node of the strategy takes tool calls, or if some of its nodes have no edge for them.

        Raises:
            FeatureError: the agent has run already.
        """
        if self._cached_config is not None:
            raise FeatureError("tools must be added before the agent's first run; make a new agent for them")
        taken = {tool.name for tool in self.tools}
        more = tuple(tool for tool in tools if tool.name not in taken)
        if not takes_calls(self.strategy):
            return False
        checked_tools(more)
        self.tools += more
        return True

    def on(self, event: type[E], handler: Callable[[E], None], /, *, all_text: bool = False) -> None:
        """Call a handler for each event of a type and of the types derived from it; `Event` itself means all.

        Handlers are called at once, in the order of their registration, and must not block. A handler that raises ends
        the run with a HandlerError.

        Args:
            event: The type of the events.
            handler: Called with the event.
            all_text: Whether TextStreamed and OutputStreamed come for plans, summaries, extraction and agents as tools too, and not for the answer
                alone.

        Raises:
            TypeError: the handler is async, the type is not an event, or `all_text` is given for an event without the text of
                models.
        """
        self._listeners.append(listener(event, handler, "agent.on", all_text=all_text))
        self._handlers = by_type(self._listeners)
        if self._cached_config is not None:
            self._cached_config = replace(self._cached_config, handlers=self._handlers)

    @overload
    async def run(self: Agent[None, Answer], **options: Unpack[RunOptions]) -> RunResult[Answer]: ...
    @overload
    async def run(self, task: I, **options: Unpack[RunOptions]) -> RunResult[O]: ...
    async def run(self, task: Any = _NO_TASK, **options: Unpack[RunOptions]) -> RunResult[Any]:
        """Run the strategy from START to END.

        Args:
            task: The input of the strategy; omitted if the strategy takes none.
            **options: As `RunOptions` has them.

        Raises:
            TypeError: an argument is not of the type that the strategy, a node or a tool takes, or an option is unknown.
            ValueError, OSError: an image is not valid, or cannot be read; the message says which.
            NodeFailedError: a node raised; the original exception is the cause.
            NoPathError: no edge of a node takes its output.
            BudgetError: a budget is used up; `.result` has the work done so far.
            FeatureError: a node needs a feature that is not installed, or a model, and the agent has none.
            StrategyError: a rule names a tool that the agent does not have.
            ThreadBusyError: the last run of the thread has not ended.
            RunError: there is a thread, and the agent has no store.
        """
        if "images" in options:
            options["images"] = await load_images(options["images"], "images")
        return await self._begun(task, options).finish()

    @overload
    def start(self: Agent[None, Answer], **options: Unpack[RunOptions]) -> Run[Answer]: ...
    @overload
    def start(self, task: I, **options: Unpack[RunOptions]) -> Run[O]: ...
    def start(self, task: Any = _NO_TASK, **options: Unpack[RunOptions]) -> Run[Any]:
        """Return a run that has not begun: to change its steps, to go through it step by step, to answer it.

        Nothing is executed or stored before its first `step` or `finish`. Files of `images` are read before it returns; the
        transcript of a `thread` is read when the run begins.

        Args:
            task: As in `run`.
            **options: As `RunOptions` has them.
        """
        return self._begun(task, options)

    @overload
    def stream(
        self: Agent[None, Answer], *, all_text: bool = False, **options: Unpack[RunOptions]
    ) -> RunStream[Answer]: ...
    @overload
    def stream(self, task: I, *, all_text: bool = False, **options: Unpack[RunOptions]) -> RunStream[O]: ...
    def stream(self, task: Any = _NO_TASK, *, all_text: bool = False, **options: Unpack[RunOptions]) -> RunStream[Any]:
        """Run, and return the events, which can be read while they happen: `async for event in agent.stream(task): …`.

        The text of the model arrives in pieces, as TextStreamed; `agent.stream(task).text()` yields the text of the answer
        alone. Errors of the run are raised where the events are read.

        Leaving the loop early cancels the run, which can be continued. To wait until it has stopped, write `async with
        agent.stream(task) as events: async for event in events: …`; afterwards `events.result` is its result.

        Args:
            task: As in `run`.
            all_text: Whether TextStreamed and OutputStreamed come for plans, summaries, extraction and agents as tools too, and not for the answer
                alone.
            **options: As `RunOptions` has them.
        """
        return RunStream(self._begun(task, options, "all_text"), all_text=all_text)

    @overload
    async def submit(self: Agent[None, Answer], **options: Unpack[SubmitOptions]) -> RunHandle[Answer]: ...
    @overload
    async def submit(self, task: I, **options: Unpack[SubmitOptions]) -> RunHandle[O]: ...
    async def submit(self, task: Any = _NO_TASK, **options: Unpack[SubmitOptions]) -> RunHandle[Any]:
        """Store a run for workers to execute, and return once it is in the store, where it waits until a worker takes it.

        A submit that is cancelled, or whose process dies, has committed all of the run or nothing. With your own `run_id` it
        can be repeated: the same task is the same run, whether a worker has begun it or not.

        Args:
            task: As in `run`.
            **options: As `SubmitOptions` has them. Workers take `deps` from `Agent(…, deps_factory=…)`.

        Raises:
            TypeError, ValueError, OSError: an argument is not valid; the text says which.
            RunExistsError: a run with this `run_id` and another task exists.
            ThreadBusyError: a run of the thread has not ended, and `if_busy="refuse"`.
            ThreadFullError: the maximum number of runs of the thread are waiting.
            SerializationError, SubmissionSizeError: the task cannot be stored.
            RunError: the agent has no store.
            JournalError: the store failed; with its `run_id`, the same task can be submitted again, and there is one run.
            StoreError: the store cannot be read.
        """
        from graphagent.work._handle import RunHandle
        from graphagent.work._submit import SubmitOptions, check_submission, submit

        config = self._stored_config(more=". Submitted runs are kept there for workers")
        instead = {**_INSTEAD_IN_RUNS, "deps": "Agent(…, deps_factory=…), which is called where the run is executed"}
        known = SubmitOptions.__annotations__
        check_names("a submitted run", options, instead, known)
        settings = check_submission(options)
        more = {
            name: given for name, given in options.items() if name in RunOptions.__annotations__ and name != "if_busy"
        }
        if "images" in more:
            more["images"] = await load_images(options.get("images"), "images")
        header = await submit(self._drafted(task, cast("RunOptions", more)), settings)
        return RunHandle(config, header.run_id, header.owner)

    def handle(self, run_id: str, *, owner: str = "") -> RunHandle[O]:
        """Return the handle of a run in the store, as `submit` does. Nothing is read before one of its methods is called.

        Args:
            run_id: The id of the run.
            owner: The owner of the run.

        Raises:
            TypeError, ValueError: the id is not text, or empty.
            RunError: the agent has no store.
        """
        from graphagent.work._handle import RunHandle

        check_name("run_id", run_id, "'order-7'")
        check_text("owner=", owner)
        return RunHandle(self._stored_config(), run_id, owner)

    async def read(self, run_id: str, *, owner: str = "", allow_changed: bool = False, deps: object = None) -> Run[O]:
        """Return a run from the store: to inspect it, to replay it, or to continue it with `step` or `finish`.

        Args:
            run_id: The id of the run, or of the run of a sub-agent, such as `result.children[0].run_id` or `call.run_id`; the whole run continues.
            owner: The owner of the run.
            allow_changed: Whether to accept a run whose strategy has changed since, if its journal still fits.
            deps: As in `run`; needed only to continue the run.

        Raises:
            RunNotFoundError: the run is not in the store.
            StrategyChangedError: the strategy has changed since; the differences are named.
            DamagedStoreError: the stored bytes differ from the bytes that were written.
        """
        run: Run[O] = (await self._read(run_id, owner, deps, allow_changed=allow_changed)).handle
        return run

    async def _read(self, run_id: str, owner: str, deps: object, *, allow_changed: bool) -> AgentRun:
        from graphagent.run._submitting import read_any

        config = self._stored_config(
            deps,
            more=". Without a store, a waiting run is continued in its own process: agent.last.answer(…), and then await "
            "agent.last.finish()",
        )
        return await read_any(config, owner, run_id, allow_changed=allow_changed)

    async def resume(self, run_id: str, **options: Unpack[ResumeOptions]) -> RunResult[O]:
        """Continue a run that was stopped: by an error, by the death of its process, by a question, by a pause.

        Completed work is not repeated. A run that has ended is only read. To raise a budget, resume the run with an agent that
        has more.

        Args:
            run_id: The id of the run.
            **options: As `ResumeOptions` has them.

        Raises:
            RunNotFoundError: the run is not in the store.
            RunClaimedError: another process, or another task, executes the run.
            AnswerError: an answer does not fit an open question or its type, or the run is not waiting for an answer; nothing
                was written.
            RunEndedError: the run was ended before it came to END.
            StrategyChangedError: the strategy has changed since; the differences are named.
            TypeError: `deps` is missing, or not of the type that a node or a tool takes, or an option is unknown.
            RunError: as `run` raises it.
        """
        check_options("a resumed run", options, ResumeOptions.__annotations__)
        run = await self._reopened(run_id, options)
        return await run.finish()

    def resume_stream(self, run_id: str, *, all_text: bool = False, **options: Unpack[ResumeOptions]) -> RunStream[O]:
        """Continue a run as `resume` does, and return its events, as `stream` does: `async for event in agent.resume_stream(…): …`.

        The run is read, and the answers are checked, when its events are first read, or at the beginning of `async with
        agent.resume_stream(…) as events:`. Errors of `resume` are raised there.

        Args:
            run_id: The id of the run.
            all_text: As in `stream`.
            **options: As `ResumeOptions` has them.
        """
        check_options("a resumed run", options, ResumeOptions.__annotations__, "all_text")
        return RunStream(partial(self._reopened, run_id, options), all_text=all_text)

    async def _reopened(self, run_id: str, options: ResumeOptions) -> Run[O]:
        """Return a run from the store, with answers to its questions."""
        found = await self._read(
            run_id, options.get("owner", ""), options.get("deps"), allow_changed=options.get("allow_changed", False)
        )
        found.check_continues()
        run: Run[O] = found.handle
        if "answer" in options:
            run.answer(options["answer"])
        if options.get("answers") or options.get("results"):
            run.answer(answers=options.get("answers"), results=options.get("results"))
        self._last = run
        return run

    async def end(self, run_id: str, reason: str = "", *, owner: str = "", deps: object = None) -> RunResult[O]:
        """End a stopped run where it is, whether a question, an error, a pause or a cancellation stopped it. Nothing is executed.

        Its status is `ended`, its output None, and its transcript continues its thread. Interrupted calls are recorded as
        broken off with an unknown outcome; questions are withdrawn; runs of sub-agents end with the run. The features look back
        at the run, and finish their learning. The run cannot be resumed, but it can be forked.

        A run that has ended already, or came to END, is only read.

        Args:
            run_id: The id of the run.
            reason: Why, for people. The reason is stored with the run.
            owner: The owner of the run.
            deps: As in `run`, for your own taps that learn.

        Raises:
            RunNotFoundError: the run is not in the store.
            RunClaimedError: a process, or another task, executes the run.
            RunError: the agent has no store.
            StoreError: the store could not be written.
        """
        check_text("reason=", reason)
        config = self._stored_config(deps, more=". A run without a store ends with its process")
        return (await end_here(config, owner, run_id, reason)).result

    async def questions(self, *, owner: str | None = None) -> list[PendingQuestion]:
        """Return the open questions of the runs in the store, the oldest first.

        These are the questions of all runs whose strategy has the same name as this agent's, begun by any process. Each has its
        run, its owner, its thread and the time since when it waits; `agent.resume(each.run_id, answers={each.question.id: …},
        owner=each.owner)` answers it.

        Args:
            owner: Whose runs; by default those of all owners.

        Raises:
            RunError: the agent has no store.
            DamagedStoreError: the stored bytes of a waiting run differ from the bytes that were written.
            StoreError: the store cannot be read.
        """
        from graphagent.history._questions import questions

        return await questions(self._stored_config(), owner)

    async def history(self, run_id: str, *, owner: str = "") -> list[Entry]:
        """Return the entries of a run in their order. `entry.node` is the path of a node that ended, and None for others.

        Raises:
            RunNotFoundError: the run is not in the store.
        """
        from graphagent.history._entries import history

        return await history(self._stored_config(), owner, run_id)

    async def state_at(self, run_id: str, number: int, *, owner: str = "") -> Snapshot:
        """Return the state of a run after one of its entries: its transcript, its position and its totals.

        Raises:
            RunNotFoundError: the run is not in the store.
            ValueError: the run has no such entry.
        """
        from graphagent.history._entries import state_at

        return await state_at(self._stored_config(), owner, run_id, number)

    async def fork(
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
        """Make a new run that begins like an existing one, and continue it until it ends or is suspended. The original does not change.

        Args:
            origin: The id of the original run.
            at: The number of the entry after which the runs differ.
            before: The path of the node before whose last execution the runs part.
            after: The path of the node after whose last execution the runs part.
            edit: Changes the snapshot at that point: its transcript (`memory`), its `value`, the input of the next node, and
                `results` of tool calls.
            run_id: The id of the new run; by default it is generated.
            owner: The owner of both runs.
            allow_changed: Whether to accept an origin whose strategy has changed since, if its journal still fits.
            deps: As in `run`, for the new run.

        Raises:
            RunNotFoundError: the run is not in the store.
            RunExistsError: a run with this `run_id` exists already.
            ValueError: not exactly one of `at`, `before` and `after` is passed, or the run has no such point.
        """
        from graphagent.history._fork import Fork, fork

        config = self._stored_config(deps)
        config.check_given(deps, "agent.fork(origin, …, deps=…)")
        forked = await fork(config, owner, origin, Fork(at, before, after, edit, run_id, allow_changed))
        run: Run[O] = forked.handle
        self._last = run
        return await run.finish()

    async def diff(self, a: str, b: str, /, *, owner: str = "") -> Diff:
        """Compare two runs: their common beginning, and the actions of each run after it.

        Raises:
            RunNotFoundError: the run is not in the store.
        """
        from graphagent.history._entries import diff

        return await diff(self._stored_config(), owner, a, b)

    async def rerun(
        self,
        run_id: str,
        *,
        until: int | str | None = None,
        new_id: str | None = None,
        owner: str = "",
        deps: object = None,
    ) -> RunResult[O]:
        """Execute a run again, as a new run, with the recorded results in place of model turns and tool calls.

        Args:
            run_id: The id of the run.
            until: The entry, or the node after whose last execution, from which on calls are made again; None means that no
                calls are made.
            new_id: The id of the new run.
            owner: The owner of both runs.
            deps: As in `run`, for the new run.

        Raises:
            DivergedError: the run asks for something that was not recorded; nothing live was called.
            StrategyChangedError: the recording does not fit the strategy as it is today.
            ValueError: the run has no such place as `until`.
            RunNotFoundError: the run is not in the store.
        """
        from graphagent.history._rerun import rerun

        config = self._stored_config(deps)
        config.check_given(deps, "agent.rerun(run_id, deps=…)")
        again = await rerun(config, owner, run_id, until=until, new_id=new_id)
        run: Run[O] = again.handle
        self._last = run
        return await run.finish()

    @property
    def features(self) -> Mapping[type[Any], Feature]:
        """The installed features, by their types."""
        return MappingProxyType(self._features)

    @property
    def places(self) -> tuple[Place, ...]:
        """The places where this agent and its sub-agents keep data of owners: its store, those of features, and those of cached models.

        `forget` and `reach` of `graphagent.history` take them: `await forget(*agent.places, owner="ada", everything=True)`.
        """
        found: list[Any] = [] if self.store is None else [self.store]
        for site in with_sub_agents(self._sites()):
            found += stores_of(site.model)
            for feature in site.features.having("places"):
                found += feature.places
        return tuple({id(each): each for each in found}.values())

    @property
    def last(self) -> Run[O] | None:
        """The run that this agent started, or continued, last."""
        return self._last

    def replay(self, *, detailed: bool = False) -> None:
        """Print the run that this agent started last, step by step; `detailed` adds the messages that the model was sent.

        Raises:
            RunError: the agent has not started a run.
        """
        if self._last is None:
            raise RunError(
                "this agent has started no run yet; for one from the store: (await agent.read(run_id)).replay()"
            )
        self._last.replay(detailed=detailed)

    @overload
    def run_sync(self: Agent[None, Answer], **options: Unpack[RunOptions]) -> RunResult[Answer]: ...
    @overload
    def run_sync(self, task: I, **options: Unpack[RunOptions]) -> RunResult[O]: ...
    def run_sync(self, task: Any = _NO_TASK, **options: Unpack[RunOptions]) -> RunResult[Any]:
        """Run the strategy from code that is not async, such as a script; otherwise like `run`.

        Raises:
            RuntimeError: an event loop is already running in this thread; await `run` instead.
        """
        if _in_event_loop():
            raise RuntimeError(
                "an event loop is running here; write `await agent.run(…)`, or in code that cannot await blocking(agent).run(…), "
                "instead of agent.run_sync(…)"
            )
        return anyio.run(partial(cast("Agent[Any, Any]", self).run, task, **options))

    def _begun(self, task: Any, options: RunOptions, *more: str) -> Run[Any]:
        """Return a run that has not begun. `more` names the options of the call that are not in RunOptions."""
        if options:
            check_names("a run", options, _INSTEAD_IN_RUNS, RunOptions.__annotations__, *more)
        run = self._drafted(task, options)
        deps = options.get("deps")
        if deps is not None:
            run.config = replace(run.config, deps=deps)
        run.config.check_given(deps, "agent.run(task, deps=…)")
        self._last = handle = cast("Run[Any]", run.handle)
        return handle

    def _drafted(self, task: Any, options: RunOptions) -> AgentRun:
        """Return a run that has not begun, with a task and options that were checked, except for `deps`."""
        if task is _NO_TASK:
            task = None
            if not fits(None, self.strategy.input_type):
                raise TypeError(
                    f"strategy {self.strategy.name!r} takes {show(self.strategy.input_type)}: write run(task)"
                )
        elif not is_a(task, self.strategy.input_type):
            takes, given = show(self.strategy.input_type), kind_of(task)
            origin = get_origin(self.strategy.input_type)
            if isinstance(origin, type) and isinstance(task, origin):
                given += " with other items"
            raise TypeError(
                f"strategy {self.strategy.name!r} takes {takes}, not {given}; write agent.run(task) with {a(takes)}"
            )
        owner, run_id, steps = options.get("owner", ""), options.get("run_id"), options.get("steps")
        thread = options.get("thread")
        if owner != "":
            check_name("owner", owner, "'ada'")
        if run_id is not None:
            check_name("run_id", run_id, "'order-7', or None for a new one")
        if steps is not None and not isinstance(steps, RunMemory):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"steps= is the transcript of a run, such as result.memory or RunMemory(steps=[…]), "
                f"not {kind_of(steps)}"
            )
        if_busy = options.get("if_busy", "refuse")
        if if_busy != "refuse":
            check_word("if_busy", if_busy, ("refuse", "end"))
        if thread is not None:
            self._check_thread(thread, steps)
        elif if_busy == "end":
            raise ValueError("if_busy= is about the last run of a thread; give thread=, too")
        images = images_of(options["images"], "images") if "images" in options else ()
        if not self._is_complete:
            own = list(self._sites())
            every = list(with_sub_agents(own))
            check_features(every)
            check_ruled_tools(every)
            check_models(every)
            # A sub-agent without tools may take those of its caller.
            check_offers([*own, *(site for site in every[len(own) :] if site.tools)])
            if self.store is None:
                check_nothing_cached(every)
            self._is_complete = True
        return begin(
            self._config(), task, run_id=run_id, owner=owner, earlier=steps, images=images, thread=thread or "",
            ends_busy=if_busy == "end",
        )  # fmt: skip

    def _check_thread(self, thread: object, steps: RunMemory | None) -> None:
        check_name("thread", thread, "'alice-7'")
        if steps is not None:
            raise ValueError("thread= continues the transcript of the last run of the thread; leave out steps=")
        if self.store is None:
            raise RunError("a thread is kept in a store; give the agent one: Agent(…, store=SqliteStore('runs.db'))")

    def as_tool(
        self,
        *,
        approve: bool = False,
        timeout: float | None = None,
        retry: Retry | int | None = None,
        concurrency: int | None = None,
        max_size: int | None = None,
    ) -> Tool:
        """Return the agent as a tool of another agent, as `tools=[agent]` does. The tool takes the agent's task, and returns its answer.

        Runs of the tool are parts of the run that calls it: they share its store and its owner, count in its spending, and are
        suspended with it. The arguments are those of `graphagent.tool`.

        Raises:
            TypeError: the agent has no name or no description, or its task cannot be written as JSON; or as `Tool`.
            ValueError: as `Tool`.
        """
        if self._tool is None:
            self._tool = tool_of(self, self._config)
        if (approve, timeout, retry, concurrency, max_size) == (False, None, None, None, None):
            return self._tool
        again = Retry(retry) if type(retry) is int else cast("Retry | None", retry)
        return replace(
            self._tool, approve=approve, timeout=timeout, retry=again, concurrency=concurrency, max_size=max_size
        )

    def as_node(self) -> Node[I, O]:
        """Return the agent as a node of another strategy. The node takes the agent's task, and returns its answer.

        As with a tool, its runs are parts of the run that executes the node, with a transcript, tools, features and budgets of
        their own. The node is named after the agent, or else after its strategy. For rules, an agent is one declaration,
        wherever it is a node.
        """
        if self._node is None:
            self._node = node_of(self, self._config)
        return self._node

    async def settle(self, *, owner: str | None = None, deps: object = None) -> int:
        """Finish the learning of earlier runs, which was left for the background or failed. Return how many runs are settled.

        These are the runs in the store, of any process, whose strategy has the same name as this agent's. The runs of an owner
        are settled in the order in which they ended; runs that another task or process is learning from are skipped. Failures
        are reported by ExtractionFailed, and tried again the next time. The costs are in the ledger of the run that is learned
        from, and count in its budgets.

        If a feature learns in the background, `async with agent` does the same as soon as a run has its answer, and before the
        block ends; the beginning of a run does so for its owner.

        Args:
            owner: Whose runs; by default those of all owners.
            deps: As in `run`, for your own taps that need it.

        Raises:
            RunError: the agent has no store.
            StoreError: the store cannot be read.
        """
        return await settle(self._stored_config(deps, more=". The learning that runs leave is kept there"), owner)

    def _learn_soon(self, owner: str) -> None:
        """Learn from the runs of an owner in a task of its own, within a block that waits for the task."""
        if self._open:
            self._learning = {each for each in self._learning if each.is_running}
            self._learning.add(OwnTask(partial(settle_quietly, self._config(), owner)))

    async def aclose(self) -> None:
        """Close the connections to tool servers in this event loop, also those of agents that are tools.

        Pending calls are completed first. Later runs open the connections again. The end of the event loop closes them too.
        """
        for site in with_sub_agents(self._sites()):
            for each in site.own_tools:
                if isinstance(each, ToolServer):
                    await each.aclose()

    async def __aenter__(self) -> Self:
        self._open += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open -= 1
        try:
            for task in tuple(self._learning):
                await (task.wait() if error is None else task.stop())
            if error is None and any(getattr(each, "background", False) for each in self._features.values()):
                await self.settle()
        finally:
            await self.aclose()

    @staticmethod
    def _make_tools(given: object) -> None:
        """Make tools of the strategies among the tools: each has an agent, whose runs inherit from the caller what the agent lacks."""
        for each in cast("Sequence[object]", given) if isinstance(given, list | tuple) else ():
            if isinstance(each, StrategyTool) and each.made is None:
                agent: Agent[Any, Any] = Agent(each.strategy, name=each.name, description=each.description)
                agent._inherits_tools = not each.strategy.without_tools
                each.made = tool_with_fields(agent, agent._config, each.limits)

    def _sites(self) -> Iterator[Site]:
        """Yield the sites of the agent, without those of its sub-agents."""
        return sites(
            self.strategy, (*self.tools, *self.tool_servers), model=self.model, budgets=self.budgets,
            features=self._features,
        )  # fmt: skip

    def _stored_config(self, deps: object = None, *, more: str = "") -> RunConfig:
        """Return the configuration with which runs are read from the store. The error for a missing store ends with `more`."""
        if self.store is None:
            raise RunError(
                f"this agent does not keep its runs; give it a store: Agent(…, store=SqliteStore('runs.db')){more}"
            )
        if self._cached_config is None:
            every = list(with_sub_agents(self._sites()))
            check_features(every)
            check_ruled_tools(every)
        config = self._config()
        return config if deps is None else replace(config, deps=deps)

    def _config(self) -> RunConfig:
        """Return the configuration of the agent's runs, whose features may be those of the run that calls the agent."""
        if self._cached_config is None:
            own = list(self._sites())
            check_path_rules(own, self._checks, self.callbacks)  # a feature may have added callbacks
            compiled, call = compile_root(self.strategy)
            every = list(with_sub_agents(own))
            users = tuple(deps_users(every))
            self._cached_config = RunConfig(
                strategy=self.strategy, compiled=compiled, call=call,
                model=self.model, tools=(*self.tools, *self.tool_servers), servers=self._servers, name=self.name, errors=self._errors, named_version=self.version, migrations=self._migrations, retention=self._retention, inherits_tools=self._inherits_tools, system_prompt=self.system_prompt, budgets=self.budgets,
                plan=Plan(self._features, self.callbacks, self._checks), handlers=self._handlers, store=self.store,
                has_rules=any(isinstance(each.element, Strategy) and each.element.path_rules for each in every),
                learns_later=any(getattr(each, "background", False) for each in self._features.values()), learn_soon=self._learn_soon,
                takes_calls=takes_calls(self.strategy), planning_interval=self._planning_interval, check_deps=partial(check_deps, users), make_deps=self._make_deps, dispatcher=self.dispatcher,
                compile=compile_root, context=context_of, handle=Run,
            )  # fmt: skip
        return self._cached_config

    def __repr__(self) -> str:
        return f"<agent of {self.strategy!r}>"


def _in_event_loop() -> bool:
    import asyncio

    with suppress(RuntimeError):
        asyncio.get_running_loop()  # in `python -m asyncio`, code is executed in a loop and in no task, which anyio needs
        return True
    with suppress(RuntimeError):
        anyio.get_cancelled_exc_class()
        return True
    return False
