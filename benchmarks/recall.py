"""How well notes are found, on the conversations and notes in `benchmarks/material`, beside other ways to search them.

Turns of dialogues and messages of chats are saved with `remember_conversation`, single notes with `remember`, and every question is
asked with `recall`, in a store for each file of conversations, one for all notes, one for each language, and one for everything but the
languages. A question about single notes is held out if its place in its collection, from 0, leaves a remainder of 2 when divided by 3: the
weights of the ranking were not fitted on these.

The other ways get the texts of dialogues with the name of the speaker before each, which they have no other place for. Dense alone ranks
by the cosine of the question and the text, or the first piece of a long one.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from benchmarks.baselines import Fts5, Vectors, crewai, embedders, has_crewai, nearest
from benchmarks.material import MIXED, ROLES, Material, material, together
from benchmarks.measure import table
from benchmarks.outcome import Outcome, hit_cell, outcome, recall_cells
from graphagent.memory import Notes
from graphagent.memory.notes import Turn
from graphagent.memory.notes.index._chunks import pieces

if TYPE_CHECKING:
    from benchmarks.material import Said, Sort
    from graphagent.protocols import Embedder

DEPTHS = (5, 10, 20)
LIMIT = 50
TITLES: dict[Sort, str] = {
    "dialogue": "dialogues",
    "chat": "chats with roles",
    "notes": "single notes, hit@1 / hit@5",
    "languages": "notes in a language, hit@1 / hit@5",
    "mixed": "everything in one store",
}
HELD_OUT = 2
"""The remainder of the places of questions that are held out, divided by 3."""

Found = list[list[str | None]]
"""For each question the ids of what was found, the best first."""
Way = Callable[[Sequence[Material]], Awaitable[Found]]
"""A way to search: it answers all questions of some material, in their order."""


def report(*, quick: bool) -> str:
    """Measure all ways to search that are installed. Return a Markdown table for each sort of material."""
    return anyio.run(functools.partial(_report, quick=quick))


async def _report(*, quick: bool) -> str:
    tables: list[str] = []
    for sort, title in TITLES.items():
        if not (given := chosen(sort, quick=quick)):
            continue
        rows: list[list[str]] = []
        for name, way in ways(quick=quick).items():
            print(f"{title}: {name}", file=sys.stderr, flush=True)
            outcomes = judged(given, await way(given))
            rows.append([name, *cells(sort, given, outcomes)])
        if quick or not has_crewai():
            rows.append(["crewAI", "not measured", *[""] * (len(rows[0]) - 2)])
        lines = [[title, *head(sort, given)], *rows]
        if sort == "languages":  # of which there are more than ways
            lines = [list(column) for column in zip(*lines, strict=True)]
        tables.append(f"{table(lines[0], lines[1:])}\n\n{_size(given)}")
    return "\n\n".join(tables)


def _size(given: Sequence[Material]) -> str:
    texts = sum(len(session) for each in given for session in each.sessions)
    return f"{len(given)} files, {texts:,} texts, {sum(len(each.questions) for each in given):,} questions."


def chosen(sort: Sort, *, quick: bool) -> list[Material]:
    """Return all material of a sort; if quick, of two files only the beginning."""
    if not quick:
        return material(sort)
    if sort == "mixed":
        return [together([each for name in MIXED for each in chosen(name, quick=True)])]
    return [shortened(each) for each in material(sort)[:2]]


def shortened(given: Material) -> Material:
    """Return the first session up to its twentieth text, and up to eight questions that these texts answer."""
    texts = given.sessions[0][:20]
    ids = {each.id for each in texts}
    return replace(
        given,
        sessions=[texts],
        questions=list(islice((each for each in given.questions if each.gold <= ids), 8)),
    )


def judged(given: Sequence[Material], found: Found) -> list[Outcome]:
    """Return how well each question was answered."""
    questions = [question for each in given for question in each.questions]
    return [outcome(each.kind, each.gold, ids) for each, ids in zip(questions, found, strict=True)]


# The columns


def kinds_of(given: Sequence[Material]) -> list[str]:
    """Return the kinds of questions, in the order in which they occur."""
    return list(dict.fromkeys(question.kind for each in given for question in each.questions))


def head(sort: Sort, given: Sequence[Material]) -> list[str]:
    """Return the heads of the columns after the first."""
    kinds = kinds_of(given)
    if sort == "notes":
        return ["all", "held out", *kinds]
    if sort == "languages":
        groups = [f"{name}, {kind}" for kind in kinds for name in ("all", *map(_language, given))]
        return [*groups, *[f"held out, {kind}" for kind in kinds]]
    return [*[f"recall@{depth}" for depth in DEPTHS], "MRR", *[f"@10, {kind}" for kind in kinds]]


def cells(sort: Sort, given: Sequence[Material], outcomes: Sequence[Outcome]) -> list[str]:
    """Return the cells of a row after the first."""
    kinds = kinds_of(given)
    if sort not in ("notes", "languages"):
        return recall_cells(outcomes, DEPTHS, kinds)
    asked = [(each.name, place) for each in given for place in range(len(each.questions))]
    held_out = [each for (_, place), each in zip(asked, outcomes, strict=True) if place % 3 == HELD_OUT]
    if sort == "notes":
        groups = [outcomes, held_out, *[_of_kind(outcomes, kind) for kind in kinds]]
    else:
        files = [[each for (name, _), each in zip(asked, outcomes, strict=True) if name == file.name] for file in given]
        groups = [_of_kind(some, kind) for kind in kinds for some in (outcomes, *files)]
        groups += [_of_kind(held_out, kind) for kind in kinds]
    return [hit_cell(group) for group in groups]


def _of_kind(outcomes: Sequence[Outcome], kind: str) -> list[Outcome]:
    return [each for each in outcomes if each.kind == kind]


def _language(given: Material) -> str:
    return given.name.rpartition("-")[2]


# The ways to search


def ways(*, quick: bool) -> dict[str, Way]:
    """Return the ways to search that are installed, by their names."""
    available = embedders()
    vectors = {name: Vectors(embedder) for name, embedder in available.items()}
    found: dict[str, Way] = {
        f"graphagent, {name}": functools.partial(by_notes, embedder)
        for name, embedder in {"no embedder": None, **available}.items()
    }
    found["SQLite FTS5 alone"] = by_words
    found |= {f"dense alone, {name}": functools.partial(by_vectors, each) for name, each in vectors.items()}
    if not quick and has_crewai() and vectors:
        name, each = vectors.popitem()
        found[f"crewAI, {name}"] = functools.partial(by_crewai, each)
    return found


@asynccontextmanager
async def remembered(given: Material, embedder: Embedder | None) -> AsyncIterator[Notes]:
    """Yield notes with the texts of a material, in a file of their own. The `source` of a record is the id of the text."""
    with tempfile.TemporaryDirectory() as folder:
        async with Notes(Path(folder) / "notes.db", embedder=embedder) as notes:
            for number, session in enumerate(given.sessions, 1):
                if session[0].speaker:
                    await notes.remember_conversation([_turn(each) for each in session], session=str(number))
                else:
                    for each in session:
                        await notes.remember(each.text, at=each.at, source=each.id)
            yield notes


def _turn(each: Said) -> Turn:
    if each.speaker in ROLES:
        return Turn(each.text, role=each.speaker, at=each.at, source=each.id)
    return Turn(each.text, each.speaker, at=each.at, source=each.id)


async def by_notes(embedder: Embedder | None, given: Sequence[Material]) -> Found:
    """Search with `notes.recall`."""
    found: Found = []
    for each in given:
        async with remembered(each, embedder) as notes:
            for question in each.questions:
                matches = await notes.recall(question.text, limit=LIMIT)
                found.append([match.record.source for match in matches])
    return found


async def by_words(given: Sequence[Material]) -> Found:
    """Search with SQLite's FTS5 alone."""
    found: Found = []
    for each in given:
        texts = texts_of(each)
        with tempfile.TemporaryDirectory() as folder:
            bare = Fts5(Path(folder) / "bare.db", list(texts.values()))
            ids = list(texts)
            found += [[ids[place] for place, _ in bare.search(question.text, LIMIT)] for question in each.questions]
            bare.close()
    return found


