"""Long notes are divided into pieces of similar size, in which nothing is lost, whatever the script."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphagent.memory.notes.index._chunks import pieces
from graphagent.memory.notes.index._tables import CHUNKS

TEXTS = st.lists(
    st.sampled_from(["tide", "E-4021", "我们", "は", "회의", ".", "。", "? ", " ", "\n", "…", "é"]), max_size=600
).map("".join)


@given(TEXTS)
def test_pieces_are_the_text_in_order(text):
    """Nothing but white space is lost between them, and only white space parts them from the text."""
    found = pieces(text)
    assert re.sub(r"\s", "", "".join(found)) == re.sub(r"\s", "", text)
    assert all(found) or found == [""]
    assert found == [text] or all(piece == piece.strip() for piece in found)


@pytest.mark.parametrize("words", [1, 99])
def test_a_text_of_fewer_than_100_words_is_one_piece(words):
    """It is left as it is."""
    text = "\n\n".join(["word"] * words)
    assert pieces(text) == [text]


@pytest.mark.parametrize(
    ("sentence", "times", "each"),
    [
        ("The tide was late today. ", 30, 12),
        ("我们今天讨论了新的计划。", 40, 8),
        ("今日は新しい計画について話しました。", 20, 6),
        ("오늘 새 계획을 논의했다. ", 40, 8),
    ],
)
def test_pieces_end_with_sentences(sentence, times, each):
    """About 60 words are one piece. Two Chinese, Japanese or Korean characters count as a word."""
    found = pieces(sentence * times)
    assert len(found) > 1
    assert all(piece.endswith(sentence.strip()) for piece in found)
    assert all(piece.count(sentence.strip()) == each for piece in found[:-1])


def test_a_sentence_that_does_not_end_is_divided_all_the_same():
    """Each piece but the last has 60 words."""
    assert [len(piece.split()) for piece in pieces("word " * 200)] == [60, 60, 60, 20]
    assert [len(piece) for piece in pieces("字" * 300)] == [120, 120, 60]


@pytest.mark.parametrize(
    "text", ["word " * 200_000, "字" * 400_000, "Yes. " * 200_000, ("word " * 59 + "end. ") * 4_000]
)
def test_the_longest_text_has_no_more_pieces_than_the_index_holds(text):
    """Then pieces are longer."""
    assert 1 < len(pieces(text)) <= CHUNKS


async def test_every_part_of_a_long_text_is_found(notes):
    """The words at the end of a text as long as may be are found, however its sentences fall."""
    sentence = " ".join(["ab"] * 250) + ". "
    text = (sentence * (990_000 // len(sentence))) + " zebra"
    kept = await notes.remember(text)
    assert [each.record.id for each in await notes.recall("zebra")] == [kept.id]
