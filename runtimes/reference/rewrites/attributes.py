"""Attributes that say nothing new: left out where a toolchain stumbles over them, written out where it asks."""

from __future__ import annotations

import onnx_ir as ir

from runtimes.reference import edits
from runtimes.reference.rewrites import Given, Rewrite, always

_RECURRENT = ("GRU", "LSTM", "RNN")


def _drop_layout(model: ir.Model, _given: Given) -> list[str]:
    nodes = [node for node in edits.nodes_of(model, *_RECURRENT) if _has_plain_layout(node)]
    for node in nodes:
        del node.attributes["layout"]
    return [node.name or "" for node in nodes]


def _has_plain_layout(node: ir.Node) -> bool:
    return "layout" in node.attributes and node.attributes.get_int("layout", 0) == 0


def _layout_left(model: ir.Model) -> str:
    left = next((node for node in edits.nodes_of(model, *_RECURRENT) if _has_plain_layout(node)), None)
    return f"{edits.call(left)} has its layout still" if left else ""


def _write_layer_norm(model: ir.Model, _given: Given) -> list[str]:
    nodes = [node for node in edits.nodes_of(model, "LayerNormalization") if _is_brief(node)]
    for node in nodes:
        node.attributes.add(ir.AttrInt64("axis", node.attributes.get_int("axis", -1)))
        node.attributes.add(ir.AttrFloat32("epsilon", node.attributes.get_float("epsilon", 1e-5)))
    return [node.name or "" for node in nodes]


def _is_brief(node: ir.Node) -> bool:
    return not {"axis", "epsilon"} <= set(node.attributes)


def _brief_left(model: ir.Model) -> str:
    left = next((node for node in edits.nodes_of(model, "LayerNormalization") if _is_brief(node)), None)
    return f"{edits.call(left)} leaves axis or epsilon out still" if left else ""


REWRITES = (
    Rewrite(
        name="drop_layout",
        summary="GRU, LSTM and RNN without the attribute layout where it is 0, as without it",
        requires=always,
        rewrite=_drop_layout,
        ensures=_layout_left,
    ),
    Rewrite(
        name="write_layer_norm",
        summary="axis and epsilon of LayerNormalization written out where they are left to their defaults",
        requires=always,
        rewrite=_write_layer_norm,
        ensures=_brief_left,
    ),
)
