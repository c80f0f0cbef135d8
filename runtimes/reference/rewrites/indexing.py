"""Gathers, scatters, masks and samplings by the plain Gather, Where and arithmetic."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir

from runtimes.kit.tensors import Array
from runtimes.reference import edits
from runtimes.reference.expansion import (
    Graft,
    attribute,
    expansion,
    given,
    integers_of,
    open_shape,
    static,
    type_of,
)

ONE_HOT_MOST = 2**24
"""The most elements that the table of a one-hot scatter may have."""

DET_MOST = 4
"""The largest matrix whose determinant is written out."""


def _strides(shape: tuple[int, ...]) -> list[int]:
    return [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]


def gather_nd(graft: Graft, node: ir.Node) -> ir.Value:
    """Return what a GatherND of fixed shapes gives by a Gather of rows, its places in one axis, and Reshapes."""
    data, indices = given(node, 0), given(node, 1)
    shape, places = static(data), static(indices)
    batch, depth = attribute(node, "batch_dims", 0), places[-1]
    sizes, rest = shape[batch : batch + depth], shape[batch + depth :]
    count = int(np.prod(shape[:batch]))
    rows = graft.reshape(data, [count * int(np.prod(sizes)), *rest])
    # The first row of each place's part of the batch.
    each = np.arange(count) * int(np.prod(sizes))
    firsts = np.repeat(each, int(np.prod(places[batch:-1])))
    held = edits.constant_of(indices)
    if held is not None:
        flat = (np.where(held < 0, held + np.array(sizes), held) * np.array(_strides(sizes))).sum(-1)
        made = graft.op("Gather", rows, graft.constant(flat.reshape(-1) + firsts, np.int64), axis=0)
        return graft.reshape(made, [*places[:-1], *rest])
    # Every runtime counts in int32, few in int64.
    counted = graft.cast(graft.reshape(indices, [len(firsts), depth]), ir.DataType.INT32)
    wrapped = graft.op("Where", graft.op("Less", counted, 0), _plus(graft, counted, sizes), counted)
    steps = graft.op("Mul", wrapped, graft.constant(_strides(sizes), np.int32))
    flat_places = graft.reduce("ReduceSum", steps, [1], keep=False)
    if batch:
        flat_places = graft.op("Add", flat_places, graft.constant(firsts, np.int32))
    return graft.reshape(graft.op("Gather", rows, flat_places, axis=0), [*places[:-1], *rest])


def _plus(graft: Graft, value: ir.Value, sizes: tuple[int, ...]) -> ir.Value:
    return graft.op("Add", value, graft.constant(sizes, np.int32))


def _trilu(graft: Graft, node: ir.Node) -> ir.Value:
    value = given(node, 0)
    rows, columns = static(value)[-2:]
    offset = (integers_of(edits.taken(node, 1)) or [0])[0]
    corner = np.ones((rows, columns), dtype=np.bool_)
    kept = np.triu(corner, offset) if attribute(node, "upper", 1) else np.tril(corner, offset)
    # Not a product: what is cut off may be infinite, as in the masks of attention.
    return graft.op("Where", graft.constant(kept), value, graft.scalar(0, type_of(value)))


def _obstacle_of_trilu(node: ir.Node) -> str:
    offset = edits.taken(node, 1)
    if offset is not None and integers_of(offset) is None:
        return "its diagonal is no constant"
    return open_shape(node, 0)


def _det(graft: Graft, node: ir.Node) -> ir.Value:
    shape = static(given(node, 0))
    size, count = shape[-1], int(np.prod(shape[:-2]))
    flat = graft.reshape(given(node, 0), [count, size * size])
    cells = graft.split(flat, [1] * (size * size), 1)
    # The minors of the last rows, by the columns that they use, grown by a row at a time.
    minors: dict[tuple[int, ...], ir.Value] = {(column,): cells[(size - 1) * size + column] for column in range(size)}
    for row in range(size - 2, -1, -1):
        grown: dict[tuple[int, ...], ir.Value] = {}
        for columns in itertools.combinations(range(size), size - row):
            terms = [
                graft.op("Mul", cells[row * size + column], minors[columns[:place] + columns[place + 1 :]])
                for place, column in enumerate(columns)
            ]
            total = terms[0]
            for place, term in enumerate(terms[1:], 1):
                total = graft.op("Sub" if place % 2 else "Add", total, term)
            grown[columns] = total
        minors = grown
    return graft.reshape(minors[tuple(range(size))], shape[:-2])


def _obstacle_of_det(node: ir.Node) -> str:
    why = open_shape(node, 0)
    if not why and static(given(node, 0))[-1] > DET_MOST:
        return f"its matrix is larger than {DET_MOST} x {DET_MOST}"
    return why


def _wrapped(graft: Graft, indices: ir.Value, length: int) -> ir.Value:
    """Return indices with the negative ones counted from the front, as int32; a constant is done here and now."""
    held = edits.constant_of(indices)
    if held is not None:
        return graft.constant(np.where(held < 0, held + length, held), np.int32)
    counted = graft.cast(indices, ir.DataType.INT32)
    return graft.op("Where", graft.op("Less", counted, 0), graft.op("Add", counted, length), counted)


def _scatter(graft: Graft, node: ir.Node) -> ir.Value:
    data, indices, updates = (given(node, number) for number in range(3))
    shape, places = static(data), static(indices)
    axis = attribute(node, "axis", 0) % len(shape)
    length, count = shape[axis], places[axis]
    before, after = int(np.prod(shape[:axis])), int(np.prod(shape[axis + 1 :]))
    dtype, zero = type_of(data), graft.scalar(0, type_of(data))
    # A table with an axis for the places behind the axis of the updates: [before, updates, places, after].
    wanted = graft.reshape(_wrapped(graft, indices, length), [before, count, 1, after])
    numbers = graft.constant(np.arange(length).reshape(1, 1, length, 1), np.int32)
    here = graft.op("Equal", wanted, numbers)
    if attribute(node, "reduction", "none") == "none" and _may_repeat(indices, axis, length):
        here = _last_only(graft, here, dtype, count)
    given_there = graft.op("Where", here, graft.reshape(updates, [before, count, 1, after]), zero)
    total = graft.reduce("ReduceSum", given_there, [1], keep=False)
    old = graft.reshape(data, [before, length, after])
    if attribute(node, "reduction", "none") == "add":
        return graft.reshape(graft.op("Add", old, total), shape)
    touched = graft.op("Greater", graft.reduce("ReduceMax", graft.cast(here, dtype), [1], keep=False), zero)
    return graft.reshape(graft.op("Where", touched, total, old), shape)


def _may_repeat(indices: ir.Value, axis: int, length: int) -> bool:
    """Return whether two updates may go to one place; of indices that are no constant nobody knows."""
    held = edits.constant_of(indices)
    if held is None:
        return static(indices)[axis] > 1
    order = np.sort(np.where(held < 0, held + length, held), axis)
    return bool((np.diff(order, axis=axis) == 0).any())


def _last_only(graft: Graft, here: ir.Value, dtype: ir.DataType, count: int) -> ir.Value:
    """Return a table of places without those that a later update takes too: the last one counts, as in ONNX Runtime.

    Args:
        graft: the nodes.
        here: [before, updates, places, after], whether an update goes to a place.
        dtype: a type to count in.
        count: of updates, 2 or more.
    """
    kind = dtype if dtype.is_floating_point() else ir.DataType.INT32
    order = graft.constant(np.arange(1, count + 1).reshape(1, count, 1, 1), kind.numpy())
    ranks = graft.op("Where", here, order, graft.scalar(0, kind))
    last = graft.reduce("ReduceMax", ranks, [1])
    return graft.op("And", here, graft.op("Equal", ranks, last))


def _obstacle_of_scatter(node: ir.Node) -> str:
    why = open_shape(node, 0, 1)
    if why:
        return why
    shape, places = static(given(node, 0)), static(given(node, 1))
    axis = attribute(node, "axis", 0) % len(shape)
    if [*shape[:axis], *shape[axis + 1 :]] != [*places[:axis], *places[axis + 1 :]]:
        return f"its indices {places} do not cover the other axes of {shape}"
    if int(np.prod(places)) * shape[axis] > ONE_HOT_MOST:
        return f"its table would have {int(np.prod(places)) * shape[axis]} elements"
    reduction = attribute(node, "reduction", "none")
    if reduction not in {"none", "add"}:
        return f"its reduction is {reduction}"
    dtype = type_of(given(node, 0))
    return "" if dtype.is_floating_point() or dtype.name in {"INT32", "INT64"} else f"it scatters {dtype.name}"


def _rows_of(node: ir.Node) -> Array:
    """Return which row of the flat data each update of a ScatterND with constant indices goes to."""
    held = np.asarray(edits.constant_of(given(node, 1)))
    sizes = static(given(node, 0))[: held.shape[-1]]
    flat: Array = (np.where(held < 0, held + np.array(sizes), held) * np.array(_strides(sizes))).sum(-1).reshape(-1)
    return flat


def _scatter_nd(graft: Graft, node: ir.Node) -> ir.Value:
    data, updates = given(node, 0), given(node, 2)
    shape, depth = static(data), static(given(node, 1))[-1]
    row, rows = int(np.prod(shape[depth:])), int(np.prod(shape[:depth]))
    places = _rows_of(node)
    old = graft.reshape(data, [rows, row])
    new = graft.reshape(updates, [len(places), row])
    if attribute(node, "reduction", "none") == "add":
        source = np.full(rows, len(places))
        source[places] = np.arange(len(places))
        blank = graft.constant(np.zeros((1, row)), type_of(data).numpy())
        table = graft.op("Concat", new, blank, axis=0)
        more = graft.op("Gather", table, graft.integers(source.tolist()), axis=0)
        return graft.reshape(graft.op("Add", old, more), shape)
    source = np.arange(rows) + len(places)
    # Of two updates of one row the last counts, as numpy does it here.
    source[places] = np.arange(len(places))
    table = graft.op("Concat", new, old, axis=0)
    return graft.reshape(graft.op("Gather", table, graft.integers(source.tolist()), axis=0), shape)


def _obstacle_of_scatter_nd(node: ir.Node) -> str:
    why = open_shape(node, 0, 1)
    if why:
        return why
    if edits.constant_of(given(node, 1)) is None:
        return "its indices are no constant"
    flat, reduction = _rows_of(node), attribute(node, "reduction", "none")
    if reduction == "add" and len(set(flat.tolist())) != len(flat):
        return "it adds twice to one place"
    return "" if reduction in {"none", "add"} else f"its reduction is {reduction}"


REWRITES = (
    expansion(
        name="gather_nd_to_gather",
        summary="GatherND by a Gather from flat data",
        ops=["GatherND"],
        build=gather_nd,
        obstacle=lambda node: open_shape(node, 0, 1),
    ),
    expansion(
        name="trilu_to_mask",
        summary="Trilu by Where and a constant mask",
        ops=["Trilu"],
        build=_trilu,
        obstacle=_obstacle_of_trilu,
    ),
    expansion(
        name="det_to_arithmetic",
        summary=f"Det of matrices up to {DET_MOST} x {DET_MOST} by Split, Mul, Add and Sub",
        ops=["Det"],
        build=_det,
        obstacle=_obstacle_of_det,
    ),
    expansion(
        name="scatter_elements_to_onehot",
        summary="ScatterElements by Equal, Where and ReduceSum",
        ops=["ScatterElements"],
        build=_scatter,
        obstacle=_obstacle_of_scatter,
    ),
    expansion(
        name="scatter_nd_to_gather",
        summary="ScatterND at constant places by Concat and Gather",
        ops=["ScatterND"],
        build=_scatter_nd,
        obstacle=_obstacle_of_scatter_nd,
    ),
)
