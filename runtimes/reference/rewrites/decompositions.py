"""Normalisations by ReduceMean and arithmetic."""

from __future__ import annotations

import onnx_ir as ir

from runtimes.reference import edits
from runtimes.reference.expansion import (
    Graft,
    attribute,
    expansion,
    given,
    open_shape,
    static,
    used,
)


def _centred(graft: Graft, value: ir.Value, axes: list[int]) -> ir.Value:
    return graft.op("Sub", value, graft.reduce("ReduceMean", value, axes))


def _scaled(graft: Graft, value: ir.Value, axes: list[int], epsilon: float) -> ir.Value:
    """Return `value` over the root of the mean of its squares."""
    power = graft.reduce("ReduceMean", graft.op("Mul", value, value), axes)
    return graft.op("Div", value, graft.op("Sqrt", graft.op("Add", power, epsilon)))


def _axes(node: ir.Node) -> list[int]:
    rank = len(static(given(node, 0)))
    return list(range(attribute(node, "axis", -1) % rank, rank))


def _over_several(node: ir.Node) -> bool:
    rank = edits.rank_of(given(node, 0))
    return rank is not None and attribute(node, "axis", -1) % rank < rank - 1


def _affine(graft: Graft, value: ir.Value, scale: ir.Value, bias: ir.Value | None) -> ir.Value:
    product = graft.op("Mul", value, scale)
    return product if bias is None else graft.op("Add", product, bias)


def _stash(graft: Graft, node: ir.Node) -> tuple[ir.Value, bool]:
    """Return the input in the type that the statistics are asked in, and whether that is another one."""
    value, wanted = given(node, 0), attribute(node, "stash_type", 1)
    widened = value.dtype is not None and wanted == 1 and value.dtype.name in {"FLOAT16", "BFLOAT16"}
    return (graft.op("Cast", value, to=1), True) if widened else (value, False)


def _layer_norm(graft: Graft, node: ir.Node) -> list[ir.Value | None]:
    axes = _axes(node)
    value, widened = _stash(graft, node)
    result = _scaled(graft, _centred(graft, value, axes), axes, attribute(node, "epsilon", 1e-5))
    if widened:
        result = graft.op("Cast", result, to=int(given(node, 0).dtype or 1))
    return [_affine(graft, result, given(node, 1), edits.taken(node, 2)), *[None] * (len(node.outputs) - 1)]


def _flat_layer_norm(graft: Graft, node: ir.Node) -> list[ir.Value | None]:
    value, axes = given(node, 0), _axes(node)
    shape = static(value)
    sizes = shape[axes[0] :]
    length = 1
    for size in sizes:
        length *= size
    flat = graft.reshape(value, [*shape[: axes[0]], length])
    factors = [graft.reshape(each, [length]) for each in node.inputs[1:] if each is not None]
    kept = {name: attribute(node, name, None) for name in ("epsilon", "stash_type")}
    made = graft.op("LayerNormalization", flat, *factors, axis=-1, **kept)
    return [graft.reshape(made, shape), *[None] * (len(node.outputs) - 1)]


def _obstacle_of_layer_norm(node: ir.Node) -> str:
    if used(node, 1) or used(node, 2):
        return "its mean or its deviation is used, as in training"
    if edits.rank_of(given(node, 0)) is None:
        return "the rank of its input is not known"
    return open_shape(node, 0)


def _obstacle_of_flat(node: ir.Node) -> str:
    why = _obstacle_of_layer_norm(node) or open_shape(node, 1, 2)
    if why:
        return why
    sizes = static(given(node, 0))[_axes(node)[0] :]
    narrow = [each.name for each in node.inputs[1:] if each is not None and static(each) != sizes]
    return f"{narrow[0]} has another shape than what is normalised" if narrow else ""


def _rms_norm(graft: Graft, node: ir.Node) -> ir.Value:
    value, widened = _stash(graft, node)
    result = _scaled(graft, value, _axes(node), attribute(node, "epsilon", 1e-5))
    if widened:
        result = graft.op("Cast", result, to=int(given(node, 0).dtype or 1))
    return graft.op("Mul", result, given(node, 1))


