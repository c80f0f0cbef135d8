"""Gates on an ONNX graph that need no engine: names, order, operators, shapes and constants."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TensorProto

from runtimes.kit.tensors import Array

Scope = GraphProto | FunctionProto
"""What has nodes, whose values have names of their own."""

_CLAMPED = {"Slice": (1, 2)}
"""Operators that take some inputs (by index) as "up to the end", so that a huge number means nothing worse."""

_CARRIERS = frozenset({"Cast", "Concat", "Gather", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators that only carry numbers to where they are used."""

_INTEGERS = frozenset({TensorProto.INT64, TensorProto.UINT64, TensorProto.UINT32})

RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""Operators of ONNX whose answer is another one each time."""


def graphs_of(model: onnx.ModelProto) -> Iterator[GraphProto]:
    """Yield the model's graph and every graph inside an attribute, in functions too, outer ones first."""
    waiting = [
        model.graph,
        *(graph for function in model.functions for node in function.node for graph in _inner(node)),
    ]
    while waiting:
        graph = waiting.pop(0)
        yield graph
        waiting.extend(inner for node in graph.node for inner in _inner(node))


def attributes_of(model: onnx.ModelProto) -> Iterator[AttributeProto]:
    """Yield every attribute of every node, in graphs inside graphs and in functions too."""
    for node in nodes_of(model):
        yield from node.attribute


def nodes_of(model: onnx.ModelProto) -> Iterator[NodeProto]:
    """Yield every node, in graphs inside graphs and in functions too."""
    for graph in graphs_of(model):
        yield from graph.node
    for function in model.functions:
        yield from function.node


