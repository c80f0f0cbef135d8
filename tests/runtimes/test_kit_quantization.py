"""Which models are quantised already, in as many bits as are asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from runtimes.kit import quantization
from tests.runtimes.openvino_jobs import FLOAT, conv_net, make


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
