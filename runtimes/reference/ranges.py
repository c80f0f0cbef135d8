"""What the gate `fp16_range` finds: in a graph of float16 tensors, nothing may leave the range of float16.

An engine that computes in more bits than the graph says hides this; one that keeps to the graph gives infinities.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from runtimes.kit.work import Failed
from runtimes.reference import external, foreign, gates, sessions, slices, structure
from runtimes.reference.inputs import Samples

LARGEST = float(np.finfo(np.float16).max)
_PROBE = "aipc_probe_"
_SIZE, _LESS = f"{_PROBE}size_", f"{_PROBE}less_itself_"
_TYPES = frozenset({"to", "dtype", "output_dtype"})
"""The attributes that name a type."""


def find_overflow(path: Path, samples: Samples) -> list[str]:
    """Return the float16 tensors of the graph at `path` that are more than float16 holds, or no number; in order.

    Args:
        path: an ONNX file that the gates let through.
        samples: inputs to try it on.

    Raises:
        Failed: there is no memory left.
    """
    model = gates.parse(path)
    if not has_halves(model):
        return []
    try:
        # What cannot be inferred is a RuntimeError, as much of what ONNX Runtime says is.
        watched = _halves_made(onnx.shape_inference.infer_shapes(model))
        largest = _measure(path, [name for name, _node in watched], samples) if watched else {}
    except sessions.errors() as error:
        if failure := foreign.out_of_memory(error, "ONNX Runtime"):
            raise Failed(failure) from error
        return [f"its float16 tensors cannot be measured: {foreign.words(error)}; keep the graph in float32"]
    return [
        f"node {node.name} ({node.op_type}): its float16 output {name} reaches {largest[name]:.4g}, "
        f"float16 holds up to {LARGEST:g}; keep this part in float32"
        for name, node in watched
        if not largest[name] <= LARGEST
    ]


def _halves_made(typed: onnx.ModelProto) -> list[tuple[str, onnx.NodeProto]]:
    """Return the float16 tensors that nodes of the graph give, each with its node."""
    halves = {
        value.name
        for value in (*typed.graph.value_info, *typed.graph.output)
        if value.type.tensor_type.elem_type == TensorProto.FLOAT16
    }
    return [(name, node) for node in typed.graph.node for name in node.output if name in halves]


def _measure(path: Path, names: list[str], samples: Samples) -> dict[str, float]:
    """Return the largest absolute value of each tensor over the samples; NaN where one is no number."""
    asked = [prefix + name for prefix in (_SIZE, _LESS) for name in names]
    largest = dict.fromkeys(names, 0.0)
    for found in slices.run(_probe(path, names), path.parent, samples, asked).values():
        for name in names:
            size = float(found[_SIZE + name])
            number = np.isinf(size) or not np.isnan(found[_LESS + name])
            largest[name] = float(np.maximum(largest[name], size if number else np.nan))
    return largest


def has_halves(model: onnx.ModelProto) -> bool:
    """Tell whether anything in `model` is float16: an input, a constant, or what an attribute asks for."""
    return (
        any(value.type.tensor_type.elem_type == TensorProto.FLOAT16 for value in model.graph.input)
        or any(tensor.data_type == TensorProto.FLOAT16 for tensor in external.tensors_of(model))
        or any(each.name in _TYPES and each.i == TensorProto.FLOAT16 for each in structure.attributes_of(model))
    )


def _probe(path: Path, names: list[str]) -> onnx.ModelProto:
    """Return the model, data outside it still there, that also tells of each of `names` how large it becomes.

    An operator that looks for the largest number may pass NaN over. So another output is the sum of each number less
    itself: 0, or NaN where one of them is NaN or infinite.
    """
    model = gates.parse(path)
    for name in names:
        wide, size, none = f"{_PROBE}wide_{name}", f"{_PROBE}abs_{name}", f"{_PROBE}less_{name}"
        model.graph.node.extend(
            [
                onnx.helper.make_node("Cast", [name], [wide], wide, to=TensorProto.FLOAT),
                onnx.helper.make_node("Abs", [wide], [size], size),
                onnx.helper.make_node("ReduceMax", [size], [_SIZE + name], _SIZE + name, keepdims=0),
                onnx.helper.make_node("Sub", [size, size], [none], none),
                onnx.helper.make_node("ReduceSum", [none], [_LESS + name], _LESS + name, keepdims=0),
            ]
        )
        model.graph.output.extend(
            onnx.helper.make_tensor_value_info(prefix + name, TensorProto.FLOAT, []) for prefix in (_SIZE, _LESS)
        )
    return model
