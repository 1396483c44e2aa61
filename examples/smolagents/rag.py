"""Answers from documents that are searched, as often as it takes: smolagents' `rag.py` and `rag_using_chromadb.py`.

    python examples/smolagents/rag.py
    python examples/smolagents/rag.py --model llama3.2 --base-url http://localhost:11434/v1

The documents are notes, which are found by their words; with an embedder (`Notes(…, embedder=…)`) also by their meaning. NoteMemory
offers the model the tool `recall`, so that it can search again in other words.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import anyio

from graphagent import Agent
from graphagent.llm import ToolCall
from graphagent.llm.openai import OpenAIModel
from graphagent.memory import Note, Notes
from graphagent.memory.notes import NoteMemory
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

DOCUMENTS = {
    "training.md": """\
A training step has a forward pass and a backward pass.

In the backward pass, gradients are computed for the weights and for the activations, so that it takes about twice as long as the
forward pass.

Gradient accumulation adds up the gradients of several small batches before the weights change.""",
    "memory.md": """\
Activations are kept from the forward pass until the backward pass needs them.

Gradient checkpointing keeps only some of them, and computes the others again.""",
}


async def main() -> None:
    """Keep the documents, paragraph by paragraph, and answer from them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--base-url")
    options = parser.parse_args()
    script = [
        ToolCall("recall", {"queries": ["backward pass slower than forward pass"]}),
        "The backward pass is slower: it takes about twice as long as the forward pass (training.md).",
    ]
    model = OpenAIModel(options.model, base_url=options.base_url) if options.model else ScriptedModel(script)
    with tempfile.TemporaryDirectory() as folder:
        async with Notes(Path(folder) / "documents.db") as notes:
            for name, text in DOCUMENTS.items():
                paragraphs = [Note(paragraph, source=name) for paragraph in text.split("\n\n")]
                await notes.remember_many(paragraphs, scope="/documentation")
            agent = Agent(
                single_run(),
                model=model,
                max_turns=4,
                system_prompt="Answer from the notes alone, and name your source.",
            )
            agent.install(NoteMemory, notes=notes.slice(["/documentation"]), recall=False)
            result = await agent.run("Which is slower in training, the forward pass or the backward pass?")
            result.replay()


anyio.run(main)
