"""One thread's way to the database: a connection that is made again when it breaks, and the row of the writer that commits over it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from graphagent.store.postgres._connection import UUID, Connection, Parameter, int8, number_of
from graphagent.store.postgres._failures import AGAIN, READ_ONLY, TRANSIENT, Failure, Lost
from graphagent.store.postgres._migrations import FENCED

if TYPE_CHECKING:
    from graphagent.store.postgres._database import Database

T = TypeVar("T")

_TRIES = 8
"""How often a transaction is begun that is broken off in favour of others."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5


class SealedMeanwhile(Exception):
    """The store turned out to be sealed; nothing was sent."""


class _Patience:
    """How long a server that was there is waited for: it is asked again at once, and then after pauses that become longer."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: float | None = None
        self._pause = 0.0

    def wait(self, error: Lost | Failure) -> None:
        """Wait before the next attempt, or raise the error if another attempt is useless or the time is over."""
        now = time.monotonic()
        hopeless = isinstance(error, Lost) and error.hopeless
        if hopeless or (self._until is not None and now + self._pause >= self._until):
            raise error
        if self._until is None:
            self._until = now + self._seconds
        time.sleep(self._pause)
        self._pause = min(max(self._pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE)


class Link:
    """A connection and its writer. It is used by one thread."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._connection: Connection | None = None
        self._writer = b""
        self._epoch = 0
        """The epoch in the row of the writer; 0 without a row."""
        self._number = 0
        """The number of the last commit that was sent."""
        self._in_doubt = False
        """Whether a commit with that number may still be made."""

    def read(self, function: Callable[[Connection], T]) -> T:
        """Call a function that only reads with a connection, and again with another one where that breaks.

        Raises:
            Failure: PostgreSQL refuses the request.
            Lost: the server cannot be reached, or ends each connection.
        """
        patience = _Patience(self.database.seconds)
        while True:
            connection = self._connected(patience)
            try:
                return function(connection)
            except Lost as lost:
                patience.wait(lost)
            except Failure as failure:
                connection.roll_back()
                if failure.state not in AGAIN:
                    raise
                patience.wait(failure)
            except BaseException:
                with suppress(Lost, Failure):
                    connection.roll_back()
                raise

    def write(self, attempt: Callable[[Connection, list[Parameter]], None], *, new: bool, sealed: bool) -> None:
        """Have a commit made, exactly once.

        Args:
            attempt: Sends the commit, with these parameters for `enter`. It is called again where it is certain that the commit
                was not made. Its errors, other than those of the connection, roll the commit back and are raised.
            new: Whether the store is made if there is none. Otherwise nothing is done then.
            sealed: Whether the store was known to be sealed when the commit was checked.

        Raises:
            Failure: PostgreSQL refuses the commit; nothing of it is made.
            Lost: the server cannot be reached. Where the commit was sent, `in_doubt` of the error says that it may be made.
            SealedMeanwhile: the store is sealed, and `sealed` says that it was not; nothing was sent.
        """
        patience, tries = _Patience(self.database.seconds), 0
        while True:
            connection = self._connected(patience)
            sent = False
            try:
                if not self.database.is_ready(connection, new=new):
                    return
                self._begin(connection)
                if self.database.is_sealed and not sealed:
                    raise SealedMeanwhile
                self._number, self._in_doubt, sent = self._number + 1, True, True
                attempt(connection, [(UUID, self._writer), int8(self._epoch), int8(self._number)])
            except Lost as lost:
                connection.close()  # the row of the writer is looked at from outside of the transaction
                if sent and self._was_made(patience):
                    return
                patience.wait(lost)
            except Failure as failure:
                connection.roll_back()
                self._in_doubt = False
                tries += 1
                if failure.state == FENCED:
                    self._epoch = 0
                elif failure.state == READ_ONLY and tries == 1:
                    connection.close()  # the DSN may lead to another server, since this one became a replica
                elif failure.state not in AGAIN:
                    raise
                if tries == _TRIES:
                    raise
            except BaseException:
                with suppress(Lost, Failure):
                    connection.roll_back()
                    self._in_doubt = False
                raise
            else:
                self._in_doubt = False
                return

    def _begin(self, connection: Connection) -> None:
        """Have a row of this writer, and know the outcome of its last commit."""
        if self._in_doubt:
            self._settle(connection)
        if self._epoch:
            return
        self._writer = uuid.uuid4().bytes
        [(sealed,)] = connection.run(self.database.sql("SELECT {s}.begin_writer($1)"), [(UUID, self._writer)])
        self._epoch = 1
        self.database.is_sealed = self.database.is_sealed or sealed == b"\x01"

    def _was_made(self, patience: _Patience) -> bool:
        """Return whether the commit was made whose connection broke. If it was not, it never will be.

        Raises:
            Lost: that cannot be known in time.
        """
        try:
            while True:
                try:
                    return self._settle(self._connected(patience))
                except Lost as lost:
                    patience.wait(lost)
        except Lost as lost:
            raise Lost(str(lost), lost.state, in_doubt=True) from None

    def _settle(self, connection: Connection) -> bool:
        rows = connection.run(self.database.sql("SELECT * FROM {s}.settle($1)"), [(UUID, self._writer)])
        self._in_doubt = False
        if not rows:  # an older copy of the database has taken its place: it has neither the commit nor the writer
            self._epoch = 0
            return False
        [(epoch, made)] = rows
        self._epoch = number_of(epoch)
        return number_of(made) == self._number

    def _connected(self, patience: _Patience) -> Connection:
        if self._connection is not None and not self._connection.is_broken:
            return self._connection
        while True:
            try:
                self._connection = Connection(self.database.target, self.database.seconds)
            except Lost as lost:
                if not self.database.was_reached and lost.state not in TRANSIENT:
                    raise
                patience.wait(lost)
            else:
                self.database.was_reached = True
                return self._connection

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
