"""The errors that no code of users within a run may undo."""

from __future__ import annotations

from graphagent.errors import (
    BudgetError,
    DivergedError,
    HandlerError,
    JournalError,
    NodeFailedError,
    RunClaimedError,
    RunNotFoundError,
    ScriptError,
    VetoError,
)
from graphagent.run.engine._suspend import Suspend


def is_final(error: BaseException | None, run_id: str) -> bool:
    """Return whether nothing may catch an error: the run's journal cannot be written, or a handler or callback ended the run."""
    while isinstance(error, NodeFailedError):
        error = error.__cause__
    if isinstance(error, ScriptError | DivergedError):
        return True
    ends = (HandlerError, JournalError, RunClaimedError, RunNotFoundError, VetoError)
    return isinstance(error, ends) and error.run_id == run_id


def stops(error: BaseException, run_id: str) -> bool:
    """Return whether an error stops a run whatever middleware makes of it: a final one, a used-up budget, or a suspension."""
    if isinstance(error, Suspend):
        return True
    return is_final(error, run_id) or (isinstance(error, BudgetError) and error.run_id == run_id)
