"""int8 for engines that quantise what the graph says: QuantizeLinear and DequantizeLinear around what takes the time.

What a convolution or a matrix product takes goes through a pair of the two, with one scale for the tensor: that which
loses least on the calibration samples. To cut off a few large numbers may lose less than coarse steps for all. Its
weights become int8, with a scale for each channel that it gives, and go through a DequantizeLinear. Every zero point is
0. So TensorRT asks for it (strongly typed networks), and so it fuses them; what lies between stays in float32, biases
too.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from runtimes.kit.tensors import Array
from runtimes.reference import edits, retyping
from runtimes.reference.retyping import Samples
from runtimes.reference.rewrites import Given, Rewrite, Unsuitable

LARGEST = 127
"""The largest number that is used: with −128 the range would not be symmetric."""
SHARES = (1.0, 0.85, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
"""Of the largest absolute number of a tensor, what is tried as the largest that is not cut off."""
TRIED = 8
"""The shares are tried on so many samples: from the first to the last, evenly."""
OPSET = 13
"""The first in which a scale for each channel is known."""
QUANTISED = ("Conv", "ConvTranspose", "MatMul", "Gemm")


def _requires(model: ir.Model) -> str:
    opset = edits.opset_of(model)
    return "" if opset >= OPSET else f"opset {opset} has no scale for each channel; {OPSET} has"


def _rewrite(model: ir.Model, given: Given) -> list[str]:
    if not given.calibration:
        raise Unsuitable("without calibration samples nobody knows the ranges of the model's tensors")
    nodes = [node for node in edits.nodes_of(model, *QUANTISED) if _suits(node, model)]
    if not nodes:
        raise Unsuitable(f"nothing is there to quantise: no {', '.join(QUANTISED)} that takes two tensors of float32")
    taken = {value: None for node in nodes for value in node.inputs[:2] if value is not None}
    ranges = _ranges(model, [value for value in taken if edits.constant_of(value) is None], given.calibration)
    made: dict[tuple[ir.Value, int | None], ir.Value] = {}
    for node in nodes:
        for index, value in enumerate(node.inputs[:2]):
            assert value is not None  # noqa: S101 - _suits has looked
            constant = edits.constant_of(value)
            axis = None if constant is None else _axis(node, index, constant)
            if (value, axis) not in made:
                made[value, axis] = (
                    _activation(model, value, ranges[value])
                    if constant is None
                    else _weight(model, value.name or "", constant, axis)
                )
            node.replace_input_with(index, made[value, axis])
    return [node.name or "" for node in nodes]


def _ranges(model: ir.Model, values: list[ir.Value], samples: Samples) -> dict[ir.Value, float]:
    """Return the largest absolute number of each value that is not cut off."""
    found = retyping.largest_of(model, values, samples)
    largest = {value: max(found[value]) for value in values}
    by_name = {value.name: number for value, number in largest.items()}

    def lost(graph: ir.Graph, value: ir.Value) -> list[ir.Value]:
        """Append nodes that tell the mean square error of a value for each share."""
        numbers = []
        for share in SHARES:
            scale, zero = (
                retyping.append(graph, "Constant", value=ir.tensor(constant))
                for constant in (np.array(_scale(by_name[value.name] * share), np.float32), np.array(0, np.int8))
            )
            whole = retyping.append(graph, "QuantizeLinear", value, scale, zero)
            error = retyping.append(graph, "Sub", value, retyping.append(graph, "DequantizeLinear", whole, scale, zero))
            square = retyping.append(graph, "Mul", error, error)
            numbers.append(retyping.told(retyping.append(graph, "ReduceMean", square, keepdims=0), ir.DataType.FLOAT))
        return numbers

    names = list(samples)
    tried = {names[round(at)] for at in np.linspace(0, len(names) - 1, TRIED)}
    errors = retyping.probed(model, values, {name: samples[name] for name in names if name in tried}, lost)
    best = {value: int(np.argmin(np.sum(errors[value], axis=0))) for value in values}
    return {value: largest[value] * SHARES[best[value]] for value in values}


def _suits(node: ir.Node, model: ir.Model) -> bool:
    """Return whether a node takes two tensors of float32, in the model's own graph; its weights not from outside."""
    values = [edits.taken(node, 0), edits.taken(node, 1)]
    return retyping.is_plain(node, model) and all(
        value is not None and value.dtype is ir.DataType.FLOAT and edits.rank_of(value) for value in values
    )


