"""Vectors from a table of 32,000 word pieces on this machine: thousands of texts a second."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, cast

from anyio import to_thread
from anyio.lowlevel import checkpoint

from graphagent.embed._texts import check_texts
from graphagent.embed._weights import package_folder, read_weights
from graphagent.errors import MissingExtraError

try:
    import numpy as np
    from safetensors.numpy import load
    from tokenizers import Tokenizer
except ModuleNotFoundError:
    raise MissingExtraError("StaticEmbedder", "static") from None

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TABLE = ("weights/l2_supercat_256.safetensors", "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5")
_PIECES = (
    "tokenizers/l2_supercat_tokenizer_config.json",
    "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
)
_REMEDY = "pip install --force-reinstall wordllama==0.4.0.post1"
_SPACE = "▁"
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_INLINE = 2_000
"""The number of characters up to which texts are embedded in the event loop; above it, a thread is worth its cost."""
_TOGETHER = 1_024
"""The number of texts embedded between two chances to be cancelled."""

_COMMON = (  # noqa: SIM905  a text reads better here
    "the be to of and a in that have i it for not on with he as you do at this but his by from they we say her she or an will my "
    "one all would there their what so up out if about who get which go me when make can like time no just him know take people "
    "into year your good some could them see other than then now look only come its over think also back after use two how our "
    "work first well way even new want because any these give day most us is are was were been has had did does am more very much "
    "many being having doing here where why"
).split()
"""English words, the commonest first. By Zipf's law the n-th makes up about 0.1 / n of a text."""
_OF_ONE_CHARACTER = 0.03
"""The share of a text that a piece of one character, such as a full stop, makes up."""
_RARE = 3e-3
"""The share of a text at which a piece counts half as much as a rare piece."""


@dataclass(frozen=True, slots=True)
class _Table:
    pieces: Tokenizer
    rows: NDArray[np.float32]
    """A row for each piece, weighted."""
    space: int
    """The id of a space."""
    is_letter: NDArray[np.bool_]
    """Whether a piece has a letter or digit."""
    is_first: NDArray[np.bool_]
    """Whether a piece begins a word."""


