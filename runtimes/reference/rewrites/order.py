"""Order and names: what onnx_ir mends with its own passes, and what it cannot even read."""

from __future__ import annotations

import collections

import onnx
import onnx_ir as ir
from onnx_ir.passes import common

from runtimes.reference import edits, structure
from runtimes.reference.rewrites import Given, Rewrite, Unsuitable, always


def _sort(model: ir.Model, _given: Given) -> list[str]:
    graphs = [model.graph, *model.graph.subgraphs(), *model.functions.values()]
    before = {id(graph): list(graph) for graph in graphs}
    try:
        common.TopologicalSortPass()(model)
    except (ir.passes.PassError, ValueError) as error:
        raise Unsuitable(f"the graph goes in a circle: {error.__cause__ or error}") from error
    return [
        edits.call(old) for graph in graphs for old, new in zip(before[id(graph)], graph, strict=True) if old is not new
    ]


def _misplaced(model: ir.Model) -> str:
    for graph in (model.graph, *model.graph.subgraphs(), *model.functions.values()):
        places = {id(node): index for index, node in enumerate(graph)}
        for index, node in enumerate(graph):
            for value in node.inputs:
                maker = None if value is None else value.producer()
                if maker is not None and places.get(id(maker), -1) >= index:
                    return f"{edits.call(node)} stands before {edits.call(maker)}"
    return ""


def _name(model: ir.Model, _given: Given) -> list[str]:
    named = [(each, each.name) for each in _named(model)]
    common.NameFixPass()(model)
    return [f"{before or 'without a name'} -> {each.name}" for each, before in named if each.name != before]


def _named(model: ir.Model) -> list[ir.Node | ir.Value]:
    nodes = edits.nodes_of(model)
    return [*nodes, *(value for node in nodes for value in node.outputs if value.name or value.uses())]


def _badly_named(model: ir.Model) -> str:
    """Return a node without a name, or a name that two nodes or two values of one graph have."""
    scopes: list[ir.Graph | ir.Function] = [*model.graphs(), *model.functions.values()]
    for graph in scopes:
        nodes = list(graph)
        held = graph.initializers.values() if isinstance(graph, ir.Graph) else ()
        values = dict.fromkeys([*graph.inputs, *held, *(value for node in nodes for value in node.outputs)])
        nameless = [node for node in nodes if not node.name]
        if nameless:
            return f"{len(nameless)} nodes have no name"
        for word, names in (("nodes", [node.name for node in nodes]), ("values", [value.name for value in values])):
            twice = [name for name, count in collections.Counter(names).items() if name and count > 1]
            if twice:
                return f"two {word} are called {twice[0]}"
    return ""


def _written_twice(model: ir.Model) -> str:
    """Return a value that two nodes of one graph write."""
    for graph in (*model.graphs(), *model.functions.values()):
        counted = collections.Counter(value.name for node in graph for value in node.outputs if value.name)
        twice = [name for name, count in counted.items() if count > 1]
        if twice:
            return f"two nodes write {twice[0]}"
    return ""


def _merge_constants(model: onnx.ModelProto) -> list[str]:
    """Keep one of several equal constants of one name.

    Raises:
        Unsuitable: two of one name differ.
    """
    merged = []
    for graph in structure.graphs_of(model):
        kept: dict[str, onnx.TensorProto] = {}
        for tensor in graph.initializer:
            first = kept.setdefault(tensor.name, tensor)
            if first is tensor:
                continue
            if first != tensor:
                raise Unsuitable(f"two constants are called {tensor.name}, and are not the same")
            merged.append(f"constant {tensor.name}, once more")
        if len(kept) != len(graph.initializer):
            tensors = list(kept.values())
            del graph.initializer[:]
            graph.initializer.extend(tensors)
    return merged


def _drop_duplicates(model: onnx.ModelProto) -> list[str]:
    """Drop every node that writes what an equal node has written before.

    Raises:
        Unsuitable: two nodes that differ write the same value.
    """
    dropped = []
    for scope in (*structure.graphs_of(model), *model.functions):
        writers: dict[str, onnx.NodeProto] = {}
        kept = []
        for node in scope.node:
            first = next((writers[name] for name in node.output if name in writers), None)
            if first is None:
                writers.update(dict.fromkeys(filter(None, node.output), node))
                kept.append(node)
                continue
            if _meaning(first) != _meaning(node):
                raise Unsuitable(
                    f"nodes {first.name!r} ({first.op_type}) and {node.name!r} ({node.op_type}) both write "
                    f"{', '.join(node.output)}, and are not the same"
                )
            dropped.append(node.name or f"{node.op_type} that writes {', '.join(node.output)} again")
        if len(kept) != len(scope.node):
            del scope.node[:]
            scope.node.extend(kept)
    return dropped


def _meaning(node: onnx.NodeProto) -> bytes:
    """Return a node's operator, inputs, outputs and attributes, without its name and what is said of it."""
    bare = onnx.NodeProto()
    bare.CopyFrom(node)
    for field in ("name", "doc_string", "metadata_props"):
        bare.ClearField(field)
    attributes = sorted(bare.attribute, key=lambda each: each.name)
    del bare.attribute[:]
    bare.attribute.extend(attributes)
    return bytes(bare.SerializeToString(deterministic=True))


def _mended(_model: ir.Model, _given: Given) -> list[str]:
    return []  # `mend` did it


REWRITES = (
    Rewrite(
        name="sort_nodes", summary="nodes in topological order", requires=always, rewrite=_sort, ensures=_misplaced
    ),
    Rewrite(
        name="unique_names",
        summary="a name of its own for every node and value",
        requires=always,
        rewrite=_name,
        ensures=_badly_named,
        mend=_merge_constants,
    ),
    Rewrite(
        name="drop_duplicate_outputs",
        summary="one node for each value, where equal ones write it twice",
        requires=always,
        rewrite=_mended,
        ensures=_written_twice,
        mend=_drop_duplicates,
    ),
)
