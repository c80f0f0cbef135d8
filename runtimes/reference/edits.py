"""Edits of a graph: new nodes in place of one, and what is known of the values around them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from runtimes.kit.tensors import Array

_MAKES_SEQUENCES = frozenset(
    {
        *("SequenceConstruct", "SequenceEmpty", "SequenceInsert", "SequenceErase", "SequenceMap"),
        *("SplitToSequence", "Optional", "OptionalGetElement"),
    }
)
_ROUNDS = 64
_PASSES_ON = frozenset({"Identity", "If", "Loop", "Scan"})
NAMELESS = "without a name"
_CALLED = re.compile(r"node (?P<name>.*?) \((?P<op>\w+)\): ")


class Nodes:
    """Nodes to stand in for one node of a graph, in the graph, function or subgraph that it is in.

    Attributes:
        node: the node to replace.
        made: the nodes that replace it, in order.
    """

    def __init__(self, node: ir.Node) -> None:
        self.node = node
        self.made: list[ir.Node] = []
        self._named = 0

    def op(self, operator: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        """Return the output of a new node of ONNX's own operator `operator`."""
        return self.ops(operator, *inputs, count=1, **attributes)[0]

    def ops(self, operator: str, *inputs: ir.Value | None, count: int, **attributes: Any) -> Sequence[ir.Value]:
        """Return the `count` outputs of a new node of ONNX's own operator `operator`; attributes of None are left out.

        An empty list of numbers needs its type: `ir.Attr(name, ir.AttributeType.INTS, [])` as the value.
        """
        name = self._next(operator)
        given = {key: value for key, value in attributes.items() if value is not None}
        made = ir.node(operator, list(inputs), given, num_outputs=count, name=name)
        for index, value in enumerate(made.outputs):
            value.name = f"{name}_out{index}" if index else f"{name}_out"
        self.made.append(made)
        return made.outputs

    def constant(self, value: Any, dtype: Any = None) -> ir.Value:
        """Return a constant: the output of a Constant node, of numpy's type of `value` or of `dtype`."""
        return self.op("Constant", value=ir.tensor(np.array(value, dtype)))

    def replace(self, *values: ir.Value | None) -> None:
        """Put `values` in place of the node's outputs, in order, and the new nodes in place of the node.

        Args:
            values: one for each output that is used; None for one that is not. It may be any value that is there
                already: an output of the graph keeps its name.
        """
        graph = self.node.graph
        if graph is None:
            raise ValueError(f"{call(self.node)} is in no graph any more")
        pairs, fresh = [], set[int]()
        for old, value in zip(self.node.outputs, values, strict=False):
            if value is None:
                continue
            new = value
            if value.producer() not in self.made or id(value) in fresh:
                if not old.is_graph_output():
                    old.replace_all_uses_with(value)
                    continue
                new = self.op("Identity", value)
            fresh.add(id(new))
            pairs.append((old, new))
        graph.insert_before(self.node, self.made)
        for old, new in pairs:
            old.replace_all_uses_with(new, replace_graph_outputs=True)
            new.name, new.type, new.shape = old.name, old.type or new.type, old.shape or new.shape
        graph.remove(self.node, safe=True)

    def _next(self, operator: str) -> str:
        self._named += 1
        return f"{self.node.name}_{operator}_{self._named}"


def nodes_of(model: ir.Model, *operators: str) -> list[ir.Node]:
    """Return the nodes of ONNX's own `operators` (of every operator where none is named), also in subgraphs.

    A list, so that the graph may be changed while it is gone through. Functions come last.
    """
    found = list(ir.traversal.RecursiveGraphIterator(model.graph))
    for function in model.functions.values():
        found.extend(ir.traversal.RecursiveGraphIterator(function))
    return [node for node in found if not operators or (node.op_type in operators and is_own(node))]


def is_own(node: ir.Node) -> bool:
    """Tell whether the node's operator is one of ONNX's own."""
    return node.domain in {"", "ai.onnx"}


def call(node: ir.Node) -> str:
    """Return what a node is called in a message."""
    return f"node {node.name or NAMELESS} ({node.op_type})"


def called(text: str) -> tuple[str, str]:
    """Return name and operator of the node that a message begins with, as `call` calls it; two "" where none does."""
    found = _CALLED.match(text)
    return ("", "") if found is None else (found["name"].replace(NAMELESS, ""), found["op"])


def opset_of(model: ir.Model) -> int:
    """Return the version of ONNX's own operators; 0 where the model names none."""
    imports = model.graph.opset_imports
    return imports.get("", imports.get("ai.onnx", 0)) or 0


