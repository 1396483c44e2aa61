"""How well notes are found: LoCoMo, by its paper's protocol, beside crewAI's memory with the same embedder.

A note is a turn of a conversation, and every question of all five categories is asked of its conversation alone. What counts is the
share of a question's evidence among the first 5, 10, 20 and 50 turns that `notes.recall` gives, in the mean of all questions that
have evidence (Maharana et al., "Evaluating Very Long-Term Conversational Memory of LLM Agents", ACL 2024, table 3). A picture is
what its caption in the data says, behind the text, as in the paper.

The data may be used for evaluation only (CC BY-NC 4.0), so they are not here: https://github.com/snap-research/locomo has them.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import math
import re
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import anyio

from benchmarks.compare import HOME, PEERS, installed
from benchmarks.measure import milli, table
from graphagent.memory import Notes
from graphagent.memory.notes import Turn
from graphagent.memory.notes.index._filter import Filter
from graphagent.memory.notes.recall import _ranking as ranking_of
from graphagent.memory.notes.recall._ranking import Ranking
from graphagent.memory.notes.recall._search import Candidates, candidates

if TYPE_CHECKING:
    from graphagent.protocols import Embedder

DEPTHS = (5, 10, 20, 50)
CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open", 4: "single-hop", 5: "adversarial"}
BOTH = "static + local"
PAPER = ["DRAGON, as in the paper", "56.7", "66.2", "76.7 (25)", "82.7"]
HEAD = [
    "tier",
    *[f"recall@{depth}" for depth in DEPTHS],
    *[f"@10, {name}" for name in CATEGORIES.values()],
    "recall, p50",
]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and the turns that have the answer."""

    text: str
    category: int
    evidence: frozenset[str]


@dataclass(frozen=True, slots=True)
class Conversation:
    """The turns of its sessions, and what is asked about them."""

    name: str
    sessions: Mapping[str, Sequence[Turn]]
    questions: Sequence[Question]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How well a question was answered."""

    category: int
    recalls: Mapping[int, float]
    seconds: float = math.nan


# ---- the data


def load(path: Path) -> list[Conversation]:
    """Give the conversations of a LoCoMo file."""
    return [conversation(data) for data in json.loads(path.read_text("utf-8"))]


def conversation(data: Mapping[str, Any]) -> Conversation:
    """Give a conversation of LoCoMo's form."""
    spoken = data["conversation"]
    sessions = {
        name: [turn(each, moment(spoken[f"{name}_date_time"])) for each in turns]
        for name, turns in spoken.items()
        if isinstance(turns, list)
    }
    there = {each.source for turns in sessions.values() for each in turns}
    questions = [
        Question(each["question"], each["category"], frozenset(evidence(each.get("evidence", ()))) & there)
        for each in data["qa"]
    ]
    return Conversation(data["sample_id"], sessions, [each for each in questions if each.evidence])


def turn(data: Mapping[str, Any], at: datetime) -> Turn:
    """Give a turn, with the caption of its picture behind its text."""
    caption = f" [image: {data['blip_caption']}]" if data.get("blip_caption") else ""
    return Turn(data["text"] + caption, data["speaker"], at=at, source=data["dia_id"])


def moment(text: str) -> datetime:
    """Read a time such as "1:56 pm on 8 May, 2023"."""
    return datetime.strptime(f"{text.strip().upper()} +0000", "%I:%M %p ON %d %B, %Y %z")


def evidence(texts: Iterable[str]) -> list[str]:
    """Read the names of turns, some of which the data have as "D8:6; D9:17", "D30:05" or "D:11:26"."""
    return [f"D{session}:{int(place)}" for text in texts for session, place in re.findall(r"D:?\s*(\d+):(\d+)", text)]


