"""Padding and pooling by plainer padding and pooling give the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from runtimes.reference import structure
from tests.runtimes.rewrites import graphs
from tests.runtimes.rewrites.graphs import PLACES, assert_same, build, node, obstacle, operators, rewritten

PLACE = st.sampled_from(PLACES)


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape), np.float32)


def starts_inside(sizes: list[int], pool: dict[str, Any]) -> bool:
    """Tell whether the last window of each axis starts on the input: where not, onnx and ONNX Runtime do not agree."""
    for axis, size in enumerate(sizes):
        reach = (pool["kernel_shape"][axis] - 1) * pool.get("dilations", [1] * len(sizes))[axis] + 1
        before, behind, stride = pool["pads"][axis], pool["pads"][len(sizes) + axis], pool["strides"][axis]
        steps = -((reach - size - before - behind) // stride)
        if pool["ceil_mode"] and steps * stride >= size + before:
            return False
    return True


@given(
    data=st.data(),
    shape=st.lists(st.integers(2, 5), min_size=1, max_size=4),
    mode=st.sampled_from(["edge", "reflect", "wrap"]),
    place=PLACE,
    opset=st.integers(13, 23),
    some=st.booleans(),
)
def test_a_pad_that_repeats_what_is_there_gives_the_same(
    data: Any, shape: list[int], mode: str, place: str, opset: int, some: bool
) -> None:
    assume(mode != "wrap" or opset >= 19)
    axes = data.draw(st.permutations(range(len(shape)))) if some and opset >= 18 else list(range(len(shape)))
    most = [shape[axis] - 1 for axis in axes]
    amounts = [data.draw(st.integers(0, limit)) for limit in [*most, *most]]
    constants = {"p": np.array(amounts, np.int64)}
    names = ["x", "p"]
    if some and opset >= 18:
        constants["a"] = np.array(axes, np.int64)
        names += ["", "a"]
    feeds = {"x": numbers(0, *shape)}
    model = build([node("Pad", names, ["y"], mode=mode)], feeds, ["y"], opset=opset, place=place, constants=constants)
    made, _ = rewritten(model, "pad_to_gather")
    assert "Pad" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


def test_a_pad_with_a_constant_stays() -> None:
    constants = {"p": np.array([1, 1], np.int64)}
    model = build([node("Pad", ["x", "p"], ["y"])], {"x": numbers(0, 3)}, ["y"], constants=constants)
    assert rewritten(model, "pad_to_gather")[1] == []


def test_a_pad_by_amounts_that_come_in_is_left_alone() -> None:
    feeds = {"x": numbers(0, 3), "p": np.array([1, 1], np.int64)}
    model = build([node("Pad", ["x", "p"], ["y"], mode="edge")], feeds, ["y"])
    assert "no constant" in obstacle(model, "pad_to_gather")


@given(
    data=st.data(),
    sizes=st.lists(st.integers(4, 8), min_size=1, max_size=2),
    ceil=st.integers(0, 1),
    include=st.integers(0, 1),
    place=PLACE,
    opset=st.integers(11, 23),
)
def test_an_average_with_its_padding_written_out_gives_the_same(
    data: Any, sizes: list[int], ceil: int, include: int, place: str, opset: int
) -> None:
    count = len(sizes)
    kernel = [data.draw(st.integers(1, 3)) for _ in sizes]
    pads = [data.draw(st.integers(0, each - 1)) for each in (*kernel, *kernel)]
    attributes: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": [data.draw(st.integers(1, 3)) for _ in sizes],
        "pads": pads,
        "ceil_mode": ceil,
        "count_include_pad": include,
    }
    if opset >= 19 and not ceil:
        attributes["dilations"] = [data.draw(st.integers(1, 2)) for _ in range(count)]
    assume((ceil or any(pads)) and starts_inside(sizes, attributes))
    feeds = {"x": numbers(0, 2, 3, *sizes)}
    model = build([node("AveragePool", ["x"], ["y"], **attributes)], feeds, ["y"], opset=opset, place=place)
    made, changed = rewritten(model, "explicit_average_pool")
    assert changed
    for each in structure.nodes_of(made):
        assert {attribute.name for attribute in each.attribute}.isdisjoint({"pads", "ceil_mode"})
    assert_same(model, made, graphs.with_which(feeds, place))


def test_a_plain_average_stays() -> None:
    model = build([node("AveragePool", ["x"], ["y"], kernel_shape=[2])], {"x": numbers(0, 1, 2, 5)}, ["y"])
    assert rewritten(model, "explicit_average_pool")[1] == []


@given(data=st.data(), sizes=st.lists(st.integers(4, 6), min_size=3, max_size=3), ceil=st.integers(0, 1), place=PLACE)
def test_a_greatest_in_three_dimensions_gives_the_same(data: Any, sizes: list[int], ceil: int, place: str) -> None:
    kernel = [data.draw(st.integers(1, 3)) for _ in sizes]
    attributes: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": [data.draw(st.integers(1, 2)) for _ in sizes],
        "dilations": [data.draw(st.integers(1, 2)) if each < 3 else 1 for each in kernel],
        "pads": [data.draw(st.integers(0, each // 2)) for each in (*kernel, *kernel)],
        "ceil_mode": ceil,
    }
    assume(starts_inside(sizes, attributes))
    feeds = {"x": numbers(0, 2, 3, *sizes)}
    model = build([node("MaxPool", ["x"], ["y"], **attributes)], feeds, ["y"], place=place)
    made, changed = rewritten(model, "split_max_pool")
    assert changed
    assert_same(model, made, graphs.with_which(feeds, place))


@pytest.mark.parametrize(
    ("said", "outputs", "attributes"),
    [("places are used", ["y", "p"], {}), ("auto_pad", ["y"], {"auto_pad": "SAME_UPPER"})],
)
def test_another_greatest_in_three_dimensions_is_left_alone(
    said: str, outputs: list[str], attributes: dict[str, Any]
) -> None:
    nodes = [node("MaxPool", ["x"], outputs, kernel_shape=[2, 2, 2], **attributes)]
    assert said in obstacle(build(nodes, {"x": numbers(0, 1, 2, 4, 4, 4)}, outputs), "split_max_pool")
