"""Which notes say the same in the same words. That takes no model."""

from __future__ import annotations

import unicodedata
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphagent.memory.notes._types import Record


def normal(text: str) -> str:
    """Give a text as it is compared: letters composed and in one case, runs of spaces as one."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def is_same(one: Record, other: Record) -> bool:
    """Tell whether two notes are the same but for when they were kept, and how much each matters and is known of.

    No turn of a conversation is: what was said twice was said twice.
    """
    return (
        not (one.session or other.session)
        and (one.owner, one.scope, one.source, one.private, one.trust)
        == (other.owner, other.scope, other.source, other.private, other.trust)
        and set(one.categories) == set(other.categories)
        and normal(one.content) == normal(other.content)
    )


def sameness(record: Record) -> int | None:
    """Give a number of 64 bits by which notes that are the same are found; others may have it too. None where none is."""
    if record.session:
        return None
    told = f"{record.scope}\0{record.source}\0{normal(record.content)}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(told, digest_size=8).digest(), "big", signed=True)
