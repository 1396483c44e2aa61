"""Agents that are called as tools: their runs are parts of the run that calls them.

A call records the id of the run that it is about to begin, and only then begins it. So whoever executes the call again, in this
process or in another, finds that run and resumes it. What the run spends counts in the parent at once; the parent's journal takes
it over when the call is left, in whatever way, so that nothing counts twice when both are read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from graphagent._dispatch import handlers_of_child
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
from graphagent.llm import Usage
from graphagent.run._sites import AgentTool, sites
from graphagent.run.engine._driver import RunDriver, begin
from graphagent.run.engine._execute import branch_trust
from graphagent.run.engine._runtime import ParentRun
from graphagent.run.engine._suspend import Suspend

if TYPE_CHECKING:
    from graphagent.llm import ToolCall
    from graphagent.protocols import Store
    from graphagent.run._config import RunConfig
    from graphagent.run.engine._context import Context, LiveFrame
    from graphagent.run.engine._runtime import Runtime
    from graphagent.run.journal._reader import JournalReader
    from graphagent.run.state._questions import Question
    from graphagent.run.state._state import Effect

_BEGUN = "agent"
"""Begins the key under which a call records the run that it begins."""


async def run_as_child(name: str, config: RunConfig, ctx: Context[Any] | None, task: Any) -> Any:
    """Run an agent as a part of a run, and return its answer. Its own features count, and the rest is the parent's.

    Raises:
        ToolError: it failed.
        Suspend: it waits for a person, or is to pause, and so does the parent.
        RunError: it met an end of the parent.
    """
    frame = None if ctx is None else ctx.__frame__
    if frame is None or frame.call is None:
        config = config if frame is None else replace(config, deps=frame.runtime.deps)
        trust = "trusted" if frame is None else frame.memory.trust
        alone = begin(config, task, run_id=None, owner="", trust=trust)
        try:
            return (await alone.finish()).output
        finally:
            if frame is not None:
                _lower_trust(frame, alone)
    runtime = frame.runtime
    key = frame.numbered(_BEGUN)
    again = frame.is_recorded(key)
    path = await frame.once(key, lambda: _path(runtime, name))
    run = _child(runtime, f"{runtime.run_id}/{path}")
    if run is None and again:
        run = await _read_again(config, frame, path)
    if run is None:
        run = _begin(config, frame, task, path)
    run.runtime.handlers = handlers_of_child(runtime.handlers, config.handlers)
    parent = ParentRun(frame, name, run.run_id)
    run.runtime.parent = parent
    try:
        if _answer_child(run, frame, path) or run.result.status != "waiting":
            await run.finish()
        while run.result.status == "waiting":
            # Begun anew in a fork or a rerun of the parent, it asks questions that have answers.
            for question in list(run.runtime.questions.values()):
                await frame.answer_to(_question_in_parent(question, run, path, frame.node_path))
            if not _answer_child(run, frame, path):
                break
            await run.finish()
    except Exception as error:  # noqa: BLE001  raised again, as what it means in the parent
        _lower_trust(frame, run)  # its text may contain what the agent heard
        shown = _error_in_parent(error, runtime.run_id, name)
        raise shown from shown.__cause__
    finally:
        parent.settle()
        run.runtime.parent = None  # at rest there must be no circle of references
    if run.done:
        _lower_trust(frame, run)
        return run.result.output
    questions = list(run.runtime.questions.values())
    for question in questions:
        await frame.answer_to(_question_in_parent(question, run, path, frame.node_path))
    if not questions:
        # It paused: of itself, or because a budget of the parent is used up, or because all are to pause.
        frame.meter.check_spending(runtime)
        runtime.pause(f"the agent {name!r} paused")
    raise Suspend


def _lower_trust(frame: LiveFrame, run: RunDriver) -> None:
    """Trust the result of an agent, or its error, no more than what the agent heard."""
    frame.memory.lower(run.runtime.memory.trust)
    for trust in branch_trust(run.frame):
        frame.memory.lower(trust)


async def _path(runtime: Runtime, name: str) -> str:
    number = len(runtime.children) if runtime.journal is None else runtime.journal.writer.last
    return f"{name}/{number + 1}"


def child_run_of(frame: LiveFrame, call: ToolCall) -> str:
    """Return the id of the run that a call began; empty if it began none, or several."""
    paths = [path for call_id, path in _children_begun(frame.effects) if call_id == call.id]
    return f"{frame.runtime.run_id}/{paths[0]}" if len(paths) == 1 else ""


def _children_begun(effects: Mapping[str, Effect] | None) -> Iterator[tuple[str, str]]:
    """Yield the ids of calls that began runs, each with the path of the run."""
    for key, effect in (effects or {}).items():
        call_id, _, name = key.rpartition("/")
        if name.startswith(f"{_BEGUN}:") and isinstance(effect.value, str):
            yield call_id, effect.value


def _child(runtime: Runtime, run_id: str) -> RunDriver | None:
    return cast("RunDriver | None", runtime.children.get(run_id))


def _begin(config: RunConfig, frame: LiveFrame, task: Any, path: str) -> RunDriver:
    runtime = frame.runtime
    run_id = f"{runtime.run_id}/{path}"
    run = begin(
        _within(config, frame), task, run_id=run_id, owner=runtime.owner, parent=runtime.run_id,
        trust=frame.memory.trust,
    )  # fmt: skip
    runtime.children[run_id] = run
    return run


async def _read_again(config: RunConfig, frame: LiveFrame, path: str) -> RunDriver | None:
    """Return a run that was begun before the process died, and was not taken up when its parent was read.

    The parent takes up only runs of agents that are tools at the call, and not those that a tool begins itself.
    """
    from graphagent.run.engine._restore import read_run_driver

    runtime = frame.runtime
    own, run_id = _within(config, frame), f"{runtime.run_id}/{path}"
    if own.store is None:
        return None
    with suppress(RunNotFoundError):  # the process died before it began
        run = await read_run_driver(own, runtime.owner, run_id)
        charges = (*runtime.charges_before(), *runtime.charges)
        _join(frame, run, path, sum((each.usage for each in charges if each.run_id == run_id), Usage()))
        return run
    return None


def _within(config: RunConfig, frame: LiveFrame) -> RunConfig:
    """Return the configuration of an agent whose run is a part of another one: it takes from the parent what it lacks."""
    runtime, tools = frame.runtime, config.tools
    if config.inherits_tools:  # without itself: a call would begin another one, and so on
        strategy = config.strategy
        tools = tuple(
            each for each in frame.tools if not (isinstance(each, AgentTool) and each.agent.strategy is strategy)
        )
    return replace(
        config, tools=tools, store=runtime.journal.writer.store if runtime.journal is not None else None,
        model=config.model or frame.model, features={**runtime.features, **config.features},
        handlers=handlers_of_child(runtime.handlers, config.handlers), deps=runtime.deps,
    )  # fmt: skip


def _error_in_parent(error: Exception, run_id: str, name: str) -> Exception:
    """Return the error that the model is shown for an agent that failed; or the error itself, if it ends the parent too."""
    cause: BaseException | None = error
    while isinstance(cause, NodeFailedError):
        cause = cause.__cause__
    if isinstance(cause, ScriptError):
        return cause
    if isinstance(cause, DivergedError | HandlerError | JournalError | RunClaimedError | RunNotFoundError):
        cause.run_id = run_id
        return cause
    shown = ToolError(f"the agent {name!r} failed: {error}")
    shown.__cause__ = error
    return shown


# ---- questions


def _question_in_parent(question: Question, run: RunDriver, path: str, node: str) -> Question:
    """Return the question of a child as that of its parent."""
    turn = run.runtime.asking[question.id].memory.open
    # A server may use the same id for calls of different turns.
    number = f"{turn.step_number}:" if turn is not None else ""
    return replace(question, id=f"{path}/{number}{question.id}", node=node, run_id=question.run_id or run.run_id)


def _answer_child(run: RunDriver, frame: LiveFrame, path: str) -> bool:
    """Pass the answers to the questions of a child on to it. Return whether there were any."""
    effects, answered = frame.effects or {}, False
    for question in list(run.runtime.questions.values()):
        key = _question_in_parent(question, run, path, frame.node_path).key
        if key in effects:
            try:
                run.answer({question.id: effects[key].value})
                answered = True
            except AnswerError:  # its type was not known when it was given: it is asked for again
                del effects[key]
    return answered


# ---- from the store


async def take_up_children(
    run: RunDriver, store: Store, journal: JournalReader, *, allow_changed: bool = False, children: bool = False
) -> None:
    """Take up the runs of sub-agents that were begun and did not end, with what they spent and ask.

    With `children`, those of their own children that ended are read too.

    Raises:
        StrategyChangedError: the strategy of one has changed since.
        DamagedStoreError: it is not what was written.
    """
    from graphagent.run.engine._restore import read_run_driver

    runtime = run.runtime
    for frame in list(run.frame.live_frames()):
        for call_id, path in list(_children_begun(frame.effects)):
            tool = _tool_of(frame, path)
            if tool is None or frame.outcome(f"call:{call_id}") is not None:
                continue
            config = replace(_within(tool.config(), frame), store=store)
            with suppress(RunNotFoundError):  # the process died before it began
                run_id = f"{runtime.run_id}/{path}"
                child = await read_run_driver(
                    config, runtime.owner, run_id, allow_changed=allow_changed, children=children
                )
                _join(frame, child, path, journal.charged(run_id))


def _tool_of(frame: LiveFrame, path: str) -> AgentTool | None:
    name = path.partition("/")[0]
    return next((tool for tool in frame.tools if isinstance(tool, AgentTool) and tool.name == name), None)


def _join(frame: LiveFrame, child: RunDriver, path: str, charged: Usage) -> None:
    """Make a run a part of its parent, with what it spent and was not charged, and what it asks."""
    runtime = frame.runtime
    runtime.children[child.run_id] = child
    ParentRun(frame, path.partition("/")[0], child.run_id).spend(child.result.usage - charged)
    for id_ in [id_ for id_ in runtime.questions if id_.startswith(f"{path}/")]:
        del runtime.questions[id_], runtime.asking[id_]
    for question in child.runtime.questions.values():
        runtime.ask(_question_in_parent(question, child, path, frame.node_path), frame)


async def read_children(run: RunDriver, store: Store, journal: JournalReader) -> None:
    """Read the runs of all sub-agents that were begun, if their agents are still tools, to be looked at.

    Raises:
        DamagedStoreError: one is not what was written.
    """
    from graphagent.run.engine._restore import read_run_driver

    config, runtime = run.config, run.runtime
    declared = [tool for site in sites(config.strategy, config.tools) for tool in site.own_tools]
    tools = {tool.name: tool for tool in reversed(declared) if isinstance(tool, AgentTool)}
    found: dict[str, RunDriver] = {}
    for path in _paths(journal):
        tool = tools.get(path.partition("/")[0])
        if tool is None:
            continue
        own = replace(_within(tool.config(), run.frame), store=store)
        for run_id in await _ids(journal, path, store):
            with suppress(RunNotFoundError):
                found[run_id] = _child(runtime, run_id) or await read_run_driver(
                    own, runtime.owner, run_id, allow_changed=True, children=True
                )
                break
    runtime.children = {**found, **runtime.children}


def _paths(journal: JournalReader) -> list[str]:
    """Return the paths of the runs that were begun as parts of a run."""
    from graphagent.run.state._entries import EffectDone

    mark = f"/{_BEGUN}:".encode()
    entries = (journal.entry(number) for number in journal.numbers if mark in journal.packed[number - 1])
    found = (entry for entry in entries if isinstance(entry, EffectDone) and isinstance(entry.value, str))
    return [entry.value for entry in found if entry.key.rpartition("/")[2].startswith(f"{_BEGUN}:")]


async def _ids(journal: JournalReader, path: str, store: Store) -> list[str]:
    """Return the ids that the run of a path may have: below its own run, or below one from which that was forked."""
    from graphagent.run.journal._reader import read_header

    header, found = journal.header, [f"{journal.header.run_id}/{path}"]
    while header.origin is not None and header.forked:
        header, _ = await read_header(store, header.owner, header.origin[0])
        found.append(f"{header.run_id}/{path}")
    return found
