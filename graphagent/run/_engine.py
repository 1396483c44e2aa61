"""The engine: executes slots one after the other in one coroutine. Tasks exist only where a strategy forks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
from anyio.lowlevel import checkpoint

from graphagent.errors import BudgetError, HandlerError, NodeFailedError, NoPathError, RunError, ScriptError
from graphagent.events import NodeFailed, NodeFinished, NodeStarted, PathTaken
from graphagent.graph import Each, Node, Parallel, Race, Retry, Strategy, Timeout
from graphagent.run._plan import DONE, Call, Slot, Way, plan
from graphagent.run._together import together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphagent.graph import Element
    from graphagent.memory import RunMemory
    from graphagent.run._context import Context

_PATIENCE = 127
"""Every so many nodes the loop gets a turn (a mask, so one less than a power of two): nodes may never wait by themselves."""


async def walk(slot: Slot, ctx: Context, value: Any) -> Any:
    """Execute slots from this one to END and give what arrives there.

    Raises:
        RunError: a node failed, no way out takes an output, or a budget is used up.
    """
    state = ctx.state
    meter = ctx.meter
    alone = meter.parent is None
    record = state.record
    run_id, prefix = state.run_id, ctx.prefix
    started = state.handlers.get(NodeStarted)
    finished = state.handlers.get(NodeFinished)
    while slot is not DONE:
        ctx.slot = slot
        if slot.counts:
            if alone and meter.nodes < meter.max_nodes:
                count = meter.nodes = meter.nodes + 1
            else:
                count = meter.count_node(state)
            if not count & _PATIENCE:
                await checkpoint()
        if started is not None:
            event: Any = NodeStarted(run_id, prefix + slot.name, value)
            for handler in started:
                handler(event)
        try:
            given = await slot.call(ctx, value)
        except Exception as error:  # noqa: BLE001  raised again there, unless an error path takes it
            ctx.slot = slot
            slot, value = _recover(slot, ctx, error)
            continue
        if not slot.taps:
            value = given
        record += (prefix, slot.name, value)
        if finished is not None:
            event = NodeFinished(run_id, prefix + slot.name, value)
            for handler in finished:
                handler(event)
        following = slot.following
        if following is None:
            slot, value = _choose(slot, ctx, value)
        else:
            slot = following
    return value


def _choose(slot: Slot, ctx: Context, output: Any) -> tuple[Slot, Any]:
    """Give the first way out that takes an output, and what it hands on."""
    for way in slot.ways:
        passes, value = _through(way, ctx, output)
        if passes:
            return _taken(way, ctx), value
    raise _of_run(ctx, NoPathError(ctx.node, output, [way.label for way in slot.ways]))


def _through(way: Way, ctx: Context, value: Any) -> tuple[bool, Any]:
    """Say whether a way out takes a value, and what it hands on."""
    try:
        for rule in way.rules:
            if rule.test is not None:
                if not rule.test(ctx, value):
                    return False, None
            elif rule.change is not None:
                value = rule.change(value)
    except Exception as error:
        raise _of_run(ctx, NodeFailedError(ctx.node, error)) from error
    return True, value


def _taken(way: Way, ctx: Context) -> Slot:
    if PathTaken in ctx.state.handlers:
        ctx.emit(PathTaken(ctx.run_id, ctx.node, way.label, way.target.name))
    return way.target


def _recover(slot: Slot, ctx: Context, error: Exception) -> tuple[Slot, Any]:
    """Give the way out for an error, and what it hands on; raise the error where there is none."""
    if NodeFailed in ctx.state.handlers:
        ctx.emit(NodeFailed(ctx.run_id, ctx.node, error))
    for way in slot.errors:
        caught = matching(error, tuple(rule.error for rule in way.rules if rule.error is not None), ctx.run_id)
        if caught is not None:
            passes, value = _through(way, ctx, caught)
            if passes:
                return _taken(way, ctx), value
    if isinstance(error, RunError) and error.run_id == ctx.run_id:
        raise error
    raise _of_run(ctx, NodeFailedError(ctx.node, error)) from error


def _of_run(ctx: Context, error: RunError) -> RunError:
    error.run_id = ctx.run_id
    return error


def matching(error: Exception, kinds: tuple[type[Exception], ...], run_id: str) -> Exception | None:
    """Give what of an error is one of these kinds: where a node inside failed, its cause, otherwise the error itself.

    A used-up budget of this run is only found by its own name: what catches everything must not undo a limit.
    """
    if _is_final(error, run_id):
        return None
    if isinstance(error, BudgetError) and error.run_id == run_id:
        return error if any(issubclass(kind, BudgetError) for kind in kinds) else None
    if isinstance(error, NodeFailedError) and isinstance(error.__cause__, Exception) and NodeFailedError not in kinds:
        cause = matching(error.__cause__, kinds, run_id)
        if cause is not None:
            return cause
    return error if isinstance(error, kinds) else None


def _is_final(error: BaseException | None, run_id: str) -> bool:
    """Say whether nothing may take an error: a handler of this run broke, or a test's script is too short."""
    while isinstance(error, NodeFailedError):
        error = error.__cause__
    return isinstance(error, ScriptError) or (isinstance(error, HandlerError) and error.run_id == run_id)


def _ends_all(error: Exception, run_id: str) -> bool:
    """Say whether an error of one branch ends a race: what is final, and a budget of the whole run."""
    if isinstance(error, BudgetError) and error.run_id == run_id:
        return not error.where
    return _is_final(error, run_id)


