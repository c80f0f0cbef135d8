"""ONNX Runtime over a graph slice by slice: of its weights, those of one slice are in memory at a time.

On a CPU, ONNX Runtime makes a float32 copy of every float16 weight before it calculates anything. In slices that
costs what the weights of a slice cost, whatever the size of the model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from runtimes.kit.tensors import Array
from runtimes.reference import external, sessions, structure

SLICE_BYTES = 2**27
"""How much the weights of a slice take, where a node does not take more by itself."""

_OTHERS = frozenset({"SequenceConstruct", "SequenceEmpty", "SplitToSequence", "Optional", "ZipMap"})
"""The operators that make something else than a tensor."""

Held = onnx.TensorProto | onnx.SparseTensorProto | onnx.NodeProto


@dataclasses.dataclass(kw_only=True)
class Slice:
    """Some nodes of a graph.

    Attributes:
        nodes: in the graph's order; all that they need is given by them or by a slice before.
        weights: the constants that they take, by name.
        size_bytes: of the weights.
    """

    nodes: list[onnx.NodeProto] = dataclasses.field(default_factory=list)
    weights: set[str] = dataclasses.field(default_factory=set)
    size_bytes: int = 0

    @property
    def takes(self) -> set[str]:
        """All that its nodes read."""
        return {name for node in self.nodes for name in structure.taken(node)}

    @property
    def gives(self) -> list[str]:
        """All that its nodes give."""
        return [name for node in self.nodes for name in node.output if name]


def run(
    model: onnx.ModelProto, folder: Path, samples: Mapping[str, Mapping[str, Array]], outputs: Sequence[str]
) -> dict[str, dict[str, Array]]:
    """Return, for each sample, what the nodes of `model` give by the names `outputs`.

    Args:
        model: an ONNX file that the gates let through; its inputs, and what one node hands to another, are as in it.
        folder: where data outside it lies.
        samples: sample name to inputs by name.
        outputs: given by nodes of the model's own graph, or constants of it.

    Raises:
        Exception: one of `sessions.errors()`.
    """
    import onnxruntime

    if not samples:
        return {}
    start = onnxruntime.OrtValue.ortvalue_from_numpy
    values = {sample: {name: start(array) for name, array in feeds.items()} for sample, feeds in samples.items()}
    declared = {value.name: value for value in structure.inputs_of(model.graph)}
    held = _constants(model.graph)
    slices = cut(model)
    for number, each in enumerate(slices):
        later = set(outputs).union(*(other.takes for other in slices[number + 1 :]))
        gives = [name for name in each.gives if name in later]
        if not gives:
            continue
        takes = sorted(name for name in each.takes if all(name in known for known in values.values()))
        inputs = [declared.get(name) or _typed(name, [known[name] for known in values.values()]) for name in takes]
        alone = _alone(model, each, held, inputs, gives)
        session = sessions.start(alone, lean=True, folder=folder)
        for sample, known in values.items():
            found = session.run_with_ort_values(gives, {name: known[name] for name in takes})
            known.update(zip(gives, found, strict=True))
            values[sample] = {name: value for name, value in known.items() if name in later}
    if given := [name for name in outputs if name in held]:
        session = sessions.start(_alone(model, Slice(weights=set(given)), held, [], given), lean=True, folder=folder)
        constants = dict(zip(given, session.run_with_ort_values(given, {}), strict=True))
        values = {sample: {**known, **constants} for sample, known in values.items()}
    return {sample: {name: known[name].numpy() for name in outputs} for sample, known in values.items()}


def cut(model: onnx.ModelProto) -> list[Slice]:
    """Return the nodes of the model's own graph in slices whose weights take `SLICE_BYTES` or one node's.

    A node comes into the first slice that has room for its weights and has, or follows, all that it reads. What graphs
    inside nodes hold is not counted. A graph in which anything but tensors goes from node to node is one slice: only
    tensors are handed over.
    """
    held = _constants(model.graph)
    sizes = {name: _size_bytes(each) for name, each in held.items()}
    limit = float("inf") if _OTHERS & {node.op_type for node in structure.nodes_of(model)} else SLICE_BYTES
    slices: list[Slice] = [Slice()]
    made: dict[str, int] = {}
    for node in model.graph.node:
        if _is_constant(node):
            continue
        reads = set(structure.taken(node))
        weights = reads & held.keys()
        number = max((made[name] for name in reads if name in made), default=0)
        while (needed := sum(sizes[name] for name in weights - slices[number].weights)) and (
            slices[number].size_bytes and slices[number].size_bytes + needed > limit
        ):
            number += 1
            if number == len(slices):
                slices.append(Slice())
        slices[number].nodes.append(node)
        slices[number].weights |= weights
        slices[number].size_bytes += needed
        made.update(dict.fromkeys(node.output, number))
    return slices


def _constants(graph: onnx.GraphProto) -> dict[str, Held]:
    """Return all that is given by no calculation, by name."""
    return {
        **{tensor.name: tensor for tensor in graph.initializer},
        **{tensor.values.name: tensor for tensor in graph.sparse_initializer},
        **{node.output[0]: node for node in graph.node if _is_constant(node)},
    }


def _is_constant(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant" and node.domain in {"", "ai.onnx"}


def _size_bytes(held: Held) -> int:
    return external.size_bytes(held) if isinstance(held, onnx.TensorProto) else held.ByteSize()


def _typed(name: str, values: Sequence[Any]) -> onnx.ValueInfoProto:
    """Return the declaration of what a slice is handed: its shape where it has the same on every sample."""
    shapes = {tuple(value.shape()) for value in values}
    shape = list(shapes.pop()) if len(shapes) == 1 else None
    return onnx.helper.make_tensor_value_info(name, values[0].element_type(), shape)


def _alone(
    model: onnx.ModelProto,
    each: Slice,
    held: Mapping[str, Held],
    inputs: Sequence[onnx.ValueInfoProto],
    gives: Sequence[str],
) -> bytes:
    """Return a slice as an ONNX file of its own, data outside the model's file still there."""
    alone = onnx.ModelProto(ir_version=model.ir_version)
    alone.opset_import.extend(model.opset_import)
    alone.functions.extend(model.functions)
    graph = alone.graph
    graph.name = model.graph.name or "slice"
    for name in sorted(each.weights):
        weight = held[name]
        if isinstance(weight, onnx.NodeProto):
            graph.node.append(weight)
        elif isinstance(weight, onnx.SparseTensorProto):
            graph.sparse_initializer.append(weight)
        else:
            graph.initializer.append(weight)
    graph.node.extend(each.nodes)
    graph.input.extend(inputs)
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in gives)
    return bytes(alone.SerializeToString())
