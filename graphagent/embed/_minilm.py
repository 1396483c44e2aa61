"""The graph of all-MiniLM-L6-v2, written from its weights for onnxruntime: a BERT of six layers with int8 matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphagent.errors import MissingExtraError

try:
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper
    from safetensors.numpy import load
except ModuleNotFoundError:
    raise MissingExtraError("LocalEmbedder", "local") from None

if TYPE_CHECKING:
    from numpy.typing import NDArray

LONGEST = 256
"""The largest number of word pieces that the graph reads of a text."""
WIDTH = 384
"""The length of a vector."""
_HEADS, _LAYERS = 12, 6
_LARGEST = 63
"""The number of bits of a weight. With 8 bits, the sums of products overflow their 16 bits on machines without VNNI instructions;
see "Quantization" in the documentation of onnxruntime."""


def graph(weights: bytes) -> bytes:
    """Return the ONNX graph of the weights, from the ids of the pieces of one text, `ids`, to a vector of length 1, `vector`.

    The second output, `pieces`, is the last hidden state: a vector for each piece, not normalised. Their mean is the vector of the text.

    It takes one text at a time. Activations are quantised by the largest number among them, so in a batch the vector of a text
    would depend on its neighbours.
    """
    return _ModelWriter({name.removeprefix("bert."): each for name, each in load(weights).items()}).model()


class _ModelWriter:
    def __init__(self, weights: dict[str, NDArray[Any]]) -> None:
        self._weights = weights
        self._nodes: list[Any] = []
        self._tensors: list[Any] = []

    def model(self) -> bytes:
        axis = self._tensor("first axis", np.array([0]))
        now = self._embeddings(axis)
        self._tensor("heads", np.array([0, _HEADS, WIDTH // _HEADS]))
        self._tensor("joined", np.array([0, WIDTH]))
        self._tensor("scale", np.float32((WIDTH // _HEADS) ** -0.5))
        for layer in range(_LAYERS):
            now = self._layer(f"encoder.layer.{layer}.", now)
        mean = self._node("ReduceMean", now, axis, keepdims=0)
        self._node("LpNormalization", mean, out="vector", axis=-1, p=2)
        self._node("Identity", now, out="pieces")
        ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["count"])
        vector = helper.make_tensor_value_info("vector", TensorProto.FLOAT, [WIDTH])
        pieces = helper.make_tensor_value_info("pieces", TensorProto.FLOAT, ["count", WIDTH])
        drawn = helper.make_graph(self._nodes, "all-MiniLM-L6-v2", [ids], [vector, pieces], self._tensors)
        made = helper.make_model(drawn, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        content: bytes = made.SerializeToString()
        return content

    def _embeddings(self, axis: str) -> str:
        words, scales = _quantised(self._weights["embeddings.word_embeddings.weight"], largest=127)
        found = self._node("Gather", self._tensor("words", words), "ids")
        scale = self._node("Gather", self._tensor("word scales", scales[:, None]), "ids")
        word = self._node("Mul", self._node("Cast", found, to=TensorProto.FLOAT), scale)
        # Every piece belongs to the first of two segments, so all have the same type.
        positions = self._weights["embeddings.position_embeddings.weight"][:LONGEST]
        places = self._tensor("positions", positions + self._weights["embeddings.token_type_embeddings.weight"][0])
        place = self._node("Slice", places, axis, self._node("Shape", "ids"), axis)
        return self._normalised("embeddings.LayerNorm", self._node("Add", word, place))

    def _layer(self, name: str, given: str) -> str:
        parts = [f"{name}attention.self.{each}" for each in ("query", "key", "value")]
        asked = self._linear(given, *parts)
        split = [f"{name}{each}" for each in ("queries", "keys", "values")]
        self._nodes.append(helper.make_node("Split", [asked], split, axis=-1, num_outputs=3))
        queries, keys, values = (
            self._node("Transpose", self._node("Reshape", each, "heads"), perm=order)
            for each, order in zip(split, ([1, 0, 2], [1, 2, 0], [1, 0, 2]), strict=True)
        )
        scores = self._node("Mul", self._node("MatMul", queries, keys), "scale")
        seen = self._node("MatMul", self._node("Softmax", scores, axis=-1), values)
        joined = self._node("Reshape", self._node("Transpose", seen, perm=[1, 0, 2]), "joined")
        attended = self._node("Add", self._linear(joined, f"{name}attention.output.dense"), given)
        middle = self._normalised(f"{name}attention.output.LayerNorm", attended)
        wide = self._node("Gelu", self._linear(middle, f"{name}intermediate.dense"))
        return self._normalised(
            f"{name}output.LayerNorm", self._node("Add", self._linear(wide, f"{name}output.dense"), middle)
        )

    def _linear(self, given: str, *names: str) -> str:
        """Multiply by a quantised matrix (several: side by side) and add its bias. onnxruntime fuses these operations into one."""
        matrix, scales = _quantised(
            np.concatenate([self._weights[f"{each}.weight"] for each in names]), largest=_LARGEST
        )
        bias = self._tensor(f"{names[0]}.bias", np.concatenate([self._weights[f"{each}.bias"] for each in names]))
        quantised, scale, zero = (f"{names[0]}.{each}" for each in ("given", "given scale", "given zero"))
        self._nodes.append(helper.make_node("DynamicQuantizeLinear", [given], [quantised, scale, zero]))
        product = self._node("MatMulInteger", quantised, self._tensor(f"{names[0]}.weight", matrix.T), zero)
        both = self._node("Mul", scale, self._tensor(f"{names[0]}.scales", scales))
        return self._node("Add", self._node("Mul", self._node("Cast", product, to=TensorProto.FLOAT), both), bias)

    def _normalised(self, name: str, given: str) -> str:
        weight, bias = (self._tensor(f"{name}.{each}", self._weights[f"{name}.{each}"]) for each in ("weight", "bias"))
        return self._node("LayerNormalization", given, weight, bias, axis=-1, epsilon=1e-12)

    def _tensor(self, name: str, values: Any) -> str:
        self._tensors.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def _node(self, kind: str, *given: str, out: str = "", **settings: Any) -> str:
        out = out or f"{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(given), [out], **settings))
        return out


def _quantised(matrix: NDArray[np.float32], *, largest: int) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return each row as integers up to `largest`, and the factors that restore the rows."""
    scales = np.maximum(np.abs(matrix).max(axis=1), 1e-9) / largest
    return np.rint(matrix / scales[:, None]).astype(np.int8), scales.astype(np.float32)
