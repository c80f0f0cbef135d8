"""Gather with its indices in a row: ONNX Runtime's layout changes for an accelerator end in an abort at others."""

from __future__ import annotations

import onnx_ir as ir

from runtimes.reference import edits
from runtimes.reference.expansion import Graft, attribute, expansion, given, open_shape, static


def _flatten(graft: Graft, node: ir.Node) -> ir.Value:
    data, indices = given(node, 0), given(node, 1)
    shape, places = static(data), static(indices)
    axis = attribute(node, "axis", 0) % len(shape)
    row = graft.op("Gather", data, graft.reshape(indices, [-1]), axis=axis)
    return graft.reshape(row, [*shape[:axis], *places, *shape[axis + 1 :]])


def _is_spread(node: ir.Node) -> bool:
    return (edits.rank_of(given(node, 1)) or 0) > 1


REWRITES = (
    expansion(
        name="flatten_gather",
        summary="Gather by one with its indices in a row, and a Reshape",
        ops=["Gather"],
        build=_flatten,
        picks=_is_spread,
        obstacle=lambda node: open_shape(node, 0, 1),
    ),
)
