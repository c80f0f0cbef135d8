"""What is done over three dimensions by what is done over two, and then over one."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx_ir as ir

from runtimes.reference import edits
from runtimes.reference.expansion import Graft, attribute, expansion, given, open_shape, static

RANK = 5
"""Batch, channels, depth, height and width."""


def _factors(graft: Graft, node: ir.Node, axes: list[int], shape: list[int]) -> list[ir.Value | None]:
    """Return the inputs of a Resize to the sizes of some axes of another; the first two of four axes stay.

    Args:
        graft: makes them.
        node: the Resize over three dimensions.
        axes: two of its axes, None for one that stays.
        shape: the sizes of the new one's first two axes, then what the last two become.
    """
    scales = edits.constant_of(edits.taken(node, 2))
    if scales is None or scales.size == 0:
        return [None, None, graft.integers(shape)]
    kept = [scales[axis] if axis >= 0 else 1.0 for axis in axes]
    return [None, graft.constant([1.0, 1.0, *kept], np.dtype(np.float32))]


def _resize(graft: Graft, node: ir.Node) -> ir.Value:
    value = given(node, 0)
    batch, channels, depth, height, width = static(value)
    wanted = static(node.outputs[0])
    kept = dict(node.attributes)
    flat = graft.reshape(value, [batch, channels * depth, height, width])
    factors = _factors(graft, node, [3, 4], [batch, channels * depth, *wanted[3:]])
    across = graft.op("Resize", flat, *factors, **kept)
    rows = graft.reshape(across, [batch, channels, depth, prod(wanted[3:])])
    factors = _factors(graft, node, [2, -1], [batch, channels, wanted[2], prod(wanted[3:])])
    return graft.reshape(graft.op("Resize", rows, *factors, **kept), wanted)


def _instance_norm(graft: Graft, node: ir.Node) -> ir.Value:
    value = given(node, 0)
    batch, channels, depth, height, width = static(value)
    flat = graft.reshape(value, [batch, channels, depth * height, width])
    factors = given(node, 1), given(node, 2)
    made = graft.op("InstanceNormalization", flat, *factors, **dict(node.attributes))
    return graft.reshape(made, [batch, channels, depth, height, width])


def _obstacle(node: ir.Node) -> str:
    shape, wanted = edits.shape_of(given(node, 0)), edits.shape_of(node.outputs[0])
    why = open_shape(node, 0)
    if why or shape is None or wanted is None:
        return why or "its output's shape is not known"
    scales = edits.taken(node, 2)
    reasons = {
        "it changes the batch or the channels": shape[:2] != wanted[:2],
        "it takes only a part of its input": attribute(node, "coordinate_transformation_mode", "")
        == "tf_crop_and_resize",
        "it names its axes or keeps the aspect ratio": "axes" in node.attributes
        or attribute(node, "keep_aspect_ratio_policy", "stretch") != "stretch",
        "its scales are no constant": scales is not None and edits.constant_of(scales) is None,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


REWRITES = (
    expansion(
        name="split_resize",
        summary="Resize in three dimensions by one of the picture and one of the depth",
        ops=["Resize"],
        picks=lambda node: edits.rank_of(given(node, 0)) == RANK,
        build=_resize,
        obstacle=_obstacle,
    ),
    expansion(
        name="flatten_instance_norm",
        summary="InstanceNormalization of a volume by that of a picture",
        ops=["InstanceNormalization"],
        picks=lambda node: edits.rank_of(given(node, 0)) == RANK,
        build=_instance_norm,
        obstacle=lambda node: open_shape(node, 0),
    ),
)
