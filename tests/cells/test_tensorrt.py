"""A cell on TensorRT, from command to verdict: built, and untried, since this machine has no NVIDIA GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import helper

from tests.command import Aipc
from tests.runtimes.openvino_jobs import FLOAT, make

REASON = "no NVIDIA GPU here: the CUDA driver cannot be loaded"


@pytest.fixture
def ready(reference_python: Path, environment_python: Callable[[str], Path]) -> None:
    """The environments are there, and there is no GPU."""
    assert reference_python.exists()
    assert environment_python("tensorrt").exists()
    if list(Path("/dev").glob("nvidia*")):
        pytest.skip("this machine has an NVIDIA GPU")


@pytest.mark.usefixtures("ready")
def test_an_engine_is_built_and_untried_with_the_reason(tmp_path: Path) -> None:
    aipc = Aipc(tmp_path)
    done = aipc.tiny("--precision", "fp32", runtime="tensorrt")
    assert done.code == 1, done.out + done.error
    report = aipc.report()
    assert report["verdict"] == "untried"
    assert REASON in report["reasons"][0]
    assert list(aipc.artifact()) == ["model.engine"]
    assert {row["device"] for row in report["placement"]} == {"GPU"}
    assert report["simulated"] == ""
    assert aipc.steps_in_store() == {"prepare": 1, "export": 1, "convert": 1}


@pytest.mark.usefixtures("ready")
def test_fp16_is_a_rewrite_that_leaves_the_ports_in_float32(tmp_path: Path) -> None:
    aipc = Aipc(tmp_path)
    done = aipc.tiny(runtime="tensorrt")
    report = aipc.report()
    assert report["verdict"] == "untried", done.out + done.error
    assert report["precision"] == "fp16"
    assert [each["rewrite"] for each in report["repairs"]] == ["fp16"]
    assert {each["dtype"] for side in report["io"].values() for each in side} == {"float32"}


@pytest.mark.usefixtures("ready")
def test_int8_is_a_rewrite_with_ranges_seen_in_calibration_samples(tmp_path: Path) -> None:
    aipc = Aipc(tmp_path)
    done = aipc.tiny("--precision", "int8", runtime="tensorrt")
    reports = aipc.reports()
    assert {name: report["verdict"] for name, report in reports.items()} == {"fp16": "untried", "int8": "untried"}, (
        done.out + done.error
    )
    assert [each["rewrite"] for each in reports["int8"]["repairs"]] == ["qdq"]
    assert "QuantizeLinear" in {row["op"] for row in reports["int8"]["placement"]}
    assert aipc.steps_in_store()["calibrate"] == aipc.steps_in_store()["quantize"] == 1


@pytest.mark.usefixtures("ready")
def test_an_operator_that_tensorrt_has_not_is_rewritten_and_the_engine_built(tmp_path: Path) -> None:
    nodes = [helper.make_node("Det", ["x"], ["d"], "/det"), helper.make_node("Abs", ["d"], ["y"], "/abs")]
    onnx.save_model(make(nodes, [("x", FLOAT, [2, 3, 3])], [("y", FLOAT, [2])]).model, tmp_path / "net.onnx")
    aipc = Aipc(tmp_path)
    done = aipc.deploy("net.onnx", "--runtime", "tensorrt", "--precision", "fp32", "--engine", "venv")
    report = aipc.report()
    assert report["verdict"] == "untried", done.out + done.error
    (repair,) = report["repairs"]
    assert repair["rewrite"] == "det_to_arithmetic"
    assert "Det" not in {row["op"] for row in report["placement"]}


@pytest.mark.usefixtures("ready")
def test_a_capability_that_is_none_lists_the_known_ones(tmp_path: Path) -> None:
    done = Aipc(tmp_path).tiny("--target", "hopper", runtime="tensorrt")
    assert done.code == 2
    assert "known are all, sm120, sm121, sm75, sm80, sm86, sm89" in done.last_line


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("ready")
def test_both_engines_build_the_same_engine_file(tmp_path: Path, docker_daemon: str) -> None:
    assert docker_daemon
    found = {}
    for engine in ("venv", "docker"):
        aipc = Aipc(tmp_path / engine)
        aipc.folder.mkdir()
        done = aipc.tiny("--precision", "fp32", "--target", "all", engine=engine, runtime="tensorrt")
        assert done.code == 1, done.out + done.error
        assert aipc.report()["verdict"] == "untried"
        assert REASON in aipc.report()["reasons"][0]
        found[engine] = aipc.artifact()
    assert found["venv"] == found["docker"]
