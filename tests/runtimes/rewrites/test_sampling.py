"""GridSample by Gather gives what ONNX Runtime's own gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runtimes.rewrites import graphs
from tests.runtimes.rewrites.graphs import PLACES, assert_same, build, node, obstacle, operators, rewritten

EDGES = (-1.0, 1.0, 0.0, -0.0, 0.5, -0.5, 0.75, 1.25, -1.75, 3.0, -3.0)


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape), np.float32)


@given(
    shape=st.lists(st.integers(1, 4), min_size=4, max_size=4),
    seed=st.integers(0, 2**16),
    mode=st.sampled_from(["linear", "nearest"]),
    padding=st.sampled_from(["zeros", "border"]),
    corners=st.integers(0, 1),
    place=st.sampled_from(PLACES),
    opset=st.integers(16, 23),
)
def test_a_sampling_by_gather_gives_the_same(
    shape: list[int], seed: int, mode: str, padding: str, corners: int, place: str, opset: int
) -> None:
    random = np.random.default_rng(seed)
    points = (shape[0], 3, 5, 2)
    # Edges of pixels too; but a nearest one in the middle of two may be either after rounding.
    grid = random.uniform(-1.6, 1.6, points) if mode == "nearest" else random.choice(EDGES, points)
    feeds = {"x": numbers(seed, *shape), "grid": grid.astype(np.float32)}
    written = {"linear": "bilinear" if opset < 20 else "linear"}.get(mode, mode)
    nodes = [node("GridSample", ["x", "grid"], ["y"], mode=written, padding_mode=padding, align_corners=corners)]
    model = build(nodes, feeds, ["y"], opset=opset, place=place)
    made, _ = rewritten(model, "grid_sample_to_gather")
    assert "GridSample" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


@pytest.mark.parametrize("corners", [0, 1])
def test_a_nearest_pixel_in_the_middle_of_two_is_the_even_one(corners: int) -> None:
    # Five pixels across: the halves fall on exact numbers of float32.
    across = (np.array([0.5, 1.5, 2.5, 3.5]) / 2 - 1) if corners else (np.array([0.5, 1.5, 2.5, 3.5]) - 2) / 2.5
    grid = np.stack([across, np.zeros(4)], -1).reshape(1, 1, 4, 2).astype(np.float32)
    feeds = {"x": numbers(0, 1, 2, 1, 5), "grid": grid}
    nodes = [node("GridSample", ["x", "grid"], ["y"], mode="nearest", align_corners=corners)]
    model = build(nodes, feeds, ["y"])
    assert_same(model, rewritten(model, "grid_sample_to_gather")[0], feeds)


def test_a_fixed_grid_is_taken_too() -> None:
    nodes = [node("GridSample", ["x", "grid"], ["y"])]
    grid = np.random.default_rng(0).uniform(-1.2, 1.2, (1, 3, 5, 2)).astype(np.float32)
    model = build(nodes, {"x": numbers(0, 1, 3, 4, 5)}, ["y"], constants={"grid": grid})
    assert_same(model, rewritten(model, "grid_sample_to_gather")[0], {"x": numbers(0, 1, 3, 4, 5)})


@pytest.mark.parametrize(
    ("said", "attributes"),
    [("mode is cubic", {"mode": "cubic"}), ("padding is reflection", {"padding_mode": "reflection"})],
)
def test_another_sampling_is_left_alone(said: str, attributes: dict[str, Any]) -> None:
    feeds = {"x": numbers(0, 1, 1, 3, 3), "grid": numbers(1, 1, 2, 2, 2)}
    model = build([node("GridSample", ["x", "grid"], ["y"], **attributes)], feeds, ["y"], opset=20)
    assert said in obstacle(model, "grid_sample_to_gather")


def test_a_sampling_in_three_dimensions_is_left_alone() -> None:
    feeds = {"x": numbers(0, 1, 1, 3, 3, 3), "grid": numbers(1, 1, 2, 2, 2, 3)}
    model = build([node("GridSample", ["x", "grid"], ["y"])], feeds, ["y"], opset=20)
    assert "three dimensions" in obstacle(model, "grid_sample_to_gather")
