"""A connection to the server, as a thread uses it: statements in the extended protocol of libpq, with binary values.

The connection is psycopg's. A commit or a read of items is sent by a single call of libpq, which takes a third of the
time of psycopg's `execute` and holds no lock of Python while it waits. A session has no state that outlasts a transaction:
no prepared statements, no settings, no advisory locks. So poolers may give each transaction another one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from graphagent.errors import MissingExtraError, StoreError
from graphagent.store.postgres._failures import STATEMENT_POOLING, TRANSIENT, Failure, Lost

if TYPE_CHECKING:
    from graphagent.store.postgres._dsn import Target

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus, TransactionStatus
except ImportError:
    raise MissingExtraError("PostgresStore", "postgres") from None

BYTEA, INT8, INT4, INT2, TEXT, UUID = 17, 20, 23, 21, 25, 2950
_ARRAYS = {BYTEA: 1001, INT8: 1016, INT4: 1007, INT2: 1005, TEXT: 1009, UUID: 2951}
_SIZES = {INT8: struct.Struct(">iq"), INT4: struct.Struct(">ii"), INT2: struct.Struct(">ih")}
_HEAD = struct.Struct(">iiIii")
_LENGTH = struct.Struct(">i")
_NULL = b"\xff\xff\xff\xff"
_OLDEST = 130000
_ENDED = ("08", "57P")
"""How the states of errors begin after which a server or a pooler ends the connection."""
_FINE = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK, ExecStatus.EMPTY_QUERY)

Parameter = tuple[int, bytes | None]
"""The type of a value and its bytes."""
Row = tuple[bytes | None, ...]


def int8(number: int) -> Parameter:
    """Return a parameter that is a bigint."""
    return INT8, number.to_bytes(8, "big", signed=True)


def array(kind: int, values: Sequence[Any]) -> Parameter:
    """Return a parameter that is an array of bytes or ints, or null if all of these are None."""
    nulls = values.count(None)
    if nulls == len(values):
        return _ARRAYS[kind], None
    parts = [_HEAD.pack(1, 1 if nulls else 0, kind, len(values), 1)]
    numbers = _SIZES.get(kind)
    if numbers is not None:
        size = numbers.size - 4
        parts += [_NULL if each is None else numbers.pack(size, each) for each in values]
    else:
        for each in values:
            if each is None:
                parts.append(_NULL)
            else:
                parts += (_LENGTH.pack(len(each)), each)
    return _ARRAYS[kind], b"".join(parts)


def number_of(value: bytes | None) -> int:
    """Return an int from a column that is not null."""
    assert value is not None
    return int.from_bytes(value, "big", signed=True)


class Connection:
    """A connection. Its methods block, and are called by one thread at a time.

    Raises:
        Lost: the server cannot be reached, or refuses.
        StoreError: the database or the server is not one that can have a store.
    """

    def __init__(self, target: Target, seconds: float) -> None:
        self.where = target.where
        self._target = target
        # Settings in the DSN of the user take precedence.
        defaults = {
            "connect_timeout": max(2, int(seconds)),
            "application_name": "graphagent",
            "client_encoding": "utf8",
        }
        silence = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000}
        options: dict[str, Any] = {**defaults, **silence}
        for name in conninfo_to_dict(target.dsn):
            if name != "client_encoding":
                options.pop(name, None)
        try:
            self.psycopg: psycopg.Connection[Any] = psycopg.connect(
                target.dsn, autocommit=True, prepare_threshold=None, **options
            )
        except psycopg.OperationalError as error:
            message, state = target.without_secrets(str(error)), error.sqlstate or _state_in(error)
            raise Lost(message, state, hopeless=bool(state) and state not in TRANSIENT) from None
        except (psycopg.Error, UnicodeError) as error:
            raise Lost(target.without_secrets(str(error)), hopeless=True) from None
        self._conn = self.psycopg.pgconn
        try:
            self._check_server()
        except BaseException:
            self.close()
            raise

    def _check_server(self) -> None:
        encoding = (self._conn.parameter_status(b"server_encoding") or b"").decode()
        if encoding != "UTF8":
            raise StoreError(
                f"{self.where} has the encoding {encoding}, and a store needs UTF8: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
            )
        if self._conn.server_version < _OLDEST:
            raise StoreError(
                f"{self.where} is on PostgreSQL {self._conn.server_version // 10000}, and a store needs 13 or later"
            )

    @property
    def is_broken(self) -> bool:
        """Whether it is closed, or was found broken."""
        return self._conn.status != ConnStatus.OK

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, also one that failed."""
        return self._conn.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)

    def run(self, statement: bytes, parameters: Iterable[Parameter] = ()) -> list[Row]:
        """Execute one statement and return its rows, with the bytes of their columns.

        Raises:
            Failure: PostgreSQL refuses it.
            Lost: the connection broke; it is closed.
        """
        given = list(parameters)
        try:
            result = self._conn.exec_params(
                statement, [value for _, value in given], [kind for kind, _ in given], [1] * len(given), 1
            )
        except psycopg.Error as error:
            raise self._lost(str(error)) from None
        if result.status in _FINE:
            width, value = result.nfields, result.get_value
            return [tuple([value(row, column) for column in range(width)]) for row in range(result.ntuples)]
        raise self._failed(result)

    def script(self, statements: bytes) -> None:
        """Execute several statements without parameters, in one message.

        Raises:
            Failure: PostgreSQL refuses one of them.
            Lost: the connection broke; it is closed.
        """
        try:
            result = self._conn.exec_(statements)
        except psycopg.Error as error:
            raise self._lost(str(error)) from None
        if result.status not in _FINE:
            raise self._failed(result)

    def _failed(self, result: Any) -> Failure | Lost:
        def field(name: DiagnosticField) -> str:
            return (result.error_field(name) or b"").decode("utf-8", "replace")

        state, message = field(DiagnosticField.SQLSTATE), field(DiagnosticField.MESSAGE_PRIMARY)
        if self.is_broken or state.startswith(_ENDED) or not state:
            # Of a pooler that says why and closes the connection at once, the result has the closing alone.
            return self._lost(message or self._conn.error_message.decode("utf-8", "replace").partition("\n")[0])
        return Failure(state, message, field(DiagnosticField.MESSAGE_DETAIL))

    def failure_of(self, error: psycopg.Error) -> Failure | Lost:
        """Return the meaning of an error that psycopg has raised on this connection."""
        if self.is_broken:
            return self._lost(error.diag.message_primary or "the connection broke")
        return Failure(error.sqlstate or "", error.diag.message_primary or type(error).__name__, "")

    def _lost(self, message: str) -> Lost:
        self.close()
        lost = self._target.without_secrets(message) or "the connection broke"
        return Lost(lost, hopeless=STATEMENT_POOLING in lost)

    def roll_back(self) -> None:
        """End a transaction, if there is one, without its changes.

        Raises:
            Lost: the connection broke, by which the transaction ended too.
        """
        if not self.is_broken and self.in_transaction:
            self.script(b"ROLLBACK")

    def close(self) -> None:
        """Close it."""
        self.psycopg.close()


_STATES = {
    "too many clients": "53300", "remaining connection slots": "53300", "too many connections": "53300",
    "is starting up": "57P03", "not yet accepting connections": "57P03", "in recovery mode": "57P03", "is shutting down": "57P03",
    "password authentication failed": "28P01", "no password supplied": "28P01", "no pg_hba.conf entry": "28000",
    "does not exist": "3D000", "could not translate host name": "08001", "authentication failed": "28000",
    "permission denied for database": "42501", "not currently accepting connections": "55000",
}  # fmt: skip
"""Parts of the messages of refused connections, since libpq passes on no state of these."""


def _state_in(error: psycopg.Error) -> str:
    text = str(error)
    return next((state for words, state in _STATES.items() if words in text), "")
