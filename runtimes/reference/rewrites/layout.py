"""Tensors of more than five axes, by neighbouring axes taken as one: many runtimes stop at rank 4 or 5.

An operator that leaves an axis alone does the same on that axis and its neighbour taken as one. Each such operator is
put between two Reshapes, and Reshapes that follow each other become one, so that the tensors of high rank go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from runtimes.reference import edits
from runtimes.reference.expansion import (
    Graft,
    attribute,
    axes_of,
    expansion,
    given,
    integers_of,
    sizes_of,
    static,
)
from runtimes.reference.rewrites import Given, Rewrite
from runtimes.reference.rewrites.indexing import gather_nd

MOST = 5
"""The highest rank that every runtime takes."""

RESHAPES = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")
ONE_BY_ONE = (
    *("Abs", "Add", "And", "Cast", "Ceil", "Clip", "Cos", "Div", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu"),
    *("Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual"),
    *("Log", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign"),
    *("Sin", "Softplus", "Sqrt", "Sub", "Tanh", "Where"),
)
"""Operators of single elements, with or without broadcasting."""

REDUCTIONS = ("ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")
ALONG_ONE = ("Concat", "Gather", "LogSoftmax", "Softmax", "Split")

Groups = list[list[int]]
"""Axes by the axis that they become, in order; an axis of size 1 may be in none."""


def _group(count: int, joins: Callable[[int, int], bool], drops: Callable[[int], bool]) -> Groups:
    """Return neighbouring axes of `count` together where `joins` says so, without those that `drops` names."""
    kept = [axis for axis in range(count) if not drops(axis)]
    groups: Groups = [[kept[0]]] if kept else []
    for last, axis in pairwise(kept):
        if joins(last, axis):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


def _sizes(shape: Sequence[int], groups: Groups) -> list[int]:
    return [prod(shape[axis] for axis in group) for group in groups]


def _apart(shape: Sequence[int], axes: Sequence[int]) -> Groups:
    """Return groups in which each of `axes` is alone."""
    return _group(
        len(shape),
        lambda last, axis: last not in axes and axis not in axes,
        lambda axis: shape[axis] == 1 and axis not in axes,
    )


def _place(groups: Groups, axis: int) -> int:
    return next(index for index, group in enumerate(groups) if axis in group)


def _order_groups(shape: Sequence[int], order: Sequence[int]) -> Groups:
    """Return groups of input axes that stay together when they are put in `order`; sizes of 1 are in none."""
    moved = [axis for axis in order if shape[axis] != 1]
    follows = set(pairwise(moved))
    return _group(len(shape), lambda last, axis: (last, axis) in follows, lambda axis: shape[axis] == 1)


def _transpose(graft: Graft, node: ir.Node) -> ir.Value:
    value, shape = given(node, 0), static(given(node, 0))
    order = list(attribute(node, "perm", range(len(shape))[::-1]))
    groups = _order_groups(shape, order)
    wanted = sorted(range(len(groups)), key=lambda index: order.index(groups[index][0]))
    sizes = _sizes(shape, groups)
    now = list(range(len(groups)))
    if len(groups) <= MOST:
        value = graft.transpose(graft.reshape(value, sizes or [1]), wanted)
        return graft.reshape(value, [shape[axis] for axis in order])
    # One group after the other goes to its place: what is before it, what it jumps over, itself, what is behind it.
    for place, group in enumerate(wanted):
        found = now.index(group)
        if found != place:
            parts = (now[:place], now[place:found], [group], now[found + 1 :])
            rows = [prod(sizes[each] for each in part) for part in parts]
            value = graft.transpose(graft.reshape(value, rows), [0, 2, 1, 3])
            now.insert(place, now.pop(found))
    return graft.reshape(value, [shape[axis] for axis in order])


def _reduce_groups(node: ir.Node) -> Groups:
    shape, axes = static(given(node, 0)), axes_of(node) or []
    return _group(
        len(shape),
        lambda last, axis: (last in axes) == (axis in axes),
        lambda axis: shape[axis] == 1 and axis not in axes,
    )


def _reduce(graft: Graft, node: ir.Node) -> ir.Value:
    value, axes = given(node, 0), axes_of(node) or []
    groups = _reduce_groups(node)
    over = [index for index, group in enumerate(groups) if group[0] in axes]
    flat = graft.reshape(value, _sizes(static(value), groups))
    return graft.reshape(graft.reduce(node.op_type, flat, over), static(node.outputs[0]))


def _padded(value: ir.Value, rank: int) -> tuple[int, ...]:
    shape = static(value)
    return (*[1] * (rank - len(shape)), *shape)


def _broadcast_groups(shapes: Sequence[Sequence[int]]) -> Groups:
    """Return groups of axes over which each of `shapes`, all of one rank, is spread out, or none is."""
    together = [max(sizes) for sizes in zip(*shapes, strict=True)]

    def joins(last: int, axis: int) -> bool:
        return all((shape[last] == 1) == (shape[axis] == 1) for shape in shapes)

    return _group(len(together), joins, lambda axis: together[axis] == 1)


def _one_by_one_groups(node: ir.Node) -> Groups:
    rank = len(static(node.outputs[0]))
    return _broadcast_groups([_padded(value, rank) for value in node.inputs if value is not None])


def _one_by_one(graft: Graft, node: ir.Node) -> ir.Value:
    shape = static(node.outputs[0])
    groups = _one_by_one_groups(node)
    flat = [
        # A lone number stays as it is: Clip wants its bounds so.
        value
        if value is None or not static(value)
        else graft.reshape(value, _sizes(_padded(value, len(shape)), groups))
        for value in node.inputs
    ]
    kept = {name: each.value for name, each in node.attributes.items()}
    return graft.reshape(graft.op(node.op_type, *flat, **kept), shape)


def _axis(node: ir.Node) -> int:
    default = 0 if node.op_type in {"Gather", "Split"} else -1
    return int(attribute(node, "axis", default)) % len(static(given(node, 0)))


def _along_groups(node: ir.Node) -> Groups:
    shape = list(static(given(node, 0)))
    return _apart(shape, [_axis(node)])


def _in_a_row(graft: Graft, indices: ir.Value) -> ir.Value:
    return graft.reshape(indices, [prod(static(indices))])


def _along(graft: Graft, node: ir.Node) -> list[ir.Value | None]:
    shape, axis, groups = static(given(node, 0)), _axis(node), _along_groups(node)
    place = _place(groups, axis)
    if node.op_type == "Gather":
        flat = graft.reshape(given(node, 0), _sizes(shape, groups))
        # The axes of its indices count as well: they are put in a row.
        made: Sequence[ir.Value] = [graft.op("Gather", flat, _in_a_row(graft, given(node, 1)), axis=place)]
    elif node.op_type == "Split":
        flat = graft.reshape(given(node, 0), _sizes(shape, groups))
        made = graft.split(flat, [static(value)[axis] for value in node.outputs], place)
    elif node.op_type == "Concat":
        values = [value for value in node.inputs if value is not None]
        made = [graft.op("Concat", *(graft.reshape(each, _sizes(static(each), groups)) for each in values), axis=place)]
    else:
        # Before opset 13 a Softmax is over all the axes from its own on: then its own is made the last of two.
        if graft.opset < 13:
            groups, place = [list(range(axis)), list(range(axis, len(shape)))], 1
        made = [graft.op(node.op_type, graft.reshape(given(node, 0), _sizes(shape, groups)), axis=place)]
    return [graft.reshape(each, static(old)) for each, old in zip(made, node.outputs, strict=True)]


def _gather_nd_groups(node: ir.Node) -> Groups:
    """Return the axes of the rows that it gathers from: all that is indexed is one of them."""
    first = int(attribute(node, "batch_dims", 0)) + static(given(node, 1))[-1]
    rank = len(static(given(node, 0)))
    return [list(range(first)), *([axis] for axis in range(first, rank))]


def _slice_parts(node: ir.Node) -> tuple[list[list[int] | None], list[int] | None]:
    parts = [integers_of(edits.taken(node, number)) for number in range(1, 5)]
    rank = len(static(given(node, 0)))
    if parts[0] is None or parts[1] is None:
        return parts, None
    axes = parts[2] if edits.taken(node, 3) is not None else list(range(len(parts[0])))
    return parts, None if axes is None else [axis % rank for axis in axes]


def _slice_groups(node: ir.Node) -> Groups:
    return _apart(static(given(node, 0)), _slice_parts(node)[1] or [])


def _slice(graft: Graft, node: ir.Node) -> ir.Value:
    groups, (parts, axes) = _slice_groups(node), _slice_parts(node)
    flat = graft.reshape(given(node, 0), _sizes(static(given(node, 0)), groups))
    starts, ends, _, steps = parts
    places = [_place(groups, axis) for axis in axes or []]
    numbers = [starts or [], ends or [], places, steps or [1] * len(places)]
    made = graft.op("Slice", flat, *(graft.integers(each) for each in numbers))
    return graft.reshape(made, static(node.outputs[0]))


def _expand_groups(node: ir.Node) -> Groups:
    shape = static(node.outputs[0])
    return _broadcast_groups([_padded(given(node, 0), len(shape)), shape])


def _expand(graft: Graft, node: ir.Node) -> ir.Value:
    shape, groups = static(node.outputs[0]), _expand_groups(node)
    flat = graft.reshape(given(node, 0), _sizes(_padded(given(node, 0), len(shape)), groups) or [1])
    return graft.reshape(graft.op("Expand", flat, graft.integers(_sizes(shape, groups) or [1])), shape)


def _batches(node: ir.Node) -> tuple[list[tuple[int, ...]], Groups]:
    shapes = [static(value) for value in node.inputs]
    rank = max(map(len, shapes))
    batches = [_padded(value, rank)[:-2] for value in node.inputs if value is not None]
    return batches, _broadcast_groups(batches)


def _matmul(graft: Graft, node: ir.Node) -> ir.Value:
    left, right = given(node, 0), given(node, 1)
    batches, groups = _batches(node)
    shape = static(node.outputs[0])
    if prod(batches[1]) == 1 and not any(batch > 1 for batch in batches[1]):
        # One matrix for all: then the rows of all batches are rows of one matrix.
        rows = graft.reshape(left, [prod(static(left)[:-1]), static(left)[-1]])
        return graft.reshape(graft.op("MatMul", rows, graft.reshape(right, static(right)[-2:])), shape)
    flat = [
        graft.reshape(value, [*_sizes(batch, groups), *static(value)[-2:]])
        for value, batch in zip((left, right), batches, strict=True)
    ]
    return graft.reshape(graft.op("MatMul", *flat), shape)


def _matmul_groups(node: ir.Node) -> Groups:
    batches, groups = _batches(node)
    if prod(batches[1]) == 1:
        return []
    return [*groups, [-2], [-1]]


def _no_groups(_node: ir.Node) -> Groups:
    return []


SPLITS: dict[str, tuple[Callable[[Graft, ir.Node], ir.Value | Sequence[ir.Value | None]], Callable[[ir.Node], Groups]]]
SPLITS = {
    **dict.fromkeys(ONE_BY_ONE, (_one_by_one, _one_by_one_groups)),
    **dict.fromkeys(REDUCTIONS, (_reduce, _reduce_groups)),
    **dict.fromkeys(ALONG_ONE, (_along, _along_groups)),
    "Expand": (_expand, _expand_groups),
    "GatherND": (gather_nd, _gather_nd_groups),
    "MatMul": (_matmul, _matmul_groups),
    "Slice": (_slice, _slice_groups),
    "Transpose": (_transpose, _no_groups),
}
"""By op type: what does it on fewer axes, and which axes those are."""


def _high(node: ir.Node) -> bool:
    return any((edits.rank_of(value) or 0) > MOST for value in (*node.inputs, *node.outputs))


def _obstacle(node: ir.Node) -> str:
    for value in (*node.inputs, *node.outputs):
        if value is not None and (value.name or value.uses()) and sizes_of(value) is None:
            return f"the shape of {value.name} is not known, or holds a 0"
    if node.op_type in REDUCTIONS and not axes_of(node):
        return "its axes are no constant, or it has none"
    if node.op_type == "Slice" and (
        _slice_parts(node)[1] is None or (edits.taken(node, 4) is not None and _slice_parts(node)[0][3] is None)
    ):
        return "its bounds are no constant"
    if node.op_type == "MatMul" and min(len(static(value)) for value in node.inputs) < 2:
        return "it multiplies with a vector"
    count = len(SPLITS[node.op_type][1](node))
    return f"{count} axes are left" if count > MOST else ""


_SINGLE = expansion(
    name="split_rank",
    summary=f"operators on more than {MOST} axes by the same on fewer, and Reshapes",
    ops=list(SPLITS),
    picks=_high,
    build=lambda graft, node: SPLITS[node.op_type][0](graft, node),
    obstacle=_obstacle,
)


def _source(node: ir.Node) -> ir.Value | None:
    """Return what a row of Reshapes through tensors of high rank starts from, or None where there is no such row."""
    value = node.inputs[0]
    found = None
    while value is not None and (edits.rank_of(value) or 0) > MOST:
        producer = value.producer()
        if producer is None or producer.op_type not in RESHAPES or not edits.is_own(producer):
            break
        found = value = producer.inputs[0]
    return found


def _shorten(model: ir.Model) -> None:
    """Let every Reshape of a tensor of high rank that a Reshape made start from what that one started from."""
    shortened = False
    for node in edits.nodes_of(model, *RESHAPES):
        source = _source(node)
        shape = sizes_of(node.outputs[0])
        if source is not None and shape is not None:
            graft = Graft(node, edits.opset_of(model))
            made = graft.op("Reshape", source, graft.integers(shape))
            made.shape = ir.Shape(shape)
            graft.replace(made)
            shortened = True
    if shortened:
        RemoveUnusedNodesPass()(model)


def _rewrite(model: ir.Model, options: Given) -> list[str]:
    before = edits.nodes_of(model)
    _SINGLE.rewrite(model, options)
    _shorten(model)
    left = {id(node) for node in edits.nodes_of(model)}
    return [node.name or edits.call(node) for node in before if id(node) not in left]


REWRITES = (
    Rewrite(
        name="split_rank",
        summary=_SINGLE.summary,
        requires=_SINGLE.requires,
        rewrite=_rewrite,
        ensures=_SINGLE.ensures,
    ),
)
