"""Padding and pooling by plainer padding and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

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
    sizes_of,
    static,
    type_of,
)

NUMPY_MODES = {"edge": "edge", "reflect": "reflect", "wrap": "wrap"}
"""Modes of Pad that repeat what is there, by numpy's names."""


def _pads(node: ir.Node) -> list[tuple[int, int]] | None:
    """Return how much a Pad adds before and behind each axis, or None where that is no constant."""
    rank = len(static(given(node, 0)))
    amounts = integers_of(edits.taken(node, 1))
    axes = integers_of(edits.taken(node, 3)) if edits.taken(node, 3) is not None else list(range(rank))
    if amounts is None or axes is None:
        return None
    pads = [(0, 0)] * rank
    for index, axis in enumerate(axes):
        pads[axis] = (amounts[index], amounts[len(axes) + index])
    return pads


def _pad(graft: Graft, node: ir.Node) -> ir.Value:
    value, mode = given(node, 0), NUMPY_MODES[attribute(node, "mode", "constant")]
    for axis, (before, behind) in enumerate(_pads(node) or []):
        places = np.arange(static(given(node, 0))[axis])
        # A negative amount takes away, and does so first.
        places = places[max(-before, 0) : len(places) - max(-behind, 0)]
        if before or behind:
            places = np.pad(places, (max(before, 0), max(behind, 0)), mode)  # type: ignore[call-overload]
            value = graft.op("Gather", value, graft.integers(places.tolist()), axis=axis)
    return value


def _obstacle_of_pad(node: ir.Node) -> str:
    return open_shape(node, 0) or ("its amounts are no constant" if _pads(node) is None else "")


