"""A narrower type for the tensors of a graph, and a Cast wherever one meets the old type."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from runtimes.kit.tensors import Array
from runtimes.kit.work import Failed
from runtimes.reference import edits, foreign, gates, sessions, slices
from runtimes.reference.rewrites import Unsuitable

HOLDS_GRAPHS = frozenset({"If", "Loop", "Scan", "SequenceMap"})

Samples = Mapping[str, Mapping[str, Array]]
"""Sample name to the model's inputs by name."""


class Retyping:
    """Gives the tensors of a graph another type, as far as their operators have it and no node is blocked.

    What an operator has is what its definition says: it may have one type for some inputs and not for others.
    Nodes of graphs inside other nodes keep the old type, as the inputs and outputs of the model do.

    Attributes:
        model: the graph, changed in place; its functions are inlined, its constants initializers.
        old: the type that it had.
        new: the type that it gets.
        blocked: the nodes that keep the old one.
        changed: the values that have the new one.
    """

    def __init__(self, model: ir.Model, old: ir.DataType, new: ir.DataType, blocked: Iterable[ir.Node]) -> None:
        self.model = model
        self.old = old
        self.new = new
        self.opset = edits.opset_of(model)
        self.blocked = set(blocked)
        self.changed: set[ir.Value] = set()
        self._twins: dict[ir.Value, ir.Value] = {}

    def convert(self) -> list[str]:
        """Change the graph; return the nodes that take or give the new type now."""
        names = []
        for node in self.model.graph:
            if node in self.blocked:
                continue
            given = [value for index, value in enumerate(node.outputs) if self.takes(node, index, inputs=False)]
            self.changed.update(given)
            if given:
                self._retype(node)
            if given or any(self.takes(node, index, inputs=True) for index in range(len(node.inputs))):
                names.append(node.name or "")
        for node in edits.nodes_of(self.model):
            for index, value in enumerate(node.inputs):
                if value is None or value.dtype is not self.old:
                    continue
                wanted = node not in self.blocked and self.takes(node, index, inputs=True)
                if wanted != (value in self.changed):
                    node.replace_input_with(index, self._twin(value))
        self._keep_outputs()
        return names

    def takes(self, node: ir.Node, index: int, *, inputs: bool) -> bool:
        """Tell whether input or output number `index` of a node has the old type and could have the new one."""
        value = (node.inputs if inputs else node.outputs)[index]
        if value is None or value.dtype is not self.old:
            return False
        schema = schema_of(node.op_type, self.opset)
        formal = schema.inputs if inputs else schema.outputs
        return f"tensor({self.new.name.lower()})" in formal[min(index, len(formal) - 1)].types

    def _retype(self, node: ir.Node) -> None:
        """Change the attribute that says which type a node gives."""
        for name in ("to", "dtype"):
            if name in node.attributes and node.attributes.get_int(name, 0) == self.old.value:
                node.attributes.add(ir.AttrInt64(name, self.new.value))
        if node.op_type == "ConstantOfShape":
            held = node.attributes.get_tensor("value", None)
            number = np.zeros(1) if held is None else held.numpy()
            node.attributes.add(ir.AttrTensor("value", ir.tensor(number.astype(self.new.numpy()))))

    def _twin(self, value: ir.Value) -> ir.Value:
        """Return the value in the other type: a constant converted, or a Cast right behind what gives it."""
        if value in self._twins:
            return self._twins[value]
        graph = self.model.graph
        to = self.old if value in self.changed else self.new
        name = f"{value.name}_{to.name.lower()}"
        if value.is_initializer() and not value.is_graph_input():
            made = _converted(value, to, name, graph)
        else:
            cast = ir.node("Cast", [value], {"to": to.value}, name=name)
            made = cast.outputs[0]
            made.name, made.type, made.shape = name, ir.TensorType(to), value.shape
            maker = value.producer()
            if maker is not None:
                graph.insert_after(maker, cast)
            else:
                graph.insert_before(graph[0], cast)
        self._twins[value] = made
        return made

    def _keep_outputs(self) -> None:
        """Give the outputs of the model and of the graphs inside it in the old type, under their old names."""
        for graph in self.model.graphs():
            for index, value in enumerate(graph.outputs):
                if value not in self.changed:
                    continue
                made = self._twin(value)
                if graph is self.model.graph:
                    value.name, made.name = f"{value.name}_{self.new.name.lower()}", value.name
                graph.outputs[index] = made


@functools.cache
def schema_of(operator: str, opset: int) -> onnx.defs.OpSchema:
    """Return how ONNX defines one of its own operators at an opset."""
    return onnx.defs.get_schema(operator, opset, "")


def is_plain(node: ir.Node, model: ir.Model) -> bool:
    """Tell whether a node of the model's own graph has one of ONNX's operators, no graph inside, and tensors only."""
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    return (
        node.graph is model.graph
        and edits.is_own(node)
        and node.op_type not in HOLDS_GRAPHS
        and all(isinstance(value.type, ir.TensorType) for value in values)
    )


def mixed(model: ir.Model) -> str:
    """Return a node whose operator asks for one type where it is given two, or ""."""
    opset = edits.opset_of(model)
    for node in edits.nodes_of(model):
        if not edits.is_own(node):
            continue
        kinds: dict[str, ir.DataType] = {}
        for value, formal in zip(node.inputs, schema_of(node.op_type, opset).inputs, strict=False):
            if value is None or value.dtype is None or not formal.is_homogeneous:
                continue
            kind = kinds.setdefault(formal.type_str, value.dtype)
            if kind is not value.dtype:
                return f"{edits.call(node)} takes {value.name} as {value.dtype.name} beside {kind.name}"
    return ""


