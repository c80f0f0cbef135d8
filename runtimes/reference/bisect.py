"""The step `bisect`: pieces of an ONNX graph with what goes in and what must come out, to find where a runtime errs.

The host looks for the first bad node: it cuts the graph, has the runtime convert and run the piece, and compares. Only
nodes that depend on an input count, in topological order; constants and what is calculated from them go along with
whoever needs them. What flows between is what ONNX Runtime on the CPU calculates, unoptimised.
"""

from __future__ import annotations

import dataclasses
import enum
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto

from runtimes.contract import Failure, Json, Kind, Misused
from runtimes.kit import tensors
from runtimes.kit.tensors import Array
from runtimes.kit.work import Failed, Work
from runtimes.reference import sessions, structure
from runtimes.reference.measures import measure

MODEL = "model.onnx"
PROTOBUF_LIMIT_BYTES = 2**31 - 1


class Task(enum.StrEnum):
    """What is asked of one job."""

    PREFIX = "prefix"
    """The nodes up to one, from the model's inputs; out comes all that flows on from there."""
    TAIL = "tail"
    """One node with some of those that it depends on; out comes what this node gives."""
    CURVE = "curve"
    """The whole model, with some of what flows inside as outputs of its own."""
    COMPARE = "compare"
    """How far the outputs of a piece lie from what must come out."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BisectOptions:
    """What `bisect` is told.

    Attributes:
        task: what to do.
        sample: the sample to feed.
        end: for "prefix" and "tail", how many nodes there are up to and with the last one; 0 for all.
        count: for "tail", how many nodes to take along at most.
        points: for "curve", how many tensors inside to look at.
    """

    task: Task
    sample: str
    end: int = 0
    count: int = 1
    points: int = 24


@dataclasses.dataclass(frozen=True, kw_only=True)
class Graph:
    """A model's own graph as bisection sees it.

    Attributes:
        model: the model, all data loaded.
        nodes: those that depend on an input, in topological order.
        fixed: by output name, the nodes that depend on none.
    """

    model: onnx.ModelProto
    nodes: tuple[NodeProto, ...]
    fixed: Mapping[str, NodeProto]

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the model's outputs."""
        return tuple(value.name for value in self.model.graph.output)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of a graph: its nodes in order, and the tensors that it gives, in order."""

    nodes: tuple[NodeProto, ...]
    outputs: tuple[str, ...]


def bisect(work: Work) -> dict[str, Json]:
    """Do one task; see `Task`. A piece is written to `model`, `samples` and `golden`; facts say what it is made of.

    Raises:
        Failed: ONNX Runtime does not run the model with what flows inside as outputs.
        Misused: the options do not fit the model.
    """
    options = work.options(BisectOptions)
    if options.task is Task.COMPARE:
        return {"measures": _compare(work, options.sample)}
    graph = read(work.input("model") / MODEL)
    samples = tensors.load_samples(work.input("samples"))
    if options.sample not in samples:
        raise Misused(f"options: sample {options.sample!r} is not in in/samples; name one of {sorted(samples)}")
    feeds = samples[options.sample]
    piece = cut(graph, options)
    if not piece.outputs:
        return {"total": len(graph.nodes), "nodes": [], "inputs": [], "outputs": []}
    values = {**feeds, **calculate(graph, feeds, [*inputs_of(piece, graph), *piece.outputs])}
    piece = pruned(piece, graph, values)
    entering = inputs_of(piece, graph)
    folder = work.output("model")
    folder.mkdir()
    save(graph, piece, entering, values, folder / MODEL)
    tensors.save_samples(work.output("samples"), {options.sample: {name: values[name] for name in entering}})
    tensors.save_samples(work.output("golden"), {options.sample: {name: values[name] for name in piece.outputs}})
    places = {name: index for index, node in enumerate(graph.nodes) for name in node.output}
    return {
        "total": len(graph.nodes),
        "nodes": [{"node": node.name, "op": node.op_type} for node in piece.nodes],
        "inputs": [_port(name, values[name]) for name in entering],
        "outputs": [
            {**_port(name, values[name]), "index": places[name], "final": name in graph.outputs}
            for name in piece.outputs
        ],
    }


def read(path: Path) -> Graph:
    """Return the graph of the ONNX file at `path`, whose nodes are in topological order."""
    model = onnx.load(path)
    moving = {value.name for value in structure.inputs_of(model.graph)}
    nodes, fixed = [], {}
    for node in model.graph.node:
        if moving.intersection(structure.taken(node)):
            moving.update(node.output)
            nodes.append(node)
        else:
            fixed.update(dict.fromkeys(filter(None, node.output), node))
    return Graph(model=model, nodes=tuple(nodes), fixed=fixed)


def cut(graph: Graph, options: BisectOptions) -> Piece:
    """Return the piece that `options` ask for.

    Raises:
        Misused: it ends behind the last node.
    """
    end = options.end or len(graph.nodes)
    if not 0 <= end <= len(graph.nodes):
        raise Misused(f"options: end {options.end}; the graph has {len(graph.nodes)} nodes")
    if options.task is Task.TAIL:
        return _tail(graph, end, options.count)
    before = graph.nodes[:end]
    behind = {name for node in graph.nodes[end:] for name in structure.taken(node)} | set(graph.outputs)
    leaving = [name for node in before for name in node.output if name in behind]
    if options.task is Task.CURVE:
        inside = [name for node in before for name in node.output[:1] if name and name not in leaving]
        picked = np.linspace(0, len(inside) - 1, min(options.points, len(inside))).round().astype(int)
        leaving = [*(inside[index] for index in dict.fromkeys(picked.tolist())), *leaving]
    return Piece(nodes=before, outputs=tuple(leaving))


def _flowing(graph: Graph) -> set[str]:
    """Return what depends on the numbers of an input, not on its shape alone, which compilers know beforehand."""
    flowing = {value.name for value in structure.inputs_of(graph.model.graph)}
    for node in graph.nodes:
        if node.op_type not in {"Shape", "Size"} and flowing.intersection(structure.taken(node)):
            flowing.update(filter(None, node.output))
    return flowing


def _tail(graph: Graph, end: int, count: int) -> Piece:
    """Return the last node before `end` with at most `count` − 1 of the nearest nodes that it depends on."""
    if end < 1 or count < 1:
        raise Misused(f"options: end {end} and count {count}; both are at least 1")
    makers = {name: index for index, node in enumerate(graph.nodes) for name in node.output if name}
    taken, waiting = set[int](), [end - 1]
    # The latest first: each is looked at after all that need it.
    while waiting and len(taken) < count:
        index = max(waiting)
        waiting = [other for other in waiting if other != index]
        taken.add(index)
        waiting += [makers[name] for name in structure.taken(graph.nodes[index]) if name in makers]
    last = graph.nodes[end - 1]
    used = {name for node in graph.nodes for name in structure.taken(node)} | set(graph.outputs)
    nodes = tuple(graph.nodes[index] for index in sorted(taken))
    return Piece(nodes=nodes, outputs=tuple(name for name in last.output if name in used))


def pruned(piece: Piece, graph: Graph, values: Mapping[str, Array]) -> Piece:
    """Return `piece` with its floating outputs, where it has any, and the nodes that these depend on.

    Shapes, masks and indices tell nothing of a precision, and few runtimes give them away, nor what is calculated from
    shapes alone.
    """
    outputs = tuple(name for name in piece.outputs if values[name].dtype.kind == "f") or piece.outputs
    flowing = _flowing(graph).union(graph.outputs)
    outputs = tuple(name for name in outputs if name in flowing) or outputs
    needed, kept = set(outputs), []
    for node in reversed(piece.nodes):
        if needed.intersection(node.output):
            needed.update(structure.taken(node))
            kept.append(node)
    return Piece(nodes=tuple(reversed(kept)), outputs=outputs)


def inputs_of(piece: Piece, graph: Graph) -> list[str]:
    """Return the tensors that a piece takes from outside: inputs of the model, or what nodes before it give."""
    made = {name for node in piece.nodes for name in node.output}
    constants = {tensor.name for tensor in graph.model.graph.initializer} | set(graph.fixed)
    needed = (name for node in piece.nodes for name in structure.taken(node))
    return [name for name in dict.fromkeys(needed) if name not in made and name not in constants]


def calculate(graph: Graph, feeds: Mapping[str, Array], names: Iterable[str]) -> dict[str, Array]:
    """Return what ONNX Runtime makes of `feeds` in the tensors called `names`.

    Raises:
        Failed: it does not run the model.
    """
    given = {value.name for value in structure.inputs_of(graph.model.graph)}
    wanted = [name for name in dict.fromkeys(names) if name not in given]
    probe = onnx.ModelProto()
    probe.CopyFrom(graph.model)
    probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted if name not in graph.outputs)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / MODEL
        _write(probe, path)
        try:
            return sessions.run(sessions.start(path, optimised=False), feeds, wanted)
        except sessions.errors() as error:
            message = f"ONNX Runtime does not run the model with tensors inside as outputs: {error}"
            raise Failed(Failure(kind=Kind.TOOLCHAIN, message=message)) from error


def save(graph: Graph, piece: Piece, inputs: Iterable[str], values: Mapping[str, Array], path: Path) -> None:
    """Write `piece` as an ONNX file of its own, with the constants that it needs and no others.

    Args:
        graph: what it is a part of.
        piece: the part.
        inputs: what it takes.
        values: all that goes in and comes out, for the shapes and types.
        path: where to.
    """
    fixed = _needed(graph, piece)
    nodes = [*fixed, *piece.nodes]
    used = {name for node in nodes for name in structure.taken(node)}
    made = onnx.ModelProto()
    made.CopyFrom(graph.model)
    for field in ("node", "input", "output", "value_info", "initializer"):
        made.graph.ClearField(field)
    made.graph.node.extend(nodes)
    made.graph.initializer.extend(tensor for tensor in graph.model.graph.initializer if tensor.name in used)
    for field, names in ((made.graph.input, inputs), (made.graph.output, piece.outputs)):
        field.extend(_value(name, values[name]) for name in names)
    _write(made, path)


def _needed(graph: Graph, piece: Piece) -> list[NodeProto]:
    """Return the nodes that depend on no input and that the piece needs, in the graph's order."""
    waiting = [name for node in piece.nodes for name in structure.taken(node) if name in graph.fixed]
    names: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in names:
            names.add(name)
            waiting += [each for each in structure.taken(graph.fixed[name]) if each in graph.fixed]
    return [node for node in graph.model.graph.node if names.intersection(node.output)]


def _write(model: onnx.ModelProto, path: Path) -> None:
    outside = model.ByteSize() > PROTOBUF_LIMIT_BYTES
    onnx.save(model, path, save_as_external_data=outside, location=f"{path.name}.data")


def _value(name: str, value: Array) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def _port(name: str, value: Array) -> dict[str, Json]:
    return {"name": name, "shape": list(value.shape), "dtype": value.dtype.name}


def _compare(work: Work, sample: str) -> list[Json]:
    golden, outputs = (tensors.load_samples(work.input(name)).get(sample, {}) for name in ("golden", "outputs"))
    rows: list[Json] = []
    for name, expected in golden.items():
        made = outputs.get(name)
        if made is None or made.shape != expected.shape or not np.isfinite(expected).any():
            rows.append({"output": name, "cosine": None, "snr_db": None, "max_abs": None})
            continue
        found = measure(expected, made)
        rows.append({"output": name, "cosine": found.cosine, "snr_db": found.snr_db, "max_abs": found.max_abs})
    return rows
