"""An assistant whose notes are in two languages, and that is asked in the other one: German about English notes, and the reverse.

    pip install '.[multilingual]'
    python examples/two_languages.py
    python examples/two_languages.py --model llama3.2 --base-url http://localhost:11434/v1

The notes are found by their meaning, on this machine. Without --model a stand-in for a model says which note it was shown first.
"""

from __future__ import annotations

import argparse
import itertools
from typing import TYPE_CHECKING

import anyio

from graphagent import Agent
from graphagent.embed.multilingual import MultilingualEmbedder
from graphagent.llm.openai import OpenAIModel
from graphagent.memory import NoteMemory, Notes
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

if TYPE_CHECKING:
    from graphagent.llm import ModelRequest

NOTES = (
    "Grandmother is allergic to nuts.",
    "The plumber was paid two hundred euros.",
    "Paul broke his leg while skiing.",
    "Der Zug ans Meer fährt um sieben Uhr morgens.",
    "Der Zweitschlüssel liegt unter dem Blumentopf.",
    "Am Donnerstag ist die Besprechung mit der Bank.",
)
ASKED = (
    ("Was darf Oma nicht essen?", NOTES[0]),
    ("Wie viel hat der Klempner bekommen?", NOTES[1]),
    ("Wer hat sich das Bein gebrochen?", NOTES[2]),
    ("When do we travel to the sea?", NOTES[3]),
    ("Where can I find the second key?", NOTES[4]),
    ("On which day do we see the people from the bank?", NOTES[5]),
)


def first_note(request: ModelRequest) -> str:
    """Answer in the place of a model: with the note that stands first in the prompt."""
    prompt = "\n".join(message.text for message in request.messages)
    places = {prompt.find(note): note for note in NOTES if note in prompt}
    return f"My notes say: {places[min(places)]}" if places else "My notes say nothing about it."


async def main(options: argparse.Namespace) -> None:
    model = (
        OpenAIModel(options.model, base_url=options.base_url)
        if options.model
        else ScriptedModel(itertools.repeat(first_note))
    )
    async with Notes(MemoryStore(), embedder=MultilingualEmbedder()) as notes:
        await notes.remember_many(NOTES)
        assistant = Agent(single_run(), model=model, system_prompt="Answer in one sentence, from your notes.")
        assistant.install(NoteMemory, notes=notes, learn=False)
        for question, note in ASKED:
            result = await assistant.run(question)
            print(f"{question}\n  {result.output}")
            if not options.model:
                assert note in result.output, note


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a model of an OpenAI-compatible server; without one a stand-in answers")
    parser.add_argument("--base-url", help="where the server is")
    anyio.run(main, parser.parse_args())
