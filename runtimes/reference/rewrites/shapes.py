"""Fixed sizes in place of open ones, and what is calculated from sizes as a constant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from runtimes.contract import Json
from runtimes.reference import edits
from runtimes.reference.rewrites import Given, Rewrite, Unsuitable, always
from runtimes.reference.rewrites.folding import fold


def _rewrite(model: ir.Model, given: Given) -> list[str]:
    closed = [value.name or "" for value in _inputs(model) if _close(value, _sizes(value, given))]
    if closed:
        for output in model.graph.outputs:
            if output.shape is not None:
                output.shape = ir.Shape([size if isinstance(size, int) else None for size in output.shape])
        edits.infer(model)
    return [*closed, *fold(model)]


def _inputs(model: ir.Model) -> list[ir.Value]:
    return [value for value in model.graph.inputs if not value.is_initializer()]


def _sizes(value: ir.Value, given: Given) -> Sequence[int] | None:
    """Return the sizes that the options give an input, or the samples."""
    shapes: Json = given.options.get("shapes", {})
    if isinstance(shapes, Mapping) and value.name in shapes:
        return [int(size) for size in shapes[value.name]]
    sample = next(iter(given.samples.values()), {})
    return sample[value.name].shape if value.name and value.name in sample else None


def _close(value: ir.Value, sizes: Sequence[int] | None) -> bool:
    """Write the sizes of an input down; tell whether any was open."""
    if edits.shape_of(value) is not None:
        return False
    if sizes is None:
        raise Unsuitable(f"input {value.name}: its sizes are open, and neither options nor samples give them")
    held = value.shape
    if held is not None and (
        len(held) != len(sizes)
        or any(isinstance(old, int) and old != new for old, new in zip(held, sizes, strict=True))
    ):
        raise Unsuitable(f"input {value.name}: has the sizes {held}, which {list(sizes)} does not fit")
    value.shape = ir.Shape(sizes)
    return True


def _open(model: ir.Model) -> str:
    value = next((value for value in _inputs(model) if edits.shape_of(value) is None), None)
    return "" if value is None else f"input {value.name} has open sizes still"


REWRITES = (
    Rewrite(
        name="fix_shapes",
        summary="every size a number, and what is calculated from sizes a constant",
        requires=always,
        rewrite=_rewrite,
        ensures=_open,
    ),
)