def _per_channel(graft: Graft, node: ir.Node, value: ir.Value) -> ir.Value:
    """Return scale · value + bias, both given for each channel."""
    shape = static(given(node, 0))
    spread = [shape[1], *[1] * (len(shape) - 2)]
    return _affine(graft, value, *(graft.reshape(given(node, number), spread) for number in (1, 2)))


def _instance_norm(graft: Graft, node: ir.Node) -> ir.Value:
    value = given(node, 0)
    axes = list(range(2, len(static(value))))
    made = _scaled(graft, _centred(graft, value, axes), axes, attribute(node, "epsilon", 1e-5))
    return _per_channel(graft, node, made)


def _group_norm(graft: Graft, node: ir.Node) -> ir.Value:
    value, groups = given(node, 0), attribute(node, "num_groups", 1)
    shape = static(value)
    length = 1
    for size in shape[1:]:
        length *= size
    rows = graft.reshape(value, [shape[0], groups, length // groups])
    made = _scaled(graft, _centred(graft, rows, [2]), [2], attribute(node, "epsilon", 1e-5))
    return _per_channel(graft, node, graft.reshape(made, shape))


def _obstacle_of_channels(node: ir.Node) -> str:
    why = open_shape(node, 0, 1, 2)
    if why:
        return why
    channels, factors = static(given(node, 0))[1], static(given(node, 1))
    return "" if factors == (channels,) else f"its scale is of shape {factors}, not one for each of {channels} channels"


def _mean_variance(graft: Graft, node: ir.Node) -> ir.Value:
    value = given(node, 0)
    rank = edits.rank_of(value) or 4
    axes = sorted(axis % rank for axis in attribute(node, "axes", [0, 2, 3]))
    centred = _centred(graft, value, axes)
    power = graft.reduce("ReduceMean", graft.op("Mul", centred, centred), axes)
    return graft.op("Div", centred, graft.op("Add", graft.op("Sqrt", power), 1e-9))


def _lp_norm(graft: Graft, node: ir.Node) -> ir.Value:
    value, axis = given(node, 0), attribute(node, "axis", -1) % (edits.rank_of(given(node, 0)) or 1)
    if attribute(node, "p", 2) == 1:
        size = graft.reduce("ReduceSum", graft.op("Abs", value), [axis])
    else:
        size = graft.op("Sqrt", graft.reduce("ReduceSum", graft.op("Mul", value, value), [axis]))
    return graft.op("Div", value, size)


def _obstacle_of_rank(node: ir.Node) -> str:
    return "the rank of its input is not known" if edits.rank_of(given(node, 0)) is None else ""


REWRITES = (
    expansion(
        name="decompose_layer_norm",
        summary="LayerNormalization over any axes by ReduceMean and arithmetic",
        ops=["LayerNormalization"],
        build=_layer_norm,
        obstacle=_obstacle_of_layer_norm,
    ),
    expansion(
        name="flatten_layer_norm",
        summary="LayerNormalization over several axes by one over the last axis, between two Reshapes",
        ops=["LayerNormalization"],
        picks=_over_several,
        build=_flat_layer_norm,
        obstacle=_obstacle_of_flat,
    ),
    expansion(
        name="decompose_rms_norm",
        summary="RMSNormalization by ReduceMean and arithmetic",
        ops=["RMSNormalization"],
        build=_rms_norm,
        obstacle=lambda node: open_shape(node, 0),
    ),
    expansion(
        name="decompose_instance_norm",
        summary="InstanceNormalization by ReduceMean and arithmetic",
        ops=["InstanceNormalization"],
        build=_instance_norm,
        obstacle=_obstacle_of_channels,
    ),
    expansion(
        name="decompose_group_norm",
        summary="GroupNormalization by ReduceMean and arithmetic",
        ops=["GroupNormalization"],
        build=_group_norm,
        obstacle=_obstacle_of_channels,
    ),
    expansion(
        name="decompose_mean_variance_norm",
        summary="MeanVarianceNormalization by ReduceMean and arithmetic",
        ops=["MeanVarianceNormalization"],
        build=_mean_variance,
        obstacle=_obstacle_of_rank,
    ),
    expansion(
        name="decompose_lp_norm",
        summary="LpNormalization by ReduceSum and arithmetic",
        ops=["LpNormalization"],
        build=_lp_norm,
        obstacle=_obstacle_of_rank,
    ),
)
