"""Taps that only learn: if one fails, the run continues with its input, and learns when it is resumed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import structs

from graphagent.errors import BudgetError, ModelError, StoreError
from graphagent.events import ExtractionFailed
from graphagent.graph import Strategy, Tap, TapOf
from graphagent.log._internal import EffectRecorded, LearningFailed
from graphagent.run._final_errors import matching

if TYPE_CHECKING:
    from graphagent.run._compiled import Call
    from graphagent.run._effects import Effects
    from graphagent.run._runtime import Runtime
    from graphagent.run._scope import Execution

_FAILURES = (ModelError, StoreError, OSError)
"""The errors of a model or a memory that fails. Time limits raise an OSError too, and so do users' own memories."""
_FAILED = "not learned"
"""The key under which a tap records that it failed, so that no execution of it tries again unasked."""


def learning(call: Call) -> Call:
    """Return a call of a tap that may fail: it reports that the model or the memory failed, and raises nothing.

    Errors that an error edge of the tap takes are raised all the same, and so is the end of a budget.
    """

    async def learn(execution: Execution, value: Any) -> None:
        run, frame = execution.run, execution.frame
        if ("once", _FAILED) in frame.effects:
            return
        recorded = run.top.recorded
        if recorded is not None and recorded.knows(frame, "once", _FAILED):
            entry = recorded.entry(run.log, frame, "once", _FAILED)
            assert entry is not None
            run.log.append(entry)
            return
        try:
            await call(execution, value)
        except _FAILURES as error:
            if (
                run.log.stale is not None
                or matching(error, _FAILURES, run.lineage) is None
                or _is_taken(execution, error)
            ):
                raise
            path = run.node_of(frame)
            run.log.append(EffectRecorded(at=frame.path, kind="once", key=_FAILED, value=run.log.keep(None)))
            # A tap in a branch is not tried again later: the transcript of the branch may be gone then.
            if run.parent is None and frame.transcript is run.frame.transcript:
                run.log.append(LearningFailed(at=frame.path, node=path))
            await run.log.commit()
            run.emit(ExtractionFailed(run.run_id, path, _reason(error)))

    return learn


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def _is_taken(execution: Execution, error: Exception) -> bool:
    """Return whether an error edge of the tap takes an error."""
    node = execution.node
    edges = node.error_edges if node is not None else ()
    kinds = tuple(kind for edge in edges for kind in edge.errors)
    return matching(error, kinds, execution.run.lineage) is not None


async def learn_again(run: Runtime, paths: tuple[str, ...], after: Callable[[Runtime, str], Effects]) -> None:
    """Execute the taps again that failed to learn before the run was resumed. The run has ended well, whatever they do.

    Args:
        run: The run.
        paths: The paths of the taps.
        after: Returns the effects of something that is done after the end, in the place of a tap.
    """
    for path in paths:
        function = _tap(run, path)
        if function is None:
            continue  # the strategy was changed since
        try:
            await function(after(run, path).context(), None)
            await _learned(run, path)
        except (*_FAILURES, BudgetError) as error:
            if not isinstance(error, BudgetError) and matching(error, _FAILURES, run.lineage) is None:
                raise
            run.emit(ExtractionFailed(run.run_id, path, _reason(error)))


async def _learned(run: Runtime, path: str) -> None:
    """Write that a tap has learned. If it cannot be written, the tap is executed again then."""
    log = run.log
    left = tuple(each for each in log.header.unlearned if each != path)
    log.header = structs.replace(log.header, unlearned=left)
    await log.commit(header=True)


def _tap(run: Runtime, path: str) -> Any:
    """Return the function of the tap at a path; None if there is no such tap."""
    *around, name = path.split("/")
    strategy: Strategy[Any, Any] = run.config.strategy
    for part in around:
        inside = strategy.elements_by_name.get(part)
        if not isinstance(inside, Strategy):
            return None
        strategy = inside
    element = strategy.elements_by_name.get(name)
    return element.function if isinstance(element, Tap | TapOf) else None
