"""Looking through notes, their events, the terminal, and starting over: the blocks 33 to 36 of crewAI's page on memory.

python examples/crewai/operations.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import anyio

from graphagent.events import MemoryQueryCompleted, MemorySaveCompleted
from graphagent.memory import Notes

# 33 Looking through


async def looking_through(folder: Path) -> None:
    async with Notes(folder / "33.db") as notes:
        await notes.remember("Chose PostgreSQL.", scope="/project/alpha", categories=["decisions", "database"])
        await notes.remember("Chose gRPC.", scope="/project/alpha/api", categories=["decisions"])
        await notes.remember("The office closes at six.")
        assert str(await notes.tree()).splitlines()[0] == "/ (3 records)"
        assert str(await notes.tree("/project", max_depth=1)).splitlines()[-1] == "  /project/alpha (2 records)"
        info = await notes.info("/project")
        assert (info.record_count, info.categories) == (2, ["database", "decisions"])
        assert await notes.list_scopes("/") == ["/project"]
        assert await notes.list_categories() == {"database": 1, "decisions": 2}
        newest = await notes.list_records(scope="/project/alpha", limit=20)
        assert [record.content for record in newest] == ["Chose gRPC.", "Chose PostgreSQL."]
        assert await notes.list_records(scope="/project/alpha", limit=1, offset=1) == newest[1:]
        print("33", *(record.content for record in newest))


# 34 Timing queries


async def events(folder: Path) -> None:
    told: list[str] = []

    def on_done(event: MemoryQueryCompleted) -> None:
        told.append(f"Query {event.query!r} completed in {event.query_time_ms:.0f} ms")

    async with Notes(folder / "34.db") as notes:
        notes.on(MemoryQueryCompleted, on_done)
        notes.on(MemorySaveCompleted, lambda event: told.append(event.source_type))
        await notes.remember("The limit is 1,000 a minute.")
        await notes.scope("/elsewhere").recall("limit")  # events of views are told as well
        assert told[0] == "notes"
        assert told[1].startswith("Query 'limit' completed in ")
        print("34", told[1])


# 35 In a terminal


async def terminal(folder: Path) -> None:
    async with Notes(folder / "35.db") as notes:
        await notes.remember("We chose PostgreSQL.", scope="/project/alpha")
    command = [sys.executable, "-m", "graphagent", "notes", "tree", "--store", str(folder / "35.db")]
    ended = await anyio.run_process(command)
    assert "/project/alpha (1 note)" in ended.stdout.decode()
    print("35", ended.stdout.decode().splitlines()[-1].strip())


# 36 Starting over


async def starting_over(folder: Path) -> None:
    async with Notes(folder / "36.db") as notes:
        for scope in ("/project/old", "/project/old/api", "/project/older", "/"):
            await notes.remember(f"The note of {scope}.", scope=scope)
        receipt = await notes.reset("/project/old")
        assert receipt.notes == 2
        assert await notes.list_scopes("/project") == ["/project/older"]
        assert (await notes.reset()).notes == 2
        assert await notes.list_records() == []
        print("36", receipt.notes, "and then", 2)


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        await looking_through(folder)
        await events(folder)
        await terminal(folder)
        await starting_over(folder)


if __name__ == "__main__":
    anyio.run(main)
