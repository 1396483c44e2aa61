"""Calls of a search engine of the user's own, which beside the index of the notes gets each change of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from graphagent._article import kind_of
from graphagent._raised import awaited
from graphagent.errors import MissingExtraError, NoteError, RunError

if TYPE_CHECKING:
    from graphagent.protocols import NoteIndex

T = TypeVar("T")


async def asked(index: NoteIndex, method: str, call: Callable[[NoteIndex], Awaitable[T]]) -> T:
    """Return the result of a method of a search engine.

    Raises:
        NoteError: it failed.
        RunError: it asks the model of a run, which cannot continue, for example because of a used-up budget.
        MissingExtraError: the extra that it needs is not installed.
    """
    try:
        return await awaited(call(index), f"{type(index).__name__}.{method}()")
    except (NoteError, RunError, MissingExtraError):
        raise
    except Exception as error:
        kept = "" if method == "search" else "; the notes themselves are stored, and reindex() tells it of them again"
        raise NoteError(
            f"{type(index).__name__}.{method}() failed: {type(error).__name__}, which is its cause{kept}"
        ) from error


def check_engine(index: object) -> None:
    """Check that an object is a search engine.

    Raises:
        TypeError: it lacks a method, or is a class.
    """
    missing = [name for name in ("add", "remove", "search") if not callable(getattr(index, name, None))]
    if isinstance(index, type):
        raise TypeError(f"index= is the class {index.__name__}; make one: {index.__name__}(…)")
    if missing:
        raise TypeError(
            f"index= is a search engine with the async methods add, remove and search, as protocols.NoteIndex says; "
            f"{kind_of(index)} has no {' and no '.join(missing)}"
        )
