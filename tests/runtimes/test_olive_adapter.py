"""Olive's passes in its own environment: they work, refuse, and die."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from runtimes.contract import Json, Kind, Status, Step
from runtimes.kit import tensors
from tests.runtimes.openvino_jobs import Ended, Made, Workspaces, conv_net, picture, reference
from tests.runtimes.ortqnn_jobs import gelu, snr

SEEN = {f"seen-{index}": {"x": picture(index)} for index in range(4)}
FAILS = """
from runtimes.olive import adapter
adapter.import_olive()
from olive.passes.onnx.quantization import OnnxStaticQuantization as Pass
def _fails(*_, **__):
    raise KeyError("/odd/Op")
Pass._run_for_config = _fails
"""
DIES = """
import os
from runtimes.olive import adapter
adapter.import_olive()
from olive.passes.onnx.quantization import OnnxStaticQuantization as Pass
Pass._run_for_config = lambda *_, **__: os.abort()
"""
SENDS = """
import sys
from runtimes.olive import adapter
adapter.import_olive()
import olive.passes.olive_pass, olive.model
print(sorted(name for name in sys.modules if "telemetry" in name and not name.startswith("onnx")))
print(vars(sys.modules["olive.telemetry"]).keys() >= {"action"}, hasattr(sys.modules["olive.telemetry"], "__path__"))
"""


@pytest.fixture
def jobs(tmp_path: Path, environment_python: Callable[[str], Path]) -> Workspaces:
    return Workspaces(tmp_path, environment_python("olive"), "olive")


def patch(jobs: Workspaces, made: Made, *names: str, precision: str = "int8", spoil: str = "") -> Ended:
    folders = {name: jobs.root / f"in-{name}" for name in ("model", "calibration")}
    folders["model"].mkdir()
    onnx.save(made.model, folders["model"] / "model.onnx")
    tensors.save_samples(folders["calibration"], SEEN)
    options: Json = {"rewrites": [{"name": name} for name in names], "precision": precision}
    return jobs.job(Step.PATCH, folders, options, "patch", spoil=spoil)


def model_of(ended: Ended) -> Path:
    assert ended.result, (ended.result.failure, ended.log)
    return ended.layout.outputs / "model" / "model.onnx"


def answers(path: Path, feeds: Mapping[str, Any]) -> Any:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, dict(feeds))[0]


@pytest.mark.parametrize(("precision", "bits", "enough"), [("int8", "uint8", 20), ("a16w8", "uint16", 30)])
def test_a_quantised_model_is_near_and_has_onnx_own_operators(
    jobs: Workspaces, precision: str, bits: str, enough: float
) -> None:
    made = conv_net()
    path = model_of(patch(jobs, made, "olive_qnn_quantize", precision=precision))
    model = onnx.load(path)
    quantizes = [node for node in model.graph.node if node.op_type in {"QuantizeLinear", "DequantizeLinear"}]
    assert quantizes
    assert {node.domain for node in quantizes} == {""}
    held = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    assert {held[node.input[2]].dtype.name for node in quantizes if node.op_type == "QuantizeLinear"} == {bits}
    assert {each.dtype.name for each in held.values() if each.ndim == 4} == {"int8"}
    assert 8 in {held[node.input[1]].size for node in quantizes}  # a scale for each channel
    feeds = {"x": picture(9)}
    assert snr(answers(path, feeds), reference(made, feeds)["y"]) > enough


def test_what_the_htp_has_as_one_operator_becomes_one(jobs: Workspaces) -> None:
    made = gelu()
    path = model_of(patch(jobs, made, "olive_qnn_preprocess", precision="fp16"))
    assert [node.op_type for node in onnx.load(path).graph.node] == ["MatMul", "Gelu"]


def test_a_model_with_nothing_to_join_comes_back_as_it_is(jobs: Workspaces) -> None:
    made = conv_net()
    path = model_of(patch(jobs, made, "olive_qnn_preprocess", precision="fp16"))
    assert [node.name for node in onnx.load(path).graph.node] == [node.name for node in made.model.graph.node]


@pytest.mark.parametrize(
    ("name", "precision", "words"),
    [
        ("olive_qnn_quantise", "int8", "there is none; did you mean 'olive_qnn_quantize'?"),
        ("olive_qnn_quantize", "fp16", "rewrite olive_qnn_quantize: there is none in fp16"),
    ],
)
def test_a_rewrite_that_there_is_not_is_refused(jobs: Workspaces, name: str, precision: str, words: str) -> None:
    ended = patch(jobs, conv_net(), name, precision=precision)
    assert ended.result.status is Status.REFUSED
    assert ended.failure.kind is Kind.OPTION
    assert words in ended.failure.message


def test_what_olive_stumbles_over_is_its_failure_in_its_words(jobs: Workspaces) -> None:
    ended = patch(jobs, conv_net(), "olive_qnn_quantize", spoil=FAILS)
    assert ended.result.status is Status.FAILED
    assert ended.failure.kind is Kind.REWRITE
    assert ended.failure.message == "Olive's OnnxStaticQuantization: KeyError: '/odd/Op'"


def test_where_olive_dies_there_is_no_result(jobs: Workspaces) -> None:
    with pytest.raises(AssertionError):
        patch(jobs, conv_net(), "olive_qnn_quantize", spoil=DIES)
    assert not (jobs.root / "patch" / "result.json").exists()


def test_nothing_of_its_telemetry_is_loaded(jobs: Workspaces) -> None:
    names, stands_in = jobs.program(SENDS)[-2:]
    assert names == "['olive.telemetry']"
    assert stands_in == "True False"
