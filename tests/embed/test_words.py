"""The vectors of the words of texts: what counts as a word, that texts have the vectors that they have without them, and faults."""

from __future__ import annotations

import numpy as np
import pytest

from graphagent.embed import CallableEmbedder, checked, checked_words
from graphagent.embed.local import LocalEmbedder
from graphagent.embed.static import StaticEmbedder
from graphagent.errors import EmbedderError
from graphagent.protocols import WordEmbedder

TEXTS = ["We don't know OPS3317, e-mail!", "数据库 in Ελλάδα 😀 ok", "", "… !!!", "naïve  café\n½", "word " * 400] * 4
EMBEDDERS = {"static": StaticEmbedder(), "local": LocalEmbedder(threads=1), "local, threads": LocalEmbedder(threads=3)}


@pytest.fixture(params=EMBEDDERS.values(), ids=EMBEDDERS)
def embedder(request):
    return request.param


async def test_texts_have_exactly_the_vectors_that_they_have_without_words(embedder):
    """All together, and each alone."""
    rows, words = await embedder.embed_words(TEXTS)
    assert np.array_equal(rows, await embedder.embed(TEXTS))
    assert len(words) == len(TEXTS)
    for text, of_text in zip(TEXTS[:6], words, strict=False):
        [row], [alone] = await embedder.embed_words([text])
        assert np.array_equal([row], await embedder.embed([text]))
        assert np.allclose(alone, of_text, atol=1e-6)
    rows, words = await embedder.embed_words([])
    assert (rows.shape, words) == ((0, rows.shape[1]), [])


async def test_a_word_has_a_letter_or_a_digit(embedder):
    """Signs, spaces and emoji have no vectors; each row is of length 1."""
    rows, words = await checked_words(embedder, ["We know OPS3317, really!", "… !!!", "", "a-b c", "数据库 ok"])
    assert [each.shape for each in words] == [(each, rows.shape[1]) for each in (4, 0, 0, 3, 4)]
    assert np.allclose(np.linalg.norm(np.concatenate(words), axis=1), 1, atol=1e-5)


async def test_what_the_model_cannot_read_resembles_nothing():
    """Texts and words in characters that it does not know, and very long words, are like themselves alone."""
    embedder = EMBEDDERS["local"]
    texts = ["ฉันชอบกินข้าว", "แมวของฉัน", "ฉันชอบกิน, 5.", "แมวของ, 5.", "Ｈｅｌｌｏ", "x" * 300, "🙂", "a cat"]
    rows, words = await embedder.embed_words([*texts, *texts, "ฉันชอบกินข้าว แมวของฉัน cat"])
    alike = rows[: len(texts)] @ rows[len(texts) : -1].T
    assert np.allclose(alike.diagonal(), 1, atol=1e-5)
    assert (alike - np.eye(len(texts))).max() < 0.5
    first, second, _ = words[-1]
    assert first @ second < 0.5


async def test_the_name_of_a_mark_in_a_text_is_text():
    """The library tokenizers 0.23 otherwise takes it for the mark of where a text ends, or of what is unknown."""
    marked, text = await EMBEDDERS["local"].embed(["What is [SEP]?", "What is [ sep ]?"])
    assert np.allclose(marked, text, atol=1e-6)
    pieces = EMBEDDERS["static"]._loaded().pieces
    assert pieces.encode("</s><unk>", add_special_tokens=False).tokens == ["▁</", "s", "><", "unk", ">"]


async def test_static_words_are_those_of_their_pieces_alone():
    """A word of one piece or of several has the vector that a text of it has, wherever it occurs; case is a part of it."""
    embedder = EMBEDDERS["static"]
    [text], [words] = await embedder.embed_words(["We saw unforgettable Xylophones."])
    for word, alone in zip(["We", "saw", "unforgettable", "Xylophones"], words, strict=True):
        assert np.allclose((await embedder.embed([word]))[0], alone, atol=1e-6)
    assert not np.allclose(text, words[0], atol=0.1)


