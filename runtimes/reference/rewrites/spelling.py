"""The same graph, spelled as a toolchain reads it: what one leaves out, another stumbles over, or asks for."""

from __future__ import annotations

import numpy as np
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


def _name_outputs(model: ir.Model, _given: Given) -> list[str]:
    nodes = [node for node in edits.nodes_of(model) if any(not value.name for value in node.outputs)]
    for node in nodes:
        for index, value in enumerate(node.outputs):
            value.name = value.name or f"{node.name}_unused_{index}"
    return [node.name or "" for node in nodes]


def _nameless_left(model: ir.Model) -> str:
    left = next((node for node in edits.nodes_of(model) if any(not value.name for value in node.outputs)), None)
    return f"{edits.call(left)} leaves an output out still" if left else ""


def _make_tensors(model: ir.Model, _given: Given) -> list[str]:
    return edits.make_tensors(model)


def _number_left(model: ir.Model) -> str:
    left = next((node for node in edits.nodes_of(model, "Constant") if edits.number_of(node) is not None), None)
    return f"{edits.call(left)} is no tensor still" if left else ""


def _carry_inputs(model: ir.Model, _given: Given) -> list[str]:
    nodes = [node for node in edits.nodes_of(model, "Identity") if _passes_on(node)]
    for node in nodes:
        new = edits.Nodes(node)
        dtype = node.inputs[0].dtype if node.inputs[0] is not None else None
        one = new.constant(1, dtype.numpy() if dtype is not None else np.int64)
        new.replace(new.op("Sub", new.op("Add", node.inputs[0], one), one))
    return [node.name or "" for node in nodes]


def _passes_on(node: ir.Node) -> bool:
    """Tell whether a node makes an output of the model of whole numbers that come in; they may run over and back."""
    value = node.inputs[0]
    if value is None or not value.is_graph_input() or not node.outputs[0].is_graph_output():
        return False
    return value.dtype in {ir.DataType.INT32, ir.DataType.INT64}


def _passed_on(model: ir.Model) -> str:
    left = next((node for node in edits.nodes_of(model, "Identity") if _passes_on(node)), None)
    return f"{edits.call(left)} passes an input on still" if left else ""


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
    Rewrite(
        name="name_outputs",
        summary="names for outputs that a node leaves out before or behind one that it gives",
        requires=always,
        rewrite=_name_outputs,
        ensures=_nameless_left,
    ),
    Rewrite(
        name="carry_inputs",
        summary="outputs that are an input of whole numbers again, calculated: one more, and one less",
        requires=always,
        rewrite=_carry_inputs,
        ensures=_passed_on,
    ),
    Rewrite(
        name="make_tensors",
        summary="Constants that hold numbers or lists of numbers as tensors",
        requires=always,
        rewrite=_make_tensors,
        ensures=_number_left,
    ),
)