class StaticEmbedder:
    """The mean of the vectors of 256 numbers that WordLlama's table has for the pieces of a text; common pieces count less than rare ones.

    The weights are those of Arora, Liang, Ma, "A Simple but Tough-to-Beat Baseline for Sentence Embeddings" (ICLR 2017),
    a / (a + p(w)), with p(w) from a fixed list of common words. So the vector of a text depends on that text alone. Words of
    similar meaning have similar vectors; word order has no effect. The table is made for English; other alphabetic languages
    work less well.

    Nothing leaves the machine. The table is read at the first use and takes 35 MB of memory.
    """

    name = "wordllama-l2-supercat-256/sif-1"
    """The table, and the method that combines its rows."""
    contextual = False
    """Whether the vector of a word depends on the words around it."""

    def __init__(self) -> None:
        """Find the table.

        Raises:
            MissingExtraError: The package `wordllama` is not installed.
        """
        folder = package_folder("wordllama")
        if folder is None:
            raise MissingExtraError("StaticEmbedder", "static")
        self._folder = folder
        self._table: _Table | None = None
        self._loading = Lock()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.name}>"

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return a vector of 256 numbers and length 1 for each text, as a row.

        Raises:
            EmbedderError: The table is not the expected one.
            TypeError: `texts` is not a list of texts.
            ValueError: A text is not valid Unicode.
        """
        given = check_texts(texts)
        if not given:
            return np.empty((0, 256), np.float32)
        if self._table is not None and sum(map(len, given)) <= _INLINE:
            await checkpoint()
            return self._embed(given)
        starts = range(0, len(given), _TOGETHER)
        return np.concatenate([await to_thread.run_sync(self._embed, given[at : at + _TOGETHER]) for at in starts])

    async def embed_words(self, texts: Sequence[str]) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
        """Return the rows of `embed`, and for each text a vector of length 1 for each word with a letter or digit, as a row.

        A word ends at a space or any character that is not a letter or digit. Each Chinese or Japanese character is a word.

        Raises:
            EmbedderError: The table is not the expected one.
            TypeError: `texts` is not a list of texts.
            ValueError: A text is not valid Unicode.
        """
        given = check_texts(texts)
        if not given:
            return np.empty((0, 256), np.float32), []
        if self._table is not None and sum(map(len, given)) <= _INLINE:
            await checkpoint()
            return self._embed_words(given)
        starts = range(0, len(given), _TOGETHER)
        parts = [await to_thread.run_sync(self._embed_words, given[at : at + _TOGETHER]) for at in starts]
        return np.concatenate([rows for rows, _ in parts]), [each for _, words in parts for each in words]

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        ids, starts = self._pieces(texts)
        return _sums(self._loaded().rows[ids], starts)

    def _embed_words(self, texts: list[str]) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
        table = self._loaded()
        ids, starts = self._pieces(texts)
        rows = table.rows[ids]
        is_letter, is_first = table.is_letter[ids], table.is_first[ids]
        is_first[1:] |= is_letter[1:] != is_letter[:-1]
        is_first[starts] = True
        firsts = np.flatnonzero(is_first)
        is_word = is_letter[firsts]
        counts = np.diff(firsts, append=len(ids))[is_word]
        firsts = firsts[is_word]
        words = np.empty((len(firsts), rows.shape[1]), np.float32)
        for count in np.unique(counts):  # reduceat takes five times as long for words of so few pieces
            some = counts == count
            words[some] = rows[firsts[some, None] + np.arange(count)].sum(axis=1)
        words /= np.sqrt(np.vecdot(words, words))[:, None]
        ends = np.searchsorted(firsts, starts).tolist()
        of_texts = [words[first:last] for first, last in zip(ends, [*ends[1:], len(words)], strict=True)]
        return _sums(rows, starts), of_texts

    def _pieces(self, texts: list[str]) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """Return the ids of the pieces of all texts, and the index at which each text begins. Every text has a piece."""
        table = self._loaded()
        encoded = table.pieces.encode_batch_fast(texts, add_special_tokens=False)
        ids = [each.ids or [table.space] for each in encoded]
        counts = np.fromiter(map(len, ids), np.intp, len(ids))
        return np.concatenate(ids), np.cumsum(counts) - counts

    def _loaded(self) -> _Table:
        if self._table is not None:
            return self._table
        with self._loading:
            if self._table is None:
                rows = load(read_weights(self._folder / _TABLE[0], _TABLE[1], _REMEDY))["embedding.weight"]
                pieces = Tokenizer.from_buffer(read_weights(self._folder / _PIECES[0], _PIECES[1], _REMEDY))
                pieces.no_padding()
                pieces.no_truncation()
                pieces.encode_special_tokens = True  # otherwise "<unk>" in a text would be read as a special piece
                names = [pieces.id_to_token(place) or "" for place in range(len(rows))]
                self._table = _Table(
                    pieces,
                    (rows * _weights(names)[:, None]).astype(np.float32),
                    cast(int, pieces.token_to_id(_SPACE)),
                    np.array([_is_letter(name) for name in names]),
                    np.array([_is_first(name) for name in names]),
                )
            return self._table


def _sums(rows: NDArray[np.float32], starts: NDArray[np.intp]) -> NDArray[np.float32]:
    """Return the sum of the rows from each start to the next, scaled to length 1."""
    sums: NDArray[np.float32] = np.add.reduceat(rows, starts, axis=0)
    lengths: NDArray[np.float32] = np.linalg.norm(sums, axis=1, keepdims=True)
    return sums / lengths


def _is_letter(piece: str) -> bool:
    """Return whether a piece has a letter or digit. A byte of a character that the table lacks counts as a letter."""
    byte = _BYTE.fullmatch(piece)
    if byte is None:
        return any(map(str.isalnum, piece))
    value = int(byte[1], 16)
    return value >= 0x80 or chr(value).isalnum()


def _is_first(piece: str) -> bool:
    """Return whether a piece begins a word: after a space, or in a script without spaces between words."""
    byte = _BYTE.fullmatch(piece)
    if byte is not None:
        return int(byte[1], 16) >= 0xE3  # the first UTF-8 byte of such scripts and of all later ones
    return piece.startswith(_SPACE) or "\u3041" <= piece[:1] <= "\u9fff"


def _weights(pieces: Sequence[str]) -> NDArray[np.float32]:
    shares = {word: 0.1 / place for place, word in enumerate(_COMMON, start=1)}
    words = [piece.replace(_SPACE, "").lower() for piece in pieces]
    found = [_OF_ONE_CHARACTER if len(word) <= 1 and word.isascii() else shares.get(word, 0.0) for word in words]
    return (_RARE / (_RARE + np.array(found))).astype(np.float32)