async def by_vectors(vectors: Vectors, given: Sequence[Material]) -> Found:
    """Search by the cosine of the question and the first piece of each text."""
    found: Found = []
    for each in given:
        texts = texts_of(each)
        ids = list(texts)
        firsts = [pieces(text)[0] for text in texts.values()]
        places = await nearest(vectors, firsts, [question.text for question in each.questions], LIMIT)
        found += [[ids[place] for place in best] for best in places]
    return found


async def by_crewai(vectors: Vectors, given: Sequence[Material]) -> Found:
    """Search with crewAI's memory, which gets the same vectors."""
    talks = [(texts_of(each), [question.text for question in each.questions]) for each in given]
    used = list(dict.fromkeys(text for texts, questions in talks for text in [*texts.values(), *questions]))
    known = dict(zip(used, (await vectors.of(used)).tolist(), strict=True))
    return [each["found"] for each in crewai(talks, known, LIMIT)["answers"]]


def texts_of(given: Material) -> dict[str, str]:
    """Return the texts by their ids, for ways to search that know no speakers: their names come first."""
    return {
        each.id: f"{each.speaker}: {each.text}" if each.speaker and each.speaker not in ROLES else each.text
        for session in given.sessions
        for each in session
    }


def options(arguments: Sequence[str]) -> argparse.Namespace:
    """Return what was asked for on the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks recall", description=__doc__)
    parser.add_argument(
        "--fit", action="store_true", help="fit the weights of the ranking instead, and write them into the code"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--quick", action="store_true", help="a small part; nothing is written, and the figures say nothing"
    )
    how.add_argument("--write", action="store_true", help="rewrite the tables of docs/notes-quality.md")
    return parser.parse_args(arguments)
