"""`fix_shapes` and `fold_constants`: numbers in place of what is calculated from sizes, and no file that grows."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import NodeProto, TensorProto, helper, numpy_helper

from runtimes.reference import edits, rewrites, structure
from runtimes.reference.rewrites import Unsuitable
from tests.runtimes.rewrites.graphs import (
    PLACES,
    Feeds,
    assert_same,
    build,
    node,
    operators,
    rewritten,
    run,
    with_which,
)

X = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32)
NUMBERS = {
    "zero": np.array(0, np.int64),
    "one": np.array([1], np.int64),
    "last": np.array([-1], np.int64),
    "axis": np.array([0], np.int64),
}


def flattened() -> list[NodeProto]:
    """What exporters write for `x.reshape(len(x), -1)`."""
    return [
        *(node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["n"])),
        *(node("Unsqueeze", ["n", "axis"], ["u"]), node("Concat", ["u", "last"], ["c"], axis=0)),
        *(node("Reshape", ["x", "c"], ["r"]), node("Neg", ["r"], ["y"])),
    ]


def opened(model: onnx.ModelProto, *names: str) -> onnx.ModelProto:
    """The model with the first size of its inputs and outputs open."""
    for value in (*model.graph.input, *model.graph.output):
        if value.name in names or not names:
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
    return model


@pytest.mark.parametrize("place", PLACES)
def test_a_shape_that_is_calculated_becomes_a_constant(place: str) -> None:
    before = build(flattened(), {"x": X}, ["y"], place=place, constants=NUMBERS)
    after, changed = rewritten(before, "fix_shapes")
    assert {"Shape", "Gather", "Concat", "Unsqueeze"} & operators(after) == set()
    assert len(changed) >= 4
    assert_same(before, after, with_which({"x": X}, place))


@pytest.mark.parametrize("how", ["options", "samples"])
def test_open_sizes_become_those_that_are_given(how: str) -> None:
    before = opened(build(flattened(), {"x": X}, ["y"], constants=NUMBERS))
    options: dict[str, Any] = {"shapes": {"x": [2, 3, 4]}} if how == "options" else {}
    samples: dict[str, Feeds] = {"one": {"x": X}} if how == "samples" else {}
    after, changed = closing(before, samples, **options)
    assert changed[0] == "x"
    assert [structure.sizes_of(value) for value in (*after.graph.input, *after.graph.output)] == [[2, 3, 4], [2, 12]]
    assert "Shape" not in operators(after)
    np.testing.assert_array_equal(run(after, {"x": X})["y"], -X.reshape(2, 12))


def closing(model: onnx.ModelProto, samples: dict[str, Feeds], **options: Any) -> tuple[onnx.ModelProto, list[str]]:
    rewrite = rewrites.find("fix_shapes")
    graph = ir.from_proto(model)
    edits.infer(graph)
    changed = rewrite.rewrite(graph, rewrites.Given(options=options, samples=samples))
    edits.tidy(graph)
    assert rewrite.ensures(graph) == ""
    return ir.to_proto(graph), changed


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({}, "input x: its sizes are open, and neither options nor samples give them"),
        ({"x": [2, 5, 4]}, "input x: has the sizes .* does not fit"),
        ({"x": [2, 3]}, "input x: has the sizes .* does not fit"),
    ],
)
def test_sizes_that_are_missing_or_do_not_fit_are_told(shapes: dict[str, list[int]], words: str) -> None:
    before = opened(build(flattened(), {"x": X}, ["y"], constants=NUMBERS))
    with pytest.raises(Unsuitable, match=words):
        closing(before, {}, shapes=shapes)


UNARY = ("Neg", "Abs", "Relu", "Identity", "Sqrt")


@settings(max_examples=30, deadline=None)
@given(
    constant=st.lists(st.sampled_from(UNARY), min_size=1, max_size=4),
    fed=st.lists(st.sampled_from(UNARY[:4]), max_size=3),
    rows=st.sampled_from([1, 7, 3000]),
    opset=st.sampled_from([13, 17, 21]),
    place=st.sampled_from(PLACES),
)
def test_any_chain_of_constants_is_folded_and_the_file_does_not_grow(
    constant: list[str], fed: list[str], rows: int, opset: int, place: str
) -> None:
    nodes, last = [], "w"
    for index, operator in enumerate(constant):
        nodes.append(node(operator, [last], [f"c{index}"]))
        last = f"c{index}"
    nodes.append(node("Add", ["x", last], ["sum"]))
    last = "sum"
    for index, operator in enumerate(fed):
        nodes.append(node(operator, [last], [f"v{index}"]))
        last = f"v{index}"
    weights = np.abs(np.random.default_rng(1).normal(size=(rows, 2))).astype(np.float32)
    x = weights[:1] * 2
    feeds = with_which({"x": x}, place)
    before = build(nodes, {"x": x}, [last], opset=opset, place=place, constants={"w": weights})
    after, changed = rewritten(before, "fold_constants")
    assert changed
    assert not any(each.name == "node_c0" for each in structure.nodes_of(after))
    assert_same(before, after, feeds)
    # Where both branches of an If used one constant, each has its own.
    assert len(after.SerializeToString()) < 300 + len(before.SerializeToString()) * (4 if "which" in feeds else 1)


def test_a_size_that_is_folded_is_a_tensor_and_no_list_of_numbers() -> None:
    feeds = {"x": np.ones((2, 3), np.float32), "z": np.ones((3, 2), np.float32)}
    before = build([node("Shape", ["x"], ["s"]), node("Reshape", ["z", "s"], ["y"])], feeds, ["y"])
    after, _changed = rewritten(before, "fold_constants")
    constants = [each for each in after.graph.node if each.op_type == "Constant"]
    assert "Shape" not in operators(after)
    assert all(each.name == "value" for constant in constants for each in constant.attribute)
    assert_same(before, after, feeds)


@pytest.mark.parametrize("operator", ["ConstantOfShape", "Expand"])
def test_a_constant_of_67_million_bytes_stays_a_few_nodes(operator: str) -> None:
    size = numpy_helper.from_array(np.array([4096, 4096], np.int64))
    nodes = [
        *(node("Constant", [], ["size"], value=size), node("Constant", [], ["one"], value_float=1.0)),
        node(operator, ["size"] if operator == "ConstantOfShape" else ["one", "size"], ["z"]),
        *(node("Relu", ["z"], ["w"]), node("MatMul", ["x", "w"], ["y"])),
    ]
    before = build(nodes, {"x": np.ones((1, 4096), np.float32)}, ["y"])
    tracemalloc.start()
    after, _changed = rewritten(before, "fold_constants")
    _now, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert operator in operators(after)
    assert len(after.SerializeToString()) < 2000
    assert peak_bytes < 20_000_000, "it is calculated, though it is not written down"


def test_pads_that_are_made_of_a_small_constant_of_shape_are_a_constant() -> None:
    count, pads = (numpy_helper.from_array(np.array(held, np.int64)) for held in ([5], [1]))
    nodes = [
        *(node("Constant", [], ["count"], value=count), node("Constant", [], ["right"], value=pads)),
        *(node("ConstantOfShape", ["count"], ["zeros"]), node("Concat", ["zeros", "right"], ["pads"], axis=0)),
        *(node("Pad", ["x", "pads"], ["p"]), node("Shape", ["p"], ["size"]), node("Reshape", ["p", "size"], ["y"])),
    ]
    nodes[2].attribute.append(helper.make_attribute("value", numpy_helper.from_array(np.zeros(1, np.int64))))
    before = build(nodes, {"x": X}, ["y"])
    after, _changed = rewritten(before, "fold_constants")
    assert not {"ConstantOfShape", "Concat", "Shape"} & set(operators(after))
    assert_same(before, after, {"x": X})


def test_weights_of_int8_do_not_become_floats() -> None:
    table = np.random.default_rng(3).integers(-127, 127, (300, 200)).astype(np.int8)
    nodes = [
        node("DequantizeLinear", ["table", "scale"], ["floats"]),
        *(node("Add", ["one", "one"], ["two"]), node("Mul", ["x", "two"], ["z"])),
        node("MatMul", ["z", "floats"], ["y"]),
    ]
    constants: dict[str, np.ndarray] = {
        "table": table,
        "scale": np.asarray(0.01, np.float32),
        "one": np.asarray(1, np.float32),
    }
    before = build(nodes, {"x": np.ones((1, 300), np.float32)}, ["y"], constants=constants)
    after, changed = rewritten(before, "fold_constants")
    assert changed == ["node_two"]
    assert "DequantizeLinear" in operators(after)


def test_random_numbers_are_not_folded() -> None:
    nodes = [node("RandomNormal", [], ["r"], shape=[2], seed=1.0), node("Add", ["x", "r"], ["y"])]
    before = build(nodes, {"x": np.ones(2, np.float32)}, ["y"])
    assert rewritten(before, "fold_constants")[1] == []


def test_what_an_input_can_override_is_no_constant() -> None:
    before = build([node("Neg", ["w"], ["n"]), node("Add", ["x", "n"], ["y"])], {"x": X}, ["y"], constants={"w": X})
    before.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, X.shape))
    after, changed = rewritten(before, "fold_constants")
    assert changed == []
    np.testing.assert_array_equal(run(after, {"x": X, "w": X * 3})["y"], X - X * 3)
