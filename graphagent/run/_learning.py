"""Taps that only learn: where one fails, the run goes on with what it was given, and learns when it is resumed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from graphagent.errors import BudgetError, ModelError, StoreError
from graphagent.events import ExtractionFailed
from graphagent.graph import Strategy, Tap, TapOf
from graphagent.run._keys import head_key
from graphagent.run._plan import Slot
from graphagent.run._walk import matching
from graphagent.store import Put

if TYPE_CHECKING:
    from graphagent.run._context import Context
    from graphagent.run._plan import Call
    from graphagent.run._run import Run

_FAILURES = (ModelError, StoreError, OSError)
"""What a model or a memory raises that fails. Time limits raise an OSError too, and so do memories of one's own."""
_FAILED = "not learned"
"""Under this key a tap records that it failed, so that no execution of it tries again unasked."""


def learning(call: Call) -> Call:
    """Return a call of a tap that may fail: it reports that the model or the memory failed, and raises nothing.

    What an error path of the tap takes is raised all the same, and so is the end of a budget.
    """

    async def learn(ctx: Context, value: Any) -> None:
        if ctx.recorded(_FAILED):
            await ctx.once(_FAILED, _nothing)
            return
        try:
            await call(ctx, value)
        except _FAILURES as error:
            if matching(error, _FAILURES, ctx.run_id) is None or _is_taken(ctx, error):
                raise
            await _note(ctx)
            ctx.emit(ExtractionFailed(ctx.run_id, ctx.node, _reason(error)))

    return learn


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


async def _nothing() -> None:
    return None


def _is_taken(ctx: Context, error: Exception) -> bool:
    """Tell whether an error path of the tap takes an error."""
    ways = ctx.slot.errors if ctx.slot is not None else ()
    kinds = tuple(rule.error for way in ways for rule in way.rules if rule.error is not None)
    return matching(error, kinds, ctx.run_id) is not None


async def _note(ctx: Context) -> None:
    """Write that a tap failed. In a branch it is not tried again later: what was said there alone may be gone then."""
    journal = ctx.state.journal
    if journal is not None and not ctx.branches:
        head = journal.log.head
        journal.log.head = replace(head, unlearned=tuple(dict.fromkeys((*head.unlearned, ctx.node))))
        await journal.commit(head=True)
    await ctx.once(_FAILED, _nothing)


async def learn_again(run: Run[Any]) -> None:
    """Have the taps learn that failed before the run was resumed. It has ended well, whatever becomes of this."""
    state, store = run.state, run.setup.store
    assert store is not None
    for path in state.unlearned:
        found = _place(run, path)
        if found is None:
            continue  # the strategy was changed since
        ctx, function = found
        try:
            await function(ctx, None)
            await _forget(run, path)
        except (*_FAILURES, BudgetError) as error:
            if not isinstance(error, BudgetError) and matching(error, _FAILURES, run.run_id) is None:
                raise
            state.emit(ExtractionFailed(run.run_id, path, _reason(error)))


def _place(run: Run[Any], path: str) -> tuple[Context, Any] | None:
    """Return a context as the tap at a path has it, and what the tap does; None where there is no such tap."""
    *around, name = path.split("/")
    strategy, ctx = run.setup.strategy, run.context
    for part in around:
        inside = strategy.elements_by_name.get(part)
        if not isinstance(inside, Strategy):
            return None
        strategy, ctx = inside, ctx.inside(part, inside.setting)
    element = strategy.elements_by_name.get(name)
    if not isinstance(element, Tap | TapOf):
        return None
    ctx = ctx.inside("")
    ctx.slot = Slot(name, element.function, counts=True, taps=True, element=element)
    ctx.attempts = {"0": 2}  # what a process kept that died before it could say so is not kept again
    return ctx, element.function


async def _forget(run: Run[Any], path: str) -> None:
    """Write that a tap has learned.

    Raises:
        StoreError: it could not be written; it is tried again then.
    """
    from graphagent.run._recording import read_head

    store = run.setup.store
    assert store is not None
    head, version = await read_head(store, run.owner, run.run_id)
    left = tuple(each for each in head.unlearned if each != path)
    key = head_key(run.owner, run.run_id)
    await store.commit(Put(key, replace(head, unlearned=left).pack(), expected=version))
