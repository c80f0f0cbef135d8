"""Which models are quantised already, in as many bits as are asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from runtimes.kit import quantization
from tests.runtimes.openvino_jobs import FLOAT, conv_net, make
from tests.runtimes.quantized_models import BODY, BOTH, INPUT, quantized_net


@pytest.mark.parametrize(
    ("kind", "narrow", "wide"),
    [(np.uint8, True, False), (np.int8, True, False), (np.uint16, False, True), (np.int16, False, True)],
)
def test_a_model_counts_as_quantised_in_the_bits_that_it_has(
    tmp_path: Path, kind: type[np.generic], narrow: bool, wide: bool
) -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], "/q"),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"], "/dq"),
    ]
    made = make(nodes, [("x", FLOAT, [2])], [("y", FLOAT, [2])], {"scale": np.float32(1), "zero": np.zeros((), kind)})
    onnx.save_model(made.model, tmp_path / "model.onnx")
    assert quantization.is_quantized(tmp_path / "model.onnx", wide=False) is narrow
    assert quantization.is_quantized(tmp_path / "model.onnx", wide=True) is wide


def test_weights_alone_in_whole_numbers_are_no_quantised_model(tmp_path: Path) -> None:
    weights = {"w": np.ones(2, np.int8), "scale": np.float32(1), "zero": np.int8(0)}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scale", "zero"], ["v"], "/dq"),
        helper.make_node("Add", ["x", "v"], ["y"], "/add"),
    ]
    made = make(nodes, [("x", FLOAT, [2])], [("y", FLOAT, [2])], weights)
    for name, each in (("weights", made), ("floats", conv_net())):
        onnx.save_model(each.model, tmp_path / f"{name}.onnx")
        assert not quantization.is_quantized(tmp_path / f"{name}.onnx", wide=False)


@pytest.mark.parametrize(
    ("around", "kind", "narrow", "wide"),
    [
        ((), np.int8, 0, 0),
        ((INPUT,), np.int8, 0, 0),
        ((BODY,), np.int8, 1, 0),
        (BOTH, np.uint8, 2, 0),
        (BOTH, np.uint16, 0, 2),
    ],
)
def test_convolutions_count_that_take_whole_numbers_on_both_sides(
    tmp_path: Path, around: tuple[str, ...], kind: type[np.generic], narrow: int, wide: int
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save_model(quantized_net(around, kind).model, path)
    for broad, found in ((False, narrow), (True, wide)):
        assert quantization.count(path, wide=broad) == (found, 2)
        assert quantization.is_quantized(path, wide=broad) is (found > 0)
        said = [f"{2 - found} of 2 convolutions and matrix products calculate in float"]
        assert quantization.notes(path, wide=broad) == (said if found < 2 else [])


def test_weights_that_are_stored_whole_and_turned_behind_their_scale_count(tmp_path: Path) -> None:
    def zero(name: str, value: onnx.TensorProto) -> onnx.NodeProto:
        return helper.make_node("Constant", [], [name], f"/{name}", value=value)

    nodes = [
        zero("zero", helper.make_tensor("zero", onnx.TensorProto.UINT8, [], [128])),
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], "/q"),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"], "/d"),
        helper.make_node("DequantizeLinear", ["w", "scale"], ["v"], "/w"),
        helper.make_node("Transpose", ["v"], ["t"], "/turn", perm=[1, 0]),
        helper.make_node("MatMul", ["d", "t"], ["y"], "/product"),
    ]
    weights = {"w": np.ones((4, 3), np.int8), "scale": np.float32(0.1)}
    made = make(nodes, [("x", FLOAT, [2, 3])], [("y", FLOAT, [2, 4])], weights)
    onnx.save_model(made.model, tmp_path / "model.onnx")
    assert quantization.count(tmp_path / "model.onnx", wide=False) == (1, 1)
