"""Agents that are called as tools: their runs are parts of the run that calls them.

A call writes down under which id it begins its run, and only then begins it. So whoever executes the call again, in this
process or in another, finds that run and goes on with it. What it spends counts in the run around at once; the journal of
the run around takes it over when the call is left, in whatever way, so that nothing counts twice when both are read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, final

from graphagent.errors import (
    AnswerError,
    DivergedError,
    HandlerError,
    JournalError,
    NodeFailedError,
    RunClaimedError,
    RunNotFoundError,
    ScriptError,
    ToolError,
)
from graphagent.graph import Strategy
from graphagent.llm import Tool, Usage
from graphagent.run._context import as_tool
from graphagent.run._ledger import Charge
from graphagent.run._listening import around_and_own
from graphagent.run._run import Run, begin
from graphagent.run._suspend import Halt, Question
from graphagent.run._walk import flowed

if TYPE_CHECKING:
    from graphagent.agent import Agent
    from graphagent.llm import ToolCall
    from graphagent.protocols import Store
    from graphagent.run._context import Context
    from graphagent.run._recording import Recording
    from graphagent.run._setup import Setup
    from graphagent.run._state import RunState

_BEGUN = "agent"
"""Begins the key under which a call writes down a run that it begins."""


@dataclass(frozen=True, eq=False)
class AgentTool(Tool):
    """An agent as a tool of another one."""

    agent: Agent[Any, Any] = field(kw_only=True, repr=False)
    """The agent."""
    setup: Callable[[], Setup] = field(kw_only=True, repr=False)
    """Gives what the agent gives each of its runs."""


@final
class Around:
    """Where what a sub-agent spends counts too: a call in the run around."""

    __slots__ = ("_ctx", "_name", "_run_id")

    def __init__(self, ctx: Context, name: str, run_id: str) -> None:
        self._ctx = ctx
        self._name = name
        self._run_id = run_id

    def spend(self, usage: Usage) -> None:
        """Count what the sub-agent spent, in every run around."""
        state = self._ctx.state
        self._ctx.meter.spend(usage, held=True)
        held = state.held.get(self._run_id) or Charge(self._ctx.node, self._name, "", Usage(), self._run_id)
        state.held[self._run_id] = replace(held, usage=held.usage + usage)
        if state.around is not None:
            state.around.spend(usage)

    @property
    def features(self) -> Mapping[Any, Any]:
        """What is installed in the agent around, by its type."""
        return self._ctx.state.features

    def settle(self) -> None:
        """Take over what was counted, for the journal of the run around."""
        state = self._ctx.state
        held = state.held.pop(self._run_id, None)
        if held is not None:
            self._ctx.meter.settle(held.usage)
            state.charges.append(held)

    def check_spending(self, state: RunState) -> None:
        """Stop the sub-agent where all tokens or all money of a run around are spent: it can go on when there is more.

        Raises:
            Halt: they are.
        """
        if self.is_used_up:
            state.pause("the budget of the run around is used up")
            raise Halt

    @property
    def is_used_up(self) -> bool:
        """Whether all tokens or all money of a run around are spent."""
        around = self._ctx.state.around
        return self._ctx.meter.is_used_up or (around is not None and around.is_used_up)


async def run_inside(name: str, setup: Setup, ctx: Context[Any] | None, task: Any) -> Any:
    """Run an agent as a part of a run, and give its answer. Its own features count, and the rest comes from around.

    Raises:
        ToolError: it failed.
        Halt: it waits for a person, or is to pause; so does the run around it.
        RunError: it met an end of the run around.
    """
    if ctx is None or ctx.call is None:
        setup = setup if ctx is None else replace(setup, deps=ctx.deps)
        trust = "trusted" if ctx is None else ctx.memory.trust
        alone = begin(setup, task, run_id=None, owner="", steps=(), images=(), trust=trust)
        try:
            return (await alone.finish()).output
        finally:
            if ctx is not None:
                _hear(ctx, alone)
    key = ctx.numbered(_BEGUN)
    again = ctx.recorded(key)
    path = await ctx.once(key, lambda: _path(ctx, name))
    run = ctx.state.children.get(f"{ctx.run_id}/{path}")
    if run is None and again:
        run = await _read_again(setup, ctx, path)
    if run is None:
        run = _begin(setup, ctx, task, path)
    run.state.handlers = around_and_own(ctx.state.handlers, setup.handlers)
    around = Around(ctx, name, run.run_id)
    run.state.around = around
    try:
        if _hand_on(run, ctx, path) or run.result.status != "waiting":
            await run.finish()
        while run.result.status == "waiting" and _hand_on(run, ctx, path):
            await run.finish()  # begun anew in a fork, it asks what was answered already
    except Exception as error:  # noqa: BLE001  raised again, as what it means around
        _hear(ctx, run)  # it may tell what the agent heard
        told = _told(error, ctx, name)
        raise told from told.__cause__
    finally:
        around.settle()
        run.state.around = None  # what is at rest must not stand in a circle
    if run.done:
        _hear(ctx, run)
        return run.output
    for question in run.questions:
        await ctx.answer_to(_mirrored(question, run, path, ctx.node))
    if not run.questions:
        # It paused: of itself, or since a budget around is used up, or since all are to pause.
        ctx.meter.check_spending(ctx.state)
        ctx.state.pause(f"the agent {name!r} paused")
    raise Halt


def _hear(ctx: Context, run: Run[Any]) -> None:
    """Trust what is made of what an agent gave, or of its error, no further than what it heard."""
    ctx.memory.lower(run.memory.trust)
    for trust in flowed(run.context):
        ctx.memory.lower(trust)


async def _path(ctx: Context, name: str) -> str:
    journal = ctx.state.journal
    number = len(ctx.state.children) if journal is None else journal.log.last
    return f"{name}/{number + 1}"


def sub_run(ctx: Context, call: ToolCall) -> str:
    """Give the id of the run that a call began; empty where it began none, or several."""
    paths = [path for call_id, path in _begun(ctx.effects) if call_id == call.id]
    return f"{ctx.run_id}/{paths[0]}" if len(paths) == 1 else ""


def _begun(effects: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Give the paths of the runs that calls began, each with the id of its call."""
    for key, path in (effects or {}).items():
        call_id, _, name = key.rpartition("/")
        if name.startswith(f"{_BEGUN}:") and isinstance(path, str):
            yield call_id, path


