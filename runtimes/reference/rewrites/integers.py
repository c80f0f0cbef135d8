"""int32 in place of int64 where the numbers fit: some runtimes have no wide integers, or run them on the CPU.

Sizes and axes that an operator takes as int64 alone, and what is calculated for them only, stay as they are.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from runtimes.reference import edits, retyping
from runtimes.reference.retyping import Retyping, Samples
from runtimes.reference.rewrites import Given, Rewrite, Unsuitable, always
from runtimes.reference.rewrites.opset import inline

HEADROOM = 4
"""How many times larger a number may become than on the samples."""

LARGEST = np.iinfo(np.int32).max
_WIDE = ir.DataType.INT64

_BLOCKED = frozenset({"OneHot", "Unique", "BitShift", "RandomUniform", "RandomNormal"})
"""Operators for which ONNX Runtime has no int32 beside the other types that they come with."""


def _rewrite(model: ir.Model, given: Given) -> list[str]:
    if not given.samples:
        raise Unsuitable("without samples nobody knows what leaves the range of int32")
    inline(model)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    edits.infer(model)
    wide = _outside_range(model, given.samples)
    blocked = {
        node
        for node in edits.nodes_of(model)
        if not retyping.is_plain(node, model)
        or node.op_type in _BLOCKED
        or any(value in wide for value in (*node.inputs, *node.outputs) if value is not None)
    }
    change = Retyping(model, _WIDE, ir.DataType.INT32, blocked)
    for node in reversed(list(model.graph)):
        if node not in blocked and _serves_sizes_only(node, change):
            change.blocked.add(node)
    return change.convert()


def _serves_sizes_only(node: ir.Node, change: Retyping) -> bool:
    """Tell whether all that a node gives goes where int64 must stay: then a Cast on the way would be no gain."""
    wide = [value for value in node.outputs if value.dtype is _WIDE]
    uses = [use for value in wide for use in value.uses()]
    return bool(uses) and all(
        use.node in change.blocked or not change.takes(use.node, use.idx, inputs=True) for use in uses
    )


def _outside_range(model: ir.Model, samples: Samples) -> set[ir.Value]:
    """Return the int64 values of the graph, inputs and constants too, that do not fit int32."""
    wide = {
        value
        for value in model.graph.initializers.values()
        if value.dtype is _WIDE and value.const_value is not None and not _fits(value.const_value.numpy())
    }
    for value in model.graph.inputs:
        held = [sample[value.name] for sample in samples.values() if value.name and value.name in sample]
        if value.dtype is _WIDE and not all(_fits(array, HEADROOM) for array in held):
            wide.add(value)
    made = retyping.made_as(model, _WIDE)
    sizes = retyping.largest_of(model, made, samples)
    return wide | {value for value in made if max(sizes[value], default=0.0) * HEADROOM > LARGEST}


def _fits(array: np.ndarray, headroom: int = 1) -> bool:
    return bool(array.size == 0 or max(abs(int(array.max())), abs(int(array.min()))) * headroom <= LARGEST)


REWRITES = (
    Rewrite(
        name="narrow_integers",
        summary="int32 in place of int64 where the numbers fit",
        requires=always,
        rewrite=_rewrite,
        ensures=retyping.mixed,
    ),
)
