"""The engine's loop: it executes slots one after the other in one coroutine, and chooses what comes next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from anyio.lowlevel import checkpoint

from graphagent.errors import (
    BudgetError,
    DivergedError,
    HandlerError,
    JournalError,
    NodeFailedError,
    NoPathError,
    RunClaimedError,
    RunError,
    RunNotFoundError,
    ScriptError,
    VetoError,
)
from graphagent.events import NodeFailed, NodeFinished, NodeStarted, PathTaken
from graphagent.run._plan import DONE
from graphagent.run._suspend import Halt

if TYPE_CHECKING:
    from graphagent.run._context import Context
    from graphagent.run._plan import Slot, Way

_PATIENCE = 127
"""Every so many nodes the loop gets a turn (a mask, so one less than a power of two): nodes may never wait by themselves."""


async def walk(slot: Slot, ctx: Context, value: Any) -> Any:  # noqa: C901  the hot path: a call for each part would cost more than the part
    """Execute slots from this one to END and give what arrives there. Where it is broken off, `ctx.at` says where it stood.

    Raises:
        RunError: a node failed, no way out takes an output, or a budget is used up.
        Halt: the run waits for people, or is to pause.
    """
    state = ctx.state
    meter = ctx.meter
    alone = meter.parent is None
    record, journal = state.record, state.journal
    run_id, prefix = state.run_id, ctx.prefix
    started = state.handlers.get(NodeStarted)
    finished = state.handlers.get(NodeFinished)
    way: Way | None
    given: Any = None
    over = False
    if ctx.mark is not None:
        ctx.memory.rewind(ctx.mark)
    try:
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
                way, caught, handed = _recover(slot, ctx, error, value)
                for trust in flowed(ctx):  # the error may tell what the branches heard that it ended
                    ctx.memory.lower(trust)
                if journal is not None:
                    journal.recovered(ctx, way, caught, handed)
                ctx.effects = ctx.parts = ctx.mark = ctx.items = None
                state.drop(prefix + slot.name)
                slot, value = way.target, handed
                if journal is not None:
                    await journal.commit()
                continue
            except BaseException as broken:
                if not _is_halt(broken):
                    raise
                if slot.counts:
                    meter.forget_node()
                raise Halt from None
            over = True
            output = value if slot.taps else given
            if finished is not None:
                event = NodeFinished(run_id, prefix + slot.name, output)
                for handler in finished:
                    handler(event)
            following = slot.following
            if following is None:
                way, handed = _choose(slot, ctx, output)
                following = way.target
            else:
                way, handed = None, output
            if journal is not None:
                journal.ended(ctx, slot, output, following, handed, way)
            record += (prefix, slot.name, output)
            ctx.effects = ctx.mark = None
            slot, value, over = following, handed, False
            if journal is not None:
                await journal.commit()
            if state.attention:
                state.look(root=not ctx.branch)
    except BaseException:
        if over:  # by whoever was told of it: when the run goes on, its output does
            ctx.effects = ctx.mark = None
            slot = slot.over(given)
        ctx.at = slot, value
        raise
    return value


def flowed(ctx: Context) -> Iterator[str]:
    """Yield how far what the branches of a context heard can be trusted, as far as that is their own affair."""
    for part in (ctx.parts or {}).values():
        if part.memory is not ctx.memory and not part.memory.quiet:
            yield part.memory.trust
        yield from flowed(part)


def _is_halt(error: BaseException) -> bool:
    """Say whether a run only stops here: a node's own task group may have wrapped that."""
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", error).split(Halt)[1] is None
    return isinstance(error, Halt)


def _choose(slot: Slot, ctx: Context, output: Any) -> tuple[Way, Any]:
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


def _taken(way: Way, ctx: Context) -> Way:
    if PathTaken in ctx.state.handlers:
        ctx.emit(PathTaken(ctx.run_id, ctx.node, way.label, way.target.name))
    return way


def _recover(slot: Slot, ctx: Context, error: Exception, given: Any) -> tuple[Way, Exception, Any]:
    """Return the way out for an error, what it takes of it, and what it passes on: of a tap, what the tap was given.

    Raises:
        Exception: the error, if there is no such way.
    """
    if NodeFailed in ctx.state.handlers:
        ctx.emit(NodeFailed(ctx.run_id, ctx.node, error))
    for way in slot.errors:
        caught = matching(error, tuple(rule.error for rule in way.rules if rule.error is not None), ctx.run_id)
        if caught is not None:
            passes, value = _through(way, ctx, given if slot.taps else caught)
            if passes:
                return _taken(way, ctx), caught, value
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
    if is_final(error, run_id):
        return None
    if isinstance(error, BudgetError) and error.run_id == run_id:
        return error if any(issubclass(kind, BudgetError) for kind in kinds) else None
    if isinstance(error, NodeFailedError) and isinstance(error.__cause__, Exception) and NodeFailedError not in kinds:
        cause = matching(error.__cause__, kinds, run_id)
        if cause is not None:
            return cause
    return error if isinstance(error, kinds) else None


def is_final(error: BaseException | None, run_id: str) -> bool:
    """Say whether nothing may take an error: the run's journal cannot be written, or a handler broke or refused."""
    while isinstance(error, NodeFailedError):
        error = error.__cause__
    if isinstance(error, ScriptError | DivergedError):
        return True
    ends = (HandlerError, JournalError, RunClaimedError, RunNotFoundError, VetoError)
    return isinstance(error, ends) and error.run_id == run_id


def ends_all(error: Exception, run_id: str) -> bool:
    """Say whether an error of one branch ends a race: what is final, and a budget of the whole run."""
    if isinstance(error, BudgetError) and error.run_id == run_id:
        return not error.where
    return is_final(error, run_id)
