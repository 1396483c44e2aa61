"""Notes that two people change at once."""

from __future__ import annotations

import pytest

from graphagent.errors import ConflictError
from graphagent.memory import Notes
from graphagent.store import MemoryStore


async def test_who_changes_what_somebody_else_changed_meanwhile_is_told():
    """The note stays as the other one has left it."""
    notes = Notes(MemoryStore())
    seen = await notes.remember("The harbour opens at nine.")
    await notes.update(seen.id, content="The harbour opens at eight.", version=seen.version)
    with pytest.raises(ConflictError) as caught:
        await notes.update(seen.id, content="The harbour is closed.", version=seen.version)
    assert (caught.value.expected, caught.value.found) == (1, 2)
    assert "closed" not in str(caught.value)
    left = await notes.get(seen.id)
    assert (left.version, left.content) == (2, "The harbour opens at eight.")
