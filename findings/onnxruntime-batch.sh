#!/usr/bin/env bash
# A network whose weights `quantize_dynamic` made 8-bit integers, as small embedding models are distributed, and a batch of inputs.
# Guess: what comes out for an input depends on that input, up to the last bits, whatever else is in the batch.
# What happens: each layer finds one scale for the activations of the whole batch, so an input beside one with large numbers is rounded more
#   coarsely than alone: its output is another by several per cent, and some inputs have another nearest neighbour. The network with
#   floats, of which the integers were made, gives each input the same output in both cases.
# For users: a text has other vectors in an index that was filled in batches than in a question that is asked alone, and others again after the
#   index is filled in another order. Results change, and no test of one text shows it. The larger the batch, the likelier such a neighbour.
# In graphagent: LocalEmbedder runs one text at a time for this reason (graphagent/embed/_minilm.py;
#   tests/embed/test_local.py::test_a_vector_depends_on_its_text_alone).
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6 onnx==1.23.2 onnxruntime==1.32.0
cd "$folder"

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


import logging

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession
from onnxruntime.quantization import QuantType, quantize_dynamic

logging.disable()
print(*(f"{name} {version(name)}" for name in ("onnxruntime", "onnx", "numpy")))
print("guess: in a batch as alone, with floats and with integers")

random = np.random.default_rng(7)
weights = numpy_helper.from_array(random.standard_normal((96, 32), dtype=np.float32), "weights")
graph = helper.make_graph(
    [helper.make_node("MatMul", ["texts", "weights"], ["vectors"])],
    "embedder",
    [helper.make_tensor_value_info("texts", TensorProto.FLOAT, [None, 96])],
    [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, [None, 32])],
    [weights],
)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), "floats.onnx")
# With 7 bits the products fit into 16 on every processor.
quantize_dynamic("floats.onnx", "integers.onnx", weight_type=QuantType.QInt8, reduce_range=True)

texts = random.standard_normal((64, 96), dtype=np.float32)
large = 12 * random.standard_normal((1, 96), dtype=np.float32)


def nearest(vectors):
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return (unit @ unit.T - 2 * np.eye(len(unit))).argmax(axis=1)


for name, differs in (("floats", False), ("integers", True)):
    session = InferenceSession(f"{name}.onnx")
    alone = np.vstack([session.run(None, {"texts": text[None]})[0] for text in texts])
    beside = session.run(None, {"texts": np.vstack([texts, large])})[0][:64]
    change = np.linalg.norm(beside - alone, axis=1) / np.linalg.norm(alone, axis=1)
    others = int((nearest(alone) != nearest(beside)).sum())
    print(f"{name}: changed by {change.mean():.2%} on average, {others} of 64 have another nearest neighbour")
    compare(f"{name}: the mean change is above 1 %", bool(change.mean() > 0.01), differs)
    compare(f"{name}: some have another nearest neighbour", others > 0, differs)
PYTHON
venv/bin/python program.py
