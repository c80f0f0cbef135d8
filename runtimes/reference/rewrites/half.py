"""float16 in place of float32: every tensor has one type, as strongly typed engines ask; inputs and outputs stay.

In float32 stays what float16 cannot hold: nodes whose operator has no float16, graphs inside If, Loop and Scan, whole
numbers that are calculated as floating ones, and every node that gives or takes a tensor which, on the samples, comes
near the largest number of float16 or is all smaller than its smallest normal one.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from runtimes.reference import edits, retyping
from runtimes.reference.retyping import Retyping, Samples
from runtimes.reference.rewrites import Given, Rewrite, Unsuitable, always
from runtimes.reference.rewrites.opset import inline

HEADROOM = 4.0
"""How many times larger a tensor may become than on the samples."""

LARGEST = float(np.finfo(np.float16).max) / HEADROOM
SMALLEST = float(np.finfo(np.float16).tiny)

_FLOAT = ir.DataType.FLOAT

_BLOCKED = frozenset(
    {
        *("AffineGrid", "DFT", "STFT", "MelWeightMatrix", "HannWindow", "HammingWindow", "BlackmanWindow"),
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"),
        *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul"),
    }
)
"""Operators that keep float32: they are bad at float16, or choose their types in another way."""

_WHOLE = frozenset({"Floor", "Ceil", "Round", "Add", "Sub", "Mul", "Div", "Clip", "Min", "Max", "Neg", "Sqrt", "Pow"})
"""Operators that whole numbers are calculated by on their way to a Cast to integers."""


def _rewrite(model: ir.Model, given: Given) -> list[str]:
    if not given.samples:
        raise Unsuitable("without samples nobody knows what leaves the range of float16")
    inline(model)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    edits.infer(model)
    wide = _outside_range(model, given.samples)
    blocked = {node for node in edits.nodes_of(model) if _stays(node, model, wide)}
    _block_whole_numbers(model, blocked)
    return Retyping(model, _FLOAT, ir.DataType.FLOAT16, blocked).convert()


def _stays(node: ir.Node, model: ir.Model, wide: set[ir.Value]) -> bool:
    return (
        not retyping.is_plain(node, model)
        or node.op_type in _BLOCKED
        or any(value in wide for value in (*node.inputs, *node.outputs) if value is not None)
    )


def _block_whole_numbers(model: ir.Model, blocked: set[ir.Node]) -> None:
    """Leave in float32 what becomes an integer: float16 counts to 2048 only."""
    waiting = [node for node in model.graph if node.op_type == "Cast" and _is_integer(node.outputs[0])]
    while waiting:
        node = waiting.pop()
        blocked.add(node)
        for value in node.inputs:
            maker = None if value is None or value.dtype is not _FLOAT else value.producer()
            if maker is not None and maker not in blocked and maker.op_type in _WHOLE:
                waiting.append(maker)


def _is_integer(value: ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_integer()


def _outside_range(model: ir.Model, samples: Samples) -> set[ir.Value]:
    """Return the float32 values of the graph, constants too, that float16 holds badly."""
    constants = {
        value
        for value in model.graph.initializers.values()
        if value.dtype is _FLOAT and value.const_value is not None and _is_bad(retyping.largest_in(value.const_value))
    }
    made = retyping.made_as(model, _FLOAT)
    sizes = retyping.largest_of(model, made, samples)
    return constants | {value for value in made if any(_is_bad(size) for size in sizes[value])}


def _is_bad(largest: float) -> bool:
    return not largest <= LARGEST or 0.0 < largest < SMALLEST


REWRITES = (
    Rewrite(
        name="fp16",
        summary="float16 where the numbers fit, float32 at the model's inputs and outputs",
        requires=always,
        rewrite=_rewrite,
        ensures=retyping.mixed,
        precision="fp16",
    ),
)