def made_up() -> list[Conversation]:
    """Give two tiny conversations in LoCoMo's form, so that everything can be tried without the data."""
    told = {
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
    for number, (name, texts) in enumerate(told.items(), 1):
        data[f"{name}_date_time"] = f"{number}:05 pm on {number} May, 2023"
        data[name] = [
            {"speaker": ("Ada", "Ben")[place % 2], "dia_id": f"D{number}:{place + 1}", "text": text}
            for place, text in enumerate(texts)
        ]
    questions = [{"question": text, "category": kind, "evidence": where} for text, kind, where in asked]
    return [conversation({"sample_id": name, "conversation": data, "qa": questions}) for name in ("one", "two")]


# ---- what is measured


def share(found: Sequence[str], wanted: frozenset[str], depth: int) -> float:
    """Give the share of what is wanted that is among the first that were found."""
    return len(wanted.intersection(found[:depth])) / len(wanted)


def outcome(question: Question, found: Sequence[str], seconds: float = math.nan) -> Outcome:
    """Say how well a question was answered by the turns that were found."""
    return Outcome(question.category, {depth: share(found, question.evidence, depth) for depth in DEPTHS}, seconds)


def cells(outcomes: Sequence[Outcome]) -> list[str]:
    """Give the means as a table has them, in percent."""
    kinds = defaultdict(list)
    for each in outcomes:
        kinds[each.category].append(each.recalls[10])
    seconds = sorted(each.seconds for each in outcomes)[len(outcomes) // 2]
    return [
        *[f"{100 * fmean(each.recalls[depth] for each in outcomes):.1f}" for depth in DEPTHS],
        *[f"{100 * fmean(kinds[kind]):.1f}" if kinds[kind] else "" for kind in CATEGORIES],
        "" if math.isnan(seconds) else milli(seconds),
    ]


@asynccontextmanager
async def remembered(talk: Conversation, embedder: Embedder | None) -> AsyncIterator[Notes]:
    """Give notes that have the turns of a conversation, in a file of their own."""
    with tempfile.TemporaryDirectory() as folder:
        async with Notes(Path(folder) / "notes.db", embedder=embedder) as notes:
            for name, turns in talk.sessions.items():
                await notes.remember_conversation(turns, session=name)
            yield notes


async def recalled(talk: Conversation, embedder: Embedder | None) -> list[Outcome]:
    """Ask everything through `notes.recall`."""
    found: list[Outcome] = []
    async with remembered(talk, embedder) as notes:
        await notes.recall("anything", limit=1)
        for question in talk.questions:
            began = time.perf_counter()
            matches = await notes.recall(question.text, limit=max(DEPTHS))
            took = time.perf_counter() - began
            found.append(outcome(question, [match.record.source for match in matches], took))
    return found


# ---- the embedders


class Both:
    """Two embedders as one, whose cosine is the mean of theirs."""

    def __init__(self, first: Embedder, second: Embedder) -> None:
        self.name = f"{first.name}+{second.name}"
        self._both = (first, second)

    async def embed(self, texts: Sequence[str]) -> Any:
        """Give the vectors of both, each of the length 1, one behind the other."""
        import numpy as np

        from graphagent.embed import checked

        return np.hstack([await checked(each, texts) for each in self._both])


def embedders() -> dict[str, Embedder | None]:
    """Give those that are installed; the names of the others with None behind them are left out."""
    found: dict[str, Embedder | None] = {"no embedder": None}
    for name, module, kind in (("static", "static", "StaticEmbedder"), ("local", "local", "LocalEmbedder")):
        try:
            found[name] = getattr(importlib.import_module(f"graphagent.embed.{module}"), kind)()
        except ImportError:
            continue
    if (static := found.get("static")) and (local := found.get("local")):
        found[BOTH] = Both(static, local)
    return found


# ---- the report


def report(*, quick: bool, path: Path | None = None) -> str:
    """Measure every tier that is installed, and crewAI. Gives a Markdown table."""
    return anyio.run(functools.partial(_report, load(path) if path is not None else made_up(), quick=quick))


async def _report(talks: Sequence[Conversation], *, quick: bool) -> str:
    rows: list[list[str]] = []
    for name, embedder in embedders().items():
        found = [each for talk in talks for each in await recalled(talk, embedder)]
        rows.append([f"graphagent, {name}", *cells(found)])
    rows.append([*PAPER, *[""] * (len(HEAD) - len(PAPER))])
    asked = sum(len(talk.questions) for talk in talks)
    turns = sum(len(turns) for talk in talks for turns in talk.sessions.values())
    rows += await _crew(talks, quick=quick)
    return f"{table(HEAD, rows)}\n\n{len(talks)} conversations, {turns:,} turns, {asked:,} questions with evidence."


async def _crew(talks: Sequence[Conversation], *, quick: bool) -> list[list[str]]:
    """Ask crewAI the same, with the same vectors: they are made here, and looked up there."""
    from graphagent.embed import checked

    available = embedders()
    embedder = available.get("local") or available.get("static")
    if quick or embedder is None or not installed("crewai"):
        return [["crewAI", "not measured", *[""] * (len(HEAD) - 2)]]
    name = "local" if "local" in available else "static"
    texts = sorted({text for talk in talks for text in _texts(talk)})
    vectors = (await checked(embedder, texts)).tolist()
    order = {
        "vectors": dict(zip(texts, vectors, strict=True)),
        "talks": [
            {
                "turns": [[each.source, said(each)] for turns in talk.sessions.values() for each in turns],
                "questions": [each.text for each in talk.questions],
            }
            for talk in talks
        ],
        "limit": max(DEPTHS),
    }
    command = [PEERS, "-m", "benchmarks.peers.crewai_notes"]
    ended = subprocess.run(  # noqa: ASYNC221  nothing else is to run meanwhile
        command, cwd=HOME, input=json.dumps(order), stdout=subprocess.PIPE, text=True, check=True
    )
    answer = json.loads(ended.stdout.splitlines()[-1])
    questions = [question for talk in talks for question in talk.questions]
    found = [
        outcome(question, each["found"], each["seconds"])
        for question, each in zip(questions, answer["answers"], strict=True)
    ]
    return [[f"crewAI {answer['version']}, {name}", *cells(found)]]


def said(each: Turn) -> str:
    """Give a turn as one text, for who does not know speakers."""
    return f"{each.speaker}: {each.text}"


def _texts(talk: Conversation) -> list[str]:
    return [said(each) for turns in talk.sessions.values() for each in turns] + [each.text for each in talk.questions]


# ---- the weights, chosen


GRID: Mapping[str, Sequence[float]] = {
    "semantic": (0.4, 0.5, 0.6, 0.7, 0.8),
    "neighbours": (0.0, 0.05, 0.1, 0.2),
    "session": (0.0, 0.2, 0.4, 0.6, 0.8),
    "speaker": (0.0, 0.1, 0.2, 0.3),
    "date": (0.0, 0.1, 0.2, 0.3),
}
"""What is tried. `lexical` is what `semantic` leaves of 1."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its candidates, which weights put in order."""

    question: Question
    found: Candidates
    sources: Mapping[int, str]


async def gathered(talk: Conversation, embedder: Embedder | None) -> list[Asked]:
    """Give the candidates of every question."""
    async with remembered(talk, embedder) as notes:
        repository = notes._service.repository  # what the weights are to order is not for users
        records = {record.id: record.source for record in await notes.list_records(limit=100_000)}
        asked: list[Asked] = []
        for question in talk.questions:
            found = await candidates(repository, question.text, Filter(owner=""))
            asked.append(Asked(question, found, {row: records[each.id] for row, each in found.rows.items()}))
        return asked


def scored(asked: Asked, ranking: Ranking) -> Outcome:
    """Say how well a question is answered with some weights."""
    found = asked.found
    order = ranking_of.order(ranking_of.stages(found.channels, found.rows, found.query, ranking))
    return outcome(asked.question, [asked.sources[row] for row in order[: max(DEPTHS)]])


def choose(*, path: Path | None = None) -> str:
    """Choose the weights with each conversation held out in turn. Gives a Markdown table."""
    return anyio.run(_choose, load(path) if path is not None else made_up())


async def _choose(talks: Sequence[Conversation]) -> str:
    rows: list[list[str]] = []
    names = [*GRID]
    tiers = {
        name: [await gathered(talk, embedder) for talk in talks]
        for name, embedder in embedders().items()
        if name != BOTH
    }
    tried: dict[tuple[object, ...], tuple[float, list[Outcome]]] = {}

    def worth(tier: str, place: int, ranking: Ranking) -> tuple[float, list[Outcome]]:
        key = (tier, place, *[getattr(ranking, name) for name in names])
        if key not in tried:
            found = [scored(each, ranking) for each in tiers[tier][place]]
            tried[key] = (fmean((each.recalls[5] + each.recalls[10] + each.recalls[20]) / 3 for each in found), found)
        return tried[key]

    def best(among: Sequence[int]) -> Ranking:
        chosen, before = Ranking(), None
        while chosen != before:
            before = chosen
            for name in names:
                tries = [_with(chosen, name, value) for value in GRID[name]]
                chosen = max(
                    [chosen, *tries],
                    key=lambda each: sum(worth(tier, place, each)[0] for tier in tiers for place in among),
                )
        return chosen

    everywhere = range(len(talks))
    held_out = {place: best([other for other in everywhere if other != place]) for place in everywhere}
    chosen = {**{talks[place].name: each for place, each in held_out.items()}, "all": best(everywhere)}
    weights = table(
        ["held out", *names], [[name, *[f"{getattr(each, part):g}" for part in names]] for name, each in chosen.items()]
    )
    for tier in tiers:
        for title, ranking in (("as shipped", None), ("held out", held_out)):
            found = [
                each
                for place in everywhere
                for each in worth(tier, place, Ranking() if ranking is None else ranking[place])[1]
            ]
            rows.append([f"{tier}, {title}", *cells(found)[:-1]])
    return f"{weights}\n\n{table(HEAD[:-1], rows)}"


def _with(ranking: Ranking, name: str, value: float) -> Ranking:
    if name == "semantic":
        return replace(ranking, semantic=value, lexical=round(1 - value, 6))
    return replace(ranking, **{name: value})


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """Read what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks locomo", description=__doc__)
    parser.add_argument("path", nargs="?", type=Path, help="LoCoMo's JSON file")
    parser.add_argument("--quick", action="store_true", help="a made-up conversation; the figures say nothing")
    parser.add_argument("--choose", action="store_true", help="choose the weights, one conversation held out at a time")
    parser.add_argument("--write", action="store_true", help="rewrite the table of docs/notes-quality.md")
    chosen = parser.parse_args(arguments)
    if (chosen.path is None) is not chosen.quick:
        parser.error("give either LoCoMo's JSON file or --quick")
    if chosen.quick and chosen.write:
        parser.error("quick figures are not written")
    return chosen
