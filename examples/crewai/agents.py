"""Notes in agents: the blocks 03 to 05 of crewAI's page on memory, and learning from what people correct.

python examples/crewai/agents.py
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.memory import NoteMemory, Notes, NoteSettings
from graphagent.nodes import ask_human
from graphagent.store import MemoryStore
from graphagent.testing import Reply, ScriptedModel
from graphagent_strategies import single_run

if TYPE_CHECKING:
    from graphagent.llm import ModelRequest

# 03 With a crew

FOUND = "PostgreSQL handles 10k concurrent connections. MySQL caps at 5k."
STATEMENTS = ["PostgreSQL handles 10k concurrent connections", "MySQL caps at 5k concurrent connections"]


def expert(answer: str) -> ScriptedModel:
    """Stand in for a model that answers, and takes what was said apart afterwards."""

    def reply(request: ModelRequest) -> Reply:
        return {"statements": STATEMENTS} if request.output else answer

    return ScriptedModel(itertools.repeat(reply))


async def crew(folder: Path) -> None:
    async with Notes(
        folder / "03.db",
        settings=NoteSettings(
            recency_weight=0.4, semantic_weight=0.4, importance_weight=0.2, recency_half_life_days=14
        ),
    ) as notes:
        researcher = Agent(single_run(), model=expert(FOUND), name="researcher")
        researcher.install(NoteMemory, notes=notes)
        model = expert("Take PostgreSQL.")
        writer = Agent(single_run(), model=model, name="writer")
        writer.install(NoteMemory, notes=notes)

        result = await researcher.run("Compare the databases.")
        assert {record.content for record in await notes.list_records()} == set(STATEMENTS)
        assert {record.run_id for record in await notes.list_records()} == {result.run_id}

        result = await writer.run("How many concurrent connections does PostgreSQL handle?")
        first = model.requests[0].messages
        assert any(STATEMENTS[0] in message.text for message in first)  # it was recalled before the model was asked
        print("03", result.output)


# 04 With an agent


async def agent(folder: Path) -> None:
    async with Notes(folder / "04.db") as notes:
        researcher = Agent(single_run(), model=expert(FOUND), name="researcher")
        researcher.install(NoteMemory, notes=notes.scope("/agent/researcher"))
        model = expert("I know nothing about it.")
        writer = Agent(single_run(), model=model, name="writer")
        writer.install(NoteMemory, notes=notes.slice(["/company"]))

        await researcher.run("Compare the databases.")
        assert {record.scope for record in await notes.list_records()} == {"/agent/researcher"}
        result = await writer.run("How many connections does PostgreSQL handle?")
        assert not any(STATEMENTS[0] in message.text for message in model.requests[0].messages)
        print("04", result.output)


# 05 In a flow


@node
async def gather_data(ctx: Context, topic: str) -> str:
    await ctx.feature(NoteMemory).remember(FOUND, scope="/research/databases")
    return FOUND


@node
async def write_report(ctx: Context, findings: str) -> str:
    past = await ctx.feature(NoteMemory).recall("concurrent connections of databases")
    context = "\n".join(f"- {match.record.content}" for match in past)
    return f"Report:\nNew findings: {findings}\nPrevious context:\n{context}"


async def flow(folder: Path) -> None:
    async with Notes(folder / "05.db") as notes:
        await notes.remember("Last year MySQL had 4k connections.", scope="/research/databases")
        research = Agent(Strategy("research", START >> gather_data >> write_report >> END))
        research.install(NoteMemory, notes=notes, learn=False)
        result = await research.run("databases")
        assert "- Last year MySQL had 4k connections." in result.output
        [kept] = [record for record in await notes.list_records() if record.run_id]
        assert (kept.content, kept.run_id) == (FOUND, result.run_id)
        print("05", result.output.splitlines()[-1])


# Learning from what people correct


def editor(request: ModelRequest) -> Reply:
    """Stand in for a model that learns of a correction, and applies what it learned."""
    assert request.output is not None
    if request.output.name == "lessons":
        return {"lessons": ["Name the price in every offer."]}
    return {"changed": True, "output": "An offer for 10 chairs, 500 euros."}


async def corrected(folder: Path) -> None:
    async with Notes(folder / "hitl.db") as notes:
        review = ask_human(lambda text: f"Is this right? {text}", str, learn=notes.scope("/lessons"))
        store = MemoryStore()
        offers = Agent(
            Strategy("offers", START >> review >> END), model=ScriptedModel(itertools.repeat(editor)), store=store
        )
        await offers.run("An offer for 10 chairs.", run_id="first")
        await offers.resume("first", answer="The price is missing. Always name it.")
        [lesson] = await notes.list_records()
        assert lesson.categories == ("lesson",)

        second = await offers.run("An offer for 10 chairs.", run_id="second")
        assert second.pending is not None
        assert second.pending.about == "An offer for 10 chairs, 500 euros."
        print("hitl", second.pending.question)


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        await crew(folder)
        await agent(folder)
        await flow(folder)
        await corrected(folder)


if __name__ == "__main__":
    anyio.run(main)
