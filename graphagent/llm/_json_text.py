"""JSON texts as models and servers write them: read to values that JSON can write again."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, cast

_LARGE = re.compile(r"[0-9][eE]\+?[0-9]|[0-9]{300}")
"""What a JSON text has in which a number is too large for a float."""
_HUGE = re.compile(rb"[0-9]{309}")
"""What JSON has in which an integer is too large for a float."""


_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)", re.DOTALL
)
"""An escape in a JSON string: a surrogate pair, half a pair, or another one."""
_HALF = len(r"\udfff")


def read_json(text: str, **options: Any) -> Any:
    """Read JSON of any size and depth: integers are exact, and a text that no sane server sends is refused quickly.

    A number that is too large for a float is infinity. The options are those of pydantic's `from_json`.

    Raises:
        ValueError: it is not JSON, holds NaN or Infinity, or is nested more than about 200 deep.
    """
    from pydantic_core import from_json

    try:
        return from_json(text, allow_inf_nan=False, **options)
    except TypeError:  # what pydantic makes of half a surrogate pair
        raise ValueError("it holds half a surrogate pair") from None


def read_answer(text: str, **options: Any) -> Any:
    """Read JSON that a model wrote: as `read_json`, with numbers that JSON can write again, and U+FFFD for half a surrogate pair.

    Raises:
        ValueError: as `read_json`, or a number is too large for a float.
    """
    try:
        value = read_json(text, **options)
    except ValueError:
        whole = _ESCAPE.sub(lambda found: r"\ufffd" if len(found[0]) == _HALF else found[0], text)
        if options or whole == text:  # the other half of one at the end may be still to come
            raise
        value = read_json(whole)
    if may_overflow(text) and _has_infinity(value):
        raise ValueError("it contains a number that is too large for a float")
    return value


def may_overflow(text: str) -> bool:
    """Return whether a number in a JSON text may be too large for a float."""
    return _LARGE.search(text) is not None


def check_finite(sent: bytes, made: object, dump: Callable[[Any], Any]) -> None:
    """Check that no integer became infinity where a type demands a float.

    Args:
        sent: The JSON that was validated.
        made: The value that was made of it.
        dump: Returns the plain data of such a value.

    Raises:
        OverflowError: one did.
    """
    if _HUGE.search(sent) and _has_infinity(dump(made)):
        raise OverflowError("it contains a number that is too large for a float")


def _has_infinity(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        value = list(cast("dict[object, object]", value).values())
    return isinstance(value, list | tuple | set | frozenset) and any(map(_has_infinity, cast("list[object]", value)))
