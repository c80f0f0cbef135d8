"""Reductions by others give the same: ties, negative axes, kept dimensions and empty axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import NodeProto

from tests.runtimes.rewrites import graphs
from tests.runtimes.rewrites.graphs import PLACES, assert_same, build, node, obstacle, operators, rewritten

PLACE = st.sampled_from(PLACES)
OPSET = st.integers(11, 23)
SHAPE = st.lists(st.integers(1, 4), min_size=1, max_size=5)
SEED = st.integers(0, 2**16)


def few(seed: int, shape: list[int]) -> np.ndarray:
    """Return numbers with many ties, infinities and zeros of both signs."""
    pool = np.array([0.0, -0.0, 1.0, -1.0, 2.0, np.inf, -np.inf], np.float32)
    return np.random.default_rng(seed).choice(pool, shape)


def numbers(seed: int, shape: list[int]) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def reduction(name: str, axes: list[int] | None, keep: int, opset: int) -> tuple[NodeProto, dict[str, np.ndarray]]:
    """Return a reduction as the opset writes it, and its constants."""
    if opset >= 18 and axes is not None:
        return node(name, ["x", "axes"], ["y"], keepdims=keep), {"axes": np.array(axes, np.int64)}
    return node(name, ["x"], ["y"], keepdims=keep, axes=axes or None), {}


@given(
    data=st.data(),
    name=st.sampled_from(["ArgMax", "ArgMin"]),
    shape=SHAPE,
    seed=SEED,
    keep=st.integers(0, 1),
    last=st.integers(0, 1),
    place=PLACE,
    opset=st.integers(12, 23),
)
def test_the_place_of_the_greatest_is_the_same(
    data: Any, name: str, shape: list[int], seed: int, keep: int, last: int, place: str, opset: int
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    feeds = {"x": few(seed, shape)}
    nodes = [node(name, ["x"], ["y"], axis=axis, keepdims=keep, select_last_index=last)]
    model = build(nodes, feeds, ["y"], opset=opset, place=place)
    made, _ = rewritten(model, "argmax_to_compare")
    assert name not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


@given(data=st.data(), shape=SHAPE, seed=SEED, keep=st.integers(0, 1), place=PLACE, opset=OPSET)
def test_a_greatest_by_split_is_the_same(
    data: Any, shape: list[int], seed: int, keep: int, place: str, opset: int
) -> None:
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    over = [axis - len(shape) if data.draw(st.booleans()) else axis for axis in axes]
    each, constants = reduction("ReduceMax", over, keep, opset)
    feeds = {"x": few(seed, shape)}
    model = build([each], feeds, ["y"], opset=opset, place=place, constants=constants)
    made, changed = rewritten(model, "split_reduce_max")
    count = int(np.prod([shape[axis] for axis in axes]))
    assert bool(changed) == (1 < count <= 8)
    assert ("ReduceMax" in operators(made)) != bool(changed)
    assert_same(model, made, graphs.with_which(feeds, place))


@given(
    data=st.data(),
    name=st.sampled_from(["L1", "L2", "LogSum", "LogSumExp", "Prod", "SumSquare"]),
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    seed=SEED,
    keep=st.integers(0, 1),
    place=PLACE,
    opset=OPSET,
)
def test_a_reduction_by_others_is_the_same(
    data: Any, name: str, shape: list[int], seed: int, keep: int, place: str, opset: int
) -> None:
    axes = data.draw(st.none() | st.lists(st.integers(-len(shape), -1), min_size=1, unique=True))
    each, constants = reduction(f"Reduce{name}", axes, keep, opset)
    values = numbers(seed, shape)
    feeds = {"x": np.abs(values) + np.float32(0.5) if name == "LogSum" else values}
    model = build([each], feeds, ["y"], opset=opset, place=place, constants=constants)
    made, changed = rewritten(model, "decompose_reduction")
    assert changed
    assert f"Reduce{name}" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place), relative=1e-4)


@pytest.mark.parametrize("row", [[-np.inf, -np.inf], [np.inf, 1.0], [np.nan, 1.0], [1e4, 1e4], [-1e4, -1e4]])
def test_a_log_of_a_sum_of_exponentials_keeps_its_edges(row: list[float]) -> None:
    feeds = {"x": np.array([row, [0.0, 1.0]], np.float32)}
    model = build([node("ReduceLogSumExp", ["x"], ["y"], axes=[1])], feeds, ["y"])
    assert_same(model, rewritten(model, "decompose_reduction")[0], feeds)


def test_a_reduction_over_no_axes_is_left_alone() -> None:
    nodes = [node("ReduceL1", ["x", "axes"], ["y"], noop_with_empty_axes=1)]
    feeds = {"x": np.ones((2, 3), np.float32)}
    model = build(nodes, feeds, ["y"], opset=18, constants={"axes": np.array([], np.int64)})
    assert "reduces nothing" in obstacle(model, "decompose_reduction")


def test_a_long_product_is_left_alone() -> None:
    feeds = {"x": np.ones((2, 65), np.float32)}
    model = build([node("ReduceProd", ["x"], ["y"], axes=[1])], feeds, ["y"])
    assert "65 elements" in obstacle(model, "decompose_reduction")


@given(
    data=st.data(),
    shape=SHAPE,
    seed=SEED,
    exclusive=st.integers(0, 1),
    reverse=st.integers(0, 1),
    dtype=st.sampled_from([np.float32, np.int32, np.int64]),
    place=PLACE,
    opset=OPSET,
)
def test_a_running_sum_by_a_matrix_is_the_same(
    data: Any, shape: list[int], seed: int, exclusive: int, reverse: int, dtype: type, place: str, opset: int
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    feeds: graphs.Feeds = {"x": (numbers(seed, shape) * 10).astype(dtype)}
    nodes = [node("CumSum", ["x", "axis"], ["y"], exclusive=exclusive, reverse=reverse)]
    model = build(nodes, feeds, ["y"], opset=opset, place=place, constants={"axis": np.array(axis, np.int64)})
    made, _ = rewritten(model, "cumsum_to_matmul")
    assert "CumSum" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


def test_a_running_sum_over_an_axis_that_comes_in_is_left_alone() -> None:
    feeds: graphs.Feeds = {"x": np.ones((2, 3), np.float32), "axis": np.array(1, np.int64)}
    model = build([node("CumSum", ["x", "axis"], ["y"])], feeds, ["y"])
    assert "no constant" in obstacle(model, "cumsum_to_matmul")
