"""The last gate: in a graph of float16 tensors, nothing may leave the range of float16.

An engine that computes in more bits than the graph says hides this; one that keeps to the graph gives infinities.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from runtimes.contract import Kind
from runtimes.reference import external, gates, sessions, structure
from runtimes.reference.inputs import Samples

LARGEST = float(np.finfo(np.float16).max)
_PROBE = "aipc_largest_of_"
_TYPES = frozenset({"to", "dtype", "output_dtype"})
"""The attributes that name a type."""


def check(path: Path, samples: Samples) -> gates.GateResult:
    """Return the result of the gate `fp16_range`."""
    problems = find_overflow(path, samples)
    kind = Kind.INVALID_MODEL if problems else None
    return gates.GateResult(
        name="fp16_range", passed=not problems, detail="; ".join(problems[: gates.SHOWN]), kind=kind
    )


def find_overflow(path: Path, samples: Samples) -> list[str]:
    """Return the float16 tensors of the graph at `path` that reach more than float16 holds, the first one first.

    Args:
        path: an ONNX file that the gates let through.
        samples: inputs to try it on.
    """
    model = gates.parse(path)
    if not has_halves(model):
        return []
    typed = onnx.shape_inference.infer_shapes(model)
    halves = {
        value.name
        for value in (*typed.graph.value_info, *typed.graph.output)
        if value.type.tensor_type.elem_type == TensorProto.FLOAT16
    }
    watched = [(name, node) for node in typed.graph.node for name in node.output if name in halves]
    if not watched:
        return []
    with tempfile.TemporaryDirectory() as scratch:
        session = sessions.start(_probe(path, [name for name, _node in watched], Path(scratch)))
        largest = dict.fromkeys((name for name, _node in watched), 0.0)
        for sample in samples.values():
            found = sessions.run(session, sample, [_PROBE + name for name in largest])
            largest = {name: max(most, float(found[_PROBE + name])) for name, most in largest.items()}
    return [
        f"node {node.name} ({node.op_type}): its float16 output {name} reaches {largest[name]:.4g}, "
        f"float16 holds up to {LARGEST:g}; keep this part in float32"
        for name, node in watched
        if largest[name] > LARGEST
    ]


def has_halves(model: onnx.ModelProto) -> bool:
    """Tell whether anything in `model` is float16: an input, a constant, or what an attribute asks for."""
    return (
        any(value.type.tensor_type.elem_type == TensorProto.FLOAT16 for value in model.graph.input)
        or any(tensor.data_type == TensorProto.FLOAT16 for tensor in external.tensors_of(model))
        or any(each.name in _TYPES and each.i == TensorProto.FLOAT16 for each in structure.attributes_of(model))
    )


def _probe(path: Path, names: list[str], scratch: Path) -> Path:
    """Write a copy of the model that also gives the largest absolute value of each of `names`; return its path."""
    model = onnx.load(path)
    for name in names:
        wide, size, probe = f"{_PROBE}wide_{name}", f"{_PROBE}size_{name}", _PROBE + name
        model.graph.node.extend(
            [
                onnx.helper.make_node("Cast", [name], [wide], wide, to=TensorProto.FLOAT),
                onnx.helper.make_node("Abs", [wide], [size], size),
                onnx.helper.make_node("ReduceMax", [size], [probe], probe, keepdims=0),
            ]
        )
        model.graph.output.append(onnx.helper.make_tensor_value_info(probe, TensorProto.FLOAT, []))
    target = scratch / "probe.onnx"
    onnx.save(model, target, save_as_external_data=True, location="probe.onnx.data")
    return target
