"""The text by which a model is told of an exception of a tool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, cast

from graphagent._article import kind_of
from graphagent._tracebacks import error_text, without_credentials

ErrorText: TypeAlias = Literal["message", "type"] | Callable[[Exception], str]
"""The text by which a model is told of an exception of a tool: `message`, its type and its message without the passwords, keys and
tokens of URLs and connection strings; `type`, its type alone; or a function of the exception that returns the text."""


def check_error_text(option: str, errors: object) -> None:
    """Check an option `errors`.

    Raises:
        ValueError: it is another word.
        TypeError: it is neither a word nor a function.
    """
    if isinstance(errors, str):
        if errors not in ("message", "type"):
            raise ValueError(f"{option} is 'message', 'type' or a function of the exception, not {errors!r}")
    elif not callable(errors):
        raise TypeError(f"{option} is 'message', 'type' or a function of the exception, not {kind_of(errors)}")


def text_of_error(error: Exception, errors: ErrorText, tool: str) -> str:
    """Return the text by which a model is told of an exception.

    Raises:
        TypeError: the function of `errors` returned something other than text.
    """
    if errors == "type":
        return type(error).__name__
    if errors == "message":
        return without_credentials(f"{type(error).__name__}: {error_text(error)}")
    text: object = cast("Callable[[Exception], object]", errors)(error)
    if isinstance(text, str):
        return text
    raise TypeError(
        f"tool {tool!r}: errors= returned {kind_of(text)}; return the text by which the model is told of the exception"
    )