def inputs_of(graph: GraphProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs of a graph that have no value of their own in the file."""
    constants = {tensor.name for tensor in graph.initializer}
    return [each for each in graph.input if each.name not in constants]


def opset_of(model: onnx.ModelProto) -> int:
    """Return the version of ONNX's own operators that the model uses; 0 where it names none."""
    return max((each.version for each in model.opset_import if domain_of(each.domain) == ""), default=0)


def sizes_of(value: onnx.ValueInfoProto) -> list[int | str] | None:
    """Return the sizes of a tensor: a number, or a name ("?" for none) where one is open; None for an open rank."""
    if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
        return None
    return [
        dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else dim.dim_param or "?"
        for dim in value.type.tensor_type.shape.dim
    ]


def find_unknown_ir_version(model: onnx.ModelProto, _path: Path) -> list[str]:
    """Return an IR version that the installed onnx does not know."""
    if 3 <= model.ir_version <= onnx.IR_VERSION:
        return []
    return [f"ir_version is {model.ir_version}, known are 3 to {onnx.IR_VERSION}; save the model with another onnx"]


def find_unknown_opset(model: onnx.ModelProto, _path: Path) -> list[str]:
    """Return an opset that the installed onnx does not know, or that is missing."""
    versions = [each.version for each in model.opset_import if domain_of(each.domain) == ""]
    newest = onnx.defs.onnx_opset_version()
    if len(versions) != 1:
        return [f"the model names {len(versions)} opsets of ONNX's own operators, not one; save it anew"]
    if not 1 <= versions[0] <= newest:
        return [f"opset is {versions[0]}, known are 1 to {newest}; export to opset 17"]
    return []


def find_unknown_operators(model: onnx.ModelProto, _path: Path) -> list[str]:
    """Return the operators that are neither ONNX's own nor defined by a function, and those that draw at random."""
    versions = {domain_of(each.domain): each.version for each in model.opset_import}
    functions = {(domain_of(function.domain), function.name) for function in model.functions}
    known: dict[tuple[str, str], str] = {}
    problems = []
    for node in nodes_of(model):
        operator = (domain_of(node.domain), node.op_type)
        if operator in functions:
            continue
        if operator not in known:
            known[operator] = _unknown(*operator, versions)
        if known[operator]:
            problems.append(f"node {node.name} ({node.op_type}) {known[operator]}")
    return problems


def find_bad_node_names(model: onnx.ModelProto, _path: Path) -> list[str]:
    """Return the nodes without a name, and the names that two nodes of one graph or function share."""
    problems = []
    for scope, where in (
        *((graph, "") for graph in graphs_of(model)),
        *((function, f" in the function {function.name}") for function in model.functions),
    ):
        counts = collections.Counter(node.name for node in scope.node)
        problems += [
            f"node {index} ({node.op_type}, makes {', '.join(node.output)}){where} has no name; "
            "name every node, for instance with onnx_ir.passes.common.NameFixPass"
            for index, node in enumerate(scope.node)
            if not node.name
        ]
        problems += [
            f"{count} nodes{where} are called {name}; rename them, for instance with onnx_ir.passes.common.NameFixPass"
            for name, count in counts.items()
            if name and count > 1
        ]
    return problems


def find_repeated_value_names(model: onnx.ModelProto, _path: Path) -> list[str]:
    """Return the names that two inputs, two outputs or two initializers of one graph share."""
    problems = []
    for graph in graphs_of(model):
        for word, values in (("inputs", graph.input), ("outputs", graph.output), ("initializers", graph.initializer)):
            counts = collections.Counter(value.name for value in values)
            problems += [f"{n} {word} are called {name!r}; rename all but one" for name, n in counts.items() if n > 1]
            problems += [f"one of the {word} has no name; name it"] if "" in counts else []
    return problems


def find_written_twice(model: onnx.ModelProto, _path: Path) -> list[str]:
    """Return the values that more than one node writes, or that a node writes over an input or a constant."""
    problems = []
    for graph in graphs_of(model):
        given = {value.name for value in (*graph.input, *graph.initializer)}
        writers: dict[str, str] = {}
        for node in graph.node:
            for name in filter(None, node.output):
                if name in given or name in writers:
                    before = writers.get(name, "the graph itself")
                    problems.append(f"{name} is written by {before} and again by {_call(node)}; rename one of the two")
                writers[name] = _call(node)
    return problems


def find_out_of_order(model: onnx.ModelProto, _path: Path) -> list[str]:
    """Return the nodes that take what only a later node gives, or nothing at all; and outputs that nothing gives."""
    problems = []
    for graph, outer in _scopes(model.graph, frozenset()):
        later = {name: node for node in graph.node for name in node.output if name}
        ready = set(outer) | _given(graph)
        known = ready | set(later)
        for node in graph.node:
            problems += [
                f"{_call(node)} stands before {_call(later[name])}, whose output {name} it takes; "
                "sort the graph, for instance with onnx_ir.passes.common.TopologicalSortPass"
                for name in taken(node)
                if name in later and name not in ready
            ]
            problems += [
                f"{_call(node)} takes {name}, which nothing gives; the graph is damaged, export it anew"
                for name in node.input
                if name and name not in known
            ]
            ready.update(node.output)
        problems += [
            f"the output {value.name} is given by nothing; the graph is damaged, export it anew"
            for value in graph.output
            if value.name not in known
        ]
    return problems


def find_open_sizes(model: onnx.ModelProto, path: Path) -> list[str]:
    """Return the inputs and outputs whose sizes are not all numbers."""
    problems = [_open_size("input", value, path) for value in inputs_of(model.graph) if _is_open(value)]
    if problems:
        return problems
    outputs: Sequence[onnx.ValueInfoProto] = [value for value in model.graph.output if _is_open(value)]
    if not outputs:
        return []
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        inferred = model
    names = {value.name for value in outputs}
    return [
        f"output {value.name} has the sizes {_show(value)}, which depend on the data; return a tensor of a fixed size"
        for value in inferred.graph.output
        if value.name in names and _is_open(value)
    ]


def find_wide_integers(model: onnx.ModelProto, path: Path) -> list[str]:
    """Return the integer constants that do not fit 32 bits: some runtimes turn them into −2³¹ without a word.

    One that only says how far a Slice goes is clamped everywhere, and passes.
    """
    scopes: list[Scope] = [*graphs_of(model), *model.functions]
    return [
        f"constant {name} holds {wide}, which does not fit 32 bits; use a smaller number"
        for scope in scopes
        for name, values in _constants(scope, path.parent)
        if (wide := _widest(values)) is not None and not _only_clamped(name, scope, set())
    ]


def _inner(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _scopes(graph: GraphProto, outer: frozenset[str]) -> Iterator[tuple[GraphProto, frozenset[str]]]:
    """Yield each graph with the names that it may take from the graphs around it."""
    yield graph, outer
    inside = outer | _written(graph)
    for node in graph.node:
        for inner in _inner(node):
            yield from _scopes(inner, inside)


def _given(graph: GraphProto) -> set[str]:
    sparse = [tensor.values.name for tensor in graph.sparse_initializer]
    return {value.name for value in (*graph.input, *graph.initializer)} | set(sparse)


def _written(graph: GraphProto) -> frozenset[str]:
    return frozenset(_given(graph) | {name for node in graph.node for name in node.output if name})


def taken(node: NodeProto) -> Iterator[str]:
    """Yield what a node takes, also for the graphs inside it."""
    yield from filter(None, node.input)
    for graph in _inner(node):
        own = _written(graph)
        yield from (name for inner in graph.node for name in taken(inner) if name not in own)
        yield from (value.name for value in graph.output if value.name not in own)


def _call(node: NodeProto) -> str:
    return f"node {node.name or 'without a name'} ({node.op_type})"


def domain_of(domain: str) -> str:
    """Return a domain in one spelling: "" for ONNX's own."""
    return "" if domain == "ai.onnx" else domain


def _unknown(domain: str, operator: str, versions: dict[str, int]) -> str:
    """Return why an operator is not known or cannot be compared, or ""."""
    if domain not in versions:
        return f"comes from the domain {domain!r}, which the model does not import; save it anew"
    try:
        # It takes 32 bits; a version that needs more is for `find_unknown_opset` to tell.
        onnx.defs.get_schema(operator, min(versions[domain], 2**31 - 1), domain)
    except onnx.defs.SchemaError:
        if domain:
            return (
                f"comes from the domain {domain!r}, which is not ONNX's own; export the model with ONNX's own operators"
            )
        return f"is no operator of opset {versions[domain]}; export to an opset that has it"
    if not domain and operator in RANDOM:
        return "draws at random, so no two answers are equal; make what it draws an input of the model"
    return ""


def _is_open(value: onnx.ValueInfoProto) -> bool:
    sizes = sizes_of(value)
    return sizes is None or any(isinstance(size, str) for size in sizes)


def _show(value: onnx.ValueInfoProto) -> str:
    sizes = sizes_of(value)
    return "(none given)" if sizes is None else f"[{', '.join(map(str, sizes))}]"


def _open_size(word: str, value: onnx.ValueInfoProto, path: Path) -> str:
    sizes = sizes_of(value)
    example = "x".join("64" if isinstance(size, str) else str(size) for size in sizes) if sizes else "1x3x64x64"
    said = f"{word} {value.name} has the sizes {_show(value)}"
    return f"{said}; add a shape after the name, e.g. {path.name}#{example}"


def _constants(scope: Scope, folder: Path) -> Iterator[tuple[str, Array]]:
    """Yield the integer constants of a graph or function, name and values; those of the graphs inside it not."""
    if isinstance(scope, GraphProto):
        yield from ((tensor.name, _integers(tensor, folder)) for tensor in scope.initializer)
    for node in scope.node:
        if node.op_type not in {"Constant", "ConstantOfShape"} or not node.output:
            continue
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield node.output[0], _integers(attribute.t, folder)
            elif attribute.name in {"value_int", "value_ints"}:
                yield node.output[0], np.array([attribute.i, *attribute.ints], np.int64)


def _integers(tensor: TensorProto, folder: Path) -> Array:
    """Return the values of a tensor of wide integers; none of one of another type, or that is damaged."""
    if tensor.data_type in _INTEGERS:
        with contextlib.suppress(OSError, ValueError, onnx.checker.ValidationError):  # which other gates say better
            return onnx.numpy_helper.to_array(tensor, str(folder))
    return np.zeros(0, np.int64)


def _widest(values: Array) -> int | None:
    """Return an integer that does not fit 32 bits, or None."""
    wide = values[(values > np.iinfo(np.int32).max) | (values < np.iinfo(np.int32).min)]
    return int(wide.flat[0]) if wide.size else None


def _only_clamped(name: str, scope: Scope, seen: set[str]) -> bool:
    """Tell whether the value `name` goes only where a number too large is clamped, in graphs inside `scope` too.

    Args:
        name: a value of `scope`.
        scope: a graph or function.
        seen: the values that were looked at already, each once: a damaged graph may go in circles.
    """
    seen.add(name)
    uses = list(_uses(name, scope))
    return bool(uses) and all(node is not None and _clamps(node, index, where, seen) for node, index, where in uses)


def _clamps(node: NodeProto, index: int, scope: Scope, seen: set[str]) -> bool:
    """Tell whether input number `index` of a node of `scope` may be any number."""
    if node.op_type in _CARRIERS:
        return all(name in seen or _only_clamped(name, scope, seen) for name in node.output)
    return index in _CLAMPED.get(node.op_type, ())


def _uses(name: str, scope: Scope) -> Iterator[tuple[NodeProto | None, int, Scope]]:
    """Yield each use of a value: the node and which of its inputs it is (None and 0 for an output), and where."""
    if name in (value if isinstance(value, str) else value.name for value in scope.output):
        yield None, 0, scope
    for node in scope.node:
        yield from ((node, index, scope) for index, each in enumerate(node.input) if each == name)
        for graph in _inner(node):
            if name not in _written(graph):
                yield from _uses(name, graph)