def largest_of(model: ir.Model, values: Iterable[ir.Value], samples: Samples) -> dict[ir.Value, list[float]]:
    """Return the largest finite absolute number of each value of the model's own graph, for each sample.

    Raises:
        Unsuitable: ONNX Runtime does not run the model with that as outputs.
    """
    return {value: [each[0] for each in told] for value, told in probed(model, values, samples, _largest).items()}


def probed(
    model: ir.Model,
    values: Iterable[ir.Value],
    samples: Samples,
    ask: Callable[[ir.Graph, ir.Value], list[ir.Value]],
) -> dict[ir.Value, list[list[float]]]:
    """Return what nodes that are added to a copy of the model tell of its values, for each sample.

    Args:
        model: the model.
        values: of its own graph.
        samples: sample name to the model's inputs by name.
        ask: appends nodes that tell something of a value to the copy's graph, and returns the numbers that they give.

    Raises:
        Unsuitable: ONNX Runtime does not run the model with that as outputs.
        Failed: there is no memory left.
    """
    values = list(values)
    if not values:
        return {}
    probe = model.clone()
    named = ir.convenience.create_value_mapping(probe.graph, include_subgraphs=False)
    numbers = {value: ask(probe.graph, named[value.name or ""]) for value in values}
    probe.graph.outputs.extend(number for each in numbers.values() for number in each)
    names = {value: [number.name or "" for number in each] for value, each in numbers.items()}
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "probe.onnx"
        ir.save(probe, path, external_data="probe.onnx.data")
        release(model)
        try:
            asked = [name for each in names.values() for name in each]
            found = slices.run(gates.parse(path), path.parent, samples, asked).values()
        except sessions.errors() as error:
            if failure := foreign.out_of_memory(error, "ONNX Runtime"):
                raise Failed(failure) from error
            raise Unsuitable(f"ONNX Runtime does not run the model with what is inside as outputs: {error}") from error
    return {value: [[float(each[name]) for name in names[value]] for each in found] for value in values}


def release(model: ir.Model) -> None:
    """Let go of the data outside the file that was looked at: it is mapped again when it is needed."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                value.const_value.release()


def append(graph: ir.Graph, operator: str, *inputs: ir.Value, **attributes: int | ir.TensorProtocol) -> ir.Value:
    """Append a node to the graph of a copy that is probed; return what it gives."""
    node = ir.node(operator, list(inputs), attributes, name=f"aipc_probe_{len(graph)}")
    node.outputs[0].name = node.name
    graph.append(node)
    return node.outputs[0]


def told(number: ir.Value, kind: ir.DataType) -> ir.Value:
    """Return a single number, its type written down."""
    number.type, number.shape = ir.TensorType(kind), ir.Shape([])
    return number


def _largest(graph: ir.Graph, value: ir.Value) -> list[ir.Value]:
    """Append nodes that tell how large the finite numbers of `value` are; return what tells it."""
    size = append(graph, "Abs", value)
    if value.dtype is ir.DataType.FLOAT:
        infinite, nothing = (append(graph, "Constant", value=ir.tensor(np.array(n, np.float32))) for n in (np.inf, 0.0))
        size = append(graph, "Where", append(graph, "Less", size, infinite), size, nothing)
    return [told(append(graph, "ReduceMax", size, keepdims=0), value.dtype or ir.DataType.FLOAT)]


def made_as(model: ir.Model, kind: ir.DataType) -> list[ir.Value]:
    """Return the values of a type that nodes of the model's own graph give and that somebody takes."""
    values = (value for node in model.graph for value in node.outputs if value.dtype is kind)
    return [value for value in values if value.uses() or value.is_graph_output()]


def largest_in(tensor: ir.TensorProtocol) -> float:
    """Return the largest finite absolute number of a tensor; 0.0 where it has none."""
    largest = largest_finite(tensor.numpy())
    if isinstance(tensor, ir.ExternalTensor):
        tensor.release()
    return largest


def largest_finite(array: Array) -> float:
    """Return the largest finite absolute number of an array; 0.0 where it has none."""
    finite = np.isfinite(array)
    largest, smallest = (function(array, where=finite, initial=0) for function in (np.max, np.min))
    return max(float(largest), -float(smallest))


def _converted(value: ir.Value, to: ir.DataType, name: str, graph: ir.Graph) -> ir.Value:
    """Return an initializer with the same numbers in another type, converted only when they are written."""
    tensor = value.const_value
    if tensor is None:
        raise Unsuitable(f"constant {value.name}: has no data")
    while name in graph.initializers:
        name += "_"
    shape = ir.Shape(tensor.shape.numpy())

    def convert() -> ir.TensorProtocol:
        made = ir.Tensor(tensor.numpy().astype(to.numpy()), name=name)
        if isinstance(tensor, ir.ExternalTensor):
            tensor.release()
        return made

    lazy = ir.LazyTensor(convert, dtype=to, shape=shape, name=name)
    made = ir.Value(name=name, type=ir.TensorType(to), shape=shape, const_value=lazy)
    graph.register_initializer(made)
    return made
