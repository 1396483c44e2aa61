"""Forks: branches that are executed at once. Tasks exist only here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import anyio
from anyio.lowlevel import checkpoint

from graphagent.errors import NodeFailedError
from graphagent.run._compiled import DONE
from graphagent.run.engine._context import LiveFrame
from graphagent.run.engine._execute import branch_trust, ends_all, execute
from graphagent.run.engine._final_errors import is_final
from graphagent.run.engine._suspend import Suspend
from graphagent.run.engine._task_group import together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphagent.graph import Each, Parallel, Race
    from graphagent.run._compiled import Call, CompiledNode
    from graphagent.run.engine._context import Context


def parallel_call(node: Parallel, branches: tuple[CompiledNode, ...]) -> Call:
    """Return the call of a fork whose branches have the same input."""

    async def fork(ctx: Context[Any], value: Any) -> Any:
        return tuple(await _join(ctx.__frame__, node, branches, [value] * len(branches)))

    return fork


def each_call(node: Each, branches: tuple[CompiledNode, ...]) -> Call:
    """Return the call of a fork that has a branch for each item of its input."""

    async def fork(ctx: Context[Any], values: Any) -> Any:
        items, frame = items_of(values), ctx.__frame__
        if not items:
            # Nothing in it is executed and counted, so a loop around it would have no end, and let no other task run.
            frame.meter.count_node(frame.runtime)
            await checkpoint()
        return await _join(frame, node, branches * len(items), items)

    return fork


def with_same_items(call: Call) -> Call:
    """Return a call that finds its items again when it is made again: an iterator yields them only once."""

    async def again(ctx: Context[Any], values: Any) -> Any:
        frame = ctx.__frame__
        if frame.items is None and isinstance(values, Iterator):
            frame.items = items_of(values)
        return await call(ctx, values if frame.items is None else frame.items)

    return again


def items_of(values: Any) -> list[Any]:
    """Return the items for the branches of an `each`, in an order that is the same in every process."""
    # That of a set is not. Equal items may be written in several ways, so their text decides.
    return sorted(cast("set[Any]", values), key=repr) if isinstance(values, set | frozenset) else list(values)


async def _join(
    frame: LiveFrame, node: Parallel | Each, branches: Sequence[CompiledNode], values: Sequence[Any]
) -> list[Any]:
    """Execute branches at once, as many as the node allows, and return their results in order."""
    runtime = frame.runtime
    results: list[Any] = [None] * len(branches)
    suspended: list[int] = []
    # If only their results are wanted, branches that ended are released: many frames are work for the garbage collector.
    lasting = node.transcript == "keep" or runtime.journal is not None
    released: list[int] = []
    trusts = set[str]()
    """The trust of the released branches."""

    async def execute_branch(number: int) -> None:
        branch = _branch(frame, node.name, number, branches[number], values[number])
        try:
            if runtime.attention:
                runtime.stop_if_due()
            assert branch.compiled is not None
            results[number] = await execute(branch.compiled, branch, branch.value)
        except Suspend:
            suspended.append(number)
            return
        except NodeFailedError as error:
            if node.failures != "collect" or is_final(error, runtime.run_id):
                raise
            results[number] = error
            branch.settle_calls()
            branch.compiled, branch.value = DONE, error
            if runtime.journal is None:
                branch.moved("")
            else:
                runtime.journal.branch_failed(branch, error)
                await runtime.journal.commit()
        if not lasting:
            frame.settle_calls(branch)
            released.append(number)
            trusts.update(_trust(branch))
            del frame.branch_frames()[str(number)]

    try:
        await together(execute_branch, len(branches), node.limit)
        if suspended:
            raise Suspend
    except BaseException:
        for number in released:  # they are not executed again
            branch = _branch(frame, node.name, number, DONE, results[number])
            branch.moved("")
        raise
    finally:  # not before all have begun, since they inherit the same trust
        for trust in trusts:
            frame.memory.lower(trust)
    if lasting:
        frame.settle_calls()
        frames = frame.branch_frames()
        for number in range(len(branches)):
            await _join_branch(frame, node, cast(LiveFrame, frames[str(number)]))
    return results


async def _join_branch(frame: LiveFrame, node: Parallel | Each | Race, branch: LiveFrame) -> None:
    """Merge the transcript of a branch into its parent's, and keep the reference to its stored result."""
    if node.transcript == "keep" and not branch.memory.quiet:
        await frame.close_turn()  # in the branch it is one of the first steps
        await branch.close_turn()
        frame.memory.join(branch.memory)
    for trust in _trust(branch):
        frame.memory.lower(trust)
    if branch.ref is not None:
        frame.remember_ref(branch.ref)


