"""How the engine stops a run before its end without an error."""

from __future__ import annotations


class Suspend(BaseException):
    """Unwinds a run to its caller. The frames keep where it was. Only the engine raises and catches it."""
