"""Faults of answers for which a request waits: unreadable, too large, or never sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from typing import Any, cast

from mcp import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCRequest
from pydantic import ValidationError


class Fault(Enum):
    """Why the error of a request is not the one named by its code. Carried as the data of the error."""

    UNREADABLE = "it cannot be read"
    TOO_LARGE = "it is too large"
    MISSING = "it was begun over HTTP, and did not come"
    SAID = "the server chose the code of an error that its end would have"


_OF_CLIENT = {
    "Failed to parse SSE message": Fault.UNREADABLE,
    "SSE stream failed": Fault.TOO_LARGE,
    "SSE stream ended": Fault.MISSING,
}
"""How the errors begin that the client makes over HTTP in the place of an answer."""


def fault_of(error: Exception) -> Fault | None:
    """Return the fault of the answer to a failed request; None if the answer is sound, or the connection ended."""
    return error.data if isinstance(error, MCPError) and isinstance(error.data, Fault) else None


def failed(number: int | str, fault: Fault) -> SessionMessage:
    """Return the error for a request whose answer is not used."""
    error = ErrorData(code=PARSE_ERROR, message=fault.value, data=fault)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=number, error=error))


def settled(item: object) -> object:
    """Return the message of a server. An answer that cannot be read becomes an error of its request.

    A request that cannot be read is refused, so that the server does not wait for an answer.

    Raises:
        RecursionError: The message is nested too deeply to be identified.
    """
    if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCError):
        error = item.message.error
        if error.code in (CONNECTION_CLOSED, PARSE_ERROR) and not isinstance(error.data, Fault):
            made = next((fault for begin, fault in _OF_CLIENT.items() if error.message.startswith(begin)), Fault.SAID)
            item.message.error = error.model_copy(update={"data": made})
    if not isinstance(item, ValidationError):
        return item
    said = _said(item)
    number = said.get("id")
    if "jsonrpc" not in said or isinstance(number, bool) or not isinstance(number, int | str):
        return item
    if "method" not in said:
        return failed(number, Fault.UNREADABLE)
    if isinstance(number, str) and not number.isascii():  # the refusal could not be sent
        return item
    return SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=number, method="unreadable"))


def _said(error: ValidationError) -> Mapping[str, Any]:
    """Return the object that could not be read as a message; an empty one for other values."""
    said: object = None
    for each in error.errors(include_url=False, include_context=False):
        if each["type"] == "json_invalid":
            # The id is found despite half a surrogate pair, control characters and deep nesting.
            with suppress(ValueError):
                said = json.loads(each["input"], strict=False)
        elif each["type"] == "missing" and len(each["loc"]) == 2:  # the kind of message, and its missing field
            said = each["input"]
    return cast("dict[str, Any]", said) if isinstance(said, dict) else {}
