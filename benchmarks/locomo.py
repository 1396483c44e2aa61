"""How well notes are found: LoCoMo, by its paper's protocol, beside crewAI's memory with the same embedder.

A note is a turn of a conversation, and every question of all five categories is asked of its conversation alone. The figure is the
share of a question's evidence among the first 5, 10, 20 and 50 turns that `notes.recall` returns, in the mean of all questions that
have evidence (Maharana et al., "Evaluating Very Long-Term Conversational Memory of LLM Agents", ACL 2024, table 3). A picture is
represented by its caption in the data, after the text, as in the paper. The MRR counts the first 50 turns.

The data may be used for evaluation only (CC BY-NC 4.0), so they are not here, and nothing is fitted on them:
https://github.com/snap-research/locomo has them.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from benchmarks.baselines import Vectors, crewai, embedders, has_crewai
from benchmarks.measure import milli, table
from benchmarks.outcome import Outcome, outcome, recall_cells
from graphagent.memory import Notes
from graphagent.memory.notes import Turn

if TYPE_CHECKING:
    from graphagent.protocols import Embedder

DEPTHS = (5, 10, 20, 50)
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open", 4: "single-hop", 5: "adversarial"}
PAPER = ["DRAGON, as in the paper", "56.7", "66.2", "76.7 (25)", "82.7"]
HEAD = [
    "tier",
    *[f"recall@{depth}" for depth in DEPTHS],
    "MRR",
    *[f"@10, {name}" for name in CATEGORIES.values()],
    "recall, p50",
]


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the turns that answer it."""

    text: str
    category: str
    evidence: frozenset[str]


@dataclass(frozen=True, slots=True)
class Conversation:
    """The turns of its sessions, and the questions about them."""

    name: str
    sessions: Mapping[str, Sequence[Turn]]
    questions: Sequence[Question]


# The data


def load(path: Path) -> list[Conversation]:
    """Return the conversations of a LoCoMo file."""
    return [conversation(data) for data in json.loads(path.read_text("utf-8"))]


def conversation(data: Mapping[str, Any]) -> Conversation:
    """Return a conversation in LoCoMo's form."""
    spoken = data["conversation"]
    sessions = {
        name: [turn(each, moment(spoken[f"{name}_date_time"])) for each in turns]
        for name, turns in spoken.items()
        if isinstance(turns, list)
    }
    there = {each.source for turns in sessions.values() for each in turns}
    questions = [
        Question(each["question"], CATEGORIES[each["category"]], frozenset(evidence(each.get("evidence", ()))) & there)
        for each in data["qa"]
    ]
    return Conversation(data["sample_id"], sessions, [each for each in questions if each.evidence])


def turn(data: Mapping[str, Any], at: datetime) -> Turn:
    """Return a turn, with the caption of its picture after its text."""
    caption = f" [image: {data['blip_caption']}]" if data.get("blip_caption") else ""
    return Turn(data["text"] + caption, data["speaker"], at=at, source=data["dia_id"])


def moment(text: str) -> datetime:
    """Return a time that is written as "1:56 pm on 8 May, 2023"."""
    return datetime.strptime(f"{text.strip().upper()} +0000", "%I:%M %p ON %d %B, %Y %z")


def evidence(texts: Iterable[str]) -> list[str]:
    """Return the names of turns, some of which the data have as "D8:6; D9:17", "D30:05" or "D:11:26"."""
    return [f"D{session}:{int(place)}" for text in texts for session, place in re.findall(r"D:?\s*(\d+):(\d+)", text)]


def made_up() -> list[Conversation]:
    """Return two tiny conversations in LoCoMo's form, with which everything can be tried without the data."""
    spoken = {
        "session_1": [
            "I planted tomatoes on the balcony.",
            "Mine died of thirst last summer!",
            "I water them each morning.",
        ],
        "session_2": ["My sister moved to Lisbon.", "How does she like the hills?", "She bought an electric bicycle."],
    }
    asked = [("What did Ada plant?", 4, ["D1:1"]), ("How does Ada's sister get about in Lisbon?", 1, ["D2:1; D2:03"]),
             ("When did Ben's plants die?", 2, ["D:1:2"]), ("Who likes hills?", 3, ["D2:2"]), ("Unknown?", 5, [])]  # fmt: skip
    data: dict[str, Any] = {"speaker_a": "Ada", "speaker_b": "Ben"}
    for number, (name, texts) in enumerate(spoken.items(), 1):
        data[f"{name}_date_time"] = f"{number}:05 pm on {number} May, 2023"
        data[name] = [
            {"speaker": ("Ada", "Ben")[place % 2], "dia_id": f"D{number}:{place + 1}", "text": text}
            for place, text in enumerate(texts)
        ]
    questions = [{"question": text, "category": kind, "evidence": where} for text, kind, where in asked]
    return [conversation({"sample_id": name, "conversation": data, "qa": questions}) for name in ("one", "two")]


