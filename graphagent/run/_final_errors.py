"""Which errors handlers may take: those that no code of users within a run may undo, and which part of an error a handler takes.

`Suspend` is not an error: with it the engine stops a run before its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent._raised import leaves
from graphagent.errors import (
    BudgetError,
    DivergedError,
    HandlerError,
    JournalError,
    NodeFailedError,
    RuleError,
    RunClaimedError,
    RunNotFoundError,
    ScriptError,
    VetoError,
)

if TYPE_CHECKING:
    from graphagent.run._agent_run import AgentRun


class Suspend(BaseException):
    """Unwinds a run to its caller. The frames keep where it was. Only the engine raises and catches it."""


def is_final(error: BaseException | None, lineage: tuple[str, ...]) -> bool:
    """Return whether nothing may catch an error: the journal of one of these runs cannot be written, or a handler or callback ended it."""
    while isinstance(error, NodeFailedError):
        error = error.__cause__
    return error is not None and any(_is_final(each, lineage) for each in leaves(error))


def _is_final(error: BaseException, lineage: tuple[str, ...]) -> bool:
    if isinstance(error, ScriptError | DivergedError):
        return True
    ends = (HandlerError, JournalError, RuleError, RunClaimedError, RunNotFoundError, VetoError)
    return isinstance(error, ends) and error.run_id in lineage


def is_of_store(error: BaseException, lineage: tuple[str, ...]) -> bool:
    """Return whether an error says that the store of these runs failed, and nothing of what the runs do."""
    while isinstance(error, NodeFailedError) and error.__cause__ is not None:
        error = error.__cause__
    return any(isinstance(each, JournalError) and each.run_id in lineage for each in leaves(error))


def stops(error: BaseException, lineage: tuple[str, ...]) -> bool:
    """Return whether an error stops one of these runs whatever middleware makes of it: a final one, a used-up budget, or a suspension."""
    return is_final(error, lineage) or any(
        isinstance(each, Suspend) or (isinstance(each, BudgetError) and each.run_id in lineage)
        for each in leaves(error)
    )


def matching(error: Exception, kinds: tuple[type[Exception], ...], lineage: tuple[str, ...]) -> Exception | None:
    """Return the part of an error that is of one of these types: the cause of a failed node inside, otherwise the error itself.

    A used-up budget of this run, or of one around it, is only found by its own name: a handler that catches everything must not undo a
    limit.
    """
    if is_final(error, lineage):
        return None
    if isinstance(error, BudgetError) and error.run_id in lineage:
        return error if error.run_id == lineage[0] and any(issubclass(kind, BudgetError) for kind in kinds) else None
    if isinstance(error, NodeFailedError) and isinstance(error.__cause__, Exception) and NodeFailedError not in kinds:
        cause = matching(error.__cause__, kinds, lineage)
        if cause is not None:
            return cause
    # A group with what ends the run in it is not caught because of its other exceptions.
    return error if isinstance(error, kinds) and not stops(error, lineage) else None


def ends_all(error: Exception, run: AgentRun) -> bool:
    """Return whether an error of one branch ends a race: an error that is final, and a used-up budget of the whole run."""
    if isinstance(error, BudgetError) and error.run_id in run.lineage:
        return not error.where or error.run_id != run.run_id
    return is_final(error, run.lineage)
