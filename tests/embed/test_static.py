"""The table of WordLlama: what its vectors are."""

from __future__ import annotations

import numpy as np
import pytest

from graphagent.embed.static import StaticEmbedder


@pytest.fixture(scope="module")
def embedder():
    return StaticEmbedder()


async def test_like_texts_are_near(embedder):
    """A question is nearer to the text that answers it than to others; rows are of length 1."""
    texts = ["We chose PostgreSQL as our database.", "The cat sleeps on the sofa.", "Lunch is at noon."]
    rows = await embedder.embed(texts)
    [question] = await embedder.embed(["Which database did we pick?"])
    assert rows.shape == (3, 256)
    assert rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)
    assert np.argmax(rows @ question) == 0


async def test_common_words_count_little(embedder):
    """What a question has around its words moves its vector less than its words do."""
    bare, asked, other = await embedder.embed(["database port", "What was the database port?", "database harbour"])
    assert bare @ asked > bare @ other
