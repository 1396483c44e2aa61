"""Rules of strategies in runs: what they name is noted, and checked before it begins.

Which nodes a rule names is known when a strategy is compiled. Their calls are wrapped; all others are not, and cost nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from graphagent.errors import RuleError
from graphagent.graph._rules import is_about, reason
from graphagent.log._executed import Executed, RuleScope, name_of_tool, scope_of, violation
from graphagent.run._ruled import Ruled

if TYPE_CHECKING:
    from graphagent.graph._rules import RuleNode
    from graphagent.llm import Tool
    from graphagent.log._visits import Frame
    from graphagent.run._agent_run import AgentRun
    from graphagent.run._compiled import Call
    from graphagent.run._walk import Walk

Named: TypeAlias = Sequence[tuple[RuleScope, str]]
"""What rules know something as that is executed: the visits of the strategies that have the rules, and names."""


def ruled(call: Call, of: Sequence[Ruled]) -> Call:
    """Return the call of an element that rules name: it begins only if none is broken by it."""

    async def checked(walk: Walk, value: Any) -> Any:
        path = walk.frame.node_path
        check_rules(walk, of)  # again, since middleware may have waited
        named = _begin(walk, of, path)
        output = await call(walk, value)
        _end(walk, named, path)
        return output

    return checked


def begin_tool(walk: Walk, tool: Tool, key: str) -> Named:
    """Note that a tool call begins, and return what the rules know it as; nothing if none names the tool."""
    return _begin(walk, check_tool(walk, tool, key), f"{walk.frame.node_path}:{key}")


def end_tool(walk: Walk, named: Named, key: str) -> None:
    """Note that a tool call came to its end."""
    _end(walk, named, f"{walk.frame.node_path}:{key}")


def names_in_log(tool: Tool, named: Named) -> tuple[str, ...]:
    """Return the names of a tool that the log has besides its own, so that whoever reads it knows it as the rules do."""
    return tuple(name for _, name in named if name != name_of_tool(tool.name))


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


def begin_agent(walk: Walk, of: Sequence[Ruled], inside: Frame) -> Named:
    """Note that a sub-agent begins, and return what the rules know it as."""
    return _begin(walk, of, inside.path.rstrip("/"))


def end_agent(walk: Walk, named: Named, inside: Frame) -> None:
    """Note that a sub-agent came to its end."""
    _end(walk, named, inside.path.rstrip("/"))


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
    frame, past = walk.frame, walk.run.log.past
    return past is not None and past.is_inside(scope_of(_around(frame, levels)), name, at, frame.node_path, frame.visit)


def check_rules(walk: Walk, of: Sequence[Ruled], call: str = "", path: str = "") -> None:
    """Check that something may begin, or might: the current node, or the call of a tool or an agent of some name at a path."""
    run, frame = walk.run, walk.frame
    path = path if call else frame.node_path
    for levels, _, checks in of:
        around = _around(frame, levels)
        past, scope = _past(walk), scope_of(around)
        now = past.standing(scope, run.log.state.number) if checks else {}
        # If it continues, it may have begun before what the rule is about, or that may have been executed since.
        before = past.stood(scope, path, frame.node_path, frame.visit) if checks else None
        for rule, first, between in checks:
            after = violation(now, first, between)
            if after is not None and before is not None:
                after = violation(before, first, between)
            if after is not None:
                node = f"{frame.node_path}: {call}" if call else frame.node_path
                error = RuleError(str(rule), node, after, (*_path(around, frame), node), reason(rule, after))
                error.run_id = _run_around(run, around).run_id
                raise error


def _past(walk: Walk) -> Executed:
    """Return what the run has executed of what rules name."""
    log = walk.run.log
    if log.past is None:
        log.past = Executed(log.state.visit_at)
    return log.past


def _begin(walk: Walk, of: Sequence[Ruled], path: str) -> Named:
    """Note that something begins, and return its names."""
    frame, number = walk.frame, walk.run.log.state.number
    named = tuple((scope_of(_around(frame, levels)), name) for levels, names, _ in of for name in names)
    for scope, name in named:
        _past(walk).begin(scope, name, path, frame.path, frame.visit, number)
    return named


def _end(walk: Walk, named: Named, path: str) -> None:
    for scope, name in named:
        _past(walk).end(scope, name, path, walk.run.log.state.number)


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