def _trust(branch: LiveFrame) -> Iterator[str]:
    """Yield the trust of the result of a branch, as far as its own transcripts lower it."""
    if not branch.memory.quiet:
        yield branch.memory.trust
    if branch.inside is not None:  # most branches are one node
        yield from branch_trust(branch)


def _branch(frame: LiveFrame, name: str, number: int, node: CompiledNode, value: Any) -> LiveFrame:
    """Return the frame of a branch: the one that it had before it was interrupted, or a new one before its node."""
    found = frame.branch_frames().get(str(number))
    if found is not None:
        return cast(LiveFrame, found)
    branch = frame.enter(name, branch=number, memory=frame.memory.fork())
    branch.compiled, branch.value, branch.node = node, value, node.name
    return branch


def race_call(node: Race, branches: tuple[CompiledNode, ...]) -> Call:
    """Return the call of a fork whose first result counts."""

    async def fork(ctx: Context[Any], value: Any) -> Any:
        frame = ctx.__frame__
        runtime = frame.runtime
        failed: dict[int, Exception] = {}
        suspended: list[int] = []
        # A branch that had won before the run was interrupted stays the winner, and no other one is begun. If several had
        # ended, the first entry decides.
        frames = sorted(frame.branch_frames().items(), key=lambda each: each[1].number)
        ended = ((int(number), branch) for number, branch in frames if isinstance(branch, LiveFrame))
        won = [(number, branch.value) for number, branch in ended if branch.compiled is DONE][:1]
        recorded = frame.recorded_winner()
        numbers = range(len(branches)) if recorded is None else [recorded]

        async def execute_branch(place: int) -> None:
            number = numbers[place]
            branch = _branch(frame, node.name, number, branches[number], value)
            try:
                if runtime.attention:
                    runtime.stop_if_due()
                assert branch.compiled is not None
                won.append((number, await execute(branch.compiled, branch, branch.value)))
            except Suspend:
                suspended.append(number)
                return
            except Exception as error:  # noqa: BLE001  a race fails only when all branches do, and then raises the first one's
                failed[number] = error
                if not ends_all(error, runtime.run_id):
                    return
            else:
                if won[0][0] != number and runtime.journal is None:  # it ended while it was being cancelled
                    frame.settle_calls(branch)
                    del frame.branch_frames()[str(number)]
            scope.cancel()

        with anyio.CancelScope() as scope:
            await together(execute_branch, 0 if won else len(numbers))
        broken = next((error for error in failed.values() if ends_all(error, runtime.run_id)), None)
        if broken is not None or not won:
            if broken is None and suspended:
                raise Suspend
            raise broken or _all_failed(failed)
        winner, result = won[0]
        runtime.close_questions(f"{frame.node_path}/")
        frame.settle_calls()
        await _join_branch(frame, node, cast(LiveFrame, frame.branch_frames()[str(winner)]))
        return result

    return fork


def _all_failed(failed: dict[int, Exception]) -> Exception:
    first = failed[min(failed)]
    for number in sorted(failed):
        if failed[number] is not first:
            first.add_note(f"branch {number} failed too: {failed[number]}")
    return first
