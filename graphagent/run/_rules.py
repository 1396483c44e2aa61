"""Rules of strategies in runs: what they name is noted in the log, and checked against the state before it begins.

Which nodes a rule names is known when a strategy is compiled. Their calls are wrapped; all others are not, and cost nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphagent.errors import RuleError
from graphagent.graph._rules import is_about, reason
from graphagent.log._entries import RuledExecution
from graphagent.log._executed import continues, scope_of, standing, violation
from graphagent.run._ruled import Ruled

if TYPE_CHECKING:
    from graphagent.graph._rules import RuleNode
    from graphagent.llm import Tool
    from graphagent.log._visits import Frame
    from graphagent.run._agent_run import AgentRun
    from graphagent.run._compiled import Call
    from graphagent.run._walk import Walk


def ruled(call: Call, of: Sequence[Ruled]) -> Call:
    """Return the call of an element that rules name: it begins only if none is broken by it."""

    async def checked(walk: Walk, value: Any) -> Any:
        frame, log = walk.frame, walk.run.log
        check_rules(walk, of)  # again, since middleware may have waited
        named = _note(walk, of)
        output = await call(walk, value)
        log.append(RuledExecution(at=frame.path, of=named, ended=True))
        return output

    return checked


def begin_tool(walk: Walk, tool: Tool, key: str) -> tuple[tuple[str, str], ...]:
    """Note that a tool call begins, and return what the rules know it as; nothing if none names the tool."""
    found = check_tool(walk, tool, key)
    return _note(walk, found, key) if found else ()


def check_tool(walk: Walk, tool: Tool, key: str) -> list[Ruled]:
    """Check that a tool may be called, and return what rules say of it; nothing if none names it."""
    found = _rules_about(walk, tool)
    check_rules(walk, found, tool.name, f"{walk.frame.node_path}:{key}")
    return found


def check_agent(walk: Walk, agent: Any, name: str, key: str, inside: Frame | None) -> list[Ruled]:
    """Check that a sub-agent may be run, and return what rules say of it and of its strategy; nothing if none names them.

    Args:
        walk: That of the node that runs it.
        agent: The agent.
        name: How it is called.
        key: Its key among the effects of the node.
        inside: Its frame, if it has begun.
    """
    if walk.node is None or not walk.node.within:
        return []
    found = _rules_about(walk, agent.as_node(), f"{walk.frame.node_path}:{key}")
    check_rules(walk, found, name, "" if inside is None else inside.path.rstrip("/"))
    return found


def begin_agent(walk: Walk, of: Sequence[Ruled], inside: Frame) -> tuple[tuple[str, str], ...]:
    """Note that a sub-agent begins, in its frame, and return what the rules know it as."""
    named = _names(walk, of)
    if named:
        walk.run.log.append(RuledExecution(at=inside.path, of=named, agent=True))
    return named


def end_agent(run: AgentRun, named: tuple[tuple[str, str], ...]) -> None:
    """Note that a sub-agent came to its end."""
    if named:
        run.log.append(RuledExecution(at=run.frame.path, of=named, agent=True, ended=True))


def _rules_about(walk: Walk, called: RuleNode, at: str = "") -> list[Ruled]:
    """Return what the rules around a node say of something that it calls.

    Args:
        walk: That of the node.
        called: A tool, or an agent.
        at: The path of the call of an agent, which is a part of what the node, or the call of a tool around it, is noted as.
    """
    found: list[Ruled] = []
    for rules, _, levels in walk.node.within if walk.node is not None else ():
        about = (name for each, name in rules.named if is_about(each, called))
        names = tuple(name for name in about if not at or not _is_noted(walk, levels, name, at))
        if names:
            found.append(Ruled(levels, names, rules.checks(names)))
    return found


def _is_noted(walk: Walk, levels: int, name: str, at: str) -> bool:
    frame = walk.frame
    known = walk.run.log.state.executed.get(scope_of(_around(frame, levels)), {}).get(name)
    return known is not None and any(
        (path == frame.node_path or at.startswith(f"{path}/")) and continues(since, path, frame)
        for path, (_, _, since, _) in known.running.items()
    )


def end_tool(walk: Walk, named: tuple[tuple[str, str], ...], key: str) -> None:
    """Note that a tool call came to its end."""
    walk.run.log.append(RuledExecution(at=walk.frame.path, of=named, call=key, ended=True))


def check_rules(walk: Walk, of: Sequence[Ruled], call: str = "", path: str = "") -> None:
    """Check that something may begin, or might: the current node, or the call of a tool or an agent of some name at a path."""
    run, frame = walk.run, walk.frame
    path = path if call else frame.node_path
    for levels, _, checks in of:
        around = _around(frame, levels)
        state, scope = run.log.state, scope_of(around)
        # If it continues, it may have begun before what the rule is about, or that may have been executed since.
        executed = (standing(state, scope), standing(state, scope, path, frame)) if checks else ()
        for rule, first, between in checks:
            found = [violation(each, first, between) for each in executed]
            after = found[-1]
            if after is not None and found[0] is not None:
                node = f"{frame.node_path}: {call}" if call else frame.node_path
                error = RuleError(str(rule), node, after, (*_path(around, frame), node), reason(rule, after))
                error.run_id = _run_around(run, around).run_id
                raise error


def _note(walk: Walk, of: Sequence[Ruled], key: str = "") -> tuple[tuple[str, str], ...]:
    """Note that something begins, and return its names, each with the path of the frame of the strategy that has the rules."""
    named = _names(walk, of)
    walk.run.log.append(RuledExecution(at=walk.frame.path, of=named, call=key))
    return named


def _names(walk: Walk, of: Sequence[Ruled]) -> tuple[tuple[str, str], ...]:
    return tuple((_around(walk.frame, levels).path, name) for levels, names, _ in of for name in names)


def _around(frame: Frame, levels: int) -> Frame:
    for _ in range(levels):
        assert frame.parent is not None
        frame = frame.parent
    return frame


def _path(around: Frame, frame: Frame) -> list[str]:
    """Return the nodes to which a run has come since a strategy was entered, each once, without those that were left inside."""
    frames: list[Frame] = []
    at: Frame | None = frame
    while at is not None:
        frames.append(at)
        at = None if at is around else at.parent
    return [each.path + name for each in reversed(frames) for name in each.visits if name != each.visit.node]


def _run_around(run: AgentRun, frame: Frame) -> AgentRun:
    """Return the run, of those around, to which a frame belongs."""
    agent = frame.agent
    while run.parent is not None and run.activation is not agent:
        run = run.parent
    return run
