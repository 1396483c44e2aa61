"""What notes cost: recall over stores of several sizes, saving many at once, and the memory and the file that they take.

The texts are made up of 20,000 words, of which a few are in most texts, as in any language. A question is some words of one
text. The embedder adds up a fixed vector for each word, so that its own share is small. The baseline is what SQLite alone takes
for the words of the question, and to read its 10 best texts: nothing that uses FTS5 is faster. It is asked each question in turn
with graphagent, so that whatever else the machine does slows both; a ratio is that of the medians.
"""

from __future__ import annotations

import functools
import random
import re
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import anyio

from benchmarks.baselines import Fts5, crewai, embedders, has_crewai
from benchmarks.measure import milli, table, times
from graphagent.embed import CallableEmbedder
from graphagent.memory import Note, Notes
from graphagent.protocols import WordEmbedder

if TYPE_CHECKING:
    from graphagent.protocols import Embedder

SIZES = (1_000, 10_000, 100_000)
QUICK = (20, 40, 80)
QUESTIONS = 200
SCOPE_OF = 1_000
CREW_MOST = 1_000
RECALL = "recall, p50 / p95"
WORDS, VECTORS = "graphagent, no embedder", "graphagent, 256 numbers, late interaction"
BARE = "SQLite FTS5 alone"
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
        """Return a text of 10 to 30 words, some of them common in English."""
        count = self._random.randint(8, 24)
        words = self._random.choices(self._words, cum_weights=self._weights, k=count)
        words += self._random.choices(STOPWORDS, k=count // 4)
        self._random.shuffle(words)
        return " ".join(words).capitalize() + "."

    def question(self, text: str) -> str:
        """Return a question that a text answers."""
        words = re.findall(r"\w+", text)
        return f"What is the {' '.join(self._random.sample(words, min(5, len(words))))}?"


class Adding:
    """An embedder that costs next to nothing, and that has vectors of words as well."""

    name = "adding-256"

    def __init__(self) -> None:
        import numpy as np

        self._table = np.random.default_rng(5).standard_normal((4096, 256)).astype(np.float32)

    async def embed(self, texts: Sequence[str]) -> Any:
        """Return the sum of the vectors of each text's words."""
        import numpy as np

        return np.stack([self._of_words(text).sum(axis=0) for text in texts])

    async def embed_words(self, texts: Sequence[str]) -> tuple[Any, list[Any]]:
        """Return the same vectors, and those of the words of each text."""
        import numpy as np

        of_words = [self._of_words(text) for text in texts]
        return np.stack([each.sum(axis=0) for each in of_words]), of_words

    def _of_words(self, text: str) -> Any:
        return self._table[[crc32(word.encode()) % 4096 for word in text.lower().split()]]


def report(*, quick: bool) -> str:
    """Measure. Return two Markdown tables."""
    return anyio.run(functools.partial(_report, quick=quick))


async def _report(*, quick: bool) -> str:
    sizes = QUICK if quick else SIZES
    words = Words()
    texts = [words.text() for _ in range(sizes[-1])]

    def about(some: Sequence[str]) -> list[str]:
        return [words.question(text) for text in random.Random(7).sample(some, 10 if quick else QUESTIONS)]

    asked = [about(texts[:size]) for size in sizes]
    columns = [await _side_by_side(texts[:size], questions) for size, questions in zip(sizes, asked, strict=True)]
    part = max(1, sizes[-1] // SCOPE_OF)
    columns.append(await _side_by_side(texts, about(texts[::part]), part))
    rows = [
        [name, *[both(column[name]) if name in column else "" for column in columns]] for name in (WORDS, VECTORS, BARE)
    ]
    rows.append([*await _crew(texts, asked, sizes, quick=quick), ""])
    for name, targets in ((WORDS, ("≤ 4 ×", "≤ 1.5 ×", "≤ 0.25 ×")), (VECTORS, ("≤ 8 ×", "≤ 3 ×", "≤ 0.5 ×"))):
        rows.append([f"{name}, ratio to FTS5", *[ratio(column[name], column[BARE]) for column in columns[:-1]], ""])
        rows.append(["target", *targets, ""])
    head = [RECALL, *[f"{size:,} records" for size in sizes], f"{sizes[-1] // part:,} of {sizes[-1]:,}"]
    return f"{table(head, rows)}\n\n{await _keeping(texts[: 100 if quick else 10_000])}"


async def _side_by_side(texts: Sequence[str], asked: Sequence[str], parts: int = 1) -> dict[str, list[float]]:
    """Return the seconds that each question takes each of those that search texts; if in one scope of many, without FTS5."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        asks: dict[str, Callable[[str], Awaitable[object]]] = {}
        for name, embedder in ((WORDS, None), (VECTORS, Adding())):
            notes = await stack.enter_async_context(Notes(folder / f"{len(asks)}.db", embedder=embedder))
            given = [Note(text, f"/part{number % parts}") for number, text in enumerate(texts)]
            for start in range(0, len(given), 10_000):
                await notes.remember_many(given[start : start + 10_000])
            asks[name] = functools.partial(notes.recall, scope="/part0" if parts > 1 else None)
        if parts == 1:
            bare = Fts5(folder / "bare.db", texts)
            stack.callback(bare.close)

            async def ask_bare(question: str) -> object:
                return bare.search(question, 10)

            asks[BARE] = ask_bare
        return await interleaved(asks, asked)


async def interleaved(
    asks: Mapping[str, Callable[[str], Awaitable[object]]], asked: Sequence[str]
) -> dict[str, list[float]]:
    """Return the seconds that each question takes each of those that are asked, one after the other."""
    for ask in asks.values():
        for question in asked[:5]:
            await ask(question)
    took: dict[str, list[float]] = {name: [] for name in asks}
    for question in asked:
        for name, ask in asks.items():
            began = time.perf_counter()
            await ask(question)
            took[name].append(time.perf_counter() - began)
    return took


def both(took: Sequence[float]) -> str:
    """Write the median, and the time that 19 of 20 stay below."""
    ordered = sorted(took)
    return f"{milli(statistics.median(ordered))} / {milli(ordered[(len(ordered) * 95 - 1) // 100])}"


def ratio(took: Sequence[float], bare: Sequence[float]) -> str:
    """Write the ratio of two medians."""
    return times(statistics.median(took) / statistics.median(bare))


async def _crew(
    texts: Sequence[str], asked: Sequence[Sequence[str]], sizes: Sequence[int], *, quick: bool
) -> list[str]:
    """Measure crewAI's shallow recall, with the same vectors."""
    if quick or not has_crewai():
        return ["crewAI, shallow", "not measured", *[""] * (len(sizes) - 1)]
    cells: list[str] = []
    version = ""
    adding = Adding()
    for size, questions in zip(sizes, asked, strict=True):
        if size > CREW_MOST:
            cells.append("not measured")
            continue
        used = [*texts[:size], *questions]
        vectors = dict(zip(used, (await adding.embed(used)).tolist(), strict=True))
        answer = crewai([({str(number): text for number, text in enumerate(texts[:size])}, questions)], vectors, 10)
        version = f" {answer['version']}"
        cells.append(both([each["seconds"] for each in answer["answers"]]))
    return [f"crewAI{version}, shallow", *cells]


async def _keeping(texts: Sequence[str]) -> str:
    """Measure how many records a second are saved at once, and the memory and the file that they take."""
    rows: list[list[str]] = []
    alone = 0.0
    for name, embedder in _embedders().items():
        some = texts[:1000] if name.startswith(("multilingual", "local")) else texts
        own = await _rate(embedder, some)
        saved, held, written = await _saved(embedder, some)
        alone = alone or saved
        rows.append([
            name, f"{saved:,.0f} / s", times(saved / alone), f"{own:,.0f} / s" if own else "",
            f"{held / len(some) / 1000:.1f} kB" if embedder is not None else "", f"{written / len(some) / 1000:.1f} kB",
        ])  # fmt: skip
    rows.append(["target", "≥ 8,000 / s with 256 numbers", "", "", "≤ 3.6 kB", ""])
    head = [
        f"{len(texts):,} records at once", "saved", "relative to no embedder", "the embedder alone",
        "memory per record, with vectors", "file per record",
    ]  # fmt: skip
    return table(head, rows)


async def _saved(embedder: Embedder | None, texts: Sequence[str]) -> tuple[float, int, int]:
    """Return how many texts a second are saved at once, and how many bytes of memory and of the file they take then."""
    with tempfile.TemporaryDirectory() as folder:
        async with Notes(Path(folder) / "notes.db", embedder=embedder) as notes:
            await notes.remember("This opens the file.")
            began = time.perf_counter()
            await notes.remember_many(texts)
            rate = len(texts) / (time.perf_counter() - began)
            held = await _memory(notes)
        return rate, held, _size(Path(folder))


def _size(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.iterdir())


def _embedders() -> dict[str, Embedder | None]:
    """Return the embedders to measure: each with vectors of texts alone, and with those of words if it makes them."""
    found: dict[str, Embedder | None] = {"no embedder": None}
    for name, each in {"256 numbers": Adding(), **embedders()}.items():
        found[name] = CallableEmbedder(each.embed, name=f"{each.name}, texts")
        if isinstance(each, WordEmbedder):
            found[f"{name}, late interaction"] = each
    return found


async def _rate(embedder: Embedder | None, texts: Sequence[str]) -> float:
    """Return how many texts an embedder alone does in a second."""
    if embedder is None:
        return 0
    embed = embedder.embed_words if isinstance(embedder, WordEmbedder) else embedder.embed
    await embed(texts[:1])
    began = time.perf_counter()
    for start in range(0, len(texts), 500):
        await embed(texts[start : start + 500])
    return len(texts) / (time.perf_counter() - began)


async def _memory(notes: Notes) -> int:
    """Return how many bytes a first recall leaves held."""
    tracemalloc.start()
    await notes.recall("anything at all")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held
