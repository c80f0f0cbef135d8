"""Models with QuantizeLinear and DequantizeLinear in them, as those have who quantise before they deploy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, helper, numpy_helper

from tests.runtimes.openvino_jobs import FLOAT, Made, conv_net, make

INPUT, BODY, HEAD = "x", "/body/Conv", "/head/Conv"
BOTH = (BODY, HEAD)


def quantized_net(around: Sequence[str], kind: Any = np.int8) -> Made:
    """Return `conv_net` with pairs around its input and what some of its convolutions take and give.

    Args:
        around: `INPUT`, `BODY`, `HEAD`.
        kind: the element type of the activations in whole numbers; weights are int8.
    """
    plain = conv_net().model.graph
    held: dict[str, Any] = {each.name: numpy_helper.to_array(each) for each in plain.initializer}
    held |= {"scale": np.float32(4 / np.iinfo(kind).max), "zero": np.zeros((), kind)}
    held |= {"scale_w": np.float32(0.01), "zero_w": np.int8(0)}
    nodes: list[NodeProto] = []
    given = {"x": "x"}

    def scaled(name: str, made: str, kept: str) -> str:
        nodes.append(helper.make_node("DequantizeLinear", [name, f"scale{kept}", f"zero{kept}"], [made], f"/{made}"))
        return made

    def pair(name: str) -> str:
        nodes.append(helper.make_node("QuantizeLinear", [name, "scale", "zero"], [f"{name}_q"], f"/{name}_q"))
        return scaled(f"{name}_q", f"{name}_d", "")

    if INPUT in around:
        given["x"] = pair("x")
    for node in plain.node:
        taken = [given.get(name, name) for name in node.input]
        if node.name in around:
            taken[0] = taken[0] if taken[0].endswith("_d") else pair(taken[0])
            held[taken[1]] = np.rint(held[taken[1]] / 0.01).clip(-128, 127).astype(np.int8)
            # A bias in whole numbers would have a scale of its own.
            for bias in taken[2:]:
                del held[bias]
            taken[1:] = [scaled(taken[1], f"{taken[1]}_d", "_w")]
        made = "y_plain" if node.output[0] == "y" else node.output[0]
        pads: dict[str, Any] = {"pads": [1, 1, 1, 1]} if node.op_type == "Conv" else {}
        nodes.append(helper.make_node(node.op_type, taken, [made], node.name, **pads))
        # A Relu behind a convolution is one with it: the pair stands behind the Relu.
        behind = {"r": BODY, "y_plain": HEAD}.get(made, "")
        given[node.output[0]] = pair(made) if behind in around else made
    nodes.append(helper.make_node("Identity", [given["y"]], ["y"], "/end"))
    return make(nodes, [("x", FLOAT, [1, 3, 16, 20])], [("y", FLOAT, [1, 4, 16, 20])], held)
