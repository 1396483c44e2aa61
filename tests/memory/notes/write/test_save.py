"""Notes kept together: what is said for all of them, and what each says itself."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from graphagent.errors import NoteError
from graphagent.memory import Note


async def test_options_of_many_notes_are_for_all_and_each_note_may_have_its_own(notes):
    """What a Note says itself comes first, an empty value too; metadata are not merged."""
    said = datetime(2025, 3, 4, tzinfo=UTC)
    given = [
        "as for all",
        Note("its own", metadata={"page": 2}, at=said.replace(year=2024), categories=["own"], importance=0.1),
        Note("without any", metadata={}),
    ]
    kept = await notes.remember_many(
        given, metadata={"book": "atlas"}, at=said, categories=["all"], importance=0.9, source="ana", scope="/books"
    )
    assert [dict(record.metadata) for record in kept] == [{"book": "atlas"}, {"page": 2}, {}]
    assert [record.at.year for record in kept] == [2025, 2024, 2025]
    assert [record.categories for record in kept] == [("all",), ("own",), ("all",)]
    assert [record.importance for record in kept] == [0.9, 0.1, 0.9]
    assert {(record.source, record.scope) for record in kept} == {("ana", "/books")}
    assert [await notes.get(record.id) for record in kept] == kept


async def test_metadata_for_all_that_cannot_be_kept_keep_none(notes):
    """All or none, whatever is wrong with what is said for all."""
    with pytest.raises(NoteError, match=r"metadata\['a'\] is an object"):
        await notes.remember_many(["one", "two"], metadata={"a": object()})
    assert await notes.list_records() == []