async def test_local_words_depend_on_what_is_around_them():
    """The bank of a river is another word than the one for money, and nearer to that of a stream."""
    _, [river, money, stream] = await EMBEDDERS["local"].embed_words(
        ["they sat on the bank of the river", "she took money to the bank", "the bank of a stream"]
    )
    assert river[4] @ stream[1] > river[4] @ money[5]
    _, [read] = await EMBEDDERS["local"].embed_words(["word " * 400])
    assert len(read) == 254  # what is beyond 256 pieces, two of which are marks, is not read


def test_the_graph_computes_a_vector_as_it_did_before_it_had_a_second_output():
    """Without that output, the graph returns the same bits."""
    onnx = pytest.importorskip("onnx")
    import onnxruntime

    from graphagent.embed import _minilm, local

    with_pieces = _minilm.graph((local._installed() / "model.safetensors").read_bytes())
    model = onnx.load_model_from_string(with_pieces)
    del model.graph.output[1]
    [identity] = [node for node in model.graph.node if node.op_type == "Identity"]
    model.graph.node.remove(identity)
    ids = np.array([101, *range(2000, 2040), 102], np.int64)
    both, one = (
        onnxruntime.InferenceSession(each, providers=["CPUExecutionProvider"]).run(["vector"], {"ids": ids})[0]
        for each in (with_pieces, model.SerializeToString())
    )
    assert np.array_equal(both, one)


def test_an_embedder_of_words_is_recognised():
    """By its method; others make vectors of texts alone."""
    assert all(isinstance(each, WordEmbedder) for each in EMBEDDERS.values())
    assert not isinstance(CallableEmbedder(len, name="own-1"), WordEmbedder)


class Given:
    """An embedder that returns what it was given."""

    name = "given-1"

    def __init__(self, both):
        self._both = both

    async def embed(self, texts):
        return self._both[0]

    async def embed_words(self, texts):
        return self._both


async def test_lists_and_other_numbers_are_taken():
    """Vectors of words may be lists, integers or large numbers, of any length above 0."""
    rows, words = await checked_words(Given(([[3, 4], [1, 0]], [[[0.6, 0.8], [2e200, 0]], []])), ["a b", "…"])
    assert np.array_equal(rows, await checked(Given(([[3, 4], [1, 0]],)), ["a b", "…"]))
    assert [each.tolist() for each in words] == [pytest.approx(np.array([[0.6, 0.8], [1, 0]])), []]
    assert words[1].shape == (0, 2)
    generated = ([[3, 4]], ((row for row in [[1, 0]]) for _ in range(1)))
    assert (await checked_words(Given(generated), ["a"]))[1][0].tolist() == [[1, 0]]


@pytest.mark.parametrize(
    ("both", "what"),
    [
        ([[1.0, 0.0]], r"returned a list from embed_words\(\) instead of two values"),
        (([[1.0, 0.0]] * 2, "ab"), "returned a str instead of a list with the word vectors of each text"),
        (([[1.0, 0.0]], [[], []]), "returned 1 vector for 2 texts"),
        (([[1.0, 0.0]] * 2, [[]]), "returned word vectors for 1 text of 2"),
        (
            ([[1.0, 0.0]] * 2, [[], [[1.0, 0.0, 0.0]]]),
            "returned vectors of 3 numbers for the words of text 2 of 2, and of 2 for the texts",
        ),
        (([[1.0, 0.0]] * 2, [[], [[1.0], [1.0, 0.0]]]), "something other than vectors .* for the words of text 2 of 2"),
        (([[1.0, 0.0]] * 2, [[1.0], []]), "something other than vectors .* for the words of text 1 of 2"),
        (([[1.0, 0.0]] * 2, [["topsecret"], []]), "something other than vectors .* for the words of text 1 of 2"),
        (
            ([[1.0, 0.0]] * 2, [[], [[1.0, 0.0], [0.0, 0.0]]]),
            "only zeros for word 2 of the words of text 2 of 2",
        ),
        (
            ([[1.0, 0.0]] * 2, [np.array([[1, np.nan]], np.float32), []]),
            r"an infinite number or NaN for word 1 of the words of text 1 of 2",
        ),
    ],
)
async def test_what_are_no_vectors_of_words_is_refused(both, what):
    """The error names the text by its number, and quotes nothing."""
    with pytest.raises(EmbedderError, match=what) as raised:
        await checked_words(Given(both), ["topsecret one", "two"])
    assert "topsecret" not in str(raised.value)
