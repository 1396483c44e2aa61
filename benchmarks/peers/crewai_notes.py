"""crewAI's unified memory: texts kept and asked for, without a model. It reads an order from its standard input and prints an answer.

Vectors are looked up in the order, so that what is compared is what is made of them. What a model would infer is given (scope,
categories, importance), consolidation is off, and recall is shallow: no model is asked for anything.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}
os.environ.setdefault("OPENAI_API_KEY", "none")  # it is asked for, and not used

from crewai.events.event_listener import event_listener
from crewai.memory.unified_memory import Memory


def main() -> None:
    order = json.load(sys.stdin)
    event_listener.formatter.verbose = False  # what it would draw is not measured
    vectors = order["vectors"]

    def embed(texts: list[str]) -> list[list[float]]:
        return [vectors[text] for text in texts]

    answers: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CREWAI_STORAGE_DIR"] = folder
        for number, talk in enumerate(order["talks"]):
            memory = Memory(
                storage=str(Path(folder) / str(number)), embedder=embed, consolidation_threshold=1.0, read_only=False
            )
            keep(memory, talk["turns"], vectors)
            for question in talk["questions"]:
                began = time.perf_counter()
                matches = memory.recall(question, limit=order["limit"], depth="shallow")
                seconds = time.perf_counter() - began
                answers.append({"found": [match.record.source for match in matches], "seconds": seconds})
            memory.close()
    print(json.dumps({"version": version("crewai"), "answers": answers}))


def keep(memory: Memory, turns: list[list[str]], vectors: dict[str, list[float]]) -> None:
    """Keep texts, each with its source."""
    for source, text in turns:
        memory.remember(text, scope="/", categories=[], importance=0.5, source=source)


if __name__ == "__main__":
    main()