def windows_of(node: ir.Node, sizes: Sequence[int]) -> list[tuple[int, int, int, int, int]]:
    """Return for each axis of a pooling: kernel, stride, dilation, and what is padded before and behind.

    Behind is as much as the last window reaches over, which with `ceil_mode` may be more than asked.
    """
    count = len(sizes)
    kernel = attribute(node, "kernel_shape", [])
    strides = attribute(node, "strides", [1] * count)
    dilations = attribute(node, "dilations", [1] * count)
    pads = attribute(node, "pads", [0] * (2 * count))
    wanted = static(node.outputs[0])[2:]
    kind = attribute(node, "auto_pad", "NOTSET")
    made = []
    for axis, size in enumerate(sizes):
        reach = (wanted[axis] - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1
        before = pads[axis]
        if kind in {"SAME_UPPER", "SAME_LOWER"}:
            missing = max(reach - size, 0)
            before = missing // 2 if kind == "SAME_UPPER" else missing - missing // 2
        # Where the last window stops short of the end, nothing is padded there.
        made.append((kernel[axis], strides[axis], dilations[axis], before, max(reach - size - before, 0)))
    return made


def counts_of(node: ir.Node, windows: Sequence[tuple[int, int, int, int, int]]) -> Array:
    """Return by how many elements each sum of an AveragePool is divided, `[1, 1, *sizes]`."""
    sizes, wanted = static(given(node, 0))[2:], static(node.outputs[0])[2:]
    pads = attribute(node, "pads", [0] * (2 * len(sizes)))
    total: Array = np.ones((), np.float64)
    for axis, (kernel, stride, dilation, before, _) in enumerate(windows):
        first, last = -before, sizes[axis]
        if not attribute(node, "count_include_pad", 0):
            first = 0
        elif attribute(node, "auto_pad", "NOTSET") == "NOTSET":
            # What ceil_mode adds beyond the padding asked for is never counted.
            last += pads[len(sizes) + axis]
        starts = np.arange(wanted[axis])[:, None] * stride - before + np.arange(kernel)[None] * dilation
        total = np.multiply.outer(total, ((starts >= first) & (starts < last)).sum(1))
    return total.reshape(1, 1, *wanted)


def _average(graft: Graft, node: ir.Node) -> ir.Value:
    value = given(node, 0)
    windows = windows_of(node, static(value)[2:])
    pads = [0, 0, *(each[3] for each in windows), 0, 0, *(each[4] for each in windows)]
    if any(pads):
        value = graft.op("Pad", value, graft.integers(pads), graft.scalar(0.0, type_of(value)))
    kernel, strides, dilations = ([each[part] for each in windows] for part in range(3))
    mean = graft.op(
        "AveragePool",
        value,
        kernel_shape=kernel,
        strides=strides,
        dilations=dilations if max(dilations) > 1 else None,
    )
    factors = prod(kernel) / counts_of(node, windows)
    return mean if np.all(factors == 1) else graft.op("Mul", mean, graft.constant(factors, type_of(value).numpy()))


def obstacle_of_average(node: ir.Node) -> str:
    """Return why an AveragePool's averages cannot be written out, or ""."""
    why = open_shape(node, 0)
    if why or sizes_of(node.outputs[0]) is None:
        return why or "the shape of what it gives is not known"
    counts = counts_of(node, windows_of(node, static(given(node, 0))[2:]))
    # Nothing divided by nothing: what that is, ONNX leaves open.
    return "" if np.all(counts) else "some of its windows lie in the padding alone"


def _uneven(node: ir.Node) -> bool:
    return bool(attribute(node, "ceil_mode", 0)) or any(attribute(node, "pads", []))


def _greatest(graft: Graft, node: ir.Node) -> ir.Value:
    value = given(node, 0)
    batch, channels, depth, height, width = static(value)
    wanted = static(node.outputs[0])
    names = ("kernel_shape", "strides", "dilations", "pads")
    kernel, strides, dilations, pads = (
        list(attribute(node, name, default))
        for name, default in zip(names, ([], [1] * 3, [1] * 3, [0] * 6), strict=True)
    )
    ceil = attribute(node, "ceil_mode", None)
    flat = graft.reshape(value, [batch, channels * depth, height, width])
    across = graft.op(
        "MaxPool",
        flat,
        kernel_shape=kernel[1:],
        strides=strides[1:],
        dilations=dilations[1:],
        pads=[*pads[1:3], *pads[4:6]],
        ceil_mode=ceil,
    )
    rows = graft.reshape(across, [batch, channels, depth, wanted[3] * wanted[4]])
    deep = graft.op(
        "MaxPool",
        rows,
        kernel_shape=[kernel[0], 1],
        strides=[strides[0], 1],
        dilations=[dilations[0], 1],
        pads=[pads[0], 0, pads[3], 0],
        ceil_mode=ceil,
    )
    return graft.reshape(deep, wanted)


def _obstacle_of_greatest(node: ir.Node) -> str:
    why = open_shape(node, 0)
    if why:
        return why
    if attribute(node, "auto_pad", "NOTSET") not in {"NOTSET", "VALID"}:
        return "it pads by itself (auto_pad)"
    return "its places are used" if len(node.outputs) > 1 else ""


REWRITES = (
    expansion(
        name="pad_to_gather",
        summary="Pad that repeats what is there (edge, reflect, wrap) by a Gather along each axis",
        ops=["Pad"],
        picks=lambda node: attribute(node, "mode", "constant") in NUMPY_MODES,
        build=_pad,
        obstacle=_obstacle_of_pad,
    ),
    expansion(
        name="explicit_average_pool",
        summary="AveragePool with pads or ceil_mode by Pad, a plain AveragePool and a factor for each place",
        ops=["AveragePool"],
        picks=_uneven,
        build=_average,
        obstacle=obstacle_of_average,
    ),
    expansion(
        name="split_max_pool",
        summary="MaxPool in three dimensions by one over the picture and one over the depth",
        ops=["MaxPool"],
        picks=lambda node: edits.rank_of(given(node, 0)) == 5,
        build=_greatest,
        obstacle=_obstacle_of_greatest,
    ),
)
