"""Nodes that can see their axes in another order: which they are, and the same node with its axes in that order.

An order is Transpose's `perm`: axis `i` of what it gives is axis `order[i]` of what it takes. A node that is turned by
an order takes what stands before such a Transpose, and a Transpose behind it gives what it gave.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from runtimes.reference import edits
from runtimes.reference.expansion import Graft, attribute, axes_of, given, integers_of
from runtimes.reference.rewrites.layout import ONE_BY_ONE, REDUCTIONS

Order = tuple[int, ...]

ELEMENTWISE = frozenset({*ONE_BY_ONE, "Celu", "Identity", "Mish", "PRelu", "Selu", "Softsign", "ThresholdedRelu"})
BEST = frozenset({"ArgMax", "ArgMin"})
ALONG = {"Concat": 0, "LogSoftmax": -1, "Softmax": -1, "Split": 0}
"""Operators along one axis, with the axis that they take where none is written."""
SOFTMAX_OPSET = 13
"""Before it, Softmax was over all axes from its own on."""
AXES_AT = {"Pad": 3, "Slice": 3}
"""Which input lists axes; of reductions it is number 1."""


def inverse(order: Order) -> Order:
    """Return the order that takes `order` back."""
    return tuple(int(axis) for axis in np.argsort(order))


def chain(*orders: Order) -> Order:
    """Return one order for several Transposes, one behind the other."""
    made = orders[0]
    for each in orders[1:]:
        made = tuple(made[axis] for axis in each)
    return made


def is_plain(order: Order) -> bool:
    """Return whether an order leaves every axis where it is."""
    return order == tuple(range(len(order)))


def order_of(node: ir.Node | None) -> Order | None:
    """Return the order of a Transpose; None for another node, and where the rank is not known."""
    if node is None or node.op_type != "Transpose" or not edits.is_own(node):
        return None
    rank = edits.rank_of(given(node, 0))
    return None if rank is None else tuple(attribute(node, "perm", range(rank)[::-1]))


def flows(node: ir.Node) -> list[ir.Value]:
    """Return what a node takes that has the axes of what it gives: no constants, no sizes, nothing that is spread."""
    values = list(dict.fromkeys(value for value in node.inputs if value is not None and not _is_constant(value)))
    if node.op_type in ELEMENTWISE:
        return [value for value in values if edits.rank_of(value) == edits.rank_of(node.outputs[0])]
    return values if node.op_type == "Concat" else [value for value in values if value is node.inputs[0]]


def keeps_rank(node: ir.Node) -> bool:
    """Return whether a node gives as many axes as it takes."""
    return node.op_type not in {*REDUCTIONS, *BEST} or bool(attribute(node, "keepdims", 1))


def takes(node: ir.Node, order: Order, opset: int) -> bool:
    """Return whether a node can be turned by `order`."""
    taken = flows(node) if edits.is_own(node) else []
    if not taken or edits.rank_of(taken[0]) != len(order):
        return False
    kind = node.op_type
    if kind in ELEMENTWISE:
        return all(value is None or value in taken or _spreads(value) for value in node.inputs)
    if kind in ALONG:
        return not kind.endswith("Softmax") or opset >= SOFTMAX_OPSET
    if kind in {*REDUCTIONS, *BEST}:
        axes = _axes(node, len(order))
        left = [order[axis] for axis in range(len(order)) if axis not in (axes or ())]
        return axes is not None and (keeps_rank(node) or left == sorted(left))
    if kind in AXES_AT:
        return opset >= 11 and _axes(node, len(order)) is not None and (kind == "Slice" or _is_constant_at(node, 1))
    return kind == "Resize" and opset >= 11 and _resizes(node)


def turn(graft: Graft, order: Order, turned: dict[ir.Value, ir.Value]) -> None:
    """Put the node of `graft`, turned by `order`, and Transposes behind it in its place.

    Args:
        graft: around a node that takes `order`.
        order: the Transpose that stands behind it then.
        turned: by value what stands before such a Transpose, as far as there is one; what is made comes to it.
    """
    node, back = graft.node, inverse(order)
    for value in flows(node):
        if value not in turned:
            turned[value] = _transposed(graft, value, back)
    inputs = [None if value is None else turned.get(value, value) for value in node.inputs]
    if node.op_type in {*ELEMENTWISE, "Concat"}:
        inputs = [_spread(graft, value, back) for value in inputs]
    attributes: dict[str, Any] = {each.name: each.value for each in node.attributes.values()}
    _rename_axes(graft, inputs, attributes, order)
    made = graft.ops(node.op_type, *inputs, count=len(node.outputs), **attributes)
    name = node.name
    for value, old in zip(made, node.outputs, strict=True):
        value.type, value.shape = old.type, old.shape
        if keeps_rank(node) and old.shape is not None:
            value.shape = ir.Shape([old.shape[axis] for axis in back])
    behind = [_transposed(graft, value, order) for value in made] if keeps_rank(node) else made
    graft.replace(*behind)
    graft.made[-1 - len(behind) if keeps_rank(node) else -1].name = name
    if keeps_rank(node):
        turned.update(zip(behind, made, strict=True))


def _rename_axes(graft: Graft, inputs: list[ir.Value | None], attributes: dict[str, Any], order: Order) -> None:
    """Write the axes that a node names, or has numbers for, as they are before `order`."""
    node, rank = graft.node, len(order)
    if node.op_type in {*ALONG, *BEST}:
        attributes["axis"] = order[attribute(node, "axis", ALONG.get(node.op_type, 0)) % rank]
    elif node.op_type in {*REDUCTIONS, *AXES_AT}:
        axes, at = [order[axis] for axis in _axes(node, rank) or ()], AXES_AT.get(node.op_type, 1)
        if node.op_type == "Pad" and edits.taken(node, at) is None:
            inputs[1] = _sorted(graft, inputs[1], order)
        elif node.op_type in REDUCTIONS and "axes" in attributes:
            attributes["axes"] = axes
        elif axes and not (node.op_type in REDUCTIONS and edits.taken(node, at) is None):
            inputs += [None] * (at + 1 - len(inputs))
            starts = given(node, 1).dtype
            inputs[at] = graft.constant(axes, np.int64 if starts is None or at == 1 else starts.numpy())
    elif node.op_type == "Resize":
        inputs[1:] = [_sorted(graft, value, order) for value in inputs[1:]]


def _sorted(graft: Graft, value: ir.Value | None, order: Order) -> ir.Value | None:
    """Return numbers for each axis (once, or all their starts and then all their ends) in the order before `order`."""
    held = edits.constant_of(value)
    if value is None or held is None or not held.size:
        return value
    return graft.constant(held.reshape(-1, len(order))[:, list(inverse(order))].reshape(-1))


def _axes(node: ir.Node, rank: int) -> list[int] | None:
    """Return the axes that a reduction, Pad or Slice names, or means; None where they are no constants."""
    if node.op_type in BEST:
        return [attribute(node, "axis", 0) % rank]
    if node.op_type in REDUCTIONS:
        return axes_of(node)
    value = edits.taken(node, AXES_AT[node.op_type])
    if value is not None:
        axes = integers_of(value)
        return None if axes is None else [axis % rank for axis in axes]
    starts = edits.shape_of(given(node, 1))
    return list(range(rank)) if node.op_type == "Pad" else None if starts is None else list(range(starts[0]))


def _resizes(node: ir.Node) -> bool:
    """Return whether all that depends on axes are constants."""
    constants = (value is None or _is_constant(value) for value in node.inputs[1:])
    return "axes" not in node.attributes and all(constants)


def _is_constant(value: ir.Value | None) -> bool:
    return edits.constant_of(value) is not None


def _is_constant_at(node: ir.Node, index: int) -> bool:
    return _is_constant(edits.taken(node, index))


def _spreads(value: ir.Value) -> bool:
    """Return whether a value is one number, or a constant."""
    sizes = edits.shape_of(value)
    return _is_constant(value) or (sizes is not None and int(np.prod(sizes)) == 1)


def _spread(graft: Graft, value: ir.Value | None, back: Order) -> ir.Value | None:
    """Return a constant with all its axes, turned; one number, and what is no constant, as it is."""
    held = edits.constant_of(value)
    if value is None or held is None or (held.size == 1 and held.ndim < len(back)):
        return value
    return graft.constant(
        np.ascontiguousarray(held.reshape((1,) * (len(back) - held.ndim) + held.shape).transpose(back))
    )


def _transposed(graft: Graft, value: ir.Value, order: Sequence[int]) -> ir.Value:
    made = graft.op("Transpose", value, perm=list(order))
    made.type = value.type
    made.shape = None if value.shape is None else ir.Shape([value.shape[axis] for axis in order])
    return made
