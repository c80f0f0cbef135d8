"""The main job: a real model, real weights, a real photograph, on both engines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.command import MODELS, Aipc, tiny

COMPACT = ("esrgan-compact", "--runtime", "openvino", "--precision", "fp16")


def worst(report: dict[str, Any], name: str, sample: str = "") -> float:
    return min(float(each[name]) for each in report["measures"] if not sample or each["sample"] == sample)


@pytest.mark.timeout(600)
def test_both_engines_with_stores_of_their_own_give_one_verdict_and_one_artefact(
    tmp_path: Path, reference_python: Path, openvino_python: Path, docker_daemon: str
) -> None:
    assert reference_python.exists()
    assert openvino_python.exists()
    assert docker_daemon
    found = {}
    for engine in ("venv", "docker"):
        aipc = Aipc(tmp_path / engine)
        aipc.folder.mkdir()
        done = aipc.deploy(*COMPACT, "--engine", engine)
        assert done.code == 0, done.out + done.error
        report = aipc.report()
        assert report["verdict"] == "agrees"
        assert report["engine"] == engine
        assert worst(report, "cosine", "photo") >= 0.9999
        assert worst(report, "snr_db", "photo") >= 50.0
        assert report["execution"]["INFERENCE_PRECISION_HINT"] == "f32"
        found[engine] = aipc.artifact()
    assert set(found["venv"]) == {"model.xml", "model.bin"}
    assert found["venv"] == found["docker"]


def test_fp32_is_nearer_than_fp16_and_twice_as_large(aipc: Aipc) -> None:
    numbers = {}
    for precision in ("fp16", "fp32"):
        mine = Aipc(aipc.folder / precision)
        mine.folder.mkdir()
        done = mine.tiny("--precision", precision)
        assert done.code == 0, done.out + done.error
        report = mine.report()
        sizes = {each["name"]: each["size_bytes"] for each in report["artifact"]["components"]}
        numbers[precision] = (worst(report, "snr_db"), sizes["model.bin"])
    assert numbers["fp32"][0] > numbers["fp16"][0]
    assert numbers["fp32"][1] > 1.5 * numbers["fp16"][1]


def test_a_model_that_ignores_its_input_is_vacuous_not_green(aipc: Aipc) -> None:
    done = aipc.deploy(
        *("tiny:constant#1x3x20x24", "--source", str(MODELS)),
        *("--runtime", "openvino", "--engine", "venv"),
    )
    assert done.code == 1
    assert aipc.report()["verdict"] == "vacuous"


def test_a_package_that_is_missing_is_refused_and_named(aipc: Aipc) -> None:
    done = aipc.deploy(
        *("tiny:missing#1x3x20x24", "--source", str(MODELS)),
        *("--runtime", "openvino", "--engine", "venv"),
    )
    assert done.code == 1
    report = aipc.report()
    assert report["verdict"] == "refused"
    assert "not_a_package" in report["failure"]["failure"]["message"]


def test_a_device_that_is_not_here_leaves_the_cell_untried_with_the_artefact_built(aipc: Aipc) -> None:
    done = aipc.tiny("--target", "npu")
    assert done.code == 1
    report = aipc.report()
    assert report["verdict"] == "untried"
    assert "NPU" in report["reasons"][0]
    assert report["artifact"]["components"]


def test_two_deploys_of_one_cell_at_once_both_end_well(aipc: Aipc) -> None:
    argv = aipc.deploy_argv(*tiny(), "--engine", "venv")
    both = [
        subprocess.Popen(argv, env=aipc.variables(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    texts = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], "\n".join(texts)
    assert set(aipc.steps_in_store().values()) == {1}
    assert aipc.report()["verdict"] == "agrees"
    assert not list(aipc.runs.rglob(".*"))


def test_the_line_that_reproduces_a_report_does_so(aipc: Aipc) -> None:
    assert aipc.tiny().code == 0
    line = aipc.report()["reproduce"]
    before = aipc.steps_in_store()
    program = [sys.executable, "-P", "-m", "aipc"]
    done = subprocess.run(
        [*program, *line[1:]], env=aipc.variables(), cwd=aipc.folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert aipc.steps_in_store() == before
    assert {"--engine", "--precision", "--target"} < set(line)


def test_a_function_in_the_current_folder_is_not_run_again_because_of_its_own_report(aipc: Aipc) -> None:
    (aipc.folder / "mine.py").write_text((MODELS / "tiny.py").read_text())
    arguments = ("deploy", "mine:upscaler#1x3x20x24", "--runtime", "openvino", "--engine", "venv")
    # The store of a user is elsewhere; that of this test is not.
    elsewhere = Aipc(aipc.folder, {"AIPC_STORE": str(aipc.folder.parent / f"{aipc.folder.name}-store")})
    assert elsewhere(*arguments).code == 0
    again = elsewhere(*arguments)
    assert again.out.count("in the store") == 5, again.out + again.error
