"""Constants that are calculated once instead of in every run, where that does not make the file larger."""

from __future__ import annotations

import logging
import math

import onnx_ir as ir

from runtimes.reference import edits
from runtimes.reference.rewrites import Given, Rewrite, Unsuitable, always

MOST_ELEMENTS = 4096
"""As many elements as a constant may have that replaces less: a ConstantOfShape of 67 MB stays one."""

MOST_BYTES = 8 * MOST_ELEMENTS
"""As many bytes as it may take: int8 weights do not become float32."""

INPUT_ELEMENTS = 2**20
"""As many elements as a constant may have to be calculated with."""

_ROUNDS = 8


def fold(model: ir.Model) -> list[str]:
    """Calculate what depends on constants and known sizes only; return the nodes that are gone.

    Raises:
        Unsuitable: the file would grow.
    """
    from onnxscript.optimizer import fold_constants_ir

    # What it does not fold it says, node by node.
    logging.getLogger("onnxscript.optimizer").setLevel(logging.ERROR)
    before, size = [node.name or "" for node in edits.nodes_of(model)], size_bytes(model)
    for _round in range(_ROUNDS):
        found = fold_constants_ir(
            model,
            onnx_shape_inference=True,
            input_size_limit=INPUT_ELEMENTS,
            output_size_limit=MOST_ELEMENTS,
            should_fold=_should_fold,
        )
        if not found.modified:
            break
        edits.tidy(model)
    # onnxscript folds to lists of numbers too, at which RKNN's loader fails.
    edits.make_tensors(model)
    _forget_origins(model)
    grown = size_bytes(model) - size
    if grown > max(size // 100, 2**20):
        raise Unsuitable(f"the constants of the file would grow by {grown} bytes")
    left = {node.name for node in edits.nodes_of(model)}
    return [name for name in before if name not in left]


def _forget_origins(model: ir.Model) -> None:
    """Drop what onnxscript writes down of what it folded."""
    values = [value for graph in model.graphs() for value in graph.initializers.values()]
    values += [value for node in edits.nodes_of(model) for value in node.outputs]
    noted = [value.metadata_props for value in values] + [node.metadata_props for node in edits.nodes_of(model)]
    for notes in noted:
        for key in [key for key in notes if key.startswith("pkg.onnxscript.")]:
            del notes[key]


def size_bytes(model: ir.Model) -> int:
    """Return how many bytes the constants of a model take."""
    held = [value.const_value for graph in model.graphs() for value in graph.initializers.values()]
    constants = [node.attributes.get("value") for node in edits.nodes_of(model, "Constant")]
    tensors = [*held, *(each.value for each in constants if each is not None)]
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)


def _should_fold(node: ir.Node) -> bool | None:
    """Return False for a node whose output is too large to write down, True for a small ConstantOfShape; else None."""
    constants = [each.const_value for each in node.inputs if each is not None and each.const_value is not None]
    for value in node.outputs:
        shape = edits.shape_of(value)
        if shape is None:
            continue
        elements = math.prod(shape)
        if elements > max(MOST_ELEMENTS, sum(each.size for each in constants)):
            return False
        size = 0 if value.dtype is None else elements * value.dtype.itemsize
        if size > max(MOST_BYTES, sum(each.nbytes for each in constants)):
            return False
    # By itself onnxscript leaves each of these, small ones too, and with them all that is calculated from sizes.
    return True if node.op_type == "ConstantOfShape" and edits.shape_of(node.outputs[0]) is not None else None


def _fold(model: ir.Model, _given: Given) -> list[str]:
    return fold(model)


def _size_left(model: ir.Model) -> str:
    """Return a node that tells a known size still: what hangs on sizes only starts there."""
    for node in edits.nodes_of(model, "Shape", "Size"):
        if edits.is_own(node) and edits.shape_of(edits.taken(node, 0)) is not None:
            return f"{edits.call(node)} tells a size that is known"
    return ""


REWRITES = (
    Rewrite(
        name="fold_constants",
        summary="constants calculated beforehand, where the file does not grow",
        requires=always,
        rewrite=_fold,
        ensures=_size_left,
    ),
)
