"""What notes cost: recall over stores of several sizes, keeping many at once, and the memory that vectors take.

The texts are made up of 20,000 words, of which a few are in most texts, as in any language. A question is some words of one
text. The embedder adds up a fixed vector for each word, so that its own share is small. Beside recall stands what SQLite alone
takes for the words of the question, its 10 best, and the records read: nothing that uses FTS5 is faster.
"""

from __future__ import annotations

import functools
import json
import random
import re
import statistics
import subprocess
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import anyio
import apsw

from benchmarks.compare import HOME, PEERS, installed
from benchmarks.measure import milli, table
from graphagent.memory import Note, Notes

if TYPE_CHECKING:
    from graphagent.protocols import Embedder

SIZES = (1_000, 10_000, 100_000)
QUICK = (20, 40, 80)
QUESTIONS = 200
SCOPE_OF = 1_000
CREW_MOST = 1_000
RECALL = "recall, p50 / p95"
STOPWORDS = ("the", "of", "and", "to", "in", "is", "was", "for", "on", "with")


class Words:
    """Texts and questions, always the same ones."""

    def __init__(self, vocabulary: int = 20_000) -> None:
        self._random = random.Random(5)
        letters = "bcdfghklmnprstvz"
        self._words = [
            "".join(
                self._random.choice(letters) + self._random.choice("aeiou") for _ in range(self._random.randint(2, 4))
            )
            for _ in range(vocabulary)
        ]
        total = 0.0
        self._weights = [total := total + 1 / place for place in range(1, vocabulary + 1)]

    def text(self) -> str:
        """Give a text of 10 to 30 words, some of them common in English."""
        count = self._random.randint(8, 24)
        words = self._random.choices(self._words, cum_weights=self._weights, k=count)
        words += self._random.choices(STOPWORDS, k=count // 4)
        self._random.shuffle(words)
        return " ".join(words).capitalize() + "."

    def question(self, text: str) -> str:
        """Give a question that a text answers."""
        words = re.findall(r"\w+", text)
        return f"What is the {' '.join(self._random.sample(words, min(5, len(words))))}?"


class Adding:
    """An embedder that costs next to nothing."""

    name = "adding-256"

    def __init__(self) -> None:
        import numpy as np

        self._table = np.random.default_rng(5).standard_normal((4096, 256)).astype(np.float32)

    async def embed(self, texts: Sequence[str]) -> Any:
        """Give the sum of the vectors of each text's words."""
        import numpy as np

        return np.stack(
            [self._table[[crc32(word.encode()) % 4096 for word in text.lower().split()]].sum(axis=0) for text in texts]
        )


def report(*, quick: bool) -> str:
    """Measure. Gives two Markdown tables."""
    return anyio.run(functools.partial(_report, quick=quick))


async def _report(*, quick: bool) -> str:
    sizes = QUICK if quick else SIZES
    words = Words()
    texts = [words.text() for _ in range(sizes[-1])]
    asked = [words.question(text) for text in random.Random(7).sample(texts, 10 if quick else QUESTIONS)]
    part = max(1, sizes[-1] // SCOPE_OF)
    head = [RECALL, *[f"{size:,} records" for size in sizes], f"{sizes[-1] // part:,} of {sizes[-1]:,}"]
    rows = [
        [
            name,
            *[await _over(embedder, texts[:size], asked, 1) for size in sizes],
            await _over(embedder, texts, asked, part),
        ]
        for name, embedder in (("graphagent, no embedder", None), ("graphagent, 256 numbers", Adding()))
    ]
    rows.append(["SQLite FTS5 alone", *[await _bare(texts[:size], asked) for size in sizes], ""])
    rows.append([*await _crew(texts, asked, sizes, quick=quick), ""])
    rows.append(["target, p50", "≤ 5 ms", "≤ 8 ms", "≤ 40 ms", "≤ 8 ms"])
    return f"{table(head, rows)}\n\n{await _keeping(texts[: 100 if quick else 10_000], quick=quick)}"


async def _over(embedder: Embedder | None, texts: Sequence[str], asked: Sequence[str], parts: int) -> str:
    """Measure recall over texts, in one scope of so many."""
    with tempfile.TemporaryDirectory() as folder:
        async with Notes(Path(folder) / "notes.db", embedder=embedder) as notes:
            given = [Note(text, f"/part{number % parts}") for number, text in enumerate(texts)]
            for start in range(0, len(given), 10_000):
                await notes.remember_many(given[start : start + 10_000])
            scope = "/part0" if parts > 1 else None
            return await _times(lambda question: notes.recall(question, scope=scope), asked)


async def _times(ask: Callable[[str], Awaitable[object]], asked: Sequence[str]) -> str:
    for question in asked[:5]:
        await ask(question)
    took: list[float] = []
    for question in asked:
        began = time.perf_counter()
        await ask(question)
        took.append(time.perf_counter() - began)
    return both(took)


def both(took: Sequence[float]) -> str:
    """Write the median, and what nineteen of twenty stay below."""
    ordered = sorted(took)
    return f"{milli(statistics.median(ordered))} / {milli(ordered[(len(ordered) * 95 - 1) // 100])}"


async def _bare(texts: Sequence[str], asked: Sequence[str]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        connection = apsw.Connection(str(Path(folder) / "bare.db"))
        connection.execute("CREATE TABLE records (id INTEGER PRIMARY KEY, text TEXT)")
        connection.execute(
            "CREATE VIRTUAL TABLE words USING fts5(text, content='records', content_rowid='id', tokenize='porter unicode61')"
        )
        with connection:
            connection.executemany("INSERT INTO records VALUES (?, ?)", list(enumerate(texts, 1)))
            connection.execute("INSERT INTO words(words) VALUES ('rebuild')")

        async def ask(question: str) -> object:
            words = [word for word in re.findall(r"\w+", question.lower()) if word not in {*STOPWORDS, "what"}]
            query = " OR ".join(f'"{word}"' for word in words)
            return connection.execute(
                "SELECT text FROM words WHERE words MATCH ? ORDER BY rank LIMIT 10", (query,)
            ).fetchall()

        found = await _times(ask, asked)
        connection.close()
        return found


async def _crew(texts: Sequence[str], asked: Sequence[str], sizes: Sequence[int], *, quick: bool) -> list[str]:
    """Ask crewAI's shallow recall the same, with the same vectors."""
    if quick or not installed("crewai"):
        return ["crewAI, shallow", "not measured", *[""] * (len(sizes) - 1)]
    cells: list[str] = []
    version = ""
    adding = Adding()
    for size in sizes:
        if size > CREW_MOST:
            cells.append("not measured")
            continue
        told = [*texts[:size], *asked]
        order = {
            "vectors": dict(zip(told, (await adding.embed(told)).tolist(), strict=True)),
            "talks": [{"turns": [[str(n), text] for n, text in enumerate(texts[:size])], "questions": list(asked)}],
            "limit": 10,
        }
        ended = subprocess.run(  # noqa: ASYNC221  nothing else is to run meanwhile
            [PEERS, "-m", "benchmarks.peers.crewai_notes"],
            cwd=HOME, input=json.dumps(order), stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        answer = json.loads(ended.stdout.splitlines()[-1])
        version = f" {answer['version']}"
        cells.append(both([each["seconds"] for each in answer["answers"]]))
    return [f"crewAI{version}, shallow", *cells]


async def _keeping(texts: Sequence[str], *, quick: bool) -> str:
    """Measure how many records a second are kept at once, and how much memory vectors take."""
    rows: list[list[str]] = []
    for name, embedder in _embedders().items():
        some = texts[:1000] if name == "local" else texts
        own = await _rate(embedder, some)
        with tempfile.TemporaryDirectory() as folder:
            async with Notes(Path(folder) / "notes.db", embedder=embedder) as notes:
                await notes.remember("This opens the file.")
                began = time.perf_counter()
                await notes.remember_many(some)
                kept = len(some) / (time.perf_counter() - began)
                held = await _memory(notes) / len(some) if embedder is not None else 0
        share = f"{min(1.0, kept / own):.0%}" if own else ""
        rows.append(
            [name, f"{kept:,.0f} / s", f"{own:,.0f} / s" if own else "", share, f"{held / 1000:.1f} kB" if held else ""]
        )
    rows.append(["target", "≥ 5,000 / s without", "", "≥ 80%", "≤ 2 kB"])
    head = [
        f"{len(texts):,} records at once", "kept", "the embedder alone", "share of its rate", "memory per record, with vectors",
    ]  # fmt: skip
    return table(head, rows)


def _embedders() -> dict[str, Embedder | None]:
    from benchmarks.locomo import BOTH, embedders

    found = {name: each for name, each in embedders().items() if name != BOTH}
    return {"no embedder": None, "256 numbers": Adding(), **found}


async def _rate(embedder: Embedder | None, texts: Sequence[str]) -> float:
    """Give how many texts an embedder alone does in a second."""
    if embedder is None:
        return 0
    await embedder.embed(texts[:1])
    began = time.perf_counter()
    for start in range(0, len(texts), 500):
        await embedder.embed(texts[start : start + 500])
    return len(texts) / (time.perf_counter() - began)


async def _memory(notes: Notes) -> int:
    """Give how many bytes a first recall leaves held."""
    tracemalloc.start()
    await notes.recall("anything at all")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held
