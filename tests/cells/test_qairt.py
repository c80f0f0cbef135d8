"""QAIRT cells from a command to a verdict: without an SDK, and with a stand-in of one."""

from __future__ import annotations

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
