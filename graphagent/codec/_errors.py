"""Errors of stored data that cannot be read: always of one class, and never showing a value of the data."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class DecodeError(ValueError):
    """Stored data cannot be read. The text contains no value of it."""


def readable(read: Callable[_P, _T]) -> Callable[_P, _T]:
    """Make a reader of JSON data raise only `DecodeError` for damaged data, without a value in its text."""

    @functools.wraps(read)
    def guarded(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return read(*args, **kwargs)
        except DecodeError as error:
            reason = str(error)
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            reason = f"the stored value is damaged, or of a form that is not known here ({type(error).__name__})"
        # Outside the except clause, because the context of the error may show values.
        raise DecodeError(reason)

    return guarded


def _wrong(what: str) -> DecodeError:
    return DecodeError(f"the stored value has something else where {what} belongs")


def as_list(data: Any, _: object = None) -> list[Any]:
    """Return data that must be a list.

    Raises:
        DecodeError: It is something else.
    """
    if not isinstance(data, list):
        raise _wrong("a list")
    return data  # pyright: ignore[reportUnknownVariableType]


def as_int(data: Any, _: object = None) -> int:
    """Return data that must be a whole number, not a bool.

    Raises:
        DecodeError: It is something else.
    """
    if type(data) is not int:
        raise _wrong("a whole number")
    return data


def as_float(data: Any, _: object = None) -> float:
    """Return data that must be a number, as a float.

    Raises:
        DecodeError: It is something else.
    """
    if type(data) not in (int, float):
        raise _wrong("a number")
    return float(data)


def as_bool(data: Any, _: object = None) -> bool:
    """Return data that must be True or False.

    Raises:
        DecodeError: It is something else.
    """
    if type(data) is not bool:
        raise _wrong("true or false")
    return data


def as_str(data: Any, _: object = None) -> str:
    """Return data that must be text.

    Raises:
        DecodeError: It is something else.
    """
    if not isinstance(data, str):
        raise _wrong("text")
    return data
