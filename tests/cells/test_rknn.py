"""Whole cells on RKNN: a real model, a model that needs repairs, and a chip that nobody makes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.command import Aipc

RKNN = ("--runtime", "rknn", "--engine", "venv")


@pytest.fixture
def aipc(tmp_path: Path, environment_python: Callable[[str], Path]) -> Aipc:
    assert environment_python("reference").exists()
    assert environment_python("rknn").exists()
    return Aipc(tmp_path)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["venv", "docker"])
def test_a_real_model_agrees_on_the_simulator_and_the_report_says_that_it_was_one(
    aipc: Aipc, engine: str, request: pytest.FixtureRequest
) -> None:
    if engine == "docker":
        request.getfixturevalue("docker_daemon")
    done = aipc.deploy("esrgan-compact", "--runtime", "rknn", "--engine", engine)
    assert done.code == 0, done.out + done.error
    report = aipc.report()
    assert report["verdict"] == "agrees"
    assert (report["device"], report["simulated"]) == ("NPU", "the RKNN simulator of rknn-toolkit2 2.5.0")
    assert list(aipc.artifact()) == ["model.rknn"]
    assert min(each["snr_db"] for each in report["measures"]) > 55.0
    assert {each["device"] for each in report["placement"]} == {"NPU"}
    assert len(report["placement"]) > 15


def test_a_new_opset_and_nodes_without_a_kernel_are_mended_without_a_hint(aipc: Aipc) -> None:
    weights = np.random.default_rng(0).normal(0, 0.3, (8, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "/conv", pads=[1, 1, 1, 1]),
        helper.make_node("Atan", ["c"], ["a"], "/atan"),
        helper.make_node("Sign", ["c"], ["s"], "/sign"),
        helper.make_node("Mul", ["a", "s"], ["y"], "/mul"),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 20, 24])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 8, 20, 24])],
        [numpy_helper.from_array(weights, "w")],
    )
    path = aipc.folder / "odd.onnx"
    onnx.save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    done = aipc.deploy(str(path), *RKNN)
    assert done.code == 0, done.out + done.error
    report = aipc.report()
    assert report["verdict"] == "agrees"
    assert [each["rewrite"] for each in report["repairs"] if each["changed"]] == [
        *("lower_opset", "atan_to_polynomial", "decompose_elementwise"),
    ]


def test_what_float16_does_not_hold_is_divided_and_the_model_agrees(aipc: Aipc) -> None:
    generator = np.random.default_rng(1)
    constants = {
        "w": generator.normal(0, 2e4, (8, 3, 3, 3)).astype(np.float32),
        "v": generator.normal(0, 1e-5, (4, 8, 3, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "/large", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "/relu"),
        helper.make_node("Conv", ["r", "v"], ["y"], "/small", pads=[1, 1, 1, 1]),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, 20, 24])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 4, 20, 24])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    path = aipc.folder / "large.onnx"
    onnx.save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    done = aipc.deploy(str(path), *RKNN)
    assert done.code == 0, done.out + done.error
    report = aipc.report()
    assert report["verdict"] == "agrees"
    assert [each["rewrite"] for each in report["repairs"] if each["changed"]] == ["scale_overflow"]


def test_a_wrong_chip_lists_the_known_ones(aipc: Aipc) -> None:
    done = aipc.deploy("esrgan-compact", *RKNN, "--target", "snapdragon")
    assert done.code == 2
    assert done.last_line == (
        "aipc: runtime 'rknn': has no target 'snapdragon'; known are rk2118, rk3562, rk3566, rk3568, rk3576, rk3588, "
        "rv1103, rv1103b, rv1106, rv1106b, rv1126b"
    )