def _axis(node: ir.Node, index: int, constant: Array) -> int | None:
    """Return along which axis of a constant the node's channels lie; None for one scale for all of it."""
    if index == 0 or constant.ndim < 2:
        return None
    if node.op_type == "ConvTranspose":
        # Weights are [in, out / groups, ...]: with groups, a channel has no scale of its own.
        group = node.attributes.get("group")
        return 1 if group is None or group.as_int() == 1 else None
    if node.op_type == "MatMul":
        return 1 if constant.ndim == 2 else None
    turned = node.attributes.get("transB")
    return 1 if node.op_type == "Gemm" and (turned is None or not turned.as_int()) else 0


def _activation(model: ir.Model, value: ir.Value, largest: float) -> ir.Value:
    """Return a value through QuantizeLinear and DequantizeLinear, made where it is."""
    name = value.name or ""
    scale = _initializer(model, f"{name}_scale", np.asarray(_scale(largest), np.float32))
    zero = _initializer(model, f"{name}_zero", np.asarray(0, np.int8))
    down = ir.node("QuantizeLinear", [value, scale, zero], name=f"{name}_QuantizeLinear")
    up = ir.node("DequantizeLinear", [down.outputs[0], scale, zero], name=f"{name}_DequantizeLinear")
    maker = value.producer()
    if maker is None:
        model.graph.insert_before(model.graph[0], [down, up])
    else:
        model.graph.insert_after(maker, [down, up])
    down.outputs[0].name, up.outputs[0].name = f"{name}_quantized", f"{name}_dequantized"
    return up.outputs[0]


def _weight(model: ir.Model, name: str, values: Array, axis: int | None) -> ir.Value:
    """Return weights in int8, through DequantizeLinear."""
    others = None if axis is None else tuple(index for index in range(values.ndim) if index != axis)
    largest = np.abs(values).max(axis=others)
    scales = np.asarray([_scale(float(each)) for each in np.atleast_1d(largest)], np.float32)
    shape = [1] * values.ndim
    if axis is not None:
        shape[axis] = -1
    whole = np.clip(np.rint(values / scales.reshape(shape)), -LARGEST, LARGEST).astype(np.int8)
    scale = _initializer(model, f"{name}_scale", scales if axis is not None else scales[0])
    zero = _initializer(model, f"{name}_zero", np.zeros(scales.shape if axis is not None else (), np.int8))
    stored = _initializer(model, f"{name}_quantized", whole)
    node = ir.node(
        "DequantizeLinear",
        [stored, scale, zero],
        {} if axis is None else {"axis": axis},
        name=f"{name}_DequantizeLinear",
    )
    model.graph.insert_before(model.graph[0], node)
    node.outputs[0].name = f"{name}_dequantized"
    return node.outputs[0]


def _scale(largest: float) -> float:
    """Return the step of whole numbers that reach as far; of a tensor that is always 0, any does."""
    return max(largest, float(np.finfo(np.float32).tiny) * LARGEST) / LARGEST if largest else 1.0


def _initializer(model: ir.Model, name: str, array: Array) -> ir.Value:
    graph = model.graph
    while name in graph.initializers:
        name += "_"
    tensor = ir.tensor(np.asarray(array), name=name)
    made = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor)
    graph.register_initializer(made)
    return made


def _ensures(model: ir.Model) -> str:
    """Return a node that takes float32 still which was not dequantised."""
    for node in edits.nodes_of(model, *QUANTISED):
        for value in node.inputs[:2] if _suits(node, model) else ():
            maker = None if value is None else value.producer()
            if maker is None or maker.op_type != "DequantizeLinear":
                return f"{edits.call(node)} takes {value.name if value else 'nothing'} as it was, not dequantised"
    return ""


REWRITES = (
    Rewrite(
        name="qdq",
        summary="int8 around convolutions and matrix products, by QuantizeLinear and DequantizeLinear",
        requires=_requires,
        rewrite=_rewrite,
        ensures=_ensures,
        precision="int8",
    ),
)
