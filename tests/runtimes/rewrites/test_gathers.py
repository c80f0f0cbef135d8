"""A Gather with its indices in a row gives the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from hypothesis import given
from hypothesis import strategies as st

from tests.runtimes.rewrites import graphs
from tests.runtimes.rewrites.graphs import PLACES, assert_same, build, node, obstacle, rewritten


@given(
    data=st.data(),
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    places=st.lists(st.integers(1, 3), min_size=2, max_size=3),
    seed=st.integers(0, 2**16),
    fixed=st.booleans(),
    place=st.sampled_from(PLACES),
)
def test_a_gather_with_its_indices_in_a_row_gives_the_same(
    data: Any, shape: list[int], places: list[int], seed: int, fixed: bool, place: str
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    random = np.random.default_rng(seed)
    indices = random.integers(-shape[axis], shape[axis], places)
    feeds: dict[str, np.ndarray] = {"x": random.standard_normal(shape).astype(np.float32)}
    feeds |= {} if fixed else {"i": indices}
    nodes = [node("Gather", ["x", "i"], ["y"], axis=axis)]
    model = build(nodes, feeds, ["y"], place=place, constants={"i": indices} if fixed else {})
    made, changed = rewritten(model, "flatten_gather")
    assert changed
    assert_same(model, made, graphs.with_which(feeds, place))


def test_a_gather_whose_indices_are_in_a_row_stays() -> None:
    model = build(
        [node("Gather", ["x", "i"], ["y"])],
        {"x": np.ones((3, 4), np.float32)},
        ["y"],
        constants={"i": np.array([0, 2])},
    )
    assert rewritten(model, "flatten_gather")[1] == []


def test_sizes_that_are_not_known_are_an_obstacle() -> None:
    text = "g (float[N, 3] x, int64[2, 1] i) => (float[2, 1, 3] y) {y = Gather (x, i)}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    assert "input x" in obstacle(model, "flatten_gather")
