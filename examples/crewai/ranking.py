"""How matches are ranked and how deep is looked: the blocks 15 to 18 of crewAI's page on memory.

python examples/crewai/ranking.py
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from graphagent.memory import Notes, NoteSettings
from graphagent.testing import Reply, ScriptedModel, fixed_clock

if TYPE_CHECKING:
    from graphagent.llm import ModelRequest

NEW_YEAR, DAY = 1_735_689_600_000, 86_400_000  # milliseconds

# 15 The formula


async def formula(folder: Path) -> None:
    async with Notes(
        folder / "15.db", settings=NoteSettings(semantic_weight=0.5, recency_weight=0.3, importance_weight=0.2)
    ) as notes:
        await notes.remember("The rate limit is 1,000 requests a minute.", importance=1.0)
        [match] = await notes.recall("rate limit")
        # All that was asked for is in it, it is new, and it is as important as can be.
        assert abs(match.score - 1.0) < 0.001
        assert match.parts["relevance"] == 1.0
        assert abs(match.parts["semantic"] + match.parts["recency"] + match.parts["importance"] - match.score) < 1e-9
        print("15", f"{match.score:.2f}", *match.reasons)


# 16 Weights


def sprint(file: Path) -> Notes:
    return Notes(
        file,
        settings=NoteSettings(recency_weight=0.5, semantic_weight=0.3, importance_weight=0.2, recency_half_life_days=7),
    )


def knowledge(file: Path) -> Notes:
    return Notes(
        file,
        settings=NoteSettings(
            recency_weight=0.1, semantic_weight=0.5, importance_weight=0.4, recency_half_life_days=180
        ),
    )


async def weights(folder: Path) -> None:
    with fixed_clock(NEW_YEAR):
        async with Notes(folder / "16.db") as notes:
            await notes.remember("Deploys go through the queue.", importance=1.0)
    first: list[str] = []
    with fixed_clock(NEW_YEAR + 90 * DAY):
        async with Notes(folder / "16.db") as notes:
            await notes.remember("The deploy queue was slow today.", importance=0.1)
        for tuned in (sprint, knowledge):
            async with tuned(folder / "16.db") as notes:
                [match, _] = await notes.recall("deploy queue")
                first.append(match.record.content)
    assert first == ["The deploy queue was slow today.", "Deploys go through the queue."]
    print("16", *first)


# 17 Three depths


def analyst(request: ModelRequest) -> Reply:
    """Stand in for a model that says what to search for, and what the results lack."""
    assert request.output is not None
    if request.output.name == "analysis":
        return {"phrases": ["gRPC between services", "queue for jobs"], "scopes": ["/decisions"], "complexity": 0.9}
    return {"gaps": [{"missing": "who decided it", "phrase": "decided by"}]}


async def depths(folder: Path) -> None:
    model = ScriptedModel(itertools.repeat(analyst))
    async with Notes(folder / "17.db", model=model) as notes:
        texts = ["Services talk over gRPC.", "Jobs go through a queue.", "We decided to paint the office."]
        await notes.remember_many(texts, scope="/decisions", infer="never")

        matches = await notes.recall("What did we decide?", limit=10, depth="shallow")
        assert [match.record.content for match in matches] == [texts[2]]
        assert not model.requests

        question = "Summarize all architecture decisions from this quarter"
        matches = await notes.recall(question, limit=10, depth="deep")
        assert {match.record.content for match in matches} >= set(texts[:2])
        asked = [request.output.name for request in model.requests if request.output]
        assert asked[0] == "analysis"
        assert len(asked) <= 2  # one for the question, and one round of looking further
        print("17", *asked)


# 18 Thresholds


async def thresholds(folder: Path) -> None:
    model = ScriptedModel(itertools.repeat(analyst))
    patient = Notes(
        folder / "18.db",
        model=model,
        settings=NoteSettings(confidence_threshold_high=0.9, confidence_threshold_low=0.4, exploration_budget=2),
    )
    async with patient as notes:
        await notes.remember("The office was painted.", infer="never")
        [match] = await notes.recall("Who decided which colour the office was painted in?", depth="deep")
        assert match.gaps == ("who decided it",)
        assert 1 < len(model.requests) <= 3
        print("18", *match.gaps)
    async with Notes(folder / "18.db", model=model, settings=NoteSettings(exploration_budget=0)) as notes:
        before = len(model.requests)
        await notes.recall("Who decided which colour the office was painted in?", depth="deep")
        assert len(model.requests) == before + 1


async def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        await formula(folder)
        await weights(folder)
        await depths(folder)
        await thresholds(folder)


if __name__ == "__main__":
    anyio.run(main)
