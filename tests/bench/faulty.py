"""Stands in for a runtime with one bad node: ONNX Runtime, and what that node gives turned wrong.

faulty.py make MODEL_FOLDER SAMPLES_FOLDER NODES
faulty.py run MODEL_FOLDER SAMPLES_FOLDER OUTPUT_FOLDER BAD_NODE
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from runtimes.kit import tensors

SHAPE = (1, 8, 16, 16)
OPS = ("Sin", "Neg", "Tanh", "Abs")


def make(model: Path, samples: Path, total: int) -> None:
    """Write a chain of `total` nodes called node-0, node-1, and so on, and an input for it."""
    names = ["x", *(f"t{at}" for at in range(total - 1)), "y"]
    nodes = [helper.make_node(OPS[at % len(OPS)], [names[at]], [names[at + 1]], f"node-{at}") for at in range(total)]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "chain", ports[:1], ports[1:])
    made = onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    )
    model.mkdir()
    onnx.save(made, model / "model.onnx")
    x = np.random.default_rng(3).standard_normal(SHAPE).astype(np.float32)
    tensors.save_samples(samples, {"one": {"x": x}})


def run(model: Path, samples: Path, output: Path, bad: str) -> None:
    """Write the answers of a piece, in which the node called `bad` adds a half to what it gives."""
    proto = onnx.load(model / "model.onnx")
    nodes = list(proto.graph.node)
    for at, node in enumerate(nodes):
        if node.name == bad:
            name = node.output[0]
            node.output[0] = f"{name}_right"
            half = helper.make_node("Constant", [], ["aipc_half"], value_float=0.5)
            nodes[at + 1 : at + 1] = [half, helper.make_node("Add", [node.output[0], "aipc_half"], [name])]
            break
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    found = {
        sample: dict(zip(names, session.run(names, dict(inputs)), strict=True))
        for sample, inputs in tensors.load_samples(samples).items()
    }
    tensors.save_samples(output, found)


if __name__ == "__main__":
    what, first, second, *rest = sys.argv[1:]
    if what == "make":
        make(Path(first), Path(second), int(rest[0]))
    else:
        run(Path(first), Path(second), Path(rest[0]), rest[1])
