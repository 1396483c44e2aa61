"""Sub-agents: agents that are called as tools, or by a node. Their runs are frames in the log of the run that calls them."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from graphagent import _clock
from graphagent._dispatch import handlers_of_child
from graphagent.errors import (
    DivergedError,
    HandlerError,
    JournalError,
    NodeFailedError,
    RunClaimedError,
    RunError,
    RunNotFoundError,
    ScriptError,
    ToolError,
)
from graphagent.events import RunFailed, RunFinished, RunResumed, RunStarted, RunSuspended
from graphagent.log._entries import AgentStarted, AgentStopped
from graphagent.memory.steps._types import TaskStep
from graphagent.run._after import look_back
from graphagent.run._agent_run import AgentRun
from graphagent.run._answering import begin_features, execute_until_accepted
from graphagent.run._final_errors import Suspend
from graphagent.run._middleware import around_run
from graphagent.run._reading import look_up_again_in
from graphagent.run._rules import begin_agent, check_agent, end_agent
from graphagent.run._sites import AgentNode, AgentTool

if TYPE_CHECKING:
    from graphagent.run._config import RunConfig
    from graphagent.run._effects import Effects
    from graphagent.run._rules import Named


async def run_agent(agent: Any, effects: Effects, task: Any) -> Any:
    """Run an agent as a part of a run, and return its answer. Its own features count, and the rest is the parent's.

    Raises:
        ToolError: it failed.
        Suspend: it waits for a person, or is to pause, and so does the parent.
        RunError: it met an end of the parent, or a rule around the node forbids it.
    """
    config: RunConfig = agent._config()  # noqa: SLF001  of agents, which this room does not import
    name: str = agent.name or agent.strategy.name
    run, named = _child(agent, name, config, effects, task)
    log = run.log
    if run.activation.status == "done":
        return run.answer_read()
    run.since, run.at_rest = _clock.ticks(), None
    try:
        started = RunStarted if run.frame.visit.latest == run.frame.born and not run.begun else RunResumed
        if not run.begun:
            await look_up_again_in(run)
            await begin_features(run)
            run.begun = True
        run.emit(started(run.run_id, config.strategy.name, run.owner))
        run.deadline = effects.walk.deadline
        step = await around_run(run, lambda: execute_until_accepted(run))
        log.append(AgentStopped(at=run.frame.path, status="done", step=copy.copy(step)))
        end_agent(effects.walk, named, run.frame)
    except Suspend:
        reason, questions = run.session.pausing, run.questions
        if reason is None and (questions or any(at.startswith(run.frame.path) for at, _ in run.session.tasks.wakes)):
            reason = "waiting" if questions else "sleeping"
        if reason is not None:
            run.report_steps()
            run.emit(RunSuspended(run.run_id, reason, questions))
        raise
    except Exception as error:
        if isinstance(error, RunError) and error.run_id in run.lineage[1:]:
            raise
        if log.stale is None:
            log.append(AgentStopped(at=run.frame.path, status="failed"))
        run.report_steps()
        run.emit(RunFailed(run.run_id, error))
        shown = _error_in_parent(error, effects.run.run_id, name)
        raise shown from shown.__cause__
    finally:
        run.before, run.since = run.elapsed, None
    output = run.answer_read()
    run.report_answer(output)
    await look_back(run)
    run.added_answer(step)
    run.report_steps()
    run.emit(RunFinished(run.run_id, output, run.result.usage))
    return output


def _child(agent: Any, name: str, config: RunConfig, effects: Effects, task: Any) -> tuple[AgentRun, Named]:
    """Return the run of a sub-agent that the node has begun under the same key, or begin it; and what rules know it as."""
    parent, frame, log = effects.run, effects.frame, effects.log
    session = parent.session
    key, within = effects.next("agent"), _within(config, effects)
    found = frame.visit.inside.get(f"agent {key}")
    is_done = found is not None and found[0].agent.status == "done"
    ruled = [] if is_done else check_agent(effects.walk, agent, name, key, None if found is None else found[0])
    if found is None:
        effects.record(
            AgentStarted(
                at=frame.path, key=key, name=name, first=within.compiled.first.name,
                value=log.keep(task, within.strategy.input_type), task=TaskStep(task), rules=within.system_prompt,
                strategy=within.strategy.outline if log.durable else None,
                declared={"": within.strategy.declaration.name, **within.strategy.declarations} if log.durable else {},
                ruled=within.compiled.ruled,
                began=_clock.now(),
            )
        )  # fmt: skip
        found = frame.visit.inside[f"agent {key}"]
    inside = found[0]
    assert inside.activation is not None
    named = begin_agent(effects.walk, ruled, inside)
    effects.position = max(effects.position, inside.born)
    run_id = session.id_of(inside.activation)
    run = session.children.get(run_id)
    if run is None or run.frame is not inside or not run.begun:  # one that was only looked at knows less of its parent
        run = session.children[run_id] = AgentRun(
            within, session, inside, run_id=run_id, parent=parent, limits=effects.walk.limits
        )
    node = effects.walk.node
    speaks = node is not None and isinstance(node.element, AgentNode) and parent.run_id in session.speakers
    if speaks:
        session.speakers[run_id] = inside.path
    run.held_back = effects.walk.held_back if speaks else None
    run.handlers = handlers_of_child(parent.handlers, config.handlers, speaks=speaks)
    if log.durable:
        log.codec.refers_at[inside.path] = within.refers
    return run, named


def _within(config: RunConfig, effects: Effects) -> RunConfig:
    """Return the configuration of an agent whose run is a part of another one: it takes from the parent what it lacks."""
    parent, walk, tools = effects.run, effects.walk, config.tools
    if config.inherits_tools:  # without itself: a call would begin another one, and so on
        strategy = config.strategy
        tools = tuple(
            each for each in walk.tools if not (isinstance(each, AgentTool) and each.agent.strategy is strategy)
        )
    if not tools and config.takes_calls:  # beside tools, those of features are offered anyway
        tools = tuple(tool for feature in parent.features.having("tools") for tool in feature.tools)
    node = walk.node
    if node is not None and node.within:  # the rules of the callers hold for what it executes
        compiled, call = config.compile(config.strategy, node.within)
        config = replace(config, compiled=compiled, call=call)
    return replace(
        config, tools=tools, store=parent.config.store, model=config.model or walk.model,
        plan=config.plan.within(parent.plan), handlers=handlers_of_child(parent.handlers, config.handlers),
        deps=parent.config.deps,
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
