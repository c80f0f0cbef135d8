"""Products with constant matrices give what the operators that they stand for give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import numpy_helper

from tests.runtimes.rewrites import graphs
from tests.runtimes.rewrites.graphs import PLACES, assert_same, build, node, obstacle, operators, rewritten

PLACE = st.sampled_from(PLACES)
Arrays = dict[str, np.ndarray]


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape), np.float32)


@given(
    sizes=st.lists(st.integers(1, 5), min_size=2, max_size=3),
    batch=st.integers(1, 2),
    corners=st.integers(0, 1),
    place=PLACE,
)
def test_an_affine_grid_by_a_matrix_is_the_same(sizes: list[int], batch: int, corners: int, place: str) -> None:
    # Opset 20 is the first that has it. Between corners, an axis of one pixel divides by zero in ONNX Runtime.
    assume(not corners or min(sizes) > 1)
    feeds = {"theta": numbers(0, batch, len(sizes), len(sizes) + 1)}
    constants = {"size": np.array([batch, 3, *sizes], np.int64)}
    nodes = [node("AffineGrid", ["theta", "size"], ["y"], align_corners=corners)]
    model = build(nodes, feeds, ["y"], opset=20, place=place, constants=constants)
    made, _ = rewritten(model, "affine_grid_to_matmul")
    assert "AffineGrid" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


def test_an_affine_grid_of_a_size_that_comes_in_is_left_alone() -> None:
    feeds = {"theta": numbers(0, 1, 2, 3), "size": np.array([1, 3, 4, 5], np.int64)}
    model = build([node("AffineGrid", ["theta", "size"], ["y"])], feeds, ["y"], opset=20)
    assert "no constant" in obstacle(model, "affine_grid_to_matmul")


@given(
    data=st.data(),
    shape=st.lists(st.integers(2, 6), min_size=2, max_size=2),
    mode=st.sampled_from(["linear", "cubic", "nearest"]),
    transform=st.sampled_from(["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]),
    by_sizes=st.booleans(),
    place=PLACE,
    opset=st.integers(11, 23),
)
def test_a_resize_by_matrices_gives_the_same(
    data: Any, shape: list[int], mode: str, transform: str, by_sizes: bool, place: str, opset: int
) -> None:
    wanted = [data.draw(st.integers(2, 9)) for _ in shape]
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": transform}
    if mode == "cubic" and data.draw(st.booleans()):
        attributes.update(cubic_coeff_a=-0.5, exclude_outside=1)
    if opset >= 18 and mode != "nearest" and transform == "half_pixel" and data.draw(st.booleans()):
        attributes["antialias"] = 1
    feeds = {"x": numbers(0, 1, 3, *shape)}
    # Before opset 13 what is not given is given empty.
    blank = "blank" if opset < 13 else ""
    if by_sizes:
        constants: Arrays = {"sizes": np.array([1, 3, *wanted], np.int64)}
        names = ["x", blank, blank, "sizes"]
    else:
        constants = {
            "scales": np.array([1, 1, *(data.draw(st.sampled_from([0.5, 1, 1.5, 2])) for _ in shape)], np.float32)
        }
        names = ["x", blank, "scales"]
    nodes = [node("Constant", [], [name], value=numpy_helper.from_array(held)) for name, held in constants.items()]
    if blank:
        nodes.append(node("Constant", [], [blank], value=numpy_helper.from_array(np.zeros(0, np.float32))))
    nodes.append(node("Resize", names, ["y"], **attributes))
    model = build(nodes, feeds, ["y"], opset=opset, place=place)
    made, _ = rewritten(model, "resize_to_matmul")
    assert "Resize" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))
    made, changed = rewritten(model, "antialias_to_matmul")
    assert ("Resize" in operators(made)) == (not changed) == ("antialias" not in attributes)
    assert_same(model, made, graphs.with_which(feeds, place))


@pytest.mark.parametrize(
    ("said", "sizes", "attributes"),
    [
        ("batch or the channels", [1, 4, 4, 4], {}),
        ("a part", [1, 2, 5, 5], {"coordinate_transformation_mode": "tf_crop_and_resize"}),
        ("aspect ratio", [1, 2, 5, 5], {"keep_aspect_ratio_policy": "not_larger"}),
    ],
)
def test_another_resize_is_left_alone(said: str, sizes: list[int], attributes: dict[str, Any]) -> None:
    constants: Arrays = {"sizes": np.array(sizes, np.int64), "roi": np.array([0, 0, 0, 0, 1, 1, 1, 1], np.float32)}
    nodes = [node("Resize", ["x", "roi", "", "sizes"], ["y"], mode="linear", **attributes)]
    model = build(nodes, {"x": numbers(0, 1, 2, 4, 4)}, ["y"], opset=18, constants=constants)
    assert said in obstacle(model, "resize_to_matmul")


@given(
    data=st.data(),
    shape=st.lists(st.integers(1, 6), min_size=2, max_size=3),
    inverse=st.integers(0, 1),
    onesided=st.integers(0, 1),
    longer=st.integers(-2, 2),
    place=PLACE,
    opset=st.integers(17, 23),
)
def test_a_fourier_transform_by_a_matrix_is_the_same(
    data: Any, shape: list[int], inverse: int, onesided: int, longer: int, place: str, opset: int
) -> None:
    parts = 1 if onesided else data.draw(st.sampled_from([1, 2]))
    assume(not (inverse and onesided) and (not inverse or parts == 2))
    axis = data.draw(st.integers(1, len(shape) - 1))
    length = shape[axis] + longer
    assume(length >= 2)
    constants: Arrays = {"length": np.array(length, np.int64)} if longer else {}
    names = ["x", "length" if longer else ""]
    attributes: dict[str, Any] = {"inverse": inverse, "onesided": onesided}
    if opset >= 20:
        constants["axis"] = np.array(axis, np.int64)
        names.append("axis")
    else:
        attributes["axis"] = axis
    feeds = {"x": numbers(0, *shape, parts)}
    fixed = [node("Constant", [], [name], value=numpy_helper.from_array(held)) for name, held in constants.items()]
    nodes = [*fixed, node("DFT", names, ["y"], **attributes)]
    model = build(nodes, feeds, ["y"], opset=opset, place=place)
    made, _ = rewritten(model, "dft_to_matmul")
    assert "DFT" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


@given(
    batch=st.integers(1, 2),
    step=st.integers(1, 5),
    length=st.integers(2, 8),
    onesided=st.integers(0, 1),
    window=st.booleans(),
    flat=st.booleans(),
    place=PLACE,
)
def test_a_short_time_fourier_transform_by_a_conv_is_the_same(
    batch: int, step: int, length: int, onesided: int, window: bool, flat: bool, place: str
) -> None:
    signal = numbers(0, batch, 20)
    feeds = {"x": signal if flat else signal[..., None]}
    constants: Arrays = {"step": np.array(step, np.int64), "length": np.array(length, np.int64)}
    if window:
        constants["window"] = np.hanning(length + 2)[1:-1].astype(np.float32)
    fixed = [node("Constant", [], [name], value=numpy_helper.from_array(held)) for name, held in constants.items()]
    nodes = [*fixed, node("STFT", ["x", "step", "window" if window else "", "length"], ["y"], onesided=onesided)]
    model = build(nodes, feeds, ["y"], place=place)
    made, _ = rewritten(model, "stft_to_conv")
    assert "STFT" not in operators(made)
    assert_same(model, made, graphs.with_which(feeds, place))


@given(
    alpha=st.sampled_from([1.0, 0.5, -2.0]),
    beta=st.sampled_from([1.0, 0.25, 0.0]),
    turned=st.integers(0, 1),
    fixed=st.booleans(),
    bias=st.booleans(),
    place=PLACE,
    opset=st.integers(11, 23),
)
def test_a_gemm_without_factors_gives_the_same(
    alpha: float, beta: float, turned: int, fixed: bool, bias: bool, place: str, opset: int
) -> None:
    feeds = {
        "a": numbers(0, 2, 3),
        "b": numbers(1, *((4, 3) if turned else (3, 4))),
        **({"c": numbers(2, 4)} if bias else {}),
    }
    names = list(feeds)
    constants = {name: feeds.pop(name) for name in names[1:]} if fixed else {}
    nodes = [node("Gemm", names, ["y"], alpha=alpha, beta=beta, transB=turned)]
    model = build(nodes, feeds, ["y"], opset=opset, place=place, constants=constants)
    made, changed = rewritten(model, "plain_gemm")
    assert bool(changed) == (alpha != 1 or beta != 1)
    assert_same(model, made, graphs.with_which(feeds, place))
