"""What notes are compared with: SQLite's FTS5 alone, the cosine of vectors alone, and crewAI's memory with the same vectors."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw

from benchmarks.compare import HOME, PEERS, installed
from graphagent.embed import checked
from graphagent.memory.notes.index._languages import stopwords

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from graphagent.protocols import Embedder


class Fts5:
    """Texts in a table of FTS5, the best by BM25 first: SQLite with nothing added but a list of stop words."""

    def __init__(self, path: Path, texts: Sequence[str]) -> None:
        self._connection = apsw.Connection(str(path))
        self._connection.execute("CREATE TABLE records (id INTEGER PRIMARY KEY, text TEXT)")
        self._connection.execute(
            "CREATE VIRTUAL TABLE words USING fts5(text, content='records', content_rowid='id', tokenize='porter unicode61')"
        )
        with self._connection:
            self._connection.executemany("INSERT INTO records VALUES (?, ?)", list(enumerate(texts)))
            self._connection.execute("INSERT INTO words(words) VALUES ('rebuild')")

    def search(self, question: str, limit: int) -> list[tuple[int, str]]:
        """Return the places and the texts that have any word of a question, the best first."""
        words = re.findall(r"\w+", question.lower())
        query = " OR ".join(f'"{word}"' for word in [each for each in words if each not in stopwords(())] or words)
        return self._connection.execute(
            "SELECT rowid, text FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?", (query, limit)
        ).fetchall()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


class Vectors:
    """The vectors of texts, each of the length 1, made once for each text."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[str, NDArray[np.float32]] = {}

    async def of(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return a matrix with a row for each text."""
        import numpy as np

        if new := list(dict.fromkeys(text for text in texts if text not in self._known)):
            self._known |= zip(new, await checked(self._embedder, new), strict=True)
        return np.stack([self._known[text] for text in texts])


async def nearest(vectors: Vectors, texts: Sequence[str], questions: Sequence[str], limit: int) -> list[list[int]]:
    """Return for each question the places of the texts with the highest cosine, the best first."""
    import numpy as np

    cosines = await vectors.of(questions) @ (await vectors.of(texts)).T
    return np.argsort(-cosines, axis=1, kind="stable")[:, :limit].tolist()


def crewai(
    talks: Sequence[tuple[Mapping[str, str], Sequence[str]]], vectors: Mapping[str, Sequence[float]], limit: int
) -> dict[str, Any]:
    """Ask crewAI's memory, in a process of its own: each talk has texts with their ids, and the questions about them.

    It looks the vectors of texts and questions up. The answer has its `version` and, for each question in order, the ids that were
    `found` and the `seconds` that this took.
    """
    order = {
        "vectors": vectors,
        "talks": [{"turns": list(texts.items()), "questions": list(questions)} for texts, questions in talks],
        "limit": limit,
    }
    ended = subprocess.run(
        [PEERS, "-m", "benchmarks.peers.crewai_notes"],
        cwd=HOME, input=json.dumps(order), stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return json.loads(ended.stdout.splitlines()[-1])


def has_crewai() -> bool:
    """Return whether crewAI is installed in the peers' environment."""
    return installed("crewai")


def embedders() -> dict[str, Embedder]:
    """Return the embedders of the package that are installed, by the names of their tiers."""
    found: dict[str, Embedder] = {}
    kinds = {"static": "StaticEmbedder", "multilingual": "MultilingualEmbedder", "local": "LocalEmbedder"}
    for name, kind in kinds.items():
        try:
            found[name] = getattr(importlib.import_module(f"graphagent.embed.{name}"), kind)()
        except ImportError:
            continue
    return found