# The measurement


def cells(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the cells of a row: the means in percent, and the median of the times."""
    seconds = sorted(each.seconds for each in outcomes)[len(outcomes) // 2]
    return [
        *recall_cells(outcomes, DEPTHS, CATEGORIES.values()),
        "" if math.isnan(seconds) else milli(seconds),
    ]


@asynccontextmanager
async def remembered(talk: Conversation, embedder: Embedder | None) -> AsyncIterator[Notes]:
    """Yield notes that have the turns of a conversation, in a file of their own."""
    with tempfile.TemporaryDirectory() as folder:
        async with Notes(Path(folder) / "notes.db", embedder=embedder) as notes:
            for name, turns in talk.sessions.items():
                await notes.remember_conversation(turns, session=name)
            yield notes


async def recalled(talk: Conversation, embedder: Embedder | None) -> list[Outcome]:
    """Return how well `notes.recall` answers every question of a conversation."""
    found: list[Outcome] = []
    async with remembered(talk, embedder) as notes:
        await notes.recall("anything", limit=1)
        for question in talk.questions:
            began = time.perf_counter()
            matches = await notes.recall(question.text, limit=max(DEPTHS))
            took = time.perf_counter() - began
            found.append(
                outcome(question.category, question.evidence, [match.record.source for match in matches], took)
            )
    return found


# The report


def report(*, quick: bool, path: Path | None = None) -> str:
    """Measure every tier that is installed, and crewAI. Return a Markdown table."""
    return anyio.run(functools.partial(_report, load(path) if path is not None else made_up(), quick=quick))


async def _report(talks: Sequence[Conversation], *, quick: bool) -> str:
    rows: list[list[str]] = []
    for name, embedder in {"no embedder": None, **embedders()}.items():
        print(name, file=sys.stderr, flush=True)
        found = [each for talk in talks for each in await recalled(talk, embedder)]
        rows.append([f"graphagent, {name}", *cells(found)])
    rows.append([*PAPER, *[""] * (len(HEAD) - len(PAPER))])
    asked = sum(len(talk.questions) for talk in talks)
    turns = sum(len(turns) for talk in talks for turns in talk.sessions.values())
    rows += await _crew(talks, quick=quick)
    return f"{table(HEAD, rows)}\n\n{len(talks)} conversations, {turns:,} turns, {asked:,} questions with evidence."


async def _crew(talks: Sequence[Conversation], *, quick: bool) -> list[list[str]]:
    """Ask crewAI the same questions, with the same vectors."""
    available = embedders()
    if quick or not available or not has_crewai():
        return [["crewAI", "not measured", *[""] * (len(HEAD) - 2)]]
    name, embedder = available.popitem()
    print(f"crewAI, {name}", file=sys.stderr, flush=True)
    given = [
        (
            {each.source: said(each) for turns in talk.sessions.values() for each in turns},
            [each.text for each in talk.questions],
        )
        for talk in talks
    ]
    used = list(dict.fromkeys(text for texts, questions in given for text in [*texts.values(), *questions]))
    answer = crewai(given, dict(zip(used, (await Vectors(embedder).of(used)).tolist(), strict=True)), max(DEPTHS))
    questions = [question for talk in talks for question in talk.questions]
    found = [
        outcome(question.category, question.evidence, each["found"], each["seconds"])
        for question, each in zip(questions, answer["answers"], strict=True)
    ]
    return [[f"crewAI {answer['version']}, {name}", *cells(found)]]


def said(each: Turn) -> str:
    """Return a turn as one text, for a memory that knows no speakers."""
    return f"{each.speaker}: {each.text}"


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """Return what was asked for on the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks locomo", description=__doc__)
    parser.add_argument("path", nargs="?", type=Path, help="LoCoMo's JSON file")
    parser.add_argument("--quick", action="store_true", help="a made-up conversation; the figures say nothing")
    parser.add_argument("--write", action="store_true", help="rewrite the table of docs/notes-quality.md")
    chosen = parser.parse_args(arguments)
    if (chosen.path is None) is not chosen.quick:
        parser.error("give either LoCoMo's JSON file or --quick")
    if chosen.quick and chosen.write:
        parser.error("quick figures are not written")
    return chosen
