"""Rules of strategies in runs: what they name is noted in the log, and checked against the state before it begins.

Which nodes a rule names is known when a strategy is compiled. Their calls are wrapped; all others are not, and cost nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphagent.errors import RuleError
from graphagent.graph._internal import is_one_tool, reason
from graphagent.log._internal import RuledExecution, hindrance, scope_of, standing
from graphagent.run._ruled import Ruled

if TYPE_CHECKING:
    from graphagent.llm import Tool
    from graphagent.log._internal import Frame
    from graphagent.run._compiled import Call
    from graphagent.run._runtime import Runtime
    from graphagent.run._scope import Execution


def ruled(call: Call, of: Sequence[Ruled]) -> Call:
    """Return the call of an element that rules name: it begins only if none is broken by it."""

    async def checked(execution: Execution, value: Any) -> Any:
        frame, log = execution.frame, execution.run.log
        check_rules(execution, of)  # again, since middleware may have waited
        named = _note(execution, of)
        output = await call(execution, value)
        log.append(RuledExecution(at=frame.path, of=named, ended=True))
        return output

    return checked


def begin_tool(execution: Execution, tool: Tool, key: str) -> tuple[tuple[str, str], ...]:
    """Note that a tool call begins, and return what the rules know it as; nothing if none names the tool.

    Raises:
        RuleError: it would break a rule.
    """
    found = check_tool(execution, tool, key)
    return _note(execution, found, key) if found else ()


def check_tool(execution: Execution, tool: Tool, key: str) -> list[Ruled]:
    """Check that a tool may be called, and return what rules say of it; nothing if none names it.

    Raises:
        RuleError: it would break a rule.
    """
    node = execution.node
    found: list[Ruled] = []
    for rules, _, levels in node.within if node is not None else ():
        names = tuple(name for each, name in rules.named if is_one_tool(each, tool))
        if names:
            found.append(Ruled(levels, names, rules.checks(names)))
    check_rules(execution, found, tool.name, key)
    return found


def end_tool(execution: Execution, named: tuple[tuple[str, str], ...], key: str) -> None:
    """Note that a tool call came to its end."""
    execution.run.log.append(RuledExecution(at=execution.frame.path, of=named, call=key, ended=True))


def check_rules(execution: Execution, of: Sequence[Ruled], call: str = "", key: str = "") -> None:
    """Check that something may begin, or might: the current node, or the call of a tool of some name under a key.

    Raises:
        RuleError: it would break a rule.
    """
    run, frame = execution.run, execution.frame
    path = f"{frame.node_path}:{key}" if call else frame.node_path
    for levels, _, checks in of:
        around = _around(frame, levels)
        state, scope = run.log.state, scope_of(around)
        # If it continues, it may have begun before what the rule is about, or that may have been executed since.
        executed = (standing(state, scope), standing(state, scope, path, frame)) if checks else ()
        for rule, first, between in checks:
            found = [hindrance(each, first, between) for each in executed]
            after = found[-1]
            if after is not None and found[0] is not None:
                node = f"{frame.node_path}: {call}" if call else frame.node_path
                error = RuleError(str(rule), node, after, (*_path(around, frame), node), reason(rule, after))
                error.run_id = _run_around(run, around).run_id
                raise error


def _note(execution: Execution, of: Sequence[Ruled], key: str = "") -> tuple[tuple[str, str], ...]:
    """Note that something begins, and return its names, each with the path of the frame of the strategy that has the rules."""
    frame = execution.frame
    named = tuple((_around(frame, levels).path, name) for levels, names, _ in of for name in names)
    execution.run.log.append(RuledExecution(at=frame.path, of=named, call=key))
    return named


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
    return [each.path + name for each in reversed(frames) for name in each.executions if name != each.node]


def _run_around(run: Runtime, frame: Frame) -> Runtime:
    """Return the run, of those around, to which a frame belongs."""
    agent = frame.agent
    while run.parent is not None and run.activation is not agent:
        run = run.parent
    return run
