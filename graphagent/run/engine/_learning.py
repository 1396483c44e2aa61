"""Taps that only learn: if one fails, the run continues with its input, and learns when it is resumed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from graphagent.errors import BudgetError, ModelError, StoreError
from graphagent.events import ExtractionFailed
from graphagent.graph import Strategy, Tap, TapOf
from graphagent.run._compiled import CompiledNode
from graphagent.run.engine._execute import matching
from graphagent.store import Put

if TYPE_CHECKING:
    from graphagent.run._compiled import Call
    from graphagent.run._config import RunConfig
    from graphagent.run.engine._context import Context, LiveFrame
    from graphagent.run.engine._runtime import Runtime

_FAILURES = (ModelError, StoreError, OSError)
"""The errors of a model or a memory that fails. Time limits raise an OSError too, and so do users' own memories."""
_FAILED = "not learned"
"""The key under which a tap records that it failed, so that no execution of it tries again unasked."""


def learning(call: Call) -> Call:
    """Return a call of a tap that may fail: it reports that the model or the memory failed, and raises nothing.

    Errors that an error edge of the tap takes are raised all the same, and so is the end of a budget.
    """

    async def learn(ctx: Context[Any], value: Any) -> None:
        frame = ctx.__frame__
        if frame.is_recorded(_FAILED):
            await frame.once(_FAILED, _nothing)
            return
        try:
            await call(ctx, value)
        except _FAILURES as error:
            if matching(error, _FAILURES, frame.runtime.run_id) is None or _is_taken(frame, error):
                raise
            await _note(frame)
            frame.runtime.emit(ExtractionFailed(frame.runtime.run_id, frame.node_path, _reason(error)))

    return learn


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


async def _nothing() -> None:
    return None


def _is_taken(frame: LiveFrame, error: Exception) -> bool:
    """Return whether an error edge of the tap takes an error."""
    edges = frame.compiled.error_edges if frame.compiled is not None else ()
    kinds = tuple(kind for edge in edges for kind in edge.errors)
    return matching(error, kinds, frame.runtime.run_id) is not None


async def _note(frame: LiveFrame) -> None:
    """Record that a tap failed. A tap in a branch is not tried again later: the transcript of the branch may be gone then."""
    journal = frame.runtime.journal
    if journal is not None and not frame.branches:
        header = journal.writer.header
        unlearned = tuple(dict.fromkeys((*header.unlearned, frame.node_path)))
        journal.writer.header = replace(header, unlearned=unlearned)
        await journal.commit(header=True)
    await frame.once(_FAILED, _nothing)


async def learn_again(config: RunConfig, frame: LiveFrame) -> None:
    """Execute the taps again that failed to learn before the run was resumed. The run has ended well, whatever they do."""
    runtime = frame.runtime
    runtime.journal = None  # no entry may come after the answer
    for path in runtime.unlearned:
        found = _frame_of_tap(config, frame, path)
        if found is None:
            continue  # the strategy was changed since
        inside, function = found
        try:
            await function(inside.context, None)
            await _forget(config, runtime, path)
        except (*_FAILURES, BudgetError) as error:
            if not isinstance(error, BudgetError) and matching(error, _FAILURES, runtime.run_id) is None:
                raise
            runtime.emit(ExtractionFailed(runtime.run_id, path, _reason(error)))


def _frame_of_tap(config: RunConfig, frame: LiveFrame, path: str) -> tuple[LiveFrame, Any] | None:
    """Return a frame in which the tap at a path can be executed, and its function; None if there is no such tap."""
    *around, name = path.split("/")
    strategy, frame = config.strategy, frame.detached()
    for part in around:
        inside = strategy.elements_by_name.get(part)
        if not isinstance(inside, Strategy):
            return None
        strategy, frame = inside, frame.enter(part, inside.setting)
    element = strategy.elements_by_name.get(name)
    if not isinstance(element, Tap | TapOf):
        return None
    frame.compiled = CompiledNode(name, element.function, counts=True, passes_input=True, element=element)
    frame.node = name
    frame.attempts = {"0": 2}  # a fact that a process saved before it died is not saved twice
    return frame, element.function


async def _forget(config: RunConfig, runtime: Runtime, path: str) -> None:
    """Write that a tap has learned.

    Raises:
        StoreError: it could not be written. The tap is executed again then.
    """
    from graphagent.run.journal._keys import head_key
    from graphagent.run.journal._reader import read_header

    store = config.store
    assert store is not None
    header, version = await read_header(store, runtime.owner, runtime.run_id)
    left = tuple(each for each in header.unlearned if each != path)
    key = head_key(runtime.owner, runtime.run_id)
    await store.commit(Put(key, replace(header, unlearned=left).pack(), expected=version))
