"""The engine: makes strategies ready to run. Tasks exist only where a strategy forks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import anyio

from graphagent.errors import NodeFailedError, RunError
from graphagent.events import NodeFailed
from graphagent.graph import Each, Node, Parallel, Race, Retry, Strategy, Timeout
from graphagent.run._learning import learning
from graphagent.run._plan import DONE, Call, Inside, Plan, Slot, counts, plan
from graphagent.run._suspend import Halt
from graphagent.run._together import together
from graphagent.run._walk import ends_all, flowed, is_final, matching, walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphagent.graph._internal import Element
    from graphagent.run._context import Context


def slot_of(element: Element) -> Slot:
    """Make an element ready to run, its policies included."""
    if not isinstance(element, Node):
        call = _with_policies(element.function, element)
        if getattr(element.function, "learns", False):
            call = learning(call)
        return Slot(element.name, call, counts=True, taps=True, element=element)
    inside = _inside_of(element)
    call = _with_policies(_plain_call(element, inside), element)
    if isinstance(element, Each):
        call = _kept(call)
    return Slot(element.name, call, counts=counts(element), taps=False, element=element, inside=inside)


def _inside_of(node: Node[Any, Any]) -> Inside:
    if isinstance(node, Strategy):
        return plan(node, slot_of)
    if isinstance(node, Each | Race | Parallel):
        return tuple(_alone(branch) for branch in node.branches)
    return ()


def _alone(node: Node[Any, Any]) -> Slot:
    """Give the plan of a branch: one node and then the end."""
    slot = slot_of(node)
    slot.following = DONE
    return slot


def _with_policies(call: Call, node: Element) -> Call:
    for number, policy in enumerate(node.policies):
        call = _with_timeout(call, policy) if isinstance(policy, Timeout) else _with_retry(call, policy, node, number)
    return call


def _plain_call(node: Node[Any, Any], inside: Inside) -> Call:
    if isinstance(inside, Plan):
        return _entered(inside, node)
    if isinstance(node, Each):
        return _each(node, inside)
    if isinstance(node, Race):
        return _race(node, inside)
    if isinstance(node, Parallel):
        return _parallel(node, inside)
    return node.function


def _with_timeout(call: Call, policy: Timeout) -> Call:
    async def limited(ctx: Context, value: Any) -> Any:
        with anyio.fail_after(policy.seconds):
            return await call(ctx, value)

    return limited


def _with_retry(call: Call, policy: Retry, node: Element, number: int) -> Call:
    counted = counts(node)

    async def patient(ctx: Context, value: Any) -> Any:
        # An agent's own strategy is executed in the same context as its nodes.
        whole = ctx.slot is None or ctx.slot.element is not node
        name = f"all:{number}" if whole else str(number)
        while True:
            attempts = ctx.attempts = ctx.attempts or {}
            attempt = attempts.get(name, 1)
            try:
                given = await call(ctx, value)
            except Exception as error:
                caught = matching(error, policy.errors, ctx.run_id)
                if caught is None or attempt >= policy.attempts:
                    if not is_final(error, ctx.run_id):
                        attempts.pop(name, None)
                    raise
                wait = policy.pause(attempt, caught)
                ctx.emit(NodeFailed(ctx.run_id, ctx.node, error))
            else:
                attempts.pop(name, None)
                return given
            attempts[name] = attempt + 1
            ctx.effects = ctx.parts = ctx.at = ctx.mark = None
            ctx.state.drop("" if whole else ctx.node)
            if ctx.state.journal is not None:
                await ctx.state.journal.again(ctx, value, whole=whole)
            await anyio.sleep(wait)
            if counted:
                ctx.meter.count_node(ctx.state)

    return patient


def _entered(inside: Plan, strategy: Node[Any, Any]) -> Call:
    setting = strategy.setting if isinstance(strategy, Strategy) else None

    async def enter(ctx: Context, value: Any) -> Any:
        inner = ctx.parts.pop("", None) if ctx.parts else None
        if inner is None:
            inner = ctx.inside(strategy.name, setting)
        slot, value = inner.at or (inside.first, value)
        try:
            output = await walk(slot, inner, value)
        except BaseException:
            ctx.parts = {"": inner}
            raise
        if inner.held is not None:
            ctx.know(inner.held)
        return output

    return enter


def outermost(strategy: Strategy[Any, Any]) -> tuple[Plan, Call]:
    """Make an agent's own strategy ready to run; its name does not stand in the paths of its nodes."""
    inside = plan(strategy, slot_of)

    async def enter(ctx: Context, value: Any) -> Any:
        slot, value = ctx.at or (inside.first, value)
        output = await walk(slot, ctx, value)
        ctx.at = DONE, output
        return output

    call = _with_policies(enter, strategy)

    async def named(ctx: Context, value: Any) -> Any:
        try:
            return await call(ctx, value)
        except RunError:
            raise
        except Exception as error:  # what its policies raise; nodes raise a RunError
            failed = NodeFailedError(strategy.name, error)
            failed.run_id = ctx.run_id
            raise failed from error

    return inside, named if strategy.policies else enter


def _parallel(node: Parallel, branches: tuple[Slot, ...]) -> Call:
    async def fork(ctx: Context, value: Any) -> Any:
        return tuple(await _join(ctx, node, branches, [value] * len(branches)))

    return fork


def _each(node: Each, branches: tuple[Slot, ...]) -> Call:
    async def fork(ctx: Context, values: Any) -> Any:
        items = items_of(values)
        return await _join(ctx, node, branches * len(items), items)

    return fork


