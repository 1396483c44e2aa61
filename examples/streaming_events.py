"""Events: the answer word by word, the way through the graph, the facts learned, all as it happens.

python examples/streaming_events.py
"""

from __future__ import annotations

import tempfile

from graphagent import Agent, tool
from graphagent.events import FactsLoaded, FactsSaved, PathTaken, TextStreamed, ToolReturned
from graphagent.llm import ToolCall
from graphagent.memory import AgentMemory, EncryptedMemoryProvider, Subject
from graphagent.store import new_key
from graphagent.testing import ScriptedModel
from graphagent_strategies import personal


@tool
def trains(town: str) -> list[str]:
    """Give the next trains to a town."""
    return [f"07:04 {town}", f"08:04 {town}"]


home = {"subject": "user", "keyword": "town", "description": "where the user lives", "value": "Voss"}
look = ToolCall("trains", {"town": "Voss"})
first_run = [
    look,
    "The next trains home leave at 7:04 and 8:04.",
    {"facts": [home]},
    {"facts": [home]},
]  # asked again, for the person's words alone
second_run = [look, "At 7:04, as yesterday.", {"facts": []}]
model = ScriptedModel([*first_run, *second_run])
heard: list[str] = []


def show(piece: str) -> None:
    heard.append(piece)
    print(piece, end="\n" if piece.endswith(".") else "")


with tempfile.TemporaryDirectory() as folder:
    agent = Agent(personal(subjects=[Subject("user")]), model=model, tools=[trains])
    agent.install(AgentMemory, provider=EncryptedMemoryProvider(folder, key=new_key()))
    agent.on(FactsLoaded, lambda event: print(f"  [{event.count} fact loaded]"))
    agent.on(PathTaken, lambda event: print(f"  [{event.node}: {event.path} → {event.target}]"))
    agent.on(ToolReturned, lambda event: print(f"  [{event.result.name} gave {event.result.content}]"))
    agent.on(FactsSaved, lambda event: print(f"  [{event.count} fact learned]"))
    # Listening to this makes the model turns stream. What the learning node hears is not the answer, so it does not come here.
    agent.on(TextStreamed, lambda event: show(event.text))

    for question in ("I live in Voss. When can I go home?", "When is the next train home?"):
        print(f"> {question}")
        agent.run_sync(question)

assert "".join(heard) == "The next trains home leave at 7:04 and 8:04.At 7:04, as yesterday."