def taken(node: ir.Node, index: int) -> ir.Value | None:
    """Return input number `index` of a node, None where it is left out."""
    return node.inputs[index] if index < len(node.inputs) else None


def constant_of(value: ir.Value | None, *, most_bytes: int = 2**31) -> Array | None:
    """Return what a constant holds: an initializer that nobody can override, or the output of a Constant node.

    None for anything else, and for one of more than `most_bytes`.
    """
    if value is None or value.is_graph_input():
        return None
    tensor = ir.convenience.get_const_tensor(value)
    if tensor is None or tensor.nbytes > most_bytes or tensor.dtype == ir.DataType.STRING:
        return None
    return tensor.numpy()


def constant_before(node: ir.Node, array: Array) -> ir.Value:
    """Return a constant, made right before `node`, in the graph or subgraph that the node is in."""
    made = ir.node("Constant", [], {"value": ir.tensor(array)}, name=f"{node.name}_constant")
    made.outputs[0].name = f"{node.name}_constant_out"
    if node.graph is not None:
        node.graph.insert_before(node, made)
    return made.outputs[0]


def make_tensors(model: ir.Model) -> list[str]:
    """Let each Constant that holds a number, or a list of them, hold a tensor; return the names of these nodes."""
    changed = []
    for node in nodes_of(model, "Constant"):
        held = number_of(node)
        if held is not None:
            node.attributes.clear()
            node.attributes.add(ir.AttrTensor("value", ir.tensor(held)))
            changed.append(node.name or "")
    return changed


def number_of(node: ir.Node) -> Array | None:
    """Return what a Constant holds as a number or a list of them; None where it is a tensor already."""
    for name, dtype in (("value_int", np.int64), ("value_float", np.float32)):
        for plural in ("", "s"):
            if (attribute := node.attributes.get(name + plural)) is not None:
                return np.array(attribute.value, dtype)
    return None


def shape_of(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return the sizes of a value; None where the rank or a size is not known."""
    if value is None or value.shape is None:
        return None
    sizes = tuple(value.shape)
    return tuple(int(size) for size in sizes) if all(isinstance(size, int) for size in sizes) else None  # type: ignore[arg-type]


def rank_of(value: ir.Value | None) -> int | None:
    """Return how many dimensions a value has; None where it is not known."""
    return None if value is None or value.shape is None else len(value.shape)


def tidy(model: ir.Model) -> None:
    """Sort the nodes, drop those that nothing needs, give every node and value a name of its own, and infer shapes.

    The sort is stable: what is in order keeps its order.
    """
    common.TopologicalSortPass()(model)
    common.RemoveUnusedNodesPass()(model)
    common.NameFixPass()(model)
    infer(model)


def infer(model: ir.Model) -> None:
    """Write down the shapes and types that onnx infers; what was known before may be out of date.

    Only where onnx cannot tell what an operator gives (GroupNormalization is one), what was known before is kept.
    """
    nodes = nodes_of(model)
    before = {}
    for value in (value for node in nodes for value in node.outputs if not value.is_graph_output()):
        before[value] = (value.type, value.shape)
        value.type, value.shape = None, None
    for _round in range(_ROUNDS):
        common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)
        _forget_sequences(nodes)
        if not sum(_recall(node, before) for node in nodes):
            break


def _recall(node: ir.Node, before: Mapping[ir.Value, tuple[ir.TypeProtocol | None, ir.Shape | None]]) -> bool:
    """Give what a node gives the type that it had before, where onnx stopped at this node; tell whether that helps."""
    if any(value is not None and value.type is None for value in node.inputs):
        return False
    found = False
    for value in node.outputs:
        if value.type is None and value in before and isinstance(before[value][0], ir.TensorType):
            value.type, value.shape = before[value]
            found = True
    return found


def _forget_sequences(nodes: Sequence[ir.Node]) -> None:
    """Take off the types of sequences: the pass takes a sequence of tensors for a tensor."""
    if not any(node.op_type in _MAKES_SEQUENCES for node in nodes):
        return
    sequences: set[ir.Value] = set()
    for node in nodes:
        passed = node.op_type in _PASSES_ON and (node.op_type != "Identity" or sequences.intersection(node.inputs))
        if node.op_type in _MAKES_SEQUENCES or passed:
            sequences.update(node.outputs)
            for value in node.outputs:
                if not value.is_graph_output():
                    value.type, value.shape = None, None
