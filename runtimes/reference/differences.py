"""What differs between two ONNX files, for a change that was made elsewhere and does not say what it was."""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, numpy_helper

from runtimes.reference.structure import domain_of

GRAPH = "the graph"
"""What is named where neither a node nor an initializer differs, but something else does."""

Named = tuple[str, bytes]
"""A node or an initializer: what it is called, and what it is."""


def between(
    before: onnx.ModelProto,
    after: onnx.ModelProto,
    folder: Path | None = None,
    other: Path | None = None,
) -> list[str]:
    """Return the names of the nodes that are gone, another or new in `after`; of initializers where no node is.

    What says nothing of the calculation (descriptions, metadata, known shapes in between, how a tensor is stored) does
    not count. Where something else differs, as the order of nodes or the opset, that is `GRAPH`; nothing is [].

    Args:
        before: the model as it was.
        after: what was made of it.
        folder: where data outside `before` lies; without it, where they lie stands for what they are.
        other: the same for `after`.
    """
    old, new = _nodes(before), _nodes(after)
    changed = _changed(old, new) or _changed(_weights(before.graph, folder), _weights(after.graph, other))
    if changed:
        return changed
    return [GRAPH] if old != new or _frame(before) != _frame(after) else []


def _changed(before: Sequence[Named], after: Sequence[Named]) -> list[str]:
    gone = collections.Counter(before) - collections.Counter(after)
    fresh = collections.Counter(after) - collections.Counter(before)
    return list(dict.fromkeys(name for name, _ in (*gone.elements(), *fresh.elements())))


def _nodes(model: onnx.ModelProto) -> list[Named]:
    functions = (node for function in model.functions for node in function.node)
    return [
        (node.name or f"node without a name ({node.op_type})", _plain(node).SerializeToString(deterministic=True))
        for node in (*model.graph.node, *functions)
    ]


def _weights(graph: GraphProto, folder: Path | None) -> list[Named]:
    return sorted((tensor.name, _tensor(tensor, folder)) for tensor in graph.initializer)


def _frame(model: onnx.ModelProto) -> tuple[object, ...]:
    """Return what a model has besides nodes and weights: inputs, outputs, opsets of what is used, functions."""
    used = {domain_of(node.domain) for node in model.graph.node}
    used.update(domain_of(node.domain) for function in model.functions for node in function.node)
    opsets = sorted(
        (domain_of(each.domain), each.version) for each in model.opset_import if domain_of(each.domain) in used
    )
    functions = [(each.domain, each.name, tuple(each.input), tuple(each.output)) for each in model.functions]
    sparse = [each.SerializeToString(deterministic=True) for each in model.graph.sparse_initializer]
    return (_ports(model.graph.input), _ports(model.graph.output), opsets, functions, sparse)


def _ports(values: Iterable[onnx.ValueInfoProto]) -> list[Named]:
    return [(each.name, each.type.SerializeToString(deterministic=True)) for each in values]


def _plain(node: NodeProto) -> NodeProto:
    """Return a node without what says nothing, its attributes in order."""
    made = NodeProto(name=node.name, op_type=node.op_type, domain=domain_of(node.domain), overload=node.overload)
    made.input.extend(node.input)
    made.output.extend(node.output)
    for each in sorted(node.attribute, key=lambda attribute: attribute.name):
        attribute = made.attribute.add()
        attribute.CopyFrom(each)
        attribute.ClearField("doc_string")
        if each.type == AttributeProto.GRAPH:
            attribute.g.CopyFrom(_bare(each.g))
    return made


def _bare(graph: GraphProto) -> GraphProto:
    made = GraphProto(name=graph.name)
    made.node.extend(_plain(node) for node in graph.node)
    made.initializer.extend(graph.initializer)
    made.input.extend(graph.input)
    made.output.extend(graph.output)
    return made


def _tensor(tensor: TensorProto, folder: Path | None) -> bytes:
    """Return what stands for a tensor's type, sizes and values."""
    outside = tensor.data_location == TensorProto.EXTERNAL
    if tensor.data_type == TensorProto.STRING or (outside and folder is None):
        return bytes(tensor.SerializeToString(deterministic=True))
    held = numpy_helper.to_array(tensor, base_dir=str(folder or ""))
    kind = f"{tensor.data_type} {list(tensor.dims)} ".encode()
    return kind + hashlib.sha256(held.tobytes()).digest()
