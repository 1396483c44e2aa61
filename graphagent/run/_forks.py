"""Forks: branches that are executed concurrently. Tasks exist only here, and where a node gathers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import anyio
from anyio.lowlevel import checkpoint

from graphagent._article import kind_of
from graphagent._raised import leak_of_task
from graphagent.errors import NodeFailedError, NodeTypeError
from graphagent.llm import ToolResults
from graphagent.log._entries import (
    BranchesJoined,
    BranchesStarted,
    BranchFailed,
    EffectRecorded,
    LibraryObject,
    ResultsAdded,
    known_results,
)
from graphagent.run._compiled import CompiledStrategy, items_of
from graphagent.run._effects import Effects, close_open
from graphagent.run._final_errors import Suspend, ends_all, is_final
from graphagent.run._loop import execute
from graphagent.run._sleep import together

if TYPE_CHECKING:
    from graphagent.graph._forks import Each, Parallel, Race
    from graphagent.log._visits import Frame
    from graphagent.run._compiled import Call, CompiledNode
    from graphagent.run._walk import Walk


def parallel_call(node: Parallel, branches: tuple[CompiledNode, ...]) -> Call:
    """Return the call of a fork whose branches have the same input."""

    async def fork(walk: Walk, value: Any) -> Any:
        return tuple(await _join(walk, node, branches, value))

    return fork


def each_call(node: Each, branches: tuple[CompiledNode, ...]) -> Call:
    """Return the call of a fork that has a branch for each item of its input."""

    async def fork(walk: Walk, values: Any) -> Any:
        if isinstance(values, str | bytes):
            raise NodeTypeError(
                f"it was given {kind_of(values)}, of which it would take each character; give it a list"
            )
        items = items_of(values)
        if not items:
            # Nothing in it is executed and counted, so a loop around it would have no end, and let no other task run.
            if "branches" not in walk.frame.visit.inside:
                walk.limits.enter_node()
                walk.limits.count_running(-1)
                _frames(walk, ())
            await checkpoint()
            return []
        return await _join(walk, node, branches * len(items), values, items)

    return fork


def with_same_items(call: Call) -> Call:
    """Return a call that finds its items again when it is made again: an iterator yields them only once."""

    async def again(walk: Walk, values: Any) -> Any:
        if not isinstance(values, Iterator):
            return await call(walk, values)
        iterator = cast("Any", values)
        known = walk.run.session.items.get(id(walk.frame))
        if known is None or known[0] is not iterator:
            known = walk.run.session.items[id(walk.frame)] = iterator, items_of(iterator)
        return await call(walk, known[1])

    return again


def _frames(walk: Walk, branches: Sequence[CompiledNode]) -> list[Frame]:
    """Return the frames of the branches: those that they had before they were interrupted, or new ones."""
    frame = walk.frame
    found = frame.visit.inside.get("branches")
    if found is None or len(found) < len(branches):  # a strategy that was changed may have more
        firsts = tuple(branch.name for branch in branches[len(found or ()) :])
        walk.run.log.append(BranchesStarted(at=frame.path, firsts=firsts, own=True))
        found = frame.visit.inside["branches"]
    return found


def _inside(walk: Walk, branches: Sequence[CompiledNode], value: Any, items: Sequence[Any] | None = None) -> list[Walk]:
    """Return the walks of the branches, each with one of `items`, or with the whole input."""
    frames = _frames(walk, branches)
    given: Sequence[Callable[[], Any]]
    if not walk.run.log.durable:
        given = (
            [lambda: value] * len(branches)
            if items is None
            else [partial(items.__getitem__, each) for each in range(len(items))]
        )
    elif items is None:
        given = [walk.stored_input(value).shared()] * len(branches)
    else:
        given = walk.stored_input(value).items()
    return [
        walk.inside(frame, CompiledStrategy.of_branch(node), each)
        for frame, node, each in zip(frames, branches, given, strict=False)
    ]


async def _join(
    walk: Walk,
    node: Parallel | Each,
    branches: Sequence[CompiledNode],
    value: Any,
    items: Sequence[Any] | None = None,
) -> list[Any]:
    """Execute branches concurrently, as many as the node allows, and return their results in order."""
    run, outer = walk.run, walk.frame
    log = run.log
    results: list[Any] = [None] * len(branches)
    suspended: list[int] = []
    inside = _inside(walk, branches, value, items)

    async def execute_branch(number: int) -> None:
        frame = inside[number].frame
        if frame.ended:
            results[number] = inside[number].input()
            return
        try:
            if run.session.attention:
                run.session.stop_if_due()
            results[number] = await _executed(inside[number])
        except Suspend:
            suspended.append(number)
        except NodeFailedError as error:
            if node.failures != "collect" or is_final(error, run.lineage):
                raise
            results[number] = error
            log.append(BranchFailed(at=frame.path, value=log.keep(error)))
            await log.commit()

    if ("join", "") not in outer.visit.effects:
        await together(execute_branch, len(branches), node.limit, of=run.session.tasks)
        if suspended:
            raise Suspend
        if node.transcript == "keep":
            await _close_turns(walk, inside)
        log.append(BranchesJoined(at=outer.path, merged=node.transcript == "keep"))
    else:
        for number in range(len(branches)):
            await execute_branch(number)
    return results


async def _executed(walk: Walk) -> Any:
    """Execute a branch, in a task of its own.

    Raises:
        NodeFailedError: among others, if that task alone was cancelled.
    """
    run, frame = walk.run, walk.frame
    try:
        return await execute(walk)
    except anyio.get_cancelled_exc_class() as cancelled:
        path = run.node_of(frame)
        leaked = leak_of_task(cancelled, f"node {path!r}") if run.log.stale is None and not frame.ended else None
        if leaked is None:
            raise
        raise run.of_run(NodeFailedError(path, leaked)) from leaked


def race_call(node: Race, branches: tuple[CompiledNode, ...]) -> Call:
    """Return the call of a fork whose first result counts."""

    async def fork(walk: Walk, value: Any) -> Any:
        run, outer = walk.run, walk.frame
        log, failed = run.log, _failed_before(walk, len(branches))
        suspended: list[int] = []
        known = None if run.session.recorded is None else run.session.recorded.winner(log, outer)
        inside = _inside(walk, branches, value)
        frames = [each.frame for each in inside]
        joined = outer.visit.effects.get(("join", ""))
        if joined is not None:
            return inside[cast("int", joined.value)].input()

        async def execute_branch(number: int) -> None:
            try:
                if run.session.attention:
                    run.session.stop_if_due()
                await _executed(inside[number])
            except Suspend:
                suspended.append(number)
                return
            except Exception as error:  # noqa: BLE001  a race fails only when all branches do, and then raises the first one's
                failed[number] = error
                if not ends_all(error, run):
                    await _note_failure(walk, number, error)
                    return
            scope.cancel()

        with anyio.CancelScope() as scope:
            if known is not None or not any(frame.ended for frame in frames):
                left = [number for number in range(len(frames)) if number not in failed] if known is None else [known]
                await together(lambda place: execute_branch(left[place]), len(left), of=run.session.tasks)
        broken = next((error for error in failed.values() if ends_all(error, run)), None)
        # The first entry decides, not the task that woke first, so a run that is read again has the same winner.
        won = min(((frame.ended, number) for number, frame in enumerate(frames) if frame.ended), default=None)
        if broken is not None or won is None:
            if broken is None and suspended:
                raise Suspend
            raise broken or _all_failed(failed)
        winner = won[1]
        if node.transcript == "keep":
            await _close_turns(walk, [inside[winner]])
        log.append(BranchesJoined(at=outer.path, winner=winner, merged=node.transcript == "keep"))
        return inside[winner].input()

    return fork


def _failed_before(walk: Walk, total: int) -> dict[int, Exception]:
    """Return the errors of the branches of a race that failed before the run was interrupted."""
    log, effects = walk.run.log, walk.frame.visit.effects
    failed = {
        number: log.take(effects["out", str(number)].value)
        for number in range(total)
        if ("out", str(number)) in effects
    }
    return failed if len(failed) < total else {}  # a run that failed since all branches did tries all of them again


async def _note_failure(walk: Walk, number: int, error: Exception) -> None:
    """Note that a branch is out of the race, unless the strategy is at fault or a budget was used up, which may be raised."""
    if isinstance(error, NodeFailedError):
        log = walk.run.log
        log.append(EffectRecorded(at=walk.frame.path, kind="out", key=str(number), value=log.keep(error)))
        await log.commit()


async def _close_turns(walk: Walk, branches: Sequence[Walk]) -> None:
    """Let the callbacks see the turns that are open, before the steps of branches come after them."""
    for branch in branches:
        await close_open(Effects(branch))
    if any(branch.frame.transcript.own_steps for branch in branches):
        frame = walk.frame
        open_, known = frame.transcript.open, known_results(frame)
        if open_ is not None and known and ("results", "join") not in frame.visit.effects:
            results = LibraryObject(ToolResults(known))
            walk.run.log.append(ResultsAdded(at=frame.path, key="join", turn=open_.id, results=results, open=True))
        await close_open(Effects(walk))


def _all_failed(failed: dict[int, Exception]) -> Exception:
    first = failed[min(failed)]
    for number in sorted(failed):
        if failed[number] is not first:
            first.add_note(f"branch {number} failed too: {failed[number]}")
    return first
