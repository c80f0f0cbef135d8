"""What a graph does with an input of whole numbers, as far as it tells what may go in."""

from __future__ import annotations

import collections
import dataclasses

import onnx
from onnx import NodeProto

from runtimes.reference import structure

_CARRIERS = frozenset(
    {"Cast", "Identity", "Unsqueeze", "Squeeze", "Reshape", "Flatten", "Transpose", "Expand", "Slice", "Tile", "Split"}
)
"""Operators that carry the values of their first input on as they are."""

_SIZES = frozenset({"Shape", "Size"})
"""Operators whose answer does not depend on the values."""

_MASKING = frozenset({("Sub", 1), ("Not", 0), ("Where", 0), ("And", 0), ("And", 1)})
"""What is done to a mask, by operator and input: 1 − mask, and choosing by it."""

_TABLES = frozenset({"Cast", "Identity", "Transpose", "DequantizeLinear"})
"""Operators that a table may come through."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Use:
    """How an input is used.

    Attributes:
        rows: it picks rows of a table that has so many, the smallest of several; 0 where it picks none.
        masks: it says by 1 and 0 what counts and what does not.
        compared: it is a single number, does nothing but be compared with these constants, and so is a switch.
    """

    rows: int = 0
    masks: bool = False
    compared: tuple[int, ...] = ()


def of(model: onnx.ModelProto, name: str) -> Use:
    """Return how `model` uses its input `name`."""
    uses = _uses(model, name)
    rows = [rows for node, index in uses if (node.op_type, index) == ("Gather", 1) and (rows := _rows(model, node))]
    masks = "mask" in name.lower() or (bool(uses) and all((node.op_type, index) in _MASKING for node, index in uses))
    if rows:
        return Use(rows=min(rows))
    constants = _constants(model)
    compared = [
        constants[other]
        for node, index in uses
        if node.op_type == "Equal" and (other := node.input[1 - index]) in constants
    ]
    switch = bool(uses) and len(compared) == len(uses) and all(isinstance(each, int) for each in compared)
    return Use(
        masks=masks, compared=tuple(dict.fromkeys(each for each in compared if each is not None)) if switch else ()
    )


def reaching(model: onnx.ModelProto) -> dict[str, tuple[str, ...]]:
    """Return, for each output, the inputs whose values a path of the graph leads to it, in their order.

    Where none leads to an output, or all do, it is not there.
    """
    inputs = [value.name for value in structure.inputs_of(model.graph)]
    behind = {name: {name} for name in inputs}
    for node in model.graph.node:
        taken = [] if node.op_type in _SIZES else _names(node)
        found = set[str]().union(*(behind.get(name, set()) for name in taken))
        behind.update(dict.fromkeys(node.output, found))
    reached = {value.name: behind.get(value.name, set()) for value in model.graph.output}
    return {
        output: tuple(name for name in inputs if name in found)
        for output, found in reached.items()
        if 0 < len(found) < len(inputs)
    }


def _names(node: NodeProto) -> list[str]:
    """Return the values that a node takes, the graphs inside it too."""
    graphs = (graph for each in node.attribute for graph in (*([each.g] if each.HasField("g") else ()), *each.graphs))
    return [*node.input, *(name for graph in graphs for inner in graph.node for name in _names(inner))]


def _uses(model: onnx.ModelProto, name: str) -> list[tuple[NodeProto, int]]:
    """Return the nodes that do something with the values of `name`, each with the number of its input."""
    takers: dict[str, list[tuple[NodeProto, int]]] = collections.defaultdict(list)
    for node in structure.nodes_of(model):
        for index, taken in enumerate(node.input):
            takers[taken].append((node, index))
    found, waiting, seen = [], [name], {name}
    while waiting:
        for node, index in takers[waiting.pop()]:
            picked = node.op_type == "Gather" and index == 0
            if node.op_type not in _CARRIERS and not picked:
                found.append((node, index))
            elif index == 0:
                waiting += [each for each in node.output if each not in seen]
                seen.update(node.output)
    return found


def _rows(model: onnx.ModelProto, gather: NodeProto) -> int:
    """Return how many rows the table of a Gather has; 0 where it is no constant."""
    axis = next((each.i for each in gather.attribute if each.name == "axis"), 0)
    sizes = _sizes(model, gather.input[0])
    return sizes[axis] if -len(sizes) <= axis < len(sizes) else 0


def _sizes(model: onnx.ModelProto, name: str) -> list[int]:
    """Return the sizes of a constant, looked for behind what turns its axes or its type; [] where it is none."""
    for graph in structure.graphs_of(model):
        for tensor in graph.initializer:
            if tensor.name == name:
                return list(tensor.dims)
    maker = next((node for node in structure.nodes_of(model) if name in node.output), None)
    if maker is None:
        return []
    if maker.op_type == "Constant":
        return next((list(each.t.dims) for each in maker.attribute if each.name == "value"), [])
    if maker.op_type not in _TABLES:
        return []
    sizes = _sizes(model, maker.input[0])
    if maker.op_type != "Transpose" or not sizes:
        return sizes
    order = next((list(each.ints) for each in maker.attribute if each.name == "perm"), [])
    return [sizes[axis] for axis in order or reversed(range(len(sizes)))]


def _constants(model: onnx.ModelProto) -> dict[str, int | None]:
    """Return the constants that are one whole number, by name; None where it is not a whole one."""
    tensors = [tensor for graph in structure.graphs_of(model) for tensor in graph.initializer]
    found = {tensor.name: _whole(tensor) for tensor in tensors}
    for node in structure.nodes_of(model):
        if node.op_type == "Constant":
            for each in node.attribute:
                if each.name == "value":
                    found[node.output[0]] = _whole(each.t)
                elif each.name == "value_int":
                    found[node.output[0]] = each.i
    return found


def _whole(tensor: onnx.TensorProto) -> int | None:
    if tensor.data_location == onnx.TensorProto.EXTERNAL or sum(tensor.dims) > len(tensor.dims):
        return None
    values = onnx.numpy_helper.to_array(tensor).ravel()
    return int(values[0]) if values.size == 1 and values.dtype.kind in "iu" else None
