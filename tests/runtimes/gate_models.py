"""Small ONNX models: a sound one, and ways to make one that is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

FLOAT, HALF, INT64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64


def node(
    operator: str, takes: Sequence[str], gives: Sequence[str], name: str | None = None, **attributes: Any
) -> NodeProto:
    return helper.make_node(operator, takes, gives, gives[0] if name is None else name, **attributes)


def model(
    nodes: Sequence[NodeProto],
    weights: dict[str, Any] | None = None,
    *,
    shape: Sequence[int | str] = (2, 3),
    kind: int = FLOAT,
    opset: int = 17,
    ir: int = 8,
    out: Sequence[int | str] | None = None,
) -> onnx.ModelProto:
    """A model from `x` to `y`."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, shape if out is None else out)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


def sound() -> onnx.ModelProto:
    return model([node("Relu", ["x"], ["a"]), node("Add", ["a", "w"], ["y"])], {"w": np.ones(3, np.float32)})


def outside(location: str, **entries: int) -> onnx.ModelProto:
    """A sound model whose weights lie in another file."""
    made = sound()
    weight = made.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        entry = weight.external_data.add()
        entry.key, entry.value = key, str(value)
    return made


def same_output_twice() -> onnx.ModelProto:
    return model(
        [
            node("Cast", ["x"], ["a"], "one", to=FLOAT),
            node("Cast", ["x"], ["a"], "two", to=FLOAT),
            node("Relu", ["a"], ["y"]),
        ]
    )


def two_weights_of_one_name() -> onnx.ModelProto:
    made = sound()
    made.graph.initializer.append(numpy_helper.from_array(np.zeros(3, np.float32), "w"))
    return made


def two_outputs_of_one_name() -> onnx.ModelProto:
    made = sound()
    made.graph.output.append(made.graph.output[0])
    return made


def float_cast_in_a_half_graph() -> onnx.ModelProto:
    nodes = [node("Cast", ["x"], ["a"], to=FLOAT), node("Mul", ["a", "x"], ["b"]), node("Cast", ["b"], ["y"], to=HALF)]
    return model(nodes, kind=HALF)


def branch_with(*inner: NodeProto) -> onnx.ModelProto:
    """A model with an If whose branches are the nodes `inner`, from `x` to `b`."""
    branch = helper.make_graph(list(inner), "branch", [], [helper.make_tensor_value_info("b", FLOAT, [2, 3])])
    return model(
        [node("Relu", ["x"], ["a"]), node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)],
        {"c": np.array(True)},
    )


def unknown_domain() -> onnx.ModelProto:
    made = model([node("Gelu", ["x"], ["y"], domain="com.microsoft")])
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return made


def backwards(made: onnx.ModelProto) -> onnx.ModelProto:
    nodes = list(made.graph.node)[::-1]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made


def size_by_data() -> onnx.ModelProto:
    made = model([node("NonZero", ["x"], ["y"])], out=[2, "n"])
    made.graph.output[0].type.tensor_type.elem_type = INT64
    return made


def size_too_short() -> onnx.ModelProto:
    made = sound()
    made.graph.initializer[0].raw_data = b"\0" * 8
    return made


def without_outputs() -> onnx.ModelProto:
    made = sound()
    del made.graph.output[:]
    return made


def two_opsets() -> onnx.ModelProto:
    made = sound()
    made.opset_import.append(helper.make_opsetid("ai.onnx", 13))
    return made


def unused_outside() -> onnx.ModelProto:
    """A model whose weights lie in another file, and no node takes them."""
    made = outside("w.bin")
    made.graph.node[1].input[1] = "a"
    return made


def wide_outside() -> onnx.ModelProto:
    """A model that multiplies by the numbers in another file."""
    made = model([node("Mul", ["x", "big"], ["y"])], {"big": np.array([2**40], np.int64)}, kind=INT64)
    weight = made.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "w.bin", "offset": "8"}.items():
        entry = weight.external_data.add()
        entry.key, entry.value = key, value
    return made


def constant(**value: Any) -> onnx.ModelProto:
    """A model that multiplies by the constant `low`."""
    return model([node("Constant", [], ["low"], **value), node("Mul", ["x", "low"], ["y"])], kind=INT64)


def calling(*body: NodeProto, kind: int = FLOAT) -> onnx.ModelProto:
    """A model that calls a function of its own, whose nodes are `body`, from `x` to `y`."""
    made = model([node("Own", ["x"], ["y"], domain="own")], kind=kind)
    made.opset_import.append(helper.make_opsetid("own", 1))
    made.functions.append(helper.make_function("own", "Own", ["x"], ["y"], body, [helper.make_opsetid("", 17)]))
    return made


def wide_outside_and_inside() -> onnx.ModelProto:
    """A model that slices up to a constant, and multiplies by the same constant in a branch."""
    branch = helper.make_graph(
        [node("Mul", ["a", "end"], ["b"])], "branch", [], [helper.make_tensor_value_info("b", INT64, [2, 3])]
    )
    return model(
        [
            node("Slice", ["x", "zero", "end"], ["a"]),
            node("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
        ],
        {"zero": np.array([0], np.int64), "end": np.array([2**40], np.int64), "c": np.array(True)},
        kind=INT64,
    )