def _kept(call: Call) -> Call:
    """Have a call find its items again, when it is made again: an iterator gives them only once."""

    async def again(ctx: Context, values: Any) -> Any:
        if ctx.items is None and isinstance(values, Iterator):
            ctx.items = items_of(values)
        given = await call(ctx, values if ctx.items is None else ctx.items)
        ctx.items = None
        return given

    return again


def items_of(values: Any) -> list[Any]:
    """Give the items for the branches of an `each`, in an order that is the same in every process."""
    # That of a set is not; what is equal may be written in several ways, so it is its own text that counts.
    return sorted(cast("set[Any]", values), key=repr) if isinstance(values, set | frozenset) else list(values)


async def _join(ctx: Context, node: Parallel | Each, branches: Sequence[Slot], values: Sequence[Any]) -> list[Any]:
    """Execute branches at once, as many as the node allows, and give their results in order."""
    results: list[Any] = [None] * len(branches)
    parts = ctx.parts = ctx.parts or {}
    halted: list[int] = []
    # Where nobody asks for more than their results, branches that ended are let go: many cost the garbage collector dear.
    lasting = node.transcript == "keep" or ctx.state.journal is not None
    gone: list[int] = []
    heard = set[str]()
    """The trust of what those gave."""

    async def execute(number: int) -> None:
        branch = _branch(ctx, node.name, number)
        slot, value = branch.at = branch.at or (branches[number], values[number])
        try:
            if ctx.state.attention:
                ctx.state.go_on()
            results[number] = await walk(slot, branch, value)
        except Halt:
            halted.append(number)
            return
        except NodeFailedError as error:
            if node.failures != "collect" or is_final(error, ctx.run_id):
                raise
            results[number] = error
            branch.at, journal = (DONE, error), ctx.state.journal
            if journal is not None:
                journal.collected(branch, error)
                await journal.commit()
        branch.at = DONE, results[number]
        if not lasting:
            gone.append(number)
            heard.update(_trust(branch))
            del parts[str(number)]

    try:
        await together(execute, len(branches), node.limit)
        if halted:
            raise Halt
    except BaseException:
        for number in gone:
            _branch(ctx, node.name, number).at = DONE, results[number]
        raise
    finally:  # not before all have begun, since what they inherit is the same for all
        for trust in heard:
            ctx.memory.lower(trust)
    for number in range(len(branches)) if lasting else ():
        await _join_branch(ctx, node, parts[str(number)])
    ctx.parts = None
    return results


async def _join_branch(ctx: Context, node: Parallel | Each | Race, branch: Context) -> None:
    """Take over what a branch said, and where the journal has what it gave."""
    if node.transcript == "keep" and not branch.memory.quiet:
        await ctx.shut()  # in the branch it is one of the first steps
        await branch.shut()
        ctx.memory.join(branch.memory)
    for trust in _trust(branch):
        ctx.memory.lower(trust)
    if branch.held is not None:
        ctx.know(branch.held)


def _trust(branch: Context) -> Iterator[str]:
    """Yield how far what a branch gives can be trusted, as far as that is its own affair."""
    if not branch.memory.quiet:
        yield branch.memory.trust
    yield from flowed(branch)


def _branch(ctx: Context, name: str, number: int) -> Context:
    """Give the context of a branch: the one that it had before it was broken off, or a new one."""
    assert ctx.parts is not None
    branch = ctx.parts.get(str(number))
    if branch is None:
        branch = ctx.inside(f"{name}/{number}", memory=ctx.memory.fork(), branch=True)
        ctx.parts[str(number)] = branch
    return branch


def _race(node: Race, branches: tuple[Slot, ...]) -> Call:
    async def fork(ctx: Context, value: Any) -> Any:
        parts = ctx.parts = ctx.parts or {}
        failed: dict[int, Exception] = {}
        halted: list[int] = []
        # One that had won before the run was broken off keeps its place; nothing more is begun.
        won = [(int(number), part.at[1]) for number, part in parts.items() if part.at and part.at[0] is DONE][:1]
        tape = ctx.state.tape
        recorded = tape.winner(ctx) if tape is not None else None
        numbers = range(len(branches)) if recorded is None else [recorded]

        async def execute(place: int) -> None:
            number = numbers[place]
            branch = _branch(ctx, node.name, number)
            slot, given = branch.at = branch.at or (branches[number], value)
            try:
                if ctx.state.attention:
                    ctx.state.go_on()
                won.append((number, await walk(slot, branch, given)))
            except Halt:
                halted.append(number)
                return
            except Exception as error:  # noqa: BLE001  a race fails only when all do, and then raises the first one's
                failed[number] = error
                if not ends_all(error, ctx.run_id):
                    return
            else:
                if won[0][0] == number:
                    branch.at = DONE, won[0][1]
            scope.cancel()

        with anyio.CancelScope() as scope:
            await together(execute, 0 if won else len(numbers))
        broken = next((error for error in failed.values() if ends_all(error, ctx.run_id)), None)
        if broken is not None or not won:
            if broken is None and halted:
                raise Halt
            raise broken or _all_failed(failed)
        winner, given = won[0]
        ctx.state.drop(f"{ctx.node}/")
        await _join_branch(ctx, node, parts[str(winner)])
        ctx.parts = None
        return given

    return fork


def _all_failed(failed: dict[int, Exception]) -> Exception:
    first = failed[min(failed)]
    for number in sorted(failed):
        if failed[number] is not first:
            first.add_note(f"branch {number} failed too: {failed[number]}")
    return first
