"""Spelled in another way, a graph says the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from runtimes.kit.tensors import Array
from runtimes.reference.rewrites import find
from tests.runtimes.rewrites import graphs

NORMAL = np.random.default_rng(0).normal


def normal(*shape: int) -> Array:
    return NORMAL(0, 1, shape).astype(np.float32)


@pytest.mark.parametrize(("operator", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_a_recurrent_layer_loses_the_layout_that_it_has_anyway(operator: str, gates: int) -> None:
    feeds = {"x": normal(5, 2, 3)}
    weights = {"w": normal(1, gates * 4, 3), "r": normal(1, gates * 4, 4)}
    node = graphs.node(operator, ["x", "w", "r"], ["y"], "layer", hidden_size=4, layout=0)
    model = graphs.build([node], feeds, ["y"], constants=weights)
    made, changed = graphs.rewritten(model, "drop_layout")
    assert changed == ["layer"]
    assert [each.name for each in made.graph.node[0].attribute] == ["hidden_size"]
    assert graphs.run(made, feeds)["y"].tobytes() == graphs.run(model, feeds)["y"].tobytes()


def test_a_recurrent_layer_without_a_layout_is_left_alone() -> None:
    weights = {"w": normal(1, 4, 3), "r": normal(1, 4, 4)}
    node = graphs.node("RNN", ["x", "w", "r"], ["y"], "layer", hidden_size=4)
    model = graphs.build([node], {"x": normal(5, 2, 3)}, ["y"], constants=weights)
    assert graphs.rewritten(model, "drop_layout")[1] == []


@pytest.mark.parametrize("given", [{}, {"axis": 1}, {"epsilon": 0.5}])
def test_axis_and_epsilon_of_a_layer_norm_are_written_out_as_they_were_meant(given: dict[str, float]) -> None:
    feeds = {"x": normal(2, 3, 4)}
    scale = normal(3, 4) if "axis" in given else normal(4)
    node = graphs.node("LayerNormalization", ["x", "s"], ["y"], "norm", **given)
    model = graphs.build([node], feeds, ["y"], constants={"s": scale})
    made, changed = graphs.rewritten(model, "write_layer_norm")
    assert changed == ["norm"]
    assert sorted(each.name for each in made.graph.node[0].attribute) == ["axis", "epsilon"]
    assert graphs.run(made, feeds)["y"].tobytes() == graphs.run(model, feeds)["y"].tobytes()


def test_a_layer_norm_that_says_both_is_left_alone() -> None:
    node = graphs.node("LayerNormalization", ["x", "s"], ["y"], "norm", axis=-1, epsilon=1e-6)
    model = graphs.build([node], {"x": normal(2, 4)}, ["y"], constants={"s": normal(4)})
    assert graphs.rewritten(model, "write_layer_norm")[1] == []


def test_an_lstm_whose_last_state_alone_is_used_names_the_rest() -> None:
    feeds = {"x": normal(5, 2, 3)}
    weights = {"w": normal(1, 16, 3), "r": normal(1, 16, 4)}
    node = graphs.node("LSTM", ["x", "w", "r"], ["", "h", ""], "layer", hidden_size=4)
    model = graphs.build([node], feeds, ["h"], constants=weights)
    made, changed = graphs.rewritten(model, "name_outputs")
    assert changed == ["layer"]
    assert all(made.graph.node[0].output)
    assert graphs.run(made, feeds)["h"].tobytes() == graphs.run(model, feeds)["h"].tobytes()
    assert graphs.rewritten(made, "name_outputs")[1] == []


@pytest.mark.parametrize(
    ("attribute", "value", "operator"),
    [
        *(("value_float", 2.5, "Mul"), ("value_floats", [2.5, 3.0], "Mul")),
        *(("value_int", 1, "Gather"), ("value_ints", [1, 0], "Gather")),
    ],
)
def test_a_constant_becomes_a_tensor_of_the_same_numbers(attribute: str, value: object, operator: str) -> None:
    feeds = {"x": normal(2, 2)}
    nodes = [
        graphs.node("Constant", [], ["c"], "number", **{attribute: value}),
        graphs.node(operator, ["x", "c"], ["y"], "use"),
    ]
    model = graphs.build(nodes, feeds, ["y"])
    made, changed = graphs.rewritten(model, "make_tensors")
    assert changed == ["number"]
    assert [each.name for each in made.graph.node[0].attribute] == ["value"]
    assert graphs.run(made, feeds)["y"].tobytes() == graphs.run(model, feeds)["y"].tobytes()
    assert graphs.rewritten(made, "make_tensors")[1] == []


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_whole_numbers_that_pass_through_a_model_are_calculated(dtype: type[np.signedinteger[Any]]) -> None:
    limits = np.iinfo(dtype)
    feeds = {"x": np.array([limits.min, -1, 0, limits.max], dtype), "z": normal(4)}
    nodes = [graphs.node("Identity", ["x"], ["y"], "pass"), graphs.node("Identity", ["z"], ["w"], "floats")]
    model = graphs.build(nodes, feeds, ["y", "w"])
    made, changed = graphs.rewritten(model, "carry_inputs")
    assert changed == ["pass"]
    found, expected = graphs.run(made, feeds), graphs.run(model, feeds)
    assert all(found[name].tobytes() == expected[name].tobytes() for name in ("y", "w"))


def test_an_output_that_is_left_out_still_breaks_the_promise() -> None:
    made = ir.node("Dropout", [ir.Value(name="x")], num_outputs=2)
    graph = ir.Graph([], [], nodes=[made], opset_imports={"": 17}, name="g")
    made.outputs[0].name = None
    ensures = find("name_outputs").ensures
    assert "leaves an output out still" in ensures(ir.Model(graph, ir_version=8))
    made.outputs[0].name = "y"
    assert ensures(ir.Model(graph, ir_version=8)) == ""


def test_a_size_that_is_known_and_told_still_breaks_the_promise_of_folding() -> None:
    taken = ir.Value(name="x", shape=ir.Shape([2, 3]), type=ir.TensorType(ir.DataType.FLOAT))
    made = ir.node("Shape", [taken], name="size")
    graph = ir.Graph([taken], made.outputs, nodes=[made], opset_imports={"": 17}, name="g")
    ensures = find("fold_constants").ensures
    assert "node size (Shape) tells a size that is known" in ensures(ir.Model(graph, ir_version=8))
    taken.shape = ir.Shape(["N", 3])
    assert ensures(ir.Model(graph, ir_version=8)) == ""
