"""Quantised operators as floating ones: few runtimes take a scale that is measured while they run.

A tensor that DynamicQuantizeLinear made is taken as it was before, with scale 1 and zero point 0; what multiplies
integers then multiplies floating numbers. The weights keep their eight bits of precision. QLinearConv and
QLinearMatMul become the same between DequantizeLinear and QuantizeLinear.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from runtimes.reference import edits
from runtimes.reference.rewrites import Given, Rewrite, Unsuitable, always
from runtimes.reference.rewrites.folding import fold

_PRODUCTS = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}
_QLINEAR = {"QLinearMatMul": "MatMul", "QLinearConv": "Conv"}
_MOVES = frozenset({"Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that only move numbers: they take floating ones as well."""


def _rewrite(model: ir.Model, _given: Given) -> list[str]:
    nodes = edits.nodes_of(model, "DynamicQuantizeLinear", *_PRODUCTS, *_QLINEAR)
    for node in nodes:
        if node.op_type == "DynamicQuantizeLinear":
            _require_products(node, node.outputs[0])
        elif node.op_type in _PRODUCTS:
            _require_cast(node)
    floats: set[ir.Value] = set()
    for node in nodes:
        new = edits.Nodes(node)
        if node.op_type == "DynamicQuantizeLinear":
            _dynamic(new, floats)
        elif node.op_type in _PRODUCTS:
            _product(new, floats)
        else:
            _qlinear(new)
    if nodes:
        edits.tidy(model)
        fold(model)
    return [node.name or "" for node in nodes]


def _require_products(node: ir.Node, value: ir.Value) -> None:
    """Require that the integers go only where floating numbers can go instead."""
    if value.is_graph_output() or any(each.is_graph_output() for each in node.outputs):
        raise Unsuitable(f"{edits.call(node)}: what it gives is an output of the model")
    for use in value.uses():
        if use.node.op_type in _MOVES and use.idx == 0:
            _require_products(node, use.node.outputs[0])
        elif use.node.op_type not in {*_PRODUCTS, "DequantizeLinear"} or use.idx > 1:
            raise Unsuitable(f"{edits.call(node)}: {edits.call(use.node)} takes its integers")
    for use in node.outputs[2].uses() if len(node.outputs) > 2 else ():
        if use.node.op_type not in {*_PRODUCTS, "DequantizeLinear"}:
            raise Unsuitable(f"{edits.call(node)}: {edits.call(use.node)} takes its zero point")


def _require_cast(node: ir.Node) -> None:
    """Require that an integer product goes to a Cast to floating numbers only."""
    (value,) = node.outputs
    for use in value.uses():
        if use.node.op_type != "Cast" or ir.DataType(use.node.attributes.get_int("to", 0)) is not ir.DataType.FLOAT:
            raise Unsuitable(f"{edits.call(node)}: {edits.call(use.node)} takes its integers")
    if value.is_graph_output():
        raise Unsuitable(f"{edits.call(node)}: what it gives is an output of the model")


def _dynamic(new: edits.Nodes, floats: set[ir.Value]) -> None:
    node = new.node
    source = node.inputs[0]
    if source is None:
        raise Unsuitable(f"{edits.call(node)}: takes nothing")
    _take_floats(node.outputs[0], source, floats)
    new.replace(source, new.constant(1.0, np.float32), new.constant(0, np.uint8))


def _take_floats(value: ir.Value, source: ir.Value, floats: set[ir.Value]) -> None:
    """Note that all that carries the integers of `value` carries floating numbers from now on."""
    floats.add(source)
    for use in list(value.uses()):
        if use.node.op_type == "DequantizeLinear":
            back = edits.Nodes(use.node)
            use.node.replace_input_with(0, source)
            back.replace(source)
        elif use.node.op_type in _MOVES:
            moved = use.node.outputs[0]
            moved.type = ir.TensorType(ir.DataType.FLOAT)
            _take_floats(moved, moved, floats)


def _product(new: edits.Nodes, floats: set[ir.Value]) -> None:
    node = new.node
    left, right = (
        _floating(new, edits.taken(node, index), edits.taken(node, index + 2), floats, index) for index in (0, 1)
    )
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    new.replace(new.op(_PRODUCTS[node.op_type], left, right, **attributes))


def _floating(
    new: edits.Nodes, value: ir.Value | None, zero: ir.Value | None, floats: set[ir.Value], index: int
) -> ir.Value:
    """Return operand number `index` as floating numbers, less its zero point."""
    if value is None:
        raise Unsuitable(f"{edits.call(new.node)}: operand {index} is missing")
    if value in floats:
        return value
    to = int(ir.DataType.FLOAT)
    made = new.op("Cast", value, to=to)
    if zero is None:
        return made
    less = new.op("Cast", zero, to=to)
    count = edits.rank_of(zero)
    if count and index == 1 and new.node.op_type == "ConvInteger":
        # One zero point for each output channel.
        rank = edits.rank_of(value)
        if rank is None:
            raise Unsuitable(f"{edits.call(new.node)}: it is not known how many axes its weights have")
        less = new.op("Reshape", less, new.constant([-1, *[1] * (rank - 1)], np.int64))
    elif count and index == 0:
        less = new.op("Reshape", less, new.constant([-1, 1], np.int64))
    return new.op("Sub", made, less)


def _qlinear(new: edits.Nodes) -> None:
    node = new.node
    left, left_scale, left_zero, right, right_scale, right_zero, scale, zero = (
        edits.taken(node, index) for index in range(8)
    )
    convolution = node.op_type == "QLinearConv"
    axis = 0 if convolution else 1
    first = new.op("DequantizeLinear", left, left_scale, left_zero)
    second = new.op(
        "DequantizeLinear", right, right_scale, right_zero, axis=axis if edits.rank_of(right_scale) else None
    )
    bias = []
    if convolution and edits.taken(node, 8) is not None:
        step = new.op("Mul", left_scale, right_scale)
        bias = [new.op("Mul", new.op("Cast", node.inputs[8], to=int(ir.DataType.FLOAT)), step)]
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    made = new.op(_QLINEAR[node.op_type], first, second, *bias, **attributes)
    new.replace(new.op("QuantizeLinear", made, scale, zero))


def _left(model: ir.Model) -> str:
    left = edits.nodes_of(model, "DynamicQuantizeLinear", *_PRODUCTS, *_QLINEAR)
    return f"{edits.call(left[0])} is left" if left else ""


REWRITES = (
    Rewrite(
        name="dequantize_dynamic",
        summary="dynamically quantised operators as floating ones, QLinear ones between quantisation and its inverse",
        requires=always,
        rewrite=_rewrite,
        ensures=_left,
        precision="int8",
    ),
)
