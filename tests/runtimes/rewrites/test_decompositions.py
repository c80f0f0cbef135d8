"""Normalisations by ReduceMean and arithmetic give what ONNX Runtime's own give."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtimes.rewrites import graphs
from tests.runtimes.rewrites.graphs import PLACES, assert_same, build, node, obstacle, operators, rewritten

PLACE = st.sampled_from(PLACES)
SHAPE = st.builds(
    lambda first, last: [*first, last], st.lists(st.integers(1, 5), min_size=2, max_size=4), st.integers(4, 6)
)
"""One number alone has no deviation, and few that are near each other show every rounding of it."""
SEED = st.integers(0, 2**16)


def numbers(seed: int, shape: list[int] | tuple[int, ...], scale: float = 1.0, shift: float = 0.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale + shift).astype(np.float32)


@given(
    data=st.data(),
    shape=SHAPE,
    seed=SEED,
    opset=st.integers(17, 23),
    place=PLACE,
    bias=st.booleans(),
    whole=st.booleans(),
    name=st.sampled_from(["decompose_layer_norm", "flatten_layer_norm"]),
)
def test_a_layer_norm_over_any_axes_gives_the_same(
    data: Any, shape: list[int], seed: int, opset: int, place: str, bias: bool, whole: bool, name: str
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    if name == "flatten_layer_norm":
        axis = data.draw(st.integers(0, len(shape) - 2))
    start = axis % len(shape)
    sizes = shape[start:] if whole or name == "flatten_layer_norm" else shape[-1:]
    feeds = {"x": numbers(seed, shape, 2.0, 0.5), "scale": numbers(seed + 1, sizes)}
    constants = {"bias": numbers(seed + 2, sizes)} if bias else {}
    nodes = [node("LayerNormalization", ["x", "scale", *constants], ["y"], axis=axis, epsilon=1e-3)]
    model = build(nodes, feeds, ["y"], opset=opset, place=place, constants=constants)
    made, changed = rewritten(model, name)
    assert changed
    if name == "decompose_layer_norm":
        assert "LayerNormalization" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


def test_a_layer_norm_over_the_last_axis_is_flat_already() -> None:
    feeds = {"x": numbers(0, [2, 3, 4])}
    nodes = [node("LayerNormalization", ["x", "s"], ["y"])]
    assert rewritten(build(nodes, feeds, ["y"], constants={"s": numbers(0, [4])}), "flatten_layer_norm")[1] == []


def test_a_layer_norm_with_a_scale_for_the_last_axis_only_is_not_flattened() -> None:
    feeds = {"x": numbers(0, [2, 3, 4])}
    nodes = [node("LayerNormalization", ["x", "s"], ["y"], axis=1)]
    model = build(nodes, feeds, ["y"], constants={"s": numbers(0, [4])})
    assert "another shape" in obstacle(model, "flatten_layer_norm")


@pytest.mark.parametrize("name", ["decompose_layer_norm", "flatten_layer_norm"])
def test_a_layer_norm_whose_mean_is_used_stays(name: str) -> None:
    feeds = {"x": numbers(0, [2, 3, 4]), "s": numbers(1, [3, 4])}
    model = build([node("LayerNormalization", ["x", "s"], ["y", "mean"], axis=1)], feeds, ["y", "mean"])
    # As a version of ONNX before the shapes are inferred: a later node takes the mean.
    made = onnx.ModelProto()
    made.CopyFrom(model)
    nodes = [*made.graph.node, node("LayerNormalization", ["x", "s"], ["z"], axis=1)]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    assert "used" in obstacle(model, name)
    assert obstacle(made, name) == "", "the other one can be replaced"


def test_a_layer_norm_in_half_precision_keeps_its_wide_statistics() -> None:
    feeds = {"x": numbers(0, [2, 64], 300.0).astype(np.float16)}
    nodes = [node("LayerNormalization", ["x", "s"], ["y"])]
    model = build(nodes, feeds, ["y"], constants={"s": np.ones(64, np.float16)})
    assert_same(model, rewritten(model, "decompose_layer_norm")[0], feeds, relative=2e-3)


@given(shape=SHAPE, data=st.data(), seed=SEED, place=PLACE)
def test_an_rms_norm_gives_the_same(shape: list[int], data: Any, seed: int, place: str) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    feeds = {"x": numbers(seed, shape, 2.0), "scale": numbers(seed + 1, shape[axis % len(shape) :])}
    nodes = [node("RMSNormalization", ["x", "scale"], ["y"], axis=axis, epsilon=1e-3)]
    model = build(nodes, feeds, ["y"], opset=23, place=place)
    made, _ = rewritten(model, "decompose_rms_norm")
    assert "RMSNormalization" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


@given(shape=SHAPE, seed=SEED, place=PLACE, opset=st.integers(11, 23), plain=st.booleans())
def test_an_instance_norm_gives_the_same(shape: list[int], seed: int, place: str, opset: int, plain: bool) -> None:
    feeds = {
        "x": numbers(seed, shape, 2.0, 1.0),
        "s": numbers(seed + 1, shape[1:2]),
        "b": numbers(seed + 2, shape[1:2]),
    }
    attributes: dict[str, Any] = {} if plain else {"epsilon": 0.01}
    nodes = [node("InstanceNormalization", ["x", "s", "b"], ["y"], **attributes)]
    model = build(nodes, feeds, ["y"], opset=opset, place=place)
    made, _ = rewritten(model, "decompose_instance_norm")
    assert "InstanceNormalization" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place), relative=2e-4)


@given(shape=SHAPE, groups=st.integers(1, 4), each=st.integers(1, 3), seed=SEED, place=PLACE, opset=st.integers(21, 23))
def test_a_group_norm_gives_the_same(
    shape: list[int], groups: int, each: int, seed: int, place: str, opset: int
) -> None:
    shape = [shape[0], groups * each, *shape[2:]]
    factors = [groups * each]
    feeds = {"x": numbers(seed, shape, 2.0, 1.0), "s": numbers(seed + 1, factors), "b": numbers(seed + 2, factors)}
    nodes = [node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=groups, epsilon=1e-3)]
    model = build(nodes, feeds, ["y"], opset=opset, place=place)
    made, _ = rewritten(model, "decompose_group_norm")
    assert "GroupNormalization" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place), relative=2e-4)


@given(shape=SHAPE, data=st.data(), seed=SEED, place=PLACE, opset=st.integers(13, 23))
def test_a_mean_variance_norm_gives_the_same(shape: list[int], data: Any, seed: int, place: str, opset: int) -> None:
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, max_size=3, unique=True))
    # 0 over 1e-9 shows every rounding.
    shape = [size + 1 for size in shape]
    feeds = {"x": numbers(seed, shape, 2.0, 1.0)}
    model = build([node("MeanVarianceNormalization", ["x"], ["y"], axes=axes)], feeds, ["y"], opset=opset, place=place)
    made, _ = rewritten(model, "decompose_mean_variance_norm")
    assert "MeanVarianceNormalization" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place), relative=1e-4)


@given(shape=SHAPE, data=st.data(), seed=SEED, place=PLACE, opset=st.integers(11, 21), power=st.sampled_from([1, 2]))
def test_an_lp_norm_gives_the_same(shape: list[int], data: Any, seed: int, place: str, opset: int, power: int) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    feeds = {"x": numbers(seed, shape)}
    model = build([node("LpNormalization", ["x"], ["y"], axis=axis, p=power)], feeds, ["y"], opset=opset, place=place)
    made, _ = rewritten(model, "decompose_lp_norm")
    assert "LpNormalization" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


def test_a_norm_over_an_open_shape_is_not_tried() -> None:
    feeds = {"x": numbers(0, [2, 4, 3]), "s": numbers(1, [4]), "b": numbers(2, [4])}
    model = build([node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2)], feeds, ["y"], opset=21)
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    assert "shape of its input x" in obstacle(model, "decompose_group_norm")
