"""Gathers, scatters, masks and determinants by plainer operators give the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtimes.rewrites import graphs
from tests.runtimes.rewrites.graphs import PLACES, assert_same, build, node, obstacle, operators, rewritten

PLACE = st.sampled_from(PLACES)
OPSET = st.integers(12, 23)
SHAPE = st.lists(st.integers(1, 4), min_size=1, max_size=4)
SEED = st.integers(0, 2**16)


def numbers(seed: int, shape: Any) -> np.ndarray:
    """Return numbers, some of them infinite."""
    random = np.random.default_rng(seed)
    made = random.standard_normal(shape).astype(np.float32)
    return np.where(random.random(shape) < 0.1, np.float32(np.inf), made).astype(np.float32)


@given(data=st.data(), shape=SHAPE, seed=SEED, fixed=st.booleans(), place=PLACE, opset=OPSET)
def test_a_gather_from_flat_data_gives_the_same(
    data: Any, shape: list[int], seed: int, fixed: bool, place: str, opset: int
) -> None:
    batch = data.draw(st.integers(0, len(shape) - 1))
    depth = data.draw(st.integers(1, len(shape) - batch))
    middle = data.draw(st.lists(st.integers(1, 3), min_size=0 if batch == 0 else 1, max_size=2))
    sizes = np.array(shape[batch : batch + depth])
    random = np.random.default_rng(seed)
    indices = random.integers(-sizes, sizes, (*shape[:batch], *middle, depth))
    feeds = {"x": numbers(seed, shape), **({} if fixed else {"i": indices})}
    nodes = [node("GatherND", ["x", "i"], ["y"], batch_dims=batch)]
    model = build(nodes, feeds, ["y"], opset=opset, place=place, constants={"i": indices} if fixed else {})
    made, _ = rewritten(model, "gather_nd_to_gather")
    assert "GatherND" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


@given(
    data=st.data(),
    shape=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    seed=SEED,
    upper=st.integers(0, 1),
    dtype=st.sampled_from([np.float32, np.int64]),
    place=PLACE,
    opset=st.integers(14, 23),
)
def test_a_triangle_by_a_mask_gives_the_same(
    data: Any, shape: list[int], seed: int, upper: int, dtype: type, place: str, opset: int
) -> None:
    values = numbers(seed, shape)
    feeds = {"x": values if dtype is np.float32 else np.arange(values.size).reshape(shape)}
    offset = data.draw(st.none() | st.integers(-5, 5))
    constants = {} if offset is None else {"k": np.array(offset, np.int64)}
    model = build(
        [node("Trilu", ["x", *constants], ["y"], upper=upper)],
        feeds,
        ["y"],
        opset=opset,
        place=place,
        constants=constants,
    )
    made, _ = rewritten(model, "trilu_to_mask")
    assert "Trilu" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


def test_a_triangle_whose_diagonal_comes_in_is_left_alone() -> None:
    feeds: graphs.Feeds = {"x": np.ones((3, 3), np.float32), "k": np.array(1, np.int64)}
    assert "no constant" in obstacle(build([node("Trilu", ["x", "k"], ["y"])], feeds, ["y"]), "trilu_to_mask")


@given(shape=st.lists(st.integers(1, 3), max_size=2), size=st.integers(1, 4), seed=SEED, place=PLACE, opset=OPSET)
def test_a_determinant_written_out_is_the_same(shape: list[int], size: int, seed: int, place: str, opset: int) -> None:
    matrices = np.random.default_rng(seed).standard_normal((*shape, size, size), np.float32)
    # So that no determinant is small beside its terms.
    feeds = {"x": matrices + 2 * np.eye(size, dtype=np.float32)}
    model = build([node("Det", ["x"], ["y"])], feeds, ["y"], opset=opset, place=place)
    made, _ = rewritten(model, "det_to_arithmetic")
    assert "Det" not in operators(made)
    before, after = (graphs.run(each, graphs.with_which(feeds, place)) for each in (model, made))
    for name, expected in before.items():
        np.testing.assert_allclose(after[name], expected, rtol=1e-4, atol=1e-3)


def test_the_determinant_of_a_large_matrix_is_left_alone() -> None:
    model = build([node("Det", ["x"], ["y"])], {"x": np.eye(5, dtype=np.float32)}, ["y"])
    assert "larger than 4 x 4" in obstacle(model, "det_to_arithmetic")


@given(
    data=st.data(),
    shape=SHAPE,
    seed=SEED,
    add=st.booleans(),
    fixed=st.booleans(),
    dtype=st.sampled_from([np.float32, np.int64]),
    place=PLACE,
    opset=st.integers(16, 23),
)
def test_a_scatter_by_a_table_gives_the_same(
    data: Any, shape: list[int], seed: int, add: bool, fixed: bool, dtype: type, place: str, opset: int
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    length = shape[axis]
    count = data.draw(st.integers(1, length))
    random = np.random.default_rng(seed)
    order = random.permuted(np.broadcast_to(np.arange(length), (*shape[:axis], *shape[axis:][1:], length)), axis=-1)
    indices = np.moveaxis(order, -1, axis % len(shape)).take(np.arange(count), axis)
    if add or data.draw(st.booleans()):
        # Of two updates of one place ONNX Runtime takes the last; ONNX leaves it open.
        indices = random.integers(0, length, indices.shape)
    indices = np.where(random.random(indices.shape) < 0.3, indices - length, indices)
    values, updates = numbers(seed, shape), numbers(seed + 1, indices.shape)
    if dtype is np.int64:
        values, updates = (np.arange(each.size).reshape(each.shape) for each in (values, updates))
    feeds = {"x": values, "u": updates, **({} if fixed else {"i": indices})}
    extra = {"reduction": "add"} if add else {}
    nodes = [node("ScatterElements", ["x", "i", "u"], ["y"], axis=axis, **extra)]
    model = build(nodes, feeds, ["y"], opset=opset, place=place, constants={"i": indices} if fixed else {})
    made, _ = rewritten(model, "scatter_elements_to_onehot")
    assert "ScatterElements" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


@pytest.mark.parametrize(
    ("shape", "places", "reduction", "said"),
    [
        ((3, 3), (2, 2), "none", "do not cover"),
        ((3, 3), (3, 3), "mul", "reduction is mul"),
        ((2**13, 1), (2**12, 1), "none", "elements"),
    ],
)
def test_a_scatter_that_needs_more_than_a_table_is_left_alone(
    shape: tuple[int, ...], places: tuple[int, ...], reduction: str, said: str
) -> None:
    feeds = {"x": np.ones(shape, np.float32), "u": np.ones(places, np.float32)}
    nodes = [node("ScatterElements", ["x", "i", "u"], ["y"], reduction=reduction)]
    constants = {"i": np.zeros(places, np.int64)}
    if said == "elements":
        constants["i"] = np.arange(places[0]).reshape(places)
    assert said in obstacle(build(nodes, feeds, ["y"], opset=18, constants=constants), "scatter_elements_to_onehot")


@given(data=st.data(), shape=SHAPE, seed=SEED, add=st.booleans(), place=PLACE, opset=st.integers(16, 23))
def test_a_scatter_at_constant_places_by_a_gather_gives_the_same(
    data: Any, shape: list[int], seed: int, add: bool, place: str, opset: int
) -> None:
    depth = data.draw(st.integers(1, len(shape)))
    rows = int(np.prod(shape[:depth]))
    count = data.draw(st.integers(1, rows))
    random = np.random.default_rng(seed)
    flat = random.permutation(rows)[:count]
    indices = np.stack(np.unravel_index(flat, shape[:depth]), -1)
    indices = np.where(random.random(indices.shape) < 0.3, indices - np.array(shape[:depth]), indices)
    feeds = {"x": numbers(seed, shape), "u": numbers(seed + 1, (count, *shape[depth:]))}
    extra = {"reduction": "add"} if add else {}
    nodes = [node("ScatterND", ["x", "i", "u"], ["y"], **extra)]
    model = build(nodes, feeds, ["y"], opset=opset, place=place, constants={"i": indices})
    made, _ = rewritten(model, "scatter_nd_to_gather")
    assert "ScatterND" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


@pytest.mark.parametrize(
    ("fixed", "reduction", "said"),
    [(False, "none", "no constant"), (True, "max", "reduction is max"), (True, "add", "twice to one place")],
)
def test_a_scatter_at_other_places_is_left_alone(fixed: bool, reduction: str, said: str) -> None:
    indices = np.zeros((2, 1), np.int64)
    fed: graphs.Feeds = {} if fixed else {"i": indices}
    feeds = {"x": np.ones((3, 2), np.float32), "u": np.ones((2, 2), np.float32), **fed}
    nodes = [node("ScatterND", ["x", "i", "u"], ["y"], reduction=reduction)]
    model = build(nodes, feeds, ["y"], opset=18, constants={"i": indices} if fixed else {})
    assert said in obstacle(model, "scatter_nd_to_gather")
