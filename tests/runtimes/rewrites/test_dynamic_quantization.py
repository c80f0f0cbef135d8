"""`dequantize_dynamic`: floating operators with the weights of eight bits, as near as those bits allow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from runtimes.kit.tensors import Array
from runtimes.reference.measures import measure
from runtimes.reference.rewrites import Unsuitable
from tests.runtimes.rewrites.graphs import PLACES, assert_same, build, node, operators, rewritten, run, with_which

RNG = np.random.default_rng(4)
X = RNG.normal(size=(3, 16)).astype(np.float32)
PICTURE = RNG.normal(size=(1, 3, 8, 9)).astype(np.float32)
QUANTISED = {"DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "QLinearConv", "QLinearMatMul"}


def near(before: onnx.ModelProto, after: onnx.ModelProto, feeds: dict[str, Array], snr_db: float = 30.0) -> None:
    found = run(after, feeds)
    for name, expected in run(before, feeds).items():
        assert (measure(expected, found[name]).snr_db or 0) > snr_db


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("what", ["MatMul", "Conv", "Gemm"])
def test_what_onnx_runtime_quantised_dynamically_is_as_it_was(what: str, per_channel: bool, tmp_path: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    feeds: dict[str, Array] = {"x": PICTURE if what == "Conv" else X}
    weights = RNG.normal(size=(5, 3, 3, 3) if what == "Conv" else (16, 7)).astype(np.float32)
    bias = RNG.normal(size=5 if what == "Conv" else 7).astype(np.float32)
    attributes: dict[str, Any] = {"pads": [1, 1, 1, 1]} if what == "Conv" else {}
    operands = ["x", "w"] if what == "MatMul" else ["x", "w", "b"]
    nodes = [node(what, operands, ["p"], **attributes), node("Relu", ["p"], ["y"])]
    exact = build(nodes, feeds, ["y"], constants={"w": weights, "b": bias})
    onnx.save(exact, tmp_path / "exact.onnx")
    kind = QuantType.QInt8 if what != "Conv" else QuantType.QUInt8
    quantize_dynamic(tmp_path / "exact.onnx", tmp_path / "q.onnx", weight_type=kind, per_channel=per_channel)
    before = onnx.load(tmp_path / "q.onnx")
    assert operators(before) & QUANTISED
    after, changed = rewritten(named(before), "dequantize_dynamic")
    assert changed
    assert not operators(after) & QUANTISED
    near(before, after, feeds)
    near(exact, after, feeds)


def named(model: onnx.ModelProto) -> onnx.ModelProto:
    """Drop the domains that the quantisation declares and does not use."""
    kept = [each for each in model.opset_import if each.domain == ""]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    return model


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 5),
    inner=st.integers(2, 9),
    columns=st.integers(1, 5),
    zero=st.integers(-3, 3),
    seed=st.integers(0, 99),
    place=st.sampled_from(PLACES),
)
def test_a_matrix_product_of_any_size_comes_near(
    rows: int, inner: int, columns: int, zero: int, seed: int, place: str
) -> None:
    rng = np.random.default_rng(seed)
    feeds = {"x": rng.uniform(-1, 1, size=(rows, inner)).astype(np.float32)}
    constants: dict[str, Array] = {
        "w": rng.integers(-128, 127, size=(inner, columns)).astype(np.int8),
        "z": np.array(zero, np.int8),
        "s": np.array(0.01, np.float32),
    }
    before = build(dynamic_product(), feeds, ["y"], place=place, constants=constants)
    after, _changed = rewritten(before, "dequantize_dynamic")
    assert not operators(after) & QUANTISED
    exact = feeds["x"] @ ((constants["w"].astype(np.float32) - zero) * constants["s"])
    name = next(iter(run(after, with_which(feeds, place))))
    np.testing.assert_allclose(run(after, with_which(feeds, place))[name], exact, atol=1e-4)


def dynamic_product() -> list[onnx.NodeProto]:
    return [
        node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]),
        node("MatMulInteger", ["q", "w", "qz", "z"], ["i"]),
        node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["qs", "s"], ["scale"]),
        node("Mul", ["f", "scale"], ["y"]),
    ]


@pytest.mark.parametrize("place", PLACES)
def test_a_quantised_convolution_stands_between_quantisation_and_its_inverse(place: str) -> None:
    feeds = {"x": RNG.integers(0, 255, size=(1, 3, 8, 9)).astype(np.uint8)}
    constants: dict[str, Array] = {
        "xs": np.array(0.02, np.float32),
        "xz": np.array(120, np.uint8),
        "w": RNG.integers(-90, 90, size=(4, 3, 3, 3)).astype(np.int8),
        "wz": np.zeros(4, np.int8),
        "ws": np.array([0.01, 0.02, 0.03, 0.01], np.float32),
        "b": np.array([100, -50, 0, 7], np.int32),
        "ys": np.array(0.1, np.float32),
        "yz": np.array(128, np.uint8),
    }
    made = node("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["y"], pads=[1, 1, 1, 1])
    before = build([made], feeds, ["y"], place=place, constants=constants)
    after, _changed = rewritten(before, "dequantize_dynamic")
    assert {"Conv", "DequantizeLinear", "QuantizeLinear"} <= operators(after)
    near(before, after, with_which(feeds, place), 40.0)


def test_a_quantised_matrix_product_is_so_too() -> None:
    feeds = {"x": RNG.integers(0, 255, size=(3, 8)).astype(np.uint8)}
    constants: dict[str, Array] = {
        "xs": np.array(0.02, np.float32),
        "xz": np.array(120, np.uint8),
        "w": RNG.integers(0, 200, size=(8, 5)).astype(np.uint8),
        "wz": np.array(99, np.uint8),
        "ws": np.array(0.01, np.float32),
        "ys": np.array(0.1, np.float32),
        "yz": np.array(128, np.uint8),
    }
    made = node("QLinearMatMul", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["y"])
    before = build([made], feeds, ["y"], constants=constants)
    after, _changed = rewritten(before, "dequantize_dynamic")
    near(before, after, feeds, 40.0)


def test_integers_that_somebody_else_takes_are_not_touched() -> None:
    nodes = [node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]), node("Cast", ["q"], ["y"], to=TensorProto.INT32)]
    before = build(nodes, {"x": X}, ["y"])
    with pytest.raises(Unsuitable, match="node node_q \\(DynamicQuantizeLinear\\): node node_y \\(Cast\\) takes its"):
        rewritten(before, "dequantize_dynamic")


def test_a_graph_without_them_is_left_alone() -> None:
    before = build([node("Relu", ["x"], ["y"])], {"x": X}, ["y"])
    after, changed = rewritten(before, "dequantize_dynamic")
    assert changed == []
    assert_same(before, after, {"x": X})