def call_of(element: Element) -> Call:
    """Give how an element is executed, its policies included."""
    if not isinstance(element, Node):
        return element.function
    return _with_policies(_plain_call(element), element)


def _with_policies(call: Call, node: Node[Any, Any]) -> Call:
    for policy in node.policies:
        call = _with_timeout(call, policy) if isinstance(policy, Timeout) else _with_retry(call, policy, node)
    return call


def _plain_call(node: Node[Any, Any]) -> Call:
    if isinstance(node, Strategy):
        return _inside(node, node.name)
    if isinstance(node, Each):
        return _each(node)
    if isinstance(node, Race):
        return _race(node)
    if isinstance(node, Parallel):
        return _parallel(node)
    return node.function


def _with_timeout(call: Call, policy: Timeout) -> Call:
    async def limited(ctx: Context, value: Any) -> Any:
        with anyio.fail_after(policy.seconds):
            return await call(ctx, value)

    return limited


def _with_retry(call: Call, policy: Retry, node: Node[Any, Any]) -> Call:
    counts = type(node) is Node

    async def patient(ctx: Context, value: Any) -> Any:
        wait = policy.wait
        for attempt in range(1, policy.attempts + 1):
            try:
                return await call(ctx, value)
            except Exception as error:
                caught = matching(error, policy.errors, ctx.run_id)
                if caught is None or attempt == policy.attempts:
                    raise
                asked = getattr(caught, "retry_after", None) or 0.0
                ctx.emit(NodeFailed(ctx.run_id, ctx.node, error))
            await anyio.sleep(min(max(wait, asked), policy.max_wait))
            wait *= policy.factor
            if counts:
                ctx.meter.count_node(ctx.state)
        raise AssertionError("unreachable: the last attempt returns or raises")

    return patient


def _inside(strategy: Strategy[Any, Any], name: str) -> Call:
    first = plan(strategy, call_of)

    async def enter(ctx: Context, value: Any) -> Any:
        return await walk(first, ctx.inside(name, strategy.setting), value)

    return enter


def outermost(strategy: Strategy[Any, Any]) -> Slot:
    """Give the plan of an agent's own strategy; its name does not stand in the paths of its nodes."""
    if not strategy.policies and strategy.setting is None:
        return plan(strategy, call_of)
    slot = Slot(strategy.name, _with_policies(_inside(strategy, ""), strategy), counts=False, taps=False)
    slot.following = DONE
    return slot


def _alone(node: Node[Any, Any]) -> Slot:
    """Give the plan of a branch: one node and then the end."""
    slot = Slot(node.name, call_of(node), counts=type(node) is Node, taps=False)
    slot.following = DONE
    return slot


def _parallel(node: Parallel) -> Call:
    branches = [_alone(branch) for branch in node.branches]

    async def fork(ctx: Context, value: Any) -> Any:
        return tuple(await _join(ctx, node, branches, [value] * len(branches)))

    return fork


def _each(node: Each) -> Call:
    branch = _alone(node.branches[0])

    async def fork(ctx: Context, values: Any) -> Any:
        items = list(values)
        return await _join(ctx, node, [branch] * len(items), items)

    return fork


async def _join(ctx: Context, node: Parallel | Each, branches: Sequence[Slot], values: Sequence[Any]) -> list[Any]:
    """Execute branches at once, as many as the node allows, and give their results in order."""
    results: list[Any] = [None] * len(branches)
    memories: dict[int, RunMemory] = {}

    async def execute(number: int) -> None:
        memory = ctx.memory.fork()
        if node.transcript == "keep":
            memories[number] = memory
        try:
            branch = ctx.inside(f"{node.name}/{number}", memory=memory)
            results[number] = await walk(branches[number], branch, values[number])
        except NodeFailedError as error:
            if node.failures != "collect" or _is_final(error, ctx.run_id):
                raise
            results[number] = error

    await together(execute, len(branches), node.limit)
    for number in sorted(memories):
        ctx.memory.join(memories[number])
    return results


def _race(node: Race) -> Call:
    branches = [_alone(branch) for branch in node.branches]

    async def fork(ctx: Context, value: Any) -> Any:
        contexts = [ctx.inside(f"{node.name}/{number}", memory=ctx.memory.fork()) for number in range(len(branches))]
        failed: dict[int, Exception] = {}
        won: list[tuple[int, Any]] = []

        async def execute(number: int) -> None:
            try:
                won.append((number, await walk(branches[number], contexts[number], value)))
            except Exception as error:  # noqa: BLE001  a race fails only when all do, and then raises the first one's
                failed[number] = error
                if not _ends_all(error, ctx.run_id):
                    return
            scope.cancel()

        with anyio.CancelScope() as scope:
            await together(execute, len(branches))
        broken = next((error for error in failed.values() if _ends_all(error, ctx.run_id)), None)
        if broken is not None or not won:
            raise broken or _all_failed(failed)
        winner, given = won[0]
        if node.transcript == "keep":
            ctx.memory.join(contexts[winner].memory)
        return given

    return fork


def _all_failed(failed: dict[int, Exception]) -> Exception:
    first = failed[min(failed)]
    for number in sorted(failed):
        if failed[number] is not first:
            first.add_note(f"branch {number} failed too: {failed[number]}")
    return first
