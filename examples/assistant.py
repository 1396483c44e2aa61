"""An assistant that remembers you: one encrypted file, a tool, answers that stream, runs that survive the process.

    python examples/assistant.py                      # a scripted model, a temporary folder: needs no key, and ends by itself
    OPENAI_API_KEY=… python examples/assistant.py home  # talk to it, as long as you like; what it keeps is in the folder `home`

Kill it at any moment and start it again: an answer that was cut short is finished first.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from graphagent import Agent, tool
from graphagent.llm import ToolCall
from graphagent.llm.openai import OpenAIModel
from graphagent.memory import AgentMemory, StoreMemoryProvider
from graphagent.run import list_runs
from graphagent.store import EncryptedStore, SqliteStore, new_key
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

YOU, THREAD = "ada", "home"  # an owner sees nothing of the others; a thread is one conversation
HAS_KEY = "OPENAI_API_KEY" in os.environ
BOOKED: list[str] = []


@tool(in_flight="fail")  # if the process dies in this call, the model is told so, and nothing is booked twice
def book(day: str, what: str) -> str:
    """Put an appointment into the calendar."""
    BOOKED.append(f"{day}: {what}")
    return f"booked for {day}"


def messages() -> Iterator[str]:
    """Yield what the person says."""
    if not HAS_KEY:
        yield from ("I live in Oslo. Book the dentist for Monday.", "What did I book?", "Where do I live?")
        return
    while message := input("you> ").strip():
        yield message


LIVES = {"subject": "user", "keyword": "city", "description": "where the user lives", "value": "Oslo"}
NOTHING: dict[str, list[str]] = {"facts": []}
DENTIST = ToolCall("book", {"day": "Monday", "what": "the dentist"})
FOUND = {"facts": [LIVES]}  # twice: where a tool was called, a person's words are looked at by themselves as well
REPLIES = [DENTIST, "On Monday.", FOUND, FOUND, "The dentist, on Monday.", NOTHING, "In Oslo.", NOTHING]
"""Answers, and behind each the facts that the model found."""


async def main(folder: Path) -> None:
    key = folder / "key"  # keep a real one elsewhere: whoever has both the key and the file can read it
    if not key.exists():
        key.touch(mode=0o600)
        key.write_text(new_key())
    store = EncryptedStore(SqliteStore(folder / "assistant.db"), key=f"file:{key}")
    model = OpenAIModel("gpt-5-mini") if HAS_KEY else ScriptedModel(REPLIES)
    agent = Agent(single_run(), model=model, tools=[book], store=store, system_prompt="You are a friendly assistant.")
    agent.install(AgentMemory, provider=StoreMemoryProvider(store), learn="background")
    async with store, agent:  # facts are learned beside the conversation, and the end waits for that
        for run in await list_runs(store, owner=YOU, thread=THREAD):
            if run.status == "interrupted":
                print((await agent.resume(run.run_id, owner=YOU)).output)
        for message in messages():
            print(f"> {message}")
            async with agent.stream(message, owner=YOU, thread=THREAD) as events:
                async for text in events.text():
                    print(text, end="", flush=True)
            print()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        Path(sys.argv[1]).mkdir(exist_ok=True)
        asyncio.run(main(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory() as made:
            asyncio.run(main(Path(made)))
