"""Notes on their own: the blocks 01 and 02 of crewAI's page on memory.

python examples/crewai/basics.py
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from graphagent.memory import Notes, NoteSettings
from graphagent.testing import Reply, ScriptedModel

if TYPE_CHECKING:
    from graphagent.llm import ModelRequest

# 01 Quick start


async def quick_start(folder: Path) -> None:
    notes = Notes(folder / "01.db")
    await notes.remember("We decided to use PostgreSQL for the user database.")
    await notes.remember("The old build ran on Jenkins.", scope="/project/old")
    matches = await notes.recall("What database did we choose?")
    for match in matches:
        print(f"01 [{match.score:.2f}] {match.record.content}")
    assert [match.record.content for match in matches] == ["We decided to use PostgreSQL for the user database."]

    sprint = Notes(folder / "01.db", settings=NoteSettings(recency_weight=0.5, recency_half_life_days=7))
    assert (await sprint.forget(scope="/project/old")).notes == 1
    assert str(await sprint.tree()) == "/ (1 record)"
    assert (await sprint.info("/")).record_count == 1
    await sprint.aclose()
    await notes.aclose()


# 02 On its own

MEETING = """Meeting notes: We decided to migrate from MySQL to PostgreSQL
next quarter. The budget is $50k. Sarah will lead the migration."""
STATEMENTS = [
    "Migration from MySQL to PostgreSQL planned for next quarter",
    "Database migration budget is $50k",
    "Sarah will lead the database migration",
]


def stand_in(request: ModelRequest) -> Reply:
    """Stand in for a model that splits the text, and returns nothing about kept notes."""
    assert request.output is not None
    return {"statements": STATEMENTS} if request.output.name == "statements" else {"notes": []}


async def on_its_own(folder: Path) -> None:
    async with Notes(folder / "02.db", model=ScriptedModel(itertools.repeat(stand_in))) as notes:
        await notes.remember("The API rate limit is 1000 requests per minute.", infer="never")
        await notes.remember("Our staging environment uses port 8080.", infer="never")
        await notes.remember("The team agreed to use feature flags for all new releases.", infer="never")
        [first, *_] = await notes.recall("What are our API limits?", limit=5, depth="shallow")
        assert first.record.content == "The API rate limit is 1000 requests per minute."

        facts = await notes.extract_memories(MEETING)
        assert facts == STATEMENTS
        assert len(await notes.list_records()) == 3  # nothing was kept
        for fact in facts:
            await notes.remember(fact, infer="never")
        [first, *_] = await notes.recall("Who leads the migration?", depth="shallow")
        assert first.record.content == STATEMENTS[2]
        print("02", len(facts), "statements;", first.record.content)


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        await quick_start(folder)
        await on_its_own(folder)


if __name__ == "__main__":
    anyio.run(main)
