"""What was kept and cannot be read: told in one way, whatever is wrong with it, and without showing it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Unreadable(ValueError):
    """What was kept cannot be read. No value stands in its text."""


def readable(read: Callable[_P, _T]) -> Callable[_P, _T]:
    """Make a reader of JSON data raise nothing but ValueError about what is damaged, and no value in its text."""

    @functools.wraps(read)
    def guarded(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return read(*args, **kwargs)
        except Unreadable as error:
            reason = str(error)
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            reason = f"what was kept is damaged, or of a form that is not known here ({type(error).__name__})"
        # Outside, since the error that it stands for may show values.
        raise Unreadable(reason)

    return guarded


def as_list(data: Any) -> list[Any]:
    """Give a list as it is.

    Raises:
        Unreadable: it is none.
    """
    if not isinstance(data, list):
        raise Unreadable("what was kept has something else where a list belongs")
    return data  # pyright: ignore[reportUnknownVariableType]


def as_int(data: Any) -> int:
    """Give a whole number as it is.

    Raises:
        Unreadable: it is none.
    """
    if type(data) is not int:
        raise Unreadable("what was kept has something else where a whole number belongs")
    return data


def as_str(data: Any) -> str:
    """Give text as it is.

    Raises:
        Unreadable: it is none.
    """
    if not isinstance(data, str):
        raise Unreadable("what was kept has something else where text belongs")
    return data
