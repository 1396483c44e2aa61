"""The outcome of a moderation."""

from __future__ import annotations

from dataclasses import dataclass

from graphagent._options import check_flag


@dataclass(frozen=True, slots=True)
class Moderation:
    """The verdict of a moderator about a text."""

    flagged: bool
    """Whether the text must not pass."""
    categories: tuple[str, ...] = ()
    """The categories for which it was flagged, such as `violence`."""
    reason: str = ""
    """Why, for people; it may repeat something of the text."""

    def __post_init__(self) -> None:
        check_flag("Moderation: flagged", self.flagged)
