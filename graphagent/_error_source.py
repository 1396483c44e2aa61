"""The note of an error that says which method of a feature raised it."""

from __future__ import annotations


class _Source(str):
    """The note, told apart from other notes by its type."""

    __slots__ = ()


def note_source(error: Exception, source: str) -> None:
    """Note in an error which method of a feature raised it, such as `Redactor.around_model`, unless that is noted already.

    The error keeps its type, so that edges and retries treat it as if the node had raised it.
    """
    if not source_of(error):
        error.add_note(_Source(source))


def source_of(error: BaseException) -> str:
    """Return the text that `note_source` noted in an error; empty if there is none."""
    return next((note for note in getattr(error, "__notes__", ()) if isinstance(note, _Source)), "")