def _begin(setup: Setup, ctx: Context, task: Any, path: str) -> Run[Any]:
    run_id = f"{ctx.run_id}/{path}"
    own = _within(setup, ctx)
    run = begin(
        own, task, run_id=run_id, owner=ctx.owner, steps=(), images=(), parent=ctx.run_id, trust=ctx.memory.trust
    )
    ctx.state.children[run_id] = run
    return run


async def _read_again(setup: Setup, ctx: Context, path: str) -> Run[Any] | None:
    """Give a run that was begun in an earlier life, and was not taken up when the run around was read.

    That knows only agents that are tools where the call stands, and not what a tool calls for itself.
    """
    from graphagent.run._durable import read

    own, run_id = _within(setup, ctx), f"{ctx.run_id}/{path}"
    if own.store is None:
        return None
    with suppress(RunNotFoundError):  # the process died before it began
        run = await read(own, ctx.owner, run_id)
        charges = (*ctx.state.charges_before(), *ctx.state.charges)
        _join(ctx, run, path, sum((each.usage for each in charges if each.run_id == run_id), Usage()))
        return run
    return None


def _within(setup: Setup, ctx: Context) -> Setup:
    """Give an agent what it has not of its own, from around."""
    around = ctx.state
    return replace(
        setup, store=around.journal.log.store if around.journal is not None else None, model=setup.model or ctx.model_or_none,
        features={**around.features, **setup.features}, handlers=around_and_own(around.handlers, setup.handlers),
        deps=around.deps,
    )  # fmt: skip


def _told(error: Exception, ctx: Context, name: str) -> Exception:
    """Give what the model is told of a sub-agent that failed; or the error itself, where it ends the run around too."""
    cause: BaseException | None = error
    while isinstance(cause, NodeFailedError):
        cause = cause.__cause__
    if isinstance(cause, ScriptError):
        return cause
    if isinstance(cause, DivergedError | HandlerError | JournalError | RunClaimedError | RunNotFoundError):
        cause.run_id = ctx.run_id
        return cause
    told = ToolError(f"the agent {name!r} failed: {error}")
    told.__cause__ = error
    return told


# ---- questions


def _mirrored(question: Question, run: Run[Any], path: str, node: str) -> Question:
    """Give the question of a sub-agent as that of the run around."""
    asking = run.state.asking[question.id]
    turn = asking.memory.open
    # A server may give calls of different turns the same id.
    number = f"{turn.step_number}:" if turn is not None else ""
    return replace(question, id=f"{path}/{number}{question.id}", node=node, run_id=question.run_id or run.run_id)


