"""Compiling a strategy: what executes each of its nodes, with their policies."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from graphagent.errors import NodeFailedError, RunError
from graphagent.graph import Each, Node, Parallel, Race, Strategy, ToolSelection
from graphagent.run._compiled import DONE, Call, CompiledNode, CompiledStrategy, Inside, compile_strategy, counts
from graphagent.run.engine._execute import execute
from graphagent.run.engine._fork import each_call, parallel_call, race_call, with_same_items
from graphagent.run.engine._learning import learning
from graphagent.run.engine._policies import with_policies
from graphagent.run.engine._tool_selection import choose_tools

if TYPE_CHECKING:
    from graphagent.graph._internal import Element
    from graphagent.run.engine._context import Context


def compile_root(strategy: Strategy[Any, Any]) -> tuple[CompiledStrategy, Call]:
    """Compile an agent's own strategy. Return it, and the call that executes it in the frame of the run.

    Its nodes are executed in the frame of the run itself, so its name is not part of their paths.
    """
    compiled = compile_strategy(strategy, partial(_compile_node, around=f"{strategy.name}/"))

    async def enter(ctx: Context[Any], value: Any) -> Any:
        frame = ctx.__frame__
        if frame.compiled is None:
            return await execute(compiled.first, frame, value)
        return await execute(frame.compiled, frame, frame.value)

    call = with_policies(enter, strategy, strategy.name)

    async def named(ctx: Context[Any], value: Any) -> Any:
        try:
            return await call(ctx, value)
        except RunError:
            raise
        except Exception as error:  # of its policies; errors of nodes are RunErrors
            raise ctx.__frame__.runtime.of_run(NodeFailedError(strategy.name, error)) from error

    return compiled, named if strategy.policies else enter


def _compile_node(element: Element, around: str) -> CompiledNode:
    """Compile an element. `around` begins its path, in which all items of an `each` have one branch, with the agent's strategy."""
    path = around + element.name
    if not isinstance(element, Node):
        call = with_policies(element.function, element, path)
        if getattr(element.function, "learns", False):
            call = learning(call)
        return CompiledNode(element.name, call, counts=True, passes_input=True, element=element)
    inside: Inside = ()
    if isinstance(element, Strategy):
        inside = compile_strategy(element, partial(_compile_node, around=f"{path}/"))
        call = with_policies(_strategy_call(inside, element), element, path)
    elif isinstance(element, Each):
        inside = _compile_branches(element, path)
        call = with_same_items(with_policies(each_call(element, inside), element, path))
    elif isinstance(element, Race):
        inside = _compile_branches(element, path)
        call = with_policies(race_call(element, inside), element, path)
    elif isinstance(element, Parallel):
        inside = _compile_branches(element, path)
        call = with_policies(parallel_call(element, inside), element, path)
    else:
        call = with_policies(element.function, element, path)
    return CompiledNode(element.name, call, counts=counts(element), passes_input=False, element=element, inside=inside)


def _compile_branches(fork: Each | Parallel | Race, path: str) -> tuple[CompiledNode, ...]:
    """Compile the branches of a fork: nodes that END follows."""
    compiled = tuple(_compile_node(node, f"{path}/{number}/") for number, node in enumerate(fork.branches))
    for each in compiled:
        each.following = DONE
    return compiled


def _strategy_call(compiled: CompiledStrategy, strategy: Strategy[Any, Any]) -> Call:
    setting = strategy.setting
    selection = setting.tools if setting is not None and isinstance(setting.tools, ToolSelection) else None

    async def enter(ctx: Context[Any], value: Any) -> Any:
        outer = ctx.__frame__
        frame = outer.inner()
        if frame is None:
            if selection is not None and setting is not None:
                await choose_tools(outer, selection, setting, outer.available(setting), value)
            frame = outer.enter(strategy.name, strategy.setting)
        if frame.compiled is None:
            output = await execute(compiled.first, frame, value)
        else:
            output = await execute(frame.compiled, frame, frame.value)
        if frame.ref is not None:
            outer.remember_ref(frame.ref)
        return output

    return enter
