"""Pieces of a graph: each computes what the whole graph computes at the same places."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from runtimes.contract import Misused
from runtimes.kit.tensors import Array
from runtimes.reference import bisect
from runtimes.reference.bisect import BisectOptions, Graph, Piece, Task

FEEDS: dict[str, Array] = {"x": np.random.default_rng(3).standard_normal((1, 4, 5, 6)).astype(np.float32)}
BINARY = ("Add", "Mul", "Sub")
UNARY = ("Sigmoid", "Tanh", "Relu", "Neg")


def silu(path: Path) -> Graph:
    """Conv, SiLU, and beside it a constant that is calculated, a shape, and a branch that joins at the end."""
    nodes = [
        helper.make_node("Add", ["one", "one"], ["two"], "two"),
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("Sigmoid", ["c"], ["s"], "sigmoid"),
        helper.make_node("Mul", ["c", "s"], ["m"], "mul"),
        helper.make_node("Shape", ["m"], ["n"], "shape"),
        helper.make_node("Relu", ["x"], ["r"], "relu"),
        helper.make_node("Mul", ["m", "two"], ["d"], "double"),
        helper.make_node("Add", ["d", "r"], ["e"], "join"),
        helper.make_node("Reshape", ["e", "n"], ["y"], "reshape"),
    ]
    weights = np.random.default_rng(1).standard_normal((4, 4, 1, 1)).astype(np.float32)
    constants = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.ones(1, np.float32), "one")]
    return written(nodes, constants, ["y"], path)


def written(nodes: list[onnx.NodeProto], constants: list[TensorProto], outputs: list[str], path: Path) -> Graph:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 5, 6])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return bisect.read(path)


def run(graph: Graph, piece: Piece, folder: Path) -> dict[str, tuple[Array, Array]]:
    """Return what a saved piece gives beside what the whole graph has there, by name."""
    entering = bisect.inputs_of(piece, graph)
    values = {**FEEDS, **bisect.calculate(graph, FEEDS, [*entering, *piece.outputs])}
    path = folder / "piece.onnx"
    bisect.save(graph, piece, entering, values, path)
    onnx.checker.check_model(str(path), full_check=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_inputs()] == entering
    found = session.run(list(piece.outputs), {name: values[name] for name in entering})
    return {name: (made, values[name]) for name, made in zip(piece.outputs, found, strict=True)}


def cut(graph: Graph, task: Task, **options: int) -> Piece:
    return bisect.cut(graph, BisectOptions(task=task, sample="photo", **options))


def test_only_nodes_that_depend_on_an_input_count(tmp_path: Path) -> None:
    graph = silu(tmp_path / "model.onnx")
    assert [node.name for node in graph.nodes] == [
        *("conv", "sigmoid", "mul", "shape", "relu", "double", "join", "reshape")
    ]
    assert set(graph.fixed) == {"two"}


@pytest.mark.parametrize("end", range(1, 9))
def test_a_prefix_gives_all_that_flows_on_from_there(tmp_path: Path, end: int) -> None:
    graph = silu(tmp_path / "model.onnx")
    piece = cut(graph, Task.PREFIX, end=end)
    leaving = ["c", "c s", "m", "m n", "m n r", "n r d", "n e", "y"][end - 1].split()
    assert sorted(piece.outputs) == sorted(leaving)
    for made, golden in run(graph, piece, tmp_path).values():
        np.testing.assert_allclose(made, golden, atol=1e-5)


def test_a_tail_takes_the_nearest_nodes_along_and_no_others(tmp_path: Path) -> None:
    graph = silu(tmp_path / "model.onnx")
    names = {count: [node.name for node in cut(graph, Task.TAIL, end=3, count=count).nodes] for count in (1, 2, 3, 4)}
    assert names == {
        1: ["mul"],
        2: ["sigmoid", "mul"],
        3: ["conv", "sigmoid", "mul"],
        4: ["conv", "sigmoid", "mul"],
    }
    join = cut(graph, Task.TAIL, end=7, count=8)
    assert "shape" not in [node.name for node in join.nodes]
    for made, golden in run(graph, join, tmp_path).values():
        np.testing.assert_allclose(made, golden, atol=1e-5)


def test_whole_numbers_are_given_only_where_nothing_else_flows_on(tmp_path: Path) -> None:
    graph = silu(tmp_path / "model.onnx")
    piece = cut(graph, Task.PREFIX, end=4)
    values = bisect.calculate(graph, FEEDS, piece.outputs)
    kept = bisect.pruned(piece, graph, values)
    assert kept.outputs == ("m",)
    assert [node.name for node in kept.nodes] == ["conv", "sigmoid", "mul"]
    shapes = Piece(nodes=piece.nodes, outputs=("n",))
    assert bisect.pruned(shapes, graph, values).outputs == ("n",)


def test_what_hangs_on_shapes_alone_is_not_given_where_something_else_flows_on(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "relu"),
        helper.make_node("Shape", ["r"], ["n"], "shape"),
        helper.make_node("Cast", ["n"], ["size"], "cast", to=TensorProto.FLOAT),
        helper.make_node("ReduceMax", ["size"], ["most"], "most", keepdims=0),
        helper.make_node("Mul", ["r", "most"], ["y"], "mul"),
    ]
    graph = written(nodes, [], ["y"], tmp_path / "model.onnx")
    piece = cut(graph, Task.CURVE)
    assert set(piece.outputs) == {"r", "n", "size", "most", "y"}
    values = bisect.calculate(graph, FEEDS, piece.outputs)
    assert set(bisect.pruned(piece, graph, values).outputs) == {"r", "y"}


def test_a_curve_looks_inside_and_at_the_outputs(tmp_path: Path) -> None:
    graph = silu(tmp_path / "model.onnx")
    assert cut(graph, Task.CURVE, points=3).outputs == ("c", "n", "e", "y")
    assert set(cut(graph, Task.CURVE).outputs) == {"c", "s", "m", "n", "r", "d", "e", "y"}
    for made, golden in run(graph, cut(graph, Task.CURVE), tmp_path).values():
        np.testing.assert_allclose(made, golden, atol=1e-5)


@pytest.mark.parametrize(("task", "end"), [(Task.PREFIX, 9), (Task.PREFIX, -1), (Task.TAIL, 9)])
def test_a_cut_outside_the_graph_is_misuse(tmp_path: Path, task: Task, end: int) -> None:
    with pytest.raises(Misused, match=f"end {end}"):
        cut(silu(tmp_path / "model.onnx"), task, end=end)


@given(data=st.data(), size=st.integers(2, 12))
def test_every_piece_computes_what_the_whole_graph_does(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, size: int
) -> None:
    names = ["x"]
    nodes = []
    for number in range(size):
        taken = [data.draw(st.sampled_from(names)), data.draw(st.sampled_from(names))]
        op = data.draw(st.sampled_from(UNARY + BINARY))
        nodes.append(helper.make_node(op, taken[: 1 + (op in BINARY)], [f"t{number}"], f"n{number}"))
        names.append(f"t{number}")
    folder = tmp_path_factory.mktemp("graph")
    graph = written(nodes, [], [names[-1]], folder / "model.onnx")
    end = data.draw(st.integers(1, len(graph.nodes)))
    count = data.draw(st.integers(1, size))
    for piece in (cut(graph, Task.PREFIX, end=end), cut(graph, Task.TAIL, end=end, count=count)):
        for made, golden in run(graph, piece, folder).values() if piece.outputs else ():
            np.testing.assert_allclose(made, golden, rtol=1e-4, atol=1e-4)
