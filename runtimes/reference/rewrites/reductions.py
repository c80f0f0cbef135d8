"""Reductions that runtimes lack or run in the wrong place, by others that they have."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import onnx_ir as ir

from runtimes.reference import edits
from runtimes.reference.expansion import (
    Graft,
    attribute,
    axes_of,
    expansion,
    given,
    integers_of,
    open_shape,
    sizes_of,
    static,
    type_of,
)

SPLIT_MOST = 8
"""How many pieces a reduction is split into at most: every piece is a node."""

MATRIX_MOST = 4096
"""The longest axis whose running sum becomes a product with a matrix, of that number squared."""


def _find(graft: Graft, node: ir.Node) -> ir.Value:
    """Return ArgMax or ArgMin: the least (or last) of the places where the value is that of ReduceMax or ReduceMin."""
    value, shape = given(node, 0), static(given(node, 0))
    axis = attribute(node, "axis", 0) % len(shape)
    length, last = shape[axis], attribute(node, "select_last_index", 0)
    best = graft.reduce("ReduceMax" if node.op_type == "ArgMax" else "ReduceMin", value, [axis])
    places = np.arange(length, dtype=np.float32).reshape([length, *[1] * (len(shape) - axis - 1)])
    # Counted from the end that is asked for, so that the greatest is wanted and 0 stands for "not here".
    marks = graft.constant(places + 1 if last else length - places)
    here = graft.op("Where", graft.op("Equal", value, best), marks, graft.constant(0, np.float32))
    found = graft.reduce("ReduceMax", here, [axis], keep=bool(attribute(node, "keepdims", 1)))
    place = graft.op("Sub", found, 1.0) if last else graft.op("Add", graft.op("Neg", found), float(length))
    return graft.op("Cast", place, to=int(ir.DataType.INT64))


def _obstacle_of_find(node: ir.Node) -> str:
    why = open_shape(node, 0)
    if not why and static(given(node, 0))[attribute(node, "axis", 0)] > 2**24:
        return "its axis is longer than float32 counts"
    return why


def _pieces(graft: Graft, node: ir.Node) -> list[ir.Value]:
    """Return the pieces of size 1 along the reduced axes, all of the rank of the input."""
    value, axes = given(node, 0), axes_of(node) or []
    pieces = [value]
    for axis in axes:
        length = static(given(node, 0))[axis]
        pieces = [part for piece in pieces for part in graft.split(piece, [1] * length, axis)]
    return pieces


def _shape_behind(node: ir.Node) -> list[int]:
    axes = axes_of(node) or []
    keep = attribute(node, "keepdims", 1)
    sizes = enumerate(static(given(node, 0)))
    return [1 if axis in axes else size for axis, size in sizes if keep or axis not in axes]


def _split_max(graft: Graft, node: ir.Node) -> ir.Value:
    most = graft.op("Max", *_pieces(graft, node))
    return graft.reshape(most, _shape_behind(node)) if not attribute(node, "keepdims", 1) else most


def _split_product(graft: Graft, node: ir.Node) -> ir.Value:
    total = reduce(lambda left, right: graft.op("Mul", left, right), _pieces(graft, node))
    return graft.reshape(total, _shape_behind(node)) if not attribute(node, "keepdims", 1) else total


def _count(node: ir.Node) -> int:
    """Return how many elements each reduction is over, 0 where that is not known."""
    shape, axes = sizes_of(given(node, 0)), axes_of(node)
    if shape is None or not axes:
        return 0
    return int(np.prod([shape[axis] for axis in axes]))


def _sum(graft: Graft, node: ir.Node, value: ir.Value) -> ir.Value:
    return graft.reduce("ReduceSum", value, axes_of(node) or [], keep=bool(attribute(node, "keepdims", 1)))


def _square(graft: Graft, node: ir.Node) -> ir.Value:
    return graft.op("Mul", given(node, 0), given(node, 0))


def _log_sum_exp(graft: Graft, node: ir.Node) -> ir.Value:
    value, axes = given(node, 0), axes_of(node) or []
    keep = bool(attribute(node, "keepdims", 1))
    # The clip keeps a row of infinities from becoming inf - inf.
    most = float(np.finfo(type_of(value).numpy()).max)
    top = graft.op("Clip", graft.reduce("ReduceMax", value, axes), -most, most)
    total = graft.reduce("ReduceSum", graft.op("Exp", graft.op("Sub", value, top)), axes)
    made = graft.op("Add", graft.op("Log", total), top)
    return made if keep else graft.reshape(made, _shape_behind(node))


FORMULAS: dict[str, Callable[[Graft, ir.Node], ir.Value]] = {
    "ReduceL1": lambda graft, node: _sum(graft, node, graft.op("Abs", given(node, 0))),
    "ReduceL2": lambda graft, node: graft.op("Sqrt", _sum(graft, node, _square(graft, node))),
    "ReduceLogSum": lambda graft, node: graft.op("Log", _sum(graft, node, given(node, 0))),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceProd": _split_product,
    "ReduceSumSquare": lambda graft, node: _sum(graft, node, _square(graft, node)),
}


def _obstacle(node: ir.Node) -> str:
    axes = axes_of(node)
    if axes is None:
        return "its axes are no constant, or the rank of its input is not known"
    if not axes:
        return "it reduces nothing"
    if not type_of(given(node, 0)).is_floating_point():
        return "it is over integers"
    if node.op_type == "ReduceLogSumExp" and not attribute(node, "keepdims", 1):
        return open_shape(node, 0)
    if node.op_type == "ReduceProd":
        return open_shape(node, 0) or ("" if _count(node) <= 64 else f"it multiplies {_count(node)} elements")
    return ""


def _running_sum(graft: Graft, node: ir.Node) -> ir.Value:
    value, shape = given(node, 0), static(given(node, 0))
    axis = (integers_of(given(node, 1)) or [0])[0] % len(shape)
    length = shape[axis]
    # Row i of the product sums the elements up to i: below the diagonal, and on it unless that is excluded.
    table = np.tril(np.ones((length, length)), -attribute(node, "exclusive", 0))
    if attribute(node, "reverse", 0):
        table = table.T
    rows = graft.reshape(value, [int(np.prod(shape[:axis])), length, int(np.prod(shape[axis + 1 :]))])
    matrix = graft.constant(table, type_of(value).numpy())
    return graft.reshape(graft.op("MatMul", matrix, rows), shape)


def _obstacle_of_running_sum(node: ir.Node) -> str:
    why = open_shape(node, 0)
    axis = integers_of(edits.taken(node, 1))
    if why or axis is None:
        return why or "its axis is no constant"
    length = static(given(node, 0))[axis[0]]
    return "" if length <= MATRIX_MOST else f"its axis has {length} elements, more than {MATRIX_MOST}"


REWRITES = (
    expansion(
        name="argmax_to_compare",
        summary="ArgMax and ArgMin by ReduceMax or ReduceMin, Equal, Where and a second ReduceMax",
        ops=["ArgMax", "ArgMin"],
        build=_find,
        obstacle=_obstacle_of_find,
    ),
    expansion(
        name="split_reduce_max",
        summary=f"ReduceMax over at most {SPLIT_MOST} elements by Split and Max",
        ops=["ReduceMax"],
        picks=lambda node: 1 < _count(node) <= SPLIT_MOST,
        build=_split_max,
    ),
    expansion(
        name="decompose_reduction",
        summary="ReduceL1, L2, LogSum, LogSumExp, Prod and SumSquare by ReduceSum, ReduceMax, Split and arithmetic",
        ops=list(FORMULAS),
        build=lambda graft, node: FORMULAS[node.op_type](graft, node),
        obstacle=_obstacle,
    ),
    expansion(
        name="cumsum_to_matmul",
        summary="CumSum by a product with a triangle of ones; of finite numbers",
        ops=["CumSum"],
        build=_running_sum,
        obstacle=_obstacle_of_running_sum,
    ),
)
