"""The errors of PostgreSQL as those of graphagent: the fault, the store, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

from graphagent.errors import DamagedStoreError, ReadOnlyStoreError, StoreError, StoreUnavailableError

AGAIN = frozenset({"40001", "40P01"})
"""The states of transactions that were broken off in favour of others, and may be tried again."""
READ_ONLY = "25006"
"""The state of a statement that would write where nothing may be written."""
UNDEFINED = frozenset({"3F000", "42P01", "42883"})
"""The states of statements about a schema, a table or a function that does not exist."""
TRANSIENT = frozenset({"53300", "57P03", "57P01", "57P02"})
"""The states of servers that may take a connection soon: none is left, or they are starting or stopping."""
STATEMENT_POOLING = "statement pooling"
"""The message of a pooler that gives each statement another connection."""

_DISK_FULL = frozenset({"53100"})
_DAMAGED = frozenset({"XX001", "XX002"})
_DENIED = frozenset({"42501"})


@dataclass
class Failure(Exception):
    """A statement failed; its transaction is rolled back or, outside of `BEGIN`, over."""

    state: str
    message: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.message} ({self.state})"


class Lost(Exception):
    """A connection broke, or could not be made: whether the last statement was executed is not known."""

    def __init__(self, message: str, state: str = "", *, hopeless: bool = False, in_doubt: bool = False) -> None:
        super().__init__(message)
        self.state = state
        self.hopeless = hopeless
        """Whether trying again is of no use, since the server refuses."""
        self.in_doubt = in_doubt
        """Whether a commit was sent that may be made all the same."""


def error_of(failure: Failure | Lost, where: str) -> StoreError:
    """Return the error that a failure is for users."""
    if isinstance(failure, Lost):
        reason = str(failure).rstrip(".")
        if STATEMENT_POOLING in reason:
            mode = "A store has transactions: have the pooler give each transaction another connection (pool_mode = transaction)"
            return StoreUnavailableError(where, reason, mode)
        if failure.state == "53300":
            fewer = "Have fewer processes, a smaller connections=, or a pooler between them and the server"
            return StoreUnavailableError(where, reason, fewer, in_doubt=failure.in_doubt)
        return StoreUnavailableError(where, reason, in_doubt=failure.in_doubt)
    if failure.state == READ_ONLY:
        return ReadOnlyStoreError(where, "Give the DSN of the primary server, where it may be written")
    if failure.state in _DENIED:
        return ReadOnlyStoreError(
            where,
            f"Grant its user the missing rights, or give the DSN of another user; PostgreSQL says: {failure.message}",
        )
    if failure.state in _DISK_FULL:
        return StoreError(
            f"{where} was not written: the server has no disk left ({failure.state}); nothing of the commit was kept. Give it more, "
            f"and try again"
        )
    if failure.state == "55P03":
        return StoreError(
            f"{where} was not written: others kept it locked for a minute; nothing of the commit was kept. Try again"
        )
    if failure.state in _DAMAGED:
        return DamagedStoreError(where, f"PostgreSQL says {failure}")
    if failure.state in UNDEFINED:
        return StoreError(f"{where} lacks a table or a function: {failure}. Restore the schema from a backup")
    return StoreError(f"{where}: PostgreSQL refused: {failure}; nothing of it was kept")
