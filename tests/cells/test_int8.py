"""int8 on OpenVINO, from command to verdict."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper

from tests.command import Aipc
from tests.runtimes.openvino_jobs import FLOAT, make

BESIDE = "beside the strongest sample"


def gates(report: Mapping[str, object]) -> str:
    return str(report["gates"])


def test_int8_comes_after_fp16_and_agrees(aipc: Aipc) -> None:
    done = aipc.tiny("--precision", "int8")
    assert done.code == 0, done.out + done.error
    reports = aipc.reports()
    assert {name: report["verdict"] for name, report in reports.items()} == {"fp16": "agrees", "int8": "agrees"}
    assert "FakeQuantize" in {row["op"] for row in reports["int8"]["placement"]}
    assert any(kernel.lower().endswith("i8") for kernel in reports["int8"]["execution"]["kernels"])
    # The judge is told that it is fixed point, and only then.
    assert BESIDE in gates(reports["int8"])
    assert BESIDE not in gates(reports["fp16"])


def test_a_matrix_without_pictures_calibrates_on_draws(aipc: Aipc) -> None:
    weights = {"w": np.random.default_rng(3).normal(size=(8, 6)).astype(np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "/product")]
    made = make(nodes, [("x", FLOAT, [4, 8])], [("y", FLOAT, [4, 6])], weights)
    onnx.save_model(made.model, aipc.folder / "net.onnx")
    matrix = aipc.folder / "bare.toml"
    matrix.write_text("seed = 1\nmagnitudes = [1.0, 0.1]\n[precisions]\nfp16 = {cosine = 0.999, snr_db = 30.0}\n")
    with matrix.open("a") as file:
        file.write("int8 = {cosine = 0.95, snr_db = 20.0}\nfp32 = {cosine = 0.99999, snr_db = 60.0}\n")
    more = ("--precision", "int8", "--engine", "venv", "--matrix", str(matrix))
    done = aipc.deploy("net.onnx", "--runtime", "openvino", *more)
    assert done.code == 0, done.out + done.error
