"""Taps that only learn: they do in the background after the end of the run, and where one fails, the run continues with its input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphagent._raised import awaited
from graphagent.errors import ModelError, NoteError, StoreError
from graphagent.events import ExtractionFailed
from graphagent.log._entries import EffectRecorded, LearningDue
from graphagent.run._final_errors import matching

if TYPE_CHECKING:
    from graphagent.run._agent_run import AgentRun
    from graphagent.run._compiled import Call
    from graphagent.run._walk import Walk

FAILURES = (ModelError, StoreError, NoteError, OSError)
"""The errors of a model or a memory that fails. Time limits raise an OSError too, and so do users' own memories."""
_FAILED = "not learned"
"""The key under which a tap records that it failed, so that no later visit tries again unasked."""


def learning(call: Call) -> Call:
    """Return a call of a tap that may fail: it reports that the model or the memory failed, and raises nothing.

    Errors that an error edge of the tap takes are raised all the same, and so is the end of a budget. If a feature that the tap
    needs learns in the background, it is only noted that the tap is to learn.
    """

    async def learn(walk: Walk, value: Any) -> None:
        run, frame = walk.run, walk.frame
        if ("once", _FAILED) in frame.visit.effects:
            return
        recorded = run.session.recorded
        if recorded is not None and recorded.knows(frame, "once", _FAILED):
            entry = recorded.entry(run.log, frame, "once", _FAILED)
            assert entry is not None
            run.log.append(entry)
            return
        path = run.node_of(frame)
        if _may_wait(walk) and _waits(walk):
            if recorded is None or recorded.is_after_all(frame):
                run.log.append(LearningDue(at=frame.path, node=path))
            return
        try:
            await awaited(call(walk, value), f"node {path!r}")
        except FAILURES as error:
            if run.log.stale is not None or matching(error, FAILURES, run.lineage) is None or _is_taken(walk, error):
                raise
            run.log.append(EffectRecorded(at=frame.path, kind="once", key=_FAILED, value=run.log.keep(None)))
            if _may_wait(walk):
                run.log.append(LearningDue(at=frame.path, node=path))
            await run.log.commit()
            report(run, path, error)

    return learn


def report(run: AgentRun, path: str, error: Exception) -> None:
    """Report that somebody failed to learn from a run."""
    run.emit(ExtractionFailed(run.run_id, path, str(error) or type(error).__name__))


def _may_wait(walk: Walk) -> bool:
    """Return whether a tap can learn after the end of the run: the transcript of a branch or of a sub-agent may be gone then."""
    run = walk.run
    return run.parent is None and walk.frame.transcript is run.frame.transcript


def _waits(walk: Walk) -> bool:
    """Return whether a tap learns in the background. One with an error edge does not: somebody waits for what it raises."""
    node, features = walk.node, walk.run.features
    if node is None or node.element is None or node.error_edges:
        return False
    return any(getattr(features.get(kind), "background", False) for kind in node.element.needs)


def _is_taken(walk: Walk, error: Exception) -> bool:
    """Return whether an error edge of the tap takes an error."""
    node = walk.node
    edges = node.error_edges if node is not None else ()
    kinds = tuple(kind for edge in edges for kind in edge.errors)
    return matching(error, kinds, walk.run.lineage) is not None
