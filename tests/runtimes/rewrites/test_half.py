"""`fp16`: half precision where the numbers fit, one type for each tensor, float32 at the model's inputs and outputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import NodeProto, TensorProto, numpy_helper

from runtimes.kit.tensors import Array
from runtimes.reference import structure
from runtimes.reference.measures import measure
from runtimes.reference.rewrites import Unsuitable
from tests.runtimes.rewrites.graphs import PLACES, Feeds, build, node, rewritten, run, with_which

RNG = np.random.default_rng(6)
PICTURE = RNG.uniform(-1, 1, size=(1, 4, 6, 8)).astype(np.float32)
WEIGHTS = RNG.normal(size=(4, 4, 3, 3)).astype(np.float32)
ROWS = RNG.normal(size=(5, 8)).astype(np.float32)
HALF, FLOAT = TensorProto.FLOAT16, TensorProto.FLOAT


def halved(model: onnx.ModelProto, feeds: Feeds, snr_db: float = 45.0) -> onnx.ModelProto:
    """The model in half precision, which must come near."""
    after, _changed = rewritten(model, "fp16", samples={"one": feeds})
    found = run(after, feeds)
    for name, expected in run(model, feeds).items():
        assert found[name].dtype == expected.dtype
        if expected.dtype.kind == "f":
            assert (measure(expected, found[name]).snr_db or 0) > snr_db
        else:
            np.testing.assert_array_equal(found[name], expected)
    return after


def types_of(model: onnx.ModelProto) -> dict[str, int]:
    """The type of each value of the main graph, by name."""
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    values = (*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    return {**types, **{tensor.name: tensor.data_type for tensor in model.graph.initializer}}


def calculates_in(model: onnx.ModelProto, name: str) -> int:
    """The type of what the node `name` gives."""
    (found,) = (each for each in structure.nodes_of(model) if each.name == name)
    return types_of(model)[found.output[0]]


def convolution() -> list[NodeProto]:
    return [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        node("Sigmoid", ["a"], ["b"]),
        node("Mul", ["a", "b"], ["y"]),
    ]


@pytest.mark.parametrize("place", PLACES)
def test_a_convolution_is_halved_outside_of_branches(place: str) -> None:
    feeds = with_which({"x": PICTURE}, place)
    before = build(convolution(), {"x": PICTURE}, ["y"], place=place, constants={"w": WEIGHTS})
    after = halved(before, feeds)
    weights = {tensor.name: tensor.data_type for tensor in after.graph.initializer}
    assert set(weights.values()) == {FLOAT if place in {"branch", "nested"} else HALF}
    assert len(after.graph.initializer) == 1


UNARY = ("Relu", "Sigmoid", "Tanh", "Abs", "Neg", "Softplus", "Identity")
BINARY = ("Add", "Mul", "Sub", "Max", "Where", "Concat", "MatMul", "ReduceMean", "Softmax", "LayerNormalization")


@settings(max_examples=60, deadline=None)
@given(
    operators=st.lists(st.sampled_from([*UNARY, *BINARY]), min_size=1, max_size=6),
    opset=st.sampled_from([17, 20, 23]),
    place=st.sampled_from(PLACES),
    through=st.booleans(),
)
def test_any_chain_of_operators_comes_near(operators: list[str], opset: int, place: str, through: bool) -> None:
    feeds: dict[str, Array] = {"x": RNG.uniform(-1, 1, size=(4, 4)).astype(np.float32)}
    constants: dict[str, Array] = {
        "w": RNG.uniform(-1, 1, size=(4, 4)).astype(np.float32),
        "s": np.ones(4, np.float32),
        "c": RNG.integers(0, 2, size=(4, 4)).astype(bool),
        "four": np.array([[0, 1, 2, 3]], np.int64),
    }
    nodes, last = [], "x"
    for index, operator in enumerate(operators):
        nodes += _link(operator, last, f"v{index}")
        last = f"v{index}"
    if through:
        nodes.append(node("Cast", [last], ["cast"], to=FLOAT))
        last = "cast"
    before = build(nodes, feeds, [last], opset=opset, place=place, constants=constants)
    halved(before, with_which(feeds, place), 35.0)


def _link(operator: str, taken: str, given: str) -> list[NodeProto]:
    if operator in UNARY:
        return [node(operator, [taken], [given])]
    if operator == "Where":
        return [node("Where", ["c", taken, "w"], [given])]
    if operator == "Concat":
        return [
            node("Concat", [taken, "w"], [f"{given}_both"], axis=1),
            node("GatherElements", [f"{given}_both", "four"], [f"{given}_row"], axis=1),
            node("Add", [f"{given}_row", taken], [given]),
        ]
    if operator == "LayerNormalization":
        return [node("LayerNormalization", [taken, "s"], [given])]
    if operator == "ReduceMean":
        return [node("ReduceMean", [taken], [f"{given}_mean"]), node("Sub", [taken, f"{given}_mean"], [given])]
    if operator == "Softmax":
        return [node("Softmax", [taken], [given])]
    return [node(operator, [taken, "w"], [given])]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Region:
    """Nodes of which some must stay in float32."""

    nodes: list[NodeProto]
    wide: set[str]
    constants: Mapping[str, Array] = dataclasses.field(default_factory=dict)


REGIONS = {
    "too large inside": Region(
        nodes=[
            node("Mul", ["x", "k"], ["big"]),
            node("ReduceMean", ["big"], ["mean"], axes=[1]),
            node("Div", ["big", "mean"], ["y"]),
        ],
        wide={"node_big", "node_mean", "node_y"},
        constants={"k": np.array(1e5, np.float32)},
    ),
    "too small a constant": Region(
        nodes=[
            node("Mul", ["x", "zero"], ["none"]),
            node("Add", ["none", "eps"], ["sum"]),
            node("Div", ["x", "sum"], ["ratio"]),
            node("Mul", ["ratio", "eps"], ["y"]),
        ],
        wide={"node_sum", "node_ratio", "node_y"},
        constants={"zero": np.array(0, np.float32), "eps": np.array(1e-12, np.float32)},
    ),
    "too small inside": Region(
        nodes=[
            node("Mul", ["x", "k"], ["small"]),
            node("Div", ["small", "k"], ["y"]),
        ],
        wide={"node_small", "node_y"},
        constants={"k": np.array(1e-6, np.float32)},
    ),
    "whole numbers": Region(
        nodes=[
            node("Mul", ["x", "k"], ["wide"]),
            node("Floor", ["wide"], ["floor"]),
            node("Cast", ["floor"], ["y"], to=TensorProto.INT64),
        ],
        wide={"node_wide", "node_floor"},
        constants={"k": np.array(3000, np.float32)},
    ),
}


@pytest.mark.parametrize("region", REGIONS.values(), ids=REGIONS.keys())
def test_what_half_precision_cannot_hold_stays(region: Region) -> None:
    before = build([node("Relu", ["x0"], ["x"]), *region.nodes], {"x0": ROWS}, ["y"], constants=region.constants)
    after = halved(before, {"x0": ROWS})
    assert {name for name in region.wide if calculates_in(after, name) != FLOAT} == set()
    assert calculates_in(after, "node_x") == HALF


def test_an_infinite_mask_may_be_halved() -> None:
    mask = np.where(RNG.integers(0, 2, size=(5, 8)).astype(bool), np.float32(-np.inf), np.float32(0))
    mask[:, 0] = 0
    nodes = [node("Add", ["x", "m"], ["a"]), node("Softmax", ["a"], ["y"])]
    after = halved(build(nodes, {"x": ROWS}, ["y"], constants={"m": mask}), {"x": ROWS})
    assert calculates_in(after, "node_a") == HALF


def test_the_scales_of_a_resize_stay_in_float32() -> None:
    scales = numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32))
    nodes = [
        node("Constant", [], ["s"], value=scales),
        node("Resize", ["x", "", "s"], ["y"], mode="linear"),
    ]
    after = halved(build(nodes, {"x": PICTURE}, ["y"]), {"x": PICTURE})
    assert [tensor.data_type for tensor in after.graph.initializer] == [FLOAT]
    assert calculates_in(after, "node_y") == HALF


def test_a_constant_of_a_shape_is_halved_too() -> None:
    nodes = [
        *(node("Shape", ["x"], ["s"]), node("ConstantOfShape", ["s"], ["c"])),
        node("Add", ["x", "c"], ["y"]),
    ]
    after = halved(build(nodes, {"x": ROWS}, ["y"]), {"x": ROWS})
    assert calculates_in(after, "node_c") == HALF


def test_without_samples_it_is_not_suitable() -> None:
    before = build(convolution(), {"x": PICTURE}, ["y"], constants={"w": WEIGHTS})
    with pytest.raises(Unsuitable, match="without samples"):
        rewritten(before, "fp16")
