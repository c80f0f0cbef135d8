"""QAIRT cells from a command to a verdict: without an SDK, and with a stand-in of one."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import helper

from tests.command import Aipc
from tests.qairt import standin
from tests.runtimes.openvino_jobs import FLOAT, make


@pytest.fixture
def ready(tmp_path: Path, reference_python: Path, qairt_python: Path) -> Path:
    """A folder for a store and reports; the environments of the venv engine are there."""
    assert reference_python.exists()
    assert qairt_python.exists()
    return tmp_path


@pytest.fixture
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stand-in that every user of this machine can read, as a container's job must."""
    folder = tmp_path_factory.mktemp("sdk") / "qairt"
    return standin.make(folder)


def test_without_an_sdk_a_container_is_delivered_and_the_cell_is_untried(ready: Path) -> None:
    aipc = Aipc(ready, {"QAIRT_SDK_ROOT": ""})
    done = aipc.tiny(runtime="qairt")
    assert done.code == 1
    report = aipc.report()
    assert report["verdict"] == "untried"
    assert "QAIRT_SDK_ROOT" in report["reasons"][0]
    assert set(aipc.artifact()) == {"model.dlc", "interface.json"}


def test_an_operator_that_qnn_lacks_is_rewritten(ready: Path) -> None:
    node = helper.make_node("Einsum", ["x", "z"], ["y"], "/odd", equation="bchw,bdhw->bcd")
    made = make([node], [("x", FLOAT, [1, 4, 6, 8]), ("z", FLOAT, [1, 5, 6, 8])], [("y", FLOAT, [1, 4, 5])])
    onnx.save(made.model, ready / "einsum.onnx")
    aipc = Aipc(ready, {"QAIRT_SDK_ROOT": ""})
    done = aipc.deploy("einsum.onnx", "--runtime", "qairt", "--engine", "venv")
    report = aipc.report()
    assert report["verdict"] == "untried", done.out + done.error
    (repair,) = report["repairs"]
    assert (repair["rewrite"], repair["symptom"]["node"], repair["helped"]) == ("einsum_to_matmul", "/odd", True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["venv", "docker"])
def test_with_an_sdk_the_cell_goes_through_and_says_what_it_ran_on(
    ready: Path, sdk: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    if engine == "docker":
        request.getfixturevalue("docker_daemon")
    aipc = Aipc(ready, {"QAIRT_SDK_ROOT": str(sdk)})
    done = aipc.tiny(runtime="qairt", engine=engine)
    assert done.code == 0, done.out + done.error
    report = aipc.report()
    assert report["verdict"] == "agrees"
    assert "stand-in" in done.out
    assert set(aipc.artifact()) == {"model.dlc", "context.bin", "backend.json", "htp.json", "interface.json"}


def test_another_sdk_makes_another_artefact_and_the_same_one_none(ready: Path, sdk: Path) -> None:
    aipc = Aipc(ready, {"QAIRT_SDK_ROOT": str(sdk)})
    assert aipc.tiny(runtime="qairt").code == 0
    assert aipc.tiny(runtime="qairt").code == 0
    assert aipc.steps_in_store()["convert"] == 1
    (sdk / "lib" / "another.so").write_text("stand-in\n")
    assert aipc.tiny(runtime="qairt").code == 0
    steps = aipc.steps_in_store()
    assert (steps["convert"], steps["run"]) == (2, 2)


def test_encodings_of_aimet_reach_the_converter_and_other_ones_make_another_artefact(ready: Path, sdk: Path) -> None:
    aipc = Aipc(ready, {"QAIRT_SDK_ROOT": str(sdk)})
    encodings = ready / "net.encodings"
    for number in (1, 2):
        encodings.write_text(json.dumps({"activation_encodings": {f"r{number}": []}, "param_encodings": {}}))
        done = aipc.tiny("--precision", "int8", "--encodings", str(encodings), runtime="qairt")
        assert done.code == 0, done.out + done.error
    assert aipc.steps_in_store()["quantize"] == 2
    assert aipc.steps_in_store()["convert"] == 1
    logs = [path.read_text(errors="replace") for path in aipc.store.glob("*/log.txt")]
    assert sum("--quantization_overrides" in log for log in logs) == 2
    (report,) = [json.loads(path.read_text()) for path in aipc.runs.rglob("int8@*/report.json")]
    assert str(encodings) in report["reproduce"]


@pytest.mark.parametrize(
    ("runtime", "precision", "file", "said"),
    [
        ("openvino", "fp16", "a.encodings", "--encodings: openvino takes none, only ortqnn, qairt"),
        ("qairt", "fp16", "a.encodings", "--encodings: fp16 of qairt is not quantised"),
        ("qairt", "int8", "b.encodings", "b.encodings is no file; name one"),
    ],
)
def test_encodings_that_cannot_be_used_are_one_line(
    ready: Path, sdk: Path, runtime: str, precision: str, file: str, said: str
) -> None:
    (ready / "a.encodings").touch()
    argv = ("--precision", precision, "--encodings", str(ready / file))
    done = Aipc(ready, {"QAIRT_SDK_ROOT": str(sdk)}).tiny(*argv, runtime=runtime)
    assert done.code == 2
    assert said in done.last_line
    without = Aipc(ready, {"QAIRT_SDK_ROOT": ""}).tiny("--precision", "int8", *argv[2:], runtime="qairt")
    assert without.code == 2
    assert "name its folder in QAIRT_SDK_ROOT" in without.last_line


def test_an_sdk_that_is_not_there_is_a_wrong_setting(ready: Path) -> None:
    done = Aipc(ready, {"QAIRT_SDK_ROOT": str(ready / "nowhere")}).tiny(runtime="qairt")
    assert done.code == 2
    assert "QAIRT_SDK_ROOT" in done.last_line
    assert "is no folder" in done.last_line


def test_doctor_says_whether_there_is_an_sdk(ready: Path, sdk: Path) -> None:
    assert f"SDK      qairt: {sdk}, by QAIRT_SDK_ROOT" in Aipc(ready, {"QAIRT_SDK_ROOT": str(sdk)})("doctor").out
    assert (
        "SDK      qairt: none; QAIRT_SDK_ROOT names the folder of one"
        in Aipc(ready, {"QAIRT_SDK_ROOT": ""})("doctor").out
    )
    wrong = Aipc(ready, {"QAIRT_SDK_ROOT": str(ready / "nowhere")})("doctor")
    assert "nowhere' is no folder" in wrong.out
