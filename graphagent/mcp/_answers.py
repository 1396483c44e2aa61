"""Lines of a server that cannot be read, although somebody waits for them: they name the request that they answer, or ask for an answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from mcp import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCRequest
from pydantic import ValidationError

_UNREADABLE = object()
"""What the error of a request has as its data if its answer cannot be read."""


def is_unreadable(error: Exception) -> bool:
    """Return whether an error of a request says that its answer cannot be read."""
    return isinstance(error, MCPError) and error.data is _UNREADABLE


def settled(item: object) -> object:
    """Return what a server sent; in the place of an answer that cannot be read, an error of the request that it answers.

    A request that cannot be read becomes one that is refused, so that the server does not wait for its answer.

    Raises:
        RecursionError: it is nested too deeply for anyone to say what it is.
    """
    if not isinstance(item, ValidationError):
        return item
    said = _said(item)
    number = said.get("id")
    if "jsonrpc" not in said or isinstance(number, bool) or not isinstance(number, int | str):
        return item
    if "method" not in said:
        error = ErrorData(code=PARSE_ERROR, message="the answer cannot be read", data=_UNREADABLE)
        return SessionMessage(JSONRPCError(jsonrpc="2.0", id=number, error=error))
    if isinstance(number, str) and not number.isascii():  # the refusal could not be sent
        return item
    return SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=number, method="unreadable"))


def _said(error: ValidationError) -> Mapping[str, Any]:
    """Return the object that could not be read as a message; an empty one if it was none."""
    said: object = None
    for each in error.errors(include_url=False, include_context=False):
        if each["type"] == "json_invalid":
            # Half a surrogate pair, control characters and deep nesting are no reason not to find the id.
            with suppress(ValueError):
                said = json.loads(each["input"], strict=False)
        elif each["type"] == "missing" and len(each["loc"]) == 2:  # the kind of message, and what this one lacks
            said = each["input"]
    return cast("dict[str, Any]", said) if isinstance(said, dict) else {}