def _hand_on(run: Run[Any], ctx: Context, path: str) -> bool:
    """Hand on what was answered to the questions of a sub-agent. Tell whether something was."""
    done, handed = ctx.effects or {}, False
    for question in run.questions:
        key = _mirrored(question, run, path, ctx.node).key
        if key in done:
            try:
                run.answer(answers={question.id: done[key]})
                handed = True
            except AnswerError:  # its type was not known when it was given: it is asked for again
                del done[key]
    return handed


# ---- from the store


async def take_up(
    run: Run[Any], store: Store, recording: Recording, *, allow_changed: bool = False, children: bool = False
) -> None:
    """Take up the runs of sub-agents that were begun and are not done, with what they spent and ask.

    With `children`, those that are a part of them and ended are read too.

    Raises:
        StrategyChangedError: the strategy of one has changed since.
        DamagedStoreError: what is kept is not what was written.
    """
    from graphagent.run._durable import read

    for ctx in _standing(run.context):
        for call_id, path in list(_begun(ctx.effects)):
            tool = _tool_of(ctx, path)
            if tool is None or ctx.done(f"call:{call_id}") is not None:
                continue
            setup = replace(_within(tool.setup(), ctx), store=store)
            with suppress(RunNotFoundError):  # the process died before it began
                run_id = f"{ctx.run_id}/{path}"
                child = await read(setup, ctx.owner, run_id, allow_changed=allow_changed, children=children)
                _join(ctx, child, path, recording.charged(run_id))


def _tool_of(ctx: Context, path: str) -> AgentTool | None:
    name = path.partition("/")[0]
    return next((tool for tool in ctx.tools if isinstance(tool, AgentTool) and tool.name == name), None)


def _join(ctx: Context, child: Run[Any], path: str, charged: Usage) -> None:
    """Have a run be a part of the run around, with what it spent and was not counted, and what it asks."""
    state = ctx.state
    state.children[child.run_id] = child
    Around(ctx, path.partition("/")[0], child.run_id).spend(child.result.usage - charged)
    for id_ in [id_ for id_ in state.questions if id_.startswith(f"{path}/")]:
        del state.questions[id_], state.asking[id_]
    for question in child.questions:
        state.ask(_mirrored(question, child, path, ctx.node), ctx)


async def read_children(run: Run[Any], store: Store, recording: Recording) -> None:
    """Read the runs of all sub-agents that were begun, where their agents are tools still, to be looked at.

    Raises:
        DamagedStoreError: what is kept is not what was written.
    """
    from graphagent.run._durable import read

    setup, state = run.setup, run.state
    tools = {tool.name: tool for tool in reversed([*agent_tools(setup.strategy, setup.tools)])}
    found: dict[str, Run[Any]] = {}
    for path in _paths(recording):
        tool = tools.get(path.partition("/")[0])
        if tool is None:
            continue
        own = replace(tool.setup(), store=store)
        for run_id in await _ids(recording, path, store):
            with suppress(RunNotFoundError):
                found[run_id] = state.children.get(run_id) or await read(
                    own, state.owner, run_id, allow_changed=True, children=True
                )
                break
    state.children = {**found, **state.children}


def all_tools(strategy: Strategy[Any, Any], tools: Sequence[Any]) -> Iterator[Tool]:
    """Yield the tools of an agent, and of the subgraphs of its strategy."""
    inside = (element for _, element in strategy.walk() if isinstance(element, Strategy))
    settings = (each.setting for each in (strategy, *inside))
    own = (each for setting in settings if setting is not None for each in setting.tools or ())
    yield from map(as_tool, (*tools, *own))


def agent_tools(strategy: Strategy[Any, Any], tools: Sequence[Any]) -> Iterator[AgentTool]:
    """Yield the agents among these."""
    return (each for each in all_tools(strategy, tools) if isinstance(each, AgentTool))


def _paths(recording: Recording) -> list[str]:
    mark = f"/{_BEGUN}:".encode()
    entries = (recording.entry(number) for number, data in enumerate(recording.entries, 1) if mark in data)
    done = ({entry["key"]: entry.get("value")} for entry in entries if entry["t"] == "effect")
    return [path for effect in done for _, path in _begun(effect)]


async def _ids(recording: Recording, path: str, store: Store) -> list[str]:
    """Give the ids that the run of a path may have: below its own run, or below one that this was forked from."""
    from graphagent.run._recording import read_head

    head, found = recording.head, [f"{recording.head.run_id}/{path}"]
    while head.origin is not None:
        head, _ = await read_head(store, head.owner, head.origin[0])
        found.append(f"{head.run_id}/{path}")
    return found


def _standing(ctx: Context) -> Iterator[Context]:
    yield ctx
    for part in (ctx.parts or {}).values():
        yield from _standing(part)
