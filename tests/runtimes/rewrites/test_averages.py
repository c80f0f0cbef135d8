"""An AveragePool by a convolution gives the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.runtimes.rewrites import graphs
from tests.runtimes.rewrites.graphs import PLACES, assert_same, build, node, obstacle, operators, rewritten
from tests.runtimes.rewrites.test_pooling import starts_inside


def numbers(*shape: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(0).standard_normal(shape), np.float32)


@given(
    data=st.data(),
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=2),
    ceil=st.integers(0, 1),
    include=st.integers(0, 1),
    place=st.sampled_from(PLACES),
    opset=st.integers(11, 23),
)
def test_an_average_by_a_convolution_gives_the_same(
    data: Any, sizes: list[int], ceil: int, include: int, place: str, opset: int
) -> None:
    kernel = [data.draw(st.integers(1, 3)) for _ in sizes]
    strides = [data.draw(st.integers(1, 3)) for _ in sizes]
    pads = [data.draw(st.integers(0, each - 1)) for each in (*kernel, *kernel)]
    padded = [size + pads[axis] + pads[len(sizes) + axis] for axis, size in enumerate(sizes)]
    assume(all(size >= each for size, each in zip(padded, kernel, strict=True)))
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    attributes |= {"ceil_mode": ceil, "count_include_pad": include}
    assume(starts_inside(sizes, attributes))
    feeds = {"x": numbers(2, 3, *sizes)}
    model = build([node("AveragePool", ["x"], ["y"], **attributes)], feeds, ["y"], opset=opset, place=place)
    made, changed = rewritten(model, "average_pool_to_conv")
    assert changed
    assert "AveragePool" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


@pytest.mark.parametrize("kind", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_an_average_that_pads_by_itself_gives_the_same(kind: str) -> None:
    feeds = {"x": numbers(1, 2, 5, 6)}
    model = build([node("AveragePool", ["x"], ["y"], kernel_shape=[2, 3], auto_pad=kind)], feeds, ["y"])
    made, _changed = rewritten(model, "average_pool_to_conv")
    assert_same(model, made, feeds)


def test_an_average_of_open_sizes_is_left_alone() -> None:
    model = build([node("AveragePool", ["x"], ["y"], kernel_shape=[2])], {"x": numbers(1, 2, 5)}, ["y"])
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "length"
    assert "shape" in obstacle(model, "average_pool_to_conv")
